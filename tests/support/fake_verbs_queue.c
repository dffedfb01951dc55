/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake verbs device: completion channels and queues, shared receive
 * queues. A completion queue has exactly the room that was asked for.
 */
#include "fake_verbs_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- channels ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context)
{
	struct fake_channel *channel = NULL;
	int err;

	fake_lock();
	err = fake_device_of(context)->broken ? EIO
					      : fake_fault(FAKE_CREATE_CHANNEL);
	if (!err) {
		channel = fake_alloc(sizeof(*channel));
		channel->ibv.context = context;
		channel->ibv.fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
		fake_context_of(context)->objects++;
		fake.counts.channels++;
	}
	fake_unlock();
	errno = err;
	return err ? NULL : &channel->ibv;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv)
{
	struct fake_channel *channel = (struct fake_channel *)ibv;
	int err = 0;

	fake_lock();
	if (channel->cqs) {
		fake_violation("a completion channel is destroyed in use");
		err = EBUSY;
	} else {
		close(ibv->fd);
		fake_context_of(ibv->context)->objects--;
		fake.counts.channels--;
		fake_free(channel);
	}
	fake_unlock();
	return err;
}

static void raise_completion(struct fake_cq *cq)
{
	struct fake_channel *channel = (struct fake_channel *)cq->ibv.channel;
	struct fake_cq **at = &channel->ready;
	uint64_t one = 1;

	cq->armed = false;
	if (cq->queued)
		return;
	while (*at)
		at = &(*at)->next_ready;
	*at = cq;
	cq->next_ready = NULL;
	cq->queued = true;
	if (write(channel->ibv.fd, &one, sizeof(one)) < 0)
		fake_violation("the channel's descriptor: %s", strerror(errno));
}

int ibv_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **out,
		     void **arg)
{
	struct fake_channel *channel = (struct fake_channel *)ibv;
	struct fake_cq *cq;
	uint64_t one;

	if (read(ibv->fd, &one, sizeof(one)) != sizeof(one))
		return -1;
	fake_lock();
	cq = channel->ready;
	channel->ready = cq->next_ready;
	cq->queued = false;
	cq->unacked++;
	*out = &cq->ibv;
	*arg = cq->ibv.cq_context;
	fake_unlock();
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *ibv, unsigned n)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;

	fake_lock();
	if (n > cq->unacked)
		fake_violation("more completion events acknowledged than read");
	else
		cq->unacked -= n;
	fake_unlock();
}

/* ---- completion queues ---- */

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *arg,
			     struct ibv_comp_channel *channel, int vector)
{
	struct fake_device_state *device = fake_device_of(context);
	struct fake_cq *cq = NULL;
	int err;

	fake_lock();
	err = device->broken ? EIO : fake_fault(FAKE_CREATE_CQ);
	if (cqe < 1 || cqe > device->config.attr.max_cqe || vector)
		err = EINVAL;
	else if (device->cqs >= (unsigned)device->config.attr.max_cq)
		err = ENOMEM;
	if (!err) {
		cq = fake_alloc(sizeof(*cq));
		cq->ibv.context = context;
		cq->ibv.channel = channel;
		cq->ibv.cq_context = arg;
		cq->ibv.cqe = cqe;
		cq->room = (unsigned)cqe;
		cq->ring = fake_alloc(cq->room * sizeof(*cq->ring));
		cq->next = fake.cqs;
		fake.cqs = cq;
		if (channel)
			((struct fake_channel *)channel)->cqs++;
		fake_context_of(context)->objects++;
		device->cqs++;
		fake.counts.cqs++;
	}
	fake_unlock();
	errno = err;
	return err ? NULL : &cq->ibv;
}

/* An event not read yet goes with its queue. */
static void forget_event(struct fake_cq *cq)
{
	struct fake_channel *channel = (struct fake_channel *)cq->ibv.channel;
	struct fake_cq **at = &channel->ready;
	uint64_t one;

	while (*at != cq)
		at = &(*at)->next_ready;
	*at = cq->next_ready;
	if (read(channel->ibv.fd, &one, sizeof(one)) < 0)
		fake_violation("the channel's descriptor: %s", strerror(errno));
}

static void cq_free(struct fake_cq *cq)
{
	struct fake_cq **at = &fake.cqs;

	fake_events_forget(fake_context_of(cq->ibv.context), cq);
	while (*at != cq)
		at = &(*at)->next;
	*at = cq->next;
	if (cq->queued)
		forget_event(cq);
	if (cq->ibv.channel)
		((struct fake_channel *)cq->ibv.channel)->cqs--;
	fake_context_of(cq->ibv.context)->objects--;
	fake_device_of(cq->ibv.context)->cqs--;
	fake.counts.cqs--;
	fake_free(cq->ring);
	fake_free(cq);
}

int ibv_destroy_cq(struct ibv_cq *ibv)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;
	int err = 0;

	fake_lock();
	if (cq->unacked)
		fake_violation("%u completion events not acknowledged: a "
			       "device would wait for ever",
			       cq->unacked);
	if (cq->qps) {
		fake_violation("a completion queue is destroyed with %u queue "
			       "pairs",
			       cq->qps);
		err = EBUSY;
	} else {
		cq_free(cq);
	}
	fake_unlock();
	return err;
}

void fake_cq_push(struct fake_cq *cq, const struct fake_cqe *cqe)
{
	unsigned held = cq->head - cq->tail;

	if (held == cq->room) {
		if (!cq->overrun)
			fake_violation("a completion queue of %u overruns",
				       cq->room);
		cq->overrun = true;
		fake_event_push(fake_context_of(cq->ibv.context),
				IBV_EVENT_CQ_ERR, NULL, cq, NULL, 0);
		return;
	}
	cq->ring[cq->head++ % cq->room] = *cqe;
	if (held + 1 > fake.counts.cq_peak)
		fake.counts.cq_peak = held + 1;
	if (cq->armed)
		raise_completion(cq);
}

/* What a device does not define in a bad completion is garbage. */
static void deliver(struct fake_cqe *cqe, struct ibv_wc *wc)
{
	struct fake_qp *qp = cqe->qp;

	*wc = cqe->wc;
	if (wc->status != IBV_WC_SUCCESS) {
		wc->opcode = (enum ibv_wc_opcode)0x7a7a7a7a;
		wc->byte_len = wc->imm_data = 0x7a7a7a7a;
		wc->wc_flags = 0x7a7a7a7a;
	}
	if (!qp)
		return;
	if (cqe->is_send)
		qp->tail = cqe->retires;
	if (fake.late)
		fake_late_show(qp);
}

int fake_poll_cq(struct ibv_cq *ibv, int n, struct ibv_wc *wc)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;
	int got = 0;

	fake_lock();
	if (fake_device_of(ibv->context)->cqs_broken || cq->overrun) {
		fake_unlock();
		return -1;
	}
	if (fake.busy && !fake.deferred)
		fake_run_busy();
	while (got < n && cq->tail != cq->head)
		deliver(&cq->ring[cq->tail++ % cq->room], &wc[got++]);
	fake.counts.completions += (unsigned)got;
	fake_unlock();
	return got;
}

int fake_req_notify_cq(struct ibv_cq *ibv, int solicited_only)
{
	struct fake_cq *cq = (struct fake_cq *)ibv;
	int err;

	(void)solicited_only;
	fake_lock();
	err = fake_device_of(ibv->context)->broken
		      ? EIO
		      : fake_fault(FAKE_REQ_NOTIFY);
	if (!err && !ibv->channel)
		err = EINVAL;
	if (!err) {
		cq->armed = true;
		fake.counts.notify_requests++;
	}
	fake_unlock();
	return err;
}

/* ---- shared receive queues ---- */

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd,
			       struct ibv_srq_init_attr *attr)
{
	struct fake_device_state *device = fake_device_of(pd->context);
	const struct ibv_device_attr *caps = &device->config.attr;
	struct fake_srq *srq = NULL;
	int err;

	fake_lock();
	err = device->broken ? EIO : fake_fault(FAKE_CREATE_SRQ);
	if (!attr->attr.max_wr ||
	    attr->attr.max_wr > (uint32_t)caps->max_srq_wr ||
	    attr->attr.max_sge > (uint32_t)caps->max_srq_sge ||
	    attr->attr.max_sge > FAKE_SGES)
		err = EINVAL;
	else if (device->srqs >= (unsigned)caps->max_srq)
		err = ENOMEM;
	if (!err) {
		srq = fake_alloc(sizeof(*srq));
		srq->ibv.context = pd->context;
		srq->ibv.pd = pd;
		srq->ibv.srq_context = attr->srq_context;
		srq->room = attr->attr.max_wr;
		srq->ring = fake_alloc(srq->room * sizeof(*srq->ring));
		srq->next = fake.srqs;
		fake.srqs = srq;
		((struct fake_pd *)pd)->objects++;
		device->srqs++;
		fake.counts.srqs++;
	}
	fake_unlock();
	errno = err;
	return err ? NULL : &srq->ibv;
}

static void srq_free(struct fake_srq *srq)
{
	struct fake_srq **at = &fake.srqs;

	fake_events_forget(fake_context_of(srq->ibv.context), srq);
	while (*at != srq)
		at = &(*at)->next;
	*at = srq->next;
	((struct fake_pd *)srq->ibv.pd)->objects--;
	fake_device_of(srq->ibv.context)->srqs--;
	fake.counts.srqs--;
	fake_free(srq->ring);
	fake_free(srq);
}

int ibv_destroy_srq(struct ibv_srq *ibv)
{
	struct fake_srq *srq = (struct fake_srq *)ibv;
	int err = 0;

	fake_lock();
	if (srq->qps) {
		fake_violation("a shared receive queue is destroyed with %u "
			       "queue pairs",
			       srq->qps);
		err = EBUSY;
	} else {
		srq_free(srq);
	}
	fake_unlock();
	return err;
}

int ibv_modify_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr, int mask)
{
	struct fake_srq *srq = (struct fake_srq *)ibv;

	if (mask != IBV_SRQ_LIMIT || attr->srq_limit > srq->room)
		return EINVAL;
	fake_lock();
	srq->limit = attr->srq_limit;
	fake_unlock();
	return 0;
}

int ibv_query_srq(struct ibv_srq *ibv, struct ibv_srq_attr *attr)
{
	struct fake_srq *srq = (struct fake_srq *)ibv;

	*attr = (struct ibv_srq_attr){.max_wr = srq->room,
				      .max_sge = FAKE_SGES,
				      .srq_limit = srq->limit};
	return 0;
}

static int post_recv(struct fake_srq *srq, const struct ibv_recv_wr *wr)
{
	struct fake_recv *recv;
	int err = fake_device_of(srq->ibv.context)->broken
			  ? EIO
			  : fake_fault(FAKE_POST_SRQ_RECV);

	if (err)
		return err;
	if (wr->num_sge < 0 || wr->num_sge > FAKE_SGES)
		return EINVAL;
	if (srq->head - srq->tail == srq->room)
		return ENOMEM;
	recv = &srq->ring[srq->head++ % srq->room];
	recv->wr_id = wr->wr_id;
	recv->nsge = (unsigned)wr->num_sge;
	if (wr->num_sge)
		memcpy(recv->sge, wr->sg_list,
		       (size_t)wr->num_sge * sizeof(*wr->sg_list));
	return 0;
}

int fake_post_srq_recv(struct ibv_srq *ibv, struct ibv_recv_wr *wr,
		       struct ibv_recv_wr **bad)
{
	int err = 0;

	fake_lock();
	for (; wr && !err; wr = err ? wr : wr->next)
		err = post_recv((struct fake_srq *)ibv, wr);
	if (err)
		*bad = wr;
	fake_unlock();
	return err;
}
