/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two-sided operations, over messages. A small send carries its data; a
 * large one a key, by which the receiver fetches the data straight into the
 * receive's buffer and then tells the sender. Matching is in order per
 * endpoint.
 *
 * op->priv of a receive that waits for its fetch: 1 buffer, 2 cookie,
 * 3 length, 4..6 packed key, 7 checksum. Of a large send: 2 stage. Word 0
 * links.
 */
#include "checksum.h"
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EAGER_MAX ((size_t)8192)

static void fetch_done(struct vbn_op *op);

void fetches_init(struct vbn_ctx *ctx)
{
	for (int i = 0; i < FETCHES; i++) {
		ctx->fetches[i].op.done = fetch_done;
		ctx->fetches[i].op.arg = &ctx->fetches[i];
		ctx->fetches[i].next = ctx->free_fetches;
		ctx->free_fetches = &ctx->fetches[i];
	}
}

static size_t eager_max(const struct vbn_ep *ep)
{
	size_t max = ep->caps->max_message;

	return max < EAGER_MAX ? max : EAGER_MAX;
}

/* A message that costs a credit, of an endpoint that is usable. */
static inline int message_now(struct vbn_ep *ep,
			      const struct message_header *header,
			      const void *data, size_t len)
{
	int err = -EAGAIN;

	if (!ep->pump.op && ep->tx_credits)
		err = ep->ops->message(ep->conn, header, data, len);
	if (!err)
		ep->tx_credits--;
	else if (err == -EAGAIN)
		ep->ctx->counters.again++;
	return err;
}

int ep_message(struct vbn_ep *ep, const struct message_header *header,
	       const void *data, size_t len)
{
	int err = 0;

	if (ep->status || ep->idle)
		err = ep_usable(ep);
	if (err == -EAGAIN)
		ep->ctx->counters.again++;
	return err ? err : message_now(ep, header, data, len);
}

int vbn_message(struct vbn_ep *ep, unsigned channel, const void *data,
		size_t len)
{
	struct message_header header = {.kind = MESSAGE_USER, .u32 = channel};
	int err;

	if (channel < 1 || channel >= VBN_CHANNELS || len > VBN_MESSAGE_MAX ||
	    (len && !data))
		return vbn_fail(-EINVAL,
				"message: channel %u (1..%d), %zu bytes (at "
				"most %d)",
				channel, VBN_CHANNELS - 1, len,
				VBN_MESSAGE_MAX);
	err = ep_message(ep, &header, data, len);
	if (!err)
		ep->ctx->counters.messages++;
	return err;
}

/* ---- sending ---- */

/* Memory that the receiver can fetch from: @buf itself, or a copy. */
static int readable(struct vbn_ep *ep, const void *buf, size_t len,
		    struct vbn_rkey *rkey, void **stage)
{
	struct vbn_ctx *ctx = ep->ctx;
	const struct vbn_mem *mem = memmap_find(ctx->reader, buf, len);
	struct vbn_pool *pool;

	*stage = NULL;
	if (!mem || !(mem->access & VBN_ACCESS_READ)) {
		pool = job_staging(ctx->job);
		*stage = pool ? vbn_pool_alloc(pool, len, 0) : NULL;
		if (!*stage) /* the pool has said why: it asks the store, too */
			return control_rank_dead(ctx->job->control, 0)
				       ? -ECONNRESET
				       : -ENOMEM;
		memcpy(*stage, buf, len);
		mem = memmap_find(ctx->reader, *stage, len);
		buf = *stage;
	}
	*rkey = (struct vbn_rkey){.region = mem->region,
				  .generation = mem->generation,
				  .base = (uintptr_t)buf,
				  .length = len};
	return 0;
}

static int send_large(struct vbn_ep *ep, struct vbn_op *op, const void *buf,
		      size_t len)
{
	struct message_header header = {.kind = MESSAGE_RENDEZVOUS,
					.u64 = {(uintptr_t)op, len, 0}};
	uint8_t packed[VBN_RKEY_BYTES];
	struct vbn_rkey rkey;
	void *stage;
	int err;

	if (ep->nrendezvous == RENDEZVOUS_MAX || ep->pump.op ||
	    !ep->tx_credits) {
		ep->ctx->counters.again++;
		return -EAGAIN;
	}
	err = readable(ep, buf, len, &rkey, &stage);
	if (err)
		return err;
	vbn_rkey_pack(&rkey, packed);
	if (ep->ctx->job->checksum)
		header.u64[2] = checksum_of(buf, len);
	err = ep_message(ep, &header, packed, sizeof(packed));
	if (err) {
		if (stage)
			vbn_pool_free(ep->ctx->job->staging, stage);
		return err;
	}
	if (stage)
		ep->ctx->counters.staged_bytes += len;
	op->priv[2] = (uintptr_t)stage;
	op_push(&ep->rendezvous, op);
	ep->nrendezvous++;
	return 0;
}

int vbn_send(struct vbn_ep *ep, struct vbn_op *op, const void *buf, size_t len,
	     unsigned flags)
{
	struct message_header header = {.kind = MESSAGE_EAGER};
	int err = 0;

	(void)flags;
	if (!op || (len && !buf))
		return vbn_fail(-EINVAL, "send needs an op and memory");
	if (ep->status || ep->idle)
		err = ep_usable(ep);
	if (err)
		return err;
	if (len <= eager_max(ep)) {
		err = message_now(ep, &header, buf, len);
		if (!err)
			core_defer(ep->ctx, op, 0);
	} else {
		err = send_large(ep, op, buf, len);
	}
	if (err)
		return err;
	op->status = -EINPROGRESS;
	op->wc = op->vendor = 0;
	op->bytes = len;
	ep->ctx->counters.sends++;
	ep->ctx->counters.send_bytes += len;
	return 0;
}

static void send_finished(struct vbn_ep *ep, struct vbn_op *op, int status)
{
	if (op->priv[2])
		vbn_pool_free(ep->ctx->job->staging, (void *)op->priv[2]);
	ep->nrendezvous--;
	core_complete(ep->ctx, op, status);
}

/* The peer has fetched the send of @cookie. */
static void on_fetched(struct vbn_ep *ep, uint64_t cookie, int status)
{
	struct op_list left;
	struct vbn_op *op, *found = NULL;

	op_list_init(&left);
	while ((op = op_pop(&ep->rendezvous))) {
		if ((uintptr_t)op == cookie)
			found = op;
		else
			op_push(&left, op);
	}
	while ((op = op_pop(&left)))
		op_push(&ep->rendezvous, op);
	if (found)
		send_finished(ep, found, status);
}

/* ---- receiving ---- */

static void fetch_free(struct fetch *fetch)
{
	struct fetch **link = &fetch->ep->fetches;

	while (*link != fetch)
		link = &(*link)->next;
	*link = fetch->next;
	fetch->next = fetch->ep->ctx->free_fetches;
	fetch->ep->ctx->free_fetches = fetch;
}

static void fetch_over(struct fetch *fetch, int status)
{
	struct vbn_op *recv = fetch->recv;

	fetch->recv = NULL;
	if (fetch->state ==
	    FETCH_LOST) { /* its endpoint has failed meanwhile */
		fetch->next = fetch->ep->ctx->free_fetches;
		fetch->ep->ctx->free_fetches = fetch;
		return;
	}
	fetch->status = status == -EMSGSIZE ? 0 : status;
	fetch->state = FETCH_OWED;
	ep_want_pump(fetch->ep);
	if (recv)
		core_complete(fetch->ep->ctx, recv, status);
}

/* What was fetched is what the sender has summed. */
static int compare(const struct fetch *fetch)
{
	const struct vbn_rkey *rkey = &fetch->rkey;

	if (!fetch->sum || fetch->sum == checksum_of(fetch->buf, fetch->len))
		return 0;
	vbn_log(VBN_WARN,
		"rank %d: checksum: a send of %zu bytes from rank %d (region "
		"%u, address 0x%llx there) did not arrive as it was sent",
		fetch->ep->ctx->job->rank, fetch->len, fetch->ep->rank,
		rkey->region, (unsigned long long)rkey->base);
	return -EBADMSG;
}

static void fetch_done(struct vbn_op *op)
{
	struct fetch *fetch = op->arg;

	/* once its endpoint has failed, the buffer is the user's again */
	fetch_over(fetch,
		   op->status || !fetch->recv ? op->status : compare(fetch));
}

/* Take a struct fetch for a matched large receive; false: none free. */
static bool fetch_begin(struct vbn_ep *ep, struct vbn_op *op)
{
	struct fetch *fetch = ep->ctx->free_fetches, **tail = &ep->fetches;

	if (!fetch)
		return false;
	ep->ctx->free_fetches = fetch->next;
	fetch->next = NULL;
	fetch->recv = op;
	fetch->ep = ep;
	fetch->buf = (void *)op->priv[1];
	fetch->cookie = op->priv[2];
	fetch->len = op->priv[3];
	fetch->sum = op->priv[7];
	fetch->state = FETCH_POST;
	vbn_rkey_unpack(&fetch->rkey, (const uint8_t *)&op->priv[4]);
	while (*tail)
		tail = &(*tail)->next;
	*tail = fetch;
	if (fetch->len > op->bytes) { /* the room, until now */
		op->bytes = fetch->len;
		fetch_over(fetch, -EMSGSIZE);
	} else {
		op->bytes = fetch->len;
	}
	return true;
}

static void match_large(struct vbn_ep *ep, struct vbn_op *op, uint64_t cookie,
			size_t len, uint64_t sum, const uint8_t *packed,
			uint64_t generation)
{
	op->priv[2] = cookie;
	op->priv[3] = len;
	op->priv[7] = sum;
	memcpy(&op->priv[4], packed, VBN_RKEY_BYTES);
	op_push(&ep->fetching, op);
	ep_want_pump(ep);
	ep_return_credit(ep, generation);
}

/* Copies; returns the receive's status. */
static int match_small(struct vbn_ep *ep, struct vbn_op *op, const void *data,
		       size_t len, uint64_t generation)
{
	size_t room = op->bytes;
	int status = len > room ? -EMSGSIZE : 0;

	if (len && !status)
		memcpy((void *)op->priv[1], data, len);
	op->bytes = len;
	ep_return_credit(ep, generation);
	return status;
}

static void keep_unexpected(struct vbn_ep *ep, bool rendezvous, uint64_t cookie,
			    uint64_t sum, size_t len, const void *data,
			    size_t data_len)
{
	struct unexpected *u = malloc(sizeof(*u) + data_len);

	if (!u) {
		core_failed(ep, -ENOMEM, "no memory for an unexpected send");
		return;
	}
	u->next = NULL;
	u->rendezvous = rendezvous;
	u->generation = ep->generation;
	u->cookie = cookie;
	u->sum = sum;
	u->len = len;
	if (data_len)
		memcpy(u->data, data, data_len);
	*ep->unexpected_tail = u;
	ep->unexpected_tail = &u->next;
	ep_keep(ep);
}

void send_deliver(struct vbn_ep *ep, const struct message_header *header,
		  const void *data, size_t len)
{
	struct vbn_op *op;

	if (header->kind == MESSAGE_FETCHED) {
		on_fetched(ep, header->u64[0], -(int)header->u32);
		return;
	}
	if (header->kind != MESSAGE_RENDEZVOUS || len != VBN_RKEY_BYTES)
		return; /* nothing of ours */
	op = op_pop(&ep->recvs);
	if (op)
		match_large(ep, op, header->u64[0], header->u64[1],
			    header->u64[2], data, ep->generation);
	else
		keep_unexpected(ep, true, header->u64[0], header->u64[2],
				header->u64[1], data, len);
}

void eager_deliver(struct vbn_ep *ep, const void *data, size_t len)
{
	struct vbn_op *op = op_pop(&ep->recvs);

	if (op)
		core_complete(ep->ctx, op,
			      match_small(ep, op, data, len, ep->generation));
	else
		keep_unexpected(ep, false, 0, 0, len, data, len);
}

int vbn_recv(struct vbn_ep *ep, struct vbn_op *op, void *buf, size_t len)
{
	struct unexpected *u = ep->unexpected;
	int err;

	if (!op || (len && !buf))
		return vbn_fail(-EINVAL, "receive needs an op and memory");
	if (!u && (ep->status || ep->idle)) {
		err = ep_usable(ep);
		if (err)
			return err;
	}
	op->status = -EINPROGRESS;
	op->wc = op->vendor = 0;
	op->bytes = len;
	op->priv[1] = (uintptr_t)buf;
	ep->ctx->counters.receives++;
	if (!u) {
		op_push(&ep->recvs, op);
		return 0;
	}
	ep_unkeep(ep, u->generation);
	ep->unexpected = u->next;
	if (!u->next)
		ep->unexpected_tail = &ep->unexpected;
	if (u->rendezvous)
		match_large(ep, op, u->cookie, u->len, u->sum, u->data,
			    u->generation);
	else
		core_defer(ep->ctx, op,
			   match_small(ep, op, u->data, u->len, u->generation));
	free(u);
	return 0;
}

/* ---- what is owed to the peer ---- */

/* A peer that has used half of its window may have a larger one. */
static void grow_window(struct vbn_ep *ep)
{
	unsigned want = 2 * ep->rx_window;

	if (want > ep->caps->credits_max)
		want = ep->caps->credits_max;
	if (want == ep->rx_window || ep->ops->window(ep->conn, want))
		return;
	ep->rx_consumed += want - ep->rx_window;
	ep->rx_window = want;
	ep->rx_grown = true;
}

static bool return_credit(struct vbn_ep *ep)
{
	struct message_header header = {.kind = MESSAGE_CREDIT};
	unsigned half = ep->rx_window / 2;

	if (ep->ops->window && !ep->rx_grown &&
	    ep->rx_consumed + ep->rx_kept >= half)
		grow_window(ep);
	if (ep->rx_consumed < half && !ep->rx_grown)
		return true;
	header.u32 = ep->rx_consumed;
	if (ep->ops->message(ep->conn, &header, NULL, 0))
		return false;
	ep->rx_consumed = 0;
	ep->rx_grown = false;
	return true;
}

/* false: try again later */
static bool fetch_step(struct vbn_ep *ep, struct fetch *fetch)
{
	struct message_header header = {.kind = MESSAGE_FETCHED};
	int err;

	if (fetch->state == FETCH_POST) {
		fetch->state = FETCH_GETTING;
		err = ops_get(ep, &fetch->op, fetch->buf, fetch->len,
			      &fetch->rkey, 0, 0);
		if (err == -EAGAIN)
			fetch->state = FETCH_POST;
		if (err == -EAGAIN)
			return false;
		if (err) {
			fetch_over(fetch, err);
			return !ep->conn; /* the callback may have closed it */
		}
	}
	if (fetch->state != FETCH_OWED)
		return true; /* the get's completion goes on */
	header.u64[0] = fetch->cookie;
	header.u32 = (uint32_t)-fetch->status;
	if (ep->ops->message(ep->conn, &header, NULL, 0))
		return false;
	fetch_free(fetch);
	return true;
}

bool send_run(struct vbn_ep *ep)
{
	struct fetch *fetch, *next;
	bool done;

	if (!ep->conn)
		return true;
	done = return_credit(ep);
	while (ep->fetching.head && ep->ctx->free_fetches)
		fetch_begin(ep, op_pop(&ep->fetching));
	for (fetch = ep->fetches; fetch && ep->conn; fetch = next) {
		next = fetch->next;
		done = fetch_step(ep, fetch) && done;
	}
	return done && !ep->fetching.head;
}

void send_fail(struct vbn_ep *ep, int status)
{
	struct unexpected **link = &ep->unexpected;
	struct vbn_op *op;
	bool gap = false;

	while (ep->fetches) {
		struct fetch *fetch = ep->fetches;
		struct vbn_op *recv = fetch->recv;

		fetch->recv = NULL;
		if (fetch->state == FETCH_GETTING) {
			ep->fetches = fetch->next;
			fetch->state = FETCH_LOST;
		} else {
			fetch_free(fetch);
		}
		if (recv)
			core_complete(ep->ctx, recv, status);
	}
	while ((op = op_pop(&ep->fetching)))
		core_complete(ep->ctx, op, status);
	while ((op = op_pop(&ep->recvs)))
		core_complete(ep->ctx, op, status);
	while ((op = op_pop(&ep->rendezvous)))
		send_finished(ep, op, status);
	/* Small sends that have arrived can be received still, up to a gap. */
	while (*link) {
		struct unexpected *u = *link;

		gap |= u->rendezvous || ep->ctx->closing;
		if (gap) {
			*link = u->next;
			free(u);
		} else {
			link = &u->next;
		}
	}
	ep->unexpected_tail = link;
}
