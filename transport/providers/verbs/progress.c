/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completions. They are polled in batches into a ring and dispatched from it
 * one by one, so that a callback may close a connection, which polls too,
 * without losing or reordering another connection's. Of a bad completion only
 * wr_id, status, qp_num and vendor_err are read.
 *
 * A lane's slots retire in order: the completion of slot s ends all before
 * it, which were not signalled. Callbacks may close the connection
 * whose slots are retiring: loops pin it and look at closed after each.
 */
#include "failover.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ACK_BATCH 4096 /* acknowledging takes a lock */

#define KICK_POLLS 256u /* without a completion, between looks at the clock */
#define KICK_US	   20000u

#define unlikely(x) __builtin_expect(x, 0)

int progress_errno(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return 0;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_REM_ABORT_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
	case IBV_WC_WR_FLUSH_ERR:
		return -ECONNRESET;
	case IBV_WC_REM_ACCESS_ERR:
		return -EACCES;
	default:
		return -EIO;
	}
}

static const char *slot_name(const struct slot *slot)
{
	switch (slot_kind(slot)) {
	case SLOT_PUT:
	case SLOT_PUT_COPY:
		return "put";
	case SLOT_GET:
		return "get";
	case SLOT_ATOMIC:
		return "atomic";
	case SLOT_MESSAGE:
		return "message";
	case SLOT_KICK:
	case SLOT_FLUSH:
	case SLOT_VOID:
		break;
	}
	return "flush";
}

void progress_break(struct verbs_conn *conn, const char *what,
		    enum ibv_wc_status wc, uint32_t vendor)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (conn->broken)
		return;
	conn->broken = true;
	conn->direct = false;
	conn->fail_what = what;
	conn->fail_wc = wc;
	conn->fail_vendor = vendor;
	conn->fail_pair = conn->lane[0].id % conn->npairs;
	for (unsigned i = 0; i < conn->nlanes; i++) {
		lane_stop(&conn->lane[i]);
		if (conn->lane[i].qp)
			ibv_modify_qp(conn->lane[i].qp, &attr, IBV_QP_STATE);
	}
	if (!conn->attached)
		return;
	conn->next_failed = conn->ctx->failed;
	conn->ctx->failed = conn;
	ctx_due(conn->ctx);
}

/* The core closes each at once. */
static int report_failed(struct verbs_ctx *ctx)
{
	struct verbs_conn *conn;
	char why[320];
	int events = 0;

	while ((conn = ctx->failed)) {
		ctx->failed = conn->next_failed;
		limits_why(conn, why, sizeof(why));
		core_failed(conn->ep, -ECONNRESET, why);
		events++;
	}
	return events;
}

void progress_unpin(struct verbs_conn *conn)
{
	if (--conn->pins == 0 && conn->closed)
		conn_free(conn);
}

void slot_blame(struct slot *slot, const struct ibv_wc *wc)
{
	struct vbn_op *op = slot->op;

	if (!op || ((slot->kind & SLOT_PART) && op->priv[3]))
		return; /* another part was the first */
	op->wc = wc->status;
	op->vendor = wc->vendor_err;
}

/* Free what the slot holds. */
static void empty(struct verbs_ctx *ctx, struct slot *slot, int status)
{
	switch (slot_kind(slot)) {
	case SLOT_ATOMIC:
		if (slot->result && !status)
			memcpy(slot->result, ctx->arena + slot->index * 8u, 8);
		ctx->cells.items[ctx->cells.n++] = slot->index;
		break;
	case SLOT_PUT_COPY:
	case SLOT_MESSAGE:
		if (slot->index != NO_INDEX)
			ctx->bounces.items[ctx->bounces.n++] = slot->index;
		break;
	case SLOT_KICK:
		slot->lane->kicked = false;
		break;
	case SLOT_FLUSH:
	case SLOT_VOID:
		slot->lane->silent--;
		break;
	case SLOT_PUT:
	case SLOT_GET:
		break;
	}
}

void slot_void(struct verbs_ctx *ctx, struct slot *slot, int status)
{
	struct lane *lane = slot->lane;

	empty(ctx, slot, status);
	slot->kind = SLOT_VOID | (slot->kind & (SLOT_PART | SLOT_KEPT));
	lane->silent++;
	lane_enders(lane);
}

static inline struct vbn_op *give_back(struct slot *slot, struct slot **list)
{
	slot->wr_id += WR_USED;
	slot->next = *list;
	*list = slot;
	return slot->op;
}

static struct vbn_op *release_rest(struct verbs_ctx *ctx, struct slot *slot,
				   int status)
{
	bool part = slot->kind & SLOT_PART;
	bool kept = slot->kind & SLOT_KEPT;
	struct vbn_op *op;

	empty(ctx, slot, status);
	op = give_back(slot, kept ? &ctx->kick_slots : &ctx->free_slots);
	if (!part)
		return op;
	lanes_part_over(ctx, op, status);
	return NULL;
}

static inline struct vbn_op *release(struct verbs_ctx *ctx, struct slot *slot,
				     int status)
{
	if (slot->kind > SLOT_GET)
		return release_rest(ctx, slot, status);
	return give_back(slot, &ctx->free_slots);
}

struct vbn_op *slot_release(struct verbs_ctx *ctx, struct slot *slot,
			    int status)
{
	return release(ctx, slot, status);
}

/* The lane's oldest slot is over. Runs its callback. */
static inline void retire_one(struct verbs_ctx *ctx, struct lane *lane,
			      int status)
{
	struct vbn_op *op = release(ctx, lane_pop(lane), status);

	if (op)
		core_complete(ctx->core, op, status);
}

/* Slots up to and with @last have ended; their status says how. */
static void retire(struct verbs_ctx *ctx, struct lane *lane,
		   const struct slot *last)
{
	struct verbs_conn *conn = lane->conn;
	const struct slot *slot;

	conn->pins++;
	do {
		slot = lane->first;
		/* for a close by the callback */
		lane->ended = slot == last ? NULL : (struct slot *)last;
		retire_one(ctx, lane, slot->status);
	} while (slot != last && !conn->closed);
	while (!conn->closed && lane->silent && slot_silent(lane->first))
		retire_one(ctx, lane, conn->broken ? -ECONNRESET : 0);
	progress_unpin(conn);
}

int progress_before(const struct lane *lane, enum ibv_wc_status status)
{
	return lane->erred || status == IBV_WC_WR_FLUSH_ERR ? -ECONNRESET : 0;
}

static void note_bad(struct lane *lane, struct slot *last,
		     const struct ibv_wc *wc)
{
	int before = progress_before(lane, wc->status);

	for (struct slot *slot = lane->first; slot != last; slot = slot->next)
		slot->status = (int16_t)before;
	last->status = (int16_t)progress_errno(wc->status);
	slot_blame(last, wc);
	/* broken before any callback, so that none can post more */
	lane->erred = true;
	progress_break(lane->conn, slot_name(last), wc->status, wc->vendor_err);
}

static __attribute__((noinline)) void send_bad(struct verbs_ctx *ctx,
					       struct slot *slot,
					       const struct ibv_wc *wc)
{
	struct lane *lane = slot->lane;

	if (lane->conn->npairs > 1 && failover_takes(lane, wc->status)) {
		lane_note(lane, wc);
		failover_start(lane);
		return;
	}
	note_bad(lane, slot, wc);
	retire(ctx, lane, slot);
}

static __attribute__((noinline)) void send_over(struct verbs_ctx *ctx,
						struct slot *slot)
{
	struct lane *lane = slot->lane;

	if (lane->first != slot || lane->silent)
		retire(ctx, lane, slot);
	else /* nothing is looked at behind the callback */
		retire_one(ctx, lane, 0);
}

static void receive_bad(struct lane *lane, const struct ibv_wc *wc)
{
	if (lane && wc->status != IBV_WC_WR_FLUSH_ERR)
		progress_break(lane->conn, "receiving",
			       wc->status ? wc->status : IBV_WC_BAD_RESP_ERR,
			       wc->status ? wc->vendor_err : 0);
}

/* Or the completion of a send that is stale. */
static __attribute__((noinline)) void on_receive(struct verbs_ctx *ctx,
						 const struct ibv_wc *wc)
{
	struct lane *lane = ctx->last_lane;
	struct verbs_conn *conn;
	uint32_t imm;

	if (!wr_is_recv(wc->wr_id))
		return;
	if (!lane || lane->qpn != wc->qp_num)
		ctx->last_lane = lane = lane_lookup(ctx, wc->qp_num);
	srq_taken(&ctx->queues[wc->qp_num >> RAIL_SHIFT]);
	if (!lane || wc->status != IBV_WC_SUCCESS ||
	    !(wc->wc_flags & IBV_WC_WITH_IMM)) {
		receive_bad(lane, wc);
		return;
	}
	lane->rx++;
	conn = lane->conn;
	imm = ntohl(wc->imm_data);
	if (!conn->direct) {
		arrive_hold(lane, imm);
		return;
	}
	conn->pins++;
	arrive(lane, imm);
	progress_unpin(conn);
}

/* The queue itself has failed: nothing will ever complete again. */
static int fail_all(struct verbs_ctx *ctx)
{
	if (ctx->cq_broken)
		return 0;
	ctx->cq_broken = true;
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct lane *lane = ctx->bucket[i]; lane;
		     lane = lane->next_bucket)
			progress_break(lane->conn, "polling the queue",
				       IBV_WC_FATAL_ERR, 0);
	return 1;
}

int progress_poll(struct verbs_ctx *ctx)
{
	int n;

	if (ctx->wc_head == ctx->wc_tail)
		ctx->wc_head = ctx->wc_tail = ctx->wc;
	if (ctx->wc_tail + POLL_BATCH > ctx->wc_end) {
		size_t kept = (size_t)(ctx->wc_tail - ctx->wc_head);

		memmove(ctx->wc, ctx->wc_head, kept * sizeof(*ctx->wc));
		ctx->wc_head = ctx->wc;
		ctx->wc_tail = ctx->wc + kept;
	}
	n = ibv_poll_cq(ctx->cq, POLL_BATCH, ctx->wc_tail);
	if (n > 0) {
		ctx->wc_tail += n;
		ctx->counters->completions += (unsigned)n;
	}
	return n;
}

/*
 * Soft-RoCE's requester was seen to stop with requests queued and nothing to
 * wake it; a request more does.
 */
static void kick(struct verbs_ctx *ctx)
{
	struct timespec t;
	uint64_t now;

	clock_gettime(CLOCK_MONOTONIC, &t);
	now = (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
	if (ctx->empty_polls == KICK_POLLS)
		ctx->empty_since_us = now;
	if (now - ctx->empty_since_us < KICK_US)
		return;
	ctx->empty_since_us = now;
	for (unsigned i = 0; i < BUCKETS; i++) {
		for (struct lane *lane = ctx->bucket[i]; lane;
		     lane = lane->next_bucket) {
			if (lane_empty(lane) || lane->room < -2 * LANE_GATE ||
			    lane->kicked || lane->state != LANE_LIVE)
				continue;
			post_kick(lane);
			ctx->counters->kicks++;
			vbn_log(VBN_INFO,
				"verbs: %s, peer rank %d: nothing completed "
				"for %u ms with %u requests outstanding; kick "
				"%llu",
				lane->queues->rail->name, lane->conn->rank,
				KICK_US / 1000,
				lane->queues->rail->depth - 1 -
					(unsigned)lane->room,
				(unsigned long long)ctx->counters->kicks);
		}
	}
}

/* What does not happen at each progress. */
static int chores(struct verbs_ctx *ctx)
{
	int events = 0;

	/* first: what comes up from now on is due again */
	atomic_exchange(&ctx->due, false);
	if (atomic_load_explicit(&ctx->alerted, memory_order_relaxed))
		events_alerted(ctx);
	if (atomic_load_explicit(&ctx->graveyard, memory_order_relaxed))
		conn_bury(ctx);
	if (ctx->failing)
		events += failover_run(ctx);
	if (ctx->held)
		events += arrive_held(ctx);
	if (ctx->failed)
		events += report_failed(ctx);
	if (ctx->owing)
		message_pay(ctx);
	if (ctx->chain_n)
		post_chain(ctx);
	return events;
}

static inline bool is_due(const struct verbs_ctx *ctx)
{
	return atomic_load_explicit(&ctx->due, memory_order_relaxed);
}

static int count_empty(struct verbs_ctx *ctx)
{
	if (ctx->empty_since != ctx->counters->completions) {
		ctx->empty_since = ctx->counters->completions;
		ctx->empty_polls = 0;
	}
	if (++ctx->empty_polls % KICK_POLLS == 0 &&
	    ctx->queues[0].rail->software)
		kick(ctx);
	return 0;
}

/*
 * Inlined where most completions are met: a put's or get's that is the oldest
 * of its lane. Nothing is looked at behind its callback.
 */
static inline __attribute__((always_inline)) void dispatch(
	struct verbs_ctx *ctx, const struct ibv_wc *wc)
{
	struct slot *slot = wr_slot(ctx, wc->wr_id);
	struct lane *lane = slot->lane;

	if (unlikely(slot->wr_id != wc->wr_id)) {
		on_receive(ctx, wc);
	} else if (unlikely(wc->status != IBV_WC_SUCCESS)) {
		send_bad(ctx, slot, wc);
	} else if (unlikely(slot->kind > SLOT_GET || lane->first != slot)) {
		send_over(ctx, slot);
	} else {
		lane->first = slot->next;
		lane->room++;
		core_done(give_back(slot, &ctx->free_slots));
	}
}

static void dispatch_all(struct verbs_ctx *ctx)
{
	while (ctx->wc_head != ctx->wc_tail)
		dispatch(ctx, ctx->wc_head++);
}

/* With all that may be due, and several batches. */
static int progress_more(struct verbs_ctx *ctx)
{
	int events = chores(ctx), n = POLL_BATCH;

	for (int i = 0; i < POLL_BATCHES && n == POLL_BATCH; i++) {
		n = progress_poll(ctx);
		if (n < 0)
			fail_all(ctx);
		events += (int)(ctx->wc_tail - ctx->wc_head);
		dispatch_all(ctx);
	}
	if (is_due(ctx))
		events += chores(ctx);
	if (!events)
		return count_empty(ctx);
	ctx->empty_polls = 0;
	return events;
}

/* @n were polled: not one. */
static __attribute__((noinline)) int progress_some(struct verbs_ctx *ctx, int n)
{
	if (n <= 0)
		return n ? fail_all(ctx) : count_empty(ctx);
	ctx->counters->completions += (unsigned)n;
	ctx->wc_head = ctx->wc;
	ctx->wc_tail = ctx->wc + n;
	dispatch_all(ctx);
	return n == POLL_BATCH ? n + progress_more(ctx) : n;
}

/* Nothing is due, the ring is empty, and one alone is not entered into it. */
int verbs_poll(void *pctx)
{
	struct verbs_ctx *ctx = pctx;
	int n = ibv_poll_cq(ctx->cq, POLL_BATCH, ctx->wc);

	if (unlikely(n != 1))
		return progress_some(ctx, n);
	ctx->counters->completions++;
	dispatch(ctx, ctx->wc);
	return 1;
}

int verbs_progress(void *pctx)
{
	struct verbs_ctx *ctx = pctx;
	int events;

	if (is_due(ctx))
		return progress_more(ctx);
	events = verbs_poll(ctx);
	return is_due(ctx) ? events + progress_more(ctx) : events;
}

int verbs_fd(void *pctx)
{
	struct verbs_ctx *ctx = pctx;

	return ctx->fd;
}

/* Take the event asked for, if it has come, so the descriptor is quiet. */
static void take_event(struct queues *queues)
{
	struct ibv_cq *cq;
	void *arg;

	if (ibv_get_cq_event(queues->channel, &cq, &arg))
		return;
	queues->notify_pending = false;
	if (++queues->events_unacked < ACK_BATCH)
		return;
	ibv_ack_cq_events(queues->cq, queues->events_unacked);
	queues->events_unacked = 0;
}

static int arm(struct queues *queues)
{
	int err;

	if (queues->notify_pending)
		take_event(queues);
	if (queues->notify_pending)
		return 0;
	err = ibv_req_notify_cq(queues->cq, 0);
	if (err)
		return vbn_fail(-err, "verbs: %s: ibv_req_notify_cq: %s",
				queues->rail->name, strerror(err));
	queues->notify_pending = true;
	return 0;
}

int verbs_arm(void *pctx)
{
	struct verbs_ctx *ctx = pctx;

	if (ctx->chain_n)
		post_chain(ctx);
	/* what is owed waits for completions, or for the peer */
	if (ctx->owing)
		message_pay(ctx);
	if (ctx->wc_head != ctx->wc_tail || ctx->held || ctx->failed ||
	    ctx->failing || atomic_load(&ctx->graveyard) ||
	    atomic_load(&ctx->alerted))
		return -EAGAIN;
	for (unsigned i = 0; i < ctx->nrails; i++) {
		int err = arm(&ctx->queues[i]);

		if (err)
			return err;
	}
	/* what came before the request raises no event */
	if (!progress_poll(ctx))
		return 0;
	ctx_due(ctx);
	return -EAGAIN;
}
