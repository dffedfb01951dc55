/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Verbena's transport: registered memory and one-sided operations between
 * the ranks of a job, the same over verbs, UCX and shared memory.
 *
 * Threads: a context and its endpoints belong to one thread at a time. Jobs,
 * registrations and pools may be used from any thread.
 *
 * Operations are non-blocking. They return
 *   0            taken: the operation completes exactly once, in a later
 *                vbn_progress() (or a call that runs it) of the context;
 *                op->status is -EINPROGRESS until then
 *   -EAGAIN      not taken (connecting, no credit, queue full): progress the
 *                context and post again
 *                (op->status may be the same -EAGAIN then)
 *   other -errno not taken: -EINVAL (arguments, outside the rkey's window),
 *                -EKEYREJECTED (no such region, or stale), -ECONNRESET (the
 *                endpoint has failed), -EOPNOTSUPP, ...
 * Completion status: 0; -ECANCELED flushed by a close; -ECONNRESET the peer
 * is gone or the connection broke; -EMSGSIZE receive too small; -EACCES the
 * target refused the access; -EPERM (shm) the kernel does not let this process
 * at the target's memory, which is not of a pool; -EBADMSG (VBN_CHECKSUM=1) the
 * data did not arrive as it was sent; -EIO other device error.
 *
 * Order, per endpoint: puts may land in any order; a notify, a message and a
 * send are delivered in the order posted, each after the data of all puts
 * posted before it has landed. Gets and atomics are not ordered after puts:
 * flush first.
 */
#ifndef VERBENA_TRANSPORT_H
#define VERBENA_TRANSPORT_H

#include <verbena/job.h>

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct vbn_ctx;
struct vbn_ep;
struct vbn_mem;
struct vbn_pool;

/*
 * An operation, embedded by the caller in its own structure; the library
 * allocates nothing per operation. The caller sets done (may be NULL) and
 * arg, and keeps the structure and the buffers until completion. done runs
 * inside progress and may post operations, this one again included.
 */
struct vbn_op {
	void (*done)(struct vbn_op *op);
	void *arg;
	int status;	  /* -EINPROGRESS, then 0 or -errno */
	uint32_t wc;	  /* after an error: the provider's raw status and */
	uint32_t vendor;  /* vendor code (verbs: ibv_wc_status, vendor_err) */
	size_t bytes;	  /* transferred; for a receive: the message's length */
	uint64_t priv[8]; /* the library's, while in flight */
};

/*
 * A key to remote memory: a window [base, base + length) of a region of one
 * rank. A plain value; pack it to send it.
 */
struct vbn_rkey {
	uint32_t region;
	uint32_t generation;
	uint64_t base; /* the owner's address */
	uint64_t length;
};

#define VBN_RKEY_BYTES 24
VBN_API void vbn_rkey_pack(const struct vbn_rkey *rkey,
			   uint8_t bytes[VBN_RKEY_BYTES]);
VBN_API void vbn_rkey_unpack(struct vbn_rkey *rkey,
			     const uint8_t bytes[VBN_RKEY_BYTES]);

/* ---- contexts ---- */

struct vbn_ctx_options {
	size_t size;
};

/*
 * Open a context. Its index is the number of contexts that this rank has
 * opened before in this job (so each rank's first is 0). Blocks for device
 * set-up and one control-plane request, at most the job's timeout.
 * -ENODEV: no provider is usable; the error lists why, per provider.
 * -ENOSPC: 256 were opened in this job's life.
 */
VBN_API int vbn_ctx_open(struct vbn_ctx **ctx, struct vbn_job *job,
			 const struct vbn_ctx_options *opts);

/*
 * Close: operations in flight complete with -ECANCELED (callbacks run here),
 * then endpoints and context are freed. Call a barrier of your own first if
 * peers may still write to you. Bounded time. Not from a callback.
 */
VBN_API void vbn_ctx_close(struct vbn_ctx *ctx);

/*
 * Have closing(hook) called when vbn_ctx_close() begins, while everything
 * still stands; once, the last added first. For layers above that must not
 * use a context that was closed. The caller keeps *hook until the call, in
 * which it may free it.
 */
struct vbn_ctx_hook {
	void (*closing)(struct vbn_ctx_hook *hook);
	void *arg;
	struct vbn_ctx_hook *next; /* the library's */
};
VBN_API void vbn_ctx_at_close(struct vbn_ctx *ctx, struct vbn_ctx_hook *hook);

/* The context's index among the rank's, and its job. */
VBN_API int vbn_ctx_index(const struct vbn_ctx *ctx);
VBN_API struct vbn_job *vbn_ctx_job(const struct vbn_ctx *ctx);

/* Drive: complete operations, deliver. Returns the number of events. */
VBN_API int vbn_progress(struct vbn_ctx *ctx);

/*
 * Sleeping. The descriptor becomes readable when there is something to
 * progress, if armed: vbn_ctx_arm() returns 0 armed, or -EAGAIN: events are
 * there already, progress instead of sleeping. vbn_ctx_wait() progresses,
 * spins a little, then yields, arms and sleeps until an event has been
 * progressed (returns > 0) or the deadline (returns 0); in a callback it
 * returns 0 at once.
 */
VBN_API int vbn_ctx_fd(struct vbn_ctx *ctx);
VBN_API int vbn_ctx_arm(struct vbn_ctx *ctx);
VBN_API int vbn_ctx_wait(struct vbn_ctx *ctx, int timeout_ms);

/*
 * Wait for an operation; returns its status, or -ETIMEDOUT: it is in flight
 * still, its buffers are not the caller's yet.
 */
VBN_API int vbn_wait(struct vbn_ctx *ctx, struct vbn_op *op, int timeout_ms);

/* ---- endpoints ---- */

/*
 * The endpoint to context @index of @rank (oneself is allowed). There is one
 * per pair: opening twice gives the same, closing is counted. Returns at
 * once; connecting goes on in the background, operations give -EAGAIN
 * meanwhile.
 */
VBN_API int vbn_ep_open(struct vbn_ep **ep, struct vbn_ctx *ctx, int rank,
			int index);
/* Close. In a message's handler: the message's data is gone afterwards. */
VBN_API void vbn_ep_close(struct vbn_ep *ep);

/* Wait until connected: 0, -ETIMEDOUT, or why it failed. Blocking. */
VBN_API int vbn_ep_connect(struct vbn_ep *ep, int timeout_ms);

/* 0 connected, -EINPROGRESS connecting, else why it failed. */
VBN_API int vbn_ep_status(const struct vbn_ep *ep);
VBN_API int vbn_ep_rank(const struct vbn_ep *ep);
VBN_API int vbn_ep_index(const struct vbn_ep *ep);
/* "shm", "verbs", "ucx"; "" while connecting. */
VBN_API const char *vbn_ep_provider(const struct vbn_ep *ep);

/* ---- memory ---- */

/*
 * Register memory of the caller's (any address and length > 0) with every
 * provider, once per device. The caller keeps it mapped until deregistered.
 * Blocks for one control-plane request when peers may access it. -ENOMEM
 * names the limit that was met. Thread-safe.
 */
#define VBN_ACCESS_LOCAL  0u
#define VBN_ACCESS_READ	  (1u << 0) /* peers may get */
#define VBN_ACCESS_WRITE  (1u << 1) /* peers may put */
#define VBN_ACCESS_ATOMIC (1u << 2) /* peers may use atomics */
#define VBN_ACCESS_ALL	  (VBN_ACCESS_READ | VBN_ACCESS_WRITE | VBN_ACCESS_ATOMIC)

VBN_API int vbn_mem_register(struct vbn_mem **mem, struct vbn_job *job,
			     void *addr, size_t len, unsigned access);
/* No operation may be in flight on it. Later use of its keys fails. */
VBN_API void vbn_mem_deregister(struct vbn_mem *mem);

/*
 * The key of [addr, addr + len), which lies in one registration or one
 * pool allocation open to peers. -EINVAL otherwise. O(1). Thread-safe.
 */
VBN_API int vbn_rkey_of(struct vbn_job *job, const void *addr, size_t len,
			struct vbn_rkey *rkey);

/*
 * Whether the ranks of this host can map [addr, addr + len) (vbn_rkey_map()):
 * it is memory of a pool that is open for reading. Thread-safe.
 */
VBN_API bool vbn_mem_is_shared(struct vbn_job *job, const void *addr,
			       size_t len);

/*
 * Huge pages of a pool. Preferred: where they lack (see verbena-info), a slab
 * has the next smaller pages, and the pool says so once in the log. Required:
 * an allocation that needs a slab fails instead. With 1 GiB pages, slabs are
 * multiples of 1 GiB.
 */
enum vbn_hugepages {
	VBN_HUGE_AUTO, /* 2 MiB preferred, and the log says it at "info" */
	VBN_HUGE_NONE,
	VBN_HUGE_PREFER_2M,
	VBN_HUGE_PREFER_1G, /* then 2 MiB, then small pages */
	VBN_HUGE_REQUIRE_2M,
	VBN_HUGE_REQUIRE_1G
};

/*
 * Where a pool's memory is: anywhere; preferably on the node of the processor
 * that runs the allocation for which a slab is made; on node n only.
 */
#define VBN_NUMA_ANY	 0
#define VBN_NUMA_LOCAL	 (-1)
#define VBN_NUMA_NODE(n) ((n) + 1)

struct vbn_pool_options {
	size_t size;
	unsigned access;	      /* VBN_ACCESS_*, what a key opens */
	size_t slab_bytes;	      /* smallest slab; 0: 4 MiB */
	size_t limit;		      /* bytes of slabs at most; 0: none */
	enum vbn_hugepages hugepages; /* 0: auto */
	int numa;		      /* VBN_NUMA_*; 0: anywhere */
};

/*
 * A pool of registered memory (slabs of memfd memory, each registered once),
 * which grows as it is used, up to its limit. Thread-safe. create: -EINVAL
 * for a node that does not exist. alloc: alignment a power of two, 0 means
 * 64; NULL when memory, a limit of the pool's, the process's, the control
 * group's or the machine's, or a registration forbids it (vbn_error() says
 * which, what was needed and allowed, and how to raise it); size 0 gives a
 * unique pointer. destroy frees what was not freed.
 *
 * After fork(), pool memory is shared, not copied: parent and child see each
 * other's writes and what peers write. The child may read and write it (an
 * allocation stays the parent's); it must not call the library, which goes on
 * working in the parent. Other registered memory behaves as any after fork():
 * each has its own, and transfers go on with the parent's. exec() closes all
 * of the library's descriptors (not those that UCX opens for itself).
 */
VBN_API int vbn_pool_create(struct vbn_pool **pool, struct vbn_job *job,
			    const struct vbn_pool_options *opts);
VBN_API void vbn_pool_destroy(struct vbn_pool *pool);
VBN_API void *vbn_pool_alloc(struct vbn_pool *pool, size_t size,
			     size_t alignment);
VBN_API void vbn_pool_free(struct vbn_pool *pool, void *ptr);

/* ---- operations ---- */

/*
 * One-sided. @local memory from a pool or registered is never copied; other
 * memory is staged through a pool where the provider needs registered memory
 * (verbs, ucx), and counted. len may be 0 (then @rkey may
 * be NULL) and above any device limit (split). A put completes when @local
 * may be reused; use flush or a notify to know of its landing. @flags: 0 or
 * VBN_MORE.
 */
#define VBN_MORE (1u << 0) /* more follows at once: one doorbell for all */

VBN_API int vbn_put(struct vbn_ep *ep, struct vbn_op *op, const void *local,
		    size_t len, const struct vbn_rkey *rkey, uint64_t offset,
		    unsigned flags);
VBN_API int vbn_get(struct vbn_ep *ep, struct vbn_op *op, void *local,
		    size_t len, const struct vbn_rkey *rkey, uint64_t offset,
		    unsigned flags);

/*
 * Where in this process [offset, offset + len) of the region of @rkey is, so
 * that it can be read by plain loads and, if the region is open for writing,
 * written by plain stores: no copy, no call into the peer, and no system call
 * once the region is known. From the thread of the endpoint's context; returns
 * at once, in some 10 ns. *ptr may be used from any thread, until the context
 * is closed.
 *   0            *ptr is set; to memory of this process: its own address
 *   -EOPNOTSUPP  this provider (verbs, ucx) or memory (another process's that
 *                is not of a pool) cannot be mapped: use vbn_get(), vbn_put().
 *                An answer, not an error: vbn_error() stays as it was
 *   -EAGAIN      connecting, or the region is being looked up: progress the
 *                context and call again
 *   -EACCES      not open for reading, or deregistered by its owner
 *   -EINVAL, -EKEYREJECTED, -ECONNRESET, -ETIMEDOUT  as vbn_put() returns
 * Once another process has deregistered the region (destroyed the pool), loads
 * give its last bytes or zeros, but never a fault. Stores to a peer's region
 * that is open neither for writing nor for atomics fault.
 *
 * Order comes by notifies alone. What the owner has stored, and what was put,
 * before it sends a notify to this context is seen once that is delivered here.
 * That it was read, or written, is told to the owner by a notify: what the
 * owner stores after its delivery is not seen by loads made before. For this a
 * notify is a release and its delivery an acquire, on every processor; who
 * stores past the caches (non-temporal stores) fences before. A word that both
 * sides look at without a notify in between has to be _Atomic.
 */
VBN_API int vbn_rkey_map(struct vbn_ep *ep, const struct vbn_rkey *rkey,
			 uint64_t offset, size_t len, void **ptr);

/*
 * Notifies: 32 bits, delivered at the target after the data they follow.
 * Channel 0 is the library's own; 1..15 as below or the user's.
 */
#define VBN_CHANNEL_COLL    1
#define VBN_CHANNEL_PS	    2
#define VBN_CHANNEL_TRAINER 3
#define VBN_CHANNEL_USER    8
#define VBN_CHANNELS	    16
#define VBN_NOTIFY_MAX	    0x0fffffffu /* the value has 28 bits */

VBN_API int vbn_put_notify(struct vbn_ep *ep, struct vbn_op *op,
			   const void *local, size_t len,
			   const struct vbn_rkey *rkey, uint64_t offset,
			   unsigned channel, uint32_t value, unsigned flags);
static inline int vbn_notify(struct vbn_ep *ep, struct vbn_op *op,
			     unsigned channel, uint32_t value, unsigned flags)
{
	return vbn_put_notify(ep, op, NULL, 0, NULL, 0, channel, value, flags);
}

/*
 * Atomics on an aligned 64-bit word of the target; *result (may be NULL) is
 * its value before. -EOPNOTSUPP where the device or memory has none.
 */
VBN_API int vbn_fetch_add(struct vbn_ep *ep, struct vbn_op *op,
			  uint64_t *result, uint64_t add,
			  const struct vbn_rkey *rkey, uint64_t offset,
			  unsigned flags);
VBN_API int vbn_compare_swap(struct vbn_ep *ep, struct vbn_op *op,
			     uint64_t *result, uint64_t compare, uint64_t swap,
			     const struct vbn_rkey *rkey, uint64_t offset,
			     unsigned flags);

/*
 * Two-sided, matched in order per endpoint. A receive of less room than the
 * message completes with -EMSGSIZE, op->bytes being the message's length.
 * Any length: small ones travel at once, large ones when the receive is
 * posted, straight from @buf into the receiver's.
 */
VBN_API int vbn_send(struct vbn_ep *ep, struct vbn_op *op, const void *buf,
		     size_t len, unsigned flags);
VBN_API int vbn_recv(struct vbn_ep *ep, struct vbn_op *op, void *buf,
		     size_t len);

/* Completes when all earlier puts of the endpoint have landed. */
VBN_API int vbn_flush(struct vbn_ep *ep, struct vbn_op *op);

/*
 * Handlers, per context and channel, run inside progress and may post.
 * Without one, notifies and messages wait (the sender runs out of credit and
 * sees -EAGAIN) and are delivered once it is set. @from is valid until its
 * context closes.
 */
VBN_API int vbn_notify_handler(struct vbn_ctx *ctx, unsigned channel,
			       void (*fn)(void *arg, struct vbn_ep *from,
					  uint32_t value),
			       void *arg);

/*
 * Messages: up to VBN_MESSAGE_MAX bytes to the handler of a channel, in
 * order with notifies. @data is copied before the call returns; there is no
 * completion to wait for.
 */
#define VBN_MESSAGE_MAX 2048
VBN_API int vbn_message(struct vbn_ep *ep, unsigned channel, const void *data,
			size_t len);
VBN_API int vbn_message_handler(struct vbn_ctx *ctx, unsigned channel,
				void (*fn)(void *arg, struct vbn_ep *from,
					   const void *data, size_t len),
				void *arg);

/* ---- counters ---- */

struct vbn_counters {
	uint64_t puts, gets, atomics, sends, receives, notifies, messages;
	uint64_t put_bytes, get_bytes, send_bytes;
	uint64_t again;	       /* posts refused with -EAGAIN */
	uint64_t staged_bytes; /* copied because not registered */
	uint64_t copied_bytes; /* where the provider cannot avoid it */
	uint64_t doorbells;    /* posts to a device */
	uint64_t errors;       /* completions with an error */
	uint64_t sleeps;
	uint64_t completions; /* taken from a device's queue */
	uint64_t kicks;	      /* requests to wake a device that had stopped */
};

/* What the context has counted since it was opened. */
VBN_API void vbn_ctx_counters(const struct vbn_ctx *ctx,
			      struct vbn_counters *counters);
/* One line per counter that is not 0. VBN_STATS=1 does it at close. */
VBN_API void vbn_ctx_dump(const struct vbn_ctx *ctx, FILE *out);

#ifdef __cplusplus
}
#endif

#endif
