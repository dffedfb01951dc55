/* SPDX-License-Identifier: BSD-3-Clause */
/* The line through two simulations: see price.h. */
#include "exec.h"
#include "price.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

/* A rank keeps so much on each peer that more would not fit in memory. */
#define PAIRS_MOST (1 << 20)
/* A plan is walked so far at most to see whether it follows the line. */
#define WALK_MOST 300000000
/* Fewer repetitions show the beginning and the end, not the pattern. */
#define CHUNKS_LEAST 4
/* What a line begins with at most. */
#define RANKS_MOST 2048
/* How far a plan, and a time, may be off the line. */
#define FAR	 0.02
#define FAR_TIME 0.05

/* Ranks that a line begins with at least: more than the window, where each
   deals with all. */
enum { RING = 32, DIRECT = 2 * EXEC_WINDOW };

/* What repeats by the number of ranks; what is not here, by its logarithm. */
static const struct by_ranks {
	enum plan_operation operation;
	enum plan_algorithm algorithm;
	int least;
	bool whole; /* the size is the same for every n; else the blocks are */
} by_ranks[] = {
	{PLAN_OP_ALLREDUCE, PLAN_RING, RING, false},
	{PLAN_OP_ALLREDUCE, PLAN_BIRING, RING, false},
	{PLAN_OP_ALLREDUCE, PLAN_SHARDED, DIRECT, false},
	{PLAN_OP_ALLREDUCE, PLAN_HIERARCHICAL, RING, false},
	{PLAN_OP_ALLREDUCE, PLAN_CENTRAL, DIRECT, true},
	{PLAN_OP_ALLREDUCE, PLAN_DECENTRALIZED, DIRECT, true},
	{PLAN_OP_ALLREDUCE, PLAN_ONESHOT, DIRECT, true},
	{PLAN_OP_REDUCE, PLAN_LINEAR, DIRECT, true},
	{PLAN_OP_BROADCAST, PLAN_LINEAR, DIRECT, true},
	{PLAN_OP_REDUCE_SCATTER, PLAN_RING, RING, false},
	{PLAN_OP_REDUCE_SCATTER, PLAN_LINEAR, DIRECT, false},
	{PLAN_OP_ALLGATHER, PLAN_RING, RING, false},
	{PLAN_OP_ALLGATHER, PLAN_LINEAR, DIRECT, false},
	{PLAN_OP_GATHER, PLAN_LINEAR, DIRECT, false},
	{PLAN_OP_SCATTER, PLAN_LINEAR, DIRECT, false},
	{PLAN_OP_ALLTOALL, PLAN_PAIRWISE, DIRECT, false},
	{PLAN_OP_ALLTOALL, PLAN_LINEAR, DIRECT, false},
};

enum { POINTS = 3 };

/* A point of the line. */
struct point {
	struct question q;
	double x;
	struct steps first; /* of rank 0 */
	struct sim_result cost;
};

/* Through the two larger ones; the smallest shows whether there is a line. */
struct line {
	struct point at[POINTS], wanted;
};

int question_fits(const struct question *q)
{
	const struct steps most = {q->setup->budget, PAIRS_MOST};
	struct steps count;

	return question_count(q, q->n, &most, &count);
}

static int count_first(struct point *p)
{
	static const struct steps most = {WALK_MOST, PAIRS_MOST};

	return question_count(&p->q, 1, &most, &p->first);
}

/* Where the line is at @x, of what is @y1 and @y2. */
static double at(const struct line *line, double x, double y1, double y2)
{
	double x1 = line->at[1].x, x2 = line->at[2].x;

	return y1 + (x - x1) * (y2 - y1) / (x2 - x1);
}

static bool follows(const struct line *line, uint64_t y1, uint64_t y2,
		    uint64_t y)
{
	double expected = at(line, line->wanted.x, (double)y1, (double)y2);

	return fabs(expected - (double)y) <= FAR * (double)y;
}

static uint64_t whole_at(const struct line *line, uint64_t y1, uint64_t y2)
{
	double y = at(line, line->wanted.x, (double)y1, (double)y2);

	return y > 0 ? (uint64_t)(y + 0.5) : 0;
}

static void extrapolate(const struct line *line, struct row *row)
{
	const struct sim_result *a = &line->at[1].cost, *b = &line->at[2].cost;
	struct sim_result *cost = &row->cost;

	*cost = (struct sim_result){
		.time = at(line, line->wanted.x, a->time, b->time),
		.max_sent = whole_at(line, a->max_sent, b->max_sent),
		.max_received =
			whole_at(line, a->max_received, b->max_received),
		.max_messages =
			whole_at(line, a->max_messages, b->max_messages),
		.max_read = whole_at(line, a->max_read, b->max_read),
		.max_peers =
			(unsigned)whole_at(line, a->max_peers, b->max_peers),
		.peak_fan_in = (unsigned)whole_at(line, a->peak_fan_in,
						  b->peak_fan_in),
	};
	row->by = ROW_FORMULA;
}

/* Whether rank 0's plan is on the line, and not too long to tell. */
static bool is_straight(struct line *line)
{
	struct point *a = &line->at[1], *b = &line->at[2], *w = &line->wanted;

	return count_first(a) == 0 && count_first(b) == 0 &&
	       count_first(w) == 0 &&
	       follows(line, a->first.steps, b->first.steps, w->first.steps) &&
	       follows(line, a->first.pairs, b->first.pairs, w->first.pairs);
}

static bool times_are_straight(const struct line *line)
{
	double time = line->at[0].cost.time;
	double expected = at(line, line->at[0].x, line->at[1].cost.time,
			     line->at[2].cost.time);

	return fabs(expected - time) <= FAR_TIME * time;
}

/* The points are set. False: they say nothing about what is wanted. */
static bool draw(struct line *line, struct row *row)
{
	if (!is_straight(line))
		return false;
	for (int i = 0; i < POINTS; i++) {
		struct point *p = &line->at[i];

		row->err = question_run(&p->q, &p->cost);
		if (row->err) {
			row_error(row, &p->cost);
			return true;
		}
	}
	if (!times_are_straight(line))
		return false;
	extrapolate(line, row);
	return true;
}

/* ---- by ranks ---- */

static struct question with_ranks(const struct question *q, int n, bool whole)
{
	struct question smaller = *q;

	smaller.n = n;
	if (!whole)
		smaller.bytes =
			(uint64_t)((double)q->bytes * n / (double)q->n + 0.5);
	return smaller;
}

/* Ranks in whole hosts, and leaves: the same pattern for all n. */
static int unit_of(const struct setup *setup)
{
	uint64_t unit = setup->ranks_per_host;

	if (setup->topology == SETUP_TREE)
		unit *= setup->hosts_per_leaf;
	return unit < 1 << 20 ? (int)unit : 1 << 20;
}

static int least_ranks(const struct setup *setup, int least)
{
	int unit = unit_of(setup);

	return least < 2 * unit ? 2 * unit : least;
}

/* Up to @most ranks, as far apart as @parts. False: none that fits. */
static bool place(struct line *line, const struct by_ranks *rule, int most,
		  const int parts[POINTS])
{
	const struct question *q = &line->wanted.q;
	int least = least_ranks(q->setup, rule->least);
	int unit = unit_of(q->setup);

	for (int n = most;; n /= 2) {
		int base = n / parts[2] / unit * unit;

		if (2 * base * parts[0] < least || base == 0)
			return false;
		if (base * parts[2] > q->n)
			continue;
		for (int i = 0; i < POINTS; i++) {
			struct point *p = &line->at[i];

			p->q = with_ranks(q, base * parts[i], rule->whole);
			p->x = p->q.n;
		}
		if (question_fits(&line->at[2].q) == 0)
			return true;
	}
}

static bool draw_by_ranks(const struct question *q, const struct by_ranks *rule,
			  struct row *row)
{
	static const int far[POINTS] = {1, 2, 4}, close[POINTS] = {4, 5, 6};
	struct line line = {.wanted = {.q = *q, .x = q->n}};

	return (place(&line, rule, RANKS_MOST, far) ||
		place(&line, rule, RANKS_MOST * 3 / 4, close)) &&
	       draw(&line, row);
}

/* n halved again and again, so that it stays a power of two, if it is one. */
static bool draw_by_doublings(const struct question *q, struct row *row)
{
	int least = least_ranks(q->setup, RING), unit = unit_of(q->setup);
	struct line line = {.wanted = {.q = *q, .x = log2(q->n)}};

	for (int n = q->n / 2; n / 2 >= least; n /= 2) {
		if (n > RANKS_MOST || n % 4 || n / 4 % unit)
			continue;
		for (int i = 0; i < POINTS; i++) {
			line.at[i].q = with_ranks(q, n >> (2 - i), true);
			line.at[i].x = log2(line.at[i].q.n);
		}
		if (question_fits(&line.at[2].q) == 0)
			return draw(&line, row);
	}
	return false;
}

/* ---- by size ---- */

static bool draw_by_size(const struct question *q, struct row *row)
{
	struct line line = {.wanted = {.q = *q, .x = (double)q->bytes}};

	for (uint64_t bytes = q->bytes / 2;
	     bytes / 2 >= CHUNKS_LEAST * q->chunk; bytes /= 2) {
		for (unsigned i = 0; i < POINTS; i++) {
			line.at[i].q = *q;
			line.at[i].q.bytes = bytes >> (2 - i);
			line.at[i].x = (double)line.at[i].q.bytes;
		}
		if (question_fits(&line.at[2].q) == 0)
			return draw(&line, row);
	}
	return false;
}

/* Stragglers are fewer among the ranks the more these are. */
static bool draw_by_number(const struct question *q, struct row *row)
{
	if (q->setup->stragglers)
		return false;
	for (size_t i = 0; i < sizeof(by_ranks) / sizeof(by_ranks[0]); i++)
		if (by_ranks[i].operation == q->setup->operation &&
		    by_ranks[i].algorithm == q->algorithm &&
		    draw_by_ranks(q, &by_ranks[i], row))
			return true;
	return draw_by_doublings(q, row);
}

void formula_row(const struct question *q, struct row *row)
{
	if (draw_by_number(q, row) || draw_by_size(q, row))
		return;
	snprintf(row->why, sizeof(row->why),
		 "more steps than --budget to simulate, and no smaller n or "
		 "size that could be simulated shows the same pattern");
}
