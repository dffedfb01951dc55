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

#define MIB   ((size_t)1 << 20)
#define BURST 1000

static const size_t sizes[] = {0,	1,	     7,	     8,	   64,
			       256,	257,	     4095,   4096, 4097,
			       MIB + 1, 8 * MIB - 1, 8 * MIB};
#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

static struct region src, dst;

/* ---- data ---- */

static void one_size(struct bench *b, struct side *x, size_t len)
{
	unsigned seed = (unsigned)len + 17;
	unsigned char *behind = (unsigned char *)dst.mem.addr + len;
	struct vbn_op op;

	region_fill(&src, len, seed);
	memset(dst.mem.addr, 0x5a, len + 8);
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_put(b, x, &op, &src, len, &dst, false, 0, false));
	CHECK(bench_wait(b, &op, 20000) == 0);
	CHECK(region_same(&dst, len, seed) && behind[0] == 0x5a);
	if (!len)
		return;
	region_fill(&src, len, 0);
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_get(b, x, &op, &src, len, &dst));
	CHECK(bench_wait(b, &op, 20000) == 0);
	CHECK(region_same(&src, len, seed));
}

static void test_sizes(struct bench *b)
{
	struct side x, y, self;

	pair_connect(b, &x, &b->a, &y, &b->b);
	self_connect(b, &self, &b->a);
	for (size_t i = 0; i < NSIZES; i++) {
		size_t len = sizes[i];

		if (len > b->caps.max_piece)
			len = b->caps.max_piece;
		one_size(b, &x, len);
		one_size(b, &y, len);
		one_size(b, &self, len);
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

/* ---- messages ---- */

struct inbox {
	uint64_t next;
	int wrong;
	size_t lens;
};

static void check_message(struct vbn_ep *ep,
			  const struct message_header *header, const void *data,
			  size_t len)
{
	struct inbox *in = ep->arg;
	const uint8_t *p = data;

	if (header->u64[0] != in->next || header->u32 != len)
		in->wrong++;
	for (size_t i = 0; i < len; i++)
		if (p[i] != (uint8_t)(header->u64[0] + i))
			in->wrong++;
	in->next++;
	in->lens += len;
}

static void check_message_notify(struct vbn_ep *ep, uint32_t imm)
{
	struct inbox *in = ep->arg;

	if (imm != in->next)
		in->wrong++;
	in->next++;
}

static int send_one(struct bench *b, struct side *x, uint64_t n, size_t len)
{
	struct message_header header = {
		.kind = 3, .u32 = (uint32_t)len, .u64 = {n}};
	uint8_t data[4096];

	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(n + i);
	return b->ops->message(x->ep.conn, &header, data, len);
}

/* Messages and notifies mixed, never more in flight than the credits. */
static void test_messages(struct bench *b)
{
	static const size_t lens[] = {0, 1, 200, 224, 225, 2048, 4096};
	struct inbox in = {0};
	struct vbn_op ops[4];
	struct side x, y;
	uint64_t sent = 0;
	int err;

	for (int i = 0; i < 4; i++)
		mock_op_init(&ops[i], NULL, NULL), ops[i].status = 0;
	pair_connect(b, &x, &b->a, &y, &b->b);
	y.ep.on_message = check_message;
	y.ep.on_notify = check_message_notify;
	y.ep.arg = &in;
	while (sent < 10000) {
		struct vbn_op *op = &ops[sent % 4];

		while (sent - in.next >= b->caps.credits)
			bench_progress(b);
		if (sent % 5 == 4) {
			CHECK(!bench_wait(b, op, 5000));
			mock_op_init(op, NULL, NULL);
			CHECK(!side_put(b, &x, op, NULL, 0, NULL, true,
					(uint32_t)sent, sent % 2));
			sent++;
			continue;
		}
		err = send_one(b, &x, sent, lens[sent % 7]);
		CHECK(!err || err == -EAGAIN);
		if (err)
			bench_progress(b);
		else
			sent++;
	}
	while (in.next < sent)
		bench_progress(b);
	CHECK(!in.wrong && in.next == 10000);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

/* All credits used while the receiver does nothing; nothing is lost. */
static void test_idle_receiver(struct bench *b)
{
	struct inbox in = {0};
	struct side x, y;

	pair_connect(b, &x, &b->a, &y, &b->b);
	y.ep.on_message = check_message;
	y.ep.arg = &in;
	for (unsigned round = 0; round < 20; round++) {
		unsigned n = b->caps.credits + CREDIT_SLACK;
		double end = now_us() + 20e3;

		for (unsigned i = 0; i < n; i++) {
			int err;

			do {
				err = send_one(b, &x, round * n + i, 4096);
				mock_progress(&b->a.core, b->ops, b->a.pctx);
			} while (err == -EAGAIN);
			CHECK(!err);
		}
		while (now_us() < end)
			mock_progress(&b->a.core, b->ops, b->a.pctx);
		while (in.next < (round + 1) * n)
			bench_progress(b);
	}
	CHECK(!in.wrong);
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
		{"messages", test_messages},
		{"idle receiver", test_idle_receiver},
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
	loop_run(&b, loop_fault_tests, loop_fault_count,
		 argc > 1 ? argv[1] : NULL);
	region_close(&b, &src);
	region_close(&b, &dst);
	bench_close(&b);
	printf("%u passed, 0 failed, 0 skipped\n", loop_passed());
	return loop_passed() ? 0 : 1;
}
