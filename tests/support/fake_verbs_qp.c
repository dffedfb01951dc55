/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake verbs device: queue pairs, their creation and their states, with
 * the attributes that each transition demands.
 */
#include "fake_verbs_impl.h"

#include <errno.h>
#include <string.h>

/* ---- creation ---- */

struct fake_qp *fake_qp_find(uint32_t qpn)
{
	uint32_t i = qpn - FAKE_QPN_FIRST;

	return qpn >= FAKE_QPN_FIRST && i < fake.by_qpn_room ? fake.by_qpn[i]
							     : NULL;
}

static void give_number(struct fake_qp *qp)
{
	uint32_t i = fake.next_qpn++ - FAKE_QPN_FIRST;
	uint32_t room = fake.by_qpn_room ? fake.by_qpn_room : 64;
	struct fake_qp **table;

	while (room <= i)
		room *= 2;
	if (room != fake.by_qpn_room) {
		table = fake_alloc(room * sizeof(struct fake_qp *));
		if (fake.by_qpn_room)
			memcpy(table, fake.by_qpn,
			       fake.by_qpn_room * sizeof(struct fake_qp *));
		fake_free(fake.by_qpn);
		fake.by_qpn = table;
		fake.by_qpn_room = room;
	}
	fake.by_qpn[i] = qp;
	qp->ex.qp_base.qp_num = i + FAKE_QPN_FIRST;
}

static int grant_inline(const struct fake_config *config, uint32_t *bytes)
{
	uint32_t most = config->max_inline;

	if (config->inline_rule == FAKE_INLINE_REFUSE && *bytes > most)
		return EINVAL;
	if (config->inline_rule == FAKE_INLINE_MAX || *bytes > most)
		*bytes = most;
	return 0;
}

static int check_creation(struct fake_device_state *device,
			  struct ibv_qp_init_attr_ex *attr)
{
	const struct ibv_device_attr *caps = &device->config.attr;
	int err = device->broken ? EIO : fake_fault(FAKE_CREATE_QP);

	if (err)
		return err;
	if (attr->qp_type != IBV_QPT_RC || !attr->send_cq || !attr->recv_cq ||
	    !attr->pd || (!attr->srq && !attr->cap.max_recv_wr))
		return EINVAL;
	if (!attr->cap.max_send_wr ||
	    attr->cap.max_send_wr > (uint32_t)caps->max_qp_wr ||
	    attr->cap.max_send_sge > (uint32_t)caps->max_sge ||
	    attr->cap.max_send_sge > FAKE_SGES)
		return EINVAL;
	if (device->qps >= (unsigned)caps->max_qp)
		return ENOMEM;
	if ((attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) &&
	    !device->config.builders)
		return EOPNOTSUPP;
	return grant_inline(&device->config, &attr->cap.max_inline_data);
}

static struct fake_qp *qp_new(struct ibv_context *context,
			      const struct ibv_qp_init_attr_ex *attr)
{
	struct fake_qp *qp = fake_alloc(sizeof(*qp)), **at = &fake.qps;
	struct ibv_qp *ibv = &qp->ex.qp_base;

	ibv->context = context;
	ibv->qp_context = attr->qp_context;
	ibv->pd = attr->pd;
	ibv->send_cq = attr->send_cq;
	ibv->recv_cq = attr->recv_cq;
	ibv->srq = attr->srq;
	ibv->qp_type = attr->qp_type;
	ibv->state = IBV_QPS_RESET;
	qp->room = attr->cap.max_send_wr;
	qp->max_sge = attr->cap.max_send_sge;
	qp->inline_max = attr->cap.max_inline_data;
	qp->ring = fake_alloc(qp->room * sizeof(*qp->ring));
	qp->inline_ring = fake_alloc((size_t)qp->room * qp->inline_max + 1);
	qp->late_tail = &qp->late;
	give_number(qp);
	while (*at)
		at = &(*at)->next_qp;
	*at = qp;
	if (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)
		fake_builders_init(qp);
	return qp;
}

struct ibv_qp *fake_create_qp_ex(struct ibv_context *context,
				 struct ibv_qp_init_attr_ex *attr)
{
	struct fake_device_state *device = fake_device_of(context);
	struct fake_qp *qp = NULL;
	int err;

	fake_lock();
	err = check_creation(device, attr);
	if (!err) {
		qp = qp_new(context, attr);
		((struct fake_cq *)attr->send_cq)->qps++;
		((struct fake_cq *)attr->recv_cq)->qps++;
		if (attr->srq)
			((struct fake_srq *)attr->srq)->qps++;
		((struct fake_pd *)attr->pd)->objects++;
		device->qps++;
		fake.counts.qps++;
	}
	fake_unlock();
	errno = err;
	return err ? NULL : &qp->ex.qp_base;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct ibv_qp_init_attr_ex ex = {.comp_mask = IBV_QP_INIT_ATTR_PD,
					 .pd = pd};
	struct ibv_qp *qp;

	memcpy(&ex, attr, sizeof(*attr));
	qp = fake_create_qp_ex(pd->context, &ex);
	if (qp)
		attr->cap = ex.cap;
	return qp;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *ibv)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;

	return qp->ex.wr_start ? &qp->ex : NULL;
}

/* Completions of it that nobody has polled stay, as they do on hardware. */
static void disown(struct fake_cq *cq, const struct fake_qp *qp)
{
	for (unsigned i = cq->tail; i != cq->head; i++)
		if (cq->ring[i % cq->room].qp == qp)
			cq->ring[i % cq->room].qp = NULL;
}

int ibv_destroy_qp(struct ibv_qp *ibv)
{
	struct fake_qp *qp = (struct fake_qp *)ibv, **at = &fake.qps;

	fake_lock();
	fake_events_forget(fake_context_of(ibv->context), qp);
	disown((struct fake_cq *)ibv->send_cq, qp);
	disown((struct fake_cq *)ibv->recv_cq, qp);
	fake_dequeue(qp);
	while (*at != qp)
		at = &(*at)->next_qp;
	*at = qp->next_qp;
	fake.by_qpn[ibv->qp_num - FAKE_QPN_FIRST] = NULL;
	fake_late_show(qp);
	((struct fake_cq *)ibv->send_cq)->qps--;
	((struct fake_cq *)ibv->recv_cq)->qps--;
	if (ibv->srq)
		((struct fake_srq *)ibv->srq)->qps--;
	((struct fake_pd *)ibv->pd)->objects--;
	fake_device_of(ibv->context)->qps--;
	fake.counts.qps--;
	fake_free(qp->ring);
	fake_free(qp->inline_ring);
	fake_free(qp);
	fake_unlock();
	return 0;
}

/* ---- states ---- */

#define TO_INIT                                                                \
	(IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS)
#define TO_RTR                                                                 \
	(IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |        \
	 IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define TO_RTS                                                                 \
	(IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | \
	 IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

static int check_init(const struct fake_config *config,
		      const struct ibv_qp_attr *attr)
{
	if (attr->port_num < 1 || attr->port_num > config->attr.phys_port_cnt)
		return EINVAL;
	return attr->pkey_index < config->ports[attr->port_num - 1].npkeys
		       ? 0
		       : EINVAL;
}

/* Without a route header there is no way out of an Ethernet port. */
static int check_rtr(const struct fake_config *config, const struct fake_qp *qp,
		     const struct ibv_qp_attr *attr)
{
	const struct fake_port *port = &config->ports[qp->attr.port_num - 1];
	const struct ibv_ah_attr *ah = &attr->ah_attr;

	if (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > port->active_mtu ||
	    attr->max_dest_rd_atomic > config->attr.max_qp_rd_atom ||
	    ah->port_num != qp->attr.port_num || ah->sl > 15)
		return EINVAL;
	if (ah->is_global && ah->grh.sgid_index >= port->ngids)
		return EINVAL;
	if (ah->is_global && port->gids[ah->grh.sgid_index].err)
		return EINVAL;
	if (ah->is_global)
		return 0;
	return port->link_layer == IBV_LINK_LAYER_ETHERNET || port->grh_required
		       ? EINVAL
		       : 0;
}

static int check_rts(const struct fake_config *config,
		     const struct ibv_qp_attr *attr)
{
	if (attr->max_rd_atomic > config->attr.max_qp_init_rd_atom ||
	    attr->timeout > 31 || attr->retry_cnt > 7 || attr->rnr_retry > 7)
		return EINVAL;
	return 0;
}

/* The attributes that may come with a transition, beside the needed ones. */
static int check_transition(struct fake_qp *qp, const struct ibv_qp_attr *attr,
			    int mask)
{
	const struct fake_config *config =
		&fake_device_of(qp->ex.qp_base.context)->config;
	enum ibv_qp_state from = qp->ex.qp_base.state, to = attr->qp_state;

	if (!(mask & IBV_QP_STATE))
		return EINVAL;
	if (to == IBV_QPS_ERR || to == IBV_QPS_RESET)
		return mask == IBV_QP_STATE ? 0 : EINVAL;
	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
		return mask == TO_INIT ? check_init(config, attr) : EINVAL;
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
		return mask == TO_RTR ? check_rtr(config, qp, attr) : EINVAL;
	if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
		return mask == TO_RTS ? check_rts(config, attr) : EINVAL;
	return EINVAL;
}

static void take(struct fake_qp *qp, const struct ibv_qp_attr *attr)
{
	struct ibv_qp_attr *own = &qp->attr;

	if (attr->qp_state == IBV_QPS_INIT) {
		*own = *attr;
	} else if (attr->qp_state == IBV_QPS_RTR) {
		own->ah_attr = attr->ah_attr;
		own->path_mtu = attr->path_mtu;
		own->dest_qp_num = attr->dest_qp_num;
		own->rq_psn = attr->rq_psn;
		own->max_dest_rd_atomic = attr->max_dest_rd_atomic;
		own->min_rnr_timer = attr->min_rnr_timer;
	} else if (attr->qp_state == IBV_QPS_RTS) {
		own->timeout = attr->timeout;
		own->retry_cnt = attr->retry_cnt;
		own->rnr_retry = attr->rnr_retry;
		own->sq_psn = attr->sq_psn;
		own->max_rd_atomic = attr->max_rd_atomic;
	}
	qp->ex.qp_base.state = own->qp_state = attr->qp_state;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;
	int err;

	fake_lock();
	err = check_transition(qp, attr, mask);
	if (!err && fake_device_of(ibv->context)->broken)
		err = EIO;
	if (!err)
		err = fake_fault(FAKE_MODIFY_QP);
	if (!err && attr->qp_state == IBV_QPS_ERR)
		fake_qp_error(qp);
	else if (!err)
		take(qp, attr);
	if (!err && attr->qp_state == IBV_QPS_RESET)
		qp->head = qp->next = qp->tail = 0;
	fake_unlock();
	return err;
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
		 struct ibv_qp_init_attr *init)
{
	struct fake_qp *qp = (struct fake_qp *)ibv;

	(void)mask;
	fake_lock();
	*attr = qp->attr;
	attr->qp_state = attr->cur_qp_state = ibv->state;
	memset(init, 0, sizeof(*init));
	init->cap.max_send_wr = qp->room;
	init->cap.max_send_sge = qp->max_sge;
	init->cap.max_inline_data = qp->inline_max;
	fake_unlock();
	return 0;
}

/* The device promises nothing about the order in which bytes appear. */
int ibv_query_qp_data_in_order(struct ibv_qp *qp, enum ibv_wr_opcode op,
			       uint32_t flags)
{
	(void)qp;
	(void)op;
	(void)flags;
	return 0;
}
