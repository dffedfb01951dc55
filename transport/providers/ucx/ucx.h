/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ucx provider's own structures. A UCP context per job, a UCP worker per
 * vbn context, a UCP endpoint per connection.
 *
 * UCX runs its callbacks inside ucp_worker_progress() or inside a post, and
 * must not be entered again from there. So callbacks only note what happened
 * (worker's done, arrived and broken lists); ucx_progress() tells the core
 * afterwards, when whatever the core does in return, closing included, is
 * allowed.
 */
#ifndef VBN_UCX_H
#define VBN_UCX_H

#include "provider.h"

#include <pthread.h>
#include <stdatomic.h>
#include <ucp/api/ucp.h>

#define UCX_CREDITS	 128
#define UCX_MESSAGE_MAX	 4096
#define UCX_PIECE_MAX	 ((size_t)1 << 30)
#define UCX_FLIGHTS	 1024 /* per connection */
#define UCX_AM_ID	 1
#define UCX_FLIGHT_CHUNK 64

struct ucx_job {
	struct vbn_job *job;
	ucp_context_h context;
	/* UCX guards its context; worker creation is guarded here. */
	pthread_mutex_t lock;
};

struct list {
	struct list *next, *prev;
};

/*
 * FIN: the sender closes; all that it sent before has arrived. It waits for
 * the FIN_ACK, because a closing TCP socket may take back what the peer has
 * not read yet.
 */
enum am_kind { AM_NOTIFY, AM_MESSAGE, AM_FIN, AM_FIN_ACK };

/* What an active message begins with; only messages have message. */
struct am_header {
	uint32_t conn; /* the receiver's id of the connection */
	uint32_t kind;
	uint32_t seq; /* counts the messages and notifies of a direction */
	uint32_t imm;
	struct message_header message;
};

enum flight_kind { FLIGHT_OP, FLIGHT_ATOMIC, FLIGHT_FLUSH, FLIGHT_AM };

/*
 * One request to UCX, or an active message that waits to become one. In
 * exactly one of: the worker's free list, the connection's flights or queue,
 * the worker's done list, the orphans.
 */
struct flight {
	struct list link; /* first */
	struct ucx_conn *conn;
	struct vbn_op *op; /* NULL: nobody waits for it */
	enum flight_kind kind;
	int status;
	ucs_status_t raw;
	uint64_t puts;		 /* posted before it */
	uint64_t operand, reply; /* atomics */
	uint64_t *result;
	struct am_header header;
	size_t len;
	struct am_data *data;
};

/* Room for a message's data, on its way out or in. */
struct am_data {
	struct am_data *next;
	struct am_header header; /* of an arrival */
	size_t len;
	uint8_t bytes[UCX_MESSAGE_MAX];
};

struct ucx_key {
	struct list link; /* first */
	ucp_rkey_h rkey;
};

struct ucx_worker {
	struct ucx_job *job;
	struct vbn_ctx *ctx;
	ucp_worker_h worker;
	int fd;
	_Atomic uint32_t next_id; /* ids are never used again */
	/* From here on the context's thread only. */
	struct ucx_conn **conns; /* by id; NULL: not attached, or closed */
	uint32_t nconns;
	struct list free_flights, done, broken, orphans;
	size_t ndone;
	int fin_budget_ms; /* for waiting on peers that do not progress */
	struct am_data *free_data;
	struct am_data *arrived, **arrived_tail;
	struct am_data *strays; /* for connections not attached yet */
	void **chunks;		/* of flights */
	size_t nchunks;
};

struct ucx_conn {
	struct list broken; /* first: in the worker's list when it failed */
	struct ucx_worker *worker;
	struct vbn_ep *ep; /* NULL until attached */
	ucp_ep_h ucp_ep;
	struct blob address; /* the peer worker's */
	uint32_t id, peer_id;
	bool closing, fin_acked;
	bool peer_closes;    /* its FIN has come */
	ucs_status_t failed; /* UCS_OK: no */
	uint64_t failed_at_ms;
	struct list flights;   /* given to UCX */
	struct list queue;     /* active messages behind a flush, in order */
	unsigned nflights;     /* of both */
	bool flushing;	       /* a flush for the queue is on its way */
	uint64_t puts, landed; /* posted; known to have landed */
	uint32_t tx_seq, rx_seq;
	struct am_data *early; /* arrived out of order */
	struct list keys, released;
};

/* In a worker's table: an id whose connection is closed. */
extern struct ucx_conn ucx_closed;

static inline void list_init(struct list *head)
{
	head->next = head->prev = head;
}

static inline bool list_empty(const struct list *head)
{
	return head->next == head;
}

static inline void list_add_tail(struct list *head, struct list *item)
{
	item->prev = head->prev;
	item->next = head;
	head->prev->next = item;
	head->prev = item;
}

static inline void list_del(struct list *item)
{
	item->prev->next = item->next;
	item->next->prev = item->prev;
	item->next = item->prev = item;
}

/* ucx.c: -errno for what UCX says. */
int ucx_errno(ucs_status_t status);
uint64_t ucx_now_ms(void);

/* worker.c */
int ucx_ctx_open(void *pjob, struct vbn_ctx *ctx, void **pctx,
		 struct blob *address);
void ucx_ctx_close(void *pctx);
int ucx_progress(void *pctx);
int ucx_fd(void *pctx);
int ucx_arm(void *pctx);
/* Let UCX work; notes only. True if there was something. */
bool ucx_poll(struct ucx_worker *worker);
struct flight *ucx_flight_get(struct ucx_conn *conn, enum flight_kind kind,
			      struct vbn_op *op);
void ucx_flight_put(struct flight *flight);
struct am_data *ucx_data_get(struct ucx_worker *worker);
void ucx_data_put(struct ucx_worker *worker, struct am_data *data);
/* [in callbacks too] @flight is over: note it. */
void ucx_flight_done(struct flight *flight, ucs_status_t status);
/* Tell the core of a flight that is over; the flight is free afterwards. */
void ucx_flight_finish(struct flight *flight, int status);
struct ucx_conn *ucx_conn_of(struct ucx_worker *worker, uint32_t id);

/* conn.c */
int ucx_conn_create(void *pctx, const struct conn_info *info,
		    const struct blob *peer_address, void **conn,
		    struct blob *offer);
int ucx_conn_accept(void *pctx, const struct conn_info *info,
		    const struct blob *peer_address, const struct blob *offer,
		    void **conn, struct blob *answer);
int ucx_conn_finish(void *conn, const struct blob *answer);
int ucx_conn_attach(void *conn, struct vbn_ep *ep);
void ucx_conn_close(void *conn, int status);
int ucx_key_attach(void *conn, const struct blob *announce, void *import,
		   void **key);
void ucx_key_release(void *conn, void *key);
void ucx_keys_free(struct list *keys);

/* ops.c */
int ucx_put(void *conn, struct vbn_op *op, const struct put_args *args);
int ucx_get(void *conn, struct vbn_op *op, const struct get_args *args);
int ucx_atomic(void *conn, struct vbn_op *op, const struct atomic_args *args);
int ucx_flush(void *conn, struct vbn_op *op);
int ucx_message(void *conn, const struct message_header *header,
		const void *data, size_t len);
/* [in callbacks too] Send what of the queue may go, or flush for it. */
void ucx_queue_run(struct ucx_conn *conn);
/* Queue a FIN, or send a FIN_ACK. */
void ucx_send_control(struct ucx_conn *conn, enum am_kind kind);

#endif
