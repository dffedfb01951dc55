/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Endpoints and contexts: to oneself, opened twice, opened late, two contexts
 * on two threads; and fork() while all of it is up.
 */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void count_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	int *count = arg;

	(void)from;
	(void)value;
	(*count)++;
}

static void run_identity(struct test *t)
{
	const char *want = getenv("VBN_PROVIDER");
	struct vbn_ep *again;

	t_check(t, vbn_ep_rank(t->ep) == t->peer, "rank %d",
		vbn_ep_rank(t->ep));
	t_check(t, vbn_ep_index(t->ep) == t->peer_index, "index %d",
		vbn_ep_index(t->ep));
	t_check(t, vbn_ctx_job(t->ctx) == t->job, "the context's job");
	t_is(t, vbn_ep_status(t->ep), 0, "vbn_ep_status");
	if (want && *want)
		t_check(t, strcmp(vbn_ep_provider(t->ep), want) == 0,
			"provider %s instead of %s", vbn_ep_provider(t->ep),
			want);
	if (!t_ok(t, vbn_ep_open(&again, t->ctx, t->peer, t->peer_index),
		  "vbn_ep_open"))
		return;
	t_check(t, again == t->ep, "a second endpoint of one pair");
	vbn_ep_close(again);
	t_is(t, vbn_ep_status(t->ep), 0, "after one of two closes");
	if (t_barrier(t))
		t_flush(t);
}

/* Every operation, towards oneself. */
static void run_self(struct test *t)
{
	struct vbn_ep *ep =
		t_endpoint(t, t->ctx, t->rank, vbn_ctx_index(t->ctx));
	struct buffer *a = t_buffer(t, POOL, 100000);
	struct buffer *b = t_buffer(t, POOL, 100000);
	struct vbn_op *ops = t_alloc(t, 8 * sizeof(*ops));
	uint64_t *before = t_alloc(t, 8), word;
	int *count = t_alloc(t, sizeof(*count));
	struct post p;

	if (!ep || !a || !b)
		return;
	p = (struct post){ep, &ops[0], &b->rkey, 0, 0};
	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, count_notify, count);
	fill(a->data, a->len, 1);
	if (!t_ok(t, put_notify(p, a->data, a->len, VBN_CHANNEL_USER, 3),
		  "put to oneself") ||
	    !t_wait(t, &ops[0], "put to oneself") ||
	    !t_count(t, count, 1, "notify to oneself") ||
	    !t_pattern(t, b->data, b->len, 1, "put to oneself"))
		return;
	fill(b->data, b->len, 2);
	p.op = &ops[1];
	if (!t_ok(t, get(p, a->data, a->len), "get from oneself") ||
	    !t_wait(t, &ops[1], "get from oneself") ||
	    !t_pattern(t, a->data, a->len, 2, "get from oneself"))
		return;
	p.op = &ops[2];
	p.offset = -(uintptr_t)b->data & 7;
	memset(b->data, 0, 16);
	if (!t_ok(t, fetch_add(p, before, 9), "fetch-add to oneself") ||
	    !t_wait(t, &ops[2], "fetch-add to oneself"))
		return;
	memcpy(&word, b->data + p.offset, 8);
	t_check(t, word == 9 && *before == 0, "word %llu, before %llu",
		(unsigned long long)word, (unsigned long long)*before);
	/* Small and large; sent before it is received. */
	for (int i = 0; i < 2; i++) {
		size_t len = i ? 100000 : 100;

		fill(a->data, len, 3 + (unsigned)i);
		if (!t_ok(t, send_to(ep, &ops[3], a->data, len), "send") ||
		    !t_ok(t, recv_from(ep, &ops[4], b->data, len), "receive") ||
		    !t_wait(t, &ops[4], "receive from oneself") ||
		    !t_wait(t, &ops[3], "send to oneself") ||
		    !t_pattern(t, b->data, len, 3 + (unsigned)i, "receive"))
			return;
	}
	if (t_ok(t, flush(ep, &ops[5]), "flush"))
		t_wait(t, &ops[5], "flush to oneself");
	t_guards(t, a);
	t_guards(t, b);
}

/* A second context of one process is a peer like any other. */
static void run_siblings(struct test *t)
{
	struct vbn_ctx *other = t_context(t);
	struct buffer *a = t_buffer(t, POOL, 5000);
	struct buffer *b = t_buffer(t, POOL, 5000);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	int *count = t_alloc(t, sizeof(*count));
	double until = now() + WAIT_MS / 1e3;
	struct vbn_ep *ep;
	int rc;

	if (!other || !a || !b ||
	    !t_ok(t, vbn_ep_open(&ep, t->ctx, t->rank, vbn_ctx_index(other)),
		  "vbn_ep_open"))
		return;
	drives(ep, t->ctx);
	vbn_notify_handler(other, VBN_CHANNEL_USER, count_notify, count);
	fill(a->data, a->len, 1);
	do {
		rc = vbn_put_notify(ep, op, a->data, a->len, &b->rkey, 0,
				    VBN_CHANNEL_USER, 1, 0);
		vbn_ctx_wait(t->ctx, 1);
		vbn_progress(other);
	} while (rc == -EAGAIN && now() < until);
	if (!t_ok(t, rc, "vbn_put_notify"))
		return;
	while (*count == 0 && now() < until) {
		vbn_progress(t->ctx);
		vbn_ctx_wait(other, 1);
	}
	t_check(t, *count == 1, "no notify at the sibling");
	t_pattern(t, b->data, b->len, 1, "put");
	t_wait(t, op, "put");
}

/* The peer's context does not exist yet: -EAGAIN, then it works. */
static void run_late(struct test *t)
{
	struct buffer *a = t_buffer(t, POOL, 64);
	struct buffer *b = t_buffer(t, POOL, 64);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	int *count = t_alloc(t, sizeof(*count));
	int base = vbn_ctx_index(t->ctx), peer_base;
	struct vbn_ctx *late;
	struct vbn_rkey rkey;
	struct vbn_ep *ep;
	double until = now() + WAIT_MS / 1e3;

	if (!a || !b || !t_exchange_rkey(t, &b->rkey, &rkey) ||
	    !t_exchange(t, &base, &peer_base, sizeof(base)) ||
	    !t_ok(t, vbn_ep_open(&ep, t->ctx, t->peer, peer_base + 1),
		  "vbn_ep_open"))
		return;
	drives(ep, t->ctx);
	t_is(t, vbn_ep_connect(ep, 100), -ETIMEDOUT, "connecting to nothing");
	t_is(t, vbn_ep_status(ep), -EINPROGRESS, "vbn_ep_status");
	t_check(t, vbn_ep_provider(ep)[0] == 0, "its provider is %s",
		vbn_ep_provider(ep));
	t_is(t, vbn_notify(ep, op, VBN_CHANNEL_USER, 1, 0), -EAGAIN,
	     "a notify while connecting");
	if (!t_barrier(t))
		return;
	sleep_ms(100);
	late = t_context(t);
	if (!late)
		return;
	vbn_notify_handler(late, VBN_CHANNEL_USER, count_notify, count);
	fill(a->data, 64, 1);
	if (!t_ok(t,
		  put_notify((struct post){ep, op, &rkey, 0, 0}, a->data, 64,
			     VBN_CHANNEL_USER, 1),
		  "vbn_put_notify"))
		return;
	while ((*count == 0 || op->status == -EINPROGRESS) && now() < until) {
		vbn_progress(t->ctx);
		vbn_ctx_wait(late, 1);
	}
	t_wait(t, op, "put");
	t_check(t, *count == 1, "%d notifies", *count);
	t_pattern(t, b->data, 64, 1, "put");
	t_check(t, vbn_ep_provider(ep)[0] != 0, "it has no provider");
	/* The barrier drives one context; the peer may need the other, too. */
	t_barrier(t);
}

/* ---- two contexts, two threads ---- */

struct worker {
	struct test *t;
	struct vbn_ctx *ctx;
	int peer_index, id;
	struct buffer *out, *in;
	struct vbn_rkey rkey;
	int count;
	char why[200];
};

#define THREAD_ROUNDS 1000

static void worker_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct worker *w = arg;
	size_t at;

	(void)from;
	at = differs(w->in->data, 500, value);
	if (at != 500 && !w->why[0])
		snprintf(w->why, sizeof(w->why),
			 "thread %d: byte %zu of round %u is wrong", w->id, at,
			 value);
	w->count++;
}

static int worker_rounds(struct worker *w, struct vbn_ep *ep, struct vbn_op *op)
{
	double until = now() + WAIT_MS / 1e3;

	for (uint32_t i = 0; i < THREAD_ROUNDS; i++) {
		struct post p = {ep, op, &w->rkey, 0, 0};
		int rc;

		/* Rank 0 begins; each waits for the other's round. */
		while (w->count < (int)i + (w->t->rank != 0) && now() < until)
			vbn_ctx_wait(w->ctx, 100);
		if (now() > until)
			return -ETIMEDOUT;
		fill(w->out->data, 500, i);
		rc = put_notify(p, w->out->data, 500, VBN_CHANNEL_USER, i);
		if (rc == 0)
			rc = vbn_wait(w->ctx, op, WAIT_MS);
		if (rc != 0)
			return rc;
	}
	while (w->count < THREAD_ROUNDS && now() < until)
		vbn_ctx_wait(w->ctx, 100);
	return w->count == THREAD_ROUNDS ? 0 : -ETIMEDOUT;
}

static void *worker_run(void *arg)
{
	struct worker *w = arg;
	struct vbn_op op = {0};
	struct vbn_ep *ep;
	int rc = vbn_ep_open(&ep, w->ctx, w->t->peer, w->peer_index);

	if (rc == 0) {
		drives(ep, w->ctx);
		rc = worker_rounds(w, ep, &op);
	}
	if (rc != 0 && !w->why[0])
		snprintf(w->why, sizeof(w->why), "thread %d: %s (%s)", w->id,
			 err_name(rc), vbn_error());
	return NULL;
}

static void run_threads(struct test *t)
{
	struct worker *w = t_alloc(t, 2 * sizeof(*w));
	pthread_t threads[2];
	int started = 0;

	for (int i = 0; i < 2; i++) {
		w[i] = (struct worker){.t = t, .id = i, .ctx = t_context(t)};
		w[i].out = t_buffer(t, POOL, 500);
		w[i].in = t_buffer(t, POOL, 500);
		if (!w[i].ctx || !w[i].out || !w[i].in ||
		    !t_exchange_index(t, w[i].ctx, &w[i].peer_index) ||
		    !t_exchange_rkey(t, &w[i].in->rkey, &w[i].rkey))
			return;
		vbn_notify_handler(w[i].ctx, VBN_CHANNEL_USER, worker_notify,
				   &w[i]);
	}
	for (; started < 2; started++)
		if (pthread_create(&threads[started], NULL, worker_run,
				   &w[started]) != 0)
			break;
	t_check(t, started == 2, "cannot start a thread");
	for (int i = 0; i < started; i++) {
		pthread_join(threads[i], NULL);
		t_check(t, !w[i].why[0], "%s", w[i].why);
	}
	t_barrier(t);
}

/* ---- fork ---- */

/* A child that writes next to a transfer's buffers harms nobody. */
static void run_fork(struct test *t)
{
	struct buffer *local = t_buffer(t, POOL, 6000);
	struct buffer *target = t_buffer(t, REGISTERED, 6000);
	struct buffer *from = t_buffer(t, REGISTERED, 6000);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	struct vbn_rkey rkey;
	int status;
	pid_t pid;

	if (!local || !target || !from ||
	    !t_exchange_rkey(t, &target->rkey, &rkey))
		return;
	pid = fork();
	if (pid == 0) {
		sleep_ms(50);
		memset(target->data - GUARD, 0x11, GUARD);
		memset(from->data - GUARD, 0x22, GUARD);
		sleep_ms(200);
		_exit(from->data[-1] == 0x22 ? 0 : 1);
	}
	for (unsigned i = 0; i < 40; i++) {
		struct buffer *src = i % 2 ? local : from;

		sleep_ms(5);
		fill(src->data, 6000, i);
		memset(target->data, 0, 6000);
		if (!t_barrier(t) ||
		    !t_ok(t,
			  put((struct post){t->ep, op, &rkey, 0, 0}, src->data,
			      6000),
			  "vbn_put") ||
		    !t_wait(t, op, "put") || !t_flush(t) || !t_barrier(t) ||
		    !t_pattern(t, target->data, 6000, i, "put beside a child"))
			break;
	}
	t_check(t,
		pid > 0 && waitpid(pid, &status, 0) == pid &&
			WIFEXITED(status) && WEXITSTATUS(status) == 0,
		"the child");
	t_guards(t, target);
}

/* fork and exec of a helper: the job goes on. */
static void run_exec(struct test *t)
{
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	int *count = t_alloc(t, sizeof(*count));

	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, count_notify, count);
	for (int i = 0; i < 5; i++) {
		t_check(t, system("exit 0") == 0, "a helper program fails");
		if (!t_ok(t, notify(t->ep, op, VBN_CHANNEL_USER, 0),
			  "vbn_notify") ||
		    !t_wait(t, op, "notify") ||
		    !t_count(t, count, i + 1, "notifies"))
			return;
	}
}

static const struct test_case cases[] = {
	{"endpoint/identity", run_identity, 0, 0, 0},
	{"endpoint/self", run_self, 0, 0, 0},
	{"endpoint/sibling-context", run_siblings, 0, 0, 0},
	{"endpoint/late-context", run_late, 0, 0, 0},
	{"context/two-threads", run_threads, 0, 0, 0},
	{"fork/child-writes", run_fork, 0, 0, 0},
	{"fork/exec", run_exec, 0, 0, 0},
};

const struct cases context_cases = {cases, sizeof(cases) / sizeof(cases[0])};
