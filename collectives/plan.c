/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans: the table of algorithms, the phases of a plan one after another, and
 * the translation of what their pages yield.
 */
#include "plan.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

/* ---- one rank ---- */

static bool next_local(struct plan_page *page, struct plan_step *step)
{
	uint64_t off = 0, len;

	if (page->next > 0 || page->shape.operation == PLAN_OP_BARRIER)
		return false;
	len = plan_block(&page->shape, 0, &off);
	if (len == 0)
		return false;
	*step = (struct plan_step){
		.kind = PLAN_COPY,
		.src = PLAN_INPUT,
		.dst = PLAN_OUTPUT,
		.len = len,
		.dep = {PLAN_NO_STEP, PLAN_NO_STEP},
	};
	switch (page->shape.operation) {
	case PLAN_OP_ALLGATHER:
	case PLAN_OP_GATHER:
		step->dst_off = off;
		break;
	case PLAN_OP_SCATTER:
	case PLAN_OP_REDUCE_SCATTER:
		step->src_off = off;
		break;
	case PLAN_OP_ALLTOALL:
		step->dst_off = off;
		plan_block_in(&page->shape, 0, &step->src_off);
		break;
	default:
		break;
	}
	return true;
}

static const struct plan_page_ops local_ops = {NULL, next_local};

static bool local_phase(const struct plan_shape *shape, unsigned i,
			struct plan_phase *phase)
{
	*phase = plan_whole(shape, &local_ops);
	return i == 0;
}

static const struct plan_algo local = {.phase = local_phase, .in_order = true};

/* ---- the table ---- */

static const struct plan_algo *const table[PLAN_OPERATIONS][PLAN_ALGORITHMS] = {
	[PLAN_OP_ALLREDUCE] =
		{
			[PLAN_RING] = &plan_ring_allreduce,
			[PLAN_BIRING] = &plan_biring_allreduce,
			[PLAN_TREE] = &plan_tree_allreduce,
			[PLAN_MAPPED] = &plan_mapped_allreduce,
			[PLAN_CENTRAL] = &plan_central_allreduce,
			[PLAN_SHARDED] = &plan_sharded_allreduce,
			[PLAN_DECENTRALIZED] = &plan_decentralized_allreduce,
			[PLAN_ONESHOT] = &plan_oneshot_allreduce,
			[PLAN_DOUBLE_TREE] = &plan_double_tree_allreduce,
			[PLAN_HIERARCHICAL] = &plan_hierarchical_allreduce,
			[PLAN_HALVING] = &plan_halving_allreduce,
			[PLAN_DOUBLING] = &plan_doubling_allreduce,
		},
	[PLAN_OP_REDUCE] =
		{
			[PLAN_TREE] = &plan_tree_reduce,
			[PLAN_MAPPED] = &plan_mapped_reduce,
			[PLAN_LINEAR] = &plan_linear_reduce,
			[PLAN_HIERARCHICAL] = &plan_hierarchical_reduce,
			[PLAN_HALVING] = &plan_halving_reduce,
		},
	[PLAN_OP_BROADCAST] =
		{
			[PLAN_TREE] = &plan_tree_broadcast,
			[PLAN_MAPPED] = &plan_mapped_broadcast,
			[PLAN_LINEAR] = &plan_linear_broadcast,
			[PLAN_DOUBLE_TREE] = &plan_double_tree_broadcast,
			[PLAN_HIERARCHICAL] = &plan_hierarchical_broadcast,
		},
	[PLAN_OP_REDUCE_SCATTER] =
		{
			[PLAN_RING] = &plan_ring_reduce_scatter,
			[PLAN_MAPPED] = &plan_mapped_reduce_scatter,
			[PLAN_LINEAR] = &plan_linear_reduce_scatter,
			[PLAN_HALVING] = &plan_halving_reduce_scatter,
		},
	[PLAN_OP_ALLGATHER] =
		{
			[PLAN_RING] = &plan_ring_allgather,
			[PLAN_MAPPED] = &plan_mapped_allgather,
			[PLAN_LINEAR] = &plan_linear_allgather,
			[PLAN_BRUCK] = &plan_bruck_allgather,
			[PLAN_DOUBLING] = &plan_doubling_allgather,
		},
	[PLAN_OP_GATHER] =
		{
			[PLAN_LINEAR] = &plan_linear_gather,
			[PLAN_TREE] = &plan_tree_gather,
		},
	[PLAN_OP_SCATTER] =
		{
			[PLAN_LINEAR] = &plan_linear_scatter,
			[PLAN_TREE] = &plan_tree_scatter,
		},
	[PLAN_OP_ALLTOALL] =
		{
			[PLAN_MAPPED] = &plan_mapped_alltoall,
			[PLAN_LINEAR] = &plan_linear_alltoall,
			[PLAN_PAIRWISE] = &plan_pairwise_alltoall,
			[PLAN_BRUCK] = &plan_bruck_alltoall,
		},
	[PLAN_OP_BARRIER] =
		{
			[PLAN_DISSEMINATION] = &plan_dissemination_barrier,
		},
};

const struct plan_algo *plan_find(enum plan_operation operation,
				  enum plan_algorithm algorithm)
{
	if ((unsigned)operation >= PLAN_OPERATIONS ||
	    (unsigned)algorithm >= PLAN_ALGORITHMS)
		return NULL;
	return algorithm == PLAN_LOCAL ? &local : table[operation][algorithm];
}

static const char *const names[PLAN_ALGORITHMS] = {
	[PLAN_LOCAL] = "local",
	[PLAN_CENTRAL] = "central",
	[PLAN_SHARDED] = "sharded",
	[PLAN_DECENTRALIZED] = "decentralized",
	[PLAN_RING] = "ring",
	[PLAN_BIRING] = "biring",
	[PLAN_DOUBLING] = "doubling",
	[PLAN_HALVING] = "halving",
	[PLAN_TREE] = "tree",
	[PLAN_DOUBLE_TREE] = "double-tree",
	[PLAN_BRUCK] = "bruck",
	[PLAN_PAIRWISE] = "pairwise",
	[PLAN_LINEAR] = "linear",
	[PLAN_ONESHOT] = "oneshot",
	[PLAN_DISSEMINATION] = "dissemination",
	[PLAN_HIERARCHICAL] = "hierarchical",
	[PLAN_MAPPED] = "mapped",
};

static const char *const operations[PLAN_OPERATIONS] = {
	[PLAN_OP_ALLREDUCE] = "allreduce",
	[PLAN_OP_REDUCE] = "reduce",
	[PLAN_OP_BROADCAST] = "broadcast",
	[PLAN_OP_REDUCE_SCATTER] = "reduce-scatter",
	[PLAN_OP_ALLGATHER] = "allgather",
	[PLAN_OP_GATHER] = "gather",
	[PLAN_OP_SCATTER] = "scatter",
	[PLAN_OP_ALLTOALL] = "alltoall",
	[PLAN_OP_BARRIER] = "barrier",
};

const char *plan_name(enum plan_algorithm algorithm)
{
	return (unsigned)algorithm < PLAN_ALGORITHMS ? names[algorithm]
						     : "unknown";
}

const char *plan_operation_name(enum plan_operation operation)
{
	return (unsigned)operation < PLAN_OPERATIONS ? operations[operation]
						     : "unknown";
}

bool plan_by_name(const char *name, enum plan_algorithm *algorithm)
{
	for (int i = 0; i < PLAN_ALGORITHMS; i++)
		if (!strcmp(name, names[i])) {
			*algorithm = (enum plan_algorithm)i;
			return true;
		}
	return false;
}

/* ---- running through the phases ---- */

static bool shape_is_valid(const struct plan_shape *shape)
{
	return shape->n >= 1 && shape->rank >= 0 && shape->rank < shape->n &&
	       shape->root >= 0 && shape->root < shape->n &&
	       shape->chunk >= 1 &&
	       (shape->algorithm != PLAN_LOCAL || shape->n == 1);
}

/* Begin the next phase that the rank has a part in; false at the end. */
static bool next_phase(struct plan *plan)
{
	struct plan_phase *phase = &plan->phase;

	do {
		if (!plan->algo->phase(&plan->shape, plan->phases, phase)) {
			phase->ops = NULL;
			return false;
		}
		plan->phases++;
	} while (!phase->ops);
	plan->first = plan->next;
	plan->page = (struct plan_page){.shape = phase->shape};
	if (phase->ops->begin)
		phase->ops->begin(&plan->page);
	return true;
}

int plan_begin(struct plan *plan, const struct plan_shape *shape)
{
	const struct plan_algo *algo =
		plan_find(shape->operation, shape->algorithm);

	if (!shape_is_valid(shape))
		return -EINVAL;
	if (!algo || (algo->even && shape->layout) ||
	    (algo->apart && shape->in_place) ||
	    (algo->power_of_two && (shape->n & (shape->n - 1)) != 0))
		return -EOPNOTSUPP;
	plan->shape = *shape;
	plan->algo = shape->n == 1 ? &local : algo;
	plan->next = plan->first = 0;
	plan->phases = 0;
	plan->phase.ops = NULL;
	return 0;
}

static void translate_space(const struct plan_phase *phase, uint8_t *space,
			    uint64_t *off)
{
	if (*space == PLAN_LANDING)
		return;
	*off += phase->offset;
	if (*space == PLAN_INPUT)
		*space = phase->input;
	else if (*space == PLAN_OUTPUT)
		*space = phase->output;
}

static void translate(const struct plan *plan, struct plan_step *step)
{
	const struct plan_phase *phase = &plan->phase;
	bool raw_is_wide = phase->input == PLAN_SCRATCH && plan->shape.wide;

	if (phase->members)
		step->peer = phase->members[step->peer];
	step->members = phase->members;
	step->n = phase->shape.n;
	for (int i = 0; i < 2; i++)
		if (step->dep[i] != PLAN_NO_STEP)
			step->dep[i] += plan->first;
	step->after += plan->first;
	if (step->kind == PLAN_OPEN) {
		if (step->flags & PLAN_EARLY)
			step->after = 0;
		return;
	}
	translate_space(phase, &step->src, &step->src_off);
	translate_space(phase, &step->acc, &step->acc_off);
	translate_space(phase, &step->dst, &step->dst_off);
	if (raw_is_wide)
		step->flags |= PLAN_WIDE;
	if (phase->output == PLAN_SCRATCH)
		step->flags &= (uint8_t)~PLAN_FINISH;
}

bool plan_next(struct plan *plan, struct plan_step *step)
{
	if (!plan->phase.ops && !next_phase(plan))
		return false;
	for (;;) {
		*step = (struct plan_step){.dep = {PLAN_NO_STEP, PLAN_NO_STEP}};
		if (plan->phase.ops->next(&plan->page, step))
			break;
		plan->phase.ops = NULL;
		if (!next_phase(plan))
			return false;
	}
	translate(plan, step);
	plan->page.next++;
	plan->next++;
	return true;
}

/* ---- for the pages ---- */

struct plan_phase plan_whole(const struct plan_shape *shape,
			     const struct plan_page_ops *ops)
{
	return (struct plan_phase){.ops = ops,
				   .shape = *shape,
				   .input = PLAN_INPUT,
				   .output = PLAN_OUTPUT};
}

struct plan_step plan_open(const struct plan_page *page, int peer,
			   enum plan_space dst)
{
	return (struct plan_step){
		.kind = PLAN_OPEN,
		.peer = peer,
		.src = PLAN_LANDING,
		.dst = (uint8_t)dst,
		.len = page->segment,
		.flags = PLAN_EARLY,
		.dep = {PLAN_NO_STEP, PLAN_NO_STEP},
	};
}

unsigned plan_log2(uint64_t n)
{
	return n <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(n - 1);
}

void plan_segment(struct plan_page *page, uint64_t len)
{
	uint64_t chunk = page->shape.chunk;

	page->segments = len == 0 ? 0 : (len - 1) / chunk + 1;
	page->segment = len == 0 ? 0 : (len - 1) / page->segments + 1;
}

uint64_t plan_segment_at(const struct plan_page *page, uint64_t len, uint64_t s,
			 uint64_t *skip)
{
	*skip = s * page->segment;
	if (*skip >= len)
		return 0;
	return len - *skip < page->segment ? len - *skip : page->segment;
}

static bool is_split(enum plan_operation operation)
{
	return operation == PLAN_OP_ALLREDUCE || operation == PLAN_OP_REDUCE ||
	       operation == PLAN_OP_BROADCAST;
}

uint64_t plan_block(const struct plan_shape *shape, int i, uint64_t *off)
{
	uint64_t part = (uint64_t)i;

	if (is_split(shape->operation)) {
		*off = plan_part_off(shape->count, (uint64_t)shape->n, part);
		return plan_part_len(shape->count, (uint64_t)shape->n, part);
	}
	if (shape->layout) {
		*off = shape->layout->off[i];
		return shape->layout->len[i];
	}
	*off = part * shape->count;
	return shape->count;
}

uint64_t plan_block_in(const struct plan_shape *shape, int i, uint64_t *off)
{
	if (shape->layout) {
		*off = shape->layout->in_off[i];
		return shape->layout->in_len[i];
	}
	*off = (uint64_t)i * shape->count;
	return shape->count;
}

uint64_t plan_block_most(const struct plan_shape *shape)
{
	uint64_t most = 0, off;

	if (!shape->layout || is_split(shape->operation))
		return plan_block(shape, 0, &off);
	for (int i = 0; i < shape->n; i++)
		if (shape->layout->len[i] > most)
			most = shape->layout->len[i];
	return most;
}

/* ---- sizes ---- */

/* The end of the last of n parts. */
static uint64_t parts_end(const struct plan_shape *shape, bool in)
{
	uint64_t end = 0;

	if (!shape->layout)
		return (uint64_t)shape->n * shape->count;
	for (int i = 0; i < shape->n; i++) {
		uint64_t off, len = in ? plan_block_in(shape, i, &off)
				       : plan_block(shape, i, &off);

		if (len > 0 && off + len > end)
			end = off + len;
	}
	return end;
}

static uint64_t own_part(const struct plan_shape *shape)
{
	uint64_t off;

	return plan_block(shape, shape->rank, &off);
}

uint64_t plan_input(const struct plan_shape *shape)
{
	switch (shape->operation) {
	case PLAN_OP_REDUCE_SCATTER:
		return parts_end(shape, false);
	case PLAN_OP_SCATTER:
		return shape->rank == shape->root ? parts_end(shape, false) : 0;
	case PLAN_OP_ALLTOALL:
		return parts_end(shape, true);
	case PLAN_OP_ALLGATHER:
	case PLAN_OP_GATHER:
		return own_part(shape);
	case PLAN_OP_BARRIER:
		return 0;
	default:
		return shape->count;
	}
}

uint64_t plan_output(const struct plan_shape *shape)
{
	switch (shape->operation) {
	case PLAN_OP_ALLGATHER:
	case PLAN_OP_ALLTOALL:
		return parts_end(shape, false);
	case PLAN_OP_GATHER:
		return shape->rank == shape->root ? parts_end(shape, false) : 0;
	case PLAN_OP_SCATTER:
	case PLAN_OP_REDUCE_SCATTER:
		return own_part(shape);
	case PLAN_OP_REDUCE:
		return shape->no_output ? 0 : shape->count;
	case PLAN_OP_BARRIER:
		return 0;
	default:
		return shape->count;
	}
}

uint64_t plan_scratch(const struct plan_shape *shape)
{
	const struct plan_algo *algo =
		plan_find(shape->operation, shape->algorithm);

	return algo && algo->scratch ? algo->scratch(shape) : 0;
}
