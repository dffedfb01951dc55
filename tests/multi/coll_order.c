/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls in flight at once, on one communicator and on several. */
#include "coll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A persistent collective and its buffers. */
struct flight {
	struct spec spec;
	struct buffer in, out;
	char *want;
	struct vbn_coll *coll;
};

static bool flight_make(struct test *t, struct vbn_comm *comm, struct flight *f,
			struct spec spec)
{
	size_t element = vbn_type_bytes(spec.type);

	spec.rank = vbn_comm_rank(comm);
	spec.n = vbn_comm_size(comm);
	spec.opts.size = sizeof(spec.opts);
	f->spec = spec;
	f->want = malloc(spec_out(&spec) * element + 1);
	return EXPECT(t, f->want != NULL) &&
	       buffer_make(t, &f->in, POOL, spec_in(&spec) * element) &&
	       buffer_make(t, &f->out, POOL, spec_out(&spec) * element) &&
	       EXPECT(t, spec_init(comm, &f->spec, f->in.data, f->out.data,
				   &f->coll) == 0);
}

static void flight_fill(struct flight *f)
{
	f->spec.salt++;
	memset(f->out.data, BUFFER_FILL, f->out.bytes);
	spec_fill_in(&f->spec,
		     f->spec.operation == BROADCAST ? f->out.data : f->in.data);
	memset(f->want, BUFFER_FILL, f->out.bytes);
	spec_fill_out(&f->spec, f->want);
}

static void flight_check(struct test *t, struct flight *f)
{
	EXPECT(t, !memcmp(f->out.data, f->want, f->out.bytes));
}

static void flight_drop(struct test *t, struct flight *f)
{
	vbn_coll_free(f->coll);
	buffer_drop(t, &f->in);
	buffer_drop(t, &f->out);
	free(f->want);
}

/* Two communicators, started in another order on odd ranks (B11). */
void case_interleaved(struct test *t)
{
	struct spec spec = {.operation = ALLREDUCE, .type = VBN_FLOAT64};
	struct vbn_comm *comms[2];
	struct flight f[2];

	for (int i = 0; i < 2; i++) {
		spec.count = i ? 20011 : 300;
		comms[i] = make_comm(t);
		if (!comms[i] || !flight_make(t, comms[i], &f[i], spec))
			return;
	}
	for (int round = 0; round < 50; round++) {
		int first = (t->rank + round / 2) & 1;

		for (int i = 0; i < 2; i++)
			flight_fill(&f[i]);
		EXPECT(t, vbn_coll_start(f[first].coll) == 0);
		if (round % 3 == t->rank % 3)
			usleep(200);
		EXPECT(t, vbn_coll_start(f[!first].coll) == 0);
		EXPECT(t, vbn_coll_wait(f[round & 1].coll, WAIT_MS) == 0);
		EXPECT(t, vbn_coll_wait(f[!(round & 1)].coll, WAIT_MS) == 0);
		for (int i = 0; i < 2; i++)
			flight_check(t, &f[i]);
	}
	for (int i = 0; i < 2; i++) {
		flight_drop(t, &f[i]);
		vbn_comm_free(comms[i]);
	}
}

/* Wait by test alone; it must not block. */
static int poll(struct vbn_coll *coll)
{
	double end = now_ms() + WAIT_MS;
	int err;

	do
		err = vbn_coll_test(coll);
	while (err == -EINPROGRESS && now_ms() < end);
	return err;
}

/* One that cannot be over, since the others have not started it. */
static void check_busy(struct test *t)
{
	struct spec spec = {
		.operation = ALLREDUCE, .type = VBN_FLOAT64, .count = 10};
	struct flight f;

	if (t->n == 1 || !flight_make(t, t->world, &f, spec))
		return;
	if (t->rank > 0)
		all_here(t);
	EXPECT(t, vbn_coll_start(f.coll) == 0);
	if (t->rank == 0) {
		EXPECT(t, vbn_coll_start(f.coll) == -EBUSY);
		all_here(t);
	}
	EXPECT(t, vbn_coll_wait(f.coll, WAIT_MS) == 0);
	flight_drop(t, &f);
}

/* Several in flight on one communicator, waited for in reverse. */
void case_in_flight(struct test *t)
{
	enum { CALLS = 6 };
	static const size_t counts[CALLS] = {100, 70000, 1, 0, 3000, 20000};
	struct flight f[CALLS];

	for (int i = 0; i < CALLS; i++) {
		struct spec spec = {.operation = ALLREDUCE,
				    .type = VBN_FLOAT64,
				    .count = counts[i]};

		if (!flight_make(t, t->world, &f[i], spec))
			return;
	}
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < CALLS; i++) {
			flight_fill(&f[i]);
			EXPECT(t, vbn_coll_start(f[i].coll) == 0);
		}
		for (int i = CALLS - 1; i >= 0; i--) {
			if (round & 1)
				EXPECT(t, poll(f[i].coll) == 0);
			EXPECT(t, vbn_coll_wait(f[i].coll, WAIT_MS) == 0);
			flight_check(t, &f[i]);
		}
	}
	for (int i = 0; i < CALLS; i++)
		flight_drop(t, &f[i]);
	all_here(t);
	check_busy(t);
}

/*
 * The later of two calls is waited for first, while the earlier takes so long
 * that members look for who is through with it: nobody is.
 */
void case_later_first(struct test *t)
{
	static const size_t counts[] = {30000, 1};
	struct vbn_coll_options ring = {.size = sizeof(ring),
					.algorithm = VBN_ALGORITHM_RING};
	struct vbn_comm *comm;
	struct flight f[2];

	if (t->n != 3 || !t->shares)
		return;
	comm = make_comm(t);
	for (int i = 0; i < 2; i++) {
		struct spec spec = {.operation = ALLREDUCE,
				    .type = VBN_FLOAT32,
				    .count = counts[i]};

		if (i == 0)
			spec.opts = ring;
		if (!comm || !flight_make(t, comm, &f[i], spec))
			return;
		flight_fill(&f[i]);
	}
	all_here(t);
	if (t->rank == 2)
		usleep(2300000);
	for (int i = 0; i < 2; i++)
		EXPECT(t, vbn_coll_start(f[i].coll) == 0);
	for (int i = 0; i < 2; i++) {
		int at = t->rank == 0 ? 1 - i : i;

		EXPECT(t, vbn_coll_wait(f[at].coll, WAIT_MS) == 0);
		flight_check(t, &f[at]);
	}
	for (int i = 0; i < 2; i++)
		flight_drop(t, &f[i]);
	vbn_comm_free(comm);
}

enum { TWICE = 2 * OPERATIONS };

/* All operations twice, small and large. */
static bool make_all(struct test *t, struct vbn_comm *comm, struct flight *f)
{
	for (int i = 0; i < TWICE; i++) {
		struct spec spec = {.operation = (enum operation)(i / 2),
				    .type = i & 1 ? VBN_BFLOAT16 : VBN_INT64,
				    .root = i % t->n,
				    .count = i & 1 ? 9001 : 5};

		if (!flight_make(t, comm, &f[i], spec))
			return false;
	}
	return true;
}

/* In another order each round, the same on all ranks. */
static void start_all(struct test *t, struct flight *f, int round)
{
	for (int i = 0; i < TWICE; i++) {
		int at = (i * 5 + round) % TWICE;

		flight_fill(&f[at]);
		EXPECT(t, vbn_coll_start(f[at].coll) == 0);
	}
}

/* All operations at once, waited for in another order on each rank. */
void case_mixed_in_flight(struct test *t)
{
	static const int strides[] = {1, 5, 7, 11, 13}; /* coprime to TWICE */
	struct flight f[TWICE];

	if (!make_all(t, t->world, f))
		return;
	for (int round = 0; round < 10; round++) {
		int stride = strides[(t->rank + round) % 5];

		start_all(t, f, round);
		for (int i = 0; i < TWICE; i++) {
			int at = (i * stride + t->rank) % TWICE;

			EXPECT(t, (at & 1 ? poll(f[at].coll)
					  : vbn_coll_wait(f[at].coll,
							  WAIT_MS)) == 0);
			flight_check(t, &f[at]);
		}
	}
	for (int i = 0; i < TWICE; i++)
		flight_drop(t, &f[i]);
}

/* So late that the others ask what it is calling; they do agree. */
void case_late_in_flight(struct test *t)
{
	struct vbn_comm *comm = make_comm(t);
	struct flight f[TWICE];

	if (!comm || !make_all(t, comm, f))
		return;
	for (int late = 0; late < t->n && late < 2; late++) {
		if (t->rank == late)
			usleep(700000);
		start_all(t, f, late);
		for (int i = 0; i < TWICE; i++) {
			EXPECT(t, vbn_coll_wait(f[i].coll, WAIT_MS) == 0);
			flight_check(t, &f[i]);
		}
	}
	for (int i = 0; i < TWICE; i++)
		flight_drop(t, &f[i]);
	vbn_comm_free(comm);
}

/* Started and tested only, with work in between, one after the other. */
void case_test_loop(struct test *t)
{
	static const size_t counts[] = {1, 4000, 30000};

	for (int o = 0; o < OPERATIONS; o++)
		for (int c = 0; c < 3; c++) {
			struct spec spec = {.operation = (enum operation)o,
					    .type = VBN_INT32,
					    .root = c % t->n,
					    .count = counts[c]};
			struct flight f;

			if (!flight_make(t, t->world, &f, spec))
				return;
			EXPECT(t, vbn_coll_test(f.coll) == 0); /* not begun */
			for (int i = 0; i < 8; i++) {
				flight_fill(&f);
				EXPECT(t, vbn_coll_start(f.coll) == 0);
				EXPECT(t, poll(f.coll) == 0);
				EXPECT(t, vbn_coll_test(f.coll) == 0);
				flight_check(t, &f);
			}
			flight_drop(t, &f);
		}
}

/* Members that nothing holds back are many calls ahead of the last rank. */
static void check_ahead(struct test *t, struct vbn_comm *comm, struct spec s)
{
	enum { CALLS = 200 };
	struct flight f;

	if (!flight_make(t, comm, &f, s))
		return;
	all_here(t);
	if (t->rank == t->n - 1)
		usleep(100000);
	for (int i = 0; i < CALLS && !t->failures; i++) {
		flight_fill(&f);
		EXPECT(t, vbn_coll_start(f.coll) == 0);
		EXPECT(t, vbn_coll_wait(f.coll, WAIT_MS) == 0);
		flight_check(t, &f);
	}
	EXPECT(t, vbn_barrier(comm, WAIT_MS) == 0);
	flight_drop(t, &f);
}

void case_run_ahead(struct test *t)
{
	static const unsigned slots[] = {1, 4, 13, 16};
	size_t lengths[RANKS_MOST * RANKS_MOST] = {0};

	/* Only the last rank has a part: the others' are empty. */
	lengths[t->n - 1] = 5;
	for (int i = 0; i < 4; i++) {
		struct vbn_comm_options opts = {.size = sizeof(opts),
						.slots = slots[i]};
		struct spec s = {.operation = BROADCAST,
				 .type = VBN_INT32,
				 .count = 100};
		struct vbn_comm *comm;

		if (!EXPECT(t, vbn_comm_create(&comm, t->ctx, NULL, 0, &opts) ==
				       0))
			return;
		check_ahead(t, comm, s);
		s.count = 0;
		check_ahead(t, comm, s);
		s.count = 20000; /* direct */
		check_ahead(t, comm, s);
		s.root = t->n - 1;
		s.operation = GATHER;
		s.count = 5;
		check_ahead(t, comm, s);
		s.lengths = lengths;
		check_ahead(t, comm, s);
		s.operation = SCATTER;
		s.root = 0;
		check_ahead(t, comm, s);
		vbn_comm_free(comm);
	}
}

/* A rank that closes its context after its last call breaks nobody's. */
void case_last_call(struct test *t)
{
	struct vbn_comm_options opts = {.size = sizeof(opts)};
	int *indexes = calloc((size_t)t->n, sizeof(*indexes));

	for (int round = 0; indexes && round < 40; round++) {
		struct vbn_ctx *ctx;
		struct vbn_comm *comm;
		double x = 1;

		if (!EXPECT(t, vbn_ctx_open(&ctx, t->job, NULL) == 0))
			break;
		for (int i = 0; i < t->n; i++)
			indexes[i] = vbn_ctx_index(ctx);
		opts.indexes = indexes;
		EXPECT(t, vbn_comm_create(&comm, ctx, NULL, 0, &opts) == 0);
		EXPECT(t, vbn_allreduce(comm, NULL, &x, 1, VBN_FLOAT64, VBN_SUM,
					WAIT_MS) == 0);
		EXPECT(t, x == t->n);
		if (round & 1)
			EXPECT(t, vbn_barrier(comm, WAIT_MS) == 0);
		else
			EXPECT(t, vbn_broadcast(comm, &x, 1, VBN_FLOAT64, 0,
						WAIT_MS) == 0);
		vbn_comm_free(comm);
		vbn_ctx_close(ctx);
	}
	free(indexes);
}
