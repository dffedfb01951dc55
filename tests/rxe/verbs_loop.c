/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs provider against a real device (Soft-RoCE in the guest): two
 * contexts of one process, connected with each other and with themselves.
 * Prints a line a test; exit status 0 when all pass. Without a device: 77.
 */
#include "pair.h"
#include "verbs_loop.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static const size_t sizes[] = {0,	1,	     7,	     8,	   64,
			       256,	257,	     4095,   4096, 4097,
			       MIB + 1, 8 * MIB - 1, 8 * MIB};
#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

/* ---- data ---- */

void loop_one_size(struct bench *b, struct side *x, struct region *src,
		   struct region *dst, size_t len)
{
	unsigned seed = (unsigned)len + 17;
	unsigned char *behind = (unsigned char *)dst->mem.addr + len;
	struct vbn_op op;

	region_fill(src, len, seed);
	memset(dst->mem.addr, 0x5a, len + 8);
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_put(b, x, &op, src, len, dst, false, 0, false));
	CHECK(bench_wait(b, &op, 20000) == 0);
	CHECK(region_same(dst, len, seed) && behind[0] == 0x5a);
	if (!len)
		return;
	region_fill(src, len, 0);
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_get(b, x, &op, src, len, dst));
	CHECK(bench_wait(b, &op, 20000) == 0);
	CHECK(region_same(src, len, seed));
}

static struct region src, dst;

static void test_sizes(struct bench *b)
{
	struct side x, y, self;

	pair_connect(b, &x, &b->a, &y, &b->b);
	self_connect(b, &self, &b->a);
	for (size_t i = 0; i < NSIZES; i++) {
		size_t len = sizes[i];

		if (len > b->caps.max_piece)
			len = b->caps.max_piece;
		loop_one_size(b, &x, &src, &dst, len);
		loop_one_size(b, &y, &src, &dst, len);
		loop_one_size(b, &self, &src, &dst, len);
	}
	side_close(&self, -ECANCELED);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

static void test_atomics(struct bench *b)
{
	struct side x, y;
	uint64_t *word = dst.mem.addr, before = 1;
	struct atomic_args args = {.operand = 5,
				   .result = &before,
				   .remote = (uintptr_t)word,
				   .key = &dst.announce};
	struct vbn_op op, ops[100];
	uint64_t seen[100];

	pair_connect(b, &x, &b->a, &y, &b->b);
	*word = 40;
	mock_op_init(&op, NULL, NULL);
	CHECK(!b->ops->atomic(x.ep.conn, &op, &args));
	CHECK(!bench_wait(b, &op, 5000) && before == 40 && *word == 45);
	args.compare_swap = true;
	args.compare = 44;
	args.operand = 99;
	mock_op_init(&op, NULL, NULL);
	CHECK(!b->ops->atomic(x.ep.conn, &op, &args));
	CHECK(!bench_wait(b, &op, 5000) && before == 45 && *word == 45);
	args.compare = 45;
	args.result = NULL;
	mock_op_init(&op, NULL, NULL);
	CHECK(!b->ops->atomic(y.ep.conn, &op, &args));
	CHECK(!bench_wait(b, &op, 5000) && before == 45 && *word == 99);
	args.compare_swap = false;
	args.operand = 1;
	for (int i = 0; i < 100; i++) { /* from both sides, chained */
		struct side *s = i % 3 ? &x : &y;

		mock_op_init(&ops[i], NULL, NULL);
		args.result = &seen[i];
		args.more = i % 5 != 0;
		CHECK(!b->ops->atomic(s->ep.conn, &ops[i], &args));
	}
	for (int i = 0; i < 100; i++)
		CHECK(!bench_wait(b, &ops[i], 5000));
	CHECK(*word == 199);
	for (int i = 0; i < 100; i++)
		for (int j = 0; j < i; j++)
			CHECK(seen[i] != seen[j] && seen[i] >= 99 &&
			      seen[i] < 199);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

/* ---- order ---- */

struct expect {
	unsigned next;
	size_t len;
	int wrong;
};

static void check_arrival(struct vbn_ep *ep, uint32_t imm)
{
	struct expect *e = ep->arg;

	imm &= VBN_NOTIFY_MAX;
	if (imm != e->next || !region_same(&dst, e->len, imm))
		e->wrong++;
	e->next++;
}

/* The data of chained puts is there when the notify behind them is. */
static void test_notify_order(struct bench *b)
{
	static const size_t lens[] = {1, 64, 300, 70000, MIB + 1};
	struct vbn_op ops[4];
	struct side x, y;

	pair_connect(b, &x, &b->a, &y, &b->b);
	for (size_t l = 0; l < 5; l++) {
		struct expect e = {.len = lens[l]};

		y.ep.on_notify = check_arrival;
		y.ep.arg = &e;
		for (unsigned round = 0; round < 5; round++) {
			region_fill(&src, e.len, round);
			for (int i = 0; i < 4; i++)
				mock_op_init(&ops[i], NULL, NULL);
			for (int i = 0; i < 3; i++)
				CHECK(!side_put(b, &x, &ops[i], &src, e.len,
						&dst, false, 0, true));
			/* with data, and without */
			CHECK(!side_put(b, &x, &ops[3], &src,
					round % 2 ? e.len : 0, &dst, true,
					round, false));
			while (e.next == round)
				bench_progress(b);
			for (int i = 0; i < 4; i++)
				CHECK(!bench_wait(b, &ops[i], 5000));
		}
		CHECK(e.next == 5 && !e.wrong);
	}
	CHECK(y.ep.notifies == 25 && x.ep.notifies == 0);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

/* ---- many in flight ---- */

static void count_done(struct vbn_op *op)
{
	++*(unsigned *)op->arg;
}

static void test_back_pressure(struct bench *b)
{
	static struct vbn_op ops[10000];
	struct put_args args = {.local = src.mem.addr,
				.len = 8,
				.mem = &src.mem,
				.mem_handle = src.handle,
				.remote = (uintptr_t)dst.mem.addr,
				.key = &dst.announce};
	unsigned done = 0, again = 0, posted = 0;
	struct vbn_op flush;
	struct side x, y;
	int err;

	pair_connect(b, &x, &b->a, &y, &b->b);
	while (posted < 10000) {
		mock_op_init(&ops[posted], count_done, &done);
		args.more = posted % 7 != 0;
		err = b->ops->put(x.ep.conn, &ops[posted], &args);
		CHECK(!err || err == -EAGAIN);
		if (!err) {
			posted++;
			continue;
		}
		again++;
		bench_progress(b);
	}
	mock_op_init(&flush, NULL, NULL);
	while ((err = b->ops->flush(x.ep.conn, &flush)) == -EAGAIN)
		bench_progress(b);
	CHECK(!err && !bench_wait(b, &flush, 5000));
	CHECK(done == 10000 && again > 0);
	mock_op_init(&flush, NULL, NULL); /* nothing before it */
	CHECK(!b->ops->flush(x.ep.conn, &flush));
	CHECK(flush.status == -EINPROGRESS && !bench_wait(b, &flush, 100));
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

/* A chain is one doorbell. */
static void test_doorbells(struct bench *b)
{
	uint64_t before = b->a.core.counters.doorbells;
	struct vbn_op ops[16];
	struct side x, y;

	pair_connect(b, &x, &b->a, &y, &b->b);
	for (int i = 0; i < 16; i++) {
		mock_op_init(&ops[i], NULL, NULL);
		CHECK(!side_put(b, &x, &ops[i], &src, 100, &dst, false, 0,
				i != 15));
	}
	CHECK(b->a.core.counters.doorbells == before + 1);
	for (int i = 0; i < 16; i++)
		CHECK(!bench_wait(b, &ops[i], 5000));
	mock_op_init(&ops[0], NULL, NULL); /* a chain that progress sends */
	CHECK(!side_put(b, &x, &ops[0], &src, 100, &dst, false, 0, true));
	CHECK(b->a.core.counters.doorbells == before + 1);
	CHECK(!bench_wait(b, &ops[0], 5000));
	CHECK(b->a.core.counters.doorbells == before + 2);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

/* ---- sleeping ---- */

static void test_sleep(struct bench *b)
{
	struct pollfd pfd = {.fd = b->ops->fd(b->b.pctx), .events = POLLIN};
	struct side x, y;
	struct vbn_op op;

	pair_connect(b, &x, &b->a, &y, &b->b);
	for (unsigned i = 0; i < 50; i++) {
		while (b->ops->arm(b->b.pctx) == -EAGAIN)
			bench_progress(b);
		CHECK(poll(&pfd, 1, i == 0 ? 50 : 0) == 0);
		mock_op_init(&op, NULL, NULL);
		CHECK(!side_put(b, &x, &op, NULL, 0, NULL, true, i, false));
		CHECK(poll(&pfd, 1, 5000) == 1);
		while (y.ep.notifies == i)
			bench_progress(b);
		CHECK(!bench_wait(b, &op, 5000));
	}
	/* an event that came before arming is not slept over */
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_put(b, &x, &op, NULL, 0, NULL, true, 0, false));
	while (op.status == -EINPROGRESS)
		mock_progress(&b->a.core, b->ops, b->a.pctx);
	CHECK(b->ops->arm(b->b.pctx) == -EAGAIN);
	while (y.ep.notifies == 50)
		bench_progress(b);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

int main(int argc, char **argv)
{
	static const struct loop_test data_tests[] = {
		{"sizes", test_sizes},
		{"atomics", test_atomics},
		{"notify after data", test_notify_order},
		{"back-pressure", test_back_pressure},
		{"doorbells", test_doorbells},
		{"sleep", test_sleep},
	};
	struct bench b;
	size_t len = 8 * MIB + 64;
	void *pjob;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (provider_verbs.job_open(NULL, &pjob, &b.caps) == -ENODEV) {
		printf("skipped: %s\n", vbn_error());
		return 77;
	}
	provider_verbs.job_close(pjob);
	bench_open(&b, &provider_verbs);
	region_open(&b, &src, len, VBN_ACCESS_ALL);
	region_open(&b, &dst, len, VBN_ACCESS_ALL);
	loop_run(&b, data_tests, sizeof(data_tests) / sizeof(data_tests[0]),
		 argc > 1 ? argv[1] : NULL);
	loop_run(&b, loop_message_tests, loop_message_count,
		 argc > 1 ? argv[1] : NULL);
	loop_run(&b, loop_lane_tests, loop_lane_count,
		 argc > 1 ? argv[1] : NULL);
	loop_run(&b, loop_fault_tests, loop_fault_count,
		 argc > 1 ? argv[1] : NULL);
	region_close(&b, &src);
	region_close(&b, &dst);
	bench_close(&b);
	printf("%u passed, 0 failed, 0 skipped\n", loop_passed());
	return loop_passed() ? 0 : 1;
}
