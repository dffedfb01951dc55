/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What verbena-perf writes of a result: perftest's columns, CSV, ratios; and
 * the data that --validate looks at.
 */
#include "check.h"
#include "cunit_run.h"
#include "table.h"

#include <string.h>

static const struct perf_test lat = {"put-lat", PERF_PUT, false, true,
				     2,		"put",	  0};
static const struct perf_test bw = {"put-bw", PERF_PUT, true, true,
				    2,	      "put",	0};

static const struct stats some = {1000, 1.25e-6, 90e-6, 2.5e-6,
				  3e-6, 0.5e-6,	 7e-6,	8.125e-6};

static void test_latency(void)
{
	struct perf_options o = {.test = &lat};
	struct result r = {.method = "raw",
			   .bytes = 8,
			   .iterations = 1000,
			   .latency = some};
	char head[320], line[320];
	int n = table_heading(head, sizeof(head), &o);

	CU_ASSERT_EQUAL(table_row(line, sizeof(line), &o, &r, ""), n);
	CU_ASSERT_STRING_EQUAL(
		line, "        8        1000         1.25        90.00"
		      "            2.50         3.00           0.50"
		      "                  7.00                    8.12");
	table_row(line, sizeof(line), &o, &r, "raw");
	CU_ASSERT_STRING_EQUAL(line + n, "  raw");
	CU_ASSERT_PTR_NOT_NULL(strstr(head, "t_typical[usec]"));
	table_csv_row(line, sizeof(line), &o, &r, "shm");
	CU_ASSERT_STRING_EQUAL(
		line, "put-lat,shm,raw,8,1000,1.25,90,2.5,3,0.5,7,8.125");
}

static void test_bandwidth(void)
{
	struct perf_options o = {.test = &bw};
	struct result r = {.method = "verbena",
			   .bytes = 1 << 20,
			   .iterations = 10,
			   .peak = 250,
			   .average = 125};
	char head[320], line[320];
	int n = table_heading(head, sizeof(head), &o);

	CU_ASSERT_EQUAL(table_row(line, sizeof(line), &o, &r, ""), n);
	CU_ASSERT_STRING_EQUAL(line, "  1048576          10             250.00"
				     "             125.00        0.000125");
	CU_ASSERT_PTR_NOT_NULL(strstr(head, "BW average[MB/sec]"));
	o.gbits = true;
	table_heading(head, sizeof(head), &o);
	CU_ASSERT_PTR_NOT_NULL(strstr(head, "BW average[Gb/sec]"));
	CU_ASSERT_DOUBLE_EQUAL(table_bandwidth(&o, 1000, 1e6), 8, 1e-12);
	table_csv_row(line, sizeof(line), &o, &r, "ucx");
	CU_ASSERT_STRING_EQUAL(line, "put-bw,ucx,verbena,1048576,10,2.09715,"
				     "1.04858,0.000125");
}

/* As many fields in a row as in its heading. */
static size_t commas(const char *line)
{
	size_t n = 0;

	for (; *line; line++)
		n += *line == ',';
	return n;
}

static void test_csv_columns(void)
{
	const struct perf_test *tests[] = {&lat, &bw};
	struct result r = {.method = "raw"};
	char head[320], line[320];

	for (size_t i = 0; i < 2; i++) {
		struct perf_options o = {.test = tests[i]};

		table_csv_heading(head, sizeof(head), &o);
		table_csv_row(line, sizeof(line), &o, &r, "shm");
		CU_ASSERT_EQUAL(commas(head), commas(line));
		CU_ASSERT(commas(head) > 5);
	}
}

static void test_ratio(void)
{
	struct perf_options o = {.test = &lat};
	const double ours[] = {2, 3, 40}, theirs[] = {1, 2, 10, 5};
	struct result a = {.latency.typical = 3,
			   .average = 8,
			   .rounds = ours,
			   .nrounds = 3};
	struct result b = {.latency.typical = 2,
			   .average = 10,
			   .rounds = theirs,
			   .nrounds = 4};
	double ratio;

	CU_ASSERT_DOUBLE_EQUAL(table_ratio(&o, &a, &b), 1.5, 1e-12);
	o.test = &bw;
	CU_ASSERT_DOUBLE_EQUAL(table_ratio(&o, &a, &b), 0.8, 1e-12);
	CU_ASSERT_EQUAL(table_ratio_rounds(&a, &b, &ratio), 0);
	CU_ASSERT_DOUBLE_EQUAL(ratio, 2, 1e-12);
	/* No rate at all is no division by it. */
	b.average = 0;
	CU_ASSERT_DOUBLE_EQUAL(table_ratio(&o, &a, &b), 0, 1e-12);
}

static void test_check_right(void)
{
	uint8_t data[100];

	for (size_t n = 0; n <= sizeof(data); n++) {
		memset(data, 0, sizeof(data));
		check_fill(data, n, 5);
		CU_ASSERT_EQUAL(check_find(data, n, 5), n);
		for (size_t i = 0; i < n; i++)
			CU_ASSERT_EQUAL(data[i], check_byte(i, 5));
		for (size_t i = n; i < sizeof(data); i++)
			CU_ASSERT_EQUAL(data[i], 0);
	}
}

static void test_check_wrong(void)
{
	uint8_t data[67];

	for (size_t at = 0; at < sizeof(data); at++)
		for (int bit = 0; bit < 8; bit++) {
			check_fill(data, sizeof(data), 9);
			data[at] ^= (uint8_t)(1 << bit);
			CU_ASSERT_EQUAL(check_find(data, sizeof(data), 9), at);
		}
}

/* What was sent before, zeros, or data at another offset is not right. */
static void test_check_stale(void)
{
	uint8_t data[4096], zeros[64] = {0};

	for (uint64_t seed = 0; seed < 1000; seed++) {
		check_fill(data, 64, seed);
		CU_ASSERT(check_find(data, 64, seed + 1) < 8);
		CU_ASSERT(check_find(data, 64, seed + 2) < 8);
		CU_ASSERT(check_find(zeros, 64, seed) < 8);
	}
	check_fill(data, sizeof(data), 3);
	for (size_t shift = 1; shift < 64; shift++)
		CU_ASSERT(check_find(data + shift, 1024, 3) < 8);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"latency", test_latency},
		{"bandwidth", test_bandwidth},
		{"CSV columns", test_csv_columns},
		{"ratios", test_ratio},
		{"right data", test_check_right},
		{"one wrong bit", test_check_wrong},
		{"stale data", test_check_stale},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{"perf_table", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
