/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The measuring loop of collectives, the same for verbena-perf and for the
 * libraries that perf/compare-collectives compares it with (C and C++): a
 * warm-up, a barrier, then calls back to back. The time of a call is that of
 * the slowest rank, over the number of calls.
 */
#ifndef PERF_COLL_LOOP_H
#define PERF_COLL_LOOP_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define COLL_LOOP_AUTO SIZE_MAX
/* Seconds that the timed calls take when no number of calls is given. */
#define COLL_LOOP_SECONDS 0.15

/* Calls that may take much longer than those after them. */
#define COLL_LOOP_FIRST 2

/* What is timed. Each function is called on all ranks; 0 or an error. */
struct coll_loop {
	int (*call)(void *self);
	int (*barrier)(void *self);
	/* The largest of all ranks' numbers, the same on each. */
	int (*largest)(void *self, double mine, double *most);
	void *self;
	size_t warmup, calls; /* COLL_LOOP_AUTO: by time */
	double seconds;	      /* with calls by time; 0: COLL_LOOP_SECONDS */
};

static inline double coll_loop_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/*
 * Sums of real data are rounded, those of the values here, which can be
 * checked, never; and until one was (the processor keeps a flag), an emulated
 * processor adds at a third of its speed.
 */
static inline void coll_loop_round(void)
{
	volatile float one = 1, small = 1e-20f, sum;

	sum = one + small;
	(void)sum;
}

/* Seconds that @n calls take on the slowest rank. */
static inline int coll_loop_run(const struct coll_loop *l, size_t n,
				double *seconds)
{
	int rc = l->barrier(l->self);
	double start = coll_loop_now();

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = l->call(l->self);
	if (rc != 0)
		return rc;
	return l->largest(l->self, coll_loop_now() - start, seconds);
}

/*
 * Warm up: l->warmup calls; by time, what first calls set up, and then twice as
 * many each time until they take a fifth of what is to be timed. *each: seconds
 * of a call of the last of these.
 */
static inline int coll_loop_warm(const struct coll_loop *l, double wanted,
				 double *each)
{
	size_t n = l->warmup == COLL_LOOP_AUTO ? 1 : l->warmup;
	double took = 0;
	int rc = 0;

	if (l->warmup == COLL_LOOP_AUTO)
		rc = coll_loop_run(l, COLL_LOOP_FIRST, &took);
	while (rc == 0 && (rc = coll_loop_run(l, n, &took)) == 0 &&
	       l->warmup == COLL_LOOP_AUTO && took < wanted / 5)
		n *= 2;
	*each = n ? took / (double)n : 0;
	return rc;
}

/* The whole: *each is seconds of a call, *calls how many were timed. */
static inline int coll_loop_time(const struct coll_loop *l, double *each,
				 size_t *calls)
{
	double wanted = l->seconds > 0 ? l->seconds : COLL_LOOP_SECONDS;
	double guess, took = 0;
	size_t n = l->calls;
	int rc;

	coll_loop_round();
	rc = coll_loop_warm(l, wanted, &guess);
	if (rc == 0 && n == COLL_LOOP_AUTO && guess == 0)
		rc = coll_loop_run(l, 1, &guess);
	if (rc != 0)
		return rc;
	if (n == COLL_LOOP_AUTO)
		n = wanted / guess < 2 ? 2 : (size_t)(wanted / guess);
	rc = coll_loop_run(l, n, &took);
	*each = took / (double)n;
	*calls = n;
	return rc;
}

#endif
