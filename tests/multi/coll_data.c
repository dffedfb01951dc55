/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sizes of collectives: every algorithm of allreduce by itself, much data,
 * small landing slots, roots that run ahead, nothing at all.
 */
#include "coll.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_allreduce(struct test *t, struct vbn_comm *comm,
			    enum vbn_type type, size_t count,
			    enum memory memory, bool in_place, int rounds,
			    const struct vbn_coll_options *opts)
{
	const struct asked asked = {.n = vbn_comm_size(comm)};
	struct spec spec = {.operation = ALLREDUCE,
			    .type = type,
			    .in_place = in_place,
			    .by_null = in_place,
			    .count = count,
			    .opts = *opts,
			    .salt = (unsigned)count};

	spec_check(t, comm, &spec, memory, memory, rounds,
		   method_status(t, method_find(ALLREDUCE, opts->algorithm),
				 &asked));
}

void case_allreduce(struct test *t)
{
	size_t n = (size_t)t->n;
	const size_t counts[] = {0, 1, n - 1, n, n + 1, 1000, 65537};

	for (int a = 0; a < VBN_ALGORITHMS; a++)
		for (int m = 0; m < MEMORIES; m++)
			for (size_t c = 0; c < 7; c++) {
				struct vbn_coll_options opts = {
					.size = sizeof(opts),
					.algorithm = (enum vbn_algorithm)a};

				check_allreduce(t, t->world,
						m & 1 ? VBN_FLOAT32
						      : VBN_FLOAT64,
						counts[c], (enum memory)m,
						(m ^ (int)c) & 1, 2, &opts);
			}
}

/* 8 MiB: many chunks of the largest size. */
void case_large(struct test *t)
{
	for (int a = 0; a < VBN_ALGORITHMS; a++) {
		struct vbn_coll_options opts = {.size = sizeof(opts),
						.algorithm =
							(enum vbn_algorithm)a};

		check_allreduce(t, t->world, VBN_FLOAT32, (size_t)2 << 20,
				a & 1 ? POOL : HEAP, a & 2, 1, &opts);
	}
}

/* 64 MiB, and parts of 64 MiB together. */
void case_huge(struct test *t)
{
	static const enum operation operations[] = {
		ALLREDUCE, BROADCAST, ALLGATHER, REDUCE_SCATTER, ALLTOALL};

	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
		size_t parts = operations[i] > BROADCAST ? (size_t)t->n : 1;
		struct spec spec = {.operation = operations[i],
				    .type = VBN_FLOAT32,
				    .in_place = operations[i] != ALLTOALL,
				    .count = ((size_t)16 << 20) / parts + 3,
				    .opts = {.size = sizeof(spec.opts)}};

		spec_check(t, t->world, &spec, POOL, i ? POOL : HEAP, 1, 0);
	}
}

/* Small windows, one landing slot, small slots. */
void case_tight(struct test *t)
{
	for (unsigned slots = 1; slots <= 3; slots++) {
		struct vbn_comm_options tight = {.size = sizeof(tight),
						 .landing_bytes = 1024,
						 .slots = slots};
		struct vbn_comm *comm;

		if (!EXPECT(t, vbn_comm_create(&comm, t->ctx, NULL, 0,
					       &tight) == 0))
			return;
		for (unsigned w = 1; w <= 9; w += 4)
			for (int a = 0; a < VBN_ALGORITHMS; a++) {
				struct vbn_coll_options opts = {
					.size = sizeof(opts),
					.algorithm = (enum vbn_algorithm)a,
					.chunk = 300 * w,
					.window = w};

				check_allreduce(t, comm, VBN_FLOAT32, 7001,
						POOL, a & 1, 2, &opts);
				check_allreduce(t, comm, VBN_FLOAT64, 8009,
						HEAP, !(a & 1), 2, &opts);
			}
		vbn_comm_free(comm);
	}
}

static void check_broadcast(struct test *t, int root, size_t count,
			    enum memory memory)
{
	struct spec spec = {.operation = BROADCAST,
			    .type = VBN_FLOAT64,
			    .root = root,
			    .count = count,
			    .opts = {.size = sizeof(spec.opts)}};

	spec_check(t, t->world, &spec, memory, memory, 2, 0);
}

void case_broadcast(struct test *t)
{
	const size_t counts[] = {0, 1, 1000, 65537};

	for (int root = 0; root < t->n; root++)
		for (int m = 0; m < MEMORIES; m++)
			for (size_t c = 0; c < 4; c++)
				check_broadcast(t, root, counts[c],
						(enum memory)m);
	/* The root runs ahead of the others. */
	for (int i = 0; i < 100; i++)
		check_broadcast(t, 0, 100, POOL);
}

/* Nobody leaves before the last has come; the clock is the machine's. */
void case_barrier(struct test *t)
{
	double *times = calloc(2 * (size_t)t->n, sizeof(*times));
	double last = 0;

	EXPECT(t, times != NULL);
	if (!times)
		return;
	for (int late = 0; late < t->n; late++) {
		memset(times, 0, 2 * (size_t)t->n * sizeof(*times));
		if (t->rank == late)
			usleep(20000);
		times[2 * t->rank] = now_ms();
		EXPECT(t, vbn_barrier(t->world, WAIT_MS) == 0);
		times[2 * t->rank + 1] = now_ms();
		EXPECT(t, vbn_allreduce(t->world, NULL, times, 2 * (size_t)t->n,
					VBN_FLOAT64, VBN_SUM, WAIT_MS) == 0);
		last = times[2 * late];
		for (int r = 0; r < t->n; r++)
			EXPECT(t, times[2 * r + 1] >= last);
	}
	for (int i = 0; i < 1000; i++)
		EXPECT(t, vbn_barrier(t->world, WAIT_MS) == 0);
	free(times);
}

/* Count 0 and NULL (B1): at once, while the others have not even come. */
static void check_nothing(struct test *t, struct vbn_comm *comm,
			  const struct method *method)
{
	const struct asked asked = {.n = t->n};
	struct spec spec = {.operation = method->operation,
			    .type = VBN_INT32,
			    .root = t->n - 1,
			    .opts = {.size = sizeof(spec.opts),
				     .algorithm = method->algorithm},
			    .rank = t->rank,
			    .n = t->n};
	struct vbn_coll *coll = NULL;

	if (!EXPECT(t, spec_init(comm, &spec, NULL, NULL, &coll) ==
			       method_status(t, method, &asked)) ||
	    !coll)
		return;
	if (!EXPECT(t, vbn_coll_start(coll) == 0) ||
	    !EXPECT(t, vbn_coll_test(coll) == 0))
		printf("# %s %s\n", operation_name(method->operation),
		       vbn_algorithm_name(method->algorithm));
	EXPECT(t, vbn_coll_wait(coll, WAIT_MS) == 0);
	vbn_coll_free(coll);
}

void case_nothing(struct test *t)
{
	for (int turn = 0; turn < t->n; turn++) {
		struct vbn_comm *comm = make_comm(t);

		all_here(t);
		/* One rank alone, the others wait for it elsewhere. */
		for (int i = 0; t->rank == turn && i < method_count(); i++)
			if (method_at(i)->operation != BARRIER)
				check_nothing(t, comm, method_at(i));
		all_here(t);
		for (int i = 0; t->rank != turn && i < method_count(); i++)
			if (method_at(i)->operation != BARRIER)
				check_nothing(t, comm, method_at(i));
		EXPECT(t, vbn_barrier(comm, WAIT_MS) == 0);
		vbn_comm_free(comm);
	}
	EXPECT(t, vbn_allreduce(t->world, NULL, NULL, 0, VBN_FLOAT32, VBN_SUM,
				0) == 0);
}
