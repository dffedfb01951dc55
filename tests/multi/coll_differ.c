/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Members whose calls differ: every one gets -EPROTO, at this call or the
 * next that all members wait for, with a list of what each member calls.
 */
#include "coll.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* What a call returned, or else the next, must be -EPROTO. */
static void expect_found(struct test *t, struct vbn_comm *comm, int err)
{
	if (!err)
		err = vbn_barrier(comm, 5000);
	EXPECT(t, err == -EPROTO);
}

/* The text must have rank @rank in the list before @what. */
static void expect_listed(struct test *t, int rank, const char *what)
{
	const char *list = vbn_error(), *at = strstr(list, what);
	bool found = false;

	while (at && !found) {
		const char *from = at;
		char *end;

		/* "...; rank 0, 2, 3: what": the numbers before it. */
		while (from > list && *from != ';' && strncmp(from, "rank ", 5))
			from--;
		from += !strncmp(from, "rank ", 5) ? 5 : 1;
		while (from < at && !found) {
			found = strtol(from, &end, 10) == rank && end > from;
			from = strchr(end, ',');
			from = from && from < at ? from + 1 : at;
		}
		at = strstr(at + 1, what);
	}
	if (!EXPECT(t, found))
		printf("# not listed: rank %d with %s\n", rank, what);
}

/* One rank passes count + 1 (B5), for several sizes; the third one, if any. */
static void check_count(struct test *t, size_t count, int odd)
{
	struct vbn_comm *comm = make_comm(t);
	size_t mine = count + (t->rank == odd);
	float *data = calloc(mine, sizeof(*data));
	char what[64];
	int err;

	err = vbn_allreduce(comm, NULL, data, mine, VBN_FLOAT32, VBN_SUM, 5000);
	expect_found(t, comm, err);
	for (int r = 0; r < t->n; r++) {
		snprintf(what, sizeof(what), ": allreduce of %zu float32",
			 count + (r == odd));
		expect_listed(t, r, what);
	}
	all_here(t);
	vbn_comm_free(comm);
	free(data);
}

void case_count_differs(struct test *t)
{
	static const size_t counts[] = {1, 1000, 65537, 1000000};

	for (int c = 0; t->n > 1 && c < 4; c++) {
		check_count(t, counts[c], t->n > 2 ? 2 : 1);
		check_count(t, counts[c], (c + 1) % t->n);
	}
}

/* Rank 1 broadcasts, the others allreduce (B6), small and large. */
void case_operation_differs(struct test *t)
{
	for (int root = 0; t->n > 1 && root < t->n; root++)
		for (size_t count = 10; count < 200000; count *= 10000) {
			struct vbn_comm *comm = make_comm(t);
			float *data = calloc(count, sizeof(*data));
			int err;

			if (t->rank == 1)
				err = vbn_broadcast(comm, data, count,
						    VBN_FLOAT32, root, 5000);
			else
				err = vbn_allreduce(comm, NULL, data, count,
						    VBN_FLOAT32, VBN_SUM, 5000);
			expect_found(t, comm, err);
			for (int r = 0; r < t->n; r++)
				expect_listed(t, r,
					      r == 1 ? ": broadcast of"
						     : ": allreduce of");
			all_here(t);
			vbn_comm_free(comm);
			free(data);
		}
}

enum difference {
	TYPE,
	REDUCTION,
	ROOT,
	ALGORITHM,
	CHUNK,
	WIRE,
	REDUCE_OR_NOT,
	IN_PLACE,
	DIFFERENCES
};

static enum operation operation_of(enum difference difference, bool odd)
{
	if (difference == ROOT)
		return BROADCAST;
	if (difference == IN_PLACE)
		return ALLTOALL;
	return difference == REDUCE_OR_NOT && odd ? ALLGATHER : ALLREDUCE;
}

/* The last rank's call differs in one thing. */
static void check_difference(struct test *t, enum difference difference,
			     size_t count)
{
	struct vbn_comm *comm = make_comm(t);
	bool odd = t->rank == t->n - 1;
	double *in = calloc(count * RANKS_MOST, sizeof(*in));
	double *out = calloc(count * RANKS_MOST, sizeof(*out));
	struct spec s = {
		.operation = operation_of(difference, odd),
		.type = odd && difference == TYPE ? VBN_INT32 : VBN_FLOAT16,
		.reduction = odd && difference == REDUCTION ? VBN_MAX : VBN_SUM,
		.root = odd && difference == ROOT,
		.count = count,
		.opts = {.size = sizeof(s.opts),
			 .algorithm = VBN_ALGORITHM_RING,
			 .chunk = odd && difference == CHUNK ? 1000 : 0,
			 .wire16 = odd && difference == WIRE},
		.rank = t->rank,
		.n = t->n};
	struct vbn_coll *coll = NULL;
	int err;

	if (s.operation == BROADCAST || (odd && difference == ALGORITHM))
		s.opts.algorithm = VBN_ALGORITHM_TREE;
	if (s.operation == ALLTOALL)
		s.opts.algorithm = VBN_ALGORITHM_PAIRWISE;
	EXPECT(t, spec_init(comm, &s, odd && difference == IN_PLACE ? out : in,
			    out, &coll) == 0);
	err = vbn_coll_start(coll);
	if (!err)
		err = vbn_coll_wait(coll, 5000);
	expect_found(t, comm, err);
	all_here(t);
	if (t->failures)
		printf("# difference %d, count %zu\n", (int)difference, count);
	vbn_coll_free(coll);
	vbn_comm_free(comm);
	free(in);
	free(out);
}

void case_others_differ(struct test *t)
{
	for (int d = 0; t->n > 1 && d < DIFFERENCES; d++)
		for (size_t count = 7; count < 100000 && !t->failures;
		     count *= 9001)
			check_difference(t, (enum difference)d, count);
}

/*
 * The last rank takes another for the root of a small call. Members that wait
 * for nobody, or only for one that does not, cannot know at once: they get it
 * while they make @calls of them, if that is more than the wire's reach, else
 * in the first call that all wait for.
 */
static void check_root(struct test *t, enum operation operation, int calls)
{
	enum { REACH = 16 };
	struct vbn_comm *comm = make_comm(t);
	int odd = t->n - 1, in[RANKS_MOST] = {0}, out[RANKS_MOST] = {0};
	int err = 0, made = 0;

	for (int i = 0; !err && i < calls; i++, made++) {
		int root = i == 0 && t->rank == odd;

		if (operation == BROADCAST)
			err = vbn_broadcast(comm, in, 1, VBN_INT32, root, 5000);
		else if (operation == REDUCE)
			err = vbn_reduce(comm, in, out, 1, VBN_INT32, VBN_SUM,
					 root, 5000);
		else if (operation == GATHER)
			err = vbn_gather(comm, in, out, 1, VBN_INT32, root,
					 5000);
		else
			err = vbn_scatter(comm, in, out, 1, VBN_INT32, root,
					  5000);
	}
	/* One more came before the root had to wait for the odd one. */
	if (calls > REACH)
		EXPECT(t, err == -EPROTO && made <= REACH + 2);
	expect_found(t, comm, err);
	all_here(t);
	if (t->failures)
		printf("# operation %d, %d calls\n", (int)operation, calls);
	vbn_comm_free(comm);
}

void case_root_differs(struct test *t)
{
	static const enum operation operations[] = {BROADCAST, REDUCE, GATHER,
						    SCATTER};

	if (t->n != 3)
		return;
	/* Over others than shm it takes a while, by the job's store. */
	for (int i = 0; i < (t->shares ? 4 : 1) && !t->failures; i++)
		for (int calls = 1; calls < 40 && !t->failures; calls += 19)
			check_root(t, operations[i], calls);
}

/* Count 0 returns at once; the disagreement comes at the next call. */
void case_returned_early(struct test *t)
{
	struct vbn_comm *comm = make_comm(t);
	float data[10] = {0};
	int err;

	if (t->n > 1) {
		err = vbn_allreduce(comm, NULL, data, t->rank ? 10 : 0,
				    VBN_FLOAT32, VBN_SUM, 5000);
		if (t->rank == 0)
			usleep(100000);
		expect_found(t, comm, err);
	}
	all_here(t);
	vbn_comm_free(comm);
}
