/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pump posts an operation piece by piece: one that is longer than the
 * provider's limit, or whose local memory has to be staged. One operation an
 * endpoint is pumped at a time and later posts wait (-EAGAIN), so that the
 * order of posting holds. The operation completes when all its pieces have.
 *
 * While pumped, op->priv: 2 pieces in flight, 3 first error, 4 all posted.
 */
#include "core.h"

#include <errno.h>
#include <string.h>

static void piece_done(struct vbn_op *op);

void pieces_init(struct vbn_ctx *ctx)
{
	for (int i = 0; i < PIECES; i++) {
		ctx->pieces[i].ctx = ctx;
		ctx->pieces[i].op.done = piece_done;
		ctx->pieces[i].op.arg = &ctx->pieces[i];
		ctx->pieces[i].next_free = ctx->free_pieces;
		ctx->free_pieces = &ctx->pieces[i];
	}
}

void pieces_free(struct vbn_ctx *ctx)
{
	for (int i = 0; i < PIECES; i++)
		if (ctx->pieces[i].stage)
			vbn_pool_free(ctx->job->staging, ctx->pieces[i].stage);
}

static void piece_put_back(struct piece *piece)
{
	piece->next_free = piece->ctx->free_pieces;
	piece->ctx->free_pieces = piece;
}

static void note_error(struct vbn_op *op, int status)
{
	if (!op->priv[3])
		op->priv[3] = (uint64_t)(int64_t)status;
}

static bool is_over(const struct vbn_op *op)
{
	return op->priv[4] && !op->priv[2];
}

static void piece_done(struct vbn_op *op)
{
	struct piece *piece = op->arg;
	struct vbn_op *parent = piece->parent;
	struct vbn_ctx *ctx = piece->ctx;

	if (op->status) {
		note_error(parent, op->status);
		parent->wc = op->wc;
		parent->vendor = op->vendor;
	} else if (piece->staged && piece->dest) {
		memcpy(piece->dest, piece->stage, piece->len);
	}
	piece_put_back(piece);
	parent->priv[2]--;
	if (is_over(parent))
		core_complete(ctx, parent, (int)(int64_t)parent->priv[3]);
}

/* A free piece, out of the list; one with a stage if it must have one. */
static struct piece *find_piece(struct vbn_ctx *ctx, bool staged)
{
	struct piece **p = &ctx->free_pieces, *piece;

	while (*p && staged && !(*p)->stage)
		p = &(*p)->next_free;
	piece = *p;
	if (piece)
		*p = piece->next_free;
	return piece;
}

static bool has_stages(const struct vbn_ctx *ctx)
{
	for (int i = 0; i < PIECES; i++)
		if (ctx->pieces[i].stage)
			return true;
	return false;
}

/* A piece, staged if need be. NULL: none free now, or *err. */
static struct piece *take_piece(struct vbn_ctx *ctx, struct vbn_op *parent,
				bool staged, int *err)
{
	struct piece *piece = find_piece(ctx, staged);

	*err = 0;
	if (!piece && staged && !has_stages(ctx)) {
		/* There was no memory when the context was opened. */
		staging_prepare(ctx);
		piece = find_piece(ctx, true);
		*err = has_stages(ctx) ? 0 : -ENOMEM;
	}
	if (!piece)
		return NULL;
	piece->parent = parent;
	piece->staged = staged;
	return piece;
}

static int post_piece(struct vbn_ep *ep, struct piece *piece, size_t len)
{
	struct pump *pump = &ep->pump;
	const struct vbn_mem *mem = pump->mem;
	char *at = pump->local + pump->posted;
	bool last = pump->posted + len == pump->len;
	uint64_t remote = pump->remote + pump->posted;

	piece->len = len;
	piece->dest = NULL;
	if (piece->staged) {
		mem = memmap_find(ep->ctx->reader, piece->stage, len);
		if (pump->is_get)
			piece->dest = at;
		else
			memcpy(piece->stage, at, len);
		at = piece->stage;
	}
	piece->op.status = -EINPROGRESS;
	piece->op.wc = piece->op.vendor = 0;
	if (pump->is_get) {
		struct get_args args = {.local = at,
					.len = len,
					.mem = mem,
					.remote = remote,
					.key = pump->key};

		if (mem)
			args.mem_handle = mem->handles[ep->provider];
		return ep->ops->get(ep->conn, &piece->op, &args);
	}
	struct put_args args = {.local = at,
				.len = len,
				.mem = mem,
				.remote = remote,
				.key = pump->key,
				.notify = last && pump->notify,
				.imm = pump->imm};

	if (mem)
		args.mem_handle = mem->handles[ep->provider];
	return ep->ops->put(ep->conn, &piece->op, &args);
}

static void pump_stop(struct vbn_ep *ep, int status)
{
	struct vbn_op *op = ep->pump.op;

	/* Stopped short: the notify went with no piece. */
	if (ep->pump.notify && ep->pump.posted < ep->pump.len && ep->conn)
		core_credit_back(ep);
	ep->pump.op = NULL;
	ep_requick(ep);
	op->priv[4] = 1;
	if (status)
		note_error(op, status);
	if (is_over(op))
		core_defer(ep->ctx, op, (int)(int64_t)op->priv[3]);
}

bool pump_run(struct vbn_ep *ep)
{
	struct pump *pump = &ep->pump;
	const struct provider_caps *caps = ep->caps;
	bool staged;

	if (!pump->op || !ep->conn)
		return true;
	staged = !pump->mem && !caps->any_local;
	while (pump->posted < pump->len) {
		size_t n = pump->len - pump->posted;
		struct piece *piece;
		int err;

		if (n > caps->max_piece)
			n = caps->max_piece;
		if (staged && n > STAGE_BYTES)
			n = STAGE_BYTES;
		piece = take_piece(ep->ctx, pump->op, staged, &err);
		if (piece) {
			err = post_piece(ep, piece, n);
			if (err)
				piece_put_back(piece);
		} else if (!err) {
			return false;
		}
		if (err == -EAGAIN)
			return false;
		if (err) {
			pump_stop(ep, err);
			return true;
		}
		pump->op->priv[2]++;
		pump->posted += n;
		if (staged)
			ep->ctx->counters.staged_bytes += n;
	}
	pump_stop(ep, 0);
	return true;
}

/* ep->pump is filled. */
void pump_start(struct vbn_ep *ep)
{
	struct vbn_op *op = ep->pump.op;

	op->priv[2] = op->priv[3] = op->priv[4] = 0;
	ep_requick(ep);
	if (!pump_run(ep))
		ep_want_pump(ep);
}

void pump_fail(struct vbn_ep *ep, int status)
{
	if (ep->pump.op)
		pump_stop(ep, status);
}
