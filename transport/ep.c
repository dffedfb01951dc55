/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints: one per (rank, context index) of a peer, whoever opened it
 * first; freed with their context, so that a handler's endpoint stays valid.
 * A failed one completes all that it held and refuses more; opening it again
 * connects again.
 */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static unsigned hash_of(const struct vbn_ctx *ctx, int rank, int index)
{
	return ((unsigned)rank * 2654435761u + (unsigned)index * 40503u) &
	       (ctx->nbuckets - 1);
}

static struct vbn_ep *ep_find(struct vbn_ctx *ctx, int rank, int index)
{
	struct vbn_ep *ep = ctx->buckets[hash_of(ctx, rank, index)];

	while (ep && (ep->rank != rank || ep->index != index))
		ep = ep->next_hash;
	return ep;
}

static void rehash(struct vbn_ctx *ctx)
{
	unsigned n = ctx->nbuckets * 2;
	struct vbn_ep **buckets = calloc(n, sizeof(*buckets));

	if (!buckets)
		return; /* longer chains, that is all */
	free(ctx->buckets);
	ctx->buckets = buckets;
	ctx->nbuckets = n;
	for (int i = 0; i < ctx->neps; i++) {
		struct vbn_ep *ep = ctx->eps[i];
		unsigned h = hash_of(ctx, ep->rank, ep->index);

		ep->next_hash = buckets[h];
		buckets[h] = ep;
	}
}

/* Of an endpoint that is not ready for any put. */
static struct quick no_quick;

void ep_requick(struct vbn_ep *ep)
{
	if (ep->conn && !ep->status && !ep->pump.op && ep->ops->quick)
		ep->quick = ep->ops->quick(ep->conn);
	else
		ep->quick = &no_quick;
}

static void ep_init(struct vbn_ep *ep)
{
	ep->quick = &no_quick;
	ep->idle = true;
	ep->status = -EINPROGRESS;
	ep->keys = keys_none;
	op_list_init(&ep->recvs);
	op_list_init(&ep->fetching);
	op_list_init(&ep->rendezvous);
	op_list_init(&ep->atomics);
	ep->unexpected = NULL;
	ep->unexpected_tail = &ep->unexpected;
}

/* Finds or makes the endpoint. NULL: no memory. */
struct vbn_ep *ep_get(struct vbn_ctx *ctx, int rank, int index)
{
	struct vbn_ep *ep = ep_find(ctx, rank, index);
	struct vbn_ep **eps;
	unsigned h;

	if (ep)
		return ep;
	if (ctx->neps == ctx->eps_room) {
		int room = ctx->eps_room ? 2 * ctx->eps_room : 16;

		eps = realloc(ctx->eps, (size_t)room * sizeof(*eps));
		if (!eps)
			return NULL;
		ctx->eps = eps;
		ctx->eps_room = room;
	}
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return NULL;
	ep->ctx = ctx;
	ep->rank = rank;
	ep->index = index;
	ep_init(ep);
	ctx->eps[ctx->neps++] = ep;
	h = hash_of(ctx, rank, index);
	ep->next_hash = ctx->buckets[h];
	ctx->buckets[h] = ep;
	if ((unsigned)ctx->neps > 2 * ctx->nbuckets)
		rehash(ctx);
	return ep;
}

int vbn_ep_open(struct vbn_ep **out, struct vbn_ctx *ctx, int rank, int index)
{
	struct vbn_ep *ep;

	if (rank < 0 || rank >= ctx->job->nranks || index < 0 ||
	    index >= CTX_MAX)
		return vbn_fail(-EINVAL,
				"no context %d of rank %d: the job has %d "
				"ranks, a rank at most %d contexts",
				index, rank, ctx->job->nranks, CTX_MAX);
	ep = ep_get(ctx, rank, index);
	if (!ep)
		return vbn_fail(-ENOMEM, "no memory for an endpoint");
	ep->refs++;
	if (ep->idle || (ep->status != 0 && ep->status != -EINPROGRESS)) {
		ep->idle = false;
		ep->status = -EINPROGRESS;
		ep->connect_deadline_ms = deadline_of(ctx->job->timeout_ms);
		connect_start(ctx, rank, index, ep->generation);
	}
	*out = ep;
	return 0;
}

void ep_free(struct vbn_ep *ep)
{
	free(ep->answers);
	if (ep->keys != keys_none)
		free(ep->keys);
	free(ep->why);
	free(ep);
}

/* Completes all that the endpoint holds; afterwards it holds nothing. */
void ep_shutdown(struct vbn_ep *ep, int status)
{
	struct vbn_ctx *ctx = ep->ctx;
	bool in_progress = ctx->in_progress;
	void *conn = ep->conn;

	ctx->in_progress = true; /* callbacks run here as in progress */
	ep->conn = NULL;
	if (!ep->status)
		ep->status = status; /* callbacks may try to post */
	ep_requick(ep);
	ep->peer_closed = false;
	if (ep->leave_at_ms) {
		ep->leave_at_ms = 0;
		ep->ctx->leaving--;
	}
	if (conn) {
		keys_detach_all(ep, conn);
		ep->ops->conn_close(conn, status);
	}
	pump_fail(ep, status);
	send_fail(ep, status);
	atomic_fail(ep, status);
	ctx->in_progress = in_progress;
}

void ep_fail(struct vbn_ep *ep, int status, const char *why)
{
	bool was_open = ep->refs > 0;

	if (ep->idle || (ep->status && ep->status != -EINPROGRESS))
		return;
	free(ep->why);
	ep->why = strdup(why);
	ep->status = status;
	if (!was_open)
		ep->idle = true; /* nobody here asked for it */
	ep_shutdown(ep, status);
}

void vbn_ep_close(struct vbn_ep *ep)
{
	if (!ep || --ep->refs > 0 || ep->idle)
		return;
	if (ep->status == 0)
		connect_closed(ep->ctx, ep->rank, ep->index, ep->generation);
	ep->idle = true;
	ep->status = -EINPROGRESS;
	ep_shutdown(ep, -ECANCELED);
}

void core_failed(struct vbn_ep *ep, int status, const char *why)
{
	vbn_log(VBN_WARN, "rank %d: connection to rank %d (%s): %s",
		ep->ctx->job->rank, ep->rank, ep->ops ? ep->ops->name : "none",
		why);
	if (ep->conn) /* it may have noticed nothing */
		connect_closed(ep->ctx, ep->rank, ep->index, ep->generation);
	ep_fail(ep, status, why);
}

static void activate(struct vbn_ctx *ctx, enum provider_id provider)
{
	const struct provider *ops = ctx->job->providers[provider].ops;
	const struct active new = {ops->poll ? ops->poll : ops->progress,
				   ops->progress, ctx->pctx[provider], ops};

	for (int i = 0; i < ctx->nactive; i++)
		if (ctx->active[i].ops == new.ops)
			return;
	ctx->active[ctx->nactive++] = new;
	ctx->several = ctx->nactive > 1;
}

static void connected(struct vbn_ctx *ctx, struct vbn_ep *ep,
		      struct ep_event *event)
{
	const struct job_provider *p = &ctx->job->providers[event->provider];
	int err;

	/* A newer connection replaces what there was. */
	if (ep->conn)
		ep_shutdown(ep, -ECONNRESET);
	ep->idle = false;
	ep->ops = p->ops;
	ep->provider = event->provider;
	ep->conn = event->conn;
	ep->caps = &p->caps;
	ep->plain_max = ep->caps->any_local ? ep->caps->max_piece
					    : ep->caps->inline_max;
	activate(ctx, event->provider);
	ep->generation = event->generation;
	ep->rx_window = ep->tx_credits = p->caps.credits;
	ep->rx_consumed = ep->rx_kept = 0;
	ep->rx_grown = false;
	ep->status = 0;
	err = ep->ops->conn_attach(ep->conn, ep);
	if (err)
		core_failed(ep, err, vbn_error());
	ep_requick(ep);
	/* A death that was noticed before this connection is looked at again.
	 */
	if (control_rank_gone(ctx->job->control, ep->rank) ||
	    control_rank_dead(ctx->job->control, 0))
		ctx->gone_unchecked = ctx->todo = true;
}

/* It fails after a grace: what the peer sent before may be under way. */
static void start_leaving(struct vbn_ep *ep)
{
	if (ep->leave_at_ms)
		return;
	ep->leave_at_ms = now_ms() + LEAVE_GRACE_MS;
	ep->ctx->leaving++;
	ep->ctx->todo = true;
}

void ep_handle_event(struct vbn_ctx *ctx, struct ep_event *event)
{
	struct vbn_ep *ep = ep_get(ctx, event->rank, event->index);

	if (!ep || (ctx->closing && event->kind == EVENT_CONNECTED)) {
		if (event->conn) {
			ctx->job->providers[event->provider].ops->conn_close(
				event->conn, -ECANCELED);
			connect_closed(ctx, event->rank, event->index,
				       event->generation);
		}
		return;
	}
	switch (event->kind) {
	case EVENT_CONNECTED:
		connected(ctx, ep, event);
		break;
	case EVENT_FAILED:
		if (!ep->conn && ep->generation < event->generation)
			ep->generation = event->generation;
		if (ep->status == -EINPROGRESS)
			ep_fail(ep, event->status, event->why);
		break;
	case EVENT_CLOSED:
		if (ep->generation != event->generation || !ep->conn)
			break;
		ep->peer_closed = true;
		start_leaving(ep);
		break;
	}
}

/*
 * Endpoints to ranks that are gone fail: at once for the dead; for those that
 * left in order, or closed, after a grace.
 */
void ep_check_gone(struct vbn_ctx *ctx)
{
	uint64_t now = now_ms();

	ctx->deaths_seen = atomic_load(&ctx->job->deaths);
	ctx->gone_unchecked = false;
	for (int i = 0; i < ctx->neps; i++) {
		struct vbn_ep *ep = ctx->eps[i];
		char why[320];

		if (ep->idle || (ep->status && ep->status != -EINPROGRESS))
			continue;
		if (control_lost(ctx->job->control, ep->rank, why,
				 sizeof(why))) {
			ep_fail(ep, -ECONNRESET, why);
		} else if (!ep->peer_closed &&
			   !control_rank_gone(ctx->job->control, ep->rank)) {
			continue;
		} else if (!ep->leave_at_ms) {
			start_leaving(ep);
		} else if (now >= ep->leave_at_ms) {
			snprintf(why, sizeof(why), "rank %d has %s", ep->rank,
				 ep->peer_closed ? "closed it"
						 : "left the job");
			ep_fail(ep, -ECONNRESET, why);
		}
	}
}

int ep_usable(struct vbn_ep *ep)
{
	if (!ep->status && !ep->idle)
		return 0;
	if (ep->idle)
		return vbn_fail(-ECONNRESET,
				"the endpoint to rank %d is closed", ep->rank);
	if (ep->status == -EINPROGRESS) {
		if (now_ms() < ep->connect_deadline_ms)
			return -EAGAIN;
		ep_fail(ep, -ETIMEDOUT,
			"not connected in time: has the peer opened its "
			"context?");
	}
	return vbn_fail(ep->status == -ETIMEDOUT ? -ETIMEDOUT : -ECONNRESET,
			"rank %d: no connection to context %d of rank %d: %s",
			ep->ctx->job->rank, ep->index, ep->rank,
			ep->why ? ep->why : "out of memory");
}

int vbn_ep_connect(struct vbn_ep *ep, int timeout_ms)
{
	uint64_t end = deadline_of(timeout_ms);
	int err;

	while ((err = ep_usable(ep)) == -EAGAIN) {
		int left = 100;

		if (timeout_ms >= 0) {
			uint64_t now = now_ms();

			if (now >= end)
				return vbn_fail(-ETIMEDOUT,
						"context %d of rank %d is not "
						"connected after %d ms",
						ep->index, ep->rank,
						timeout_ms);
			if (end - now < 100)
				left = (int)(end - now);
		}
		vbn_ctx_wait(ep->ctx, left);
	}
	return err;
}

void ep_want_pump(struct vbn_ep *ep)
{
	if (ep->in_pumping)
		return;
	ep->in_pumping = true;
	ep->next_pumping = ep->ctx->pumping;
	ep->ctx->pumping = ep;
	ep->ctx->todo = true;
}

/* A notify or message was consumed: return credits half a window a time. */
void ep_return_credit(struct vbn_ep *ep, uint64_t generation)
{
	if (generation != ep->generation)
		return; /* came by an older connection, which is gone */
	if (++ep->rx_consumed >= ep->rx_window / 2)
		ep_want_pump(ep);
}

/* Credits that wait here would hold up what comes behind: a larger window. */
void ep_keep(struct vbn_ep *ep)
{
	if (++ep->rx_kept >= ep->rx_window / 2)
		ep_want_pump(ep);
}

void ep_unkeep(struct vbn_ep *ep, uint64_t generation)
{
	if (generation == ep->generation)
		ep->rx_kept--;
}

int vbn_ep_status(const struct vbn_ep *ep)
{
	if (!ep->idle && ep->status == -EINPROGRESS &&
	    now_ms() >= ep->connect_deadline_ms)
		return -ETIMEDOUT;
	return ep->idle ? -ECONNRESET : ep->status;
}

int vbn_ep_rank(const struct vbn_ep *ep)
{
	return ep->rank;
}

int vbn_ep_index(const struct vbn_ep *ep)
{
	return ep->index;
}

const char *vbn_ep_provider(const struct vbn_ep *ep)
{
	return ep->conn ? ep->ops->name : "";
}
