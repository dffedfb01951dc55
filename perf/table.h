/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perftest's columns, as lines of text without their end. Pure functions; the
 * return is the line's length, as snprintf()'s.
 */
#ifndef PERF_TABLE_H
#define PERF_TABLE_H

#include "report.h"

int table_heading(char *line, size_t room, const struct perf_options *o);
/* @label behind the columns, when there is more than one method. */
int table_row(char *line, size_t room, const struct perf_options *o,
	      const struct result *r, const char *label);

int table_csv_heading(char *line, size_t room, const struct perf_options *o);
int table_csv_row(char *line, size_t room, const struct perf_options *o,
		  const struct result *r, const char *provider);

/* Of a rate of @bytes each per second: MB (2^20) or with --report_gbits Gb. */
double table_bandwidth(const struct perf_options *o, size_t bytes, double rate);

/*
 * verbena over raw: of typical latencies or of average bandwidths; in all, and
 * the median over the rounds, each of which compares neighbours in time.
 */
double table_ratio(const struct perf_options *o, const struct result *ours,
		   const struct result *raw);
/* 0 or -ENOMEM. */
int table_ratio_rounds(const struct result *ours, const struct result *raw,
		       double *ratio);

#endif
