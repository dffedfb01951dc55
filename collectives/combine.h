/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the steps of a plan compute, for the engine and the simulator alike:
 * which operands are narrow and which wide, what the last combination of an
 * element does, and the sum in the order of the ranks.
 */
#ifndef VBN_COMBINE_H
#define VBN_COMBINE_H

#include "plan.h"
#include "reduce.h"

struct combine {
	const struct reduce_kernel *kernel; /* NULL: nothing is reduced */
	size_t narrow, wide;		    /* bytes of an element */
	unsigned members;		    /* that an average divides by */
};

/* Bytes of an element in @space; of a landing as @flags of the step say. */
static inline size_t combine_bytes(const struct combine *c, uint8_t space,
				   uint8_t flags)
{
	bool wide = space == PLAN_SCRATCH ||
		    (space == PLAN_LANDING && flags & PLAN_WIDE);

	return wide ? c->wide : c->narrow;
}

/* PLAN_REDUCE: @src is the landing. */
void combine_reduce(const struct combine *c, const struct plan_step *step,
		    void *dst, const void *src, const void *acc);

/* PLAN_COPY, PLAN_COPY_PEER: nothing is done if @src is @dst already. */
void combine_copy(const struct combine *c, const struct plan_step *step,
		  void *dst, const void *src);

/*
 * PLAN_REDUCE_ALL: the step->n contributions in the order of the ranks; at
 * the own rank's place is acc, which may be @dst.
 */
void combine_all(const struct combine *c, const struct plan_step *step,
		 void *dst, const void *const *contributions);

#endif
