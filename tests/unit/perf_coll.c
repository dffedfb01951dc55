/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data of verbena-perf's collectives: which elements count as wrong, for
 * each operation, type and reduction; and how its loop warms up and counts.
 */
#include "cunit_run.h"
#include "coll_loop.h"
#include "coll_values.h"

#include <string.h>

#define RANKS 3
#define ROOM  4096

static uint8_t data[ROOM], other[RANKS][ROOM];

/* ---- values ---- */

/* @count float32 elements at @at of what @rank puts in. */
static void part_of(size_t to, size_t at, size_t count, int rank)
{
	float all[64];

	coll_fill(all, 64, VBN_FLOAT32, VBN_SUM, rank);
	memcpy(data + to * sizeof(float), all + at, count * sizeof(float));
}

static void sum_of(size_t at, size_t count)
{
	float all[64], *out = (float *)(void *)data;

	memset(data, 0, sizeof(data));
	for (int r = 0; r < RANKS; r++) {
		coll_fill(all, 64, VBN_FLOAT32, VBN_SUM, r);
		for (size_t i = 0; i < count; i++)
			out[i] += all[at + i];
	}
}

static size_t wrong_in(enum coll_op op, int rank, size_t elements)
{
	struct coll_shape s = coll_shape_of(op, rank, RANKS, elements);

	return coll_wrong(data, &s, VBN_FLOAT32, VBN_SUM);
}

static void test_shapes(void)
{
	struct coll_shape s = coll_shape_of(COLL_ALLGATHER, 1, 4, 42);

	CU_ASSERT(s.count == 10 && s.in == 10 && s.out == 40);
	s = coll_shape_of(COLL_REDUCE_SCATTER, 1, 4, 3);
	CU_ASSERT(s.count == 1 && s.in == 4 && s.out == 1);
	s = coll_shape_of(COLL_ALLTOALL, 1, 4, 40);
	CU_ASSERT(s.count == 10 && s.in == 40 && s.out == 40);
	s = coll_shape_of(COLL_ALLREDUCE, 1, 4, 42);
	CU_ASSERT(s.count == 42 && s.in == 42 && s.out == 42);
	s = coll_shape_of(COLL_BROADCAST, 1, 4, 42);
	CU_ASSERT(s.count == 42 && s.in == 0 && s.out == 42);
	s = coll_shape_of(COLL_SCATTER, 1, 4, 42);
	CU_ASSERT(s.count == 10 && s.in == 40 && s.out == 10);
}

/* 20 elements a rank where there are parts. */
static void test_operations(void)
{
	sum_of(0, 60);
	CU_ASSERT_EQUAL(wrong_in(COLL_ALLREDUCE, 1, 60), 0);
	CU_ASSERT_EQUAL(wrong_in(COLL_REDUCE, 0, 60), 0);
	sum_of(20, 20);
	CU_ASSERT_EQUAL(wrong_in(COLL_REDUCE_SCATTER, 1, 60), 0);
	CU_ASSERT_NOT_EQUAL(wrong_in(COLL_REDUCE_SCATTER, 2, 60), 0);
	part_of(0, 0, 60, 0);
	CU_ASSERT_EQUAL(wrong_in(COLL_BROADCAST, 2, 60), 0);
	for (int r = 0; r < RANKS; r++)
		part_of(20 * (size_t)r, 0, 20, r);
	CU_ASSERT_EQUAL(wrong_in(COLL_ALLGATHER, 2, 60), 0);
	CU_ASSERT_EQUAL(wrong_in(COLL_GATHER, 0, 60), 0);
	for (int r = 0; r < RANKS; r++)
		part_of(20 * (size_t)r, 40, 20, r);
	CU_ASSERT_EQUAL(wrong_in(COLL_ALLTOALL, 2, 60), 0);
	CU_ASSERT_NOT_EQUAL(wrong_in(COLL_ALLTOALL, 1, 60), 0);
	part_of(0, 20, 20, 0);
	CU_ASSERT_EQUAL(wrong_in(COLL_SCATTER, 1, 60), 0);
}

static void test_each_element(void)
{
	float *out = (float *)(void *)data;

	sum_of(0, 60);
	for (size_t i = 0; i < 60; i++) {
		float right = out[i];

		out[i] = right + 1;
		CU_ASSERT_EQUAL(wrong_in(COLL_ALLREDUCE, 1, 60), 1);
		out[i] = right;
	}
	memset(data, 0xff, sizeof(data));
	CU_ASSERT_EQUAL(wrong_in(COLL_ALLREDUCE, 1, 60), 60);
	/* What nobody is to get, nobody looks at. */
	CU_ASSERT_EQUAL(wrong_in(COLL_REDUCE, 1, 60), 0);
	CU_ASSERT_EQUAL(wrong_in(COLL_GATHER, 1, 60), 0);
}

/* ---- types and reductions ---- */

#define REFERENCE(name, type)                                                  \
	static void name(enum vbn_reduction how)                               \
	{                                                                      \
		type *a = (void *)data;                                        \
                                                                               \
		memcpy(data, other[0], ROOM);                                  \
		for (int r = 1; r < RANKS; r++)                                \
			for (size_t i = 0; i < 40; i++) {                      \
				type b = ((type *)(void *)other[r])[i];        \
                                                                               \
				a[i] = (type)(how == VBN_PRODUCT ? a[i] * b    \
					      : how == VBN_MIN                 \
						      ? (a[i] < b ? a[i] : b)  \
					      : how == VBN_MAX                 \
						      ? (a[i] > b ? a[i] : b)  \
						      : a[i] + b);             \
			}                                                      \
		for (size_t i = 0; i < 40 && how == VBN_AVERAGE; i++)          \
			a[i] = (type)(a[i] / RANKS);                           \
	}

REFERENCE(reference_int8, int8_t)
REFERENCE(reference_uint32, uint32_t)
REFERENCE(reference_int64, int64_t)
REFERENCE(reference_float, float)
REFERENCE(reference_double, double)

static void test_types(void)
{
	static const struct {
		enum vbn_type type;
		void (*reference)(enum vbn_reduction how);
	} kinds[] = {
		{VBN_INT8, reference_int8},	 {VBN_UINT32, reference_uint32},
		{VBN_INT64, reference_int64},	 {VBN_FLOAT32, reference_float},
		{VBN_FLOAT64, reference_double},
	};
	struct coll_shape s = coll_shape_of(COLL_ALLREDUCE, 0, RANKS, 40);

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		for (int how = VBN_SUM; how <= VBN_AVERAGE; how++) {
			enum vbn_reduction reduction = (enum vbn_reduction)how;

			for (int r = 0; r < RANKS; r++)
				coll_fill(other[r], 40, kinds[k].type,
					  reduction, r);
			kinds[k].reference(reduction);
			CU_ASSERT_EQUAL(
				coll_wrong(data, &s, kinds[k].type, reduction),
				0);
			data[0] ^= 0x40;
			CU_ASSERT_NOT_EQUAL(
				coll_wrong(data, &s, kinds[k].type, reduction),
				0);
		}
}

/* Of one element: what ranks 0, 1 and 2 put in at 0 is 0, 4 and 8. */
static bool is_right_16(enum vbn_type type, enum vbn_reduction reduction,
			uint16_t bits)
{
	struct coll_shape s = coll_shape_of(COLL_ALLREDUCE, 0, RANKS, 1);

	memcpy(data, &bits, sizeof(bits));
	return coll_wrong(data, &s, type, reduction) == 0;
}

static void test_16_bits(void)
{
	/* 12 and its neighbours; 4. */
	CU_ASSERT_TRUE(is_right_16(VBN_FLOAT16, VBN_SUM, 0x4a00));
	CU_ASSERT_TRUE(is_right_16(VBN_FLOAT16, VBN_SUM, 0x4a01));
	CU_ASSERT_FALSE(is_right_16(VBN_FLOAT16, VBN_SUM, 0x4a02));
	CU_ASSERT_FALSE(is_right_16(VBN_FLOAT16, VBN_SUM, 0xffff));
	CU_ASSERT_TRUE(is_right_16(VBN_FLOAT16, VBN_AVERAGE, 0x4400));
	CU_ASSERT_TRUE(is_right_16(VBN_BFLOAT16, VBN_SUM, 0x4140));
	CU_ASSERT_TRUE(is_right_16(VBN_BFLOAT16, VBN_SUM, 0x4141));
	CU_ASSERT_FALSE(is_right_16(VBN_BFLOAT16, VBN_SUM, 0x4142));
	CU_ASSERT_FALSE(is_right_16(VBN_BFLOAT16, VBN_SUM, 0xffff));
	CU_ASSERT_TRUE(is_right_16(VBN_BFLOAT16, VBN_MAX, 0x4100));
	CU_ASSERT_FALSE(is_right_16(VBN_BFLOAT16, VBN_MAX, 0x4080));
}

static void test_bits(void)
{
	struct coll_shape s = coll_shape_of(COLL_ALLREDUCE, 0, RANKS, 1);

	data[0] = 0 & 4 & 8;
	CU_ASSERT_EQUAL(coll_wrong(data, &s, VBN_UINT8, VBN_AND), 0);
	data[0] = 0 | 4 | 8;
	CU_ASSERT_EQUAL(coll_wrong(data, &s, VBN_UINT8, VBN_OR), 0);
	CU_ASSERT_EQUAL(coll_wrong(data, &s, VBN_UINT8, VBN_XOR), 0);
	CU_ASSERT_EQUAL(coll_wrong(data, &s, VBN_UINT8, VBN_AND), 1);
}

static void test_names(void)
{
	CU_ASSERT_STRING_EQUAL(coll_type_name(VBN_FLOAT32), "float");
	CU_ASSERT_STRING_EQUAL(coll_reduction_name(VBN_AVERAGE), "avg");
	CU_ASSERT_PTR_NULL(coll_type_name(VBN_TYPES));
	CU_ASSERT_PTR_NULL(coll_reduction_name(VBN_REDUCTIONS));
	for (int i = 0; i < VBN_TYPES; i++)
		CU_ASSERT_PTR_NOT_NULL(coll_type_name(i));
	for (int i = 0; i < VBN_REDUCTIONS; i++)
		CU_ASSERT_PTR_NOT_NULL(coll_reduction_name(i));
}

/* ---- the loop ---- */

/* Time is what the fake says: each call takes @each. */
static struct fake {
	size_t calls, timed, barriers, fail_at;
	double each;
	bool slow_first;
} fake;

static int fake_call(void *self)
{
	(void)self;
	return ++fake.calls == fake.fail_at ? -5 : 0;
}

static int fake_barrier(void *self)
{
	(void)self;
	fake.barriers++;
	fake.timed = fake.calls;
	return 0;
}

static int fake_largest(void *self, double mine, double *most)
{
	(void)self;
	(void)mine;
	*most = (double)(fake.calls - fake.timed) * fake.each;
	if (fake.slow_first && fake.timed < COLL_LOOP_FIRST)
		*most = 60;
	return 0;
}

static int loop_of(size_t warmup, size_t calls, double each, size_t *timed)
{
	struct coll_loop loop = {
		fake_call, fake_barrier, fake_largest, NULL, warmup, calls, 1};
	double seconds = 0;
	int rc;

	fake = (struct fake){.each = each,
			     .fail_at = fake.fail_at,
			     .slow_first = warmup == COLL_LOOP_AUTO};
	rc = coll_loop_time(&loop, &seconds, timed);
	if (rc == 0)
		CU_ASSERT_DOUBLE_EQUAL(seconds, each, each * 1e-9);
	return rc;
}

static void test_loop(void)
{
	size_t timed;

	/* 0.2 s of warming up take 1 + 2 + ... + 32 calls, after the first. */
	CU_ASSERT_EQUAL(
		loop_of(COLL_LOOP_AUTO, COLL_LOOP_AUTO, 0.0078125, &timed), 0);
	CU_ASSERT_EQUAL(timed, 128);
	CU_ASSERT_EQUAL(fake.calls, COLL_LOOP_FIRST + 63 + 128);
	CU_ASSERT_EQUAL(fake.barriers, 8);
	CU_ASSERT_EQUAL(loop_of(5, 7, 0.001, &timed), 0);
	CU_ASSERT_EQUAL(timed, 7);
	CU_ASSERT_EQUAL(fake.calls, 12);
	CU_ASSERT_EQUAL(loop_of(0, 7, 0.001, &timed), 0);
	CU_ASSERT_EQUAL(fake.calls, 7);
	CU_ASSERT_EQUAL(loop_of(0, COLL_LOOP_AUTO, 0.25, &timed), 0);
	CU_ASSERT_EQUAL(timed, 4);
	CU_ASSERT_EQUAL(loop_of(COLL_LOOP_AUTO, COLL_LOOP_AUTO, 10, &timed), 0);
	CU_ASSERT_EQUAL(timed, 2);
	fake.fail_at = 6;
	CU_ASSERT_EQUAL(loop_of(5, 7, 0.001, &timed), -5);
	CU_ASSERT_EQUAL(fake.calls, 6);
	fake.fail_at = 0;
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"shapes", test_shapes},
		{"operations", test_operations},
		{"each element", test_each_element},
		{"types", test_types},
		{"16 bits", test_16_bits},
		{"bits", test_bits},
		{"names", test_names},
		{"loop", test_loop},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{"perf_coll", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
