/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context's part: one completion queue, one shared receive queue, the slots
 * of what is sent, and one registered arena that holds the results of atomics
 * and the copies of messages on their way. All sizes are fixed here, from the
 * device's caps, so that the data path never allocates; receives posted and
 * mailboxes alone grow, with the number of connections.
 */
#include "internal.h"
#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RECV_SMALLEST (CONN_RECEIVES + RECV_BATCH)
#define SEND_SMALLEST (2u * SLOTS_KEPT)

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
 * Divide the completion queue among receives and sends, seven to one: receives
 * are what limits the number of connections. Each kind is bounded elsewhere by
 * its share, so their sum never overruns it.
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
	if (recv > *cqe / 8 * 7)
		recv = *cqe / 8 * 7;
	if (recv < RECV_SMALLEST || *cqe - recv < SEND_SMALLEST)
		return vbn_fail(-ENOSPC,
				"verbs: %s is too small: max_cqe %d, "
				"max_srq_wr %d, at least %u and %u are needed",
				ctx->job->name, attr->max_cqe, attr->max_srq_wr,
				8 * SEND_SMALLEST, RECV_SMALLEST);
	ctx->recv_max = recv;
	ctx->nslots = *cqe - recv;
	if (ctx->nslots > SEND_LIMIT)
		ctx->nslots = SEND_LIMIT;
	*cqe = recv + ctx->nslots;
	return 0;
}

static int slots_create(struct verbs_ctx *ctx)
{
	/* a spare for each lane: receives limit how many there can be */
	uint32_t spares =
		ctx->recv_max / CONN_RECEIVES * ctx->job->settings.qps;
	uint32_t last = ctx->nslots + spares;
	size_t bytes = (1 + last) * sizeof(*ctx->slots);

	ctx->slots = aligned_alloc(_Alignof(struct slot), bytes);
	if (!ctx->slots)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	memset(ctx->slots, 0, bytes);
	for (uint32_t i = last; i > 0; i--) {
		struct slot **list = i > ctx->nslots  ? &ctx->spare_slots
				     : i > SLOTS_KEPT ? &ctx->free_slots
						      : &ctx->kick_slots;

		ctx->slots[i].wr_id = i * sizeof(*ctx->slots);
		ctx->slots[i].next = *list;
		*list = &ctx->slots[i];
	}
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
	ctx->wc = malloc((cqe + POLL_BATCH) * sizeof(*ctx->wc));
	ctx->wc_head = ctx->wc_tail = ctx->wc;
	ctx->wc_end = ctx->wc + cqe + POLL_BATCH;
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

static int parts_create(struct verbs_ctx *ctx)
{
	int err = arena_create(ctx);

	if (err)
		return err;
	err = cq_create(ctx);
	if (err)
		goto destroy_arena;
	err = slots_create(ctx);
	if (err)
		goto destroy_cq;
	err = rings_init(ctx);
	if (err)
		goto free_slots;
	err = srq_create(ctx);
	if (!err)
		return 0;
	rings_destroy(ctx);
free_slots:
	free(ctx->slots);
destroy_cq:
	cq_destroy(ctx);
destroy_arena:
	arena_destroy(ctx);
	return err;
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
	for (int i = 0; i < CHAIN_MAX; i++)
		ctx->chain_wr[i].sg_list = &ctx->chain_sge[i];
	ctx->alone_wr.sg_list = &ctx->alone_sge;
	ctx->quick_wr.sg_list = &ctx->quick_sge;
	ctx->quick_wr.num_sge = 1;
	ctx->quick_wr.opcode = IBV_WR_RDMA_WRITE;
	ctx->quick_wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
	err = parts_create(ctx);
	if (err) {
		free(ctx);
		return err;
	}
	events_add(ctx, address);
	*pctx = ctx;
	return 0;
}

void verbs_ctx_close(void *pctx)
{
	struct verbs_ctx *ctx = pctx;

	events_remove(ctx);
	conn_bury(ctx);
	srq_destroy(ctx);
	rings_destroy(ctx);
	free(ctx->slots);
	cq_destroy(ctx);
	arena_destroy(ctx);
	free(ctx);
}
