/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduction kernels: dst[i] = a[i] (+) b[i], one for each type and reduction.
 *
 * Sizes: a user's elements are `narrow` bytes; partial results are held and
 * travel in elements of `wide` bytes. float16 and bfloat16 are summed,
 * multiplied and averaged in float32 (2 and 4 bytes); for everything else,
 * and for all with the 16-bit wire, both sizes are the same.
 *
 * Values, the same bits on every processor and whatever the alignment:
 * - integers: sum and product wrap. The average is the wrapped sum divided by
 *   the members, towards zero.
 * - floating point: sum and product are IEEE 754's, nearest even, subnormals
 *   kept (provided that the thread's MXCSR is the ABI's default). Every NaN
 *   that a reduction gives is the positive quiet one without payload, so
 *   a (+) b and b (+) a are the same bits. min and max give NaN if either
 *   operand is; -0 is less than +0.
 * - float16 and bfloat16: computed in float32 and rounded to nearest even,
 *   once for each time they are stored narrow; too large becomes infinity.
 *
 * Any alignment. dst may be exactly one of the sources if their elements have
 * the same size; any other overlap is not allowed. n counts elements. None of
 * it blocks, allocates or fails; any thread.
 */
#ifndef VBN_REDUCE_H
#define VBN_REDUCE_H

#include <verbena/collectives.h>

/* Which operands are of wide elements: a bit mask. */
enum reduce_form {
	REDUCE_A_WIDE = 1,
	REDUCE_B_WIDE = 2,
	REDUCE_DST_WIDE = 4,
	REDUCE_FORMS = 8
};

/* Called through the functions below, which say what each does. */
struct reduce_kernel {
	size_t narrow, wide; /* bytes of an element */
	void (*combine)(const struct reduce_kernel *kernel, unsigned form,
			void *dst, const void *a, const void *b, size_t n,
			unsigned members);
	void (*convert)(const struct reduce_kernel *kernel, unsigned form,
			void *dst, const void *src, size_t n, unsigned members);
	void (*many)(const struct reduce_kernel *kernel, void *dst,
		     const void *const *src, unsigned k, size_t n,
		     unsigned members);
};

/*
 * The fastest kernel that this processor runs. @wire16: float16 and bfloat16
 * partials are rounded to 16 bits at each combination. NULL when there is
 * none (-EOPNOTSUPP): and, or, xor of floating point; no such type.
 */
const struct reduce_kernel *reduce_find(enum vbn_type type,
					enum vbn_reduction reduction,
					bool wire16);

/* dst = a (+) b; @form names the wide operands. An average is a sum so far. */
static inline void reduce_run(const struct reduce_kernel *kernel, unsigned form,
			      void *dst, const void *a, const void *b, size_t n)
{
	kernel->combine(kernel, form, dst, a, b, n, 1);
}

/*
 * The last combination: dst = a (+) b, for an average (a (+) b) / @members,
 * divided (@members >= 1) before the one rounding if dst is narrow.
 */
static inline void reduce_finish(const struct reduce_kernel *kernel,
				 unsigned form, void *dst, const void *a,
				 const void *b, size_t n, unsigned members)
{
	kernel->combine(kernel, form, dst, a, b, n, members);
}

/*
 * dst = src, widened or narrowed as REDUCE_A_WIDE (src) and REDUCE_DST_WIDE in
 * @form say, for an average divided by @members (1: not divided). A NaN
 * stays a NaN: the one above if anything was computed, else its own bits.
 */
static inline void reduce_convert(const struct reduce_kernel *kernel,
				  unsigned form, void *dst, const void *src,
				  size_t n, unsigned members)
{
	kernel->convert(kernel, form, dst, src, n, members);
}

/*
 * dst = ((src[0] (+) src[1]) (+) src[2]) ... of @k >= 1 sources, finished as
 * by reduce_finish(); all narrow, in one pass. The partial results stay in
 * registers, so 16-bit types round once, with the 16-bit wire too.
 */
static inline void reduce_many(const struct reduce_kernel *kernel, void *dst,
			       const void *const *src, unsigned k, size_t n,
			       unsigned members)
{
	kernel->many(kernel, dst, src, k, n, members);
}

struct reduce_user {
	struct reduce_kernel kernel; /* first: pass &user.kernel */
	vbn_reduction_fn *fn;
	enum vbn_type type;
	void *arg;
};

/*
 * Make @user's kernel run @fn, in the thread that calls the kernel. wide is
 * narrow, @members is ignored. @user must outlive its uses. -EINVAL: no such
 * type, or no @fn.
 */
int reduce_user(struct reduce_user *user, enum vbn_type type,
		vbn_reduction_fn *fn, void *arg);

/* For messages: "float32", "sum". */
const char *reduce_type_name(enum vbn_type type);
const char *reduce_name(enum vbn_reduction reduction);

/*
 * The kernels of one instruction set, for tests and measurements. All give
 * the same bits.
 */
enum reduce_level {
	REDUCE_PORTABLE,
	REDUCE_AVX2,   /* and F16C */
	REDUCE_AVX512, /* F, BW, DQ, VL */
	REDUCE_LEVELS
};

/* Whether the processor and the system have it. */
bool reduce_level_has(enum reduce_level level);

/* As reduce_find(); NULL too if the processor does not have @level. */
const struct reduce_kernel *reduce_find_level(enum reduce_level level,
					      enum vbn_type type,
					      enum vbn_reduction reduction,
					      bool wire16);

/* One for each level: the last index is wire16. No combine: no kernel. */
typedef const struct reduce_kernel reduce_table[VBN_TYPES][VBN_REDUCTIONS][2];
extern reduce_table reduce_portable, reduce_avx2, reduce_avx512;

#endif
