/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the measurements of verbena-perf share: options, the two parties, the
 * report.
 *
 * Invariant: all ranks walk through the same sizes in the same order, so that
 * they meet at every barrier.
 */
#ifndef PERF_PERF_H
#define PERF_PERF_H

#include <verbena/collectives.h>

#include <cjson/cJSON.h>
#include <stdbool.h>

#define PERF_WAIT_MS 60000

struct perf_options {
	const char *test;
	size_t size;	   /* 0: the test's default, unless all */
	size_t limit;	   /* with all: the largest */
	size_t iterations; /* 0: by size */
	size_t warmup;	   /* SIZE_MAX: by iterations */
	bool all, raw, check;
	bool blocking; /* sleep in waits instead of spinning */
	enum vbn_algorithm algorithm;
	const char *json;
};

struct perf {
	struct perf_options opts;
	struct vbn_job *job;
	struct vbn_ctx *ctx;
	struct vbn_pool *pool;
	struct vbn_ep *ep; /* to the other of two */
	int rank, nranks;
	unsigned meetings; /* barriers so far */
	cJSON *results;	   /* array, rank 0's, or NULL */
};

/* Seconds. */
double perf_now(void);

/* One line to stderr, "verbena-perf: "; returns @err. */
int perf_fail(int err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The same, of a failed call of the library's. */
int perf_failed(int err, const char *what);

size_t perf_iterations(const struct perf *p, size_t size);
size_t perf_warmup(const struct perf *p, size_t iterations);

/* Calls @one for the sizes asked for, in order, until it fails. */
int perf_sizes(struct perf *p, size_t first, size_t last, size_t usual,
	       int (*one)(struct perf *p, size_t size, void *arg), void *arg);

/* Connect to the other rank; put tests. */
int perf_connect(struct perf *p);
/* Meet the other rank, driving the context meanwhile. */
int perf_meet(struct perf *p);
/* Drive the context: spinning, or sleeping with --sleep. */
void perf_drive(struct perf *p);

/* Add a result of rank 0's to the JSON file; @object may be NULL. */
void perf_result(struct perf *p, cJSON *object);

/* An array of doubles of the process's, never NULL; exits without memory. */
double *perf_samples(size_t n);

int perf_put_lat(struct perf *p);
int perf_put_bw(struct perf *p);
int perf_allreduce(struct perf *p);

/* ---- the raw baseline: ibverbs and nothing else ---- */

struct raw;

/* -ENODEV with a clear line when there is no usable RDMA device. */
int raw_open(struct raw **raw, struct perf *p, size_t bytes);
void raw_close(struct raw *raw);
const char *raw_device(const struct raw *raw);

/*
 * @n round trips of one write each way, @size bytes, which each side sees by
 * looking at the last byte (with @immediate: by the completion of a write
 * with immediate, as the library's notify). samples[i]: seconds of half a
 * round trip; filled on rank 0 and rank 1.
 */
int raw_ping_pong(struct raw *raw, size_t size, size_t n, bool immediate,
		  double *samples);
/*
 * Rank 0 writes @n times: when each was posted, and its completion seen,
 * seconds.
 */
int raw_stream(struct raw *raw, size_t size, size_t n, double *posted,
	       double *completed);

#endif
