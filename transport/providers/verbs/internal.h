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
 * Room. The completion queue never overruns: it holds the shared receive
 * queue's limit, and send_room for work requests, which each post takes from
 * and each retired slot gives back.
 *
 * wr_id is typed: kind, the connection's tag, and the slot's number. A
 * completion whose tag is not that of the queue pair's connection is stale
 * and ignored.
 */
#ifndef VBN_VERBS_INTERNAL_H
#define VBN_VERBS_INTERNAL_H

#include "provider.h"
#include "offer.h"

#include <infiniband/verbs.h>

#include <stdatomic.h>

#define CREDITS	      60
#define CONN_RECEIVES (CREDITS + CREDIT_SLACK)

#define MESSAGE_DATA  4096
#define MESSAGE_BYTES (sizeof(struct message_header) + MESSAGE_DATA)

#define SEND_DEPTH    128u /* slots of a connection, a power of two */
#define CHAIN_MAX     32
#define CHAIN_BYTES   32768u
#define POLL_BATCH    16
#define POLL_BATCHES  4
#define INLINE_WANTED 256

#define RECV_STRIDE 4160
#define RECV_CHUNK  256u
#define RECV_LIMIT  32768u
#define RECV_CHUNKS (RECV_LIMIT / RECV_CHUNK)
#define SEND_LIMIT  8192u

#define CELLS	 2048u /* 8-byte results of atomics */
#define BOUNCES	 64u   /* copies of messages being sent */
#define BUCKETS	 1024u /* of the queue pair table */
#define NO_INDEX UINT32_MAX

/*
 * What a region's announcement holds, in memory order: both ends are of one
 * job on x86-64. Access is checked here before the device does, because a
 * refusal by the target breaks the connection.
 */
struct announcement {
	uint32_t rkey;
	uint32_t access; /* VBN_ACCESS_* */
};

/* One job's device: the port it speaks through, and its protection domain. */
struct verbs_job {
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	struct port_address port;
	char name[IBV_SYSFS_NAME_MAX];
	char gid[GID_TEXT_LENGTH];
	uint8_t port_num;
	uint8_t gid_index;
	uint8_t timeout, retry_cnt;
	bool atomics;
	uint32_t depth;		   /* send slots of a queue pair */
	atomic_uint inline_wanted; /* what creation asks for, found by trying */
	atomic_uint mrs;	   /* registrations that exist */
};

enum slot_kind {
	SLOT_PUT,
	SLOT_GET,
	SLOT_ATOMIC,
	SLOT_MESSAGE,
	SLOT_FLUSH, /* no work request: done when those before it are */
	SLOT_VOID,  /* was not accepted by the device; already completed */
};

struct slot {
	struct vbn_op *op;
	uint64_t *result; /* atomic: where the caller wants it, or NULL */
	uint32_t index;	  /* atomic: cell; message: bounce or NO_INDEX */
	int16_t status;	  /* how it ended, once it has */
	uint8_t kind;
};

struct verbs_conn {
	/* the data path's */
	struct ibv_qp *qp;
	struct verbs_ctx *ctx;
	struct vbn_ep *ep;
	struct slot *slots;
	uint32_t head, tail; /* slots [tail, head) are not completed */
	uint32_t ended;	     /* those before it have ended, if > tail */
	uint32_t mask;
	uint32_t inline_max;
	uint32_t qpn, tag;
	bool attached;
	bool broken;  /* in error: nothing more is accepted */
	bool erred;   /* a send has completed with an error */
	bool closed;  /* freed once pins is 0 */
	uint8_t pins; /* loops up the stack that still look at it */
	/* arrivals before attach, or behind such ones: receive slots */
	uint32_t held_first, held_last;
	struct verbs_conn *next_held;
	struct verbs_conn *next_bucket;
	struct verbs_conn *next_newborn, *next_grave;
	int rank;
	/* why it broke; told to the core at the next safe moment */
	struct verbs_conn *next_failed;
	const char *fail_what;
	enum ibv_wc_status fail_wc;
	uint32_t fail_vendor;
	uint64_t generation;
	uint32_t psn;
	uint8_t read_in, read_out;
	bool self;
};

/* What a receive slot remembers while it is held, behind its buffer. */
struct held_note {
	uint32_t next;
	uint32_t imm;
	uint32_t len;
	uint32_t with_imm;
};

struct recv_chunk {
	uint8_t *base;
	struct ibv_mr *mr;
};

struct free_list {
	uint32_t n;
	uint32_t *items;
};

struct verbs_ctx {
	struct verbs_job *job;
	struct vbn_ctx *core;
	struct vbn_counters *counters;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	bool notify_pending; /* asked for an event, not seen it yet */
	unsigned events_unacked;
	bool cq_broken;

	/* completions polled, not dispatched yet: [wc_head, wc_tail) */
	struct ibv_wc *wc;
	uint32_t wc_head, wc_tail, wc_size;

	uint32_t send_room;
	struct verbs_conn *chain_conn;
	unsigned chain_n;
	size_t chain_bytes;
	struct ibv_send_wr chain_wr[CHAIN_MAX];
	struct ibv_sge chain_sge[CHAIN_MAX][2];

	uint8_t *arena; /* cells, then bounces; one registration */
	size_t arena_bytes;
	struct ibv_mr *arena_mr;
	struct free_list cells, bounces;

	unsigned repost_n;
	struct ibv_recv_wr repost_wr[POLL_BATCH];
	struct ibv_sge repost_sge[POLL_BATCH];

	struct verbs_conn *held;   /* attached connections with held arrivals */
	struct verbs_conn *failed; /* attached, broken, not told yet */
	struct verbs_conn *bucket[BUCKETS];

	_Atomic(struct verbs_conn *) newborn, graveyard;

	/* [control] but for the count of connections */
	atomic_uint conns;
	uint32_t conns_max, recv_max, recv_posted;
	uint32_t next_tag;
	atomic_uint nchunks; /* those below it may be read by [ctx] */
	struct recv_chunk chunks[RECV_CHUNKS];
};

/* ---- wr_id ---- */

enum wr_kind { WR_NONE, WR_SEND, WR_RECV };

#define WR_TAG_MASK 0xffffffu

static inline uint64_t wr_id(enum wr_kind kind, uint32_t tag, uint32_t slot)
{
	return (uint64_t)kind << 56 | (uint64_t)tag << 32 | slot;
}

static inline enum wr_kind wr_kind(uint64_t id)
{
	return (enum wr_kind)(id >> 56);
}

static inline uint32_t wr_tag(uint64_t id)
{
	return (uint32_t)(id >> 32) & WR_TAG_MASK;
}

static inline uint32_t wr_slot(uint64_t id)
{
	return (uint32_t)id;
}

/* ---- device.c: a device and port, chosen once per job ---- */

int device_open(struct verbs_job *job);
void device_close(struct verbs_job *job);

/* ---- limits.c ---- */

/*
 * Why registering (or creating) @what of @bytes failed with @err: sets the
 * error line, which names the limit and how to raise it. Returns -@err.
 */
int limits_explain(struct verbs_job *job, int err, const char *what,
		   size_t bytes);

/* ---- context.c ---- */

int verbs_ctx_open(void *pjob, struct vbn_ctx *core, void **pctx,
		   struct blob *address);
void verbs_ctx_close(void *pctx);

/* ---- srq.c: the receive buffers ---- */

int srq_create(struct verbs_ctx *ctx);
void srq_destroy(struct verbs_ctx *ctx);
/* [control] Make the posted receives suffice for one connection more. */
int srq_reserve(struct verbs_ctx *ctx);
/* [any] A connection is gone. */
void srq_unreserve(struct verbs_ctx *ctx);
/* [ctx] Give a slot back to the device, at the latest at srq_flush(). */
void srq_repost(struct verbs_ctx *ctx, uint32_t slot);
void srq_flush(struct verbs_ctx *ctx);

static inline uint8_t *srq_buffer(const struct verbs_ctx *ctx, uint32_t slot)
{
	return ctx->chunks[slot / RECV_CHUNK].base +
	       (size_t)(slot % RECV_CHUNK) * RECV_STRIDE;
}

static inline struct held_note *srq_note(const struct verbs_ctx *ctx,
					 uint32_t slot)
{
	return (struct held_note *)(srq_buffer(ctx, slot) + RECV_STRIDE -
				    sizeof(struct held_note));
}

/* ---- progress.c ---- */

int verbs_progress(void *pctx);
int verbs_fd(void *pctx);
int verbs_arm(void *pctx);
/* Poll into the ring. Returns how many came, or -1: the queue is broken. */
int progress_poll(struct verbs_ctx *ctx);
/* An operation's status for a completion's. */
int progress_errno(enum ibv_wc_status status);
/* Free what a slot holds and hand out its result. */
struct vbn_op *progress_release(struct verbs_ctx *ctx, struct slot *slot,
				int status);
/*
 * What became of unsignalled slots before one that completed with the error
 * @status: they succeeded if it is the first to fail by itself; else nothing
 * is known and they count as failed.
 */
int progress_before(const struct verbs_conn *conn, enum ibv_wc_status status);
/*
 * Break the connection: nothing more is accepted, and the next progress, or
 * attaching, tells the core. Runs no callback. The first reason is kept.
 */
void progress_break(struct verbs_conn *conn, const char *what,
		    enum ibv_wc_status wc, uint32_t vendor);
/* The line that says why, in @why. */
void progress_why(const struct verbs_conn *conn, char *why, size_t room);
/* A loop that pinned is done; frees what was closed meanwhile. */
void progress_unpin(struct verbs_conn *conn);

/* ---- conn.c, close.c ---- */

int verbs_conn_create(void *pctx, const struct conn_info *info,
		      const struct blob *peer_address, void **conn,
		      struct blob *offer);
int verbs_conn_accept(void *pctx, const struct conn_info *info,
		      const struct blob *peer_address, const struct blob *offer,
		      void **conn, struct blob *answer);
int verbs_conn_finish(void *conn, const struct blob *answer);
int verbs_conn_attach(void *conn, struct vbn_ep *ep);
void verbs_conn_close(void *conn, int status);
/* [ctx] The connection of a queue pair, or NULL. */
struct verbs_conn *conn_lookup(struct verbs_ctx *ctx, uint32_t qpn);
struct verbs_conn **conn_bucket(struct verbs_ctx *ctx, uint32_t qpn);
/* [ctx] Enter what the control thread has made since. */
void conn_adopt(struct verbs_ctx *ctx);
/* [any] Onto one of the lists between the threads. */
void conn_push(_Atomic(struct verbs_conn *) *list, struct verbs_conn *conn,
	       struct verbs_conn **next);
/* [ctx] Close what was given up before it was attached. */
void conn_bury(struct verbs_ctx *ctx);
void conn_free(struct verbs_conn *conn);

/* ---- post.c ---- */

int verbs_put(void *conn, struct vbn_op *op, const struct put_args *args);
int verbs_get(void *conn, struct vbn_op *op, const struct get_args *args);
int verbs_atomic(void *conn, struct vbn_op *op, const struct atomic_args *args);
int verbs_flush(void *conn, struct vbn_op *op);
int verbs_message(void *conn, const struct message_header *header,
		  const void *data, size_t len);
/* Ring the doorbell for what is chained. */
void post_chain(struct verbs_ctx *ctx);

#endif
