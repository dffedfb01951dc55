/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the simulator is worth: plans that break one rule each are found out,
 * both small ones written here and real algorithms with one step changed.
 */
#include "coll_case.h"

#include "cunit_run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NO_DEPS                                                                \
	{                                                                      \
		PLAN_NO_STEP, PLAN_NO_STEP                                     \
	}
#define AFTER(step)                                                            \
	{                                                                      \
		step, PLAN_NO_STEP                                             \
	}
#define IN   PLAN_INPUT
#define OUT  PLAN_OUTPUT
#define LAND PLAN_LANDING

enum { STEPS = 8, COUNT = 4 };

/* A plan of two ranks, as it is written down. */
static const struct plan_step (*script)[STEPS];

static bool next_of_script(struct plan_page *page, struct plan_step *step)
{
	const struct plan_step *s = &script[page->shape.rank][page->next];

	if (page->next == STEPS || (s->kind == PLAN_NONE && s->len == 0))
		return false;
	*step = *s;
	return true;
}

static const struct plan_page_ops script_ops = {NULL, next_of_script};

static bool script_phase(const struct plan_shape *shape, unsigned i,
			 struct plan_phase *phase)
{
	*phase = plan_whole(shape, &script_ops);
	return i == 0;
}

static const struct plan_algo script_algo = {.phase = script_phase};
static const struct plan_algo greeting_algo = {.phase = script_phase,
					       .greets = true};

/* Runs it as a broadcast from rank 0 of COUNT float32. */
static int run_script(const struct plan_step steps[2][STEPS],
		      const struct plan_algo *algo, unsigned window,
		      struct sim_result *result, uint64_t seed)
{
	static float in[2][COUNT], out[2][COUNT];
	static const void *ins[] = {in[0], in[1]};
	static void *outs[] = {out[0], out[1]};
	struct sim_options opts = {
		.shape = {.operation = PLAN_OP_BROADCAST,
			  .algorithm = PLAN_TREE,
			  .n = 2,
			  .count = COUNT,
			  .chunk = COUNT},
		.algo = algo,
		.type = VBN_FLOAT32,
		.window = window,
		.slots = 1,
		.direct = true,
		.seed = seed,
		.in = ins,
		.out = outs,
	};

	script = steps;
	for (int i = 0; i < COUNT; i++) {
		in[0][i] = (float)i;
		in[1][i] = (float)-i;
	}
	return sim_run(&opts, result);
}

/* Within @seeds orders of events it must end with @err, saying @why. */
static void must_fail(const struct plan_step steps[2][STEPS],
		      const struct plan_algo *algo, unsigned window,
		      uint64_t seeds, int err, const char *why)
{
	struct sim_result result = {.why = ""};
	int got = 0;

	for (uint64_t seed = 0; seed < seeds && !got; seed++)
		got = run_script(steps, algo, window, &result, seed);
	if (got != err || !strstr(result.why, why))
		fprintf(stderr, "%d, not %d \"%s\": %s\n", got, err, why,
			result.why);
	CU_ASSERT_EQUAL(got, err);
	CU_ASSERT(strstr(result.why, why) != NULL);
}

static const struct plan_step right_one[2][STEPS] = {
	{
		{.kind = PLAN_PUT,
		 .peer = 1,
		 .dst = OUT,
		 .len = COUNT,
		 .dep = NO_DEPS},
	},
	{
		{.kind = PLAN_OPEN,
		 .dst = OUT,
		 .src = LAND,
		 .len = COUNT,
		 .dep = NO_DEPS},
		{.kind = PLAN_WAIT, .dst = OUT, .len = COUNT, .dep = NO_DEPS},
	},
};

static void a_right_one(void)
{
	struct sim_result result;

	for (uint64_t seed = 0; seed < 20; seed++)
		for (unsigned window = 1; window <= 64; window += 63)
			CU_ASSERT_EQUAL(run_script(right_one, &script_algo,
						   window, &result, seed),
					0);
	CU_ASSERT_EQUAL(result.max_sent, COUNT * sizeof(float));
	CU_ASSERT_EQUAL(result.max_peers, 1);
}

/* Both wait before they put: fine out of order, stops in order. */
static void deadlock(void)
{
	static struct plan_step steps[2][STEPS];
	struct sim_result result;

	for (int r = 0; r < 2; r++) {
		steps[r][0] = (struct plan_step){.kind = PLAN_OPEN,
						 .peer = !r,
						 .src = LAND,
						 .dst = LAND,
						 .dep = NO_DEPS};
		steps[r][1] = (struct plan_step){.kind = PLAN_WAIT,
						 .peer = !r,
						 .dst = LAND,
						 .dep = NO_DEPS};
		steps[r][2] = (struct plan_step){.kind = PLAN_PUT,
						 .peer = !r,
						 .dst = LAND,
						 .dep = NO_DEPS};
	}
	CU_ASSERT_EQUAL(run_script(steps, &script_algo, 64, &result, 0), 0);
	must_fail(steps, &script_algo, 1, 1, -EDEADLK, "stops");
}

static void changed_script(int rank, int number, struct plan_step step,
			   const struct plan_algo *algo, int err,
			   const char *why)
{
	struct plan_step steps[2][STEPS];

	memcpy(steps, right_one, sizeof(steps));
	steps[rank][number] = step;
	must_fail(steps, algo, 64, 40, err, why);
}

static void small_ones(void)
{
	const struct plan_step put = right_one[0][0], wait = right_one[1][1];
	struct plan_step step = put;

	/* Nobody waits for the second. */
	step.len = 0;
	changed_script(0, 1, step, &script_algo, -EPROTO, "left over");
	/* The second never comes. */
	changed_script(1, 2, wait, &script_algo, -EDEADLK, "stops");
	step = put;
	step.src_off = 1;
	changed_script(0, 0, step, &script_algo, -EPROTO, "does not exist");
	step = put;
	step.dst_off = 1;
	changed_script(0, 0, step, &script_algo, -EPROTO, "does not exist");
	step.len--;
	changed_script(0, 0, step, &script_algo, -EPROTO, "differ");
	step = right_one[1][0];
	step.dst = LAND;
	changed_script(1, 0, step, &script_algo, -EPROTO, "without open");
	changed_script(0, 0, put, &greeting_algo, -EPROTO, "greeting");
	/* The receiver writes where the put writes. */
	step = (struct plan_step){
		.kind = PLAN_COPY, .dst = OUT, .len = 1, .dep = NO_DEPS};
	changed_script(1, 2, step, &script_algo, -EPROTO,
		       "changed before the wait");
}

/* The source of a put changes while it may still be read. */
static void source_overwritten(void)
{
	static struct plan_step steps[2][STEPS];
	struct sim_result result;

	memcpy(steps, right_one, sizeof(steps));
	steps[0][0].src = OUT;
	steps[0][1] = (struct plan_step){
		.kind = PLAN_COPY, .dst = OUT, .len = COUNT, .dep = AFTER(0)};
	must_fail(steps, &script_algo, 64, 40, -EPROTO, "source changed");
	steps[0][0].flags = PLAN_SYNC;
	for (uint64_t seed = 0; seed < 40; seed++)
		CU_ASSERT_EQUAL(
			run_script(steps, &script_algo, 64, &result, seed), 0);
}

/* Rank 1 reads rank 0's INPUT; without a farewell rank 0 may have ended. */
static void read_after_end(void)
{
	static struct plan_step steps[2][STEPS] = {
		{
			{.kind = PLAN_OPEN,
			 .peer = 1,
			 .src = IN,
			 .dst = LAND,
			 .dep = NO_DEPS},
			{.kind = PLAN_WAIT,
			 .peer = 1,
			 .dst = LAND,
			 .dep = NO_DEPS},
		},
		{
			{.kind = PLAN_COPY_PEER,
			 .src = IN,
			 .dst = OUT,
			 .len = COUNT,
			 .dep = NO_DEPS},
			{.kind = PLAN_PUT, .dst = LAND, .dep = AFTER(0)},
		},
	};
	struct sim_result result;

	for (uint64_t seed = 0; seed < 40; seed++)
		CU_ASSERT_EQUAL(
			run_script(steps, &script_algo, 64, &result, seed), 0);
	CU_ASSERT_EQUAL(result.max_read, COUNT * sizeof(float));
	steps[1][1].dep[0] = PLAN_NO_STEP;
	must_fail(steps, &script_algo, 64, 100, -EPROTO, "had ended");
	/* Not opened for reading. */
	steps[0][0].src = LAND;
	must_fail(steps, &script_algo, 64, 1, -EDEADLK, "stops");
}

/* ---- real algorithms with something changed ---- */

/* Changes a step, of number @number in its page; true: it was the one. */
static bool (*change)(const struct plan_shape *shape, uint64_t number,
		      struct plan_step *step);
static const struct plan_algo *base;
static const struct plan_page_ops *base_ops;
static bool changed;

static void begin_base(struct plan_page *page)
{
	if (base_ops->begin)
		base_ops->begin(page);
}

static bool next_changed(struct plan_page *page, struct plan_step *step)
{
	uint64_t number = page->next;

	if (!base_ops->next(page, step))
		return false;
	changed |= change(&page->shape, number, step);
	return true;
}

static const struct plan_page_ops changed_ops = {begin_base, next_changed};

static bool changed_phase(const struct plan_shape *shape, unsigned i,
			  struct plan_phase *phase)
{
	if (!base->phase(shape, i, phase))
		return false;
	if (phase->ops) {
		base_ops = phase->ops;
		phase->ops = &changed_ops;
	}
	return true;
}

static uint64_t base_scratch(const struct plan_shape *shape)
{
	return base->scratch ? base->scratch(shape) : 0;
}

/* -EPROTO, -EBADMSG or -EDEADLK in one of the orders of events. */
static void must_notice(enum plan_operation operation,
			enum plan_algorithm algorithm, enum vbn_type type,
			bool (*what)(const struct plan_shape *, uint64_t,
				     struct plan_step *),
			const char *name)
{
	const struct plan_algo *found = plan_find(operation, algorithm);
	struct plan_algo algo = *found;
	struct coll_case c = {
		.shape = {.operation = operation,
			  .algorithm = algorithm,
			  .n = 5,
			  .count = 103,
			  .chunk = 7},
		.algo = &algo,
		.type = type,
		.reduction = VBN_SUM,
		.window = 64,
		.slots = 4,
		.direct = true,
	};
	char why[600] = "";
	int err = 0;

	algo.phase = changed_phase;
	algo.scratch = base_scratch;
	base = found;
	change = what;
	changed = false;
	for (c.seed = 0; c.seed < 300 && !err; c.seed++)
		err = coll_case_run(&c, why, sizeof(why));
	if (err != -EPROTO && err != -EBADMSG && err != -EDEADLK)
		fprintf(stderr, "%s %s: %d %s\n", plan_name(algorithm), name,
			err, why);
	CU_ASSERT(changed);
	CU_ASSERT(err == -EPROTO || err == -EBADMSG || err == -EDEADLK);
}

static bool no_wait(const struct plan_shape *shape, uint64_t number,
		    struct plan_step *step)
{
	if (shape->rank != 1 || step->kind != PLAN_WAIT || number < 9)
		return false;
	step->kind = PLAN_NONE;
	return true;
}

static bool no_put(const struct plan_shape *shape, uint64_t number,
		   struct plan_step *step)
{
	if (shape->rank != 2 || step->kind != PLAN_PUT || number < 9)
		return false;
	step->kind = PLAN_NONE;
	return true;
}

static bool no_open(const struct plan_shape *shape, uint64_t number,
		    struct plan_step *step)
{
	(void)number;
	if (shape->rank != 1 || step->kind != PLAN_OPEN)
		return false;
	step->kind = PLAN_NONE;
	return true;
}

/* A segment is sent in the place of another. */
static bool other_segment(const struct plan_shape *shape, uint64_t number,
			  struct plan_step *step)
{
	if (shape->rank != 1 || step->kind != PLAN_PUT || number < 9 ||
	    step->src_off < 1)
		return false;
	step->src_off--;
	return true;
}

static bool too_early(const struct plan_shape *shape, uint64_t number,
		      struct plan_step *step)
{
	(void)number;
	if (shape->rank != 2 || step->kind != PLAN_PUT ||
	    (step->dep[0] == PLAN_NO_STEP && step->after == 0))
		return false;
	step->dep[0] = step->dep[1] = PLAN_NO_STEP;
	step->after = 0;
	return true;
}

static bool reduce_too_early(const struct plan_shape *shape, uint64_t number,
			     struct plan_step *step)
{
	(void)number;
	if (shape->rank != 0 ||
	    (step->kind != PLAN_REDUCE && step->kind != PLAN_REDUCE_ALL))
		return false;
	step->dep[0] = step->dep[1] = PLAN_NO_STEP;
	step->after = 0;
	return true;
}

/* What a put out of SCRATCH is read from is used again at once. */
static bool not_sync(const struct plan_shape *shape, uint64_t number,
		     struct plan_step *step)
{
	(void)shape;
	(void)number;
	if (!(step->flags & PLAN_SYNC))
		return false;
	step->flags &= (uint8_t)~PLAN_SYNC;
	return true;
}

static bool not_wide(const struct plan_shape *shape, uint64_t number,
		     struct plan_step *step)
{
	(void)shape;
	(void)number;
	if (!(step->flags & PLAN_WIDE))
		return false;
	step->flags &= (uint8_t)~PLAN_WIDE;
	return true;
}

static bool not_finished(const struct plan_shape *shape, uint64_t number,
			 struct plan_step *step)
{
	if (step->dst != PLAN_OUTPUT || shape->rank != 1 || number < 5 ||
	    (step->kind != PLAN_REDUCE && step->kind != PLAN_WAIT))
		return false;
	step->dst_off ^= 1;
	return true;
}

static void real_ones(void)
{
	static const struct {
		bool (*change)(const struct plan_shape *, uint64_t,
			       struct plan_step *);
		const char *name;
	} changes[] = {
		{no_wait, "a wait is missing"},
		{no_put, "a put is missing"},
		{no_open, "an open is missing"},
		{other_segment, "another segment"},
		{too_early, "a put too early"},
		{reduce_too_early, "a reduction too early"},
		{not_finished, "somewhere else in OUTPUT"},
	};

	for (size_t i = 0; i < sizeof(changes) / sizeof(*changes); i++) {
		must_notice(PLAN_OP_ALLREDUCE, PLAN_RING, VBN_FLOAT32,
			    changes[i].change, changes[i].name);
		must_notice(PLAN_OP_ALLREDUCE, PLAN_TREE, VBN_FLOAT32,
			    changes[i].change, changes[i].name);
	}
	must_notice(PLAN_OP_ALLREDUCE, PLAN_RING, VBN_BFLOAT16, not_sync,
		    "not sync");
	must_notice(PLAN_OP_ALLREDUCE, PLAN_TREE, VBN_BFLOAT16, not_sync,
		    "not sync");
	must_notice(PLAN_OP_ALLREDUCE, PLAN_RING, VBN_BFLOAT16, not_wide,
		    "not wide");
	must_notice(PLAN_OP_ALLREDUCE, PLAN_TREE, VBN_FLOAT16, not_wide,
		    "not wide");
	must_notice(PLAN_OP_ALLREDUCE, PLAN_SHARDED, VBN_FLOAT32,
		    reduce_too_early, "a reduction too early");
}

static CU_TestInfo tests[] = {
	{"a right one", a_right_one},
	{"deadlock", deadlock},
	{"small ones", small_ones},
	{"a source overwritten", source_overwritten},
	{"read after the end", read_after_end},
	{"real ones", real_ones},
	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"broken plans", NULL, NULL, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	return run_suites(suites);
}
