/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Order: a notify comes after the data of all puts before it; notifies and
 * messages come in the order posted; a get after a flush sees the puts.
 */
#include "harness.h"

#include <errno.h>
#include <string.h>

#define ROUNDS 2000
#define PUTS   8
#define SLOTS  4
#define PIECE  1024 /* room of one put; its length varies */

/* Length of put @i in round @round: also 1 and PIECE. */
static size_t piece_len(unsigned round, unsigned i)
{
	return 1 + (round * 131u + i * 977u) % PIECE;
}

struct stream {
	struct test *t;
	struct buffer *target;
	struct vbn_op ack[SLOTS];
	struct vbn_op puts[SLOTS][PUTS];
	struct buffer *local;
	struct vbn_rkey rkey;
	int received, acked;
};

static uint8_t *slot_piece(const struct buffer *buf, unsigned round, unsigned i)
{
	return buf->data + ((size_t)(round % SLOTS) * PUTS + i) * PIECE;
}

/* Data of the round must all be there; then the slot may be written again. */
static void round_arrived(void *arg, struct vbn_ep *from, uint32_t round)
{
	struct stream *s = arg;

	(void)from;
	if (!t_check(s->t, round == (uint32_t)s->received,
		     "notify %u came instead of %d", round, s->received))
		return;
	for (unsigned i = 0; i < PUTS; i++) {
		uint8_t *p = slot_piece(s->target, round, i);

		if (!t_pattern(s->t, p, piece_len(round, i), round + i,
			       "data of a put before the notify"))
			return;
		memset(p, 0, PIECE);
	}
	s->received++;
}

static void ack_arrived(void *arg, struct vbn_ep *from, uint32_t round)
{
	struct stream *s = arg;

	(void)from;
	t_check(s->t, round == (uint32_t)s->acked + 1, "ack %u after %d", round,
		s->acked);
	s->acked = (int)round;
}

static bool send_round(struct stream *s, unsigned round)
{
	struct test *t = s->t;

	for (unsigned i = 0; i < PUTS; i++) {
		uint8_t *p = slot_piece(s->local, round, i);
		struct post post = {
			.ep = t->ep,
			.op = &s->puts[round % SLOTS][i],
			.rkey = &s->rkey,
			.offset = (uint64_t)(p - s->local->data),
		};
		size_t len = piece_len(round, i);
		int rc;

		if (round >= SLOTS && !t_wait(t, post.op, "put"))
			return false;
		fill(p, len, round + i);
		rc = i + 1 < PUTS ? put(post, p, len)
				  : put_notify(post, p, len, VBN_CHANNEL_USER,
					       round);
		if (!t_ok(t, rc, "a put of the stream"))
			return false;
	}
	return true;
}

static void run_put_notify(struct test *t)
{
	struct stream *s = t_alloc(t, sizeof(*s));
	unsigned channel = VBN_CHANNEL_USER;
	int told = 0, sent = 0;
	double until = now() + 100;

	s->t = t;
	s->target = t_buffer(t, POOL, SLOTS * PUTS * PIECE);
	s->local = t_buffer(t, POOL, SLOTS * PUTS * PIECE);
	if (!s->target || !s->local ||
	    !t_exchange_rkey(t, &s->target->rkey, &s->rkey))
		return;
	vbn_notify_handler(t->ctx, channel, round_arrived, s);
	vbn_notify_handler(t->ctx, channel + 1, ack_arrived, s);
	/* Both ranks send and receive; the acks are credits of the test. */
	while (t->outcome == PASSED && now() < until &&
	       (s->received < ROUNDS || s->acked < ROUNDS)) {
		if (sent < ROUNDS && sent < s->acked + SLOTS) {
			if (!send_round(s, (unsigned)sent))
				return;
			sent++;
		}
		if (told < s->received) {
			struct vbn_op *ack = &s->ack[told % SLOTS];

			if (told >= SLOTS && !t_wait(t, ack, "ack"))
				return;
			told++;
			t_ok(t, notify(t->ep, ack, channel + 1, (uint32_t)told),
			     "ack");
		}
		vbn_progress(t->ctx);
	}
	/* The last acks: the peer needs all of ours. */
	while (told < s->received && t->outcome == PASSED) {
		struct vbn_op *ack = &s->ack[told % SLOTS];

		if (!t_wait(t, ack, "ack"))
			return;
		told++;
		t_ok(t, notify(t->ep, ack, channel + 1, (uint32_t)told), "ack");
	}
	t_check(t, s->received == ROUNDS && s->acked == ROUNDS,
		"%d rounds received, %d acknowledged of %d", s->received,
		s->acked, ROUNDS);
	t_barrier(t);
}

/* A large put, cut into pieces by the library, then a notify of its own. */
struct big {
	struct test *t;
	struct buffer *target;
	int count;
};

static void big_arrived(void *arg, struct vbn_ep *from, uint32_t round)
{
	struct big *b = arg;

	(void)from;
	t_pattern(b->t, b->target->data, b->target->len, round,
		  "a large put before the notify");
	b->count++;
}

static void run_large(struct test *t)
{
	struct big *b = t_alloc(t, sizeof(*b));
	struct vbn_op *ops = t_alloc(t, 2 * sizeof(*ops));
	struct buffer *local = t_buffer(t, POOL, 3u << 20);
	struct vbn_rkey rkey;

	b->t = t;
	b->target = t_buffer(t, POOL, 3u << 20);
	if (!local || !b->target ||
	    !t_exchange_rkey(t, &b->target->rkey, &rkey))
		return;
	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, big_arrived, b);
	for (int round = 0; round < 4; round++) {
		fill(local->data, local->len, (unsigned)round);
		if (!t_ok(t,
			  put((struct post){t->ep, &ops[0], &rkey, 0, 0},
			      local->data, local->len),
			  "vbn_put") ||
		    !t_ok(t,
			  notify(t->ep, &ops[1], VBN_CHANNEL_USER,
				 (uint32_t)round),
			  "vbn_notify") ||
		    !t_wait(t, &ops[0], "put") ||
		    !t_wait(t, &ops[1], "notify") ||
		    !t_count(t, &b->count, round + 1, "notifies") ||
		    !t_barrier(t))
			return;
	}
}

/* A message is ordered after puts as well. */
struct sequence {
	struct test *t;
	struct buffer *target;
	uint32_t next;
	int count;
};

static void step(struct sequence *s, uint32_t value, const char *what)
{
	t_check(s->t, value == s->next, "%s %u came instead of %u", what, value,
		s->next);
	s->next++;
	s->count++;
	t_pattern(s->t, s->target->data + (size_t)value * 64, 64, value, what);
}

static void sequence_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	(void)from;
	step(arg, value, "notify");
}

static void sequence_message(void *arg, struct vbn_ep *from, const void *data,
			     size_t len)
{
	uint32_t value = UINT32_MAX;

	(void)from;
	if (len == sizeof(value))
		memcpy(&value, data, sizeof(value));
	step(arg, value, "message");
}

#define STEPS 1000

static void run_sequence(struct test *t)
{
	struct sequence *s = t_alloc(t, sizeof(*s));
	struct vbn_op *ops = t_alloc(t, 2 * STEPS * sizeof(*ops));
	struct buffer *local = t_buffer(t, POOL, STEPS * 64);
	struct vbn_rkey rkey;

	s->t = t;
	s->target = t_buffer(t, POOL, STEPS * 64);
	if (!local || !s->target ||
	    !t_exchange_rkey(t, &s->target->rkey, &rkey))
		return;
	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, sequence_notify, s);
	vbn_message_handler(t->ctx, VBN_CHANNEL_USER, sequence_message, s);
	for (uint32_t i = 0; i < STEPS; i++) {
		uint8_t *p = local->data + (size_t)i * 64;
		struct post post = {t->ep, &ops[2 * i], &rkey, i * 64ull, 0};
		int rc;

		fill(p, 64, i);
		if (!t_ok(t, put(post, p, 64), "vbn_put"))
			return;
		if (i % 3 == 0)
			rc = message(t->ep, VBN_CHANNEL_USER, &i, sizeof(i));
		else
			rc = notify(t->ep, &ops[2 * i + 1], VBN_CHANNEL_USER,
				    i);
		if (!t_ok(t, rc, "message or notify"))
			return;
	}
	t_count(t, &s->count, STEPS, "notifies and messages");
	for (uint32_t i = 0; i < STEPS; i++) {
		t_wait(t, &ops[2 * i], "put");
		if (i % 3)
			t_wait(t, &ops[2 * i + 1], "notify");
	}
	t_barrier(t);
	t_check(t, s->count == STEPS, "%d deliveries instead of %d", s->count,
		STEPS);
}

/* Puts, flush, then get of the same place: the new bytes. */
static void run_flush_get(struct test *t)
{
	struct buffer *local = t_buffer(t, POOL, 8192);
	struct buffer *back = t_buffer(t, POOL, 8192);
	struct buffer *target = t_buffer(t, POOL, 8192);
	struct vbn_op *ops = t_alloc(t, 3 * sizeof(*ops));
	struct vbn_rkey rkey;

	if (!local || !back || !target ||
	    !t_exchange_rkey(t, &target->rkey, &rkey))
		return;
	for (unsigned round = 0; round < 200; round++) {
		size_t len = 1 + round * 41 % 8192;

		fill(local->data, len, round);
		if (!t_ok(t,
			  put((struct post){t->ep, &ops[0], &rkey, 0, 0},
			      local->data, len),
			  "vbn_put") ||
		    !t_ok(t, flush(t->ep, &ops[1]), "vbn_flush") ||
		    !t_wait(t, &ops[1], "flush") ||
		    !t_ok(t,
			  get((struct post){t->ep, &ops[2], &rkey, 0, 0},
			      back->data, len),
			  "vbn_get") ||
		    !t_wait(t, &ops[2], "get") || !t_wait(t, &ops[0], "put") ||
		    !t_pattern(t, back->data, len, round, "get after flush"))
			return;
	}
}

/* With nothing before it, a flush completes too. */
static void run_flush_empty(struct test *t)
{
	struct vbn_op *ops = t_alloc(t, 10 * sizeof(*ops));

	for (int i = 0; i < 10; i++)
		if (!t_ok(t, flush(t->ep, &ops[i]), "vbn_flush"))
			return;
	for (int i = 0; i < 10; i++)
		t_wait(t, &ops[i], "flush");
}

static const struct test_case cases[] = {
	{"order/put-notify", run_put_notify, 0, 0, 0},
	{"order/large-put-notify", run_large, 0, 0, 0},
	{"order/puts-messages-notifies", run_sequence, 0, 0, 0},
	{"order/put-flush-get", run_flush_get, 0, 0, 0},
	{"order/flush-nothing", run_flush_empty, 0, 0, 0},
};

const struct cases order_cases = {cases, sizeof(cases) / sizeof(cases[0])};
