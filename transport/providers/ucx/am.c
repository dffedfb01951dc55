/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Active messages as they arrive, inside UCX's progress. Requests are carried
 * out and answered here, answers end the oldest waiting request; only what
 * the core must hear (notifies, messages) is copied and kept for progress.
 *
 * They are taken in the order of their seq. UCX delivers a connection's in
 * order as long as it uses one lane; with several, what is early is kept.
 */
#include "ucx.h"

#include "error.h"

#include <errno.h>
#include <string.h>

#define ANSWER_AFTER 64

struct ucx_conn *ucx_conn_of(struct ucx_worker *worker, uint32_t id)
{
	return id < worker->nconns ? worker->conns[id] : NULL;
}

/* ---- requests ---- */

static struct am_header answer(enum am_kind kind, uint32_t imm)
{
	return (struct am_header){.kind = kind, .imm = imm};
}

void ucx_am_answer(struct ucx_conn *conn)
{
	struct am_header header = answer(AM_DONE, conn->puts);

	list_del(&conn->to_answer);
	if (!conn->puts)
		return;
	conn->puts = 0;
	ucx_send(conn, &header, NULL);
}

static void refuse(struct ucx_conn *conn, int err)
{
	struct am_header header = answer(AM_REFUSED, (uint32_t)-err);

	ucx_am_answer(conn);
	ucx_send(conn, &header, NULL);
}

static void keep_arrival(struct ucx_worker *worker,
			 const struct am_header *header, const void *bytes,
			 size_t len)
{
	struct am_data *data = ucx_data_get(worker, len);
	struct ucx_conn *conn = ucx_conn_of(worker, header->conn);

	if (!data) {
		ucx_conn_failed(conn, UCS_ERR_NO_MEMORY);
		return;
	}
	data->header = *header;
	data->len = len;
	data->next = NULL;
	if (len)
		memcpy(data->bytes, bytes, len);
	*worker->arrived_tail = data;
	worker->arrived_tail = &data->next;
}

static void handle_put(struct ucx_conn *conn, const struct am_header *header,
		       const void *bytes, size_t len)
{
	struct ucx_worker *worker = conn->worker;
	const struct am_request *request = &header->request;
	int err = conn->refusing
			  ? -EKEYREJECTED
			  : ucx_region_write(worker->job, request, bytes, len);

	if (err && !conn->refusing) {
		refuse(conn, err); /* one answer, whatever fragments follow */
		conn->refusing = true;
	}
	if (request->more)
		return;
	if (!conn->refusing) {
		if (!conn->puts++)
			list_add_tail(&worker->to_answer, &conn->to_answer);
		if (conn->puts >= ANSWER_AFTER)
			ucx_am_answer(conn);
		if (request->notify)
			keep_arrival(worker, header, NULL, 0);
	}
	conn->refusing = false;
}

static void handle_get(struct ucx_conn *conn, const struct am_header *header)
{
	const struct am_request *request = &header->request;
	struct am_header reply = answer(AM_DATA, 0);
	struct am_data *data;
	int err;

	if (request->len > UCX_FRAGMENT) {
		refuse(conn, -EINVAL);
		return;
	}
	data = ucx_data_get(conn->worker, request->len);
	if (!data) {
		refuse(conn, -ENOMEM);
		return;
	}
	err = ucx_region_read(conn->worker->job, request, data->bytes);
	if (err) {
		ucx_data_put(conn->worker, data);
		refuse(conn, err);
		return;
	}
	data->len = request->len;
	ucx_am_answer(conn);
	ucx_send(conn, &reply, data);
}

static void handle_atomic(struct ucx_conn *conn, const struct am_header *header)
{
	struct am_header reply = answer(AM_VALUE, 0);
	uint64_t value = 0;
	int err = ucx_region_atomic(conn->worker->job, &header->request,
				    header->kind == AM_COMPARE_SWAP, &value);

	if (err) {
		refuse(conn, err);
		return;
	}
	reply.request.len = value;
	ucx_am_answer(conn);
	ucx_send(conn, &reply, NULL);
}

/* ---- answers ---- */

static struct flight *oldest(struct ucx_conn *conn)
{
	if (list_empty(&conn->sent))
		return NULL;
	return (struct flight *)conn->sent.next;
}

/* A flush has no answer of its own: it is over when all before it are. */
void ucx_answered(struct ucx_conn *conn, struct flight *f)
{
	do {
		f->answered = true;
		list_move(&conn->sending, &f->link);
		ucx_flight_check(f);
		f = oldest(conn);
	} while (f && f->kind == AM_DONE);
}

static void handle_done(struct ucx_conn *conn, uint32_t count)
{
	while (count--) {
		struct flight *f = oldest(conn);

		/* A loopback answers before the post has returned. */
		if (!f && !list_empty(&conn->queue))
			f = (struct flight *)conn->queue.next;
		if (!f || f->kind != AM_PUT)
			return;
		if (f->posted)
			ucx_answered(conn, f);
		else
			f->answered = true;
	}
}

/* The get that the next fragment belongs to; it may be half posted. */
static struct flight *receiving(struct ucx_conn *conn)
{
	struct flight *f = oldest(conn);

	if (!f && !list_empty(&conn->queue))
		f = (struct flight *)conn->queue.next;
	return f && f->kind == AM_GET && f->unanswered ? f : NULL;
}

static void fragment_answered(struct ucx_conn *conn, struct flight *f,
			      size_t len)
{
	f->received += len;
	f->unanswered--;
	conn->window--;
	if (f->posted && !f->unanswered)
		ucx_answered(conn, f);
	ucx_pump(conn);
}

static void handle_data(struct ucx_conn *conn, const void *bytes, size_t len)
{
	struct flight *f = receiving(conn);

	if (!f || len > f->posted_len - f->received)
		return;
	if (!f->status)
		memcpy(f->local + f->received, bytes, len);
	fragment_answered(conn, f, len);
}

static void handle_value(struct ucx_conn *conn, uint64_t value)
{
	struct flight *f = oldest(conn);

	if (!f || (f->kind != AM_FETCH_ADD && f->kind != AM_COMPARE_SWAP))
		return;
	if (f->result)
		*f->result = value;
	ucx_answered(conn, f);
}

static void handle_refused(struct ucx_conn *conn, int err)
{
	struct flight *f = receiving(conn);

	if (f) {
		size_t left = f->posted_len - f->received;

		if (!f->status)
			f->status = err;
		f->len = f->posted_len; /* the rest need not be asked for */
		fragment_answered(conn, f,
				  left < UCX_FRAGMENT ? left : UCX_FRAGMENT);
		return;
	}
	f = oldest(conn);
	/* A put may be refused before its last fragment is posted. */
	if (!f && !list_empty(&conn->queue))
		f = (struct flight *)conn->queue.next;
	if (!f)
		return;
	f->status = err;
	if (f->posted)
		ucx_answered(conn, f);
	else
		f->answered = true;
}

/* ---- in order ---- */

static void take(struct ucx_conn *conn, const struct am_header *header,
		 const void *bytes, size_t len)
{
	struct am_header ack = answer(AM_FIN_ACK, 0);

	conn->rx_seq++;
	switch (header->kind) {
	case AM_NOTIFY:
	case AM_MESSAGE:
		keep_arrival(conn->worker, header, bytes, len);
		break;
	case AM_PUT:
		handle_put(conn, header, bytes, len);
		break;
	case AM_GET:
		handle_get(conn, header);
		break;
	case AM_FETCH_ADD:
	case AM_COMPARE_SWAP:
		handle_atomic(conn, header);
		break;
	case AM_DONE:
		handle_done(conn, header->imm);
		break;
	case AM_DATA:
		handle_data(conn, bytes, len);
		break;
	case AM_VALUE:
		handle_value(conn, header->request.len);
		break;
	case AM_REFUSED:
		handle_refused(conn, -(int)header->imm);
		break;
	case AM_FIN:
		conn->peer_closes = true;
		ucx_am_answer(conn);
		ucx_send(conn, &ack, NULL);
		break;
	case AM_FIN_ACK:
		conn->fin_acked = true;
		break;
	}
}

static void take_early(struct ucx_conn *conn)
{
	struct am_data **p = &conn->early;

	while (*p) {
		struct am_data *data = *p;

		if (data->header.seq != conn->rx_seq) {
			p = &data->next;
			continue;
		}
		*p = data->next;
		take(conn, &data->header, data->bytes, data->len);
		ucx_data_put(conn->worker, data);
		p = &conn->early; /* what comes next may be before it */
	}
}

static void keep(struct ucx_worker *worker, struct am_data **list,
		 const struct am_header *header, const void *bytes, size_t len)
{
	struct am_data *data = ucx_data_get(worker, len);

	if (!data) {
		vbn_log(VBN_ERR, "ucx: out of memory, an arrival is lost");
		return;
	}
	data->header = *header;
	data->len = len;
	if (len)
		memcpy(data->bytes, bytes, len);
	data->next = *list;
	*list = data;
}

static void arrive(struct ucx_worker *worker, const struct am_header *header,
		   const void *bytes, size_t len)
{
	struct ucx_conn *conn = ucx_conn_of(worker, header->conn);

	if (conn == &ucx_closed || header->conn >= worker->next_id)
		return;
	if (!conn) {
		keep(worker, &worker->strays, header, bytes, len);
		return;
	}
	if (header->cookie != conn->cookie)
		return;
	if (header->seq != conn->rx_seq) {
		keep(worker, &conn->early, header, bytes, len);
		return;
	}
	take(conn, header, bytes, len);
	if (conn->early)
		take_early(conn);
}

ucs_status_t ucx_am_arrived(void *arg, const void *header, size_t header_len,
			    void *bytes, size_t len,
			    const ucp_am_recv_param_t *param)
{
	struct am_header head = {0};

	if (header_len < offsetof(struct am_header, request) ||
	    header_len > sizeof(head) ||
	    (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
		return UCS_OK; /* not one of ours */
	memcpy(&head, header, header_len);
	arrive(arg, &head, bytes, len);
	return UCS_OK;
}

void ucx_am_strays(struct ucx_worker *worker, struct ucx_conn *conn)
{
	struct am_data **p = &worker->strays;

	while (*p) {
		struct am_data *data = *p;

		if (data->header.conn != conn->id) {
			p = &data->next;
			continue;
		}
		*p = data->next;
		if (data->header.cookie != conn->cookie) {
			ucx_data_put(worker, data);
			continue;
		}
		data->next = conn->early;
		conn->early = data;
	}
	take_early(conn);
}
