/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collectives at random, the same on all ranks, on integers, so that results
 * are exact. An error may come when an endpoint may fail, but then in time.
 */
#include "random_ops.h"

#include <verbena/collectives.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { WAIT_MS = 20000, COUNT_MOST = 30000 };

enum call {
	ALLREDUCE,
	BROADCAST,
	ALLGATHER,
	ALLTOALL,
	REDUCE_SCATTER,
	BARRIER,
	CALLS
};

struct buffers {
	int64_t *in, *out; /* COUNT_MOST times the ranks */
};

static int64_t element(uint64_t call, int rank, size_t i)
{
	return (int64_t)(mix(call * 64 + (uint64_t)rank, i) >> 20);
}

/* What out[i] must be on this rank. */
static int64_t expected(const struct rank *r, enum call what, uint64_t call,
			int root, size_t count, size_t i)
{
	int64_t sum = 0;

	if (what == BROADCAST)
		return element(call, root, i);
	if (what == ALLGATHER)
		return element(call, (int)(i / count), i % count);
	if (what == ALLTOALL)
		return element(call, (int)(i / count),
			       (size_t)r->me * count + i % count);
	if (what == REDUCE_SCATTER)
		i += (size_t)r->me * count;
	for (int k = 0; k < r->n; k++)
		sum += element(call, k, i);
	return sum;
}

static int run_call(struct vbn_comm *comm, enum call what, int root,
		    size_t count, const struct buffers *b)
{
	switch (what) {
	case ALLREDUCE:
		return vbn_allreduce(comm, b->in, b->out, count, VBN_INT64,
				     VBN_SUM, WAIT_MS);
	case BROADCAST:
		return vbn_broadcast(comm, b->out, count, VBN_INT64, root,
				     WAIT_MS);
	case ALLGATHER:
		return vbn_allgather(comm, b->in, b->out, count, VBN_INT64,
				     WAIT_MS);
	case ALLTOALL:
		return vbn_alltoall(comm, b->in, b->out, count, VBN_INT64,
				    WAIT_MS);
	case REDUCE_SCATTER:
		return vbn_reduce_scatter(comm, b->in, b->out, count, VBN_INT64,
					  VBN_SUM, WAIT_MS);
	default:
		return vbn_barrier(comm, WAIT_MS);
	}
}

/* false: the communicator is broken. */
static bool one(struct rank *r, struct vbn_comm *comm, uint64_t call,
		const struct buffers *b)
{
	uint64_t bits = mix(r->seed, call);
	enum call what = (enum call)(bits % CALLS);
	int root = (int)(mix(bits, 1) % (uint64_t)r->n);
	size_t most = COUNT_MOST >> mix(bits, 2) % 14;
	size_t count = mix(bits, 3) % (most + 1);
	bool parts = what == ALLTOALL || what == REDUCE_SCATTER;
	size_t n = what == BARRIER ? 0 : count, wide = n * (size_t)r->n;
	int err;

	for (size_t i = 0; i < (parts ? wide : n); i++)
		b->in[i] = element(call, r->me, i);
	if (what == BROADCAST)
		memcpy(b->out, b->in, n * sizeof(*b->out));
	err = run_call(comm, what, root, count, b);
	r->ops++;
	if (err) {
		r->errors++;
		if (!may_fail_with(r, err))
			wrong(r, "collective %llu (%d): %s: %s",
			      (unsigned long long)call, what, strerror(-err),
			      vbn_error());
		return false;
	}
	if (what == ALLGATHER || what == ALLTOALL)
		n = wide;
	for (size_t i = 0; i < n; i++)
		if (b->out[i] != expected(r, what, call, root, count, i)) {
			wrong(r,
			      "collective %llu (%d), root %d, count %zu: "
			      "element %zu is wrong",
			      (unsigned long long)call, what, root, count, i);
			return true;
		}
	return true;
}

void coll_run(struct rank *r, int count)
{
	size_t bytes = COUNT_MOST * (size_t)r->n * sizeof(int64_t);
	struct buffers b = {malloc(bytes), malloc(bytes)};
	struct vbn_comm *comm;

	if (!b.in || !b.out || vbn_comm_create(&comm, r->ctx, NULL, 0, NULL)) {
		wrong(r, "setup: %s", vbn_error());
	} else {
		for (uint64_t i = 0; i < (uint64_t)count; i++)
			if (!one(r, comm, i, &b))
				break;
		vbn_comm_free(comm);
	}
	free(b.in);
	free(b.out);
}
