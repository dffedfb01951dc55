/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans as what they are, functions: every step of every rank in range, puts
 * and waits of each pair matching, dependencies lower than the step, constant
 * memory, numbers that need 64 bits, and the choices by size.
 */
#include "plan.h"

#include <CUnit/Basic.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

/* What has gone over each ordered pair: counts and a running hash. */
struct flow {
	uint64_t count, hash;
};

static struct flow puts_of[MOST][MOST], waits_of[MOST][MOST];

static void add(struct flow *flow, const struct plan_step *step)
{
	flow->count++;
	flow->hash = (flow->hash ^ step->len) * UINT64_C(0x100000001b3);
	flow->hash = (flow->hash ^ step->dst) * UINT64_C(0x100000001b3);
	flow->hash = (flow->hash ^ step->dst_off) * UINT64_C(0x100000001b3);
}

static bool in_range(uint8_t space, uint64_t off, uint64_t len, uint64_t count)
{
	return space == PLAN_LANDING ? off == 0
				     : off <= count && len <= count - off;
}

static void check_step(const struct plan_shape *shape, uint64_t number,
		       const struct plan_step *step)
{
	uint64_t count = shape->count;

	for (int i = 0; i < 2; i++)
		CU_ASSERT_FATAL(step->dep[i] == PLAN_NO_STEP ||
				step->dep[i] < number);
	if (step->kind == PLAN_NONE)
		return;
	if (step->kind == PLAN_OPEN) {
		CU_ASSERT_FATAL(number < 16 && step->peer >= 0 &&
				step->peer < shape->n &&
				step->peer != shape->rank);
		return;
	}
	CU_ASSERT_FATAL(step->len <= shape->chunk || step->kind == PLAN_COPY);
	CU_ASSERT_FATAL(step->len > 0 ||
			shape->algorithm == PLAN_DISSEMINATION);
	CU_ASSERT_FATAL(in_range(step->dst, step->dst_off, step->len, count));
	if (step->kind != PLAN_WAIT)
		CU_ASSERT_FATAL(
			in_range(step->src, step->src_off, step->len, count));
	if (step->kind == PLAN_REDUCE)
		CU_ASSERT_FATAL(
			in_range(step->acc, step->acc_off, step->len, count));
	if (step->kind != PLAN_COPY)
		CU_ASSERT_FATAL(step->peer >= 0 && step->peer < shape->n &&
				step->peer != shape->rank);
}

/* Returns the elements that the rank puts. */
static uint64_t walk(const struct plan_shape *shape)
{
	struct plan plan;
	struct plan_step step;
	uint64_t number = 0, sent = 0;
	int r = shape->rank;

	CU_ASSERT_FATAL(plan_begin(&plan, shape) == 0);
	for (; plan_next(&plan, &step); number++) {
		CU_ASSERT_FATAL(plan.next == number + 1);
		check_step(shape, number, &step);
		if (step.kind == PLAN_PUT) {
			add(&puts_of[r][step.peer], &step);
			sent += step.len;
		} else if (step.kind == PLAN_WAIT) {
			add(&waits_of[step.peer][r], &step);
		}
	}
	CU_ASSERT_FATAL(!plan_next(&plan, &step));
	return sent;
}

static uint64_t expected(const struct plan_shape *shape)
{
	uint64_t n = (uint64_t)shape->n, count = shape->count;

	switch (shape->algorithm) {
	case PLAN_RING_ALLREDUCE:
		return 2 * (n - 1) * count;
	case PLAN_TREE_ALLREDUCE:
		return 2 * (n - 1) * count;
	case PLAN_TREE_BROADCAST:
		return (n - 1) * count;
	default:
		return 0;
	}
}

static void check_all(enum plan_algorithm algorithm, int n, int root,
		      uint64_t count, uint64_t chunk)
{
	struct plan_shape shape = {algorithm, 0, n, root, count, chunk};
	uint64_t total = 0;

	memset(puts_of, 0, sizeof(puts_of));
	memset(waits_of, 0, sizeof(waits_of));
	for (shape.rank = 0; shape.rank < n; shape.rank++) {
		uint64_t sent = walk(&shape);

		total += sent;
		if (algorithm == PLAN_RING_ALLREDUCE)
			CU_ASSERT_FATAL(sent <= 2 * count &&
					sent + 2 * (count / (uint64_t)n + 1) >=
						2 * count);
	}
	CU_ASSERT_FATAL(total == expected(&shape));
	CU_ASSERT_FATAL(memcmp(puts_of, waits_of, sizeof(puts_of)) == 0);
}

static void every_shape(void)
{
	for (int n = 1; n <= MOST; n++) {
		uint64_t m = (uint64_t)n;
		uint64_t counts[] = {0, 1, 2, m - 1, m, m + 1, 1009, 65537};

		for (int a = PLAN_RING_ALLREDUCE; a < PLAN_ALGORITHMS; a++)
			for (size_t c = 0; c < sizeof(counts) / sizeof(*counts);
			     c++) {
				uint64_t chunk = counts[c] > 1009 ? 777 : 5;

				check_all((enum plan_algorithm)a, n, 0,
					  counts[c], chunk);
				check_all((enum plan_algorithm)a, n, n / 3,
					  counts[c], UINT64_C(1) << 40);
			}
	}
	check_all(PLAN_LOCAL, 1, 0, 1000, 1);
}

static void every_root(void)
{
	for (int n = 1; n <= 20; n++)
		for (int root = 0; root < n; root++)
			check_all(PLAN_TREE_BROADCAST, n, root, 101, 7);
}

/* B3: more than 2^31 elements, walked without memory. */
static void above_32_bits(void)
{
	const uint64_t count = (UINT64_C(1) << 31) + 5;

	for (int a = PLAN_RING_ALLREDUCE; a < PLAN_DISSEMINATION; a++) {
		check_all((enum plan_algorithm)a, 3, 2, count, 65536);
		check_all((enum plan_algorithm)a, 4, 0, 1 + (count << 9),
			  UINT64_C(1) << 32);
	}
}

/* A ring of 16,384: steps come without memory that grows. */
static void many_ranks(void)
{
	struct plan_shape shape = {
		PLAN_RING_ALLREDUCE, 16383, 16384, 0, 100000, 3};
	struct plan plan;
	struct plan_step step;
	uint64_t number = 0, puts = 0;

	CU_ASSERT_FATAL(plan_begin(&plan, &shape) == 0);
	for (; plan_next(&plan, &step); number++) {
		check_step(&shape, number, &step);
		if (step.kind == PLAN_PUT)
			puts += step.len;
	}
	CU_ASSERT(puts > 2 * 100000 - 15 && puts < 2 * 100000);
	CU_ASSERT(number == 1 + UINT64_C(5) * 16383 * 3);
	CU_ASSERT(sizeof(struct plan) < 256);
	shape.algorithm = PLAN_TREE_ALLREDUCE;
	shape.rank = 0;
	CU_ASSERT_FATAL(plan_begin(&plan, &shape) == 0);
	for (number = 0; plan_next(&plan, &step); number++)
		check_step(&shape, number, &step);
	CU_ASSERT(number == 14 + UINT64_C(3) * 14 * 33334);
}

static void refusals(void)
{
	static const struct plan_shape bad[] = {
		{PLAN_ALGORITHMS, 0, 1, 0, 1, 1},
		{(enum plan_algorithm) - 1, 0, 1, 0, 1, 1},
		{PLAN_RING_ALLREDUCE, 0, 0, 0, 1, 1},
		{PLAN_RING_ALLREDUCE, 2, 2, 0, 1, 1},
		{PLAN_RING_ALLREDUCE, -1, 2, 0, 1, 1},
		{PLAN_TREE_BROADCAST, 0, 2, 2, 1, 1},
		{PLAN_TREE_BROADCAST, 0, 2, -1, 1, 1},
		{PLAN_RING_ALLREDUCE, 0, 2, 0, 1, 0},
		{PLAN_LOCAL, 0, 2, 0, 1, 1},
	};
	struct plan plan;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		CU_ASSERT_EQUAL(plan_begin(&plan, &bad[i]), -EINVAL);
	CU_ASSERT_STRING_EQUAL(plan_name(PLAN_RING_ALLREDUCE), "ring");
	CU_ASSERT_STRING_EQUAL(plan_name(PLAN_ALGORITHMS), "unknown");
}

static void choices(void)
{
	CU_ASSERT_EQUAL(plan_choose_allreduce(1, 8), PLAN_LOCAL);
	CU_ASSERT_EQUAL(plan_choose_allreduce(64, 8), PLAN_TREE_ALLREDUCE);
	CU_ASSERT_EQUAL(plan_choose_allreduce(4, 64 << 20),
			PLAN_RING_ALLREDUCE);
	for (int n = 2; n <= 64; n++)
		for (uint64_t bytes = 1; bytes < UINT64_C(1) << 34;
		     bytes *= 3) {
			enum plan_algorithm a = plan_choose_allreduce(n, bytes);
			uint64_t chunk =
				plan_choose_chunk(a, n, bytes, 256 << 10);

			CU_ASSERT(chunk > 0 && chunk <= 256 << 10);
		}
	CU_ASSERT_EQUAL(plan_choose_chunk(PLAN_RING_ALLREDUCE, 2, 8, 64), 64);
	CU_ASSERT_EQUAL(plan_log2(1), 0);
	CU_ASSERT_EQUAL(plan_log2(2), 1);
	CU_ASSERT_EQUAL(plan_log2(5), 3);
	CU_ASSERT_EQUAL(plan_log2(1024), 10);
	CU_ASSERT_EQUAL(plan_log2(1025), 11);
}

int main(void)
{
	CU_pSuite suite;
	unsigned failed, ran;

	if (CU_initialize_registry() != CUE_SUCCESS)
		return 1;
	suite = CU_add_suite("plan", NULL, NULL);
	if (!suite || !CU_ADD_TEST(suite, every_shape) ||
	    !CU_ADD_TEST(suite, every_root) ||
	    !CU_ADD_TEST(suite, above_32_bits) ||
	    !CU_ADD_TEST(suite, many_ranks) || !CU_ADD_TEST(suite, refusals) ||
	    !CU_ADD_TEST(suite, choices))
		return 1;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	failed = CU_get_number_of_tests_failed();
	ran = CU_get_number_of_tests_run();
	CU_cleanup_registry();
	return failed > 0 || ran != 6;
}
