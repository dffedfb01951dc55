/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives between processes: run it under verbena-run with any number of
 * ranks and any provider. A line per case, "ok" or "not ok" with the places;
 * exits 1 if a case failed here. `coll death` is run apart: the last rank is
 * killed in mid call. COLL_THREAD in the environment: with a progress thread.
 */
#include "coll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
	const char *name;
	void (*run)(struct test *t);
	bool apart; /* only when named */
} cases[] = {
	{"allreduce", case_allreduce, false},
	{"large", case_large, false},
	{"broadcast", case_broadcast, false},
	{"barrier", case_barrier, false},
	{"tight", case_tight, false},
	{"nothing", case_nothing, false},
	{"offered", case_offered, false},
	{"matrix", case_matrix, false},
	{"blocking", case_blocking, false},
	{"parts", case_parts, false},
	{"bits", case_bits, false},
	{"reproducible", case_reproducible, false},
	{"nan", case_nan, false},
	{"average", case_average, false},
	{"user", case_user, false},
	{"groups", case_groups, false},
	{"split", case_split, false},
	{"interleaved", case_interleaved, false},
	{"in-flight", case_in_flight, false},
	{"mixed-in-flight", case_mixed_in_flight, false},
	{"late-in-flight", case_late_in_flight, false},
	{"later-first", case_later_first, false},
	{"test-loop", case_test_loop, false},
	{"thread", case_thread, false},
	{"thread-leaves", case_thread_leaves, false},
	{"thread-sleeps", case_thread_sleeps, false},
	{"thread-aborts", case_thread_aborts, false},
	{"thread-in-handler", case_thread_in_handler, false},
	{"many-comms", case_many_comms, false},
	{"before-creation", case_before_creation, false},
	{"uncreated", case_uncreated, false},
	{"leaks", case_leaks, false},
	{"run-ahead", case_run_ahead, false},
	{"last-call", case_last_call, false},
	{"arguments", case_arguments, false},
	{"environment", case_environment, false},
	{"missing", case_missing, false},
	{"late", case_late, false},
	{"count-differs", case_count_differs, false},
	{"operation-differs", case_operation_differs, false},
	{"others-differ", case_others_differ, false},
	{"root-differs", case_root_differs, false},
	{"parts-differ", case_parts_differ, false},
	{"returned-early", case_returned_early, false},
	{"freed-in-flight", case_freed_in_flight, false},
	{"context-closed", case_context_closed, false},
	{"in-callback", case_in_callback, false},
	{"abort", case_abort, false},
	{"huge", case_huge, true},
	{"death", case_death, true},
};

bool expect(struct test *t, bool ok, const char *file, int line,
	    const char *what)
{
	if (!ok && t->failures++ < 10)
		printf("# rank %d, %s:%d: %s (%s)\n", t->rank, file, line, what,
		       vbn_error());
	return ok;
}

void all_here(struct test *t)
{
	EXPECT(t, vbn_job_fence(t->job, WAIT_MS) == 0);
}

static bool wanted(int argc, char **argv, const char *name, bool apart)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return argc == 1 && !apart;
}

static int setup(struct test *t)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL};
	const char *provider = getenv("VBN_PROVIDER");

	if (vbn_job_open(&t->job, NULL))
		return -1;
	t->rank = vbn_job_rank(t->job);
	t->n = vbn_job_size(t->job);
	t->shares = provider && !strcmp(provider, "shm");
	if (vbn_ctx_open(&t->ctx, t->job, NULL) ||
	    vbn_pool_create(&t->pool, t->job, &opts) || !block_make(t) ||
	    vbn_comm_create(&t->world, t->ctx, NULL, 0, NULL))
		return -1;
	if (getenv("COLL_THREAD") && vbn_coll_thread_start(t->ctx, NULL))
		return -1;
	return 0;
}

static int run_all(struct test *t, int argc, char **argv)
{
	int failed = 0, ran = 0;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		if (!wanted(argc, argv, cases[i].name, cases[i].apart))
			continue;
		t->failures = 0;
		cases[i].run(t);
		ran++;
		if (t->failures) {
			failed++;
			printf("not ok %s: rank %d, %d failures\n",
			       cases[i].name, t->rank, t->failures);
		} else if (t->rank == 0) {
			printf("ok %s\n", cases[i].name);
		}
		fflush(stdout);
	}
	if (ran == 0)
		fprintf(stderr, "no such case\n");
	return failed > 0 || ran == 0;
}

int main(int argc, char **argv)
{
	struct test t = {0};
	int failed;

	if (setup(&t)) {
		fprintf(stderr, "not ok setup: %s\n", vbn_error());
		return 1;
	}
	failed = run_all(&t, argc, argv);
	vbn_comm_free(t.world);
	block_drop(&t);
	vbn_pool_destroy(t.pool);
	vbn_ctx_close(t.ctx);
	if (vbn_job_close(t.job)) {
		fprintf(stderr, "not ok close: %s\n", vbn_error());
		return 1;
	}
	return failed;
}
