/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completions. They are polled in batches into a ring and dispatched from it
 * one by one, so that a callback may close a connection, which polls too,
 * without losing or reordering another connection's. Of a bad completion only
 * wr_id, status, qp_num and vendor_err are read.
 *
 * A connection's slots retire in order: the completion of slot s ends all
 * before it, which were not signalled. Callbacks may close the connection
 * whose slots are retiring: loops pin it and look at closed after each.
 */
#include "internal.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ACK_BATCH 4096 /* acknowledging takes a lock */

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

static const char *likely_cause(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
		return "no answer: peer dead, path down, MTU or ACL on the way";
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return "the peer posts no receives: is it stuck?";
	case IBV_WC_WR_FLUSH_ERR:
		return "the queue pair was in error already: the peer closed "
		       "or refused an access of ours or its own failed";
	case IBV_WC_REM_ACCESS_ERR:
		return "the target's key is wrong, stale, or lacks the access";
	case IBV_WC_LOC_PROT_ERR:
		return "a local buffer was unregistered or unmapped in flight";
	case IBV_WC_REM_INV_REQ_ERR:
		return "the target cannot do this operation";
	default:
		return "device error";
	}
}

static const char *slot_name(enum slot_kind kind)
{
	switch (kind) {
	case SLOT_PUT:
		return "put";
	case SLOT_GET:
		return "get";
	case SLOT_ATOMIC:
		return "atomic";
	case SLOT_MESSAGE:
		return "message";
	case SLOT_FLUSH:
	case SLOT_VOID:
		break;
	}
	return "flush";
}

void progress_why(const struct verbs_conn *conn, char *why, size_t room)
{
	const struct verbs_job *job = conn->ctx->job;

	snprintf(why, room,
		 "verbs: %s port %u GID %s, peer rank %d: %s failed: %s "
		 "(status %d, vendor 0x%x); %s",
		 job->name, job->port_num, job->gid, conn->rank,
		 conn->fail_what, ibv_wc_status_str(conn->fail_wc),
		 (int)conn->fail_wc, conn->fail_vendor,
		 likely_cause(conn->fail_wc));
}

void progress_break(struct verbs_conn *conn, const char *what,
		    enum ibv_wc_status wc, uint32_t vendor)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};

	if (conn->broken)
		return;
	conn->broken = true;
	conn->fail_what = what;
	conn->fail_wc = wc;
	conn->fail_vendor = vendor;
	ibv_modify_qp(conn->qp, &attr, IBV_QP_STATE);
	if (!conn->attached)
		return;
	conn->next_failed = conn->ctx->failed;
	conn->ctx->failed = conn;
}

/* The core closes each at once. */
static int report_failed(struct verbs_ctx *ctx)
{
	struct verbs_conn *conn;
	char why[320];
	int events = 0;

	while ((conn = ctx->failed)) {
		ctx->failed = conn->next_failed;
		progress_why(conn, why, sizeof(why));
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

struct vbn_op *progress_release(struct verbs_ctx *ctx, struct slot *slot,
				int status)
{
	switch ((enum slot_kind)slot->kind) {
	case SLOT_PUT:
	case SLOT_GET:
		ctx->send_room++;
		break;
	case SLOT_ATOMIC:
		ctx->send_room++;
		if (slot->result && !status)
			memcpy(slot->result, ctx->arena + slot->index * 8u, 8);
		ctx->cells.items[ctx->cells.n++] = slot->index;
		break;
	case SLOT_MESSAGE:
		ctx->send_room++;
		if (slot->index != NO_INDEX)
			ctx->bounces.items[ctx->bounces.n++] = slot->index;
		break;
	case SLOT_FLUSH:
	case SLOT_VOID:
		break;
	}
	return slot->op;
}

/* The oldest slot is over. Runs its callback; the caller has pinned. */
static void retire_one(struct verbs_conn *conn, int status)
{
	struct verbs_ctx *ctx = conn->ctx;
	struct slot *slot = &conn->slots[conn->tail++ & conn->mask];
	struct vbn_op *op = progress_release(ctx, slot, status);

	if (op)
		core_complete(ctx->core, op, status);
}

static bool heads_no_request(const struct verbs_conn *conn)
{
	return conn->tail != conn->head &&
	       conn->slots[conn->tail & conn->mask].kind >= SLOT_FLUSH;
}

/* Slots up to and with @last have ended; their status says how. */
static int retire(struct verbs_conn *conn, uint32_t last)
{
	int events = 0;

	conn->ended = last + 1;
	while (!conn->closed && (int32_t)(last - conn->tail) >= 0) {
		retire_one(conn, conn->slots[conn->tail & conn->mask].status);
		events++;
	}
	while (!conn->closed && heads_no_request(conn)) {
		retire_one(conn, conn->broken ? -ECONNRESET : 0);
		events++;
	}
	return events;
}

int progress_before(const struct verbs_conn *conn, enum ibv_wc_status status)
{
	return conn->erred || status == IBV_WC_WR_FLUSH_ERR ? -ECONNRESET : 0;
}

static void note_bad(struct verbs_conn *conn, uint32_t last,
		     const struct ibv_wc *wc)
{
	struct slot *slot = &conn->slots[last & conn->mask];
	int before = progress_before(conn, wc->status);

	for (uint32_t i = conn->tail; i != last; i++)
		conn->slots[i & conn->mask].status = (int16_t)before;
	slot->status = (int16_t)progress_errno(wc->status);
	if (slot->op) {
		slot->op->wc = wc->status;
		slot->op->vendor = wc->vendor_err;
	}
	/* broken before any callback, so that none can post more */
	conn->erred = true;
	progress_break(conn, slot_name(slot->kind), wc->status, wc->vendor_err);
}

static int on_send(struct verbs_ctx *ctx, const struct ibv_wc *wc)
{
	struct verbs_conn *conn = conn_lookup(ctx, wc->qp_num);
	uint32_t slot = wr_slot(wc->wr_id);
	int events;

	if (!conn || conn->tag != wr_tag(wc->wr_id) ||
	    slot - conn->tail >= conn->head - conn->tail)
		return 0;
	if (wc->status != IBV_WC_SUCCESS)
		note_bad(conn, slot, wc);
	conn->pins++;
	events = retire(conn, slot);
	progress_unpin(conn);
	return events;
}

static void deliver_message(struct verbs_conn *conn, uint32_t slot,
			    uint32_t len)
{
	const uint8_t *buf = srq_buffer(conn->ctx, slot);
	struct message_header header;

	if (len < sizeof(header)) {
		progress_break(conn, "receiving", IBV_WC_LOC_LEN_ERR, len);
		return;
	}
	memcpy(&header, buf, sizeof(header));
	core_message(conn->ep, &header, buf + sizeof(header),
		     len - sizeof(header));
}

static void hold(struct verbs_conn *conn, uint32_t slot,
		 const struct held_note *arrival)
{
	*srq_note(conn->ctx, slot) = *arrival;
	if (conn->held_first == NO_INDEX)
		conn->held_first = slot;
	else
		srq_note(conn->ctx, conn->held_last)->next = slot;
	conn->held_last = slot;
}

/* An arrival that the core may see now. The slot is given back. */
static void deliver(struct verbs_conn *conn, uint32_t slot,
		    const struct held_note *arrival)
{
	struct verbs_ctx *ctx = conn->ctx;

	if (arrival->with_imm) {
		srq_repost(ctx, slot);
		if (!conn->broken)
			core_notify(conn->ep, arrival->imm);
		return;
	}
	if (!conn->broken)
		deliver_message(conn, slot, arrival->len);
	srq_repost(ctx, slot);
}

static int on_receive(struct verbs_ctx *ctx, const struct ibv_wc *wc)
{
	struct verbs_conn *conn = conn_lookup(ctx, wc->qp_num);
	uint32_t slot = wr_slot(wc->wr_id);
	struct held_note arrival = {.next = NO_INDEX};

	/* the slot may be in a chunk that was added a moment ago */
	(void)atomic_load_explicit(&ctx->nchunks, memory_order_acquire);
	if (!conn || wc->status != IBV_WC_SUCCESS) {
		srq_repost(ctx, slot);
		if (conn && wc->status != IBV_WC_WR_FLUSH_ERR)
			progress_break(conn, "receiving", wc->status,
				       wc->vendor_err);
		return 0;
	}
	arrival.with_imm = (wc->wc_flags & IBV_WC_WITH_IMM) != 0;
	arrival.len = wc->byte_len;
	if (arrival.with_imm)
		arrival.imm = ntohl(wc->imm_data);
	if (!conn->attached || conn->held_first != NO_INDEX) {
		hold(conn, slot, &arrival);
		return 0;
	}
	conn->pins++;
	deliver(conn, slot, &arrival);
	progress_unpin(conn);
	return 1;
}

static int dispatch(struct verbs_ctx *ctx, const struct ibv_wc *wc)
{
	switch (wr_kind(wc->wr_id)) {
	case WR_SEND:
		return on_send(ctx, wc);
	case WR_RECV:
		return on_receive(ctx, wc);
	case WR_NONE:
		break;
	}
	return 0;
}

static int deliver_held(struct verbs_ctx *ctx)
{
	struct verbs_conn *conn;
	int events = 0;

	/* one by one: a callback may close any of them */
	while ((conn = ctx->held)) {
		ctx->held = conn->next_held;
		conn->pins++;
		while (!conn->closed && conn->held_first != NO_INDEX) {
			uint32_t slot = conn->held_first;
			struct held_note arrival = *srq_note(ctx, slot);

			conn->held_first = arrival.next;
			deliver(conn, slot, &arrival);
			events++;
		}
		progress_unpin(conn);
	}
	return events;
}

/* The queue itself has failed: nothing will ever complete again. */
static void fail_all(struct verbs_ctx *ctx)
{
	if (ctx->cq_broken)
		return;
	ctx->cq_broken = true;
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct verbs_conn *conn = ctx->bucket[i]; conn;
		     conn = conn->next_bucket)
			progress_break(conn, "polling the queue",
				       IBV_WC_FATAL_ERR, 0);
}

int progress_poll(struct verbs_ctx *ctx)
{
	int n;

	if (ctx->wc_head == ctx->wc_tail)
		ctx->wc_head = ctx->wc_tail = 0;
	if (ctx->wc_tail + POLL_BATCH > ctx->wc_size) {
		memmove(ctx->wc, ctx->wc + ctx->wc_head,
			(ctx->wc_tail - ctx->wc_head) * sizeof(*ctx->wc));
		ctx->wc_tail -= ctx->wc_head;
		ctx->wc_head = 0;
	}
	n = ibv_poll_cq(ctx->cq, POLL_BATCH, ctx->wc + ctx->wc_tail);
	if (n > 0)
		ctx->wc_tail += (uint32_t)n;
	return n;
}

int verbs_progress(void *pctx)
{
	struct verbs_ctx *ctx = pctx;
	int n = POLL_BATCH, events = 0;

	if (ctx->chain_n)
		post_chain(ctx);
	if (atomic_load_explicit(&ctx->graveyard, memory_order_relaxed))
		conn_bury(ctx);
	if (ctx->held)
		events += deliver_held(ctx);
	for (int i = 0; i < POLL_BATCHES && n == POLL_BATCH; i++) {
		n = progress_poll(ctx);
		if (n < 0)
			fail_all(ctx);
		while (ctx->wc_head != ctx->wc_tail) {
			struct ibv_wc wc = ctx->wc[ctx->wc_head++];

			events += dispatch(ctx, &wc);
			if (ctx->failed)
				events += report_failed(ctx);
		}
	}
	if (ctx->failed)
		events += report_failed(ctx);
	if (ctx->repost_n)
		srq_flush(ctx);
	if (ctx->chain_n)
		post_chain(ctx);
	return events;
}

int verbs_fd(void *pctx)
{
	struct verbs_ctx *ctx = pctx;

	return ctx->channel->fd;
}

/* Take the event asked for, if it has come, so the descriptor is quiet. */
static void take_event(struct verbs_ctx *ctx)
{
	struct ibv_cq *cq;
	void *arg;

	if (ibv_get_cq_event(ctx->channel, &cq, &arg))
		return;
	ctx->notify_pending = false;
	if (++ctx->events_unacked < ACK_BATCH)
		return;
	ibv_ack_cq_events(ctx->cq, ctx->events_unacked);
	ctx->events_unacked = 0;
}

int verbs_arm(void *pctx)
{
	struct verbs_ctx *ctx = pctx;
	int err;

	if (ctx->chain_n)
		post_chain(ctx);
	if (ctx->wc_head != ctx->wc_tail || ctx->held || ctx->failed ||
	    atomic_load(&ctx->graveyard))
		return -EAGAIN;
	if (ctx->notify_pending)
		take_event(ctx);
	if (!ctx->notify_pending) {
		err = ibv_req_notify_cq(ctx->cq, 0);
		if (err)
			return vbn_fail(-err,
					"verbs: %s: ibv_req_notify_cq: %s",
					ctx->job->name, strerror(err));
		ctx->notify_pending = true;
	}
	/* what came before the request raises no event */
	return progress_poll(ctx) ? -EAGAIN : 0;
}
