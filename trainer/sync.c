/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Summing gradients: over the replicas of a stage, then, of a tied embedding,
 * over the first and the last stage of each replica. Persistent collectives
 * on the gradients where they lie. Every replica of every stage does both in
 * the same order, so the copies stay equal in bits.
 */
#include "train.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef VBN_REAL_DOUBLE
#define REAL_TYPE VBN_FLOAT64
#else
#define REAL_TYPE VBN_FLOAT32
#endif

static int group(struct trainer *t, const int *ranks, int n, real *values,
		 size_t count, struct vbn_comm **comm, struct vbn_coll **sum)
{
	struct vbn_coll_options opts = {
		.size = sizeof(opts),
		.algorithm = strcmp(t->o->sync, "tree") ? VBN_ALGORITHM_RING
							: VBN_ALGORITHM_TREE,
	};
	int err = vbn_comm_create(comm, t->ctx, ranks, n, NULL);

	if (!err)
		err = vbn_allreduce_init(*comm, NULL, values, count, REAL_TYPE,
					 VBN_SUM, &opts, sum);
	return err ? trainer_fail(err, "%s", vbn_error()) : 0;
}

int sync_open(struct trainer *t)
{
	const struct train_options *o = t->o;
	int err = 0;

	if (o->replicas > 1) {
		int *ranks = malloc((size_t)o->replicas * sizeof(*ranks));

		if (!ranks)
			return trainer_fail(-ENOMEM, "no memory");
		for (int r = 0; r < o->replicas; r++)
			ranks[r] = r * o->stages + t->stage_index;
		err = group(t, ranks, o->replicas, t->grads, t->params_count,
			    &t->replicas, &t->sum_replicas);
		free(ranks);
	}
	if (!err && t->tensors[0].tied) {
		int first = t->replica * o->stages;
		int ranks[2] = {first, first + o->stages - 1};

		err = group(t, ranks, 2, t->grads + t->tensors[0].offset,
			    t->tensors[0].count, &t->tied, &t->sum_tied);
	}
	return err;
}

void sync_close(struct trainer *t)
{
	if (t->sum_replicas)
		vbn_coll_free(t->sum_replicas);
	if (t->sum_tied)
		vbn_coll_free(t->sum_tied);
	if (t->replicas)
		vbn_comm_free(t->replicas);
	if (t->tied)
		vbn_comm_free(t->tied);
}

static int run(struct trainer *t, struct vbn_coll *coll)
{
	int err = 0;

	if (!coll)
		return 0;
	err = vbn_coll_start(coll);
	if (!err)
		err = vbn_coll_wait(coll, t->o->timeout_ms);
	return err ? trainer_fail(err, "summing gradients: %s", vbn_error())
		   : 0;
}

int sync_gradients(struct trainer *t)
{
	int err = run(t, t->sum_replicas);

	return err ? err : run(t, t->sum_tied);
}
