/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recording. A request that was under way by a rail that went down has to be
 * posted again by another, whose keys are others. So a connection of several
 * rails writes each request down, with the keys of all rails, and what is short
 * with its bytes, which the caller may change once it was posted.
 *
 * What posts need not know: lane->sender is a queue pair of our own, whose
 * context's post_send records, and then posts to the device's. A lane that is
 * going down only records, and so does one that the device refuses.
 */
#include "failover.h"
#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct record {
	uint64_t local, remote;
	uint32_t len, imm; /* imm as in the request */
	uint32_t lkey[RAILS_MAX], rkey[RAILS_MAX];
	enum ibv_wr_opcode opcode;
	bool copied;
	uint8_t copy[INLINE_WANTED];
};

static size_t slot_number(const struct verbs_ctx *ctx, const struct slot *slot)
{
	return (size_t)(slot - ctx->slots);
}

static struct record *record_of(const struct slot *slot)
{
	const struct verbs_ctx *ctx = slot->lane->ctx;

	return &ctx->records[slot_number(ctx, slot)];
}

static void take_local(struct record *r, const struct slot *slot,
		       const struct ibv_send_wr *wr)
{
	const struct registration *mr = slot->from;

	r->local = wr->sg_list->addr;
	r->copied = wr->send_flags & IBV_SEND_INLINE;
	if (r->copied) {
		memcpy(r->copy, (const void *)(uintptr_t)r->local, r->len);
		return;
	}
	if (slot_kind(slot) == SLOT_MESSAGE || slot_kind(slot) == SLOT_PUT_COPY)
		mr = slot->lane->ctx->arena_mr;
	memcpy(r->lkey, mr->lkey, sizeof(r->lkey));
}

static void take_keys(struct record *r, const struct slot *slot)
{
	const struct verbs_conn *conn = slot->lane->conn;
	const struct announcement *in;
	size_t n;

	if (slot_kind(slot) == SLOT_MESSAGE) {
		for (unsigned i = 0; i < conn->npairs; i++)
			r->rkey[conn->pair[i].peer_rail] =
				conn->pair[i].out_rkey[conn->out_ring];
		return;
	}
	in = (const void *)slot->key->data;
	n = (slot->key->len - sizeof(*in)) / sizeof(in->rkey[0]);
	if (n > RAILS_MAX)
		n = RAILS_MAX;
	memcpy(r->rkey, in->rkey, n * sizeof(in->rkey[0]));
}

static void record(const struct ibv_send_wr *wr, const struct slot *slot)
{
	struct record *r = record_of(slot);

	r->opcode = wr->opcode;
	r->remote = wr->wr.rdma.remote_addr;
	r->len = wr->num_sge ? wr->sg_list->length : 0;
	r->imm = wr->imm_data;
	r->copied = false;
	if (slot_kind(slot) == SLOT_ATOMIC || !r->len)
		return; /* never again, or nothing to write down */
	take_local(r, slot, wr);
	take_keys(r, slot);
}

static int send_real(struct lane *lane, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	if (lane->recorded_builder)
		return qp_build(lane->recorded_builder, wr, bad);
	return ibv_post_send(lane->qp, wr, bad);
}

static int record_post(struct ibv_qp *qp, struct ibv_send_wr *wr,
		       struct ibv_send_wr **bad)
{
	struct lane *lane = qp->qp_context;

	for (const struct ibv_send_wr *i = wr; i; i = i->next) {
		record(i, wr_slot(lane->ctx, i->wr_id));
		lane->tx += i->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	}
	if (lane->state != LANE_LIVE || lane->refused ||
	    !send_real(lane, wr, bad))
		return 0;
	if (!failover_can(lane))
		return EIO;
	failover_refused(lane);
	return 0;
}

static struct ibv_context recording = {.ops = {.post_send = record_post}};

int record_lane(struct lane *lane)
{
	if (!lane->sender)
		lane->sender = calloc(1, sizeof(*lane->sender));
	if (!lane->sender)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	lane->sender->context = &recording;
	lane->sender->qp_context = lane;
	lane->recorded_builder = lane->builder;
	lane->builder = NULL;
	if (lane->inline_max > INLINE_WANTED)
		lane->inline_max = INLINE_WANTED;
	return 0;
}

int records_create(struct verbs_ctx *ctx, uint32_t nslots)
{
	size_t bytes = nslots * sizeof(*ctx->records);
	void *p;
	int err;

	if (ctx->nrails == 1)
		return 0;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return vbn_fail(-ENOMEM, "verbs: no memory for a context");
	err = register_all(ctx->job, p, bytes, IBV_ACCESS_LOCAL_WRITE,
			   "opening a context", &ctx->records_mr);
	if (err) {
		munmap(p, bytes);
		return err;
	}
	ctx->records = p;
	ctx->records_bytes = bytes;
	return 0;
}

void records_destroy(struct verbs_ctx *ctx)
{
	if (!ctx->records)
		return;
	register_free(ctx->job, ctx->records_mr);
	munmap(ctx->records, ctx->records_bytes);
}

bool record_has_imm(const struct slot *slot)
{
	return !slot_silent(slot) &&
	       record_of(slot)->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}

void record_replay(struct lane *lane, struct slot *slot, const struct slot *old)
{
	struct verbs_ctx *ctx = lane->ctx;
	struct ibv_sge sge = {.addr = 0};
	struct ibv_send_wr wr = {.wr_id = slot->wr_id,
				 .sg_list = &sge,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct record *r;

	ctx->records[slot_number(ctx, slot)] =
		ctx->records[slot_number(ctx, old)];
	r = record_of(slot);
	wr.opcode = r->opcode;
	wr.imm_data = r->imm;
	if (r->len) {
		wr.num_sge = 1;
		wr.wr.rdma.remote_addr = r->remote;
		wr.wr.rdma.rkey = r->rkey[lane->peer_rail];
		sge.addr = r->copied ? (uintptr_t)r->copy : r->local;
		sge.length = r->len;
		sge.lkey = r->copied ? ctx->records_mr->lkey[lane->rail]
				     : r->lkey[lane->rail];
	}
	lane->tx += r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	ctx->counters->doorbells++;
	if (lane->state == LANE_LIVE && !lane->refused &&
	    send_real(lane, &wr, &bad))
		failover_refused(lane);
}
