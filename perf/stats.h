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
 * Samples one after another, of any number: SAMPLES_KEPT at most are kept,
 * every one with the same chance. Count, minimum, maximum and average are of
 * all.
 */
#define SAMPLES_KEPT ((size_t)1 << 22)

struct samples {
	double *kept;
	size_t nkept, room, seen;
	double min, max, sum;
	uint64_t random;
};

/* 0 or -ENOMEM. */
int samples_add(struct samples *s, double value);
/* Sorts what is kept. */
void samples_stats(struct samples *s, struct stats *stats);
void samples_free(struct samples *s);

/*
 * Latencies by decades in ten buckets each, from 10 ns to 10 s; the first
 * takes what is shorter, the last what is longer.
 */
#define HISTOGRAM_BUCKETS 92

struct histogram {
	uint64_t counts[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, double seconds);
/* Seconds at which bucket @i begins; bucket 0 at 0. */
double histogram_begin(size_t i);

/* The median of @n > 0 values, in any order, which stay so. */
double stats_median(const double *values, size_t n);

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

/*
 * Bus bandwidth from algorithm bandwidth, of @passes over each link by what
 * (n - 1) / n of the bytes are, of @nranks; with 0 passes they are the same.
 * After nccl-tests' doc/PERFORMANCE.md.
 */
double stats_bus(double algorithm_bandwidth, double passes, int nranks);

#endif
