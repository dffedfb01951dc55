/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sleeping: a wait ends at its deadline when the peer is silent, costs hardly
 * any processor time, and is woken by an arrival.
 */
#include "harness.h"

#include <errno.h>
#include <poll.h>

struct woken {
	int count;
	double at;
};

static void wake(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct woken *w = arg;

	(void)from;
	(void)value;
	w->count++;
	w->at = now();
}

/* What is left of connecting must not count as an event of the peer's. */
static void settle(struct test *t)
{
	t_drive(t, 50);
	t_barrier_still(t);
	while (vbn_progress(t->ctx) > 0)
		;
}

static void run_silent(struct test *t)
{
	double start, cpu, took;
	int rc;

	settle(t);
	start = now();
	cpu = thread_cpu();
	rc = vbn_ctx_wait(t->ctx, 1000);
	took = now() - start;
	cpu = thread_cpu() - cpu;
	t_check(t, rc == 0, "vbn_ctx_wait: %d with a silent peer", rc);
	t_check(t, took > 0.95 && took < 2, "1000 ms lasted %.3f s", took);
	t_check(t, cpu < 0.15, "it cost %.3f s of processor time", cpu);
	t_barrier_still(t);
}

static void run_no_wait(struct test *t)
{
	double start;

	settle(t);
	start = now();
	for (int i = 0; i < 100; i++)
		t_check(t, vbn_ctx_wait(t->ctx, 0) == 0,
			"an event from nowhere");
	t_check(t, now() - start < 1, "100 waits of 0 ms lasted %.3f s",
		now() - start);
	t_barrier_still(t);
}

static void run_woken(struct test *t)
{
	struct vbn_op *ops = t_alloc(t, 5 * sizeof(*ops));
	struct woken *w = t_alloc(t, sizeof(*w));

	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, wake, w);
	for (int i = 0; i < 5; i++) {
		double start, cpu, deadline;

		settle(t);
		if (t->outcome != PASSED)
			return;
		if (t->rank == 1) {
			sleep_ms(300);
			t_ok(t, notify(t->ep, &ops[i], VBN_CHANNEL_USER, 1),
			     "vbn_notify");
			t_wait(t, &ops[i], "notify");
			continue;
		}
		start = now();
		deadline = start + 10;
		cpu = thread_cpu();
		while (w->count <= i && now() < deadline)
			vbn_ctx_wait(t->ctx, 10000);
		cpu = thread_cpu() - cpu;
		t_check(t, w->count == i + 1, "not woken by a notify");
		t_check(t, w->at - start > 0.2 && w->at - start < 1.5,
			"a notify after 300 ms was seen after %.3f s",
			w->at - start);
		t_check(t, cpu < 0.12, "waiting cost %.3f s of processor time",
			cpu);
	}
	t_barrier(t);
}

/* The same with poll() on the descriptor. */
static void run_descriptor(struct test *t)
{
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	struct woken *w = t_alloc(t, sizeof(*w));
	struct pollfd pfd = {.fd = vbn_ctx_fd(t->ctx), .events = POLLIN};
	double start, until;

	if (!t_check(t, pfd.fd >= 0, "vbn_ctx_fd: %s", err_name(pfd.fd)))
		return;
	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, wake, w);
	settle(t);
	start = now();
	until = start + 10;
	if (t->rank == 1) {
		sleep_ms(300);
		t_ok(t, notify(t->ep, op, VBN_CHANNEL_USER, 1), "vbn_notify");
		t_wait(t, op, "notify");
		t_barrier(t);
		return;
	}
	while (w->count == 0 && now() < until) {
		int rc = vbn_ctx_arm(t->ctx);

		if (rc == -EAGAIN) {
			vbn_progress(t->ctx);
			continue;
		}
		if (!t_ok(t, rc, "vbn_ctx_arm"))
			return;
		t_check(t, poll(&pfd, 1, 5000) == 1,
			"the descriptor stays silent");
		vbn_progress(t->ctx);
	}
	t_check(t, w->count == 1, "the notify did not come");
	t_check(t, w->at - start < 1.5, "a notify after 300 ms took %.3f s",
		w->at - start);
	t_barrier(t);
}

/* Waiting for one operation that does not end. */
static void run_operation(struct test *t)
{
	struct vbn_op *ops = t_alloc(t, 2 * sizeof(*ops));
	uint8_t *data = t_alloc(t, 16);
	double start = now(), cpu = thread_cpu();

	if (!t_ok(t, recv_from(t->ep, &ops[0], data, 8), "vbn_recv"))
		return;
	t_is(t, vbn_wait(t->ctx, &ops[0], 2000), -ETIMEDOUT,
	     "a receive that nobody serves");
	t_check(t, now() - start > 1.95 && now() - start < 3,
		"2000 ms lasted %.3f s", now() - start);
	t_check(t, thread_cpu() - cpu < 0.3, "it cost %.3f s of processor time",
		thread_cpu() - cpu);
	t_is(t, ops[0].status, -EINPROGRESS, "its status");
	t_is(t, vbn_wait(t->ctx, &ops[0], 0), -ETIMEDOUT, "without waiting");
	if (!t_barrier(t) ||
	    !t_ok(t, send_to(t->ep, &ops[1], data + 8, 8), "vbn_send"))
		return;
	t_wait(t, &ops[0], "the receive, at last");
	t_wait(t, &ops[1], "send");
	t_is(t, vbn_wait(t->ctx, &ops[0], 0), 0, "waiting for what is over");
}

/* Both sides sleep and wake each other. */
static void run_ping_pong(struct test *t)
{
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	struct woken *w = t_alloc(t, sizeof(*w));
	double start = now(), until = now() + WAIT_MS / 1e3;

	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, wake, w);
	for (int i = 0; i < 500; i++) {
		if (t->rank == 0 || i > 0) {
			if (!t_ok(t, notify(t->ep, op, VBN_CHANNEL_USER, 0),
				  "vbn_notify") ||
			    !t_wait(t, op, "notify"))
				return;
		}
		while (w->count <= i && now() < until)
			vbn_ctx_wait(t->ctx, 1000);
		if (!t_check(t, w->count > i, "round %d: no notify", i))
			return;
	}
	if (t->rank == 1)
		t_ok(t, notify(t->ep, op, VBN_CHANNEL_USER, 0), "vbn_notify");
	/* A lost wake-up costs a whole second here. */
	t_check(t, now() - start < 20, "500 rounds took %.1f s", now() - start);
	t_barrier(t);
}

static void drive_one(struct vbn_ctx *ctx, int ms)
{
	double until = now() + ms / 1e3;

	while (now() < until)
		vbn_progress(ctx);
}

static void take(void *arg, struct vbn_ep *from, const void *data, size_t len)
{
	(void)from;
	(void)data;
	(void)len;
	(*(int *)arg)++;
}

/*
 * Room that a peer makes after the last progress, and before the descriptor
 * is armed, wakes who waits for it: from one context to another, in turns.
 */
static void run_room_after_arm(struct test *t)
{
	struct vbn_ctx *a = t_context(t), *b = t_context(t);
	char *data = t_alloc(t, VBN_MESSAGE_MAX);
	int *taken = t_alloc(t, sizeof(*taken)), posted = 0, refused = 0, rc;
	double until = now() + 20, start;
	struct vbn_ep *ep;

	if (!a || !b ||
	    !t_ok(t, vbn_message_handler(b, VBN_CHANNEL_USER, take, taken),
		  "vbn_message_handler") ||
	    !t_ok(t, vbn_ep_open(&ep, a, t->rank, vbn_ctx_index(b)),
		  "vbn_ep_open"))
		return;
	while (vbn_ep_status(ep) == -EINPROGRESS && now() < until) {
		vbn_progress(a);
		vbn_progress(b);
	}
	do {
		rc = vbn_message(ep, VBN_CHANNEL_USER, data, VBN_MESSAGE_MAX);
		posted += !rc;
		refused = rc ? refused + 1 : 0;
	} while ((!rc || (rc == -EAGAIN && refused < AGAIN_MOST)) &&
		 now() < until);
	t_is(t, rc, -EAGAIN, "vbn_message, until there is no room");
	vbn_progress(a);
	drive_one(b, 50);
	if (*taken < posted) {
		t_skip(t, "what is posted leaves only by further progress");
		vbn_ep_close(ep);
		t_barrier(t);
		return;
	}
	vbn_ctx_arm(a);
	start = now();
	do {
		vbn_ctx_wait(a, 5000);
		vbn_progress(b);
		rc = vbn_message(ep, VBN_CHANNEL_USER, data, VBN_MESSAGE_MAX);
	} while (rc == -EAGAIN && now() < start + 20);
	t_ok(t, rc, "vbn_message, once there is room");
	t_check(t, now() - start < 2.5, "it was noticed after %.3f s",
		now() - start);
	vbn_ep_close(ep);
	t_barrier(t);
}

static const struct test_case cases[] = {
	{"wait/silent-peer", run_silent, 0, 0, 0},
	{"wait/zero", run_no_wait, 0, 0, 0},
	{"wait/woken", run_woken, 0, 0, 0},
	{"wait/descriptor", run_descriptor, 0, 0, 0},
	{"wait/operation", run_operation, 0, 0, 0},
	{"wait/ping-pong", run_ping_pong, 0, 0, 0},
	{"wait/room-after-arm", run_room_after_arm, 0, 0, 0},
};

const struct cases wait_cases = {cases, sizeof(cases) / sizeof(cases[0])};
