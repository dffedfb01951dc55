/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context's UCP worker: what UCX reports is noted in lists, and the core
 * hears of it from ucx_progress() in this order: operations that are over,
 * arrivals, broken connections.
 *
 * Flights, sends and blocks of data are kept for reuse, so nothing is
 * allocated per operation once warm.
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

/* ---- flights, sends and blocks ---- */

/* Items begin with their list link. */
static bool add_items(struct ucx_worker *worker, struct list *free_list,
		      size_t size)
{
	char *chunk = calloc(UCX_FLIGHT_CHUNK, size);
	void **chunks = realloc(worker->chunks,
				(worker->nchunks + 1) * sizeof(*chunks));

	if (chunks)
		worker->chunks = chunks;
	if (!chunk || !chunks) {
		free(chunk);
		return false;
	}
	worker->chunks[worker->nchunks++] = chunk;
	for (size_t i = 0; i < UCX_FLIGHT_CHUNK; i++)
		list_add_tail(free_list, (struct list *)(chunk + i * size));
	return true;
}

static void *take_item(struct ucx_worker *worker, struct list *free_list,
		       size_t size)
{
	struct list *item;

	if (list_empty(free_list) && !add_items(worker, free_list, size))
		return NULL;
	item = free_list->next;
	list_del(item);
	memset(item, 0, size);
	list_init(item);
	return item;
}

struct flight *ucx_flight_get(struct ucx_conn *conn, enum am_kind kind,
			      struct vbn_op *op)
{
	struct ucx_worker *worker = conn->worker;
	struct flight *f = take_item(worker, &worker->free_flights, sizeof(*f));

	if (!f)
		return NULL;
	f->conn = conn;
	f->kind = kind;
	f->op = op;
	conn->nflights++;
	return f;
}

static void flight_put(struct flight *f)
{
	struct ucx_worker *worker = f->conn->worker;

	if (f->data)
		ucx_data_put(worker, f->data);
	f->conn->nflights--;
	list_move(&worker->free_flights, &f->link);
}

void ucx_flight_check(struct flight *f)
{
	struct ucx_worker *worker = f->conn->worker;

	if (!f->posted || !f->answered || f->sends)
		return;
	if (!f->op) {
		flight_put(f);
		return;
	}
	if (!f->status && f->raw != UCS_OK)
		f->status = -ECONNRESET;
	list_move(&worker->done, &f->link);
	worker->ndone++;
}

void ucx_flight_finish(struct flight *f, int status)
{
	struct vbn_ctx *ctx = f->conn->worker->ctx;
	struct vbn_op *op = f->op;
	ucs_status_t raw = f->raw;

	flight_put(f);
	if (!op)
		return;
	if (status)
		op->wc = (uint32_t)-raw;
	core_complete(ctx, op, status);
}

struct send *ucx_send_get(struct ucx_conn *conn)
{
	struct ucx_worker *worker = conn->worker;
	struct send *send =
		take_item(worker, &worker->free_sends, sizeof(*send));

	if (!send)
		return NULL;
	send->conn = conn;
	list_add_tail(&conn->sends, &send->link);
	return send;
}

void ucx_send_put(struct ucx_worker *worker, struct send *send)
{
	if (send->data)
		ucx_data_put(worker, send->data);
	list_move(&worker->free_sends, &send->link);
}

struct am_data *ucx_data_get(struct ucx_worker *worker, size_t len)
{
	bool small = len <= UCX_SMALL;
	struct am_data **list =
		small ? &worker->free_small : &worker->free_data;
	struct am_data *data = *list;

	if (data) {
		*list = data->next;
		return data;
	}
	if (len > UCX_FRAGMENT)
		return NULL;
	data = malloc(sizeof(*data) + (small ? UCX_SMALL : UCX_FRAGMENT));
	if (data)
		data->small = small;
	return data;
}

void ucx_data_put(struct ucx_worker *worker, struct am_data *data)
{
	struct am_data **list =
		data->small ? &worker->free_small : &worker->free_data;

	data->next = *list;
	*list = data;
}

/* ---- arrivals ---- */

static void hand_over(struct ucx_conn *conn, struct am_data *data)
{
	if (data->header.kind == AM_MESSAGE)
		core_message(conn->ep, &data->header.message, data->bytes,
			     data->len);
	else
		core_notify(conn->ep, data->header.imm);
}

/* The handlers may close any connection: look it up each time. */
static int drain_arrived(struct ucx_worker *worker)
{
	struct am_data *data = worker->arrived, *next;
	int events = 0;

	worker->arrived = NULL;
	worker->arrived_tail = &worker->arrived;
	for (; data; data = next) {
		struct ucx_conn *conn = ucx_conn_of(worker, data->header.conn);

		next = data->next;
		if (conn && conn != &ucx_closed) {
			hand_over(conn, data);
			events++;
		}
		ucx_data_put(worker, data);
	}
	return events;
}

void ucx_conn_failed(struct ucx_conn *conn, ucs_status_t status)
{
	if (conn->failed != UCS_OK)
		return;
	conn->failed = status;
	conn->failed_at_ms = ucx_now_ms();
	if (!conn->closing)
		list_add_tail(&conn->worker->broken, &conn->broken);
}

/* ---- progress ---- */

bool ucx_poll(struct ucx_worker *worker)
{
	bool busy = ucp_worker_progress(worker->worker) != 0;

	while (!list_empty(&worker->to_answer)) {
		struct list *item = worker->to_answer.next;

		ucx_am_answer((struct ucx_conn *)((char *)item -
						  offsetof(struct ucx_conn,
							   to_answer)));
		busy = true;
	}
	return busy;
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
		.thread_mode = UCS_THREAD_MODE_SERIALIZED,
	};
	ucp_am_handler_param_t handler = {
		.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID |
			      UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
			      UCP_AM_HANDLER_PARAM_FIELD_CB |
			      UCP_AM_HANDLER_PARAM_FIELD_ARG,
		.id = UCX_AM_ID,
		.flags = UCP_AM_FLAG_WHOLE_MSG,
		.cb = ucx_am_arrived,
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
	list_init(&worker->free_sends);
	list_init(&worker->to_answer);
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
	free_blocks(worker->free_small);
	for (struct list *p = worker->orphans.next; p != &worker->orphans;
	     p = p->next)
		free(((struct send *)p)->data);
	for (size_t i = 0; i < worker->nchunks; i++)
		free(worker->chunks[i]);
	free(worker->chunks);
	free(worker->conns);
	free(worker);
}
