/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor's backend over endpoints: a put is a vbn_put_notify() into a
 * landing slot or the peer's output, a wait is a count of notifies, a reduce
 * reads landing slots, or the peers' memory where it is mapped.
 */
#include "wire.h"

#include <errno.h>
#include <string.h>

static struct vbn_comm *comm_of(struct exec *exec)
{
	return (struct vbn_comm *)exec;
}

static struct peer *peer_of(struct exec_peer *peer)
{
	return (struct peer *)peer;
}

/* ---- memory ---- */

static char *place(const struct vbn_coll *coll, uint8_t space, uint64_t off)
{
	char *base = space == PLAN_INPUT    ? (char *)(uintptr_t)coll->in
		     : space == PLAN_OUTPUT ? coll->out
					    : coll->scratch;

	return base + off * combine_bytes(&coll->combine, space, 0);
}

const char *step_landing(const struct vbn_comm *comm, const struct peer *peer,
			 uint64_t landing)
{
	return peer->memory + landing % comm->slots * comm->slot_bytes;
}

/* Where the peer's memory is in ours; its exposure has come. */
static int map_peer(struct peer *peer, uint8_t space, const char **base)
{
	bool input = space == PLAN_INPUT;
	void **mapped = input ? &peer->mapped_input : &peer->mapped_output;
	const struct vbn_rkey *rkey = input ? &peer->input : &peer->output;

	if (!peer->exposed)
		return -EAGAIN;
	if (!*mapped && rkey->length > 0) {
		int err = vbn_rkey_map(peer->ep, rkey, 0, rkey->length, mapped);

		if (err == -EAGAIN) /* no news may come of it */
			peer->comm->stalled = true;
		if (err)
			return err;
	}
	*base = *mapped;
	return 0;
}

/* ---- the backend ---- */

static struct exec_peer *step_peer(struct exec *exec, int member)
{
	struct peer *peer = comm_peer(comm_of(exec), member);

	return peer ? &peer->exec : NULL;
}

static bool step_via_landing(struct exec *exec, struct exec_peer *peer)
{
	(void)peer;
	return !comm_of(exec)->first->direct;
}

static void step_enter(struct exec *exec, struct exec_entry *entry)
{
	(void)exec;
	(void)entry;
}

static int step_open(struct exec *exec, struct exec_entry *entry)
{
	const struct vbn_coll *coll = comm_of(exec)->first;
	const struct plan_step *step = &entry->step;
	struct peer *peer = peer_of(entry->peer);
	bool exposes = step->dst == PLAN_OUTPUT && coll->large;
	int err = wire_open(peer, step->len > 0);

	if (!err && (exposes || step->src == PLAN_INPUT))
		err = wire_expose(peer, coll);
	return err;
}

/* Where a put goes; -EAGAIN if the peer is not ready for it. */
static int find_target(struct peer *peer, const struct vbn_coll *coll,
		       const struct plan_step *step, size_t bytes,
		       const struct vbn_rkey **rkey, uint64_t *off)
{
	if (!peer->opened)
		return -EAGAIN;
	if (bytes == 0) {
		*rkey = NULL;
		*off = 0;
		return 0;
	}
	if (step->dst == PLAN_OUTPUT && coll->large) {
		if (!peer->exposed ||
		    (!coll->algo->greets && peer->exposed_seq != coll->seq))
			return -EAGAIN;
		if (peer->writable) {
			*rkey = &peer->output;
			*off = step->dst_off * coll->combine.narrow;
			return 0;
		}
	}
	if (!peer->has_landing || peer->landed == peer->credits)
		return -EAGAIN;
	if (bytes > peer->slot_bytes)
		return vbn_fail(
			-EPROTO,
			"rank %d has landing slots of %llu bytes, a message needs %zu: give all members the same landing_bytes",
			peer->comm->ranks[peer->member],
			(unsigned long long)peer->slot_bytes, bytes);
	*rkey = &peer->landing;
	*off = peer->landed % peer->slots * peer->slot_bytes;
	return 0;
}

int step_post(struct vbn_comm *comm, struct peer *peer, const void *from,
	      size_t bytes, const struct vbn_rkey *rkey, uint64_t off,
	      struct exec_entry *entry)
{
	uint32_t seq = comm->first->seq;
	struct coll_op *op;
	int err;

	if (!wire_in_reach(peer, seq))
		return -EAGAIN; /* its answer pumps again */
	op = engine_take_op(peer);
	if (!op)
		return -EAGAIN; /* one that completes pumps again */
	op->entry = entry;
	op->reads_input = bytes > 0 || peer->lingers;
	comm->reads_busy += op->reads_input;
	err = vbn_put_notify(peer->ep, &op->op, from, bytes, rkey, off,
			     VBN_CHANNEL_COLL,
			     wire_data_value(peer, comm->first), 0);
	if (err) {
		engine_return_op(op);
		if (err == -EAGAIN)
			comm->stalled = true;
		return err;
	}
	wire_posted(peer, seq);
	if (rkey == &peer->landing)
		peer->put_seq[peer->landed++ % peer->slots] = seq;
	return 0;
}

static int step_put(struct exec *exec, struct exec_entry *entry)
{
	struct vbn_comm *comm = comm_of(exec);
	const struct vbn_coll *coll = comm->first;
	const struct plan_step *step = &entry->step;
	struct peer *peer = peer_of(entry->peer);
	bool sync = step->flags & PLAN_SYNC;
	size_t bytes = step->len * combine_bytes(&coll->combine, step->src, 0);
	const struct vbn_rkey *rkey = NULL;
	uint64_t off = 0;
	int err = find_target(peer, coll, step, bytes, &rkey, &off);

	if (!err)
		err = wire_open(peer, false);
	if (!err)
		err = step_post(comm, peer,
				bytes ? place(coll, step->src, step->src_off)
				      : NULL,
				bytes, rkey, off, sync ? entry : NULL);
	return !err && sync ? -EINPROGRESS : err;
}

static int step_copy(struct exec *exec, struct exec_entry *entry)
{
	struct vbn_comm *comm = comm_of(exec);
	const struct vbn_coll *coll = comm->first;
	const struct plan_step *step = &entry->step;
	struct peer *peer = entry->peer ? peer_of(entry->peer) : NULL;
	const char *from = peer ? step_landing(comm, peer, entry->landing)
				: place(coll, step->src, step->src_off);

	combine_copy(&coll->combine, step,
		     place(coll, step->dst, step->dst_off), from);
	if (peer)
		wire_empty_slot(peer, entry->landing);
	return 0;
}

static int step_copy_peer(struct exec *exec, struct exec_entry *entry)
{
	const struct vbn_coll *coll = comm_of(exec)->first;
	const struct plan_step *step = &entry->step;
	const char *base;
	int err = map_peer(peer_of(entry->peer), step->src, &base);

	if (err)
		return err;
	combine_copy(&coll->combine, step,
		     place(coll, step->dst, step->dst_off),
		     base + step->src_off * coll->combine.narrow);
	return 0;
}

int step_missing(struct vbn_comm *comm, const struct peer *peer)
{
	if (!peer->nearly)
		return -EAGAIN;
	/* It is in a later call and owes us a put of this one. */
	wire_disagree(comm, peer, comm->first->seq);
	return -EPROTO;
}

static int step_wait(struct exec *exec, struct exec_entry *entry)
{
	struct vbn_comm *comm = comm_of(exec);
	const struct vbn_coll *coll = comm->first;
	const struct plan_step *step = &entry->step;
	struct peer *peer = peer_of(entry->peer);

	if (entry->index >= wire_arrived(peer))
		return step_missing(comm, peer);
	if (step->dst == PLAN_OUTPUT && step->len > 0 && !coll->direct) {
		memcpy(place(coll, PLAN_OUTPUT, step->dst_off),
		       step_landing(comm, peer, entry->landing),
		       step->len * coll->combine.narrow);
		wire_empty_slot(peer, entry->landing);
	}
	return 0;
}

static int step_reduce(struct exec *exec, struct exec_entry *entry)
{
	struct vbn_comm *comm = comm_of(exec);
	const struct vbn_coll *coll = comm->first;
	const struct plan_step *step = &entry->step;
	struct peer *peer = peer_of(entry->peer);

	combine_reduce(&coll->combine, step,
		       place(coll, step->dst, step->dst_off),
		       step_landing(comm, peer, entry->landing),
		       place(coll, step->acc, step->acc_off));
	wire_empty_slot(peer, entry->landing);
	return 0;
}

static int member_at(const struct plan_step *step, int i)
{
	return step->members ? step->members[i] : i;
}

/* Nothing is claimed before all is there: it may be tried again. */
static int find_contributions(struct vbn_comm *comm,
			      const struct vbn_coll *coll,
			      const struct plan_step *step)
{
	bool mapped = step->src == PLAN_INPUT;

	for (int i = 0; i < step->n; i++) {
		int member = member_at(step, i);
		struct peer *peer;
		const char *base;
		int err;

		if (member == comm->rank) {
			comm->contributions[i] =
				place(coll, step->acc, step->acc_off);
			continue;
		}
		if (!mapped)
			continue;
		peer = comm_peer(comm, member);
		err = peer ? map_peer(peer, PLAN_INPUT, &base) : -ENOMEM;
		if (err)
			return err;
		comm->contributions[i] =
			base + step->src_off * coll->combine.narrow;
	}
	return 0;
}

static int step_reduce_all(struct exec *exec, struct exec_entry *entry)
{
	struct vbn_comm *comm = comm_of(exec);
	const struct vbn_coll *coll = comm->first;
	const struct plan_step *step = &entry->step;
	bool mapped = step->src == PLAN_INPUT;
	uint64_t landing;
	int err = find_contributions(comm, coll, step);

	if (err)
		return err;
	for (int i = 0; i < step->n && !mapped; i++) {
		int member = member_at(step, i);

		if (member == comm->rank)
			continue;
		if (!exec_oldest_claim(&comm->by_member[member]->exec,
				       &landing))
			return -EPROTO;
		comm->contributions[i] =
			step_landing(comm, comm->by_member[member], landing);
	}
	combine_all(&coll->combine, step, place(coll, step->dst, step->dst_off),
		    comm->contributions);
	for (int i = 0; i < step->n && !mapped; i++) {
		int member = member_at(step, i);

		if (member == comm->rank)
			continue;
		exec_claim(&comm->by_member[member]->exec, &landing);
		wire_empty_slot(comm->by_member[member], landing);
	}
	return 0;
}

const struct exec_backend step_backend = {
	.peer = step_peer,
	.via_landing = step_via_landing,
	.enter = step_enter,
	.open = step_open,
	.put = step_put,
	.wait = step_wait,
	.reduce = step_reduce,
	.reduce_all = step_reduce_all,
	.copy = step_copy,
	.copy_peer = step_copy_peer,
};
