/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verbena's collectives: operations that all members of a communicator take
 * part in. Persistent first (init once; start, test, wait as often as you
 * like), with blocking calls on top.
 *
 * Order: every member calls the collectives of one communicator in the same
 * order, with the same operation, count, type, reduction, root and options.
 * A member that does not is found out at the first chunk that shows it:
 * -EPROTO on every member, vbn_error() listing each member's call. In this call
 * on those that are still in it; on one whose own has returned, in a later
 * one: at the latest in the first that cannot complete without a member that
 * knows, as a barrier and an allreduce cannot. Who waits for nobody, as the
 * root of small broadcasts, or for such a root only, hears of it no sooner; but
 * nobody gets more than 16 calls ahead of a member that it sends to.
 *
 * Results have the same bits on all members, and on every run of the same
 * configuration (number of members, count, algorithm, chunk).
 *
 * Failures: -ECONNRESET names a member that died, -ETIMEDOUT the members
 * that have not arrived, -ECANCELED the member that gave up. An error other
 * than a bad argument, or a deadline that vbn_coll_wait() met, breaks the
 * communicator: its later calls fail with the same error, free it. Members
 * may still be writing into a registered output of a broken call until it is
 * deregistered.
 *
 * Zero copy: memory from a pool or registered is never copied, except where
 * the algorithm itself combines. An output that peers may write
 * (VBN_ACCESS_WRITE) receives straight; one registered for reading only must
 * not be used as an output.
 *
 * Threads: a communicator belongs to the thread of its context. Progress is
 * made by start, test and wait, by anything that progresses the context, and
 * all the time by a progress thread if there is one (vbn_coll_thread_start()).
 */
#ifndef VERBENA_COLLECTIVES_H
#define VERBENA_COLLECTIVES_H

#include <verbena/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_comm;
struct vbn_coll;

enum vbn_type {
	VBN_INT8,
	VBN_UINT8,
	VBN_INT32,
	VBN_UINT32,
	VBN_INT64,
	VBN_UINT64,
	VBN_FLOAT16,
	VBN_BFLOAT16,
	VBN_FLOAT32,
	VBN_FLOAT64,
	VBN_TYPES
};

/*
 * Reductions. Integers wrap. float16 and bfloat16 sums, products and averages
 * are computed in float32 and rounded once, to nearest even; partial sums
 * travel as float32 (see wire16 in the options). An average is the sum
 * divided by the number of members (of integers: towards zero). Minimum and
 * maximum are NaN on every member if any element is. and, or, xor: of
 * integers only. VBN_USER: the function of the options.
 */
enum vbn_reduction {
	VBN_SUM,
	VBN_PRODUCT,
	VBN_MIN,
	VBN_MAX,
	VBN_AVERAGE,
	VBN_AND,
	VBN_OR,
	VBN_XOR,
	VBN_REDUCTIONS,
	VBN_USER = VBN_REDUCTIONS
};

/*
 * dst[i] = a[i] (+) b[i] for @n elements of @type at any alignment; @dst may
 * be @a or @b. Associative and commutative. Runs in the thread that makes
 * progress; must not call the library.
 */
typedef void vbn_reduction_fn(void *dst, const void *a, const void *b, size_t n,
			      enum vbn_type type, void *arg);

/* n members, m bytes; "in order": fit for the reproducible mode. */
enum vbn_algorithm {
	VBN_ALGORITHM_AUTO,	     /* by operation, size and topology */
	VBN_ALGORITHM_RING,	     /* least bytes: 2 m (n - 1) / n */
	VBN_ALGORITHM_TREE,	     /* binomial: fewest rounds */
	VBN_ALGORITHM_CENTRAL,	     /* one root sums all; in order */
	VBN_ALGORITHM_SHARDED,	     /* member r sums part r; in order */
	VBN_ALGORITHM_DECENTRALIZED, /* each sums everything; in order */
	VBN_ALGORITHM_BIRING,	     /* both ways round the ring */
	VBN_ALGORITHM_DOUBLING,	     /* recursive doubling */
	VBN_ALGORITHM_HALVING,	     /* halving and doubling (Rabenseifner) */
	VBN_ALGORITHM_DOUBLE_TREE,   /* two binary trees */
	VBN_ALGORITHM_BRUCK,	     /* log n rounds: allgather, alltoall */
	VBN_ALGORITHM_PAIRWISE,	     /* n - 1 exchanges: alltoall */
	VBN_ALGORITHM_LINEAR,	     /* each straight to each */
	VBN_ALGORITHM_ONESHOT,	     /* one exchange; tiny messages; in order */
	VBN_ALGORITHM_DISSEMINATION, /* barrier */
	VBN_ALGORITHM_HIERARCHICAL,  /* within hosts, and between leaders */
	VBN_ALGORITHM_MAPPED,	     /* reads the peers' memory; in order */
	VBN_ALGORITHMS
};

/* Name as VBN_COLL_ALGO has it; NULL: no such algorithm. */
VBN_API const char *vbn_algorithm_name(enum vbn_algorithm algorithm);

/* Bytes of one element, 0 for no such type. */
VBN_API size_t vbn_type_bytes(enum vbn_type type);

/* How a communicator moves data. */
struct vbn_comm_options {
	size_t size;	      /* sizeof(struct vbn_comm_options) */
	const int *indexes;   /* context index of each member; NULL: all 0 */
	size_t landing_bytes; /* of one landing slot, which bounds a chunk;
				 0: 512 KiB. The same on all members */
	unsigned slots;	      /* landing slots per sender, 1..16; 0: 4 */
};

/*
 * A communicator of @ranks (members in this order, each rank once; NULL: all
 * ranks of the job, @n ignored) whose calling member uses @ctx. Every member
 * calls it with the same list, and as often as the others for each list. It
 * does not talk to the others: connections are made at first use.
 * -EINVAL: bad list, the caller is not in it, or @ctx is not the context that
 * the list of indexes gives for it; -ENOSPC: 512 communicators are open on
 * the context; -ENOBUFS: other members have made so many calls on communicators
 * that are not created here yet that what they sent takes 256 MiB, and this one
 * had no room: it is broken for them, too. @opts may be NULL.
 *
 * A creation that fails counts as one for the list, unless the list or its
 * context is bad: what is created later has all members again. On the
 * communicator that is not to be, the other members' calls that wait for the
 * caller end with -ECANCELED and its reason, within a second of their waiting;
 * at a shorter deadline, from 100 ms, the text of -ETIMEDOUT has it.
 */
VBN_API int vbn_comm_create(struct vbn_comm **comm, struct vbn_ctx *ctx,
			    const int *ranks, int n,
			    const struct vbn_comm_options *opts);

/*
 * Free; its collectives must have been freed. A call still in flight is
 * aborted on every member. Bounded time. Allowed after the context was
 * closed, before the job is.
 */
VBN_API void vbn_comm_free(struct vbn_comm *comm);

/*
 * A communicator of those members of @comm that give the same @colour, in the
 * order of @key (then of their number in @comm); @colour < 0: none, *out is
 * NULL. Every member of @comm calls it; blocks, at most @timeout_ms. -ENOMEM:
 * @comm may be broken by it, so that the others do not wait.
 */
VBN_API int vbn_comm_split(struct vbn_comm **out, struct vbn_comm *comm,
			   int colour, int key, int timeout_ms);
/* Another communicator of the same members. Does not talk to them. */
VBN_API int vbn_comm_dup(struct vbn_comm **out, const struct vbn_comm *comm);

/*
 * Break @comm from any thread: its calls in flight end with -ECANCELED on
 * every member within 0.2 s of their threads' making progress. Not together
 * with vbn_comm_free().
 */
VBN_API void vbn_comm_abort(struct vbn_comm *comm);

/* The caller's number among the members, and how many they are. */
VBN_API int vbn_comm_rank(const struct vbn_comm *comm);
VBN_API int vbn_comm_size(const struct vbn_comm *comm);

/*
 * VBN_COLL_ALGO, VBN_COLL_CHUNK, VBN_COLL_REPRODUCIBLE and VBN_COLL_WIRE16 of
 * the environment override them (and VBN_COLL_LANDING landing_bytes);
 * VBN_COLL_TRACE=1 prints a line on each call.
 */
struct vbn_coll_options {
	size_t size; /* sizeof(struct vbn_coll_options) */
	/* -EOPNOTSUPP: the operation does not have it, or not here. */
	enum vbn_algorithm algorithm;
	/* Bytes per message, at most landing_bytes; 0: by size. */
	size_t chunk;
	/* Steps looked at ahead, 1..64; 0: 64. May differ between members. */
	unsigned window;
	/*
	 * Not 0: the result has the same bits for every algorithm, chunk,
	 * provider and placement: only algorithms "in order" are used (each
	 * element is ((x0 + x1) + x2) + ... in the order of the members), and
	 * -EOPNOTSUPP for another.
	 */
	int reproducible;
	/*
	 * Not 0: partial sums of 16-bit types travel in 16 bits, rounded at
	 * each combination: half the bytes, and less accurate.
	 */
	int wire16;
	vbn_reduction_fn *function; /* of VBN_USER */
	void *function_arg;
};

/*
 * Persistent collectives. The buffers stay the caller's, but belong to the
 * call between start and its completion. 0 elements succeed at once on any
 * pointer. @opts may be NULL. Any alignment; any root. -EINVAL, -EOPNOTSUPP,
 * -ENOMEM. Input and output must not overlap unless in place, which is said
 * by NULL or by the address that the own part has in the other buffer.
 *
 * allreduce: @out = the reduction of all members' @in, elementwise. In place:
 *   @in is @out or NULL.
 * reduce: the same at @root only; the others' @out is ignored.
 * broadcast: @buf of member @root to all others' @buf.
 * reduce_scatter: @in has n parts of @count elements; member r's @out gets the
 *   reduction of all parts r. In place: @out is where part r is in @in.
 * allgather: every member's @in of @count elements goes to part r of
 *   everybody's @out. In place: @in is NULL or where part r is in @out.
 * gather: the same at @root only. scatter: part r of @root's @in to member r's
 *   @out; in place at the root: @out is NULL or where its part is in @in.
 * alltoall: part p of member r's @in to part r of member p's @out, parts of
 *   @count elements. In place, on all members or on none: @in is @out or NULL.
 * barrier: completes when every member has started it.
 *
 * In the v-variants part r has counts[r] elements and begins at displs[r]
 * (NULL: one after another); the arrays are read during the call only. For
 * allgatherv and reduce_scatterv all members give the same arrays; for gatherv
 * and scatterv only the root's are read, and @count is the own part's. In
 * alltoallv, in_counts[p] of member r is out_counts[r] of member p.
 */
VBN_API int vbn_allreduce_init(struct vbn_comm *comm, const void *in, void *out,
			       size_t count, enum vbn_type type,
			       enum vbn_reduction reduction,
			       const struct vbn_coll_options *opts,
			       struct vbn_coll **coll);
VBN_API int vbn_reduce_init(struct vbn_comm *comm, const void *in, void *out,
			    size_t count, enum vbn_type type,
			    enum vbn_reduction reduction, int root,
			    const struct vbn_coll_options *opts,
			    struct vbn_coll **coll);
VBN_API int vbn_broadcast_init(struct vbn_comm *comm, void *buf, size_t count,
			       enum vbn_type type, int root,
			       const struct vbn_coll_options *opts,
			       struct vbn_coll **coll);
VBN_API int vbn_reduce_scatter_init(struct vbn_comm *comm, const void *in,
				    void *out, size_t count, enum vbn_type type,
				    enum vbn_reduction reduction,
				    const struct vbn_coll_options *opts,
				    struct vbn_coll **coll);
VBN_API int vbn_allgather_init(struct vbn_comm *comm, const void *in, void *out,
			       size_t count, enum vbn_type type,
			       const struct vbn_coll_options *opts,
			       struct vbn_coll **coll);
VBN_API int vbn_gather_init(struct vbn_comm *comm, const void *in, void *out,
			    size_t count, enum vbn_type type, int root,
			    const struct vbn_coll_options *opts,
			    struct vbn_coll **coll);
VBN_API int vbn_scatter_init(struct vbn_comm *comm, const void *in, void *out,
			     size_t count, enum vbn_type type, int root,
			     const struct vbn_coll_options *opts,
			     struct vbn_coll **coll);
VBN_API int vbn_alltoall_init(struct vbn_comm *comm, const void *in, void *out,
			      size_t count, enum vbn_type type,
			      const struct vbn_coll_options *opts,
			      struct vbn_coll **coll);
VBN_API int vbn_barrier_init(struct vbn_comm *comm,
			     const struct vbn_coll_options *opts,
			     struct vbn_coll **coll);

VBN_API int vbn_reduce_scatterv_init(struct vbn_comm *comm, const void *in,
				     void *out, const size_t *counts,
				     const size_t *displs, enum vbn_type type,
				     enum vbn_reduction reduction,
				     const struct vbn_coll_options *opts,
				     struct vbn_coll **coll);
VBN_API int vbn_allgatherv_init(struct vbn_comm *comm, const void *in,
				void *out, const size_t *counts,
				const size_t *displs, enum vbn_type type,
				const struct vbn_coll_options *opts,
				struct vbn_coll **coll);
VBN_API int vbn_gatherv_init(struct vbn_comm *comm, const void *in,
			     size_t count, void *out, const size_t *counts,
			     const size_t *displs, enum vbn_type type, int root,
			     const struct vbn_coll_options *opts,
			     struct vbn_coll **coll);
VBN_API int vbn_scatterv_init(struct vbn_comm *comm, const void *in,
			      const size_t *counts, const size_t *displs,
			      void *out, size_t count, enum vbn_type type,
			      int root, const struct vbn_coll_options *opts,
			      struct vbn_coll **coll);
VBN_API int vbn_alltoallv_init(struct vbn_comm *comm, const void *in,
			       const size_t *in_counts, const size_t *in_displs,
			       void *out, const size_t *out_counts,
			       const size_t *out_displs, enum vbn_type type,
			       const struct vbn_coll_options *opts,
			       struct vbn_coll **coll);

/*
 * Start. Does not block, but for up to 0.6 s once, after a disagreement, as
 * test. Several may be in flight on one communicator: they run in the order of
 * their starts. -EBUSY: this one is in flight already; -ENOTCONN: the context
 * was closed; the communicator's error if broken.
 */
VBN_API int vbn_coll_start(struct vbn_coll *coll);

/*
 * 0: complete (or never started), -EINPROGRESS, or its error. Progresses the
 * context. Does not block, but for up to 0.5 s once, to collect the members'
 * descriptions after a disagreement.
 */
VBN_API int vbn_coll_test(struct vbn_coll *coll);

/*
 * Wait until it is complete, sleeping. -EDEADLK: in a callback of the context,
 * where nobody can. -ETIMEDOUT: still in flight, wait again or free it; of a
 * deadline of 100 ms or more the error says who has not arrived, which takes up
 * to 0.3 s more.
 */
VBN_API int vbn_coll_wait(struct vbn_coll *coll, int timeout_ms);

/* A call in flight is aborted, which breaks the communicator. */
VBN_API void vbn_coll_free(struct vbn_coll *coll);

/*
 * Blocking: init, start and wait in one, without allocation where the same
 * call is repeated. At -ETIMEDOUT the call is aborted and the communicator
 * broken, since the buffers are the caller's again. Not in a callback of the
 * context: -EDEADLK, and nothing was started.
 */
VBN_API int vbn_allreduce(struct vbn_comm *comm, const void *in, void *out,
			  size_t count, enum vbn_type type,
			  enum vbn_reduction reduction, int timeout_ms);
VBN_API int vbn_reduce(struct vbn_comm *comm, const void *in, void *out,
		       size_t count, enum vbn_type type,
		       enum vbn_reduction reduction, int root, int timeout_ms);
VBN_API int vbn_broadcast(struct vbn_comm *comm, void *buf, size_t count,
			  enum vbn_type type, int root, int timeout_ms);
VBN_API int vbn_reduce_scatter(struct vbn_comm *comm, const void *in, void *out,
			       size_t count, enum vbn_type type,
			       enum vbn_reduction reduction, int timeout_ms);
VBN_API int vbn_allgather(struct vbn_comm *comm, const void *in, void *out,
			  size_t count, enum vbn_type type, int timeout_ms);
VBN_API int vbn_gather(struct vbn_comm *comm, const void *in, void *out,
		       size_t count, enum vbn_type type, int root,
		       int timeout_ms);
VBN_API int vbn_scatter(struct vbn_comm *comm, const void *in, void *out,
			size_t count, enum vbn_type type, int root,
			int timeout_ms);
VBN_API int vbn_alltoall(struct vbn_comm *comm, const void *in, void *out,
			 size_t count, enum vbn_type type, int timeout_ms);
VBN_API int vbn_barrier(struct vbn_comm *comm, int timeout_ms);

/*
 * Progress while the caller computes: a thread of the library's takes care of
 * the calls in flight on all communicators of @ctx, present and future, so
 * that a call started with vbn_coll_start() goes on, and usually is over when
 * it is waited for. It polls for 25 us, then sleeps until something comes; with
 * no call in flight it sleeps. Reductions and VBN_USER functions run in it.
 *
 * @ctx is then the thread's, except within the calls of this header, which
 * still belong to one thread of the caller at a time: no vbn_progress() and no
 * operations but after vbn_coll_thread_stop() (open another context for them).
 * Handlers that were installed on @ctx run in either thread. Calls wait for
 * the thread's turn to end, in which it may be summing a whole call's data.
 * vbn_comm_abort() wakes it. It ends with its context, too.
 *
 * start: -EEXIST: there is one; -EINVAL: no such processor; -ENOMEM, -EAGAIN.
 * @opts may be NULL. stop: 0, also if there is none; waits for it to end,
 * within a turn; calls in flight stay so. Both by the thread that calls the
 * collectives, and in no callback of the context's: -EDEADLK.
 */
struct vbn_coll_thread_options {
	size_t size; /* sizeof(struct vbn_coll_thread_options) */
	int bind;    /* not 0: to run on processor @cpu only */
	int cpu;
};
VBN_API int vbn_coll_thread_start(struct vbn_ctx *ctx,
				  const struct vbn_coll_thread_options *opts);
VBN_API int vbn_coll_thread_stop(struct vbn_ctx *ctx);

#ifdef __cplusplus
}
#endif

#endif
