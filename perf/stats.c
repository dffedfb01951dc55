/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics of a series of measurements. No I/O, no state.
 */
#include "stats.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double stats_percentile(const double *sorted, size_t n, double percent)
{
	double rank;
	size_t i;

	if (n == 0)
		return 0;
	/* The subtraction keeps 99 % of 1000 at 990 in spite of rounding. */
	rank = ceil(percent * (double)n / 100 - 1e-9);
	i = rank < 1 ? 0 : (size_t)rank - 1;
	return sorted[i < n ? i : n - 1];
}

void stats_of(struct stats *stats, double *samples, size_t n)
{
	double sum = 0, squares = 0;

	*stats = (struct stats){.count = n};
	if (n == 0)
		return;
	qsort(samples, n, sizeof(*samples), ascending);
	for (size_t i = 0; i < n; i++)
		sum += samples[i];
	stats->average = sum / (double)n;
	for (size_t i = 0; i < n; i++) {
		double d = samples[i] - stats->average;

		squares += d * d;
	}
	stats->stdev = sqrt(squares / (double)n);
	stats->min = samples[0];
	stats->max = samples[n - 1];
	stats->typical = n % 2 ? samples[n / 2]
			       : (samples[n / 2 - 1] + samples[n / 2]) / 2;
	stats->p99 = stats_percentile(samples, n, 99);
	stats->p999 = stats_percentile(samples, n, 99.9);
}

double stats_median(const double *values, size_t n)
{
	double *sorted = n ? malloc(n * sizeof(*sorted)) : NULL;
	struct stats stats;

	if (!sorted)
		return 0;
	memcpy(sorted, values, n * sizeof(*sorted));
	stats_of(&stats, sorted, n);
	free(sorted);
	return stats.typical;
}

/* xorshift; the same every run. */
static uint64_t next_random(struct samples *s)
{
	if (s->random == 0)
		s->random = 88172645463325252u;
	s->random ^= s->random << 13;
	s->random ^= s->random >> 7;
	s->random ^= s->random << 17;
	return s->random;
}

static int grow(struct samples *s)
{
	size_t room = s->room ? 2 * s->room : 1024;
	double *kept = realloc(s->kept, room * sizeof(*kept));

	if (!kept)
		return -ENOMEM;
	s->kept = kept;
	s->room = room;
	return 0;
}

int samples_add(struct samples *s, double value)
{
	size_t at = s->nkept;

	if (at == SAMPLES_KEPT)
		at = (size_t)(next_random(s) % (s->seen + 1));
	else if (at == s->room && grow(s) != 0)
		return -ENOMEM;
	if (at < SAMPLES_KEPT)
		s->kept[at] = value;
	s->nkept += at == s->nkept && at < SAMPLES_KEPT;
	if (s->seen == 0 || value < s->min)
		s->min = value;
	if (s->seen == 0 || value > s->max)
		s->max = value;
	s->sum += value;
	s->seen++;
	return 0;
}

void samples_stats(struct samples *s, struct stats *stats)
{
	stats_of(stats, s->kept, s->nkept);
	stats->count = s->seen;
	if (s->seen == 0)
		return;
	stats->min = s->min;
	stats->max = s->max;
	stats->average = s->sum / (double)s->seen;
}

void samples_free(struct samples *s)
{
	free(s->kept);
	*s = (struct samples){0};
}

double histogram_begin(size_t i)
{
	return i ? 1e-8 * pow(10, (double)(i - 1) / 10) : 0;
}

void histogram_add(struct histogram *h, double seconds)
{
	size_t i = 0;

	if (seconds >= 1e-8)
		i = (size_t)(log10(seconds / 1e-8) * 10) + 1;
	if (i >= HISTOGRAM_BUCKETS)
		i = HISTOGRAM_BUCKETS - 1;
	/* The logarithm may be off by a rounding at an edge. */
	if (i + 1 < HISTOGRAM_BUCKETS && seconds >= histogram_begin(i + 1))
		i++;
	else if (i > 0 && seconds < histogram_begin(i))
		i--;
	h->counts[i]++;
}

double stats_peak_rate(const double *posted, const double *completed, size_t n,
		       size_t span)
{
	double best = 0;

	if (span == 0 || span > n)
		span = n;
	for (size_t i = 0; span && i + span <= n; i++) {
		double took = completed[i + span - 1] - posted[i];

		if (took > 0 && (double)span / took > best)
			best = (double)span / took;
	}
	return best;
}

double stats_bus(double algorithm_bandwidth, double passes, int nranks)
{
	return passes > 0 ? algorithm_bandwidth * passes * (nranks - 1) / nranks
			  : algorithm_bandwidth;
}
