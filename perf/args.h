/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What verbena-perf is asked to do. One table names every option, what it
 * takes, and which tests it goes with; parsing, checking and --help follow it.
 * No I/O but that of perf_help().
 */
#ifndef PERF_ARGS_H
#define PERF_ARGS_H

#include "coll_data.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum perf_op {
	PERF_PUT,
	PERF_NOTIFY,
	PERF_GET,
	PERF_ATOMIC,
	PERF_SEND,
	PERF_COLLECTIVE,
	PERF_TUNE,
};

#define PERF_LARGEST	((size_t)8 << 20)
#define PERF_SIZES_MAX	32
#define PERF_UNSET	((size_t)-1)
#define PERF_QPS_MAX	64
#define PERF_DEPTH_MAX	8192
#define PERF_TURN_MAX	((size_t)1 << 20) /* iterations without a meeting */
#define PERF_TURN_FIRST ((size_t)100)	  /* not knowing how long they take */
#define PERF_ROUNDS_RAW 10		  /* with --raw, unless asked */

struct perf_test {
	const char *name;
	enum perf_op op;
	bool bandwidth;
	bool transport; /* of the transport: one rank or two */
	size_t usual;	/* size, unless asked */
	const char *what;
	enum coll_op coll; /* with PERF_COLLECTIVE: which */
};

/* Numbers that were not given are PERF_UNSET. */
struct perf_options {
	const struct perf_test *test;
	bool help;
	size_t size, iterations, duration_s, rounds, warmup;
	size_t qps, depth, list; /* 1, 128, 1 unless given */
	size_t port, gid_index, mtu, sl, tos, inline_max;
	size_t check, chunk;
	size_t seconds;			/* of tune; 60 unless given */
	int type, reduction, algorithm; /* the library's numbers */
	bool all, bidirectional, events, raw, cm, gbits, warm_up, validate,
		histogram, counters, malloc, overlap;
	const char *device, *connect, *json, *csv, *plot, *out;
};

/*
 * 0, or -EINVAL with one line in @why. @o points into @argv afterwards. With
 * help set, nothing else is.
 */
int perf_parse(struct perf_options *o, int argc, char **argv, char *why,
	       size_t room);

/* Whether an option was given that only a verbs connection can follow. */
bool perf_wants_verbs(const struct perf_options *o);

/* The sizes to go through, ascending; returns how many, <= PERF_SIZES_MAX. */
size_t perf_sizes(const struct perf_options *o, size_t sizes[PERF_SIZES_MAX]);

/* Iterations in all, of one size; and those before, which do not count. */
size_t perf_iterations(const struct perf_options *o, size_t size);
size_t perf_warmup(const struct perf_options *o, size_t iterations);
/* Into how many rounds they are to be divided, none of which is empty. */
size_t perf_rounds(const struct perf_options *o, size_t iterations);
/*
 * Iterations of the next turn, of @left that are for @rounds: no more than
 * take @seconds, at @each (0: not known) seconds for one.
 */
size_t perf_turn(size_t left, size_t rounds, double each, double seconds);
/* How many of @n operations endpoint @k of @among has. */
size_t perf_share(size_t n, size_t among, size_t k);

void perf_help(FILE *out);

#endif
