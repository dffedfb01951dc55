/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake verbs device: carrying out requests, as the hardware of both ends
 * would. A request either is over, with a status, or waits: for a receive, or
 * for a peer that does not answer.
 */
#include "fake_verbs_impl.h"

#include <errno.h>
#include <string.h>

#define WAITS ((enum ibv_wc_status) - 1) /* no status: not over yet */

#define PKEY_MASK 0x7fff /* the top bit is membership */

static struct fake_port *port_of(const struct fake_qp *qp)
{
	struct fake_config *config =
		&fake_device_of(qp->ex.qp_base.context)->config;

	return &config->ports[qp->attr.port_num - 1];
}

/* ---- the list of those with requests to carry out ---- */

void fake_enqueue(struct fake_qp *qp)
{
	struct fake_qp **at = &fake.busy;

	if (qp->busy)
		return;
	while (*at)
		at = &(*at)->next_busy;
	*at = qp;
	qp->next_busy = NULL;
	qp->busy = true;
}

void fake_dequeue(struct fake_qp *qp)
{
	struct fake_qp **at = &fake.busy;

	if (!qp->busy)
		return;
	while (*at != qp)
		at = &(*at)->next_busy;
	*at = qp->next_busy;
	qp->busy = false;
}

/* ---- payload that is late ---- */

static void show(struct fake_qp *qp)
{
	while (qp->late) {
		struct fake_late *late = qp->late;

		memcpy((void *)(uintptr_t)late->remote, late->data, late->len);
		qp->late = late->next;
		fake.late--;
		fake_free(late);
	}
	qp->late_tail = &qp->late;
}

/* At both ends: a completion at either is behind it. */
void fake_late_show(struct fake_qp *qp)
{
	struct fake_qp *peer = fake_qp_find(qp->attr.dest_qp_num);

	show(qp);
	if (peer)
		show(peer);
}

static void keep_late(struct fake_qp *peer, const struct fake_wr *wr,
		      const void *data)
{
	struct fake_late *late = fake_alloc(sizeof(*late) + wr->len);

	late->remote = wr->remote;
	late->len = wr->len;
	memcpy(late->data, data, wr->len);
	*peer->late_tail = late;
	peer->late_tail = &late->next;
	fake.late++;
}

/* ---- completions ---- */

static void complete(struct fake_qp *qp, const struct fake_wr *wr,
		     enum ibv_wc_status status)
{
	struct fake_cqe cqe = {.qp = qp,
			       .is_send = true,
			       .retires = qp->next,
			       .wc = {.wr_id = wr->wr_id,
				      .status = status,
				      .qp_num = qp->ex.qp_base.qp_num,
				      .byte_len = (uint32_t)wr->len}};

	if (status != IBV_WC_SUCCESS)
		cqe.wc.vendor_err = 0x100u + (uint32_t)status;
	else if (!(wr->flags & IBV_SEND_SIGNALED))
		return;
	fake_cq_push((struct fake_cq *)qp->ex.qp_base.send_cq, &cqe);
}

static void flush_one(struct fake_qp *qp)
{
	const struct fake_wr *wr = &qp->ring[qp->next++ % qp->room];

	if (fake_device_of(qp->ex.qp_base.context)->config.flush ==
		    FAKE_FLUSH_SIGNALLED &&
	    !(wr->flags & IBV_SEND_SIGNALED))
		return;
	complete(qp, wr, IBV_WC_WR_FLUSH_ERR);
}

void fake_qp_error(struct fake_qp *qp)
{
	if (qp->ex.qp_base.state == IBV_QPS_ERR)
		return;
	qp->ex.qp_base.state = qp->attr.qp_state = IBV_QPS_ERR;
	if (qp->ex.qp_base.srq)
		fake_event_push(fake_context_of(qp->ex.qp_base.context),
				IBV_EVENT_QP_LAST_WQE_REACHED, qp, NULL, NULL,
				0);
	if (fake_device_of(qp->ex.qp_base.context)->config.flush ==
	    FAKE_FLUSH_LATE) {
		if (qp->next != qp->head)
			fake_enqueue(qp);
		return;
	}
	while (qp->next != qp->head)
		flush_one(qp);
	fake_dequeue(qp);
}

/* ---- the way to the peer ---- */

static bool has_gid(const struct fake_port *port, const uint8_t *raw,
		    enum ibv_gid_type type)
{
	for (int i = 0; i < port->ngids; i++)
		if (!port->gids[i].err && port->gids[i].type == type &&
		    !memcmp(port->gids[i].raw, raw, 16))
			return true;
	return false;
}

static bool leads_to(const struct fake_qp *qp, const struct fake_qp *peer)
{
	const struct fake_port *here = port_of(qp), *there = port_of(peer);
	const struct ibv_ah_attr *ah = &qp->attr.ah_attr;

	if (here->state != IBV_PORT_ACTIVE || there->state != IBV_PORT_ACTIVE ||
	    here->link_layer != there->link_layer)
		return false;
	if ((here->pkeys[qp->attr.pkey_index] ^
	     there->pkeys[peer->attr.pkey_index]) &
	    PKEY_MASK)
		return false;
	if (ah->is_global && !has_gid(there, ah->grh.dgid.raw,
				      here->gids[ah->grh.sgid_index].type))
		return false;
	return here->link_layer == IBV_LINK_LAYER_ETHERNET ||
	       ah->dlid >> there->lmc == there->lid >> there->lmc;
}

/* The queue pair at the other end, if it answers. */
static struct fake_qp *reach(const struct fake_qp *qp)
{
	struct fake_qp *peer = fake_qp_find(qp->attr.dest_qp_num);
	enum ibv_qp_state state;

	if (!peer || peer->vanished || qp->vanished)
		return NULL;
	state = peer->ex.qp_base.state;
	if (state != IBV_QPS_RTR && state != IBV_QPS_RTS)
		return NULL;
	if (peer->attr.dest_qp_num != qp->ex.qp_base.qp_num ||
	    peer->attr.rq_psn != qp->attr.sq_psn ||
	    peer->attr.path_mtu != qp->attr.path_mtu)
		return NULL;
	return leads_to(qp, peer) ? peer : NULL;
}

/* ---- memory ---- */

static bool local_ok(const struct fake_qp *qp, const struct ibv_sge *sge,
		     unsigned access)
{
	const struct fake_mr *mr = fake_mr_find(sge->lkey);
	uint64_t base;

	if (!sge->length)
		return true;
	if (!mr || mr->ibv.lkey != sge->lkey ||
	    mr->ibv.pd != qp->ex.qp_base.pd || (access & ~mr->access))
		return false;
	base = (uintptr_t)mr->ibv.addr;
	return sge->addr >= base && sge->length <= mr->ibv.length &&
	       sge->addr - base <= mr->ibv.length - sge->length;
}

static bool remote_ok(const struct fake_qp *peer, const struct fake_wr *wr,
		      size_t len, unsigned access)
{
	const struct fake_mr *mr = fake_mr_find(wr->rkey);
	uint64_t base;

	if (!len)
		return true;
	if (!mr || mr->ibv.rkey != wr->rkey ||
	    mr->ibv.pd != peer->ex.qp_base.pd || (access & ~mr->access) ||
	    (access & ~(unsigned)peer->attr.qp_access_flags))
		return false;
	base = (uintptr_t)mr->ibv.addr;
	return wr->remote >= base && len <= mr->ibv.length &&
	       wr->remote - base <= mr->ibv.length - len;
}

static enum ibv_wc_status check_local(const struct fake_qp *qp,
				      const struct fake_wr *wr)
{
	bool reads = wr->opcode == IBV_WR_RDMA_READ ||
		     wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
		     wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;

	if (wr->len > port_of(qp)->max_msg_sz)
		return IBV_WC_LOC_LEN_ERR;
	if (reads && !qp->attr.max_rd_atomic)
		return IBV_WC_LOC_QP_OP_ERR;
	if (wr->flags & IBV_SEND_INLINE)
		return reads ? IBV_WC_LOC_QP_OP_ERR : IBV_WC_SUCCESS;
	for (unsigned i = 0; i < wr->nsge; i++)
		if (!local_ok(qp, &wr->sge[i],
			      reads ? IBV_ACCESS_LOCAL_WRITE : 0))
			return IBV_WC_LOC_PROT_ERR;
	return IBV_WC_SUCCESS;
}

/* What the peer refuses breaks its side as well, once the request is over. */
static enum ibv_wc_status refuse(struct fake_qp *peer,
				 enum ibv_wc_status status)
{
	fake.refused = peer;
	fake_event_push(fake_context_of(peer->ex.qp_base.context),
			status == IBV_WC_REM_ACCESS_ERR
				? IBV_EVENT_QP_ACCESS_ERR
				: IBV_EVENT_QP_REQ_ERR,
			peer, NULL, NULL, 0);
	return status;
}

/* ---- one request ---- */

static enum ibv_wc_status write_data(struct fake_qp *peer,
				     const struct fake_wr *wr)
{
	bool late = fake_device_of(peer->ex.qp_base.context)->config.late_data;
	uint8_t *to = (uint8_t *)(uintptr_t)wr->remote;

	if (!remote_ok(peer, wr, wr->len, IBV_ACCESS_REMOTE_WRITE))
		return refuse(peer, IBV_WC_REM_ACCESS_ERR);
	if (late && wr->len && wr->nsge == 1) {
		keep_late(peer, wr, (void *)(uintptr_t)wr->sge[0].addr);
		return IBV_WC_SUCCESS;
	}
	if (peer->late)
		show(peer);
	for (unsigned i = 0; i < wr->nsge; i++) {
		memmove(to, (void *)(uintptr_t)wr->sge[i].addr,
			wr->sge[i].length);
		to += wr->sge[i].length;
	}
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status read_data(struct fake_qp *peer,
				    const struct fake_wr *wr)
{
	const uint8_t *from = (const uint8_t *)(uintptr_t)wr->remote;

	if (!remote_ok(peer, wr, wr->len, IBV_ACCESS_REMOTE_READ))
		return refuse(peer, IBV_WC_REM_ACCESS_ERR);
	if (peer->late)
		show(peer);
	for (unsigned i = 0; i < wr->nsge; i++) {
		memmove((void *)(uintptr_t)wr->sge[i].addr, from,
			wr->sge[i].length);
		from += wr->sge[i].length;
	}
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status do_atomic(struct fake_qp *peer,
				    const struct fake_wr *wr)
{
	const struct fake_device_state *device =
		fake_device_of(peer->ex.qp_base.context);
	uint64_t *word = (uint64_t *)(uintptr_t)wr->remote, before;

	if (device->config.attr.atomic_cap == IBV_ATOMIC_NONE ||
	    wr->remote % 8 || wr->len != 8 || wr->nsge != 1)
		return refuse(peer, IBV_WC_REM_INV_REQ_ERR);
	if (!remote_ok(peer, wr, 8, IBV_ACCESS_REMOTE_ATOMIC))
		return refuse(peer, IBV_WC_REM_ACCESS_ERR);
	if (peer->late)
		show(peer);
	before = *word;
	if (wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		*word = before + wr->compare_add;
	else if (before == wr->compare_add)
		*word = wr->swap;
	memcpy((void *)(uintptr_t)wr->sge[0].addr, &before, 8);
	return IBV_WC_SUCCESS;
}

/* The peer's next receive, or NULL: it has none. */
static struct fake_recv *take_receive(struct fake_qp *qp, struct fake_qp *peer)
{
	struct fake_srq *srq = (struct fake_srq *)peer->ex.qp_base.srq;

	if (!srq || srq->head == srq->tail) {
		fake.counts.rnr += qp->tries == 0;
		return NULL;
	}
	if (srq->head - srq->tail - 1 < srq->limit) {
		srq->limit = 0;
		fake_event_push(fake_context_of(srq->ibv.context),
				IBV_EVENT_SRQ_LIMIT_REACHED, NULL, NULL, srq,
				0);
	}
	return &srq->ring[srq->tail++ % srq->room];
}

static enum ibv_wc_status no_receive(struct fake_qp *qp)
{
	unsigned most = qp->attr.rnr_retry;

	return most == 7 || qp->tries++ < most ? WAITS
					       : IBV_WC_RNR_RETRY_EXC_ERR;
}

static void received(struct fake_qp *peer, const struct fake_recv *recv,
		     const struct fake_wr *wr, enum ibv_wc_status status)
{
	bool imm = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
		   wr->opcode == IBV_WR_SEND_WITH_IMM;
	struct fake_cqe cqe = {
		.qp = peer,
		.wc = {.wr_id = recv->wr_id,
		       .status = status,
		       .opcode = wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM
					 ? IBV_WC_RECV_RDMA_WITH_IMM
					 : IBV_WC_RECV,
		       .byte_len = (uint32_t)wr->len,
		       .qp_num = peer->ex.qp_base.qp_num,
		       .src_qp = peer->attr.dest_qp_num,
		       .imm_data = imm ? wr->imm : 0,
		       .wc_flags = imm ? IBV_WC_WITH_IMM : 0}};

	fake_cq_push((struct fake_cq *)peer->ex.qp_base.recv_cq, &cqe);
}

static enum ibv_wc_status write_imm(struct fake_qp *qp, struct fake_qp *peer,
				    const struct fake_wr *wr)
{
	const struct fake_recv *recv;
	enum ibv_wc_status status;

	if (!remote_ok(peer, wr, wr->len, IBV_ACCESS_REMOTE_WRITE))
		return refuse(peer, IBV_WC_REM_ACCESS_ERR);
	recv = take_receive(qp, peer);
	if (!recv)
		return no_receive(qp);
	status = write_data(peer, wr);
	received(peer, recv, wr, IBV_WC_SUCCESS);
	return status;
}

/* Where the next bytes of a receive go. */
struct cursor {
	unsigned sge;
	size_t at;
};

static bool fill(const struct fake_qp *peer, const struct fake_recv *recv,
		 struct cursor *to, const struct ibv_sge *from)
{
	const uint8_t *data = (const uint8_t *)(uintptr_t)from->addr;
	size_t left = from->length;

	while (left) {
		const struct ibv_sge *into = &recv->sge[to->sge];
		size_t n;

		if (to->sge == recv->nsge ||
		    !local_ok(peer, into, IBV_ACCESS_LOCAL_WRITE))
			return false;
		n = into->length - to->at < left ? into->length - to->at : left;
		memcpy((uint8_t *)(uintptr_t)into->addr + to->at, data, n);
		data += n;
		left -= n;
		to->at += n;
		if (to->at == into->length) {
			to->sge++;
			to->at = 0;
		}
	}
	return true;
}

/* Scatter into the receive's buffers; false: it does not fit or may not. */
static bool scatter(const struct fake_qp *peer, const struct fake_recv *recv,
		    const struct fake_wr *wr)
{
	struct cursor to = {0};

	for (unsigned i = 0; i < wr->nsge; i++)
		if (!fill(peer, recv, &to, &wr->sge[i]))
			return false;
	return true;
}

static enum ibv_wc_status send_data(struct fake_qp *qp, struct fake_qp *peer,
				    const struct fake_wr *wr)
{
	const struct fake_recv *recv = take_receive(qp, peer);

	if (!recv)
		return no_receive(qp);
	if (peer->late)
		show(peer);
	if (scatter(peer, recv, wr)) {
		received(peer, recv, wr, IBV_WC_SUCCESS);
		return IBV_WC_SUCCESS;
	}
	received(peer, recv, wr, IBV_WC_LOC_LEN_ERR);
	return refuse(peer, IBV_WC_REM_INV_REQ_ERR);
}

static enum ibv_wc_status carry_out(struct fake_qp *qp, struct fake_qp *peer,
				    const struct fake_wr *wr)
{
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		return write_data(peer, wr);
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		return write_imm(qp, peer, wr);
	case IBV_WR_RDMA_READ:
		return read_data(peer, wr);
	case IBV_WR_SEND:
	case IBV_WR_SEND_WITH_IMM:
		return send_data(qp, peer, wr);
	default:
		return do_atomic(peer, wr);
	}
}

static enum ibv_wc_status attempt(struct fake_qp *qp, const struct fake_wr *wr)
{
	enum ibv_wc_status status = check_local(qp, wr), forced;
	struct fake_qp *peer = reach(qp);

	forced = qp->fail_in == 1 ? qp->fail_status : IBV_WC_SUCCESS;
	if (status != IBV_WC_SUCCESS)
		return status;
	if (forced != IBV_WC_SUCCESS && !qp->fail_landed)
		return forced;
	if (!peer)
		return qp->tries++ < fake_device_of(qp->ex.qp_base.context)
					       ->config.patience
			       ? WAITS
			       : IBV_WC_RETRY_EXC_ERR;
	if (qp->attr.max_rd_atomic > peer->attr.max_dest_rd_atomic)
		return refuse(peer, IBV_WC_REM_INV_REQ_ERR);
	status = carry_out(qp, peer, wr);
	return status == IBV_WC_SUCCESS ? forced : status;
}

/* Returns how many it has finished, at most @n. */
unsigned fake_run(struct fake_qp *qp, unsigned n)
{
	unsigned done = 0;

	while (done < n && qp->next != qp->head) {
		const struct fake_wr *wr = &qp->ring[qp->next % qp->room];
		enum ibv_wc_status status;

		if (qp->ex.qp_base.state == IBV_QPS_ERR) {
			flush_one(qp);
			done++;
			continue;
		}
		status = attempt(qp, wr);
		if (status == WAITS)
			break;
		if (qp->fail_in)
			qp->fail_in--;
		qp->tries = 0;
		done++;
		qp->next++;
		complete(qp, wr, status);
		if (fake.refused)
			fake_qp_error(fake.refused);
		fake.refused = NULL;
		if (status != IBV_WC_SUCCESS)
			fake_qp_error(qp);
	}
	if (qp->next == qp->head)
		fake_dequeue(qp);
	return done;
}

void fake_run_busy(void)
{
	struct fake_qp *qp = fake.busy, *next;

	for (; qp; qp = next) {
		next = qp->next_busy;
		fake_run(qp, UINT32_MAX);
	}
}

/* ---- stepping ---- */

void fake_defer(bool deferred)
{
	fake_lock();
	fake.deferred = deferred;
	fake_unlock();
}

unsigned fake_step_qp(uint32_t qpn, unsigned n)
{
	struct fake_qp *qp;
	unsigned done = 0;

	fake_lock();
	qp = fake_qp_find(qpn);
	if (qp)
		done = fake_run(qp, n);
	fake_unlock();
	return done;
}

unsigned fake_step(unsigned n)
{
	unsigned done = 0, before;

	fake_lock();
	do {
		before = done;
		for (struct fake_qp *qp = fake.qps; qp && done < n;
		     qp = qp->next_qp)
			done += fake_run(qp, 1);
	} while (done < n && done != before);
	fake_unlock();
	return done;
}
