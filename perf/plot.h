/* SPDX-License-Identifier: BSD-3-Clause */
/* A diagram of the results, drawn by gnuplot in a process of its own. */
#ifndef PERF_PLOT_H
#define PERF_PLOT_H

#include "report.h"

/* Whether gnuplot is there and draws; a line is printed if not. */
int plot_check(void);
/* To r->plot. */
int plot_write(struct report *r);
/* What gnuplot is told to draw. Errors are the stream's. */
void plot_script(const struct report *r, FILE *out);

#endif
