/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs provider's own types.
 *
 * Threads. A verbs_ctx belongs to the context's thread, but for what is
 * marked [control]: connections are made there while the other thread polls.
 * The two meet in two lock-free lists only: newborn (queue pairs that may
 * produce completions from now on) and graveyard (those to be closed that
 * were never attached).
 *
 * Room. The completion queue never overruns: it holds as many entries as
 * there are receives (recv_max) and slots (nslots) together, each request
 * posted has a slot or is one of the receives, and neither is used again
 * before its completion was taken out of the queue.
 *
 * Receives hold no memory: nothing but an immediate arrives in them, so one
 * is like another. What a message says lies in the connection's mailbox
 * (mailbox.h), where the peer has written it.
 *
 * Slots are the context's; a lane (a queue pair of a connection) links those
 * that it has outstanding, in order, and one more behind them, which the next
 * post fills: so that neither end of the list is ever a special case. A send's
 * wr_id is its slot's place and how often the slot was used, and kept in the
 * slot, so a completion that is stale finds another there and is ignored.
 */
#ifndef VBN_VERBS_INTERNAL_H
#define VBN_VERBS_INTERNAL_H

#include "rail.h"
#include "mailbox.h"

#define CREDITS	      8	 /* of a connection at its beginning */
#define CREDITS_MAX   60 /* soft-RoCE stalls above 64 packets in flight */
#define OWN_SLACK     8	 /* notices of our own in flight: see message.c */
#define CONN_RECEIVES (CREDITS + CREDIT_SLACK + OWN_SLACK)

#define MESSAGE_DATA  4096
#define MESSAGE_BYTES (sizeof(struct message_header) + MESSAGE_DATA)

#define SEND_DEPTH   128u /* slots that a lane may have outstanding */
#define DEPTH_EXTRA  (1u + LANES_MAX)	 /* a kick; words of dead lanes */
#define STRIPE_MIN   ((size_t)128 << 10) /* what is put over several lanes */
#define STRIPE_ALIGN 4096u
#define FENCES	     4u /* in flight, in a direction */
_Static_assert(RAILS_MAX <= 4, "struct ring_notice has room");
#define CHAIN_MAX     32
#define CHAIN_BYTES   32768u
#define POLL_BATCH    16
#define POLL_BATCHES  4
#define INLINE_WANTED 256u

#define RECV_BATCH 16u /* receives posted at once */
#define RECV_LIMIT 32768u
#define SEND_LIMIT 8192u
#define SLOTS_KEPT 8u /* for kicks */

#define CELLS	 2048u /* 8-byte results of atomics */
#define BOUNCES	 64u   /* copies of what is being sent */
#define BUCKETS	 1024u /* of the queue pair table */
#define NO_INDEX UINT32_MAX

enum slot_kind {
	SLOT_PUT,
	SLOT_GET,
	SLOT_PUT_COPY, /* a put from a bounce */
	SLOT_ATOMIC,
	SLOT_MESSAGE,
	SLOT_KICK,
	SLOT_FLUSH, /* no work request: done when those before it are */
	SLOT_VOID,  /* was not accepted by the device */
};

/* Beside the kind: one of several slots of its operation (see lanes.c). */
#define SLOT_PART  0x100u
#define SLOT_ENDER 0x200u /* silent ones behind it may end with it */
#define SLOT_KEPT  0x400u /* one for kicks is to be free again */
#define SLOT_WORD  0x800u /* OWN_DEAD: is said again, not replayed */

/* A cache line. */
struct slot {
	_Alignas(64) struct slot *next; /* of the lane's, or of the free ones */
	struct lane *lane;
	uint64_t wr_id; /* another one each time it is taken */
	struct vbn_op *op;
	uint64_t *result; /* atomic: where the caller wants it, or NULL */
	uint32_t index;	  /* atomic: cell; copies: bounce or NO_INDEX */
	int16_t status;	  /* how it ended, once it has */
	uint16_t kind;	  /* enum slot_kind, and the bits above */
	/* of what has data: where it goes, and where it is */
	const struct blob *key;
	const struct registration *from;
};

/* A queue pair of a connection, and its outstanding slots in order. */
struct lane {
	struct quick quick; /* lane 0's; closed while a chain waits */
	struct verbs_ctx *ctx;
	struct verbs_conn *conn;
	struct ibv_qp *qp;	   /* NULL: there is none any more */
	struct ibv_qp *sender;	   /* qp, or what records: record.c */
	struct ibv_qp_ex *builder; /* NULL: ibv_post_send() */
	struct slot *first;	   /* the oldest, or spare */
	struct slot *spare;	   /* behind the last; NULL: not adopted */
	struct slot *ended;	   /* slots up to this have ended; or NULL */
	int room;		   /* slots it may take; negative once broken */
	uint16_t silent;	   /* slots from SLOT_FLUSH on */
	int16_t fences; /* arrived, less those that lane 0 waits for */
	uint32_t qpn;	/* with the rail's number above: see queues_tag() */
	uint32_t psn;
	uint32_t inline_max;
	struct queues *queues; /* its rail's, and the rail's number */
	uint8_t rail, peer_rail;
	uint8_t id;	/* the same at both ends */
	bool erred;	/* a send has completed with an error */
	bool kicked;	/* a kick is outstanding */
	bool draining;	/* what it has in the ring is taken out */
	uint8_t state;	/* enum lane_state: failover.h, as all below */
	bool refused;	/* by the device: no more is posted to it */
	bool owes_word; /* that it is destroyed */
	uint8_t back_owed, tries; /* back.c */
	uint32_t generation, word_generation, word_rx;
	unsigned death; /* in the order of the connection's */
	bool peer_dead; /* and the peer's word, with how many arrived */
	uint16_t peer_rx;
	uint32_t rx, tx; /* immediates, arrived and recorded */
	struct ibv_qp_ex *recorded_builder;
	struct lane *next_bucket;
};

/* Memory that a peer writes messages into. */
struct ring {
	uint8_t *base; /* NULL: none */
	uint32_t bytes;
	uint32_t rkey[RAILS_MAX];
};

/*
 * A rail of ours and one of the peer's that a connection runs by; lane i runs
 * by pair i % npairs.
 */
struct pair {
	struct path path;
	uint8_t rail, peer_rail;
	uint8_t read_in, read_out;
	uint32_t out_rkey[2]; /* of the peer's rings, by this pair */
};

/* What has to be sent as soon as there is room. */
enum owed {
	OWE_UNITS = 1,	/* the peer has to hear what is free */
	OWE_FENCED = 8, /* how many fences have been waited for */
	OWE_RING = 2,	/* ring[1], which the peer does not know yet */
	OWE_SWITCH = 4, /* the word that what follows is in out_next */
	OWE_BACK = 16,	/* words about rails that come back */
};

/*
 * Immediates that came before attach, or behind a fence that has not come, or
 * behind such ones: [at, n).
 */
struct held {
	uint32_t n, at, room;
	uint32_t imms[];
};

struct verbs_conn {
	/* the data path's */
	struct verbs_ctx *ctx;
	struct vbn_ep *ep;
	struct mailbox_out out;
	struct mailbox_in in;
	size_t stripe_min;  /* SIZE_MAX: there is one lane */
	size_t stripe_full; /* what it is with several lanes */
	size_t quick_max;   /* of quick puts, while no chain waits */
	uint8_t striped; /* lanes that carry data behind no fence, a bit each */
	bool direct;	 /* arrivals go to the core at once */
	bool waiting;	 /* for fences of other lanes */
	bool attached;
	bool broken;  /* in error: nothing more is accepted */
	bool closed;  /* freed once pins is 0 */
	uint8_t pins; /* loops up the stack that still look at it */
	uint8_t owes; /* enum owed */
	uint8_t out_ring, in_ring; /* 0, or 1 once grown */
	bool asked_grow, asked_need;
	uint16_t window;		  /* arrivals that room is held for */
	uint8_t fences_sent, fences_seen; /* not answered yet */
	bool self, creator;
	bool in_held; /* the context's list */
	unsigned deaths;
	bool in_failing, gated; /* failover.c */
	struct verbs_conn *next_failing;
	int self_rank, rank;
	struct pair *pair;   /* behind the lanes */
	struct ring ring[2]; /* those that the peer writes */
	struct mailbox_out out_next;
	struct held *held;
	struct verbs_conn *next_held, *next_owing;
	struct verbs_conn *next_newborn, *next_grave;
	/* why it broke; told to the core at the next safe moment */
	struct verbs_conn *next_failed;
	const char *fail_what;
	enum ibv_wc_status fail_wc;
	uint32_t fail_vendor;
	uint8_t fail_pair;
	atomic_uchar event; /* an asynchronous one + 1: see events.c */
	uint64_t generation;
	struct cm_try *cm; /* [control] rdma_cm connects its lanes: cm.h */
	uint8_t nlanes, npairs;
	struct lane lane[]; /* 0 carries what is in order */
};

/* A put or get that is carried over all lanes. */
struct stripe {
	enum slot_kind kind;
	const uint8_t *local;
	uint64_t remote;
	const struct registration *from;
	const struct blob *key;
	size_t len;
	bool notify;
	uint32_t imm;
};

struct free_list {
	uint32_t n;
	uint32_t *items;
};

/* The memory of rings, in registered chunks: rings.c. */
struct ring_chunk {
	uint8_t *base;
	struct registration *mr;
	uint32_t piece; /* bytes of each ring in it */
	uint64_t free;	/* bit i: piece i is */
};

struct ring_pool {
	pthread_mutex_t lock;
	struct ring_chunk *chunks;
	unsigned n, room;
};

/* A context's part of a rail. */
struct queues {
	struct verbs_ctx *ctx;
	struct rail *rail;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	uint32_t recv_owed;  /* [ctx] taken by arrivals, not posted again */
	bool notify_pending; /* asked for an event, not seen it yet */
	unsigned events_unacked;
};

struct verbs_ctx {
	struct verbs_job *job;
	struct vbn_ctx *core;
	struct vbn_counters *counters;
	struct ibv_cq *cq; /* the only one; of several, what merges them */
	struct queues queues[RAILS_MAX];
	uint8_t nrails, poll_next;
	int fd; /* that any of the channels makes readable */
	struct merged *merged;
	atomic_uint rails_up;	  /* whose ports have changed, a bit each */
	atomic_bool alerted;	  /* an asynchronous event is to be looked at */
	atomic_uchar queue_event; /* one + 1 of the context's own queues */
	struct verbs_ctx *next_of_job;
	bool cq_broken;

	/* completions polled, not dispatched yet: [wc_head, wc_tail) */
	struct ibv_wc *wc, *wc_head, *wc_tail, *wc_end;

	struct slot *slots; /* behind the first, which is none */
	struct slot *free_slots, *kick_slots, *spare_slots;
	uint32_t nslots; /* that may be in use at once: none of the spare */
	struct ibv_send_wr alone_wr; /* of what is posted by itself */
	struct ibv_sge alone_sge;
	struct ibv_send_wr quick_wr; /* of a quick put */
	struct ibv_sge quick_sge;
	struct lane *chain_lane;
	unsigned chain_n;
	size_t chain_bytes;
	struct ibv_send_wr chain_wr[CHAIN_MAX];
	struct ibv_sge chain_sge[CHAIN_MAX];
	uint8_t chain_copy[CHAIN_MAX][INLINE_WANTED];

	uint8_t *arena; /* cells, then bounces; one registration */
	size_t arena_bytes;
	struct registration *arena_mr;
	struct free_list cells, bounces;
	struct ring_pool rings;

	/* polls in a row without a completion, and since when and how many */
	uint32_t empty_polls;
	uint64_t empty_since_us, empty_since;

	atomic_bool due;	   /* progress has more to do than to poll */
	struct verbs_conn *held;   /* attached connections with held arrivals */
	struct verbs_conn *owing;  /* attached ones that owe something */
	struct verbs_conn *failed; /* attached, broken, not told yet */
	struct verbs_conn *failing, *failing_next; /* failover.c */
	struct record *records;			   /* by slot; or NULL */
	struct registration *records_mr;
	size_t records_bytes;
	struct lane *last_lane; /* that something came by; or NULL */
	struct lane *bucket[BUCKETS];

	_Atomic(struct verbs_conn *) newborn, graveyard;

	/* receives: srq.c */
	struct ibv_recv_wr recv_wr[RECV_BATCH];
	uint32_t recv_max;
	uint32_t recv_grown; /* [ctx] promised by windows, of recv_max / 2 */
	atomic_uint recv_held, recv_spare;

	/* [control] but for the count of connections */
	atomic_uint conns;
};

/* Receives that a connection takes beside its window. */
static inline uint32_t conn_slack(const struct verbs_conn *conn)
{
	uint32_t n = conn->nlanes;

	return CREDIT_SLACK + OWN_SLACK +
	       (n > 1 ? FENCES * n + FENCES / 2 : 0) +
	       (conn->npairs > 1 ? (conn->npairs + 1u) * n : 0); /* words */
}

/* ---- what is due ---- */

/* [ctx] Progress is to look at everything. */
static inline void ctx_due(struct verbs_ctx *ctx)
{
	atomic_store_explicit(&ctx->due, true, memory_order_release);
	core_again(ctx->core);
}

/* [any] The same, but not in this progress. */
static inline void ctx_due_any(struct verbs_ctx *ctx)
{
	atomic_store_explicit(&ctx->due, true, memory_order_release);
	core_again_any(ctx->core);
}

/* ---- events.c: what the device tells on its own ---- */

/* Watch the rail's device, on the job's control thread, until that ends. */
int events_start(struct rail *rail);
/* [control] Take and acknowledge what there is. */
void events_take(struct rail *rail);
/*
 * [any] The context is to hear of events, until it closes; its address is as
 * of this moment, what changes later is told to the core.
 */
void events_add(struct verbs_ctx *ctx, struct blob *address);
void events_remove(struct verbs_ctx *ctx);
/* [ctx] ctx->alerted is set: break what an event has broken. */
void events_alerted(struct verbs_ctx *ctx);

/* ---- limits.c ---- */

/* The line that says why a connection broke, in @why. */
void limits_why(const struct verbs_conn *conn, char *why, size_t room);

/* ---- merge.c: the queues of several rails as one ---- */

/*
 * Make ctx->cq and ctx->fd of the rails' queues. What is polled by it says in
 * qp_num which rail's it is, as lane->qpn does.
 */
int merge_create(struct verbs_ctx *ctx);
void merge_destroy(struct verbs_ctx *ctx);

#define RAIL_SHIFT 24 /* above a queue pair's number */
#define QPN_MASK   0xffffffu

static inline uint32_t queues_tag(uint32_t qpn, unsigned rail)
{
	return qpn | (uint32_t)rail << RAIL_SHIFT;
}

/* ---- context.c ---- */

int verbs_ctx_open(void *pjob, struct vbn_ctx *core, void **pctx,
		   struct blob *address);
void verbs_ctx_close(void *pctx);

/* ---- qp.c: queue pairs, as the device gives them ---- */

int qp_create(struct lane *lane);
/* As ibv_post_send(), by builders. */
int qp_build(struct ibv_qp_ex *qp, struct ibv_send_wr *wr,
	     struct ibv_send_wr **bad);

/* 0, or errno with *bad the first not taken. */
static inline int qp_post(struct lane *lane, struct ibv_send_wr *wr,
			  struct ibv_send_wr **bad)
{
	if (lane->builder)
		return qp_build(lane->builder, wr, bad);
	return ibv_post_send(lane->sender, wr, bad);
}

/* ---- srq.c: receives ---- */

int srq_create(struct verbs_ctx *ctx);
void srq_destroy(struct verbs_ctx *ctx);
/* [any] Post @n receives more, or take them from the spare; or -ENOSPC. */
int srq_reserve(struct verbs_ctx *ctx, uint32_t n);
/* [any] So many are promised to nobody any more. */
void srq_unreserve(struct verbs_ctx *ctx, uint32_t n);
int verbs_window(void *conn, unsigned arrivals);
/* [ctx] Post the receives that arrivals have taken: a batch. */
void srq_repost(struct queues *queues);

/* [ctx] An arrival has taken a receive. */
static inline void srq_taken(struct queues *queues)
{
	if (++queues->recv_owed >= RECV_BATCH)
		srq_repost(queues);
}

/* ---- rings.c: the memory of mailboxes [any] ---- */

#define RING_SMALL 1024u
#define RING_LEAST 16384u /* in which any message fits: mailbox_will_fit() */
#define RING_LARGE 65536u

int rings_init(struct verbs_ctx *ctx);
void rings_destroy(struct verbs_ctx *ctx);
/* A small one. */
int ring_take(struct verbs_ctx *ctx, struct ring *ring);
/* A large one; a lesser when there are many, if @needed; or -ENOSPC. */
int ring_take_large(struct verbs_ctx *ctx, bool needed, struct ring *ring);
void ring_give(struct verbs_ctx *ctx, struct ring *ring);

/* ---- progress.c ---- */

int verbs_progress(void *pctx);
int verbs_poll(void *pctx);
int verbs_fd(void *pctx);
int verbs_arm(void *pctx);
/* Poll into the ring. Returns how many came, or -1: the queue is broken. */
int progress_poll(struct verbs_ctx *ctx);
/* An operation's status for a completion's. */
int progress_errno(enum ibv_wc_status status);
/*
 * A slot is over: free it and what it holds, hand out its result. Returns its
 * operation, or NULL.
 */
struct vbn_op *slot_release(struct verbs_ctx *ctx, struct slot *slot,
			    int status);
/* It has ended badly: its operation is to say so. */
void slot_blame(struct slot *slot, const struct ibv_wc *wc);
/* The device does not know it: free what it holds, nothing will end it. */
void slot_void(struct verbs_ctx *ctx, struct slot *slot, int status);
/*
 * What became of unsignalled slots before one that completed with the error
 * @status: they succeeded if it is the first to fail by itself; else nothing
 * is known and they count as failed.
 */
int progress_before(const struct lane *lane, enum ibv_wc_status status);
/*
 * Break the connection: nothing more is accepted, and the next progress, or
 * attaching, tells the core. Runs no callback. The first reason is kept.
 */
void progress_break(struct verbs_conn *conn, const char *what,
		    enum ibv_wc_status wc, uint32_t vendor);
/* A loop that pinned is done; frees what was closed meanwhile. */
void progress_unpin(struct verbs_conn *conn);

/* ---- conn.c, close.c ---- */

int verbs_reaches(void *pctx, const struct conn_info *info,
		  const struct blob *peer_address);
int verbs_conn_create(void *pctx, const struct conn_info *info,
		      const struct blob *peer_address, void **conn,
		      struct blob *offer);
int verbs_conn_accept(void *pctx, const struct conn_info *info,
		      const struct blob *peer_address, const struct blob *offer,
		      void **conn, struct blob *answer);
int verbs_conn_finish(void *conn, const struct blob *answer);
int verbs_conn_attach(void *conn, struct vbn_ep *ep);
void verbs_conn_close(void *conn, int status);
struct pair *lane_pair(const struct lane *lane);
/* [ctx] The lane of a queue pair, or NULL. */
struct lane *lane_lookup(struct verbs_ctx *ctx, uint32_t qpn);
struct lane **lane_bucket(struct verbs_ctx *ctx, uint32_t qpn);
/* [ctx] Enter what the control thread has made since. */
void conn_adopt(struct verbs_ctx *ctx);
/* [any] Onto one of the lists between the threads. */
void conn_push(_Atomic(struct verbs_conn *) *list, struct verbs_conn *conn,
	       struct verbs_conn **next);
/* [ctx] Close what was given up before it was attached. */
void conn_bury(struct verbs_ctx *ctx);
void conn_free(struct verbs_conn *conn);
uint64_t verbs_now_ms(void); /* monotonic */
/* Its receives are promised no more. */
void conn_unreserve(struct verbs_conn *conn);

/* ---- pairs.c: which rail of ours with which of the peer's ---- */

/* Returns how many pairs there are, or -errno with vbn_fail(). */
int pairs_choose(struct verbs_ctx *ctx, const struct conn_info *info,
		 const struct rail_addresses *peer,
		 struct pair pairs[RAILS_MAX]);
/* The same, of those that the peer has chosen. */
int pairs_accept(struct verbs_ctx *ctx, const struct conn_info *info,
		 const struct rail_addresses *peer,
		 const struct conn_offer *offer, struct pair pairs[RAILS_MAX]);
/* The answer names the pairs that were chosen? Else -EPROTO. */
int pairs_confirm(const struct verbs_conn *conn,
		  const struct conn_offer *answer);

/* ---- post.c ---- */

int verbs_put(void *conn, struct vbn_op *op, const struct put_args *args);
int verbs_get(void *conn, struct vbn_op *op, const struct get_args *args);
int verbs_atomic(void *conn, struct vbn_op *op, const struct atomic_args *args);
int verbs_flush(void *conn, struct vbn_op *op);
/* Ring the doorbell for what is chained. */
void post_chain(struct verbs_ctx *ctx);
/*
 * An immediate of channel 0: alone; behind a message that has room (a header
 * and data, or one of them); the same as the first, of our own, on any lane.
 */
int post_notice(struct verbs_conn *conn, uint32_t kind, uint32_t value);
int post_message(struct verbs_conn *conn, uint32_t kind, uint32_t value,
		 const void *head, size_t head_len, const void *data,
		 size_t len);
/* What is NOTICE_DATA's: data that is short is not copied. */
int post_data(struct verbs_conn *conn, uint32_t value, const void *data,
	      size_t len);
int post_own(struct lane *lane, enum own_notice what, uint32_t value);
/* A part of @op, at once: there is room. len 0: the notify behind all. */
void post_part(struct lane *lane, struct vbn_op *op, const struct stripe *all,
	       size_t off, size_t len);
/* A zero-length write, past the lane's limit. */
void post_kick(struct lane *lane);
/* The device took those before @bad of the lane's chain that begins at @wr. */
void post_failed(struct verbs_conn *conn, const struct ibv_send_wr *wr,
		 const struct ibv_send_wr *bad, int err);

/* ---- quick.c: short puts ---- */

struct quick *verbs_quick(void *conn);

/* ---- lanes.c: one connection's several queue pairs ---- */

/* Over all lanes. 0, -EAGAIN or -ECONNRESET. */
int lanes_stripe(struct verbs_conn *conn, struct vbn_op *op,
		 const struct stripe *all);
/* Are so many slots free? A few. */
bool lanes_slots(const struct verbs_ctx *ctx, unsigned n);
/* What is posted behind on lane 0 is to be delivered behind all data. */
int lanes_fence(struct verbs_conn *conn);
/* A part of @op is over: with the last one, so is @op. */
void lanes_part_over(struct verbs_ctx *ctx, struct vbn_op *op, int status);
/* A fence has arrived by a lane; and the word on lane 0 to wait for some. */
void lanes_fenced(struct verbs_conn *conn, uint32_t id);
void lanes_wait(struct verbs_conn *conn, uint32_t mask);

/* ---- message.c ---- */

int verbs_message(void *conn, const struct message_header *header,
		  const void *data, size_t len);
/* [ctx] Remember that it owes @what; progress pays. */
void message_owe(struct verbs_conn *conn, enum owed what);
/* [ctx] Pay what can be paid. */
void message_pay(struct verbs_ctx *ctx);

/* ---- arrive.c ---- */

/* An immediate that the core may see now. The caller has pinned. */
void arrive(struct lane *lane, uint32_t imm);
/* Keep it, if it is lane 0's, until those before it are delivered. */
void arrive_hold(struct lane *lane, uint32_t imm);
/* Memory to keep arrivals in. */
int arrive_prepare(struct verbs_conn *conn);
/* What is held, or came meanwhile, can be delivered. */
void arrive_resume(struct verbs_conn *conn);
/* Deliver what was held. Returns the events. */
int arrive_held(struct verbs_ctx *ctx);

#endif
