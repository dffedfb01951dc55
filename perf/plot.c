/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Diagrams: of several sizes, typical latency and 99th percentile (or average
 * bandwidth) over size; of one size, which share of samples took how long.
 */
#include "gnuplot.h"
#include "perf.h"
#include "plot.h"

#include <stdio.h>

#define CURVE_POINTS 1000 /* a picture shows no more */

static const char *const names[] = {"verbena", "raw"};

static void points(const struct report *r, size_t method, FILE *out)
{
	fprintf(out, "$m%zu << END\n", method);
	for (size_t i = 0; i < r->npoints && i < PERF_SIZES_MAX; i++) {
		const struct point *p = &r->points[method][i];

		if (r->opts->test->bandwidth)
			fprintf(out, "%zu %g\n", p->bytes, p->average);
		else
			fprintf(out, "%zu %g %g\n", p->bytes, p->typical,
				p->p99);
	}
	fputs("END\n", out);
}

static void curve(const struct report *r, size_t method, FILE *out)
{
	size_t n = r->ncurve[method], step = n / CURVE_POINTS + 1;

	fprintf(out, "$m%zu << END\n", method);
	for (size_t i = 0; i < n; i += step)
		fprintf(out, "%g %g\n", r->curve[method][i],
			100 * (double)(i + 1) / (double)n);
	fputs("END\n", out);
}

void plot_script(const struct report *r, FILE *out)
{
	bool bw = r->opts->test->bandwidth, one = r->npoints == 1 && !bw;

	fputs("set terminal svg size 900,600\nset grid\nset key left top\n",
	      out);
	fprintf(out, "set title 'verbena-perf %s, provider %s'\n",
		r->opts->test->name, r->provider);
	if (one)
		fputs("set logscale x\nset xlabel 'usec'\n"
		      "set ylabel '% of samples'\nset key right bottom\n",
		      out);
	else
		fprintf(out,
			"set logscale x 2\nset xlabel 'bytes'\n"
			"set format x '%%.0b%%B'\n%sset ylabel '%s'\n",
			bw ? "" : "set logscale y\n",
			!bw		 ? "usec"
			: r->opts->gbits ? "Gb/sec"
					 : "MB/sec");
	for (size_t m = 0; m < r->nmethods; m++) {
		if (one)
			curve(r, m, out);
		else
			points(r, m, out);
	}
	for (size_t m = 0; m < r->nmethods; m++) {
		fprintf(out, "%s $m%zu using 1:2 with %s title '%s'",
			m ? "," : "plot", m, one ? "steps" : "linespoints",
			names[m]);
		if (!one && !bw)
			fprintf(out,
				", $m%zu using 1:3 with lines dashtype 2 "
				"title '%s, 99%%'",
				m, names[m]);
	}
	fputc('\n', out);
}

static void script(const void *report, FILE *out)
{
	plot_script(report, out);
}

static void nothing(const void *report, FILE *out)
{
	(void)report;
	(void)out;
}

int plot_check(void)
{
	char why[GNUPLOT_WHY];
	int rc = gnuplot_draw(nothing, NULL, NULL, why);

	return rc ? perf_fail(rc, "%s", why) : 0;
}

int plot_write(struct report *r)
{
	char why[GNUPLOT_WHY];
	int rc = gnuplot_draw(script, r, r->plot, why);

	return rc ? perf_fail(rc, "%s", why) : 0;
}
