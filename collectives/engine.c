/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: runs plans over endpoints. It is the executor's backend: a put
 * is a vbn_put_notify() into a landing slot or the peer's output, a wait is a
 * count of notifies, a reduce reads the landing slot.
 *
 * It runs in whatever progresses: start, test, wait, and the handlers of
 * arrivals and completions; none of it blocks. What the transport refuses
 * with -EAGAIN is tried again by the next run.
 */
#include "coll.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- operations in flight ---- */

void engine_return_op(struct coll_op *op)
{
	struct vbn_comm *comm = op->comm;

	comm->ops_busy--;
	comm->reads_busy -= op->reads_input;
	op->next = comm->free_ops;
	comm->free_ops = op;
}

static void op_done(struct vbn_op *done)
{
	struct coll_op *op = done->arg;
	struct vbn_comm *comm = op->comm;
	bool data = op->reads_input;

	engine_return_op(op);
	/* A dying peer may refuse before it is known to have died. */
	if (done->status && data)
		comm_lose(comm, op->peer, done->status);
	if (!comm->orphan)
		engine_pump(comm);
	else if (comm->ops_busy == 0)
		comm_release(comm);
}

struct coll_op *engine_take_op(struct peer *peer, bool reads_input)
{
	struct vbn_comm *comm = peer->comm;
	struct coll_op *op = comm->free_ops;

	if (!op)
		return NULL;
	comm->free_ops = op->next;
	comm->ops_busy++;
	comm->reads_busy += reads_input;
	op->op.done = op_done;
	op->op.arg = op;
	op->peer = peer;
	op->reads_input = reads_input;
	return op;
}

/* ---- the executor's backend ---- */

static struct vbn_comm *comm_of(struct exec *exec)
{
	return (struct vbn_comm *)exec;
}

static struct peer *peer_of(struct exec_peer *peer)
{
	return (struct peer *)peer;
}

static struct exec_peer *engine_peer(struct exec *exec, int member)
{
	struct peer *peer = comm_peer(comm_of(exec), member);

	return peer ? &peer->exec : NULL;
}

static bool engine_via_landing(struct exec *exec, struct exec_peer *peer)
{
	(void)peer;
	return !comm_of(exec)->first->direct;
}

static void engine_enter(struct exec *exec, struct exec_entry *entry)
{
	(void)exec;
	(void)entry;
}

static int engine_open(struct exec *exec, struct exec_entry *entry)
{
	const struct vbn_coll *coll = comm_of(exec)->first;
	struct peer *peer = peer_of(entry->peer);
	int err = wire_open(peer, entry->step.len > 0);

	if (!err && entry->step.dst == PLAN_OUTPUT && coll->large)
		err = wire_expose(peer, coll);
	return err;
}

static const char *source(const struct vbn_coll *coll, uint8_t space,
			  uint64_t off)
{
	return (space == PLAN_INPUT ? coll->in : coll->out) +
	       off * coll->element;
}

/* Where a put goes; -EAGAIN if the peer is not ready for it. */
static int find_target(struct peer *peer, const struct vbn_coll *coll,
		       const struct plan_step *step,
		       const struct vbn_rkey **rkey, uint64_t *off)
{
	size_t bytes = step->len * coll->element;

	if (!peer->opened)
		return -EAGAIN;
	if (bytes == 0) {
		*rkey = NULL;
		*off = 0;
		return 0;
	}
	if (step->dst == PLAN_OUTPUT && coll->large) {
		if (!peer->exposed || peer->exposed_seq != coll->seq)
			return -EAGAIN;
		if (peer->writable) {
			*rkey = &peer->output;
			*off = step->dst_off * coll->element;
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

static int engine_put(struct exec *exec, struct exec_entry *entry)
{
	struct vbn_comm *comm = comm_of(exec);
	const struct vbn_coll *coll = comm->first;
	const struct plan_step *step = &entry->step;
	struct peer *peer = peer_of(entry->peer);
	size_t bytes = step->len * coll->element;
	const struct vbn_rkey *rkey = NULL;
	struct coll_op *op;
	uint64_t off = 0;
	int err = find_target(peer, coll, step, &rkey, &off);

	if (!err)
		err = wire_open(peer, false);
	if (err)
		return err;
	op = engine_take_op(peer, bytes > 0);
	if (!op)
		return -EAGAIN; /* one that completes pumps again */
	err = vbn_put_notify(
		peer->ep, &op->op,
		bytes ? source(coll, step->src, step->src_off) : NULL, bytes,
		rkey, off, VBN_CHANNEL_COLL, wire_data_value(peer, coll), 0);
	if (err) {
		engine_return_op(op);
		if (err == -EAGAIN)
			comm->stalled = true;
		return err;
	}
	if (rkey == &peer->landing)
		peer->landed++;
	return 0;
}

static const char *landing_of(const struct vbn_comm *comm,
			      const struct peer *peer, uint64_t landing)
{
	return peer->memory + landing % comm->slots * comm->slot_bytes;
}

static void empty_slot(struct peer *peer, uint64_t landing)
{
	exec_slot_free(&peer->emptied, landing);
	wire_return_slots(peer);
}

static int engine_copy(struct exec *exec, struct exec_entry *entry)
{
	struct vbn_comm *comm = comm_of(exec);
	const struct vbn_coll *coll = comm->first;
	const struct plan_step *step = &entry->step;
	struct peer *peer = entry->peer ? peer_of(entry->peer) : NULL;
	const char *from = peer ? landing_of(comm, peer, entry->landing)
				: source(coll, step->src, step->src_off);
	char *to = coll->out + step->dst_off * coll->element;

	if (from != to)
		memcpy(to, from, step->len * coll->element);
	if (peer)
		empty_slot(peer, entry->landing);
	return 0;
}

static int engine_wait(struct exec *exec, struct exec_entry *entry)
{
	const struct vbn_coll *coll = comm_of(exec)->first;
	const struct plan_step *step = &entry->step;
	struct peer *peer = peer_of(entry->peer);

	if (entry->index >= wire_arrived(peer)) {
		if (!peer->nearly)
			return -EAGAIN;
		/* It is in a later call and owes us a put of this one. */
		wire_disagree(comm_of(exec), peer, coll->seq);
		return -EPROTO;
	}
	if (step->dst == PLAN_OUTPUT && step->len > 0 && !coll->direct)
		return engine_copy(exec, entry);
	return 0;
}

static int engine_reduce(struct exec *exec, struct exec_entry *entry)
{
	struct vbn_comm *comm = comm_of(exec);
	const struct vbn_coll *coll = comm->first;
	const struct plan_step *step = &entry->step;
	struct peer *peer = peer_of(entry->peer);

	coll->kernel->run(coll->out + step->dst_off * coll->element,
			  landing_of(comm, peer, entry->landing),
			  source(coll, step->acc, step->acc_off), step->len);
	empty_slot(peer, entry->landing);
	return 0;
}

static const struct exec_backend backend = {
	.peer = engine_peer,
	.via_landing = engine_via_landing,
	.enter = engine_enter,
	.open = engine_open,
	.put = engine_put,
	.wait = engine_wait,
	.reduce = engine_reduce,
	.copy = engine_copy,
};

/* ---- calls ---- */

static void fail_call(struct vbn_comm *comm, int err)
{
	char what[128], why[256];

	if (comm->error)
		return;
	snprintf(why, sizeof(why), "%s", vbn_error());
	if (err == -ECONNRESET) { /* the news of a death may be on its way */
		comm_lose(comm, NULL, err);
		if (!comm_is_lost(comm)) {
			comm->stalled = true; /* tried again meanwhile */
			return;
		}
	}
	call_describe(&comm->first->call, what, sizeof(what));
	comm_fail(comm, err, "%s: %s", what, why[0] ? why : strerror(-err));
}

static int begin(struct vbn_comm *comm, struct vbn_coll *coll)
{
	size_t bytes = coll->call.count * coll->element;

	comm->next_seq = coll->seq;
	coll->state = COLL_RUNNING;
	coll->direct = coll->large && vbn_rkey_of(comm->job, coll->out, bytes,
						  &coll->output) == 0;
	if (!wire_check_early(coll))
		return comm->error;
	return exec_begin(&comm->exec, &backend, &coll->shape, coll->window);
}

static void finish(struct vbn_comm *comm, struct vbn_coll *coll)
{
	comm->first = coll->next;
	if (!comm->first)
		comm->last = &comm->first;
	comm->next_seq = coll->seq + 1;
	coll->state = COLL_DONE;
	coll->status = 0;
	comm_check_fault(comm);
}

static void run_calls(struct vbn_comm *comm)
{
	while (comm->first && !comm->error) {
		struct vbn_coll *coll = comm->first;
		int err = coll->state == COLL_RUNNING ? 0 : begin(comm, coll);

		if (!err)
			err = exec_run(&comm->exec);
		if (err == -EAGAIN || comm->error)
			return;
		if (err) {
			fail_call(comm, err);
			return;
		}
		if (comm->reads_busy > 0)
			return; /* its last puts still read the input */
		finish(comm, coll);
	}
}

void engine_pump(struct vbn_comm *comm)
{
	if (comm->pumping)
		return;
	comm->pumping = true;
	comm->stalled = false;
	if (comm->fault)
		comm_pass_on(comm);
	if (!comm->error) {
		for (struct peer *peer = comm->peers; peer; peer = peer->next)
			wire_return_slots(peer);
		run_calls(comm);
	}
	comm->pumping = false;
}

void engine_pump_all(struct shared *shared)
{
	for (struct vbn_comm *comm = shared->comms; comm; comm = comm->next)
		if (comm->first || comm->stalled)
			engine_pump(comm);
}

bool engine_stalled(const struct shared *shared)
{
	for (struct vbn_comm *comm = shared->comms; comm; comm = comm->next)
		if (comm->stalled)
			return true;
	return false;
}

void engine_enqueue(struct vbn_coll *coll)
{
	struct vbn_comm *comm = coll->comm;

	coll->seq = comm->seq++;
	coll->state = COLL_QUEUED;
	coll->status = -EINPROGRESS;
	coll->published = false;
	coll->next = NULL;
	comm->history[coll->seq % COMM_HISTORY] = coll->call;
	*comm->last = coll;
	comm->last = &coll->next;
	engine_pump(comm);
}

static bool owes(const struct vbn_comm *comm)
{
	for (struct peer *peer = comm->peers; peer; peer = peer->next)
		if (peer->owes_abort)
			return true;
	return false;
}

void engine_settle(struct vbn_comm *comm, int timeout_ms)
{
	uint64_t deadline = coll_now_ms() + (uint64_t)timeout_ms;

	while (comm->shared->ctx && (comm->ops_busy > 0 || owes(comm)) &&
	       coll_now_ms() < deadline) {
		comm_pass_on(comm);
		vbn_ctx_wait(comm->ctx, 1);
	}
}
