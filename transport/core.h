/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core's own structures: job, context, endpoint, and the hand-over from
 * the control thread to a context's thread (the inbox).
 *
 * Who touches what: a vbn_ep and everything reachable from it belongs to the
 * context's thread. The control thread owns struct connect (connect.c) and
 * hands finished connections over through the context's inbox. The job's
 * tables are guarded by job->lock, except where a comment says otherwise.
 */
#ifndef VBN_CORE_H
#define VBN_CORE_H

#include "control.h"
#include "error.h"
#include "memory.h"
#include "provider.h"

#include <pthread.h>
#include <stdatomic.h>

#define INTERNAL_KEY   "\001" /* what the library's own store keys begin with */
#define CTX_MAX	       256    /* contexts a rank may open in a job's life */
#define REGION_MAX     65536  /* registrations open to peers at once */
#define REGION_CHUNK   256
#define REGION_CHUNKS  (REGION_MAX / REGION_CHUNK)
#define STAGE_BYTES    ((size_t)256 << 10)
#define PIECES	       32 /* pieces of split or staged operations in flight */
#define FETCHES	       16 /* large receives in flight */
#define RENDEZVOUS_MAX 8  /* large sends in flight per endpoint */
#define ATOMICS_MAX    16 /* by the target, in flight per endpoint */
#define LEAVE_GRACE_MS 200

enum message_kind {
	MESSAGE_CREDIT = 1, /* u32: credits returned */
	MESSAGE_USER,	    /* u32: channel */
	MESSAGE_EAGER,	    /* a send with its data */
	MESSAGE_RENDEZVOUS, /* a send to be fetched: u64[0] cookie,
			       u64[1] length; data: packed rkey */
	MESSAGE_FETCHED,    /* u64[0] cookie, u32: errno */
	MESSAGE_ATOMIC,	    /* for the target to do: u32 1 compare-swap;
			       u64: address, operand, compare; data: cookie */
	MESSAGE_ATOMIC_DONE /* u64[0] cookie, u64[1] value before, u32 errno */
};

/* ---- job ---- */

struct job_provider {
	const struct provider *ops;
	void *pjob; /* NULL: not usable, why says it */
	struct provider_caps caps;
	char why[256];
};

/* A peer's region, as it was announced; immutable once READY or FAILED. */
struct import {
	_Atomic int state; /* -EINPROGRESS, 0 ready, -errno */
	_Atomic int refs;
	int rank;
	uint32_t region, generation;
	enum provider_id provider;
	uint64_t base, length;
	struct blob announce;
	void *handle; /* of region_import, or NULL */
	struct vbn_job *job;
};

struct vbn_job {
	int rank, nranks, timeout_ms;
	int forced; /* enum provider_id, or -1 */
	uint64_t host_id;
	struct control *control;
	struct job_provider providers[PROVIDERS];
	struct memmap *map;
	_Atomic int open_objects;
	_Atomic unsigned deaths;  /* grows with each rank that is gone */
	_Atomic unsigned imports; /* grows with each look-up that is over */

	pthread_mutex_t lock;
	struct vbn_ctx *ctxs[CTX_MAX]; /* by index; NULL once closed */
	int nctxs;		       /* opened so far */
	uint32_t *generations;	       /* by region; odd: in use */
	uint32_t region_hint;
	struct import ****peers; /* [rank][chunk][region], made at first use */
	pthread_mutex_t staging_lock;
	struct vbn_pool *staging; /* made at first use */
	struct connect *connects; /* control thread's */
};

/* ---- context ---- */

struct ep_event {
	struct ep_event *next;
	enum { EVENT_CONNECTED, EVENT_FAILED, EVENT_CLOSED } kind;
	int rank, index;
	uint64_t generation;
	enum provider_id provider;
	void *conn;
	int status;
	char why[256];
};

/* A notify or message that came before its channel had a handler. */
struct parked {
	struct parked *next;
	struct vbn_ep *ep;
	uint64_t generation; /* of the connection it came by */
	unsigned channel;
	bool is_message;
	uint32_t value;
	size_t len;
	uint8_t data[];
};

struct piece {
	struct vbn_op op;
	struct vbn_op *parent;
	void *stage; /* kept once allocated */
	bool staged;
	void *dest; /* get: where the stage is copied to */
	size_t len;
	struct vbn_ctx *ctx;
	struct piece *next_free;
};

/* The fetching of one large send by its receiver. */
struct fetch {
	struct vbn_op op;
	enum { FETCH_POST, FETCH_GETTING, FETCH_OWED, FETCH_LOST } state;
	struct vbn_op *recv; /* NULL once completed */
	struct vbn_ep *ep;
	void *buf;
	uint64_t cookie;
	size_t len;
	struct vbn_rkey rkey;
	int status;
	struct fetch *next;
};

struct channel {
	void (*notify)(void *arg, struct vbn_ep *from, uint32_t value);
	void *notify_arg;
	void (*message)(void *arg, struct vbn_ep *from, const void *data,
			size_t len);
	void *message_arg;
};

struct op_list {
	struct vbn_op *head, **tail;
};

struct vbn_ctx {
	struct vbn_job *job;
	int index;
	void *pctx[PROVIDERS];
	bool used[PROVIDERS]; /* had a connection: worth polling */
	struct blob addresses[PROVIDERS];
	struct memmap_reader *reader;
	bool in_progress, closing;
	struct op_list deferred;
	struct vbn_ep **eps; /* in order of creation */
	int neps, eps_room;
	struct vbn_ep **buckets; /* hash of (rank, index) */
	unsigned nbuckets;	 /* a power of two */
	struct channel channels[VBN_CHANNELS];
	struct parked *parked, **parked_tail;
	struct piece pieces[PIECES], *free_pieces;
	struct fetch fetches[FETCHES], *free_fetches;
	struct vbn_ep *pumping; /* endpoints with a pump or owed messages */
	int wake_fd, epoll_fd;
	unsigned deaths_seen, imports_seen;
	uint64_t happened;	/* callbacks run, endpoints changed */
	uint64_t gone_since_ms; /* 0: nothing to check */
	int leaving; /* endpoints whose peer has left, not failed yet */
	struct vbn_counters counters;
	struct vbn_ctx_hook *hooks; /* to run when it closes */

	pthread_mutex_t inbox_lock;
	struct ep_event *inbox, **inbox_tail;
	_Atomic bool inbox_full;
};

/* ---- endpoint ---- */

struct ep_key {
	uint32_t generation; /* 0: empty */
	uint64_t base, length;
	struct import *import;
	void *key;
};

/* The one split or staged operation that is being posted piece by piece. */
struct pump {
	struct vbn_op *op; /* NULL: none */
	bool is_get, notify;
	uint32_t imm;
	char *local;
	size_t len, posted;
	const struct vbn_mem *mem; /* NULL: staged */
	uint64_t remote;
	void *key;
};

/* A send that arrived before its receive. */
struct unexpected {
	struct unexpected *next;
	bool rendezvous;
	uint64_t generation; /* of the connection it came by */
	uint64_t cookie;
	size_t len;
	uint8_t data[];
};

struct vbn_ep {
	struct vbn_ctx *ctx;
	int rank, index;
	int refs;
	int status; /* 0 ready, -EINPROGRESS, else why it failed */
	bool idle;  /* never connected, or closed: status is meaningless */
	uint64_t connect_deadline_ms;
	const struct provider *ops;
	enum provider_id provider;
	void *conn;
	uint64_t generation;
	unsigned tx_credits, rx_consumed, credits;
	struct ep_key *keys; /* by region */
	uint32_t nkeys;
	struct pump pump;
	struct op_list recvs;	   /* posted, unmatched */
	struct op_list fetching;   /* matched, waiting for a struct fetch */
	struct fetch *fetches;	   /* in order of matching */
	struct op_list rendezvous; /* sends waiting for FETCHED */
	unsigned nrendezvous;
	struct op_list atomics; /* that the target does */
	unsigned natomics;
	struct message_header answers[ATOMICS_MAX]; /* owed to the peer */
	unsigned nanswers;
	struct unexpected *unexpected, **unexpected_tail;
	uint64_t leave_at_ms; /* 0: the peer has not left */
	bool peer_closed;     /* it has closed this connection */
	struct vbn_ep *next_pumping;
	bool in_pumping;
	struct vbn_ep *next_hash;
	char why[256];
};

/* ---- the core's parts, by file ---- */

/* ctx.c */
uint64_t now_ms(void);
void ctx_post_event(struct vbn_ctx *ctx, struct ep_event *event); /* [any] */
void op_list_init(struct op_list *list);
void op_push(struct op_list *list, struct vbn_op *op);
struct vbn_op *op_pop(struct op_list *list);

/* ep.c [ctx] */
struct vbn_ep *ep_get(struct vbn_ctx *ctx, int rank, int index);
void ep_handle_event(struct vbn_ctx *ctx, struct ep_event *event);
void ep_check_gone(struct vbn_ctx *ctx);
void ep_fail(struct vbn_ep *ep, int status, const char *why);
void ep_shutdown(struct vbn_ep *ep, int status);
void ep_want_pump(struct vbn_ep *ep);
void ep_return_credit(struct vbn_ep *ep, uint64_t generation);
void ep_drop_key(struct vbn_ep *ep, void *conn, struct ep_key *key);
int ep_usable(struct vbn_ep *ep); /* 0, -EAGAIN, why it failed */

/* ops.c, pump.c [ctx] */
void pieces_init(struct vbn_ctx *ctx);
void pieces_free(struct vbn_ctx *ctx);
void pump_start(struct vbn_ep *ep);
bool pump_run(struct vbn_ep *ep); /* true: nothing left to pump */
void pump_fail(struct vbn_ep *ep, int status);
int ops_get(struct vbn_ep *ep, struct vbn_op *op, void *local, size_t len,
	    const struct vbn_rkey *rkey, uint64_t offset, unsigned flags);

/* sendrecv.c [ctx] */
void fetches_init(struct vbn_ctx *ctx);
void send_deliver(struct vbn_ep *ep, const struct message_header *header,
		  const void *data, size_t len);
bool send_run(struct vbn_ep *ep); /* true: nothing owed */
void send_fail(struct vbn_ep *ep, int status);
int ep_message(struct vbn_ep *ep, const struct message_header *header,
	       const void *data, size_t len);

/* atomics.c [ctx]: atomics that the target's context does */
int atomic_ask(struct vbn_ep *ep, struct vbn_op *op,
	       const struct atomic_args *args);
void atomic_deliver(struct vbn_ep *ep, const struct message_header *header,
		    const void *data, size_t len);
bool atomic_run(struct vbn_ep *ep); /* true: nothing owed */
void atomic_fail(struct vbn_ep *ep, int status);

/* deliver.c [ctx] */
bool parked_ready(const struct vbn_ctx *ctx);
void parked_deliver(struct vbn_ctx *ctx);
void parked_free(struct vbn_ctx *ctx);

/*
 * region.c [any]: find or request a peer's region; 0, -EAGAIN, -errno. What is
 * found is counted for the caller, until import_put().
 */
int region_find(struct vbn_job *job, int rank, enum provider_id provider,
		const struct vbn_rkey *rkey, struct import **import);
void import_put(struct import *import); /* NULL: nothing */
void region_free_all(struct vbn_job *job);

/* address.c */
void address_key(char *key, size_t room, int rank, int index);
int address_publish(struct vbn_ctx *ctx, const struct blob *addresses);
/* Same host: shm; else verbs; else ucx. The job may force one. */
int address_choose(struct vbn_ctx *ctx, int rank, const uint8_t *value,
		   size_t len, enum provider_id *provider, struct blob *address,
		   char *why, size_t room);

/* connect.c */
/* [any] @seen: generation of the last connection that the context heard of. */
void connect_start(struct vbn_ctx *ctx, int rank, int index, uint64_t seen);
/* [ctx] Tell the peer that generation's connection is closed. */
void connect_closed(struct vbn_ctx *ctx, int rank, int index,
		    uint64_t generation);
void connect_withdraw(struct vbn_ctx *ctx);
/* [control] */
void connect_message(void *job, int from, unsigned type, const void *data,
		     size_t len);
void connect_gone(struct vbn_job *job, int rank);
void connect_free_all(struct vbn_job *job);

/* mem.c */
struct vbn_pool *job_staging(struct vbn_job *job);

#endif
