/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_loop's tests of connections with several queue pairs: what comes
 * behind striped data, and failing with parts on all of them.
 */
#include "verbs_loop.h"

#include <errno.h>
#include <string.h>

#define REGION (((size_t)1 << 20) + 64)

static struct region src, dst;

static void count_done(struct vbn_op *op)
{
	++*(unsigned *)op->arg;
}

/* What must come behind the data of the put before it. */
struct behind {
	unsigned next, wrong;
	size_t len;
};

static void check_behind(struct vbn_ep *ep, unsigned value)
{
	struct behind *e = ep->arg;

	if (value != e->next || !region_same(&dst, e->len, value))
		e->wrong++;
	e->next++;
}

static void notify_behind(struct vbn_ep *ep, uint32_t imm)
{
	check_behind(ep, imm & VBN_NOTIFY_MAX);
}

static void message_behind(struct vbn_ep *ep,
			   const struct message_header *header,
			   const void *data, size_t len)
{
	(void)data;
	(void)len;
	check_behind(ep, header->u32);
}

/* Put, then by turns: a notify with it, behind it, a message, a bare one. */
static void behind_round(struct bench *b, struct side *x, struct behind *e,
			 unsigned round)
{
	struct message_header header = {.kind = 5, .u32 = round};
	struct vbn_op ops[2], flush;
	int err = 0;

	mock_op_init(&ops[0], NULL, NULL);
	mock_op_init(&ops[1], NULL, NULL);
	ops[1].status = 0;
	region_fill(&src, e->len, round);
	CHECK(!side_put(b, x, &ops[0], &src, e->len, &dst, round % 4 == 0,
			round, round % 8 > 3));
	if (round % 4 == 1) {
		mock_op_init(&ops[1], NULL, NULL);
		CHECK(!side_put(b, x, &ops[1], NULL, 0, NULL, true, round,
				false));
	}
	header.u64[0] = round % 4 == 2;
	while (round % 4 > 1 &&
	       (err = b->ops->message(x->ep.conn, &header, NULL, 0)))
		CHECK(err == -EAGAIN && bench_progress(b) >= 0);
	mock_op_init(&flush, NULL, NULL);
	while ((err = b->ops->flush(x->ep.conn, &flush)) == -EAGAIN)
		bench_progress(b);
	CHECK(!err && !bench_wait(b, &flush, 20000));
	CHECK(region_same(&dst, e->len, round));
	while (e->next == round)
		bench_progress(b);
	CHECK(!bench_wait(b, &ops[0], 20000) && !bench_wait(b, &ops[1], 5000));
}

static void lanes_in_order(struct bench *b)
{
	static const size_t lens[] = {131072, 131073, 200000, 1000, 1 << 20};
	struct side x, y, self;

	pair_connect(b, &x, &b->a, &y, &b->b);
	self_connect(b, &self, &b->b);
	for (size_t l = 0; l < sizeof(lens) / sizeof(lens[0]); l++) {
		struct behind e = {.len = lens[l]};
		struct side *to[] = {&y, &x, &self};
		struct side *from[] = {&x, &y, &self};

		for (int s = 0; s < 3; s++) {
			e.next = 0;
			to[s]->ep.on_notify = notify_behind;
			to[s]->ep.on_message = message_behind;
			to[s]->ep.arg = &e;
			for (unsigned round = 0; round < 8; round++)
				behind_round(b, from[s], &e, round);
			CHECK(!e.wrong && e.next == 8);
			loop_one_size(b, from[s], &src, &dst, lens[l]);
		}
	}
	side_close(&self, -ECANCELED);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

/* A key that opens nothing, and closing, with parts on all lanes. */
static void lanes_break(struct bench *b)
{
	enum { N = 8 };
	unsigned done = 0;
	struct region bad = dst;
	struct vbn_op ops[N];
	struct side x, y;

	bad.announce.data[4] ^= 0x55; /* behind the access */
	pair_connect(b, &x, &b->a, &y, &b->b);
	for (int i = 0; i < N; i++) {
		mock_op_init(&ops[i], count_done, &done);
		CHECK(!side_put(b, &x, &ops[i], &src, 150000,
				i == 2 ? &bad : &dst, i % 2, 0, false));
	}
	for (int i = 0; i < N; i++)
		CHECK(bench_wait(b, &ops[i], 5000) != -EINPROGRESS);
	CHECK(ops[2].status == -EACCES && ops[N - 1].status == -ECONNRESET);
	while (x.ep.conn)
		bench_progress(b);
	CHECK(done == N && x.ep.failures == 1);
	side_close(&y, -ECANCELED);
	for (int round = 0; round < 6; round++) {
		done = 0;
		pair_connect(b, &x, &b->a, &y, &b->b);
		for (int i = 0; i < 6; i++) {
			mock_op_init(&ops[i], count_done, &done);
			CHECK(!side_put(b, &x, &ops[i], &src, 150000, &dst,
					i % 2, 0, false));
		}
		mock_op_init(&ops[6], count_done, &done);
		CHECK(!b->ops->flush(x.ep.conn, &ops[6]));
		for (int i = 0; i < round; i++)
			bench_progress(b);
		side_close(round % 2 ? &x : &y, -ECANCELED);
		side_close(round % 2 ? &y : &x, -ECANCELED);
		CHECK(done == 7);
	}
}

static void test_lanes(struct bench *one)
{
	static const char *const qps[] = {"2", "3", "8"};
	struct bench b;

	(void)one; /* it has one lane */
	for (int i = 0; i < 3; i++) {
		setenv("VBN_IB_QPS", qps[i], 1);
		bench_open(&b, &provider_verbs);
		region_open(&b, &src, REGION, VBN_ACCESS_ALL);
		region_open(&b, &dst, REGION, VBN_ACCESS_ALL);
		lanes_in_order(&b);
		lanes_break(&b);
		region_close(&b, &src);
		region_close(&b, &dst);
		bench_close(&b);
	}
	unsetenv("VBN_IB_QPS");
}

const struct loop_test loop_lane_tests[] = {
	{"several lanes", test_lanes},
};
const size_t loop_lane_count =
	sizeof(loop_lane_tests) / sizeof(loop_lane_tests[0]);
