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

bool plan_next_dissemination(struct plan *plan, struct plan_step *step)
{
	uint64_t n = (uint64_t)plan->shape.n, r = (uint64_t)plan->shape.rank;
	uint64_t rounds = plan_log2(n);
	uint64_t distance = UINT64_C(1) << plan->iteration;

	if (plan->next < rounds) {
		distance = UINT64_C(1) << plan->next;
		*step = plan_open(plan, (int)((r + n - distance) % n),
				  PLAN_LANDING);
		return true;
	}
	if (plan->iteration == rounds)
		return false;
	*step = (struct plan_step){
		.dst = PLAN_LANDING,
		.dep = {PLAN_NO_STEP, PLAN_NO_STEP},
	};
	if (plan->part == 0) {
		step->kind = PLAN_PUT;
		step->peer = (int)((r + distance) % n);
		if (plan->iteration > 0) {
			step->dep[0] = plan->next - 1;
			step->dep[1] = plan->next - 2;
		}
		plan->part = 1;
	} else {
		step->kind = PLAN_WAIT;
		step->peer = (int)((r + n - distance) % n);
		plan->part = 0;
		plan->iteration++;
	}
	return true;
}
