/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators out of communicators.
 */
#include "coll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct claim {
	int64_t colour, key;
	int member;
};

static int by_key(const void *a, const void *b)
{
	const struct claim *x = a, *y = b;

	if (x->key != y->key)
		return x->key < y->key ? -1 : 1;
	return x->member < y->member ? -1 : x->member > y->member;
}

/* With the same landing slots as @from. */
static int create_like(struct vbn_comm **out, const struct vbn_comm *from,
		       const int *ranks, const int *indexes, int n)
{
	const struct vbn_comm_options opts = {.size = sizeof(opts),
					      .indexes = indexes,
					      .landing_bytes = from->slot_bytes,
					      .slots = from->slots};

	return vbn_comm_create(out, from->ctx, ranks, n, &opts);
}

int vbn_comm_dup(struct vbn_comm **out, const struct vbn_comm *comm)
{
	if (!comm->shared->ctx)
		return vbn_fail(-ENOTCONN,
				"the communicator's context was closed");
	return create_like(out, comm, comm->ranks, comm->indexes, comm->n);
}

/* What a split needs, all at once: later it must not run out of memory. */
struct split {
	struct claim *claims;
	int64_t *all;
	int *ranks, *indexes;
};

static void split_release(struct split *split)
{
	free(split->claims);
	free(split->all);
	free(split->ranks);
	free(split->indexes);
}

/* A member that cannot take part breaks @comm: the others wait for it. */
static int split_prepare(struct split *split, struct vbn_comm *comm)
{
	size_t members = (size_t)comm->n;
	struct thread *taken;

	split->claims = calloc(members, sizeof(*split->claims));
	split->all = calloc(members, 2 * sizeof(*split->all));
	split->ranks = calloc(members, sizeof(*split->ranks));
	split->indexes = calloc(members, sizeof(*split->indexes));
	if (split->claims && split->all && split->ranks && split->indexes)
		return 0;
	taken = coll_take(comm->shared);
	comm_fail(comm, -ENOMEM, "rank %d has no memory for a split",
		  comm->ranks[comm->rank]);
	coll_give(taken);
	return vbn_fail(-ENOMEM, "no memory for a communicator");
}

static int create_claimed(struct vbn_comm **out, struct vbn_comm *comm,
			  struct split *split, int colour)
{
	int n = 0;

	for (int i = 0; i < comm->n; i++)
		if (split->all[2 * i] == colour)
			split->claims[n++] = (struct claim){
				colour, split->all[2 * i + 1], i};
	qsort(split->claims, (size_t)n, sizeof(*split->claims), by_key);
	for (int i = 0; i < n; i++) {
		split->ranks[i] = comm->ranks[split->claims[i].member];
		split->indexes[i] = comm->indexes[split->claims[i].member];
	}
	return create_like(out, comm, split->ranks, split->indexes, n);
}

int vbn_comm_split(struct vbn_comm **out, struct vbn_comm *comm, int colour,
		   int key, int timeout_ms)
{
	const int64_t mine[2] = {colour, key};
	struct split split = {0};
	int err = split_prepare(&split, comm);

	if (!err)
		err = vbn_allgather(comm, mine, split.all, 2, VBN_INT64,
				    timeout_ms);
	if (!err && colour < 0)
		*out = NULL;
	else if (!err)
		err = create_claimed(out, comm, &split, colour);
	split_release(&split);
	return err;
}
