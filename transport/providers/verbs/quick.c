/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The quick way of short puts (struct quick): inline, signalled, by lane 0, and
 * posted at once. The request is written but for what differs; what is needed
 * after the post is kept in memory, not in registers that would have to be
 * saved; all that is rare is out of line.
 */
#include "slots.h"

static __attribute__((noinline)) int quick_refused(struct lane *lane)
{
	int err = post_refused(lane->conn);

	lane->room++;
	lane->ctx->counters->again += err == -EAGAIN;
	return err;
}

/* It was taken, and is over later. */
static __attribute__((noinline)) int quick_failed(struct lane *lane, int err)
{
	const struct ibv_send_wr *wr = &lane->ctx->quick_wr;

	post_failed(lane->conn, wr, wr, err);
	return 0;
}

/* What is kept over the post is in memory, so that no register is saved. */
static inline __attribute__((always_inline)) int quick_put(
	struct quick *quick, struct vbn_op *op, const void *local, size_t len,
	uint64_t key, uint64_t remote, bool builders)
{
	struct lane *lane = (struct lane *)quick;
	struct verbs_ctx *ctx = lane->ctx;
	struct ibv_send_wr *wr = &ctx->quick_wr;
	struct {
		struct ibv_send_wr *bad;
		struct lane *lane;
	} kept;
	struct slot *fresh;
	int err;

	kept.lane = lane;
	if (__builtin_expect(--lane->room < 0, 0))
		return quick_refused(lane);
	ctx->quick_sge.addr = (uintptr_t)local;
	ctx->quick_sge.length = (uint32_t)len;
	wr->wr.rdma.remote_addr = remote;
	wr->wr.rdma.rkey = (uint32_t)key;
	fresh = ctx->free_slots;
	if (__builtin_expect(!fresh, 0))
		return quick_refused(lane);
	ctx->free_slots = fresh->next;
	wr->wr_id = fill_slot(lane, fresh, SLOT_PUT, op)->wr_id;
	put_begin(ctx->counters, op, len);
	ctx->counters->doorbells++;
	err = builders ? qp_build(lane->builder, wr, &kept.bad)
		       : ibv_post_send(lane->qp, wr, &kept.bad);
	if (__builtin_expect(err, 0))
		return quick_failed(kept.lane, err);
	return err;
}

static int quick_post(struct quick *quick, struct vbn_op *op, const void *local,
		      size_t len, uint64_t key, uint64_t remote)
{
	return quick_put(quick, op, local, len, key, remote, false);
}

static int quick_build(struct quick *quick, struct vbn_op *op,
		       const void *local, size_t len, uint64_t key,
		       uint64_t remote)
{
	return quick_put(quick, op, local, len, key, remote, true);
}

static bool quick_key(const void *key, uint64_t *rkey)
{
	const struct blob *blob = key;
	const struct announcement *in = (const void *)blob->data;

	*rkey = in->rkey[0];
	return blob->len > sizeof(*in) && (in->access & VBN_ACCESS_WRITE);
}

struct quick *verbs_quick(void *vconn)
{
	struct verbs_conn *conn = vconn;
	struct lane *lane = &conn->lane[0];

	lane->quick.put = lane->builder ? quick_build : quick_post;
	lane->quick.key = quick_key;
	/* a key of the peer's first rail: what moves to another cannot be */
	if (conn->npairs == 1 && lane->peer_rail == 0)
		conn->quick_max = lane->inline_max;
	if (!conn->ctx->chain_n || conn->ctx->chain_lane->conn != conn)
		quick_open(conn);
	return &lane->quick;
}
