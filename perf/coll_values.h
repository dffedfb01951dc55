/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data of the collectives that verbena-perf measures, in any type: filling,
 * spoiling and checking buffers. Pure functions. coll_data.h says which values.
 */
#ifndef PERF_COLL_VALUES_H
#define PERF_COLL_VALUES_H

#include "coll_data.h"

#include <verbena/collectives.h>

/* nccl-tests' names, numbered as the library's enums; NULL: there is none. */
const char *coll_type_name(int type);
const char *coll_reduction_name(int reduction);

/* @n elements that @rank puts in. */
void coll_fill(void *data, size_t n, enum vbn_type type,
	       enum vbn_reduction reduction, int rank);

/*
 * How many of the s->out elements of @data are not what the call must give:
 * bit for bit, but for reductions to 16-bit types and averages of floating
 * point, which may be rounded otherwise (by one unit in the last place).
 */
size_t coll_wrong(const void *data, const struct coll_shape *s,
		  enum vbn_type type, enum vbn_reduction reduction);

#endif
