/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receives of a context, shared by its connections. All are alike and hold
 * no memory, so posting is counting. Of those held (posted, or taken by an
 * arrival and owed to the device) each is promised to a connection, or spare,
 * or one of the RECV_BATCH that may be owed at any time: what is posted or
 * polled and not consumed is at least what is promised, so a peer that keeps to
 * its credits never meets an empty queue.
 *
 * Either thread posts what it promises, before it does: a promise never rests
 * on what the other is about to post.
 *
 * With several rails each has a queue of the same receives, since what is
 * promised to a connection may come by any of its rails.
 */
#include "slots.h"
#include "error.h"

#include <errno.h>
#include <string.h>

static int create(struct queues *queues)
{
	struct verbs_ctx *ctx = queues->ctx;
	struct ibv_srq_init_attr attr = {
		.srq_context = ctx,
		.attr = {.max_wr = ctx->recv_max, .max_sge = 1},
	};

	queues->srq = ibv_create_srq(queues->rail->pd, &attr);
	if (queues->srq)
		return 0;
	return limits_explain(queues->rail, errno,
			      "creating a shared receive queue",
			      ctx->recv_max * sizeof(struct ibv_sge));
}

int srq_create(struct verbs_ctx *ctx)
{
	int err = 0;

	for (uint32_t i = 0; i < RECV_BATCH; i++) {
		ctx->recv_wr[i].wr_id = WR_RECV;
		ctx->recv_wr[i].next =
			i + 1 < RECV_BATCH ? &ctx->recv_wr[i + 1] : NULL;
	}
	for (unsigned i = 0; i < ctx->nrails && !err; i++)
		err = create(&ctx->queues[i]);
	if (!err)
		err = srq_reserve(ctx, RECV_BATCH);
	if (err)
		srq_destroy(ctx);
	return err;
}

void srq_destroy(struct verbs_ctx *ctx)
{
	for (unsigned i = 0; i < ctx->nrails && ctx->queues[i].srq; i++) {
		int err = ibv_destroy_srq(ctx->queues[i].srq);

		if (err)
			vbn_log(VBN_ERR, "verbs: %s: ibv_destroy_srq: %s",
				ctx->queues[i].rail->name, strerror(err));
	}
}

/* Returns how many were posted; fewer than @n: *err says why. */
static uint32_t post(struct queues *queues, uint32_t n, int *err)
{
	struct verbs_ctx *ctx = queues->ctx;
	struct ibv_recv_wr *bad;
	uint32_t done = 0;

	*err = 0;
	while (done < n) {
		uint32_t some = n - done < RECV_BATCH ? n - done : RECV_BATCH;
		struct ibv_recv_wr *first = &ctx->recv_wr[RECV_BATCH - some];

		bad = first;
		*err = ibv_post_srq_recv(queues->srq, first, &bad);
		if (*err)
			return done + (uint32_t)(bad - first);
		done += some;
	}
	return done;
}

void srq_repost(struct queues *queues)
{
	int err;

	queues->recv_owed -= post(queues, queues->recv_owed, &err);
	/* cannot happen but on a dead device; it is tried again */
	if (err)
		vbn_log(VBN_ERR, "verbs: %s: posting receives: %s; %u are due",
			queues->rail->name, strerror(err), queues->recv_owed);
}

/*
 * The same on all rails. Returns how many are on each; what a rail has beyond
 * is posted and nobody's, which does no harm.
 */
static uint32_t post_all(struct verbs_ctx *ctx, uint32_t n, int *err,
			 struct rail **failed)
{
	uint32_t least = n;

	*err = 0;
	for (unsigned i = 0; i < ctx->nrails && !*err; i++) {
		struct queues *queues = &ctx->queues[i];
		uint32_t posted;

		if (ctx->nrails > 1 && atomic_load(&queues->rail->fatal))
			continue;
		posted = post(queues, n, err);
		if (*err) {
			*failed = queues->rail;
			least = posted;
		}
	}
	return least;
}

static uint32_t take_spare(struct verbs_ctx *ctx, uint32_t n)
{
	uint32_t spare = atomic_load(&ctx->recv_spare), some;

	do {
		some = spare < n ? spare : n;
	} while (some && !atomic_compare_exchange_weak(&ctx->recv_spare, &spare,
						       spare - some));
	return some;
}

void srq_unreserve(struct verbs_ctx *ctx, uint32_t n)
{
	atomic_fetch_add(&ctx->recv_spare, n);
}

int srq_reserve(struct verbs_ctx *ctx, uint32_t n)
{
	uint32_t some = take_spare(ctx, n), more = n - some, posted;
	struct rail *failed = NULL;
	int err;

	if (atomic_fetch_add(&ctx->recv_held, more) + more > ctx->recv_max) {
		atomic_fetch_sub(&ctx->recv_held, more);
		srq_unreserve(ctx, some);
		return -ENOSPC;
	}
	posted = post_all(ctx, more, &err, &failed);
	if (!err)
		return 0;
	atomic_fetch_sub(&ctx->recv_held, more - posted);
	srq_unreserve(ctx, some + posted);
	return vbn_fail(-err,
			"verbs: %s: posting receives: %s; has the device "
			"failed?",
			failed->name, strerror(err));
}

int verbs_window(void *vconn, unsigned arrivals)
{
	struct verbs_conn *conn = vconn;
	struct verbs_ctx *ctx = conn->ctx;
	uint32_t more;

	if (arrivals <= conn->window)
		return 0;
	more = arrivals - conn->window;
	/* the other half is for connections to come */
	if (arrivals > CREDITS_MAX ||
	    ctx->recv_grown + more > ctx->recv_max / 2 ||
	    srq_reserve(ctx, more))
		return -EAGAIN;
	ctx->recv_grown += more;
	conn->window = (uint16_t)arrivals;
	return 0;
}
