/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collectives' own structures: what a context's communicators share, a
 * communicator, a peer in it, a call.
 *
 * Between two members, all goes over VBN_CHANNEL_COLL of the endpoint of
 * their contexts. A member is found by the communicator's uid, which all
 * members compute alike: a hash of the list of members, above, and how many of
 * that list were created before, UID_NUMBER_BITS. What is sent to it carries a
 * tag that it chose itself (struct open_message), so no agreement is needed.
 *
 * Invariants:
 * - Nothing is put or notified to a peer before its open message came, and
 *   before ours was sent; notifies from a peer whose open message for this
 *   communicator has not come are of an earlier one, and dropped.
 * - Calls run one after another in the order of their starts; seq counts
 *   them, count-0 ones too, the same on all members.
 * - A sender holds at most peer->slots landing slots; it takes them in order.
 *   A receiver gives them back in order, told as a running count; a put of a
 * later call says that all slots of earlier ones are empty.
 * - Once comm->error is set nothing more is posted, and it never changes.
 */
#ifndef VBN_COLL_H
#define VBN_COLL_H

#include "choose.h"
#include "combine.h"
#include "early.h"
#include "exec.h"

#include <verbena/collectives.h>

#include <pthread.h>
#include <stdatomic.h>

/* Defined by the transport: sets vbn_error(), returns @err. */
int vbn_fail(int err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The same: a named thread, without the application's signals. 0 or -errno. */
int vbn_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *),
		     void *arg);
/*
 * The same: as vbn_ctx_arm(); *most_ms (< 0: no limit) is lowered to when the
 * context needs a look that nothing signals. 0, -EAGAIN, -errno.
 */
int vbn_ctx_arm_within(struct vbn_ctx *ctx, int *most_ms);
/* The same: whether it is being progressed, so that nobody can wait. */
bool vbn_ctx_in_callback(const struct vbn_ctx *ctx);

enum {
	COMM_TAGS = 512,
	COMM_SLOTS_MOST = 16,
	COMM_OPS = 64,
	COMM_HISTORY = 8,
	UID_NUMBER_BITS = 24,
	COMM_WHY = 480,
	COMM_LANDING = 512 << 10 /* bytes of a slot unless asked */
};

/* From this many bytes on, a call's output is exposed to direct puts. */
#define DIRECT_BYTES ((uint64_t)32 << 10)

/* ---- calls ---- */

/* What a public call was given. */
struct request {
	enum plan_operation operation;
	enum vbn_type type;
	enum vbn_reduction reduction;
	int root;
	const void *in;
	void *out;
	size_t count;
	/* v-variants: of the side that has n parts; alltoallv: of both. */
	bool uneven;
	const size_t *counts, *displs, *in_counts, *in_displs;
	const struct vbn_coll_options *options;
};

/* What all members must agree on. */
struct call {
	enum plan_operation operation;
	enum vbn_type type;
	enum vbn_reduction reduction;
	int root;
	bool wire16;
	bool in_place; /* of an alltoall */
	uint64_t count;
	uint64_t layout; /* hash of the parts' lengths, as far as all know them
			  */
	enum plan_algorithm algorithm;
	uint64_t chunk; /* as asked for, bytes; 0: by size */
	uint64_t landing_bytes;
};

/* Members by how far they are after us: [first, end). */
struct quick_range {
	int first, end;
};

/* A call of one round, as quick.c runs it. */
struct quick_plan {
	struct quick_range to, from; /* a message to, and from, each */
	size_t bytes;		     /* of each */
	size_t in_step, out_step;    /* from one member's place to the next's */
	bool sums;		     /* else what comes is copied */
	bool keeps;		     /* the own part goes to the output */
	bool waits_put;
	bool by_message; /* nothing has to be set up for that */
};

enum coll_state { COLL_IDLE, COLL_QUEUED, COLL_RUNNING, COLL_DONE };

struct vbn_coll {
	struct vbn_comm *comm;
	struct vbn_coll *next; /* in the communicator's queue */
	struct call call;
	struct plan_shape shape;
	const struct plan_algo *algo;
	unsigned window;
	uint16_t digest; /* of call */
	bool quick;	 /* quick_make() */
	bool set_up;	 /* as quick.c needs it */
	struct quick_plan quick_plan;
	bool large;  /* outputs are exposed: DIRECT_BYTES */
	bool direct; /* this start: our output may be written */
	struct vbn_rkey output, input; /* keys that peers get */
	struct combine combine;
	struct reduce_user user;
	const char *in;
	char *out;
	char *scratch; /* SCRATCH; from the context's pool */
	char *staged;  /* a copy of the input that peers can map, or NULL */
	size_t in_bytes, out_bytes;
	struct plan_layout layout;
	uint64_t *parts; /* what layout points into */
	enum coll_state state;
	int status;
	uint32_t seq;
	bool published; /* that we have arrived: report.c */
	struct choice choice;
	uint64_t started_ns; /* of a traced call */
};

/* ---- peers ---- */

/*
 * A contribution that came as a message. As many are kept as calls that a peer
 * may be ahead: others of its calls may not need ours.
 */
enum { QUICK_BYTES = 64, QUICK_KEPT = 16 };

struct quick_data {
	_Alignas(16) char data[QUICK_BYTES];
};

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
	bool lingers; /* what was posted may need our progress to leave */
	bool has_landing;
	struct vbn_rkey landing; /* of its slots for us */
	unsigned slots;
	uint64_t slot_bytes;
	uint64_t landed, credits; /* slots taken, slots granted, ever */
	uint32_t put_seq[COMM_SLOTS_MOST]; /* the call of what is in a slot */
	uint32_t position; /* the call that it has got to, at least */
	bool asked;	   /* it to say its position; not answered yet */
	bool exposed;	   /* its buffers, ready in call exposed_seq: */
	bool writable;	   /* its output */
	uint32_t exposed_seq;
	struct vbn_rkey output, input;
	void *mapped_output, *mapped_input; /* NULL: not mapped yet */

	/* As its receiver. */
	bool landing_told;
	char *memory; /* the slots */
	struct exec_slots emptied;
	uint64_t returned;    /* slots given back, as told or as a put tells */
	uint32_t emptied_seq; /* the call that last emptied one */
	uint64_t emptied_before; /* slots emptied before that call */
	uint64_t arrived;	 /* puts, ever */
	uint32_t seen_seq; /* the latest call that it sent something for */
	bool seen;
	unsigned nearly;
	struct early_call early[COMM_SLOTS_MOST + 4];
	bool exposing; /* told it of our buffers, last for exposing_seq: */
	uint32_t exposing_seq;
	struct vbn_rkey told_output, told_input;
	bool asks; /* to be told once we have got to call: */
	uint32_t wanted;

	/* It was seen in a later call than ours, while ours needs it. */
	uint32_t passed_seq;
	uint64_t passed_at_ms; /* 0: never */

	struct quick_data quick[QUICK_KEPT]; /* by the call's seq */

	bool owes_abort; /* still to be told that the communicator broke */
};

/* An operation of the transport in flight. */
struct coll_op {
	struct vbn_op op;
	struct vbn_comm *comm;
	struct peer *peer;
	bool reads_input;	  /* it reads the caller's memory */
	struct exec_entry *entry; /* the step that is done with it, or NULL */
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
	int *ranks, *indexes;	       /* of each member */
	int *member_of;		       /* by job rank, -1: none */
	struct topology *topology;     /* which members share a host */
	struct coll_settings settings; /* of the environment */
	size_t slot_bytes;
	unsigned slots;
	struct peer **by_member; /* NULL until used */
	struct peer **after;	 /* the same by how far after us */
	struct peer *peers;
	struct peer *recent; /* whom a notify came from last, or NULL */

	uint32_t seq;	   /* calls started */
	uint32_t next_seq; /* of the call that runs or is to run next */
	struct vbn_coll *first, **last;
	struct call history[COMM_HISTORY]; /* that are over, by seq */
	struct vbn_coll blocking;
	struct request blocking_request; /* what it was prepared from */
	bool blocking_ready;
	const void **contributions; /* of a REDUCE_ALL; n pointers */
	/* The running call is run by quick.c, which is so far with members. */
	bool quick;
	int quick_posted, quick_arrived;
	bool quick_over;
	atomic_bool abort_asked;

	struct coll_op ops[COMM_OPS], *free_ops;
	unsigned ops_busy, reads_busy;
	/*
	 * A put to this peer ended with -ECONNRESET. It may have got all it
	 * needed and closed; so only what is still waited for later fails.
	 */
	int lost_status;   /* a put has failed; 0: none */
	struct peer *lost; /* to it, if known */
	uint64_t lost_at_ms;
	bool stalled;	 /* the transport refused something: try again */
	unsigned askers; /* peers that ask */
	unsigned nearly; /* early_calls of all peers */
	bool owes_slots; /* to a peer who could not be told */
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

/* What the communicators of a context share. Lives as long as it. */
struct shared {
	struct shared *next; /* all contexts' */
	struct vbn_ctx *ctx; /* NULL: closed */
	struct vbn_ctx_hook hook;
	struct thread *thread; /* NULL: the user's makes the progress */
	atomic_int kick_fd;    /* wakes it; -1: there never was one */
	struct vbn_pool *pool; /* landing slots; made at first use */
	struct vbn_comm *comms;
	unsigned ncomms;
	struct vbn_comm *by_tag[COMM_TAGS];
	unsigned next_tag;
	struct early early;	  /* for communicators to be created */
	struct list_count *lists; /* how often each list was used */
};

/* ---- parts, by file; all [the context's thread] ---- */

/* comm.c */
/* Of a communicator that was created here, or was to be: nothing waits for it
   any more if it is not there. */
bool comm_is_past(const struct shared *shared, uint64_t uid);
struct peer *comm_peer(struct vbn_comm *comm, int member); /* NULL: -ENOMEM */
void comm_release(struct vbn_comm *comm);

/* step.c: the executor's backend over endpoints */
extern const struct exec_backend step_backend;
/* Post a put of the call that runs; @entry: done with its completion. */
int step_post(struct vbn_comm *comm, struct peer *peer, const void *from,
	      size_t bytes, const struct vbn_rkey *rkey, uint64_t off,
	      struct exec_entry *entry);
/* What is waited for of @peer is not there: -EAGAIN, or -EPROTO. */
int step_missing(struct vbn_comm *comm, const struct peer *peer);
const char *step_landing(const struct vbn_comm *comm, const struct peer *peer,
			 uint64_t landing);

/* quick.c */
/* Whether it is one of its calls; fills its quick_plan if so. */
bool quick_make(struct vbn_coll *coll);
/* False: a peer is not set up yet, the executor does it. */
bool quick_begin(struct vbn_comm *comm, struct vbn_coll *coll);
int quick_run(struct vbn_comm *comm); /* as exec_run() */
/*
 * What engine_pump() would do, where that is only to post (a call that is just
 * enqueued) or to see what came of the call that runs. False: it has to.
 */
bool quick_start(struct vbn_comm *comm, struct vbn_coll *coll);
bool quick_advance(struct vbn_comm *comm);
bool quick_needs(const struct vbn_comm *comm, const struct peer *peer);

/* topology.c */
int topology_make(struct vbn_comm *comm, int timeout_ms);
const struct plan_topology *topology_of(const struct vbn_comm *comm);

/* prepare.c: arguments become a call */
int coll_prepare(struct vbn_coll *coll, struct vbn_comm *comm,
		 const struct request *request);
void coll_release(struct vbn_coll *coll); /* what it holds, not itself */

/* run.c: init, start and wait in one; wait's errors */
int coll_run_blocking(struct vbn_comm *comm, const struct request *request,
		      int timeout_ms);

/* comm.c; NULL: -ENOMEM */
struct shared *shared_get(struct vbn_ctx *ctx);
struct shared *shared_find(const struct vbn_ctx *ctx); /* NULL: none yet */

/* thread.c: a public call has the context from take to give; they nest */
void thread_take(struct thread *thread);
void thread_give(struct thread *thread);
/* The context is the user's thread's again. Not in a callback. */
void thread_end(struct shared *shared);
/* [any] Have it look around, if there is one. @shared must live on. */
void thread_kick(struct shared *shared);

static inline struct thread *coll_take(const struct shared *shared)
{
	if (shared->thread)
		thread_take(shared->thread);
	return shared->thread;
}

static inline void coll_give(struct thread *taken)
{
	if (taken)
		thread_give(taken);
}

/* engine.c */
/* Do all that can be done for @comm's calls. Not within itself: no effect. */
void engine_pump(struct vbn_comm *comm);
void engine_pump_all(struct shared *shared);
bool engine_stalled(const struct shared *shared);
/* A call is in flight, or the peers have to be told of a failure. */
bool engine_busy(const struct shared *shared);
void engine_enqueue(struct vbn_coll *coll);
/* The first call is over. */
void engine_finish(struct vbn_comm *comm, struct vbn_coll *coll);
void engine_make_ops(struct vbn_comm *comm);

/* NULL: all are in flight; one that completes pumps again. */
static inline struct coll_op *engine_take_op(struct peer *peer)
{
	struct vbn_comm *comm = peer->comm;
	struct coll_op *op = comm->free_ops;

	if (!op)
		return NULL;
	comm->free_ops = op->next;
	comm->ops_busy++;
	op->peer = peer;
	op->reads_input = false;
	op->entry = NULL;
	return op;
}

static inline void engine_return_op(struct coll_op *op)
{
	struct vbn_comm *comm = op->comm;

	comm->ops_busy--;
	comm->reads_busy -= op->reads_input;
	op->next = comm->free_ops;
	comm->free_ops = op;
}

/* Progress for a while until no operation reads the caller's memory. */
void engine_settle(struct vbn_comm *comm, int timeout_ms);

/* wire.c, receive.c */
int wire_install(struct shared *shared);
/* 0 sent, -EAGAIN, or an error. */
int wire_open(struct peer *peer, bool landing);
int wire_expose(struct peer *peer, const struct vbn_coll *coll);
int wire_quick(struct peer *peer, const struct vbn_coll *coll, const void *data,
	       size_t bytes);
void wire_abort(struct peer *peer);
void wire_return_slots(struct peer *peer);
void wire_empty_slot(struct peer *peer, uint64_t landing);
/* Say so, once we are as far as the peer has asked for. */
void wire_answer(struct peer *peer);
/* The pool of what peers write or map; made at first use. NULL: vbn_error(). */
struct vbn_pool *wire_pool(struct vbn_comm *comm);
/* Messages that came before the communicator was created. 0 or -ENOBUFS. */
int wire_adopt_early(struct vbn_comm *comm);
/* How many of the peer's puts, counted from ever, are of the call that runs. */
uint64_t wire_arrived(const struct peer *peer);
/* Break the communicator: the peer makes another call @seq than we do. */
void wire_disagree(struct vbn_comm *comm, const struct peer *peer,
		   uint32_t seq);
/* Whether what the peers sent for @coll's call agrees with it. */
bool wire_check_early(struct vbn_coll *coll);

/* digest.c: of what members must agree on */
enum { WIRE_DIGEST_BITS = 13 };
uint16_t wire_digest(const struct call *call);
/*
 * As the put between us and @peer has it: where a member knows only its own
 * parts, the two must agree on the length of the part, too.
 */
uint16_t wire_part_digest(const struct peer *peer, const struct vbn_coll *coll,
			  bool sending);

static inline uint16_t wire_pair_digest(const struct peer *peer,
					const struct vbn_coll *coll,
					bool sending)
{
	if (!coll->shape.layout || coll->call.layout)
		return coll->digest;
	return wire_part_digest(peer, coll, sending);
}

/* trace.c: a line on a call that is over */
void trace_call(const struct vbn_coll *coll);

/* fail.c */
uint64_t coll_now_ns(void);
uint64_t coll_now_ms(void);
/*
 * Why a pool gave no memory (vbn_error() has the words): new slabs are told to
 * rank 0, so it may be that which has died.
 */
int comm_no_memory(const struct vbn_comm *comm);
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
/* Fails @comm if another thread has asked for it. */
void comm_check_abort(struct vbn_comm *comm);
/* Whether the running call has a step to do with @peer. */
bool comm_needs(const struct vbn_comm *comm, const struct peer *peer);
void call_describe(const struct call *call, char *text, size_t room);
/* Call @seq of the communicator: started, or one of the last that are over. */
const struct call *comm_call(const struct vbn_comm *comm, uint32_t seq);

/* report.c: these block for the times stated */
/* Publish that we have arrived in @coll's call. 100 ms. */
void report_arrival(struct vbn_coll *coll);
/*
 * Publish that member @member, we, could not create the communicator, for the
 * reason that vbn_error() has, and still has afterwards. 100 ms.
 */
void report_uncreated(struct vbn_job *job, uint64_t uid, int member);
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
