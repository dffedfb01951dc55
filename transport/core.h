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
#include "providers/fault/plan.h"

#include <pthread.h>
#include <stdatomic.h>

#define INTERNAL_KEY   "\001" /* what the library's own store keys begin with */
#define CTX_MAX	       256    /* contexts a rank may open in a job's life */
#define REGION_MAX     65536  /* registrations open to peers at once */
#define STAGE_BYTES    ((size_t)256 << 10)
#define PIECES	       32 /* pieces of split or staged operations in flight */
#define STAGES	       4  /* of them staged */
#define FETCHES	       16 /* large receives in flight */
#define RENDEZVOUS_MAX 8  /* large sends in flight per endpoint */
#define ATOMICS_MAX    16 /* by the target, in flight per endpoint */
#define LEAVE_GRACE_MS 200

enum message_kind {
	MESSAGE_CREDIT = 1,  /* u32: credits returned */
	MESSAGE_USER,	     /* u32: channel */
	MESSAGE_EAGER,	     /* a send with its data */
	MESSAGE_RENDEZVOUS,  /* a send to be fetched: u64[0] cookie,
				u64[1] length, u64[2] checksum or 0; data:
				packed rkey */
	MESSAGE_FETCHED,     /* u64[0] cookie, u32: errno */
	MESSAGE_ATOMIC,	     /* for the target to do: u32 1 compare-swap;
				u64: address, operand, compare; data: cookie */
	MESSAGE_ATOMIC_DONE, /* u64[0] cookie, u64[1] value before, u32 errno */
	MESSAGE_SUMS,	     /* checksum.c's */
	MESSAGE_SUMS_SEEN
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
	struct import *next; /* in the job's table */
	_Atomic int state;   /* -EINPROGRESS, 0 ready, -errno */
	_Atomic int refs;
	int rank;
	uint32_t region, generation;
	enum provider_id provider;
	uint64_t base, length;
	struct blob *announce; /* only its len bytes are there */
	void *handle;	       /* of region_import, or NULL */
	char *why;	       /* of a failed one: a line, or NULL */
	struct vbn_job *job;
};

/* By (rank, region): chains, in a power of two of buckets. */
struct import_table {
	struct import **buckets;
	unsigned n, nbuckets;
};

struct vbn_job {
	int rank, nranks, timeout_ms;
	int forced;    /* enum provider_id, or -1 */
	bool checksum; /* VBN_CHECKSUM */
	struct fault_plan fault;
	uint64_t host_id;
	struct control *control;
	struct job_provider providers[PROVIDERS];
	struct memmap *map;
	_Atomic int open_objects;
	_Atomic unsigned deaths; /* grows with each rank that is gone */

	pthread_mutex_t lock;
	struct vbn_ctx *ctxs[CTX_MAX]; /* by index; NULL once closed */
	int nctxs;		       /* opened so far */
	uint32_t *generations;	       /* by region; odd: in use */
	uint32_t region_hint;
	struct import_table regions;
	pthread_mutex_t staging_lock;
	struct vbn_pool *staging; /* made at first use */
	struct connect *connects; /* control thread's */
};

/* hosts.c: tell the others which host we are on. Does not block. */
int hosts_publish(struct vbn_job *job);

/* ---- context ---- */

struct ep_event {
	struct ep_event *next;
	enum { EVENT_CONNECTED, EVENT_FAILED, EVENT_CLOSED } kind;
	int rank, index;
	uint64_t generation;
	enum provider_id provider;
	void *conn;
	int status;
	char why[512];
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
	void *stage; /* of STAGE_BYTES, or NULL; kept */
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
	uint64_t cookie, sum;
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

/* A provider that had a connection: worth polling. */
struct active {
	int (*poll)(void *pctx); /* or progress */
	int (*progress)(void *pctx);
	void *pctx;
	const struct provider *ops;
};

enum news {
	NEWS_EVENT = 1, /* in the inbox, or a death, a look-up that is over */
	NEWS_UNMAPPED = 2, /* a registration is gone: be quiescent */
	NEWS_AGAIN = 4	   /* core_again_any() */
};

#define STATE_IN_PROGRESS 1u /* in_progress, and nothing else */

struct vbn_ctx {
	/* what every post and every progress looks at, together */
	struct vbn_job *job;
	struct memmap_reader *reader;
	/* Whether progress is but to ask the one provider: one comparison. */
	union {
		_Atomic uint64_t state_news; /* both */
		struct {
			union {
				uint32_t state;
				struct {
					bool in_progress;
					bool todo;     /* there are chores */
					bool several;  /* providers to ask */
					bool happened; /* callbacks, endpoints
							  changed */
				};
			};
			_Atomic unsigned news; /* enum news, for the next */
		};
	};
	struct active active[PROVIDERS];
	bool again; /* core_again(), not followed by progress() yet */
	bool closing;
	bool gone_unchecked; /* ep_check_gone() is due */
	int leaving;	     /* endpoints whose peer has left, not failed yet */
	int nactive;
	bool detour; /* arrivals go the long way: some are parked, or tapped */
	bool tapped;
	struct op_list deferred;
	struct parked *parked, **parked_tail;
	struct vbn_ep *pumping; /* endpoints with a pump or owed messages */
	struct vbn_counters counters;

	int index;
	void *pctx[PROVIDERS];
	char no_ucx[256]; /* why this context goes without; set while opened */
	struct blob addresses[PROVIDERS]; /* under the job's lock */
	unsigned readdressed;		  /* so often, under it too */
	struct vbn_ep **eps;		  /* in order of creation */
	int neps, eps_room;
	struct vbn_ep **buckets; /* hash of (rank, index) */
	unsigned nbuckets;	 /* a power of two */
	struct channel channels[VBN_CHANNELS];
	struct piece pieces[PIECES], *free_pieces;
	struct fetch fetches[FETCHES], *free_fetches;
	int wake_fd, epoll_fd;
	bool woken;		     /* wake_fd may hold something */
	bool stage_missed;	     /* no memory to stage in: said so */
	int spin_polls, yield_polls; /* before it sleeps */
	uint64_t switched_ns; /* a yield that lasts longer let others run */
	unsigned deaths_seen;
	uint64_t gone_since_ms;	    /* 0: nothing to check */
	struct vbn_ctx_hook *hooks; /* to run when it closes */

	pthread_mutex_t inbox_lock;
	struct ep_event *inbox, **inbox_tail;
};

/* ---- endpoint ---- */

/* The rkey that was put by last, checked, and what it is to ep->quick. */
struct ep_last {
	uint64_t id; /* 0: none */
	uint64_t base, length;
	uint64_t key;
};

/*
 * A place in an endpoint's table of keys. The id is the rkey's generation above
 * its region, so that one comparison finds it; 0: empty. A place once taken
 * keeps its region.
 */
struct ep_key {
	uint64_t id;
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
	uint64_t cookie, sum;
	size_t len;
	uint8_t data[];
};

struct vbn_ep {
	struct vbn_ctx *ctx;
	struct quick *quick; /* its max is 0 unless all is ready for any put */
	struct ep_last last;
	int rank, index;
	int refs;
	int status; /* 0 ready, -EINPROGRESS, else why it failed */
	bool idle;  /* never connected, or closed: status is not 0 */
	uint64_t connect_deadline_ms;
	const struct provider *ops;
	const struct provider_caps *caps;
	size_t plain_max; /* a put of so many bytes needs no registration */
	enum provider_id provider;
	void *conn;
	uint64_t generation;
	unsigned tx_credits;
	unsigned rx_consumed; /* credits to return */
	unsigned rx_window;   /* arrivals the peer may have in flight */
	unsigned rx_kept;     /* arrivals that wait for a handler or receive */
	bool rx_grown;	      /* the window has grown, the peer has not heard */
	struct ep_key *keys;  /* a hash table by region, half full at most */
	uint32_t nkeys, key_mask;
	struct pump pump;
	struct op_list recvs;	   /* posted, unmatched */
	struct op_list fetching;   /* matched, waiting for a struct fetch */
	struct fetch *fetches;	   /* in order of matching */
	struct op_list rendezvous; /* sends waiting for FETCHED */
	unsigned nrendezvous;
	struct op_list atomics; /* that the target does */
	unsigned natomics;
	struct message_header *answers; /* ATOMICS_MAX, owed to the peer; made
					   at first use */
	unsigned nanswers;
	struct unexpected *unexpected, **unexpected_tail;
	uint64_t leave_at_ms; /* 0: the peer has not left */
	bool peer_closed;     /* it has closed this connection */
	struct tap *tap;
	struct vbn_ep *next_pumping;
	bool in_pumping;
	struct vbn_ep *next_hash;
	char *why; /* of the last failure, or NULL */
};

/* ---- the core's parts, by file ---- */

/* ctx.c */
uint64_t now_ms(void);
uint64_t deadline_of(int timeout_ms); /* < 0: none, UINT64_MAX */
void ctx_post_event(struct vbn_ctx *ctx, struct ep_event *event); /* [any] */
/* [any] Why the context has no part of the provider's. */
const char *ctx_why_without(const struct vbn_ctx *ctx, int provider);
/* [any] Have every context of the job look around. */
void ctx_alert_all(struct vbn_job *job);
/* [any] A registration is gone: those that do not sleep are to notice. */
void ctx_unmapped_all(struct vbn_job *job);
void op_list_init(struct op_list *list);
void op_push(struct op_list *list, struct vbn_op *op);
struct vbn_op *op_pop(struct op_list *list);

/* wait.c [ctx] */
void wait_init(struct vbn_ctx *ctx);
/*
 * As vbn_ctx_arm(), for one who sleeps as vbn_ctx_wait() does: *most_ms (< 0:
 * no limit) is lowered to when the context needs a look that nothing signals.
 */
int vbn_ctx_arm_within(struct vbn_ctx *ctx, int *most_ms);

/* Whether it is being progressed, so that waiting would be for ever. */
bool vbn_ctx_in_callback(const struct vbn_ctx *ctx);

/* ep.c [ctx] */
struct vbn_ep *ep_get(struct vbn_ctx *ctx, int rank, int index);
void ep_handle_event(struct vbn_ctx *ctx, struct ep_event *event);
void ep_check_gone(struct vbn_ctx *ctx);
void ep_fail(struct vbn_ep *ep, int status, const char *why);
void ep_shutdown(struct vbn_ep *ep, int status);
void ep_want_pump(struct vbn_ep *ep);
/* Whether it is ready, or what it pumps, has changed: choose ep->quick. */
void ep_requick(struct vbn_ep *ep);
void ep_return_credit(struct vbn_ep *ep, uint64_t generation);
/* An arrival is kept, or no longer, for what it waits for. */
void ep_keep(struct vbn_ep *ep);
void ep_unkeep(struct vbn_ep *ep, uint64_t generation);
void ep_free(struct vbn_ep *ep);
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
/* A small send with its data. */
void eager_deliver(struct vbn_ep *ep, const void *data, size_t len);
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

/* keys.c [ctx] */
extern struct ep_key keys_none[1]; /* the table of who has none */
static inline uint64_t key_id(uint32_t region, uint32_t generation)
{
	return (uint64_t)generation << 32 | region;
}
/* A key that is not at the region's first place. 0, -EAGAIN, -errno. */
int key_find_slowly(struct vbn_ep *ep, const struct vbn_rkey *rkey,
		    const struct ep_key **key);
void keys_detach_all(struct vbn_ep *ep, void *conn);

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
/* Which provider reaches the peer, and its address there; or why none does. */
int address_choose(struct vbn_ctx *ctx, const struct conn_info *info,
		   const uint8_t *value, size_t len, enum provider_id *provider,
		   struct blob *address, char *why, size_t room);
/* [control] A connection's number, of which no other on this rank has been. */
uint64_t connect_generation(void);

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
/*
 * [ctx] May block: have memory to stage in, so that operations need not wait
 * for its registration: a slab for the job, and STAGES stages for the context
 * when a device is in use.
 */
void staging_prepare(struct vbn_ctx *ctx);

#endif
