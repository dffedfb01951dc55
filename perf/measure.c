/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a test goes: sizes, warm-up, rounds in which the methods take turns (so
 * that a drift of the machine meets all of them alike), statistics. Rank 0
 * decides how many iterations a turn has and says so when the ranks meet.
 */
#include "check.h"
#include "perf.h"
#include "raw_open.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * A rank that only waits takes more than PERF_WAIT_MS of silence for a
 * failure: turns are shorter by far.
 */
#define LONGEST_TURN 5.0

/* What is known of one method at one size. */
struct series {
	struct samples samples; /* latency */
	struct histogram histogram;
	double peak, seconds; /* bandwidth */
	size_t iterations;
	double *rounds;
	size_t nrounds;
	struct tally tally;
};

struct measure {
	struct perf *p;
	struct series series[2];
	struct turn turn;
	size_t room; /* of the turn's arrays */
	double *scratch;
	bool counted; /* no warm-up */
	size_t done;  /* iterations since it began */
	double since; /* when that was */
	double each;  /* seconds, all methods' together; 0: not known */
};

/* What a rank that streams tells rank 0 of a turn. */
struct outcome {
	double seconds, peak;
};

int perf_compare(const struct perf *p, const uint8_t *data, size_t len,
		 uint64_t seed, size_t iteration)
{
	size_t at = check_find(data, len, seed);

	if (at == len)
		return 0;
	return perf_fail(-EBADMSG,
			 "rank %d: wrong data in iteration %zu: byte %zu is "
			 "0x%02x instead of 0x%02x",
			 p->rank, iteration, at, data[at],
			 check_byte(at, seed));
}

/* ---- one turn ---- */

static int make_room(struct measure *m, size_t n)
{
	if (n <= m->room)
		return 0;
	free(m->turn.posted);
	free(m->turn.completed);
	free(m->scratch);
	m->turn.posted = calloc(n + 1, sizeof(uint64_t));
	m->turn.completed = calloc(n + 1, sizeof(uint64_t));
	m->scratch = calloc(2 * n, sizeof(double));
	m->room = n;
	if (!m->turn.posted || !m->turn.completed || !m->scratch)
		return perf_fail(-ENOMEM, "no memory for %zu samples", n);
	/* their pages are not to be made while the clock runs */
	memset(m->turn.posted, 1, (n + 1) * sizeof(uint64_t));
	memset(m->turn.completed, 1, (n + 1) * sizeof(uint64_t));
	return 0;
}

static int take_latencies(struct measure *m, struct series *s)
{
	const struct turn *t = &m->turn;
	double unit = perf_tick_seconds() * (perf_ping_pong(m->p) ? 0.5 : 1);
	int rc = 0;

	for (size_t i = 0; i < t->n && rc == 0; i++) {
		double v = (double)(t->posted[i + 1] - t->posted[i]) * unit;

		m->scratch[i] = v;
		rc = samples_add(&s->samples, v);
		if (m->p->opts.histogram)
			histogram_add(&s->histogram, v);
	}
	s->iterations += t->n;
	s->rounds[s->nrounds++] = stats_median(m->scratch, t->n);
	return rc ? perf_fail(rc, "no memory for samples") : 0;
}

static struct outcome outcome_of(struct measure *m)
{
	const struct turn *t = &m->turn;
	double *posted = m->scratch, *completed = m->scratch + t->n;
	double unit = perf_tick_seconds();
	struct outcome o = {0};

	if (!perf_active(m->p))
		return o;
	for (size_t i = 0; i < t->n; i++) {
		posted[i] = (double)(t->posted[i] - t->posted[0]) * unit;
		completed[i] = (double)(t->completed[i] - t->posted[0]) * unit;
	}
	o.seconds = (double)(t->end - t->posted[0]) * unit;
	o.peak = stats_peak_rate(posted, completed, t->n,
				 m->p->opts.depth * m->p->opts.qps);
	return o;
}

/* All streams' rates are added, as perftest does with its two. */
static void take_bandwidth(struct measure *m, struct series *s,
			   const struct outcome *ours,
			   const struct outcome *theirs)
{
	size_t n = m->turn.n;
	double rate = (double)n / ours->seconds, peak = ours->peak;

	if (m->p->opts.bidirectional) {
		for (int k = 0; k < m->p->nranks - 1; k++) {
			rate += (double)n / theirs[k].seconds;
			peak += theirs[k].peak;
		}
		n *= (size_t)m->p->nranks;
	}
	if (peak < rate)
		peak = rate; /* fewer operations than the depth */
	if (peak > s->peak)
		s->peak = peak;
	s->iterations += n;
	s->seconds += (double)n / rate;
	s->rounds[s->nrounds++] = rate;
}

static void count(struct measure *m, struct series *s, int sign)
{
	const struct perf *p = m->p;

	for (size_t i = 0; i < p->nctxs; i++) {
		struct vbn_counters c;

		vbn_ctx_counters(p->ctxs[i], &c);
		s->tally.doorbells += (uint64_t)sign * c.doorbells;
		s->tally.again += (uint64_t)sign * c.again;
		s->tally.staged_bytes += (uint64_t)sign * c.staged_bytes;
		s->tally.copied_bytes += (uint64_t)sign * c.copied_bytes;
		s->tally.sleeps += (uint64_t)sign * c.sleeps;
		s->tally.completions += (uint64_t)sign * c.completions;
	}
	s->tally.events += (uint64_t)sign * p->events;
	s->tally.sleeps += (uint64_t)sign * p->sleeps;
	s->tally.operations += sign > 0 ? m->turn.n : 0;
}

/* Method @k runs @n iterations. */
static int one_turn(struct measure *m, size_t k, size_t n)
{
	const struct method *method = &m->p->methods[k];
	struct series *s = &m->series[k];
	struct outcome ours, theirs[PERF_RING_MAX];
	int rc;

	m->turn.n = n;
	m->turn.seed++;
	if (m->p->opts.validate)
		method->prepare(method->self, &m->turn);
	rc = perf_meet(m->p, NULL, NULL, 0);
	if (rc == 0 && m->counted)
		count(m, s, -1);
	if (rc == 0)
		rc = method->run(method->self, &m->turn);
	if (rc == 0 && m->counted)
		count(m, s, 1);
	if (rc != 0)
		return rc;
	ours = m->p->opts.test->bandwidth ? outcome_of(m) : (struct outcome){0};
	rc = perf_meet(m->p, &ours, theirs, sizeof(ours));
	if (rc == 0 && m->p->opts.validate)
		rc = method->check(method->self, &m->turn);
	if (rc != 0 || !m->counted || m->p->rank != 0)
		return rc;
	if (!m->p->opts.test->bandwidth)
		return take_latencies(m, s);
	take_bandwidth(m, s, &ours, theirs);
	return 0;
}

/* ---- one size ---- */

/* Rank 0's number is all ranks'. */
static int agree(struct perf *p, uint64_t *n)
{
	uint64_t theirs[PERF_RING_MAX];
	int rc = perf_meet(p, n, theirs, sizeof(*n));

	if (p->rank != 0 && rc == 0)
		*n = theirs[p->rank - 1];
	return rc;
}

/* How many iterations the next round has; 0: it is done. */
static size_t next_round(const struct measure *m, size_t n, size_t rounds,
			 size_t round)
{
	const struct perf_options *o = &m->p->opts;

	if (m->counted && o->duration_s != PERF_UNSET) {
		if (perf_now() - m->since >= (double)o->duration_s)
			return 0;
		return perf_turn(PERF_TURN_MAX, 1, m->each, 0.1);
	}
	return perf_turn(n - m->done, round < rounds ? rounds - round : 1,
			 m->each, LONGEST_TURN);
}

static int grow_rounds(struct series *s)
{
	double *rounds = realloc(s->rounds, (s->nrounds + 1) * sizeof(*rounds));

	if (!rounds)
		return perf_fail(-ENOMEM, "no memory for rounds");
	s->rounds = rounds;
	return 0;
}

/* What one iteration takes is known afterwards, for how long a turn may be. */
static int run_rounds(struct measure *m, size_t n, size_t rounds, bool counted)
{
	struct perf *p = m->p;
	int rc = 0;

	m->counted = counted;
	m->done = 0;
	m->since = perf_now();
	for (size_t round = 0; rc == 0; round++) {
		uint64_t share = next_round(m, n, rounds, round);

		rc = agree(p, &share);
		if (rc != 0 || share == 0)
			break;
		rc = make_room(m, share);
		for (size_t k = 0; k < p->nmethods && rc == 0; k++) {
			rc = grow_rounds(&m->series[k]);
			if (rc == 0)
				rc = one_turn(m, k, share);
		}
		m->done += share;
		m->each = (perf_now() - m->since) / (double)m->done;
	}
	return rc;
}

static void report(struct measure *m)
{
	struct perf *p = m->p;
	struct result results[2];

	for (size_t k = 0; k < p->nmethods; k++) {
		struct series *s = &m->series[k];

		results[k] = (struct result){
			.method = p->methods[k].name,
			.bytes = m->turn.size,
			.iterations = s->iterations,
			.peak = s->peak,
			.rounds = s->rounds,
			.nrounds = s->nrounds,
			.histogram = p->opts.histogram ? &s->histogram : NULL,
			.tally = p->opts.counters && k == 0 ? &s->tally : NULL,
		};
		if (p->opts.test->bandwidth) {
			results[k].average = (double)s->iterations / s->seconds;
			continue;
		}
		samples_stats(&s->samples, &results[k].latency);
		report_curve(&p->report, k, s->samples.kept, s->samples.nkept);
	}
	report_add(&p->report, results, p->nmethods);
}

static int one_size(struct measure *m, size_t size)
{
	struct perf *p = m->p;
	size_t n = perf_iterations(&p->opts, size);
	size_t warmup = perf_warmup(&p->opts, n);
	int rc;

	m->turn.size = size;
	m->each = 0;
	rc = run_rounds(m, warmup, 1, false);
	if (rc == 0)
		rc = run_rounds(m, n, perf_rounds(&p->opts, n), true);
	if (rc == 0 && p->rank == 0)
		report(m);
	for (size_t k = 0; k < p->nmethods; k++) {
		samples_free(&m->series[k].samples);
		free(m->series[k].rounds);
		m->series[k] = (struct series){0};
	}
	return rc;
}

/* ---- the test ---- */

static int open_methods(struct perf *p, size_t bytes)
{
	struct method *m = p->methods;
	int rc = p->opts.test->bandwidth ? ours_bw_open(p, m, bytes)
					 : ours_lat_open(p, m, bytes);

	p->nmethods += m->self != NULL;
	if (rc != 0 || !p->opts.raw)
		return rc;
	m++;
	rc = raw_open(p, m, bytes);
	p->nmethods += m->self != NULL;
	return rc;
}

int perf_transport(struct perf *p)
{
	struct measure m = {.p = p};
	size_t sizes[PERF_SIZES_MAX], n = perf_sizes(&p->opts, sizes);
	int rc = open_methods(p, sizes[n - 1]);

	if (rc == 0)
		report_start(&p->report, vbn_ep_provider(p->ep),
			     p->opts.raw ? raw_device(p->methods[1].self)
					 : NULL,
			     p->nranks);
	for (size_t i = 0; i < n && rc == 0; i++)
		rc = one_size(&m, sizes[i]);
	if (rc == 0)
		rc = perf_meet(p, NULL, NULL, 0);
	free(m.turn.posted);
	free(m.turn.completed);
	free(m.scratch);
	return rc;
}
