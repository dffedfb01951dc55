/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous events of the device, raised on a fake one under a whole job:
 * they break what they name and nothing else, each broken endpoint says so,
 * and a changed address is published anew.
 */
#include "fake_job.h"

#include "core.h"

#include "cunit_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTEXTS 3
#define WAIT_MS	 5000
#define QPS	 64

static struct vbn_ctx *ctxs[CONTEXTS];
static struct vbn_ep *eps[CONTEXTS]; /* from context 0 to each */
static struct vbn_ep *backs[CONTEXTS];
static struct vbn_pool *pool;
static uint64_t *word;
static struct vbn_rkey rkey;

static void need(int err, const char *what)
{
	if (!err)
		return;
	fprintf(stderr, "%s: %s\n", what, vbn_error());
	exit(EXIT_FAILURE);
}

static void set_up(void)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL};

	fake_job_open();
	need(vbn_pool_create(&pool, fake_the_job, &opts), "pool");
	word = vbn_pool_alloc(pool, 64, 0);
	need(!word, "memory");
	need(vbn_rkey_of(fake_the_job, word, 64, &rkey), "key");
	for (int i = 0; i < CONTEXTS; i++)
		need(vbn_ctx_open(&ctxs[i], fake_the_job, NULL), "context");
	for (int i = 1; i < CONTEXTS; i++)
		need(fake_job_connect(ctxs[0], ctxs[i], &eps[i], &backs[i]),
		     "connect");
}

static void tear_down(void)
{
	for (int i = 0; i < CONTEXTS; i++)
		vbn_ctx_close(ctxs[i]);
	vbn_pool_free(pool, word);
	vbn_pool_destroy(pool);
	fake_job_close();
	CU_ASSERT_EQUAL(fake_reset(), 0);
}

static void progress_all(void)
{
	for (int i = 0; i < CONTEXTS; i++)
		vbn_progress(ctxs[i]);
}

/* Until the control thread has taken all events, and contexts looked. */
static void settle(void)
{
	uint64_t end = fake_now_ms() + WAIT_MS;

	while (fake_count().events_unread && fake_now_ms() < end)
		usleep(1000);
	CU_ASSERT_EQUAL(fake_count().events_unread, 0);
	usleep(20000);
	for (int i = 0; i < 100; i++)
		progress_all();
}

static int put(struct vbn_ep *ep, int from, int to)
{
	struct vbn_op op = {.status = 0};
	int err;

	do {
		err = vbn_put(ep, &op, word, 8, &rkey, 8, 0);
		progress_all();
	} while (err == -EAGAIN);
	return err ? err : fake_job_wait(ctxs[from], ctxs[to], &op, WAIT_MS);
}

/* The endpoint's state, and that it says why. */
static void failed(struct vbn_ep *ep, const char *words)
{
	static struct vbn_op op;

	CU_ASSERT_EQUAL(vbn_ep_status(ep), -ECONNRESET);
	CU_ASSERT_EQUAL(vbn_put(ep, &op, word, 8, &rkey, 8, 0), -ECONNRESET);
	if (!strstr(vbn_error(), words) || !strstr(vbn_error(), "GID"))
		fprintf(stderr, "\n\"%s\" lacks \"%s\"\n", vbn_error(), words);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), words));
}

/* A queue pair of context 0's connection to context @i. */
static uint32_t qp_to(int i)
{
	struct ibv_qp_attr attr;
	uint32_t qpn[QPS];
	unsigned n = fake_qps(qpn, QPS);

	/* in order of creation: two each, the creating side's first */
	CU_ASSERT_EQUAL_FATAL(n, 2 * (CONTEXTS - 1));
	CU_ASSERT_TRUE(fake_qp_attr(qpn[2 * (i - 1)], &attr));
	return qpn[2 * (i - 1)];
}

static void queue_pair_fails_alone(void)
{
	static const enum ibv_event_type types[] = {IBV_EVENT_QP_FATAL,
						    IBV_EVENT_QP_REQ_ERR,
						    IBV_EVENT_QP_ACCESS_ERR};

	for (int i = 0; i < 3; i++) {
		set_up();
		CU_ASSERT_EQUAL(put(eps[1], 0, 1), 0);
		fake_raise(0, types[i], qp_to(1));
		settle();
		failed(eps[1], ibv_event_type_str(types[i]));
		CU_ASSERT_EQUAL(put(eps[2], 0, 2), 0);
		tear_down();
	}
}

static void a_sleeper_is_woken(void)
{
	uint64_t began;

	set_up();
	settle();
	began = fake_now_ms();
	fake_raise(0, IBV_EVENT_QP_FATAL, qp_to(1));
	while (!vbn_ep_status(eps[1]) && fake_now_ms() - began < WAIT_MS)
		vbn_ctx_wait(ctxs[0], WAIT_MS);
	CU_ASSERT(fake_now_ms() - began < WAIT_MS / 2);
	failed(eps[1], "queue pair has failed");
	tear_down();
}

static void ordinary_events_do_nothing(void)
{
	static const enum ibv_event_type types[] = {
		IBV_EVENT_COMM_EST,	    IBV_EVENT_SQ_DRAINED,
		IBV_EVENT_PATH_MIG,	    IBV_EVENT_QP_LAST_WQE_REACHED,
		IBV_EVENT_SM_CHANGE,	    IBV_EVENT_SRQ_LIMIT_REACHED,
		IBV_EVENT_CLIENT_REREGISTER};

	set_up();
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		fake_raise(0, types[i], i < 4 ? qp_to(1) : 1);
	settle();
	CU_ASSERT_EQUAL(put(eps[1], 0, 1), 0);
	CU_ASSERT_EQUAL(put(eps[2], 0, 2), 0);
	tear_down();
}

static void queue_fails_its_context(void)
{
	int broken = 0;

	set_up();
	fake_raise(0, IBV_EVENT_CQ_ERR, 1);
	settle();
	for (int i = 1; i < CONTEXTS; i++)
		broken += (vbn_ep_status(eps[i]) == -ECONNRESET) +
			  (vbn_ep_status(backs[i]) == -ECONNRESET);
	/* of context 0, both; of another, one */
	CU_ASSERT(broken == 1 || broken == 2);
	tear_down();
}

static void device_fails_all_at_once(void)
{
	struct vbn_ep *ep;
	uint64_t began;

	set_up();
	CU_ASSERT_EQUAL(put(eps[1], 0, 1), 0);
	began = fake_now_ms();
	fake_break_device(0); /* raises the event */
	settle();
	CU_ASSERT(fake_now_ms() - began < 1000);
	for (int i = 1; i < CONTEXTS; i++) {
		failed(eps[i], "device has failed");
		CU_ASSERT_EQUAL(vbn_ep_status(backs[i]), -ECONNRESET);
	}
	CU_ASSERT_EQUAL(fake_job_connect(ctxs[1], ctxs[2], &ep, NULL), -EIO);
	tear_down();
}

static void published(struct blob *address)
{
	pthread_mutex_lock(&fake_the_job->lock);
	*address = ctxs[1]->addresses[PROVIDER_VERBS];
	pthread_mutex_unlock(&fake_the_job->lock);
}

static void changed_address_is_published(void)
{
	struct fake_port *port;
	struct blob before, after;
	struct vbn_ep *ep;
	uint8_t value[4096];
	char key[64];
	size_t len = sizeof(value);

	set_up();
	published(&before);
	fake_raise(0, IBV_EVENT_GID_CHANGE, 1);
	settle();
	published(&after);
	CU_ASSERT(before.len == after.len &&
		  !memcmp(before.data, after.data, after.len));
	port = &fake_device(0)->ports[0];
	port->gids[port->ngids++] =
		fake_gid_ipv4(IBV_GID_TYPE_ROCE_V2, 10, 77, 78, 79);
	fake_raise(0, IBV_EVENT_GID_CHANGE, 1);
	settle();
	published(&after);
	CU_ASSERT(before.len != after.len ||
		  memcmp(before.data, after.data, after.len));
	address_key(key, sizeof(key), 0, 1);
	CU_ASSERT_EQUAL(
		control_get(fake_the_job->control, key, value, &len, WAIT_MS),
		0);
	CU_ASSERT_PTR_NOT_NULL(memmem(value, len, "\x0a\x4d\x4e\x4f", 4));
	/* old connections go on, new ones are made */
	CU_ASSERT_EQUAL(put(eps[1], 0, 1), 0);
	CU_ASSERT_EQUAL(fake_job_connect(ctxs[1], ctxs[2], &ep, NULL), 0);
	tear_down();
}

static void port_down_is_remembered(void)
{
	uint32_t second;

	set_up();
	second = qp_to(2);
	fake_port_state(0, 1, IBV_PORT_DOWN);
	settle();
	CU_ASSERT_EQUAL(vbn_ep_status(eps[1]), 0);
	fake_fail_request(qp_to(1), 1, IBV_WC_RETRY_EXC_ERR, false);
	CU_ASSERT_EQUAL(put(eps[1], 0, 1), -ECONNRESET);
	settle();
	failed(eps[1], "our port is down");
	fake_port_state(0, 1, IBV_PORT_ACTIVE);
	settle();
	fake_fail_request(second, 1, IBV_WC_RETRY_EXC_ERR, false);
	CU_ASSERT_EQUAL(put(eps[2], 0, 2), -ECONNRESET);
	settle();
	failed(eps[2], "peer dead");
	tear_down();
}

int main(void)
{
	static CU_TestInfo tests[] = {
		{"a queue pair fails alone", queue_pair_fails_alone},
		{"a sleeper is woken", a_sleeper_is_woken},
		{"ordinary events do nothing", ordinary_events_do_nothing},
		{"a queue fails its context", queue_fails_its_context},
		{"a device fails all at once", device_fails_all_at_once},
		{"a changed address is published",
		 changed_address_is_published},
		{"a port that is down is remembered", port_down_is_remembered},
		CU_TEST_INFO_NULL,
	};
	static CU_SuiteInfo suites[] = {
		{"verbs_events", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
