/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Calls of one round and one message a pair without the executor: their plans
 * are known. A message to each of some members, a message from each of some,
 * and a sum or copies. They count as the executor does and put what it puts, so
 * that members may do the same call either way, and calls of either kind follow
 * each other.
 *
 * Where all members share memory, a tiny contribution goes as a message instead
 * of a put, which is one cache line less to move and needs no landing slot.
 * Nothing tells when a message has left: over shm it has when it is sent.
 */
#include "wire.h"

#include <errno.h>
#include <string.h>

/* ---- which calls ---- */

static bool is_one_round(const struct plan_algo *algo)
{
	static const struct plan_algo *const algos[] = {
		&plan_oneshot_allreduce, &plan_linear_reduce,
		&plan_linear_broadcast,	 &plan_linear_reduce_scatter,
		&plan_linear_allgather,	 &plan_linear_gather,
		&plan_linear_scatter,	 &plan_linear_alltoall,
	};

	for (size_t i = 0; i < sizeof(algos) / sizeof(*algos); i++)
		if (algos[i] == algo)
			return true;
	return false;
}

/* Which of the n - 1 members after us. */
static struct quick_range others(const struct plan_shape *shape, bool any)
{
	return (struct quick_range){1, any ? shape->n : 1};
}

static struct quick_range the_root(const struct plan_shape *shape)
{
	int root = (shape->root - shape->rank + shape->n) % shape->n;

	return (struct quick_range){root, root + 1};
}

static void plan_peers(struct quick_plan *plan, const struct plan_shape *shape)
{
	bool root = shape->rank == shape->root;

	switch (shape->operation) {
	case PLAN_OP_REDUCE:
	case PLAN_OP_GATHER:
		plan->to = root ? others(shape, false) : the_root(shape);
		plan->from = others(shape, root);
		break;
	case PLAN_OP_BROADCAST:
	case PLAN_OP_SCATTER:
		plan->to = others(shape, root);
		plan->from = root ? others(shape, false) : the_root(shape);
		break;
	default:
		plan->to = plan->from = others(shape, true);
	}
}

static void plan_places(struct quick_plan *plan, const struct vbn_coll *coll)
{
	const struct plan_shape *shape = &coll->shape;
	enum plan_operation operation = shape->operation;
	bool rooted =
		operation == PLAN_OP_GATHER || operation == PLAN_OP_SCATTER;
	bool each =
		operation == PLAN_OP_ALLGATHER || operation == PLAN_OP_ALLTOALL;

	plan->bytes = shape->count * coll->combine.narrow;
	plan->sums = coll->combine.kernel && plan->from.end > plan->from.first;
	if (operation == PLAN_OP_SCATTER || operation == PLAN_OP_ALLTOALL ||
	    operation == PLAN_OP_REDUCE_SCATTER)
		plan->in_step = plan->bytes;
	if (operation == PLAN_OP_GATHER || each)
		plan->out_step = plan->bytes;
	plan->keeps = each || (rooted && shape->rank == shape->root);
	/* What is put is overwritten by the end of the call. */
	plan->waits_put = shape->in_place && (operation == PLAN_OP_ALLREDUCE ||
					      operation == PLAN_OP_ALLTOALL);
}

bool quick_make(struct vbn_coll *coll)
{
	struct quick_plan *plan = &coll->quick_plan;

	if (coll->shape.n < 2 || coll->call.count == 0 || coll->large ||
	    coll->shape.layout || !is_one_round(coll->algo) ||
	    coll->call.count > coll->shape.chunk)
		return false;
	*plan = (struct quick_plan){0};
	plan_peers(plan, &coll->shape);
	plan_places(plan, coll);
	plan->by_message = plan->bytes <= QUICK_BYTES &&
			   topology_of(coll->comm)->hosts == 1;
	return true;
}

/* ---- running ---- */

/* The i-th member after us; NULL: not used yet. */
static struct peer *peer_at(const struct vbn_comm *comm, int i)
{
	return comm->after[i];
}

/* Whether all that a first call sets up is there. */
static bool is_set_up(const struct vbn_comm *comm,
		      const struct quick_plan *plan)
{
	for (int i = plan->to.first; i < plan->to.end; i++) {
		const struct peer *peer = peer_at(comm, i);

		if (!peer || !peer->opened || !peer->told ||
		    !peer->has_landing || plan->bytes > peer->slot_bytes)
			return false;
	}
	for (int i = plan->from.first; i < plan->from.end; i++) {
		const struct peer *peer = peer_at(comm, i);

		if (!peer || !peer->landing_told)
			return false;
	}
	return true;
}

static void set_out(struct vbn_comm *comm, const struct quick_plan *plan)
{
	comm->quick = true;
	comm->quick_posted = plan->to.first;
	comm->quick_arrived = plan->from.first;
	comm->quick_over = false;
}

bool quick_begin(struct vbn_comm *comm, struct vbn_coll *coll)
{
	const struct quick_plan *plan = &coll->quick_plan;

	if (!coll->set_up) /* once and for all */
		coll->set_up = plan->by_message || is_set_up(comm, plan);
	if (!coll->set_up)
		return false;
	set_out(comm, plan);
	return true;
}

static const char *outgoing(const struct vbn_coll *coll,
			    const struct peer *peer)
{
	return coll->in + (size_t)peer->member * coll->quick_plan.in_step;
}

static int put(struct vbn_comm *comm, const struct vbn_coll *coll,
	       struct peer *peer)
{
	if (peer->landed == peer->credits)
		return -EAGAIN;
	return step_post(comm, peer, outgoing(coll, peer),
			 coll->quick_plan.bytes, &peer->landing,
			 peer->landed % peer->slots * peer->slot_bytes, NULL);
}

static int post(struct vbn_comm *comm, const struct vbn_coll *coll, int i)
{
	struct peer *peer = peer_at(comm, i);
	int err;

	if (!peer)
		peer = comm_peer(comm, (comm->rank + i) % comm->n);
	if (!peer)
		return -ENOMEM;
	err = coll->quick_plan.by_message
		      ? wire_quick(peer, coll, outgoing(coll, peer),
				   coll->quick_plan.bytes)
		      : put(comm, coll, peer);
	if (err)
		return err;
	peer->exec.puts++;
	peer->exec.posted++;
	return 0;
}

bool quick_needs(const struct vbn_comm *comm, const struct peer *peer)
{
	const struct quick_plan *plan = &comm->first->quick_plan;
	int i = peer->member - comm->rank;

	i = i < 0 ? i + comm->n : i;
	return (i >= comm->quick_arrived && i < plan->from.end) ||
	       (i >= comm->quick_posted && i < plan->to.end);
}

static int check_arrived(struct vbn_comm *comm, int i)
{
	struct peer *peer = peer_at(comm, i);

	if (!peer) /* nothing has come, nor can anything */
		peer = comm_peer(comm, (comm->rank + i) % comm->n);
	if (!peer)
		return -ENOMEM;
	if (peer->exec.waits < wire_arrived(peer))
		return 0;
	return step_missing(comm, peer);
}

static const void *contribution(const struct vbn_comm *comm,
				const struct vbn_coll *coll, int member)
{
	const struct peer *peer;

	if (member == comm->rank)
		return coll->in + (size_t)member * coll->quick_plan.in_step;
	peer = comm->by_member[member];
	if (coll->quick_plan.by_message)
		return peer->quick[coll->seq % QUICK_KEPT].data;
	return step_landing(comm, peer, peer->exec.landings);
}

/* As combine_all() does it: from elements to elements. */
static void sum(struct vbn_comm *comm, struct vbn_coll *coll)
{
	for (int m = 0; m < comm->n; m++)
		comm->contributions[m] = contribution(comm, coll, m);
	reduce_many(coll->combine.kernel, coll->out, comm->contributions,
		    (unsigned)comm->n, coll->call.count, coll->combine.members);
}

static void keep_own(const struct vbn_coll *coll)
{
	const struct quick_plan *plan = &coll->quick_plan;
	size_t self = (size_t)coll->shape.rank;
	const char *from = coll->in + self * plan->in_step;
	char *to = coll->out + self * plan->out_step;

	if (from != to)
		memcpy(to, from, plan->bytes);
}

static void finish(struct vbn_comm *comm, struct vbn_coll *coll)
{
	const struct quick_plan *plan = &coll->quick_plan;

	if (plan->sums)
		sum(comm, coll);
	if (plan->keeps)
		keep_own(coll);
	for (int i = plan->from.first; i < plan->from.end; i++) {
		struct peer *peer = peer_at(comm, i);
		size_t at = (size_t)peer->member * plan->out_step;

		if (!plan->sums)
			memcpy(coll->out + at,
			       contribution(comm, coll, peer->member),
			       plan->bytes);
		peer->exec.waits++;
		if (!plan->by_message)
			wire_empty_slot(peer, peer->exec.landings++);
	}
}

int quick_run(struct vbn_comm *comm)
{
	struct vbn_coll *coll = comm->first;
	const struct quick_plan *plan = &coll->quick_plan;
	int err;

	for (; comm->quick_posted < plan->to.end; comm->quick_posted++) {
		err = post(comm, coll, comm->quick_posted);
		if (err)
			return err;
	}
	for (; comm->quick_arrived < plan->from.end; comm->quick_arrived++) {
		err = check_arrived(comm, comm->quick_arrived);
		if (err)
			return err;
	}
	if (plan->waits_put && comm->reads_busy > 0)
		return -EAGAIN;
	if (!comm->quick_over)
		finish(comm, coll);
	comm->quick_over = true;
	return 0;
}

/* ---- past the engine ---- */

/* The engine has nothing to do beside the call that runs. */
static bool is_undisturbed(const struct vbn_comm *comm)
{
	return !comm->pumping && !comm->fault && !comm->askers &&
	       !comm->owes_slots &&
	       !atomic_load_explicit(&comm->abort_asked, memory_order_relaxed);
}

bool quick_start(struct vbn_comm *comm, struct vbn_coll *coll)
{
	const struct quick_plan *plan = &coll->quick_plan;
	bool came = comm->nearly > 0;

	if (!coll->set_up || comm->first != coll || !is_undisturbed(comm))
		return false;
	comm->next_seq = coll->seq;
	if (!wire_check_early(coll))
		return false;
	coll->state = COLL_RUNNING;
	set_out(comm, plan);
	for (; comm->quick_posted < plan->to.end; comm->quick_posted++)
		if (post(comm, coll, comm->quick_posted))
			return false; /* what it is, the engine finds again */
	if (!came && plan->from.end > plan->from.first)
		return true; /* nothing has come */
	return quick_advance(comm);
}

bool quick_advance(struct vbn_comm *comm)
{
	struct vbn_coll *coll = comm->first;
	const struct quick_plan *plan;

	if (!comm->quick || !coll || coll->state != COLL_RUNNING)
		return false;
	plan = &coll->quick_plan;
	if (comm->quick_posted < plan->to.end)
		return false;
	for (; comm->quick_arrived < plan->from.end; comm->quick_arrived++) {
		const struct peer *peer = peer_at(comm, comm->quick_arrived);

		if (!peer || peer->exec.waits >= wire_arrived(peer))
			return !peer || !peer->nearly;
	}
	if (!is_undisturbed(comm) || comm->error)
		return false;
	if (comm->reads_busy > 0)
		return true; /* its last puts have not left */
	if (!comm->quick_over)
		finish(comm, coll);
	engine_finish(comm, coll);
	return !comm->first;
}
