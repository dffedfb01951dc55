/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting and completing, for the raw baseline: see raw.h. */
#include "raw.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

static enum ibv_wr_opcode opcode(enum perf_op op)
{
	switch (op) {
	case PERF_PUT:
		return IBV_WR_RDMA_WRITE;
	case PERF_NOTIFY:
		return IBV_WR_RDMA_WRITE_WITH_IMM;
	case PERF_GET:
		return IBV_WR_RDMA_READ;
	case PERF_ATOMIC:
		return IBV_WR_ATOMIC_FETCH_AND_ADD;
	default:
		return IBV_WR_SEND;
	}
}

void raw_prepare(struct raw *raw, struct raw_qp *qp, size_t size)
{
	enum perf_op op = raw->p->opts.test->op;
	bool copied = op != PERF_GET && op != PERF_ATOMIC;
	unsigned flags =
		copied && size <= raw->inline_max ? IBV_SEND_INLINE : 0;
	size_t n = raw->p->opts.list;

	qp->sge = (struct ibv_sge){.addr = (uintptr_t)qp->local,
				   .length = (uint32_t)size,
				   .lkey = raw->mr->lkey};
	for (size_t i = 0; i < n; i++) {
		struct ibv_send_wr *wr = &qp->list[i];

		*wr = (struct ibv_send_wr){.next = i + 1 < n ? wr + 1 : NULL,
					   .sg_list = &qp->sge,
					   .num_sge = 1,
					   .opcode = opcode(op),
					   .send_flags = flags};
		if (op == PERF_ATOMIC) {
			wr->wr.atomic.remote_addr = qp->theirs.target;
			wr->wr.atomic.rkey = qp->theirs.rkey;
			wr->wr.atomic.compare_add = 1;
		} else if (op != PERF_SEND) {
			wr->wr.rdma.remote_addr = qp->theirs.target;
			wr->wr.rdma.rkey = qp->theirs.rkey;
		}
	}
}

int raw_post(struct raw_qp *qp)
{
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(qp->qp, qp->list, &bad);

	return rc ? perf_fail(-rc, "raw: ibv_post_send: %s", strerror(rc)) : 0;
}

int raw_post_receive(struct raw *raw, size_t i)
{
	struct ibv_sge sge = {.addr = (uintptr_t)raw->qps[i].target,
			      .length = (uint32_t)raw->half,
			      .lkey = raw->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1};
	struct ibv_recv_wr *bad;
	int rc = ibv_post_recv(raw->qps[i].qp, &wr, &bad);

	return rc ? perf_fail(-rc, "raw: ibv_post_recv: %s", strerror(rc)) : 0;
}

int raw_poll(struct raw *raw, struct ibv_cq *cq, struct ibv_wc *wc, int n)
{
	int got = ibv_poll_cq(cq, n, wc);

	if (got < 0)
		return perf_fail(-EIO, "raw: ibv_poll_cq fails on %s",
				 raw->device);
	for (int i = 0; i < got; i++)
		if (wc[i].status != IBV_WC_SUCCESS)
			return perf_fail(-EIO, "raw: %s on %s",
					 ibv_wc_status_str(wc[i].status),
					 raw->device);
	return got;
}

int raw_sleep(struct raw *raw)
{
	struct epoll_event events[2];
	struct ibv_cq *cq;
	void *arg;

	raw->p->idle = epoll_wait(raw->epoll_fd, events, 2, 1000) == 0;
	if (raw->p->idle)
		return 0;
	if (ibv_get_cq_event(raw->channel, &cq, &arg) != 0)
		return errno == EAGAIN || errno == EINTR
			       ? 0
			       : perf_fail(-errno, "raw: ibv_get_cq_event: %s",
					   strerror(errno));
	ibv_ack_cq_events(cq, 1);
	return ibv_req_notify_cq(cq, 0)
		       ? perf_fail(-EIO, "raw: no completion events")
		       : 0;
}

int raw_completion(struct raw *raw, struct ibv_cq *cq, struct ibv_wc *wc)
{
	struct perf_wait w = {0};
	int rc;

	while ((rc = raw_poll(raw, cq, wc, 1)) == 0) {
		rc = raw->channel ? raw_sleep(raw) : 0;
		if (rc == 0)
			rc = perf_waiting(raw->p, &w);
		if (rc != 0)
			return rc;
	}
	return rc < 0 ? rc : 0;
}
