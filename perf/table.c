/* SPDX-License-Identifier: BSD-3-Clause */
/* Lines of the table and of CSV: see table.h. */
#include "table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int table_heading(char *line, size_t room, const struct perf_options *o)
{
	if (!o->test->bandwidth)
		return snprintf(line, room,
				"%9s %11s %12s %12s %15s %12s %14s %21s %23s",
				"#bytes", "#iterations", "t_min[usec]",
				"t_max[usec]", "t_typical[usec]", "t_avg[usec]",
				"t_stdev[usec]", "99% percentile[usec]",
				"99.9% percentile[usec]");
	return snprintf(line, room, "%9s %11s %18s %18s %15s", "#bytes",
			"#iterations",
			o->gbits ? "BW peak[Gb/sec]" : "BW peak[MB/sec]",
			o->gbits ? "BW average[Gb/sec]" : "BW average[MB/sec]",
			"MsgRate[Mpps]");
}

double table_bandwidth(const struct perf_options *o, size_t bytes, double rate)
{
	double all = (double)bytes * rate;

	return o->gbits ? all * 8 / 1e9 : all / (1 << 20);
}

int table_row(char *line, size_t room, const struct perf_options *o,
	      const struct result *r, const char *label)
{
	const struct stats *s = &r->latency;
	const char *gap = *label ? "  " : "";

	if (o->test->bandwidth)
		return snprintf(line, room,
				"%9zu %11zu %18.2f %18.2f %15.6f%s%s", r->bytes,
				r->iterations,
				table_bandwidth(o, r->bytes, r->peak),
				table_bandwidth(o, r->bytes, r->average),
				r->average / 1e6, gap, label);
	return snprintf(line, room,
			"%9zu %11zu %12.2f %12.2f %15.2f %12.2f %14.2f %21.2f "
			"%23.2f%s%s",
			r->bytes, r->iterations, s->min * 1e6, s->max * 1e6,
			s->typical * 1e6, s->average * 1e6, s->stdev * 1e6,
			s->p99 * 1e6, s->p999 * 1e6, gap, label);
}

int table_csv_heading(char *line, size_t room, const struct perf_options *o)
{
	if (!o->test->bandwidth)
		return snprintf(line, room,
				"test,provider,method,bytes,iterations,min_us,"
				"max_us,typical_us,avg_us,stdev_us,p99_us,"
				"p999_us");
	return snprintf(line, room,
			"test,provider,method,bytes,iterations,peak_%s,avg_%s,"
			"msg_rate_mpps",
			o->gbits ? "gbit_s" : "mb_s",
			o->gbits ? "gbit_s" : "mb_s");
}

int table_csv_row(char *line, size_t room, const struct perf_options *o,
		  const struct result *r, const char *provider)
{
	const struct stats *s = &r->latency;

	if (o->test->bandwidth)
		return snprintf(line, room, "%s,%s,%s,%zu,%zu,%.6g,%.6g,%.6g",
				o->test->name, provider, r->method, r->bytes,
				r->iterations,
				table_bandwidth(o, r->bytes, r->peak),
				table_bandwidth(o, r->bytes, r->average),
				r->average / 1e6);
	return snprintf(line, room,
			"%s,%s,%s,%zu,%zu,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g,%.6g",
			o->test->name, provider, r->method, r->bytes,
			r->iterations, s->min * 1e6, s->max * 1e6,
			s->typical * 1e6, s->average * 1e6, s->stdev * 1e6,
			s->p99 * 1e6, s->p999 * 1e6);
}

double table_ratio(const struct perf_options *o, const struct result *ours,
		   const struct result *raw)
{
	double a = o->test->bandwidth ? ours->average : ours->latency.typical;
	double b = o->test->bandwidth ? raw->average : raw->latency.typical;

	return b > 0 ? a / b : 0;
}

int table_ratio_rounds(const struct result *ours, const struct result *raw,
		       double *ratio)
{
	size_t n = ours->nrounds < raw->nrounds ? ours->nrounds : raw->nrounds;
	double *each = calloc(n ? n : 1, sizeof(*each));

	if (!each)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		each[i] = raw->rounds[i] > 0 ? ours->rounds[i] / raw->rounds[i]
					     : 0;
	*ratio = n ? stats_median(each, n) : 0;
	free(each);
	return 0;
}
