/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts: opening, progress, sleeping, and the inbox through which the
 * control thread hands over what it made.
 */
#include "core.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

/* Before sleeping: polls, then polls that give the core away in between. */
#define SPIN_POLLS  64
#define YIELD_POLLS 16

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void op_list_init(struct op_list *list)
{
	list->head = NULL;
	list->tail = &list->head;
}

/* The core's words in op->priv: 0 is the list link. */
void op_push(struct op_list *list, struct vbn_op *op)
{
	op->priv[0] = 0;
	*list->tail = op;
	list->tail = (struct vbn_op **)&op->priv[0];
}

struct vbn_op *op_pop(struct op_list *list)
{
	struct vbn_op *op = list->head;

	if (!op)
		return NULL;
	list->head = (struct vbn_op *)op->priv[0];
	if (!list->head)
		list->tail = &list->head;
	return op;
}

static int open_providers(struct vbn_ctx *ctx, struct blob *addresses)
{
	for (int i = 0; i < PROVIDERS; i++) {
		struct job_provider *p = &ctx->job->providers[i];
		int err;

		addresses[i].len = 0;
		if (!p->pjob)
			continue;
		err = p->ops->ctx_open(p->pjob, ctx, &ctx->pctx[i],
				       &addresses[i]);
		if (err) {
			ctx->pctx[i] = NULL;
			return err;
		}
	}
	return 0;
}

static int watch(struct vbn_ctx *ctx, int fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	if (fd < 0)
		return 0;
	if (epoll_ctl(ctx->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return vbn_fail(-errno, "epoll_ctl: %s", strerror(errno));
	return 0;
}

static int open_descriptors(struct vbn_ctx *ctx)
{
	ctx->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ctx->wake_fd < 0)
		return vbn_fail(-errno, "eventfd: %s", strerror(errno));
	ctx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (ctx->epoll_fd < 0)
		return vbn_fail(-errno, "epoll_create1: %s", strerror(errno));
	return watch(ctx, ctx->wake_fd);
}

static int watch_providers(struct vbn_ctx *ctx)
{
	int err = 0;

	for (int i = 0; !err && i < PROVIDERS; i++)
		if (ctx->pctx[i] && ctx->job->providers[i].ops->fd)
			err = watch(ctx, ctx->job->providers[i].ops->fd(
						 ctx->pctx[i]));
	return err;
}

static int take_index(struct vbn_ctx *ctx)
{
	struct vbn_job *job = ctx->job;
	int err = 0;

	pthread_mutex_lock(&job->lock);
	if (job->nctxs == CTX_MAX)
		err = -ENOSPC;
	else
		ctx->index = job->nctxs++;
	pthread_mutex_unlock(&job->lock);
	if (err)
		vbn_fail(err,
			 "a rank opens at most %d contexts in a job's life",
			 CTX_MAX);
	return err;
}

static void set_visible(struct vbn_ctx *ctx, struct vbn_ctx *value)
{
	pthread_mutex_lock(&ctx->job->lock);
	ctx->job->ctxs[ctx->index] = value;
	pthread_mutex_unlock(&ctx->job->lock);
}

static struct vbn_ctx *ctx_new(struct vbn_job *job)
{
	struct vbn_ctx *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	ctx->job = job;
	ctx->wake_fd = ctx->epoll_fd = -1;
	ctx->nbuckets = 16;
	ctx->buckets = calloc(ctx->nbuckets, sizeof(struct vbn_ep *));
	op_list_init(&ctx->deferred);
	ctx->parked_tail = &ctx->parked;
	ctx->inbox_tail = &ctx->inbox;
	pieces_init(ctx);
	fetches_init(ctx);
	pthread_mutex_init(&ctx->inbox_lock, NULL);
	if (!ctx->buckets || memmap_reader_open(job->map, &ctx->reader)) {
		free(ctx->buckets);
		free(ctx);
		return NULL;
	}
	return ctx;
}

static void ctx_free(struct vbn_ctx *ctx)
{
	for (int i = 0; i < PROVIDERS; i++)
		if (ctx->pctx[i])
			ctx->job->providers[i].ops->ctx_close(ctx->pctx[i]);
	if (ctx->epoll_fd >= 0)
		close(ctx->epoll_fd);
	if (ctx->wake_fd >= 0)
		close(ctx->wake_fd);
	memmap_reader_close(ctx->reader);
	pthread_mutex_destroy(&ctx->inbox_lock);
	free(ctx->eps);
	free(ctx->buckets);
	free(ctx);
}

int vbn_ctx_open(struct vbn_ctx **out, struct vbn_job *job,
		 const struct vbn_ctx_options *opts)
{
	struct blob addresses[PROVIDERS];
	struct vbn_ctx *ctx;
	int err;

	(void)opts;
	ctx = ctx_new(job);
	if (!ctx)
		return vbn_fail(-ENOMEM, "no memory for a context");
	err = take_index(ctx);
	if (err)
		goto free;
	err = open_descriptors(ctx);
	if (err)
		goto free;
	err = open_providers(ctx, addresses);
	if (err)
		goto free;
	err = watch_providers(ctx);
	if (err)
		goto free;
	set_visible(ctx, ctx);
	err = address_publish(ctx, addresses);
	if (err)
		goto hide;
	job_hold(job);
	*out = ctx;
	return 0;

hide:
	connect_withdraw(ctx);
free:
	ctx_free(ctx);
	return err;
}

static void drain_inbox(struct vbn_ctx *ctx)
{
	struct ep_event *event, *next;

	if (!atomic_load_explicit(&ctx->inbox_full, memory_order_acquire))
		return;
	pthread_mutex_lock(&ctx->inbox_lock);
	event = ctx->inbox;
	ctx->inbox = NULL;
	ctx->inbox_tail = &ctx->inbox;
	atomic_store_explicit(&ctx->inbox_full, false, memory_order_relaxed);
	pthread_mutex_unlock(&ctx->inbox_lock);
	for (; event; event = next) {
		next = event->next;
		ctx->happened++;
		ep_handle_event(ctx, event);
		free(event);
	}
}

void ctx_post_event(struct vbn_ctx *ctx, struct ep_event *event)
{
	event->next = NULL;
	pthread_mutex_lock(&ctx->inbox_lock);
	*ctx->inbox_tail = event;
	ctx->inbox_tail = &event->next;
	atomic_store_explicit(&ctx->inbox_full, true, memory_order_release);
	pthread_mutex_unlock(&ctx->inbox_lock);
	vbn_ctx_wake(ctx);
}

static void run_deferred(struct vbn_ctx *ctx)
{
	/* Only those that are here now: callbacks may defer more. */
	struct op_list now = ctx->deferred;
	struct vbn_op *op;

	if (!now.head)
		return;
	op_list_init(&ctx->deferred);
	while ((op = now.head)) {
		now.head = (struct vbn_op *)op->priv[0];
		core_complete(ctx, op, (int)(int64_t)op->priv[1]);
	}
}

static void run_pumps(struct vbn_ctx *ctx)
{
	struct vbn_ep *ep = ctx->pumping, *next;

	ctx->pumping = NULL;
	for (; ep; ep = next) {
		bool done;

		next = ep->next_pumping;
		ep->in_pumping = false;
		done = pump_run(ep);
		done = send_run(ep) && done;
		done = atomic_run(ep) && done;
		if (!done)
			ep_want_pump(ep);
	}
}

int vbn_progress(struct vbn_ctx *ctx)
{
	uint64_t before = ctx->happened;
	unsigned imports;
	int events = 0;

	if (ctx->in_progress)
		return 0;
	imports =
		atomic_load_explicit(&ctx->job->imports, memory_order_acquire);
	if (imports != ctx->imports_seen) {
		ctx->imports_seen = imports;
		ctx->happened++;
	}
	ctx->in_progress = true;
	memmap_quiescent(ctx->reader);
	drain_inbox(ctx);
	if (ctx->deferred.head) {
		run_deferred(ctx);
		events++;
	}
	for (int i = 0; i < PROVIDERS; i++)
		if (ctx->used[i])
			events += ctx->job->providers[i].ops->progress(
				ctx->pctx[i]);
	if (ctx->parked)
		parked_deliver(ctx);
	if (ctx->pumping)
		run_pumps(ctx);
	/* Last: what the dead have sent before is delivered first. */
	if (ctx->leaving ||
	    ctx->deaths_seen != atomic_load_explicit(&ctx->job->deaths,
						     memory_order_acquire)) {
		if (!ctx->gone_since_ms)
			ctx->gone_since_ms = now_ms();
		/* Not put off for ever by a context that is never quiet. */
		if (!events ||
		    now_ms() - ctx->gone_since_ms >= LEAVE_GRACE_MS) {
			ctx->gone_since_ms = 0;
			ep_check_gone(ctx);
		}
	}
	ctx->in_progress = false;
	return events ? events : ctx->happened != before;
}

int vbn_ctx_fd(struct vbn_ctx *ctx)
{
	return ctx->epoll_fd;
}

static int arm(struct vbn_ctx *ctx)
{
	uint64_t count;

	/* Drained first: what is signalled from here on makes it readable. */
	if (read(ctx->wake_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		return vbn_fail(-errno, "eventfd: %s", strerror(errno));
	for (int i = 0; i < PROVIDERS; i++) {
		const struct job_provider *p = &ctx->job->providers[i];

		if (ctx->used[i] && p->ops->arm) {
			int err = p->ops->arm(ctx->pctx[i]);

			if (err)
				return err;
		}
	}
	if (ctx->deferred.head || atomic_load(&ctx->inbox_full) ||
	    ctx->imports_seen != atomic_load(&ctx->job->imports) ||
	    ctx->deaths_seen != atomic_load(&ctx->job->deaths))
		return -EAGAIN;
	return 0;
}

/* A caller that sleeps by itself knows nothing of sleep_limit(). */
int vbn_ctx_arm(struct vbn_ctx *ctx)
{
	if (ctx->pumping || ctx->leaving || parked_ready(ctx))
		return -EAGAIN;
	return arm(ctx);
}

/* What needs a look again though nothing will signal it. */
static int sleep_limit(const struct vbn_ctx *ctx)
{
	return ctx->pumping ? 1 : ctx->leaving ? LEAVE_GRACE_MS : -1;
}

static int sleep_until(struct vbn_ctx *ctx, uint64_t deadline)
{
	struct pollfd pfd = {.fd = ctx->epoll_fd, .events = POLLIN};
	int limit = sleep_limit(ctx);
	int timeout = -1;
	int err = arm(ctx);

	if (err)
		return err == -EAGAIN ? 0 : err;
	if (deadline != UINT64_MAX) {
		uint64_t now = now_ms();

		timeout = deadline <= now ? 0 : (int)(deadline - now);
	}
	if (limit >= 0 && (timeout < 0 || limit < timeout))
		timeout = limit;
	ctx->counters.sleeps++;
	poll(&pfd, 1, timeout);
	return 0;
}

static uint64_t deadline_of(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : now_ms() + (uint64_t)timeout_ms;
}

/*
 * Progress until there was an event or *done turns from -EINPROGRESS.
 * Returns false at the deadline.
 */
static bool wait_event(struct vbn_ctx *ctx, const int *status,
		       uint64_t deadline)
{
	unsigned rounds = 0;

	for (int polls = 0;; polls++) {
		int events = vbn_progress(ctx);

		if (status ? *status != -EINPROGRESS : events > 0)
			return true;
		if (events > 0)
			polls = 0;
		if (polls < SPIN_POLLS && ++rounds % SPIN_POLLS)
			continue;
		if (deadline != UINT64_MAX && now_ms() >= deadline)
			return false;
		if (polls < SPIN_POLLS)
			continue;
		if (polls < SPIN_POLLS + YIELD_POLLS)
			sched_yield();
		else if (sleep_until(ctx, deadline))
			return false;
	}
}

int vbn_ctx_wait(struct vbn_ctx *ctx, int timeout_ms)
{
	if (ctx->in_progress)
		return 0; /* in a callback nothing can be progressed */
	return wait_event(ctx, NULL, deadline_of(timeout_ms)) ? 1 : 0;
}

int vbn_wait(struct vbn_ctx *ctx, struct vbn_op *op, int timeout_ms)
{
	if (ctx->in_progress)
		return vbn_fail(-EDEADLK, "vbn_wait() inside a callback");
	if (!wait_event(ctx, &op->status, deadline_of(timeout_ms)))
		return vbn_fail(-ETIMEDOUT,
				"the operation is in flight after %d ms",
				timeout_ms);
	return op->status;
}

void vbn_ctx_wake(struct vbn_ctx *ctx)
{
	uint64_t one = 1;

	/* EAGAIN: readable already. */
	if (write(ctx->wake_fd, &one, sizeof(one)) < 0)
		return;
}

int vbn_ctx_wake_fd(const struct vbn_ctx *ctx)
{
	return ctx->wake_fd;
}

void vbn_ctx_at_close(struct vbn_ctx *ctx, struct vbn_ctx_hook *hook)
{
	hook->next = ctx->hooks;
	ctx->hooks = hook;
}

static void run_hooks(struct vbn_ctx *ctx)
{
	while (ctx->hooks) {
		struct vbn_ctx_hook *hook = ctx->hooks;

		ctx->hooks = hook->next;
		hook->closing(hook);
	}
}

void vbn_ctx_close(struct vbn_ctx *ctx)
{
	struct vbn_job *job = ctx->job;
	const char *stats = getenv("VBN_STATS");

	run_hooks(ctx);
	ctx->closing = true;
	connect_withdraw(ctx);
	drain_inbox(ctx);
	for (int i = 0; i < ctx->neps; i++) {
		struct vbn_ep *ep = ctx->eps[i];

		if (ep->conn)
			connect_closed(ctx, ep->rank, ep->index,
				       ep->generation);
		ep_shutdown(ep, -ECANCELED);
	}
	while (ctx->deferred.head)
		run_deferred(ctx);
	parked_free(ctx);
	pieces_free(ctx);
	if (stats && !strcmp(stats, "1"))
		vbn_ctx_dump(ctx, stderr);
	for (int i = 0; i < ctx->neps; i++) {
		free(ctx->eps[i]->keys);
		free(ctx->eps[i]);
	}
	ctx_free(ctx);
	job_release(job);
}

int vbn_ctx_index(const struct vbn_ctx *ctx)
{
	return ctx->index;
}

struct vbn_job *vbn_ctx_job(const struct vbn_ctx *ctx)
{
	return ctx->job;
}

struct vbn_counters *core_counters(struct vbn_ctx *ctx)
{
	return &ctx->counters;
}

void vbn_ctx_counters(const struct vbn_ctx *ctx, struct vbn_counters *counters)
{
	*counters = ctx->counters;
}
