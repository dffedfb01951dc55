/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared memory provider, between processes of one host and user. A put
 * or get is a copy, done in the call; its completion is delivered by the next
 * progress. Notifies and messages travel through a ring per direction, after
 * the data by the order of stores (copy.h), which x86 keeps by itself. No
 * instruction with a lock prefix and no system call is on the way, unless the
 * peer sleeps.
 */
#include "shm.h"
#include "copy.h"
#include "fence.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MESSAGE_MAX 8192
#define POLL_BATCH  64 /* records a connection and progress */
#define PAGE_BYTES  4096

/*
 * Slots for all credits, and CREDIT_SLACK more: only long messages and atomics
 * of the target's can find the ring full.
 */
#define CREDITS (RING_SLOTS - 16)

_Static_assert(CREDITS + CREDIT_SLACK <= RING_SLOTS, "credits have slots");
_Static_assert(MESSAGE_MAX <= RING_DATA, "a message fits the arena");

static void shm_job_close(void *p)
{
	struct shm_job *pjob = p;

	if (pjob->share)
		share_close(pjob->share);
	shm_tables_close(pjob);
	free(pjob);
}

static int shm_job_open(struct vbn_job *job, void **out,
			struct provider_caps *caps)
{
	struct shm_job *pjob = calloc(1, sizeof(*pjob));
	int err;

	if (!pjob)
		return vbn_fail(-ENOMEM, "shm: no memory");
	pjob->job = job;
	pjob->table_fd = -1;
	pjob->joined = fence_join();
	err = share_open(&pjob->share);
	if (!err)
		err = shm_tables_open(pjob);
	if (err) {
		shm_job_close(pjob);
		return err;
	}
	*caps = (struct provider_caps){.max_piece = SIZE_MAX / 2,
				       .max_message = MESSAGE_MAX,
				       .credits = CREDITS,
				       .credits_max = CREDITS,
				       .any_local = true};
	*out = pjob;
	return 0;
}

static void shm_ctx_close(void *p)
{
	struct shm_ctx *pctx = p;
	struct share *share = pctx->pjob->share;

	if (pctx->page_id > 0)
		share_withdraw(share, pctx->page_id);
	if (pctx->wake_id > 0)
		share_withdraw(share, pctx->wake_id);
	if (pctx->page)
		munmap(pctx->page, PAGE_BYTES);
	if (pctx->page_fd >= 0)
		close(pctx->page_fd);
	shm_given_free(&pctx->given);
	free(pctx->conns);
	free(pctx);
}

static int make_page(struct shm_ctx *pctx)
{
	void *map;

	pctx->page_fd = memfd_create("verbena-context", MFD_CLOEXEC);
	if (pctx->page_fd < 0 || ftruncate(pctx->page_fd, PAGE_BYTES) < 0)
		return vbn_fail(-errno, "shm: memfd: %s", strerror(errno));
	map = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		   pctx->page_fd, 0);
	if (map == MAP_FAILED)
		return vbn_fail(-errno, "shm: mmap: %s", strerror(errno));
	pctx->page = map;
	pctx->page->fence = !pctx->pjob->joined;
	return 0;
}

static int shm_ctx_open(void *p, struct vbn_ctx *ctx, void **out,
			struct blob *address)
{
	struct shm_ctx *pctx = calloc(1, sizeof(*pctx));
	int err;

	if (!pctx)
		return vbn_fail(-ENOMEM, "shm: no memory");
	pctx->pjob = p;
	pctx->ctx = ctx;
	pctx->counters = core_counters(ctx);
	err = make_page(pctx);
	if (!err) {
		pctx->page_id = share_export(pctx->pjob->share, pctx->page_fd);
		pctx->wake_id =
			share_export(pctx->pjob->share, vbn_ctx_wake_fd(ctx));
		if (pctx->page_id < 0 || pctx->wake_id < 0)
			err = vbn_fail(-ENOMEM, "shm: no memory");
	}
	if (err) {
		shm_ctx_close(pctx);
		return err;
	}
	shm_ctx_address(pctx, address);
	*out = pctx;
	return 0;
}

static __attribute__((noinline)) void compact(struct shm_ctx *pctx)
{
	int n = 0;

	for (int i = 0; i < pctx->nconns; i++)
		if (pctx->conns[i])
			pctx->conns[n++] = pctx->conns[i];
	pctx->nconns = n;
	pctx->has_holes = false;
}

static void wake_peer(struct shm_conn *conn)
{
	uint64_t one = 1;

	if (conn->peer_wake < 0)
		vbn_ctx_wake(conn->pctx->ctx);
	else if (write(conn->peer_wake, &one, sizeof(one)) < 0)
		return; /* readable already */
}

/* Something was published, or (flag: starved) room made: is the peer asleep? */
static inline void wake_if(struct shm_conn *conn, _Atomic uint32_t *flag)
{
	fence_light(conn->fence);
	if (atomic_load_explicit(flag, memory_order_relaxed) &&
	    atomic_exchange(flag, 0))
		wake_peer(conn);
}

static inline void published(struct shm_conn *conn)
{
	wake_if(conn, &conn->peer_page->armed);
}

/* Puts of so many bytes go the quick way. */
#define QUICK_MOST 4096

/* An operation's link and status, while it waits to be completed. */
#define OP_NEXT	  priv[2]
#define OP_STATUS priv[3]

static inline void op_done(struct shm_conn *conn, struct vbn_op *op, int status)
{
	struct shm_ctx *pctx = conn->pctx;

	op->OP_NEXT = 0;
	op->OP_STATUS = (uint64_t)(int64_t)status;
	if (pctx->done)
		pctx->done_last->OP_NEXT = (uintptr_t)op;
	else
		pctx->done = op;
	pctx->done_last = op;
}

static struct vbn_op *op_next(const struct vbn_op *op)
{
	return (struct vbn_op *)(uintptr_t)op->OP_NEXT;
}

void shm_done_hand_over(struct shm_ctx *pctx)
{
	struct vbn_op *op = pctx->done, *next;

	pctx->done = NULL;
	for (; op; op = next) {
		next = op_next(op);
		core_defer(pctx->ctx, op, (int)(int64_t)op->OP_STATUS);
	}
}

/* Complete what was over before; callbacks may add more. */
static __attribute__((noinline)) int complete(struct shm_ctx *pctx)
{
	struct vbn_op *op = pctx->done, *next;
	int events = 0;

	pctx->done = NULL;
	for (; op; op = next) {
		int status = (int)(int64_t)op->OP_STATUS;

		next = op_next(op);
		if (status)
			core_complete(pctx->ctx, op, status);
		else
			core_done(op);
		events++;
	}
	return events;
}

/* Deliver a message. False: the connection is closed, or about to be. */
static __attribute__((noinline)) bool deliver_message(struct shm_ctx *pctx,
						      int slot)
{
	struct shm_conn *conn = pctx->conns[slot];
	struct arrival arrival;

	if (!ring_read(&conn->rx, &arrival)) {
		core_failed(conn->ep, -EPROTO,
			    "the ring is corrupt: has the peer crashed?");
		return false;
	}
	core_message(conn->ep, arrival.header, arrival.data, arrival.len);
	if (pctx->conns[slot] != conn)
		return false;
	ring_pop(&conn->rx, &arrival);
	return true;
}

/* Deliver one connection's arrivals, the first of which has this @word. */
static __attribute__((noinline)) int drain_conn(struct shm_ctx *pctx, int slot,
						uint64_t word)
{
	struct shm_conn *conn = pctx->conns[slot];
	int events = 0;

	do {
		events++;
		if (!word_is_notify(word)) {
			if (!deliver_message(pctx, slot))
				return events;
			continue;
		}
		ring_pop_slot(&conn->rx);
		core_notify(conn->ep, (uint32_t)word);
		if (pctx->conns[slot] != conn)
			return events; /* closed by the handler */
	} while (events < POLL_BATCH && ring_peek(&conn->rx, &word));
	wake_if(conn, &conn->rx.shared->starved);
	return events;
}

static inline int poll_conn(struct shm_ctx *pctx, int slot)
{
	struct shm_conn *conn = pctx->conns[slot];
	int events = 0;
	uint64_t word;

	if (!conn)
		return 0;
	if (conn->tx.starving && ring_has_room_again(&conn->tx))
		events++; /* what got -EAGAIN may be posted again */
	if (ring_peek(&conn->rx, &word))
		events += drain_conn(pctx, slot, word);
	return events;
}

static int shm_progress(void *p)
{
	struct shm_ctx *pctx = p;
	int events = 0;

	if (pctx->has_holes)
		compact(pctx);
	for (int i = 0; i < pctx->nconns; i++)
		events += poll_conn(pctx, i);
	if (pctx->done)
		events += complete(pctx);
	return events;
}

static bool has_news(const struct shm_ctx *pctx)
{
	for (int i = 0; i < pctx->nconns; i++) {
		struct shm_conn *conn = pctx->conns[i];

		if (!conn)
			continue;
		if (!ring_is_empty(&conn->rx))
			return true;
		if (ring_has_room_again(&conn->tx)) {
			/* it says so once, and progress is to say it */
			conn->tx.starving = true;
			return true;
		}
	}
	return false;
}

/* Says that we sleep before it looks; peers publish before they look. */
static int shm_arm(void *p)
{
	struct shm_ctx *pctx = p;

	if (pctx->done)
		return -EAGAIN;
	atomic_store_explicit(&pctx->page->armed, 1, memory_order_relaxed);
	for (int i = 0; i < pctx->nconns; i++)
		if (pctx->conns[i])
			ring_starve(&pctx->conns[i]->tx);
	if (fence_heavy(pctx->pjob->joined) && !has_news(pctx))
		return 0;
	atomic_store_explicit(&pctx->page->armed, 0, memory_order_relaxed);
	return -EAGAIN;
}

/* Then what was read last may be anything: a send that has ended there. */
static bool peer_closed(const struct shm_conn *conn)
{
	fence_loads();
	return atomic_load_explicit(&conn->rx.shared->closed,
				    memory_order_relaxed);
}

/* Why a region does not live: one that has closed may have let go of all. */
static int refused(const struct shm_conn *conn)
{
	return peer_closed(conn) ? -ECONNRESET : -EACCES;
}

static int write_region(struct shm_conn *conn, const struct put_args *args)
{
	const struct shm_region *region = args->key;

	if (!shm_region_may(region, VBN_ACCESS_WRITE))
		return refused(conn);
	if (!region->map)
		return shm_copy_across(conn, region, args->remote,
				       (void *)(uintptr_t)args->local,
				       args->len, true);
	copy_bytes(region->map + (args->remote - region->base), args->local,
		   args->len);
	return 0;
}

static int read_region(struct shm_conn *conn, const struct get_args *args)
{
	const struct shm_region *region = args->key;

	if (!shm_region_may(region, VBN_ACCESS_READ))
		return refused(conn);
	if (!region->map)
		return shm_copy_across(conn, region, args->remote, args->local,
				       args->len, false);
	copy_bytes(args->local, region->map + (args->remote - region->base),
		   args->len);
	return 0;
}

static int shm_put(void *c, struct vbn_op *op, const struct put_args *args)
{
	struct shm_conn *conn = c;
	int err = 0;

	if (args->notify && !ring_want_slot(&conn->tx))
		return -EAGAIN;
	if (args->len)
		err = write_region(conn, args);
	if (args->notify && !err) {
		ring_notify(&conn->tx, args->imm);
		published(conn);
	} else if (args->notify) {
		core_credit_back(conn->ep);
	}
	op_done(conn, op, err);
	return 0;
}

/* What is put comes first, what is to be kept of it while it is on its way. */
static int quick_put(struct quick *quick, struct vbn_op *op, const void *local,
		     size_t len, uint64_t key, uint64_t remote)
{
	struct shm_conn *conn = (struct shm_conn *)quick;
	const struct shm_region *region = (const void *)(uintptr_t)key;
	char *to = region->map + (remote - region->base);
	bool live;

	copy_claim(to);
	live = shm_region_is_live(region);
	if (live)
		copy_bytes(to, local, len);
	put_begin(conn->pctx->counters, op, len);
	op_done(conn, op, live ? 0 : refused(conn));
	return 0;
}

static bool quick_key(const void *key, uint64_t *quick_key)
{
	const struct shm_region *region = key;

	*quick_key = (uintptr_t)region;
	return region->map && (region->access & VBN_ACCESS_WRITE);
}

static struct quick *shm_quick(void *c)
{
	struct shm_conn *conn = c;

	conn->quick = (struct quick){QUICK_MOST, quick_put, quick_key};
	return &conn->quick;
}

static int shm_get(void *c, struct vbn_op *op, const struct get_args *args)
{
	struct shm_conn *conn = c;
	int err = read_region(conn, args);

	if (!err && peer_closed(conn))
		err = -ECONNRESET;
	op_done(conn, op, err);
	return 0;
}

static int shm_atomic(void *c, struct vbn_op *op,
		      const struct atomic_args *args)
{
	struct shm_conn *conn = c;
	const struct shm_region *region = args->key;
	uint64_t *word, old;

	if (!shm_region_may(region, VBN_ACCESS_ATOMIC)) {
		op_done(conn, op, refused(conn));
		return 0;
	}
	if (!region->map)
		return -ENXIO; /* heap memory of another process */
	word = (uint64_t *)(region->map + (args->remote - region->base));
	if (args->compare_swap) {
		old = args->compare;
		__atomic_compare_exchange_n(word, &old, args->operand, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	} else {
		old = __atomic_fetch_add(word, args->operand, __ATOMIC_SEQ_CST);
	}
	if (args->result)
		*args->result = old;
	op_done(conn, op, 0);
	return 0;
}

static int shm_flush(void *c, struct vbn_op *op)
{
	struct shm_conn *conn = c;

	op_done(conn, op, 0);
	return 0;
}

static int shm_message(void *c, const struct message_header *header,
		       const void *data, size_t len)
{
	struct shm_conn *conn = c;

	if (!ring_message(&conn->tx, header, data, len))
		return -EAGAIN;
	published(conn);
	return 0;
}

const struct provider provider_shm = {
	.name = "shm",
	.job_open = shm_job_open,
	.job_close = shm_job_close,
	.mem_register = shm_mem_register,
	.mem_deregister = shm_mem_deregister,
	.region_import = shm_region_import,
	.import_release = shm_import_release,
	.ctx_open = shm_ctx_open,
	.ctx_close = shm_ctx_close,
	.progress = shm_progress,
	.arm = shm_arm,
	.conn_create = shm_conn_create,
	.conn_accept = shm_conn_accept,
	.conn_finish = shm_conn_finish,
	.conn_attach = shm_conn_attach,
	.conn_close = shm_conn_close,
	.put = shm_put,
	.quick = shm_quick,
	.get = shm_get,
	.atomic = shm_atomic,
	.flush = shm_flush,
	.message = shm_message,
	.map = shm_map,
};
