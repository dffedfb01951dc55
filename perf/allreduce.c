/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * allreduce: sum of float32 over all ranks, with nccl-tests' columns. Time is
 * per call, of the slowest rank. algbw is bytes over time, busbw what a ring
 * would put on each link; GB are 10^9 bytes. #wrong counts the elements, over
 * all ranks, that are not exactly the sum: inputs are small integers, so every
 * order of adding gives the same bits.
 */
#include "perf.h"
#include "stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define SMALLEST 8
#define LARGEST	 (64u << 20)

struct sum {
	struct vbn_comm *comm;
	float *in, *out;
	bool heading;
};

/* Rank r's element i; sums of these stay far below 2^24. */
static float input(size_t i, int rank)
{
	return (float)((i + 3 * (size_t)rank) % 17) + (float)(rank % 5);
}

static float expected(size_t i, int nranks)
{
	float sum = 0;

	for (int r = 0; r < nranks; r++)
		sum += input(i, r);
	return sum;
}

/* The largest of all ranks' numbers, by the job's store of what each has. */
static int gather_max(struct sum *s, struct perf *p, double mine, double wrong,
		      double *slowest, double *all_wrong)
{
	double *slots =
		s->comm ? calloc((size_t)p->nranks * 2, sizeof(double)) : NULL;
	int rc;

	if (!slots)
		return -ENOMEM;
	slots[2 * p->rank] = mine;
	slots[2 * p->rank + 1] = wrong;
	rc = vbn_allreduce(s->comm, slots, slots, (size_t)p->nranks * 2,
			   VBN_FLOAT64, VBN_SUM, PERF_WAIT_MS);
	*slowest = 0;
	*all_wrong = 0;
	for (int r = 0; r < p->nranks; r++) {
		if (slots[2 * r] > *slowest)
			*slowest = slots[2 * r];
		*all_wrong += slots[2 * r + 1];
	}
	free(slots);
	return rc;
}

static size_t iterations(const struct perf *p, size_t bytes)
{
	if (p->opts.iterations)
		return p->opts.iterations;
	return bytes <= 1u << 20 ? 100 : bytes <= 16u << 20 ? 20 : 5;
}

static int run_calls(struct vbn_coll *coll, size_t n)
{
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		rc = vbn_coll_start(coll);
		if (rc == 0)
			rc = vbn_coll_wait(coll, PERF_WAIT_MS);
	}
	return rc;
}

static int timed(struct sum *s, struct perf *p, size_t count, double *seconds)
{
	struct vbn_coll_options opts = {.size = sizeof(opts),
					.algorithm = p->opts.algorithm};
	size_t n = iterations(p, count * sizeof(float));
	size_t warmup =
		p->opts.warmup == SIZE_MAX ? n / 10 + 1 : p->opts.warmup;
	struct vbn_coll *coll;
	double start;
	int rc = vbn_allreduce_init(s->comm, s->in, s->out, count, VBN_FLOAT32,
				    VBN_SUM, &opts, &coll);

	if (rc != 0)
		return rc;
	rc = run_calls(coll, warmup);
	for (size_t i = 0; i < count; i++)
		s->out[i] = -1; /* what is not written must be found out */
	if (rc == 0)
		rc = vbn_barrier(s->comm, PERF_WAIT_MS);
	start = perf_now();
	if (rc == 0)
		rc = run_calls(coll, n);
	*seconds = (perf_now() - start) / (double)n;
	vbn_coll_free(coll);
	return rc;
}

static void heading(struct sum *s, const struct perf *p)
{
	if (s->heading || p->rank != 0)
		return;
	s->heading = true;
	printf("verbena-perf allreduce: %d rank%s\n", p->nranks,
	       p->nranks == 1 ? "" : "s");
	printf("#%11s %12s %8s %6s %10s %8s %8s %8s\n", "size", "count", "type",
	       "redop", "time", "algbw", "busbw", "#wrong");
	printf("#%11s %12s %8s %6s %10s %8s %8s\n", "(B)", "(elements)", "", "",
	       "(us)", "(GB/s)", "(GB/s)");
	fflush(stdout);
}

static void report(struct perf *p, size_t count, double seconds, double wrong)
{
	size_t bytes = count * sizeof(float);
	double alg = (double)bytes / seconds / 1e9;
	double bus = stats_allreduce_bus(alg, p->nranks);
	cJSON *o = cJSON_CreateObject();
	char found[32] = "N/A";

	if (p->opts.check)
		snprintf(found, sizeof(found), "%.0f", wrong);
	printf(" %11zu %12zu %8s %6s %10.2f %8.3f %8.3f %8s\n", bytes, count,
	       "float", "sum", seconds * 1e6, alg, bus, found);
	fflush(stdout);
	cJSON_AddNumberToObject(o, "bytes", (double)bytes);
	cJSON_AddNumberToObject(o, "count", (double)count);
	cJSON_AddStringToObject(o, "type", "float");
	cJSON_AddStringToObject(o, "redop", "sum");
	cJSON_AddNumberToObject(o, "time_us", seconds * 1e6);
	cJSON_AddNumberToObject(o, "algbw_gb_s", alg);
	cJSON_AddNumberToObject(o, "busbw_gb_s", bus);
	if (p->opts.check)
		cJSON_AddNumberToObject(o, "wrong", wrong);
	perf_result(p, o);
}

static int one_size(struct perf *p, size_t size, void *arg)
{
	struct sum *s = arg;
	size_t count = size / sizeof(float);
	double mine, slowest, wrong = 0, all_wrong;
	int rc;

	if (count == 0)
		return perf_fail(-EINVAL, "-s %zu: at least 4 bytes", size);
	heading(s, p);
	rc = timed(s, p, count, &mine);
	if (rc == 0 && p->opts.check)
		wrong = (double)stats_wrong(s->out, count, expected, p->nranks);
	if (rc == 0)
		rc = gather_max(s, p, mine, wrong, &slowest, &all_wrong);
	if (rc != 0)
		return perf_failed(rc, "allreduce");
	if (p->rank == 0)
		report(p, count, slowest, all_wrong);
	if (all_wrong > 0)
		return perf_fail(-EBADMSG, "%.0f elements are wrong",
				 all_wrong);
	return 0;
}

int perf_allreduce(struct perf *p)
{
	size_t bytes = p->opts.size  ? p->opts.size
		       : p->opts.all ? LARGEST
				     : 1u << 20;
	struct sum s = {0};
	int rc;

	s.in = vbn_pool_alloc(p->pool, bytes, 4096);
	s.out = vbn_pool_alloc(p->pool, bytes, 4096);
	if (!s.in || !s.out)
		return perf_failed(-ENOMEM, "allocating buffers");
	for (size_t i = 0; i < bytes / sizeof(float); i++)
		s.in[i] = input(i, p->rank);
	rc = vbn_comm_create(&s.comm, p->ctx, NULL, 0, NULL);
	if (rc != 0)
		return perf_failed(rc, "creating a communicator");
	rc = perf_sizes(p, SMALLEST, LARGEST, 1u << 20, one_size, &s);
	if (rc == 0)
		rc = vbn_barrier(s.comm, PERF_WAIT_MS);
	vbn_comm_free(s.comm);
	return rc;
}
