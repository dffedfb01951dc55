/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where results go: the table, JSON, CSV, a diagram. Rank 0's alone; on other
 * ranks every call does nothing. Files are opened before anything is measured,
 * and what could not be written in full is an error at the end.
 */
#ifndef PERF_REPORT_H
#define PERF_REPORT_H

#include "args.h"
#include "stats.h"

#include <cjson/cJSON.h>
#include <stdint.h>

/* What the library did for @operations operations. */
struct tally {
	uint64_t operations, events, doorbells, again, staged_bytes,
		copied_bytes, sleeps, completions;
};

/* One method's, at one size. Seconds, and operations per second. */
struct result {
	const char *method;
	size_t bytes, iterations;
	struct stats latency;
	double peak, average;
	const double *rounds; /* typical latency, or rate, of each */
	size_t nrounds;
	const struct histogram *histogram; /* or NULL */
	const struct tally *tally;	   /* or NULL */
};

struct point {
	size_t bytes;
	double typical, p99, average; /* us; or MB/s, Gb/s */
};

struct report {
	const struct perf_options *opts;
	FILE *table, *json, *csv, *plot; /* or NULL */
	cJSON *top, *rows;
	char provider[16], device[64];
	struct point points[2][PERF_SIZES_MAX];
	double *curve[2]; /* of one size: sorted samples, us */
	size_t npoints, ncurve[2], nmethods;
	bool heading;
};

/* Everything is checked that can be: 0, or -errno and a line was printed. */
int report_open(struct report *r, const struct perf_options *o, bool writes);
/* Before the first result. @device: of the raw method, or NULL. */
void report_start(struct report *r, const char *provider, const char *device,
		  int nranks);
/* The methods' results at one size; verbena's first. */
void report_add(struct report *r, const struct result *results, size_t n);
/* An object of a collective's, which has its own table; it is taken over. */
void report_object(struct report *r, cJSON *object);
/* A size's latencies, for a diagram of one size. */
void report_curve(struct report *r, size_t method, const double *sorted,
		  size_t n);
/* Write what is left; 0 only if all has been written. */
int report_close(struct report *r, bool complete);

#endif
