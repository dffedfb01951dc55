/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ucx provider's own structures. A UCP context per job, a UCP worker per
 * vbn context, a UCP endpoint per connection; on them, active messages only.
 *
 * Why not UCP's put, get and atomics: where a transport has none of its own
 * (TCP, shared memory), UCX 1.13 emulates them, and its emulation writes
 * wherever the peer says, withdrawn memory included, and aborts the process
 * when the peer dies at the wrong moment. So one-sided operations are requests
 * here, which the target's provider checks against its own table of regions,
 * carries out and answers.
 *
 * UCX runs its callbacks inside ucp_worker_progress() or inside a post, and
 * must not be entered again from there. So callbacks note what the core must
 * know in the worker's lists (done, arrived, broken); ucx_progress() tells it
 * afterwards, when whatever it does in return, closing included, is allowed.
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
#define UCX_FRAGMENT	 ((size_t)32 << 10)
#define UCX_SMALL	 256
#define UCX_FLIGHTS	 1024 /* operations in flight per connection */
#define UCX_WINDOW	 64   /* fragments under way per connection */
#define UCX_AM_ID	 1
#define UCX_FLIGHT_CHUNK 64

/* ---- job ---- */

/* A registration, as peers may name it. */
struct ucx_region {
	uint32_t region, generation;
	unsigned access;
	uintptr_t base;
	size_t len;
};

struct ucx_job {
	struct vbn_job *job;
	ucp_context_h context;
	pthread_mutex_t lock; /* creating and destroying workers */
	/*
	 * Held for reading while a region is copied to or from, so that a
	 * region that has been deregistered is not touched any more.
	 */
	pthread_rwlock_t regions_lock;
	struct ucx_region **regions; /* by number */
	uint32_t nregions;
};

/* ---- on the wire ---- */

enum am_kind {
	/* The core's. */
	AM_NOTIFY,
	AM_MESSAGE,
	/* Requests. The last fragment of a put has more == 0. */
	AM_PUT,
	AM_GET,
	AM_FETCH_ADD,
	AM_COMPARE_SWAP,
	/*
	 * Answers, in the order of the requests: DONE for the next count puts,
	 * the others for the next request.
	 */
	AM_DONE,
	AM_DATA,
	AM_VALUE,
	AM_REFUSED,
	/*
	 * The sender closes, and waits for the FIN_ACK: all that it sent has
	 * been taken in. A closing TCP socket may take back what has not.
	 */
	AM_FIN,
	AM_FIN_ACK,
	AM_KINDS,
};

struct am_request {
	uint32_t region, generation;
	uint64_t address;
	uint64_t len; /* of a get; else the operand */
	uint64_t compare;
	uint32_t more, notify;
};

struct am_header {
	/*
	 * The receiver's secret and id of the connection. UCX authenticates
	 * nobody; the secret came by the job's control plane.
	 */
	uint64_t cookie;
	uint32_t conn;
	uint32_t kind;
	uint32_t seq; /* counts the active messages of a direction */
	uint32_t imm; /* notify: value; DONE: count; REFUSED: errno */
	union {
		struct am_request request; /* VALUE: the value is in len */
		struct message_header message;
	};
};

/* ---- worker and connection ---- */

struct list {
	struct list *next, *prev;
};

/* A copy of an active message, on its way out or in. */
struct am_data {
	struct am_data *next;
	struct am_header header;
	size_t len;
	bool small;
	uint8_t bytes[];
};

/*
 * An operation, or a notify, message or FIN. It is in one of: the worker's
 * free list; the connection's queue (not posted in full), sent (waits for its
 * answer), sending (UCX is not done with it); the worker's done list (the
 * core is to hear of it).
 */
struct flight {
	struct list link; /* first */
	struct ucx_conn *conn;
	struct vbn_op *op; /* or NULL */
	uint32_t kind;	   /* enum am_kind; AM_DONE: a flush */
	int status;
	ucs_status_t raw;
	bool posted, answered;
	unsigned sends;	     /* UCX has not finished */
	unsigned unanswered; /* fragments of a get */
	size_t len, posted_len, received;
	char *local;
	uint64_t *result;
	uint32_t imm;
	struct am_request request; /* of the first fragment */
	struct message_header message;
	struct am_data *data;
};

/* One active message in UCX's hands. */
struct send {
	struct list link; /* first; the connection's, or the orphans */
	struct ucx_conn *conn;
	struct flight *flight; /* or NULL */
	struct am_header header;
	struct am_data *data; /* ours to free, or NULL */
};

struct ucx_worker {
	struct ucx_job *job;
	struct vbn_ctx *ctx;
	ucp_worker_h worker;
	int fd;
	_Atomic uint32_t next_id; /* ids are never used again */
	/* From here on the context's thread only. */
	struct ucx_conn **conns; /* by id; NULL: not attached yet */
	uint32_t nconns;
	struct list free_flights, free_sends, done, broken, orphans;
	struct list to_answer;
	size_t ndone;
	int fin_budget_ms; /* for waiting on peers that do not progress */
	struct am_data *free_data, *free_small;
	struct am_data *arrived, **arrived_tail;
	struct am_data *strays; /* for connections not attached yet */
	void **chunks;		/* of flights and sends */
	size_t nchunks;
};

struct ucx_conn {
	struct list broken;    /* first: in the worker's list once it failed */
	struct list to_answer; /* in the worker's list while puts > 0 */
	struct ucx_worker *worker;
	struct vbn_ep *ep; /* NULL until attached */
	ucp_ep_h ucp_ep;
	struct blob address; /* the peer worker's */
	uint64_t cookie, peer_cookie;
	uint32_t id, peer_id;
	bool closing, fin_acked, pumping;
	bool no_failures;    /* UCX will not say when the peer dies */
	bool peer_closes;    /* its FIN has come */
	ucs_status_t failed; /* UCS_OK: no */
	uint64_t failed_at_ms;
	struct list queue, sent, sending, sends;
	unsigned nflights; /* of all lists, done included */
	unsigned window;   /* fragments under way */
	uint32_t tx_seq, rx_seq;
	uint32_t puts;	       /* taken in, not answered yet */
	bool refusing;	       /* the put that arrives has been refused */
	struct am_data *early; /* arrived out of order */
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

static inline void list_move(struct list *head, struct list *item)
{
	list_del(item);
	list_add_tail(head, item);
}

/* ---- ucx.c ---- */

int ucx_errno(ucs_status_t status);
uint64_t ucx_now_ms(void);
/*
 * [any] What a peer asks for; 0, -EKEYREJECTED or -EACCES, and then nothing is
 * done. The regions' lock is held inside.
 */
int ucx_region_write(struct ucx_job *job, const struct am_request *request,
		     const void *data, size_t len);
int ucx_region_read(struct ucx_job *job, const struct am_request *request,
		    void *data);
int ucx_region_atomic(struct ucx_job *job, const struct am_request *request,
		      bool compare_swap, uint64_t *value);

/* ---- worker.c ---- */

int ucx_ctx_open(void *pjob, struct vbn_ctx *ctx, void **pctx,
		 struct blob *address);
void ucx_ctx_close(void *pctx);
int ucx_progress(void *pctx);
int ucx_fd(void *pctx);
int ucx_arm(void *pctx);
/* Let UCX work; the core is not told. True if there was something. */
bool ucx_poll(struct ucx_worker *worker);
struct flight *ucx_flight_get(struct ucx_conn *conn, enum am_kind kind,
			      struct vbn_op *op);
struct send *ucx_send_get(struct ucx_conn *conn);
void ucx_send_put(struct ucx_worker *worker, struct send *send);
/* [callbacks too] Posted, answered, and UCX is done with it? Then it is over:
 * for the done list if there is an operation, else free. */
void ucx_flight_check(struct flight *flight);
/* Tell the core; the flight is free afterwards. */
void ucx_flight_finish(struct flight *flight, int status);
/* A block of at least @len bytes, or NULL. */
struct am_data *ucx_data_get(struct ucx_worker *worker, size_t len);
void ucx_data_put(struct ucx_worker *worker, struct am_data *data);
/* [callbacks too] The connection is of no use any more. */
void ucx_conn_failed(struct ucx_conn *conn, ucs_status_t status);

/* ---- am.c: what arrives ---- */

ucs_status_t ucx_am_arrived(void *arg, const void *header, size_t header_len,
			    void *bytes, size_t len,
			    const ucp_am_recv_param_t *param);
/* The connection is attached now: take what came before. */
void ucx_am_strays(struct ucx_worker *worker, struct ucx_conn *conn);
/* [callbacks too] @flight's answer is there. */
void ucx_answered(struct ucx_conn *conn, struct flight *flight);
/* Answer the puts that have been taken in. */
void ucx_am_answer(struct ucx_conn *conn);
struct ucx_conn *ucx_conn_of(struct ucx_worker *worker, uint32_t id);

/* ---- ops.c: what is sent ---- */

int ucx_put(void *conn, struct vbn_op *op, const struct put_args *args);
int ucx_get(void *conn, struct vbn_op *op, const struct get_args *args);
int ucx_atomic(void *conn, struct vbn_op *op, const struct atomic_args *args);
int ucx_flush(void *conn, struct vbn_op *op);
int ucx_message(void *conn, const struct message_header *header,
		const void *data, size_t len);
/* [callbacks too] Post what there is room for. */
void ucx_pump(struct ucx_conn *conn);
/* [callbacks too] An active message of our own, at once; @data is taken. */
void ucx_send(struct ucx_conn *conn, const struct am_header *header,
	      struct am_data *data);
/* Behind everything posted so far. */
void ucx_send_fin(struct ucx_conn *conn);

/* ---- conn.c ---- */

struct ucx_key {
	uint32_t region, generation;
};

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

#endif
