/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The vectorised kernels against the C library's functions in double, at
 * lengths with every kind of tail; and the random numbers' distribution.
 */
#include "kernels.h"

#include "model.h"
#include "random.h"
#include "simd.h"
#include "cunit_run.h"

#include <math.h>
#include <string.h>

#define MAX_COUNT 67

#ifdef VBN_REAL_DOUBLE
#define TOLERANCE 1e-14
#else
#define TOLERANCE 3e-7
#endif

static void fill(real *values, int count, double scale, const char *name)
{
	const uint64_t key = random_key(1, name);

	for (int i = 0; i < count; i++)
		values[i] = (real)(scale * random_normal(key, (uint64_t)i));
}

/* The largest relative error of simd_exp() over [low, high]. */
static double exp_error(double low, double high)
{
	double worst = 0;

	for (int i = 0; i <= 100000; i++) {
		const real x = (real)(low + (high - low) * i / 100000);
		const vreal y = simd_exp(simd_set(x));
		const double want = exp((double)x);

		worst = fmax(worst, fabs((double)y[0] - want) / want);
	}
	return worst;
}

static void test_exp(void)
{
	CU_ASSERT_TRUE(exp_error(-1, 1) < TOLERANCE);
	CU_ASSERT_TRUE(exp_error(-87, 88) < TOLERANCE);
	CU_ASSERT_EQUAL(simd_exp(simd_set(0))[0], 1);
	CU_ASSERT_EQUAL(simd_exp(simd_set((real)-1e30))[0], 0);
	CU_ASSERT_TRUE(simd_exp(simd_set((real)-104))[0] < (real)1e-37);
	CU_ASSERT_TRUE(simd_exp(simd_set(500))[0] > (real)1e38);
}

/* A lane's value does not depend on which lane it is, nor on the others. */
static void test_lanes(void)
{
	vreal x = simd_set(0), y;

	for (int i = 0; i < SIMD_LANES; i++)
		x[i] = (real)(i * 0.37 - 1);
	y = simd_exp(x);
	for (int i = 0; i < SIMD_LANES; i++)
		CU_ASSERT_EQUAL(simd_exp(simd_set(x[i]))[SIMD_LANES - 1 - i],
				y[i]);
	CU_ASSERT_EQUAL(simd_max_lanes(x), x[SIMD_LANES - 1]);
	CU_ASSERT_DOUBLE_EQUAL(
		simd_sum_lanes(x),
		0.37 * SIMD_LANES * (SIMD_LANES - 1) / 2 - SIMD_LANES, 1e-5);
}

static double gelu(double x)
{
	return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
	const double a = sqrt(2 / M_PI);
	const double t = tanh(a * (x + 0.044715 * x * x * x));

	return (1 + t) / 2 +
	       x / 2 * (1 - t * t) * a * (1 + 3 * 0.044715 * x * x);
}

static void test_gelu(void)
{
	real x[MAX_COUNT + 1], slope[MAX_COUNT + 1], y[MAX_COUNT + 1];

	for (int count = 0; count <= MAX_COUNT; count++) {
		fill(x, count, 3, "gelu");
		memcpy(slope, x, sizeof(x));
		slope[count] = y[count] = 42;
		gelu_forward((size_t)count, slope, y);
		for (int i = 0; i < count; i++) {
			const double at = (double)x[i];

			CU_ASSERT_DOUBLE_EQUAL(y[i], gelu(at), 10 * TOLERANCE);
			CU_ASSERT_DOUBLE_EQUAL(slope[i], gelu_slope(at),
					       10 * TOLERANCE);
		}
		CU_ASSERT_TRUE(slope[count] == 42 && y[count] == 42);
	}
	/* Far out it is 0 or x, not a quotient of infinities. */
	x[0] = (real)-50;
	x[1] = (real)50;
	gelu_forward(2, x, y);
	CU_ASSERT_DOUBLE_EQUAL(y[0], 0, 1e-30);
	CU_ASSERT_EQUAL(y[1], 50);
	CU_ASSERT_DOUBLE_EQUAL(x[0], 0, 1e-30);
	CU_ASSERT_EQUAL(x[1], 1);
}

static void test_layernorm(void)
{
	real x[MAX_COUNT], gain[MAX_COUNT], bias[MAX_COUNT], y[MAX_COUNT];
	real mean, inverse;

	fill(x, MAX_COUNT, 2, "x");
	fill(gain, MAX_COUNT, 1, "gain");
	fill(bias, MAX_COUNT, 1, "bias");
	for (int dim = 1; dim <= MAX_COUNT; dim++) {
		double m = 0, v = 0;

		layernorm_forward(1, dim, x, gain, bias, y, &mean, &inverse);
		for (int i = 0; i < dim; i++)
			m += (double)x[i] / dim;
		for (int i = 0; i < dim; i++)
			v += ((double)x[i] - m) * ((double)x[i] - m) / dim;
		for (int i = 0; i < dim; i++)
			CU_ASSERT_DOUBLE_EQUAL(y[i],
					       ((double)x[i] - m) /
							       sqrt(v + 1e-5) *
							       (double)gain[i] +
						       (double)bias[i],
					       30 * TOLERANCE);
	}
}

static void test_softmax_loss(void)
{
	real logits[2 * MODEL_VOCABULARY], softmax[2 * MODEL_VOCABULARY];
	const uint8_t targets[2] = {0, 255};
	double want = 0, sums[2] = {0, 0};

	fill(logits, 2 * MODEL_VOCABULARY, 5, "logits");
	memcpy(softmax, logits, sizeof(logits));
	for (int i = 0; i < 2 * MODEL_VOCABULARY; i++)
		sums[i / MODEL_VOCABULARY] += exp((double)logits[i]);
	for (int i = 0; i < 2; i++)
		want += log(sums[i]) -
			(double)logits[i * MODEL_VOCABULARY + targets[i]];
	CU_ASSERT_DOUBLE_EQUAL(softmax_loss(2, softmax, targets), want,
			       10 * TOLERANCE * want);
	softmax_loss_backward(2, softmax, targets, 2);
	for (int i = 0; i < 2 * MODEL_VOCABULARY; i++) {
		const int row = i / MODEL_VOCABULARY;
		const double p = exp((double)logits[i]) / sums[row];
		const int hit = i % MODEL_VOCABULARY == targets[row];

		CU_ASSERT_DOUBLE_EQUAL(softmax[i], 2 * (p - hit),
				       10 * TOLERANCE);
	}
	/* Logits that would overflow an exponential. */
	for (int i = 0; i < MODEL_VOCABULARY; i++)
		logits[i] = i == 7 ? 3000 : -3000;
	CU_ASSERT_DOUBLE_EQUAL(softmax_loss(1, logits, targets), 6000, 1e-2);
	CU_ASSERT_EQUAL(logits[7], 1);
}

static void test_random(void)
{
	const uint64_t key = random_key(4, "stream");
	double sum = 0, squares = 0, fourth = 0, unit = 0;
	int counts[10] = {0};
	const int n = 100000;

	for (int i = 0; i < n; i++) {
		const double x = random_normal(key, (uint64_t)i);

		sum += x;
		squares += x * x;
		fourth += x * x * x * x;
		unit += random_unit(key, (uint64_t)i);
		counts[random_below(key, (uint64_t)i, 10)]++;
	}
	CU_ASSERT_DOUBLE_EQUAL(sum / n, 0, 0.015);
	CU_ASSERT_DOUBLE_EQUAL(squares / n, 1, 0.02);
	CU_ASSERT_DOUBLE_EQUAL(fourth / n, 3, 0.15);
	CU_ASSERT_DOUBLE_EQUAL(unit / n, 0.5, 0.005);
	for (int i = 0; i < 10; i++)
		CU_ASSERT_DOUBLE_EQUAL(counts[i], n / 10, 500);
	CU_ASSERT_NOT_EQUAL(random_key(4, "stream"), random_key(5, "stream"));
	CU_ASSERT_NOT_EQUAL(random_key(4, "stream"), random_key(4, "strean"));
	CU_ASSERT_NOT_EQUAL(random_subkey(key, 0), random_subkey(key, 1));
	/* splitmix64's published outputs from state 1234567. */
	CU_ASSERT_EQUAL(random_bits(1234567, 0), 6457827717110365317u);
	CU_ASSERT_EQUAL(random_bits(1234567, 1), 3203168211198807973u);
}

static CU_TestInfo tests[] = {
	{"exp", test_exp},
	{"lanes", test_lanes},
	{"gelu", test_gelu},
	{"layernorm", test_layernorm},
	{"softmax loss", test_softmax_loss},
	{"random", test_random},
	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"kernels", NULL, NULL, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	real_init(1);
	return run_suites(suites);
}
