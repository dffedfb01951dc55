/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbena-sim's prices: the formula against the simulation of the same, when
 * there is none, and that a wrong result does not pass for a right one.
 */
#include "price.h"

#include "cunit_run.h"
#include "sim_line.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void parse(struct setup *setup, const char *line)
{
	char why[SETUP_WHY];

	CU_ASSERT_EQUAL_FATAL(sim_line(setup, line, why), 0);
}

static struct cell cell_of(const char *line, uint64_t budget)
{
	struct setup setup;
	struct cell cell;

	parse(&setup, line);
	if (budget)
		setup.budget = budget;
	price_cell(&setup, (int)setup.ranks.at[0], setup.sizes.at[0], &cell);
	return cell;
}

static const struct row *row_of(const struct cell *cell,
				enum plan_algorithm algorithm)
{
	for (unsigned i = 0; i < cell->nrows; i++)
		if (cell->rows[i].algorithm == algorithm)
			return &cell->rows[i];
	CU_FAIL_FATAL("no such row");
	return NULL;
}

static bool near(double a, double b, double far)
{
	return a >= b * (1 - far) && a <= b * (1 + far);
}

/* A row by formula is within 3 percent of the simulation; @less: how many
   times fewer steps may be simulated. */
static void agree_row(const char *line, const struct row *s, uint64_t less)
{
	static const struct steps most = {UINT64_MAX, UINT64_MAX};
	struct steps count;
	struct setup setup;
	struct question q;
	struct row f = {.algorithm = s->algorithm};
	bool good;

	parse(&setup, line);
	q = (struct question){.setup = &setup,
			      .algorithm = s->algorithm,
			      .n = (int)setup.ranks.at[0],
			      .bytes = setup.sizes.at[0],
			      .chunk = s->chunk};
	CU_ASSERT_EQUAL_FATAL(question_count(&q, q.n, &most, &count), 0);
	setup.budget = count.steps / less;
	formula_row(&q, &f);
	good = s->by == ROW_SIMULATION && f.by == ROW_FORMULA &&
	       near(f.cost.time, s->cost.time, 0.03) &&
	       near((double)f.cost.max_sent, (double)s->cost.max_sent, 0.01) &&
	       near((double)f.cost.max_received, (double)s->cost.max_received,
		    0.01) &&
	       near((double)f.cost.max_messages, (double)s->cost.max_messages,
		    0.01) &&
	       f.cost.max_peers == s->cost.max_peers;
	CU_ASSERT(good);
	if (!good)
		fprintf(stderr,
			"%s: %s: %d %g s, sent %llu, messages %llu; formula %d "
			"%g s, sent %llu, messages %llu %s\n",
			line, plan_name(s->algorithm), s->by, s->cost.time,
			(unsigned long long)s->cost.max_sent,
			(unsigned long long)s->cost.max_messages, f.by,
			f.cost.time, (unsigned long long)f.cost.max_sent,
			(unsigned long long)f.cost.max_messages, f.why);
}

static void agree(const char *line, uint64_t less)
{
	struct cell simulated = cell_of(line, UINT64_C(1) << 40);

	CU_ASSERT_NOT_EQUAL(simulated.nrows, 0);
	for (unsigned i = 0; i < simulated.nrows; i++)
		agree_row(line, &simulated.rows[i], less);
}

static void by_ranks(void)
{
	agree("-n 256 -s 64K -a ring", 4);
	agree("-n 150 -s 64K -a biring", 2);
	agree("-n 300 -s 1200K -a sharded --chunk 2K", 1);
	agree("-n 150 -s 16K -a decentralized,oneshot --chunk 4K", 2);
	agree("-n 2048 -s 1K -a central", 4);
	agree("alltoall -n 300 -s 300K -a pairwise", 1);
	agree("gather -n 2048 -s 1M -a linear", 4);
	agree("broadcast -n 2048 -s 1K -a linear", 4);
}

static void by_doublings(void)
{
	agree("-n 1024 -s 64K -a doubling,halving,tree,double-tree", 3);
	agree("-n 768 -s 16K -a doubling,tree", 3);
	agree("barrier -n 1024", 3);
	agree("allgather -n 1024 -s 1M -a doubling", 3);
}

static void by_size(void)
{
	agree("-n 8 -s 16M -a tree,double-tree,halving,ring,central "
	      "--chunk 16K",
	      3);
	agree("broadcast -n 16 -s 16M -a tree --type half", 3);
}

static void fabrics(void)
{
	agree("-n 256 -s 256K -a ring --topology tree --hosts-per-leaf 8", 3);
	agree("-n 256 -s 256K -a hierarchical --ranks-per-host 4 --chunk 2K",
	      2);
}

/* From few ranks on, a straggler costs what it does not cost among many. */
static void stragglers(void)
{
	struct cell cell =
		cell_of("-n 256 -s 64K -a ring --stragglers 1", 80000);

	CU_ASSERT_EQUAL(cell.rows[0].by, ROW_NONE);
	agree("-n 8 -s 16M -a tree --stragglers 1 --chunk 16K", 3);
}

static void no_formula(void)
{
	struct cell cell = cell_of("-n 64 -s 64 -a ring,mapped", 1000);

	CU_ASSERT_EQUAL(row_of(&cell, PLAN_RING)->by, ROW_NONE);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(row_of(&cell, PLAN_RING)->why, "--budget"));
	CU_ASSERT_EQUAL(row_of(&cell, PLAN_MAPPED)->by, ROW_NONE);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(row_of(&cell, PLAN_MAPPED)->why, "--ranks-per-host 64"));
}

/* What does not follow the line: copies of n log(n) blocks. */
static void not_straight(void)
{
	struct cell cell = cell_of("alltoall -n 512 -s 1M -a bruck", 100000);

	CU_ASSERT_EQUAL(row_of(&cell, PLAN_BRUCK)->by, ROW_NONE);
}

/* ---- checks ---- */

static bool next_lazy(struct plan_page *page, struct plan_step *step)
{
	if (page->next > 0)
		return false;
	*step = (struct plan_step){.kind = PLAN_COPY,
				   .src = PLAN_INPUT,
				   .dst = PLAN_OUTPUT,
				   .len = page->shape.count,
				   .dep = {PLAN_NO_STEP, PLAN_NO_STEP}};
	return true;
}

/* Each rank takes its own input for the result. */
static bool lazy_phase(const struct plan_shape *shape, unsigned i,
		       struct plan_phase *phase)
{
	static const struct plan_page_ops ops = {NULL, next_lazy};

	*phase = plan_whole(shape, &ops);
	return i == 0;
}

static void wrong_result(void)
{
	static const struct plan_algo lazy = {.phase = lazy_phase};
	struct setup setup;
	struct question q = {.setup = &setup,
			     .algorithm = PLAN_RING,
			     .n = 3,
			     .bytes = 400,
			     .chunk = 100};
	char why[200] = "";

	parse(&setup, "-n 3 -s 400");
	CU_ASSERT_EQUAL(check_question(&q, why, sizeof(why)), 0);
	q.algo = &lazy;
	CU_ASSERT_EQUAL(check_question(&q, why, sizeof(why)), -EBADMSG);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "of 100 elements are wrong"));
}

static void all_right(void)
{
	static const char *const lines[] = {
		"allreduce -n 6 -s 1000 --check --ranks-per-host 6",
		"reduce -n 6 -s 1000 --op max --check --ranks-per-host 3",
		"broadcast -n 6 -s 1000 --check --type int8",
		"reduce-scatter -n 8 -s 1000 --check --type half --op avg",
		"allgather -n 8 -s 1000 --check",
		"gather -n 5 -s 1000 --check",
		"scatter -n 5 -s 1000 --check",
		"alltoall -n 8 -s 1000 --check --ranks-per-host 8",
		"barrier -n 7 --check",
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		struct cell cell = cell_of(lines[i], 0);
		unsigned right = 0;

		for (unsigned k = 0; k < cell.nrows; k++) {
			CU_ASSERT_NOT_EQUAL(cell.rows[k].check, ROW_WRONG);
			right += cell.rows[k].check == ROW_RIGHT;
		}
		CU_ASSERT(right > 0 && right + 1 >= cell.nrows);
	}
}

/* With each row what the library predicts: by the parameters it would have. */
static void closed_form(void)
{
	struct cell cell = cell_of("-n 4 -s 64K -a ring,sharded "
				   "--ranks-per-host 4 --latency 50",
				   0);

	for (unsigned i = 0; i < cell.nrows; i++) {
		const struct row *row = &cell.rows[i];
		const struct cost_case what = {PLAN_OP_ALLREDUCE, 4, 1, 65536,
					       1};

		CU_ASSERT_DOUBLE_EQUAL(row->model,
				       cost_predict(&cost_usual, &what,
						    row->algorithm,
						    (double)row->chunk),
				       1e-12);
	}
}

/* What runs without the executor takes no --call; others do. */
static void calls(void)
{
	static const char line[] = "-n 2 -s %s -a oneshot,doubling --call %s";
	double time[2][2][2];

	for (int s = 0; s < 2; s++)
		for (int c = 0; c < 2; c++) {
			struct cell cell;
			char text[80];

			snprintf(text, sizeof(text), line, s ? "64K" : "8",
				 c ? "3" : "0");
			cell = cell_of(text, 0);
			time[s][c][0] = row_of(&cell, PLAN_ONESHOT)->cost.time;
			time[s][c][1] = row_of(&cell, PLAN_DOUBLING)->cost.time;
		}
	CU_ASSERT_DOUBLE_EQUAL(time[0][1][0], time[0][0][0], 1e-12);
	CU_ASSERT_DOUBLE_EQUAL(time[0][1][1] - time[0][0][1], 3e-6, 1e-12);
	CU_ASSERT_DOUBLE_EQUAL(time[1][1][0] - time[1][0][0], 3e-6, 1e-12);
}

static void sorted(void)
{
	struct cell cell = cell_of("-n 16 -s 64K", 0);

	for (unsigned i = 1; i < cell.nrows; i++)
		CU_ASSERT(
			cell.rows[i].by == ROW_NONE ||
			(cell.rows[i - 1].by != ROW_NONE &&
			 cell.rows[i - 1].cost.time <= cell.rows[i].cost.time));
	CU_ASSERT_NOT_EQUAL(cell.rows[0].by, ROW_NONE);
}

static CU_TestInfo tests[] = {
	{"formula: by ranks", by_ranks},
	{"formula: by doublings", by_doublings},
	{"formula: by size", by_size},
	{"formula: fabrics", fabrics},
	{"formula: stragglers", stragglers},
	{"no formula", no_formula},
	{"no formula: another pattern", not_straight},
	{"a wrong result is noticed", wrong_result},
	{"right results", all_right},
	{"the library's predictions", closed_form},
	{"calls", calls},
	{"rows by time", sorted},
	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"verbena-sim's prices", NULL, NULL, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	return run_suites(suites);
}
