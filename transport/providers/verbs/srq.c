/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The receive buffers of a context, shared by its connections. Posted are at
 * least CONN_RECEIVES for each connection and one batch more (what is being
 * dispatched is not posted), so a peer that keeps to its credits never meets
 * an empty queue. Slots live in registered chunks, which the control thread
 * adds and nobody removes; a slot is either the device's, held by a
 * connection, being dispatched, or waiting in the batch to be posted.
 */
#include "internal.h"
#include "error.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_BYTES ((size_t)RECV_CHUNK * RECV_STRIDE)

_Static_assert(RECV_STRIDE >= MESSAGE_BYTES + sizeof(struct held_note),
	       "a receive slot holds a message and a note");
_Static_assert((RECV_STRIDE - sizeof(struct held_note)) % 8 == 0,
	       "notes are aligned");

int srq_create(struct verbs_ctx *ctx)
{
	struct ibv_srq_init_attr attr = {
		.attr = {.max_wr = ctx->recv_max, .max_sge = 1},
	};

	ctx->srq = ibv_create_srq(ctx->job->pd, &attr);
	if (!ctx->srq)
		return limits_explain(ctx->job, errno,
				      "creating a shared receive queue",
				      ctx->recv_max * sizeof(struct ibv_sge));
	return 0;
}

static void chunk_free(struct verbs_ctx *ctx, struct recv_chunk *chunk)
{
	ibv_dereg_mr(chunk->mr);
	atomic_fetch_sub(&ctx->job->mrs, 1);
	munmap(chunk->base, CHUNK_BYTES);
}

void srq_destroy(struct verbs_ctx *ctx)
{
	int err = ibv_destroy_srq(ctx->srq);

	if (err)
		vbn_log(VBN_ERR, "verbs: %s: ibv_destroy_srq: %s",
			ctx->job->name, strerror(err));
	for (unsigned i = 0; i < atomic_load(&ctx->nchunks); i++)
		chunk_free(ctx, &ctx->chunks[i]);
}

static int post_first(struct verbs_ctx *ctx, unsigned chunk, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = chunk * RECV_CHUNK + i;
		struct ibv_sge sge = {
			.addr = (uintptr_t)srq_buffer(ctx, slot),
			.length = MESSAGE_BYTES,
			.lkey = ctx->chunks[chunk].mr->lkey,
		};
		struct ibv_recv_wr *bad,
			wr = {
				.wr_id = wr_id(WR_RECV, 0, slot),
				.sg_list = &sge,
				.num_sge = 1,
			};
		int err = ibv_post_srq_recv(ctx->srq, &wr, &bad);

		if (err)
			return vbn_fail(-err,
					"verbs: %s: posting receive buffers: "
					"%s",
					ctx->job->name, strerror(err));
		ctx->recv_posted++;
	}
	return 0;
}

static int chunk_add(struct verbs_ctx *ctx)
{
	unsigned at = atomic_load(&ctx->nchunks);
	struct recv_chunk *chunk = &ctx->chunks[at];
	uint32_t n = ctx->recv_max - ctx->recv_posted;

	if (n > RECV_CHUNK)
		n = RECV_CHUNK;
	chunk->base = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (chunk->base == MAP_FAILED)
		return vbn_fail(-ENOMEM,
				"verbs: no memory for receive "
				"buffers (%zu bytes)",
				CHUNK_BYTES);
	chunk->mr = ibv_reg_mr(ctx->job->pd, chunk->base, CHUNK_BYTES,
			       IBV_ACCESS_LOCAL_WRITE);
	if (!chunk->mr) {
		int err = limits_explain(ctx->job, errno,
					 "registering receive buffers",
					 CHUNK_BYTES);

		munmap(chunk->base, CHUNK_BYTES);
		return err;
	}
	atomic_fetch_add(&ctx->job->mrs, 1);
	atomic_store_explicit(&ctx->nchunks, at + 1, memory_order_release);
	return post_first(ctx, at, n);
}

int srq_reserve(struct verbs_ctx *ctx)
{
	uint32_t conns = atomic_load(&ctx->conns) + 1;

	if (conns > ctx->conns_max)
		return vbn_fail(-ENOSPC,
				"verbs: a context on %s serves %u connections "
				"at most (max_srq_wr %d, max_cqe %d, %u "
				"receives each); open more contexts",
				ctx->job->name, ctx->conns_max,
				ctx->job->attr.max_srq_wr,
				ctx->job->attr.max_cqe, CONN_RECEIVES);
	while (ctx->recv_posted < conns * CONN_RECEIVES + POLL_BATCH) {
		int err = chunk_add(ctx);

		if (err)
			return err;
	}
	atomic_fetch_add(&ctx->conns, 1);
	return 0;
}

void srq_unreserve(struct verbs_ctx *ctx)
{
	atomic_fetch_sub(&ctx->conns, 1);
}

void srq_flush(struct verbs_ctx *ctx)
{
	struct ibv_recv_wr *bad = NULL;
	unsigned n = ctx->repost_n;
	int err;

	if (!n)
		return;
	for (unsigned i = 0; i + 1 < n; i++)
		ctx->repost_wr[i].next = &ctx->repost_wr[i + 1];
	ctx->repost_wr[n - 1].next = NULL;
	ctx->repost_n = 0;
	err = ibv_post_srq_recv(ctx->srq, ctx->repost_wr, &bad);
	/* cannot happen but on a dead device; peers see it as no room */
	if (err)
		vbn_log(VBN_ERR,
			"verbs: %s: posting receive buffers: %s; %u of them "
			"are lost",
			ctx->job->name, strerror(err),
			(unsigned)(ctx->repost_wr + n - bad));
}

void srq_repost(struct verbs_ctx *ctx, uint32_t slot)
{
	unsigned i = ctx->repost_n;

	ctx->repost_wr[i].wr_id = wr_id(WR_RECV, 0, slot);
	ctx->repost_sge[i].addr = (uintptr_t)srq_buffer(ctx, slot);
	ctx->repost_sge[i].lkey = ctx->chunks[slot / RECV_CHUNK].mr->lkey;
	if (++ctx->repost_n == POLL_BATCH)
		srq_flush(ctx);
}
