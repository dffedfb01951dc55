/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The pipeline schedules, exhaustively for 1..16 stages and 1..32
 * micro-batches: lists are complete and legal, the simulator never hangs with
 * the promised buffers, and bubbles and peaks are those of the formulas.
 */
#include "schedule.h"

#include "cunit_run.h"

#include <errno.h>
#include <math.h>

#define MAX_P 16
#define MAX_M 32

typedef void (*check)(enum schedule_kind kind, int p, int m);

static void for_all(check function)
{
	for (int p = 1; p <= MAX_P; p++) {
		for (int m = 1; m <= MAX_M; m++) {
			function(SCHEDULE_GPIPE, p, m);
			function(SCHEDULE_1F1B, p, m);
		}
	}
}

static int simulate(enum schedule_kind kind, int p, int m,
		    const struct schedule_links *links,
		    struct schedule_result *result, int *peaks)
{
	struct stage_cost costs[MAX_P] = {{0}};

	for (int s = 0; s < p; s++)
		costs[s] = (struct stage_cost){1, 2};
	return schedule_simulate(kind, p, m, costs, links, result, peaks);
}

/* Each micro-batch once forward, later once backward, both in order, and
 * never more in flight than there are slots. */
static void check_list(enum schedule_kind kind, int p, int m)
{
	for (int s = 0; s < p; s++) {
		const int slots = schedule_slots(kind, p, m, s);
		int forward = 0, backward = 0, peak = 0;
		bool legal = schedule_length(kind, p, m, s) == 2 * m;

		for (int i = 0; i < schedule_length(kind, p, m, s); i++) {
			const struct action action =
				schedule_action(kind, p, m, s, i);

			if (action.kind == ACTION_FORWARD)
				legal &= action.micro_batch == forward++;
			else
				legal &= action.micro_batch == backward++ &&
					 backward <= forward;
			if (forward - backward > peak)
				peak = forward - backward;
		}
		CU_ASSERT_TRUE(legal);
		CU_ASSERT_EQUAL(forward, m);
		CU_ASSERT_EQUAL(backward, m);
		CU_ASSERT_EQUAL(peak, slots);
	}
}

static void test_lists(void)
{
	for_all(check_list);
}

static void check_simulation(enum schedule_kind kind, int p, int m)
{
	const double ideal = 3.0 * m, makespan = 3.0 * (m + p - 1);
	const struct schedule_links links = {.gradients = 1, .sends = 1};
	struct schedule_result result = {.makespan = 0};
	int peaks[MAX_P];

	CU_ASSERT_EQUAL_FATAL(simulate(kind, p, m, &links, &result, peaks), 0);
	for (int s = 0; s < p; s++) {
		const int bound =
			kind == SCHEDULE_GPIPE || p - s > m ? m : p - s;

		CU_ASSERT_EQUAL(peaks[s], bound);
	}
	CU_ASSERT_DOUBLE_EQUAL(result.makespan, makespan, 1e-9);
	CU_ASSERT_DOUBLE_EQUAL(result.bubble, (p - 1.0) / (m + p - 1), 1e-12);
	CU_ASSERT_DOUBLE_EQUAL(result.bubble_ideal, makespan / ideal - 1,
			       1e-12);
	CU_ASSERT_DOUBLE_EQUAL(result.bubble_ideal, (p - 1.0) / m, 1e-12);
}

static void test_simulation(void)
{
	for_all(check_simulation);
}

/* With transfers that take time and stages that differ, nothing hangs, and
 * more buffers never make it slower. */
static void check_uneven(enum schedule_kind kind, int p, int m)
{
	struct schedule_links links = {
		.gradients = 1,
		.sends = 1,
		.transfer = 0.25,
	};
	struct schedule_result few, many;
	struct stage_cost costs[MAX_P] = {{0}};
	double slowest = 0;

	for (int s = 0; s < p; s++) {
		costs[s].forward = 1 + s * 7 % 5;
		costs[s].backward = 2 + s * 3 % 4;
		slowest = fmax(slowest, costs[s].forward + costs[s].backward);
	}
	CU_ASSERT_EQUAL_FATAL(
		schedule_simulate(kind, p, m, costs, &links, &few, NULL), 0);
	CU_ASSERT_TRUE(few.makespan >= slowest * m);
	links.gradients = links.sends = m;
	CU_ASSERT_EQUAL_FATAL(
		schedule_simulate(kind, p, m, costs, &links, &many, NULL), 0);
	CU_ASSERT_TRUE(many.makespan <= few.makespan + 1e-9);
	CU_ASSERT_TRUE(many.bubble >= 0 && few.bubble < 1);
}

static void test_uneven(void)
{
	for_all(check_uneven);
}

/* The simulator can tell a hang: one receive buffer fewer than promised, on
 * any one stage, is one too few. */
static void check_hang(enum schedule_kind kind, int p, int m)
{
	for (int lacking = 1; lacking < p; lacking++) {
		int buffers[MAX_P] = {0};
		const struct schedule_links links = {
			.activations = buffers,
			.gradients = 1,
			.sends = 1,
		};
		struct schedule_result result;

		for (int s = 0; s < p; s++)
			buffers[s] = schedule_slots(kind, p, m, s);
		if (buffers[lacking] == 1)
			continue;
		buffers[lacking]--;
		CU_ASSERT_EQUAL(simulate(kind, p, m, &links, &result, NULL),
				-EDEADLK);
	}
}

static void test_hang(void)
{
	for_all(check_hang);
}

static void test_arguments(void)
{
	struct schedule_links links = {.gradients = 1, .sends = 1};
	struct schedule_result result;
	enum schedule_kind kind;

	CU_ASSERT_EQUAL(schedule_parse("gpipe", &kind), 0);
	CU_ASSERT_EQUAL(kind, SCHEDULE_GPIPE);
	CU_ASSERT_EQUAL(schedule_parse("1f1b", &kind), 0);
	CU_ASSERT_EQUAL(kind, SCHEDULE_1F1B);
	CU_ASSERT_EQUAL(schedule_parse("", &kind), -EINVAL);
	CU_ASSERT_EQUAL(schedule_parse("1F1B ", &kind), -EINVAL);
	CU_ASSERT_STRING_EQUAL(schedule_name(SCHEDULE_GPIPE), "gpipe");
	CU_ASSERT_STRING_EQUAL(schedule_name(SCHEDULE_1F1B), "1f1b");
	CU_ASSERT_EQUAL(simulate(SCHEDULE_1F1B, 0, 1, &links, &result, NULL),
			-EINVAL);
	CU_ASSERT_EQUAL(simulate(SCHEDULE_1F1B, 1, 0, &links, &result, NULL),
			-EINVAL);
	links.sends = 0;
	CU_ASSERT_EQUAL(simulate(SCHEDULE_1F1B, 1, 1, &links, &result, NULL),
			-EINVAL);
}

static CU_TestInfo tests[] = {
	{"action lists", test_lists},	{"bubble and peaks", test_simulation},
	{"uneven stages", test_uneven}, {"a hang is found", test_hang},
	{"arguments", test_arguments},	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"schedule", NULL, NULL, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	return run_suites(suites);
}
