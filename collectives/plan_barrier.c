/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dissemination barrier: in round k, rank r tells r + 2^k and hears from
 * r - 2^k; after ceil(log2(n)) rounds each has heard, indirectly, from all.
 * D. Hensgen, R. Finkel, U. Manber: Two algorithms for barrier
 * synchronization. Int. J. Parallel Program. 17(1), 1988.
 *
 * A put depends on the wait of the round before, and on that round's put,
 * which stands for all earlier waits.
 */
#include "plan.h"

#include <stddef.h>

static bool next(struct plan_page *page, struct plan_step *step)
{
	uint64_t n = (uint64_t)page->shape.n, r = (uint64_t)page->shape.rank;
	uint64_t rounds = plan_log2(n);
	uint64_t distance = UINT64_C(1) << page->iteration;

	if (page->next < rounds) {
		distance = UINT64_C(1) << page->next;
		*step = plan_open(page, (int)((r + n - distance) % n),
				  PLAN_LANDING);
		return true;
	}
	if (page->iteration == rounds)
		return false;
	step->dst = PLAN_LANDING;
	if (page->part == 0) {
		step->kind = PLAN_PUT;
		step->peer = (int)((r + distance) % n);
		if (page->iteration > 0) {
			step->dep[0] = page->next - 1;
			step->dep[1] = page->next - 2;
		}
		page->part = 1;
	} else {
		step->kind = PLAN_WAIT;
		step->peer = (int)((r + n - distance) % n);
		page->part = 0;
		page->iteration++;
	}
	return true;
}

static const struct plan_page_ops ops = {NULL, next};

static bool phase(const struct plan_shape *shape, unsigned i,
		  struct plan_phase *phase)
{
	*phase = plan_whole(shape, &ops);
	return i == 0;
}

const struct plan_algo plan_dissemination_barrier = {
	.phase = phase,
	.source = "Hensgen, Finkel and Manber 1988, doi:10.1007/BF01379320",
};
