/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduction kernels: dst[i] = a[i] (+) b[i], one table by type and reduction.
 * Any alignment. dst may be a or b, else they must not overlap.
 */
#ifndef VBN_REDUCE_H
#define VBN_REDUCE_H

#include <verbena/collectives.h>

struct reduce_kernel {
	void (*run)(void *dst, const void *a, const void *b, size_t n);
};

/* NULL when there is none (-EOPNOTSUPP). */
const struct reduce_kernel *reduce_find(enum vbn_type type,
					enum vbn_reduction reduction);

/* For messages: "float32", "sum". */
const char *reduce_type_name(enum vbn_type type);
const char *reduce_name(enum vbn_reduction reduction);

#endif
