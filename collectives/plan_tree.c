/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial trees, segmented: allreduce (reduce to the root, then broadcast)
 * and broadcast; 2 log2(n), log2(n) rounds. R. Thakur, R. Rabenseifner,
 * W. Gropp: Optimization of collective communication operations in MPICH.
 * Int. J. High Perform. Comput. Appl. 19(1), 2005.
 *
 * Ranks are numbered from the root: v = (rank - root) mod n. The parent of v
 * is v without its lowest bit; its children are v + 2^j below that bit. Sums
 * are made child by child, the smallest subtree first, on the way up, once;
 * what comes down is the same bits for all.
 *
 * First a rank opens for its parent and, in the allreduce, its children.
 *
 * Iteration i of the allreduce reduces segment i and hands down segment
 * i - lag, the lag being the way up and down, so that both flows are busy
 * even when steps are executed in order. All ranks use the same lag, without
 * which a small window could stop.
 */
#include "plan.h"

static uint64_t virtual_rank(const struct plan *plan)
{
	uint64_t n = (uint64_t)plan->shape.n;

	return ((uint64_t)plan->shape.rank + n - (uint64_t)plan->shape.root) %
	       n;
}

static int real_rank(const struct plan *plan, uint64_t v)
{
	uint64_t n = (uint64_t)plan->shape.n;

	return (int)((v + (uint64_t)plan->shape.root) % n);
}

static int parent(const struct plan *plan)
{
	uint64_t v = virtual_rank(plan);

	return real_rank(plan, v & (v - 1));
}

static int child(const struct plan *plan, unsigned j)
{
	return real_rank(plan, virtual_rank(plan) + (UINT64_C(1) << j));
}

void plan_begin_tree(struct plan *plan)
{
	uint64_t v = virtual_rank(plan), n = (uint64_t)plan->shape.n;
	uint64_t bit = 1;

	plan_segment(plan, plan->shape.count);
	while (!(v & bit) && v + bit < n) {
		plan->children++;
		bit <<= 1;
	}
	plan->opens = v != 0;
	if (plan->shape.algorithm == PLAN_TREE_ALLREDUCE) {
		plan->opens += plan->children;
		plan->lag = 2 * plan_log2(n);
	}
}

/* Segment @s: its length; *off gets its offset. */
static uint64_t segment_at(const struct plan *plan, uint64_t s, uint64_t *off)
{
	uint64_t left = plan->shape.count - s * plan->segment;

	*off = s * plan->segment;
	return left < plan->segment ? left : plan->segment;
}

/* Steps of the reduce part, then of the broadcast part, per iteration. */
static unsigned up_steps(const struct plan *plan)
{
	return 2 * plan->children + (virtual_rank(plan) != 0);
}

static unsigned down_steps(const struct plan *plan)
{
	return plan->children + (virtual_rank(plan) != 0);
}

static void up_step(const struct plan *plan, struct plan_step *step,
		    unsigned part)
{
	uint64_t off;

	step->len = segment_at(plan, plan->iteration, &off);
	step->dep[0] = plan->next - 1;
	if (part == 2 * plan->children) {
		step->kind = PLAN_PUT;
		step->peer = parent(plan);
		step->src = part > 0 ? PLAN_OUTPUT : PLAN_INPUT;
		step->src_off = off;
		step->dst = PLAN_LANDING;
		if (part == 0)
			step->dep[0] = PLAN_NO_STEP;
		return;
	}
	step->peer = child(plan, part / 2);
	if (part % 2 == 0) {
		step->kind = PLAN_WAIT;
		step->dst = PLAN_LANDING;
		step->dep[0] = PLAN_NO_STEP;
		return;
	}
	step->kind = PLAN_REDUCE;
	step->src = PLAN_LANDING;
	step->acc = part == 1 ? PLAN_INPUT : PLAN_OUTPUT;
	step->dst = PLAN_OUTPUT;
	step->acc_off = step->dst_off = off;
	if (part > 1)
		step->dep[1] = plan->next - 2;
}

/* The root's last reduce of segment @s. */
static uint64_t summed(const struct plan *plan, uint64_t s)
{
	uint64_t downs = s > plan->lag ? s - plan->lag : 0;

	return plan->opens + s * up_steps(plan) + downs * down_steps(plan) +
	       2 * plan->children - 1;
}

static void down_step(const struct plan *plan, struct plan_step *step,
		      unsigned part)
{
	uint64_t s = plan->iteration - plan->lag;
	bool root = virtual_rank(plan) == 0;
	unsigned puts_before = part - (root ? 0 : 1);
	uint64_t off;

	step->len = segment_at(plan, s, &off);
	step->dst = PLAN_OUTPUT;
	step->dst_off = off;
	if (!root && part == 0) {
		step->kind = PLAN_WAIT;
		step->peer = parent(plan);
		return;
	}
	step->kind = PLAN_PUT;
	step->peer = child(plan, plan->children - 1 - puts_before);
	step->src = PLAN_OUTPUT;
	step->src_off = off;
	if (!root)
		step->dep[0] = plan->next - part;
	else if (plan->shape.algorithm == PLAN_TREE_ALLREDUCE)
		step->dep[0] = summed(plan, s);
}

/* Whether the next step is an open, which *step gets. */
static bool open_step(const struct plan *plan, struct plan_step *step)
{
	uint64_t i = plan->next;

	if (i >= plan->opens)
		return false;
	if (virtual_rank(plan) == 0)
		i++;
	*step = i == 0 ? plan_open(plan, parent(plan), PLAN_OUTPUT)
		       : plan_open(plan, child(plan, (unsigned)i - 1),
				   PLAN_LANDING);
	return true;
}

bool plan_next_tree_allreduce(struct plan *plan, struct plan_step *step)
{
	unsigned ups = up_steps(plan), all = ups + down_steps(plan);

	if (plan->shape.n == 1 || plan->segments == 0)
		return false;
	if (open_step(plan, step))
		return true;
	*step = (struct plan_step){.dep = {PLAN_NO_STEP, PLAN_NO_STEP}};
	for (; plan->iteration < plan->segments + plan->lag;
	     plan->iteration++, plan->part = 0) {
		bool up = plan->iteration < plan->segments;
		bool down = plan->iteration >= plan->lag;

		if (plan->part < ups && !up)
			plan->part = ups;
		if (plan->part < ups) {
			up_step(plan, step, plan->part++);
			return true;
		}
		if (plan->part < all && down) {
			down_step(plan, step, plan->part++ - ups);
			return true;
		}
	}
	return false;
}

bool plan_next_tree_broadcast(struct plan *plan, struct plan_step *step)
{
	if (plan->shape.n == 1 || plan->iteration >= plan->segments)
		return false;
	if (open_step(plan, step))
		return true;
	*step = (struct plan_step){.dep = {PLAN_NO_STEP, PLAN_NO_STEP}};
	down_step(plan, step, plan->part++);
	if (plan->part == down_steps(plan)) {
		plan->part = 0;
		plan->iteration++;
	}
	return true;
}
