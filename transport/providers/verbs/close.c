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
 * their completions with it, and the receives would be lost.
 *
 * A connection that was never attached is given to the context's thread by
 * the graveyard, since only that thread may poll.
 */
#include "failover.h"
#include "cm.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINGER_MS 100
#define DRAIN_MS  200

/*
 * While a lane is drained, its slots up to `ended` have ended, and their
 * status says how, if that is known.
 */

void conn_free(struct verbs_conn *conn)
{
	ring_give(conn->ctx, &conn->ring[0]);
	ring_give(conn->ctx, &conn->ring[1]);
	free(conn->held);
	for (unsigned i = 0; i < conn->nlanes && conn->npairs > 1; i++)
		free(conn->lane[i].sender);
	free(conn);
}

uint64_t verbs_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* The first slot that has not ended, or NULL. */
static struct slot *open_slot(const struct lane *lane)
{
	if (lane->ended)
		return lane_behind(lane, lane->ended);
	return lane_empty(lane) ? NULL : lane->first;
}

/* Is @slot one of the lane's that have not ended? */
static bool is_open(const struct lane *lane, const struct slot *slot)
{
	const struct slot *i = open_slot(lane);

	while (i && i != slot)
		i = lane_behind(lane, i);
	return i != NULL;
}

void lane_note(struct lane *lane, const struct ibv_wc *wc)
{
	struct slot *last = wr_slot(lane->conn->ctx, wc->wr_id);
	int before = 0, status = 0;

	if (last->wr_id != wc->wr_id || !is_open(lane, last))
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		before = progress_before(lane, wc->status);
		lane->erred = true;
		status = wc->status == IBV_WC_WR_FLUSH_ERR
				 ? STATUS_OPEN
				 : progress_errno(wc->status);
		slot_blame(last, wc);
	}
	for (struct slot *i = open_slot(lane); i != last; i = i->next)
		i->status = (int16_t)(before ? STATUS_OPEN : 0);
	last->status = (int16_t)status;
	lane->ended = last;
}

static struct lane *lane_of(struct verbs_conn *conn, uint32_t qpn)
{
	for (unsigned i = 0; i < conn->nlanes; i++)
		if (conn->lane[i].draining && conn->lane[i].qpn == qpn)
			return &conn->lane[i];
	return NULL;
}

/* An arrival by a lane that goes, of a connection that stays. */
static void note_arrival(struct lane *lane, const struct ibv_wc *wc)
{
	if (lane->conn->closed || wc->status != IBV_WC_SUCCESS ||
	    !(wc->wc_flags & IBV_WC_WITH_IMM))
		return;
	lane->rx++;
	arrive_hold(lane, ntohl(wc->imm_data));
}

/* Take those lanes' completions that are drained out of the last @n. */
static void collect(struct verbs_conn *conn, ptrdiff_t n)
{
	struct verbs_ctx *ctx = conn->ctx;
	struct ibv_wc *kept = ctx->wc_tail - n;

	for (struct ibv_wc *wc = kept; wc != ctx->wc_tail; wc++) {
		struct lane *lane = lane_of(conn, wc->qp_num);

		if (!lane)
			*kept++ = *wc;
		else if (!wr_is_recv(wc->wr_id))
			lane_note(lane, wc);
		else {
			srq_taken(lane->queues);
			note_arrival(lane, wc);
		}
	}
	ctx->wc_tail = kept;
}

/* Has all that the device was given ended, but for what needs no ending? */
static bool is_drained(struct verbs_conn *conn)
{
	bool drained = true;

	for (unsigned l = 0; l < conn->nlanes; l++) {
		struct lane *lane = &conn->lane[l];
		struct slot *slot;

		if (!lane->draining)
			continue;
		while ((slot = open_slot(lane)) && slot_silent(slot))
			lane->ended = slot;
		drained = drained && !slot;
	}
	return drained;
}

/* Are messages on their way, or fences of theirs? */
static bool has_messages(struct verbs_conn *conn)
{
	for (unsigned l = 0; l < conn->nlanes; l++) {
		const struct lane *lane = &conn->lane[l];

		if (!lane->draining)
			continue;
		for (const struct slot *slot = open_slot(lane); slot;
		     slot = lane_behind(lane, slot))
			if (slot_kind(slot) == SLOT_MESSAGE)
				return true;
	}
	return false;
}

/* Returns how many completions came. */
static int poll_once(struct verbs_conn *conn)
{
	int n = progress_poll(conn->ctx);

	if (n > 0)
		collect(conn, n);
	return n;
}

static void destroy_qp(struct lane *lane)
{
	int err = lane->qp ? ibv_destroy_qp(lane->qp) : 0;

	if (err)
		vbn_log(VBN_ERR, "verbs: %s: ibv_destroy_qp: %s",
			lane->queues->rail->name, strerror(err));
	lane->qp = NULL;
}

/* Collect while @wanted says so, at most @ms. */
static void collect_while(struct verbs_conn *conn,
			  bool (*wanted)(struct verbs_conn *conn), unsigned ms)
{
	uint64_t end = verbs_now_ms() + (conn->ctx->cq_broken ? 0 : ms);

	while (wanted(conn)) {
		int n = poll_once(conn);

		if (n < 0 || (!n && verbs_now_ms() > end))
			break;
		if (!n)
			sched_yield();
	}
}

static bool is_not_drained(struct verbs_conn *conn)
{
	return !is_drained(conn);
}

static void to_error(struct verbs_conn *conn)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	for (unsigned i = 0; i < conn->nlanes; i++)
		if (conn->lane[i].qp)
			ibv_modify_qp(conn->lane[i].qp, &attr, IBV_QP_STATE);
}

/* The device does not know of these; nothing will end them. */
static void drop_chain(struct verbs_conn *conn)
{
	struct verbs_ctx *ctx = conn->ctx;

	if (!ctx->chain_n || ctx->chain_lane->conn != conn)
		return;
	for (unsigned i = 0; i < ctx->chain_n; i++)
		slot_void(ctx, wr_slot(ctx, ctx->chain_wr[i].wr_id),
			  -ECANCELED);
	ctx->chain_n = 0;
	ctx->chain_bytes = 0;
}

/* From now on what comes of the lane is taken out of the ring. */
static void begin_draining(struct lane *lane)
{
	if (!lane->qp)
		return; /* that is done, and all of its slots have a status */
	lane->draining = true;
	for (struct slot *slot = open_slot(lane); slot;
	     slot = lane_behind(lane, slot))
		slot->status = STATUS_OPEN;
}

static void drain(struct verbs_conn *conn, bool linger)
{
	struct verbs_ctx *ctx = conn->ctx;

	for (unsigned l = 0; l < conn->nlanes; l++)
		begin_draining(&conn->lane[l]);
	drop_chain(conn);
	collect(conn, ctx->wc_tail - ctx->wc_head);
	if (linger)
		collect_while(conn, has_messages, LINGER_MS);
	to_error(conn);
	collect_while(conn, is_not_drained, DRAIN_MS);
	while (poll_once(conn) > 0)
		;
	for (unsigned l = 0; l < conn->nlanes; l++)
		destroy_qp(&conn->lane[l]);
	conn_unreserve(conn);
	while (poll_once(conn) > 0)
		;
	/* the others' completions wait in the ring */
	ctx_due(ctx);
}

static void unlink_from(struct verbs_conn **list, struct verbs_conn *conn,
			size_t next)
{
	while (*list && *list != conn)
		list = (struct verbs_conn **)((char *)*list + next);
	if (*list)
		*list = *(struct verbs_conn **)((char *)conn + next);
}

void lane_drain(struct lane *lane)
{
	struct verbs_conn *conn = lane->conn;
	struct verbs_ctx *ctx = conn->ctx;

	conn->direct = false; /* what is held goes first */
	begin_draining(lane);
	collect(conn, ctx->wc_tail - ctx->wc_head);
	collect_while(conn, is_not_drained, DRAIN_MS);
	while (poll_once(conn) > 0)
		;
	destroy_qp(lane);
	while (poll_once(conn) > 0)
		;
	lane->draining = false;
	lane_unlink(lane);
	arrive_resume(conn);
	ctx_due(ctx);
}

/* Nothing finds it any more. */
static void forget(struct verbs_conn *conn)
{
	struct verbs_ctx *ctx = conn->ctx;

	for (unsigned i = 0; i < conn->nlanes; i++)
		lane_unlink(&conn->lane[i]);
	unlink_from(&ctx->held, conn, offsetof(struct verbs_conn, next_held));
	unlink_from(&ctx->owing, conn, offsetof(struct verbs_conn, next_owing));
	unlink_from(&ctx->failed, conn,
		    offsetof(struct verbs_conn, next_failed));
	unlink_from(&ctx->failing, conn,
		    offsetof(struct verbs_conn, next_failing));
	unlink_from(&ctx->failing_next, conn,
		    offsetof(struct verbs_conn, next_failing));
}

/* Callbacks run here, and may close other connections. */
static void complete_rest(struct lane *lane, int status)
{
	struct verbs_ctx *ctx = lane->conn->ctx;
	bool landed = true;

	while (!lane_empty(lane)) {
		struct slot *slot = lane_pop(lane);
		int end = slot->status == STATUS_OPEN ? status : slot->status;
		struct vbn_op *op;

		if (slot_kind(slot) == SLOT_FLUSH)
			end = landed ? 0 : status;
		else if (end)
			landed = false;
		op = slot_release(ctx, slot, end);
		if (op)
			core_complete(ctx->core, op, end);
	}
}

/* Their lists are empty now. */
static void give_spares(struct verbs_conn *conn)
{
	struct verbs_ctx *ctx = conn->ctx;

	for (unsigned i = 0; i < conn->nlanes; i++) {
		struct lane *lane = &conn->lane[i];

		if (!lane->spare)
			continue;
		lane->spare->next = ctx->spare_slots;
		ctx->spare_slots = lane->spare;
		lane->first = lane->spare = NULL;
	}
}

static void close_now(struct verbs_conn *conn, int status)
{
	bool linger = !conn->broken && status == -ECANCELED;

	if (conn->closed)
		return;
	conn->broken = true;
	conn->closed = true;
	conn->direct = false;
	for (unsigned i = 0; i < conn->nlanes; i++)
		lane_stop(&conn->lane[i]);
	conn->pins++;
	drain(conn, linger);
	forget(conn);
	for (unsigned i = 0; i < conn->nlanes; i++)
		complete_rest(&conn->lane[i], status);
	give_spares(conn);
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
	struct verbs_ctx *ctx;

	if (conn->attached) {
		close_now(conn, status);
		return;
	}
	cm_cancel(conn);
	to_error(conn);
	ctx = conn->ctx; /* which may free it from here on */
	conn_push(&ctx->graveyard, conn, &conn->next_grave);
	ctx_due_any(ctx);
}
