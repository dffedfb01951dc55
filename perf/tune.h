/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbena-perf tune: what was measured, and the file it goes into
 * (docs/collectives.md describes it).
 */
#ifndef PERF_TUNE_H
#define PERF_TUNE_H

#include "coll.h"

#include <stdio.h>

/* Seconds; a byte's. 0: not measured. */
struct tune_link {
	double alpha, overhead, beta;
};

struct tune_params {
	struct tune_link local, net;
	double gamma, call, wake;
	int processors;
};

/* The best of an operation at a size. */
struct tune_line {
	const char *operation;
	int n;
	size_t bytes; /* of the larger buffer */
	enum vbn_algorithm algorithm;
	size_t chunk; /* 0: the library's choice */
	double seconds;
};

/* Where it goes; path NULL: standard output. */
struct tune_file {
	const char *path;
	char temporary[4096];
	FILE *file;
	bool notes; /* a line of them is not ended */
};

/* 0, or one line and -errno. */
int tune_file_open(struct tune_file *f, const char *path);
void tune_file_params(struct tune_file *f, const struct tune_params *params);
void tune_file_line(struct tune_file *f, const struct tune_line *line);
/* One of the times behind the lines of a size; AUTO: all have been told. */
void tune_file_note(struct tune_file *f, enum vbn_algorithm algorithm,
		    double seconds);
/* With @good the file gets its name, else it is removed. */
int tune_file_close(struct tune_file *f, bool good);

/* ---- tune.c: one measurement ---- */

void tune_shape(struct coll_run *run, enum coll_op op, size_t bytes);
/*
 * *seconds of a call of run->shape; keeps what it is, if that is less and not
 * 0. 0 or the library's error; all ranks of run->comm call it.
 */
int tune_shorten(struct coll_run *run, enum vbn_algorithm algorithm,
		 size_t chunk, double for_seconds, double *seconds);

/* ---- tune_params.c ---- */

/*
 * The model's parameters, by small measurements among the ranks of @run, all of
 * which call it and get the same; *hosts: how many they are on. 0 or -errno.
 */
int tune_params(struct perf *perf, const struct coll_run *run,
		struct tune_params *params, int *hosts);

#endif
