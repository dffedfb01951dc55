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

/* With the same landing slots as @from. @claims: the members, or all. */
static int create_like(struct vbn_comm **out, const struct vbn_comm *from,
		       const struct claim *claims, int n)
{
	size_t members = (size_t)n;
	int *ranks = calloc(2 * members, sizeof(*ranks));
	int *indexes = ranks ? ranks + members : NULL;
	const struct vbn_comm_options opts = {.size = sizeof(opts),
					      .indexes = indexes,
					      .landing_bytes = from->slot_bytes,
					      .slots = from->slots};
	int err;

	if (!ranks)
		return vbn_fail(-ENOMEM, "no memory for a communicator");
	for (int i = 0; i < n; i++) {
		int member = claims ? claims[i].member : i;

		ranks[i] = from->ranks[member];
		indexes[i] = from->indexes[member];
	}
	err = vbn_comm_create(out, from->ctx, ranks, n, &opts);
	free(ranks);
	return err;
}

int vbn_comm_dup(struct vbn_comm **out, const struct vbn_comm *comm)
{
	if (!comm->shared->ctx)
		return vbn_fail(-ENOTCONN,
				"the communicator's context was closed");
	return create_like(out, comm, NULL, comm->n);
}

int vbn_comm_split(struct vbn_comm **out, struct vbn_comm *comm, int colour,
		   int key, int timeout_ms)
{
	const int64_t mine[2] = {colour, key};
	size_t members = (size_t)comm->n;
	struct claim *claims = calloc(members, sizeof(*claims));
	int64_t *all = calloc(members, sizeof(mine));
	int n = 0, err = -ENOMEM;

	if (!claims || !all) {
		err = vbn_fail(-ENOMEM, "no memory for a communicator");
		goto free;
	}
	err = vbn_allgather(comm, mine, all, 2, VBN_INT64, timeout_ms);
	if (err)
		goto free;
	for (int i = 0; i < comm->n; i++)
		if (all[2 * i] == colour)
			claims[n++] = (struct claim){colour, all[2 * i + 1], i};
	if (colour < 0) {
		*out = NULL;
	} else {
		qsort(claims, (size_t)n, sizeof(*claims), by_key);
		err = create_like(out, comm, claims, n);
	}
free:
	free(claims);
	free(all);
	return err;
}
