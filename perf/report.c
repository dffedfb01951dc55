/* SPDX-License-Identifier: BSD-3-Clause */
/* Writing results: see report.h. */
#include "perf.h"
#include "plot.h"
#include "sink.h"
#include "table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LINE 320

/* ---- opening ---- */

static int open_one(FILE **out, const char *path)
{
	int rc = sink_open(out, path);

	return rc ? perf_fail(rc, "cannot write %s: %s", path, strerror(-rc))
		  : 0;
}

static bool same_file(FILE *a, FILE *b)
{
	struct stat x, y;

	return fstat(fileno(a), &x) == 0 && fstat(fileno(b), &y) == 0 &&
	       x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int report_open(struct report *r, const struct perf_options *o, bool writes)
{
	int rc;

	r->opts = o;
	if (!writes)
		return 0;
	rc = open_one(&r->json, o->json);
	if (rc == 0)
		rc = open_one(&r->csv, o->csv);
	if (rc == 0 && r->json && r->csv && same_file(r->json, r->csv))
		rc = perf_fail(-EINVAL,
			       "--json and --csv name the same file: %s",
			       o->json);
	if (rc == 0 && o->plot)
		rc = plot_check();
	if (rc == 0)
		rc = open_one(&r->plot, o->plot);
	if (rc != 0)
		return rc;
	if (r->json != stdout && r->csv != stdout && r->plot != stdout)
		r->table = stdout;
	r->top = cJSON_CreateObject();
	r->rows = cJSON_CreateArray();
	return r->top && r->rows ? 0 : perf_fail(-ENOMEM, "no memory");
}

void report_start(struct report *r, const char *provider, const char *device,
		  int nranks)
{
	const struct perf_options *o = r->opts;

	snprintf(r->provider, sizeof(r->provider), "%s", provider);
	snprintf(r->device, sizeof(r->device), "%s", device ? device : "");
	if (!r->top)
		return;
	cJSON_AddStringToObject(r->top, "test", o->test->name);
	cJSON_AddNumberToObject(r->top, "ranks", nranks);
	cJSON_AddStringToObject(r->top, "provider", provider);
	if (device)
		cJSON_AddStringToObject(r->top, "raw_device", device);
	if (!o->test->transport)
		return;
	cJSON_AddBoolToObject(r->top, "events", o->events);
	if (!o->test->bandwidth)
		return;
	cJSON_AddBoolToObject(r->top, "bidirectional", o->bidirectional);
	cJSON_AddNumberToObject(r->top, "qps", (double)o->qps);
	cJSON_AddNumberToObject(r->top, "tx_depth", (double)o->depth);
	cJSON_AddNumberToObject(r->top, "post_list", (double)o->list);
}

/* ---- JSON ---- */

static cJSON *json_tally(const struct tally *t)
{
	cJSON *o = cJSON_CreateObject();
	double n = t->operations ? (double)t->operations : 1;

	cJSON_AddNumberToObject(o, "doorbells", (double)t->doorbells / n);
	cJSON_AddNumberToObject(o, "events", (double)t->events / n);
	cJSON_AddNumberToObject(o, "again", (double)t->again / n);
	cJSON_AddNumberToObject(o, "staged_bytes", (double)t->staged_bytes / n);
	cJSON_AddNumberToObject(o, "copied_bytes", (double)t->copied_bytes / n);
	cJSON_AddNumberToObject(o, "sleeps", (double)t->sleeps / n);
	if (t->completions) /* the provider has a device */
		cJSON_AddNumberToObject(o, "completions",
					(double)t->completions / n);
	return o;
}

static cJSON *json_histogram(const struct histogram *h)
{
	cJSON *all = cJSON_CreateArray();

	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		cJSON *o;

		if (h->counts[i] == 0)
			continue;
		o = cJSON_CreateObject();
		cJSON_AddNumberToObject(o, "from_us", histogram_begin(i) * 1e6);
		cJSON_AddNumberToObject(o, "count", (double)h->counts[i]);
		cJSON_AddItemToArray(all, o);
	}
	return all;
}

static void json_latency(cJSON *o, const struct stats *s)
{
	cJSON_AddNumberToObject(o, "min_us", s->min * 1e6);
	cJSON_AddNumberToObject(o, "max_us", s->max * 1e6);
	cJSON_AddNumberToObject(o, "typical_us", s->typical * 1e6);
	cJSON_AddNumberToObject(o, "avg_us", s->average * 1e6);
	cJSON_AddNumberToObject(o, "stdev_us", s->stdev * 1e6);
	cJSON_AddNumberToObject(o, "p99_us", s->p99 * 1e6);
	cJSON_AddNumberToObject(o, "p999_us", s->p999 * 1e6);
}

static cJSON *json_result(const struct perf_options *opts,
			  const struct result *r)
{
	bool bw = opts->test->bandwidth;
	cJSON *o = cJSON_CreateObject(), *rounds = cJSON_CreateArray();
	const char *peak = opts->gbits ? "peak_gbit_s" : "peak_mb_s";
	const char *avg = opts->gbits ? "avg_gbit_s" : "avg_mb_s";

	cJSON_AddNumberToObject(o, "iterations", (double)r->iterations);
	if (bw) {
		cJSON_AddNumberToObject(
			o, peak, table_bandwidth(opts, r->bytes, r->peak));
		cJSON_AddNumberToObject(
			o, avg, table_bandwidth(opts, r->bytes, r->average));
		cJSON_AddNumberToObject(o, "msg_rate_mpps", r->average / 1e6);
	} else {
		json_latency(o, &r->latency);
	}
	for (size_t i = 0; i < r->nrounds; i++) {
		double v = bw ? table_bandwidth(opts, r->bytes, r->rounds[i])
			      : r->rounds[i] * 1e6;

		cJSON_AddItemToArray(rounds, cJSON_CreateNumber(v));
	}
	cJSON_AddItemToObject(o, "rounds", rounds);
	if (r->histogram)
		cJSON_AddItemToObject(o, "histogram",
				      json_histogram(r->histogram));
	if (r->tally)
		cJSON_AddItemToObject(o, "per_operation", json_tally(r->tally));
	return o;
}

static void add_json(struct report *r, const struct result *results, size_t n)
{
	cJSON *o = cJSON_CreateObject();
	double rounds;

	cJSON_AddNumberToObject(o, "bytes", (double)results[0].bytes);
	for (size_t i = 0; i < n; i++)
		cJSON_AddItemToObject(o, results[i].method,
				      json_result(r->opts, &results[i]));
	if (n > 1) {
		cJSON_AddNumberToObject(
			o, "ratio_raw",
			table_ratio(r->opts, &results[0], &results[1]));
		if (table_ratio_rounds(&results[0], &results[1], &rounds) == 0)
			cJSON_AddNumberToObject(o, "ratio_raw_rounds", rounds);
	}
	cJSON_AddItemToArray(r->rows, o);
}

/* ---- the table ---- */

static void heading(struct report *r, size_t n)
{
	const struct perf_options *o = r->opts;
	char line[LINE];

	r->heading = true;
	fprintf(r->table, "verbena-perf %s: %s, provider %s", o->test->name,
		o->test->what, r->provider);
	if (o->test->bandwidth)
		fprintf(r->table, ", %zu x %zu in flight%s", o->qps, o->depth,
			o->bidirectional ? ", all ranks" : "");
	if (n > 1)
		fprintf(r->table, "; raw: ibverbs on %s", r->device);
	table_heading(line, sizeof(line), o);
	fprintf(r->table, "\n%s\n", line);
}

static void show_tally(struct report *r, const struct tally *t)
{
	double n = t->operations ? (double)t->operations : 1;

	fprintf(r->table,
		"per operation: %.3f doorbells, %.3f events of progress, "
		"%.3f refusals (-EAGAIN), %.1f bytes staged, %.1f bytes "
		"copied, %.3f sleeps",
		(double)t->doorbells / n, (double)t->events / n,
		(double)t->again / n, (double)t->staged_bytes / n,
		(double)t->copied_bytes / n, (double)t->sleeps / n);
	if (t->completions) /* the provider has a device */
		fprintf(r->table, ", %.3f completions",
			(double)t->completions / n);
	fputc('\n', r->table);
}

static void show_histogram(struct report *r, const struct histogram *h,
			   const char *method)
{
	static const char bar[] = "########################################";
	uint64_t most = 1;

	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		if (h->counts[i] > most)
			most = h->counts[i];
	fprintf(r->table, "%s: from [usec]  samples\n", method);
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
		if (h->counts[i])
			fprintf(r->table, "%12.3f %12llu %.*s\n",
				histogram_begin(i) * 1e6,
				(unsigned long long)h->counts[i],
				(int)((h->counts[i] * 40 + most - 1) / most),
				bar);
}

static void show(struct report *r, const struct result *results, size_t n)
{
	char line[LINE];
	double rounds;

	if (!r->heading)
		heading(r, n);
	for (size_t i = 0; i < n; i++) {
		table_row(line, sizeof(line), r->opts, &results[i],
			  n > 1 ? results[i].method : "");
		fprintf(r->table, "%s\n", line);
	}
	if (n > 1 && table_ratio_rounds(&results[0], &results[1], &rounds) == 0)
		fprintf(r->table,
			"ratio of %s, verbena / raw: %.3f, median of %zu "
			"rounds %.3f\n",
			r->opts->test->bandwidth ? "average bandwidths"
						 : "typical latencies",
			table_ratio(r->opts, &results[0], &results[1]),
			results[0].nrounds, rounds);
	for (size_t i = 0; i < n; i++) {
		if (results[i].tally)
			show_tally(r, results[i].tally);
		if (results[i].histogram)
			show_histogram(r, results[i].histogram,
				       results[i].method);
	}
	fflush(r->table);
}

/* ---- CSV, and all together ---- */

static void add_csv(struct report *r, const struct result *results, size_t n)
{
	char line[LINE];

	if (r->npoints == 0) {
		table_csv_heading(line, sizeof(line), r->opts);
		fprintf(r->csv, "%s\n", line);
	}
	for (size_t i = 0; i < n; i++) {
		table_csv_row(line, sizeof(line), r->opts, &results[i],
			      r->provider);
		fprintf(r->csv, "%s\n", line);
	}
}

void report_add(struct report *r, const struct result *results, size_t n)
{
	if (!r->top)
		return;
	if (r->table)
		show(r, results, n);
	if (r->csv)
		add_csv(r, results, n);
	if (r->json)
		add_json(r, results, n);
	r->nmethods = n;
	for (size_t i = 0; i < n && r->npoints < PERF_SIZES_MAX; i++)
		r->points[i][r->npoints] = (struct point){
			.bytes = results[i].bytes,
			.typical = results[i].latency.typical * 1e6,
			.p99 = results[i].latency.p99 * 1e6,
			.average = table_bandwidth(r->opts, results[i].bytes,
						   results[i].average),
		};
	r->npoints++;
}

void report_object(struct report *r, cJSON *object)
{
	if (r->rows)
		cJSON_AddItemToArray(r->rows, object);
	else
		cJSON_Delete(object);
}

void report_curve(struct report *r, size_t method, const double *sorted,
		  size_t n)
{
	if (!r->plot)
		return;
	free(r->curve[method]);
	r->curve[method] = calloc(n ? n : 1, sizeof(double));
	r->ncurve[method] = r->curve[method] ? n : 0;
	for (size_t i = 0; i < r->ncurve[method]; i++)
		r->curve[method][i] = sorted[i] * 1e6;
}

/* ---- closing ---- */

static int close_one(FILE *f, const char *path, int rc)
{
	int err = sink_close(f);

	return err ? perf_fail(err, "cannot write %s: %s", sink_name(path),
			       strerror(-err))
		   : rc;
}

static int write_json(struct report *r)
{
	char *text;

	cJSON_AddItemToObject(r->top, "results", r->rows);
	r->rows = NULL;
	text = cJSON_Print(r->top);
	if (!text)
		return perf_fail(-ENOMEM, "no memory for the JSON");
	fprintf(r->json, "%s\n", text);
	free(text);
	return 0;
}

int report_close(struct report *r, bool complete)
{
	int rc = 0;

	if (complete && r->json)
		rc = write_json(r);
	if (complete && r->plot && rc == 0)
		rc = plot_write(r);
	if (r->top) {
		rc = close_one(r->json, r->opts->json, rc);
		rc = close_one(r->csv, r->opts->csv, rc);
		rc = close_one(r->plot, r->opts->plot, rc);
		rc = close_one(r->table, NULL, rc);
	}
	cJSON_Delete(r->rows);
	cJSON_Delete(r->top);
	free(r->curve[0]);
	free(r->curve[1]);
	return rc;
}
