/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is sent. A connection's queue holds operations, notifies and messages
 * in the order posted; the pump posts its head, fragment by fragment, as long
 * as the window has room. Since the target takes active messages in order, a
 * notify or message comes after the data of the puts before it without more
 * ado, and answers come in the order of the requests.
 */
#include "ucx.h"

#include "error.h"

#include <errno.h>
#include <string.h>

/* Credits bound messages; they may go beyond the operations' limit. */
#define FLIGHTS_MAX (UCX_FLIGHTS + 4 * UCX_CREDITS)

/* ---- to UCX ---- */

static size_t header_len(uint32_t kind)
{
	switch (kind) {
	case AM_MESSAGE:
		return offsetof(struct am_header, message) +
		       sizeof(struct message_header);
	case AM_PUT:
	case AM_GET:
	case AM_FETCH_ADD:
	case AM_COMPARE_SWAP:
	case AM_VALUE:
		return sizeof(struct am_header);
	default:
		return offsetof(struct am_header, request);
	}
}

/* UCX is done with it; @status: how it went. */
static void over(struct send *send, ucs_status_t status)
{
	struct ucx_conn *conn = send->conn;
	struct flight *f = send->flight;

	if (send->header.kind == AM_PUT)
		conn->window--;
	if (status != UCS_OK) {
		if (f)
			f->raw = status;
		ucx_conn_failed(conn, status);
	}
	ucx_send_put(conn->worker, send);
	if (f) {
		f->sends--;
		ucx_flight_check(f);
	}
}

static void sent(void *request, ucs_status_t status, void *user_data)
{
	struct send *send = user_data;
	struct ucx_conn *conn = send->conn;

	ucp_request_free(request);
	if (conn == &ucx_closed)
		return; /* an orphan, freed with the worker */
	over(send, status);
	ucx_pump(conn);
}

/* False: out of memory, and the connection has failed. */
static bool give(struct ucx_conn *conn, struct flight *f,
		 const struct am_header *header, struct am_data *data,
		 const void *bytes, size_t len)
{
	ucp_request_param_t param = {
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA |
				UCP_OP_ATTR_FIELD_FLAGS,
		.flags = UCP_AM_SEND_FLAG_EAGER,
		.cb.send = sent,
	};
	struct send *send = ucx_send_get(conn);
	ucs_status_ptr_t request;

	if (!send) {
		if (data)
			ucx_data_put(conn->worker, data);
		ucx_conn_failed(conn, UCS_ERR_NO_MEMORY);
		return false;
	}
	send->flight = f;
	send->data = data;
	send->header = *header;
	send->header.cookie = conn->peer_cookie;
	send->header.conn = conn->peer_id;
	send->header.seq = conn->tx_seq++;
	if (f)
		f->sends++;
	if (header->kind == AM_PUT)
		conn->window++;
	param.user_data = send;
	request = ucp_am_send_nbx(conn->ucp_ep, UCX_AM_ID, &send->header,
				  header_len(header->kind), bytes, len, &param);
	if (!UCS_PTR_IS_PTR(request))
		over(send, UCS_PTR_STATUS(request));
	return true;
}

void ucx_send(struct ucx_conn *conn, const struct am_header *header,
	      struct am_data *data)
{
	if (conn->failed == UCS_OK && conn->ucp_ep)
		give(conn, NULL, header, data, data ? data->bytes : NULL,
		     data ? data->len : 0);
	else if (data)
		ucx_data_put(conn->worker, data);
}

/* ---- the pump ---- */

static void post_fragment(struct ucx_conn *conn, struct flight *f)
{
	struct am_header header = {.kind = f->kind, .request = f->request};
	size_t len = f->len - f->posted_len;
	const char *bytes = NULL;
	bool last = len <= UCX_FRAGMENT;

	if (!last)
		len = UCX_FRAGMENT;
	header.request.address += f->posted_len;
	header.request.more = !last;
	if (last) {
		header.imm = f->imm;
	} else {
		header.request.notify = 0;
	}
	if (f->kind == AM_PUT) {
		bytes = f->local + f->posted_len;
	} else {
		header.request.len = len;
		f->unanswered++;
		conn->window++;
	}
	f->posted_len += len;
	give(conn, f, &header, NULL, bytes, bytes ? len : 0);
}

static void post_whole(struct ucx_conn *conn, struct flight *f)
{
	struct am_header header = {.kind = f->kind, .imm = f->imm};
	struct am_data *data = f->data;

	f->data = NULL;
	f->posted = true;
	if (f->kind == AM_DONE)
		return; /* a flush */
	if (f->kind == AM_MESSAGE)
		header.message = f->message;
	else
		header.request = f->request;
	give(conn, f, &header, data, data ? data->bytes : NULL,
	     data ? data->len : 0);
}

static bool has_fragments(const struct flight *f)
{
	return f->kind == AM_PUT || f->kind == AM_GET;
}

/* The head is posted: on to where it waits. */
static void move_on(struct ucx_conn *conn, struct flight *f)
{
	bool first;

	f->posted = true;
	list_move(&conn->sent, &f->link);
	first = conn->sent.next == &f->link;
	if (f->answered || (f->kind == AM_DONE && first) ||
	    (f->kind == AM_GET && !f->unanswered) || f->kind == AM_NOTIFY ||
	    f->kind == AM_MESSAGE || f->kind == AM_FIN)
		ucx_answered(conn, f);
}

void ucx_pump(struct ucx_conn *conn)
{
	if (conn->pumping)
		return; /* a loopback transport delivers inside the post */
	conn->pumping = true;
	while (!list_empty(&conn->queue) && conn->failed == UCS_OK &&
	       conn->ucp_ep) {
		struct flight *f = (struct flight *)conn->queue.next;

		if (has_fragments(f) && f->posted_len < f->len) {
			if (conn->window >= UCX_WINDOW)
				break;
			post_fragment(conn, f);
		} else if (!has_fragments(f)) {
			/* Its answer may come inside the post. */
			list_move(&conn->sent, &f->link);
			post_whole(conn, f);
			if (f->kind == AM_FETCH_ADD ||
			    f->kind == AM_COMPARE_SWAP)
				continue;
			move_on(conn, f);
		} else {
			move_on(conn, f);
		}
	}
	conn->pumping = false;
}

/* ---- entry points ---- */

static int ready(const struct ucx_conn *conn, unsigned room)
{
	if (conn->closing)
		return vbn_fail(-ECONNRESET, "ucx: the connection is closing");
	if (conn->failed != UCS_OK)
		return vbn_fail(-ECONNRESET, "ucx: %s",
				ucs_status_string(conn->failed));
	return conn->nflights >= room ? -EAGAIN : 0;
}

static struct flight *begin(struct ucx_conn *conn, enum am_kind kind,
			    struct vbn_op *op, const struct ucx_key *key,
			    uint64_t address)
{
	struct flight *f = ucx_flight_get(conn, kind, op);

	if (!f)
		return NULL;
	list_add_tail(&conn->queue, &f->link);
	if (key)
		f->request = (struct am_request){.region = key->region,
						 .generation = key->generation,
						 .address = address};
	return f;
}

int ucx_put(void *vconn, struct vbn_op *op, const struct put_args *args)
{
	struct ucx_conn *conn = vconn;
	int err = ready(conn, UCX_FLIGHTS);
	struct flight *f;

	if (err)
		return err;
	if (!args->len && !args->notify) {
		core_defer(conn->worker->ctx, op, 0);
		return 0;
	}
	f = begin(conn, args->len ? AM_PUT : AM_NOTIFY, op,
		  args->len ? args->key : NULL, args->remote);
	if (!f)
		return -EAGAIN;
	f->local = (char *)args->local;
	f->len = args->len;
	f->imm = args->imm;
	f->request.notify = args->notify;
	ucx_pump(conn);
	return 0;
}

int ucx_get(void *vconn, struct vbn_op *op, const struct get_args *args)
{
	struct ucx_conn *conn = vconn;
	int err = ready(conn, UCX_FLIGHTS);
	struct flight *f;

	if (err)
		return err;
	f = begin(conn, AM_GET, op, args->key, args->remote);
	if (!f)
		return -EAGAIN;
	f->local = args->local;
	f->len = args->len;
	ucx_pump(conn);
	return 0;
}

int ucx_atomic(void *vconn, struct vbn_op *op, const struct atomic_args *args)
{
	struct ucx_conn *conn = vconn;
	int err = ready(conn, UCX_FLIGHTS);
	struct flight *f;

	if (err)
		return err;
	f = begin(conn, args->compare_swap ? AM_COMPARE_SWAP : AM_FETCH_ADD, op,
		  args->key, args->remote);
	if (!f)
		return -EAGAIN;
	f->request.len = args->operand;
	f->request.compare = args->compare;
	f->result = args->result;
	ucx_pump(conn);
	return 0;
}

int ucx_flush(void *vconn, struct vbn_op *op)
{
	struct ucx_conn *conn = vconn;
	int err = ready(conn, UCX_FLIGHTS);

	if (err)
		return err;
	if (!begin(conn, AM_DONE, op, NULL, 0))
		return -EAGAIN;
	ucx_pump(conn);
	return 0;
}

int ucx_message(void *vconn, const struct message_header *header,
		const void *bytes, size_t len)
{
	struct ucx_conn *conn = vconn;
	int err = ready(conn, FLIGHTS_MAX);
	struct am_data *data = NULL;
	struct flight *f;

	if (err)
		return err;
	if (len > UCX_MESSAGE_MAX)
		return vbn_fail(-EMSGSIZE, "ucx: a message of %zu bytes", len);
	if (len) {
		data = ucx_data_get(conn->worker, len);
		if (!data)
			return -EAGAIN;
		memcpy(data->bytes, bytes, len);
		data->len = len;
	}
	f = begin(conn, AM_MESSAGE, NULL, NULL, 0);
	if (!f) {
		if (data)
			ucx_data_put(conn->worker, data);
		return -EAGAIN;
	}
	f->message = *header;
	f->data = data;
	ucx_pump(conn);
	return 0;
}

void ucx_send_fin(struct ucx_conn *conn)
{
	if (begin(conn, AM_FIN, NULL, NULL, 0))
		ucx_pump(conn);
}
