/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the programs that measure other libraries for perf/compare-collectives
 * have in common: sums of float32, checked; a line a size, "BYTES
 * MICROSECONDS".
 */
#ifndef PERF_COMPARE_CELLS_H
#define PERF_COMPARE_CELLS_H

#include "coll_data.h"
#include "coll_loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Aligned to a huge page, and touched. */
static inline float *compare_buffer(size_t elements)
{
	const size_t page = (size_t)2 << 20;
	size_t bytes = (elements * sizeof(float) / page + 1) * page;
	float *buffer = (float *)aligned_alloc(page, bytes);

	if (!buffer) {
		fputs("no memory for a buffer\n", stderr);
		exit(1);
	}
	memset(buffer, 0, bytes);
	return buffer;
}

static inline void compare_fill(float *in, const struct coll_shape *s,
				size_t elements)
{
	for (size_t i = 0; i < elements; i++)
		in[i] = (float)coll_data_in(i, s->rank);
}

/* How many elements of @out are not what they must be. */
static inline size_t compare_wrong(const float *out, const struct coll_shape *s)
{
	float sums[COLL_DATA_PERIOD] = {0};
	size_t wrong = 0;

	for (size_t i = 0; i < COLL_DATA_PERIOD; i++)
		for (int r = 0; r < s->nranks; r++)
			sums[i] += (float)coll_data_in(i, r);
	for (size_t i = 0; coll_data_receives(s) && i < s->out; i++) {
		struct coll_origin o = coll_data_origin(s, i);

		wrong += out[i] !=
			 (o.rank < 0 ? sums[o.index % COLL_DATA_PERIOD]
				     : (float)coll_data_in(o.index, o.rank));
	}
	return wrong;
}

#endif
