/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors of collectives: bad arguments, a member that does not come, members
 * that disagree, a context closed too early, a death. Each has a deadline,
 * and a text that names the ranks.
 */
#include "coll.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static struct vbn_comm *make(struct test *t)
{
	struct vbn_comm *comm = NULL;

	EXPECT(t, vbn_comm_create(&comm, t->ctx, NULL, 0, NULL) == 0);
	return comm;
}

void case_arguments(struct test *t)
{
	const int twice[] = {t->rank, t->rank};
	const int wrong[] = {t->rank, t->n};
	const int other[] = {1};
	struct vbn_comm_options opts = {.size = sizeof(opts), .slots = 17};
	struct vbn_comm_options index = {.size = sizeof(index),
					 .indexes = other};
	struct vbn_coll_options bad = {.size = sizeof(bad), .window = 65};
	struct vbn_coll_options ring = {.size = sizeof(ring),
					.algorithm = VBN_ALGORITHM_RING};
	struct vbn_comm *comm = NULL;
	struct vbn_coll *coll = NULL;
	double x[2] = {0, 0};

	EXPECT(t, vbn_comm_create(&comm, t->ctx, twice, t->n > 1 ? 2 : 1,
				  NULL) == (t->n > 1 ? -EINVAL : 0));
	vbn_comm_free(comm);
	EXPECT(t, vbn_comm_create(&comm, t->ctx, wrong, t->n > 1 ? 2 : 5,
				  NULL) == -EINVAL);
	EXPECT(t, vbn_comm_create(&comm, t->ctx, NULL, 0, &opts) == -EINVAL);
	EXPECT(t, vbn_comm_create(&comm, t->ctx, twice, 1, &index) == -EINVAL);
	EXPECT(t, vbn_allreduce(t->world, x, x, 1, VBN_INT32, VBN_SUM, 0) ==
			  -EOPNOTSUPP);
	EXPECT(t, vbn_allreduce(t->world, x, x, 1, VBN_FLOAT32, VBN_MAX, 0) ==
			  -EOPNOTSUPP);
	EXPECT(t, vbn_allreduce(t->world, x, x, 1, VBN_TYPES, VBN_SUM, 0) ==
			  -EINVAL);
	EXPECT(t, vbn_allreduce(t->world, x, NULL, 1, VBN_FLOAT64, VBN_SUM,
				0) == -EINVAL);
	EXPECT(t, vbn_allreduce(t->world, x, (char *)x + 4, 1, VBN_FLOAT64,
				VBN_SUM, 0) == -EINVAL);
	EXPECT(t, vbn_allreduce(t->world, x, x, SIZE_MAX / 4, VBN_FLOAT64,
				VBN_SUM, 0) == -EINVAL);
	EXPECT(t,
	       vbn_broadcast(t->world, x, 1, VBN_FLOAT64, t->n, 0) == -EINVAL);
	EXPECT(t, vbn_broadcast(t->world, x, 1, VBN_FLOAT64, -1, 0) == -EINVAL);
	EXPECT(t, vbn_barrier_init(t->world, &bad, &coll) == -EINVAL);
	EXPECT(t, vbn_broadcast_init(t->world, x, 1, VBN_FLOAT64, 0, &ring,
				     &coll) == (t->n > 1 ? -EOPNOTSUPP : 0));
	vbn_coll_free(coll);
	setenv("VBN_COLL_ALGO", "fast", 1);
	EXPECT(t, vbn_allreduce(t->world, x, x, 1, VBN_FLOAT64, VBN_SUM, 0) ==
			  (t->n > 1 ? -EINVAL : 0));
	unsetenv("VBN_COLL_ALGO");
	setenv("VBN_COLL_CHUNK", "12k", 1);
	EXPECT(t, vbn_barrier(t->world, 0) == -EINVAL);
	unsetenv("VBN_COLL_CHUNK");
	EXPECT(t, vbn_barrier(t->world, WAIT_MS) == 0); /* still well */
}

/* The last rank never calls (B7): -ETIMEDOUT on the others, who name it. */
void case_missing(struct test *t)
{
	struct vbn_comm *comm = make(t);
	char name[32];
	double x = 1, start = now_ms();

	if (t->n > 1 && t->rank < t->n - 1) {
		snprintf(name, sizeof(name), "not arrived: rank %d", t->n - 1);
		EXPECT(t, vbn_allreduce(comm, NULL, &x, 1, VBN_FLOAT64, VBN_SUM,
					2000) == -ETIMEDOUT);
		EXPECT(t, strstr(vbn_error(), name) != NULL);
		EXPECT(t, now_ms() - start > 1500 && now_ms() - start < 3000);
		/* It is broken, and says why again. */
		EXPECT(t, vbn_barrier(comm, 100) == -ETIMEDOUT);
		EXPECT(t, strstr(vbn_error(), name) != NULL);
	}
	all_here(t);
	vbn_comm_free(comm);
}

/* Late, but before the others gave up for good. */
void case_late(struct test *t)
{
	struct vbn_comm *comm = make(t);
	struct vbn_coll *coll = NULL;
	double x = 1;

	EXPECT(t, vbn_allreduce_init(comm, NULL, &x, 1, VBN_FLOAT64, VBN_SUM,
				     NULL, &coll) == 0);
	if (t->rank == t->n - 1)
		usleep(500000);
	EXPECT(t, vbn_coll_start(coll) == 0);
	if (t->n > 1 && t->rank < t->n - 1) {
		EXPECT(t, vbn_coll_wait(coll, 0) == -ETIMEDOUT);
		EXPECT(t, vbn_coll_wait(coll, 20) == -ETIMEDOUT);
	}
	EXPECT(t, vbn_coll_wait(coll, WAIT_MS) == 0);
	EXPECT(t, vbn_coll_test(coll) == 0);
	EXPECT(t, x == t->n);
	vbn_coll_free(coll);
	vbn_comm_free(comm);
}

/* Every rank must be listed with its own call. */
static void expect_listed(struct test *t, const char *odd, const char *even)
{
	EXPECT(t, strstr(vbn_error(), odd) != NULL);
	EXPECT(t, strstr(vbn_error(), even) != NULL);
}

/* One rank passes count + 1 (B5), for several sizes. */
void case_count_differs(struct test *t)
{
	static const size_t counts[] = {1, 1000, 65537, 1000000};

	for (size_t c = 0; t->n > 1 && c < 4; c++) {
		struct vbn_comm *comm = make(t);
		int odd = (int)(c + 1) % t->n;
		size_t count = counts[c] + (t->rank == odd);
		float *data = calloc(count, sizeof(*data));
		char mine[64], theirs[64];
		int err = vbn_allreduce(comm, NULL, data, count, VBN_FLOAT32,
					VBN_SUM, 5000);

		if (!err) /* had returned: then the next call says it */
			err = vbn_allreduce(comm, NULL, data, counts[c],
					    VBN_FLOAT32, VBN_SUM, 5000);
		EXPECT(t, err == -EPROTO);
		snprintf(theirs, sizeof(theirs),
			 "rank %d: allreduce of %zu float32", odd,
			 counts[c] + 1);
		snprintf(mine, sizeof(mine), ": allreduce of %zu float32",
			 counts[c]);
		expect_listed(t, theirs, mine);
		all_here(t);
		vbn_comm_free(comm);
		free(data);
	}
}

/* Rank 1 broadcasts, the others allreduce (B6), small and large. */
void case_operation_differs(struct test *t)
{
	for (int root = 0; t->n > 1 && root < t->n; root++)
		for (size_t count = 10; count < 200000; count *= 10000) {
			struct vbn_comm *comm = make(t);
			float *data = calloc(count, sizeof(*data));
			int err;

			if (t->rank == 1)
				err = vbn_broadcast(comm, data, count,
						    VBN_FLOAT32, root, 5000);
			else
				err = vbn_allreduce(comm, NULL, data, count,
						    VBN_FLOAT32, VBN_SUM, 5000);
			if (!err)
				err = vbn_barrier(comm, 5000);
			EXPECT(t, err == -EPROTO);
			expect_listed(t, "rank 1: broadcast", ": allreduce of");
			all_here(t);
			vbn_comm_free(comm);
			free(data);
		}
}

/* Count 0 returns at once; the disagreement comes at the next call. */
void case_returned_early(struct test *t)
{
	struct vbn_comm *comm = make(t);
	float data[10] = {0};
	int err;

	if (t->n > 1) {
		err = vbn_allreduce(comm, NULL, data, t->rank ? 10 : 0,
				    VBN_FLOAT32, VBN_SUM, 5000);
		if (t->rank == 0) {
			usleep(100000);
			if (!err)
				err = vbn_barrier(comm, 5000);
		}
		EXPECT(t, err == -EPROTO);
	}
	all_here(t);
	vbn_comm_free(comm);
}

void case_freed_in_flight(struct test *t)
{
	struct vbn_comm *comm = make(t);
	struct vbn_coll *coll = NULL;
	double x = 1;
	int err;

	EXPECT(t, vbn_allreduce(comm, NULL, &x, 1, VBN_FLOAT64, VBN_SUM,
				WAIT_MS) == 0);
	EXPECT(t, vbn_allreduce_init(comm, NULL, &x, 1, VBN_FLOAT64, VBN_SUM,
				     NULL, &coll) == 0);
	if (t->n > 1 && t->rank < t->n - 1) { /* the last never starts it */
		err = vbn_coll_start(coll);
		if (t->rank == 0) {
			vbn_coll_free(coll);
			coll = NULL;
		} else {
			if (!err)
				err = vbn_coll_wait(coll, 10000);
			EXPECT(t, err == -ECANCELED);
			EXPECT(t, strstr(vbn_error(), "rank 0") != NULL);
		}
	}
	all_here(t);
	vbn_coll_free(coll);
	vbn_comm_free(comm);
	all_here(t);
}

/* The context goes first (B9). */
void case_context_closed(struct test *t)
{
	struct vbn_comm_options opts = {.size = sizeof(opts)};
	int *indexes = calloc((size_t)t->n, sizeof(*indexes));
	struct vbn_ctx *ctx;
	struct vbn_comm *comm;
	struct vbn_coll *coll, *started;
	double x = 1, y = 1;

	EXPECT(t, indexes != NULL);
	if (!indexes)
		return;
	if (!EXPECT(t, vbn_ctx_open(&ctx, t->job, NULL) == 0)) {
		free(indexes);
		return;
	}
	for (int i = 0; i < t->n; i++)
		indexes[i] = vbn_ctx_index(ctx);
	opts.indexes = indexes;
	if (!EXPECT(t, vbn_comm_create(&comm, ctx, NULL, 0, &opts) == 0)) {
		free(indexes);
		return;
	}
	EXPECT(t, vbn_allreduce(comm, NULL, &x, 1, VBN_FLOAT64, VBN_SUM,
				WAIT_MS) == 0);
	EXPECT(t, vbn_allreduce_init(comm, NULL, &x, 1, VBN_FLOAT64, VBN_SUM,
				     NULL, &coll) == 0);
	EXPECT(t, vbn_allreduce_init(comm, NULL, &y, 1, VBN_FLOAT64, VBN_SUM,
				     NULL, &started) == 0);
	all_here(t);
	if (t->n > 1 && t->rank == 0)
		EXPECT(t, vbn_coll_start(started) == 0);
	vbn_ctx_close(ctx);
	if (t->n > 1 && t->rank == 0)
		EXPECT(t, vbn_coll_wait(started, 1000) == -ENOTCONN);
	EXPECT(t, vbn_coll_start(coll) == -ENOTCONN);
	EXPECT(t, vbn_coll_test(coll) == 0);
	EXPECT(t, vbn_barrier(comm, 1000) == -ENOTCONN);
	vbn_coll_free(coll);
	vbn_coll_free(started);
	vbn_comm_free(comm);
	free(indexes);
	all_here(t);
}

/* The last rank is killed while all are in calls. */
void case_death(struct test *t)
{
	struct vbn_comm *comm = make(t);
	size_t count = (size_t)1 << 20;
	float *data = calloc(count, sizeof(*data));
	char name[32];
	double start;
	int err = 0;

	for (int i = 0; i < 5; i++)
		EXPECT(t, vbn_allreduce(comm, NULL, data, count, VBN_FLOAT32,
					VBN_SUM, WAIT_MS) == 0);
	if (t->rank == t->n - 1) {
		struct vbn_coll *coll;

		vbn_allreduce_init(comm, NULL, data, count, VBN_FLOAT32,
				   VBN_SUM, NULL, &coll);
		vbn_coll_start(coll);
		kill(getpid(), SIGKILL);
	}
	start = now_ms();
	while (!err)
		err = vbn_allreduce(comm, NULL, data, count, VBN_FLOAT32,
				    VBN_SUM, WAIT_MS);
	snprintf(name, sizeof(name), "rank %d", t->n - 1);
	EXPECT(t, err == -ECONNRESET);
	EXPECT(t, strstr(vbn_error(), name) != NULL);
	EXPECT(t, now_ms() - start < 10000);
	printf("# rank %d after %.0f ms: %s\n", t->rank, now_ms() - start,
	       vbn_error());
	vbn_comm_free(comm);
	free(data);
}
