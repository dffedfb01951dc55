/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections. Until it is attached, a connection is a note of the peer's
 * address and ids: the control thread makes it, and a worker is no other
 * thread's business. The endpoint is made when the context takes it over.
 *
 * Closing takes bounded time on every path: what is under way gets a moment
 * to arrive when the close is an orderly one, then the endpoint is closed by
 * force; what UCX does not give back by then stays with the worker, and its
 * operation completes all the same.
 */
#include "ucx.h"

#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define OFFER_BYTES (sizeof(uint32_t) + sizeof(uint64_t)) /* id, cookie */
#define GENTLE_MS   500
#define FORCE_MS    2000
#define PAUSE_NS    20000
#define BUSY_POLLS  64

/* ---- making [control] ---- */

static int conn_new(struct ucx_worker *worker, const struct blob *peer_address,
		    struct ucx_conn **out, struct blob *ours)
{
	struct ucx_conn *conn;

	if (!peer_address->len)
		return vbn_fail(-ENODEV, "ucx: the peer does not use it");
	conn = calloc(1, sizeof(*conn));
	if (!conn)
		return vbn_fail(-ENOMEM, "ucx: out of memory");
	conn->worker = worker;
	conn->address = *peer_address;
	conn->id = atomic_fetch_add_explicit(&worker->next_id, 1,
					     memory_order_relaxed);
	list_init(&conn->broken);
	list_init(&conn->to_answer);
	list_init(&conn->queue);
	list_init(&conn->sent);
	list_init(&conn->sending);
	list_init(&conn->sends);
	if (getrandom(&conn->cookie, sizeof(conn->cookie), 0) !=
	    sizeof(conn->cookie)) {
		free(conn);
		return vbn_fail(-EIO, "ucx: no random bytes");
	}
	ours->len = OFFER_BYTES;
	memcpy(ours->data, &conn->id, sizeof(conn->id));
	memcpy(ours->data + sizeof(conn->id), &conn->cookie,
	       sizeof(conn->cookie));
	*out = conn;
	return 0;
}

static int set_peer(struct ucx_conn *conn, const struct blob *blob)
{
	if (blob->len != OFFER_BYTES)
		return vbn_fail(-EPROTO, "ucx: a malformed offer or answer");
	memcpy(&conn->peer_id, blob->data, sizeof(conn->peer_id));
	memcpy(&conn->peer_cookie, blob->data + sizeof(conn->peer_id),
	       sizeof(conn->peer_cookie));
	return 0;
}

int ucx_conn_create(void *pctx, const struct conn_info *info,
		    const struct blob *peer_address, void **out,
		    struct blob *offer)
{
	struct ucx_conn *conn = NULL;
	int err = conn_new(pctx, peer_address, &conn, offer);

	(void)info;
	if (!err)
		*out = conn;
	return err;
}

int ucx_conn_accept(void *pctx, const struct conn_info *info,
		    const struct blob *peer_address, const struct blob *offer,
		    void **out, struct blob *answer)
{
	struct ucx_conn *conn = NULL;
	int err = conn_new(pctx, peer_address, &conn, answer);

	(void)info;
	if (err)
		return err;
	err = set_peer(conn, offer);
	if (err)
		free(conn);
	else
		*out = conn;
	return err;
}

int ucx_conn_finish(void *conn, const struct blob *answer)
{
	return set_peer(conn, answer);
}

/* ---- attaching ---- */

static void ep_broken(void *arg, ucp_ep_h ep, ucs_status_t status)
{
	(void)ep;
	ucx_conn_failed(arg, status);
}

static int enter(struct ucx_worker *worker, struct ucx_conn *conn)
{
	if (conn->id >= worker->nconns) {
		uint32_t room = 2 * conn->id + 16;
		struct ucx_conn **conns = realloc(
			worker->conns, room * sizeof(struct ucx_conn *));

		if (!conns)
			return vbn_fail(-ENOMEM, "ucx: out of memory");
		memset(&conns[worker->nconns], 0,
		       (room - worker->nconns) * sizeof(struct ucx_conn *));
		worker->conns = conns;
		worker->nconns = room;
	}
	worker->conns[conn->id] = conn;
	return 0;
}

/*
 * UCX's shared-memory transports know no failing peers: when there is nothing
 * else, the control plane's word has to do.
 */
static ucs_status_t create_endpoint(struct ucx_conn *conn)
{
	ucp_ep_params_t params = {
		.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
			      UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
			      UCP_EP_PARAM_FIELD_ERR_HANDLER,
		.address = (const ucp_address_t *)conn->address.data,
		.err_mode = UCP_ERR_HANDLING_MODE_PEER,
		.err_handler = {.cb = ep_broken, .arg = conn},
	};
	ucp_worker_h worker = conn->worker->worker;
	ucs_status_t status;

	status = ucp_ep_create(worker, &params, &conn->ucp_ep);
	if (status != UCS_ERR_UNREACHABLE)
		return status;
	conn->no_failures = true;
	params.field_mask &= ~(uint64_t)UCP_EP_PARAM_FIELD_ERR_HANDLER;
	params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
	return ucp_ep_create(worker, &params, &conn->ucp_ep);
}

int ucx_conn_attach(void *vconn, struct vbn_ep *ep)
{
	struct ucx_conn *conn = vconn;
	ucs_status_t status;
	int err = enter(conn->worker, conn);

	if (err)
		return err;
	conn->ep = ep;
	status = create_endpoint(conn);
	if (status != UCS_OK) {
		conn->ucp_ep = NULL;
		return vbn_fail(ucx_errno(status),
				"ucx: no endpoint: %s "
				"(check that both sides share a transport in "
				"UCX_TLS)",
				ucs_status_string(status));
	}
	ucx_am_strays(conn->worker, conn);
	return 0;
}

/* ---- keys ---- */

int ucx_key_attach(void *conn, const struct blob *announce, void *import,
		   void **out)
{
	struct ucx_key *key;

	(void)conn;
	(void)import;
	if (announce->len != sizeof(*key))
		return vbn_fail(-EKEYREJECTED,
				"ucx: the peer has not opened the region");
	key = malloc(sizeof(*key));
	if (!key)
		return vbn_fail(-ENOMEM, "ucx: out of memory");
	memcpy(key, announce->data, sizeof(*key));
	*out = key;
	return 0;
}

void ucx_key_release(void *conn, void *key)
{
	(void)conn;
	free(key);
}

/* ---- closing ---- */

/* A pause between polls that find nothing: others need the processor. */
static void poll_or_pause(struct ucx_worker *worker, int *idle)
{
	static const struct timespec pause = {.tv_nsec = PAUSE_NS};

	if (ucx_poll(worker))
		*idle = 0;
	else if (++*idle > BUSY_POLLS)
		nanosleep(&pause, NULL);
}

/* Everything sent has arrived and the peer says so, or the budget is used. */
static void drain(struct ucx_conn *conn)
{
	struct ucx_worker *worker = conn->worker;
	uint64_t start = ucx_now_ms(), now = start;
	int idle = 0;

	if (conn->worker->fin_budget_ms <= 0 || conn->peer_closes)
		return;
	ucx_send_fin(conn);
	while (!conn->fin_acked && !conn->peer_closes &&
	       conn->failed == UCS_OK &&
	       now - start < (uint64_t)worker->fin_budget_ms) {
		poll_or_pause(worker, &idle);
		now = ucx_now_ms();
	}
	if (!conn->fin_acked && !conn->peer_closes)
		worker->fin_budget_ms -= (int)(now - start);
}

static void close_endpoint(struct ucx_conn *conn)
{
	ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
				     .flags = UCP_EP_CLOSE_FLAG_FORCE};
	uint64_t end = ucx_now_ms();
	ucs_status_ptr_t request;
	int idle = 0;

	if (conn->no_failures)
		param.flags = 0; /* force is for those that know failures */
	end += conn->no_failures ? GENTLE_MS : FORCE_MS;
	request = ucp_ep_close_nbx(conn->ucp_ep, &param);
	conn->ucp_ep = NULL;
	while (ucx_now_ms() < end) {
		bool closed =
			!UCS_PTR_IS_PTR(request) ||
			ucp_request_check_status(request) != UCS_INPROGRESS;

		if (closed && list_empty(&conn->sends))
			break;
		poll_or_pause(conn->worker, &idle);
	}
	if (UCS_PTR_IS_PTR(request))
		ucp_request_free(request);
}

static struct flight *first_done(struct ucx_conn *conn)
{
	struct ucx_worker *worker = conn->worker;

	for (struct list *p = worker->done.next; p != &worker->done;
	     p = p->next)
		if (((struct flight *)p)->conn == conn) {
			worker->ndone--;
			return (struct flight *)p;
		}
	return NULL;
}

static void finish_list(struct list *list, int status)
{
	while (!list_empty(list))
		ucx_flight_finish((struct flight *)list->next, status);
}

static void finish_flights(struct ucx_conn *conn, int status)
{
	struct flight *f;

	/* What UCX still holds stays with the worker until UCX is done. */
	while (!list_empty(&conn->sends)) {
		struct send *send = (struct send *)conn->sends.next;

		send->conn = &ucx_closed;
		send->flight = NULL;
		list_move(&conn->worker->orphans, &send->link);
	}
	while ((f = first_done(conn)))
		ucx_flight_finish(f, f->status);
	finish_list(&conn->sending, status);
	finish_list(&conn->sent, status);
	finish_list(&conn->queue, status);
}

static void drop_early(struct ucx_conn *conn)
{
	while (conn->early) {
		struct am_data *data = conn->early;

		conn->early = data->next;
		ucx_data_put(conn->worker, data);
	}
}

void ucx_conn_close(void *vconn, int status)
{
	struct ucx_conn *conn = vconn;
	struct ucx_worker *worker = conn->worker;

	if (!conn->ep) {
		free(conn); /* never attached: the worker knows nothing of it */
		return;
	}
	conn->closing = true;
	list_del(&conn->broken);
	if (conn->ucp_ep) {
		if (status == -ECANCELED && conn->failed == UCS_OK)
			drain(conn);
		close_endpoint(conn);
	}
	worker->conns[conn->id] = &ucx_closed;
	list_del(&conn->to_answer);
	finish_flights(conn, status);
	drop_early(conn);
	free(conn);
}
