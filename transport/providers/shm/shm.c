/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared memory provider, between processes of one host and user. A put
 * or get is a copy, done in the call; its completion is delivered by the next
 * progress. Notifies and messages travel through a ring per direction, after
 * the data by the order of the processor's stores (copies of non-temporal
 * stores end with a fence in the C library).
 */
#include "shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MESSAGE_MAX 8192
#define POLL_BATCH  64 /* records a connection and progress */
#define PAGE_BYTES  4096

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
	err = share_open(&pjob->share);
	if (!err)
		err = shm_tables_open(pjob);
	if (err) {
		shm_job_close(pjob);
		return err;
	}
	*caps = (struct provider_caps){.max_piece = SIZE_MAX / 2,
				       .max_message = MESSAGE_MAX,
				       .credits = 256,
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

static void compact(struct shm_ctx *pctx)
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

static void publish(struct shm_conn *conn, const struct record *record)
{
	ring_publish(&conn->tx, record);
	ring_full_fence();
	if (atomic_load_explicit(&conn->peer_page->armed,
				 memory_order_relaxed) &&
	    atomic_exchange(&conn->peer_page->armed, 0))
		wake_peer(conn);
}

/* Room was made: the peer may sleep for want of it. */
static void feed(struct shm_conn *conn)
{
	ring_full_fence();
	if (atomic_load_explicit(&conn->rx.shared->starved,
				 memory_order_relaxed) &&
	    atomic_exchange(&conn->rx.shared->starved, 0))
		wake_peer(conn);
}

/* Deliver one connection's records; a handler may close it (slot NULL). */
static int poll_conn(struct shm_ctx *pctx, int slot)
{
	struct shm_conn *conn = pctx->conns[slot];
	int events = 0;

	while (conn && events < POLL_BATCH) {
		bool bad;
		const struct record *record = ring_peek(&conn->rx, &bad);

		if (bad) {
			core_failed(conn->ep, -EPROTO,
				    "the ring is corrupt: has the peer "
				    "crashed?");
			return events + 1;
		}
		if (!record)
			break;
		if (record->kind == RECORD_NOTIFY) {
			uint32_t imm = record->imm;

			ring_pop(&conn->rx, record);
			core_notify(conn->ep, imm);
		} else {
			struct message_header header;

			memcpy(&header, record->data, sizeof(header));
			core_message(conn->ep, &header,
				     record->data + sizeof(header),
				     record->len - sizeof(header));
			if (pctx->conns[slot] == conn)
				ring_pop(&conn->rx, record);
		}
		events++;
		conn = pctx->conns[slot];
	}
	if (conn && events)
		feed(conn);
	if (conn && ring_has_room_again(&conn->tx))
		events++; /* what got -EAGAIN may be posted again */
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
	return events;
}

static int shm_arm(void *p)
{
	struct shm_ctx *pctx = p;

	atomic_store_explicit(&pctx->page->armed, 1, memory_order_relaxed);
	/* Armed before looking; the peer publishes before it looks at armed. */
	ring_full_fence();
	for (int i = 0; i < pctx->nconns; i++)
		if (pctx->conns[i] && (!ring_is_empty(&pctx->conns[i]->rx) ||
				       !ring_arm(&pctx->conns[i]->tx))) {
			atomic_store_explicit(&pctx->page->armed, 0,
					      memory_order_relaxed);
			return -EAGAIN;
		}
	return 0;
}

static int shm_put(void *c, struct vbn_op *op, const struct put_args *args)
{
	struct shm_conn *conn = c;
	struct record *record = NULL;
	int err = 0;

	if (args->notify) {
		record = ring_reserve(&conn->tx, RECORD_NOTIFY, 0);
		if (!record)
			return -EAGAIN;
		record->imm = args->imm;
	}
	if (args->len)
		err = shm_write(conn, args->key, args->remote, args->local,
				args->len);
	if (record && !err)
		publish(conn, record);
	else if (record)
		core_credit_back(conn->ep);
	core_defer(conn->pctx->ctx, op, err);
	return 0;
}

static int shm_get(void *c, struct vbn_op *op, const struct get_args *args)
{
	struct shm_conn *conn = c;

	core_defer(conn->pctx->ctx, op,
		   shm_read(conn, args->key, args->remote, args->local,
			    args->len));
	return 0;
}

static int shm_atomic(void *c, struct vbn_op *op,
		      const struct atomic_args *args)
{
	struct shm_conn *conn = c;
	const struct shm_region *region = args->key;
	uint64_t *word, old;

	if (!(region->access & VBN_ACCESS_ATOMIC) ||
	    !shm_region_is_live(region)) {
		core_defer(conn->pctx->ctx, op, -EACCES);
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
	core_defer(conn->pctx->ctx, op, 0);
	return 0;
}

static int shm_flush(void *c, struct vbn_op *op)
{
	struct shm_conn *conn = c;

	core_defer(conn->pctx->ctx, op, 0);
	return 0;
}

static int shm_message(void *c, const struct message_header *header,
		       const void *data, size_t len)
{
	struct shm_conn *conn = c;
	struct record *record =
		ring_reserve(&conn->tx, RECORD_MESSAGE, sizeof(*header) + len);

	if (!record)
		return -EAGAIN;
	memcpy(record->data, header, sizeof(*header));
	if (len)
		memcpy(record->data + sizeof(*header), data, len);
	publish(conn, record);
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
	.get = shm_get,
	.atomic = shm_atomic,
	.flush = shm_flush,
	.message = shm_message,
};
