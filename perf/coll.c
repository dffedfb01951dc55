/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives, as nccl-tests measures them: persistent calls back to back, out
 * of place, in buffers of the library's pool or, to see what that costs,
 * others. The loop is coll_loop.h's. Each size's result is checked by one more
 * call, on a spoilt output.
 */
#include "coll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 4096

struct measurement {
	struct perf *perf;
	struct coll_run run;
};

int coll_run_init(struct coll_run *m, const struct vbn_coll_options *opts)
{
	size_t n = m->shape.count;

	switch (m->shape.op) {
	case COLL_ALLREDUCE:
		return vbn_allreduce_init(m->comm, m->in, m->out, n, m->type,
					  m->reduction, opts, &m->coll);
	case COLL_REDUCE:
		return vbn_reduce_init(m->comm, m->in, m->out, n, m->type,
				       m->reduction, 0, opts, &m->coll);
	case COLL_BROADCAST:
		return vbn_broadcast_init(m->comm, m->out, n, m->type, 0, opts,
					  &m->coll);
	case COLL_ALLGATHER:
		return vbn_allgather_init(m->comm, m->in, m->out, n, m->type,
					  opts, &m->coll);
	case COLL_REDUCE_SCATTER:
		return vbn_reduce_scatter_init(m->comm, m->in, m->out, n,
					       m->type, m->reduction, opts,
					       &m->coll);
	case COLL_ALLTOALL:
		return vbn_alltoall_init(m->comm, m->in, m->out, n, m->type,
					 opts, &m->coll);
	case COLL_GATHER:
		return vbn_gather_init(m->comm, m->in, m->out, n, m->type, 0,
				       opts, &m->coll);
	case COLL_SCATTER:
		return vbn_scatter_init(m->comm, m->in, m->out, n, m->type, 0,
					opts, &m->coll);
	case COLL_BARRIER:
		break;
	}
	return vbn_barrier_init(m->comm, opts, &m->coll);
}

/* ---- what the loop calls ---- */

static int barrier(void *self)
{
	struct coll_run *m = self;

	return vbn_barrier(m->comm, PERF_WAIT_MS);
}

static int call(void *self)
{
	struct coll_run *m = self;
	int rc = vbn_coll_start(m->coll);

	if (rc == 0)
		rc = vbn_coll_wait(m->coll, PERF_WAIT_MS);
	return rc == 0 && m->meets ? barrier(m) : rc;
}

static int largest(void *self, double mine, double *most)
{
	struct coll_run *m = self;

	return vbn_allreduce(m->comm, &mine, most, 1, VBN_FLOAT64, VBN_MAX,
			     PERF_WAIT_MS);
}

struct coll_loop coll_run_loop(struct coll_run *run)
{
	return (struct coll_loop){
		.call = call,
		.barrier = barrier,
		.largest = largest,
		.self = run,
		.warmup = COLL_LOOP_AUTO,
		.calls = COLL_LOOP_AUTO,
	};
}

static size_t or_auto(size_t number)
{
	return number == PERF_UNSET ? COLL_LOOP_AUTO : number;
}

/* ---- one size ---- */

/* *wrong is of all ranks. */
static int check(struct coll_run *m, double *wrong)
{
	size_t bytes = m->shape.out * vbn_type_bytes(m->type);
	double mine;
	int rc;

	memset(m->out, 0xff, bytes);
	if (m->shape.op == COLL_BROADCAST && m->shape.rank == 0)
		coll_fill(m->out, m->shape.out, m->type, m->reduction, 0);
	rc = call(m);
	if (rc != 0)
		return rc;
	mine = (double)coll_wrong(m->out, &m->shape, m->type, m->reduction);
	return vbn_allreduce(m->comm, &mine, wrong, 1, VBN_FLOAT64, VBN_SUM,
			     PERF_WAIT_MS);
}

static int measure(struct measurement *m, struct coll_result *r)
{
	const struct perf_options *o = &m->perf->opts;
	const struct vbn_coll_options opts = {
		.size = sizeof(opts),
		.algorithm = (enum vbn_algorithm)o->algorithm,
		.chunk = o->chunk == PERF_UNSET ? 0 : o->chunk,
	};
	struct coll_loop loop = coll_run_loop(&m->run);
	int rc = coll_run_init(&m->run, &opts);

	if (rc != 0)
		return rc;
	loop.warmup = or_auto(o->warmup);
	loop.calls = or_auto(o->iterations);
	rc = o->overlap ? coll_overlap_time(m->perf, &m->run, &loop, r)
			: coll_loop_time(&loop, &r->seconds, &r->calls);
	if (rc == 0 && o->check && r->shape.op != COLL_BARRIER)
		rc = check(&m->run, &r->wrong);
	vbn_coll_free(m->run.coll);
	return rc;
}

static struct coll_shape shape_of(const struct perf *p, size_t bytes)
{
	size_t each = vbn_type_bytes((enum vbn_type)p->opts.type);

	return coll_shape_of(p->opts.test->coll, p->rank, p->nranks,
			     bytes / each);
}

static int one_size(struct measurement *m, size_t bytes)
{
	struct perf *p = m->perf;
	struct coll_result r = {.shape = shape_of(p, bytes)};
	size_t larger = r.shape.in > r.shape.out ? r.shape.in : r.shape.out;
	int rc;

	r.bytes = larger * vbn_type_bytes(m->run.type);
	m->run.shape = r.shape;
	rc = measure(m, &r);
	if (rc != 0)
		return perf_failed(rc, p->opts.test->name);
	coll_report(p, &r);
	if (r.wrong > 0)
		return perf_fail(-EBADMSG, "%.0f elements are wrong", r.wrong);
	return 0;
}

/* ---- all sizes ---- */

/* Touched, so that no call meets a page fault. */
static void *buffer(const struct perf *p, size_t elements)
{
	size_t bytes = elements * vbn_type_bytes((enum vbn_type)p->opts.type);
	size_t room = (bytes / PAGE + 1) * PAGE;
	void *b = p->opts.malloc ? aligned_alloc(PAGE, room)
				 : vbn_pool_alloc(p->pool, room, PAGE);

	if (b)
		memset(b, 0, room);
	return b;
}

static void release(const struct perf *p, void *b)
{
	if (p->opts.malloc)
		free(b);
	else
		vbn_pool_free(p->pool, b);
}

static int all_sizes(struct measurement *m)
{
	struct perf *p = m->perf;
	size_t sizes[PERF_SIZES_MAX], n = perf_sizes(&p->opts, sizes);
	struct coll_shape most = shape_of(p, sizes[n - 1]);
	int rc;

	m->run.in = buffer(p, most.in);
	m->run.out = buffer(p, most.out);
	if (!m->run.in || !m->run.out)
		return perf_failed(-ENOMEM, "allocating buffers");
	coll_fill(m->run.in, most.in, m->run.type, m->run.reduction, p->rank);
	rc = vbn_comm_create(&m->run.comm, p->ctx, NULL, 0, NULL);
	if (rc != 0)
		return perf_failed(rc, "creating a communicator");
	report_start(&p->report, "", NULL, p->nranks);
	coll_heading(p);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = one_size(m, sizes[i]);
	if (rc == 0)
		rc = vbn_barrier(m->run.comm, PERF_WAIT_MS);
	vbn_comm_free(m->run.comm);
	return rc;
}

int perf_coll(struct perf *p)
{
	struct measurement m = {
		.perf = p,
		.run = {.type = (enum vbn_type)p->opts.type,
			.reduction = (enum vbn_reduction)p->opts.reduction},
	};
	int rc = all_sizes(&m);

	/* After a failure others may still write here; the process ends. */
	if (rc != 0)
		return rc;
	release(p, m.run.in);
	release(p, m.run.out);
	return 0;
}
