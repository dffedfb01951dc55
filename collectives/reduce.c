/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduction kernels, vectorised by the compiler's vector types: 32-byte
 * vectors that may lie at any address, four at a time, then the rest one by
 * one. Each element is combined alone, so results do not depend on where a
 * call's range begins.
 */
#include "reduce.h"

#include <string.h>

/* Vectors, not structures: alignment 1 makes every access unaligned. */
typedef float floats __attribute__((vector_size(32), aligned(1), may_alias));
typedef double doubles __attribute__((vector_size(32), aligned(1), may_alias));

#define KERNEL(name, element, vector, op)                                      \
	static void name(void *dst, const void *a, const void *b, size_t n)    \
	{                                                                      \
		const size_t lanes = sizeof(vector) / sizeof(element);         \
		char *d = dst;                                                 \
		const char *x = a, *y = b;                                     \
                                                                               \
		for (; n >= 4 * lanes; n -= 4 * lanes) {                       \
			const vector *u = (const void *)x;                     \
			const vector *v = (const void *)y;                     \
			vector r0 = u[0] op v[0], r1 = u[1] op v[1];           \
			vector r2 = u[2] op v[2], r3 = u[3] op v[3];           \
			vector *w = (void *)d;                                 \
                                                                               \
			w[0] = r0;                                             \
			w[1] = r1;                                             \
			w[2] = r2;                                             \
			w[3] = r3;                                             \
			x += 4 * sizeof(vector);                               \
			y += 4 * sizeof(vector);                               \
			d += 4 * sizeof(vector);                               \
		}                                                              \
		for (; n > 0; n--) {                                           \
			element p, q;                                          \
                                                                               \
			memcpy(&p, x, sizeof(p));                              \
			memcpy(&q, y, sizeof(q));                              \
			p = p op q;                                            \
			memcpy(d, &p, sizeof(p));                              \
			x += sizeof(element);                                  \
			y += sizeof(element);                                  \
			d += sizeof(element);                                  \
		}                                                              \
	}

KERNEL(sum_float32, float, floats, +)
KERNEL(sum_float64, double, doubles, +)

static const struct reduce_kernel kernels[VBN_TYPES][VBN_REDUCTIONS] = {
	[VBN_FLOAT32][VBN_SUM] = {sum_float32},
	[VBN_FLOAT64][VBN_SUM] = {sum_float64},
};

static const struct {
	const char *name;
	size_t bytes;
} types[VBN_TYPES] = {
	[VBN_INT8] = {"int8", 1},	[VBN_UINT8] = {"uint8", 1},
	[VBN_INT32] = {"int32", 4},	[VBN_UINT32] = {"uint32", 4},
	[VBN_INT64] = {"int64", 8},	[VBN_UINT64] = {"uint64", 8},
	[VBN_FLOAT16] = {"float16", 2}, [VBN_BFLOAT16] = {"bfloat16", 2},
	[VBN_FLOAT32] = {"float32", 4}, [VBN_FLOAT64] = {"float64", 8},
};

static const char *const reductions[VBN_REDUCTIONS] = {
	[VBN_SUM] = "sum", [VBN_PRODUCT] = "product", [VBN_MIN] = "min",
	[VBN_MAX] = "max", [VBN_AVERAGE] = "average", [VBN_AND] = "and",
	[VBN_OR] = "or",   [VBN_XOR] = "xor",
};

size_t vbn_type_bytes(enum vbn_type type)
{
	return (unsigned)type < VBN_TYPES ? types[type].bytes : 0;
}

const struct reduce_kernel *reduce_find(enum vbn_type type,
					enum vbn_reduction reduction)
{
	if ((unsigned)type >= VBN_TYPES ||
	    (unsigned)reduction >= VBN_REDUCTIONS ||
	    !kernels[type][reduction].run)
		return NULL;
	return &kernels[type][reduction];
}

const char *reduce_type_name(enum vbn_type type)
{
	return (unsigned)type < VBN_TYPES ? types[type].name : "unknown type";
}

const char *reduce_name(enum vbn_reduction reduction)
{
	return (unsigned)reduction < VBN_REDUCTIONS ? reductions[reduction]
						    : "unknown reduction";
}
