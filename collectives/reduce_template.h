/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The reduction kernels of one instruction set. The file that includes it
 * defines
 *   TABLE   name of the table
 *   VECTOR  bytes of a vector
 * and, or else they are made of plain arithmetic here, the macros, of
 * VECTOR / 4 elements,
 *   widen(v_half), narrow(vec)  uint16 to uint32; back, of values that fit
 *   float16_to_float32(v_half), float32_to_float16(vec)
 *
 * One loop, sweep(), makes every kernel: it is inlined with constant
 * descriptions of the operands' elements (struct kind) and of the arithmetic
 * (struct op), and keeps partial results in registers. Each element is
 * combined alone, and the rest of a vector goes through the same code in a
 * padded copy: results do not depend on where a call's range begins or ends.
 */
#include "reduce.h"

#include <math.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* Vectors a turn: hides the latency of the arithmetic, but grows the code. */
enum { TURN = VECTOR >= 32 ? 4 : 1 };

/* What a register holds; the arithmetic reads it as one of the v_ types. */
typedef uint32_t vec __attribute__((vector_size(VECTOR)));
typedef uint16_t v_half __attribute__((vector_size(VECTOR / 2)));
typedef vec vec_any __attribute__((aligned(1), may_alias));
typedef v_half v_half_any __attribute__((aligned(1), may_alias));

/* How elements lie in memory, `bytes` each, and get into a vector. */
struct kind {
	vec (*load)(const char *from);
	void (*store)(char *to, vec v);
	size_t bytes;
};

/* How lanes are combined, and what is done to the last result. */
struct op {
	vec (*step)(vec a, vec b);
	vec (*end)(vec v, unsigned members);
	size_t lane; /* bytes */
};

INLINE vec blend(vec mask, vec yes, vec no)
{
	return (mask & yes) | (~mask & no);
}

INLINE vec all(uint32_t value)
{
	return (vec){} + value;
}

/* ---- the arithmetic ---- */

#define STEP(name, value)                                                      \
	INLINE vec name(vec a, vec b)                                          \
	{                                                                      \
		return (vec)(value);                                           \
	}

#define LESS(type, x, y)  ((vec)((v_##type)(x) < (v_##type)(y)))
#define EQUAL(type, x, y) ((vec)((v_##type)(x) == (v_##type)(y)))

INLINE vec end_same(vec v, unsigned members)
{
	(void)members;
	return v;
}

STEP(and_any, a &b)
STEP(or_any, a | b)
STEP(xor_any, a ^ b)

#define INTEGER(type, element)                                                 \
	typedef element v_##type __attribute__((vector_size(VECTOR)));         \
	STEP(min_##type, blend(LESS(type, a, b), a, b))                        \
	STEP(max_##type, blend(LESS(type, a, b), b, a))

/* Both signs' sums and products are the same bits. */
#define UNSIGNED(type, element)                                                \
	INTEGER(type, element)                                                 \
	STEP(sum_##type, (v_##type)a + (v_##type)b)                            \
	STEP(product_##type, (v_##type)a *(v_##type)b)

INTEGER(int8, int8_t)
INTEGER(int32, int32_t)
INTEGER(int64, int64_t)
UNSIGNED(uint8, uint8_t)
UNSIGNED(uint32, uint32_t)
UNSIGNED(uint64, uint64_t)

/*
 * Steps pass a NaN on, which the end makes the one NaN. min and max: of equal
 * values only zeros differ in bits, and or (and) picks -0 (+0); a comparison
 * with NaN is false and picks b, so that only a needs a look.
 */
#define FLOATING(type, element)                                                \
	typedef element v_##type __attribute__((vector_size(VECTOR)));         \
	STEP(sum_##type, (v_##type)a + (v_##type)b)                            \
	STEP(product_##type, (v_##type)a *(v_##type)b)                         \
	STEP(min_##type,                                                       \
	     blend(EQUAL(type, a, a),                                          \
		   blend(LESS(type, a, b), a, b) | (EQUAL(type, a, b) & a),    \
		   a))                                                         \
	STEP(max_##type,                                                       \
	     blend(EQUAL(type, a, a),                                          \
		   blend(LESS(type, b, a), a, b) & (~EQUAL(type, a, b) | a),   \
		   a))                                                         \
	INLINE vec end_##type(vec v, unsigned members)                         \
	{                                                                      \
		(void)members;                                                 \
		return blend(EQUAL(type, v, v), v,                             \
			     (vec)((v_##type){} + (element)NAN));              \
	}                                                                      \
	INLINE vec divide_##type(vec v, unsigned members)                      \
	{                                                                      \
		return end_##type((vec)((v_##type)v / (element)members), 0);   \
	}

FLOATING(float32, float)
FLOATING(float64, double)

/*
 * min and max of 16-bit types, on the bits: @inf's, and @nan those of the one
 * NaN. Negative values' other bits are turned over to be in order.
 */
#define ORDERED(x)     ((v_int16)(x) ^ ((v_int16)(x) >> 15 & 0x7fff))
#define IS_NAN(x, inf) ((vec)(((v_int16)(x)&0x7fff) > (inf)))
#define BEFORE(x, y)   ((vec)(ORDERED(x) < ORDERED(y)))
#define HALF_ORDER(type, inf, nan)                                             \
	STEP(min_##type, blend(IS_NAN(a, inf), a,                              \
			       blend(IS_NAN(b, inf) | BEFORE(b, a), b, a)))    \
	STEP(max_##type, blend(IS_NAN(a, inf), a,                              \
			       blend(IS_NAN(b, inf) | BEFORE(a, b), b, a)))    \
	INLINE vec end_##type(vec v, unsigned members)                         \
	{                                                                      \
		(void)members;                                                 \
		return blend(IS_NAN(v, inf), (vec)((v_int16){} + (nan)), v);   \
	}

typedef int16_t v_int16 __attribute__((vector_size(VECTOR)));
HALF_ORDER(float16, 0x7c00, 0x7e00)
HALF_ORDER(bfloat16, 0x7f80, 0x7fc0)

/* ---- elements in memory ---- */

INLINE vec same_load(const char *from)
{
	return *(const vec_any *)(const void *)from;
}

INLINE void same_store(char *to, vec v)
{
	*(vec_any *)(void *)to = v;
}

INLINE v_half half_load(const char *from)
{
	return *(const v_half_any *)(const void *)from;
}

INLINE void half_store(char *to, v_half half)
{
	*(v_half_any *)(void *)to = half;
}

#ifndef widen
#define widen(half) __builtin_convertvector(half, vec)
#define narrow(v)   __builtin_convertvector(v, v_half)
#endif

/* Stored NaNs are the one NaN: an end made them so. */
INLINE vec bfloat16_load(const char *from)
{
	return widen(half_load(from)) << 16;
}

INLINE void bfloat16_store(char *to, vec v)
{
	half_store(to, narrow((v + 0x7fff + (v >> 16 & 1)) >> 16));
}

#ifndef float16_to_float32
/*
 * A subnormal's fraction under the exponent of 2^-14, less 2^-14, is its
 * value.
 */
INLINE vec float16_to_float32(v_half half)
{
	vec whole = widen(half);
	vec u = (whole & 0x7fff) << 13;
	vec low = (vec)((v_float32)(u + 0x38800000) - 0x1p-14f);

	u = blend(LESS(int32, u, all(0x00800000)), low,
		  blend(LESS(int32, u, all(0x0f800000)), u + 0x38000000,
			u | 0x7f800000));
	return u | (whole & 0x8000) << 16;
}

/*
 * Adding 0.5, whose last bit is 2^-24, rounds to the subnormals. Too large
 * becomes 2^16, which is infinity's bits.
 */
INLINE v_half float32_to_float16(vec v)
{
	vec u = v & 0x7fffffff;
	vec low = (vec)((v_float32)u + 0.5f) - 0x3f000000;
	vec top = blend(LESS(int32, u, all(0x47800000)), u, all(0x47800000));
	vec even = (top - 0x38000000 + 0xfff + (top >> 13 & 1)) >> 13;

	even = blend(LESS(int32, u, all(0x38800000)), low, even);
	even = blend(LESS(int32, all(0x7f800000), u), all(0x7e00), even);
	return narrow(even | (v >> 16 & 0x8000));
}
#endif

INLINE vec float16_load(const char *from)
{
	return float16_to_float32(half_load(from));
}

INLINE void float16_store(char *to, vec v)
{
	half_store(to, float32_to_float16(v));
}

/* ---- the loop ---- */

/* The operands of one call: src[0] of kind @first, the others of @next. */
struct operands {
	struct kind to, first, next;
	char *dst;
	const void *const *src;
	unsigned k;
};

/* @n elements, at most a vector's, through padded copies. */
INLINE vec load_some(struct kind kind, const void *from, size_t at, size_t n)
{
	char pad[VECTOR] = {0};

	memcpy(pad, (const char *)from + at * kind.bytes, n * kind.bytes);
	return kind.load(pad);
}

INLINE void sweep_some(struct operands o, struct op op, size_t at, size_t n,
		       unsigned members)
{
	char pad[VECTOR];
	vec v = load_some(o.first, o.src[0], at, n);

	for (unsigned i = 1; i < o.k; i++)
		v = op.step(v, load_some(o.next, o.src[i], at, n));
	o.to.store(pad, op.end(v, members));
	memcpy(o.dst + at * o.to.bytes, pad, n * o.to.bytes);
}

/* @turn whole vectors, a constant. */
INLINE void sweep_turn(struct operands o, struct op op, size_t at, size_t turn,
		       unsigned members)
{
	const size_t lanes = VECTOR / op.lane;
	const char *src = (const char *)o.src[0] + at * o.first.bytes;
	char *dst = o.dst + at * o.to.bytes;
	vec v[TURN];

#pragma GCC unroll 4
	for (size_t t = 0; t < turn; t++)
		v[t] = o.first.load(src + t * lanes * o.first.bytes);
	for (unsigned i = 1; i < o.k; i++) {
		src = (const char *)o.src[i] + at * o.next.bytes;
#pragma GCC unroll 4
		for (size_t t = 0; t < turn; t++)
			v[t] = op.step(
				v[t],
				o.next.load(src + t * lanes * o.next.bytes));
	}
#pragma GCC unroll 4
	for (size_t t = 0; t < turn; t++)
		o.to.store(dst + t * lanes * o.to.bytes, op.end(v[t], members));
}

/* Elements before the first whole vector of a long @dst that is aligned. */
INLINE size_t head(const char *dst, size_t bytes, size_t lanes, size_t n)
{
	size_t off = (uintptr_t)dst % (lanes * bytes);

	return n < 16 * lanes || off % bytes != 0
		       ? 0
		       : (lanes - off / bytes) % lanes;
}

/* dst = end(src[0] step src[1] step ... src[k - 1]), @n elements. */
INLINE void sweep(struct kind to, struct kind first, struct kind next,
		  struct op op, void *dst, const void *const *src, unsigned k,
		  size_t n, unsigned members)
{
	const size_t lanes = VECTOR / op.lane;
	const struct operands o = {to, first, next, dst, src, k};
	size_t at = 0, some = head(dst, to.bytes, lanes, n);

	do { /* twice: the head and the whole vectors; the tail */
		if (some > 0)
			sweep_some(o, op, at, some, members);
		for (at += some; at + TURN * lanes <= n; at += TURN * lanes)
			sweep_turn(o, op, at, TURN, members);
		for (; at + lanes <= n; at += lanes)
			sweep_turn(o, op, at, 1, members);
		some = n - at;
	} while (some > 0);
}

/* ---- kernels: NAME_combine, NAME_many, NAME_convert ---- */

#define COMBINE(name)                                                          \
	static void name##_combine(const struct reduce_kernel *kernel,         \
				   unsigned form, void *dst, const void *a,    \
				   const void *b, size_t n, unsigned members)
#define MANY(name)                                                             \
	static void name##_many(const struct reduce_kernel *kernel, void *dst, \
				const void *const *src, unsigned k, size_t n,  \
				unsigned members)
#define CONVERT(name)                                                          \
	static void name##_convert(const struct reduce_kernel *kernel,         \
				   unsigned form, void *dst, const void *src,  \
				   size_t n, unsigned members)

/* One size of elements, a lane's; @count of them. */
#define SAME(name, step, end, size, count)                                     \
	static const struct op name = {step, end, size};                       \
	COMBINE(name)                                                          \
	{                                                                      \
		const struct kind kind = {same_load, same_store, size};        \
		const void *const src[] = {a, b};                              \
                                                                               \
		(void)kernel, (void)form;                                      \
		sweep(kind, kind, kind, name, dst, src, 2, count, members);    \
	}                                                                      \
	MANY(name)                                                             \
	{                                                                      \
		const struct kind kind = {same_load, same_store, size};        \
                                                                               \
		(void)kernel;                                                  \
		sweep(kind, kind, kind, name, dst, src, k, count, members);    \
	}

CONVERT(same)
{
	(void)members;
	if (n > 0)
		memmove(dst, src,
			n * (form & REDUCE_A_WIDE ? kernel->wide
						  : kernel->narrow));
}

SAME(and, and_any, end_same, 1, n * kernel->narrow)
SAME(or, or_any, end_same, 1, n * kernel->narrow)
SAME(xor, xor_any, end_same, 1, n * kernel->narrow)

#define SAME_ORDER(type, end, size)                                            \
	SAME(min_of_##type, min_##type, end, size, n)                          \
	SAME(max_of_##type, max_##type, end, size, n)
#define SAME_ARITHMETIC(type, end, size)                                       \
	SAME_ORDER(type, end, size)                                            \
	SAME(sum_of_##type, sum_##type, end, size, n)                          \
	SAME(product_of_##type, product_##type, end, size, n)

SAME_ORDER(int8, end_same, 1)
SAME_ORDER(int32, end_same, 4)
SAME_ORDER(int64, end_same, 8)
SAME_ORDER(float16, end_float16, 2)
SAME_ORDER(bfloat16, end_bfloat16, 2)
SAME_ARITHMETIC(uint8, end_same, 1)
SAME_ARITHMETIC(uint32, end_same, 4)
SAME_ARITHMETIC(uint64, end_same, 8)
SAME_ARITHMETIC(float32, end_float32, 4)
SAME_ARITHMETIC(float64, end_float64, 8)

SAME(divided_float32, sum_float32, divide_float32, 4, n)
SAME(divided_float64, sum_float64, divide_float64, 8, n)

/* Division in @wide, as members may be too many for an element. */
#define DIVIDED_INTEGER(type, element, wide, sum)                              \
	static void divide_##type(char *dst, size_t n, unsigned members)       \
	{                                                                      \
		for (; n > 0; n--, dst += sizeof(element)) {                   \
			element v;                                             \
                                                                               \
			memcpy(&v, dst, sizeof(v));                            \
			v = (element)(v / (wide)members);                      \
			memcpy(dst, &v, sizeof(v));                            \
		}                                                              \
	}                                                                      \
	COMBINE(divided_##type)                                                \
	{                                                                      \
		sum##_combine(kernel, form, dst, a, b, n, 1);                  \
		divide_##type(dst, n, members);                                \
	}                                                                      \
	MANY(divided_##type)                                                   \
	{                                                                      \
		sum##_many(kernel, dst, src, k, n, 1);                         \
		divide_##type(dst, n, members);                                \
	}

DIVIDED_INTEGER(int8, int8_t, double, sum_of_uint8)
DIVIDED_INTEGER(int32, int32_t, double, sum_of_uint32)
DIVIDED_INTEGER(int64, int64_t, int64_t, sum_of_uint64)
DIVIDED_INTEGER(uint8, uint8_t, double, sum_of_uint8)
DIVIDED_INTEGER(uint32, uint32_t, double, sum_of_uint32)
DIVIDED_INTEGER(uint64, uint64_t, uint64_t, sum_of_uint64)

#define WIDTH(is_wide) ((is_wide) ? wide : half)
#define FORM(form)                                                             \
	case form:                                                             \
		sweep(WIDTH((form)&REDUCE_DST_WIDE),                           \
		      WIDTH((form)&REDUCE_A_WIDE),                             \
		      WIDTH((form)&REDUCE_B_WIDE), op, dst, src, k, n,         \
		      members);                                                \
		break;

/*
 * Sums and products of 16-bit types in float32, operands as @form: of one
 * wide and one narrow source, the wide one is first.
 */
INLINE void half_sweep(struct kind half, struct op op,
		       const struct reduce_kernel *kernel, unsigned form,
		       void *dst, const void *const *src, unsigned k, size_t n,
		       unsigned members)
{
	const struct kind wide = {same_load, same_store, 4};

	switch (kernel->wide == kernel->narrow ? 0 : form) {
		FORM(0)
		FORM(1)
		FORM(3)
		FORM(4)
		FORM(5)
		FORM(7)
	}
}

#define HALF_KIND(type) ((struct kind){type##_load, type##_store, 2})

#define HALF(name, type, step, end)                                            \
	static const struct op name = {step, end, 4};                          \
	COMBINE(name)                                                          \
	{                                                                      \
		bool swap = (form & 3) == REDUCE_B_WIDE;                       \
		const void *const src[] = {swap ? b : a, swap ? a : b};        \
                                                                               \
		half_sweep(HALF_KIND(type), name, kernel,                      \
			   swap ? form ^ 3 : form, dst, src, 2, n, members);   \
	}                                                                      \
	MANY(name)                                                             \
	{                                                                      \
		(void)kernel;                                                  \
		sweep(HALF_KIND(type), HALF_KIND(type), HALF_KIND(type), name, \
		      dst, src, k, n, members);                                \
	}

#define HALVES(type)                                                           \
	HALF(sum_of_##type, type, sum_float32, end_float32)                    \
	HALF(product_of_##type, type, product_float32, end_float32)            \
	HALF(divided_##type, type, sum_float32, divide_float32)                \
	CONVERT(half_##type)                                                   \
	{                                                                      \
		if (kernel->wide == kernel->narrow ||                          \
		    !(form & REDUCE_A_WIDE) == !(form & REDUCE_DST_WIDE))      \
			same_convert(kernel, form, dst, src, n, 1);            \
		else                                                           \
			half_sweep(HALF_KIND(type), sum_of_##type, kernel,     \
				   form & ~REDUCE_B_WIDE, dst, &src, 1, n,     \
				   members);                                   \
	}                                                                      \
	CONVERT(divided_##type)                                                \
	{                                                                      \
		half_sweep(HALF_KIND(type), divided_##type, kernel,            \
			   form & ~REDUCE_B_WIDE, dst, &src, 1, n, members);   \
	}

HALVES(float16)
HALVES(bfloat16)

/* A division, unless there is none. */
#define AVERAGE(type, sum, plain)                                              \
	COMBINE(average_of_##type)                                             \
	{                                                                      \
		(members == 1 ? sum##_combine : divided_##type##_combine)(     \
			kernel, form, dst, a, b, n, members);                  \
	}                                                                      \
	MANY(average_of_##type)                                                \
	{                                                                      \
		(members == 1 ? sum##_many : divided_##type##_many)(           \
			kernel, dst, src, k, n, members);                      \
	}                                                                      \
	CONVERT(average_of_##type)                                             \
	{                                                                      \
		(members == 1 ? plain##_convert : divided_##type##_convert)(   \
			kernel, form, dst, src, n, members);                   \
	}
#define AVERAGE_SAME(type, sum)                                                \
	CONVERT(divided_##type)                                                \
	{                                                                      \
		(void)form;                                                    \
		divided_##type##_many(kernel, dst, &src, 1, n, members);       \
	}                                                                      \
	AVERAGE(type, sum, same)

AVERAGE_SAME(int8, sum_of_uint8)
AVERAGE_SAME(uint8, sum_of_uint8)
AVERAGE_SAME(int32, sum_of_uint32)
AVERAGE_SAME(uint32, sum_of_uint32)
AVERAGE_SAME(int64, sum_of_uint64)
AVERAGE_SAME(uint64, sum_of_uint64)
AVERAGE_SAME(float32, sum_of_float32)
AVERAGE_SAME(float64, sum_of_float64)
AVERAGE(float16, sum_of_float16, half_float16)
AVERAGE(bfloat16, sum_of_bfloat16, half_bfloat16)

/* ---- the table ---- */

#define KERNEL(narrow, wide, name, convert)                                    \
	{                                                                      \
		narrow, wide, name##_combine, convert##_convert, name##_many   \
	}
#define BOTH(size, name, convert)                                              \
	{                                                                      \
		KERNEL(size, size, name, convert),                             \
			KERNEL(size, size, name, convert)                      \
	}
#define TWO(name, convert)                                                     \
	{                                                                      \
		KERNEL(2, 4, name, convert), KERNEL(2, 2, name, convert)       \
	}

/* @arithmetic: the type whose sums and products have the same bits. */
#define ROW_SAME(type, arithmetic, size)                                       \
	[VBN_SUM] = BOTH(size, sum_of_##arithmetic, same),                     \
	[VBN_PRODUCT] = BOTH(size, product_of_##arithmetic, same),             \
	[VBN_MIN] = BOTH(size, min_of_##type, same),                           \
	[VBN_MAX] = BOTH(size, max_of_##type, same),                           \
	[VBN_AVERAGE] = BOTH(size, average_of_##type, average_of_##type)
#define ROW_INTEGER(type, arithmetic, size)                                    \
	{                                                                      \
		ROW_SAME(type, arithmetic, size),                              \
			[VBN_AND] = BOTH(size, and, same),                     \
			[VBN_OR] = BOTH(size, or, same),                       \
			[VBN_XOR] = BOTH(size, xor, same),                     \
	}
#define ROW_FLOATING(type, size)                                               \
	{                                                                      \
		ROW_SAME(type, type, size)                                     \
	}
#define ROW_HALF(type)                                                         \
	{                                                                      \
		[VBN_SUM] = TWO(sum_of_##type, half_##type),                   \
		[VBN_PRODUCT] = TWO(product_of_##type, half_##type),           \
		[VBN_MIN] = BOTH(2, min_of_##type, same),                      \
		[VBN_MAX] = BOTH(2, max_of_##type, same),                      \
		[VBN_AVERAGE] = TWO(average_of_##type, average_of_##type),     \
	}

reduce_table TABLE = {
	[VBN_INT8] = ROW_INTEGER(int8, uint8, 1),
	[VBN_UINT8] = ROW_INTEGER(uint8, uint8, 1),
	[VBN_INT32] = ROW_INTEGER(int32, uint32, 4),
	[VBN_UINT32] = ROW_INTEGER(uint32, uint32, 4),
	[VBN_INT64] = ROW_INTEGER(int64, uint64, 8),
	[VBN_UINT64] = ROW_INTEGER(uint64, uint64, 8),
	[VBN_FLOAT16] = ROW_HALF(float16),
	[VBN_BFLOAT16] = ROW_HALF(bfloat16),
	[VBN_FLOAT32] = ROW_FLOATING(float32, 4),
	[VBN_FLOAT64] = ROW_FLOATING(float64, 8),
};
