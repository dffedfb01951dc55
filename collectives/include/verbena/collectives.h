/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verbena's collectives: operations that all members of a communicator take
 * part in. Persistent first (init once; start, test, wait as often as you
 * like), with blocking calls on top.
 *
 * Order: every member calls the collectives of one communicator in the same
 * order, with the same operation, count, type, reduction, root and options.
 * A member that does not is found out at the first chunk that shows it:
 * -EPROTO on every member (at once, or at its next call if its own had
 * returned), vbn_error() listing each member's call.
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
 * made by start, test and wait, and by anything that progresses the context.
 */
#ifndef VERBENA_COLLECTIVES_H
#define VERBENA_COLLECTIVES_H

#include <verbena/transport.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_comm;
struct vbn_coll;

/* float16 and bfloat16 reductions and integers come with later versions. */
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

/* VBN_SUM of float32 and float64; the others give -EOPNOTSUPP. */
enum vbn_reduction {
	VBN_SUM,
	VBN_PRODUCT,
	VBN_MIN,
	VBN_MAX,
	VBN_AVERAGE,
	VBN_AND,
	VBN_OR,
	VBN_XOR,
	VBN_REDUCTIONS
};

enum vbn_algorithm {
	VBN_ALGORITHM_AUTO, /* by size and number of members */
	VBN_ALGORITHM_RING, /* least bytes; allreduce */
	VBN_ALGORITHM_TREE, /* fewest rounds; allreduce, broadcast */
	VBN_ALGORITHMS
};

/* Bytes of one element, 0 for no such type. */
VBN_API size_t vbn_type_bytes(enum vbn_type type);

struct vbn_comm_options {
	size_t size;	      /* sizeof(struct vbn_comm_options) */
	const int *indexes;   /* context index of each member; NULL: all 0 */
	size_t landing_bytes; /* of one landing slot, which bounds a chunk;
				 0: 256 KiB. The same on all members */
	unsigned slots;	      /* landing slots per sender, 1..16; 0: 4 */
};

/*
 * A communicator of @ranks (members in this order, each rank once; NULL: all
 * ranks of the job, @n ignored) whose calling member uses @ctx. Every member
 * calls it with the same list, and as often as the others for each list. It
 * does not talk to the others: connections are made at first use.
 * -EINVAL: bad list, the caller is not in it, or @ctx is not the context that
 * the list of indexes gives for it; -ENOSPC: 512 communicators are open on
 * the context. @opts may be NULL.
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

/* The caller's number among the members, and how many they are. */
VBN_API int vbn_comm_rank(const struct vbn_comm *comm);
VBN_API int vbn_comm_size(const struct vbn_comm *comm);

struct vbn_coll_options {
	size_t size; /* sizeof(struct vbn_coll_options) */
	/* VBN_COLL_ALGO=auto|ring|tree overrides it for allreduce. */
	enum vbn_algorithm algorithm;
	/* Bytes per message, at most landing_bytes; 0: by size.
	   VBN_COLL_CHUNK overrides it. */
	size_t chunk;
	/* Steps looked at ahead, 1..64; 0: 64. May differ between members. */
	unsigned window;
};

/*
 * Persistent collectives. The buffers stay the caller's, but belong to the
 * call between start and its completion. @count elements; 0 succeeds at once
 * on any pointer. @opts may be NULL. -EINVAL, -EOPNOTSUPP, -ENOMEM.
 *
 * allreduce: @out = the reduction of all members' @in, elementwise. In place
 * when @in is @out or NULL; otherwise they must not overlap. Any alignment.
 * broadcast: @buf of member @root to all others' @buf.
 * barrier: completes when every member has started it.
 */
VBN_API int vbn_allreduce_init(struct vbn_comm *comm, const void *in, void *out,
			       size_t count, enum vbn_type type,
			       enum vbn_reduction reduction,
			       const struct vbn_coll_options *opts,
			       struct vbn_coll **coll);
VBN_API int vbn_broadcast_init(struct vbn_comm *comm, void *buf, size_t count,
			       enum vbn_type type, int root,
			       const struct vbn_coll_options *opts,
			       struct vbn_coll **coll);
VBN_API int vbn_barrier_init(struct vbn_comm *comm,
			     const struct vbn_coll_options *opts,
			     struct vbn_coll **coll);

/*
 * Start. Never blocks. Several may be in flight on one communicator: they run
 * in the order of their starts. -EBUSY: this one is in flight already;
 * -ENOTCONN: the context was closed; the communicator's error if broken.
 */
VBN_API int vbn_coll_start(struct vbn_coll *coll);

/*
 * 0: complete (or never started), -EINPROGRESS, or its error. Progresses the
 * context. Does not block, but for up to 0.5 s once, to collect the members'
 * descriptions after a disagreement.
 */
VBN_API int vbn_coll_test(struct vbn_coll *coll);

/*
 * Wait until it is complete, sleeping. -ETIMEDOUT: still in flight, wait
 * again or free it; of a deadline of 100 ms or more the error says who has
 * not arrived, which takes up to 0.3 s more.
 */
VBN_API int vbn_coll_wait(struct vbn_coll *coll, int timeout_ms);

/* A call in flight is aborted, which breaks the communicator. */
VBN_API void vbn_coll_free(struct vbn_coll *coll);

/*
 * Blocking: init, start and wait in one, without allocation. At -ETIMEDOUT
 * the call is aborted and the communicator broken, since the buffers are the
 * caller's again. Not while another blocking call of the communicator runs
 * (from a handler, say): -EBUSY.
 */
VBN_API int vbn_allreduce(struct vbn_comm *comm, const void *in, void *out,
			  size_t count, enum vbn_type type,
			  enum vbn_reduction reduction, int timeout_ms);
VBN_API int vbn_broadcast(struct vbn_comm *comm, void *buf, size_t count,
			  enum vbn_type type, int root, int timeout_ms);
VBN_API int vbn_barrier(struct vbn_comm *comm, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif
