/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path. A post fills the next work request of the context's chain
 * and takes a slot; without `more` the chain goes to the device at once. The
 * chain is one lane's: a post to another sends it off first, and so does a
 * chain of CHAIN_BYTES. Only a chain's last request is signalled.
 *
 * Nothing here allocates, locks, or copies payload, but for what is short
 * enough to go inline (and has to wait in a chain, or finds a queue pair that
 * was granted less) and messages, whose contracts are a copy.
 *
 * An operation is taken before the device sees it, so what the device refuses
 * is completed later like any other failure, and breaks the connection.
 */
#include "keys.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

/* Kept out of the short path, whose registers it would spill. */
#define NOINLINE __attribute__((noinline))

void post_failed(struct verbs_conn *conn, const struct ibv_send_wr *wr,
		 const struct ibv_send_wr *bad, int err)
{
	struct verbs_ctx *ctx = conn->ctx;

	while (bad && wr != bad)
		wr = wr->next;
	for (; wr; wr = wr->next) {
		struct slot *slot = wr_slot(ctx, wr->wr_id);
		struct vbn_op *op = slot->op;

		slot_void(ctx, slot, -EIO);
		if (!op)
			continue;
		op->wc = IBV_WC_GENERAL_ERR;
		op->vendor = (uint32_t)err;
		if (slot->kind & SLOT_PART)
			continue; /* over with the others */
		slot->op = NULL;
		core_defer(ctx->core, op, -EIO);
	}
	progress_break(conn, "posting", IBV_WC_GENERAL_ERR, (uint32_t)err);
}

/* The chain, and @last at its end, go to the device. */
static inline void ring(struct verbs_ctx *ctx, struct lane *lane,
			struct ibv_send_wr *last)
{
	struct ibv_send_wr *bad = NULL;
	int err;

	last->send_flags |= IBV_SEND_SIGNALED;
	if (ctx->chain_n) {
		ctx->chain_n = 0;
		ctx->chain_bytes = 0;
		quick_open(lane->conn);
	}
	ctx->counters->doorbells++;
	err = qp_post(lane, ctx->chain_wr, &bad);
	if (err)
		post_failed(lane->conn, ctx->chain_wr, bad, err);
}

void post_chain(struct verbs_ctx *ctx)
{
	ring(ctx, ctx->chain_lane, &ctx->chain_wr[ctx->chain_n - 1]);
}

/* The request behind the chain, which is the lane's from now on. */
static inline struct ibv_send_wr *next_request(struct verbs_ctx *ctx,
					       struct lane *lane,
					       const struct slot *slot)
{
	struct ibv_send_wr *wr = ctx->chain_wr;

	if (ctx->chain_n) {
		if (ctx->chain_lane != lane) {
			post_chain(ctx);
		} else {
			wr += ctx->chain_n;
			wr[-1].next = wr;
		}
	}
	wr->wr_id = slot->wr_id;
	wr->next = NULL;
	return wr;
}

/*
 * Bytes that wait for a doorbell are bytes that do not move: a chain ends
 * with the request that makes it worth a doorbell of its own.
 */
static inline void commit(struct verbs_ctx *ctx, struct lane *lane,
			  struct ibv_send_wr *wr, size_t bytes, bool more)
{
	if (!more || ctx->chain_n == CHAIN_MAX - 1 ||
	    ctx->chain_bytes + bytes >= CHAIN_BYTES) {
		ring(ctx, lane, wr);
		return;
	}
	ctx->chain_bytes += bytes;
	if (ctx->chain_n++)
		return;
	ctx->chain_lane = lane;
	lane->conn->lane[0].quick.max = 0; /* not before what waits */
	ctx_due(ctx);
}

static inline void set_sge(struct ibv_send_wr *wr, const void *addr, size_t len,
			   uint32_t lkey)
{
	wr->sg_list->addr = (uintptr_t)addr;
	wr->sg_list->length = (uint32_t)len;
	wr->sg_list->lkey = lkey;
}

/* A slot that another rail may have to carry out. */
static inline struct slot *take_data(struct verbs_ctx *ctx, struct lane *lane,
				     unsigned kind, struct vbn_op *op,
				     const struct blob *key, const void *handle)
{
	struct slot *slot = take_slot(ctx, lane, kind, op);

	slot->key = key;
	slot->from = handle;
	return slot;
}

static uint8_t *bounce_at(const struct verbs_ctx *ctx, uint32_t i)
{
	return ctx->arena + CELLS * 8u + i * MESSAGE_BYTES;
}

/*
 * A short put from memory that is not registered. The caller may change it
 * when we return, so it cannot wait in a chain where it is.
 */
static void copy_short(struct verbs_ctx *ctx, struct lane *lane,
		       struct slot *slot, struct ibv_send_wr *wr,
		       const struct put_args *args)
{
	uint8_t *copy;

	if (args->len <= lane->inline_max) {
		copy = ctx->chain_copy[wr - ctx->chain_wr];
		wr->sg_list->addr = (uintptr_t)copy;
	} else {
		slot->kind = SLOT_PUT_COPY;
		slot->index = ctx->bounces.items[--ctx->bounces.n];
		copy = bounce_at(ctx, slot->index);
		set_sge(wr, copy, args->len, lkey_of(lane, ctx->arena_mr));
	}
	memcpy(copy, args->local, args->len);
}

static inline void fill_put(struct lane *lane, struct ibv_send_wr *wr,
			    const struct put_args *args, uint32_t rkey)
{
	wr->wr.rdma.remote_addr = args->len ? args->remote : 0;
	wr->wr.rdma.rkey = rkey;
	wr->num_sge = args->len != 0;
	wr->sg_list->addr = (uintptr_t)args->local;
	wr->sg_list->length = (uint32_t)args->len;
	wr->send_flags = IBV_SEND_SIGNALED;
	if (!args->len)
		wr->send_flags = IBV_SEND_SIGNALED;
	else if (args->len <= lane->inline_max)
		wr->send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	else if (args->mem_handle)
		wr->sg_list->lkey = lkey_of(lane, args->mem_handle);
	wr->opcode = IBV_WR_RDMA_WRITE;
	if (args->notify) {
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->imm_data = htonl(args->imm);
	}
}

static int put_striped(struct verbs_conn *conn, struct vbn_op *op,
		       const struct put_args *args)
{
	const struct stripe all = {
		.kind = SLOT_PUT,
		.local = args->local,
		.remote = args->remote,
		.from = args->mem_handle,
		.key = args->key,
		.len = args->len,
		.notify = args->notify,
		.imm = args->imm,
	};

	return lanes_stripe(conn, op, &all);
}

/* Into the chain, to be copied, or over several lanes. */
static NOINLINE int put_rest(struct verbs_conn *conn, struct vbn_op *op,
			     const struct put_args *args, uint32_t rkey)
{
	struct verbs_ctx *ctx = conn->ctx;
	struct lane *lane = &conn->lane[0];
	bool copied = args->len && !args->mem_handle;
	struct ibv_send_wr *wr;
	struct slot *slot;
	int err;

	if (args->len >= conn->stripe_min && !copied)
		return put_striped(conn, op, args);
	if (copied && args->len > lane->inline_max && !ctx->bounces.n)
		return -EAGAIN;
	if (args->notify && conn->striped) {
		err = lanes_fence(conn);
		if (err)
			return err;
		if (!post_room(lane, ctx))
			return post_refused(conn);
	}
	slot = take_data(ctx, lane, SLOT_PUT, op, args->key, args->mem_handle);
	wr = next_request(ctx, lane, slot);
	fill_put(lane, wr, args, rkey);
	if (copied)
		copy_short(ctx, lane, slot, wr, args);
	wr->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	commit(ctx, lane, wr, args->len, args->more);
	return 0;
}

static NOINLINE void alone_failed(struct verbs_conn *conn, int err)
{
	const struct ibv_send_wr *wr = &conn->ctx->alone_wr;

	post_failed(conn, wr, wr, err);
}

static inline void post_alone(struct lane *lane, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int err;

	lane->ctx->counters->doorbells++;
	err = qp_post(lane, wr, &bad);
	if (err)
		alone_failed(lane->conn, err);
}

int verbs_put(void *vconn, struct vbn_op *op, const struct put_args *args)
{
	struct verbs_conn *conn = vconn;
	struct verbs_ctx *ctx = conn->ctx;
	struct lane *lane = &conn->lane[0];
	struct ibv_send_wr *wr = &ctx->alone_wr;
	uint32_t rkey = 0;
	int err;

	if (!post_room(lane, ctx))
		return post_refused(conn);
	if (args->len) {
		err = rkey_of(lane, args->key, VBN_ACCESS_WRITE, &rkey);
		if (err)
			return err;
	}
	if (args->more || ctx->chain_n || conn->striped ||
	    (args->len > lane->inline_max &&
	     (!args->mem_handle || args->len >= conn->stripe_min)))
		return put_rest(conn, op, args, rkey);
	wr->wr_id =
		take_data(ctx, lane, SLOT_PUT, op, args->key, args->mem_handle)
			->wr_id;
	fill_put(lane, wr, args, rkey);
	post_alone(lane, wr);
	return 0;
}

static int get_striped(struct verbs_conn *conn, struct vbn_op *op,
		       const struct get_args *args)
{
	const struct stripe all = {
		.kind = SLOT_GET,
		.local = args->local,
		.remote = args->remote,
		.from = args->mem_handle,
		.key = args->key,
		.len = args->len,
	};

	return lanes_stripe(conn, op, &all);
}

int verbs_get(void *vconn, struct vbn_op *op, const struct get_args *args)
{
	struct verbs_conn *conn = vconn;
	struct verbs_ctx *ctx = conn->ctx;
	struct lane *lane = &conn->lane[0];
	struct ibv_send_wr *wr;
	struct slot *slot;
	uint32_t rkey = 0;
	bool alone;
	int err;

	if (!post_room(lane, ctx))
		return post_refused(conn);
	err = rkey_of(lane, args->key, VBN_ACCESS_READ, &rkey);
	if (err)
		return err;
	if (args->len >= conn->stripe_min)
		return get_striped(conn, op, args);
	slot = take_data(ctx, lane, SLOT_GET, op, args->key, args->mem_handle);
	alone = !args->more && !ctx->chain_n;
	wr = alone ? &ctx->alone_wr : next_request(ctx, lane, slot);
	wr->wr_id = slot->wr_id;
	wr->opcode = IBV_WR_RDMA_READ;
	wr->send_flags = alone ? IBV_SEND_SIGNALED : 0;
	set_sge(wr, args->local, args->len, lkey_of(lane, args->mem_handle));
	wr->num_sge = 1;
	wr->wr.rdma.remote_addr = args->remote;
	wr->wr.rdma.rkey = rkey;
	if (alone)
		post_alone(lane, wr);
	else
		commit(ctx, lane, wr, args->len, args->more);
	return 0;
}

int verbs_atomic(void *vconn, struct vbn_op *op, const struct atomic_args *args)
{
	struct verbs_conn *conn = vconn;
	struct verbs_ctx *ctx = conn->ctx;
	struct lane *lane = &conn->lane[0];
	struct ibv_send_wr *wr;
	struct slot *slot;
	uint32_t rkey = 0;
	int err;

	if (!ctx->job->atomics)
		return vbn_fail(-EOPNOTSUPP, "verbs: %s has no atomics",
				ctx->job->rail[0].name);
	if (!post_room(lane, ctx))
		return post_refused(conn);
	if (!ctx->cells.n)
		return -EAGAIN;
	err = rkey_of(lane, args->key, VBN_ACCESS_ATOMIC, &rkey);
	if (err)
		return err;
	slot = take_slot(ctx, lane, SLOT_ATOMIC, op);
	slot->result = args->result;
	slot->index = ctx->cells.items[--ctx->cells.n];
	wr = next_request(ctx, lane, slot);
	wr->opcode = args->compare_swap ? IBV_WR_ATOMIC_CMP_AND_SWP
					: IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr->send_flags = 0;
	set_sge(wr, ctx->arena + slot->index * 8u, 8,
		lkey_of(lane, ctx->arena_mr));
	wr->num_sge = 1;
	wr->wr.atomic.remote_addr = args->remote;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.compare_add =
		args->compare_swap ? args->compare : args->operand;
	wr->wr.atomic.swap = args->compare_swap ? args->operand : 0;
	commit(ctx, lane, wr, 8, args->more);
	return 0;
}

int verbs_flush(void *vconn, struct vbn_op *op)
{
	struct verbs_conn *conn = vconn;
	struct verbs_ctx *ctx = conn->ctx;
	unsigned n = 0;

	if (conn->broken)
		return -ECONNRESET;
	if (ctx->chain_n && ctx->chain_lane->conn == conn)
		post_chain(ctx);
	for (unsigned i = 0; i < conn->nlanes; i++) {
		const struct lane *lane = &conn->lane[i];

		if (lane_empty(lane))
			continue;
		if (lane->room <= 0)
			return -EAGAIN;
		n++;
	}
	if (!lanes_slots(ctx, n))
		return -EAGAIN;
	op->priv[2] = n;
	op->priv[3] = 0;
	for (unsigned i = 0; i < conn->nlanes; i++) {
		struct lane *lane = &conn->lane[i];

		if (lane_empty(lane))
			continue;
		lane_enders(lane);
		take_slot(ctx, lane, SLOT_FLUSH | SLOT_PART, op);
		lane->silent++;
	}
	if (!n)
		core_defer(ctx->core, op, 0);
	return 0;
}

static inline void no_data(struct ibv_send_wr *wr)
{
	wr->send_flags = 0;
	wr->num_sge = 0;
	wr->wr.rdma.remote_addr = 0;
	wr->wr.rdma.rkey = 0;
}

/* Its immediate; by lane 0 with what is free in the peer's ring. */
static inline void set_notice(struct ibv_send_wr *wr, const struct lane *lane,
			      uint32_t kind, uint32_t value)
{
	struct verbs_conn *conn = lane->conn;
	uint32_t units = lane == &conn->lane[0] ? conn->in.freed : 0;

	if (kind == NOTICE_DATA && units > DATA_UNITS)
		units = DATA_UNITS;
	wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	wr->imm_data = htonl(notice_pack(kind, value, conn->in_ring, units));
	conn->in.freed = (uint16_t)(conn->in.freed - units);
}

/* An immediate alone. */
static int post_bare(struct lane *lane, uint32_t kind, uint32_t value)
{
	struct verbs_conn *conn = lane->conn;
	struct verbs_ctx *ctx = conn->ctx;
	struct ibv_send_wr *wr;
	struct slot *slot;

	if (!post_room(lane, ctx))
		return post_refused(conn);
	slot = take_slot(ctx, lane, SLOT_MESSAGE, NULL);
	slot->index = NO_INDEX;
	wr = next_request(ctx, lane, slot);
	no_data(wr);
	set_notice(wr, lane, kind, value);
	ring(ctx, lane, wr);
	return 0;
}

int post_notice(struct verbs_conn *conn, uint32_t kind, uint32_t value)
{
	return post_bare(&conn->lane[0], kind, value);
}

int post_own(struct lane *lane, enum own_notice what, uint32_t value)
{
	return post_bare(lane, NOTICE_OWN, what | value << OWN_BITS);
}

void post_part(struct lane *lane, struct vbn_op *op, const struct stripe *all,
	       size_t off, size_t len)
{
	struct verbs_ctx *ctx = lane->conn->ctx;
	struct slot *slot = take_data(ctx, lane, all->kind | SLOT_PART, op,
				      all->key, all->from);
	struct ibv_send_wr *wr = next_request(ctx, lane, slot);

	no_data(wr);
	if (len) {
		wr->opcode = all->kind == SLOT_GET ? IBV_WR_RDMA_READ
						   : IBV_WR_RDMA_WRITE;
		set_sge(wr, all->local + off, len, lkey_of(lane, all->from));
		wr->num_sge = 1;
		wr->wr.rdma.remote_addr = all->remote + off;
		wr->wr.rdma.rkey = key_of(lane, all->key);
	} else {
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->imm_data = htonl(all->imm);
	}
	commit(ctx, lane, wr, len, false);
}

/* A request that writes @bytes where the peer expects its next message. */
static inline struct ibv_send_wr *mail_request(struct verbs_conn *conn,
					       struct slot *slot, uint32_t kind,
					       uint32_t value, size_t bytes)
{
	struct lane *lane = &conn->lane[0];
	struct ibv_send_wr *wr = next_request(conn->ctx, lane, slot);

	slot->index = NO_INDEX;
	set_notice(wr, lane, kind, value);
	wr->wr.rdma.remote_addr =
		mailbox_put(&conn->out, mailbox_units((uint32_t)bytes));
	wr->wr.rdma.rkey = conn->out.rkey;
	wr->send_flags = IBV_SEND_INLINE;
	wr->num_sge = 1;
	return wr;
}

int post_data(struct verbs_conn *conn, uint32_t value, const void *data,
	      size_t len)
{
	struct verbs_ctx *ctx = conn->ctx;
	struct lane *lane = &conn->lane[0];
	struct ibv_send_wr *wr;

	if (len > lane->inline_max)
		return post_message(conn, NOTICE_DATA, value, NULL, 0, data,
				    len);
	if (!post_room(lane, ctx))
		return post_refused(conn);
	wr = mail_request(conn, take_slot(ctx, lane, SLOT_MESSAGE, NULL),
			  NOTICE_DATA, value, len);
	set_sge(wr, data, len, 0); /* the device copies it at once */
	ring(ctx, lane, wr);
	return 0;
}

int post_message(struct verbs_conn *conn, uint32_t kind, uint32_t value,
		 const void *head, size_t head_len, const void *data,
		 size_t len)
{
	struct verbs_ctx *ctx = conn->ctx;
	struct lane *lane = &conn->lane[0];
	size_t bytes = head_len + len;
	bool inlined = bytes <= lane->inline_max && bytes <= INLINE_WANTED;
	struct ibv_send_wr *wr;
	struct slot *slot;
	uint8_t *copy;

	if (!post_room(lane, ctx))
		return post_refused(conn);
	if (!inlined && !ctx->bounces.n)
		return -EAGAIN;
	slot = take_slot(ctx, lane, SLOT_MESSAGE, NULL);
	wr = mail_request(conn, slot, kind, value, bytes);
	copy = ctx->chain_copy[wr - ctx->chain_wr];
	if (!inlined) {
		wr->send_flags = 0;
		slot->index = ctx->bounces.items[--ctx->bounces.n];
		copy = bounce_at(ctx, slot->index);
	}
	if (head_len)
		memcpy(copy, head, head_len);
	if (len)
		memcpy(copy + head_len, data, len);
	set_sge(wr, copy, bytes, lkey_of(lane, ctx->arena_mr));
	ring(ctx, lane, wr);
	return 0;
}

void post_kick(struct lane *lane)
{
	struct verbs_ctx *ctx = lane->conn->ctx;
	struct slot *fresh = ctx->kick_slots;
	struct ibv_send_wr *wr;

	if (!fresh)
		return;
	ctx->kick_slots = fresh->next;
	lane->room--;
	lane->kicked = true;
	wr = next_request(ctx, lane,
			  fill_slot(lane, fresh, SLOT_KICK | SLOT_KEPT, NULL));
	wr->opcode = IBV_WR_RDMA_WRITE;
	no_data(wr);
	commit(ctx, lane, wr, 0, false);
}
