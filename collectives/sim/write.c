/* SPDX-License-Identifier: BSD-3-Clause */
/* JSON, CSV, the diagram, and where each goes. */
#include "coll_values.h"
#include "gnuplot.h"
#include "show.h"
#include "sink.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ---- */

static void number(cJSON *object, const char *name, double value)
{
	cJSON_AddNumberToObject(object, name, value);
}

static cJSON *json_row(const struct row *row, const struct cell *cell)
{
	const struct sim_result *c = &row->cost;
	cJSON *o = cJSON_CreateObject();

	cJSON_AddStringToObject(o, "algorithm", plan_name(row->algorithm));
	cJSON_AddBoolToObject(o, "best", row->by && row == &cell->rows[0]);
	cJSON_AddBoolToObject(o, "choice",
			      row->algorithm == cell->choice.algorithm);
	if (row->why[0])
		cJSON_AddStringToObject(o, "why", row->why);
	if (row->check)
		cJSON_AddBoolToObject(o, "right", row->check == ROW_RIGHT);
	if (!row->by)
		return o;
	cJSON_AddStringToObject(o, "by", show_by(row->by));
	number(o, "time_us", c->time * 1e6);
	number(o, "model_us", row->model * 1e6);
	number(o, "chunk_bytes", (double)row->chunk);
	number(o, "sent_bytes", (double)c->max_sent);
	number(o, "received_bytes", (double)c->max_received);
	number(o, "read_bytes", (double)c->max_read);
	number(o, "messages", (double)c->max_messages);
	number(o, "peers", c->max_peers);
	number(o, "fan_in", c->peak_fan_in);
	return o;
}

static cJSON *json_cell(const struct cell *cell)
{
	cJSON *o = cJSON_CreateObject(), *rows = cJSON_CreateArray();

	number(o, "ranks", cell->n);
	number(o, "bytes", (double)cell->bytes);
	cJSON_AddStringToObject(o, "choice", plan_name(cell->choice.algorithm));
	cJSON_AddStringToObject(o, "choice_why", cell->choice.why);
	for (unsigned i = 0; i < cell->nrows; i++)
		cJSON_AddItemToArray(rows, json_row(&cell->rows[i], cell));
	cJSON_AddItemToObject(o, "rows", rows);
	return o;
}

static cJSON *json_model(const struct setup *setup)
{
	bool tree = setup->topology == SETUP_TREE;
	cJSON *o = cJSON_CreateObject();

	number(o, "latency_us", setup->latency * 1e6);
	number(o, "overhead_us", setup->overhead * 1e6);
	number(o, "bandwidth_gbit_s", setup->bandwidth * 8e-9);
	number(o, "reduce_gbyte_s", setup->reduce_speed * 1e-9);
	cJSON_AddStringToObject(o, "topology", tree ? "tree" : "flat");
	if (tree) {
		number(o, "hosts_per_leaf", (double)setup->hosts_per_leaf);
		number(o, "oversubscription", setup->oversubscription);
	}
	number(o, "ranks_per_host", (double)setup->ranks_per_host);
	number(o, "local_latency_us", setup->local_latency * 1e6);
	number(o, "local_overhead_us", setup->local_overhead * 1e6);
	number(o, "local_bandwidth_gbit_s", setup->local_bandwidth * 8e-9);
	number(o, "call_us", setup->call * 1e6);
	number(o, "processors", (double)setup->processors);
	number(o, "wake_us", setup->processors ? setup->wake * 1e6 : 0);
	cJSON_AddBoolToObject(o, "shared_nic", setup->shared_nic);
	number(o, "stragglers", (double)setup->stragglers);
	number(o, "slowdown", setup->stragglers ? setup->slowdown : 1);
	number(o, "window", (double)setup->window);
	number(o, "slots", (double)setup->slots);
	return o;
}

static int write_json(struct output *output)
{
	const struct setup *setup = output->setup;
	cJSON *top = cJSON_CreateObject();
	char *text;

	cJSON_AddStringToObject(top, "operation",
				plan_operation_name(setup->operation));
	cJSON_AddStringToObject(top, "type", coll_type_name(setup->type));
	cJSON_AddStringToObject(top, "op",
				coll_reduction_name(setup->reduction));
	cJSON_AddItemToObject(top, "model", json_model(setup));
	cJSON_AddItemToObject(top, "results", output->results);
	output->results = NULL;
	text = cJSON_Print(top);
	cJSON_Delete(top);
	if (!text)
		return sim_fail(-ENOMEM, "no memory for the JSON");
	fprintf(output->json, "%s\n", text);
	free(text);
	return 0;
}

/* ---- CSV ---- */

static void csv_row(FILE *out, const struct setup *setup,
		    const struct cell *cell, const struct row *row)
{
	const struct sim_result *c = &row->cost;

	fprintf(out, "%s,%d,%llu,%s,", plan_operation_name(setup->operation),
		cell->n, (unsigned long long)cell->bytes,
		plan_name(row->algorithm));
	if (row->by)
		fprintf(out, "%s,%.6g,%llu,%llu,%llu,%llu,%llu,%u,%u,",
			show_by(row->by), c->time * 1e6,
			(unsigned long long)row->chunk,
			(unsigned long long)c->max_sent,
			(unsigned long long)c->max_received,
			(unsigned long long)c->max_read,
			(unsigned long long)c->max_messages, c->max_peers,
			c->peak_fan_in);
	else
		fputs(",,,,,,,,,", out);
	fprintf(out, "%s,\"", show_check(row->check));
	for (const char *s = row->why; *s; s++)
		fputc(*s == '"' ? '\'' : *s, out);
	fputs("\"\n", out);
}

/* ---- the diagram ---- */

/* gnuplot has so many, then begins again: with other dashes. */
#define COLOURS 8

static void plot_script(const void *data, FILE *out)
{
	const struct output *output = data;
	const struct setup *setup = output->setup;
	const struct series *s = &output->series;
	bool sizes = setup->sizes.n > 1;
	const char *separator = "plot";
	int curves = 0;

	fprintf(out,
		"set terminal svg size 900,600 background 'white'\nset grid\n"
		"set key outside right\nset logscale x 2\nset logscale y\n"
		"set ylabel 'predicted time [us]'\nset xlabel '%s'\n%s"
		"set title 'verbena-sim %s, ",
		sizes ? "bytes" : "ranks",
		sizes ? "set format x '%.0b%B'\n" : "",
		plan_operation_name(setup->operation));
	if (sizes)
		fprintf(out, "%llu ranks'\n",
			(unsigned long long)setup->ranks.at[0]);
	else
		fprintf(out, "%llu bytes'\n",
			(unsigned long long)setup->sizes.at[0]);
	for (int a = 0; a < PLAN_ALGORITHMS; a++) {
		fprintf(out, "$a%d << END\n", a);
		for (unsigned i = 0; i < s->n; i++)
			if (s->time[a][i] > 0)
				fprintf(out, "%g %g\n", s->x[i],
					s->time[a][i] * 1e6);
		fputs("END\n", out);
	}
	for (int a = 0; a < PLAN_ALGORITHMS; a++) {
		bool some = false;

		for (unsigned i = 0; i < s->n; i++)
			some |= s->time[a][i] > 0;
		if (!some)
			continue;
		fprintf(out,
			"%s $a%d using 1:2 with linespoints lw 2 pt %d dt %d "
			"title '%s'",
			separator, a, 4 + a, 1 + curves++ / COLOURS,
			plan_name((enum plan_algorithm)a));
		separator = ",";
	}
	fputc('\n', out);
}

static void note_series(struct output *output, const struct cell *cell)
{
	struct series *s = &output->series;

	if (s->n == SETUP_VALUES)
		return;
	s->x[s->n] = output->setup->sizes.n > 1 ? (double)cell->bytes : cell->n;
	for (unsigned i = 0; i < cell->nrows; i++)
		if (cell->rows[i].by)
			s->time[cell->rows[i].algorithm][s->n] =
				cell->rows[i].cost.time;
	s->n++;
}

/* ---- all together ---- */

static int open_one(FILE **out, const char *path)
{
	int rc = sink_open(out, path);

	return rc ? sim_fail(rc, "cannot write %s: %s", path, strerror(-rc))
		  : 0;
}

static void nothing(const void *data, FILE *out)
{
	(void)data;
	(void)out;
}

int output_open(struct output *output, const struct setup *setup)
{
	char why[GNUPLOT_WHY];
	int rc;

	*output = (struct output){.setup = setup};
	if (setup->plot) {
		rc = gnuplot_draw(nothing, NULL, NULL, why);
		if (rc)
			return sim_fail(rc, "%s", why);
	}
	rc = open_one(&output->json, setup->json);
	if (rc == 0)
		rc = open_one(&output->csv, setup->csv);
	if (rc == 0)
		rc = open_one(&output->plot, setup->plot);
	if (output->json != stdout && output->csv != stdout &&
	    output->plot != stdout)
		output->table = stdout;
	output->results = cJSON_CreateArray();
	if (rc == 0 && !output->results)
		rc = sim_fail(-ENOMEM, "no memory");
	if (rc == 0 && output->table)
		show_heading(output->table, setup);
	if (rc == 0 && output->csv)
		fputs("operation,ranks,bytes,algorithm,by,time_us,chunk_bytes,"
		      "sent_bytes,received_bytes,read_bytes,messages,peers,"
		      "fan_in,check,why\n",
		      output->csv);
	return rc;
}

void output_add(struct output *output, const struct cell *cell)
{
	if (output->table)
		show_cell(output->table, output->setup, cell);
	for (unsigned i = 0; output->csv && i < cell->nrows; i++)
		csv_row(output->csv, output->setup, cell, &cell->rows[i]);
	if (output->json)
		cJSON_AddItemToArray(output->results, json_cell(cell));
	note_series(output, cell);
}

static int close_one(FILE *f, const char *path, int rc)
{
	int err = sink_close(f);

	return err ? sim_fail(err, "cannot write %s: %s", sink_name(path),
			      strerror(-err))
		   : rc;
}

static int draw(struct output *output)
{
	char why[GNUPLOT_WHY];
	int rc;

	for (int a = 0; a < PLAN_ALGORITHMS; a++)
		for (unsigned i = 0; i < output->series.n; i++)
			if (output->series.time[a][i] > 0) {
				rc = gnuplot_draw(plot_script, output,
						  output->plot, why);
				return rc ? sim_fail(rc, "%s", why) : 0;
			}
	return sim_fail(-ENODATA, "--plot: no algorithm has a time");
}

int output_close(struct output *output, bool failed)
{
	const struct setup *setup = output->setup;
	int rc = 0;

	if (!failed && output->json)
		rc = write_json(output);
	if (!failed && output->plot && rc == 0)
		rc = draw(output);
	rc = close_one(output->json, setup->json, rc);
	rc = close_one(output->csv, setup->csv, rc);
	rc = close_one(output->plot, setup->plot, rc);
	rc = close_one(output->table, NULL, rc);
	cJSON_Delete(output->results);
	return rc;
}
