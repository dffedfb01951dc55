/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reductions of one element, written to be read: what the kernels' results
 * are compared with. None of the kernels' code.
 */
#ifndef VBN_TESTS_COLL_REDUCE_REF_H
#define VBN_TESTS_COLL_REDUCE_REF_H

#include <verbena/collectives.h>

#include <stdbool.h>

/* Whether the reduction is defined for the type. */
bool ref_has(enum vbn_type type, enum vbn_reduction reduction);
bool ref_floating(enum vbn_type type);

/* Whether partial results are float32 while elements have 16 bits. */
bool ref_widens(enum vbn_type type, enum vbn_reduction reduction);

/* Of @type's bits; float16 and bfloat16 only. */
float ref_widen(enum vbn_type type, uint16_t bits);
uint16_t ref_narrow(enum vbn_type type, float value);

/*
 * *dst = (*a (+) *b) / members, of one element at any address, wide where
 * said; members is 1 for what is not an average's end. *dst may be *a or *b.
 */
struct ref_call {
	enum vbn_type type;
	enum vbn_reduction reduction;
	bool a_wide, b_wide, dst_wide;
	unsigned members;
};
void ref_combine(const struct ref_call *call, void *dst, const void *a,
		 const void *b);

/* *dst = *a / members for an average, else *a. b_wide is ignored. */
void ref_convert(const struct ref_call *call, void *dst, const void *a);

/*
 * Special values: NaNs with payloads, infinities, zeros, subnormals, ties of
 * the roundings, largest and smallest. The @i-th, 0 <= i < REF_SPECIALS, of
 * @bytes: of @type, or of the float32 that it is widened to.
 */
enum { REF_SPECIALS = 24 };
void ref_special(enum vbn_type type, size_t bytes, int i, void *to);

#endif
