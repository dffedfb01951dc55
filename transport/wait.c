/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waiting: a context's thread polls a little, gives the core away a little,
 * then arms the providers and sleeps. What happens between the arming and the
 * sleep makes a descriptor readable; what happened before it is looked for by
 * the arming.
 *
 * How often it polls before it gives the core away follows from what came of
 * that last time: when others ran meanwhile, as with more ranks than cores,
 * whom it waits for is likely to be among them.
 */
#include "core.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

/*
 * Before sleeping: polls, then polls that give the core away in between. In a
 * machine of one processor nothing happens while this thread polls; one that
 * is bound to a processor may wait for others'.
 */
#define SPIN_POLLS    64
#define YIELD_POLLS   16
#define SPIN_SHARED   2	    /* where others want the core */
#define YIELD_NS      25000 /* at least: sleeping and being woken takes as long */
#define YIELD_MOST_NS 250000 /* where others run long before it is our turn */
/*
 * sched_yield() takes 0.2 us on most machines when nobody else runs, 1.3 us on
 * an emulated one; several times as long when somebody does.
 */
#define YIELD_SAMPLES	 8
#define SWITCHED_NS	 600
#define SWITCHED_MOST_NS 10000

int vbn_ctx_fd(struct vbn_ctx *ctx)
{
	return ctx->epoll_fd;
}

static int arm(struct vbn_ctx *ctx)
{
	uint64_t count;

	/* Drained first: what is signalled from here on makes it readable. */
	if (ctx->woken && read(ctx->wake_fd, &count, sizeof(count)) < 0 &&
	    errno != EAGAIN)
		return vbn_fail(-errno, "eventfd: %s", strerror(errno));
	ctx->woken = false;
	for (int i = 0; i < ctx->nactive; i++) {
		const struct active *a = &ctx->active[i];
		int err = a->ops->arm ? a->ops->arm(a->pctx) : 0;

		if (err)
			return err;
	}
	if (ctx->deferred.head || atomic_load(&ctx->news) ||
	    ctx->gone_unchecked)
		return -EAGAIN;
	return 0;
}

/* A caller that sleeps by itself knows nothing of sleep_limit(). */
int vbn_ctx_arm(struct vbn_ctx *ctx)
{
	if (ctx->pumping || ctx->leaving || parked_ready(ctx))
		return -EAGAIN;
	ctx->woken = true; /* only the caller knows what woke it */
	return arm(ctx);
}

/* What needs a look again though nothing will signal it. */
static int sleep_limit(const struct vbn_ctx *ctx)
{
	return ctx->pumping ? 1 : ctx->leaving ? LEAVE_GRACE_MS : -1;
}

/* *timeout (< 0: none) is at most that. */
static void limit_sleep(const struct vbn_ctx *ctx, int *timeout)
{
	int limit = sleep_limit(ctx);

	if (limit >= 0 && (*timeout < 0 || limit < *timeout))
		*timeout = limit;
}

int vbn_ctx_arm_within(struct vbn_ctx *ctx, int *most_ms)
{
	limit_sleep(ctx, most_ms);
	ctx->woken = true; /* only the caller knows what woke it */
	return arm(ctx);
}

static int sleep_for(struct vbn_ctx *ctx, int timeout)
{
	struct epoll_event events[PROVIDERS + 1];
	int n, err;

	limit_sleep(ctx, &timeout);
	err = arm(ctx);
	if (err)
		return err == -EAGAIN ? 0 : err;
	ctx->counters.sleeps++;
	n = epoll_wait(ctx->epoll_fd, events, PROVIDERS + 1, timeout);
	for (int i = 0; i < n; i++)
		if (events[i].data.fd == ctx->wake_fd)
			ctx->woken = true;
	return 0;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* A yield that takes longer has let another run. */
static uint64_t find_switched_ns(void)
{
	uint64_t least = SWITCHED_MOST_NS, before = now_ns();

	for (int i = 0; i < YIELD_SAMPLES; i++) {
		uint64_t after;

		sched_yield();
		after = now_ns();
		if (after - before < least)
			least = after - before;
		before = after;
	}
	least = least * 5 / 2;
	return least < SWITCHED_NS	  ? SWITCHED_NS
	       : least > SWITCHED_MOST_NS ? SWITCHED_MOST_NS
					  : least;
}

void wait_init(struct vbn_ctx *ctx)
{
	bool alone = sysconf(_SC_NPROCESSORS_ONLN) == 1;

	ctx->spin_polls = alone ? 0 : SPIN_POLLS;
	ctx->yield_polls = alone ? 0 : YIELD_POLLS;
	ctx->switched_ns = find_switched_ns();
}

/* Milliseconds left, rounded up; the deadline is set when first asked. */
static int time_left(uint64_t *deadline_ns, int timeout_ms, uint64_t now)
{
	if (timeout_ms < 0)
		return -1;
	if (!*deadline_ns)
		*deadline_ns = now + (uint64_t)timeout_ms * 1000000;
	if (*deadline_ns <= now)
		return 0;
	return (int)((*deadline_ns - now + 999999) / 1000000);
}

/* The yields of one wait. */
struct patience {
	int yields;
	uint64_t since_ns, last_ns;
};

/*
 * Gives the core away; false: that was done for long enough. How long the last
 * time took tells whether others want it.
 */
static bool give_away(struct vbn_ctx *ctx, struct patience *p, uint64_t now)
{
	uint64_t so_far;

	if (!p->yields)
		p->since_ns = now;
	else if (now - p->last_ns > ctx->switched_ns)
		ctx->spin_polls = SPIN_SHARED;
	else if (ctx->spin_polls < SPIN_POLLS)
		ctx->spin_polls *= 2;
	so_far = now - p->since_ns;
	if (!ctx->yield_polls || so_far >= YIELD_MOST_NS ||
	    (p->yields >= ctx->yield_polls && so_far >= YIELD_NS))
		return false;
	p->yields++;
	p->last_ns = now;
	sched_yield();
	return true;
}

/*
 * Progress until there was an event or *done turns from -EINPROGRESS.
 * Returns false at the deadline.
 */
static bool wait_event(struct vbn_ctx *ctx, const int *status, int timeout_ms)
{
	struct patience patience = {0};
	unsigned rounds = 0;
	uint64_t deadline = 0, now;
	int left;

	for (int polls = 0;; polls++) {
		int events = vbn_progress(ctx);

		if (status ? *status != -EINPROGRESS : events > 0)
			return true;
		if (events > 0)
			polls = patience.yields = 0;
		if (polls < ctx->spin_polls && ++rounds % SPIN_POLLS)
			continue;
		now = now_ns();
		left = time_left(&deadline, timeout_ms, now);
		if (!left)
			return false;
		if (polls < ctx->spin_polls)
			continue;
		if (!give_away(ctx, &patience, now) && sleep_for(ctx, left))
			return false;
	}
}

bool vbn_ctx_in_callback(const struct vbn_ctx *ctx)
{
	return ctx->in_progress;
}

int vbn_ctx_wait(struct vbn_ctx *ctx, int timeout_ms)
{
	if (ctx->in_progress)
		return 0; /* in a callback nothing can be progressed */
	return wait_event(ctx, NULL, timeout_ms) ? 1 : 0;
}

int vbn_wait(struct vbn_ctx *ctx, struct vbn_op *op, int timeout_ms)
{
	if (ctx->in_progress)
		return vbn_fail(-EDEADLK, "vbn_wait() inside a callback");
	if (!wait_event(ctx, &op->status, timeout_ms))
		return vbn_fail(-ETIMEDOUT,
				"the operation is in flight after %d ms",
				timeout_ms);
	return op->status;
}
