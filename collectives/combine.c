/* SPDX-License-Identifier: BSD-3-Clause */
#include "combine.h"

#include <string.h>

static unsigned wide_if(const struct combine *c, uint8_t space, uint8_t flags,
			unsigned form)
{
	return c->wide != c->narrow && combine_bytes(c, space, flags) == c->wide
		       ? form
		       : 0;
}

void combine_reduce(const struct combine *c, const struct plan_step *step,
		    void *dst, const void *src, const void *acc)
{
	unsigned form = wide_if(c, PLAN_LANDING, step->flags, REDUCE_A_WIDE) |
			wide_if(c, step->acc, 0, REDUCE_B_WIDE) |
			wide_if(c, step->dst, 0, REDUCE_DST_WIDE);

	if (step->flags & PLAN_FINISH)
		reduce_finish(c->kernel, form, dst, src, acc, step->len,
			      c->members);
	else
		reduce_run(c->kernel, form, dst, src, acc, step->len);
}

void combine_copy(const struct combine *c, const struct plan_step *step,
		  void *dst, const void *src)
{
	unsigned form = wide_if(c, step->src, step->flags, REDUCE_A_WIDE) |
			wide_if(c, step->dst, 0, REDUCE_DST_WIDE);
	bool finish = step->flags & PLAN_FINISH && c->kernel;

	if (form == REDUCE_A_WIDE || form == REDUCE_DST_WIDE || finish)
		reduce_convert(c->kernel, form, dst, src, step->len,
			       finish ? c->members : 1);
	else if (src != dst)
		memmove(dst, src,
			step->len * combine_bytes(c, step->dst, step->flags));
}

/* Any mixture of widths: by blocks that are summed beside their place. */
static void all_slowly(const struct combine *c, unsigned src_wide,
		       unsigned dst_wide, const struct plan_step *step,
		       void *dst, const void *const *from)
{
	enum { BLOCK = 512 };
	const size_t in = src_wide ? c->wide : c->narrow;
	const size_t out = dst_wide ? c->wide : c->narrow;
	char sum[BLOCK * 8];

	for (size_t i = 0; i < step->len; i += BLOCK) {
		size_t n = step->len - i < BLOCK ? step->len - i : BLOCK;
		const char *src = (const char *)from[0] + i * in;

		reduce_convert(c->kernel,
			       (src_wide ? REDUCE_A_WIDE : 0) | REDUCE_DST_WIDE,
			       sum, src, n, 1);
		for (int k = 1; k < step->n; k++) {
			src = (const char *)from[k] + i * in;
			reduce_run(c->kernel,
				   REDUCE_A_WIDE | REDUCE_DST_WIDE |
					   (src_wide ? REDUCE_B_WIDE : 0),
				   sum, sum, src, n);
		}
		reduce_convert(c->kernel,
			       REDUCE_A_WIDE | (dst_wide ? REDUCE_DST_WIDE : 0),
			       (char *)dst + i * out, sum, n,
			       step->flags & PLAN_FINISH ? c->members : 1);
	}
}

void combine_all(const struct combine *c, const struct plan_step *step,
		 void *dst, const void *const *contributions)
{
	unsigned src_wide = wide_if(c, step->acc, 0, 1);
	unsigned dst_wide = wide_if(c, step->dst, 0, 1);

	if (src_wide || dst_wide)
		all_slowly(c, src_wide, dst_wide, step, dst, contributions);
	else
		reduce_many(c->kernel, dst, contributions, (unsigned)step->n,
			    step->len,
			    step->flags & PLAN_FINISH ? c->members : 1);
}
