/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which device and port a job takes, and what is told of those it does not,
 * over fake devices of every kind; and that the report for people agrees.
 */
#include "fake_verbs.h"
#include "providers/verbs/inspect.h"
#include "providers/verbs/internal.h"

#include "error.h"

#include "cunit_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(const char *name, int open_errno, enum ibv_port_state state)
{
	struct fake_config config;

	fake_config_init(&config, 7);
	snprintf(config.name, sizeof(config.name), "%s", name);
	config.open_errno = open_errno;
	config.ports[0].state = state;
	fake_device_add(&config);
}

static void add_plain(const char *name)
{
	add(name, 0, IBV_PORT_ACTIVE);
}

/* The last device's first port. */
static struct fake_port *port_of(int device)
{
	return &fake_device(device)->ports[0];
}

static struct verbs_job *job;

static int open_job(void)
{
	int err;

	job = calloc(1, sizeof(*job));
	if (!job)
		return -ENOMEM;
	pthread_mutex_init(&job->lock, NULL);
	err = device_open(job);
	if (err) {
		free(job);
		job = NULL;
	}
	return err;
}

static void close_job(void)
{
	device_close(job);
	pthread_mutex_destroy(&job->lock);
	free(job);
	job = NULL;
}

static void append(char *text, size_t room, const char *name, unsigned port)
{
	size_t len = strlen(text);

	snprintf(text + len, room - len, "%s%s:%u", len ? " " : "", name, port);
}

/* The report's choice, "" for none; all of its lines are filled. */
static void reported(char *text, size_t room)
{
	struct inspect_report *r = NULL;

	text[0] = '\0';
	CU_ASSERT_EQUAL_FATAL(inspect_verbs(&r), 0);
	for (size_t i = 0; i < r->ndevices; i++) {
		struct inspect_device *d = &r->devices[i];

		CU_ASSERT(d->usable || d->why[0]);
		for (size_t k = 0; k < d->nports; k++) {
			struct inspect_port *p = &d->ports[k];

			CU_ASSERT(p->chosen || p->why[0]);
			for (size_t g = 0; g < p->ngids; g++)
				CU_ASSERT(p->gids[g].why[0] != '\0');
			if (p->chosen)
				append(text, room, d->name, p->number);
		}
	}
	CU_ASSERT_EQUAL(r->usable, text[0] != '\0');
	CU_ASSERT(r->usable || r->why[0]);
	inspect_free(r);
}

/* The job's rails in their order, and the report's in the device list's. */
static void takes_of(const char *order, const char *listed)
{
	char text[64];

	reported(text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, listed);
	CU_ASSERT_EQUAL_FATAL(open_job(), 0);
	text[0] = '\0';
	for (unsigned i = 0; i < job->nrails; i++)
		append(text, sizeof(text), job->rail[i].name,
		       job->rail[i].port_num);
	CU_ASSERT_STRING_EQUAL(text, order);
	close_job();
}

static void takes(const char *both)
{
	takes_of(both, both);
}

static void refuses(const char *words)
{
	char text[64];

	reported(text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, "");
	CU_ASSERT_EQUAL_FATAL(open_job(), -ENODEV);
	if (!strstr(vbn_error(), words))
		fprintf(stderr, "\n\"%s\" lacks \"%s\"\n", vbn_error(), words);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), words));
}

static void done(void)
{
	CU_ASSERT_EQUAL(fake_reset(), 0);
}

static void usable_ones_are_used(void)
{
	refuses("no RDMA device");
	add("a", ENOENT, IBV_PORT_ACTIVE);
	refuses("a: cannot be opened: No such file");
	add("b", EACCES, IBV_PORT_ACTIVE);
	add_plain("c");
	add_plain("d");
	takes("c:1 d:1");
	setenv("VBN_IB_RAILS", "1", 1);
	takes("c:1");
	setenv("VBN_IB_HCA", "d,c", 1);
	takes("d:1");
	unsetenv("VBN_IB_RAILS");
	setenv("VBN_IB_HCA", "d", 1);
	takes("d:1");
	setenv("VBN_IB_HCA", "a,b,d,c", 1);
	takes_of("d:1 c:1", "c:1 d:1");
	setenv("VBN_IB_HCA", "^c", 1);
	takes("d:1");
	setenv("VBN_IB_HCA", "a,b", 1);
	refuses("b: cannot be opened: Permission denied");
	setenv("VBN_IB_HCA", "^c,d", 1);
	refuses("a: cannot be opened");
	setenv("VBN_IB_HCA", "e", 1);
	refuses("VBN_IB_HCA=e leaves none of the 4");
	unsetenv("VBN_IB_HCA");
	done();
}

static void ports_are_looked_at(void)
{
	struct fake_config *config;

	add("a", 0, IBV_PORT_DOWN);
	refuses("a port 1: ");
	config = fake_device(0);
	config->attr.phys_port_cnt = 2;
	takes("a:2");
	setenv("VBN_IB_HCA", "a:1", 1);
	refuses("a port 1: ");
	setenv("VBN_IB_HCA", "^a:2", 1);
	refuses("a port 1: ");
	setenv("VBN_IB_HCA", "a:3", 1);
	refuses("a has 2 port(s), not 3");
	config->ports[0].state = IBV_PORT_ACTIVE;
	setenv("VBN_IB_HCA", "^a:1", 1);
	takes("a:2");
	setenv("VBN_IB_HCA", "a:2,a:1", 1);
	takes_of("a:2 a:1", "a:1 a:2");
	setenv("VBN_IB_HCA", "a:2,a", 1);
	takes_of("a:2 a:1", "a:1 a:2");
	unsetenv("VBN_IB_HCA");
	takes("a:1 a:2");
	config->attr.max_srq = 0;
	refuses("no shared receive queues");
	done();
}

static void gids_are_chosen(void)
{
	struct fake_port *port;

	add_plain("a");
	port = port_of(0);
	port->ngids = 4;
	memset(port->gids, 0, sizeof(port->gids));
	port->gids[0].err = EINVAL;
	port->gids[1] = (struct fake_gid){.raw = {0xfe, 0x80, [15] = 1},
					  .type = IBV_GID_TYPE_ROCE_V2};
	port->gids[2] = fake_gid_ipv4(IBV_GID_TYPE_ROCE_V1, 10, 1, 2, 3);
	port->gids[3] = fake_gid_ipv4(IBV_GID_TYPE_ROCE_V2, 10, 1, 2, 3);
	CU_ASSERT_EQUAL_FATAL(open_job(), 0);
	CU_ASSERT_EQUAL(job->rail[0].port.address.ngids, 3);
	CU_ASSERT_EQUAL(job->rail[0].port.address.gids[0].index, 3);
	close_job();
	setenv("VBN_IB_GID_INDEX", "1", 1);
	CU_ASSERT_EQUAL_FATAL(open_job(), 0);
	CU_ASSERT_EQUAL(job->rail[0].port.address.ngids, 1);
	CU_ASSERT_EQUAL(job->rail[0].port.address.gids[0].index, 1);
	close_job();
	setenv("VBN_IB_GID_INDEX", "0", 1);
	refuses("GID 0 (VBN_IB_GID_INDEX) cannot be read");
	setenv("VBN_IB_GID_INDEX", "9", 1);
	refuses("GID 9 (VBN_IB_GID_INDEX) cannot be read");
	unsetenv("VBN_IB_GID_INDEX");
	port->ngids = 1;
	refuses("no usable GID");
	done();
}

static void infiniband_needs_a_lid(void)
{
	struct fake_port *port;

	add_plain("a");
	port = port_of(0);
	port->link_layer = IBV_LINK_LAYER_INFINIBAND;
	port->lid = 0;
	refuses("subnet manager");
	port->grh_required = true;
	takes("a:1");
	port->grh_required = false;
	port->lid = 12;
	takes("a:1");
	port->gids[0].err = EINVAL;
	takes("a:1");
	CU_ASSERT_EQUAL_FATAL(open_job(), 0);
	CU_ASSERT(job->rail[0].port.address.infiniband &&
		  !job->rail[0].port.grh);
	CU_ASSERT(job->rail[0].port.address.lid == 12 &&
		  !job->rail[0].port.address.ngids);
	close_job();
	done();
}

static void settings_reach_the_port(void)
{
	struct fake_port *port;

	add_plain("a");
	port = port_of(0);
	port->npkeys = 3;
	port->pkeys[0] = 0xffff;
	port->pkeys[1] = 0x1234;
	port->pkeys[2] = 0x9234;
	setenv("VBN_IB_PKEY", "0x1234", 1);
	setenv("VBN_IB_MTU", "1024", 1);
	setenv("VBN_IB_SL", "5", 1);
	setenv("VBN_IB_TC", "104", 1);
	CU_ASSERT_EQUAL_FATAL(open_job(), 0);
	CU_ASSERT_EQUAL(job->rail[0].port.pkey_index, 2);
	CU_ASSERT_EQUAL(job->rail[0].port.address.pkey, 0x9234);
	CU_ASSERT_EQUAL(job->rail[0].port.address.mtu, IBV_MTU_1024);
	CU_ASSERT(job->rail[0].port.sl == 5 && job->rail[0].port.tc == 104);
	CU_ASSERT_EQUAL(job->rail[0].port.timeout, TIMEOUT_SOFTWARE);
	CU_ASSERT_EQUAL(job->rail[0].port.retry_cnt, RETRIES);
	close_job();
	fake_device(0)->attr.vendor_id = 0x15b3;
	CU_ASSERT_EQUAL_FATAL(open_job(), 0);
	CU_ASSERT_EQUAL(job->rail[0].port.timeout, TIMEOUT_HARDWARE);
	close_job();
	setenv("VBN_IB_PKEY", "0x4321", 1);
	refuses("no partition key 0x4321 (VBN_IB_PKEY), its table has: 0xffff "
		"0x1234 0x9234");
	unsetenv("VBN_IB_PKEY");
	setenv("VBN_IB_SL", "8", 1);
	refuses("VBN_IB_SL is 8");
	port->link_layer = IBV_LINK_LAYER_INFINIBAND;
	port->lid = 3;
	takes("a:1");
	unsetenv("VBN_IB_MTU");
	unsetenv("VBN_IB_SL");
	unsetenv("VBN_IB_TC");
	done();
}

static void the_port_is_read_again(void)
{
	struct fake_port *port;

	add_plain("a");
	port = port_of(0);
	CU_ASSERT_EQUAL_FATAL(open_job(), 0);
	CU_ASSERT_FALSE(device_refresh(&job->rail[0]));
	for (int i = 0; i < port->ngids; i++)
		port->gids[i] =
			fake_gid_ipv4(IBV_GID_TYPE_ROCE_V2, 10, 9, 9, 9);
	CU_ASSERT_TRUE(device_refresh(&job->rail[0]));
	CU_ASSERT_EQUAL(job->rail[0].port.address.gids[0].raw[13], 9);
	CU_ASSERT_FALSE(device_refresh(&job->rail[0]));
	port->ngids = 0; /* all gone for now: what was stays */
	CU_ASSERT_FALSE(device_refresh(&job->rail[0]));
	CU_ASSERT_EQUAL(job->rail[0].port.address.gids[0].raw[13], 9);
	CU_ASSERT_STRING_EQUAL(job->rail[0].port.address.name, "a");
	close_job();
	done();
}

static void the_report_is_whole(void)
{
	struct inspect_report *r = NULL;
	struct inspect_device *d;

	add("a", ENOENT, IBV_PORT_ACTIVE);
	add_plain("b");
	fake_device(1)->attr.atomic_cap = IBV_ATOMIC_NONE;
	fake_device(1)->max_inline = 96;
	fake_device(1)->inline_rule = FAKE_INLINE_LESS;
	CU_ASSERT_EQUAL_FATAL(inspect_verbs(&r), 0);
	CU_ASSERT_EQUAL_FATAL(r->ndevices, 2);
	d = &r->devices[0];
	CU_ASSERT(!d->openable && !d->usable && d->nports == 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(d->why, "No such file"));
	d = &r->devices[1];
	CU_ASSERT(d->openable && d->usable && d->software && d->admitted);
	CU_ASSERT(!d->has_atomics && !strcmp(d->atomics, "none"));
	CU_ASSERT_EQUAL(d->inline_bytes, 96);
	CU_ASSERT_EQUAL(d->max_cqe, 32767);
	CU_ASSERT_EQUAL_FATAL(d->nports, 1);
	CU_ASSERT(d->ports[0].state[0] && d->ports[0].active);
	CU_ASSERT_STRING_EQUAL(d->ports[0].link_layer, "Ethernet");
	CU_ASSERT_EQUAL(d->ports[0].active_mtu, 4096);
	CU_ASSERT(d->ports[0].ngids > 0);
	inspect_free(r);
	setenv("VBN_IB_QPS", "0", 1);
	CU_ASSERT_EQUAL(inspect_verbs(&r), -EINVAL);
	unsetenv("VBN_IB_QPS");
	done();
}

int main(void)
{
	static CU_TestInfo tests[] = {
		{"usable ones are used", usable_ones_are_used},
		{"ports are looked at", ports_are_looked_at},
		{"GIDs are chosen", gids_are_chosen},
		{"InfiniBand needs a LID", infiniband_needs_a_lid},
		{"settings reach the port", settings_reach_the_port},
		{"the port is read again", the_port_is_read_again},
		{"the report is whole", the_report_is_whole},
		CU_TEST_INFO_NULL,
	};
	static CU_SuiteInfo suites[] = {
		{"verbs_device", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
