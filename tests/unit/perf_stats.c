/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics of verbena-perf: known answers, edges, and that a wrong element
 * is counted whatever it is.
 */
#include "cunit_run.h"
#include "stats.h"

#include <math.h>

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
	NEAR(stats_bus(10, 2, 1), 0);
	NEAR(stats_bus(10, 2, 2), 10);
	NEAR(stats_bus(10, 2, 4), 15);
	NEAR(stats_bus(10, 1, 4), 7.5);
	NEAR(stats_bus(10, 0, 4), 10);
}

static void test_samples(void)
{
	struct samples s = {0};
	struct stats stats;

	samples_stats(&s, &stats);
	CU_ASSERT_EQUAL(stats.count, 0);
	for (int i = 3000; i > 0; i--)
		CU_ASSERT_EQUAL(samples_add(&s, i), 0);
	samples_stats(&s, &stats);
	CU_ASSERT_EQUAL(stats.count, 3000);
	NEAR(stats.min, 1);
	NEAR(stats.max, 3000);
	NEAR(stats.typical, 1500.5);
	NEAR(stats.average, 1500.5);
	NEAR(stats.p99, 2970);
	samples_free(&s);
	CU_ASSERT_PTR_NULL(s.kept);
}

/* More than are kept: the extremes stay, the middle is near. */
static void test_many_samples(void)
{
	const size_t n = SAMPLES_KEPT * 2;
	struct samples s = {0};
	struct stats stats;
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++)
		rc = samples_add(&s, (double)i);
	CU_ASSERT_EQUAL(rc, 0);
	CU_ASSERT_EQUAL(s.nkept, SAMPLES_KEPT);
	CU_ASSERT_EQUAL(s.room, SAMPLES_KEPT);
	samples_stats(&s, &stats);
	CU_ASSERT_EQUAL(stats.count, n);
	NEAR(stats.min, 0);
	NEAR(stats.max, (double)(n - 1));
	NEAR(stats.average, (double)(n - 1) / 2);
	CU_ASSERT_DOUBLE_EQUAL(stats.typical / (double)n, 0.5, 0.005);
	CU_ASSERT_DOUBLE_EQUAL(stats.p99 / (double)n, 0.99, 0.005);
	samples_free(&s);
}

static void test_median(void)
{
	const double x[] = {5, 1, 9};

	NEAR(stats_median(x, 3), 5);
	NEAR(x[0], 5); /* as it was */
	NEAR(stats_median(x, 2), 3);
	NEAR(stats_median(x, 0), 0);
}

static void test_histogram(void)
{
	struct histogram h = {0};

	NEAR(histogram_begin(0), 0);
	CU_ASSERT_DOUBLE_EQUAL(histogram_begin(1), 1e-8, 1e-15);
	CU_ASSERT_DOUBLE_EQUAL(histogram_begin(21), 1e-6, 1e-13);
	for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
		double begin = histogram_begin(i);

		h = (struct histogram){0};
		histogram_add(&h, begin);
		CU_ASSERT_EQUAL(h.counts[i], 1);
		histogram_add(&h, begin * 1.2);
		CU_ASSERT_EQUAL(h.counts[i], 2);
		if (i == 0)
			continue;
		histogram_add(&h, begin * (1 - 1e-12));
		CU_ASSERT_EQUAL(h.counts[i - 1], 1);
	}
	h = (struct histogram){0};
	histogram_add(&h, 1e9);
	CU_ASSERT_EQUAL(h.counts[HISTOGRAM_BUCKETS - 1], 1);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"no samples", test_none},
		{"one sample", test_one},
		{"known series", test_known},
		{"median of an even number", test_median_of_even},
		{"percentiles", test_percentiles},
		{"peak rate", test_peak},
		{"bus bandwidth", test_bus},
		{"samples", test_samples},
		{"more samples than are kept", test_many_samples},
		{"median", test_median},
		{"histogram", test_histogram},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{"perf_stats", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
