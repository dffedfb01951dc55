/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Back-pressure: far more operations than any queue holds, receivers that do
 * not look, chains, and posts from callbacks. Every accepted operation
 * completes exactly once, and its status never changes afterwards.
 */
#include "harness.h"

#include <errno.h>
#include <string.h>

#define MANY 10000

struct counted {
	struct vbn_op op;
	struct flood *flood;
	int completions;
	int status; /* as first seen */
	uint64_t before;
};

struct flood {
	struct test *t;
	struct counted *ops;
	struct buffer *local, *target;
	struct vbn_rkey rkey;
	int completed;
	long again;
};

static void flood_done(struct vbn_op *op)
{
	struct counted *c = op->arg;

	c->completions++;
	c->status = op->status;
	c->flood->completed++;
}

static struct flood *flood_open(struct test *t, size_t bytes)
{
	struct flood *f = t_alloc(t, sizeof(*f));

	f->t = t;
	f->ops = t_alloc(t, MANY * sizeof(*f->ops));
	f->local = t_buffer(t, POOL, bytes);
	f->target = t_buffer(t, POOL, bytes);
	for (int i = 0; i < MANY; i++) {
		f->ops[i].flood = f;
		f->ops[i].op.done = flood_done;
		f->ops[i].op.arg = &f->ops[i];
	}
	if (!f->local || !f->target ||
	    !t_exchange_rkey(t, &f->target->rkey, &f->rkey))
		return NULL;
	return f;
}

/* Post all of them, progressing only where the library takes no more. */
static bool flood_post(struct flood *f, int (*post)(struct flood *f, int i))
{
	double until = now() + WAIT_MS / 1e3;

	for (int i = 0; i < MANY;) {
		int rc = post(f, i);

		if (rc == 0) {
			i++;
			continue;
		}
		if (!t_check(f->t, rc == -EAGAIN, "operation %d: %s (%s)", i,
			     err_name(rc), vbn_error()) ||
		    !t_check(f->t, now() < until,
			     "operation %d is not taken in %d s", i,
			     WAIT_MS / 1000))
			return false;
		f->again++;
		vbn_ctx_wait(f->t->ctx, 5);
	}
	return true;
}

/* All over, once, with success; and so it stays. */
static bool flood_settle(struct flood *f)
{
	if (!t_count(f->t, &f->completed, MANY, "completions"))
		return false;
	t_drive(f->t, 100);
	for (int i = 0; i < MANY; i++) {
		const struct counted *c = &f->ops[i];

		if (!t_check(f->t, c->completions == 1,
			     "operation %d completed %d times", i,
			     c->completions) ||
		    !t_check(f->t, c->status == 0 && c->op.status == 0,
			     "operation %d: status %s, later %s", i,
			     err_name(c->status), err_name(c->op.status)))
			return false;
	}
	return true;
}

static struct post flood_at(struct flood *f, int i)
{
	return (struct post){f->t->ep, &f->ops[i].op, &f->rkey, i * 64ull, 0};
}

static int post_put(struct flood *f, int i)
{
	struct post p = flood_at(f, i);

	return vbn_put(p.ep, p.op, f->local->data + p.offset, 64, p.rkey,
		       p.offset, 0);
}

static void run_puts(struct test *t)
{
	struct flood *f = flood_open(t, MANY * 64);

	if (!f)
		return;
	fill(f->local->data, f->local->len, 1 + (unsigned)t->rank);
	if (flood_post(f, post_put) && flood_settle(f) && t_flush(t) &&
	    t_barrier(t))
		t_pattern(t, f->target->data, f->target->len,
			  1 + (unsigned)t->peer, "puts");
}

static int post_get(struct flood *f, int i)
{
	struct post p = flood_at(f, i);

	return vbn_get(p.ep, p.op, f->local->data + p.offset, 64, p.rkey,
		       p.offset, 0);
}

static void run_gets(struct test *t)
{
	struct flood *f = flood_open(t, MANY * 64);

	if (!f)
		return;
	fill(f->target->data, f->target->len, 1 + (unsigned)t->rank);
	if (t_barrier(t) && flood_post(f, post_get) && flood_settle(f))
		t_pattern(t, f->local->data, f->local->len,
			  1 + (unsigned)t->peer, "gets");
}

static int post_add(struct flood *f, int i)
{
	struct post p = flood_at(f, i);

	/* One word for all, aligned. */
	p.offset = -(uintptr_t)f->rkey.base & 7;
	return vbn_fetch_add(p.ep, p.op, &f->ops[i].before, 1, p.rkey, p.offset,
			     0);
}

static void run_adds(struct test *t)
{
	struct flood *f = flood_open(t, 64);
	uint8_t *seen = t_alloc(t, MANY);
	uint64_t word;

	if (!f)
		return;
	memset(f->target->data, 0, 64);
	if (!t_barrier(t) || !flood_post(f, post_add) || !flood_settle(f) ||
	    !t_barrier(t))
		return;
	memcpy(&word, f->target->data + (-(uintptr_t)f->target->data & 7), 8);
	t_check(t, word == MANY, "the sum is %llu instead of %d",
		(unsigned long long)word, MANY);
	for (int i = 0; i < MANY; i++) {
		uint64_t v = f->ops[i].before;

		if (!t_check(t, v < MANY && !seen[v], "value %llu came twice",
			     (unsigned long long)v))
			return;
		seen[v] = 1;
	}
}

/* Unregistered memory: staging must not run dry, nor lose a byte. */
static int post_staged(struct flood *f, int i)
{
	struct post p = flood_at(f, i % 16);

	p.op = &f->ops[i].op;
	p.offset = (uint64_t)(i % 16) * 4096;
	return vbn_put(p.ep, p.op, f->ops[0].flood->local->data + p.offset,
		       4096, p.rkey, p.offset, 0);
}

static void run_staged(struct test *t)
{
	struct flood *f = flood_open(t, 16 * 4096);
	struct vbn_counters before, after;

	if (!f)
		return;
	f->local = t_buffer(t, UNREGISTERED, 16 * 4096);
	fill(f->local->data, f->local->len, 1 + (unsigned)t->rank);
	vbn_ctx_counters(t->ctx, &before);
	if (!flood_post(f, post_staged) || !flood_settle(f) || !t_flush(t) ||
	    !t_barrier(t))
		return;
	vbn_ctx_counters(t->ctx, &after);
	/* Only verbs needs registered local memory. */
	t_check(t,
		after.staged_bytes - before.staged_bytes == MANY * 4096ull ||
			strcmp(vbn_ep_provider(t->ep), "verbs") != 0,
		"%llu bytes staged instead of %llu",
		(unsigned long long)(after.staged_bytes - before.staged_bytes),
		MANY * 4096ull);
	t_pattern(t, f->target->data, f->target->len, 1 + (unsigned)t->peer,
		  "staged puts");
}

/* ---- notifies ---- */

struct inbox {
	struct test *t;
	int count;
	uint32_t next;
};

static void inbox_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct inbox *in = arg;

	(void)from;
	t_check(in->t, value == in->next, "notify %u came instead of %u", value,
		in->next);
	in->next++;
	in->count++;
}

static int post_notify(struct flood *f, int i)
{
	return vbn_notify(f->t->ep, &f->ops[i].op, VBN_CHANNEL_USER,
			  (uint32_t)i, 0);
}

static void run_notifies(struct test *t)
{
	struct flood *f = flood_open(t, 64);
	struct inbox *in = t_alloc(t, sizeof(*in));

	if (!f)
		return;
	in->t = t;
	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, inbox_notify, in);
	if (!flood_post(f, post_notify) ||
	    !t_count(t, &in->count, MANY, "notifies") || !flood_settle(f))
		return;
	t_check(t, in->count == MANY, "%d notifies instead of %d", in->count,
		MANY);
}

/*
 * Rank 1 does not progress for 2 s. Rank 0 must be told to wait, not drown
 * the receiver; afterwards everything arrives, in order.
 */
static void run_deaf(struct test *t)
{
	struct flood *f = flood_open(t, 64);
	struct inbox *in = t_alloc(t, sizeof(*in));
	struct vbn_counters before, after;

	if (!f || !t_barrier(t))
		return;
	in->t = t;
	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, inbox_notify, in);
	vbn_ctx_counters(t->ctx, &before);
	if (t->rank == 1) {
		sleep_ms(2000);
		t_count(t, &in->count, MANY, "notifies after the pause");
	} else {
		double start = now();

		if (!flood_post(f, post_notify) || !flood_settle(f))
			return;
		vbn_ctx_counters(t->ctx, &after);
		t_check(t, f->again > 0, "the sender never saw -EAGAIN");
		t_check(t, after.again - before.again == (uint64_t)f->again,
			"the counter says %llu -EAGAIN, not %ld",
			(unsigned long long)(after.again - before.again),
			f->again);
		t_check(t, now() - start > 1.5,
			"10,000 notifies taken in %.2f s: by whom?",
			now() - start);
	}
	if (t_barrier(t) && t->rank == 1)
		t_check(t, in->count == MANY, "%d notifies, not %d", in->count,
			MANY);
}

/* Puts towards a target that does not progress, and a deadline on them. */
static void run_deaf_puts(struct test *t)
{
	struct flood *f = flood_open(t, MANY * 64);

	if (!f || !t_barrier(t))
		return;
	fill(f->local->data, f->local->len, 5);
	if (t->rank == 1)
		sleep_ms(1000);
	else if (!flood_post(f, post_put) || !flood_settle(f) || !t_flush(t))
		return;
	if (t_barrier(t) && t->rank == 1)
		t_pattern(t, f->target->data, f->target->len, 5, "puts");
}

/* ---- chains ---- */

static int post_chained(struct flood *f, int i)
{
	struct post p = flood_at(f, i);
	unsigned flags = i % 50 == 49 ? 0 : VBN_MORE;

	return vbn_put(p.ep, p.op, f->local->data + p.offset, 64, p.rkey,
		       p.offset, flags);
}

static void run_more(struct test *t)
{
	struct flood *f = flood_open(t, MANY * 64);
	struct vbn_counters before, after;

	if (!f)
		return;
	fill(f->local->data, f->local->len, 1 + (unsigned)t->rank);
	vbn_ctx_counters(t->ctx, &before);
	if (!flood_post(f, post_chained) || !flood_settle(f))
		return;
	vbn_ctx_counters(t->ctx, &after);
	t_check(t, after.doorbells - before.doorbells < MANY,
		"%llu doorbells for %d chained puts",
		(unsigned long long)(after.doorbells - before.doorbells), MANY);
	if (t_flush(t) && t_barrier(t))
		t_pattern(t, f->target->data, f->target->len,
			  1 + (unsigned)t->peer, "chained puts");
}

/* A chain that nothing follows goes out with the next progress. */
static void run_more_alone(struct test *t)
{
	struct buffer *local = t_buffer(t, POOL, 64);
	struct buffer *target = t_buffer(t, POOL, 64);
	struct vbn_op *ops = t_alloc(t, 2 * sizeof(*ops));
	struct inbox *in = t_alloc(t, sizeof(*in));
	struct vbn_rkey rkey;

	if (!local || !target || !t_exchange_rkey(t, &target->rkey, &rkey))
		return;
	in->t = t;
	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, inbox_notify, in);
	fill(local->data, 64, 1);
	if (!t_ok(t,
		  put((struct post){t->ep, &ops[0], &rkey, 0, VBN_MORE},
		      local->data, 64),
		  "vbn_put") ||
	    !t_wait(t, &ops[0], "put with VBN_MORE and no successor") ||
	    !t_ok(t,
		  put_notify((struct post){t->ep, &ops[1], &rkey, 0, VBN_MORE},
			     local->data, 64, VBN_CHANNEL_USER, 0),
		  "vbn_put_notify") ||
	    !t_wait(t, &ops[1], "notify with VBN_MORE and no successor") ||
	    !t_count(t, &in->count, 1, "notify"))
		return;
	t_pattern(t, target->data, 64, 1, "put");
}

/* ---- posting from callbacks ---- */

#define AGAINS 2000

struct repeat {
	struct vbn_op op;
	struct test *t;
	struct buffer *local;
	struct vbn_rkey rkey;
	int count;
	bool pending; /* the library said -EAGAIN inside the callback */
};

static void repeat_post(struct repeat *r)
{
	int rc = vbn_put(r->t->ep, &r->op, r->local->data, 64, &r->rkey, 0, 0);

	r->pending = rc == -EAGAIN;
	if (!r->pending)
		t_ok(r->t, rc, "vbn_put in a callback");
}

static void repeat_done(struct vbn_op *op)
{
	struct repeat *r = op->arg;

	t_check(r->t, op->status == 0, "status %s", err_name(op->status));
	if (++r->count < AGAINS)
		repeat_post(r);
}

static void run_repost(struct test *t)
{
	struct repeat *r = t_alloc(t, 4 * sizeof(*r));
	struct buffer *local = t_buffer(t, POOL, 64);
	struct buffer *target = t_buffer(t, POOL, 64);
	struct vbn_rkey rkey;
	double until = now() + WAIT_MS / 1e3;
	int done = 0;

	if (!local || !target || !t_exchange_rkey(t, &target->rkey, &rkey))
		return;
	for (int i = 0; i < 4; i++) {
		r[i] = (struct repeat){.t = t, .local = local, .rkey = rkey};
		r[i].op.done = repeat_done;
		r[i].op.arg = &r[i];
		repeat_post(&r[i]);
	}
	while (t->outcome == PASSED && done < 4 * AGAINS && now() < until) {
		vbn_ctx_wait(t->ctx, 5);
		done = 0;
		for (int i = 0; i < 4; i++) {
			done += r[i].count;
			if (r[i].pending)
				repeat_post(&r[i]);
		}
	}
	t_check(t, done == 4 * AGAINS, "%d of %d completions", done,
		4 * AGAINS);
}

/* Ping-pong wholly inside notify handlers. */
struct pong {
	struct test *t;
	struct vbn_op op;
	int count;
	uint32_t owed; /* reply that the library did not take, + 1 */
};

static void pong_post(struct pong *p, struct vbn_ep *ep, uint32_t value)
{
	int rc = -EAGAIN;

	if (p->op.status != -EINPROGRESS)
		rc = vbn_notify(ep, &p->op, VBN_CHANNEL_USER, value, 0);
	p->owed = rc == -EAGAIN ? value + 1 : 0;
	if (rc != -EAGAIN)
		t_ok(p->t, rc, "vbn_notify in a handler");
}

static void pong_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct pong *p = arg;

	p->count++;
	if (value < 2 * AGAINS - 1)
		pong_post(p, from, value + 1);
}

static void run_pong(struct test *t)
{
	struct pong *p = t_alloc(t, sizeof(*p));
	double until = now() + WAIT_MS / 1e3;

	p->t = t;
	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, pong_notify, p);
	if (t->rank == 0)
		pong_post(p, t->ep, 0);
	while (p->count < AGAINS && now() < until && t->outcome == PASSED) {
		vbn_ctx_wait(t->ctx, 5);
		if (p->owed)
			pong_post(p, t->ep, p->owed - 1);
	}
	while (p->owed && now() < until) {
		vbn_ctx_wait(t->ctx, 5);
		pong_post(p, t->ep, p->owed - 1);
	}
	t_check(t, p->count == AGAINS, "%d of %d", p->count, AGAINS);
	t_barrier(t);
}

static const struct test_case cases[] = {
	{"flood/puts", run_puts, 0, 0, 0},
	{"flood/gets", run_gets, 0, 0, 0},
	{"flood/fetch-adds", run_adds, 0, 0, 0},
	{"flood/staged-puts", run_staged, 0, 0, 0},
	{"flood/notifies", run_notifies, 0, 0, 0},
	{"flood/notifies-to-a-pause", run_deaf, 0, 0, 0},
	{"flood/puts-to-a-pause", run_deaf_puts, 0, 0, 0},
	{"more/chains", run_more, 0, 0, 0},
	{"more/alone", run_more_alone, 0, 0, 0},
	{"callback/repost", run_repost, 0, 0, 0},
	{"callback/ping-pong", run_pong, 0, 0, 0},
};

const struct cases pressure_cases = {cases, sizeof(cases) / sizeof(cases[0])};
