/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the simulator says that plans cost: rounds, bytes, connections and
 * fan-in as the literature has them, pipelining, leaf switches, hosts and
 * stragglers; and dry runs of what no memory would hold.
 */
#include "coll_case.h"
#include "reduce.h"

#include "cunit_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { F32 = 4 };

static struct sim_options dry(enum plan_operation operation,
			      enum plan_algorithm algorithm, int n,
			      uint64_t count, uint64_t chunk)
{
	return (struct sim_options){
		.shape = {.operation = operation,
			  .algorithm = algorithm,
			  .n = n,
			  .count = count,
			  .chunk = chunk},
		.type = VBN_FLOAT32,
		.reduction = VBN_SUM,
		.window = 64,
		.slots = 4,
		.direct = true,
	};
}

static struct sim_result price_of(const struct sim_options *opts)
{
	struct sim_result result = {.why = ""};
	int err = sim_run(opts, &result);

	if (err)
		fprintf(stderr, "%s %s n %d: %d %s\n",
			plan_operation_name(opts->shape.operation),
			plan_name(opts->shape.algorithm), opts->shape.n, err,
			result.why);
	CU_ASSERT_EQUAL_FATAL(err, 0);
	return result;
}

static struct sim_result price(enum plan_operation operation,
			       enum plan_algorithm algorithm, int n,
			       uint64_t count, uint64_t chunk, double alpha,
			       double beta)
{
	struct sim_options opts = dry(operation, algorithm, n, count, chunk);

	opts.alpha = alpha;
	opts.beta = beta;
	return price_of(&opts);
}

static bool near(double a, double b)
{
	return a > b * (1 - 1e-6) && a < b * (1 + 1e-6);
}

static void literature(void)
{
	for (int n = 2; n <= 64; n++) {
		uint64_t m = (uint64_t)n;
		unsigned rounds = plan_log2(m);
		struct sim_result r;

		r = price(PLAN_OP_ALLREDUCE, PLAN_RING, n, m * 100, 1000, 1, 0);
		CU_ASSERT(near(r.time, 2 * (n - 1)));
		CU_ASSERT_EQUAL(r.max_sent, 2 * (m - 1) * 100 * F32);
		CU_ASSERT_EQUAL(r.max_received, 2 * (m - 1) * 100 * F32);
		CU_ASSERT_EQUAL(r.max_messages, 2 * (m - 1));
		CU_ASSERT_EQUAL(r.messages, m * r.max_messages);
		CU_ASSERT_EQUAL(r.peak_fan_in, 1);
		CU_ASSERT_EQUAL(r.max_peers, n == 2 ? 1 : 2);
		r = price(PLAN_OP_BROADCAST, PLAN_TREE, n, 10, 1000, 1, 0);
		CU_ASSERT(r.time < rounds + 1.5);
		CU_ASSERT_EQUAL(r.max_received, 10 * F32);
		CU_ASSERT_EQUAL(r.max_peers, rounds);
		r = price(PLAN_OP_ALLREDUCE, PLAN_TREE, n, 10, 1000, 1, 0);
		CU_ASSERT(r.time < 2 * rounds + 1.5);
		CU_ASSERT_EQUAL(r.max_sent, rounds * 10 * F32);
		r = price(PLAN_OP_BARRIER, PLAN_DISSEMINATION, n, 0, 1, 1, 0);
		CU_ASSERT(near(r.time, rounds));
		r = price(PLAN_OP_ALLREDUCE, PLAN_SHARDED, n, m * 10, 1000, 1,
			  0);
		CU_ASSERT_EQUAL(r.max_peers, m - 1);
		CU_ASSERT_EQUAL(r.max_sent, 2 * (m - 1) * 10 * F32);
		CU_ASSERT_EQUAL(r.peak_fan_in, m - 1);
	}
}

/* Partial sums of 16-bit types travel wide, raw and finished ones do not. */
static void widths(void)
{
	struct sim_options opts =
		dry(PLAN_OP_ALLREDUCE, PLAN_RING, 4, 400, 1000);
	struct sim_result r;

	opts.type = VBN_BFLOAT16;
	r = price_of(&opts);
	CU_ASSERT_EQUAL(r.max_sent, 100 * (2 + 2 * 4 + 3 * 2));
	opts.wire16 = true;
	r = price_of(&opts);
	CU_ASSERT_EQUAL(r.max_sent, 100 * 6 * 2);
}

/* Pipelining brings the ring to its bound, and a broadcast near. */
static void pipelining(void)
{
	const uint64_t count = 1 << 22;
	double bytes = (double)count * F32;
	struct sim_result r;

	r = price(PLAN_OP_ALLREDUCE, PLAN_RING, 8, count, 1 << 14, 1e-6, 1e-10);
	CU_ASSERT(r.time < 1.1 * 2 * 7 / 8 * bytes * 1e-10);
	CU_ASSERT(r.time > 2.0 * 7 / 8 * bytes * 1e-10);
	r = price(PLAN_OP_BROADCAST, PLAN_TREE, 2, count, 1 << 14, 1e-6, 1e-10);
	CU_ASSERT(r.time < 1.1 * bytes * 1e-10);
}

/* A ring over two leaves: one flow up and one down each. */
static void fabrics(void)
{
	static const int same_host[8] = {0, 0, 0, 0, 1, 1, 1, 1};
	static const double slow[8] = {1, 1, 1, 5, 1, 1, 1, 1};
	struct sim_options opts =
		dry(PLAN_OP_ALLREDUCE, PLAN_RING, 8, 1 << 20, 1 << 12);
	struct sim_fabric fabric = {.leaf_hosts = 4, .oversubscription = 4};
	double flat;

	opts.beta = 1e-9;
	flat = price_of(&opts).time;
	opts.fabric = &fabric;
	CU_ASSERT(near(price_of(&opts).time, flat));
	fabric.oversubscription = 16;
	CU_ASSERT(price_of(&opts).time > 3 * flat);
	CU_ASSERT(price_of(&opts).time < 4.5 * flat);
	/* All to all at once: the ways up carry half of it. */
	opts.shape.algorithm = PLAN_SHARDED;
	fabric.oversubscription = 1;
	flat = price_of(&opts).time;
	fabric.oversubscription = 4;
	CU_ASSERT(price_of(&opts).time > 1.5 * flat);
	/* Within hosts it is faster; four ranks of a host share one way out. */
	opts.shape.algorithm = PLAN_RING;
	fabric = (struct sim_fabric){.host = same_host, .local_beta = 1e-10};
	flat = price_of(&opts).time;
	fabric.shared_interface = true;
	CU_ASSERT(near(price_of(&opts).time, flat));
	opts.shape.algorithm = PLAN_SHARDED;
	flat = price_of(&opts).time;
	fabric.shared_interface = false;
	CU_ASSERT(price_of(&opts).time < 0.5 * flat);
	/* One rank that is five times as slow. */
	opts.fabric = NULL;
	opts.shape.algorithm = PLAN_RING;
	flat = price_of(&opts).time;
	opts.slowness = slow;
	CU_ASSERT(price_of(&opts).time > 4 * flat);
	CU_ASSERT(price_of(&opts).time < 6 * flat);
}

/* What a message and a call take whatever the size. */
static void handling(void)
{
	struct sim_options opts = dry(PLAN_OP_ALLREDUCE, PLAN_RING, 8, 8, 8);
	double without;

	opts.overhead = 1;
	CU_ASSERT(near(price_of(&opts).time, 2 * 7));
	opts.alpha = 0.5;
	CU_ASSERT(near(price_of(&opts).time, 2 * 7 * 1.5));
	/* Seven to each: one after the other. */
	opts.shape.algorithm = PLAN_ONESHOT;
	CU_ASSERT(near(price_of(&opts).time, 7 + 0.5));
	opts.call = 3;
	without = price_of(&opts).time - 3;
	CU_ASSERT(near(without, 7 + 0.5));
}

/* Within a host who copies does not sum meanwhile; between hosts it may. */
static void one_processor_each(void)
{
	static const int host[2] = {0, 0};
	struct sim_fabric fabric = {.host = host,
				    .local_alpha = 0.25,
				    .local_overhead = 0.5,
				    .local_beta = 1};
	struct sim_options opts =
		dry(PLAN_OP_ALLREDUCE, PLAN_ONESHOT, 2, 16000, 1000);
	double bytes = 16000 * F32;

	opts.gamma = 2;
	opts.beta = 1;
	CU_ASSERT(near(price_of(&opts).time, 1000 * F32 + 2 * bytes));
	opts.fabric = &fabric;
	opts.alpha = 1e9; /* nothing goes that way, nor what gives slots back */
	/* Each message is handled by its sender and by its receiver. */
	CU_ASSERT(near(price_of(&opts).time, 3 * bytes + 16 * 2 * 0.5));
	opts.shape.count = 1;
	CU_ASSERT(near(price_of(&opts).time, 3 * F32 + 2 * 0.5 + 0.25));
	/* To copy from a peer is to put to it, and no sum. */
	opts.shape.operation = PLAN_OP_ALLGATHER;
	opts.shape.algorithm = PLAN_MAPPED;
	opts.shape.count = 1000;
	opts.gamma = 0;
	CU_ASSERT(near(price_of(&opts).time, 1000 * F32 + 2 * 1.25));
}

/* More ranks than processors. */
static void turns(void)
{
	static const int host[8] = {0};
	struct sim_fabric fabric = {.host = host, .processors = 1, .wake = 1};
	struct sim_options opts =
		dry(PLAN_OP_BARRIER, PLAN_DISSEMINATION, 2, 0, 1);
	double own;

	opts.warm = true;
	opts.fabric = &fabric;
	/* The first puts and waits; the second is done; the first is. */
	CU_ASSERT(near(price_of(&opts).time, 2));
	/* A message that comes before its turn need not wait for one more. */
	fabric.local_alpha = 0.5;
	CU_ASSERT(near(price_of(&opts).time, 2));
	/* The second's turns begin at 1 and 3, the first's at 0, 2 and 4. */
	fabric.local_alpha = 2.5;
	CU_ASSERT(near(price_of(&opts).time, 4));
	fabric.processors = 2;
	CU_ASSERT(near(price_of(&opts).time, 2.5));
	/* Work takes as many times as long as there are ranks to one. */
	opts = dry(PLAN_OP_ALLREDUCE, PLAN_SHARDED, 8, 8000, 1000);
	opts.fabric = &fabric;
	opts.gamma = 1;
	fabric = (struct sim_fabric){
		.host = host, .processors = 8, .local_beta = 1};
	own = price_of(&opts).time;
	fabric.processors = 0;
	CU_ASSERT(near(price_of(&opts).time, own));
	fabric.processors = 2;
	CU_ASSERT(near(price_of(&opts).time, 4 * own));
	fabric.processors = 3;
	CU_ASSERT(price_of(&opts).time > 2.6 * own);
	CU_ASSERT(price_of(&opts).time < 3.01 * own);
}

/* B3: offsets, waits and puts beyond 32 bits agree. */
static void above_32_bits(enum plan_operation operation,
			  enum plan_algorithm algorithm,
			  const struct plan_algo *algo)
{
	const uint64_t count = (UINT64_C(1) << 31) + 5;
	static const int order[] = {0, 1, 2, 3, 4};
	static const struct plan_topology each = {4, order, order, order,
						  order};

	for (int n = algorithm == PLAN_LOCAL ? 1 : 3;
	     n <= (algorithm == PLAN_LOCAL ? 1 : 4); n++) {
		struct sim_options opts =
			dry(operation, algorithm, n, count, UINT64_C(1) << 24);
		struct plan_topology topology = each;
		struct sim_result r;

		topology.hosts = n;
		opts.shape.topology = &topology;
		if (algo->power_of_two && n == 3)
			continue;
		r = price_of(&opts);
		if (operation != PLAN_OP_BARRIER && n > 1 && !algo->mapped)
			CU_ASSERT(r.max_received >= count);
	}
}

static void huge(void)
{
	coll_for_all(above_32_bits);
}

/* Many ranks: what a pair needs is only there for pairs that talk. */
static void many(void)
{
	struct sim_options opts =
		dry(PLAN_OP_ALLREDUCE, PLAN_TREE, 16384, 1000, 1000);
	struct sim_result r;

	opts.slots = 1;
	opts.alpha = 1;
	r = price_of(&opts);
	CU_ASSERT_EQUAL(r.max_peers, 14);
	CU_ASSERT_EQUAL(r.pairs, 2 * 16383);
	opts.shape.algorithm = PLAN_DOUBLING;
	r = price_of(&opts);
	CU_ASSERT_EQUAL(r.max_peers, 14);
	opts.shape.algorithm = PLAN_SHARDED;
	opts.shape.n = 256;
	r = price_of(&opts);
	CU_ASSERT_EQUAL(r.max_peers, 255);
	CU_ASSERT_EQUAL(r.messages, 2 * 256 * 255);
}

static void refusals(void)
{
	struct sim_options opts = dry(PLAN_OP_ALLREDUCE, PLAN_RING, 2, 1, 1);
	struct sim_fabric fabric = {.leaf_hosts = 1};
	struct sim_options bad;
	struct sim_result result;

	CU_ASSERT_EQUAL(sim_run(&opts, &result), 0);
	bad = opts;
	bad.window = 0;
	CU_ASSERT_EQUAL(sim_run(&bad, &result), -EINVAL);
	bad.window = 65;
	CU_ASSERT_EQUAL(sim_run(&bad, &result), -EINVAL);
	bad = opts;
	bad.slots = 0;
	CU_ASSERT_EQUAL(sim_run(&bad, &result), -EINVAL);
	bad = opts;
	bad.shape.n = 0;
	CU_ASSERT_EQUAL(sim_run(&bad, &result), -EINVAL);
	bad = opts;
	bad.shape.chunk = 0;
	CU_ASSERT_EQUAL(sim_run(&bad, &result), -EINVAL);
	bad = opts;
	bad.type = VBN_TYPES;
	CU_ASSERT_EQUAL(sim_run(&bad, &result), -EINVAL);
	bad = opts;
	bad.reduction = VBN_AND;
	CU_ASSERT_EQUAL(sim_run(&bad, &result), -EOPNOTSUPP);
	bad = opts;
	bad.shape.algorithm = PLAN_DISSEMINATION;
	CU_ASSERT_EQUAL(sim_run(&bad, &result), -EOPNOTSUPP);
	bad = opts;
	bad.fabric = &fabric;
	CU_ASSERT_EQUAL(sim_run(&bad, &result), -EINVAL);
}

static CU_TestInfo tests[] = {
	{"as in the literature", literature},
	{"widths", widths},
	{"pipelining", pipelining},
	{"fabrics", fabrics},
	{"handling of messages and calls", handling},
	{"a processor for each rank", one_processor_each},
	{"ranks take turns", turns},
	{"beyond 32 bits", huge},
	{"many ranks", many},
	{"refusals", refusals},
	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"prices", NULL, NULL, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	return run_suites(suites);
}
