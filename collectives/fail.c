/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a communicator breaks: once, with one reason, which each member passes
 * on to the peers that it has talked to, so that it reaches all who are, or
 * will be, in a call. A dead member is seen by the job, or by its endpoint.
 */
#include "coll.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* A call that goes on this long after a put was lost fails. */
#define LOST_GRACE_MS 500

uint64_t coll_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t coll_now_ms(void)
{
	return coll_now_ns() / 1000000;
}

int comm_no_memory(const struct vbn_comm *comm)
{
	return vbn_job_rank_dead(comm->job, 0) ? -ECONNRESET : -ENOMEM;
}

static void add(char *text, size_t room, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void add(char *text, size_t room, const char *fmt, ...)
{
	size_t at = strlen(text);
	va_list args;

	va_start(args, fmt);
	vsnprintf(text + at, room - at, fmt, args);
	va_end(args);
}

void call_describe(const struct call *call, char *text, size_t room)
{
	enum plan_operation operation = call->operation;

	text[0] = '\0';
	add(text, room, "%s", plan_operation_name(operation));
	if (operation != PLAN_OP_BARRIER)
		add(text, room, " of %llu %s", (unsigned long long)call->count,
		    reduce_type_name(call->type));
	if (operation == PLAN_OP_ALLREDUCE || operation == PLAN_OP_REDUCE ||
	    operation == PLAN_OP_REDUCE_SCATTER)
		add(text, room, ", %s", reduce_name(call->reduction));
	if (operation == PLAN_OP_BROADCAST || operation == PLAN_OP_SCATTER)
		add(text, room, " from member %d", call->root);
	else if (operation == PLAN_OP_REDUCE || operation == PLAN_OP_GATHER)
		add(text, room, " to member %d", call->root);
	if (operation != PLAN_OP_BARRIER)
		add(text, room, ", %s", plan_name(call->algorithm));
	if (call->layout)
		add(text, room, ", parts %08llx",
		    (unsigned long long)(call->layout & 0xffffffff));
	if (call->in_place)
		add(text, room, ", in place");
	if (call->wire16)
		add(text, room, ", 16-bit wire");
	if (call->chunk)
		add(text, room, ", chunk %llu",
		    (unsigned long long)call->chunk);
	if (call->landing_bytes != COMM_LANDING)
		add(text, room, ", landing %llu",
		    (unsigned long long)call->landing_bytes);
}

const struct call *comm_call(const struct vbn_comm *comm, uint32_t seq)
{
	const struct vbn_coll *coll = comm->first;

	while (coll && coll->seq != seq)
		coll = coll->next;
	return coll ? &coll->call : &comm->history[seq % COMM_HISTORY];
}

static void end_calls(struct vbn_comm *comm)
{
	while (comm->first) {
		struct vbn_coll *coll = comm->first;

		if ((int32_t)(coll->seq - comm->fault_seq) <= 0)
			comm->history[coll->seq % COMM_HISTORY] = coll->call;
		comm->first = coll->next;
		coll->state = COLL_DONE;
		coll->status = comm->error;
	}
	comm->last = &comm->first;
}

void comm_pass_on(struct vbn_comm *comm)
{
	/* Members of a context that closed are told by their endpoints. */
	if (!comm->shared->ctx)
		return;
	for (struct peer *peer = comm->peers; peer; peer = peer->next)
		if (peer->owes_abort)
			wire_abort(peer);
}

void comm_check_fault(struct vbn_comm *comm)
{
	if (!comm->fault || comm->error ||
	    (int32_t)(comm->next_seq - comm->fault_seq) < 0)
		return;
	comm->error = comm->fault;
	end_calls(comm);
}

void comm_fail_in(struct vbn_comm *comm, const struct peer *but, int err,
		  uint32_t seq, const char *why)
{
	if (comm->error ||
	    (comm->fault && (int32_t)(seq - comm->fault_seq) >= 0))
		return;
	comm->fault = err;
	comm->fault_seq = seq;
	snprintf(comm->why, sizeof(comm->why), "%s", why);
	for (struct peer *peer = comm->peers; peer; peer = peer->next)
		peer->owes_abort = peer != but;
	comm_check_fault(comm);
	comm_pass_on(comm);
}

void comm_fail(struct vbn_comm *comm, int err, const char *fmt, ...)
{
	char why[COMM_WHY];
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, sizeof(why), fmt, args);
	va_end(args);
	comm_fail_in(comm, NULL, err, comm->next_seq, why);
	/* Even if a fault of this call is pending: ours is at hand. */
	comm_check_fault(comm);
}

bool comm_needs(const struct vbn_comm *comm, const struct peer *peer)
{
	const struct exec *exec = &comm->exec;

	if (!comm->first || comm->first->state != COLL_RUNNING)
		return false;
	if (comm->quick)
		return quick_needs(comm, peer);
	for (uint64_t i = exec->base; i < exec->next; i++)
		if ((exec->pending >> (i % EXEC_WINDOW) & 1) &&
		    exec->entries[i % EXEC_WINDOW].peer == &peer->exec)
			return true;
	return false;
}

void comm_lose(struct vbn_comm *comm, struct peer *peer, int status)
{
	if (!comm->lost)
		comm->lost = peer;
	if (comm->lost_status)
		return;
	comm->lost_status = status;
	comm->lost_at_ms = coll_now_ms();
}

bool comm_is_lost(struct vbn_comm *comm)
{
	return comm->lost_status &&
	       (vbn_job_dead(comm->job) >= 0 ||
		coll_now_ms() - comm->lost_at_ms > LOST_GRACE_MS);
}

/* The member that died, the first that was heard of if it is one; or -1. */
static int dead_member(const struct vbn_comm *comm)
{
	int first = vbn_job_dead(comm->job), found = -1;

	for (int i = 0; first >= 0 && i < comm->n; i++) {
		if (comm->ranks[i] == first)
			return i;
		if (found < 0 && vbn_job_rank_dead(comm->job, comm->ranks[i]))
			found = i;
	}
	return found;
}

void comm_check_dead(struct vbn_comm *comm)
{
	int dead;

	if (comm->error || !comm->first)
		return;
	dead = dead_member(comm);
	if (dead >= 0) {
		comm_fail(
			comm, -ECONNRESET,
			"rank %d died; the communicator is broken, create one without it",
			comm->ranks[dead]);
		return;
	}
	for (struct peer *peer = comm->peers; peer; peer = peer->next) {
		int status = vbn_ep_status(peer->ep);

		if (status && status != -EINPROGRESS && comm_needs(comm, peer))
			comm_lose(comm, peer, status);
	}
	if (comm_is_lost(comm) && comm->lost)
		comm_fail(
			comm, comm->lost_status,
			"the connection to rank %d is lost (%s): it left, its network failed, or it refused",
			comm->ranks[comm->lost->member],
			strerror(-comm->lost_status));
}

void vbn_comm_abort(struct vbn_comm *comm)
{
	atomic_store(&comm->abort_asked, true);
	thread_kick(comm->shared);
}

void comm_check_abort(struct vbn_comm *comm)
{
	if (atomic_load_explicit(&comm->abort_asked, memory_order_relaxed) &&
	    !comm->error)
		comm_fail(comm, -ECANCELED, "rank %d aborted the communicator",
			  comm->ranks[comm->rank]);
}
