/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public calls: arguments become a struct call and a plan's shape, which
 * are the same on all members because they come from the same arguments.
 */
#include "coll.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A call that takes longer says in the store that it has arrived. */
#define PUBLISH_AFTER_MS 250
/* Shorter deadlines are polls: no report. */
#define REPORT_FROM_MS 100
/* Deaths are looked for this often. */
#define LOOK_EVERY_MS 100
/* What others have published is looked at first after this; then rarer. */
#define COMPARE_AFTER_MS 400
#define COMPARE_MOST_MS	 10000

/* ---- options ---- */

static int env_algorithm(enum vbn_algorithm *algorithm)
{
	static const char *const names[VBN_ALGORITHMS] = {"auto", "ring",
							  "tree"};
	const char *value = getenv("VBN_COLL_ALGO");

	if (!value || !*value)
		return 0;
	for (int i = 0; i < VBN_ALGORITHMS; i++)
		if (!strcmp(value, names[i])) {
			*algorithm = (enum vbn_algorithm)i;
			return 0;
		}
	return vbn_fail(-EINVAL, "VBN_COLL_ALGO=%s: set auto, ring or tree",
			value);
}

static int env_chunk(size_t *chunk)
{
	const char *value = getenv("VBN_COLL_CHUNK");
	unsigned long long n;
	char *end;

	if (!value || !*value)
		return 0;
	errno = 0;
	n = strtoull(value, &end, 10);
	if (errno || *end || value[0] == '-' || n > SIZE_MAX)
		return vbn_fail(-EINVAL,
				"VBN_COLL_CHUNK=%s: set a number of bytes",
				value);
	*chunk = (size_t)n;
	return 0;
}

static int take_options(struct vbn_coll_options *opts,
			const struct vbn_coll_options *given)
{
	int err;

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
	err = env_chunk(&opts->chunk);
	return err ? err : 0;
}

static int choose(const struct vbn_comm *comm, struct call *call,
		  enum vbn_algorithm wanted)
{
	uint64_t bytes = call->count * vbn_type_bytes(call->type);

	if (comm->n == 1) {
		call->algorithm = PLAN_LOCAL;
	} else if (call->kind == CALL_BARRIER) {
		call->algorithm = PLAN_DISSEMINATION;
	} else if (call->kind == CALL_BROADCAST) {
		if (wanted == VBN_ALGORITHM_RING)
			return vbn_fail(
				-EOPNOTSUPP,
				"there is no ring broadcast: use auto or tree");
		call->algorithm = PLAN_TREE_BROADCAST;
	} else {
		int err = env_algorithm(&wanted);

		if (err)
			return err;
		call->algorithm =
			wanted == VBN_ALGORITHM_RING ? PLAN_RING_ALLREDUCE
			: wanted == VBN_ALGORITHM_TREE
				? PLAN_TREE_ALLREDUCE
				: plan_choose_allreduce(comm->n, bytes);
	}
	return 0;
}

/* ---- init ---- */

static int prepare(struct vbn_coll *coll, struct vbn_comm *comm,
		   const struct call *call,
		   const struct vbn_coll_options *given)
{
	struct vbn_coll_options opts;
	uint64_t chunk, bytes;
	int err = take_options(&opts, given);

	if (err)
		return err;
	*coll = (struct vbn_coll){.comm = comm, .call = *call};
	err = choose(comm, &coll->call, opts.algorithm);
	if (err)
		return err;
	coll->element = vbn_type_bytes(call->type);
	coll->window = opts.window;
	coll->call.chunk = opts.chunk;
	coll->call.landing_bytes = comm->slot_bytes;
	bytes = call->count * coll->element;
	coll->large = bytes >= DIRECT_BYTES;
	chunk = opts.chunk ? opts.chunk
			   : plan_choose_chunk(coll->call.algorithm, comm->n,
					       bytes, comm->slot_bytes);
	if (chunk > comm->slot_bytes)
		chunk = comm->slot_bytes;
	coll->shape = (struct plan_shape){
		.algorithm = coll->call.algorithm,
		.rank = comm->rank,
		.n = comm->n,
		.root = call->root,
		.count = call->count,
		.chunk = chunk > coll->element ? chunk / coll->element : 1,
	};
	coll->digest = wire_digest(&coll->call);
	return 0;
}

static int check_buffer(const char *what, const void *buf, size_t count,
			enum vbn_type type)
{
	size_t element = vbn_type_bytes(type);

	if (!element)
		return vbn_fail(-EINVAL, "%s: no type %d", what, (int)type);
	if (count > SIZE_MAX / element)
		return vbn_fail(-EINVAL, "%s: %zu elements are too many", what,
				count);
	if (count > 0 && !buf)
		return vbn_fail(-EINVAL, "%s: %zu elements at NULL", what,
				count);
	return 0;
}

static int prepare_allreduce(struct vbn_coll *coll, struct vbn_comm *comm,
			     const void *in, void *out, size_t count,
			     enum vbn_type type, enum vbn_reduction reduction,
			     const struct vbn_coll_options *opts)
{
	const struct call call = {.kind = CALL_ALLREDUCE,
				  .type = type,
				  .reduction = reduction,
				  .count = count};
	const struct reduce_kernel *kernel = reduce_find(type, reduction);
	int err = check_buffer("allreduce", out, count, type);
	uintptr_t a = (uintptr_t)in, b = (uintptr_t)out;
	size_t bytes;

	if (err)
		return err;
	if (!kernel)
		return vbn_fail(
			-EOPNOTSUPP,
			"allreduce: %s of %s is not there; sum of float32 and float64 is",
			reduce_name(reduction), reduce_type_name(type));
	bytes = count * vbn_type_bytes(type);
	if (in && a != b && a < b + bytes && b < a + bytes)
		return vbn_fail(
			-EINVAL,
			"allreduce: input and output overlap; for in place give the same address, or NULL as the input");
	err = prepare(coll, comm, &call, opts);
	if (err)
		return err;
	coll->kernel = kernel;
	coll->in = in ? in : out;
	coll->out = out;
	return 0;
}

static int prepare_broadcast(struct vbn_coll *coll, struct vbn_comm *comm,
			     void *buf, size_t count, enum vbn_type type,
			     int root, const struct vbn_coll_options *opts)
{
	const struct call call = {.kind = CALL_BROADCAST,
				  .type = type,
				  .root = root,
				  .count = count};
	int err = check_buffer("broadcast", buf, count, type);

	if (err)
		return err;
	if (root < 0 || root >= comm->n)
		return vbn_fail(-EINVAL,
				"broadcast: root %d of %d members (0 to %d)",
				root, comm->n, comm->n - 1);
	err = prepare(coll, comm, &call, opts);
	if (err)
		return err;
	coll->in = buf;
	coll->out = buf;
	return 0;
}

static int prepare_barrier(struct vbn_coll *coll, struct vbn_comm *comm,
			   const struct vbn_coll_options *opts)
{
	const struct call call = {.kind = CALL_BARRIER, .type = VBN_UINT8};

	return prepare(coll, comm, &call, opts);
}

static int keep(const struct vbn_coll *prepared, int err,
		struct vbn_coll **coll)
{
	struct vbn_coll *kept;

	if (err)
		return err;
	kept = malloc(sizeof(*kept));
	if (!kept)
		return vbn_fail(-ENOMEM, "no memory for a collective");
	*kept = *prepared;
	*coll = kept;
	return 0;
}

int vbn_allreduce_init(struct vbn_comm *comm, const void *in, void *out,
		       size_t count, enum vbn_type type,
		       enum vbn_reduction reduction,
		       const struct vbn_coll_options *opts,
		       struct vbn_coll **coll)
{
	struct vbn_coll new;

	return keep(&new,
		    prepare_allreduce(&new, comm, in, out, count, type,
				      reduction, opts),
		    coll);
}

int vbn_broadcast_init(struct vbn_comm *comm, void *buf, size_t count,
		       enum vbn_type type, int root,
		       const struct vbn_coll_options *opts,
		       struct vbn_coll **coll)
{
	struct vbn_coll new;

	return keep(&new,
		    prepare_broadcast(&new, comm, buf, count, type, root, opts),
		    coll);
}

int vbn_barrier_init(struct vbn_comm *comm, const struct vbn_coll_options *opts,
		     struct vbn_coll **coll)
{
	struct vbn_coll new;

	return keep(&new, prepare_barrier(&new, comm, opts), coll);
}

/* ---- running ---- */

static int broken(struct vbn_comm *comm)
{
	report_disagreement(comm);
	return vbn_fail(comm->error, "%s", comm->why);
}

int vbn_coll_start(struct vbn_coll *coll)
{
	if (coll->state == COLL_QUEUED || coll->state == COLL_RUNNING)
		return vbn_fail(-EBUSY, "the collective is in flight already");
	if (coll->comm->error)
		return broken(coll->comm);
	engine_enqueue(coll);
	return 0;
}

/* The status of a call that is over. */
static int result(struct vbn_coll *coll)
{
	if (!coll->status || coll->state == COLL_IDLE)
		return 0;
	return broken(coll->comm);
}

int vbn_coll_test(struct vbn_coll *coll)
{
	struct vbn_comm *comm = coll->comm;

	if (coll->state == COLL_IDLE || coll->state == COLL_DONE)
		return result(coll);
	vbn_progress(comm->ctx);
	engine_pump_all(comm->shared);
	comm_check_dead(comm);
	if (coll->state == COLL_DONE)
		return result(coll);
	return -EINPROGRESS;
}

static int timed_out(struct vbn_coll *coll, int timeout_ms)
{
	char what[128], who[256] = "";

	if (timeout_ms >= REPORT_FROM_MS) {
		report_missing(coll, who, sizeof(who));
		if (coll->state == COLL_DONE)
			return result(coll); /* meanwhile */
	}
	call_describe(&coll->call, what, sizeof(what));
	return vbn_fail(-ETIMEDOUT, "%s: not complete after %d ms%s%s", what,
			timeout_ms, who[0] ? "; " : "", who);
}

/* What a waiter does from time to time besides progress. */
struct waiting {
	uint64_t start, looked, compare_after;
};

static void look_around(struct vbn_coll *coll, struct waiting *w, uint64_t now)
{
	struct vbn_comm *comm = coll->comm;

	if (now - w->looked >= LOOK_EVERY_MS) {
		w->looked = now;
		comm_check_dead(comm);
	}
	if (now - w->start >= PUBLISH_AFTER_MS && !comm->error)
		report_arrival(coll);
	if (now - w->start >= w->compare_after && !comm->error) {
		report_compare(coll);
		w->compare_after += w->compare_after < COMPARE_MOST_MS
					    ? w->compare_after
					    : COMPARE_MOST_MS;
	}
}

int vbn_coll_wait(struct vbn_coll *coll, int timeout_ms)
{
	struct vbn_comm *comm = coll->comm;
	uint64_t now = coll_now_ms();
	struct waiting w = {now, now, COMPARE_AFTER_MS};

	if (timeout_ms == 0 && comm->shared->ctx)
		vbn_progress(comm->ctx);
	engine_pump_all(comm->shared);
	while (coll->state == COLL_QUEUED || coll->state == COLL_RUNNING) {
		uint64_t left = LOOK_EVERY_MS, waited = now - w.start;

		if (timeout_ms >= 0) {
			if (waited >= (uint64_t)timeout_ms)
				return timed_out(coll, timeout_ms);
			if (left > (uint64_t)timeout_ms - waited)
				left = (uint64_t)timeout_ms - waited;
		}
		if (engine_stalled(comm->shared))
			left = 1;
		vbn_ctx_wait(comm->ctx, (int)left);
		engine_pump_all(comm->shared);
		if (coll->state == COLL_DONE)
			break;
		now = coll_now_ms();
		look_around(coll, &w, now);
	}
	if (coll->status)
		engine_settle(comm, 200);
	return result(coll);
}

void vbn_coll_free(struct vbn_coll *coll)
{
	if (!coll)
		return;
	if (coll->state == COLL_QUEUED || coll->state == COLL_RUNNING) {
		struct vbn_comm *comm = coll->comm;

		comm_fail(comm, -ECANCELED,
			  "rank %d freed a collective in flight",
			  comm->ranks[comm->rank]);
		engine_settle(comm, 300);
	}
	free(coll);
}

/* ---- blocking ---- */

static int claim_blocking(struct vbn_comm *comm)
{
	if (comm->blocking_busy)
		return vbn_fail(
			-EBUSY,
			"a blocking collective of this communicator is running");
	comm->blocking_busy = true;
	return 0;
}

/* Start and wait for comm->blocking. @err: how its preparation went. */
static int run_blocking(struct vbn_comm *comm, int err, int timeout_ms)
{
	struct vbn_coll *coll = &comm->blocking;

	if (!err)
		err = vbn_coll_start(coll);
	if (!err)
		err = vbn_coll_wait(coll, timeout_ms);
	if (coll->state == COLL_QUEUED || coll->state == COLL_RUNNING) {
		char why[COMM_WHY];

		snprintf(why, sizeof(why), "rank %d gave up: %.400s",
			 comm->ranks[comm->rank], vbn_error());
		comm_fail(comm, err, "%s", why);
		engine_settle(comm, 200);
		vbn_fail(err, "%s", why);
	}
	comm->blocking_busy = false;
	return err;
}

int vbn_allreduce(struct vbn_comm *comm, const void *in, void *out,
		  size_t count, enum vbn_type type,
		  enum vbn_reduction reduction, int timeout_ms)
{
	int err = claim_blocking(comm);

	if (err)
		return err;
	err = prepare_allreduce(&comm->blocking, comm, in, out, count, type,
				reduction, NULL);
	return run_blocking(comm, err, timeout_ms);
}

int vbn_broadcast(struct vbn_comm *comm, void *buf, size_t count,
		  enum vbn_type type, int root, int timeout_ms)
{
	int err = claim_blocking(comm);

	if (err)
		return err;
	err = prepare_broadcast(&comm->blocking, comm, buf, count, type, root,
				NULL);
	return run_blocking(comm, err, timeout_ms);
}

int vbn_barrier(struct vbn_comm *comm, int timeout_ms)
{
	int err = claim_blocking(comm);

	if (err)
		return err;
	err = prepare_barrier(&comm->blocking, comm, NULL);
	return run_blocking(comm, err, timeout_ms);
}
