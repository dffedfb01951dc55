/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The choice of algorithm: only what is admissible, the least predicted time,
 * and the order that the simulator finds.
 */
#include "coll_case.h"

#include "choose.h"
#include "cunit_run.h"

#include <stdio.h>
#include <string.h>

static const uint64_t sizes[] = {0,	 8,	  1000,	   32768,
				 300000, 1 << 22, 1 << 28, UINT64_C(1) << 36};
enum { SIZES = sizeof(sizes) / sizeof(*sizes) };

static struct choice_input input_of(enum plan_operation operation, int n,
				    int hosts, uint64_t bytes)
{
	return (struct choice_input){
		.operation = operation,
		.n = n,
		.hosts = hosts,
		.bytes = bytes,
		.may_map = hosts == 1,
		.chunk_most = 256 << 10,
	};
}

static enum plan_algorithm chosen(const struct choice_input *in)
{
	struct choice choice;

	choose(in, &choice);
	return choice.algorithm;
}

/* ---- what is admissible ---- */

static void must_suit(const struct choice_input *in, const struct choice *c)
{
	const struct plan_algo *algo = plan_find(in->operation, c->algorithm);

	CU_ASSERT_PTR_NOT_NULL_FATAL(algo);
	CU_ASSERT(c->algorithm != PLAN_LOCAL);
	CU_ASSERT(!algo->mapped || in->may_map);
	CU_ASSERT(!algo->power_of_two || (in->n & (in->n - 1)) == 0);
	CU_ASSERT(!algo->even || !in->uneven);
	CU_ASSERT(!algo->apart || !in->in_place);
	CU_ASSERT(algo->in_order || !in->in_order ||
		  !coll_reduces(in->operation));
	CU_ASSERT(c->algorithm != PLAN_TREE || !in->unknown);
	CU_ASSERT(c->algorithm != PLAN_HIERARCHICAL ||
		  (in->hosts > 1 && in->hosts < in->n));
	CU_ASSERT(c->chunk > 0 && c->chunk <= in->chunk_most);
	CU_ASSERT(c->predicted > 0);
	CU_ASSERT_NOT_EQUAL(c->why[0], '\0');
}

/* No other is predicted to be faster, and the words name the second best. */
static void must_be_least(const struct choice_input *in, const struct choice *c)
{
	double next = 0;
	char words[80];

	for (int a = PLAN_LOCAL + 1; a < PLAN_ALGORITHMS; a++) {
		enum plan_algorithm algorithm = (enum plan_algorithm)a;
		struct choice other;

		if (algorithm == c->algorithm ||
		    choose_refusal(in, algorithm) ||
		    (algorithm == PLAN_HIERARCHICAL &&
		     (in->hosts == 1 || in->hosts == in->n)))
			continue;
		choose_asked(in, algorithm, &other);
		CU_ASSERT_EQUAL(other.algorithm, algorithm);
		CU_ASSERT_STRING_EQUAL(other.why, "asked for");
		CU_ASSERT(other.predicted >= c->predicted);
		if (next > 0 && other.predicted >= next)
			continue;
		next = other.predicted;
		snprintf(words, sizeof(words), "by the model; next: %s %.1f us",
			 plan_name(algorithm), next * 1e6);
	}
	CU_ASSERT_STRING_EQUAL(c->why, next > 0 ? words : "the only one");
}

static void every_choice(enum plan_operation operation, int n, int hosts)
{
	for (unsigned flags = 0; flags < 32; flags++)
		for (int s = 0; s < SIZES; s++) {
			struct choice_input in =
				input_of(operation, n, hosts, sizes[s]);
			struct choice c;

			in.in_order = flags & 1;
			in.uneven = flags & 2;
			in.in_place = flags & 4;
			in.unknown = in.uneven && flags & 8;
			in.wide = flags & 8;
			in.chunk = flags & 16 ? 1000 : 0;
			choose(&in, &c);
			must_suit(&in, &c);
			must_be_least(&in, &c);
			if (in.chunk)
				CU_ASSERT_EQUAL(c.chunk, 1000);
		}
}

static void admissible(void)
{
	static const int ns[] = {2, 3, 4, 7, 8, 16, 33, 1000, 16384};

	for (int o = 0; o < PLAN_OPERATIONS; o++)
		for (size_t i = 0; i < sizeof(ns) / sizeof(*ns); i++) {
			enum plan_operation operation = (enum plan_operation)o;

			every_choice(operation, ns[i], 1);
			every_choice(operation, ns[i], ns[i]);
			every_choice(operation, ns[i], (ns[i] + 1) / 2);
		}
}

static void refusals(void)
{
	struct choice_input in = input_of(PLAN_OP_ALLREDUCE, 6, 2, 8);

	CU_ASSERT_PTR_NOT_NULL(choose_refusal(&in, PLAN_BRUCK));
	CU_ASSERT_PTR_NOT_NULL(choose_refusal(&in, PLAN_MAPPED));
	CU_ASSERT_PTR_NULL(choose_refusal(&in, PLAN_RING));
	in.in_order = true;
	CU_ASSERT_PTR_NOT_NULL(choose_refusal(&in, PLAN_RING));
	CU_ASSERT_PTR_NULL(choose_refusal(&in, PLAN_SHARDED));
	in.operation = PLAN_OP_ALLGATHER;
	CU_ASSERT_PTR_NULL(choose_refusal(&in, PLAN_RING));
	CU_ASSERT_PTR_NOT_NULL(choose_refusal(&in, PLAN_DOUBLING));
	in.n = 8;
	CU_ASSERT_PTR_NULL(choose_refusal(&in, PLAN_DOUBLING));
	in.operation = PLAN_OP_ALLTOALL;
	CU_ASSERT_PTR_NULL(choose_refusal(&in, PLAN_BRUCK));
	in.uneven = true;
	CU_ASSERT_PTR_NOT_NULL(choose_refusal(&in, PLAN_BRUCK));
	in = input_of(PLAN_OP_ALLTOALL, 4, 1, 8);
	CU_ASSERT_PTR_NULL(choose_refusal(&in, PLAN_MAPPED));
	in.in_place = true;
	CU_ASSERT_PTR_NOT_NULL(choose_refusal(&in, PLAN_MAPPED));
	in = input_of(PLAN_OP_GATHER, 4, 1, 8);
	CU_ASSERT_PTR_NULL(choose_refusal(&in, PLAN_TREE));
	in.unknown = in.uneven = true;
	CU_ASSERT_PTR_NOT_NULL(choose_refusal(&in, PLAN_TREE));
}

static void alone(void)
{
	struct choice_input in = input_of(PLAN_OP_ALLREDUCE, 1, 1, 1 << 20);
	struct choice c;

	choose(&in, &c);
	CU_ASSERT_EQUAL(c.algorithm, PLAN_LOCAL);
	CU_ASSERT_STRING_EQUAL(c.why, "the only one");
	CU_ASSERT(c.chunk > 0 && c.chunk <= in.chunk_most);
}

/* ---- what is expected ---- */

static void expect(struct choice_input in, const char *names)
{
	char room[100];
	const char *name = plan_name(chosen(&in));

	snprintf(room, sizeof(room), " %s ", names);
	if (!strstr(room, name))
		fprintf(stderr, "%s n %d hosts %d bytes %llu: %s, not %s\n",
			plan_operation_name(in.operation), in.n, in.hosts,
			(unsigned long long)in.bytes, name, names);
	CU_ASSERT_PTR_NOT_NULL(strstr(room, name));
}

static void one_host(void)
{
	for (int n = 2; n <= 8; n++) {
		expect(input_of(PLAN_OP_ALLREDUCE, n, 1, 8), "oneshot");
		expect(input_of(PLAN_OP_ALLREDUCE, n, 1, 512), "oneshot");
		expect(input_of(PLAN_OP_ALLREDUCE, n, 1, 1 << 16), "mapped");
		expect(input_of(PLAN_OP_ALLREDUCE, n, 1, 1 << 26), "mapped");
		expect(input_of(PLAN_OP_REDUCE_SCATTER, n, 1, 1 << 24),
		       "mapped");
		expect(input_of(PLAN_OP_ALLTOALL, n, 1, 64), "linear");
		expect(input_of(PLAN_OP_GATHER, n, 1, 64), "linear");
		expect(input_of(PLAN_OP_SCATTER, n, 1, 1 << 20), "linear");
		if (n == 2)
			continue;
		expect(input_of(PLAN_OP_BROADCAST, n, 1, 8), "tree linear");
		expect(input_of(PLAN_OP_BROADCAST, n, 1, 1 << 24), "mapped");
		expect(input_of(PLAN_OP_ALLGATHER, n, 1, 1 << 24),
		       "mapped linear ring");
	}
}

static void between_hosts(void)
{
	for (int n = 4; n <= 64; n *= 2) {
		expect(input_of(PLAN_OP_ALLREDUCE, n, n, 8),
		       "oneshot doubling");
		expect(input_of(PLAN_OP_ALLREDUCE, n, n, 1 << 28),
		       "ring halving sharded");
		expect(input_of(PLAN_OP_ALLREDUCE, n + 1, n + 1, 1 << 28),
		       "ring biring sharded");
		expect(input_of(PLAN_OP_BROADCAST, n, n, 1 << 28),
		       "double-tree");
		expect(input_of(PLAN_OP_ALLGATHER, n + 1, n + 1, 8),
		       "bruck linear");
		expect(input_of(PLAN_OP_ALLTOALL, n, n, 1 << 28), "pairwise");
	}
	/* Many members and tiny parts: rounds are dear, and messages too. */
	expect(input_of(PLAN_OP_ALLREDUCE, 1024, 1024, 8), "doubling");
	expect(input_of(PLAN_OP_ALLTOALL, 1024, 1024, 8192), "bruck");
	expect(input_of(PLAN_OP_GATHER, 1024, 1024, 8192), "tree");
	expect(input_of(PLAN_OP_SCATTER, 1024, 1024, 8192), "tree");
	expect(input_of(PLAN_OP_GATHER, 1024, 1024, 1 << 30), "tree linear");
}

/* Eight members on each host share its interface. */
static void hosts_of_many(void)
{
	struct tuning many = {.params = cost_usual};
	static const enum plan_operation operations[] = {
		PLAN_OP_ALLREDUCE, PLAN_OP_REDUCE, PLAN_OP_BROADCAST};

	many.params.processors = 8;
	for (int i = 0; i < 3; i++)
		for (uint64_t bytes = 8; bytes <= 16384; bytes *= 2) {
			struct choice_input in =
				input_of(operations[i], 64, 8, bytes);

			in.tuning = &many;
			expect(in, "hierarchical");
		}
}

/* More bytes never take less, whatever is chosen. */
static void grows(void)
{
	for (int o = 0; o < PLAN_OP_BARRIER; o++)
		for (int n = 2; n <= 40; n++) {
			double before = 0;

			for (uint64_t bytes = 8; bytes <= 1 << 26; bytes *= 2) {
				struct choice_input in = input_of(
					(enum plan_operation)o, n, n, bytes);
				struct choice c;

				choose(&in, &c);
				CU_ASSERT(c.predicted >= before);
				before = c.predicted;
			}
		}
}

/* Partial results of twice the width: only what sends them is dearer. */
static void widths(void)
{
	struct choice_input in = input_of(PLAN_OP_ALLREDUCE, 8, 8, 1 << 20);
	struct choice narrow, wide;

	choose_asked(&in, PLAN_RING, &narrow);
	in.wide = true;
	choose_asked(&in, PLAN_RING, &wide);
	CU_ASSERT(wide.predicted > 1.3 * narrow.predicted);
	choose_asked(&in, PLAN_SHARDED, &wide);
	in.wide = false;
	choose_asked(&in, PLAN_SHARDED, &narrow);
	CU_ASSERT_DOUBLE_EQUAL(wide.predicted, narrow.predicted, 1e-12);
}

/* ---- against the simulator ---- */

/* No handling of messages, no call: the simulator has neither. */
static const struct cost_params plain = {
	.net = {.alpha = 2e-6, .beta = 1e-10},
	.gamma = 0.5e-10,
	.processors = 1,
};
enum { CHUNK = 65536, F32 = 4 };

static double simulated(enum plan_operation operation,
			enum plan_algorithm algorithm, int n, uint64_t count)
{
	struct sim_options opts = {
		.shape = {.operation = operation,
			  .algorithm = algorithm,
			  .n = n,
			  .count = count,
			  .chunk = CHUNK / F32},
		.type = VBN_FLOAT32,
		.window = 64,
		.slots = 4,
		.direct = true,
		.warm = true,
		.alpha = plain.net.alpha,
		.beta = plain.net.beta,
		.gamma = plain.gamma,
	};
	struct sim_result result;

	CU_ASSERT_EQUAL_FATAL(sim_run(&opts, &result), 0);
	return result.time;
}

/* Predicted and simulated, of all algorithms; returns how many. */
static int prices_of(enum plan_operation operation, int n, uint64_t bytes,
		     double predicted[], double real[])
{
	bool parts = operation > PLAN_OP_BROADCAST;
	uint64_t all = bytes / F32 / (parts ? (uint64_t)n : 1) + 1;
	const struct cost_case what = {
		operation, n, n, (double)(all * F32 * (parts ? n : 1)), 1};
	int some = 0;

	for (int a = PLAN_LOCAL + 1; a < PLAN_ALGORITHMS; a++) {
		enum plan_algorithm algorithm = (enum plan_algorithm)a;
		const struct plan_algo *algo = plan_find(operation, algorithm);

		if (!algo || algo->mapped || algorithm == PLAN_HIERARCHICAL ||
		    (algo->power_of_two && n & (n - 1)))
			continue;
		predicted[some] = cost_predict(&plain, &what, algorithm, CHUNK);
		real[some] = simulated(operation, algorithm, n, all);
		if (predicted[some] > 1.6 * real[some] ||
		    predicted[some] < 0.65 * real[some])
			fprintf(stderr,
				"%s %s n %d bytes %llu: %g us, simulated %g\n",
				plan_operation_name(operation),
				plan_name(algorithm), n,
				(unsigned long long)bytes,
				predicted[some] * 1e6, real[some] * 1e6);
		CU_ASSERT(predicted[some] < 1.6 * real[some]);
		CU_ASSERT(predicted[some] > 0.65 * real[some]);
		some++;
	}
	return some;
}

static void same_order(enum plan_operation operation, int n, uint64_t bytes)
{
	double predicted[PLAN_ALGORITHMS], real[PLAN_ALGORITHMS];
	int some = prices_of(operation, n, bytes, predicted, real);

	for (int i = 0; i < some; i++)
		for (int j = 0; j < some; j++)
			if (real[i] > 1.5 * real[j])
				CU_ASSERT(predicted[i] > predicted[j]);
}

static void as_simulated(void)
{
	static const int ns[] = {2, 3, 4, 5, 8, 13, 16, 24};
	static const uint64_t bytes[] = {64, 8192, 1 << 18, 1 << 22};

	for (int o = 0; o < PLAN_OPERATIONS; o++)
		for (size_t i = 0; i < sizeof(ns) / sizeof(*ns); i++)
			for (size_t j = 0; j < 4; j++)
				same_order((enum plan_operation)o, ns[i],
					   bytes[j]);
}

/* More members than processors: each round costs a switch, and work waits. */
static void crowded(void)
{
	const struct cost_case barrier = {PLAN_OP_BARRIER, 4, 1, 0, 1};
	const struct cost_case reduce = {PLAN_OP_REDUCE, 4, 1, 1 << 28, 1};
	struct cost_params params = cost_usual, few = cost_usual;
	double rounds, all, one;

	params.processors = 4;
	few.processors = 2;
	rounds = cost_predict(&few, &barrier, PLAN_DISSEMINATION, 1) -
		 cost_predict(&params, &barrier, PLAN_DISSEMINATION, 1);
	/* Two rounds, in each of which two members have their turns. */
	CU_ASSERT_DOUBLE_EQUAL(rounds, 2 * 2 * params.wake, 1e-12);
	all = cost_predict(&few, &reduce, PLAN_HALVING, CHUNK) /
	      cost_predict(&params, &reduce, PLAN_HALVING, CHUNK);
	CU_ASSERT(all > 1.9 && all < 2.1);
	/* The root alone sums. */
	one = cost_predict(&few, &reduce, PLAN_MAPPED, CHUNK) /
	      cost_predict(&params, &reduce, PLAN_MAPPED, CHUNK);
	CU_ASSERT(one < 1.01);
}

static CU_TestInfo choices[] = {
	{"only what is admissible, and the least", admissible},
	{"refusals", refusals},
	{"one member", alone},
	{"on one host", one_host},
	{"between hosts", between_hosts},
	{"hosts of many members", hosts_of_many},
	{"more bytes take longer", grows},
	{"widths", widths},
	{"as the simulator has it", as_simulated},
	{"more members than processors", crowded},
	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"choice", NULL, NULL, NULL, NULL, choices},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	return run_suites(suites);
}
