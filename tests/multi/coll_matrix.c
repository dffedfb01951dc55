/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations by types, reductions, algorithms, counts, roots, places and
 * kinds of memory, chunks and modes: every pair of levels at least once.
 */
#include "coll.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is offered ---- */

static void check_offered(struct test *t, enum operation operation,
			  enum vbn_algorithm algorithm)
{
	const struct method *method = method_find(operation, algorithm);
	static double in[16 * RANKS_MOST], out[16 * RANKS_MOST];

	for (int mode = 0; mode < 4; mode++) {
		struct asked asked = {.n = t->n,
				      .reproducible = mode & 1,
				      .in_place = mode & 2};
		struct spec spec = {.operation = operation,
				    .type = VBN_FLOAT64,
				    .in_place = asked.in_place,
				    .count = 10,
				    .opts = {.size = sizeof(spec.opts),
					     .algorithm = algorithm,
					     .reproducible = mode & 1},
				    .rank = t->rank,
				    .n = t->n};
		struct vbn_coll *coll = NULL;
		int want = method_status(t, method, &asked);

		if (asked.in_place && operation != ALLTOALL)
			continue; /* the others' are of the matrix */
		if (!EXPECT(t, spec_init(t->world, &spec, in,
					 asked.in_place ? in : out,
					 &coll) == want))
			printf("# %s %s, mode %d\n", operation_name(operation),
			       vbn_algorithm_name(algorithm), mode);
		vbn_coll_free(coll);
	}
}

void case_offered(struct test *t)
{
	for (int o = 0; o < OPERATIONS; o++)
		for (int a = 0; a < VBN_ALGORITHMS; a++)
			check_offered(t, (enum operation)o,
				      (enum vbn_algorithm)a);
	EXPECT(t, vbn_algorithm_name(VBN_ALGORITHMS) == NULL);
	all_here(t);
}

/* ---- the matrix ---- */

enum factor {
	METHOD,
	TYPE,
	REDUCTION,
	COUNT,
	MEMORY, /* one more: another on each rank */
	PLACE,
	CHUNK,
	MODE,
	ROOT,
	SLOTS,
	FACTORS
};

/* ON_ODD: in place on odd ranks only. */
enum { APART, IN_PLACE, IN_PLACE_NULL, ON_ODD, PLACES };
enum { CHUNK_AUTO, CHUNK_SMALL, CHUNK_ODD, CHUNK_LARGE, CHUNKS };
enum { PLAIN, WIRE16, REPRODUCIBLE, MODES };

/* Over a network fewer types: the kernels are the same. */
static const enum vbn_type all_types[] = {
	VBN_INT8,   VBN_UINT8,	 VBN_INT32,    VBN_UINT32,  VBN_INT64,
	VBN_UINT64, VBN_FLOAT16, VBN_BFLOAT16, VBN_FLOAT32, VBN_FLOAT64,
};
static const enum vbn_type few_types[] = {VBN_INT8, VBN_FLOAT16, VBN_FLOAT32,
					  VBN_UINT64};
static const enum vbn_type *types;

/* Sums of floating point are not bitwise; what is not in order cannot. */
static bool goes(int f, int a, int g, int b)
{
	if (f == TYPE && g == REDUCTION)
		return types[a] < VBN_FLOAT16 || types[a] > VBN_FLOAT64 ||
		       b < VBN_AND || b > VBN_XOR;
	if (f == METHOD && g == MODE)
		return b != REPRODUCIBLE || method_at(a)->in_order ||
		       !reduces(method_at(a)->operation);
	if (f == METHOD && g == PLACE)
		return b == APART ||
		       (!method_at(a)->apart &&
			(b != ON_ODD || method_at(a)->operation != ALLTOALL));
	return true;
}

static size_t count_of(const struct test *t, int level)
{
	size_t n = (size_t)t->n;
	const size_t counts[] = {0, 1, n - 1, n, n + 1, 1000, 65537};

	return counts[level];
}

static size_t chunk_of(int level, size_t bytes)
{
	switch (level) {
	case CHUNK_SMALL:
		return bytes / 40 + 64;
	case CHUNK_ODD:
		return bytes / 7 + 1001;
	case CHUNK_LARGE:
		return (size_t)256 << 10;
	default:
		return 0;
	}
}

static struct spec spec_of(const struct test *t, const int *row, int number,
			   int *calls)
{
	static const unsigned windows[] = {0, 1, 3, 64, 17};
	enum vbn_type type = types[row[TYPE]];
	size_t count = count_of(t, row[COUNT]);

	return (struct spec){
		.operation = method_at(row[METHOD])->operation,
		.type = type,
		.reduction = (enum vbn_reduction)row[REDUCTION],
		.root = row[ROOT],
		.in_place = row[PLACE] == ON_ODD ? t->rank & 1
						 : row[PLACE] != APART,
		.by_null = row[PLACE] == IN_PLACE_NULL,
		.count = count,
		.opts = {.size = sizeof(struct vbn_coll_options),
			 .algorithm = method_at(row[METHOD])->algorithm,
			 .chunk = chunk_of(row[CHUNK],
					   count * vbn_type_bytes(type)),
			 /* May differ between members. */
			 .window = windows[(number + t->rank) % 5],
			 .reproducible = row[MODE] == REPRODUCIBLE,
			 .wire16 = row[MODE] == WIRE16,
			 .function =
				 row[REDUCTION] == VBN_USER ? user_xor : NULL,
			 .function_arg = calls},
		.salt = (unsigned)number * 2,
	};
}

static enum memory memory_of(const struct test *t, int level, int more)
{
	return (enum memory)((level == MEMORIES ? t->rank + more : level) %
			     MEMORIES);
}

static bool check_row(struct test *t, struct vbn_comm **comms, const int *row,
		      int number)
{
	int calls = 0;
	struct spec spec = spec_of(t, row, number, &calls);
	const struct asked asked = {.n = t->n,
				    .reproducible = spec.opts.reproducible,
				    .in_place = spec.in_place};
	int want = method_status(t, method_at(row[METHOD]), &asked);

	spec_check(t, comms[row[SLOTS]], &spec,
		   memory_of(t, row[MEMORY], number),
		   memory_of(t, row[MEMORY], number + 1), 2, want);
	return want == 0;
}

/* Each method must have run, unless it is not there at all. */
static void check_ran(struct test *t, const int *ran)
{
	const struct asked asked = {.n = t->n};

	for (int i = 0; i < method_count(); i++)
		if (!method_status(t, method_at(i), &asked) &&
		    !EXPECT(t, ran[i] >= PLACES))
			printf("# %s %s ran %d times\n",
			       operation_name(method_at(i)->operation),
			       vbn_algorithm_name(method_at(i)->algorithm),
			       ran[i]);
}

static void check_rows(struct test *t, struct rows *rows,
		       struct vbn_comm **comms)
{
	int row[FACTORS_MOST], number = 0, total = 0;
	int *ran = calloc((size_t)method_count(), sizeof(*ran));

	while (ran && t->failures < 10 && rows_next(rows, row)) {
		bool there = check_row(t, comms, row, number++);

		ran[row[METHOD]] += there;
		total += there;
	}
	if (t->rank == 0)
		printf("# matrix: %d rows, %d are there\n", number, total);
	EXPECT(t, rows->lost == 0);
	if (t->failures == 0)
		check_ran(t, ran);
	free(ran);
}

void case_matrix(struct test *t)
{
	struct vbn_comm_options tight = {
		.size = sizeof(tight), .landing_bytes = 5001, .slots = 2};
	struct rows *rows = calloc(1, sizeof(*rows));
	struct vbn_comm *comms[2] = {t->world, NULL};

	if (!EXPECT(t, rows && vbn_comm_create(&comms[1], t->ctx, NULL, 0,
					       &tight) == 0)) {
		free(rows);
		return;
	}
	types = t->shares ? all_types : few_types;
	*rows = (struct rows){
		.factors = FACTORS,
		.levels = {[METHOD] = method_count(),
			   [TYPE] = t->shares ? 10 : 4,
			   [REDUCTION] = VBN_USER + 1,
			   [COUNT] = 7,
			   [MEMORY] = MEMORIES + 1,
			   [PLACE] = PLACES,
			   [CHUNK] = CHUNKS,
			   [MODE] = MODES,
			   [ROOT] = t->n,
			   [SLOTS] = 2},
		.goes = goes,
	};
	rows_begin(rows);
	check_rows(t, rows, comms);
	vbn_comm_free(comms[1]);
	free(rows);
}

/* ---- blocking calls ---- */

static int call(struct vbn_comm *comm, const struct spec *s, const void *in,
		void *out)
{
	switch (s->operation) {
	case ALLREDUCE:
		return vbn_allreduce(comm, in, out, s->count, s->type,
				     s->reduction, WAIT_MS);
	case REDUCE:
		return vbn_reduce(comm, in, out, s->count, s->type,
				  s->reduction, s->root, WAIT_MS);
	case BROADCAST:
		return vbn_broadcast(comm, out, s->count, s->type, s->root,
				     WAIT_MS);
	case REDUCE_SCATTER:
		return vbn_reduce_scatter(comm, in, out, s->count, s->type,
					  s->reduction, WAIT_MS);
	case ALLGATHER:
		return vbn_allgather(comm, in, out, s->count, s->type, WAIT_MS);
	case GATHER:
		return vbn_gather(comm, in, out, s->count, s->type, s->root,
				  WAIT_MS);
	case SCATTER:
		return vbn_scatter(comm, in, out, s->count, s->type, s->root,
				   WAIT_MS);
	case ALLTOALL:
		return vbn_alltoall(comm, in, out, s->count, s->type, WAIT_MS);
	default:
		return vbn_barrier(comm, WAIT_MS);
	}
}

/* Again and again with the same arguments, but other data. */
static void check_blocking(struct test *t, struct spec *s, int times)
{
	size_t element = vbn_type_bytes(s->type);
	size_t ins = spec_in(s) * element, outs = spec_out(s) * element;
	char *want = malloc(outs + 1);
	struct buffer in, out;

	if (!EXPECT(t, want != NULL) || !buffer_make(t, &in, POOL, ins) ||
	    !buffer_make(t, &out, POOL, outs)) {
		free(want);
		return;
	}
	for (int i = 0; i < times; i++) {
		s->salt++;
		memset(want, BUFFER_FILL, outs);
		memcpy(out.data, want, outs);
		spec_fill_in(s, s->operation == BROADCAST ? out.data : in.data);
		spec_fill_out(s, want);
		EXPECT(t, call(t->world, s, in.data, out.data) == 0);
		EXPECT(t, !memcmp(out.data, want, outs));
	}
	buffer_drop(t, &in);
	buffer_drop(t, &out);
	free(want);
}

void case_blocking(struct test *t)
{
	for (int o = 0; o < OPERATIONS; o++)
		for (int root = 0; root<t->n; root += t->n> 1 ? t->n - 1 : 1)
			for (size_t count = 3; count < 40000; count *= 9000) {
				struct spec s = {.operation = (enum operation)o,
						 .type = VBN_INT32,
						 .root = root,
						 .count = count,
						 .rank = t->rank,
						 .n = t->n};

				check_blocking(t, &s, 10);
			}
}
