/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two-sided: matching in order, receives before and after, truncation, many
 * sends that nobody expects.
 */
#include "harness.h"

#include <errno.h>
#include <stdlib.h>

#define MESSAGES 400

/* Small and large mixed, so that both protocols must keep one order. */
static size_t length_of(int i)
{
	static const size_t lengths[] = {0,	1,    64,    4096, 20000,
					 70000, 8000, 16384, 3,	   2048};

	return lengths[i % 10];
}

struct pair {
	struct vbn_op *sends, *recvs;
	struct buffer *out, *in;
};

#define ROOM 70000

static bool pair_open(struct test *t, struct pair *p, int count)
{
	p->sends = t_alloc(t, (size_t)count * sizeof(*p->sends));
	p->recvs = t_alloc(t, (size_t)count * sizeof(*p->recvs));
	p->out = t_buffer(t, POOL, 16 * ROOM);
	p->in = t_buffer(t, POOL, 16 * ROOM);
	if (!p->out || !p->in)
		return false;
	for (int i = 0; i < 10; i++)
		fill(p->out->data + (size_t)i * ROOM, ROOM, (unsigned)i);
	return t_barrier(t);
}

/* The first @count sends go out; the receives follow @lead behind or ahead. */
static bool pair_run(struct test *t, struct pair *p, int count, int lead)
{
	for (int i = 0; i < count + abs(lead); i++) {
		int s = lead > 0 ? i - lead : i;
		int r = lead > 0 ? i : i + lead;

		if (r >= 0 && r < count) {
			/* The slot's last receive must be over. */
			if (r >= 16 && !t_wait(t, &p->recvs[r - 16], "receive"))
				return false;
			if (r >= 16 &&
			    !t_pattern(t, p->in->data + r % 16 * ROOM,
				       length_of(r - 16),
				       (unsigned)((r - 16) % 10), "receive"))
				return false;
			if (!t_ok(t,
				  recv_from(t->ep, &p->recvs[r],
					    p->in->data + r % 16 * ROOM, ROOM),
				  "vbn_recv"))
				return false;
		}
		if (s >= 0 && s < count &&
		    !t_ok(t,
			  send_to(t->ep, &p->sends[s],
				  p->out->data + s % 10 * ROOM, length_of(s)),
			  "vbn_send"))
			return false;
	}
	for (int i = 0; i < count; i++) {
		if (!t_wait(t, &p->recvs[i], "receive") ||
		    !t_wait(t, &p->sends[i], "send") ||
		    !t_check(t, p->recvs[i].bytes == length_of(i),
			     "receive %d has %zu bytes, not %zu", i,
			     p->recvs[i].bytes, length_of(i)))
			return false;
		if (i >= count - 16 &&
		    !t_pattern(t, p->in->data + i % 16 * ROOM, length_of(i),
			       (unsigned)(i % 10), "receive"))
			return false;
	}
	return true;
}

static void run_before(struct test *t)
{
	struct pair p;

	if (pair_open(t, &p, MESSAGES))
		pair_run(t, &p, MESSAGES, 8);
	t_barrier(t);
}

static void run_after(struct test *t)
{
	struct pair p;

	if (pair_open(t, &p, MESSAGES))
		pair_run(t, &p, MESSAGES, -8);
	t_barrier(t);
}

/* All sends first; not one receive is posted until they have been taken. */
static void run_unexpected(struct test *t)
{
	enum { COUNT = 2000 };
	struct vbn_op *ops = t_alloc(t, 2 * COUNT * sizeof(*ops));
	struct buffer *out = t_buffer(t, POOL, 256);
	struct buffer *in = t_buffer(t, POOL, COUNT * 256);

	if (!out || !in || !t_barrier(t))
		return;
	for (int i = 0; i < COUNT; i++) {
		double until = now() + 0.5;
		int rc;

		/*
		 * The library may hold so many that nobody expects, and no
		 * more: then the receiver must post first.
		 */
		do {
			fill(out->data, 256, (unsigned)i);
			rc = vbn_send(t->ep, &ops[i], out->data, 256, 0);
			if (rc == -EAGAIN)
				vbn_ctx_wait(t->ctx, 5);
		} while (rc == -EAGAIN && now() < until);
		if (rc == -EAGAIN) {
			t_check(t, i >= 16, "only %d unexpected sends taken",
				i);
			for (int k = i; k < COUNT; k++)
				ops[k].status = 1; /* never sent */
			break;
		}
		/* The buffer is used again: let the send be over. */
		if (!t_ok(t, rc, "vbn_send"))
			return;
		if (vbn_wait(t->ctx, &ops[i], 500) == -ETIMEDOUT) {
			for (int k = i + 1; k < COUNT; k++)
				ops[k].status = 1;
			break;
		}
	}
	int sent = 0, coming;

	while (sent < COUNT && ops[sent].status != 1)
		sent++;
	if (!t_exchange(t, &sent, &coming, sizeof(sent)))
		return;
	for (int i = 0; i < coming; i++)
		if (!t_ok(t,
			  recv_from(t->ep, &ops[COUNT + i], in->data + i * 256,
				    256),
			  "vbn_recv"))
			return;
	for (int i = 0; i < coming; i++)
		if (!t_wait(t, &ops[COUNT + i], "receive") ||
		    !t_pattern(t, in->data + i * 256, 256, (unsigned)i,
			       "unexpected send"))
			return;
	for (int i = 0; i < sent; i++)
		if (!t_wait(t, &ops[i], "send"))
			return;
}

/* Large ones that nobody expects: they must wait at the sender. */
static void run_unexpected_large(struct test *t)
{
	enum { COUNT = 8, LEN = 3000001 };
	struct vbn_op *ops = t_alloc(t, 2 * COUNT * sizeof(*ops));
	struct buffer *out[COUNT], *in = t_buffer(t, POOL, LEN);

	for (int i = 0; i < COUNT; i++) {
		out[i] = t_buffer(t, i % 2 ? REGISTERED : POOL, LEN - i);
		if (!out[i])
			return;
		fill(out[i]->data, out[i]->len, (unsigned)i);
		if (!t_ok(t, send_to(t->ep, &ops[i], out[i]->data, out[i]->len),
			  "vbn_send"))
			return;
	}
	t_drive(t, 100);
	for (int i = 0; i < COUNT; i++) {
		if (!t_ok(t, recv_from(t->ep, &ops[COUNT + i], in->data, LEN),
			  "vbn_recv") ||
		    !t_wait(t, &ops[COUNT + i], "receive") ||
		    !t_check(t, ops[COUNT + i].bytes == (size_t)(LEN - i),
			     "%zu bytes", ops[COUNT + i].bytes) ||
		    !t_pattern(t, in->data, (size_t)(LEN - i), (unsigned)i,
			       "receive") ||
		    !t_guards(t, in))
			return;
	}
	for (int i = 0; i < COUNT; i++)
		t_wait(t, &ops[i], "send");
	t_barrier(t);
}

/* Too little room: -EMSGSIZE, the message's length, and no byte too many. */
static void truncate_at(struct test *t, size_t len, size_t room, bool before)
{
	struct vbn_op *ops = t_alloc(t, 4 * sizeof(*ops));
	struct buffer *out = t_buffer(t, POOL, len);
	struct buffer *in = t_buffer(t, POOL, room);
	struct buffer *next = t_buffer(t, POOL, len);
	int rc = 0;

	if (!out || !in || !next)
		return;
	fill(out->data, len, 1 + (unsigned)t->rank);
	if (before)
		rc = recv_from(t->ep, &ops[0], in->data, room);
	if (!t_ok(t, rc, "vbn_recv") || !t_barrier(t) ||
	    !t_ok(t, send_to(t->ep, &ops[1], out->data, len), "vbn_send") ||
	    !t_ok(t, send_to(t->ep, &ops[2], out->data, len), "vbn_send"))
		return;
	if (!before) {
		t_drive(t, 20);
		rc = recv_from(t->ep, &ops[0], in->data, room);
	}
	if (!t_ok(t, rc, "vbn_recv") ||
	    !t_is(t, vbn_wait(t->ctx, &ops[0], WAIT_MS), -EMSGSIZE,
		  "a receive too small") ||
	    !t_check(t, ops[0].bytes == len, "op->bytes is %zu, not %zu",
		     ops[0].bytes, len) ||
	    !t_guards(t, in))
		return;
	/* The next message is whole. */
	if (!t_ok(t, recv_from(t->ep, &ops[3], next->data, len), "vbn_recv") ||
	    !t_wait(t, &ops[3], "the receive after it") ||
	    !t_pattern(t, next->data, len, 1 + (unsigned)t->peer,
		       "the receive after it"))
		return;
	t_check(t, vbn_wait(t->ctx, &ops[1], WAIT_MS) != -ETIMEDOUT,
		"the send that was cut does not complete");
	t_wait(t, &ops[2], "the next send");
	t_barrier(t);
}

static void run_truncate_small(struct test *t)
{
	truncate_at(t, 100, 99, true);
	if (t->outcome == PASSED)
		truncate_at(t, 100, 10, false);
	if (t->outcome == PASSED)
		truncate_at(t, 64, 0, true);
}

static void run_truncate_large(struct test *t)
{
	truncate_at(t, 1048577, 1048576, true);
	if (t->outcome == PASSED)
		truncate_at(t, 1048577, 100, false);
}

/* More room than message: the rest stays as it was. */
static void run_roomy(struct test *t)
{
	struct vbn_op *ops = t_alloc(t, 2 * sizeof(*ops));
	struct buffer *out = t_buffer(t, POOL, 1000);
	struct buffer *in = t_buffer(t, POOL, 5000);
	bool rest = true;

	if (!out || !in)
		return;
	fill(out->data, 1000, 4);
	if (!t_ok(t, recv_from(t->ep, &ops[0], in->data, 5000), "vbn_recv") ||
	    !t_ok(t, send_to(t->ep, &ops[1], out->data, 1000), "vbn_send") ||
	    !t_wait(t, &ops[0], "receive") || !t_wait(t, &ops[1], "send"))
		return;
	t_check(t, ops[0].bytes == 1000, "op->bytes is %zu", ops[0].bytes);
	t_pattern(t, in->data, 1000, 4, "receive");
	for (size_t i = 1000; i < 5000; i++)
		rest = rest && in->data[i] == 0xa5;
	t_check(t, rest, "bytes beyond the message were changed");
	t_guards(t, in);
	t_barrier(t);
}

static const struct test_case cases[] = {
	{"sendrecv/order-receives-ahead", run_before, 0, 0, 0},
	{"sendrecv/order-sends-ahead", run_after, 0, 0, 0},
	{"sendrecv/unexpected", run_unexpected, 0, 0, 0},
	{"sendrecv/unexpected-large", run_unexpected_large, 0, 0, 0},
	{"sendrecv/truncated-small", run_truncate_small, 0, 0, 0},
	{"sendrecv/truncated-large", run_truncate_large, 0, 0, 0},
	{"sendrecv/more-room", run_roomy, 0, 0, 0},
};

const struct cases sendrecv_cases = {cases, sizeof(cases) / sizeof(cases[0])};
