/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Diagrams by gnuplot, in a process of its own: verbena-perf's and
 * verbena-sim's.
 */
#ifndef PERF_GNUPLOT_H
#define PERF_GNUPLOT_H

#include <stdio.h>

enum { GNUPLOT_WHY = 128 };

/* Tells gnuplot what to draw of @data. Errors are the stream's. */
typedef void gnuplot_script(const void *data, FILE *out);

/*
 * Draw what @write says to @to, which stays open; NULL: only see whether
 * gnuplot is there. Blocks until gnuplot ends. 0; -ENOENT (no gnuplot), -EIO,
 * -ENODATA (no picture came) or another -errno, and @why, which begins with
 * the option's name, --plot.
 */
int gnuplot_draw(gnuplot_script *write, const void *data, FILE *to,
		 char why[GNUPLOT_WHY]);

#endif
