/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs as the device gives them: how much inline data it grants, which
 * is found out once per job with a throw-away, and whether it has the
 * ibv_wr_*() builders, by which a chain goes to the device without being
 * written down first; else ibv_post_send() takes it.
 */
#include "internal.h"
#include "error.h"

#include <errno.h>
#include <string.h>

#define INLINE_SMALL 32u
#define BUILDERS                                                               \
	(IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |      \
	 IBV_QP_EX_WITH_RDMA_READ)
#define BUILDERS_ATOMIC                                                        \
	(IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |                                   \
	 IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

/* Ask for less inline data until the device agrees; 0 is legal. */
static struct ibv_qp *create(struct rail *rail,
			     struct ibv_qp_init_attr_ex *attr, uint32_t *want)
{
	struct ibv_qp_cap cap = attr->cap;
	struct ibv_qp *qp;

	for (;;) {
		attr->cap = cap;
		attr->cap.max_inline_data = *want;
		qp = ibv_create_qp_ex(rail->device, attr);
		if (qp || !*want)
			return qp;
		*want = *want > INLINE_SMALL ? *want / 2 : 0;
	}
}

static void fill(struct rail *rail, struct ibv_qp_init_attr_ex *attr)
{
	memset(attr, 0, sizeof(*attr));
	attr->qp_type = IBV_QPT_RC;
	attr->pd = rail->pd;
	attr->comp_mask = IBV_QP_INIT_ATTR_PD;
	attr->cap.max_send_wr = rail->depth + DEPTH_EXTRA;
	attr->cap.max_send_sge = 1;
	if (!rail->builders)
		return;
	attr->comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr->send_ops_flags = BUILDERS | (rail->atomics ? BUILDERS_ATOMIC : 0);
}

/* With builders, and without when the device does not know them. */
static struct ibv_qp *create_any(struct rail *rail, struct ibv_cq *cq,
				 struct ibv_qp_init_attr_ex *attr)
{
	struct ibv_qp *qp;

	rail->builders = true;
	for (;;) {
		fill(rail, attr);
		attr->send_cq = attr->recv_cq = cq;
		attr->cap.max_recv_wr = 1;
		attr->cap.max_recv_sge = 1;
		rail->inline_asked = INLINE_WANTED;
		qp = create(rail, attr, &rail->inline_asked);
		if (qp && rail->builders && !ibv_qp_to_qp_ex(qp)) {
			ibv_destroy_qp(qp);
			qp = NULL;
		}
		if (qp || !rail->builders)
			return qp;
		rail->builders = false;
	}
}

int qp_probe(struct rail *rail)
{
	struct ibv_cq *cq = ibv_create_cq(rail->device, 1, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex attr;
	struct ibv_qp *qp;
	int err = 0;

	if (!cq)
		return limits_explain(rail, errno,
				      "creating a completion queue", 0);
	qp = create_any(rail, cq, &attr);
	if (qp) {
		rail->inline_max = attr.cap.max_inline_data;
		ibv_destroy_qp(qp);
	} else {
		err = limits_explain(rail, errno, "creating a queue pair", 0);
	}
	ibv_destroy_cq(cq);
	return err;
}

int qp_create(struct lane *lane)
{
	struct queues *queues = lane->queues;
	struct rail *rail = queues->rail;
	struct ibv_qp_init_attr_ex attr;
	uint32_t want = rail->inline_asked;

	fill(rail, &attr);
	attr.send_cq = attr.recv_cq = queues->cq;
	attr.srq = queues->srq;
	attr.qp_context = lane->conn; /* an event's way to it */
	lane->qp = create(rail, &attr, &want);
	if (!lane->qp)
		return limits_explain(rail, errno, "creating a queue pair", 0);
	lane->builder = rail->builders ? ibv_qp_to_qp_ex(lane->qp) : NULL;
	lane->inline_max = attr.cap.max_inline_data;
	lane->qpn = queues_tag(lane->qp->qp_num, lane->rail);
	if (lane->conn->npairs == 1)
		lane->sender = lane->qp;
	return 0;
}

static void build_data(struct ibv_qp_ex *qp, const struct ibv_send_wr *wr)
{
	if (wr->send_flags & IBV_SEND_INLINE)
		ibv_wr_set_inline_data(qp, (void *)(uintptr_t)wr->sg_list->addr,
				       wr->sg_list->length);
	else
		ibv_wr_set_sge_list(qp, (size_t)wr->num_sge, wr->sg_list);
}

static void build_one(struct ibv_qp_ex *qp, const struct ibv_send_wr *wr)
{
	qp->wr_id = wr->wr_id;
	/* IBV_SEND_INLINE is redundant by the interface; soft-RoCE needs it */
	qp->wr_flags = wr->send_flags;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qp, wr->wr.rdma.rkey,
				  wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ibv_wr_rdma_write_imm(qp, wr->wr.rdma.rkey,
				      wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ibv_wr_atomic_cmp_swp(
			qp, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr,
			wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	default:
		ibv_wr_atomic_fetch_add(qp, wr->wr.atomic.rkey,
					wr->wr.atomic.remote_addr,
					wr->wr.atomic.compare_add);
	}
	build_data(qp, wr);
}

int qp_build(struct ibv_qp_ex *qp, struct ibv_send_wr *wr,
	     struct ibv_send_wr **bad)
{
	*bad = wr; /* all are taken, or none is */
	ibv_wr_start(qp);
	for (; wr; wr = wr->next)
		build_one(qp, wr);
	return ibv_wr_complete(qp);
}
