/* SPDX-License-Identifier: BSD-3-Clause */
/* VBN_FAULT's text: what it says to each rank, and what is said of mistakes. */
#include "providers/fault/plan.h"

#include "cunit_run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <verbena/job.h>

static struct fault_plan plan;

static int parse(const char *text, int rank)
{
	return fault_plan_parse(text, rank, 4, &plan);
}

static void nothing(void)
{
	CU_ASSERT_EQUAL(parse(NULL, 0), 0);
	CU_ASSERT_FALSE(plan.on);
	CU_ASSERT_EQUAL(parse("", 0), 0);
	CU_ASSERT_FALSE(plan.on);
}

static void everything(void)
{
	CU_ASSERT_EQUAL(parse("seed=7,delay=0.25,reorder=1,late=0,again=0.5,"
			      "corrupt=1e-3,time=20,slow=30,fail=4,break=5,"
			      "kill=6@2",
			      2),
			0);
	CU_ASSERT_TRUE(plan.on);
	CU_ASSERT_EQUAL(plan.seed, 7);
	CU_ASSERT_DOUBLE_EQUAL(plan.delay, 0.25, 0);
	CU_ASSERT_DOUBLE_EQUAL(plan.reorder, 1, 0);
	CU_ASSERT_DOUBLE_EQUAL(plan.late, 0, 0);
	CU_ASSERT_DOUBLE_EQUAL(plan.again, 0.5, 0);
	CU_ASSERT_DOUBLE_EQUAL(plan.corrupt, 1e-3, 0);
	CU_ASSERT_EQUAL(plan.time_us, 20);
	CU_ASSERT_EQUAL(plan.slow_us, 30);
	CU_ASSERT_EQUAL(plan.fail, 4);
	CU_ASSERT_EQUAL(plan.broken, 5);
	CU_ASSERT_EQUAL(plan.kill, 6);
}

static void defaults(void)
{
	CU_ASSERT_EQUAL(parse("delay=0.1", 0), 0);
	CU_ASSERT_EQUAL(plan.seed, 1);
	CU_ASSERT_EQUAL(plan.time_us, FAULT_TIME_US);
	CU_ASSERT_EQUAL(plan.fail, 0);
}

static void of_ranks(void)
{
	static const char text[] = "fail=9,fail=3@1,slow=5@3,slow=6@0,fail=4@2";
	static const uint64_t fail[] = {9, 3, 4, 9};
	static const long slow[] = {6, 0, 0, 5};

	for (int r = 0; r < 4; r++) {
		CU_ASSERT_EQUAL(parse(text, r), 0);
		CU_ASSERT_EQUAL(plan.fail, fail[r]);
		CU_ASSERT_EQUAL(plan.slow_us, slow[r]);
	}
}

/* On every rank, whomever it concerns, the item and what is wrong are named. */
static void mistakes(void)
{
	static const struct {
		const char *text, *item, *words;
	} bad[] = {
		{"delays=0.1", "delays=0.1", "delay, reorder"},
		{"delay", "\"delay\"", "KEY=VALUE"},
		{"seed=1,,late=0.1", "\"\"", "KEY=VALUE"},
		{"seed=1,", "\"\"", "KEY=VALUE"},
		{"delay=1.5", "delay=1.5", "from 0 to 1"},
		{"delay=-1", "delay=-1", "from 0 to 1"},
		{"delay=nan", "delay=nan", "from 0 to 1"},
		{"delay=", "\"delay=\"", "from 0 to 1"},
		{"late=0.1x", "late=0.1x", "from 0 to 1"},
		{"time=0", "time=0", "from 1 to"},
		{"time=2000000", "time=2000000", "from 1 to"},
		{"slow=5us", "slow=5us", "whole number"},
		{"fail=-1", "fail=-1", "whole number"},
		{"fail=99999999999999999999", "fail=", "whole number"},
		{"fail=1@4", "fail=1@4", "no such rank"},
		{"fail=1@", "fail=1@", "no such rank"},
		{"fail=1@x", "fail=1@x", "no such rank"},
		{"kill=5", "kill=5", "kill=K@RANK"},
		{"delay=9@3", "delay=9@3", "from 0 to 1"},
		{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
		 "aaaaaaaa=1",
		 "aaaa", "that long"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CU_ASSERT_EQUAL(parse(bad[i].text, 0), -EINVAL);
		if (!strstr(vbn_error(), "VBN_FAULT") ||
		    !strstr(vbn_error(), bad[i].item) ||
		    !strstr(vbn_error(), bad[i].words)) {
			fprintf(stderr, "%s: %s\n", bad[i].text, vbn_error());
			CU_FAIL("what is said of a mistake");
		}
	}
}

static void chance(void)
{
	int yes = 0;

	for (uint64_t i = 0; i < 10000; i++) {
		uint64_t bits = fault_mix(42, i);

		CU_ASSERT_FALSE(fault_chance(bits, 0));
		CU_ASSERT_TRUE(fault_chance(bits, 1));
		CU_ASSERT_EQUAL(bits, fault_mix(42, i));
		yes += fault_chance(bits, 0.25);
	}
	CU_ASSERT_TRUE(fabs(yes - 2500.0) < 250);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"no faults", nothing}, {"all keys", everything},
		{"defaults", defaults}, {"ranks", of_ranks},
		{"mistakes", mistakes}, {"chance", chance},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{"fault_plan", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
