/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What args.c and its tables share: a row is a test, or an option with what it
 * takes and which tests it goes with.
 */
#ifndef PERF_ARGS_TABLE_H
#define PERF_ARGS_TABLE_H

#include "args.h"

/* Which tests an option goes with. */
#define LAT	  (1u << 0)
#define BW	  (1u << 1)
#define SUM	  (1u << 2) /* collectives that reduce */
#define MOVE	  (1u << 3) /* those that do not */
#define EMPTY	  (1u << 4) /* those without data */
#define TUNE	  (1u << 5)
#define TRANSPORT (LAT | BW)
#define DATA	  (SUM | MOVE)
#define COLL	  (DATA | EMPTY)
#define SIZED	  (TRANSPORT | DATA)
#define ANY	  (TRANSPORT | COLL)

enum kind { KIND_BOOL, KIND_NUMBER, KIND_TEXT, KIND_NAME };

struct flag {
	int letter; /* a number above any character: none */
	const char *name, *arg;
	enum kind kind;
	size_t offset; /* in struct perf_options */
	unsigned where;
	size_t min, max;
	const char *what; /* lines of --help */
	/* Name of a value, counted from 0; NULL: no more. */
	const char *(*value)(int i);
};

extern const struct perf_test perf_tests[];
extern const size_t perf_ntests;
extern const struct flag perf_flags[];
extern const size_t perf_nflags;
#define PERF_FLAGS_MAX 64

#endif
