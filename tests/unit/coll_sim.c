/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every plan in the simulator, with the real executor and kernels: n from 1
 * to 64, odd counts, small windows, one or two landing slots, direct puts or
 * all through landing, in place or not, random orders. The sum is exact
 * (small integers), the same on all ranks, and no schedule stops.
 */
#include "sim.h"

#include <CUnit/Basic.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64, COUNT_MOST = 65537 };

static float *in[MOST], *out[MOST];
static float *pool;

static int open_pool(void)
{
	pool = calloc((size_t)2 * MOST * COUNT_MOST, sizeof(*pool));
	for (int r = 0; pool && r < MOST; r++) {
		in[r] = pool + (size_t)2 * (size_t)r * COUNT_MOST;
		out[r] = in[r] + COUNT_MOST;
	}
	return pool ? 0 : 1;
}

static int close_pool(void)
{
	free(pool);
	return 0;
}

static float value(int rank, uint64_t i)
{
	return (float)((i * 31 + (uint64_t)rank * 17) % 251);
}

static void fill(const struct plan_shape *shape)
{
	for (int r = 0; r < shape->n; r++)
		for (uint64_t i = 0; i < shape->count; i++) {
			in[r][i] = value(r, i);
			out[r][i] = r == shape->root ? value(r, i) : -1;
		}
}

static float right(const struct plan_shape *shape, uint64_t i)
{
	float sum = 0;

	if (shape->algorithm == PLAN_TREE_BROADCAST)
		return value(shape->root, i);
	for (int r = 0; r < shape->n; r++)
		sum += value(r, i);
	return sum;
}

static void run(struct plan_shape shape, unsigned window, unsigned slots,
		bool direct, bool in_place, uint64_t seed)
{
	const void *from[MOST];
	void *to[MOST];
	struct sim_options opts = {
		.shape = shape,
		.type = VBN_FLOAT32,
		.reduction = VBN_SUM,
		.window = window,
		.slots = slots,
		.direct = direct,
		.seed = seed,
		.alpha = 1e-6,
		.beta = 1e-10,
		.gamma = 1e-10,
		.in = from,
		.out = to,
	};
	struct sim_result result;
	int err;

	fill(&shape);
	for (int r = 0; r < shape.n; r++) {
		from[r] = in[r];
		to[r] = in_place && shape.algorithm != PLAN_TREE_BROADCAST
				? in[r]
				: out[r];
	}
	err = sim_run(&opts, &result);
	if (err)
		fprintf(stderr,
			"%s n %d count %llu chunk %llu window %u slots %u direct %d seed %llu: %s\n",
			plan_name(shape.algorithm), shape.n,
			(unsigned long long)shape.count,
			(unsigned long long)shape.chunk, window, slots, direct,
			(unsigned long long)seed, result.why);
	CU_ASSERT_FATAL(err == 0);
	if (shape.algorithm == PLAN_DISSEMINATION) {
		CU_ASSERT_FATAL(result.first_end >= result.last_start);
		return;
	}
	for (uint64_t i = 0; i < shape.count; i++)
		CU_ASSERT_FATAL(((float *)to[0])[i] == right(&shape, i));
	for (int r = 1; r < shape.n; r++)
		CU_ASSERT_FATAL(
			memcmp(to[r], to[0], shape.count * sizeof(float)) == 0);
}

static void every_size(void)
{
	static const unsigned windows[] = {1, 2, 3, 8, 64};
	unsigned turn = 0;

	for (int n = 1; n <= MOST; n++) {
		uint64_t m = (uint64_t)n;
		uint64_t counts[] = {0, 1, 2, m - 1, m, m + 1, 1009};

		for (int a = PLAN_RING_ALLREDUCE; a < PLAN_ALGORITHMS; a++)
			for (size_t c = 0; c < sizeof(counts) / sizeof(*counts);
			     c++)
				for (unsigned w = 0; w < 5; w++, turn++)
					run(
						(struct plan_shape){
							(enum plan_algorithm)a,
							0, n,
							(int)(turn %
							      (unsigned)n),
							counts[c],
							turn % 3 ? 7 : 1009},
						windows[w], 1 + turn % 2,
						turn & 1, turn & 2,
						turn % 5 ? turn : 0);
	}
}

static void large(void)
{
	static const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 33, 64};

	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
		for (int a = PLAN_RING_ALLREDUCE; a < PLAN_DISSEMINATION; a++)
			for (uint64_t seed = 0; seed < 3; seed++)
				run((struct plan_shape){(enum plan_algorithm)a,
							0, sizes[s], 0,
							COUNT_MOST, 1000},
				    64, 4, seed != 1, seed == 2, seed);
	run((struct plan_shape){PLAN_LOCAL, 0, 1, 0, 1009, 10}, 64, 4, true,
	    false, 0);
}

/* The tightest resources under many random schedules. */
static void storms(void)
{
	for (uint64_t seed = 1; seed < 400; seed++) {
		int n = 2 + (int)(seed % 13);

		for (int a = PLAN_RING_ALLREDUCE; a < PLAN_ALGORITHMS; a++)
			run((struct plan_shape){(enum plan_algorithm)a, 0, n,
						(int)(seed % (unsigned)n),
						37 + seed % 11, 2},
			    1 + (unsigned)(seed % 8), 1 + (unsigned)(seed % 2),
			    seed & 4, seed & 8, seed);
	}
}

static struct sim_result price(enum plan_algorithm algorithm, int n,
			       uint64_t count, uint64_t chunk, double alpha,
			       double beta)
{
	struct sim_options opts = {
		.shape = {algorithm, 0, n, 0, count, chunk},
		.type = VBN_FLOAT32,
		.reduction = VBN_SUM,
		.window = 64,
		.slots = 64,
		.direct = true,
		.alpha = alpha,
		.beta = beta,
	};
	struct sim_result result;

	CU_ASSERT_FATAL(sim_run(&opts, &result) == 0);
	return result;
}

/* Rounds, bytes and fan-in are what the literature says. */
static void prices(void)
{
	for (int n = 2; n <= MOST; n++) {
		uint64_t m = (uint64_t)n;
		unsigned rounds = plan_log2(m);
		struct sim_result r;

		r = price(PLAN_RING_ALLREDUCE, n, m * 100, 1000, 1, 0);
		CU_ASSERT(r.time > 2 * (n - 1) - 1e-6 &&
			  r.time < 2 * (n - 1) + 1e-6);
		CU_ASSERT_EQUAL(r.max_sent, 2 * (m - 1) * 100);
		CU_ASSERT_EQUAL(r.max_received, 2 * (m - 1) * 100);
		CU_ASSERT_EQUAL(r.peak_fan_in, 1);
		r = price(PLAN_TREE_BROADCAST, n, 10, 1000, 1, 0);
		CU_ASSERT(r.time < rounds + 1.5);
		CU_ASSERT_EQUAL(r.max_received, 10);
		r = price(PLAN_TREE_ALLREDUCE, n, 10, 1000, 1, 0);
		CU_ASSERT(r.time < 2 * rounds + 1.5);
		CU_ASSERT_EQUAL(r.max_sent, rounds * 10);
		r = price(PLAN_DISSEMINATION, n, 0, 1, 1, 0);
		CU_ASSERT(r.time > rounds - 1e-6 && r.time < rounds + 1e-6);
	}
}

/* Bandwidth: pipelining brings the ring to its bound, and the tree near. */
static void pipelining(void)
{
	const uint64_t count = 1 << 22;
	double bytes = (double)count * 4;
	struct sim_result r;

	r = price(PLAN_RING_ALLREDUCE, 8, count, 1 << 14, 1e-6, 1e-10);
	CU_ASSERT(r.time < 1.1 * 2 * 7 / 8 * bytes * 1e-10);
	r = price(PLAN_TREE_BROADCAST, 2, count, 1 << 14, 1e-6, 1e-10);
	CU_ASSERT(r.time < 1.1 * bytes * 1e-10);
}

/* B3 in the simulator, dry: offsets, waits and puts beyond 32 bits agree. */
static void above_32_bits(void)
{
	const uint64_t count = (UINT64_C(1) << 31) + 5;
	struct sim_result r;

	for (int n = 1; n <= 5; n++)
		for (int a = PLAN_RING_ALLREDUCE; a < PLAN_DISSEMINATION; a++)
			r = price((enum plan_algorithm)a, n, count, 1 << 18, 0,
				  1e-10);
	CU_ASSERT_EQUAL(r.max_received, count);
}

static void refusals(void)
{
	struct sim_options opts = {
		.shape = {PLAN_RING_ALLREDUCE, 0, 2, 0, 1, 1},
		.type = VBN_FLOAT32,
		.window = 64,
		.slots = 1,
	};
	struct sim_result result;

	CU_ASSERT_EQUAL(sim_run(&opts, &result), 0);
	opts.window = 0;
	CU_ASSERT_EQUAL(sim_run(&opts, &result), -EINVAL);
	opts.window = 65;
	CU_ASSERT_EQUAL(sim_run(&opts, &result), -EINVAL);
	opts.window = 64;
	opts.slots = 0;
	CU_ASSERT_EQUAL(sim_run(&opts, &result), -EINVAL);
	opts.slots = 1;
	opts.type = VBN_INT8;
	CU_ASSERT_EQUAL(sim_run(&opts, &result), -EINVAL);
}

int main(void)
{
	CU_pSuite suite;
	unsigned failed, ran;

	if (CU_initialize_registry() != CUE_SUCCESS)
		return 1;
	suite = CU_add_suite("sim", open_pool, close_pool);
	if (!suite || !CU_ADD_TEST(suite, every_size) ||
	    !CU_ADD_TEST(suite, large) || !CU_ADD_TEST(suite, storms) ||
	    !CU_ADD_TEST(suite, prices) || !CU_ADD_TEST(suite, pipelining) ||
	    !CU_ADD_TEST(suite, above_32_bits) || !CU_ADD_TEST(suite, refusals))
		return 1;
	CU_basic_set_mode(CU_BRM_VERBOSE);
	CU_basic_run_tests();
	failed = CU_get_number_of_tests_failed() +
		 CU_get_number_of_suites_failed();
	ran = CU_get_number_of_tests_run();
	CU_cleanup_registry();
	return failed > 0 || ran != 7;
}
