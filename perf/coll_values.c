/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Values repeat every COLL_DATA_PERIOD elements, so that one period of each
 * is computed, and compared over and over.
 */
#include "coll_values.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define PERIOD	  COLL_DATA_PERIOD
#define ELEMENT	  8 /* bytes of the largest type */
#define HALF_BIAS ((127 - 15) << 10)

/* One period, encoded and not. */
struct period {
	double values[PERIOD];
	uint8_t bytes[PERIOD][ELEMENT];
};

const char *coll_type_name(int type)
{
	static const char *const names[VBN_TYPES] = {
		[VBN_INT8] = "int8",	 [VBN_UINT8] = "uint8",
		[VBN_INT32] = "int32",	 [VBN_UINT32] = "uint32",
		[VBN_INT64] = "int64",	 [VBN_UINT64] = "uint64",
		[VBN_FLOAT16] = "half",	 [VBN_BFLOAT16] = "bfloat16",
		[VBN_FLOAT32] = "float", [VBN_FLOAT64] = "double",
	};

	return type < VBN_TYPES ? names[type] : NULL;
}

const char *coll_reduction_name(int reduction)
{
	static const char *const names[VBN_REDUCTIONS] = {
		[VBN_SUM] = "sum", [VBN_PRODUCT] = "prod", [VBN_MIN] = "min",
		[VBN_MAX] = "max", [VBN_AVERAGE] = "avg",  [VBN_AND] = "and",
		[VBN_OR] = "or",   [VBN_XOR] = "xor",
	};

	return reduction < VBN_REDUCTIONS ? names[reduction] : NULL;
}

static bool is_floating(enum vbn_type type)
{
	return type >= VBN_FLOAT16;
}

/* A float's bits that 16-bit types have: exact where the value fits. */
static uint32_t float_bits(double value)
{
	float f = (float)value;
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static void encode(uint8_t *bytes, double value, enum vbn_type type)
{
	int64_t integer = is_floating(type) ? 0 : (int64_t)value;
	float single = (float)value;
	uint16_t bits = 0;

	if (type == VBN_BFLOAT16)
		bits = (uint16_t)(float_bits(value) >> 16);
	else if (type == VBN_FLOAT16 && value > 0)
		bits = (uint16_t)((float_bits(value) >> 13) - HALF_BIAS);
	if (type == VBN_BFLOAT16 || type == VBN_FLOAT16)
		memcpy(bytes, &bits, sizeof(bits));
	else if (type == VBN_FLOAT32)
		memcpy(bytes, &single, sizeof(single));
	else if (type == VBN_FLOAT64)
		memcpy(bytes, &value, sizeof(value));
	else /* little-endian, as all that the library runs on */
		memcpy(bytes, &integer, vbn_type_bytes(type));
}

/* Of floating point; of half, normal numbers above 0 only. */
static double decode(const uint8_t *bytes, enum vbn_type type)
{
	uint16_t half;
	uint32_t bits;
	double value;
	float single;

	if (type == VBN_FLOAT64) {
		memcpy(&value, bytes, sizeof(value));
		return value;
	}
	memcpy(&half, bytes, sizeof(half));
	if (type == VBN_FLOAT32)
		memcpy(&bits, bytes, sizeof(bits));
	else if (type == VBN_BFLOAT16)
		bits = (uint32_t)half << 16;
	else
		bits = half ? ((uint32_t)half + HALF_BIAS) << 13 : 0;
	memcpy(&single, &bits, sizeof(single));
	return (double)single;
}

/* Products of more than 8 ranks would leave the small types' range. */
static int64_t value_in(size_t i, int rank, enum vbn_reduction reduction)
{
	int value = coll_data_in(i, rank);

	return reduction != VBN_PRODUCT ? value : rank < 8 ? 1 + value % 2 : 1;
}

static int64_t combine(int64_t a, int64_t b, enum vbn_reduction reduction)
{
	switch (reduction) {
	case VBN_PRODUCT:
		return a * b;
	case VBN_MIN:
		return a < b ? a : b;
	case VBN_MAX:
		return a > b ? a : b;
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

/* Integers are divided after the sum has wrapped. */
static double average(int64_t sum, int nranks, enum vbn_type type)
{
	uint8_t bytes[ELEMENT];

	if (is_floating(type))
		return (double)sum / nranks;
	encode(bytes, (double)sum, type);
	if (type == VBN_INT8)
		sum = (int8_t)bytes[0];
	else if (type == VBN_UINT8)
		sum = bytes[0];
	return (double)(sum / nranks);
}

/* @rank < 0: all ranks', reduced. */
static void period_of(struct period *p, int rank, int nranks,
		      enum vbn_type type, enum vbn_reduction reduction)
{
	for (size_t i = 0; i < PERIOD; i++) {
		int64_t v = value_in(i, rank < 0 ? 0 : rank, reduction);

		for (int r = 1; rank < 0 && r < nranks; r++)
			v = combine(v, value_in(i, r, reduction), reduction);
		p->values[i] = rank < 0 && reduction == VBN_AVERAGE
				       ? average(v, nranks, type)
				       : (double)v;
		encode(p->bytes[i], p->values[i], type);
	}
}

void coll_fill(void *data, size_t n, enum vbn_type type,
	       enum vbn_reduction reduction, int rank)
{
	size_t bytes = vbn_type_bytes(type);
	struct period p;

	period_of(&p, rank, 1, type, reduction);
	for (size_t i = 0; i < n; i++)
		memcpy((uint8_t *)data + i * bytes, p.bytes[i % PERIOD], bytes);
}

/* How far off a reduction may be, relatively. */
static double tolerance(enum vbn_type type, enum vbn_reduction reduction)
{
	switch (type) {
	case VBN_FLOAT16:
		return ldexp(1, -10);
	case VBN_BFLOAT16:
		return ldexp(1, -7);
	case VBN_FLOAT32:
		return reduction == VBN_AVERAGE ? ldexp(1, -23) : 0;
	case VBN_FLOAT64:
		return reduction == VBN_AVERAGE ? ldexp(1, -52) : 0;
	default:
		return 0;
	}
}

static bool is_right(const uint8_t *got, const struct period *p, size_t at,
		     enum vbn_type type, double far)
{
	if (memcmp(got, p->bytes[at], vbn_type_bytes(type)) == 0)
		return true;
	return far > 0 &&
	       fabs(decode(got, type) - p->values[at]) <= far * p->values[at];
}

size_t coll_wrong(const void *data, const struct coll_shape *s,
		  enum vbn_type type, enum vbn_reduction reduction)
{
	size_t bytes = vbn_type_bytes(type), wrong = 0;
	struct period p;
	double far = 0;
	int of = -2;

	for (size_t i = 0; coll_data_receives(s) && i < s->out; i++) {
		struct coll_origin o = coll_data_origin(s, i);

		if (o.rank != of) {
			of = o.rank;
			far = of < 0 ? tolerance(type, reduction) : 0;
			period_of(&p, of, s->nranks, type, reduction);
		}
		wrong += !is_right((const uint8_t *)data + i * bytes, &p,
				   o.index % PERIOD, type, far);
	}
	return wrong;
}
