/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduction kernels against plain loops: every length around the vector
 * width, every alignment of the three operands, in place on either side,
 * special values, and nothing written outside.
 */
#include "reduce.h"

#include <CUnit/Basic.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096, GUARD = 64 };

static char a[ROOM], b[ROOM], d[ROOM], want[ROOM];

static uint32_t seed = 12345;

static uint32_t draw(void)
{
	seed = seed * 1664525u + 1013904223u;
	return seed >> 8;
}

static void fill(enum vbn_type type, char *to, size_t n)
{
	static const double special[] = {0.0,	-0.0,	  1e-40, 1e-310,
					 1e300, INFINITY, -1.5,	 -INFINITY};

	for (size_t i = 0; i < n; i++) {
		double v = draw() % 4 ? (double)draw() / 1000 - 8000
				      : special[draw() % 8];
		float f = (float)v;

		if (type == VBN_FLOAT32)
			memcpy(to + i * sizeof(f), &f, sizeof(f));
		else
			memcpy(to + i * sizeof(v), &v, sizeof(v));
	}
}

static void reference(enum vbn_type type, char *to, const char *x,
		      const char *y, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (type == VBN_FLOAT32) {
			float p, q;

			memcpy(&p, x + i * sizeof(p), sizeof(p));
			memcpy(&q, y + i * sizeof(q), sizeof(q));
			p += q;
			memcpy(to + i * sizeof(p), &p, sizeof(p));
		} else {
			double p, q;

			memcpy(&p, x + i * sizeof(p), sizeof(p));
			memcpy(&q, y + i * sizeof(q), sizeof(q));
			p += q;
			memcpy(to + i * sizeof(p), &p, sizeof(p));
		}
	}
}

static void check(enum vbn_type type, size_t n, size_t at, int place)
{
	size_t bytes = n * vbn_type_bytes(type);
	char *x = a + GUARD + at % 8, *y = b + GUARD + at / 8 % 8;
	char *to = place == 0 ? d + GUARD + at / 64 : place == 1 ? x : y;
	char *whole = place == 0 ? d : place == 1 ? a : b;

	memset(a, 0x5a, ROOM);
	memset(b, 0x5a, ROOM);
	memset(d, 0x5a, ROOM);
	fill(type, x, n);
	fill(type, y, n);
	memcpy(want, whole, ROOM);
	reference(type, want + (to - whole), x, y, n);
	reduce_find(type, VBN_SUM)->run(to, x, y, n);
	/* NaN (infinity - infinity) has the same bits here either way. */
	CU_ASSERT_FATAL(memcmp(want + (to - whole), to, bytes) == 0);
	CU_ASSERT_FATAL(memcmp(want, whole, ROOM) == 0);
}

static void sums(void)
{
	static const enum vbn_type types[] = {VBN_FLOAT32, VBN_FLOAT64};

	for (int t = 0; t < 2; t++) {
		for (size_t n = 0; n <= 130; n++)
			for (size_t at = 0; at < 512; at += 1 + n % 7 * 5)
				check(types[t], n, at, (int)((n + at) % 3));
		for (size_t at = 0; at < 512; at++)
			check(types[t], 65, at, (int)(at % 3));
	}
}

static void table(void)
{
	for (int t = -1; t <= VBN_TYPES; t++)
		for (int r = -1; r <= VBN_REDUCTIONS; r++) {
			bool has = (t == VBN_FLOAT32 || t == VBN_FLOAT64) &&
				   r == VBN_SUM;

			CU_ASSERT(!reduce_find((enum vbn_type)t,
					       (enum vbn_reduction)r) == !has);
			CU_ASSERT_PTR_NOT_NULL(
				reduce_name((enum vbn_reduction)r));
			CU_ASSERT_PTR_NOT_NULL(
				reduce_type_name((enum vbn_type)t));
		}
	CU_ASSERT_EQUAL(vbn_type_bytes(VBN_BFLOAT16), 2);
	CU_ASSERT_EQUAL(vbn_type_bytes(VBN_FLOAT64), 8);
	CU_ASSERT_EQUAL(vbn_type_bytes(VBN_TYPES), 0);
	CU_ASSERT_EQUAL(vbn_type_bytes((enum vbn_type) - 1), 0);
}

int main(void)
{
	CU_pSuite suite;
	unsigned failed, ran;

	if (CU_initialize_registry() != CUE_SUCCESS)
		return 1;
	suite = CU_add_suite("reduce", NULL, NULL);
	if (!suite || !CU_ADD_TEST(suite, sums) || !CU_ADD_TEST(suite, table))
		return 1;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	failed = CU_get_number_of_tests_failed();
	ran = CU_get_number_of_tests_run();
	CU_cleanup_registry();
	return failed > 0 || ran != 2;
}
