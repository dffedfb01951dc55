/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bits of results: the same on all ranks and in every run; in
 * reproducible mode those of the sum in the order of the members; NaN,
 * averages, functions of the user's.
 */
#include "coll.h"

#include "coll_reduce_ref.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 3989, ROUNDS = 2 };

static const enum vbn_type floats[] = {VBN_FLOAT32, VBN_FLOAT16, VBN_BFLOAT16,
				       VBN_FLOAT64};

static void store(enum vbn_type type, double value, void *to, size_t i)
{
	char *at = (char *)to + i * vbn_type_bytes(type);
	float single = (float)value;
	uint16_t half;

	if (type == VBN_FLOAT64) {
		memcpy(at, &value, sizeof(value));
	} else if (type == VBN_FLOAT32) {
		memcpy(at, &single, sizeof(single));
	} else {
		half = ref_narrow(type, single);
		memcpy(at, &half, sizeof(half));
	}
}

static double load(enum vbn_type type, const void *from, size_t i)
{
	const char *at = (const char *)from + i * vbn_type_bytes(type);
	double value;
	float single;
	uint16_t half;

	if (type == VBN_FLOAT64) {
		memcpy(&value, at, sizeof(value));
		return value;
	}
	if (type == VBN_FLOAT32) {
		memcpy(&single, at, sizeof(single));
		return (double)single;
	}
	memcpy(&half, at, sizeof(half));
	return (double)ref_widen(type, half);
}

/* Of both signs, 1e-8 to 1e8 (float16: to 1e4). */
static double mixed(enum vbn_type type, unsigned *seed)
{
	double digits, scale;

	*seed = *seed * 1664525u + 1013904223u;
	digits = 1 + (double)(*seed >> 8 & 0xffff) / 7300;
	*seed = *seed * 1664525u + 1013904223u;
	scale = (double)(*seed >> 8 & 0xffff) / 65536 * 16 - 8;
	if (type == VBN_FLOAT16)
		scale = scale * 0.7 - 2;
	return (*seed >> 31 ? -digits : digits) * pow(10, scale - 1);
}

static void fill_mixed(enum vbn_type type, int rank, char *data)
{
	unsigned seed = 77u + (unsigned)rank * 1000u;

	for (size_t i = 0; i < COUNT; i++)
		store(type, mixed(type, &seed), data, i);
}

/* ---- every mode ---- */

/* A result that all have must be rank 0's. */
static void check_same(struct test *t, uint64_t mine)
{
	uint64_t root = mine;

	EXPECT(t,
	       vbn_broadcast(t->world, &root, 1, VBN_UINT64, 0, WAIT_MS) == 0);
	EXPECT(t, mine == root);
}

static void check_bits(struct test *t, const struct method *method,
		       enum vbn_type type, bool wire16)
{
	const struct asked asked = {.n = t->n};
	size_t element = vbn_type_bytes(type);
	struct spec s = {.operation = method->operation,
			 .type = type,
			 .count = method->operation == REDUCE_SCATTER
					  ? COUNT / (size_t)t->n
					  : COUNT,
			 .opts = {.size = sizeof(s.opts),
				  .algorithm = method->algorithm,
				  .wire16 = wire16},
			 .rank = t->rank,
			 .n = t->n};
	char *in = malloc(COUNT * element), *out = malloc(COUNT * element);
	int want = method_status(t, method, &asked);
	struct vbn_coll *coll = NULL;
	uint64_t first = 0;

	if (!EXPECT(t, in && out) ||
	    !EXPECT(t, spec_init(t->world, &s, in, out, &coll) == want))
		goto free;
	for (int round = 0; !want && round < ROUNDS; round++) {
		uint64_t mine;

		memset(out, 0, COUNT * element);
		fill_mixed(type, t->rank, in);
		EXPECT(t, run(coll) == 0);
		mine = hash(out, COUNT * element);
		first = round ? first : mine;
		EXPECT(t, mine == first);
		if (method->operation == ALLREDUCE)
			check_same(t, mine);
	}
free:
	vbn_coll_free(coll);
	free(in);
	free(out);
}

void case_bits(struct test *t)
{
	for (int i = 0; i < method_count(); i++)
		for (int f = 0; f < 4; f++)
			for (int wire16 = 0; wire16 < 2; wire16++)
				if (reduces(method_at(i)->operation))
					check_bits(t, method_at(i), floats[f],
						   wire16);
}

/* ---- reproducible ---- */

/* What the result must be, whatever the algorithm. */
static void in_order(const struct test *t, enum vbn_type type,
		     enum vbn_reduction reduction, char *want)
{
	size_t element = vbn_type_bytes(type);
	char *all[RANKS_MOST];

	for (int m = 0; m < t->n; m++) {
		all[m] = malloc(COUNT * element);
		if (all[m])
			fill_mixed(type, m, all[m]);
	}
	for (size_t i = 0; i < COUNT; i++) {
		const void *x[RANKS_MOST];

		for (int m = 0; m < t->n; m++)
			x[m] = all[m] + i * element;
		reference(type, reduction, x, t->n, want + i * element);
	}
	for (int m = 0; m < t->n; m++)
		free(all[m]);
}

/* One call, several times; @want is the whole vector. */
static void check_run(struct test *t, struct vbn_comm *comm, struct spec *s,
		      enum memory memory, const char *want)
{
	size_t element = vbn_type_bytes(s->type);
	size_t bytes = s->count * element;
	struct buffer in, out;
	struct vbn_coll *coll = NULL;

	if (s->operation == REDUCE_SCATTER)
		want += (size_t)t->rank * bytes;
	if (!buffer_make(t, &in, memory, COUNT * element) ||
	    !buffer_make(t, &out, memory, bytes))
		return;
	fill_mixed(s->type, t->rank, in.data);
	if (EXPECT(t, spec_init(comm, s, in.data, out.data, &coll) == 0))
		for (int round = 0; round < ROUNDS; round++) {
			memset(out.data, 0, bytes);
			EXPECT(t, run(coll) == 0);
			if ((s->operation != REDUCE || t->rank == s->root) &&
			    !EXPECT(t, !memcmp(out.data, want, bytes)))
				printf("# %s %s type %d chunk %zu\n",
				       operation_name(s->operation),
				       vbn_algorithm_name(s->opts.algorithm),
				       (int)s->type, s->opts.chunk);
		}
	vbn_coll_free(coll);
	buffer_drop(t, &in);
	buffer_drop(t, &out);
}

static void check_reproducible(struct test *t, struct vbn_comm *comm,
			       const struct method *method, enum vbn_type type,
			       enum vbn_reduction reduction, const char *want)
{
	static const size_t chunks[] = {0, 100, 5000};
	const struct asked asked = {.n = t->n, .reproducible = true};

	if (!reduces(method->operation) || method_status(t, method, &asked))
		return; /* that it is refused is checked by case_offered() */
	for (int i = 0; i < 6; i++) {
		struct spec s = {.operation = method->operation,
				 .type = type,
				 .reduction = reduction,
				 .root = i % t->n,
				 .count = method->operation == REDUCE_SCATTER
						  ? COUNT / (size_t)t->n
						  : COUNT,
				 .opts = {.size = sizeof(s.opts),
					  .algorithm = method->algorithm,
					  .chunk = chunks[i % 3],
					  .wire16 = i == 5,
					  .reproducible = 1},
				 .rank = t->rank,
				 .n = t->n};

		check_run(t, comm, &s, (enum memory)(i % MEMORIES), want);
	}
}

/* By the environment: any algorithm it picks. */
static void check_environment(struct test *t, enum vbn_type type,
			      enum vbn_reduction reduction, const char *want)
{
	struct spec s = {.operation = ALLREDUCE,
			 .type = type,
			 .reduction = reduction,
			 .count = COUNT,
			 .opts = {.size = sizeof(s.opts)},
			 .rank = t->rank,
			 .n = t->n};
	struct vbn_comm *comm;

	setenv("VBN_COLL_REPRODUCIBLE", "1", 1);
	comm = make_comm(t);
	unsetenv("VBN_COLL_REPRODUCIBLE");
	if (comm)
		check_run(t, comm, &s, POOL, want);
	vbn_comm_free(comm);
}

void case_reproducible(struct test *t)
{
	static const enum vbn_reduction sums[] = {VBN_SUM, VBN_AVERAGE};
	struct vbn_comm_options small = {
		.size = sizeof(small), .landing_bytes = 3000, .slots = 1};
	struct vbn_comm *comms[2] = {t->world, NULL};
	char *want = malloc(COUNT * sizeof(double));

	if (!EXPECT(t, want && vbn_comm_create(&comms[1], t->ctx, NULL, 0,
					       &small) == 0)) {
		free(want);
		return;
	}
	for (int k = 0; k < 8; k++) {
		enum vbn_type type = floats[k / 2];
		enum vbn_reduction reduction = sums[k % 2];

		in_order(t, type, reduction, want);
		for (int i = 0; i < method_count(); i++)
			check_reproducible(t, comms[k % 2], method_at(i), type,
					   reduction, want);
		check_environment(t, type, reduction, want);
		if (t->rank == 0)
			printf("# hash of %d ranks, type %d, reduction %d: "
			       "%016llx\n",
			       t->n, (int)type, (int)reduction,
			       (unsigned long long)hash(
				       want, COUNT * vbn_type_bytes(type)));
	}
	vbn_comm_free(comms[1]);
	free(want);
}

/* ---- NaN ---- */

static void check_nan(struct test *t, const struct method *method,
		      enum vbn_type type, enum vbn_reduction reduction)
{
	enum { ELEMENTS = 4 * RANKS_MOST };
	double in[ELEMENTS], out[ELEMENTS];
	const struct asked asked = {.n = t->n};
	struct spec s = {.operation = ALLREDUCE,
			 .type = type,
			 .reduction = reduction,
			 .count = ELEMENTS,
			 .opts = {.size = sizeof(s.opts),
				  .algorithm = method->algorithm},
			 .rank = t->rank,
			 .n = t->n};
	struct vbn_coll *coll = NULL;
	int want = method_status(t, method, &asked);

	/* Element i is NaN at rank i, the others are not. */
	for (int i = 0; i < ELEMENTS; i++)
		store(type, i == t->rank ? NAN : t->rank + i, in, (size_t)i);
	if (!EXPECT(t, spec_init(t->world, &s, in, out, &coll) == want) || want)
		return;
	EXPECT(t, run(coll) == 0);
	for (int i = 0; i < ELEMENTS; i++) {
		double x = load(type, out, (size_t)i);

		if (i < t->n)
			EXPECT(t, isnan(x));
		else
			EXPECT(t,
			       x == (reduction == VBN_MIN ? i : i + t->n - 1));
	}
	check_same(t, hash(out, ELEMENTS * vbn_type_bytes(type)));
	vbn_coll_free(coll);
}

void case_nan(struct test *t)
{
	for (int i = 0; i < method_count(); i++)
		for (int f = 0; f < 4; f++) {
			if (method_at(i)->operation != ALLREDUCE)
				continue;
			check_nan(t, method_at(i), floats[f], VBN_MIN);
			check_nan(t, method_at(i), floats[f], VBN_MAX);
		}
}

/* ---- averages ---- */

static void run_average(struct test *t, const struct method *method,
			enum vbn_type type, const void *in, void *out)
{
	struct spec s = {.operation = ALLREDUCE,
			 .type = type,
			 .reduction = VBN_AVERAGE,
			 .count = 1,
			 .opts = {.size = sizeof(s.opts),
				  .algorithm = method->algorithm},
			 .rank = t->rank,
			 .n = t->n};
	struct vbn_coll *coll = NULL;

	if (EXPECT(t, spec_init(t->world, &s, in, out, &coll) == 0))
		EXPECT(t, run(coll) == 0);
	vbn_coll_free(coll);
}

/* By hand, not by the reference. */
static void check_average(struct test *t, const struct method *method)
{
	int32_t x = -(t->rank + 1), y = 0;
	uint8_t a = 200, b = 0;
	int64_t big = INT64_MAX - t->rank, bigger = 0;
	uint64_t sum = 0;
	uint16_t half = ref_narrow(VBN_FLOAT16, t->rank ? 1 : 2048), average;

	run_average(t, method, VBN_INT32, &x, &y);
	EXPECT(t, y == -(t->n * (t->n + 1) / 2) / t->n);
	run_average(t, method, VBN_UINT8, &a, &b);
	EXPECT(t, b == (200 * t->n & 255) / t->n);
	run_average(t, method, VBN_INT64, &big, &bigger);
	for (int m = 0; m < t->n; m++)
		sum += (uint64_t)(INT64_MAX - m);
	EXPECT(t, bigger == (int64_t)sum / t->n);
	/* In float16 2048 + 1 would be 2048. */
	run_average(t, method, VBN_FLOAT16, &half, &average);
	EXPECT(t, average == ref_narrow(VBN_FLOAT16,
					(float)(2047 + t->n) / (float)t->n));
}

void case_average(struct test *t)
{
	const struct asked asked = {.n = t->n};

	for (int i = 0; i < method_count(); i++)
		if (method_at(i)->operation == ALLREDUCE &&
		    !method_status(t, method_at(i), &asked))
			check_average(t, method_at(i));
}

/* ---- the user's function ---- */

struct user {
	int calls;
	bool right; /* its arguments */
};

static uint32_t gcd(uint32_t a, uint32_t b)
{
	while (b) {
		uint32_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

static void user_gcd(void *dst, const void *a, const void *b, size_t n,
		     enum vbn_type type, void *arg)
{
	struct user *user = arg;

	user->calls++;
	user->right &= type == VBN_UINT32 && n > 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t x, y, z;

		memcpy(&x, (const char *)a + i * sizeof(x), sizeof(x));
		memcpy(&y, (const char *)b + i * sizeof(y), sizeof(y));
		z = gcd(x, y);
		memcpy((char *)dst + i * sizeof(z), &z, sizeof(z));
	}
}

static uint32_t user_value(int member, size_t i)
{
	return (uint32_t)(i % 50 + 1) * (uint32_t)(6 + 30 * member) * 7;
}

static void check_user(struct test *t, const struct method *method)
{
	size_t n = (size_t)t->n, count = COUNT / n * n;
	struct user user = {.right = true};
	struct spec s = {.operation = method->operation,
			 .type = VBN_UINT32,
			 .reduction = VBN_USER,
			 .root = t->n - 1,
			 .opts = {.size = sizeof(s.opts),
				  .algorithm = method->algorithm,
				  .function = user_gcd,
				  .function_arg = &user},
			 .rank = t->rank,
			 .n = t->n};
	size_t first = method->operation == REDUCE_SCATTER
			       ? count / n * (size_t)t->rank
			       : 0;
	uint32_t *in = malloc(count * sizeof(*in));
	uint32_t *out = calloc(count, sizeof(*out));
	struct vbn_coll *coll = NULL;
	bool right = true;

	s.count = method->operation == REDUCE_SCATTER ? count / n : count;
	for (size_t i = 0; in && i < count; i++)
		in[i] = user_value(t->rank, i);
	if (EXPECT(t, in && out && !spec_init(t->world, &s, in, out, &coll)))
		EXPECT(t, run(coll) == 0);
	for (size_t i = 0; coll && i < s.count; i++) {
		uint32_t want = 0;

		for (int m = 0; m < t->n; m++)
			want = gcd(want, user_value(m, first + i));
		right &= out[i] == want;
	}
	EXPECT(t, right || (s.operation == REDUCE && t->rank != s.root));
	EXPECT(t, user.right);
	if (method->operation == REDUCE_SCATTER && t->n == 2)
		EXPECT(t, user.calls > 0);
	vbn_coll_free(coll);
	free(in);
	free(out);
}

void case_user(struct test *t)
{
	const struct asked asked = {.n = t->n};
	uint32_t x = 1, y = 0;

	for (int i = 0; i < method_count(); i++)
		if (reduces(method_at(i)->operation) &&
		    !method_status(t, method_at(i), &asked))
			check_user(t, method_at(i));
	EXPECT(t, vbn_allreduce(t->world, &x, &y, 1, VBN_UINT32, VBN_USER, 0) ==
			  -EINVAL); /* no function */
}
