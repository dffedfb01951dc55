/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls, each a request.
 */
#include "coll.h"

#include <errno.h>
#include <stdlib.h>

static int make(struct vbn_comm *comm, const struct request *request,
		struct vbn_coll **coll)
{
	struct vbn_coll *new = malloc(sizeof(*new));
	struct thread *taken;
	int err;

	if (!new)
		return vbn_fail(-ENOMEM, "no memory for a collective");
	taken = coll_take(comm->shared);
	err = coll_prepare(new, comm, request);
	coll_give(taken);
	if (err)
		free(new);
	else
		*coll = new;
	return err;
}

/* ---- persistent ---- */

int vbn_allreduce_init(struct vbn_comm *comm, const void *in, void *out,
		       size_t count, enum vbn_type type,
		       enum vbn_reduction reduction,
		       const struct vbn_coll_options *opts,
		       struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_ALLREDUCE,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.reduction = reduction,
					.options = opts};

	return make(comm, &request, coll);
}

int vbn_reduce_init(struct vbn_comm *comm, const void *in, void *out,
		    size_t count, enum vbn_type type,
		    enum vbn_reduction reduction, int root,
		    const struct vbn_coll_options *opts, struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_REDUCE,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.reduction = reduction,
					.root = root,
					.options = opts};

	return make(comm, &request, coll);
}

int vbn_broadcast_init(struct vbn_comm *comm, void *buf, size_t count,
		       enum vbn_type type, int root,
		       const struct vbn_coll_options *opts,
		       struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_BROADCAST,
					.out = buf,
					.count = count,
					.type = type,
					.root = root,
					.options = opts};

	return make(comm, &request, coll);
}

int vbn_reduce_scatter_init(struct vbn_comm *comm, const void *in, void *out,
			    size_t count, enum vbn_type type,
			    enum vbn_reduction reduction,
			    const struct vbn_coll_options *opts,
			    struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_REDUCE_SCATTER,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.reduction = reduction,
					.options = opts};

	return make(comm, &request, coll);
}

int vbn_allgather_init(struct vbn_comm *comm, const void *in, void *out,
		       size_t count, enum vbn_type type,
		       const struct vbn_coll_options *opts,
		       struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_ALLGATHER,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.options = opts};

	return make(comm, &request, coll);
}

int vbn_gather_init(struct vbn_comm *comm, const void *in, void *out,
		    size_t count, enum vbn_type type, int root,
		    const struct vbn_coll_options *opts, struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_GATHER,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.root = root,
					.options = opts};

	return make(comm, &request, coll);
}

int vbn_scatter_init(struct vbn_comm *comm, const void *in, void *out,
		     size_t count, enum vbn_type type, int root,
		     const struct vbn_coll_options *opts,
		     struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_SCATTER,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.root = root,
					.options = opts};

	return make(comm, &request, coll);
}

int vbn_alltoall_init(struct vbn_comm *comm, const void *in, void *out,
		      size_t count, enum vbn_type type,
		      const struct vbn_coll_options *opts,
		      struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_ALLTOALL,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.options = opts};

	return make(comm, &request, coll);
}

int vbn_barrier_init(struct vbn_comm *comm, const struct vbn_coll_options *opts,
		     struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_BARRIER,
					.type = VBN_UINT8,
					.options = opts};

	return make(comm, &request, coll);
}

/* ---- of different parts ---- */

int vbn_reduce_scatterv_init(struct vbn_comm *comm, const void *in, void *out,
			     const size_t *counts, const size_t *displs,
			     enum vbn_type type, enum vbn_reduction reduction,
			     const struct vbn_coll_options *opts,
			     struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_REDUCE_SCATTER,
					.in = in,
					.out = out,
					.type = type,
					.reduction = reduction,
					.uneven = true,
					.counts = counts,
					.displs = displs,
					.options = opts};

	return make(comm, &request, coll);
}

int vbn_allgatherv_init(struct vbn_comm *comm, const void *in, void *out,
			const size_t *counts, const size_t *displs,
			enum vbn_type type, const struct vbn_coll_options *opts,
			struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_ALLGATHER,
					.in = in,
					.out = out,
					.type = type,
					.uneven = true,
					.counts = counts,
					.displs = displs,
					.options = opts};

	return make(comm, &request, coll);
}

int vbn_gatherv_init(struct vbn_comm *comm, const void *in, size_t count,
		     void *out, const size_t *counts, const size_t *displs,
		     enum vbn_type type, int root,
		     const struct vbn_coll_options *opts,
		     struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_GATHER,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.root = root,
					.uneven = true,
					.counts = counts,
					.displs = displs,
					.options = opts};

	return make(comm, &request, coll);
}

int vbn_scatterv_init(struct vbn_comm *comm, const void *in,
		      const size_t *counts, const size_t *displs, void *out,
		      size_t count, enum vbn_type type, int root,
		      const struct vbn_coll_options *opts,
		      struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_SCATTER,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.root = root,
					.uneven = true,
					.counts = counts,
					.displs = displs,
					.options = opts};

	return make(comm, &request, coll);
}

int vbn_alltoallv_init(struct vbn_comm *comm, const void *in,
		       const size_t *in_counts, const size_t *in_displs,
		       void *out, const size_t *out_counts,
		       const size_t *out_displs, enum vbn_type type,
		       const struct vbn_coll_options *opts,
		       struct vbn_coll **coll)
{
	const struct request request = {.operation = PLAN_OP_ALLTOALL,
					.in = in,
					.out = out,
					.type = type,
					.uneven = true,
					.counts = out_counts,
					.displs = out_displs,
					.in_counts = in_counts,
					.in_displs = in_displs,
					.options = opts};

	return make(comm, &request, coll);
}

/* ---- blocking ---- */

int vbn_allreduce(struct vbn_comm *comm, const void *in, void *out,
		  size_t count, enum vbn_type type,
		  enum vbn_reduction reduction, int timeout_ms)
{
	const struct request request = {.operation = PLAN_OP_ALLREDUCE,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.reduction = reduction};

	return coll_run_blocking(comm, &request, timeout_ms);
}

int vbn_reduce(struct vbn_comm *comm, const void *in, void *out, size_t count,
	       enum vbn_type type, enum vbn_reduction reduction, int root,
	       int timeout_ms)
{
	const struct request request = {.operation = PLAN_OP_REDUCE,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.reduction = reduction,
					.root = root};

	return coll_run_blocking(comm, &request, timeout_ms);
}

int vbn_broadcast(struct vbn_comm *comm, void *buf, size_t count,
		  enum vbn_type type, int root, int timeout_ms)
{
	const struct request request = {.operation = PLAN_OP_BROADCAST,
					.out = buf,
					.count = count,
					.type = type,
					.root = root};

	return coll_run_blocking(comm, &request, timeout_ms);
}

int vbn_reduce_scatter(struct vbn_comm *comm, const void *in, void *out,
		       size_t count, enum vbn_type type,
		       enum vbn_reduction reduction, int timeout_ms)
{
	const struct request request = {.operation = PLAN_OP_REDUCE_SCATTER,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.reduction = reduction};

	return coll_run_blocking(comm, &request, timeout_ms);
}

int vbn_allgather(struct vbn_comm *comm, const void *in, void *out,
		  size_t count, enum vbn_type type, int timeout_ms)
{
	const struct request request = {.operation = PLAN_OP_ALLGATHER,
					.in = in,
					.out = out,
					.count = count,
					.type = type};

	return coll_run_blocking(comm, &request, timeout_ms);
}

int vbn_gather(struct vbn_comm *comm, const void *in, void *out, size_t count,
	       enum vbn_type type, int root, int timeout_ms)
{
	const struct request request = {.operation = PLAN_OP_GATHER,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.root = root};

	return coll_run_blocking(comm, &request, timeout_ms);
}

int vbn_scatter(struct vbn_comm *comm, const void *in, void *out, size_t count,
		enum vbn_type type, int root, int timeout_ms)
{
	const struct request request = {.operation = PLAN_OP_SCATTER,
					.in = in,
					.out = out,
					.count = count,
					.type = type,
					.root = root};

	return coll_run_blocking(comm, &request, timeout_ms);
}

int vbn_alltoall(struct vbn_comm *comm, const void *in, void *out, size_t count,
		 enum vbn_type type, int timeout_ms)
{
	const struct request request = {.operation = PLAN_OP_ALLTOALL,
					.in = in,
					.out = out,
					.count = count,
					.type = type};

	return coll_run_blocking(comm, &request, timeout_ms);
}

int vbn_barrier(struct vbn_comm *comm, int timeout_ms)
{
	const struct request request = {.operation = PLAN_OP_BARRIER,
					.type = VBN_UINT8};

	return coll_run_blocking(comm, &request, timeout_ms);
}
