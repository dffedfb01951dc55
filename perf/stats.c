/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics of a series of measurements. No I/O, no state.
 */
#include "stats.h"

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

double stats_allreduce_bus(double algorithm_bandwidth, int nranks)
{
	return algorithm_bandwidth * 2 * (nranks - 1) / nranks;
}

size_t stats_wrong(const float *data, size_t n,
		   float (*expected)(size_t i, int nranks), int nranks)
{
	size_t wrong = 0;

	for (size_t i = 0; i < n; i++) {
		float want = expected(i, nranks);

		wrong += memcmp(&data[i], &want, sizeof(want)) != 0;
	}
	return wrong;
}
