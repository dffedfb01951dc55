/* SPDX-License-Identifier: BSD-3-Clause */
/* The algorithms that each operation must have, and their limits. */
#include "coll.h"

#include <errno.h>
#include <stddef.h>

#define AUTO(o)                                                                \
	{                                                                      \
		.operation = (o), .in_order = true                             \
	}
#define HAS(o, a, ...)                                                         \
	{                                                                      \
		.operation = (o), .algorithm = VBN_ALGORITHM_##a,              \
		##__VA_ARGS__                                                  \
	}
#define IN_ORDER .in_order = true
#define MAPPED	 .mapped = true, .in_order = true

static const struct method methods[] = {
	AUTO(ALLREDUCE),
	HAS(ALLREDUCE, RING),
	HAS(ALLREDUCE, BIRING),
	HAS(ALLREDUCE, TREE),
	HAS(ALLREDUCE, MAPPED, MAPPED),
	HAS(ALLREDUCE, CENTRAL, IN_ORDER),
	HAS(ALLREDUCE, SHARDED, IN_ORDER),
	HAS(ALLREDUCE, DECENTRALIZED, IN_ORDER),
	HAS(ALLREDUCE, ONESHOT, IN_ORDER),
	HAS(ALLREDUCE, DOUBLE_TREE),
	HAS(ALLREDUCE, HIERARCHICAL),
	HAS(ALLREDUCE, HALVING),
	HAS(ALLREDUCE, DOUBLING),
	AUTO(REDUCE),
	HAS(REDUCE, TREE),
	HAS(REDUCE, MAPPED, MAPPED),
	HAS(REDUCE, LINEAR, IN_ORDER),
	HAS(REDUCE, HIERARCHICAL),
	HAS(REDUCE, HALVING),
	AUTO(BROADCAST),
	HAS(BROADCAST, TREE),
	HAS(BROADCAST, MAPPED, MAPPED),
	HAS(BROADCAST, LINEAR),
	HAS(BROADCAST, DOUBLE_TREE),
	HAS(BROADCAST, HIERARCHICAL),
	AUTO(REDUCE_SCATTER),
	HAS(REDUCE_SCATTER, RING),
	HAS(REDUCE_SCATTER, MAPPED, MAPPED),
	HAS(REDUCE_SCATTER, LINEAR, IN_ORDER),
	HAS(REDUCE_SCATTER, HALVING),
	AUTO(ALLGATHER),
	HAS(ALLGATHER, RING),
	HAS(ALLGATHER, MAPPED, MAPPED),
	HAS(ALLGATHER, LINEAR),
	HAS(ALLGATHER, BRUCK),
	HAS(ALLGATHER, DOUBLING, .power_of_two = true),
	AUTO(GATHER),
	HAS(GATHER, LINEAR),
	HAS(GATHER, TREE, .even = true),
	AUTO(SCATTER),
	HAS(SCATTER, LINEAR),
	HAS(SCATTER, TREE, .even = true),
	AUTO(ALLTOALL),
	HAS(ALLTOALL, MAPPED, MAPPED, .even = true, .apart = true),
	HAS(ALLTOALL, PAIRWISE),
	HAS(ALLTOALL, LINEAR),
	HAS(ALLTOALL, BRUCK, .even = true),
	AUTO(BARRIER),
	HAS(BARRIER, DISSEMINATION),
};

int method_count(void)
{
	return (int)(sizeof(methods) / sizeof(*methods));
}

const struct method *method_at(int i)
{
	return &methods[i];
}

const struct method *method_find(enum operation operation,
				 enum vbn_algorithm algorithm)
{
	for (int i = 0; i < method_count(); i++)
		if (methods[i].operation == operation &&
		    methods[i].algorithm == algorithm)
			return &methods[i];
	return NULL;
}

bool reduces(enum operation operation)
{
	return operation == ALLREDUCE || operation == REDUCE ||
	       operation == REDUCE_SCATTER;
}

const char *operation_name(enum operation operation)
{
	static const char *const names[OPERATIONS] = {
		"allreduce",	  "reduce",    "broadcast",
		"reduce-scatter", "allgather", "gather",
		"scatter",	  "alltoall",  "barrier"};

	return names[operation];
}

int method_status(const struct test *t, const struct method *method,
		  const struct asked *asked)
{
	bool there;

	if (asked->n == 1)
		return 0; /* a copy, whatever was asked for */
	if (!method)
		return -EOPNOTSUPP;
	there = (!method->mapped || t->shares) &&
		(!method->even || !asked->uneven) &&
		(!method->apart || !asked->in_place) &&
		(!method->power_of_two || !(asked->n & (asked->n - 1))) &&
		(method->in_order || !asked->reproducible ||
		 !reduces(method->operation));
	return there ? 0 : -EOPNOTSUPP;
}
