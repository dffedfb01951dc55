/* SPDX-License-Identifier: BSD-3-Clause */
/* A progress thread: calls go on while the caller does something else. */
#include "coll.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The elements that a VBN_USER function has combined: seen from outside. */
static void count_elements(void *dst, const void *a, const void *b, size_t n,
			   enum vbn_type type, void *arg)
{
	const int32_t *x = a, *y = b;
	int32_t *to = dst;

	(void)type;
	for (size_t i = 0; i < n; i++)
		to[i] = x[i] + y[i];
	atomic_fetch_add((atomic_size_t *)arg, n);
}

/* A context of its own, the same index on all ranks, and a communicator. */
static bool apart(struct test *t, struct vbn_ctx **ctx, struct vbn_comm **comm)
{
	struct vbn_comm_options opts = {.size = sizeof(opts)};
	int indexes[RANKS_MOST];

	if (!EXPECT(t, vbn_ctx_open(ctx, t->job, NULL) == 0))
		return false;
	for (int i = 0; i < t->n; i++)
		indexes[i] = vbn_ctx_index(*ctx);
	opts.indexes = indexes;
	return EXPECT(t, vbn_comm_create(comm, *ctx, NULL, 0, &opts) == 0);
}

/*
 * Nobody calls the library between start and the end of the call, which is seen
 * by what its reduction has done.
 */
static void check_overlap(struct test *t, struct vbn_comm *comm, int round)
{
	enum { COUNT = 20011 };
	atomic_size_t combined = 0;
	const size_t all = (size_t)(t->n - 1) * COUNT;
	const struct vbn_coll_options opts = {
		.size = sizeof(opts),
		.algorithm = VBN_ALGORITHM_DECENTRALIZED,
		.function = count_elements,
		.function_arg = &combined};
	static int32_t data[COUNT];
	double end = now_ms() + WAIT_MS;
	struct vbn_coll *coll;
	int err;

	for (int i = 0; i < COUNT; i++)
		data[i] = t->rank + i;
	EXPECT(t, vbn_allreduce_init(comm, NULL, data, COUNT, VBN_INT32,
				     VBN_USER, &opts, &coll) == 0);
	if (t->rank == round % t->n)
		usleep(20000); /* the others' threads are asleep by then */
	EXPECT(t, vbn_coll_start(coll) == 0);
	while (atomic_load(&combined) < all && now_ms() < end)
		usleep(1000);
	EXPECT(t, atomic_load(&combined) == all);
	err = vbn_coll_wait(coll, WAIT_MS);
	EXPECT(t, err == 0);
	for (int i = 0; i < COUNT && !err; i += 997)
		EXPECT(t, data[i] == t->n * i + t->n * (t->n - 1) / 2);
	vbn_coll_free(coll);
}

static void check_arguments(struct test *t, struct vbn_ctx *ctx)
{
	struct vbn_coll_thread_options opts = {.size = 1};

	EXPECT(t, vbn_coll_thread_start(ctx, &opts) == -EINVAL);
	opts = (struct vbn_coll_thread_options){
		.size = sizeof(opts), .bind = 1, .cpu = 1023};
	EXPECT(t, vbn_coll_thread_start(ctx, &opts) == -EINVAL);
	opts.cpu = -1;
	EXPECT(t, vbn_coll_thread_start(ctx, &opts) == -EINVAL);
	EXPECT(t, vbn_coll_thread_stop(ctx) == 0); /* there is none */
}

void case_thread(struct test *t)
{
	struct vbn_coll_thread_options opts = {.size = sizeof(opts)};
	struct vbn_comm *comm, *other;
	struct vbn_ctx *ctx;

	if (!apart(t, &ctx, &comm))
		return;
	check_arguments(t, ctx);
	for (int round = 0; round < 3; round++) {
		EXPECT(t, vbn_coll_thread_start(ctx, &opts) == 0);
		EXPECT(t, vbn_coll_thread_start(ctx, &opts) == -EEXIST);
		for (int i = 0; i < 3; i++)
			check_overlap(t, comm, round + i);
		EXPECT(t, vbn_comm_dup(&other, comm) == 0);
		check_overlap(t, other, round);
		vbn_comm_free(other);
		if (round < 2)
			vbn_coll_thread_stop(ctx);
	}
	EXPECT(t, vbn_barrier(comm, WAIT_MS) == 0);
	if (t->rank & 1)
		vbn_comm_free(comm);
	vbn_ctx_close(ctx); /* it ends with its context */
	if (!(t->rank & 1))
		vbn_comm_free(comm);
}

/* A call started with the thread is ended without it, and the reverse. */
void case_thread_leaves(struct test *t)
{
	enum { COUNT = 300000 };
	float *data = calloc(COUNT, sizeof(*data));
	struct vbn_comm *comm;
	struct vbn_coll *coll;
	struct vbn_ctx *ctx;

	if (!EXPECT(t, data != NULL) || !apart(t, &ctx, &comm)) {
		free(data);
		return;
	}
	EXPECT(t, vbn_allreduce_init(comm, NULL, data, COUNT, VBN_FLOAT32,
				     VBN_MAX, NULL, &coll) == 0);
	for (int round = 0; round < 20; round++) {
		bool begins = (round + t->rank) & 1;

		if (begins)
			EXPECT(t, vbn_coll_thread_start(ctx, NULL) == 0);
		data[round] = (float)(t->rank + 1);
		EXPECT(t, vbn_coll_start(coll) == 0);
		if (begins)
			vbn_coll_thread_stop(ctx);
		else
			EXPECT(t, vbn_coll_thread_start(ctx, NULL) == 0);
		EXPECT(t, vbn_coll_wait(coll, WAIT_MS) == 0);
		EXPECT(t, data[round] == (float)t->n);
		if (!begins)
			vbn_coll_thread_stop(ctx);
	}
	vbn_coll_free(coll);
	vbn_comm_free(comm);
	vbn_ctx_close(ctx);
	free(data);
}

/* ---- with calls that do not end ---- */

/* All ranks have one in flight and a thread; but the absent one never calls. */
struct stuck {
	struct vbn_ctx *ctx;
	struct vbn_comm *comm;
	struct vbn_coll *coll;
	double x;
	bool absent;
	atomic_int started; /* what the handler's start has said, */
	atomic_int stopped; /* and its stop; 1: not yet */
};

static void stop_in_handler(void *arg, struct vbn_ep *from, const void *data,
			    size_t len)
{
	struct stuck *s = arg;

	(void)from;
	(void)data;
	(void)len;
	atomic_store(&s->started, vbn_coll_thread_start(s->ctx, NULL));
	atomic_store(&s->stopped, vbn_coll_thread_stop(s->ctx));
}

static bool get_stuck(struct test *t, struct stuck *s, int absent)
{
	memset(s, 0, sizeof(*s));
	s->x = 1;
	s->stopped = 1;
	s->absent = t->rank == absent;
	if (!apart(t, &s->ctx, &s->comm))
		return false;
	EXPECT(t, vbn_message_handler(s->ctx, VBN_CHANNEL_USER, stop_in_handler,
				      s) == 0);
	EXPECT(t, vbn_allreduce_init(s->comm, NULL, &s->x, 1, VBN_FLOAT64,
				     VBN_SUM, NULL, &s->coll) == 0);
	if (!s->absent) {
		EXPECT(t, vbn_coll_thread_start(s->ctx, NULL) == 0);
		EXPECT(t, vbn_coll_start(s->coll) == 0);
	}
	all_here(t);
	return true;
}

static void release(struct test *t, struct stuck *s)
{
	all_here(t);
	vbn_coll_free(s->coll);
	vbn_comm_free(s->comm);
	vbn_ctx_close(s->ctx);
	all_here(t);
}

/* What all threads of the process have used while this one sleeps. */
static double cpu_of_sleep(int ms)
{
	struct timespec before, after;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
	usleep((unsigned)ms * 1000);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
	return (double)(after.tv_sec - before.tv_sec) * 1e3 +
	       (double)(after.tv_nsec - before.tv_nsec) / 1e6;
}

/* With a call in flight; while a peer leaves, which ends it; with none. */
void case_thread_sleeps(struct test *t)
{
	struct stuck s;

	if (t->n < 2 || !get_stuck(t, &s, t->n - 1))
		return;
	usleep(60000); /* over ucx it is not quiet at once */
	EXPECT(t, s.absent || cpu_of_sleep(300) < 60);
	all_here(t);
	if (s.absent)
		vbn_ctx_close(s.ctx);
	EXPECT(t, s.absent || cpu_of_sleep(300) < 60);
	if (!s.absent) {
		EXPECT(t, vbn_coll_wait(s.coll, WAIT_MS) != 0);
		EXPECT(t, cpu_of_sleep(300) < 60);
		release(t, &s);
		return;
	}
	all_here(t);
	vbn_coll_free(s.coll);
	vbn_comm_free(s.comm);
	all_here(t);
}

static void *abort_it(void *comm)
{
	usleep(100000);
	vbn_comm_abort(comm);
	return NULL;
}

/*
 * Rank 0 sleeps, and another of its threads aborts: the others hear of it from
 * its progress thread.
 */
static void check_abort(struct test *t, int absent)
{
	double start = now_ms();
	pthread_t thread;
	struct stuck s;

	if (!get_stuck(t, &s, absent))
		return;
	if (t->rank == 0 && absent == 0)
		EXPECT(t, vbn_coll_thread_start(s.ctx, NULL) == 0);
	if (t->rank == 0) {
		EXPECT(t, !pthread_create(&thread, NULL, abort_it, s.comm));
		usleep(1500000);
		pthread_join(thread, NULL);
	}
	if (!s.absent)
		EXPECT(t, vbn_coll_wait(s.coll, WAIT_MS) == -ECANCELED);
	EXPECT(t, t->rank == 0 || now_ms() - start < 1000);
	release(t, &s);
}

void case_thread_aborts(struct test *t)
{
	if (t->n < 2)
		return;
	check_abort(t, 0);
	check_abort(t, t->n - 1);
}

/*
 * The last rank sends rank 0 a message, whose handler its thread runs. The
 * endpoint is the communicator's, too: it stays open.
 */
void case_thread_in_handler(struct test *t)
{
	double end = now_ms() + WAIT_MS;
	struct vbn_ep *ep;
	struct stuck s;

	if (t->n < 2 || !get_stuck(t, &s, t->n - 1))
		return;
	if (s.absent &&
	    EXPECT(t, vbn_ep_open(&ep, s.ctx, 0, vbn_ctx_index(s.ctx)) == 0)) {
		EXPECT(t, vbn_ep_connect(ep, WAIT_MS) == 0);
		EXPECT(t, vbn_message(ep, VBN_CHANNEL_USER, "", 1) == 0);
	}
	while (t->rank == 0 && atomic_load(&s.stopped) == 1 && now_ms() < end)
		usleep(1000);
	EXPECT(t, t->rank > 0 || atomic_load(&s.stopped) == -EDEADLK);
	EXPECT(t, t->rank > 0 || atomic_load(&s.started) == -EDEADLK);
	if (s.absent)
		EXPECT(t, vbn_coll_start(s.coll) == 0);
	EXPECT(t, vbn_coll_wait(s.coll, WAIT_MS) == 0 && s.x == t->n);
	release(t, &s);
}
