/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The contract between the transport's core and a provider (verbs, ucx,
 * shm): one const table, every slot documented. The core validates arguments,
 * splits lengths above caps.max_piece, stages unregistered memory, runs the
 * send/receive protocol over messages, keeps credits, and fails an
 * endpoint's operations in its own lists; a provider moves bytes.
 *
 * Threads: slots marked [any] may be called from any thread, one at a time
 * per object; [control] on the job's control thread only; [ctx] on the
 * thread that owns the context. Only [any] and [control] slots may block, and
 * only for a bounded time. Errors are -errno with vbn_fail() called.
 */
#ifndef VBN_PROVIDER_H
#define VBN_PROVIDER_H

#include <verbena/transport.h>

#include <errno.h>

struct vbn_mem;

#define BLOB_MAX 1024

/* Bytes that one side's provider hands to the other side's. */
struct blob {
	size_t len;
	uint8_t data[BLOB_MAX];
};

struct provider_caps {
	size_t max_piece;     /* longest put or get in one post; >= 4096 */
	size_t max_message;   /* longest data of message(); >= 4096 */
	size_t inline_max;    /* a put of at most so many bytes is copied out
				 before it returns: its memory needs no
				 registration (mem, mem_handle are NULL) */
	unsigned credits;     /* notifies + messages in flight per connection,
				 per direction, at its beginning; the receive
				 side must hold that many and CREDIT_SLACK more */
	unsigned credits_max; /* what window() may raise it to; >= credits */
	bool any_local;	      /* local memory needs no registration */
};

#define CREDIT_SLACK 12 /* 4 returns of credit, RENDEZVOUS_MAX fetched */

/* A fixed header that travels in front of a message's data. */
struct message_header {
	uint32_t kind; /* enum message_kind, the core's */
	uint32_t u32;
	uint64_t u64[3];
};

struct put_args {
	const void *local;
	size_t len; /* 0..max_piece; 0: local, mem, region are unset */
	const struct vbn_mem *mem; /* registration that holds local; NULL if
				      any_local or len <= inline_max */
	void *mem_handle;	   /* this provider's, of mem */
	uint64_t remote;	   /* target address */
	void *key;		   /* from key_attach() */
	bool notify;
	uint32_t imm;
	unsigned more; /* VBN_MORE: the doorbell may wait for the next post or
			  progress; or 0 */
};

struct get_args {
	void *local;
	size_t len; /* 1..max_piece */
	const struct vbn_mem *mem;
	void *mem_handle;
	uint64_t remote;
	void *key;
	bool more;
};

struct atomic_args {
	bool compare_swap; /* else fetch-add */
	uint64_t compare;
	uint64_t operand; /* add, or swap */
	uint64_t *result; /* ordinary memory, may be NULL */
	uint64_t remote;  /* aligned to 8 */
	void *key;
	bool more;
};

/*
 * A connection's quick way for a short put that goes at once, neither with a
 * notify nor VBN_MORE: what most small puts are. The connection holds
 * it, and the core calls it while the endpoint is ready for any put.
 */
struct quick {
	size_t max; /* puts of 1..max bytes may come this way; the provider
		       changes it, and 0 sends them all to put() */
	/* As the slot put(), and says put_begin() of what it takes. */
	int (*put)(struct quick *quick, struct vbn_op *op, const void *local,
		   size_t len, uint64_t key, uint64_t remote);
	/* What @key is here. false: it is for put(), which says why. */
	bool (*key)(const void *key, uint64_t *quick_key);
};

/* Whom a connection is between; valid during the call. */
struct conn_info {
	int rank, index;	   /* the peer */
	int self_rank, self_index; /* ourselves */
	uint64_t generation;	   /* of this connection, same on both sides */
	bool self;		   /* peer context == our context */
};

struct provider {
	const char *name;

	/*
	 * [any] Can this machine and job use the provider? 0, or -errno with
	 * the reason in vbn_error(). Called once per job, before any other.
	 */
	int (*job_open)(struct vbn_job *job, void **pjob,
			struct provider_caps *caps);
	void (*job_close)(void *pjob);

	/*
	 * [any] Register; fills *handle, and @announce with what a peer needs
	 * to reach it (len 0 is fine). @mem is filled but for handles.
	 */
	int (*mem_register)(void *pjob, const struct vbn_mem *mem,
			    void **handle, struct blob *announce);
	void (*mem_deregister)(void *pjob, void *handle);

	/*
	 * [control] Make a peer's region reachable (shm: map it). Optional:
	 * NULL when the blob alone suffices. *import belongs to the job's
	 * table until import_release [any].
	 */
	int (*region_import)(void *pjob, int rank, uint64_t base,
			     uint64_t length, const struct blob *announce,
			     void **import);
	void (*import_release)(void *pjob, void *import);

	/*
	 * [any] A context's part. @address: published, reaches the peers'
	 * conn_create as peer_address.
	 */
	int (*ctx_open)(void *pjob, struct vbn_ctx *ctx, void **pctx,
			struct blob *address);
	/* [ctx] All connections are closed before. */
	void (*ctx_close)(void *pctx);

	/* [ctx] Complete, deliver; returns the number of events. */
	int (*progress)(void *pctx);
	/* The same when there was no core_again() since. Optional. */
	int (*poll)(void *pctx);
	/*
	 * [ctx] A descriptor that turns readable after arm, or -1 if the core's
	 * own wake-up (vbn_ctx_wake()) is used. arm: 0, or -EAGAIN when there
	 * are events to progress.
	 */
	int (*fd)(void *pctx);
	int (*arm)(void *pctx);

	/*
	 * [control] Can the peer's context be connected to? 0, or -errno with
	 * the reason: the next provider is tried. Optional.
	 */
	int (*reaches)(void *pctx, const struct conn_info *info,
		       const struct blob *peer_address);

	/*
	 * Connecting [control]: one side creates and offers, the other
	 * accepts and answers, the first finishes. A conn that is returned is
	 * freed by conn_close [ctx or control]. Self connections: create,
	 * then finish with its own offer. -EINPROGRESS of finish (never of a
	 * self connection): core_connected() says when it is done.
	 */
	int (*conn_create)(void *pctx, const struct conn_info *info,
			   const struct blob *peer_address, void **conn,
			   struct blob *offer);
	int (*conn_accept)(void *pctx, const struct conn_info *info,
			   const struct blob *peer_address,
			   const struct blob *offer, void **conn,
			   struct blob *answer);
	int (*conn_finish)(void *conn, const struct blob *answer);
	/*
	 * [ctx] From here on the connection belongs to the context's thread,
	 * and events name @ep. Data may arrive before: keep it.
	 */
	int (*conn_attach)(void *conn, struct vbn_ep *ep);
	/*
	 * [ctx] (or [control] if never attached) Operations in flight complete
	 * with @status first, by core_complete(). Bounded time.
	 */
	void (*conn_close)(void *conn, int status);

	/*
	 * [ctx] Hold room for @arrivals from the peer in flight at once, and
	 * CREDIT_SLACK more, instead of what was held before (never less than
	 * that). 0, or -EAGAIN: no room, all stays as it was. Optional: NULL
	 * when caps.credits is all there is.
	 */
	int (*window)(void *conn, unsigned arrivals);

	/*
	 * [ctx] A key for use on this connection, made at first use of a
	 * region and kept until key_release or conn_close. NULL slot: the key
	 * is the import, or else the blob (struct blob *), which outlive it.
	 */
	int (*key_attach)(void *conn, const struct blob *announce, void *import,
			  void **key);
	void (*key_release)(void *conn, void *key);

	/*
	 * [ctx] Data path. 0: taken, core_complete(op) exactly once, from
	 * progress only (use core_defer() for what is done at once).
	 * -EAGAIN: queue full. Other -errno: not taken. op->priv[0..1] belong
	 * to the core, priv[2..7] to the provider while it has the op.
	 */
	int (*put)(void *conn, struct vbn_op *op, const struct put_args *args);
	int (*get)(void *conn, struct vbn_op *op, const struct get_args *args);
	int (*atomic)(void *conn, struct vbn_op *op,
		      const struct atomic_args *args);
	/*
	 * (atomic may also return -ENXIO: not on this region; the core then
	 * has the target do it, for all its peers over this provider.)
	 */
	/* Completes when all earlier puts of the connection have landed. */
	int (*flush)(void *conn, struct vbn_op *op);
	/* [ctx] Of an attached connection, as long as it is. Optional. */
	struct quick *(*quick)(void *conn);
	/*
	 * Send header and data (<= max_message); both are copied before it
	 * returns 0. Delivered in order with notifies, after the data of
	 * earlier puts. -EAGAIN: no room.
	 */
	int (*message)(void *conn, const struct message_header *header,
		       const void *data, size_t len);

	/*
	 * [ctx] Where in this process the target address @remote of @key is,
	 * to be read by plain loads (and written, if the region is open to
	 * that). It stays mapped until ctx_close(), though the key or the
	 * connection goes before. No system call once the region is imported.
	 * 0; -EACCES: not open for reading, or not registered any more;
	 * -EOPNOTSUPP (without vbn_fail()): not this region. Optional: NULL
	 * when no memory can be mapped.
	 */
	int (*map)(void *conn, void *key, uint64_t remote, void **ptr);

	/*
	 * [ctx] Counters of its own, a line each, as vbn_ctx_dump() has them.
	 * Optional.
	 */
	void (*dump)(void *pctx, FILE *out);
};

/* ---- what the core offers to providers ---- */

/* [ctx, in progress] @op is over. Sets status, runs its callback. */
VBN_API void core_complete(struct vbn_ctx *ctx, struct vbn_op *op, int status);
/* The same with 0, of what progress() counts among its events. */
VBN_API void core_done(struct vbn_op *op);
/* [ctx] The same at the next progress. */
VBN_API void core_defer(struct vbn_ctx *ctx, struct vbn_op *op, int status);
/*
 * There is more to do than poll() does. The first also has progress() called
 * once more before vbn_progress() returns, if this is in it.
 */
VBN_API void core_again(struct vbn_ctx *ctx);	  /* [ctx] */
VBN_API void core_again_any(struct vbn_ctx *ctx); /* [any] */
/* [ctx, in progress] Arrivals. @data is the provider's, valid in the call. */
VBN_API void core_notify(struct vbn_ep *ep, uint32_t imm);
VBN_API void core_message(struct vbn_ep *ep,
			  const struct message_header *header, const void *data,
			  size_t len);
/*
 * [ctx] The connection is broken: the endpoint fails, the conn is closed at
 * the next safe moment. @why: one line on the device, status, likely cause.
 */
VBN_API void core_failed(struct vbn_ep *ep, int status, const char *why);
VBN_API struct vbn_counters *core_counters(struct vbn_ctx *ctx);
/* An operation of so many bytes is in flight from now on. */
static inline void op_begin(struct vbn_op *op, size_t bytes)
{
	op->status = -EINPROGRESS;
	op->wc = 0;
	op->vendor = 0;
	op->bytes = bytes;
}
/* [ctx] The same of a quick put, which is counted. */
static inline void put_begin(struct vbn_counters *counters, struct vbn_op *op,
			     size_t bytes)
{
	op_begin(op, bytes);
	counters->puts++;
	counters->put_bytes += bytes;
}
/* [any] Wake the context's thread if it sleeps (eventfd). */
VBN_API void vbn_ctx_wake(struct vbn_ctx *ctx);
/* [any] The context's wake-up descriptor, to give to peers (shm). */
VBN_API int vbn_ctx_wake_fd(const struct vbn_ctx *ctx);

/*
 * For a provider around another (wrap.h). What comes by an endpoint's
 * connection is a tap's before it is the core's; of several the first is the
 * one set last. A tap passes it on now, later, or not at all, but in order.
 */
struct tap {
	void (*notify)(struct tap *tap, uint32_t imm);
	void (*message)(struct tap *tap, const struct message_header *header,
			const void *data, size_t len);
	struct vbn_ep *ep; /* these two are core_tap()'s */
	struct tap *above;
};
/* [ctx] NULL: none any more. */
void core_tap(struct vbn_ep *ep, struct tap *tap);
/* [ctx, in progress] Pass it on. The connection may be closed afterwards. */
void tap_notify(struct tap *tap, uint32_t imm);
void tap_message(struct tap *tap, const struct message_header *header,
		 const void *data, size_t len);

/*
 * [ctx] A put with notify was refused by the target, but the connection lives:
 * the notify has not been delivered, its credit comes back.
 */
VBN_API void core_credit_back(struct vbn_ep *ep);

enum provider_id { PROVIDER_SHM, PROVIDER_VERBS, PROVIDER_UCX, PROVIDERS };

/*
 * [control] Finishing, which has returned -EINPROGRESS, is over; or the side
 * that has accepted cannot go on after all: @status and vbn_error(). In the
 * latter case it is closed before this returns. Not from within a slot.
 */
VBN_API void core_connected(struct vbn_ctx *ctx, const struct conn_info *info,
			    int status);

/*
 * [control] The context is reached by another address than ctx_open() gave:
 * connections that are made from now on use it.
 */
VBN_API void core_readdress(struct vbn_ctx *ctx, enum provider_id provider,
			    const struct blob *address);

/* A registration, as providers see it. */
struct vbn_mem {
	struct vbn_job *job;
	void *addr;
	size_t len;
	unsigned access;
	int fd;		 /* memfd that backs it (pool slabs), or -1 */
	uint64_t offset; /* of addr in fd */
	uint32_t region, generation;
	void *handles[3];      /* per provider, by enum provider_id */
	struct vbn_pool *pool; /* or NULL */
};

extern const struct provider provider_shm, provider_verbs;
/* The ucx provider is a module (dlopen): it exports this name. */
#define PROVIDER_UCX_SYMBOL "verbena_provider_ucx"

/* [any] The job's control plane, for providers that watch descriptors. */
VBN_API struct control *vbn_job_control(struct vbn_job *job);

#endif
