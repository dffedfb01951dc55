/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections by several devices: which rail is joined to which of the peer's,
 * and that data, notifies, gets, atomics and messages go by them.
 */
#include "cunit_run.h"
#include "fake_hosts.h"
#include "providers/verbs/internal.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define LONG	((size_t)256 << 10)
#define QPS_MAX 64

static bool side_readable(int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};

	return poll(&pfd, 1, 0) == 1;
}

static void check_pairs(const struct hosts *h, const char *pairs)
{
	const struct verbs_conn *x = h->x.ep.conn, *y = h->y.ep.conn;
	char text[32] = "";

	for (unsigned i = 0; i < x->npairs; i++) {
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 "%s%u-%u", i ? " " : "", x->pair[i].rail,
			 x->pair[i].peer_rail);
		CU_ASSERT_EQUAL(y->pair[i].rail, x->pair[i].peer_rail);
		CU_ASSERT_EQUAL(y->pair[i].peer_rail, x->pair[i].rail);
	}
	CU_ASSERT_STRING_EQUAL(text, pairs);
}

static void see_data(struct vbn_ep *ep, uint32_t imm)
{
	struct hosts *h = ep->arg;

	CU_ASSERT(region_same(&h->dst, LONG, imm & VBN_NOTIFY_MAX));
}

static void gets_and_atomics(struct hosts *h)
{
	struct atomic_args add = {.operand = 5,
				  .remote = (uintptr_t)h->dst.mem.addr,
				  .key = &h->dst.announce};
	uint64_t was, old = *(uint64_t *)h->dst.mem.addr;
	struct vbn_op op;

	add.result = &was;
	mock_op_init(&op, NULL, NULL);
	CHECK(!h->a.ops->atomic(h->x.ep.conn, &op, &add));
	CU_ASSERT(hosts_wait(h, &op) == 0 && was == old);
	CU_ASSERT_EQUAL(*(uint64_t *)h->dst.mem.addr, old + 5);
	region_fill(&h->dst, LONG, 77);
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_get(&h->a, &h->x, &op, &h->src, LONG, &h->dst));
	CU_ASSERT_EQUAL(hosts_wait(h, &op), 0);
	CU_ASSERT(region_same(&h->src, LONG, 77));
}

static void works(struct hosts *h)
{
	struct message_header header = {.kind = 5, .u64 = {1}};
	char text[3000] = "";

	h->y.ep.on_notify = see_data;
	h->y.ep.arg = h;
	for (unsigned i = 0; i < 20; i++) {
		struct vbn_op op;

		region_fill(&h->src, LONG, i);
		mock_op_init(&op, NULL, NULL);
		CHECK(!side_put(&h->a, &h->x, &op, &h->src, LONG, &h->dst, true,
				i, false));
		CU_ASSERT_EQUAL(hosts_wait(h, &op), 0);
		while (h->a.ops->message(h->x.ep.conn, &header, text, i * 150))
			hosts_progress(h);
	}
	for (int i = 0; i < 100; i++)
		hosts_progress(h);
	CU_ASSERT(h->y.ep.notifies == 20 && h->y.ep.messages == 20);
	gets_and_atomics(h);
}

static void test_pairs(void)
{
	static const struct {
		const char *here, *there, *pairs;
	} all[] = {
		{"1", "1", "0-0"},
		{"12", "12", "0-0 1-1"},
		{"12", "21", "0-1 1-0"},
		{"11", "11", "0-0 1-1"},
		{"12", "2", "1-0"},
		{"2", "12", "0-1"},
		{"12", "34", "0-0 1-1"}, /* a subnet a port */
		{"12", "13", "0-0"},	 /* the others may not meet */
		{"1234", "4321", "0-3 1-2 2-1 3-0"},
		{"123", "11", "0-0"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		struct hosts h;

		hosts_open(&h, all[i].here, all[i].there, LONG);
		check_pairs(&h, all[i].pairs);
		works(&h);
		hosts_close(&h);
	}
}

/* What a stripe is cut in goes by all rails, of queue pairs of each. */
static void test_shares(void)
{
	uint32_t qpn[QPS_MAX];
	struct vbn_op op;
	struct hosts h;
	unsigned busy = 0;

	setenv("VBN_IB_QPS", "2", 1);
	hosts_open(&h, "123", "123", LONG);
	unsetenv("VBN_IB_QPS");
	CU_ASSERT_EQUAL(fake_qps(qpn, QPS_MAX), 12);
	fake_defer(true);
	region_fill(&h.src, LONG, 1);
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_put(&h.a, &h.x, &op, &h.src, LONG, &h.dst, false, 0,
			false));
	for (int i = 0; i < 6; i++)
		busy += fake_qp_pending(qpn[i]) > 0;
	CU_ASSERT_EQUAL(busy, 6);
	fake_defer(false);
	CU_ASSERT_EQUAL(hosts_wait(&h, &op), 0);
	hosts_close(&h);
}

/* A port that is down is left out while another is not. */
static void test_port_down(void)
{
	struct hosts h;

	hosts_open(&h, "12", "12", LONG);
	side_close(&h.x, -ECANCELED);
	side_close(&h.y, -ECANCELED);
	fake_port_state(0, 1, IBV_PORT_DOWN);
	events_take(&((struct verbs_job *)h.a.pjob)->rail[0]);
	pair_connect(&h.a, &h.x, &h.a.a, &h.y, &h.b.a);
	check_pairs(&h, "1-1");
	works(&h);
	hosts_close(&h);
}

/* Whoever sleeps hears of what comes by any rail. */
static void test_sleep(void)
{
	struct verbs_conn *x;
	struct vbn_op op;
	struct hosts h;

	hosts_open(&h, "12", "12", LONG);
	x = h.x.ep.conn;
	CU_ASSERT(x->ctx->fd != x->ctx->queues[0].channel->fd);
	for (unsigned i = 0; i < 4; i++) {
		fake_defer(true);
		mock_op_init(&op, NULL, NULL);
		CHECK(!side_put(&h.a, &h.x, &op, &h.src, LONG, &h.dst, false, 0,
				false));
		while (h.a.ops->arm(h.a.a.pctx) == -EAGAIN)
			bench_progress(&h.a);
		CU_ASSERT(!side_readable(h.a.ops->fd(h.a.a.pctx)));
		fake_step_qp(x->lane[i % 2].qpn & QPN_MASK, 10);
		CU_ASSERT(side_readable(h.a.ops->fd(h.a.a.pctx)));
		fake_defer(false);
		CU_ASSERT_EQUAL(hosts_wait(&h, &op), 0);
	}
	hosts_close(&h);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"pairs", test_pairs},
		{"each queue pair has a share", test_shares},
		{"a port that is down", test_port_down},
		{"sleeping", test_sleep},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "rails", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	setenv("VBN_LOG", "error", 0);
	return run_suites(suites);
}
