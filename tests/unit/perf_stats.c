/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics of verbena-perf: known answers, edges, and that a wrong element
 * is counted whatever it is.
 */
#include "stats.h"

#include <CUnit/Basic.h>
#include <math.h>
#include <stdlib.h>

#define NEAR(a, b) CU_ASSERT_DOUBLE_EQUAL(a, b, 1e-9)

static void test_none(void)
{
	struct stats s;

	stats_of(&s, NULL, 0);
	CU_ASSERT_EQUAL(s.count, 0);
	NEAR(s.min, 0);
	NEAR(s.p99, 0);
	NEAR(stats_percentile(NULL, 0, 50), 0);
}

static void test_one(void)
{
	double x[] = {3.5};
	struct stats s;

	stats_of(&s, x, 1);
	NEAR(s.min, 3.5);
	NEAR(s.max, 3.5);
	NEAR(s.typical, 3.5);
	NEAR(s.average, 3.5);
	NEAR(s.stdev, 0);
	NEAR(s.p99, 3.5);
	NEAR(s.p999, 3.5);
}

static void test_known(void)
{
	double x[] = {9, 2, 5,	4, 12, 7,  8, 11, 9, 3,
		      7, 4, 12, 5, 4,  10, 9, 6,  9, 4};
	struct stats s;

	stats_of(&s, x, 20);
	NEAR(s.min, 2);
	NEAR(s.max, 12);
	NEAR(s.average, 7);
	NEAR(s.typical, 7);
	CU_ASSERT_DOUBLE_EQUAL(s.stdev, 2.983286778, 1e-8);
	for (int i = 1; i < 20; i++)
		CU_ASSERT(x[i - 1] <= x[i]);
}

static void test_median_of_even(void)
{
	double x[] = {4, 1, 3, 2};
	struct stats s;

	stats_of(&s, x, 4);
	NEAR(s.typical, 2.5);
}

static void test_percentiles(void)
{
	double x[1000];
	struct stats s;

	for (int i = 0; i < 1000; i++)
		x[i] = 1000 - i;
	stats_of(&s, x, 1000);
	NEAR(s.p99, 990);
	NEAR(s.p999, 999);
	NEAR(stats_percentile(x, 1000, 0), 1);
	NEAR(stats_percentile(x, 1000, 100), 1000);
	NEAR(stats_percentile(x, 1000, 50), 500);
	/* One outlier of 100 is above the 99th percentile, of 50 it is it. */
	NEAR(stats_percentile(x, 100, 99), 99);
	NEAR(stats_percentile(x, 50, 99), 50);
}

static void test_peak(void)
{
	double posted[] = {0, 1, 2, 3, 4}, completed[] = {1, 2, 2.1, 4, 9};

	NEAR(stats_peak_rate(posted, completed, 1, 1), 1);
	CU_ASSERT_DOUBLE_EQUAL(stats_peak_rate(posted, completed, 5, 1), 10,
			       1e-6);
	CU_ASSERT_DOUBLE_EQUAL(stats_peak_rate(posted, completed, 5, 2),
			       2 / 1.1, 1e-6);
	NEAR(stats_peak_rate(posted, completed, 5, 5), 5.0 / 9);
	NEAR(stats_peak_rate(posted, completed, 5, 0), 5.0 / 9);
	NEAR(stats_peak_rate(posted, completed, 5, 99), 5.0 / 9);
	NEAR(stats_peak_rate(NULL, NULL, 0, 3), 0);
	/* Clocks that stand still give no infinite rate. */
	NEAR(stats_peak_rate(posted, posted, 2, 1), 0);
}

static void test_bus(void)
{
	NEAR(stats_allreduce_bus(10, 1), 0);
	NEAR(stats_allreduce_bus(10, 2), 10);
	NEAR(stats_allreduce_bus(10, 4), 15);
}

static float ramp(size_t i, int nranks)
{
	return (float)i * (float)nranks;
}

static void test_wrong(void)
{
	float x[100];

	for (size_t i = 0; i < 100; i++)
		x[i] = ramp(i, 3);
	CU_ASSERT_EQUAL(stats_wrong(x, 100, ramp, 3), 0);
	CU_ASSERT_EQUAL(stats_wrong(x, 100, ramp, 4), 99);
	x[0] = 1e-30f;
	x[50] = NAN;
	x[99] = -x[99];
	CU_ASSERT_EQUAL(stats_wrong(x, 100, ramp, 3), 3);
	CU_ASSERT_EQUAL(stats_wrong(x, 0, ramp, 3), 0);
}

int main(void)
{
	static const struct {
		const char *name;
		void (*fn)(void);
	} tests[] = {
		{"no samples", test_none},
		{"one sample", test_one},
		{"known series", test_known},
		{"median of an even number", test_median_of_even},
		{"percentiles", test_percentiles},
		{"peak rate", test_peak},
		{"bus bandwidth", test_bus},
		{"wrong elements", test_wrong},
	};
	CU_pSuite suite;
	unsigned failures;

	if (CU_initialize_registry() != CUE_SUCCESS)
		return EXIT_FAILURE;
	suite = CU_add_suite("perf_stats", NULL, NULL);
	for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
		if (!suite || !CU_add_test(suite, tests[i].name, tests[i].fn))
			return EXIT_FAILURE;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	failures = CU_get_number_of_failures();
	CU_cleanup_registry();
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
