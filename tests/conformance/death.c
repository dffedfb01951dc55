/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank of three dies (kill -9) or leaves in order. Within 10 s the
 * survivors' operations towards it end with -ECONNRESET, each once; later ones
 * are refused at once; the survivors' own endpoint goes on as if nothing had
 * happened. Only when rank 0 dies, all endpoints end: it keeps the job's store,
 * without which nobody would learn of further deaths. One case to an
 * invocation, as the dead do not come back.
 */
#include "harness.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BOUND	10.0 /* seconds from the death to the last error */
#define PENDING 64
#define WINDOW	65536

enum traffic { PUTS, GETS, ATOMICS, SENDS, RECEIVES, FLUSHES, NOTHING };

struct party {
	struct test *t;
	int victim, friend; /* ranks; friend: the other survivor */
	struct vbn_ep *to_victim, *to_friend;
	struct buffer *window, *local;
	struct vbn_rkey victim_key, friend_key;
	struct vbn_op ops[PENDING];
	int completions[PENDING];
	int notified; /* by the friend, */
	int expected; /* and so often it should have been */
};

static void party_done(struct vbn_op *op)
{
	struct party *p = op->arg;

	p->completions[op - p->ops]++;
}

static void from_friend(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct party *p = arg;

	(void)value;
	if (vbn_ep_rank(from) == p->friend)
		p->notified++;
}

static bool fetch_key(struct test *t, int rank, struct vbn_rkey *rkey)
{
	uint8_t packed[VBN_RKEY_BYTES];
	size_t len = sizeof(packed);
	char key[32];

	snprintf(key, sizeof(key), "party/%d", rank);
	if (!t_ok(t, vbn_job_get(t->job, key, packed, &len, WAIT_MS),
		  "vbn_job_get"))
		return false;
	vbn_rkey_unpack(rkey, packed);
	return true;
}

/* Everyone connected to everyone, one window each. */
static struct party *party_open(struct test *t, int victim)
{
	struct party *p = t_alloc(t, sizeof(*p));
	uint8_t packed[VBN_RKEY_BYTES];
	char key[32];

	p->t = t;
	p->victim = victim;
	p->friend = 3 - victim - t->rank;
	if (t->rank == victim)
		p->friend = (victim + 1) % 3;
	if (!t_ok(t, vbn_ctx_open(&t->ctx, t->job, NULL), "vbn_ctx_open"))
		return NULL;
	/* The first half is the friend's, the second the victim's. */
	p->window = t_buffer(t, POOL, 2 * WINDOW);
	p->local = t_buffer(t, POOL, WINDOW);
	if (!p->window || !p->local)
		return NULL;
	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, from_friend, p);
	vbn_rkey_pack(&p->window->rkey, packed);
	snprintf(key, sizeof(key), "party/%d", t->rank);
	if (!t_ok(t, vbn_job_set(t->job, key, packed, sizeof(packed), WAIT_MS),
		  "vbn_job_set"))
		return NULL;
	if (t->rank == victim)
		victim = (p->friend + 1) % 3; /* the victim talks to both */
	if (!fetch_key(t, victim, &p->victim_key) ||
	    !fetch_key(t, p->friend, &p->friend_key))
		return NULL;
	p->to_victim = t_endpoint(t, t->ctx, victim, 0);
	p->to_friend = t_endpoint(t, t->ctx, p->friend, 0);
	if (!p->to_victim || !p->to_friend ||
	    !t_ok(t, vbn_job_fence(t->job, WAIT_MS), "vbn_job_fence"))
		return NULL;
	return p;
}

static int post_traffic(struct party *p, enum traffic traffic, int i)
{
	struct vbn_op *op = &p->ops[i];
	struct vbn_ep *ep = p->to_victim;
	uint64_t word = -(uintptr_t)p->victim_key.base & 7;

	op->done = party_done;
	op->arg = p;
	switch (traffic) {
	case PUTS:
		return vbn_put(ep, op, p->local->data, WINDOW, &p->victim_key,
			       0, 0);
	case GETS:
		return vbn_get(ep, op, p->local->data, WINDOW, &p->victim_key,
			       0, 0);
	case ATOMICS:
		return vbn_fetch_add(ep, op, NULL, 1, &p->victim_key, word, 0);
	case SENDS:
		return vbn_send(ep, op, p->local->data, WINDOW, 0);
	case RECEIVES:
		return vbn_recv(ep, op, p->local->data, WINDOW);
	case FLUSHES:
		return vbn_flush(ep, op);
	case NOTHING:
		break;
	}
	return -EAGAIN;
}

/*
 * The victim: busy towards both others until its time has come, then gone in
 * the middle of it. The moment is written to the store first.
 */
static void die(struct party *p, bool busy)
{
	double until = now() + 0.5, moment;

	while (now() < until) {
		for (int i = 0; busy && i < PENDING; i++) {
			struct post a = {p->to_victim, &p->ops[i],
					 &p->victim_key, WINDOW, 0};

			if (i % 2) {
				a.ep = p->to_friend;
				a.rkey = &p->friend_key;
			}
			if (a.op->status != -EINPROGRESS)
				vbn_put(a.ep, a.op, p->local->data, WINDOW,
					a.rkey, WINDOW, 0);
		}
		vbn_ctx_wait(p->t->ctx, 5);
	}
	moment = now();
	vbn_job_set(p->t->job, "party/moment", &moment, sizeof(moment),
		    WAIT_MS);
	kill(getpid(), SIGKILL);
}

/* Keep the victim busy until it is known to be dead. */
static bool until_dead(struct party *p, enum traffic traffic, bool dies)
{
	double until = now() + 30;
	int *rc = t_alloc(p->t, PENDING * sizeof(*rc));

	for (int i = 0; i < PENDING; i++)
		p->ops[i].status = 0;
	while (now() < until) {
		if (dies && vbn_job_rank_dead(p->t->job, p->victim))
			return true;
		if (!dies && vbn_ep_status(p->to_victim) == -ECONNRESET)
			return true;
		for (int i = 0; i < PENDING; i++)
			if ((p->ops[i].status == 0 ||
			     p->ops[i].status == -EAGAIN) &&
			    traffic != NOTHING) {
				p->completions[i] = 0;
				rc[i] = post_traffic(p, traffic, i);
			}
		vbn_ctx_wait(p->t->ctx, 5);
	}
	return t_check(p->t, false, "the death is not noticed in 30 s");
}

/* All that was in flight must end, with the right error, in time. */
static void all_end(struct party *p, double moment)
{
	for (int i = 0; i < PENDING; i++) {
		while (p->ops[i].status == -EINPROGRESS &&
		       now() < moment + BOUND + 5)
			vbn_ctx_wait(p->t->ctx, 10);
		if (!t_check(p->t, p->ops[i].status != -EINPROGRESS,
			     "operation %d is in flight %.1f s after the death",
			     i, now() - moment) ||
		    !t_check(p->t,
			     p->ops[i].status == 0 ||
				     p->ops[i].status ==
					     -EAGAIN || /* refused */
				     p->ops[i].status == -ECONNRESET,
			     "operation %d: %s", i, err_name(p->ops[i].status)))
			return;
	}
	t_check(p->t, now() - moment < BOUND,
		"the last operation ended %.1f s after the death",
		now() - moment);
	while (vbn_ep_status(p->to_victim) != -ECONNRESET &&
	       now() < moment + BOUND)
		vbn_ctx_wait(p->t->ctx, 10);
}

/* The endpoint has failed: every operation is refused, at once. */
static void all_refused(struct party *p)
{
	static const char *const names[] = {"put",  "get",     "fetch-add",
					    "send", "receive", "flush"};
	struct vbn_op *op = &p->ops[0];
	double start = now();
	char text[64];

	for (int k = PUTS; k < NOTHING; k++) {
		snprintf(text, sizeof(text), "%s to a dead rank", names[k]);
		t_is(p->t, post_traffic(p, (enum traffic)k, 0), -ECONNRESET,
		     text);
	}
	t_is(p->t, vbn_notify(p->to_victim, op, VBN_CHANNEL_USER, 1, 0),
	     -ECONNRESET, "notify to a dead rank");
	t_is(p->t, vbn_message(p->to_victim, VBN_CHANNEL_USER, "x", 1),
	     -ECONNRESET, "message to a dead rank");
	t_is(p->t, vbn_ep_status(p->to_victim), -ECONNRESET, "vbn_ep_status");
	t_check(p->t, now() - start < 0.5, "refusing took %.2f s",
		now() - start);
}

/* One notify each way: neither goes on before the other has come so far. */
static bool friends_meet(struct party *p)
{
	struct vbn_op *op = t_alloc(p->t, sizeof(*op));
	double until = now() + 30;

	if (!t_ok(p->t, notify(p->to_friend, op, VBN_CHANNEL_USER, 2),
		  "a notify between survivors"))
		return false;
	p->expected++;
	while ((op->status == -EINPROGRESS || p->notified < p->expected) &&
	       now() < until && vbn_ep_status(p->to_friend) == 0)
		vbn_ctx_wait(p->t->ctx, 10);
	return t_check(p->t, p->notified >= p->expected && op->status == 0,
		       "the survivors do not meet: %d of %d notifies, own %s",
		       p->notified, p->expected, err_name(op->status));
}

/* Survivors exchange @count puts with notify, all verified. */
static void friends_talk(struct party *p, unsigned seed, int count)
{
	struct test *t = p->t;
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	struct post post = {p->to_friend, op, &p->friend_key, 0, 0};
	double until = now() + 20;

	for (int i = 0; i < count; i++) {
		fill(p->local->data, WINDOW, seed);
		if (!t_ok(t,
			  put_notify(post, p->local->data, WINDOW,
				     VBN_CHANNEL_USER, 1),
			  "a put between survivors") ||
		    !t_wait(t, op, "a put between survivors"))
			return;
		p->expected++;
		while (p->notified < p->expected && now() < until)
			vbn_ctx_wait(t->ctx, 10);
		if (!t_check(t, p->notified >= p->expected,
			     "the survivors' endpoint does not go on"))
			return;
	}
	t_pattern(t, p->window->data, WINDOW, seed, "between survivors");
	if (t_ok(t, flush(p->to_friend, op), "vbn_flush"))
		t_wait(t, op, "flush between survivors");
	friends_meet(p);
}

/* Both have come this far; through the data path, as fences fail now. */
static void friends_part(struct party *p)
{
	friends_meet(p);
	t_drive(p->t, 100);
}

/* After the death of the store's rank, the friend is lost as well. */
static void friend_lost(struct party *p, double moment)
{
	while (vbn_ep_status(p->to_friend) != -ECONNRESET &&
	       now() < moment + BOUND)
		vbn_ctx_wait(p->t->ctx, 10);
	t_is(p->t, vbn_ep_status(p->to_friend), -ECONNRESET,
	     "the survivors' endpoint without a store");
	t_is(p->t, vbn_notify(p->to_friend, &p->ops[0], VBN_CHANNEL_USER, 1, 0),
	     -ECONNRESET, "a notify without a store");
}

static void new_endpoint_fails(struct party *p)
{
	double start = now();
	struct vbn_ep *ep;
	int rc = vbn_ep_open(&ep, p->t->ctx, p->victim, 1);

	if (rc == 0)
		rc = vbn_ep_connect(ep, 10000);
	t_is(p->t, rc, -ECONNRESET, "a new endpoint to a dead rank");
	t_check(p->t, now() - start < 5, "which took %.1f s", now() - start);
}

static void death(struct test *t, int victim, enum traffic traffic, bool busy)
{
	struct party *p = party_open(t, victim);
	double moment = now();

	if (!p)
		return;
	if (t->rank == victim)
		die(p, busy);
	/* What they use is known by now; without the store nothing new is. */
	friends_talk(p, 4, 1);
	if (!until_dead(p, traffic, true))
		return;
	if (victim != 0) {
		size_t len = sizeof(moment);

		t_ok(t,
		     vbn_job_get(t->job, "party/moment", &moment, &len,
				 WAIT_MS),
		     "vbn_job_get");
	}
	t_check(t, now() - moment < BOUND, "noticed after %.1f s",
		now() - moment);
	t_check(t, vbn_job_dead(t->job) == victim, "vbn_job_dead: %d",
		vbn_job_dead(t->job));
	all_end(p, moment);
	all_refused(p);
	if (victim == 0)
		friend_lost(p, moment);
	else
		friends_talk(p, 5, 200);
	new_endpoint_fails(p);
	t_is(t, vbn_job_fence(t->job, 5000), -ECONNRESET,
	     "a fence with the dead");
	for (int i = 0; i < PENDING; i++)
		t_check(t, p->completions[i] <= 1,
			"operation %d completed %d times", i,
			p->completions[i]);
	if (victim != 0)
		friends_part(p);
}

static void run_put(struct test *t)
{
	death(t, 2, PUTS, true);
}

static void run_get(struct test *t)
{
	death(t, 2, GETS, true);
}

static void run_atomics(struct test *t)
{
	death(t, 2, ATOMICS, false);
}

static void run_send(struct test *t)
{
	death(t, 2, SENDS, false);
}

static void run_receive(struct test *t)
{
	death(t, 2, RECEIVES, false);
}

static void run_flush(struct test *t)
{
	death(t, 2, FLUSHES, true);
}

/* Nothing is outstanding: the network says nothing, the job must. */
static void run_idle(struct test *t)
{
	death(t, 2, NOTHING, false);
}

static void run_store(struct test *t)
{
	death(t, 0, PUTS, true);
}

/* A receive with a deadline: over at the deadline or before, without heat. */
static void run_deadline(struct test *t)
{
	struct party *p = party_open(t, 2);
	double start, cpu;
	int rc;

	if (!p)
		return;
	if (t->rank == 2)
		die(p, false);
	start = now();
	cpu = thread_cpu();
	post_traffic(p, RECEIVES, 0);
	rc = vbn_wait(t->ctx, &p->ops[0], 2000);
	t_check(t, rc == -ECONNRESET || rc == -ETIMEDOUT, "the receive: %s",
		err_name(rc));
	t_check(t, now() - start < 2.5, "2000 ms lasted %.2f s", now() - start);
	t_check(t, thread_cpu() - cpu < 0.5, "it cost %.2f s of processor time",
		thread_cpu() - cpu);
	all_end(p, start + 0.5);
	friends_part(p);
}

/* Rank 2 leaves in order: no death, but its endpoints end. */
static void run_leave(struct test *t)
{
	struct party *p = party_open(t, 2);
	double moment = now();

	if (!p)
		return;
	if (t->rank == 2) {
		t_drive(t, 300);
		return; /* main closes everything, in order */
	}
	for (int i = 0; i < PENDING; i++)
		p->completions[i] = 0;
	if (!until_dead(p, RECEIVES, false))
		return;
	t_check(t, vbn_job_dead(t->job) == -1 && !vbn_job_rank_dead(t->job, 2),
		"leaving in order looks like a death");
	all_end(p, moment + 0.3);
	all_refused(p);
	friends_talk(p, 9, 200);
	friends_part(p);
}

static const struct test_case cases[] = {
	{"death/put", run_put, 0, 3, 90},
	{"death/get", run_get, 0, 3, 90},
	{"death/atomics", run_atomics, 0, 3, 90},
	{"death/send", run_send, 0, 3, 90},
	{"death/receive", run_receive, 0, 3, 90},
	{"death/flush", run_flush, 0, 3, 90},
	{"death/idle", run_idle, 0, 3, 90},
	{"death/store", run_store, 0, 3, 90},
	{"death/deadline", run_deadline, 0, 3, 90},
	{"leave/in-order", run_leave, 0, 3, 90},
};

const struct cases death_cases = {cases, sizeof(cases) / sizeof(cases[0])};
