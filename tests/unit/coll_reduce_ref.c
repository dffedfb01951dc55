/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll_reduce_ref.h"

#include <math.h>
#include <string.h>

bool ref_floating(enum vbn_type type)
{
	return type >= VBN_FLOAT16 && type <= VBN_FLOAT64;
}

static bool sixteen(enum vbn_type type)
{
	return type == VBN_FLOAT16 || type == VBN_BFLOAT16;
}

bool ref_has(enum vbn_type type, enum vbn_reduction reduction)
{
	return (unsigned)type < VBN_TYPES &&
	       (unsigned)reduction < VBN_REDUCTIONS &&
	       (!ref_floating(type) || reduction < VBN_AND);
}

bool ref_widens(enum vbn_type type, enum vbn_reduction reduction)
{
	return sixteen(type) && reduction != VBN_MIN && reduction != VBN_MAX;
}

/* ---- 16-bit types, by arithmetic on values ---- */

static int fraction_bits(enum vbn_type type)
{
	return type == VBN_FLOAT16 ? 10 : 7;
}

static int bias(enum vbn_type type)
{
	return type == VBN_FLOAT16 ? 15 : 127;
}

static unsigned infinity(enum vbn_type type)
{
	return type == VBN_FLOAT16 ? 0x7c00 : 0x7f80;
}

float ref_widen(enum vbn_type type, uint16_t bits)
{
	int f = fraction_bits(type);
	unsigned rest = bits & 0x7fffu;
	int exponent = (int)(rest >> f);
	unsigned fraction = rest & ((1u << f) - 1);
	double value;

	if (rest > infinity(type))
		return NAN;
	if (rest == infinity(type))
		value = INFINITY;
	else if (exponent == 0)
		value = ldexp(fraction, 1 - bias(type) - f);
	else
		value = ldexp(fraction + (1u << f), exponent - bias(type) - f);
	return (float)(bits & 0x8000 ? -value : value);
}

uint16_t ref_narrow(enum vbn_type type, float value)
{
	int f = fraction_bits(type), exponent;
	unsigned sign = signbit(value) ? 0x8000 : 0;
	double a = fabs((double)value);
	long units;

	if (isnan(value))
		return (uint16_t)(infinity(type) | 1u << (f - 1));
	if (isinf(value))
		return (uint16_t)(sign | infinity(type));
	exponent = a > 0 ? ilogb(a) : -1000;
	if (exponent < 1 - bias(type))
		exponent = 1 - bias(type);
	/* In units of the last place, to nearest even; 2^f are an exponent. */
	units = lrint(ldexp(a, f - exponent));
	units += (long)(exponent + bias(type) - 1) << f;
	if (units > (long)infinity(type))
		units = (long)infinity(type);
	return (uint16_t)(sign | (unsigned)units);
}

/* ---- floating point ---- */

#define FLOATING(name, element)                                                \
	static element name(enum vbn_reduction reduction, element a,           \
			    element b, unsigned members)                       \
	{                                                                      \
		bool less = a < b || (a == b && signbit(a) && !signbit(b));    \
                                                                               \
		if (isnan(a) || isnan(b))                                      \
			return (element)NAN;                                   \
		switch (reduction) {                                           \
		case VBN_PRODUCT:                                              \
			return a * b;                                          \
		case VBN_MIN:                                                  \
			return less ? a : b;                                   \
		case VBN_MAX:                                                  \
			return less ? b : a;                                   \
		case VBN_AVERAGE:                                              \
			return (element)(a + b) / (element)members;            \
		default:                                                       \
			return a + b;                                          \
		}                                                              \
	}

FLOATING(of_float, float)
FLOATING(of_double, double)

/* A float32, or the 16-bit type if not wide; every NaN to the one NaN. */
static float get(enum vbn_type type, bool wide, const void *from)
{
	uint16_t bits;
	float value;

	if (sixteen(type) && !wide) {
		memcpy(&bits, from, sizeof(bits));
		return ref_widen(type, bits);
	}
	memcpy(&value, from, sizeof(value));
	return value;
}

static void put(enum vbn_type type, bool wide, void *to, float value)
{
	uint16_t bits;

	if (isnan(value))
		value = NAN;
	if (sixteen(type) && !wide) {
		bits = ref_narrow(type, value);
		memcpy(to, &bits, sizeof(bits));
	} else {
		memcpy(to, &value, sizeof(value));
	}
}

static void combine_double(const struct ref_call *call, void *dst,
			   const void *a, const void *b)
{
	double x, y;

	memcpy(&x, a, sizeof(x));
	memcpy(&y, b, sizeof(y));
	x = of_double(call->reduction, x, y, call->members);
	if (isnan(x))
		x = NAN;
	memcpy(dst, &x, sizeof(x));
}

/* ---- integers: extended to 64 bits, as their sign is ---- */

static bool is_signed(enum vbn_type type)
{
	return type == VBN_INT8 || type == VBN_INT32 || type == VBN_INT64;
}

static uint64_t get_integer(enum vbn_type type, const void *from)
{
	size_t bytes = vbn_type_bytes(type);
	unsigned above = 64 - 8 * (unsigned)bytes;
	uint64_t value = 0;

	memcpy(&value, from, bytes);
	if (is_signed(type) && value >> (63 - above) & 1)
		value |= above > 0 ? ~UINT64_C(0) << (64 - above) : 0;
	return value;
}

static uint64_t of_integer(enum vbn_type type, enum vbn_reduction reduction,
			   uint64_t a, uint64_t b)
{
	bool less = is_signed(type) ? (int64_t)a < (int64_t)b : a < b;

	switch (reduction) {
	case VBN_PRODUCT:
		return a * b;
	case VBN_MIN:
		return less ? a : b;
	case VBN_MAX:
		return less ? b : a;
	case VBN_AND:
		return a & b;
	case VBN_OR:
		return a | b;
	case VBN_XOR:
		return a ^ b;
	default:
		return a + b;
	}
}

static void divide_integer(enum vbn_type type, void *at, unsigned members)
{
	uint64_t value = get_integer(type, at);

	if (is_signed(type))
		value = (uint64_t)((int64_t)value / (int64_t)members);
	else
		value /= members;
	memcpy(at, &value, vbn_type_bytes(type));
}

/* ---- special values ---- */

static const uint16_t special16[2][REF_SPECIALS] = {
	{0,	 1,	 2,	 0x3ff,	 0x400,	 0x401,	 0x3c00, 0x3c01,
	 0x4248, 0x7bff, 0x7c00, 0x7c01, 0x7e00, 0x7eab, 0x7fff, 0x8000,
	 0x8001, 0x83ff, 0x8400, 0xbc00, 0xfbff, 0xfc00, 0xfd23, 0xffff},
	{0,	 1,	 2,	 0x7f,	 0x80,	 0x81,	 0x3f80, 0x3f81,
	 0x4049, 0x7f7f, 0x7f80, 0x7f81, 0x7fc0, 0x7fd5, 0x7fff, 0x8000,
	 0x8001, 0x807f, 0x8080, 0xbf80, 0xff7f, 0xff80, 0xffa3, 0xffff},
};

/* With ties of both 16-bit types and what just overflows them. */
static const uint32_t special32[REF_SPECIALS] = {
	0,	    1,		0x7fffff,   0x800000,	0x33000000, 0x33000001,
	0x38801000, 0x3f800000, 0x3f801000, 0x3f808000, 0x3f818000, 0x477fefff,
	0x477ff000, 0x7f7f8000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc01234,
	0x80000000, 0x80000001, 0xb87fe000, 0xbf800000, 0xff800000, 0xffc0abcd};

static const uint64_t special64[REF_SPECIALS] = {0,
						 1,
						 0xfffffffffffff,
						 0x10000000000000,
						 0x3ca0000000000000,
						 0x3ff0000000000000,
						 0x3ff0000000000001,
						 0x400921fb54442d18,
						 0x7fe0000000000000,
						 0x7fefffffffffffff,
						 0x7ff0000000000000,
						 0x7ff0000000000001,
						 0x7ff8000000000000,
						 0x7ff8000000001234,
						 0x8000000000000000,
						 0x8000000000000001,
						 0x800fffffffffffff,
						 0x8010000000000000,
						 0xbff0000000000000,
						 0xc00921fb54442d18,
						 0xffefffffffffffff,
						 0xfff0000000000000,
						 0xfff0000000000abc,
						 0xffffffffffffffff};

static const int64_t special_integer[REF_SPECIALS] = {
	0,	   1,	      2,	  3,	     7,		100,
	126,	   127,	      128,	  255,	     256,	INT32_MAX - 1,
	INT32_MAX, INT32_MIN, UINT32_MAX, INT64_MAX, INT64_MIN, -1,
	-2,	   -3,	      -7,	  -127,	     -128,	INT64_MIN + 1};

void ref_special(enum vbn_type type, size_t bytes, int i, void *to)
{
	if (!ref_floating(type))
		memcpy(to, &special_integer[i], bytes);
	else if (bytes == 8)
		memcpy(to, &special64[i], bytes);
	else if (bytes == 4)
		memcpy(to, &special32[i], bytes);
	else
		memcpy(to, &special16[type == VBN_BFLOAT16][i], bytes);
}

/* ---- entry points ---- */

void ref_combine(const struct ref_call *call, void *dst, const void *a,
		 const void *b)
{
	enum vbn_type type = call->type;

	if (type == VBN_FLOAT64) {
		combine_double(call, dst, a, b);
	} else if (ref_floating(type)) {
		put(type, call->dst_wide, dst,
		    of_float(call->reduction, get(type, call->a_wide, a),
			     get(type, call->b_wide, b), call->members));
	} else {
		uint64_t value =
			of_integer(type, call->reduction, get_integer(type, a),
				   get_integer(type, b));

		memcpy(dst, &value, vbn_type_bytes(type));
		if (call->reduction == VBN_AVERAGE)
			divide_integer(type, dst, call->members);
	}
}

void ref_convert(const struct ref_call *call, void *dst, const void *a)
{
	enum vbn_type type = call->type;
	bool divides = call->reduction == VBN_AVERAGE && call->members != 1;

	if (!divides && call->a_wide == call->dst_wide) {
		memmove(dst, a, call->a_wide ? 4 : vbn_type_bytes(type));
	} else if (type == VBN_FLOAT64) {
		double value;

		memcpy(&value, a, sizeof(value));
		value = isnan(value) ? (double)NAN : value / call->members;
		memcpy(dst, &value, sizeof(value));
	} else if (ref_floating(type)) {
		float value = get(type, call->a_wide, a);

		put(type, call->dst_wide, dst,
		    divides ? value / (float)call->members : value);
	} else {
		memmove(dst, a, vbn_type_bytes(type));
		divide_integer(type, dst, call->members);
	}
}
