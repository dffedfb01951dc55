/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors of collectives: bad arguments, a member that does not come, members
 * that disagree, a context closed too early, a death. Each has a deadline,
 * and a text that names the ranks.
 */
#include "coll.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
	EXPECT(t, vbn_allreduce(t->world, x, x, 1, VBN_FLOAT32, VBN_XOR, 0) ==
			  -EOPNOTSUPP);
	EXPECT(t,
	       vbn_allreduce(t->world, x, x, 1, VBN_FLOAT32,
			     (enum vbn_reduction)(VBN_USER + 1), 0) == -EINVAL);
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
	EXPECT(t, vbn_barrier(t->world, WAIT_MS) == 0); /* still well */
}

/* Read when a communicator is created; the others are not changed. */
void case_environment(struct test *t)
{
	static const char *const bad[][2] = {
		{"VBN_COLL_ALGO", "fast"},
		{"VBN_COLL_ALGO", "broadcast:ring"},
		{"VBN_COLL_ALGO", "ring,alltoall:"},
		{"VBN_COLL_CHUNK", "12k"},
		{"VBN_COLL_CHUNK", "-1"},
		{"VBN_COLL_LANDING", "1M"},
		{"VBN_COLL_LANDING", "63"},
		{"VBN_COLL_REPRODUCIBLE", "yes"},
		{"VBN_COLL_WIRE16", "2"},
		{"VBN_COLL_TRACE", "on"},
	};
	struct vbn_comm *comm = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		setenv(bad[i][0], bad[i][1], 1);
		EXPECT(t, vbn_comm_create(&comm, t->ctx, NULL, 0, NULL) ==
				  -EINVAL);
		EXPECT(t, strstr(vbn_error(), bad[i][0]) != NULL);
		EXPECT(t, vbn_barrier(t->world, WAIT_MS) == 0);
		unsetenv(bad[i][0]);
	}
	setenv("VBN_COLL_ALGO", "tree,allgather:bruck,alltoall:linear", 1);
	setenv("VBN_COLL_CHUNK", "999", 1);
	comm = make_comm(t);
	unsetenv("VBN_COLL_ALGO");
	unsetenv("VBN_COLL_CHUNK");
	for (int o = 0; comm && o < OPERATIONS; o++) {
		struct spec s = {.operation = (enum operation)o,
				 .type = VBN_UINT32,
				 .count = 5000,
				 .opts = {.size = sizeof(s.opts)}};

		spec_check(t, comm, &s, POOL, HEAP, 2, 0);
	}
	vbn_comm_free(comm);
}

/* The last rank never calls (B7): -ETIMEDOUT on the others, who name it. */
void case_missing(struct test *t)
{
	struct vbn_comm *comm = make_comm(t);
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
	struct vbn_comm *comm = make_comm(t);
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

void case_freed_in_flight(struct test *t)
{
	struct vbn_comm *comm = make_comm(t);
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

/* ---- aborted from another thread ---- */

struct aborter {
	struct vbn_comm *comm;
	double at_ms;
};

static void *abort_later(void *arg)
{
	struct aborter *aborter = arg;

	usleep(150000);
	aborter->at_ms = now_ms();
	vbn_comm_abort(aborter->comm);
	return NULL;
}

/* All but the last, who comes never, wait; then rank 0's thread aborts. */
static void check_abort(struct test *t, bool poll)
{
	struct aborter aborter = {.comm = make_comm(t)};
	struct vbn_comm *comm = aborter.comm;
	struct vbn_coll *coll = NULL;
	double x[2] = {1, 1}, start = now_ms();
	pthread_t thread;
	int err = -EINPROGRESS;

	EXPECT(t, vbn_allreduce_init(comm, NULL, x, 2, VBN_FLOAT64, VBN_SUM,
				     NULL, &coll) == 0);
	all_here(t);
	if (t->rank == 0)
		EXPECT(t,
		       !pthread_create(&thread, NULL, abort_later, &aborter));
	if (t->n > 1 && t->rank < t->n - 1) {
		EXPECT(t, vbn_coll_start(coll) == 0);
		while (poll && err == -EINPROGRESS &&
		       now_ms() < start + WAIT_MS)
			err = vbn_coll_test(coll);
		if (!poll)
			err = vbn_coll_wait(coll, WAIT_MS);
		EXPECT(t, err == -ECANCELED);
		EXPECT(t, strstr(vbn_error(), "rank 0 aborted") != NULL);
		EXPECT(t, now_ms() - start < 1150);
	}
	if (t->rank == 0) {
		pthread_join(thread, NULL);
		EXPECT(t, now_ms() - aborter.at_ms < 1000);
	}
	all_here(t);
	/* Everybody's later calls, too, even if none was in flight. */
	err = vbn_coll_start(coll);
	err = err ? err : vbn_coll_wait(coll, 1000);
	/* The last rank's has all it needs if the others had sent it before. */
	EXPECT(t, err == -ECANCELED || (!err && t->rank == t->n - 1));
	EXPECT(t, vbn_barrier(comm, 1000) == -ECANCELED);
	all_here(t);
	vbn_coll_free(coll);
	vbn_comm_free(comm);
}

void case_abort(struct test *t)
{
	check_abort(t, false);
	check_abort(t, true);
	EXPECT(t, vbn_barrier(t->world, WAIT_MS) == 0); /* others are well */
}

struct in_callback {
	struct test *t;
	struct vbn_coll *coll;
	int blocking, wait;
	bool ran;
};

static void call_inside(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct in_callback *in = arg;
	double x = 1;

	(void)from;
	(void)value;
	in->blocking = vbn_allreduce(in->t->world, NULL, &x, 1, VBN_FLOAT64,
				     VBN_SUM, WAIT_MS);
	EXPECT(in->t, vbn_coll_start(in->coll) == 0); /* may be begun */
	in->wait = vbn_coll_wait(in->coll, WAIT_MS);
	in->ran = true;
}

/* Waiting inside a handler is refused at once, and breaks nothing. */
void case_in_callback(struct test *t)
{
	struct in_callback in = {.t = t};
	double x = 1, end = now_ms() + WAIT_MS;
	struct vbn_op op = {0};
	struct vbn_ep *self;
	int err;

	EXPECT(t, vbn_allreduce_init(t->world, NULL, &x, 1, VBN_FLOAT64,
				     VBN_SUM, NULL, &in.coll) == 0);
	EXPECT(t, vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, call_inside,
				     &in) == 0);
	EXPECT(t, vbn_ep_open(&self, t->ctx, t->rank, 0) == 0);
	all_here(t);
	while ((err = vbn_notify(self, &op, VBN_CHANNEL_USER, 1, 0)) ==
		       -EAGAIN &&
	       now_ms() < end)
		vbn_ctx_wait(t->ctx, 1);
	EXPECT(t, err == 0);
	while (!in.ran && now_ms() < end)
		vbn_ctx_wait(t->ctx, 1);
	EXPECT(t, in.ran && in.blocking == -EDEADLK);
	/* Over at once if all others had started it. */
	EXPECT(t, in.wait == -EDEADLK || in.wait == 0);
	EXPECT(t, vbn_coll_wait(in.coll, WAIT_MS) == 0 && x == t->n);
	vbn_wait(t->ctx, &op, WAIT_MS);
	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, NULL, NULL);
	vbn_coll_free(in.coll);
	all_here(t);
}

/* The last rank is killed while all are in calls. */
void case_death(struct test *t)
{
	struct vbn_comm *comm = make_comm(t);
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
