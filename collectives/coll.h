/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collectives' own structures: what a context's communicators share, a
 * communicator, a peer in it, a call.
 *
 * Between two members, all goes over VBN_CHANNEL_COLL of the endpoint of
 * their contexts. A member is found by the communicator's uid, a hash that
 * all members compute alike; but what is sent to it carries a tag that it
 * chose itself (struct open_message), so no agreement is needed.
 *
 * Invariants:
 * - Nothing is put or notified to a peer before its open message came, and
 *   before ours was sent; notifies from a peer whose open message for this
 *   communicator has not come are of an earlier one, and dropped.
 * - Calls run one after another in the order of their starts; seq counts
 *   them, count-0 ones too, the same on all members.
 * - A sender holds at most peer->slots landing slots; it takes them in order.
 *   A receiver gives them back in order, told as a running count.
 * - Once comm->error is set nothing more is posted, and it never changes.
 */
#ifndef VBN_COLL_H
#define VBN_COLL_H

#include "exec.h"
#include "reduce.h"

#include <verbena/collectives.h>

/* Defined by the transport: sets vbn_error(), returns @err. */
int vbn_fail(int err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

enum {
	COMM_TAGS = 512,
	COMM_SLOTS_MOST = 16,
	COMM_OPS = 64,
	COMM_HISTORY = 8,
	COMM_WHY = 480,
	COMM_LANDING = 256 << 10 /* bytes of a slot unless asked */
};

/* From this many bytes on, a call's output is exposed to direct puts. */
#define DIRECT_BYTES ((uint64_t)32 << 10)

/* ---- calls ---- */

enum call_kind { CALL_ALLREDUCE, CALL_BROADCAST, CALL_BARRIER };

/* What all members must agree on. */
struct call {
	enum call_kind kind;
	enum vbn_type type;
	enum vbn_reduction reduction;
	int root;
	uint64_t count;
	enum plan_algorithm algorithm;
	uint64_t chunk; /* as asked for, bytes; 0: by size */
	uint64_t landing_bytes;
};

enum coll_state { COLL_IDLE, COLL_QUEUED, COLL_RUNNING, COLL_DONE };

struct vbn_coll {
	struct vbn_comm *comm;
	struct vbn_coll *next; /* in the communicator's queue */
	struct call call;
	struct plan_shape shape;
	unsigned window;
	uint16_t digest; /* of call */
	bool large;	 /* outputs are exposed: DIRECT_BYTES */
	bool direct;	 /* this start: our output may be written */
	struct vbn_rkey output;
	const struct reduce_kernel *kernel;
	size_t element;
	const char *in;
	char *out;
	enum coll_state state;
	int status;
	uint32_t seq;
	bool published; /* that we have arrived: report.c */
};

/* ---- peers ---- */

/* A later call that the peer has begun with us: its puts are numbered @from. */
struct early_call {
	uint64_t from;
	uint8_t seq;
	uint16_t digest;
};

struct peer {
	struct exec_peer exec; /* first: the executor's handle */
	struct vbn_comm *comm;
	struct peer *next; /* the communicator's */
	int member;
	struct vbn_ep *ep;

	/* As its sender. */
	bool opened;  /* its open message has come */
	bool told;    /* ours was sent */
	unsigned tag; /* it wants notifies to carry this */
	bool has_landing;
	struct vbn_rkey landing; /* of its slots for us */
	unsigned slots;
	uint64_t slot_bytes;
	uint64_t landed, credits; /* slots taken, slots granted, ever */
	bool exposed;		  /* its output, for call exposed_seq: */
	bool writable;
	uint32_t exposed_seq;
	struct vbn_rkey output;

	/* As its receiver. */
	bool landing_told;
	char *memory; /* the slots */
	struct exec_slots emptied;
	uint64_t returned; /* slots given back, as told */
	uint64_t arrived;  /* puts, ever */
	uint32_t seen_seq; /* the latest call that it sent something for */
	bool seen;
	unsigned nearly;
	struct early_call early[COMM_SLOTS_MOST + 4];
	bool exposing; /* told it of our output, for exposing_seq */
	uint32_t exposing_seq;

	bool owes_abort; /* still to be told that the communicator broke */
};

/* An operation of the transport in flight. */
struct coll_op {
	struct vbn_op op;
	struct vbn_comm *comm;
	struct peer *peer;
	bool reads_input; /* it reads the caller's memory */
	struct coll_op *next;
};

/* ---- communicators ---- */

struct vbn_comm {
	struct exec exec; /* first: of the call that runs */
	struct shared *shared;
	struct vbn_comm *next; /* of the context */
	struct vbn_ctx *ctx;
	struct vbn_job *job;
	uint64_t uid;
	unsigned tag;
	int rank, n;
	int *ranks, *indexes; /* of each member */
	int *member_of;	      /* by job rank, -1: none */
	size_t slot_bytes;
	unsigned slots;
	struct peer **by_member; /* NULL until used */
	struct peer *peers;

	uint32_t seq;	   /* calls started */
	uint32_t next_seq; /* of the call that runs or is to run next */
	struct vbn_coll *first, **last;
	struct call history[COMM_HISTORY]; /* by seq */
	struct vbn_coll blocking;
	bool blocking_busy;

	struct coll_op ops[COMM_OPS], *free_ops;
	unsigned ops_busy, reads_busy;
	/*
	 * A put to this peer ended with -ECONNRESET. It may have got all it
	 * needed and closed; so only what is still waited for later fails.
	 */
	int lost_status;   /* a put has failed; 0: none */
	struct peer *lost; /* to it, if known */
	uint64_t lost_at_ms;
	bool stalled; /* the transport refused something: try again */
	bool pumping;
	bool orphan; /* freed by its user, operations still in flight */

	/*
	 * fault: why and in which call it breaks, as told to the peers.
	 * error: set to it once that call's turn has come; calls before it
	 * complete everywhere.
	 */
	int error, fault;
	uint32_t fault_seq;
	bool reported;	/* report_disagreement() was done */
	bool published; /* a key of ours is in the store */
	char why[COMM_WHY];
};

/* A message for a communicator that is not created yet. */
struct early_message {
	struct early_message *next;
	uint64_t uid;
	struct vbn_ep *from;
	size_t len;
	uint8_t data[];
};

/* What the communicators of a context share. Lives as long as it. */
struct shared {
	struct shared *next; /* all contexts' */
	struct vbn_ctx *ctx; /* NULL: closed */
	struct vbn_ctx_hook hook;
	struct vbn_pool *pool; /* landing slots; made at first use */
	struct vbn_comm *comms;
	unsigned ncomms;
	struct vbn_comm *by_tag[COMM_TAGS];
	unsigned next_tag;
	struct early_message *early, **early_tail;
	unsigned nearly;
	struct list_count *lists; /* how often each list was used */
};

/* ---- parts, by file; all [the context's thread] ---- */

/* comm.c */
struct peer *comm_peer(struct vbn_comm *comm, int member); /* NULL: -ENOMEM */
void comm_release(struct vbn_comm *comm);

/* engine.c */
/* Do all that can be done for @comm's calls. Not within itself: no effect. */
void engine_pump(struct vbn_comm *comm);
void engine_pump_all(struct shared *shared);
bool engine_stalled(const struct shared *shared);
void engine_enqueue(struct vbn_coll *coll);
struct coll_op *engine_take_op(struct peer *peer, bool reads_input);
void engine_return_op(struct coll_op *op);
/* Progress for a while until no operation reads the caller's memory. */
void engine_settle(struct vbn_comm *comm, int timeout_ms);

/* wire.c */
int wire_install(struct shared *shared);
/* 0 sent, -EAGAIN, or an error. */
int wire_open(struct peer *peer, bool landing);
int wire_expose(struct peer *peer, const struct vbn_coll *coll);
void wire_abort(struct peer *peer);
void wire_return_slots(struct peer *peer);
uint32_t wire_data_value(const struct peer *peer, const struct vbn_coll *coll);
/* Messages that came before the communicator was created. */
void wire_adopt_early(struct vbn_comm *comm);
uint16_t wire_digest(const struct call *call);
/* How many of the peer's puts, counted from ever, are of the call that runs. */
uint64_t wire_arrived(const struct peer *peer);
/* Break the communicator: the peer makes another call @seq than we do. */
void wire_disagree(struct vbn_comm *comm, const struct peer *peer,
		   uint32_t seq);
/* Whether what the peers sent for @coll's call agrees with it. */
bool wire_check_early(struct vbn_coll *coll);

/* fail.c */
uint64_t coll_now_ms(void);
/* Break @comm: calls in flight end with @err, peers are told. */
void comm_fail(struct vbn_comm *comm, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The same in call @seq, once its turn comes; @but knows it already. */
void comm_fail_in(struct vbn_comm *comm, const struct peer *but, int err,
		  uint32_t seq, const char *why);
/* A call is over: has the fault's turn come? */
void comm_check_fault(struct vbn_comm *comm);
/* Tell the peers of the fault who have not been told. */
void comm_pass_on(struct vbn_comm *comm);
/* Fails @comm if a member died, or one that is waited for left. */
/*
 * A connection failed: the call fails with it once the cause had time to be
 * heard, or at once when a member is known to have died.
 */
void comm_lose(struct vbn_comm *comm, struct peer *peer, int status);
bool comm_is_lost(struct vbn_comm *comm);
void comm_check_dead(struct vbn_comm *comm);
/* Whether the running call has a step to do with @peer. */
bool comm_needs(const struct vbn_comm *comm, const struct peer *peer);
void call_describe(const struct call *call, char *text, size_t room);

/* report.c: these block for the times stated */
/* Publish that we have arrived in @coll's call. 100 ms. */
void report_arrival(struct vbn_coll *coll);
/*
 * Compare with what those whom the call waits for have published: members
 * that disagree may wait for each other without a chunk to show it. A round
 * trip to the store for each.
 */
void report_compare(struct vbn_coll *coll);
/* Who has not arrived, as text. 300 ms. */
void report_missing(struct vbn_coll *coll, char *text, size_t room);
/* After -EPROTO: list the members' calls in comm->why, once. 500 ms. */
void report_disagreement(struct vbn_comm *comm);

#endif
