/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting by rdma_cm (VBN_CONNECT=rdmacm), by the whole transport over the
 * fake device and a fake librdmacm: lanes, what the kernel may say in place of
 * the expected, each call failing, strangers, silence, and closing meanwhile.
 */
#include "control.h"
#include "core.h"
#include "cunit_run.h"
#include "fake_job.h"
#include "fake_rdmacm.h"
#include "providers/verbs/cm_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WAIT_MS 10000

static struct vbn_ctx *a, *b;
static struct vbn_ep *ep, *back;

static struct verbs_job *the_verbs(void)
{
	return fake_the_job->providers[PROVIDER_VERBS].pjob;
}

static void up(void)
{
	fake_job_open();
	if (vbn_ctx_open(&a, fake_the_job, NULL) ||
	    vbn_ctx_open(&b, fake_the_job, NULL)) {
		fprintf(stderr, "contexts: %s\n", vbn_error());
		exit(EXIT_FAILURE);
	}
	ep = back = NULL;
}

static void close_eps(void)
{
	if (ep)
		vbn_ep_close(ep);
	if (back)
		vbn_ep_close(back);
	ep = back = NULL;
}

/* [control] */
static void look(void *idle)
{
	*(bool *)idle = !the_verbs()->cm->tries && !fake_cm_count().others;
}

/* Attempts, and identifiers but for those that listen, go. */
static void gone(void)
{
	uint64_t end = fake_now_ms() + WAIT_MS;
	bool idle = false;

	for (;;) {
		control_run_wait(vbn_job_control(fake_the_job), look, &idle);
		if (idle || fake_now_ms() > end)
			break;
		usleep(1000);
	}
	CU_ASSERT(idle);
}

static void down(void)
{
	close_eps();
	vbn_ctx_close(a);
	vbn_ctx_close(b);
	gone();
	fake_job_close();
	CU_ASSERT_EQUAL(fake_cm_count().violations, 0);
	CU_ASSERT_EQUAL(fake_cm_count().listening, 0);
	fake_cm_reset();
	CU_ASSERT_EQUAL(fake_reset(), 0);
}

/* Data goes both ways. */
static void works(void)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL};
	struct vbn_ep *eps[2] = {ep, back};
	struct vbn_pool *pool;
	struct vbn_rkey rkey;
	char *memory;

	CU_ASSERT_EQUAL_FATAL(vbn_pool_create(&pool, fake_the_job, &opts), 0);
	memory = vbn_pool_alloc(pool, 2 << 20, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(memory);
	CU_ASSERT_EQUAL_FATAL(vbn_rkey_of(fake_the_job, memory, 2 << 20, &rkey),
			      0);
	for (int i = 0; i < 2; i++) {
		struct vbn_op op = {0};
		uint64_t end = fake_now_ms() + WAIT_MS;
		int err;

		memset(memory, 3 + i, 1 << 20);
		memset(memory + (1 << 20), 0, 1 << 20);
		while ((err = vbn_put(eps[i], &op, memory, 1 << 20, &rkey,
				      1 << 20, 0)) == -EAGAIN &&
		       fake_now_ms() < end) {
			vbn_progress(a);
			vbn_progress(b);
		}
		CU_ASSERT_EQUAL_FATAL(err, 0);
		CU_ASSERT_EQUAL(fake_job_wait(a, b, &op, WAIT_MS), 0);
		CU_ASSERT_EQUAL(memory[(2 << 20) - 1], 3 + i);
	}
	vbn_pool_free(pool, memory);
	vbn_pool_destroy(pool);
}

/* Connect; of a failure both sides have heard, so that it is over. */
static int try_both(void)
{
	int err = fake_job_connect(a, b, &ep, &back);
	uint64_t end = fake_now_ms() + WAIT_MS;

	while (err && fake_now_ms() < end &&
	       (vbn_ep_status(ep) == -EINPROGRESS ||
		vbn_ep_status(back) == -EINPROGRESS)) {
		vbn_progress(a);
		vbn_progress(b);
		usleep(1000);
	}
	return err;
}

/* It does not connect, and says so in these words. */
static void refused(const char *words)
{
	int err = try_both();

	CU_ASSERT(err < 0 && err != -EINPROGRESS);
	vbn_ep_connect(ep, 0); /* says why */
	if (!strstr(vbn_error(), words))
		fprintf(stderr, "\"%s\" lacks \"%s\"\n", vbn_error(), words);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), words));
	close_eps();
	gone();
}

/* And connects when it is tried again. */
static void recovers(void)
{
	CU_ASSERT_EQUAL_FATAL(fake_job_connect(a, b, &ep, &back), 0);
	works();
}

static void test_lanes(void)
{
	for (unsigned n = 1; n <= 8; n *= 2) {
		char text[8];

		snprintf(text, sizeof(text), "%u", n);
		setenv("VBN_IB_QPS", text, 1);
		up();
		CU_ASSERT_EQUAL_FATAL(fake_job_connect(a, b, &ep, &back), 0);
		CU_ASSERT_EQUAL(fake_cm_count().calls, n);
		works();
		gone();
		CU_ASSERT_EQUAL(fake_cm_count().listening, 1);
		down();
	}
	unsetenv("VBN_IB_QPS");
}

/* With itself, a context needs nobody's help. */
static void test_self(void)
{
	up();
	CU_ASSERT_EQUAL_FATAL(fake_job_connect(a, a, &ep, NULL), 0);
	CU_ASSERT_EQUAL(fake_cm_count().calls, 0);
	down();
}

static void test_stale(void)
{
	up();
	fake_cm_stale(2);
	recovers();
	CU_ASSERT_EQUAL(fake_cm_count().calls, 3);
	down();
}

static void test_events(void)
{
	static const struct {
		int type, by, status;
		const char *words;
	} on[] = {
		{RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR, -110,
		 "ip route get"},
		{RDMA_CM_EVENT_ROUTE_RESOLVED, RDMA_CM_EVENT_ROUTE_ERROR, -110,
		 "no route"},
		{RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_UNREACHABLE,
		 -110, "does not answer"},
		{RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_REJECTED, 28,
		 "refuses"},
		{RDMA_CM_EVENT_CONNECT_RESPONSE, RDMA_CM_EVENT_DEVICE_REMOVAL,
		 0, "removed"},
		{RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_RESPONSE, 0,
		 "VBN_CONNECT=control"},
	};

	up();
	for (unsigned i = 0; i < sizeof(on) / sizeof(on[0]); i++) {
		fake_cm_instead(on[i].type, on[i].by, on[i].status, 1);
		refused(on[i].words);
	}
	fake_cm_instead(RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ADDR_ERROR,
			-110, 1);
	refused("10.0.0.1 port ");
	recovers();
	down();
}

static void test_forged(void)
{
	up();
	fake_cm_garble(RDMA_CM_EVENT_CONNECT_REQUEST, 1);
	refused("the peer refuses");
	CU_ASSERT_EQUAL(fake_cm_count().rejected, 1);
	fake_cm_garble(RDMA_CM_EVENT_CONNECT_RESPONSE, 1);
	refused("not the peer's");
	fake_cm_translate(true);
	refused("the peer refuses");
	fake_cm_translate(false);
	recovers();
	down();
}

static void test_strangers(void)
{
	uint8_t key[CM_KEY_BYTES] = {1}, data[CM_HELLO_BYTES];
	const struct cm_hello hello = {.generation = 5, .qpn = 99};
	unsigned n = 0;
	uint64_t end;

	cm_hello_pack(data, &hello, key);
	up();
	recovers();
	for (uint8_t len = 0; len <= sizeof(data); len++, n++)
		fake_cm_call(data, len);
	end = fake_now_ms() + WAIT_MS;
	while (fake_cm_count().rejected < n && fake_now_ms() < end)
		usleep(1000);
	CU_ASSERT_EQUAL(fake_cm_count().rejected, n);
	gone();
	works();
	down();
}

/* Each call in turn, on both sides; what was made is gone each time. */
static void test_each_call_fails(void)
{
	unsigned k = 1;

	setenv("VBN_IB_QPS", "2", 1);
	up();
	for (;; k++) {
		int err;

		CU_ASSERT_FATAL(k < 100);
		fake_cm_fail(k);
		err = try_both();
		if (!err)
			break;
		CU_ASSERT(err != -EINPROGRESS);
		close_eps();
		gone();
	}
	CU_ASSERT(k > 15);
	works();
	down();
	unsetenv("VBN_IB_QPS");
}

static void test_silence(void)
{
	static const int types[] = {
		RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_ROUTE_RESOLVED,
		RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_RESPONSE};

	up();
	the_verbs()->cm->call_ms = 300;
	for (unsigned i = 0; i < 4; i++) {
		fake_cm_instead(types[i], -1, 0, 1);
		CU_ASSERT(try_both() < 0);
		vbn_ep_connect(ep, 0);
		CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "in time"));
		close_eps();
	}
	down();
}

/* Contexts close while their connection is called for. */
static void test_close_meanwhile(void)
{
	static const int types[] = {RDMA_CM_EVENT_ADDR_RESOLVED,
				    RDMA_CM_EVENT_CONNECT_REQUEST,
				    RDMA_CM_EVENT_CONNECT_RESPONSE};

	for (unsigned i = 0; i < 3; i++) {
		up();
		fake_cm_instead(types[i], -1, 0, 1);
		CU_ASSERT_EQUAL(vbn_ep_open(&ep, a, 0, vbn_ctx_index(b)), 0);
		usleep(50000);
		down();
	}
}

static void test_absent(void)
{
	struct vbn_job_options opts = {.size = sizeof(opts),
				       .rank = 0,
				       .nranks = 1,
				       .provider = "verbs",
				       .timeout_ms = WAIT_MS};
	struct fake_config config;
	struct vbn_job *job;

	fake_config_init(&config, 1);
	fake_device_add(&config);
	fake_cm_absent(true);
	CU_ASSERT(vbn_job_open(&job, &opts) < 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "modprobe rdma_ucm"));
	fake_cm_reset();
	CU_ASSERT_EQUAL(fake_reset(), 0);
}

/* A port with a link-local address only. */
static void test_no_address(void)
{
	struct fake_config config;
	struct fake_gid *gid;

	fake_config_init(&config, 1);
	gid = &config.ports[0].gids[0];
	memset(gid, 0, sizeof(*gid));
	gid->type = IBV_GID_TYPE_ROCE_V2;
	gid->raw[0] = 0xfe;
	gid->raw[1] = 0x80;
	gid->raw[15] = 1;
	config.ports[0].ngids = 1;
	fake_device_add(&config);
	up();
	refused("no IP address");
	down();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"lanes", test_lanes},
		{"self", test_self},
		{"stale number", test_stale},
		{"other events", test_events},
		{"forged", test_forged},
		{"strangers", test_strangers},
		{"each call fails", test_each_call_fails},
		{"silence", test_silence},
		{"closed meanwhile", test_close_meanwhile},
		{"no rdma_ucm", test_absent},
		{"no IP address", test_no_address},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "rdma_cm", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	setenv("VBN_CONNECT", "rdmacm", 1);
	setenv("VBN_LOG", "error", 0);
	return run_suites(suites);
}
