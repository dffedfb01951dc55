/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of a connection. Messages that were accepted have no completion to
 * wait for, so a close in order first gives them a moment to be acknowledged.
 * Then the queue pair is put in error, its completions are collected for a
 * bounded time without running a callback, it is destroyed, the rest is
 * collected, and only then is what is left in its slots completed, each once.
 * Other connections' completions stay in the ring, in order.
 *
 * Receives are collected before the queue pair goes: some devices discard
 * their completions with it, and the buffers would be lost.
 *
 * A connection that was never attached is given to the context's thread by
 * the graveyard, since only that thread may poll.
 */
#include "internal.h"
#include "error.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINGER_MS   100
#define DRAIN_MS    200
#define STATUS_OPEN 1 /* a slot whose end is not known */
#define QPN_NONE    0 /* never a connection's */

/* What collecting has found out. */
struct drain {
	uint32_t next; /* slots before it have ended */
	uint32_t end;  /* slots from here on were never given to the device */
};

void conn_free(struct verbs_conn *conn)
{
	free(conn->slots);
	free(conn);
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* A send completion of the connection: note the ends of its slots. */
static void note_send(struct verbs_conn *conn, const struct ibv_wc *wc,
		      struct drain *drain)
{
	uint32_t last = wr_slot(wc->wr_id);
	struct slot *slot = &conn->slots[last & conn->mask];
	int before = 0, status = 0;

	if (last - conn->tail >= conn->head - conn->tail)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		before = progress_before(conn, wc->status);
		conn->erred = true;
		status = wc->status == IBV_WC_WR_FLUSH_ERR
				 ? STATUS_OPEN
				 : progress_errno(wc->status);
		if (slot->op) {
			slot->op->wc = wc->status;
			slot->op->vendor = wc->vendor_err;
		}
	}
	for (; (int32_t)(last - drain->next) > 0; drain->next++)
		conn->slots[drain->next & conn->mask].status =
			(int16_t)(before ? STATUS_OPEN : 0);
	if (last == drain->next) {
		slot->status = (int16_t)status;
		drain->next++;
	}
}

/* Take the connection's completions out of the ring's last @n. */
static void collect(struct verbs_conn *conn, uint32_t n, struct drain *drain)
{
	struct verbs_ctx *ctx = conn->ctx;

	for (uint32_t i = ctx->wc_tail - n; i != ctx->wc_tail; i++) {
		struct ibv_wc *wc = &ctx->wc[i];

		if (wc->qp_num != conn->qpn)
			continue;
		/* its buffer is given back when the ring is dispatched */
		wc->qp_num = QPN_NONE;
		if (wr_kind(wc->wr_id) != WR_SEND)
			continue;
		if (wr_tag(wc->wr_id) == conn->tag)
			note_send(conn, wc, drain);
		wc->wr_id = wr_id(WR_NONE, 0, 0);
	}
}

static bool is_drained(const struct verbs_conn *conn, struct drain *drain)
{
	while (drain->next != drain->end &&
	       conn->slots[drain->next & conn->mask].kind >= SLOT_FLUSH)
		drain->next++;
	return drain->next == drain->end;
}

/* Returns how many completions came. */
static int poll_once(struct verbs_conn *conn, struct drain *drain)
{
	int n = progress_poll(conn->ctx);

	if (n > 0)
		collect(conn, (uint32_t)n, drain);
	return n;
}

static void destroy_qp(struct verbs_conn *conn)
{
	int err = ibv_destroy_qp(conn->qp);

	if (err)
		vbn_log(VBN_ERR, "verbs: %s: ibv_destroy_qp: %s",
			conn->ctx->job->name, strerror(err));
	srq_unreserve(conn->ctx);
}

/* Collect until the slots before @until have ended, at most @ms. */
static void collect_until(struct verbs_conn *conn, struct drain *drain,
			  uint32_t until, unsigned ms)
{
	uint64_t end = now_ms() + ms;

	while (!is_drained(conn, drain) && (int32_t)(until - drain->next) > 0) {
		int n = poll_once(conn, drain);

		if (n < 0 || (!n && now_ms() > end))
			break;
		if (!n)
			sched_yield();
	}
}

/* Behind the last message that the device has. */
static uint32_t behind_messages(const struct verbs_conn *conn,
				const struct drain *drain)
{
	uint32_t i = drain->end;

	while (i != drain->next &&
	       conn->slots[(i - 1) & conn->mask].kind != SLOT_MESSAGE)
		i--;
	return i;
}

static void drain_qp(struct verbs_conn *conn, bool linger)
{
	struct verbs_ctx *ctx = conn->ctx;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct drain drain = {.next = conn->tail, .end = conn->head};

	/* a callback of theirs may be what closes it */
	if ((int32_t)(conn->ended - conn->tail) > 0)
		drain.next = conn->ended;
	for (uint32_t i = drain.next; i != conn->head; i++)
		conn->slots[i & conn->mask].status = STATUS_OPEN;
	if (ctx->chain_conn == conn) {
		drain.end -= ctx->chain_n;
		ctx->chain_n = 0;
		ctx->chain_bytes = 0;
		ctx->chain_conn = NULL;
	}
	collect(conn, ctx->wc_tail - ctx->wc_head, &drain);
	if (linger)
		collect_until(conn, &drain, behind_messages(conn, &drain),
			      LINGER_MS);
	ibv_modify_qp(conn->qp, &attr, IBV_QP_STATE);
	collect_until(conn, &drain, drain.end, DRAIN_MS);
	while (poll_once(conn, &drain) > 0)
		;
	destroy_qp(conn);
	while (poll_once(conn, &drain) > 0)
		;
}

static void unlink_from(struct verbs_conn **list, struct verbs_conn *conn,
			size_t next)
{
	while (*list && *list != conn)
		list = (struct verbs_conn **)((char *)*list + next);
	if (*list)
		*list = *(struct verbs_conn **)((char *)conn + next);
}

/* Nothing finds it any more; what it held goes back to the device. */
static void forget(struct verbs_conn *conn)
{
	struct verbs_ctx *ctx = conn->ctx;

	unlink_from(conn_bucket(ctx, conn->qpn), conn,
		    offsetof(struct verbs_conn, next_bucket));
	unlink_from(&ctx->held, conn, offsetof(struct verbs_conn, next_held));
	unlink_from(&ctx->failed, conn,
		    offsetof(struct verbs_conn, next_failed));
	while (conn->held_first != NO_INDEX) {
		uint32_t slot = conn->held_first;

		conn->held_first = srq_note(ctx, slot)->next;
		srq_repost(ctx, slot);
	}
	srq_flush(ctx);
}

/* Callbacks run here, and may close other connections. */
static void complete_rest(struct verbs_conn *conn, int status)
{
	struct verbs_ctx *ctx = conn->ctx;
	bool landed = true;

	while (conn->tail != conn->head) {
		struct slot *slot = &conn->slots[conn->tail++ & conn->mask];
		int end = slot->status == STATUS_OPEN ? status : slot->status;
		struct vbn_op *op;

		if (slot->kind == SLOT_FLUSH)
			end = landed ? 0 : status;
		else if (end)
			landed = false;
		op = progress_release(ctx, slot, end);
		if (op)
			core_complete(ctx->core, op, end);
	}
}

static void close_now(struct verbs_conn *conn, int status)
{
	bool linger = !conn->broken && status == -ECANCELED;

	if (conn->closed)
		return;
	conn->broken = true;
	conn->closed = true;
	conn->pins++;
	drain_qp(conn, linger);
	forget(conn);
	complete_rest(conn, status);
	progress_unpin(conn);
}

void conn_bury(struct verbs_ctx *ctx)
{
	struct verbs_conn *conn = atomic_exchange(&ctx->graveyard, NULL);

	conn_adopt(ctx);
	while (conn) {
		struct verbs_conn *next = conn->next_grave;

		close_now(conn, -ECANCELED);
		conn = next;
	}
}

void verbs_conn_close(void *vconn, int status)
{
	struct verbs_conn *conn = vconn;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (conn->attached) {
		close_now(conn, status);
		return;
	}
	ibv_modify_qp(conn->qp, &attr, IBV_QP_STATE);
	conn_push(&conn->ctx->graveyard, conn, &conn->next_grave);
}
