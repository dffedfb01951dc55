/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The optimizer against its formulas written out in double, element by
 * element; its learning rate; and that ranges may be updated apart.
 */
#include "optimizer.h"

#include "random.h"
#include "cunit_run.h"

#include <math.h>
#include <string.h>

/* A decayed matrix, then a vector; odd sizes leave a tail in each. */
#define MATRIX 77
#define VECTOR 13
#define COUNT  (MATRIX + VECTOR)
#define STEPS  12

#ifdef VBN_REAL_DOUBLE
#define TOLERANCE 1e-13
#else
#define TOLERANCE 1e-6
#endif

static const struct tensor tensors[] = {
	{.name = "matrix",
	 .dims = 2,
	 .shape = {7, 11},
	 .count = MATRIX,
	 .offset = 0,
	 .decay = true},
	{.name = "vector",
	 .dims = 1,
	 .shape = {VECTOR, 1},
	 .count = VECTOR,
	 .offset = MATRIX},
};

static void fill(real *values, uint64_t key)
{
	for (uint64_t i = 0; i < COUNT; i++)
		values[i] = (real)random_normal(key, i);
}

static struct optimizer *create(const struct optimizer_config *config)
{
	struct optimizer *optimizer = NULL;

	CU_ASSERT_EQUAL_FATAL(optimizer_create(config, tensors, 2, &optimizer),
			      0);
	return optimizer;
}

static void test_lr(void)
{
	struct optimizer_config config =
		optimizer_defaults(OPTIMIZER_ADAMW, 1e-2, 1000);

	CU_ASSERT_EQUAL(config.warmup_steps, 100);
	CU_ASSERT_DOUBLE_EQUAL(optimizer_lr(&config, 1), 1e-4, 1e-12);
	CU_ASSERT_DOUBLE_EQUAL(optimizer_lr(&config, 50), 5e-3, 1e-12);
	CU_ASSERT_DOUBLE_EQUAL(optimizer_lr(&config, 100), 1e-2, 1e-12);
	CU_ASSERT_DOUBLE_EQUAL(optimizer_lr(&config, 550), 5.5e-3, 1e-12);
	CU_ASSERT_DOUBLE_EQUAL(optimizer_lr(&config, 1000), 1e-3, 1e-12);
	CU_ASSERT_DOUBLE_EQUAL(optimizer_lr(&config, 5000), 1e-3, 1e-12);
	for (uint64_t step = 101; step <= 1000; step++)
		CU_ASSERT_TRUE(optimizer_lr(&config, step) <
			       optimizer_lr(&config, step - 1));
	config = optimizer_defaults(OPTIMIZER_ADAMW, 1e-2, 1);
	CU_ASSERT_TRUE(optimizer_lr(&config, 1) > 0);
	config = optimizer_defaults(OPTIMIZER_SGD, 0.5, 10);
	CU_ASSERT_EQUAL(optimizer_lr(&config, 1), 0.5);
	CU_ASSERT_EQUAL(optimizer_lr(&config, 99), 0.5);
}

static void test_sgd(void)
{
	const struct optimizer_config config =
		optimizer_defaults(OPTIMIZER_SGD, 0.25, 10);
	struct optimizer *optimizer = create(&config);
	real params[COUNT], grads[COUNT], before[COUNT];
	size_t state;

	fill(params, 1);
	fill(grads, 2);
	memcpy(before, params, sizeof(params));
	optimizer_update(optimizer, 1, 0, COUNT, params, grads);
	for (int i = 0; i < COUNT; i++)
		CU_ASSERT_DOUBLE_EQUAL(params[i], before[i] - grads[i] / 4,
				       TOLERANCE);
	optimizer_state(optimizer, &state);
	CU_ASSERT_EQUAL(state, 0);
	optimizer_destroy(optimizer);
}

/* AdamW by the paper's algorithm 2, in double. */
static void test_adamw(void)
{
	const struct optimizer_config config =
		optimizer_defaults(OPTIMIZER_ADAMW, 1e-2, STEPS);
	struct optimizer *optimizer = create(&config);
	double want[COUNT], m[COUNT] = {0}, v[COUNT] = {0};
	real params[COUNT], grads[COUNT];

	fill(params, 1);
	for (int i = 0; i < COUNT; i++)
		want[i] = (double)params[i];
	for (uint64_t step = 1; step <= STEPS; step++) {
		const double lr = optimizer_lr(&config, step);
		const double unbias1 = 1 - pow(0.9, (double)step);
		const double unbias2 = 1 - pow(0.95, (double)step);

		fill(grads, 100 + step);
		grads[3] = 0;
		optimizer_update(optimizer, step, 0, COUNT, params, grads);
		for (int i = 0; i < COUNT; i++) {
			const double g = (double)grads[i];
			const double decay = i < MATRIX ? 0.1 : 0;

			m[i] = 0.9 * m[i] + 0.1 * g;
			v[i] = 0.95 * v[i] + 0.05 * g * g;
			want[i] -= lr * (m[i] / unbias1 /
						 (sqrt(v[i] / unbias2) + 1e-8) +
					 decay * want[i]);
		}
	}
	for (int i = 0; i < COUNT; i++)
		CU_ASSERT_DOUBLE_EQUAL(params[i], want[i], STEPS * TOLERANCE);
	optimizer_destroy(optimizer);
}

/* Updated whole, or in ranges that cut tensors and vectors anywhere: the same
 * bits. */
static void test_ranges(void)
{
	const struct optimizer_config config =
		optimizer_defaults(OPTIMIZER_ADAMW, 1e-2, STEPS);
	struct optimizer *whole = create(&config), *parts = create(&config);
	real a[COUNT], b[COUNT], grads[COUNT];
	size_t count_a, count_b;

	fill(a, 1);
	fill(b, 1);
	for (uint64_t step = 1; step <= STEPS; step++) {
		fill(grads, 100 + step);
		optimizer_update(whole, step, 0, COUNT, a, grads);
		optimizer_update(parts, step, 50, 76, b, grads);
		optimizer_update(parts, step, 76, COUNT, b, grads);
		optimizer_update(parts, step, 3, 50, b, grads);
		optimizer_update(parts, step, 0, 3, b, grads);
		optimizer_update(parts, step, 9, 9, b, grads);
	}
	CU_ASSERT_EQUAL(memcmp(a, b, sizeof(a)), 0);
	optimizer_state(whole, &count_a);
	CU_ASSERT_EQUAL(count_a, 2 * COUNT);
	CU_ASSERT_EQUAL(memcmp(optimizer_state(whole, &count_a),
			       optimizer_state(parts, &count_b),
			       count_a * sizeof(real)),
			0);
	optimizer_destroy(whole);
	optimizer_destroy(parts);
}

static CU_TestInfo tests[] = {
	{"learning rate", test_lr}, {"sgd", test_sgd}, {"adamw", test_adamw},
	{"ranges", test_ranges},    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"optimizer", NULL, NULL, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	return run_suites(suites);
}
