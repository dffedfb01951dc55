/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context's part: a completion queue and a shared receive queue per rail, the
 * slots of what is sent, and one registered arena that holds the results of
 * atomics and the copies of messages on their way. All sizes are fixed here,
 * from the device's caps, so that the data path never allocates; receives
 * posted and mailboxes alone grow, with the number of connections.
 */
#include "failover.h"
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
	err = register_all(job, ctx->arena, ctx->arena_bytes,
			   IBV_ACCESS_LOCAL_WRITE, "opening a context",
			   &ctx->arena_mr);
	if (err)
		goto unmap;
	err = free_list_init(&ctx->cells, CELLS);
	if (!err)
		err = free_list_init(&ctx->bounces, BOUNCES);
	if (!err)
		return 0;
	free(ctx->cells.items);
	register_free(job, ctx->arena_mr);
unmap:
	munmap(ctx->arena, ctx->arena_bytes);
	return err;
}

static void arena_destroy(struct verbs_ctx *ctx)
{
	free(ctx->bounces.items);
	free(ctx->cells.items);
	register_free(ctx->job, ctx->arena_mr);
	munmap(ctx->arena, ctx->arena_bytes);
}

static uint32_t lesser(uint32_t a, int b)
{
	return a < (uint32_t)b ? a : (uint32_t)b;
}

/*
 * Divide the completion queue among receives and sends, seven to one: receives
 * are what limits the number of connections. Each kind is bounded elsewhere by
 * its share, so their sum never overruns it. Rails' queues are alike, since
 * each may be the only one that is used.
 */
static int plan_sizes(struct verbs_ctx *ctx, uint32_t *cqe)
{
	uint32_t recv = RECV_LIMIT;

	*cqe = RECV_LIMIT + SEND_LIMIT;
	for (unsigned i = 0; i < ctx->nrails; i++) {
		const struct rail *rail = &ctx->job->rail[i];

		recv = lesser(recv, rail->attr.max_srq_wr);
		*cqe = lesser(*cqe, rail->attr.max_cqe);
		if (recv > *cqe / 8 * 7)
			recv = *cqe / 8 * 7;
		if (recv < RECV_SMALLEST || *cqe - recv < SEND_SMALLEST)
			return vbn_fail(
				-ENOSPC,
				"verbs: %s is too small: max_cqe %d, "
				"max_srq_wr %d, at least %u and %u are needed",
				rail->name, rail->attr.max_cqe,
				rail->attr.max_srq_wr, 8 * SEND_SMALLEST,
				RECV_SMALLEST);
	}
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
	uint32_t lanes = ctx->job->settings.qps * (uint32_t)ctx->nrails;
	uint32_t spares = ctx->recv_max / CONN_RECEIVES *
			  (lanes < LANES_MAX ? lanes : LANES_MAX);
	uint32_t last = ctx->nslots + spares;
	size_t bytes = (1 + last) * sizeof(*ctx->slots);
	int err = records_create(ctx, 1 + last);

	if (err)
		return err;
	ctx->slots = aligned_alloc(_Alignof(struct slot), bytes);
	if (!ctx->slots) {
		records_destroy(ctx);
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	}
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

static int queue_create(struct queues *queues, uint32_t cqe)
{
	struct rail *rail = queues->rail;
	int err;

	queues->channel = ibv_create_comp_channel(rail->device);
	if (!queues->channel)
		return limits_explain(rail, errno,
				      "creating a completion channel", 0);
	if (fcntl(queues->channel->fd, F_SETFL, O_NONBLOCK)) {
		err = vbn_fail(-errno, "verbs: %s: completion channel: %s",
			       rail->name, strerror(errno));
		goto destroy_channel;
	}
	queues->cq = ibv_create_cq(rail->device, (int)cqe, queues->ctx,
				   queues->channel, 0);
	if (queues->cq)
		return 0;
	err = limits_explain(rail, errno, "creating a completion queue",
			     cqe * sizeof(struct ibv_wc));
destroy_channel:
	ibv_destroy_comp_channel(queues->channel);
	return err;
}

static void queue_destroy(struct queues *queues)
{
	int err;

	if (queues->events_unacked)
		ibv_ack_cq_events(queues->cq, queues->events_unacked);
	err = ibv_destroy_cq(queues->cq);
	if (err)
		vbn_log(VBN_ERR, "verbs: %s: ibv_destroy_cq: %s",
			queues->rail->name, strerror(err));
	ibv_destroy_comp_channel(queues->channel);
}

static void cq_destroy(struct verbs_ctx *ctx)
{
	for (unsigned i = 0; i < ctx->nrails && ctx->queues[i].cq; i++)
		queue_destroy(&ctx->queues[i]);
	free(ctx->wc);
}

static int ring_create(struct verbs_ctx *ctx, uint32_t cqe)
{
	cqe *= ctx->nrails;
	ctx->wc = malloc((cqe + POLL_BATCH) * sizeof(*ctx->wc));
	if (!ctx->wc)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	ctx->wc_head = ctx->wc_tail = ctx->wc;
	ctx->wc_end = ctx->wc + cqe + POLL_BATCH;
	return 0;
}

static int cq_create(struct verbs_ctx *ctx)
{
	uint32_t cqe;
	int err = plan_sizes(ctx, &cqe);

	for (unsigned i = 0; i < ctx->nrails && !err; i++)
		err = queue_create(&ctx->queues[i], cqe);
	if (!err)
		err = ring_create(ctx, cqe);
	if (!err)
		err = merge_create(ctx);
	if (err)
		cq_destroy(ctx);
	return err;
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
	records_destroy(ctx);
destroy_cq:
	merge_destroy(ctx);
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
	ctx->nrails = ctx->job->nrails;
	for (unsigned i = 0; i < ctx->nrails; i++)
		ctx->queues[i] =
			(struct queues){.ctx = ctx, .rail = &ctx->job->rail[i]};
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
	records_destroy(ctx);
	merge_destroy(ctx);
	cq_destroy(ctx);
	arena_destroy(ctx);
	free(ctx);
}
