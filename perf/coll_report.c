/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Results of collectives, with nccl-tests' columns: algbw is bytes over time,
 * busbw what the slowest link carries if the operation is done in the best way
 * known, GB are 10^9 bytes. #wrong are elements, over all ranks.
 */
#include "coll.h"
#include "stats.h"

#include <stdio.h>

/* Times (n - 1) / n of the bytes that pass the link; 0: just the bytes. */
static double passes(enum coll_op op)
{
	switch (op) {
	case COLL_ALLREDUCE:
		return 2;
	case COLL_REDUCE:
	case COLL_BROADCAST:
	case COLL_BARRIER:
		return 0;
	default:
		return 1;
	}
}

static bool reduces(enum coll_op op)
{
	return op == COLL_ALLREDUCE || op == COLL_REDUCE ||
	       op == COLL_REDUCE_SCATTER;
}

static bool has_root(enum coll_op op)
{
	return op == COLL_REDUCE || op == COLL_BROADCAST || op == COLL_GATHER ||
	       op == COLL_SCATTER;
}

/* A result's words and numbers, as all formats have them. */
struct row {
	const char *type, *reduction;
	int root;
	double us, alg, bus;
	char wrong[32];
};

static struct row row_of(const struct perf *p, const struct coll_result *r)
{
	enum coll_op op = r->shape.op;
	struct row row = {
		.type = op == COLL_BARRIER ? "none"
					   : coll_type_name((int)p->opts.type),
		.reduction = reduces(op) ? coll_reduction_name(
						   (int)p->opts.reduction)
					 : "none",
		.root = has_root(op) ? 0 : -1,
		.us = r->seconds * 1e6,
		.alg = (double)r->bytes / r->seconds / 1e9,
		.wrong = "N/A",
	};

	row.bus = stats_bus(row.alg, passes(op), p->nranks);
	if (p->opts.check && op != COLL_BARRIER)
		snprintf(row.wrong, sizeof(row.wrong), "%.0f", r->wrong);
	return row;
}

/* ---- with --overlap ---- */

static void overlap_heading(struct perf *p)
{
	static const char columns[] =
		"#%11s %12s %8s %6s %5s %10s %10s %10s %6s %10s %6s %8s\n";
	FILE *t = p->report.table;

	if (p->report.csv)
		fputs("test,ranks,bytes,count,type,redop,root,iterations,"
		      "time_us,computing_us,both_us,hidden,thread_time_us,"
		      "thread_both_us,thread_hidden,wrong\n",
		      p->report.csv);
	if (!t)
		return;
	fprintf(t, columns, "size", "count", "type", "redop", "root", "time",
		"computing", "both", "hidden", "thread's", "hidden", "#wrong");
	fprintf(t, columns, "(B)", "(elements)", "", "", "", "(us)", "(us)",
		"(us)", "(%)", "(us)", "(%)", "");
}

static void overlap_row(struct perf *p, const struct coll_result *r,
			const struct row *row)
{
	const struct coll_overlap *o = &r->overlap[0], *thread = &r->overlap[1];

	if (p->report.table)
		fprintf(p->report.table,
			" %11zu %12zu %8s %6s %5d %10.2f %10.2f %10.2f %6.1f "
			"%10.2f %6.1f %8s\n",
			r->bytes, r->shape.count, row->type, row->reduction,
			row->root, row->us, o->computing * 1e6, o->both * 1e6,
			o->hidden * 100, thread->both * 1e6,
			thread->hidden * 100, row->wrong);
	if (p->report.csv)
		fprintf(p->report.csv,
			"%s,%d,%zu,%zu,%s,%s,%d,%zu,%.3f,%.3f,%.3f,%.4f,%.3f,"
			"%.3f,%.4f,%s\n",
			p->opts.test->name, p->nranks, r->bytes, r->shape.count,
			row->type, row->reduction, row->root, r->calls, row->us,
			o->computing * 1e6, o->both * 1e6, o->hidden,
			thread->alone * 1e6, thread->both * 1e6, thread->hidden,
			row->wrong);
}

static void add_overlap(cJSON *object, const char *name,
			const struct coll_overlap *overlap)
{
	cJSON *o = cJSON_AddObjectToObject(object, name);

	cJSON_AddNumberToObject(o, "time_us", overlap->alone * 1e6);
	cJSON_AddNumberToObject(o, "computing_us", overlap->computing * 1e6);
	cJSON_AddNumberToObject(o, "both_us", overlap->both * 1e6);
	cJSON_AddNumberToObject(o, "hidden", overlap->hidden);
}

/* ---- without ---- */

static void time_heading(struct perf *p)
{
	static const char columns[] =
		"#%11s %12s %8s %6s %5s %10s %8s %8s %8s\n";
	FILE *t = p->report.table;

	if (p->report.csv)
		fputs("test,ranks,bytes,count,type,redop,root,iterations,"
		      "time_us,algbw_gb_s,busbw_gb_s,wrong\n",
		      p->report.csv);
	if (!t)
		return;
	fprintf(t, columns, "size", "count", "type", "redop", "root", "time",
		"algbw", "busbw", "#wrong");
	fprintf(t, columns, "(B)", "(elements)", "", "", "", "(us)", "(GB/s)",
		"(GB/s)", "");
}

static void time_row(struct perf *p, const struct coll_result *r,
		     const struct row *row)
{
	if (p->report.table)
		fprintf(p->report.table,
			" %11zu %12zu %8s %6s %5d %10.2f %8.3f %8.3f %8s\n",
			r->bytes, r->shape.count, row->type, row->reduction,
			row->root, row->us, row->alg, row->bus, row->wrong);
	if (p->report.csv)
		fprintf(p->report.csv,
			"%s,%d,%zu,%zu,%s,%s,%d,%zu,%.3f,%.6f,%.6f,%s\n",
			p->opts.test->name, p->nranks, r->bytes, r->shape.count,
			row->type, row->reduction, row->root, r->calls, row->us,
			row->alg, row->bus, row->wrong);
}

/* ---- either ---- */

void coll_heading(struct perf *p)
{
	FILE *t = p->report.table;

	if (t)
		fprintf(t, "verbena-perf %s: %d rank%s\n", p->opts.test->name,
			p->nranks, p->nranks == 1 ? "" : "s");
	if (p->opts.overlap)
		overlap_heading(p);
	else
		time_heading(p);
	if (t)
		fflush(t);
}

static void add_json(struct perf *p, const struct coll_result *r,
		     const struct row *row)
{
	cJSON *o = cJSON_CreateObject();

	cJSON_AddNumberToObject(o, "bytes", (double)r->bytes);
	cJSON_AddNumberToObject(o, "count", (double)r->shape.count);
	cJSON_AddStringToObject(o, "type", row->type);
	cJSON_AddStringToObject(o, "redop", row->reduction);
	cJSON_AddNumberToObject(o, "root", row->root);
	cJSON_AddNumberToObject(o, "iterations", (double)r->calls);
	cJSON_AddNumberToObject(o, "time_us", row->us);
	cJSON_AddNumberToObject(o, "algbw_gb_s", row->alg);
	cJSON_AddNumberToObject(o, "busbw_gb_s", row->bus);
	if (p->opts.overlap) {
		add_overlap(o, "without_thread", &r->overlap[0]);
		add_overlap(o, "with_thread", &r->overlap[1]);
	}
	if (p->opts.check)
		cJSON_AddNumberToObject(o, "wrong", r->wrong);
	report_object(&p->report, o);
}

void coll_report(struct perf *p, const struct coll_result *r)
{
	struct row row = row_of(p, r);

	if (p->rank != 0)
		return;
	if (p->opts.overlap)
		overlap_row(p, r, &row);
	else
		time_row(p, r, &row);
	if (p->report.table)
		fflush(p->report.table);
	add_json(p, r, &row);
}
