/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake verbs device: posting, by ibv_post_send() and by the builders of
 * ibv_wr_*. Inline data is copied here, other data when the request is carried
 * out, so that a buffer that is used again too early shows.
 */
#include "fake_verbs_impl.h"

#include <errno.h>
#include <string.h>

static struct fake_wr *slot_at(struct fake_qp *qp, uint32_t i)
{
	return &qp->ring[i % qp->room];
}

static uint8_t *inline_at(struct fake_qp *qp, uint32_t i)
{
	return qp->inline_ring + (size_t)(i % qp->room) * qp->inline_max;
}

/* May a request be posted at all? */
static int check_post(const struct fake_qp *qp, uint32_t ahead)
{
	enum ibv_qp_state state = qp->ex.qp_base.state;

	if (fake_device_of(qp->ex.qp_base.context)->broken)
		return EIO;
	if (state != IBV_QPS_RTS && state != IBV_QPS_ERR)
		return EINVAL;
	if (qp->head + ahead - qp->tail >= qp->room)
		return ENOMEM;
	return fake_fault(FAKE_POST_SEND);
}

static void count(const struct fake_wr *slot)
{
	fake.counts.requests++;
	if (slot->flags & IBV_SEND_INLINE)
		fake.counts.inlined++;
	if (slot->flags & IBV_SEND_SIGNALED)
		fake.counts.signalled++;
}

static int copy_inline(struct fake_qp *qp, uint32_t at, struct fake_wr *slot,
		       const struct ibv_sge *sge, int n)
{
	uint8_t *to = inline_at(qp, at);
	size_t bytes = 0;

	for (int i = 0; i < n; i++) {
		if (bytes + sge[i].length > qp->inline_max)
			return EINVAL;
		if (sge[i].length)
			memcpy(to + bytes, (void *)(uintptr_t)sge[i].addr,
			       sge[i].length);
		bytes += sge[i].length;
	}
	slot->nsge = bytes ? 1 : 0;
	slot->sge[0].addr = (uintptr_t)to;
	slot->sge[0].length = (uint32_t)bytes;
	slot->len = bytes;
	return 0;
}

static int copy_sges(struct fake_qp *qp, uint32_t at, struct fake_wr *slot,
		     const struct ibv_sge *sge, int n)
{
	if (n < 0 || (uint32_t)n > qp->max_sge)
		return EINVAL;
	if (slot->flags & IBV_SEND_INLINE)
		return copy_inline(qp, at, slot, sge, n);
	slot->nsge = (unsigned)n;
	slot->len = 0;
	for (int i = 0; i < n; i++) {
		slot->sge[i] = sge[i];
		slot->len += sge[i].length;
	}
	return 0;
}

static int post_one(struct fake_qp *qp, const struct ibv_send_wr *wr)
{
	struct fake_wr *slot = slot_at(qp, qp->head);
	int err = check_post(qp, 0);

	if (err)
		return err;
	slot->wr_id = wr->wr_id;
	slot->opcode = wr->opcode;
	slot->flags = wr->send_flags;
	slot->imm = wr->imm_data;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		slot->remote = wr->wr.rdma.remote_addr;
		slot->rkey = wr->wr.rdma.rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		slot->remote = wr->wr.atomic.remote_addr;
		slot->rkey = wr->wr.atomic.rkey;
		slot->compare_add = wr->wr.atomic.compare_add;
		slot->swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		break;
	default:
		return EINVAL;
	}
	err = copy_sges(qp, qp->head, slot, wr->sg_list, wr->num_sge);
	if (err)
		return err;
	count(slot);
	qp->head++;
	return 0;
}

static void start(struct fake_qp *qp)
{
	bool flushed = qp->ex.qp_base.state == IBV_QPS_ERR &&
		       fake_device_of(qp->ex.qp_base.context)->config.flush !=
			       FAKE_FLUSH_LATE;

	if (flushed || !fake.deferred)
		fake_run(qp, UINT32_MAX);
	if (qp->next != qp->head)
		fake_enqueue(qp);
}

int fake_post_send(struct ibv_qp *ibv, struct ibv_send_wr *wr,
		   struct ibv_send_wr **bad)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;
	int err = 0;

	fake_lock();
	fake.counts.doorbells++;
	for (; wr; wr = wr->next) {
		err = post_one(qp, wr);
		if (err) {
			*bad = wr;
			break;
		}
	}
	start(qp);
	fake_unlock();
	return err;
}

/* ---- builders ---- */

static struct fake_wr *stage(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode)
{
	struct fake_qp *qp = (struct fake_qp *)ex;
	struct fake_wr *slot = slot_at(qp, qp->head + qp->staged);
	int err = check_post(qp, qp->staged);

	if (err)
		qp->staged_err = err;
	if (qp->staged_err)
		return NULL;
	qp->staged++;
	memset(slot, 0, offsetof(struct fake_wr, sge));
	slot->opcode = opcode;
	slot->wr_id = ex->wr_id;
	slot->flags = ex->wr_flags & ~(unsigned)IBV_SEND_INLINE;
	return slot;
}

static void stage_rdma(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode,
		       uint32_t rkey, uint64_t remote, uint32_t imm)
{
	struct fake_wr *slot = stage(ex, opcode);

	if (!slot)
		return;
	slot->rkey = rkey;
	slot->remote = remote;
	slot->imm = imm;
}

static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote)
{
	stage_rdma(ex, IBV_WR_RDMA_READ, rkey, remote, 0);
}

static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t remote)
{
	stage_rdma(ex, IBV_WR_RDMA_WRITE, rkey, remote, 0);
}

static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey,
			      uint64_t remote, __be32 imm)
{
	stage_rdma(ex, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote, imm);
}

static void stage_atomic(struct ibv_qp_ex *ex, enum ibv_wr_opcode opcode,
			 uint32_t rkey, uint64_t remote, uint64_t compare_add,
			 uint64_t swap)
{
	struct fake_wr *slot = stage(ex, opcode);

	if (!slot)
		return;
	slot->rkey = rkey;
	slot->remote = remote;
	slot->compare_add = compare_add;
	slot->swap = swap;
}

static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey,
			      uint64_t remote, uint64_t compare, uint64_t swap)
{
	stage_atomic(ex, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote, compare,
		     swap);
}

static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey,
				uint64_t remote, uint64_t add)
{
	stage_atomic(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote, add, 0);
}

static void wr_send(struct ibv_qp_ex *ex)
{
	stage(ex, IBV_WR_SEND);
}

static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm)
{
	struct fake_wr *slot = stage(ex, IBV_WR_SEND_WITH_IMM);

	if (slot)
		slot->imm = imm;
}

/* Data of the request that was begun last. */
static void set_data(struct ibv_qp_ex *ex, const struct ibv_sge *sge, int n,
		     unsigned flag)
{
	struct fake_qp *qp = (struct fake_qp *)ex;
	uint32_t at = qp->head + qp->staged - 1;
	int err;

	if (qp->staged_err)
		return;
	slot_at(qp, at)->flags |= flag;
	err = copy_sges(qp, at, slot_at(qp, at), sge, n);
	if (err)
		qp->staged_err = err;
}

static void wr_set_sge(struct ibv_qp_ex *ex, uint32_t lkey, uint64_t addr,
		       uint32_t length)
{
	struct ibv_sge sge = {.addr = addr, .length = length, .lkey = lkey};

	set_data(ex, &sge, 1, 0);
}

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n,
			    const struct ibv_sge *list)
{
	set_data(ex, list, (int)n, 0);
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n,
				    const struct ibv_data_buf *list)
{
	struct ibv_sge sge[FAKE_SGES];

	for (size_t i = 0; i < n && i < FAKE_SGES; i++)
		sge[i] = (struct ibv_sge){.addr = (uintptr_t)list[i].addr,
					  .length = (uint32_t)list[i].length};
	set_data(ex, sge, (int)n, IBV_SEND_INLINE);
}

static void wr_set_inline_data(struct ibv_qp_ex *ex, void *addr, size_t length)
{
	struct ibv_data_buf data = {.addr = addr, .length = length};

	wr_set_inline_data_list(ex, 1, &data);
}

static void wr_start(struct ibv_qp_ex *ex)
{
	struct fake_qp *qp = (struct fake_qp *)ex;

	fake_lock();
	qp->staged = 0;
	qp->staged_err = 0;
}

/* All of it, or nothing. */
static int wr_complete(struct ibv_qp_ex *ex)
{
	struct fake_qp *qp = (struct fake_qp *)ex;
	int err = qp->staged_err;

	fake.counts.doorbells++;
	for (uint32_t i = 0; i < qp->staged && !err; i++)
		count(slot_at(qp, qp->head + i));
	if (!err)
		qp->head += qp->staged;
	qp->staged = 0;
	start(qp);
	fake_unlock();
	return err;
}

static void wr_abort(struct ibv_qp_ex *ex)
{
	((struct fake_qp *)ex)->staged = 0;
	fake_unlock();
}

void fake_builders_init(struct fake_qp *qp)
{
	struct ibv_qp_ex *ex = &qp->ex;

	ex->wr_start = wr_start;
	ex->wr_complete = wr_complete;
	ex->wr_abort = wr_abort;
	ex->wr_rdma_read = wr_rdma_read;
	ex->wr_rdma_write = wr_rdma_write;
	ex->wr_rdma_write_imm = wr_rdma_write_imm;
	ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
	ex->wr_send = wr_send;
	ex->wr_send_imm = wr_send_imm;
	ex->wr_set_sge = wr_set_sge;
	ex->wr_set_sge_list = wr_set_sge_list;
	ex->wr_set_inline_data = wr_set_inline_data;
	ex->wr_set_inline_data_list = wr_set_inline_data_list;
}
