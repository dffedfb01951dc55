/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endings in order: endpoints and contexts closed with operations in flight,
 * again and again; each accepted operation completes once.
 */
#include "harness.h"

#include <errno.h>
#include <string.h>

#define FLIGHT 500

struct flight {
	struct test *t;
	struct vbn_op ops[FLIGHT];
	int completions[FLIGHT];
	int done, taken;
};

struct flight_post {
	struct vbn_ep *ep;
	const struct vbn_rkey *rkey;
	const struct buffer *local;
};

static void flight_done(struct vbn_op *op)
{
	struct flight *f = op->arg;

	f->completions[op - f->ops]++;
	f->done++;
}

static int flight_post_one(const struct flight_post *p, struct vbn_op *op,
			   int i)
{
	if (i % 4 == 0)
		return vbn_put(p->ep, op, p->local->data, p->local->len,
			       p->rkey, 0, i % 8 ? 0 : VBN_MORE);
	if (i % 4 == 1)
		return vbn_get(p->ep, op, p->local->data, p->local->len,
			       p->rkey, 0, 0);
	if (i % 4 == 2)
		return vbn_send(p->ep, op, p->local->data, 20000, 0);
	return vbn_recv(p->ep, op, p->local->data, p->local->len);
}

/* Post until FLIGHT are taken or the library has enough. The region is known
 * by then, so that the first ones are taken at once. */
static void flight_post(struct flight *f, struct vbn_ep *ep,
			const struct vbn_rkey *rkey, struct buffer *local)
{
	struct vbn_op *first = t_alloc(f->t, sizeof(*first));
	const struct flight_post p = {ep, rkey, local};

	if (!t_ok(f->t,
		  put((struct post){ep, first, rkey, 0, 0}, local->data, 8),
		  "vbn_put") ||
	    !t_wait(f->t, first, "put"))
		return;
	for (int i = 0; i < FLIGHT; i++) {
		struct vbn_op *op = &f->ops[i];
		int rc = -EAGAIN;

		op->done = flight_done;
		op->arg = f;
		for (int k = 0; k < AGAIN_MOST && rc == -EAGAIN; k++)
			rc = flight_post_one(&p, op, i);
		if (rc == -EAGAIN)
			break;
		if (!t_ok(f->t, rc, "posting"))
			break;
		f->taken++;
	}
}

static void flight_check(struct flight *f, bool may_succeed)
{
	for (int i = 0; i < f->taken; i++) {
		int status = f->ops[i].status;

		if (!t_check(f->t, f->completions[i] == 1,
			     "operation %d of %d completed %d times", i,
			     f->taken, f->completions[i]) ||
		    !t_check(f->t,
			     status == -ECANCELED ||
				     (may_succeed && status == 0),
			     "operation %d: %s", i, err_name(status)))
			return;
	}
}

/* The other side: its receive ends with an error when the closer closes. */
static void await_close(struct test *t)
{
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	uint8_t *data = t_alloc(t, 20000);
	double until = now() + 20;
	int rc;

	/* Sends that got through before the close are received. */
	do {
		rc = recv_from(t->ep, op, data, 20000);
		if (rc == 0)
			rc = vbn_wait(t->ctx, op, 20000);
	} while (rc == 0 && now() < until);
	t_is(t, rc, -ECONNRESET, "a receive from the closer");
}

static void run_context(struct test *t)
{
	struct flight *f = t_alloc(t, sizeof(*f));
	struct buffer *local = t_buffer(t, POOL, 100000);
	struct buffer *target = t_buffer(t, POOL, 100000);
	struct vbn_rkey rkey;
	double start;

	f->t = t;
	if (!local || !target || !t_exchange_rkey(t, &target->rkey, &rkey))
		return;
	if (t->rank == 1) {
		await_close(t);
		return;
	}
	flight_post(f, t->ep, &rkey, local);
	t_check(t, f->taken >= 4, "only %d operations taken", f->taken);
	start = now();
	vbn_ctx_close(t->ctx);
	t->ctx = NULL;
	t_check(t, now() - start < 5, "closing took %.1f s", now() - start);
	flight_check(f, true);
}

static void run_endpoint(struct test *t)
{
	struct flight *f = t_alloc(t, sizeof(*f));
	struct buffer *local = t_buffer(t, POOL, 100000);
	struct buffer *target = t_buffer(t, POOL, 100000);
	struct vbn_rkey rkey;
	double start;

	f->t = t;
	if (!local || !target || !t_exchange_rkey(t, &target->rkey, &rkey))
		return;
	if (t->rank == 1) {
		await_close(t);
		return;
	}
	flight_post(f, t->ep, &rkey, local);
	t_check(t, f->taken >= 4, "only %d operations taken", f->taken);
	start = now();
	vbn_ep_close(t->ep);
	while (f->done < f->taken && now() - start < 10)
		vbn_ctx_wait(t->ctx, 10);
	t_check(t, now() - start < 10, "closing takes more than 10 s");
	t_drive(t, 100);
	flight_check(f, true);
}

/* A receive that nothing answers is cancelled by the close. */
static void run_receive(struct test *t)
{
	struct flight *f = t_alloc(t, sizeof(*f));
	uint8_t *data = t_alloc(t, 64);
	double start = now();

	f->t = t;
	f->ops[0].done = flight_done;
	f->ops[0].arg = f;
	if (!t_ok(t, recv_from(t->ep, &f->ops[0], data, 64), "vbn_recv") ||
	    !t_barrier(t))
		return;
	f->taken = 1;
	vbn_ep_close(t->ep);
	while (f->done < 1 && now() - start < 10)
		vbn_ctx_wait(t->ctx, 10);
	/* The peer closes, too, which may be seen first. */
	if (f->ops[0].status == -ECONNRESET)
		f->ops[0].status = -ECANCELED;
	flight_check(f, false);
}

/* Contexts come and go; the job goes on, and so do other contexts. */
static void run_cycle(struct test *t)
{
	struct buffer *local = t_buffer(t, POOL, 4096);
	struct buffer *target = t_buffer(t, POOL, 4096);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	struct vbn_ctx *own = t->ctx;
	struct vbn_rkey rkey;

	if (!local || !target || !t_exchange_rkey(t, &target->rkey, &rkey))
		return;
	for (unsigned i = 0; i < 10; i++) {
		struct vbn_ctx *ctx;
		struct vbn_ep *ep;
		int peer_index;

		if (!t_ok(t, vbn_ctx_open(&ctx, t->job, NULL), "vbn_ctx_open"))
			return;
		fill(local->data, 4096, i + (unsigned)t->rank);
		if (!t_exchange_index(t, ctx, &peer_index) ||
		    !(ep = t_endpoint(t, ctx, t->peer, peer_index)) ||
		    !t_ok(t,
			  put((struct post){ep, op, &rkey, 0, 0}, local->data,
			      4096),
			  "vbn_put") ||
		    !t_ok(t, vbn_wait(ctx, op, WAIT_MS), "put") ||
		    !t_ok(t, flush(ep, op), "vbn_flush") ||
		    !t_ok(t, vbn_wait(ctx, op, WAIT_MS), "flush")) {
			vbn_ctx_close(ctx);
			return;
		}
		t->ctx = ctx; /* the peer's put may need its progress */
		t_barrier(t);
		t->ctx = own;
		vbn_ctx_close(ctx);
		if (!t_pattern(t, target->data, 4096, i + (unsigned)t->peer,
			       "put") ||
		    !t_barrier(t))
			return;
	}
	t_flush(t);
}

/* The peer closes its context: ours must be told, soon. */
static void run_peer_closed(struct test *t)
{
	struct buffer *local = t_buffer(t, POOL, 4096);
	struct buffer *target = t_buffer(t, POOL, 4096);
	struct vbn_op *ops = t_alloc(t, 2 * sizeof(*ops));
	struct vbn_rkey rkey;
	double until;
	int rc = 0;

	if (!local || !target || !t_exchange_rkey(t, &target->rkey, &rkey))
		return;
	/* A receive that the peer will never serve, and puts meanwhile. */
	if (t->rank == 0)
		t_ok(t, recv_from(t->ep, &ops[0], local->data, 64), "vbn_recv");
	if (!t_barrier(t))
		return;
	if (t->rank == 1) {
		sleep_ms(20);
		vbn_ctx_close(t->ctx);
		t->ctx = NULL;
		t_barrier(t);
		return;
	}
	until = now() + 20;
	while (rc == 0 && now() < until) {
		rc = vbn_put(t->ep, &ops[1], local->data, 4096, &rkey, 0, 0);
		if (rc == 0)
			rc = vbn_wait(t->ctx, &ops[1], 20000);
		if (rc == -EAGAIN)
			rc = 0;
		vbn_ctx_wait(t->ctx, 5);
	}
	t_is(t, rc, -ECONNRESET, "a put to a closed context");
	t_is(t, vbn_wait(t->ctx, &ops[0], 20000), -ECONNRESET,
	     "a receive from a closed context");
	t_is(t, vbn_ep_status(t->ep), -ECONNRESET, "vbn_ep_status");
	t_is(t, vbn_notify(t->ep, &ops[1], VBN_CHANNEL_USER, 1, 0), -ECONNRESET,
	     "a notify to a closed context");
	t_is(t, vbn_recv(t->ep, &ops[1], local->data, 8), -ECONNRESET,
	     "a receive from a closed context");
	t_barrier(t);
}

static const struct test_case cases[] = {
	{"close/context-in-flight", run_context, 0, 0, 0},
	{"close/endpoint-in-flight", run_endpoint, 0, 0, 0},
	{"close/receive-in-flight", run_receive, 0, 0, 0},
	{"close/cycle", run_cycle, 0, 0, 0},
	{"close/by-the-peer", run_peer_closed, 0, 0, 0},
};

const struct cases close_cases = {cases, sizeof(cases) / sizeof(cases[0])};
