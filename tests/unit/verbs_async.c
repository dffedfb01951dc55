/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous events among operations, by the whole transport: links that go
 * and come under way, failures that a sleeping thread must hear of, queues and
 * devices that fail with requests in them, and closing at that very moment.
 */
#include "cunit_run.h"
#include "fake_job.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 10000

static struct vbn_ctx *a, *b;
static struct vbn_ep *ep, *back, *self; /* a to b, b to a, a to a */
static struct vbn_pool *pool;
static struct vbn_rkey rkey;
static char *memory;
static uint32_t first_qpn; /* of a to b */

static void fatal(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, vbn_error());
	exit(EXIT_FAILURE);
}

static void up(void (*tweak)(struct fake_config *config))
{
	struct vbn_ctx *ctxs[2];
	struct vbn_ep *eps[2];

	fake_job_two(tweak, ctxs, eps, &pool);
	a = ctxs[0];
	b = ctxs[1];
	ep = eps[0];
	back = eps[1];
	CU_ASSERT_FATAL(fake_qps(&first_qpn, 1) >= 2);
	if (fake_job_connect(a, a, &self, NULL))
		fatal("self");
	memory = vbn_pool_alloc(pool, 4096, 0);
	if (!memory || vbn_rkey_of(fake_the_job, memory, 4096, &rkey))
		fatal("memory");
}

static void down(void)
{
	vbn_ep_close(ep);
	vbn_ep_close(back);
	vbn_ep_close(self);
	vbn_ctx_close(a);
	vbn_ctx_close(b);
	vbn_pool_destroy(pool);
	fake_job_close();
	CU_ASSERT_EQUAL(fake_reset(), 0);
}

static int put_wait(struct vbn_ep *to)
{
	uint64_t end = fake_now_ms() + WAIT_MS;
	struct vbn_op op = {0};
	int err;

	while ((err = vbn_put(to, &op, memory, 8, &rkey, 64, 0)) == -EAGAIN &&
	       fake_now_ms() < end) {
		vbn_progress(a);
		vbn_progress(b);
	}
	return err ? err : fake_job_wait(a, b, &op, WAIT_MS);
}

/* Progress until the endpoint has failed. Returns its status. */
static int failed(struct vbn_ep *which)
{
	uint64_t end = fake_now_ms() + WAIT_MS;

	while (!vbn_ep_status(which) && fake_now_ms() < end) {
		vbn_progress(a);
		vbn_progress(b);
	}
	return vbn_ep_status(which);
}

/* ---- ports ---- */

static void patient(struct fake_config *config)
{
	config->patience = UINT_MAX;
}

/* A link that comes back before the retries run out costs time only. */
static void test_port_bounces(void)
{
	struct vbn_op op = {0};

	up(patient);
	CU_ASSERT_EQUAL(put_wait(ep), 0);
	fake_port_state(0, 1, IBV_PORT_DOWN);
	fake_job_events();
	CU_ASSERT_EQUAL(vbn_put(ep, &op, memory, 8, &rkey, 64, 0), 0);
	CU_ASSERT_EQUAL(fake_job_wait(a, b, &op, 50), -EINPROGRESS);
	CU_ASSERT_EQUAL(vbn_ep_status(ep), 0);
	fake_port_state(0, 1, IBV_PORT_ACTIVE);
	fake_job_events();
	CU_ASSERT_EQUAL(fake_job_wait(a, b, &op, WAIT_MS), 0);
	CU_ASSERT_EQUAL(put_wait(self), 0);
	down();
}

static void test_port_stays_down(void)
{
	up(NULL);
	CU_ASSERT_EQUAL(put_wait(ep), 0);
	fake_port_state(0, 1, IBV_PORT_DOWN);
	fake_job_events();
	CU_ASSERT_EQUAL(put_wait(ep), -ECONNRESET);
	CU_ASSERT_EQUAL(failed(ep), -ECONNRESET);
	down();
}

static void link_local_only(struct fake_config *config)
{
	config->ports[0].ngids = 1;
}

/* An address that comes later is used by what connects later. */
static void test_gid_change(void)
{
	uint32_t qpn[64];
	struct ibv_qp_attr attr;
	struct vbn_ep *late;
	unsigned n;

	up(link_local_only);
	CU_ASSERT_EQUAL(put_wait(ep), 0);
	n = fake_qps(qpn, 64);
	CU_ASSERT(fake_qp_attr(qpn[0], &attr) &&
		  attr.ah_attr.grh.sgid_index == 0);
	fake_device(0)->ports[0].ngids = 2;
	fake_raise(0, IBV_EVENT_GID_CHANGE, 1);
	fake_job_events();
	if (fake_job_connect(b, b, &late, NULL))
		fatal("connecting later");
	CU_ASSERT_FATAL(fake_qps(qpn, 64) > n);
	CU_ASSERT(fake_qp_attr(qpn[n], &attr));
	CU_ASSERT_EQUAL(attr.ah_attr.grh.sgid_index, 1);
	CU_ASSERT_EQUAL(put_wait(late), 0);
	CU_ASSERT_EQUAL(put_wait(ep), 0);
	vbn_ep_close(late);
	down();
}

/* ---- queues and devices ---- */

/* The thread sleeps when it happens; no completion tells it. */
static void test_qp_fatal_asleep(void)
{
	uint64_t start;

	up(NULL);
	CU_ASSERT_EQUAL(put_wait(ep), 0);
	fake_break_qp(first_qpn);
	start = fake_now_ms();
	while (!vbn_ep_status(ep) && fake_now_ms() < start + WAIT_MS)
		vbn_ctx_wait(a, WAIT_MS);
	CU_ASSERT_EQUAL(vbn_ep_status(ep), -ECONNRESET);
	CU_ASSERT(fake_now_ms() - start < WAIT_MS / 2);
	down();
}

/* b's queue: all connections of b, and of those that talk to it. */
static void test_cq_error(void)
{
	up(NULL);
	CU_ASSERT_EQUAL(put_wait(ep), 0);
	fake_raise(0, IBV_EVENT_CQ_ERR, 1); /* the newest */
	CU_ASSERT_EQUAL(failed(back), -ECONNRESET);
	CU_ASSERT_EQUAL(failed(ep), -ECONNRESET);
	CU_ASSERT_EQUAL(put_wait(self), 0);
	down();
}

static void test_device_fatal(void)
{
	struct vbn_op op = {0};
	uint64_t start;

	up(NULL);
	CU_ASSERT_EQUAL(put_wait(ep), 0);
	CU_ASSERT_EQUAL(vbn_put(ep, &op, memory, 8, &rkey, 64, VBN_MORE), 0);
	fake_break_device(0);
	CU_ASSERT(fake_job_wait(a, b, &op, WAIT_MS) < 0);
	CU_ASSERT_EQUAL(failed(ep), -ECONNRESET);
	CU_ASSERT_EQUAL(failed(back), -ECONNRESET);
	CU_ASSERT_EQUAL(failed(self), -ECONNRESET);
	start = fake_now_ms();
	down();
	CU_ASSERT(fake_now_ms() - start < WAIT_MS / 2);
}

/* Events of queue pairs that are just being closed. */
static void test_closing(void)
{
	for (int round = 0; round < 20; round++) {
		up(NULL);
		fake_raise(0, IBV_EVENT_QP_FATAL, first_qpn);
		fake_raise(0, IBV_EVENT_QP_ACCESS_ERR, first_qpn + 1);
		if (round % 2)
			vbn_progress(a);
		down();
	}
}

int main(void)
{
	CU_TestInfo ports[] = {
		{"port goes and comes", test_port_bounces},
		{"port stays down", test_port_stays_down},
		{"GID table changes", test_gid_change},
		CU_TEST_INFO_NULL,
	};
	CU_TestInfo queues[] = {
		{"queue pair fails, asleep", test_qp_fatal_asleep},
		{"completion queue fails", test_cq_error},
		{"device fails", test_device_fatal},
		{"while closing", test_closing},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "events of ports", .pTests = ports},
		{.pName = "events of queues and devices", .pTests = queues},
		CU_SUITE_INFO_NULL,
	};

	setenv("VBN_LOG", "error", 0);
	return run_suites(suites);
}
