/* SPDX-License-Identifier: BSD-3-Clause */
/* The tables. */
#include "show.h"
#include "coll_values.h"

#include <stdio.h>
#include <string.h>

const char *show_by(enum row_by by)
{
	static const char *const names[] = {
		[ROW_NONE] = "",
		[ROW_SIMULATION] = "simulation",
		[ROW_FORMULA] = "formula",
	};

	return names[by];
}

const char *show_check(enum row_check check)
{
	static const char *const names[] = {
		[ROW_UNCHECKED] = "",
		[ROW_RIGHT] = "right",
		[ROW_WRONG] = "WRONG",
	};

	return names[check];
}

/* 1536 as "1536", 1536000 as "1.46M": of 1024. */
static const char *human(double value, char text[24])
{
	static const char units[] = "KMGTPE";
	const char *unit = units;

	if (value < 10000) {
		snprintf(text, 24, "%.0f", value);
		return text;
	}
	for (value /= 1024; value >= 1000 && unit[1]; unit++)
		value /= 1024;
	snprintf(text, 24, "%.3g%c", value, *unit);
	return text;
}

static void heading_network(FILE *out, const struct setup *setup)
{
	fprintf(out, "%g us, %g Gbit/s; ", setup->latency * 1e6,
		setup->bandwidth * 8e-9);
	if (setup->topology == SETUP_TREE)
		fprintf(out, "leaf switches of %llu hosts, oversubscribed %g:1",
			(unsigned long long)setup->hosts_per_leaf,
			setup->oversubscription);
	else
		fputs("one switch", out);
	fputc('\n', out);
	if (setup->ranks_per_host > 1)
		fprintf(out,
			"%llu ranks a host with %s, %g us, %g Gbit/s between "
			"them\n",
			(unsigned long long)setup->ranks_per_host,
			setup->shared_nic ? "one interface"
					  : "an interface each",
			setup->local_latency * 1e6,
			setup->local_bandwidth * 8e-9);
	if (setup->processors && setup->ranks_per_host > 1)
		fprintf(out, "%llu processors a host, %g us to switch\n",
			(unsigned long long)setup->processors,
			setup->wake * 1e6);
	if (setup->overhead > 0 || setup->local_overhead > 0 || setup->call > 0)
		fprintf(out,
			"handling: %g us a message, %g us within a host, %g us "
			"a call\n",
			setup->overhead * 1e6, setup->local_overhead * 1e6,
			setup->call * 1e6);
	if (setup->stragglers)
		fprintf(out, "stragglers: %llu, %g times as slow\n",
			(unsigned long long)setup->stragglers, setup->slowdown);
}

void show_heading(FILE *out, const struct setup *setup)
{
	fprintf(out, "verbena-sim %s", plan_operation_name(setup->operation));
	if (setup->operation != PLAN_OP_BARRIER)
		fprintf(out, ", %s", coll_type_name(setup->type));
	if (setup->operation == PLAN_OP_ALLREDUCE ||
	    setup->operation == PLAN_OP_REDUCE ||
	    setup->operation == PLAN_OP_REDUCE_SCATTER)
		fprintf(out, ", %s at %g GB/s",
			coll_reduction_name(setup->reduction),
			setup->reduce_speed * 1e-9);
	fprintf(out, "; window %llu, %llu slots\n",
		(unsigned long long)setup->window,
		(unsigned long long)setup->slots);
	heading_network(out, setup);
}

static void show_row(FILE *out, const struct setup *setup,
		     const struct row *row, const struct row *best)
{
	const struct sim_result *c = &row->cost;
	char sent[24], received[24], chunk[24], messages[24];
	double ratio = best->cost.time > 0 ? c->time / best->cost.time : 1;

	fprintf(out, "%c %-13s", row == best && best->by ? '*' : ' ',
		plan_name(row->algorithm));
	if (row->by == ROW_NONE) {
		fprintf(out, "            -  %s\n", row->why);
		return;
	}
	fprintf(out, " %12.2f %7.2f %8s %8s %8s %8s %6u %6u  %s", c->time * 1e6,
		ratio, human((double)c->max_sent, sent),
		human((double)(c->max_received + c->max_read), received),
		row->cost.max_sent || row->cost.max_read
			? human((double)row->chunk, chunk)
			: "-",
		human((double)c->max_messages, messages), c->max_peers,
		c->peak_fan_in, show_by(row->by));
	if (setup->check)
		fprintf(out, "  %s", show_check(row->check));
	if (row->why[0])
		fprintf(out, "  %s", row->why);
	fputc('\n', out);
}

static void show_choice(FILE *out, const struct cell *cell)
{
	const struct choice *choice = &cell->choice;
	const struct row *best = &cell->rows[0];
	char chunk[24];

	fprintf(out, "the library chooses %s (%s), chunks of %s",
		plan_name(choice->algorithm), choice->why,
		human((double)choice->chunk, chunk));
	for (unsigned i = 0; i < cell->nrows; i++) {
		const struct row *row = &cell->rows[i];

		if (row->algorithm != choice->algorithm || !row->by)
			continue;
		if (row == best)
			fputs(": the best here", out);
		else if (best->cost.time > 0)
			fprintf(out, ": %.2f times the best here",
				row->cost.time / best->cost.time);
	}
	fputc('\n', out);
}

void show_cell(FILE *out, const struct setup *setup, const struct cell *cell)
{
	char bytes[24];

	fprintf(out, "\n%d ranks", cell->n);
	if (cell->bytes)
		fprintf(out, ", %s bytes", human((double)cell->bytes, bytes));
	fprintf(out, "\n  algorithm         time[us]    /best     sent received"
		     "    chunk messages  peers fan-in  by\n");
	for (unsigned i = 0; i < cell->nrows; i++)
		show_row(out, setup, &cell->rows[i], &cell->rows[0]);
	if (setup->predict)
		show_choice(out, cell);
	fflush(out);
}

static void list_one(FILE *out, enum plan_operation operation,
		     enum plan_algorithm algorithm,
		     const struct plan_algo *algo)
{
	char properties[96] = "";
	const struct {
		bool has;
		const char *name;
	} all[] = {
		{algo->in_order, "in order"},
		{algo->power_of_two, "power of two"},
		{algo->mapped, "mapped"},
		{algo->even, "even parts"},
		{algo->apart, "not in place"},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		size_t used = strlen(properties);

		if (all[i].has)
			snprintf(properties + used, sizeof(properties) - used,
				 "%s%s", used ? ", " : "", all[i].name);
	}
	fprintf(out, "%-15s%-14s%-34s%s\n", plan_operation_name(operation),
		plan_name(algorithm), properties[0] ? properties : "-",
		algo->source ? algo->source : "-");
}

void show_list(FILE *out, const struct setup *setup)
{
	fprintf(out, "%-15s%-14s%-34s%s\n", "operation", "algorithm",
		"properties", "source");
	for (int o = 0; o < PLAN_OPERATIONS; o++)
		for (int a = PLAN_LOCAL + 1; a < PLAN_ALGORITHMS; a++) {
			enum plan_operation operation = (enum plan_operation)o;
			enum plan_algorithm algorithm = (enum plan_algorithm)a;
			const struct plan_algo *algo =
				plan_find(operation, algorithm);

			if (algo &&
			    (!setup->named || operation == setup->operation))
				list_one(out, operation, algorithm, algo);
		}
	fputs("\nin order: sums in the order of the ranks, so it is fit for "
	      "the reproducible\nmode; power of two: of ranks; mapped: ranks "
	      "share memory; even parts: all of\none length; not in place: "
	      "input and output are two buffers.\n",
	      out);
}
