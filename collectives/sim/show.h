/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What verbena-sim prints and writes. Files are opened before anything is
 * simulated, and what could not be written in full is an error at the end.
 * One thread.
 */
#ifndef SIM_SHOW_H
#define SIM_SHOW_H

#include "price.h"

#include <cjson/cJSON.h>

/* A line on standard error; returns @err. */
int sim_fail(int err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* "" where there is none. */
const char *show_by(enum row_by by);
const char *show_check(enum row_check check);

/* ---- show.c: for people ---- */

void show_heading(FILE *out, const struct setup *setup);
void show_cell(FILE *out, const struct setup *setup, const struct cell *cell);
/* The algorithms of one operation, or of all. */
void show_list(FILE *out, const struct setup *setup);

/* ---- write.c: for programs ---- */

struct output {
	const struct setup *setup;
	FILE *table, *json, *csv, *plot; /* or NULL */
	cJSON *results;
	/* For the diagram: seconds by algorithm and cell, 0 for none. */
	struct series {
		double x[SETUP_VALUES], time[PLAN_ALGORITHMS][SETUP_VALUES];
		unsigned n;
	} series;
};

/* 0, or -errno and a line was printed. */
int output_open(struct output *output, const struct setup *setup);
void output_add(struct output *output, const struct cell *cell);
/* Writes what is left, unless @failed; 0 only if all has been written. */
int output_close(struct output *output, bool failed);

#endif
