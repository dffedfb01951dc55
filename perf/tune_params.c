/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The model's parameters (collectives/cost.h), from measurements that differ
 * by one of them. Each is made many times, in turns, as short as can be, and
 * the shortest counts: on a machine that others use, too, some fall between
 * theirs.
 */
#include "tune.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#define SECONDS 2e-3 /* of one measurement */
#define PASSES	40
/* By which rates are measured: one message, in a cache, or many of PIECE. */
#define BLOCK ((size_t)128 << 10)
#define PIECE ((size_t)512)
/* A sum's share of what putting and summing take is between these. */
#define SHARE_LEAST 0.25
#define SHARE_MOST  0.75

/* Seconds that a pair of ranks, or one, takes; of BLOCK unless it is said. */
struct figures {
	double oneshot, doubling; /* of 8 bytes: without, with the executor */
	double oneshot_block, sharded, sharded_block;
	double whole, cut; /* a broadcast, in one message and in PIECEs */
	double copied;
};

struct measurement {
	enum coll_op op;
	size_t bytes;
	enum vbn_algorithm algorithm;
	size_t chunk;
	double *seconds; /* 0 at first */
};

static int measure(struct coll_run *run, const struct measurement *all,
		   size_t n)
{
	int rc = 0;

	for (int pass = 0; pass < PASSES && rc == 0; pass++)
		for (size_t i = 0; i < n && rc == 0; i++) {
			tune_shape(run, all[i].op, all[i].bytes);
			rc = tune_shorten(run, all[i].algorithm, all[i].chunk,
					  SECONDS, all[i].seconds);
		}
	return rc;
}

static int measure_pair(struct coll_run *run, struct figures *f)
{
	const struct measurement all[] = {
		{COLL_ALLREDUCE, 8, VBN_ALGORITHM_ONESHOT, 0, &f->oneshot},
		{COLL_ALLREDUCE, 8, VBN_ALGORITHM_DOUBLING, 0, &f->doubling},
		{COLL_ALLREDUCE, 8, VBN_ALGORITHM_SHARDED, 0, &f->sharded},
		{COLL_ALLREDUCE, BLOCK, VBN_ALGORITHM_ONESHOT, BLOCK,
		 &f->oneshot_block},
		{COLL_ALLREDUCE, BLOCK, VBN_ALGORITHM_SHARDED, BLOCK,
		 &f->sharded_block},
		{COLL_BROADCAST, BLOCK, VBN_ALGORITHM_LINEAR, BLOCK, &f->whole},
		{COLL_BROADCAST, BLOCK, VBN_ALGORITHM_LINEAR, PIECE, &f->cut},
	};

	return measure(run, all, sizeof(all) / sizeof(*all));
}

static int measure_copy(struct coll_run *run, struct figures *f)
{
	const struct measurement copy = {COLL_ALLREDUCE, BLOCK,
					 VBN_ALGORITHM_AUTO, 0, &f->copied};

	return measure(run, &copy, 1);
}

/* By ranks 0 and @other; the others learn it. @other 0: rank 0's copying. */
static int measure_some(struct perf *perf, const struct coll_run *all,
			int other, struct figures *f)
{
	struct coll_run run = *all;
	struct figures mine = {0};
	int members[] = {0, other}, rc = 0;

	run.comm = NULL;
	if (perf->rank == 0 || perf->rank == other)
		rc = vbn_comm_create(&run.comm, perf->ctx, members,
				     other ? 2 : 1, NULL);
	if (rc == 0 && run.comm) {
		rc = other ? measure_pair(&run, &mine)
			   : measure_copy(&run, &mine);
		vbn_comm_free(run.comm);
	}
	if (rc != 0)
		return rc;
	return vbn_allreduce(all->comm, &mine, f, sizeof(*f) / sizeof(double),
			     VBN_FLOAT64, VBN_MAX, PERF_WAIT_MS);
}

/* More than nothing, which would not be written. */
static double at_least(double seconds, double least)
{
	return seconds > least ? seconds : least;
}

/*
 * Of BLOCK bytes each rank puts and sums all in oneshot, and puts all and sums
 * half in sharded. Each reads what the other has put, as real calls do.
 */
static void take_rates(const struct figures *f, double *beta, double *gamma)
{
	double all = at_least((f->oneshot_block - f->oneshot) / BLOCK, 1e-12);
	double half = (f->sharded_block - f->sharded) / BLOCK;

	*gamma = 2 * (all - half);
	if (*gamma < SHARE_LEAST * all)
		*gamma = SHARE_LEAST * all;
	if (*gamma > SHARE_MOST * all)
		*gamma = SHARE_MOST * all;
	*beta = all - *gamma;
}

/* @handlers: ranks of which a message takes overhead, one after the other. */
static void take_pair(struct tune_params *p, struct tune_link *link,
		      const struct figures *f, int handlers)
{
	double pieces = (double)BLOCK / PIECE;

	take_rates(f, &link->beta, &p->gamma);
	link->overhead = at_least((f->cut - f->whole) / (pieces - 1), 1e-9);
	if (link->overhead > f->oneshot / (1 + handlers))
		link->overhead = f->oneshot / (1 + handlers);
	link->alpha = at_least(f->oneshot - handlers * link->overhead, 1e-8);
	p->call = at_least(f->doubling - f->oneshot, 1e-8);
}

/* What a round of all of a host takes more than a pair's: see cost.h. */
static int take_wake(struct tune_params *p, const struct coll_run *all, int n)
{
	double turns = (double)n / p->processors;
	struct coll_run run = *all;
	unsigned rounds = 0;
	double barrier = 0;
	const struct measurement one = {COLL_BARRIER, 0, VBN_ALGORITHM_AUTO, 0,
					&barrier};
	int rc = measure(&run, &one, 1);

	while (1 << rounds < n)
		rounds++;
	p->wake = at_least(((barrier - p->call) / rounds - p->local.alpha -
			    2 * p->local.overhead) /
				   turns,
			   1e-8);
	return rc;
}

static int count_processors(const struct coll_run *all, int *processors)
{
	int here = (int)sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;

	/* A rank that is bound to one has the host's for its host's ranks. */
	if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 1)
		here = CPU_COUNT(&set);
	return vbn_allreduce(all->comm, &here, processors, 1, VBN_INT32,
			     VBN_MIN, PERF_WAIT_MS);
}

/* The first rank that is on rank 0's host, or is not; 0: none. */
static int partner(const int *hosts, int n, bool same)
{
	for (int i = 1; i < n; i++)
		if ((hosts[i] == hosts[0]) == same)
			return i;
	return 0;
}

static int measure_links(struct perf *perf, const struct coll_run *run,
			 struct tune_params *p, const int *hosts)
{
	struct figures f;
	int n = perf->nranks, rc = 0;

	/* Within a host last: a processor that sums and copies in turns. */
	for (int same = 0; same <= 1 && rc == 0; same++) {
		int other = partner(hosts, n, same);

		if (!other)
			continue;
		rc = measure_some(perf, run, other, &f);
		if (rc == 0)
			take_pair(p, same ? &p->local : &p->net, &f, 1 + same);
	}
	if (rc == 0 && n == 1) {
		rc = measure_some(perf, run, 0, &f);
		p->gamma = at_least(f.copied / BLOCK, 1e-13);
	}
	return rc;
}

int tune_params(struct perf *perf, const struct coll_run *run,
		struct tune_params *params, int *hosts)
{
	int n = perf->nranks, rc;
	int *host = calloc((size_t)n, sizeof(int));

	*params = (struct tune_params){0};
	if (!host)
		return -ENOMEM;
	*hosts = vbn_job_hosts(perf->job, NULL, n, host, PERF_WAIT_MS);
	rc = *hosts < 0 ? *hosts : count_processors(run, &params->processors);
	if (rc == 0)
		rc = measure_links(perf, run, params, host);
	if (rc == 0 && *hosts == 1 && n > params->processors)
		rc = take_wake(params, run, n);
	free(host);
	return rc;
}
