/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a public call was given becomes a struct call, which is the same on all
 * members because it comes from the same arguments, and a plan's shape.
 */
#include "coll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const enum plan_algorithm plan_of[VBN_ALGORITHMS] = {
	[VBN_ALGORITHM_AUTO] = PLAN_ALGORITHMS,
	[VBN_ALGORITHM_RING] = PLAN_RING,
	[VBN_ALGORITHM_TREE] = PLAN_TREE,
	[VBN_ALGORITHM_CENTRAL] = PLAN_CENTRAL,
	[VBN_ALGORITHM_SHARDED] = PLAN_SHARDED,
	[VBN_ALGORITHM_DECENTRALIZED] = PLAN_DECENTRALIZED,
	[VBN_ALGORITHM_BIRING] = PLAN_BIRING,
	[VBN_ALGORITHM_DOUBLING] = PLAN_DOUBLING,
	[VBN_ALGORITHM_HALVING] = PLAN_HALVING,
	[VBN_ALGORITHM_DOUBLE_TREE] = PLAN_DOUBLE_TREE,
	[VBN_ALGORITHM_BRUCK] = PLAN_BRUCK,
	[VBN_ALGORITHM_PAIRWISE] = PLAN_PAIRWISE,
	[VBN_ALGORITHM_LINEAR] = PLAN_LINEAR,
	[VBN_ALGORITHM_ONESHOT] = PLAN_ONESHOT,
	[VBN_ALGORITHM_DISSEMINATION] = PLAN_DISSEMINATION,
	[VBN_ALGORITHM_HIERARCHICAL] = PLAN_HIERARCHICAL,
	[VBN_ALGORITHM_MAPPED] = PLAN_MAPPED,
};

const char *vbn_algorithm_name(enum vbn_algorithm algorithm)
{
	if ((unsigned)algorithm >= VBN_ALGORITHMS)
		return NULL;
	return algorithm == VBN_ALGORITHM_AUTO ? "auto"
					       : plan_name(plan_of[algorithm]);
}

static bool reduces(enum plan_operation operation)
{
	return operation == PLAN_OP_ALLREDUCE || operation == PLAN_OP_REDUCE ||
	       operation == PLAN_OP_REDUCE_SCATTER;
}

static bool has_root(enum plan_operation operation)
{
	return operation == PLAN_OP_REDUCE || operation == PLAN_OP_BROADCAST ||
	       operation == PLAN_OP_GATHER || operation == PLAN_OP_SCATTER;
}

static bool is_root(const struct vbn_coll *coll)
{
	return coll->comm->rank == coll->call.root;
}

/* ---- options ---- */

static int take_options(struct vbn_coll_options *opts,
			const struct vbn_coll_options *given,
			const struct coll_settings *settings)
{
	*opts = (struct vbn_coll_options){0};
	if (given) {
		size_t size = given->size;

		if (size < sizeof(size))
			return vbn_fail(-EINVAL,
					"vbn_coll_options.size is not set");
		memcpy(opts, given,
		       size < sizeof(*opts) ? size : sizeof(*opts));
	}
	if ((unsigned)opts->algorithm >= VBN_ALGORITHMS)
		return vbn_fail(-EINVAL, "no algorithm %d",
				(int)opts->algorithm);
	if (opts->window == 0)
		opts->window = EXEC_WINDOW;
	if (opts->window > EXEC_WINDOW)
		return vbn_fail(-EINVAL, "a window of %u steps: 1 to %d",
				opts->window, EXEC_WINDOW);
	if (settings->chunk)
		opts->chunk = settings->chunk;
	opts->reproducible |= settings->reproducible;
	opts->wire16 |= settings->wire16;
	return 0;
}

static int find_kernel(struct vbn_coll *coll,
		       const struct vbn_coll_options *opts)
{
	const struct call *call = &coll->call;
	struct combine *combine = &coll->combine;

	combine->narrow = combine->wide = vbn_type_bytes(call->type);
	combine->members = (unsigned)coll->comm->n;
	if (!reduces(call->operation))
		return 0;
	if (call->reduction == VBN_USER) {
		int err = reduce_user(&coll->user, call->type, opts->function,
				      opts->function_arg);

		if (err)
			return vbn_fail(
				err,
				"%s: VBN_USER needs a function in the options",
				plan_operation_name(call->operation));
		combine->kernel = &coll->user.kernel;
		return 0;
	}
	combine->kernel =
		reduce_find(call->type, call->reduction, call->wire16);
	if (!combine->kernel)
		return vbn_fail(
			-EOPNOTSUPP,
			"%s: %s of %s is not there: and, or, xor are of integers",
			plan_operation_name(call->operation),
			reduce_name(call->reduction),
			reduce_type_name(call->type));
	combine->wide = combine->kernel->wide;
	return 0;
}

/* ---- parts ---- */

static int check_counts(const struct vbn_coll *coll, const size_t *counts,
			const char *what)
{
	if (!counts)
		return vbn_fail(-EINVAL, "%s: no %s",
				plan_operation_name(coll->call.operation),
				what);
	return 0;
}

/* Lengths and offsets of n parts, into @len and @off. */
static int copy_parts(const struct vbn_coll *coll, const size_t *counts,
		      const size_t *displs, uint64_t *len, uint64_t *off)
{
	size_t element = vbn_type_bytes(coll->call.type);
	uint64_t at = 0;

	for (int i = 0; i < coll->comm->n; i++) {
		uint64_t end;

		len[i] = counts[i];
		off[i] = displs ? displs[i] : at;
		if (__builtin_add_overflow(off[i], len[i], &end) ||
		    end > SIZE_MAX / 2 / element)
			return vbn_fail(
				-EINVAL,
				"%s: part %d of %llu elements at %llu is too large",
				plan_operation_name(coll->call.operation), i,
				(unsigned long long)len[i],
				(unsigned long long)off[i]);
		at += len[i];
	}
	return 0;
}

/* Of @n numbers. */
static uint64_t hash_parts(const uint64_t *parts, int n)
{
	uint64_t hash = 1;

	for (int i = 0; i < n; i++) {
		hash = (hash ^ parts[i]) * UINT64_C(0xbf58476d1ce4e5b9);
		hash ^= hash >> 29;
	}
	return hash;
}

/* Whether all members know all parts. */
static bool all_know(enum plan_operation operation)
{
	return operation == PLAN_OP_ALLGATHER ||
	       operation == PLAN_OP_REDUCE_SCATTER;
}

static int take_parts(struct vbn_coll *coll, const struct request *request)
{
	size_t n = (size_t)coll->comm->n;
	enum plan_operation operation = coll->call.operation;
	uint64_t *space;
	int err = 0;

	if (!request->uneven)
		return 0;
	space = calloc(4 * n, sizeof(*space));
	if (!space)
		return vbn_fail(-ENOMEM, "no memory for a collective");
	coll->parts = space;
	coll->layout = (struct plan_layout){space, space + n, space + 2 * n,
					    space + 3 * n};
	coll->shape.layout = &coll->layout;
	if (has_root(operation) && !is_root(coll)) {
		space[coll->comm->rank] = request->count;
		return 0;
	}
	err = check_counts(coll, request->counts, "counts");
	if (!err)
		err = copy_parts(coll, request->counts, request->displs, space,
				 space + n);
	if (!err && operation == PLAN_OP_ALLTOALL) {
		err = check_counts(coll, request->in_counts, "in_counts");
		if (!err)
			err = copy_parts(coll, request->in_counts,
					 request->in_displs, space + 2 * n,
					 space + 3 * n);
	}
	if (!err && all_know(operation))
		coll->call.layout = hash_parts(space, 2 * coll->comm->n);
	return err;
}

/* ---- buffers ---- */

static int bad_buffer(const struct vbn_coll *coll, const char *what)
{
	return vbn_fail(-EINVAL, "%s: %s",
			plan_operation_name(coll->call.operation), what);
}

/* The place of the own part in the side that has n of them. */
static char *own_part(const struct vbn_coll *coll, const void *side)
{
	uint64_t off;

	plan_block(&coll->shape, coll->comm->rank, &off);
	return (char *)(uintptr_t)side + off * coll->combine.narrow;
}

/* Sets in, out and in_place from what the caller gave. */
static void place_buffers(struct vbn_coll *coll, const void *in, void *out)
{
	const void *whole = in;
	void *part;

	switch (coll->call.operation) {
	case PLAN_OP_BROADCAST:
		in = out;
		coll->shape.in_place = true;
		break;
	case PLAN_OP_REDUCE:
		coll->shape.no_output = !is_root(coll);
		if (coll->shape.no_output)
			out = NULL;
		else if (!in)
			in = out;
		coll->shape.in_place = out && in == out;
		break;
	case PLAN_OP_ALLGATHER:
		if (!in)
			in = own_part(coll, out);
		coll->shape.in_place = in == own_part(coll, out);
		break;
	case PLAN_OP_GATHER:
		coll->shape.no_output = !is_root(coll);
		if (coll->shape.no_output)
			out = NULL;
		else if (!in)
			in = own_part(coll, out);
		coll->shape.in_place = out && in == own_part(coll, out);
		break;
	case PLAN_OP_SCATTER:
		if (!is_root(coll)) {
			in = NULL;
			break;
		}
		part = own_part(coll, whole);
		if (!out)
			out = part;
		coll->shape.in_place = out == part;
		break;
	case PLAN_OP_REDUCE_SCATTER:
		coll->shape.in_place = out == own_part(coll, in);
		break;
	default:
		if (!in)
			in = out;
		coll->shape.in_place = in == out;
		break;
	}
	coll->in = in;
	coll->out = out;
}

static int check_buffers(struct vbn_coll *coll)
{
	uintptr_t a = (uintptr_t)coll->in, b = (uintptr_t)coll->out;

	if ((coll->in_bytes && !coll->in) || (coll->out_bytes && !coll->out))
		return bad_buffer(coll, "a buffer is NULL");
	if (!coll->shape.in_place && coll->in_bytes && coll->out_bytes &&
	    a < b + coll->out_bytes && b < a + coll->in_bytes)
		return bad_buffer(
			coll,
			"input and output overlap; for in place give the same address, or NULL");
	return 0;
}

static int take_buffers(struct vbn_coll *coll, const struct request *request)
{
	size_t narrow = coll->combine.narrow;
	uint64_t in, out;

	place_buffers(coll, request->in, request->out);
	in = plan_input(&coll->shape);
	out = plan_output(&coll->shape);
	if (in > SIZE_MAX / narrow || out > SIZE_MAX / narrow)
		return bad_buffer(coll, "too many elements");
	coll->in_bytes = in * narrow;
	coll->out_bytes = out * narrow;
	if (in == 0 && out == 0) /* of any pointers: nothing is in place */
		coll->shape.in_place = false;
	if (coll->shape.in_place && coll->shape.layout &&
	    coll->call.operation == PLAN_OP_ALLTOALL &&
	    memcmp(coll->layout.len, coll->layout.in_len,
		   2 * (size_t)coll->comm->n * sizeof(uint64_t)))
		return bad_buffer(coll,
				  "in place, both sides have the same parts");
	return check_buffers(coll);
}

/* ---- the choice ---- */

/* Bytes of the vector, or of all parts together, as far as all know them. */
static uint64_t total_bytes(const struct vbn_coll *coll)
{
	const struct call *call = &coll->call;
	uint64_t n = (uint64_t)coll->comm->n, sum = 0;

	if (coll->shape.layout && all_know(call->operation)) {
		for (uint64_t i = 0; i < n; i++)
			sum += coll->layout.len[i];
		return sum * coll->combine.narrow;
	}
	if (coll->shape.layout)
		return 0;
	if (call->operation <= PLAN_OP_BROADCAST)
		return call->count * coll->combine.narrow;
	return n * call->count * coll->combine.narrow;
}

static int check_algorithm(const struct choice_input *input,
			   enum plan_algorithm algorithm)
{
	const char *refusal = choose_refusal(input, algorithm);

	if (!refusal)
		return 0;
	return vbn_fail(
		-EOPNOTSUPP, "%s %s %s (%d members)", plan_name(algorithm),
		plan_operation_name(input->operation), refusal, input->n);
}

static int choose_algorithm(struct vbn_coll *coll,
			    const struct vbn_coll_options *opts)
{
	const struct vbn_comm *comm = coll->comm;
	const struct plan_topology *topology = topology_of(comm);
	enum plan_operation operation = coll->call.operation;
	enum plan_algorithm forced = comm->settings.algorithm[operation];
	const struct choice_input input = {
		.operation = operation,
		.n = comm->n,
		.bytes = total_bytes(coll),
		.uneven = coll->shape.layout != NULL,
		.unknown = coll->shape.layout && !all_know(operation),
		.in_place = coll->shape.in_place,
		.in_order = opts->reproducible,
		.wide = coll->combine.wide != coll->combine.narrow,
		.may_map = comm->n > 1 && topology->hosts == 1,
		.hosts = topology->hosts,
		.chunk_most = comm->slot_bytes,
		.chunk = coll->call.chunk,
		.tuning = comm->settings.tuning,
	};
	int err;

	if (forced == PLAN_ALGORITHMS)
		forced = plan_of[opts->algorithm];
	if (comm->n == 1 || forced == PLAN_ALGORITHMS) {
		choose(&input, &coll->choice);
	} else {
		err = check_algorithm(&input, forced);
		if (err)
			return err;
		choose_asked(&input, forced, &coll->choice);
	}
	coll->large = input.unknown || input.bytes >= DIRECT_BYTES;
	return 0;
}

/* ---- all together ---- */

static void make_shape(struct vbn_coll *coll)
{
	const struct vbn_comm *comm = coll->comm;
	size_t element = coll->combine.wide;
	uint64_t chunk = coll->choice.chunk;
	struct plan_shape *shape = &coll->shape;

	/* Members whose tuning files differ are to find out. */
	if (comm->settings.tuning)
		coll->call.chunk = chunk;
	coll->call.algorithm = coll->choice.algorithm;
	coll->call.in_place =
		shape->in_place && shape->operation == PLAN_OP_ALLTOALL;
	shape->algorithm = coll->choice.algorithm;
	shape->chunk = chunk > element ? chunk / element : 1;
	shape->wide = coll->combine.wide != coll->combine.narrow;
	shape->topology = topology_of(comm);
	coll->algo = plan_find(shape->operation, shape->algorithm);
	coll->digest = wire_digest(&coll->call);
	coll->quick = quick_make(coll);
}

static int take_memory(struct vbn_coll *coll)
{
	uint64_t elements = plan_scratch(&coll->shape);
	struct vbn_pool *pool;

	if (elements == 0)
		return 0;
	pool = wire_pool(coll->comm);
	if (!pool)
		return -ENOMEM;
	coll->scratch = vbn_pool_alloc(pool, elements * coll->combine.wide, 64);
	return coll->scratch ? 0 : comm_no_memory(coll->comm);
}

static int check_request(const struct vbn_comm *comm,
			 const struct request *request)
{
	const char *name = plan_operation_name(request->operation);
	size_t element = vbn_type_bytes(request->type);

	if (!element)
		return vbn_fail(-EINVAL, "%s: no type %d", name,
				(int)request->type);
	if ((unsigned)request->reduction > VBN_USER)
		return vbn_fail(-EINVAL, "%s: no reduction %d", name,
				(int)request->reduction);
	if (request->count > SIZE_MAX / 2 / element / (size_t)comm->n)
		return vbn_fail(-EINVAL, "%s: %zu elements are too many", name,
				request->count);
	if (request->root < 0 || request->root >= comm->n)
		return vbn_fail(-EINVAL, "%s: root %d of %d members (0 to %d)",
				name, request->root, comm->n, comm->n - 1);
	return 0;
}

int coll_prepare(struct vbn_coll *coll, struct vbn_comm *comm,
		 const struct request *request)
{
	struct vbn_coll_options opts;
	int err = check_request(comm, request);

	if (!err)
		err = take_options(&opts, request->options, &comm->settings);
	if (err)
		return err;
	*coll = (struct vbn_coll){.comm = comm,
				  .window = opts.window,
				  .call = {.operation = request->operation,
					   .type = request->type,
					   .reduction = request->reduction,
					   .root = request->root,
					   .wire16 = opts.wire16,
					   .count = request->count,
					   .chunk = opts.chunk,
					   .landing_bytes = comm->slot_bytes},
				  .shape = {.operation = request->operation,
					    .rank = comm->rank,
					    .n = comm->n,
					    .root = request->root,
					    .count = request->count}};
	if (request->uneven) /* members may have different ones */
		coll->call.count = 0;
	err = find_kernel(coll, &opts);
	if (!err)
		err = take_parts(coll, request);
	if (!err)
		err = take_buffers(coll, request);
	if (!err)
		err = choose_algorithm(coll, &opts);
	if (!err) {
		make_shape(coll);
		err = take_memory(coll);
	}
	if (err)
		coll_release(coll);
	return err;
}

void coll_release(struct vbn_coll *coll)
{
	struct shared *shared = coll->comm ? coll->comm->shared : NULL;

	free(coll->parts);
	coll->parts = NULL;
	/* Operations of a broken call may still read them: not reused. */
	if (shared && shared->pool && !coll->comm->error &&
	    !coll->comm->fault) {
		if (coll->scratch)
			vbn_pool_free(shared->pool, coll->scratch);
		if (coll->staged)
			vbn_pool_free(shared->pool, coll->staged);
	}
	coll->scratch = coll->staged = NULL;
}
