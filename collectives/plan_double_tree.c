/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two binary trees, segmented and pipelined: broadcast, and allreduce (reduce
 * to the root, then broadcast). P. Sanders, J. Speck, J. L. Traff: Two-tree
 * algorithms for full bandwidth broadcast, reduction and scan. Parallel
 * Comput. 35(12), 2009.
 *
 * Each tree carries half of the vector. Every rank but the root has children
 * in one tree at most (plan_two_trees.h); the root has one in each.
 *
 * About log2(n) rounds each way. A broadcast: every rank but the root
 * receives one vector, and none sends more than one. An allreduce: none sends
 * or receives more than two; the root one.
 *
 * Iteration i: up in both trees with segment i, down in both with segment
 * i - lag, the lag being the way up and down, so that all four flows are busy
 * even when steps are executed in order. All ranks use the same lag and this
 * order, so puts and waits of a pair match, and each of the four needs what
 * was before it, on any rank, or comes to it within its tree: it cannot stop.
 *
 * Sums are made child by child, once, on the way up; what comes down is the
 * same bits for all. Wide partial sums are in SLOTS places of SCRATCH, used in
 * turn by the segments of the tree in which the rank is inner; a put out of
 * one is waited for.
 */
#include "plan_two_trees.h"

enum { SLOTS = 8, TREES = 2 };

/* page->round: the flow, up in both trees, then down; page->part: its step. */

static bool has_up(const struct plan_page *page)
{
	return page->shape.operation == PLAN_OP_ALLREDUCE;
}

static unsigned up_steps(const struct plan_page *page, unsigned tree)
{
	uint64_t at = two_trees_position(&page->shape, tree);

	return has_up(page)
		       ? 2 * two_trees_children(&page->shape, at) + (at != 0)
		       : 0;
}

static unsigned down_steps(const struct plan_page *page, unsigned tree)
{
	uint64_t at = two_trees_position(&page->shape, tree);

	return two_trees_children(&page->shape, at) + (at != 0);
}

/* The first step up in @tree in iteration @i. */
static uint64_t first_up(const struct plan_page *page, unsigned tree,
			 uint64_t i)
{
	uint64_t downs = i > page->lag ? i - page->lag : 0;

	return page->opens + i * (up_steps(page, 0) + up_steps(page, 1)) +
	       downs * (down_steps(page, 0) + down_steps(page, 1)) +
	       (tree ? up_steps(page, 0) : 0);
}

/* The @i-th of those who may put to us; -1: none, or one before. */
static int opens_for(const struct plan_page *page, unsigned i)
{
	unsigned tree = i % TREES, j = i / TREES;
	uint64_t at = two_trees_position(&page->shape, tree);
	int peer = -1;

	if (j == 0 && at > 0)
		peer = two_trees_rank(&page->shape, tree,
				      two_trees_parent(&page->shape, at));
	else if (j > 0 && has_up(page) &&
		 j <= two_trees_children(&page->shape, at))
		peer = two_trees_rank(&page->shape, tree,
				      two_trees_child(&page->shape, at, j - 1));
	for (unsigned before = 0; before < i && peer >= 0; before++)
		if (opens_for(page, before) == peer)
			return -1;
	return peer;
}

enum { MAY_OPEN = 3 * TREES }; /* for parents first, then children */

static void begin(struct plan_page *page)
{
	if (page->shape.n == 1)
		return;
	plan_segment(page, plan_part_len(page->shape.count, TREES, 0));
	for (unsigned i = 0; i < MAY_OPEN; i++)
		page->opens += opens_for(page, i) >= 0;
	if (has_up(page))
		page->lag = 2 * plan_log2((uint64_t)page->shape.n);
}

/* Segment @s of @tree's half: its length; *off gets its offset. */
static uint64_t segment_at(const struct plan_page *page, unsigned tree,
			   uint64_t s, uint64_t *off)
{
	uint64_t half = plan_part_len(page->shape.count, TREES, tree);
	uint64_t skip, len = plan_segment_at(page, half, s, &skip);

	*off = plan_part_off(page->shape.count, TREES, tree) + skip;
	return len;
}

static void reduce_step(const struct plan_page *page, struct plan_step *step,
			unsigned j, uint64_t off)
{
	uint8_t partial = plan_partial(&page->shape);
	uint64_t slot = page->iteration % SLOTS * page->segment;
	unsigned tree = page->round;

	step->kind = PLAN_REDUCE;
	step->src = PLAN_LANDING;
	step->acc = j == 0 ? PLAN_INPUT : partial;
	step->acc_off = step->acc == PLAN_SCRATCH ? slot : off;
	step->dst = partial;
	if (two_trees_position(&page->shape, tree) == 0) {
		step->dst = PLAN_OUTPUT;
		step->flags |= PLAN_FINISH;
	}
	step->dst_off = step->dst == PLAN_SCRATCH ? slot : off;
	step->dep[0] = page->next - 1;
	if (j > 0)
		step->dep[1] = page->next - 2;
	else if (step->dst == PLAN_SCRATCH && page->iteration >= SLOTS)
		/* The put out of the slot. */
		step->dep[1] = first_up(page, tree, page->iteration - SLOTS) +
			       up_steps(page, tree) - 1;
}

static void up_step(const struct plan_page *page, struct plan_step *step)
{
	unsigned tree = page->round, part = page->part;
	uint64_t at = two_trees_position(&page->shape, tree), from, off;
	unsigned below = two_trees_children(&page->shape, at);

	step->len = segment_at(page, tree, page->iteration, &off);
	step->dst = PLAN_LANDING;
	if (part < 2 * below) {
		from = two_trees_child(&page->shape, at, part / 2);
		step->kind = PLAN_WAIT;
		step->peer = two_trees_rank(&page->shape, tree, from);
		if (two_trees_children(&page->shape, from) > 0)
			step->flags |= PLAN_WIDE;
		if (part % 2 == 1)
			reduce_step(page, step, part / 2, off);
		return;
	}
	step->kind = PLAN_PUT;
	step->peer = two_trees_rank(&page->shape, tree,
				    two_trees_parent(&page->shape, at));
	step->src = below ? plan_partial(&page->shape) : PLAN_INPUT;
	step->src_off = off;
	if (step->src == PLAN_SCRATCH) {
		step->src_off = page->iteration % SLOTS * page->segment;
		step->flags |= PLAN_SYNC;
	}
	if (below)
		step->dep[0] = page->next - 1;
}

static void down_step(const struct plan_page *page, struct plan_step *step)
{
	unsigned tree = page->round - TREES, part = page->part;
	uint64_t s = page->iteration - page->lag, off;
	uint64_t at = two_trees_position(&page->shape, tree);

	step->len = segment_at(page, tree, s, &off);
	step->dst = PLAN_OUTPUT;
	step->dst_off = off;
	if (at > 0 && part == 0) {
		step->kind = PLAN_WAIT;
		step->peer = two_trees_rank(&page->shape, tree,
					    two_trees_parent(&page->shape, at));
		return;
	}
	step->kind = PLAN_PUT;
	step->peer = two_trees_rank(
		&page->shape, tree,
		two_trees_child(&page->shape, at, part - (at > 0)));
	step->src = at > 0 || has_up(page) ? PLAN_OUTPUT : PLAN_INPUT;
	step->src_off = off;
	if (at > 0)
		step->dep[0] = page->next - part;
	else if (has_up(page))
		step->dep[0] = first_up(page, tree, s) + 1;
}

static void open_step(const struct plan_page *page, struct plan_step *step)
{
	unsigned i = 0, at = 0;

	while (opens_for(page, i) < 0 || at++ < page->next)
		i++;
	*step = plan_open(page, opens_for(page, i),
			  i < TREES ? PLAN_OUTPUT : PLAN_LANDING);
}

/* Steps of the flow in this iteration. */
static unsigned flow_steps(const struct plan_page *page)
{
	if (page->round < TREES)
		return page->iteration < page->segments
			       ? up_steps(page, page->round)
			       : 0;
	return page->iteration >= page->lag
		       ? down_steps(page, page->round - TREES)
		       : 0;
}

static bool next(struct plan_page *page, struct plan_step *step)
{
	if (page->segments == 0)
		return false;
	if (page->next < page->opens) {
		open_step(page, step);
		return true;
	}
	while (page->part == flow_steps(page)) {
		page->part = 0;
		if (++page->round < 2 * TREES)
			continue;
		page->round = 0;
		if (++page->iteration == page->segments + page->lag)
			return false;
	}
	if (page->round < TREES)
		up_step(page, step);
	else
		down_step(page, step);
	page->part++;
	if (step->len == 0)
		step->kind = PLAN_NONE;
	return true;
}

static const struct plan_page_ops ops = {begin, next};

static bool phase(const struct plan_shape *shape, unsigned i,
		  struct plan_phase *phase)
{
	*phase = plan_whole(shape, &ops);
	return i == 0;
}

static uint64_t scratch(const struct plan_shape *shape)
{
	struct plan_page page = {.shape = *shape};

	if (!shape->wide || shape->n <= 2)
		return 0;
	begin(&page);
	return (page.segments < SLOTS ? page.segments : SLOTS) * page.segment;
}

#define SOURCE "Sanders, Speck and Traff 2009, doi:10.1016/j.parco.2009.09.001"

const struct plan_algo plan_double_tree_allreduce = {
	.phase = phase, .scratch = scratch, .source = SOURCE};
const struct plan_algo plan_double_tree_broadcast = {.phase = phase,
						     .source = SOURCE};
