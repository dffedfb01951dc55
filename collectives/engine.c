/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The engine: runs the calls of communicators, one after another each. It
 * runs in whatever progresses: start, test, wait, and the handlers of
 * arrivals and completions; none of it blocks. What the transport refuses
 * with -EAGAIN is tried again by the next run.
 */
#include "coll.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- operations in flight ---- */

static void op_done(struct vbn_op *done)
{
	struct coll_op *op = done->arg;
	struct vbn_comm *comm = op->comm;
	struct exec_entry *entry = op->entry;
	bool data = op->reads_input;

	engine_return_op(op);
	if (entry && !comm->error)
		exec_done(&comm->exec, entry);
	/* A dying peer may refuse before it is known to have died. */
	if (done->status && data)
		comm_lose(comm, op->peer, done->status);
	if (!comm->orphan) {
		if (!quick_advance(comm))
			engine_pump(comm);
	} else if (comm->ops_busy == 0) {
		comm_release(comm);
	}
}

void engine_make_ops(struct vbn_comm *comm)
{
	for (int i = 0; i < COMM_OPS; i++) {
		struct coll_op *op = &comm->ops[i];

		op->op.done = op_done;
		op->op.arg = op;
		op->comm = comm;
		op->next = comm->free_ops;
		comm->free_ops = op;
	}
}

/* ---- calls ---- */

static void fail_call(struct vbn_comm *comm, int err)
{
	char what[128], why[256];

	if (comm->error)
		return;
	snprintf(why, sizeof(why), "%s", vbn_error());
	/* The news of a death may be on its way. */
	if (err == -ECONNRESET || err == -ECONNREFUSED) {
		comm_lose(comm, NULL, err);
		if (!comm_is_lost(comm)) {
			comm->stalled = true; /* tried again meanwhile */
			return;
		}
		comm_check_dead(comm); /* says who it is */
		if (comm->error)
			return;
	}
	call_describe(&comm->first->call, what, sizeof(what));
	comm_fail(comm, err, "%s: %s", what, why[0] ? why : strerror(-err));
}

/* Peers map the input: what they cannot map is copied to where they can. */
static int share_input(struct vbn_comm *comm, struct vbn_coll *coll)
{
	const void *in = coll->in;
	struct vbn_pool *pool;

	if (vbn_mem_is_shared(comm->job, in, coll->in_bytes))
		return vbn_rkey_of(comm->job, in, coll->in_bytes, &coll->input);
	if (!coll->staged) {
		pool = wire_pool(comm);
		if (pool)
			coll->staged = vbn_pool_alloc(pool, coll->in_bytes, 64);
		if (!coll->staged)
			return comm_no_memory(comm);
	}
	memcpy(coll->staged, in, coll->in_bytes);
	return vbn_rkey_of(comm->job, coll->staged, coll->in_bytes,
			   &coll->input);
}

/* The keys that peers need of our buffers in this start. */
static int find_keys(struct vbn_comm *comm, struct vbn_coll *coll)
{
	coll->direct = coll->large && coll->out_bytes > 0 &&
		       vbn_rkey_of(comm->job, coll->out, coll->out_bytes,
				   &coll->output) == 0;
	if (!coll->direct)
		coll->output = (struct vbn_rkey){0};
	if (!coll->algo->mapped || coll->in_bytes == 0)
		return 0;
	return share_input(comm, coll);
}

static int begin(struct vbn_comm *comm, struct vbn_coll *coll)
{
	int err;

	comm->next_seq = coll->seq;
	err = find_keys(comm, coll);
	if (err)
		return err;
	if (!wire_check_early(coll))
		return comm->error;
	coll->state = COLL_RUNNING;
	comm->quick = false;
	if (coll->quick && quick_begin(comm, coll))
		return 0;
	return exec_begin(&comm->exec, &step_backend, &coll->shape,
			  coll->window);
}

static void return_slots(struct vbn_comm *comm)
{
	comm->owes_slots = false;
	for (struct peer *peer = comm->peers; peer; peer = peer->next)
		wire_return_slots(peer);
}

static void answer(struct vbn_comm *comm)
{
	for (struct peer *peer = comm->peers; peer && comm->askers > 0;
	     peer = peer->next)
		wire_answer(peer);
}

void engine_finish(struct vbn_comm *comm, struct vbn_coll *coll)
{
	comm->history[coll->seq % COMM_HISTORY] = coll->call;
	comm->first = coll->next;
	if (!comm->first)
		comm->last = &comm->first;
	comm->next_seq = coll->seq + 1;
	coll->state = COLL_DONE;
	coll->status = 0;
	if (comm->settings.trace)
		trace_call(coll);
	comm_check_fault(comm);
	if (!comm->error && comm->askers > 0)
		answer(comm);
}

static void run_calls(struct vbn_comm *comm)
{
	while (comm->first && !comm->error) {
		struct vbn_coll *coll = comm->first;
		int err = coll->state == COLL_RUNNING ? 0 : begin(comm, coll);

		if (!err)
			err = comm->quick ? quick_run(comm)
					  : exec_run(&comm->exec);
		if (err == -EAGAIN || comm->error)
			return;
		if (err) {
			fail_call(comm, err);
			return;
		}
		if (comm->reads_busy > 0)
			return; /* its last puts have not left */
		engine_finish(comm, coll);
	}
}

void engine_pump(struct vbn_comm *comm)
{
	if (comm->pumping)
		return;
	comm_check_abort(comm);
	comm->pumping = true;
	comm->stalled = false;
	if (comm->fault)
		comm_pass_on(comm);
	if (!comm->error) {
		if (comm->owes_slots)
			return_slots(comm);
		if (comm->askers > 0)
			answer(comm);
		run_calls(comm);
	}
	comm->pumping = false;
}

static bool owes(const struct vbn_comm *comm)
{
	for (struct peer *peer = comm->fault ? comm->peers : NULL; peer;
	     peer = peer->next)
		if (peer->owes_abort)
			return true;
	return false;
}

static bool is_busy(const struct vbn_comm *comm)
{
	bool aborts = atomic_load_explicit(&comm->abort_asked,
					   memory_order_relaxed) &&
		      !comm->error;

	return comm->first || comm->stalled || aborts || owes(comm);
}

void engine_pump_all(struct shared *shared)
{
	for (struct vbn_comm *comm = shared->comms; comm; comm = comm->next)
		if (is_busy(comm))
			engine_pump(comm);
}

bool engine_busy(const struct shared *shared)
{
	for (struct vbn_comm *comm = shared->comms; comm; comm = comm->next)
		if (is_busy(comm))
			return true;
	return false;
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
	if (comm->settings.trace)
		coll->started_ns = coll_now_ns();
	*comm->last = coll;
	comm->last = &coll->next;
	if (!quick_start(comm, coll))
		engine_pump(comm);
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
