/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans as what they are, functions: for every algorithm of every operation,
 * every step of every rank in range, puts and waits of each pair matching in
 * length, place and width, as many landings as are taken, dependencies lower
 * than the step, opens before anything that another may wait for, constant
 * memory and numbers that need 64 bits.
 */
#include "coll_case.h"

#include "cunit_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 64 };

/* What has gone over each ordered pair: counts and a running hash. */
struct flow {
	uint64_t count, hash;
};

static struct flow puts_of[MOST][MOST], waits_of[MOST][MOST];
static int64_t landings_of[MOST][MOST]; /* [of][at] that nothing has taken */
static bool opened_by[MOST][MOST];

static void add(struct flow *flow, const struct plan_step *step, bool wide)
{
	const uint64_t values[] = {step->len, step->dst, step->dst_off, wide};

	flow->count++;
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++)
		flow->hash = (flow->hash ^ values[i]) * UINT64_C(0x100000001b3);
}

static bool in_space(const struct plan_shape *shape, uint8_t space,
		     uint64_t off, uint64_t len)
{
	uint64_t room = space == PLAN_INPUT	? plan_input(shape)
			: space == PLAN_OUTPUT	? plan_output(shape)
			: space == PLAN_SCRATCH ? plan_scratch(shape)
						: len;

	return space == PLAN_LANDING ? off == 0
				     : off <= room && len <= room - off;
}

static void check_places(const struct plan_shape *shape,
			 const struct plan_step *step)
{
	bool mapped =
		step->kind == PLAN_COPY_PEER ||
		(step->kind == PLAN_REDUCE_ALL && step->src != PLAN_LANDING);

	CU_ASSERT_FATAL(step->len > 0 || step->kind == PLAN_PUT ||
			step->kind == PLAN_WAIT);
	if (step->kind == PLAN_PUT || step->kind == PLAN_WAIT)
		CU_ASSERT_FATAL(step->len <= shape->chunk);
	if (step->kind != PLAN_PUT)
		CU_ASSERT_FATAL(
			in_space(shape, step->dst, step->dst_off, step->len));
	if (step->kind != PLAN_WAIT && !mapped)
		CU_ASSERT_FATAL(
			in_space(shape, step->src, step->src_off, step->len));
	if (step->kind == PLAN_REDUCE || step->kind == PLAN_REDUCE_ALL)
		CU_ASSERT_FATAL(
			in_space(shape, step->acc, step->acc_off, step->len));
}

static void check_step(const struct plan_shape *shape, uint64_t number,
		       const struct plan_step *step)
{
	bool alone = step->kind == PLAN_COPY || step->kind == PLAN_REDUCE_ALL;

	for (int i = 0; i < 2; i++)
		CU_ASSERT_FATAL(step->dep[i] == PLAN_NO_STEP ||
				step->dep[i] < number);
	CU_ASSERT_FATAL(step->after <= number);
	if (step->kind == PLAN_NONE)
		return;
	CU_ASSERT_FATAL(alone || (step->peer >= 0 && step->peer < shape->n &&
				  step->peer != shape->rank));
	if (step->kind != PLAN_OPEN)
		check_places(shape, step);
}

static void take(const struct plan_shape *shape, const struct plan_step *step)
{
	int r = shape->rank;

	if (step->kind == PLAN_REDUCE_ALL && step->src == PLAN_LANDING) {
		for (int i = 0; i < step->n; i++) {
			int of = step->members ? step->members[i] : i;

			if (of != r)
				CU_ASSERT_FATAL(--landings_of[of][r] >= 0);
		}
	} else if (step->kind == PLAN_REDUCE ||
		   (step->kind == PLAN_COPY && step->src == PLAN_LANDING)) {
		CU_ASSERT_FATAL(--landings_of[step->peer][r] >= 0);
	}
}

/* Note what goes between ranks. Returns the elements that it puts. */
static uint64_t note(const struct plan_shape *shape,
		     const struct plan_step *step)
{
	bool wide = step->kind == PLAN_PUT ? step->src == PLAN_SCRATCH
					   : step->flags & PLAN_WIDE;
	int r = shape->rank;

	wide = wide && shape->wide && step->dst == PLAN_LANDING &&
	       step->len > 0;
	switch (step->kind) {
	case PLAN_OPEN:
		opened_by[step->peer][r] = true;
		return 0;
	case PLAN_PUT:
		add(&puts_of[r][step->peer], step, wide);
		return step->len;
	case PLAN_WAIT:
		CU_ASSERT_FATAL(opened_by[step->peer][r]);
		add(&waits_of[step->peer][r], step, wide);
		landings_of[step->peer][r] +=
			step->dst == PLAN_LANDING && step->len > 0;
		return 0;
	default:
		take(shape, step);
		return 0;
	}
}

static uint64_t walk(const struct plan_shape *shape)
{
	struct plan plan;
	struct plan_step step;
	uint64_t number = 0, sent = 0;

	CU_ASSERT_EQUAL_FATAL(plan_begin(&plan, shape), 0);
	for (; plan_next(&plan, &step); number++) {
		CU_ASSERT_FATAL(plan.next == number + 1);
		check_step(shape, number, &step);
		if (step.kind != PLAN_NONE && shape->n <= MOST)
			sent += note(shape, &step);
	}
	CU_ASSERT_FATAL(!plan_next(&plan, &step));
	return sent;
}

/* What all ranks put, where it is the least that can be. */
static uint64_t expected(const struct plan_shape *shape)
{
	uint64_t others = (uint64_t)shape->n - 1, count = shape->count;

	switch (shape->algorithm) {
	case PLAN_RING:
	case PLAN_BIRING:
	case PLAN_SHARDED:
	case PLAN_LINEAR:
		break;
	case PLAN_TREE:
		if (shape->operation == PLAN_OP_GATHER ||
		    shape->operation == PLAN_OP_SCATTER)
			return UINT64_MAX;
		break;
	default:
		return UINT64_MAX;
	}
	switch (shape->operation) {
	case PLAN_OP_ALLREDUCE:
		return 2 * others * count;
	case PLAN_OP_REDUCE_SCATTER:
	case PLAN_OP_ALLGATHER:
	case PLAN_OP_ALLTOALL:
		return others * (others + 1) * count;
	default:
		return others * count;
	}
}

/* The rank as it is called: what it is told depends on who it is. */
static void as_rank(struct plan_shape *shape, int rank)
{
	shape->rank = rank;
	shape->no_output =
		rank != shape->root && (shape->operation == PLAN_OP_REDUCE ||
					shape->operation == PLAN_OP_GATHER);
}

static void check_all(struct plan_shape shape)
{
	uint64_t total = 0;
	bool left = false;

	memset(puts_of, 0, sizeof(puts_of));
	memset(waits_of, 0, sizeof(waits_of));
	memset(landings_of, 0, sizeof(landings_of));
	memset(opened_by, 0, sizeof(opened_by));
	for (int r = 0; r < shape.n; r++) {
		as_rank(&shape, r);
		total += walk(&shape);
	}
	for (int a = 0; a < shape.n; a++)
		for (int b = 0; b < shape.n; b++)
			left |= landings_of[a][b] != 0;
	if (left || memcmp(puts_of, waits_of, sizeof(puts_of)) != 0)
		fprintf(stderr, "%s %s n %d count %llu chunk %llu\n",
			plan_operation_name(shape.operation),
			plan_name(shape.algorithm), shape.n,
			(unsigned long long)shape.count,
			(unsigned long long)shape.chunk);
	CU_ASSERT_FATAL(!left);
	CU_ASSERT_FATAL(memcmp(puts_of, waits_of, sizeof(puts_of)) == 0);
	if (expected(&shape) != UINT64_MAX)
		CU_ASSERT_EQUAL_FATAL(total, expected(&shape));
}

/* Hosts of two, in the order of the ranks. */
static struct plan_topology pairs_of(int n)
{
	static int host[MOST], order[MOST], first[MOST + 1], leader[MOST];
	int hosts = (n + 1) / 2;

	for (int r = 0; r < n; r++) {
		host[r] = r / 2;
		order[r] = r;
	}
	for (int h = 0; h < hosts; h++)
		first[h] = leader[h] = 2 * h;
	first[hosts] = n;
	return (struct plan_topology){hosts, host, order, first, leader};
}

static bool fits(const struct plan_algo *algo, const struct plan_shape *shape)
{
	return (shape->algorithm != PLAN_LOCAL || shape->n == 1) &&
	       (!algo->power_of_two || (shape->n & (shape->n - 1)) == 0) &&
	       (!algo->apart || !shape->in_place);
}

static void shapes_of(enum plan_operation operation,
		      enum plan_algorithm algorithm,
		      const struct plan_algo *algo)
{
	for (int n = 1; n <= MOST; n++) {
		struct plan_topology topology = pairs_of(n);
		uint64_t m = (uint64_t)n;
		uint64_t counts[] = {0, 1, m + 1, 1009, m, m - 1};
		size_t some = n <= 16 ? 6 : 3;

		for (size_t i = 0; i < some; i++) {
			struct plan_shape shape = {
				.operation = operation,
				.algorithm = algorithm,
				.n = n,
				.root = coll_has_root(operation) && i % 2
						? n / 3
						: 0,
				.count = counts[i],
				.chunk = counts[i] > 1000 ? 777 : 1 + i * 5,
				.wide = coll_reduces(operation) && i % 3 != 1,
				.in_place = i % 2,
				.topology = &topology,
			};

			if (fits(algo, &shape))
				check_all(shape);
		}
	}
}

static void every_shape(void)
{
	coll_for_all(shapes_of);
}

static void roots_of(enum plan_operation operation,
		     enum plan_algorithm algorithm,
		     const struct plan_algo *algo)
{
	for (int n = 1; n <= 12 && coll_has_root(operation); n++)
		for (int root = 0; root < n; root++) {
			struct plan_topology topology = pairs_of(n);
			struct plan_shape shape = {
				.operation = operation,
				.algorithm = algorithm,
				.n = n,
				.root = root,
				.count = 41,
				.chunk = 7,
				.topology = &topology,
			};

			if (fits(algo, &shape))
				check_all(shape);
		}
}

static void every_root(void)
{
	coll_for_all(roots_of);
}

/* B3: more than 2^31 elements, walked without memory. */
static void walk_huge(enum plan_operation operation,
		      enum plan_algorithm algorithm,
		      const struct plan_algo *algo)
{
	for (int n = algorithm == PLAN_LOCAL ? 1 : 3; n <= 4; n++) {
		struct plan_topology topology = pairs_of(n);
		struct plan_shape shape = {
			.operation = operation,
			.algorithm = algorithm,
			.n = n,
			.count = (UINT64_C(1) << 31) + 5,
			.chunk = 1 << 24,
			.topology = &topology,
		};

		if (!fits(algo, &shape))
			continue;
		check_all(shape);
		shape.count = (shape.count << 9) + 1;
		shape.chunk = UINT64_C(1) << 33;
		check_all(shape);
	}
}

static void above_32_bits(void)
{
	coll_for_all(walk_huge);
}

/* 16,384 ranks: steps come without memory that grows. */
static void many_ranks(void)
{
	struct plan_shape shape = {.operation = PLAN_OP_ALLREDUCE,
				   .algorithm = PLAN_RING,
				   .rank = 16383,
				   .n = 16384,
				   .count = 100000,
				   .chunk = 3};
	struct plan plan;
	struct plan_step step;
	uint64_t number = 0, puts = 0;

	CU_ASSERT_EQUAL_FATAL(plan_begin(&plan, &shape), 0);
	for (; plan_next(&plan, &step); number++) {
		check_step(&shape, number, &step);
		if (step.kind == PLAN_PUT)
			puts += step.len;
	}
	CU_ASSERT(puts > 2 * 100000 - 15 && puts < 2 * 100000);
	CU_ASSERT_EQUAL(number, 1 + UINT64_C(5) * 16383 * 3);
	CU_ASSERT(sizeof(struct plan) < 512);
}

static void refusals(void)
{
	static const struct plan_shape good = {.operation = PLAN_OP_BROADCAST,
					       .algorithm = PLAN_TREE,
					       .n = 2,
					       .count = 1,
					       .chunk = 1};
	struct plan_shape bad;
	struct plan plan;

#define REFUSED(field, value, err)                                             \
	do {                                                                   \
		bad = good;                                                    \
		bad.field = value;                                             \
		CU_ASSERT_EQUAL(plan_begin(&plan, &bad), err);                 \
	} while (0)

	CU_ASSERT_EQUAL(plan_begin(&plan, &good), 0);
	REFUSED(n, 0, -EINVAL);
	REFUSED(rank, 2, -EINVAL);
	REFUSED(rank, -1, -EINVAL);
	REFUSED(root, 2, -EINVAL);
	REFUSED(root, -1, -EINVAL);
	REFUSED(chunk, 0, -EINVAL);
	REFUSED(algorithm, PLAN_LOCAL, -EINVAL);
	REFUSED(algorithm, PLAN_BRUCK, -EOPNOTSUPP);
	REFUSED(algorithm, PLAN_ALGORITHMS, -EOPNOTSUPP);
	REFUSED(operation, PLAN_OPERATIONS, -EOPNOTSUPP);
}

static void names(void)
{
	enum plan_algorithm algorithm;

	CU_ASSERT_STRING_EQUAL(plan_name(PLAN_RING), "ring");
	CU_ASSERT_STRING_EQUAL(plan_name(PLAN_ALGORITHMS), "unknown");
	CU_ASSERT_STRING_EQUAL(plan_operation_name(PLAN_OP_GATHER), "gather");
	CU_ASSERT_STRING_EQUAL(plan_operation_name(PLAN_OPERATIONS), "unknown");
	for (int a = 0; a < PLAN_ALGORITHMS; a++) {
		CU_ASSERT(plan_by_name(plan_name((enum plan_algorithm)a),
				       &algorithm));
		CU_ASSERT_EQUAL((int)algorithm, a);
	}
	CU_ASSERT(!plan_by_name("unknown", &algorithm));
}

static void logarithms(void)
{
	static const struct {
		uint64_t n;
		unsigned log2;
	} cases[] = {{1, 0}, {2, 1}, {5, 3}, {1024, 10}, {1025, 11}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		CU_ASSERT_EQUAL(plan_log2(cases[i].n), cases[i].log2);
}

/* Each algorithm says where it is described. */
static void has_source(enum plan_operation operation,
		       enum plan_algorithm algorithm,
		       const struct plan_algo *algo)
{
	(void)operation;
	CU_ASSERT(algorithm == PLAN_LOCAL || (algo->source && *algo->source));
}

static void sources(void)
{
	coll_for_all(has_source);
}

static CU_TestInfo tests[] = {
	{"every shape", every_shape},
	{"every root", every_root},
	{"above 32 bits", above_32_bits},
	{"many ranks", many_ranks},
	{"refusals", refusals},
	{"names", names},
	{"logarithms", logarithms},
	{"sources", sources},
	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"plan", NULL, NULL, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	return run_suites(suites);
}
