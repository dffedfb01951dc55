/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Results of collectives: exact sums of small integers, on registered, heap
 * and odd memory, in place or not, nothing written outside; same bits
 * everywhere on random data; groups, many communicators, calls in flight.
 */
#include "coll.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum memory { POOL, HEAP, ODD, MEMORIES };
enum { GUARD = 64 };

struct buffer {
	enum memory memory;
	char *block, *data;
	size_t bytes;
};

static bool buffer_make(struct test *t, struct buffer *b, enum memory memory,
			size_t bytes)
{
	size_t all = bytes + 2 * GUARD + 1;

	b->memory = memory;
	b->bytes = bytes;
	b->block =
		memory == POOL ? vbn_pool_alloc(t->pool, all, 0) : malloc(all);
	if (!EXPECT(t, b->block != NULL))
		return false;
	memset(b->block, 0x77, all);
	b->data = b->block + GUARD + (memory == ODD ? 1 : 0);
	return true;
}

static void buffer_drop(struct test *t, struct buffer *b)
{
	const char *end = b->data + b->bytes;
	bool intact = true;

	for (int i = 0; i < GUARD; i++)
		intact &= b->data[-1 - i] == 0x77 && end[i] == 0x77;
	EXPECT(t, intact);
	if (b->memory == POOL)
		vbn_pool_free(t->pool, b->block);
	else
		free(b->block);
}

static double value(int rank, size_t i)
{
	return (double)((i * 13 + (size_t)rank * 7) % 101);
}

static void put(enum vbn_type type, char *data, size_t i, double v)
{
	float f = (float)v;

	if (type == VBN_FLOAT32)
		memcpy(data + i * sizeof(f), &f, sizeof(f));
	else
		memcpy(data + i * sizeof(v), &v, sizeof(v));
}

static double get(enum vbn_type type, const char *data, size_t i)
{
	double v;
	float f;

	if (type == VBN_FLOAT32) {
		memcpy(&f, data + i * sizeof(f), sizeof(f));
		return (double)f;
	}
	memcpy(&v, data + i * sizeof(v), sizeof(v));
	return v;
}

static void fill(struct test *t, enum vbn_type type, char *data, size_t count)
{
	for (size_t i = 0; i < count; i++)
		put(type, data, i, value(t->rank, i));
}

static bool summed(const struct vbn_comm *comm, const int *ranks,
		   enum vbn_type type, const char *data, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		double sum = 0;

		for (int m = 0; m < vbn_comm_size(comm); m++)
			sum += value(ranks ? ranks[m] : m, i);
		if (get(type, data, i) != sum)
			return false;
	}
	return true;
}

static int run(struct vbn_coll *coll)
{
	int err = vbn_coll_start(coll);

	return err ? err : vbn_coll_wait(coll, WAIT_MS);
}

/* One allreduce, run twice from the same persistent collective. */
static void check_allreduce(struct test *t, struct vbn_comm *comm,
			    const int *ranks, enum vbn_type type, size_t count,
			    enum memory memory, bool in_place,
			    const struct vbn_coll_options *opts)
{
	size_t bytes = count * vbn_type_bytes(type);
	struct buffer in, out;
	struct vbn_coll *coll;
	int err;

	if (!buffer_make(t, &in, memory, bytes) ||
	    !buffer_make(t, &out, memory, bytes))
		return;
	err = vbn_allreduce_init(comm, in_place ? NULL : in.data, out.data,
				 count, type, VBN_SUM, opts, &coll);
	if (!EXPECT(t, err == 0))
		return;
	for (int round = 0; round < 2; round++) {
		fill(t, type, in_place ? out.data : in.data, count);
		if (!EXPECT(t, run(coll) == 0))
			break;
		EXPECT(t, summed(comm, ranks, type, out.data, count));
	}
	vbn_coll_free(coll);
	buffer_drop(t, &in);
	buffer_drop(t, &out);
}

void case_allreduce(struct test *t)
{
	size_t n = (size_t)t->n;
	const size_t counts[] = {0, 1, n - 1, n, n + 1, 1000, 65537};

	EXPECT(t, vbn_allreduce(t->world, NULL, NULL, 0, VBN_FLOAT32, VBN_SUM,
				0) == 0);
	for (int a = 0; a < VBN_ALGORITHMS; a++)
		for (int m = 0; m < MEMORIES; m++)
			for (size_t c = 0; c < 7; c++) {
				struct vbn_coll_options opts = {
					.size = sizeof(opts),
					.algorithm = (enum vbn_algorithm)a};

				check_allreduce(t, t->world, NULL, VBN_FLOAT32,
						counts[c], (enum memory)m,
						c & 1, &opts);
				check_allreduce(t, t->world, NULL, VBN_FLOAT64,
						counts[c], (enum memory)m,
						!(c & 1), &opts);
			}
}

void case_large(struct test *t)
{
	for (int a = VBN_ALGORITHM_RING; a <= VBN_ALGORITHM_TREE; a++)
		for (int m = 0; m < MEMORIES; m++) {
			struct vbn_coll_options opts = {
				.size = sizeof(opts),
				.algorithm = (enum vbn_algorithm)a};

			check_allreduce(t, t->world, NULL, VBN_FLOAT32,
					(size_t)4 << 20, (enum memory)m,
					m == HEAP, &opts);
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

				check_allreduce(t, comm, NULL, VBN_FLOAT32,
						7001, POOL, a & 1, &opts);
				check_allreduce(t, comm, NULL, VBN_FLOAT64,
						8009, HEAP, !(a & 1), &opts);
			}
		vbn_comm_free(comm);
	}
}

static void check_broadcast(struct test *t, struct vbn_comm *comm, int root,
			    int root_rank, size_t count, enum memory memory)
{
	struct buffer b;
	bool right = true;

	if (!buffer_make(t, &b, memory, count * sizeof(double)))
		return;
	for (size_t i = 0; i < count; i++)
		put(VBN_FLOAT64, b.data, i,
		    vbn_comm_rank(comm) == root ? value(root_rank, i) : -1);
	EXPECT(t, vbn_broadcast(comm, b.data, count, VBN_FLOAT64, root,
				WAIT_MS) == 0);
	for (size_t i = 0; i < count; i++)
		right &= get(VBN_FLOAT64, b.data, i) == value(root_rank, i);
	EXPECT(t, right);
	buffer_drop(t, &b);
}

void case_broadcast(struct test *t)
{
	const size_t counts[] = {0, 1, 1000, 65537};

	for (int root = 0; root < t->n; root++)
		for (int m = 0; m < MEMORIES; m++)
			for (size_t c = 0; c < 4; c++)
				check_broadcast(t, t->world, root, root,
						counts[c], (enum memory)m);
	/* The root runs ahead of the others. */
	for (int i = 0; i < 100; i++)
		check_broadcast(t, t->world, 0, 0, 100, POOL);
}

static double now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
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

static uint64_t hash(const void *data, size_t bytes)
{
	const unsigned char *p = data;
	uint64_t h = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ p[i]) * UINT64_C(0x100000001b3);
	return h;
}

/* Random floats of mixed magnitude: same bits on all ranks, every run. */
void case_bits(struct test *t)
{
	enum { COUNT = 30011 };
	float *in = malloc(COUNT * sizeof(*in));
	float *out = malloc(COUNT * sizeof(*out));

	for (int a = 0; in && out && a < VBN_ALGORITHMS; a++) {
		struct vbn_coll_options opts = {.size = sizeof(opts),
						.algorithm =
							(enum vbn_algorithm)a};
		struct vbn_coll *coll;
		unsigned seed = 7u + (unsigned)t->rank;
		uint64_t first = 0;

		for (int i = 0; i < COUNT; i++) {
			seed = seed * 1664525u + 1013904223u;
			in[i] = (float)(int)seed * (seed & 64 ? 1e-12f : 1e-3f);
		}
		if (!EXPECT(t, vbn_allreduce_init(t->world, in, out, COUNT,
						  VBN_FLOAT32, VBN_SUM, &opts,
						  &coll) == 0))
			break;
		for (int round = 0; round < 10; round++) {
			uint64_t mine, root;

			EXPECT(t, run(coll) == 0);
			mine = hash(out, COUNT * sizeof(*out));
			first = round ? first : mine;
			EXPECT(t, mine == first);
			root = mine;
			EXPECT(t, vbn_broadcast(t->world, &root, 1, VBN_UINT64,
						0, WAIT_MS) == 0);
			EXPECT(t, mine == root);
		}
		vbn_coll_free(coll);
	}
	free(in);
	free(out);
}

static void check_group(struct test *t, const int *ranks, int n)
{
	struct vbn_comm *comm;
	bool member = false;

	for (int i = 0; i < n; i++)
		member |= ranks[i] == t->rank;
	if (!member) {
		EXPECT(t, vbn_comm_create(&comm, t->ctx, ranks, n, NULL) ==
				  -EINVAL);
		return;
	}
	if (!EXPECT(t, vbn_comm_create(&comm, t->ctx, ranks, n, NULL) == 0))
		return;
	EXPECT(t, vbn_comm_size(comm) == n);
	EXPECT(t, ranks[vbn_comm_rank(comm)] == t->rank);
	for (int a = 0; a < VBN_ALGORITHMS; a++) {
		struct vbn_coll_options opts = {.size = sizeof(opts),
						.algorithm =
							(enum vbn_algorithm)a};

		check_allreduce(t, comm, ranks, VBN_FLOAT32, 1009, POOL, false,
				&opts);
		check_allreduce(t, comm, ranks, VBN_FLOAT32, 50000, POOL, true,
				&opts);
	}
	for (int root = 0; root < n; root++)
		check_broadcast(t, comm, root, ranks[root], 333, HEAP);
	EXPECT(t, vbn_barrier(comm, WAIT_MS) == 0);
	vbn_comm_free(comm);
}

/* Orders other than the job's, and parts of it (B10). */
void case_groups(struct test *t)
{
	int *ranks = malloc((size_t)t->n * sizeof(*ranks));

	EXPECT(t, ranks != NULL);
	if (!ranks)
		return;
	for (int i = 0; i < t->n; i++)
		ranks[i] = t->n - 1 - i;
	check_group(t, ranks, t->n);
	ranks[0] = t->n - 1; /* last, 0, 1, ... */
	for (int i = 1; i < t->n; i++)
		ranks[i] = i - 1;
	check_group(t, ranks, t->n);
	if (t->n > 1)
		check_group(t, ranks, t->n - 1);
	check_group(t, ranks, 1);
	free(ranks);
}

/* Two communicators, started in another order on odd ranks (B11). */
void case_interleaved(struct test *t)
{
	enum { COUNT = 20011 };
	struct vbn_comm *comms[2];
	struct vbn_coll *colls[2];
	struct buffer bufs[2];

	for (int i = 0; i < 2; i++)
		if (!EXPECT(t, vbn_comm_create(&comms[i], t->ctx, NULL, 0,
					       NULL) == 0) ||
		    !buffer_make(t, &bufs[i], POOL, COUNT * sizeof(double)) ||
		    !EXPECT(t, vbn_allreduce_init(comms[i], NULL, bufs[i].data,
						  COUNT, VBN_FLOAT64, VBN_SUM,
						  NULL, &colls[i]) == 0))
			return;
	for (int round = 0; round < 50; round++) {
		int first = (t->rank + round / 2) & 1;

		for (int i = 0; i < 2; i++)
			fill(t, VBN_FLOAT64, bufs[i].data, COUNT);
		EXPECT(t, vbn_coll_start(colls[first]) == 0);
		if (round % 3 == t->rank % 3)
			usleep(200);
		EXPECT(t, vbn_coll_start(colls[!first]) == 0);
		EXPECT(t, vbn_coll_wait(colls[round & 1], WAIT_MS) == 0);
		EXPECT(t, vbn_coll_wait(colls[!(round & 1)], WAIT_MS) == 0);
		for (int i = 0; i < 2; i++)
			EXPECT(t, summed(comms[i], NULL, VBN_FLOAT64,
					 bufs[i].data, COUNT));
	}
	for (int i = 0; i < 2; i++) {
		vbn_coll_free(colls[i]);
		vbn_comm_free(comms[i]);
		buffer_drop(t, &bufs[i]);
	}
}

/* Several in flight on one communicator, waited for in reverse, by test. */
void case_in_flight(struct test *t)
{
	enum { CALLS = 6 };
	static const size_t counts[CALLS] = {100, 70000, 1, 0, 3000, 20000};
	struct vbn_coll *colls[CALLS];
	struct buffer bufs[CALLS];

	for (int i = 0; i < CALLS; i++)
		if (!buffer_make(t, &bufs[i], POOL,
				 counts[i] * sizeof(double)) ||
		    !EXPECT(t,
			    vbn_allreduce_init(t->world, NULL, bufs[i].data,
					       counts[i], VBN_FLOAT64, VBN_SUM,
					       NULL, &colls[i]) == 0))
			return;
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < CALLS; i++) {
			fill(t, VBN_FLOAT64, bufs[i].data, counts[i]);
			EXPECT(t, vbn_coll_start(colls[i]) == 0);
		}
		if (t->n > 1 && t->rank == 0)
			EXPECT(t, vbn_coll_start(colls[5]) == -EBUSY);
		for (int i = CALLS - 1; i >= 0; i--) {
			int err = -EINPROGRESS;

			while (round & 1 && err == -EINPROGRESS)
				err = vbn_coll_test(colls[i]);
			EXPECT(t, vbn_coll_wait(colls[i], WAIT_MS) == 0);
			EXPECT(t, summed(t->world, NULL, VBN_FLOAT64,
					 bufs[i].data, counts[i]));
		}
	}
	for (int i = 0; i < CALLS; i++) {
		vbn_coll_free(colls[i]);
		buffer_drop(t, &bufs[i]);
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

/* More than there are tags, one after another, then many at once. */
void case_many_comms(struct test *t)
{
	enum { AT_ONCE = 40 };
	struct vbn_comm *comms[AT_ONCE];
	double x;

	for (int i = 0; i < 600; i++) {
		struct vbn_comm *comm;

		if (!EXPECT(t,
			    vbn_comm_create(&comm, t->ctx, NULL, 0, NULL) == 0))
			return;
		x = t->rank + i;
		EXPECT(t, vbn_allreduce(comm, NULL, &x, 1, VBN_FLOAT64, VBN_SUM,
					WAIT_MS) == 0);
		EXPECT(t, x == t->n * (t->n - 1) / 2 + t->n * i);
		vbn_comm_free(comm);
		if (t->failures)
			return;
	}
	for (int i = 0; i < AT_ONCE; i++)
		if (!EXPECT(t, vbn_comm_create(&comms[i], t->ctx, NULL, 0,
					       NULL) == 0))
			return;
	for (int i = 0; i < AT_ONCE; i++) {
		x = 1;
		EXPECT(t, vbn_allreduce(comms[i], NULL, &x, 1, VBN_FLOAT64,
					VBN_SUM, WAIT_MS) == 0);
		EXPECT(t, x == t->n);
	}
	for (int i = 0; i < AT_ONCE; i++)
		vbn_comm_free(comms[i]);
}
