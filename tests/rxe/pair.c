/* SPDX-License-Identifier: BSD-3-Clause */
/* See pair.h. Everything is on one thread: both ends are progressed in turn. */
#include "pair.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

void end_open(struct bench *bench, struct end *end)
{
	mock_ctx_init(&end->core);
	CHECK(!bench->ops->ctx_open(bench->pjob, &end->core, &end->pctx,
				    &end->address));
}

void end_close(struct bench *bench, struct end *end)
{
	bench->ops->ctx_close(end->pctx);
}

void bench_open(struct bench *bench, const struct provider *ops)
{
	memset(bench, 0, sizeof(*bench));
	bench->ops = ops;
	CHECK(!ops->job_open(NULL, &bench->pjob, &bench->caps));
	end_open(bench, &bench->a);
	end_open(bench, &bench->b);
}

void bench_close(struct bench *bench)
{
	end_close(bench, &bench->a);
	end_close(bench, &bench->b);
	bench->ops->job_close(bench->pjob);
}

int bench_progress(struct bench *bench)
{
	return mock_progress(&bench->a.core, bench->ops, bench->a.pctx) +
	       mock_progress(&bench->b.core, bench->ops, bench->b.pctx);
}

int bench_wait(struct bench *bench, struct vbn_op *op, int ms)
{
	double end = now_us() + ms * 1e3;

	while (op->status == -EINPROGRESS && now_us() < end)
		bench_progress(bench);
	return op->status;
}

void region_open(struct bench *bench, struct region *region, size_t len,
		 unsigned access)
{
	memset(region, 0, sizeof(*region));
	region->mem.len = len;
	region->mem.access = access;
	region->mem.fd = -1;
	region->mem.addr = mmap(NULL, len, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(region->mem.addr != MAP_FAILED);
	CHECK(!bench->ops->mem_register(bench->pjob, &region->mem,
					&region->handle, &region->announce));
}

void region_close(struct bench *bench, struct region *region)
{
	bench->ops->mem_deregister(bench->pjob, region->handle);
	munmap(region->mem.addr, region->mem.len);
}

static uint8_t byte_at(size_t i, unsigned seed)
{
	return (uint8_t)((i * 2654435761u + seed * 40503u) >> 7);
}

void region_fill(struct region *region, size_t len, unsigned seed)
{
	uint8_t *p = region->mem.addr;

	for (size_t i = 0; i < len; i++)
		p[i] = byte_at(i, seed);
}

int region_same(const struct region *region, size_t len, unsigned seed)
{
	const uint8_t *p = region->mem.addr;

	for (size_t i = 0; i < len; i++)
		if (p[i] != byte_at(i, seed))
			return 0;
	return 1;
}

static void side_init(struct bench *bench, struct side *side, struct end *end)
{
	memset(side, 0, sizeof(*side));
	side->end = end;
	side->ep.ctx = &end->core;
	side->ep.ops = bench->ops;
}

void pair_make(struct bench *bench, struct side *x, struct end *xend,
	       struct side *y, struct end *yend)
{
	struct conn_info info = {.rank = 1, .generation = ++bench->generation};
	struct blob offer, answer;

	side_init(bench, x, xend);
	side_init(bench, y, yend);
	CHECK(!bench->ops->conn_create(xend->pctx, &info, &yend->address,
				       &x->ep.conn, &offer));
	info.rank = 0;
	info.self_rank = 1;
	CHECK(!bench->ops->conn_accept(yend->pctx, &info, &xend->address,
				       &offer, &y->ep.conn, &answer));
	CHECK(!bench->ops->conn_finish(x->ep.conn, &answer));
}

void side_attach(struct side *side)
{
	CHECK(!side->ep.ops->conn_attach(side->ep.conn, &side->ep));
}

void pair_connect(struct bench *bench, struct side *x, struct end *xend,
		  struct side *y, struct end *yend)
{
	pair_make(bench, x, xend, y, yend);
	side_attach(x);
	side_attach(y);
}

void self_connect(struct bench *bench, struct side *x, struct end *end)
{
	struct conn_info info = {.generation = ++bench->generation,
				 .self = true};
	struct blob offer;

	side_init(bench, x, end);
	CHECK(!bench->ops->conn_create(end->pctx, &info, &end->address,
				       &x->ep.conn, &offer));
	CHECK(!bench->ops->conn_finish(x->ep.conn, &offer));
	side_attach(x);
}

void side_close(struct side *side, int status)
{
	void *conn = side->ep.conn;

	side->ep.conn = NULL;
	if (conn)
		side->ep.ops->conn_close(conn, status);
}

int side_put(struct bench *bench, struct side *side, struct vbn_op *op,
	     const struct region *from, size_t len, const struct region *to,
	     bool notify, uint32_t imm, bool more)
{
	struct put_args args = {.len = len,
				.notify = notify,
				/* channel 0 is the library's own */
				.imm = imm | 1u << 28,
				.more = more};
	int err = -ECONNRESET;

	if (len) {
		args.local = from->mem.addr;
		args.mem = &from->mem;
		args.mem_handle = from->handle;
		args.remote = (uintptr_t)to->mem.addr;
		args.key = (void *)(uintptr_t)&to->announce;
	}
	while (side->ep.conn) {
		err = bench->ops->put(side->ep.conn, op, &args);
		if (err != -EAGAIN)
			return err;
		bench_progress(bench);
	}
	return err;
}

int side_get(struct bench *bench, struct side *side, struct vbn_op *op,
	     const struct region *into, size_t len, const struct region *from)
{
	struct get_args args = {
		.local = into->mem.addr,
		.len = len,
		.mem = &into->mem,
		.mem_handle = into->handle,
		.remote = (uintptr_t)from->mem.addr,
		.key = (void *)(uintptr_t)&from->announce,
	};
	int err;

	while ((err = bench->ops->get(side->ep.conn, op, &args)) == -EAGAIN)
		bench_progress(bench);
	return err;
}
