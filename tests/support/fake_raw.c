/* SPDX-License-Identifier: BSD-3-Clause */
/* See fake_raw.h. */
#include "fake_raw.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVERYTHING                                                             \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |                    \
	 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static const struct raw_options all = {
	.access = EVERYTHING, .cqe = 2 * RAW_RECVS, .rnr_retry = 6};

static void need(bool good, const char *what)
{
	if (good)
		return;
	fprintf(stderr, "fake_raw: %s failed\n", what);
	exit(EXIT_FAILURE);
}

static void qp_create(struct raw *raw, int i, const struct raw_options *options)
{
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = raw->cq[i],
		.recv_cq = raw->cq[i],
		.srq = raw->srq[i],
		.cap = {.max_send_wr = RAW_RECVS,
			.max_send_sge = 1,
			.max_inline_data = 8},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = raw->pd,
	};

	if (options->builders)
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE;
	raw->qp[i] = ibv_create_qp_ex(raw->device, &attr);
	need(raw->qp[i] != NULL, "ibv_create_qp_ex");
}

static void to_init(struct raw *raw, int i, const struct raw_options *options)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = options->access,
	};

	need(!ibv_modify_qp(raw->qp[i], &attr,
			    IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				    IBV_QP_ACCESS_FLAGS),
	     "to INIT");
}

void raw_to_rts(struct raw *raw, int i, const struct raw_options *options)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = raw->qp[1 - i]->qp_num,
		.max_dest_rd_atomic = 1,
		.max_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 14,
		.retry_cnt = 6,
		.ah_attr = {.port_num = 1,
			    .is_global = 1,
			    .grh = {.sgid_index = 1}},
	};

	attr.rnr_retry = (uint8_t)options->rnr_retry;
	need(!ibv_query_gid(raw->device, 1, 1, &attr.ah_attr.grh.dgid), "GID");
	need(!ibv_modify_qp(raw->qp[i], &attr,
			    IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				    IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				    IBV_QP_MAX_DEST_RD_ATOMIC |
				    IBV_QP_MIN_RNR_TIMER),
	     "to RTR");
	attr.qp_state = IBV_QPS_RTS;
	need(!ibv_modify_qp(raw->qp[i], &attr,
			    IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				    IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				    IBV_QP_MAX_QP_RD_ATOMIC),
	     "to RTS");
}

void raw_open(struct raw *raw, const struct raw_options *options)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	memset(raw, 0, sizeof(*raw));
	options = options ? options : &all;
	raw->device = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	need(raw->device != NULL, "ibv_open_device");
	raw->pd = ibv_alloc_pd(raw->device);
	need(raw->pd != NULL, "ibv_alloc_pd");
	raw->mr = ibv_reg_mr(raw->pd, raw->words, sizeof(raw->words),
			     options->access);
	need(raw->mr != NULL, "ibv_reg_mr");
	for (int i = 0; i < 2; i++) {
		struct ibv_srq_init_attr attr = {
			.attr = {.max_wr = RAW_RECVS, .max_sge = 1}};

		raw->cq[i] = ibv_create_cq(raw->device, (int)options->cqe, NULL,
					   NULL, 0);
		raw->srq[i] = ibv_create_srq(raw->pd, &attr);
		need(raw->cq[i] && raw->srq[i], "making queues");
		qp_create(raw, i, options);
		to_init(raw, i, options);
	}
	raw_to_rts(raw, 0, options);
	raw_to_rts(raw, 1, options);
}

void raw_close(struct raw *raw)
{
	for (int i = 0; i < 2; i++) {
		ibv_destroy_qp(raw->qp[i]);
		ibv_destroy_srq(raw->srq[i]);
		ibv_destroy_cq(raw->cq[i]);
	}
	ibv_dereg_mr(raw->mr);
	ibv_dealloc_pd(raw->pd);
	ibv_close_device(raw->device);
}

void raw_request(struct raw *raw, struct raw_request *request,
		 enum ibv_wr_opcode opcode, unsigned flags)
{
	struct ibv_send_wr *wr = &request->wr;

	memset(request, 0, sizeof(*request));
	request->sge.addr = (uintptr_t)&raw->words[0];
	request->sge.length = 8;
	request->sge.lkey = raw->mr->lkey;
	wr->wr_id = 1;
	wr->opcode = opcode;
	wr->send_flags = flags;
	wr->sg_list = &request->sge;
	wr->num_sge = 1;
	wr->wr.rdma.remote_addr = (uintptr_t)&raw->words[1];
	wr->wr.rdma.rkey = raw->mr->rkey;
}

int raw_receive(struct raw *raw)
{
	struct ibv_sge into = {.addr = (uintptr_t)&raw->words[1],
			       .length = 8,
			       .lkey = raw->mr->lkey};
	struct ibv_recv_wr *bad, wr = {.sg_list = &into, .num_sge = 1};

	return ibv_post_srq_recv(raw->srq[1], &wr, &bad);
}
