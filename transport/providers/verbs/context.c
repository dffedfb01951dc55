/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context's part: one completion queue, one shared receive queue, and one
 * registered arena that holds the results of atomics and the copies of
 * messages on their way. All sizes are fixed here, from the device's caps, so
 * that the data path never allocates; receive buffers alone grow, with the
 * number of connections.
 */
#include "internal.h"
#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CQ_SMALLEST (2u * CONN_RECEIVES)

static int free_list_init(struct free_list *list, uint32_t n)
{
	list->items = malloc(n * sizeof(*list->items));
	if (!list->items)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	for (uint32_t i = 0; i < n; i++)
		list->items[i] = n - 1 - i;
	list->n = n;
	return 0;
}

static int arena_create(struct verbs_ctx *ctx)
{
	struct verbs_job *job = ctx->job;
	int err;

	ctx->arena_bytes = CELLS * sizeof(uint64_t) + BOUNCES * MESSAGE_BYTES;
	ctx->arena = mmap(NULL, ctx->arena_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (ctx->arena == MAP_FAILED)
		return vbn_fail(-ENOMEM, "verbs: no memory for a context");
	ctx->arena_mr = ibv_reg_mr(job->pd, ctx->arena, ctx->arena_bytes,
				   IBV_ACCESS_LOCAL_WRITE);
	if (!ctx->arena_mr) {
		err = limits_explain(job, errno, "opening a context",
				     ctx->arena_bytes);
		goto unmap;
	}
	atomic_fetch_add(&job->mrs, 1);
	err = free_list_init(&ctx->cells, CELLS);
	if (!err)
		err = free_list_init(&ctx->bounces, BOUNCES);
	if (!err)
		return 0;
	free(ctx->cells.items);
	ibv_dereg_mr(ctx->arena_mr);
	atomic_fetch_sub(&job->mrs, 1);
unmap:
	munmap(ctx->arena, ctx->arena_bytes);
	return err;
}

static void arena_destroy(struct verbs_ctx *ctx)
{
	free(ctx->bounces.items);
	free(ctx->cells.items);
	ibv_dereg_mr(ctx->arena_mr);
	atomic_fetch_sub(&ctx->job->mrs, 1);
	munmap(ctx->arena, ctx->arena_bytes);
}

/*
 * Divide the completion queue among receives and sends; each kind is bounded
 * elsewhere by its share, so their sum never overruns it.
 */
static int plan_sizes(struct verbs_ctx *ctx, uint32_t *cqe)
{
	const struct ibv_device_attr *attr = &ctx->job->attr;
	uint32_t recv = RECV_LIMIT;

	if (recv > (uint32_t)attr->max_srq_wr)
		recv = (uint32_t)attr->max_srq_wr;
	*cqe = RECV_LIMIT + SEND_LIMIT;
	if (*cqe > (uint32_t)attr->max_cqe)
		*cqe = (uint32_t)attr->max_cqe;
	if (recv > *cqe / 4 * 3)
		recv = *cqe / 4 * 3;
	if (recv < CONN_RECEIVES + POLL_BATCH)
		return vbn_fail(-ENOSPC,
				"verbs: %s is too small: max_cqe %d, "
				"max_srq_wr %d, at least %u are needed",
				ctx->job->name, attr->max_cqe, attr->max_srq_wr,
				CQ_SMALLEST);
	ctx->recv_max = recv;
	ctx->conns_max = (recv - POLL_BATCH) / CONN_RECEIVES;
	ctx->send_room = *cqe - recv;
	if (ctx->send_room > SEND_LIMIT)
		ctx->send_room = SEND_LIMIT;
	*cqe = recv + ctx->send_room;
	return 0;
}

static int cq_create(struct verbs_ctx *ctx)
{
	struct verbs_job *job = ctx->job;
	uint32_t cqe;
	int err = plan_sizes(ctx, &cqe);

	if (err)
		return err;
	ctx->channel = ibv_create_comp_channel(job->device);
	if (!ctx->channel)
		return limits_explain(job, errno,
				      "creating a completion channel", 0);
	if (fcntl(ctx->channel->fd, F_SETFL, O_NONBLOCK)) {
		err = vbn_fail(-errno, "verbs: %s: completion channel: %s",
			       job->name, strerror(errno));
		goto destroy_channel;
	}
	ctx->cq = ibv_create_cq(job->device, (int)cqe, ctx, ctx->channel, 0);
	if (!ctx->cq) {
		err = limits_explain(job, errno, "creating a completion queue",
				     cqe * sizeof(struct ibv_wc));
		goto destroy_channel;
	}
	ctx->wc_size = cqe + POLL_BATCH;
	ctx->wc = malloc(ctx->wc_size * sizeof(*ctx->wc));
	if (ctx->wc)
		return 0;
	err = vbn_fail(-ENOMEM, "verbs: out of memory");
	ibv_destroy_cq(ctx->cq);
destroy_channel:
	ibv_destroy_comp_channel(ctx->channel);
	return err;
}

static void cq_destroy(struct verbs_ctx *ctx)
{
	int err;

	if (ctx->events_unacked)
		ibv_ack_cq_events(ctx->cq, ctx->events_unacked);
	err = ibv_destroy_cq(ctx->cq);
	if (err)
		vbn_log(VBN_ERR, "verbs: %s: ibv_destroy_cq: %s",
			ctx->job->name, strerror(err));
	ibv_destroy_comp_channel(ctx->channel);
	free(ctx->wc);
}

static void init_requests(struct verbs_ctx *ctx)
{
	for (int i = 0; i < CHAIN_MAX; i++)
		ctx->chain_wr[i].sg_list = ctx->chain_sge[i];
	for (int i = 0; i < POLL_BATCH; i++) {
		ctx->repost_wr[i].sg_list = &ctx->repost_sge[i];
		ctx->repost_wr[i].num_sge = 1;
		ctx->repost_sge[i].length = MESSAGE_BYTES;
	}
}

int verbs_ctx_open(void *pjob, struct vbn_ctx *core, void **pctx,
		   struct blob *address)
{
	struct verbs_ctx *ctx = calloc(1, sizeof(*ctx));
	int err;

	if (!ctx)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	ctx->job = pjob;
	ctx->core = core;
	ctx->counters = core_counters(core);
	init_requests(ctx);
	err = arena_create(ctx);
	if (err)
		goto free_ctx;
	err = cq_create(ctx);
	if (err)
		goto destroy_arena;
	err = srq_create(ctx);
	if (err)
		goto destroy_cq;
	offer_pack_address(address, &ctx->job->port);
	*pctx = ctx;
	return 0;
destroy_cq:
	cq_destroy(ctx);
destroy_arena:
	arena_destroy(ctx);
free_ctx:
	free(ctx);
	return err;
}

void verbs_ctx_close(void *pctx)
{
	struct verbs_ctx *ctx = pctx;

	conn_bury(ctx);
	srq_destroy(ctx);
	cq_destroy(ctx);
	arena_destroy(ctx);
	free(ctx);
}
