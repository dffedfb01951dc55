/* SPDX-License-Identifier: BSD-3-Clause */
/* A cell: which rows there are, and how each gets its cost. See price.h. */
#include "coll.h"
#include "price.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the algorithm is for this n and these hosts; else says why not. */
static bool exists(const struct setup *setup, const struct choice_input *input,
		   struct row *row)
{
	const char *refusal = choose_refusal(input, row->algorithm);
	char hint[48] = "";

	if (!refusal)
		return true;
	if (plan_find(setup->operation, row->algorithm)->mapped)
		snprintf(hint, sizeof(hint), " (--ranks-per-host %d)",
			 input->n);
	snprintf(row->why, sizeof(row->why), "%s%s", refusal, hint);
	return false;
}

static void check(const struct question *q, struct row *row)
{
	int err = check_question(q, row->why, sizeof(row->why));

	if (err == -E2BIG)
		return;
	row->check = err ? ROW_WRONG : ROW_RIGHT;
	row->err = err;
}

void row_error(struct row *row, const struct sim_result *result)
{
	char why[sizeof(result->why)];

	memcpy(why, result->why, sizeof(why)); /* it may be the row's */
	snprintf(row->why, sizeof(row->why), "%s%s%s", strerror(-row->err),
		 why[0] ? ": " : "", why);
}

static void price_row(const struct question *q, struct row *row)
{
	int err = question_fits(q);

	if (err == -E2BIG) {
		formula_row(q, row);
		return;
	}
	if (!err)
		err = question_run(q, &row->cost);
	row->err = err;
	if (!err)
		row->by = ROW_SIMULATION;
	else
		row_error(row, &row->cost);
	if (!err && q->setup->check)
		check(q, row);
}

static int by_time(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if ((x->by == ROW_NONE) != (y->by == ROW_NONE))
		return x->by == ROW_NONE ? 1 : -1;
	if (x->by != ROW_NONE && x->cost.time != y->cost.time)
		return x->cost.time < y->cost.time ? -1 : 1;
	return (int)x->algorithm - (int)y->algorithm;
}

/* As all members would find it out. */
static struct choice_input input_of(const struct setup *setup, int n,
				    uint64_t bytes)
{
	int hosts = machine_hosts(setup, n);

	return (struct choice_input){
		.operation = setup->operation,
		.n = n,
		.bytes = bytes,
		.may_map = hosts == 1,
		.in_place = setup->operation == PLAN_OP_BROADCAST,
		.wide = wide_bytes(setup) >
			vbn_type_bytes((enum vbn_type)setup->type),
		.hosts = hosts,
		.chunk_most = COMM_LANDING,
		.tuning = setup->measured,
	};
}

/* A whole number of elements for each rank. */
static uint64_t rounded(const struct setup *setup, int n, uint64_t bytes)
{
	uint64_t element = vbn_type_bytes((enum vbn_type)setup->type);
	uint64_t part = setup->operation > PLAN_OP_BROADCAST
				? element * (uint64_t)n
				: element;

	if (setup->operation == PLAN_OP_BARRIER)
		return 0;
	return bytes < part ? part : bytes / part * part;
}

void price_cell(const struct setup *setup, int n, uint64_t bytes,
		struct cell *cell)
{
	struct choice_input input;

	*cell = (struct cell){.n = n, .bytes = rounded(setup, n, bytes)};
	input = input_of(setup, n, cell->bytes);
	choose(&input, &cell->choice);
	input.chunk = setup->chunk;
	for (int i = 0; i < PLAN_ALGORITHMS; i++) {
		enum plan_algorithm algorithm = (enum plan_algorithm)i;
		struct row *row = &cell->rows[cell->nrows];
		struct question q = {
			.setup = setup,
			.algorithm = algorithm,
			.n = n,
			.bytes = cell->bytes,
		};
		struct choice choice;

		if (!setup->algorithms[i])
			continue;
		*row = (struct row){.algorithm = algorithm};
		cell->nrows++;
		if (!exists(setup, &input, row))
			continue;
		choose_asked(&input, algorithm, &choice);
		row->model = choice.predicted;
		q.chunk = row->chunk =
			setup->chunk ? setup->chunk : choice.chunk;
		price_row(&q, row);
	}
	qsort(cell->rows, cell->nrows, sizeof(struct row), by_time);
}
