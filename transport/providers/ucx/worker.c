/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context's UCP worker: what UCX reports is noted in lists, and the core
 * hears of it from ucx_progress() in this order: operations that are over,
 * arrivals, broken connections.
 *
 * An arrival is copied into a block of the worker's own; blocks and flights
 * are kept for reuse, so nothing is allocated per operation once warm.
 */
#include "ucx.h"

#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define POLLS	      32
#define FIN_BUDGET_MS 1000
/*
 * A connection that breaks when nothing is under way is most often a peer
 * that closes; the control plane says so a moment later.
 */
#define BROKEN_GRACE_MS 300

struct ucx_conn ucx_closed;

/* ---- flights and blocks ---- */

static bool add_flights(struct ucx_worker *worker)
{
	struct flight *chunk = calloc(UCX_FLIGHT_CHUNK, sizeof(*chunk));
	void **chunks = realloc(worker->chunks,
				(worker->nchunks + 1) * sizeof(*chunks));

	if (chunks)
		worker->chunks = chunks;
	if (!chunk || !chunks) {
		free(chunk);
		return false;
	}
	worker->chunks[worker->nchunks++] = chunk;
	for (int i = 0; i < UCX_FLIGHT_CHUNK; i++)
		list_add_tail(&worker->free_flights, &chunk[i].link);
	return true;
}

struct flight *ucx_flight_get(struct ucx_conn *conn, enum flight_kind kind,
			      struct vbn_op *op)
{
	struct ucx_worker *worker = conn->worker;
	struct flight *f;

	if (list_empty(&worker->free_flights) && !add_flights(worker))
		return NULL;
	f = (struct flight *)worker->free_flights.next;
	list_del(&f->link);
	f->conn = conn;
	f->op = op;
	f->kind = kind;
	f->status = 0;
	f->raw = UCS_OK;
	f->puts = conn->puts;
	f->result = NULL;
	f->data = NULL;
	f->len = 0;
	conn->nflights++;
	return f;
}

void ucx_flight_put(struct flight *f)
{
	struct ucx_worker *worker = f->conn->worker;

	if (f->data)
		ucx_data_put(worker, f->data);
	f->conn->nflights--;
	if (f->conn->nflights == 0)
		ucx_keys_free(&f->conn->released);
	list_del(&f->link);
	list_add_tail(&worker->free_flights, &f->link);
}

struct am_data *ucx_data_get(struct ucx_worker *worker)
{
	struct am_data *data = worker->free_data;

	if (!data)
		return malloc(sizeof(*data));
	worker->free_data = data->next;
	return data;
}

void ucx_data_put(struct ucx_worker *worker, struct am_data *data)
{
	data->next = worker->free_data;
	worker->free_data = data;
}

void ucx_flight_done(struct flight *f, ucs_status_t status)
{
	struct ucx_conn *conn = f->conn;
	struct ucx_worker *worker = conn->worker;

	f->raw = status;
	f->status = ucx_errno(status);
	if (f->status && conn->failed != UCS_OK)
		f->status = -ECONNRESET;
	if (f->kind == FLIGHT_FLUSH) {
		if (!f->op)
			conn->flushing = false;
		if (!f->status && f->puts > conn->landed)
			conn->landed = f->puts;
	}
	list_del(&f->link);
	list_add_tail(&worker->done, &f->link);
	worker->ndone++;
	if (f->kind == FLIGHT_FLUSH && !f->status)
		ucx_queue_run(conn);
}

/*
 * An operation has one or two flights (a put and its notify); it is over with
 * the last, and the first error is its status.
 */
void ucx_flight_finish(struct flight *f, int status)
{
	struct vbn_ctx *ctx = f->conn->worker->ctx;
	struct vbn_op *op = f->op;

	if (f->kind == FLIGHT_ATOMIC && !status && f->result)
		*f->result = f->reply;
	if (op && status && !op->priv[3]) {
		op->priv[3] = (uint64_t)(int64_t)status;
		op->wc = (uint32_t)-f->raw;
	}
	ucx_flight_put(f);
	if (op && --op->priv[2] == 0)
		core_complete(ctx, op, (int)(int64_t)op->priv[3]);
}

/* ---- arrivals ---- */

struct ucx_conn *ucx_conn_of(struct ucx_worker *worker, uint32_t id)
{
	return id < worker->nconns ? worker->conns[id] : NULL;
}

static void handle_control(struct ucx_worker *worker,
			   const struct am_header *header)
{
	struct ucx_conn *conn = ucx_conn_of(worker, header->conn);

	if (!conn || conn == &ucx_closed)
		return;
	if (header->kind == AM_FIN_ACK) {
		conn->fin_acked = true;
		return;
	}
	conn->peer_closes = true;
	ucx_send_control(conn, AM_FIN_ACK);
}

static ucs_status_t am_arrived(void *arg, const void *header, size_t header_len,
			       void *bytes, size_t len,
			       const ucp_am_recv_param_t *param)
{
	struct ucx_worker *worker = arg;
	struct am_header head = {0};
	struct am_data *data;

	if (header_len < offsetof(struct am_header, message) ||
	    header_len > sizeof(head) || len > UCX_MESSAGE_MAX ||
	    (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV))
		return UCS_OK; /* not one of ours */
	memcpy(&head, header, header_len);
	if (head.kind > AM_MESSAGE) {
		handle_control(worker, &head);
		return UCS_OK;
	}
	data = ucx_data_get(worker);
	if (!data) {
		vbn_log(VBN_ERR, "ucx: out of memory, an arrival is lost");
		return UCS_OK;
	}
	data->header = head;
	data->len = len;
	data->next = NULL;
	memcpy(data->bytes, bytes, len);
	*worker->arrived_tail = data;
	worker->arrived_tail = &data->next;
	return UCS_OK;
}

static void hand_over(struct ucx_conn *conn, struct am_data *data)
{
	if (data->header.kind == AM_MESSAGE)
		core_message(conn->ep, &data->header.message, data->bytes,
			     data->len);
	else
		core_notify(conn->ep, data->header.imm);
}

static struct am_data *take_early(struct ucx_conn *conn)
{
	struct am_data **p = &conn->early;

	for (; *p; p = &(*p)->next) {
		struct am_data *data = *p;

		if (data->header.seq != conn->rx_seq)
			continue;
		*p = data->next;
		return data;
	}
	return NULL;
}

/* The handlers may close the connection: look it up each time. */
static int deliver(struct ucx_worker *worker, struct am_data *data)
{
	uint32_t id = data->header.conn;
	struct ucx_conn *conn = ucx_conn_of(worker, id);
	int events = 0;

	if (conn == &ucx_closed || id >= worker->next_id) {
		ucx_data_put(worker, data);
		return 0;
	}
	if (!conn) {
		data->next = worker->strays;
		worker->strays = data;
		return 0;
	}
	if (data->header.seq != conn->rx_seq) {
		data->next = conn->early;
		conn->early = data;
		return 0;
	}
	while (data) {
		conn->rx_seq++;
		hand_over(conn, data);
		events++;
		ucx_data_put(worker, data);
		conn = ucx_conn_of(worker, id);
		data = conn != &ucx_closed ? take_early(conn) : NULL;
	}
	return events;
}

/* ---- progress ---- */

bool ucx_poll(struct ucx_worker *worker)
{
	return ucp_worker_progress(worker->worker) != 0;
}

static int drain_done(struct ucx_worker *worker)
{
	int events = 0;

	/* Only those here now: callbacks may post what is over at once. */
	for (size_t n = worker->ndone; n && worker->ndone; n--) {
		struct flight *f = (struct flight *)worker->done.next;

		worker->ndone--;
		ucx_flight_finish(f, f->status);
		events++;
	}
	return events;
}

static int drain_arrived(struct ucx_worker *worker)
{
	struct am_data *data = worker->arrived, *next;
	int events = 0;

	worker->arrived = NULL;
	worker->arrived_tail = &worker->arrived;
	for (; data; data = next) {
		next = data->next;
		events += deliver(worker, data);
	}
	return events;
}

static bool to_be_reported(const struct ucx_conn *conn)
{
	return (conn->nflights && !conn->peer_closes) ||
	       ucx_now_ms() - conn->failed_at_ms >= BROKEN_GRACE_MS;
}

static int drain_broken(struct ucx_worker *worker)
{
	struct list *p = worker->broken.next;
	char why[160];

	while (p != &worker->broken) {
		struct ucx_conn *conn = (struct ucx_conn *)p;

		p = p->next;
		if (!to_be_reported(conn))
			continue;
		list_del(&conn->broken);
		snprintf(why, sizeof(why), "ucx: %s%s",
			 ucs_status_string(conn->failed),
			 conn->peer_closes ? "; the peer has closed it" : "");
		core_failed(conn->ep, -ECONNRESET, why);
		return 1; /* others may be gone: the list is read anew */
	}
	return 0;
}

int ucx_progress(void *pctx)
{
	struct ucx_worker *worker = pctx;
	int events;

	for (int i = 0; i < POLLS && ucx_poll(worker); i++)
		;
	events = drain_done(worker);
	if (worker->arrived)
		events += drain_arrived(worker);
	while (!list_empty(&worker->broken) && drain_broken(worker))
		events++;
	return events;
}

int ucx_fd(void *pctx)
{
	return ((struct ucx_worker *)pctx)->fd;
}

int ucx_arm(void *pctx)
{
	struct ucx_worker *worker = pctx;
	ucs_status_t status;

	if (worker->ndone || worker->arrived || !list_empty(&worker->broken))
		return -EAGAIN;
	status = ucp_worker_arm(worker->worker);
	if (status == UCS_OK)
		return 0;
	if (status == UCS_ERR_BUSY)
		return -EAGAIN;
	return vbn_fail(ucx_errno(status), "ucx: cannot sleep: %s",
			ucs_status_string(status));
}

/* ---- opening and closing ---- */

static int get_address(struct ucx_worker *worker, struct blob *address)
{
	ucp_address_t *bytes;
	size_t len;
	ucs_status_t status =
		ucp_worker_get_address(worker->worker, &bytes, &len);
	int err = 0;

	if (status != UCS_OK)
		return vbn_fail(ucx_errno(status), "ucx: no address: %s",
				ucs_status_string(status));
	if (len > sizeof(address->data))
		err = vbn_fail(-EMSGSIZE,
			       "ucx: this host's address has %zu "
			       "bytes, at most %zu go: use fewer devices "
			       "(UCX_NET_DEVICES)",
			       len, sizeof(address->data));
	else
		memcpy(address->data, bytes, len);
	address->len = err ? 0 : len;
	ucp_worker_release_address(worker->worker, bytes);
	return err;
}

static ucs_status_t worker_create(struct ucx_worker *worker)
{
	ucp_worker_params_t params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE,
	};
	ucp_am_handler_param_t handler = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
			      UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
			      UCP_AM_HANDLER_PARAM_FIELD_CB |
			      UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = UCX_AM_ID,
		.flags = UCP_AM_FLAG_WHOLE_MSG,
		.cb = am_arrived,
		.arg = worker,
	};
	struct ucx_job *job = worker->job;
	ucs_status_t status;

	pthread_mutex_lock(&job->lock);
	status = ucp_worker_create(job->context, &params, &worker->worker);
	pthread_mutex_unlock(&job->lock);
	if (status != UCS_OK)
		return status;
	status = ucp_worker_set_am_recv_handler(worker->worker, &handler);
	if (status == UCS_OK)
		status = ucp_worker_get_efd(worker->worker, &worker->fd);
	if (status != UCS_OK)
		ucp_worker_destroy(worker->worker);
	return status;
}

int ucx_ctx_open(void *pjob, struct vbn_ctx *ctx, void **pctx,
		 struct blob *address)
{
	struct ucx_worker *worker = calloc(1, sizeof(*worker));
	ucs_status_t status;
	int err;

	if (!worker)
		return vbn_fail(-ENOMEM, "ucx: out of memory");
	worker->job = pjob;
	worker->ctx = ctx;
	worker->fin_budget_ms = FIN_BUDGET_MS;
	worker->arrived_tail = &worker->arrived;
	list_init(&worker->free_flights);
	list_init(&worker->done);
	list_init(&worker->broken);
	list_init(&worker->orphans);
	status = worker_create(worker);
	if (status != UCS_OK) {
		free(worker);
		return vbn_fail(ucx_errno(status),
				"ucx: no worker: %s "
				"(check UCX_TLS and UCX_NET_DEVICES)",
				ucs_status_string(status));
	}
	err = get_address(worker, address);
	if (err) {
		ucp_worker_destroy(worker->worker);
		free(worker);
		return err;
	}
	*pctx = worker;
	return 0;
}

static void free_blocks(struct am_data *data)
{
	while (data) {
		struct am_data *next = data->next;

		free(data);
		data = next;
	}
}

void ucx_ctx_close(void *pctx)
{
	struct ucx_worker *worker = pctx;

	pthread_mutex_lock(&worker->job->lock);
	ucp_worker_destroy(worker->worker);
	pthread_mutex_unlock(&worker->job->lock);
	free_blocks(worker->arrived);
	free_blocks(worker->strays);
	free_blocks(worker->free_data);
	for (struct list *p = worker->orphans.next; p != &worker->orphans;
	     p = p->next)
		free(((struct flight *)p)->data);
	for (size_t i = 0; i < worker->nchunks; i++)
		free(worker->chunks[i]);
	free(worker->chunks);
	free(worker->conns);
	free(worker);
}
