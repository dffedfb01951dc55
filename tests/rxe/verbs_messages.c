/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbs_loop's tests of messages: through mailboxes small and large, round
 * their end, bare ones, mixed with notifies; and of windows.
 */
#include "verbs_loop.h"

#include <errno.h>
#include <string.h>

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

	if ((imm & VBN_NOTIFY_MAX) != in->next)
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
	uint64_t sent = 0;

	pair_connect(b, &x, &b->a, &y, &b->b);
	y.ep.on_message = check_message;
	y.ep.on_notify = check_message_notify;
	y.ep.arg = &in;
	for (unsigned round = 0; round < 20; round++) {
		uint64_t until = sent + b->caps.credits + CREDIT_SLACK;
		double end = now_us() + 20e3;
		struct vbn_op ops[64];

		/* as many long messages as there is room for, then notifies */
		while (sent < until && !send_one(b, &x, sent, 4096))
			sent++;
		for (; sent < until; sent++) {
			struct vbn_op *op = &ops[until - sent];

			mock_op_init(op, NULL, NULL);
			CHECK(!side_put(b, &x, op, NULL, 0, NULL, true,
					(uint32_t)(sent | 1u << 28), false));
		}
		while (now_us() < end)
			mock_progress(&b->a.core, b->ops, b->a.pctx);
		while (in.next < until)
			bench_progress(b);
		bench_progress(b); /* a larger ring is agreed on */
		bench_progress(b);
	}
	CHECK(!in.wrong && in.lens > 4096 * 20);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

/* ---- mailboxes ---- */

static void send_all(struct bench *b, struct side *x, struct inbox *in,
		     uint64_t n, size_t len)
{
	double end = now_us() + 5e6;
	int err;

	while ((err = send_one(b, x, n, len)) == -EAGAIN && now_us() < end)
		bench_progress(b);
	CHECK(!err);
	while (n + 1 - in->next > b->caps.credits)
		bench_progress(b);
}

/* Every length there is, over the small ring, its end, and the large one. */
static void test_lengths(struct bench *b)
{
	struct inbox in = {0}, back = {0};
	struct side x, y, self;
	uint64_t n = 0;

	pair_connect(b, &x, &b->a, &y, &b->b);
	self_connect(b, &self, &b->a);
	y.ep.on_message = x.ep.on_message = check_message;
	y.ep.arg = &in;
	x.ep.arg = &back;
	for (size_t len = 0; len <= b->caps.max_message; len++) {
		send_all(b, &x, &in, n, len);
		send_all(b, &y, &back, n, b->caps.max_message - len);
		n++;
	}
	while (in.next < n || back.next < n)
		bench_progress(b);
	CHECK(!in.wrong && !back.wrong && in.lens == back.lens);
	in.next = 0;
	self.ep.on_message = check_message;
	self.ep.arg = &in;
	for (n = 0; n < 300; n++)
		send_all(b, &self, &in, n, n * 13);
	while (in.next < n)
		bench_progress(b);
	CHECK(!in.wrong);
	side_close(&self, -ECANCELED);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

/* Short ones go round the small ring for ever, one way. */
static void test_wrap(struct bench *b)
{
	static const size_t lens[] = {1, 33, 97, 32, 150, 64, 0, 200};
	struct inbox in = {0};
	struct side x, y;
	uint64_t n;

	pair_connect(b, &x, &b->a, &y, &b->b);
	y.ep.on_message = check_message;
	y.ep.arg = &in;
	for (n = 0; n < 5000; n++) {
		send_all(b, &x, &in, n, lens[n % 8]);
		while (in.next + 2 < n)
			bench_progress(b);
	}
	while (in.next < n)
		bench_progress(b);
	CHECK(!in.wrong);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

/* Both ask for a larger ring at once, in one that is full. */
static void test_growth(struct bench *b)
{
	struct inbox in = {0}, back = {0};
	struct side x, y;
	uint64_t n = 0, m = 0;

	pair_connect(b, &x, &b->a, &y, &b->b);
	y.ep.on_message = x.ep.on_message = check_message;
	y.ep.arg = &in;
	x.ep.arg = &back;
	while (!send_one(b, &x, n, 90)) /* nobody progresses */
		n++;
	while (!send_one(b, &y, m, 90))
		m++;
	CHECK(n == 8 && m == 8);
	CHECK(send_one(b, &x, n, 4096) == -EAGAIN);
	CHECK(send_one(b, &y, m, 4096) == -EAGAIN);
	for (; n < 200; n++, m++) {
		send_all(b, &x, &in, n, 4096);
		send_all(b, &y, &back, m, 4096 - n);
	}
	while (in.next < n || back.next < m)
		bench_progress(b);
	CHECK(!in.wrong && !back.wrong);
	for (n = 200; !send_one(b, &x, n, 4096); n++)
		;
	CHECK(n - 200 >= 7 && n - 200 <= 15); /* the large ring */
	while (in.next < n)
		bench_progress(b);
	CHECK(!in.wrong);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

struct bare {
	unsigned next;
	int wrong;
};

static void check_bare(struct vbn_ep *ep, const struct message_header *header,
		       const void *data, size_t len)
{
	struct bare *e = ep->arg;

	(void)data;
	if (len || header->kind != e->next % 18 ||
	    header->u32 != e->next * 7 % 300 || header->u64[0] ||
	    header->u64[1] || header->u64[2])
		e->wrong++;
	e->next++;
}

/* Nothing but a kind and a small number; and such as are just too large. */
static void test_bare(struct bench *b)
{
	struct bare e = {0};
	struct side x, y;

	pair_connect(b, &x, &b->a, &y, &b->b);
	y.ep.on_message = check_bare;
	y.ep.arg = &e;
	for (unsigned i = 0; i < 2000; i++) {
		struct message_header header = {.kind = i % 18,
						.u32 = i * 7 % 300};

		while (i - e.next >= b->caps.credits ||
		       b->ops->message(x.ep.conn, &header, NULL, 0))
			bench_progress(b);
	}
	while (e.next < 2000)
		bench_progress(b);
	CHECK(!e.wrong);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
}

/* A window holds what it promises; half of all is for others. */
static void test_windows(struct bench *b)
{
	enum { MANY = 400 };
	static struct side x[MANY], y[MANY];
	static struct vbn_op ops[128];
	unsigned max = b->caps.credits_max, grown = 0, n;

	pair_connect(b, &x[0], &b->a, &y[0], &b->b);
	CHECK(!b->ops->window(y[0].ep.conn, max));
	CHECK(!b->ops->window(y[0].ep.conn, 1)); /* never less */
	CHECK(b->ops->window(y[0].ep.conn, max + 1) == -EAGAIN);
	n = max + CREDIT_SLACK;
	for (unsigned i = 0; i < n; i++) { /* all at once: no RNR */
		mock_op_init(&ops[i], NULL, NULL);
		CHECK(!side_put(b, &x[0], &ops[i], NULL, 0, NULL, true,
				1u << 28, false));
	}
	while (ops[n - 1].status == -EINPROGRESS)
		mock_progress(&b->a.core, b->ops, b->a.pctx);
	while (y[0].ep.notifies < n)
		bench_progress(b);
	for (int i = 1; i < MANY; i++) {
		pair_connect(b, &x[i], &b->a, &y[i], &b->b);
		grown += !b->ops->window(y[i].ep.conn, max);
	}
	CHECK(grown > 100 && grown < MANY - 1);
	for (int round = 0; round < 2; round++)
		for (int i = 0; i < MANY; i++) {
			side_close(round ? &x[i] : &y[i], -ECANCELED);
			if (i % 32 == 0)
				bench_progress(b);
		}
	printf("(%u of %d grown) ", grown + 1, MANY);
}

const struct loop_test loop_message_tests[] = {
	{"messages", test_messages},
	{"idle receiver", test_idle_receiver},
	{"messages of all lengths", test_lengths},
	{"mailbox wrap", test_wrap},
	{"mailbox growth", test_growth},
	{"bare messages", test_bare},
	{"windows", test_windows},
};
const size_t loop_message_count =
	sizeof(loop_message_tests) / sizeof(loop_message_tests[0]);
