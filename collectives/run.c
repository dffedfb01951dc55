/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Starting, testing and waiting; what a waiter looks for besides progress.
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
/* Events that a wait lets pass before it looks at anything else. */
#define BRIEF_EVENTS 16
#define BRIEF_MS     20

/* ---- running ---- */

static bool in_flight(const struct vbn_coll *coll)
{
	return coll->state == COLL_QUEUED || coll->state == COLL_RUNNING;
}

static int broken(struct vbn_comm *comm)
{
	report_disagreement(comm);
	return vbn_fail(comm->error, "%s", comm->why);
}

static int start(struct vbn_coll *coll)
{
	struct vbn_comm *comm = coll->comm;

	if (in_flight(coll))
		return vbn_fail(-EBUSY, "the collective is in flight already");
	comm_check_abort(comm);
	if (comm->error) {
		/* For the list of calls: it is this that we call. */
		if (comm->seq == comm->fault_seq)
			comm->history[comm->seq++ % COMM_HISTORY] = coll->call;
		return broken(comm);
	}
	engine_enqueue(coll);
	return 0;
}

int vbn_coll_start(struct vbn_coll *coll)
{
	struct thread *taken = coll_take(coll->comm->shared);
	int err = start(coll);

	coll_give(taken);
	return err;
}

/* The status of a call that is over. */
static int result(struct vbn_coll *coll)
{
	if (!coll->status || coll->state == COLL_IDLE)
		return 0;
	return broken(coll->comm);
}

static int test(struct vbn_coll *coll)
{
	struct vbn_comm *comm = coll->comm;

	if (coll->state == COLL_IDLE || coll->state == COLL_DONE)
		return result(coll);
	vbn_progress(comm->ctx);
	engine_pump_all(comm->shared);
	comm_check_abort(comm);
	comm_check_dead(comm);
	if (coll->state == COLL_DONE)
		return result(coll);
	return -EINPROGRESS;
}

int vbn_coll_test(struct vbn_coll *coll)
{
	struct thread *taken = coll_take(coll->comm->shared);
	int err = test(coll);

	coll_give(taken);
	return err;
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
		comm_check_abort(comm);
		comm_check_dead(comm);
	}
	if (now - w->start >= PUBLISH_AFTER_MS && !comm->error)
		report_arrival(comm->first);
	if (now - w->start >= w->compare_after && !comm->error) {
		report_compare(coll);
		w->compare_after += w->compare_after < COMPARE_MOST_MS
					    ? w->compare_after
					    : COMPARE_MOST_MS;
	}
}

/* Of a context that is still open. */
static bool is_in_callback(const struct vbn_comm *comm)
{
	return comm->shared->ctx && vbn_ctx_in_callback(comm->shared->ctx);
}

static int no_waiting(void)
{
	return vbn_fail(
		-EDEADLK,
		"in a callback of the context one cannot wait for a collective: start it there, and wait outside");
}

static int wait_long(struct vbn_coll *coll, uint64_t start, int timeout_ms)
{
	struct vbn_comm *comm = coll->comm;
	uint64_t now = coll_now_ms();
	struct waiting w = {start ? start : now, now, COMPARE_AFTER_MS};

	if (is_in_callback(comm))
		return no_waiting();
	engine_pump_all(comm->shared);
	while (in_flight(coll)) {
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
	return 0;
}

/*
 * Most short calls are over before it is worth reading the clock, which is at
 * the second event. Returns that time, ms, or 0: it was not read.
 */
static uint64_t wait_briefly(struct vbn_coll *coll, int timeout_ms)
{
	struct vbn_comm *comm = coll->comm;
	int most = timeout_ms >= 0 && timeout_ms < BRIEF_MS ? timeout_ms
							    : BRIEF_MS;
	uint64_t start = 0;

	for (int i = 0; i < BRIEF_EVENTS && in_flight(coll); i++) {
		if (engine_stalled(comm->shared) ||
		    !vbn_ctx_wait(comm->ctx, most) || !in_flight(coll))
			break;
		if (i == 0)
			continue;
		if (!start)
			start = coll_now_ms();
		else if (coll_now_ms() - start >= (uint64_t)most)
			break;
	}
	return start;
}

static int wait(struct vbn_coll *coll, int timeout_ms)
{
	if (in_flight(coll)) {
		int err = 0;

		uint64_t start = wait_briefly(coll, timeout_ms);

		if (in_flight(coll))
			err = wait_long(coll, start, timeout_ms);
		if (err)
			return err;
	}
	if (coll->status)
		engine_settle(coll->comm, 200);
	return result(coll);
}

int vbn_coll_wait(struct vbn_coll *coll, int timeout_ms)
{
	struct thread *taken = coll_take(coll->comm->shared);
	int err = wait(coll, timeout_ms);

	coll_give(taken);
	return err;
}

void vbn_coll_free(struct vbn_coll *coll)
{
	struct thread *taken;

	if (!coll)
		return;
	taken = coll_take(coll->comm->shared);
	if (in_flight(coll)) {
		struct vbn_comm *comm = coll->comm;

		comm_fail(comm, -ECANCELED,
			  "rank %d freed a collective in flight",
			  comm->ranks[comm->rank]);
		engine_settle(comm, 300);
	}
	coll_release(coll);
	coll_give(taken);
	free(coll);
}

/* ---- blocking ---- */

static bool same_request(const struct request *a, const struct request *b)
{
	return a->operation == b->operation && a->in == b->in &&
	       a->out == b->out && a->count == b->count && a->type == b->type &&
	       a->reduction == b->reduction && a->root == b->root;
}

/* The same call as the one before needs no new preparation. */
static int prepare_blocking(struct vbn_comm *comm,
			    const struct request *request)
{
	int err;

	if (comm->blocking_ready &&
	    same_request(request, &comm->blocking_request))
		return 0;
	comm->blocking_ready = false;
	coll_release(&comm->blocking);
	err = coll_prepare(&comm->blocking, comm, request);
	if (err)
		return err;
	comm->blocking_request = *request;
	comm->blocking_ready = true;
	return 0;
}

static int run_blocking(struct vbn_comm *comm, const struct request *request,
			int timeout_ms)
{
	struct vbn_coll *coll = &comm->blocking;
	int err;

	if (is_in_callback(comm))
		return no_waiting();
	err = prepare_blocking(comm, request);
	if (!err)
		err = start(coll);
	if (!err)
		err = wait(coll, timeout_ms);
	if (in_flight(coll)) {
		char why[COMM_WHY];

		snprintf(why, sizeof(why), "rank %d gave up: %.400s",
			 comm->ranks[comm->rank], vbn_error());
		comm_fail(comm, err, "%s", why);
		engine_settle(comm, 200);
		vbn_fail(err, "%s", why);
	}
	return err;
}

int coll_run_blocking(struct vbn_comm *comm, const struct request *request,
		      int timeout_ms)
{
	struct thread *taken = coll_take(comm->shared);
	int err = run_blocking(comm, request, timeout_ms);

	coll_give(taken);
	return err;
}
