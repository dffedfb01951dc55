/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans: dispatch to the algorithms, cutting into segments, and the choice by
 * size. Everything here is a function of its arguments only, so that all
 * ranks come to the same answer without talking.
 */
#include "plan.h"

#include <errno.h>
#include <stddef.h>

struct plan_step plan_open(const struct plan *plan, int peer,
			   enum plan_space dst)
{
	return (struct plan_step){
		.kind = PLAN_OPEN,
		.peer = peer,
		.dst = (uint8_t)dst,
		.len = plan->segment,
		.dep = {PLAN_NO_STEP, PLAN_NO_STEP},
	};
}

static bool next_local(struct plan *plan, struct plan_step *step)
{
	if (plan->next > 0 || plan->shape.count == 0)
		return false;
	*step = (struct plan_step){
		.kind = PLAN_COPY,
		.src = PLAN_INPUT,
		.dst = PLAN_OUTPUT,
		.len = plan->shape.count,
		.dep = {PLAN_NO_STEP, PLAN_NO_STEP},
	};
	return true;
}

static const struct {
	const char *name;
	void (*begin)(struct plan *plan);
	bool (*next)(struct plan *plan, struct plan_step *step);
} algorithms[PLAN_ALGORITHMS] = {
	[PLAN_LOCAL] = {"local", NULL, next_local},
	[PLAN_RING_ALLREDUCE] = {"ring", plan_begin_ring, plan_next_ring},
	[PLAN_TREE_ALLREDUCE] = {"tree", plan_begin_tree,
				 plan_next_tree_allreduce},
	[PLAN_TREE_BROADCAST] = {"tree", plan_begin_tree,
				 plan_next_tree_broadcast},
	[PLAN_DISSEMINATION] = {"dissemination", NULL, plan_next_dissemination},
};

const char *plan_name(enum plan_algorithm algorithm)
{
	return (unsigned)algorithm < PLAN_ALGORITHMS
		       ? algorithms[algorithm].name
		       : "unknown";
}

unsigned plan_log2(uint64_t n)
{
	return n <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(n - 1);
}

void plan_segment(struct plan *plan, uint64_t len)
{
	uint64_t chunk = plan->shape.chunk;

	plan->segments = len == 0 ? 0 : (len - 1) / chunk + 1;
	plan->segment = len == 0 ? 0 : (len - 1) / plan->segments + 1;
}

int plan_begin(struct plan *plan, const struct plan_shape *shape)
{
	if ((unsigned)shape->algorithm >= PLAN_ALGORITHMS || shape->n < 1 ||
	    shape->rank < 0 || shape->rank >= shape->n || shape->root < 0 ||
	    shape->root >= shape->n || shape->chunk < 1 ||
	    (shape->algorithm == PLAN_LOCAL && shape->n > 1))
		return -EINVAL;
	*plan = (struct plan){.shape = *shape};
	if (algorithms[shape->algorithm].begin)
		algorithms[shape->algorithm].begin(plan);
	return 0;
}

bool plan_next(struct plan *plan, struct plan_step *step)
{
	if (!algorithms[plan->shape.algorithm].next(plan, step))
		return false;
	plan->next++;
	return true;
}

/*
 * Seconds for a message, and for a byte: between those of shared memory and
 * of a fast network; only their ratio matters here.
 */
static const double alpha = 2e-6, beta = 1.5e-10;

enum plan_algorithm plan_choose_allreduce(int n, uint64_t bytes)
{
	double m = (double)bytes;
	double ring = 2.0 * (n - 1) * (alpha + beta * m / n);
	double tree = 2.0 * plan_log2((uint64_t)n) * (alpha + beta * m);

	if (n == 1)
		return PLAN_LOCAL;
	return ring <= tree ? PLAN_RING_ALLREDUCE : PLAN_TREE_ALLREDUCE;
}

uint64_t plan_choose_chunk(enum plan_algorithm algorithm, int n, uint64_t bytes,
			   uint64_t max)
{
	const uint64_t least = 32 << 10;
	uint64_t part = bytes;
	uint64_t chunk;

	if (algorithm == PLAN_RING_ALLREDUCE)
		part = bytes / (uint64_t)n + 1;
	chunk = part / 4;
	if (chunk < least)
		chunk = least;
	return chunk < max ? chunk : max;
}
