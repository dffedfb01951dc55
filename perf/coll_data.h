/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The collectives that are measured, and their data: what each rank puts in,
 * and from where each element that comes out is. For verbena-perf and for what
 * perf/compare-collectives compares it with (C and C++).
 *
 * The size of a measurement is nccl-tests': bytes of the larger buffer. Where
 * buffers are divided among ranks, that is a whole number of elements a rank.
 */
#ifndef PERF_COLL_DATA_H
#define PERF_COLL_DATA_H

#include <stdbool.h>
#include <stddef.h>

enum coll_op {
	COLL_ALLREDUCE,
	COLL_REDUCE,
	COLL_BROADCAST,
	COLL_ALLGATHER,
	COLL_REDUCE_SCATTER,
	COLL_ALLTOALL,
	COLL_GATHER,
	COLL_SCATTER,
	COLL_BARRIER
};

/* One cell: elements that are passed to the call, and of both buffers. */
struct coll_shape {
	enum coll_op op;
	int rank, nranks;
	size_t count;
	size_t in, out; /* elements of the buffers; broadcast has out only */
};

static inline struct coll_shape coll_shape_of(enum coll_op op, int rank,
					      int nranks, size_t elements)
{
	size_t n = (size_t)nranks, part = elements / n ? elements / n : 1;
	struct coll_shape s = {op, rank, nranks, part, part * n, part * n};

	switch (op) {
	case COLL_ALLGATHER:
	case COLL_GATHER:
		s.in = part;
		break;
	case COLL_REDUCE_SCATTER:
	case COLL_SCATTER:
		s.out = part;
		break;
	case COLL_ALLTOALL:
		break;
	case COLL_BROADCAST:
		s.count = s.out = elements;
		s.in = 0;
		break;
	case COLL_BARRIER:
		s.count = s.in = s.out = 0;
		break;
	default:
		s.count = s.in = s.out = elements;
	}
	return s;
}

/*
 * Element @i of what @rank puts in: a small integer, so that sums are exact in
 * whatever order. It is that of @i modulo the period.
 */
#define COLL_DATA_PERIOD 17
static inline int coll_data_in(size_t i, int rank)
{
	return (int)((i + 3 * (size_t)rank) % COLL_DATA_PERIOD) + rank % 5;
}

/* Element @index of what rank @rank puts in; -1: of all ranks, reduced. */
struct coll_origin {
	size_t index;
	int rank;
};

/* Whether the calling rank gets anything. The root is rank 0. */
static inline bool coll_data_receives(const struct coll_shape *s)
{
	bool root_only = s->op == COLL_REDUCE || s->op == COLL_GATHER;

	return s->op != COLL_BARRIER && (!root_only || s->rank == 0);
}

static inline struct coll_origin coll_data_origin(const struct coll_shape *s,
						  size_t i)
{
	size_t mine = (size_t)s->rank * s->count;
	struct coll_origin o = {i, -1};

	switch (s->op) {
	case COLL_REDUCE_SCATTER:
		o.index = mine + i;
		break;
	case COLL_BROADCAST:
		o.rank = 0;
		break;
	case COLL_SCATTER:
		o.index = mine + i;
		o.rank = 0;
		break;
	case COLL_ALLGATHER:
	case COLL_GATHER:
		o.index = i % s->count;
		o.rank = (int)(i / s->count);
		break;
	case COLL_ALLTOALL:
		o.index = mine + i % s->count;
		o.rank = (int)(i / s->count);
		break;
	default:
		break;
	}
	return o;
}

#endif
