/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path. A post fills the next work request of the context's chain
 * and the next slot of the connection; without `more` the chain goes to the
 * device at once. The chain is one connection's: a post to another sends it
 * off first, and so does a chain of CHAIN_BYTES. Only a chain's last request
 * is signalled.
 *
 * Nothing here allocates, locks, or copies payload, but for messages, whose
 * contract is a copy: into the queue when inline, else into a bounce.
 *
 * An operation is taken before the device sees it, so what the device refuses
 * is completed later like any other failure, and breaks the connection.
 */
#include "internal.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

/* The device took the first @posted of the chain's @n requests. */
static void post_failed(struct verbs_conn *conn, unsigned posted, unsigned n,
			int err)
{
	struct verbs_ctx *ctx = conn->ctx;
	uint32_t first = conn->head - n;

	for (unsigned i = posted; i < n; i++) {
		struct slot *slot = &conn->slots[(first + i) & conn->mask];
		struct vbn_op *op = progress_release(ctx, slot, -EIO);

		slot->op = NULL;
		slot->kind = SLOT_VOID;
		if (!op)
			continue;
		op->wc = IBV_WC_GENERAL_ERR;
		op->vendor = (uint32_t)err;
		core_defer(ctx->core, op, -EIO);
	}
	progress_break(conn, "posting", IBV_WC_GENERAL_ERR, (uint32_t)err);
}

void post_chain(struct verbs_ctx *ctx)
{
	struct verbs_conn *conn = ctx->chain_conn;
	struct ibv_send_wr *bad = NULL;
	unsigned n = ctx->chain_n;
	int err;

	for (unsigned i = 0; i + 1 < n; i++)
		ctx->chain_wr[i].next = &ctx->chain_wr[i + 1];
	ctx->chain_wr[n - 1].next = NULL;
	ctx->chain_wr[n - 1].send_flags |= IBV_SEND_SIGNALED;
	ctx->chain_n = 0;
	ctx->chain_bytes = 0;
	ctx->counters->doorbells++;
	err = ibv_post_send(conn->qp, ctx->chain_wr, &bad);
	if (err)
		post_failed(conn, bad ? (unsigned)(bad - ctx->chain_wr) : 0, n,
			    err);
}

static inline int post_check(const struct verbs_conn *conn)
{
	if (conn->broken)
		return -ECONNRESET;
	if (conn->head - conn->tail > conn->mask || !conn->ctx->send_room)
		return -EAGAIN;
	return 0;
}

/* The next request of the chain, which becomes @conn's. */
static inline struct ibv_send_wr *chain_next(struct verbs_conn *conn)
{
	struct verbs_ctx *ctx = conn->ctx;

	if (ctx->chain_n && ctx->chain_conn != conn)
		post_chain(ctx);
	ctx->chain_conn = conn;
	return &ctx->chain_wr[ctx->chain_n];
}

/*
 * Bytes that wait for a doorbell are bytes that do not move: a chain ends
 * with the request that makes it worth a doorbell of its own.
 */
static inline void commit(struct verbs_conn *conn, struct ibv_send_wr *wr,
			  const struct slot *fill, size_t bytes, bool more)
{
	struct verbs_ctx *ctx = conn->ctx;

	wr->wr_id = wr_id(WR_SEND, conn->tag, conn->head);
	conn->slots[conn->head++ & conn->mask] = *fill;
	ctx->send_room--;
	ctx->chain_bytes += bytes;
	if (++ctx->chain_n == CHAIN_MAX || !more ||
	    ctx->chain_bytes >= CHAIN_BYTES)
		post_chain(ctx);
}

static inline void set_sge(struct ibv_send_wr *wr, int i, const void *addr,
			   size_t len, uint32_t lkey)
{
	wr->sg_list[i].addr = (uintptr_t)addr;
	wr->sg_list[i].length = (uint32_t)len;
	wr->sg_list[i].lkey = lkey;
}

/* The key is the region's announcement. */
static inline int rkey_of(const void *key, unsigned access, uint32_t *rkey)
{
	const struct blob *blob = key;
	struct announcement in;

	if (!blob || blob->len != sizeof(in))
		return vbn_fail(-EKEYREJECTED, "verbs: the region has no key "
					       "for this device");
	memcpy(&in, blob->data, sizeof(in));
	if (!(in.access & access))
		return vbn_fail(-EACCES,
				"verbs: the target registered this memory "
				"without %s access",
				access == VBN_ACCESS_READ    ? "read"
				: access == VBN_ACCESS_WRITE ? "write"
							     : "atomic");
	*rkey = in.rkey;
	return 0;
}

static inline uint32_t lkey_of(const void *mem_handle)
{
	return ((const struct ibv_mr *)mem_handle)->lkey;
}

int verbs_put(void *vconn, struct vbn_op *op, const struct put_args *args)
{
	struct verbs_conn *conn = vconn;
	struct slot slot = {.op = op, .kind = SLOT_PUT};
	struct ibv_send_wr *wr;
	uint32_t rkey = 0;
	int err = post_check(conn);

	if (!err && args->len)
		err = rkey_of(args->key, VBN_ACCESS_WRITE, &rkey);
	if (err)
		return err;
	wr = chain_next(conn);
	wr->opcode = IBV_WR_RDMA_WRITE;
	wr->send_flags = 0;
	wr->num_sge = 0;
	wr->wr.rdma.remote_addr = 0;
	wr->wr.rdma.rkey = rkey;
	if (args->notify) {
		wr->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		wr->imm_data = htonl(args->imm);
	}
	if (args->len) {
		set_sge(wr, 0, args->local, args->len,
			lkey_of(args->mem_handle));
		wr->num_sge = 1;
		wr->wr.rdma.remote_addr = args->remote;
		if (args->len <= conn->inline_max)
			wr->send_flags = IBV_SEND_INLINE;
	}
	commit(conn, wr, &slot, args->len, args->more);
	return 0;
}

int verbs_get(void *vconn, struct vbn_op *op, const struct get_args *args)
{
	struct verbs_conn *conn = vconn;
	struct slot slot = {.op = op, .kind = SLOT_GET};
	struct ibv_send_wr *wr;
	uint32_t rkey = 0;
	int err = post_check(conn);

	if (!err)
		err = rkey_of(args->key, VBN_ACCESS_READ, &rkey);
	if (err)
		return err;
	wr = chain_next(conn);
	wr->opcode = IBV_WR_RDMA_READ;
	wr->send_flags = 0;
	set_sge(wr, 0, args->local, args->len, lkey_of(args->mem_handle));
	wr->num_sge = 1;
	wr->wr.rdma.remote_addr = args->remote;
	wr->wr.rdma.rkey = rkey;
	commit(conn, wr, &slot, args->len, args->more);
	return 0;
}

int verbs_atomic(void *vconn, struct vbn_op *op, const struct atomic_args *args)
{
	struct verbs_conn *conn = vconn;
	struct verbs_ctx *ctx = conn->ctx;
	struct slot slot = {
		.op = op, .result = args->result, .kind = SLOT_ATOMIC};
	struct ibv_send_wr *wr;
	uint32_t rkey = 0;
	int err = post_check(conn);

	if (!ctx->job->atomics)
		return vbn_fail(-EOPNOTSUPP, "verbs: %s has no atomics",
				ctx->job->name);
	if (!err && !ctx->cells.n)
		err = -EAGAIN;
	if (!err)
		err = rkey_of(args->key, VBN_ACCESS_ATOMIC, &rkey);
	if (err)
		return err;
	slot.index = ctx->cells.items[--ctx->cells.n];
	wr = chain_next(conn);
	wr->opcode = args->compare_swap ? IBV_WR_ATOMIC_CMP_AND_SWP
					: IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr->send_flags = 0;
	set_sge(wr, 0, ctx->arena + slot.index * 8u, 8, ctx->arena_mr->lkey);
	wr->num_sge = 1;
	wr->wr.atomic.remote_addr = args->remote;
	wr->wr.atomic.rkey = rkey;
	wr->wr.atomic.compare_add =
		args->compare_swap ? args->compare : args->operand;
	wr->wr.atomic.swap = args->compare_swap ? args->operand : 0;
	commit(conn, wr, &slot, 8, args->more);
	return 0;
}

int verbs_flush(void *vconn, struct vbn_op *op)
{
	struct verbs_conn *conn = vconn;
	struct verbs_ctx *ctx = conn->ctx;
	struct slot slot = {.op = op, .kind = SLOT_FLUSH};

	if (conn->broken)
		return -ECONNRESET;
	if (conn->head - conn->tail > conn->mask)
		return -EAGAIN;
	if (ctx->chain_n && ctx->chain_conn == conn)
		post_chain(ctx);
	if (conn->head == conn->tail)
		core_defer(ctx->core, op, 0);
	else
		conn->slots[conn->head++ & conn->mask] = slot;
	return 0;
}

int verbs_message(void *vconn, const struct message_header *header,
		  const void *data, size_t len)
{
	struct verbs_conn *conn = vconn;
	struct verbs_ctx *ctx = conn->ctx;
	struct slot slot = {.kind = SLOT_MESSAGE, .index = NO_INDEX};
	size_t bytes = sizeof(*header) + len;
	struct ibv_send_wr *wr;
	uint8_t *bounce;
	int err = post_check(conn);

	if (err)
		return err;
	if (bytes <= conn->inline_max) {
		wr = chain_next(conn);
		wr->send_flags = IBV_SEND_INLINE;
		set_sge(wr, 0, header, sizeof(*header), 0);
		set_sge(wr, 1, data, len, 0);
		wr->num_sge = len ? 2 : 1;
	} else {
		if (!ctx->bounces.n)
			return -EAGAIN;
		slot.index = ctx->bounces.items[--ctx->bounces.n];
		bounce = ctx->arena + CELLS * 8u + slot.index * MESSAGE_BYTES;
		memcpy(bounce, header, sizeof(*header));
		if (len)
			memcpy(bounce + sizeof(*header), data, len);
		wr = chain_next(conn);
		wr->send_flags = 0;
		set_sge(wr, 0, bounce, bytes, ctx->arena_mr->lkey);
		wr->num_sge = 1;
	}
	wr->opcode = IBV_WR_SEND;
	commit(conn, wr, &slot, bytes, false);
	return 0;
}
