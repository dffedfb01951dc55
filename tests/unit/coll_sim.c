/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every algorithm of every operation in the simulator, with the real executor
 * and kernels: results are right and the same on all ranks, rules are kept
 * and no schedule stops, whatever the number of ranks, the count, the type,
 * the window, the landing slots, the layout and the order of events.
 *
 * What does not matter to the others takes turns in the fast form. --kinds:
 * each type and reduction with each shape (B1), and nothing else; --full: that,
 * and more of all the others, which takes hours.
 */
#include "coll_case.h"
#include "reduce.h"

#include "cunit_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool full;
static unsigned turn;

static const struct coll_kind {
	enum vbn_type type;
	enum vbn_reduction reduction;
	bool wire16;
} usual[] = {
	{VBN_FLOAT32, VBN_SUM, false},	   {VBN_BFLOAT16, VBN_SUM, false},
	{VBN_FLOAT16, VBN_AVERAGE, false}, {VBN_INT32, VBN_AVERAGE, false},
	{VBN_BFLOAT16, VBN_SUM, true},	   {VBN_FLOAT64, VBN_PRODUCT, false},
	{VBN_UINT8, VBN_XOR, false},
};

enum { USUAL = sizeof(usual) / sizeof(*usual) };

/* What takes turns. */
static struct coll_case pick(enum plan_operation operation,
			     enum plan_algorithm algorithm, int n,
			     uint64_t count)
{
	static const unsigned windows[] = {1, 64, 2, 64, 3, 8};
	unsigned t = turn++;
	const struct coll_kind *kind = &usual[t % USUAL];
	uint64_t small = count >= 1000 ? count / 13 + 1 : 1 + t % 2;

	return (struct coll_case){
		.shape = {.operation = operation,
			  .algorithm = algorithm,
			  .n = n,
			  .root = coll_has_root(operation) ? (int)(t / 2) % n
							   : 0,
			  .count = count,
			  .chunk = t / 3 % 2 ? small : 1 << 20,
			  .in_place = t / 5 % 2},
		.type = kind->type,
		.reduction = kind->reduction,
		.wire16 = kind->wire16,
		.parts = coll_has_layout(operation)
				 ? (enum coll_parts)(t / 4 % COLL_PARTS)
				 : COLL_EVEN,
		.hosts = (enum coll_hosts)(t / 2 % COLL_HOSTS),
		.window = windows[t % 6],
		.slots = t / 2 % 2 ? 4 : 1,
		.direct = t / 11 % 3 > 0,
		.warm = t / 7 % 2,
		.seed = t % 4 ? t : 0,
	};
}

static void must_be_right(const struct coll_case *c)
{
	char why[600];
	int err;

	if (!coll_case_exists(c))
		return;
	err = coll_case_run(c, why, sizeof(why));
	if (err)
		fprintf(stderr, "%s: %s\n", strerror(-err), why);
	CU_ASSERT_EQUAL_FATAL(err, 0);
}

/* ---- every number of ranks ---- */

static void sizes_of(enum plan_operation operation,
		     enum plan_algorithm algorithm,
		     const struct plan_algo *algo)
{
	(void)algo;
	for (int n = 1; n <= 64; n++) {
		uint64_t m = (uint64_t)n;
		uint64_t counts[] = {m + 1, 1, m, m - 1, 0, 2, 131};
		size_t some = full || n <= 9 ? 7 : 1;

		for (size_t i = 0; i < some; i++) {
			uint64_t count = counts[some > 1 ? i : turn % 6];
			struct coll_case c =
				pick(operation, algorithm, n, count);

			/* All to all of many in many pieces is for --full. */
			if (!full && n > 16 && c.shape.chunk < count / 3)
				c.shape.chunk = count / 3;
			must_be_right(&c);
		}
	}
}

static void every_size(void)
{
	coll_for_all(sizes_of);
}

/* ---- B1: every type and reduction ---- */

static const int types_most = VBN_TYPES * VBN_REDUCTIONS * 2;

static void kind_at(struct coll_case *c, int i)
{
	c->type = (enum vbn_type)(i % VBN_TYPES);
	c->reduction = (enum vbn_reduction)(i / VBN_TYPES % VBN_REDUCTIONS);
	c->wire16 = i / VBN_TYPES / VBN_REDUCTIONS;
}

/*
 * The kinds that a shape is tried with. Fast: the next one that exists; with
 * as many shapes as there are, each kind meets each algorithm.
 */
static void kinds_of(struct coll_case c, int *next)
{
	int tried = 0;

	if (!coll_reduces(c.shape.operation)) {
		must_be_right(&c);
		return;
	}
	while (tried < (full ? types_most : 1)) {
		kind_at(&c, *next);
		*next = (*next + 1) % types_most;
		if (full || reduce_find(c.type, c.reduction, c.wire16)) {
			must_be_right(&c);
			tried++;
		}
	}
}

static void exhaust(enum plan_operation operation,
		    enum plan_algorithm algorithm, const struct plan_algo *algo)
{
	int next = 0;

	(void)algo;
	for (int n = 1; n <= 9; n++) {
		uint64_t m = (uint64_t)n;
		uint64_t counts[] = {0, 1, m - 1, m, m + 1, 1000, 65537};

		for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
			for (int place = 0; place < 2; place++) {
				struct coll_case c = pick(operation, algorithm,
							  n, counts[i]);

				if (counts[i] > 1000 && !full &&
				    (place || n != 5))
					continue;
				c.shape.in_place = place;
				if (c.shape.chunk < counts[i] / 20)
					c.shape.chunk = counts[i] / 20;
				kinds_of(c, &next);
			}
	}
}

static void every_kind(void)
{
	coll_for_all(exhaust);
}

/* ---- the tightest resources under many random schedules ---- */

static void storm(enum plan_operation operation, enum plan_algorithm algorithm,
		  const struct plan_algo *algo)
{
	unsigned most = full ? 4000 : 60;

	(void)algo;
	for (unsigned seed = 1; seed < most; seed++) {
		struct coll_case c = pick(operation, algorithm,
					  2 + (int)(seed % 13), 37 + seed % 11);

		if (operation == PLAN_OP_ALLGATHER ||
		    operation == PLAN_OP_ALLTOALL)
			c.shape.count = 1 + seed % 5;
		c.shape.chunk = 1 + seed % 3;
		c.seed = turn;
		must_be_right(&c);
	}
}

static void storms(void)
{
	coll_for_all(storm);
}

/* ---- the order of sums ---- */

static unsigned ordered;

/* in_order: the bits of the sum in the order of the ranks, whatever n. */
static void order(enum plan_operation operation, enum plan_algorithm algorithm,
		  const struct plan_algo *algo)
{
	if (!coll_reduces(operation))
		return;
	ordered += algo->in_order && algorithm != PLAN_LOCAL;
	for (int n = 1; n <= 25; n += n < 9 ? 1 : 8)
		for (unsigned i = 0; i < USUAL; i++) {
			struct coll_case c = pick(operation, algorithm, n, 67);

			c.values = COLL_ROUNDED;
			must_be_right(&c);
		}
}

static void orders(void)
{
	coll_for_all(order);
	CU_ASSERT(ordered >= 4);
}

/* ---- B12: a sum is rounded once ---- */

static const uint16_t one = 0x3f80; /* bfloat16 */

/* Dry first: who would need more pairs of ranks than memory should hold? */
static bool is_wide_spread(struct sim_options opts)
{
	struct sim_result result;

	opts.shape.n = 64;
	opts.in = NULL;
	opts.out = NULL;
	return sim_run(&opts, &result) == 0 && result.pairs > 64 * 20;
}

static void add_ones(enum plan_operation operation,
		     enum plan_algorithm algorithm, int n, uint16_t sum)
{
	enum { MOST = 4096 };
	static uint16_t ins[MOST][1], outs[MOST];
	static const void *in[MOST];
	static void *out[MOST];
	struct sim_options opts = {
		.shape = {.operation = operation,
			  .algorithm = algorithm,
			  .n = n,
			  .count = 1,
			  .chunk = 1},
		.type = VBN_BFLOAT16,
		.reduction = VBN_SUM,
		.window = 64,
		.slots = 1,
		.direct = true,
		.in = in,
		.out = out,
	};
	struct sim_result result = {.why = ""};
	int err;

	for (int r = 0; r < n; r++) {
		ins[r][0] = one;
		in[r] = ins[r];
		out[r] = &outs[r];
		outs[r] = 0;
	}
	if (n > 512 && is_wide_spread(opts))
		return;
	err = sim_run(&opts, &result);
	if (err)
		fprintf(stderr, "%s n %d: %s\n", plan_name(algorithm), n,
			result.why);
	CU_ASSERT_EQUAL_FATAL(err, 0);
	CU_ASSERT_EQUAL_FATAL(outs[0], sum);
	for (int r = 1; r < n && operation == PLAN_OP_ALLREDUCE; r++)
		CU_ASSERT_EQUAL_FATAL(outs[r], sum);
}

/* Of hierarchical and of parts, every_kind() says enough. */
static void ones(enum plan_operation operation, enum plan_algorithm algorithm,
		 const struct plan_algo *algo)
{
	(void)algo;
	if ((operation != PLAN_OP_ALLREDUCE && operation != PLAN_OP_REDUCE) ||
	    algorithm == PLAN_LOCAL || algorithm == PLAN_HIERARCHICAL)
		return;
	add_ones(operation, algorithm, full ? 512 : 300,
		 full ? 0x4400 : 0x4396);
	if (full || algorithm == PLAN_TREE || algorithm == PLAN_DOUBLING)
		add_ones(operation, algorithm, 4096, 0x4580);
}

static void many_ones(void)
{
	coll_for_all(ones);
}

static CU_TestInfo tests[] = {
	{"every size", every_size}, {"every kind", every_kind},
	{"storms", storms},	    {"the order of sums", orders},
	{"many ones", many_ones},   CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"sim", NULL, NULL, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

static CU_TestInfo kinds[] = {{"every kind", every_kind}, CU_TEST_INFO_NULL};

static CU_SuiteInfo kinds_alone[] = {
	{"sim", NULL, NULL, NULL, NULL, kinds},
	CU_SUITE_INFO_NULL,
};

int main(int argc, char **argv)
{
	bool alone = argc > 1 && !strcmp(argv[1], "--kinds");

	full = alone || (argc > 1 && !strcmp(argv[1], "--full"));
	return run_suites(alone ? kinds_alone : suites);
}
