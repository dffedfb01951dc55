/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics of a series of measurements. Pure functions.
 */
#ifndef PERF_STATS_H
#define PERF_STATS_H

#include <stddef.h>
#include <stdint.h>

struct stats {
	size_t count;
	double min, max;
	double typical; /* the median */
	double average;
	double stdev; /* of the population */
	double p99, p999;
};

/* Of @n > 0 samples, which it sorts. With none, all is 0. */
void stats_of(struct stats *stats, double *samples, size_t n);

/*
 * The sample below which @percent of the sorted samples lie: number
 * ceil(percent / 100 * n), counted from 1.
 */
double stats_percentile(const double *sorted, size_t n, double percent);

/*
 * The highest rate, per second, of @span operations in sequence, from the
 * post of the first to the completion of the last; times in seconds. All @n
 * when there are fewer.
 */
double stats_peak_rate(const double *posted, const double *completed, size_t n,
		       size_t span);

/* Bus bandwidth of an allreduce from its algorithm bandwidth, n ranks. */
double stats_allreduce_bus(double algorithm_bandwidth, int nranks);

/* How many of @n floats differ from @expected(i), bit for bit (NaN too). */
size_t stats_wrong(const float *data, size_t n,
		   float (*expected)(size_t i, int nranks), int nranks);

#endif
