/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ring allreduce, segmented and pipelined: reduce-scatter, then allgather,
 * each n - 1 rounds around the ring; every rank sends 2 (n - 1) / n of the
 * data, which is the least possible. P. Patarasu, X. Yuan: Bandwidth optimal
 * all-reduce algorithms for clusters of workstations. J. Parallel Distrib.
 * Comput. 69(2), 2009.
 *
 * In round k of 2 (n - 1), rank r sends block (r - k) mod n to r + 1 and
 * receives block (r - 1 - k) mod n. Blocks are cut into the same number of
 * segments; message m = k * segments + s. Step 0 opens for r - 1.
 * Iteration m is {put, wait, reduce}, in the allgather {put, wait}; put m needs
 * what came in iteration m minus segments. Putting before waiting in each
 * iteration is what keeps the ring from stopping, however small the window.
 *
 * Block b is summed along the ring starting with rank b's contribution, once,
 * so all ranks get the same bits.
 */
#include "plan.h"

void plan_begin_ring(struct plan *plan)
{
	uint64_t n = (uint64_t)plan->shape.n;

	plan_segment(plan, plan_part_len(plan->shape.count, n, 0));
}

/* Segment @s of block @b: its length; *off gets its offset. */
static uint64_t segment_at(const struct plan *plan, uint64_t b, uint64_t s,
			   uint64_t *off)
{
	uint64_t n = (uint64_t)plan->shape.n;
	uint64_t len = plan_part_len(plan->shape.count, n, b);
	uint64_t skip = s * plan->segment;

	if (skip >= len)
		return 0;
	*off = plan_part_off(plan->shape.count, n, b) + skip;
	return len - skip < plan->segment ? len - skip : plan->segment;
}

/* The number of the first step of iteration @m. */
static uint64_t first_step(const struct plan *plan, uint64_t m)
{
	uint64_t reducing = ((uint64_t)plan->shape.n - 1) * plan->segments;

	return 1 + (m < reducing ? 3 * m : 3 * reducing + 2 * (m - reducing));
}

static void put_step(const struct plan *plan, struct plan_step *step,
		     uint64_t k, uint64_t s)
{
	uint64_t n = (uint64_t)plan->shape.n, r = (uint64_t)plan->shape.rank;
	bool reducing = k < n - 1;

	step->len = segment_at(plan, (r + 2 * n - k) % n, s, &step->src_off);
	step->kind = PLAN_PUT;
	step->peer = (int)((r + 1) % n);
	step->src = k == 0 ? PLAN_INPUT : PLAN_OUTPUT;
	step->dst = reducing ? PLAN_LANDING : PLAN_OUTPUT;
	step->dst_off = reducing ? 0 : step->src_off;
	if (k > 0) /* the reduce, or in the allgather the wait, of its data */
		step->dep[0] =
			first_step(plan, plan->iteration - plan->segments) +
			(k - 1 < n - 1 ? 2 : 1);
}

static void receive_step(const struct plan *plan, struct plan_step *step,
			 uint64_t k, uint64_t s)
{
	uint64_t n = (uint64_t)plan->shape.n, r = (uint64_t)plan->shape.rank;
	bool reducing = k < n - 1;
	uint64_t off = 0;

	step->len = segment_at(plan, (r + 2 * n - 1 - k) % n, s, &off);
	step->peer = (int)((r + n - 1) % n);
	if (plan->part == 1) {
		step->kind = PLAN_WAIT;
		step->dst = reducing ? PLAN_LANDING : PLAN_OUTPUT;
		step->dst_off = reducing ? 0 : off;
	} else {
		step->kind = PLAN_REDUCE;
		step->src = PLAN_LANDING;
		step->acc = PLAN_INPUT;
		step->dst = PLAN_OUTPUT;
		step->acc_off = step->dst_off = off;
		step->dep[0] = plan->next - 1;
	}
}

bool plan_next_ring(struct plan *plan, struct plan_step *step)
{
	uint64_t rounds = 2 * ((uint64_t)plan->shape.n - 1);
	int before = (plan->shape.rank + plan->shape.n - 1) % plan->shape.n;
	uint64_t k, s;

	if (plan->segments == 0 || plan->iteration >= rounds * plan->segments)
		return false;
	if (plan->next == 0) {
		*step = plan_open(plan, before, PLAN_OUTPUT);
		return true;
	}
	k = plan->iteration / plan->segments;
	s = plan->iteration % plan->segments;
	*step = (struct plan_step){.dep = {PLAN_NO_STEP, PLAN_NO_STEP}};
	if (plan->part == 0)
		put_step(plan, step, k, s);
	else
		receive_step(plan, step, k, s);
	if (step->len == 0)
		step->kind = PLAN_NONE;
	if (++plan->part == (k < rounds / 2 ? 3 : 2)) {
		plan->part = 0;
		plan->iteration++;
	}
	return true;
}
