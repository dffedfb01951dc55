/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Allreduces in which every rank sends its whole INPUT to every other, and
 * each sums all of them itself, in the order of the ranks: n - 1 vectors sent
 * and received per rank. Two orders:
 *
 * - decentralized: n - 1 rounds; in round k rank r puts to r + k and waits
 *   for r - k, and it begins a round when it has what the round before was
 *   to bring, so that one rank at a time sends to each (fan-in 1). As in a
 *   pairwise exchange: R. Thakur, R. Rabenseifner, W. Gropp: Optimization of
 *   collective communication operations in MPICH. Int. J. High Perform.
 *   Comput. Appl. 19(1), 2005.
 * - oneshot: all puts, then all waits: one round, the fewest steps possible,
 *   for messages so small that only latency counts. NVIDIA TensorRT-LLM calls
 *   it so: one-shot custom allreduce, 2023.
 *
 * The vector is cut into segments; one is put, waited for and summed after
 * the other, so it cannot stop, however small the window. The sum of a
 * segment is a step after all others of it. If INPUT and OUTPUT are one, it
 * overwrites what was put, hence the puts are waited for.
 */
#include "plan.h"

/* page->children: the others; page->round: whether there are rounds. */
static void begin_oneshot(struct plan_page *page)
{
	page->children = (unsigned)page->shape.n - 1;
	plan_segment(page, page->shape.count);
}

static void begin_rounds(struct plan_page *page)
{
	begin_oneshot(page);
	page->round = 1;
}

/* The rank @distance after ours. */
static int after(const struct plan_page *page, unsigned distance)
{
	return (int)(((unsigned)page->shape.rank + distance) %
		     (unsigned)page->shape.n);
}

static void put_step(const struct plan_page *page, struct plan_step *step,
		     unsigned k, uint64_t off)
{
	step->kind = PLAN_PUT;
	step->peer = after(page, 1 + k);
	step->src = PLAN_INPUT;
	step->src_off = off;
	step->dst = PLAN_LANDING;
	if (page->shape.in_place)
		step->flags = PLAN_SYNC;
	/* In rounds: the wait before, which mark[0] is. */
	if (page->round && page->mark[0] > 0)
		step->dep[0] = page->mark[0];
}

static void wait_step(struct plan_page *page, struct plan_step *step,
		      unsigned k)
{
	step->kind = PLAN_WAIT;
	step->peer = after(page, page->children - k);
	step->dst = PLAN_LANDING;
	page->mark[0] = page->next;
}

static void sum_step(const struct plan_page *page, struct plan_step *step,
		     uint64_t off)
{
	step->kind = PLAN_REDUCE_ALL;
	step->src = PLAN_LANDING;
	step->acc = PLAN_INPUT;
	step->acc_off = off;
	step->dst = PLAN_OUTPUT;
	step->dst_off = off;
	step->flags = PLAN_FINISH;
	step->after = page->next;
}

static bool next(struct plan_page *page, struct plan_step *step)
{
	unsigned others = page->children, part = page->part;
	uint64_t off;

	if (page->iteration == page->segments)
		return false;
	if (page->opens < others) {
		/* First for the one whose first put we get. */
		*step = plan_open(page, after(page, others - page->opens++),
				  PLAN_LANDING);
		return true;
	}
	step->len =
		plan_segment_at(page, page->shape.count, page->iteration, &off);
	page->part++;
	if (part == 2 * others) {
		sum_step(page, step, off);
		page->part = 0;
		page->iteration++;
	} else if (page->round ? part % 2 == 0 : part < others) {
		put_step(page, step, page->round ? part / 2 : part, off);
	} else {
		wait_step(page, step, page->round ? part / 2 : part - others);
	}
	return true;
}

static const struct plan_page_ops rounds_ops = {begin_rounds, next};
static const struct plan_page_ops oneshot_ops = {begin_oneshot, next};

static bool rounds_phase(const struct plan_shape *shape, unsigned i,
			 struct plan_phase *phase)
{
	*phase = plan_whole(shape, &rounds_ops);
	return i == 0;
}

static bool oneshot_phase(const struct plan_shape *shape, unsigned i,
			  struct plan_phase *phase)
{
	*phase = plan_whole(shape, &oneshot_ops);
	return i == 0;
}

const struct plan_algo plan_decentralized_allreduce = {
	.phase = rounds_phase,
	.in_order = true,
	.source = "Thakur, Rabenseifner and Gropp 2005, "
		  "doi:10.1177/1094342005051521",
};
const struct plan_algo plan_oneshot_allreduce = {
	.phase = oneshot_phase,
	.in_order = true,
	.source = "NVIDIA TensorRT-LLM 2023, custom allreduce",
};
