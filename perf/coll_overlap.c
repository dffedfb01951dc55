/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How much of a call is hidden by computing between its start and the wait for
 * it: the call alone, computing alone (for as long), and both together, without
 * and with a progress thread in turns.
 */
#include "coll.h"
#include "stats.h"

/* Turns, of which the medians count; and seconds of each of a turn's loops. */
#define ROUNDS	5
#define SECONDS 0.02

enum way { WITHOUT, WITH, WAYS };

/* What the loops do: the call, computing, both. */
struct work {
	const struct coll_loop *call;
	struct coll_run *run;
	uint64_t units; /* of computing */
};

/* Seconds of each, of one round. */
struct round {
	double alone[WAYS], computing[WAYS], both[WAYS];
};

static uint64_t computed;

/* Arithmetic that depends on what came before, about 1 ns a unit. */
static void compute(uint64_t units)
{
	uint64_t x = computed;

	for (uint64_t i = 0; i < units; i++) {
		x = x * UINT64_C(6364136223846793005) + 1;
		__asm__ volatile("" : "+r"(x));
	}
	computed = x;
}

/* Units that this processor does in a second, when it is not disturbed. */
static double units_per_second(void)
{
	const uint64_t units = 1000000;
	double least = 1e9;

	for (int i = 0; i < 5; i++) {
		double start = coll_loop_now(), took;

		compute(units);
		took = coll_loop_now() - start;
		if (took < least)
			least = took;
	}
	return (double)units / least;
}

static int barrier(void *self)
{
	const struct work *w = self;

	return w->call->barrier(w->call->self);
}

static int largest(void *self, double mine, double *most)
{
	const struct work *w = self;

	return w->call->largest(w->call->self, mine, most);
}

static int only_compute(void *self)
{
	const struct work *w = self;

	compute(w->units);
	return 0;
}

static int both(void *self)
{
	const struct work *w = self;
	int rc = vbn_coll_start(w->run->coll);

	compute(w->units);
	return rc ? rc : vbn_coll_wait(w->run->coll, PERF_WAIT_MS);
}

/* Seconds of one of @n. */
static int run(const struct coll_loop *loop, size_t n, double *each)
{
	int rc = coll_loop_run(loop, n, each);

	*each /= (double)n;
	return rc;
}

static int one_way(struct perf *p, struct work *w, enum way way, size_t n,
		   struct round *round)
{
	struct coll_loop loop = {
		.barrier = barrier, .largest = largest, .self = w};
	int rc = way == WITH ? vbn_coll_thread_start(p->ctx, NULL) : 0;

	if (rc == 0)
		rc = run(w->call, n, &round->alone[way]);
	loop.call = only_compute;
	if (rc == 0)
		rc = run(&loop, n, &round->computing[way]);
	loop.call = both;
	if (rc == 0)
		rc = run(&loop, n, &round->both[way]);
	vbn_coll_thread_stop(p->ctx);
	return rc;
}

/* By the call's time without a thread, whose cost so counts against it. */
static double hidden(const struct round *r, enum way way)
{
	double alone = r->alone[WITHOUT], computing = r->computing[way];
	double least = alone < computing ? alone : computing;
	double part = (alone + computing - r->both[way]) / least;

	return part < 0 ? 0 : part > 1 ? 1 : part;
}

static double median(double *values, size_t n)
{
	struct stats stats;

	stats_of(&stats, values, n);
	return stats.typical;
}

static void conclude(const struct round *rounds, struct coll_result *r)
{
	double alone[ROUNDS], computing[ROUNDS], together[ROUNDS], part[ROUNDS];

	for (int way = 0; way < WAYS; way++) {
		for (int i = 0; i < ROUNDS; i++) {
			alone[i] = rounds[i].alone[way];
			computing[i] = rounds[i].computing[way];
			together[i] = rounds[i].both[way];
			part[i] = hidden(&rounds[i], (enum way)way);
		}
		r->overlap[way] = (struct coll_overlap){
			.alone = median(alone, ROUNDS),
			.computing = median(computing, ROUNDS),
			.both = median(together, ROUNDS),
			.hidden = median(part, ROUNDS),
		};
	}
	r->seconds = r->overlap[WITHOUT].alone;
}

int coll_overlap_time(struct perf *p, struct coll_run *coll,
		      const struct coll_loop *call, struct coll_result *r)
{
	struct round rounds[ROUNDS];
	struct work w = {.call = call, .run = coll};
	size_t n = call->calls;
	double each;
	int rc = coll_loop_warm(call, SECONDS, &each);

	if (rc == 0)
		rc = run(call, 2, &each);
	if (rc != 0)
		return rc;
	if (n == COLL_LOOP_AUTO)
		n = SECONDS / each < 2 ? 2 : (size_t)(SECONDS / each);
	rc = run(call, n, &each);
	w.units = (uint64_t)(each * units_per_second()) + 1;
	for (int i = 0; i < ROUNDS && rc == 0; i++) {
		enum way first = i % 2 ? WITH : WITHOUT;

		rc = one_way(p, &w, first, n, &rounds[i]);
		if (rc == 0)
			rc = one_way(p, &w, first == WITH ? WITHOUT : WITH, n,
				     &rounds[i]);
	}
	r->calls = n * ROUNDS;
	if (rc == 0)
		conclude(rounds, r);
	return rc;
}
