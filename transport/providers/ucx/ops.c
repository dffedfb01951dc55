/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path. UCX orders nothing between a put and an active message, so
 * what must follow puts (notifies, messages) waits in the connection's queue
 * for a flush that covers them, and what comes later waits behind it.
 *
 * puts counts the posted ones, landed those that a flush has covered.
 */
#include "ucx.h"

#include "error.h"

#include <errno.h>
#include <string.h>

/* Messages may go beyond the operations' limit: credits bound them. */
#define FLIGHTS_MAX (UCX_FLIGHTS + 4 * UCX_CREDITS)

static void completed(void *request, ucs_status_t status, void *user_data)
{
	struct flight *f = user_data;

	ucp_request_free(request);
	if (f->conn != &ucx_closed) /* else an orphan, and too late */
		ucx_flight_done(f, status);
}

static ucp_request_param_t request_of(struct flight *f)
{
	return (ucp_request_param_t){
		.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
				UCP_OP_ATTR_FIELD_USER_DATA,
		.cb.send = completed,
		.user_data = f,
	};
}

/* What UCX said to a post. An error is noted, and comes back as a completion:
 * UCX may have broken the connection over it. */
static void posted(struct flight *f, ucs_status_ptr_t request)
{
	if (UCS_PTR_IS_PTR(request))
		return;
	ucx_flight_done(f, UCS_PTR_STATUS(request));
}

static int ready(struct ucx_conn *conn, unsigned room)
{
	if (conn->closing)
		return vbn_fail(-ECONNRESET, "ucx: the connection is closing");
	if (conn->failed != UCS_OK)
		return vbn_fail(-ECONNRESET, "ucx: %s",
				ucs_status_string(conn->failed));
	return conn->nflights >= room ? -EAGAIN : 0;
}

static struct flight *start(struct ucx_conn *conn, enum flight_kind kind,
			    struct vbn_op *op)
{
	struct flight *f = ucx_flight_get(conn, kind, op);

	if (!f)
		return NULL;
	list_add_tail(&conn->flights, &f->link);
	return f;
}

static void op_begin(struct vbn_op *op, unsigned flights)
{
	op->priv[2] = flights;
	op->priv[3] = 0;
}

/* ---- the queue ---- */

static void send_now(struct ucx_conn *conn, struct flight *f)
{
	ucp_request_param_t param = request_of(f);
	size_t header_len = f->header.kind == AM_MESSAGE
				    ? sizeof(f->header)
				    : offsetof(struct am_header, message);

	param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
	param.flags = UCP_AM_SEND_FLAG_EAGER;
	list_del(&f->link);
	list_add_tail(&conn->flights, &f->link);
	posted(f, ucp_am_send_nbx(conn->ucp_ep, UCX_AM_ID, &f->header,
				  header_len, f->data ? f->data->bytes : NULL,
				  f->len, &param));
}

static void start_flush(struct ucx_conn *conn)
{
	struct flight *f = start(conn, FLIGHT_FLUSH, NULL);
	ucp_request_param_t param;

	if (!f)
		return; /* the next message or notify tries again */
	conn->flushing = true;
	param = request_of(f);
	posted(f, ucp_ep_flush_nbx(conn->ucp_ep, &param));
}

void ucx_queue_run(struct ucx_conn *conn)
{
	while (!list_empty(&conn->queue)) {
		struct flight *f = (struct flight *)conn->queue.next;

		if (f->puts > conn->landed) {
			if (!conn->flushing)
				start_flush(conn);
			return;
		}
		send_now(conn, f);
	}
}

static void enqueue(struct ucx_conn *conn, struct flight *f, enum am_kind kind)
{
	f->header = (struct am_header){.conn = conn->peer_id, .kind = kind};
	list_del(&f->link);
	list_add_tail(&conn->queue, &f->link);
}

void ucx_send_control(struct ucx_conn *conn, enum am_kind kind)
{
	struct flight *f = ucx_flight_get(conn, FLIGHT_AM, NULL);

	if (!f)
		return;
	enqueue(conn, f, kind);
	if (kind == AM_FIN_ACK)
		send_now(conn, f);
	else
		ucx_queue_run(conn);
}

int ucx_message(void *vconn, const struct message_header *header,
		const void *data, size_t len)
{
	struct ucx_conn *conn = vconn;
	int err = ready(conn, FLIGHTS_MAX);
	struct am_data *block = NULL;
	struct flight *f;

	if (err)
		return err;
	if (len > UCX_MESSAGE_MAX)
		return vbn_fail(-EMSGSIZE, "ucx: a message of %zu bytes", len);
	if (len) {
		block = ucx_data_get(conn->worker);
		if (!block)
			return -EAGAIN;
		memcpy(block->bytes, data, len);
	}
	f = ucx_flight_get(conn, FLIGHT_AM, NULL);
	if (!f) {
		if (block)
			ucx_data_put(conn->worker, block);
		return -EAGAIN;
	}
	enqueue(conn, f, AM_MESSAGE);
	f->header.seq = conn->tx_seq++;
	f->header.message = *header;
	f->data = block;
	f->len = len;
	ucx_queue_run(conn);
	return 0;
}

/* ---- operations ---- */

static void post_put(struct ucx_conn *conn, struct flight *f,
		     const struct put_args *args)
{
	const struct ucx_key *key = args->key;
	ucp_request_param_t param = request_of(f);

	param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
	param.memh = args->mem_handle;
	conn->puts++;
	posted(f, ucp_put_nbx(conn->ucp_ep, args->local, args->len,
			      args->remote, key->rkey, &param));
}

int ucx_put(void *vconn, struct vbn_op *op, const struct put_args *args)
{
	struct ucx_conn *conn = vconn;
	int err = ready(conn, UCX_FLIGHTS);
	struct flight *put = NULL, *notify = NULL;

	if (err)
		return err;
	if (args->notify) {
		notify = ucx_flight_get(conn, FLIGHT_AM, op);
		if (!notify)
			return -EAGAIN;
	}
	if (args->len) {
		put = start(conn, FLIGHT_OP, op);
		if (!put && notify)
			ucx_flight_put(notify);
		if (!put)
			return -EAGAIN;
	}
	if (!put && !notify) {
		core_defer(conn->worker->ctx, op, 0);
		return 0;
	}
	op_begin(op, (put != NULL) + (notify != NULL));
	if (put)
		post_put(conn, put, args);
	if (notify) {
		enqueue(conn, notify, AM_NOTIFY);
		notify->puts = conn->puts;
		notify->header.seq = conn->tx_seq++;
		notify->header.imm = args->imm;
		ucx_queue_run(conn);
	}
	return 0;
}

int ucx_get(void *vconn, struct vbn_op *op, const struct get_args *args)
{
	struct ucx_conn *conn = vconn;
	const struct ucx_key *key = args->key;
	int err = ready(conn, UCX_FLIGHTS);
	ucp_request_param_t param;
	struct flight *f;

	if (err)
		return err;
	f = start(conn, FLIGHT_OP, op);
	if (!f)
		return -EAGAIN;
	op_begin(op, 1);
	param = request_of(f);
	param.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
	param.memh = args->mem_handle;
	posted(f, ucp_get_nbx(conn->ucp_ep, args->local, args->len,
			      args->remote, key->rkey, &param));
	return 0;
}

/*
 * Always the fetching kind, for its completion means that it was done. UCX
 * reads operand, and reads (compare-swap: what to swap in) and writes reply.
 */
int ucx_atomic(void *vconn, struct vbn_op *op, const struct atomic_args *args)
{
	struct ucx_conn *conn = vconn;
	const struct ucx_key *key = args->key;
	int err = ready(conn, UCX_FLIGHTS);
	ucp_atomic_op_t code = UCP_ATOMIC_OP_ADD;
	ucp_request_param_t param;
	struct flight *f;

	if (err)
		return err;
	f = start(conn, FLIGHT_ATOMIC, op);
	if (!f)
		return -EAGAIN;
	op_begin(op, 1);
	f->result = args->result;
	f->operand = args->operand;
	f->reply = 0;
	if (args->compare_swap) {
		code = UCP_ATOMIC_OP_CSWAP;
		f->operand = args->compare;
		f->reply = args->operand;
	}
	param = request_of(f);
	param.op_attr_mask |=
		UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_REPLY_BUFFER;
	param.datatype = ucp_dt_make_contig(sizeof(uint64_t));
	param.reply_buffer = &f->reply;
	posted(f, ucp_atomic_op_nbx(conn->ucp_ep, code, &f->operand, 1,
				    args->remote, key->rkey, &param));
	return 0;
}

int ucx_flush(void *vconn, struct vbn_op *op)
{
	struct ucx_conn *conn = vconn;
	int err = ready(conn, UCX_FLIGHTS);
	ucp_request_param_t param;
	struct flight *f;

	if (err)
		return err;
	if (conn->puts == conn->landed) {
		core_defer(conn->worker->ctx, op, 0);
		return 0;
	}
	f = start(conn, FLIGHT_FLUSH, op);
	if (!f)
		return -EAGAIN;
	op_begin(op, 1);
	param = request_of(f);
	posted(f, ucp_ep_flush_nbx(conn->ucp_ep, &param));
	return 0;
}
