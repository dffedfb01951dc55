/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts: opening, progress, sleeping, and the inbox through which the
 * control thread hands over what it made.
 */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t deadline_of(int timeout_ms)
{
	return timeout_ms < 0 ? UINT64_MAX : now_ms() + (uint64_t)timeout_ms;
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

/*
 * UCX is there for whom nothing else reaches: that it cannot be had now must
 * not keep the others from working, but it is said.
 */
static bool can_do_without(struct vbn_ctx *ctx, int provider)
{
	struct vbn_job *job = ctx->job;

	if (provider != PROVIDER_UCX || job->forced >= 0 ||
	    (!ctx->pctx[PROVIDER_SHM] && !ctx->pctx[PROVIDER_VERBS]))
		return false;
	vbn_log(VBN_WARN, "rank %d: context %d goes without ucx: %s", job->rank,
		ctx->index, vbn_error());
	snprintf(ctx->no_ucx, sizeof(ctx->no_ucx), "%s", vbn_error());
	return true;
}

const char *ctx_why_without(const struct vbn_ctx *ctx, int provider)
{
	if (provider == PROVIDER_UCX && ctx->no_ucx[0])
		return ctx->no_ucx;
	return ctx->job->providers[provider].why;
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
			addresses[i].len = 0;
			if (!can_do_without(ctx, i))
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

/* Nobody has heard of it: the next context may have the number. */
static void give_index_back(struct vbn_ctx *ctx)
{
	pthread_mutex_lock(&ctx->job->lock);
	if (ctx->job->nctxs == ctx->index + 1)
		ctx->job->nctxs--;
	pthread_mutex_unlock(&ctx->job->lock);
}

static void set_visible(struct vbn_ctx *ctx, struct vbn_ctx *value)
{
	pthread_mutex_lock(&ctx->job->lock);
	ctx->job->ctxs[ctx->index] = value;
	pthread_mutex_unlock(&ctx->job->lock);
}

/* Of the provider that stands for none. */
static int no_progress(void *pctx)
{
	(void)pctx;
	return 0;
}

static struct vbn_ctx *ctx_new(struct vbn_job *job)
{
	struct vbn_ctx *ctx = calloc(1, sizeof(*ctx));

	if (!ctx)
		return NULL;
	ctx->job = job;
	ctx->wake_fd = ctx->epoll_fd = -1;
	wait_init(ctx);
	ctx->active[0].poll = ctx->active[0].progress = no_progress;
	ctx->nbuckets = 16;
	ctx->buckets = calloc(ctx->nbuckets, sizeof(struct vbn_ep *));
	op_list_init(&ctx->deferred);
	ctx->parked_tail = &ctx->parked;
	ctx->inbox_tail = &ctx->inbox;
	pieces_init(ctx);
	fetches_init(ctx);
	pthread_mutex_init(&ctx->inbox_lock, NULL);
	if (!ctx->buckets || memmap_reader_open(job->map, &ctx->reader)) {
		pthread_mutex_destroy(&ctx->inbox_lock);
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

static void drain_inbox(struct vbn_ctx *ctx)
{
	struct ep_event *event, *next;

	pthread_mutex_lock(&ctx->inbox_lock);
	event = ctx->inbox;
	ctx->inbox = NULL;
	ctx->inbox_tail = &ctx->inbox;
	pthread_mutex_unlock(&ctx->inbox_lock);
	for (; event; event = next) {
		next = event->next;
		ep_handle_event(ctx, event);
		free(event);
	}
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
	if (!err)
		err = open_providers(ctx, addresses);
	if (!err)
		err = watch_providers(ctx);
	if (err) {
		give_index_back(ctx);
		goto free;
	}
	set_visible(ctx, ctx);
	err = address_publish(ctx, addresses);
	if (err)
		goto hide;
	staging_prepare(ctx);
	job_hold(job);
	*out = ctx;
	return 0;

hide:
	/* a peer may have heard of it, though the set has failed */
	ctx->closing = true;
	connect_withdraw(ctx);
	drain_inbox(ctx);
	for (int i = 0; i < ctx->neps; i++)
		ep_free(ctx->eps[i]);
free:
	ctx_free(ctx);
	return err;
}

/* Rare, and out of the way of vbn_progress(). */
static __attribute__((noinline)) void take_news(struct vbn_ctx *ctx)
{
	/* first: what comes now stays news */
	if (!(atomic_exchange(&ctx->news, 0) & NEWS_EVENT))
		return;
	ctx->happened = true;
	drain_inbox(ctx);
	if (ctx->deaths_seen != atomic_load(&ctx->job->deaths))
		ctx->gone_unchecked = ctx->todo = true;
}

static void alert(struct vbn_ctx *ctx)
{
	atomic_fetch_or(&ctx->news, NEWS_EVENT);
	vbn_ctx_wake(ctx);
}

void ctx_alert_all(struct vbn_job *job)
{
	pthread_mutex_lock(&job->lock);
	for (int i = 0; i < job->nctxs; i++)
		if (job->ctxs[i])
			alert(job->ctxs[i]);
	pthread_mutex_unlock(&job->lock);
}

void ctx_unmapped_all(struct vbn_job *job)
{
	pthread_mutex_lock(&job->lock);
	for (int i = 0; i < job->nctxs; i++)
		if (job->ctxs[i])
			atomic_fetch_or(&job->ctxs[i]->news, NEWS_UNMAPPED);
	pthread_mutex_unlock(&job->lock);
}

void ctx_post_event(struct vbn_ctx *ctx, struct ep_event *event)
{
	event->next = NULL;
	pthread_mutex_lock(&ctx->inbox_lock);
	*ctx->inbox_tail = event;
	ctx->inbox_tail = &event->next;
	pthread_mutex_unlock(&ctx->inbox_lock);
	alert(ctx);
}

void core_again(struct vbn_ctx *ctx)
{
	ctx->again = ctx->todo = true;
}

void core_again_any(struct vbn_ctx *ctx)
{
	atomic_fetch_or(&ctx->news, NEWS_AGAIN);
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

/* Not put off for ever by a context that is never quiet. */
static void look_for_gone(struct vbn_ctx *ctx, int events)
{
	if (!ctx->gone_since_ms)
		ctx->gone_since_ms = now_ms();
	if (!events || now_ms() - ctx->gone_since_ms >= LEAVE_GRACE_MS) {
		ctx->gone_since_ms = 0;
		ep_check_gone(ctx);
	}
}

static int others_progress(struct vbn_ctx *ctx)
{
	int events = 0;

	for (int i = 1; i < ctx->nactive; i++)
		events += ctx->active[i].progress(ctx->active[i].pctx);
	return events;
}

static int first_progress(struct vbn_ctx *ctx)
{
	ctx->again = false;
	return ctx->active[0].progress(ctx->active[0].pctx);
}

/* What does not happen at each progress. */
static int chores(struct vbn_ctx *ctx, int events)
{
	ctx->todo = false; /* first: what comes up from now on is due again */
	if (ctx->again) {
		events += first_progress(ctx);
		events += others_progress(ctx);
	}
	if (ctx->deferred.head) {
		run_deferred(ctx);
		events++;
	}
	if (ctx->parked)
		parked_deliver(ctx);
	if (ctx->pumping)
		run_pumps(ctx);
	/* Last: what the dead have sent before is delivered first. */
	if (ctx->leaving || ctx->gone_unchecked)
		look_for_gone(ctx, events);
	if (ctx->parked || ctx->leaving || ctx->gone_unchecked)
		ctx->todo = true;
	return events;
}

/* What remains of a progress in which @events came from the first provider. */
static __attribute__((noinline)) int progress_rest(struct vbn_ctx *ctx,
						   int events)
{
	if (ctx->several)
		events += others_progress(ctx);
	if (ctx->todo)
		events = chores(ctx, events);
	if (!events && ctx->happened)
		events = 1;
	ctx->happened = ctx->in_progress = false;
	return events;
}

static __attribute__((noinline)) int progress_all(struct vbn_ctx *ctx)
{
	if (ctx->in_progress)
		return 0;
	ctx->in_progress = true;
	ctx->happened = false;
	if (atomic_load_explicit(&ctx->news, memory_order_relaxed))
		take_news(ctx);
	memmap_quiescent(ctx->reader); /* behind the news of what is gone */
	return progress_rest(ctx, first_progress(ctx));
}

/* Nothing happened; so often that this is when to be quiescent. */
static int progress_none(struct vbn_ctx *ctx)
{
	ctx->state = 0;
	memmap_quiescent(ctx->reader);
	return 0;
}

int vbn_progress(struct vbn_ctx *ctx)
{
	int events;

	if (atomic_load_explicit(&ctx->state_news, memory_order_relaxed))
		return progress_all(ctx);
	ctx->state = STATE_IN_PROGRESS;
	/* one provider is what there is nearly always */
	events = ctx->active[0].poll(ctx->active[0].pctx);
	if (ctx->state != STATE_IN_PROGRESS)
		return progress_rest(ctx, events);
	if (!events)
		return progress_none(ctx);
	ctx->state = 0;
	return events;
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
	ctx->in_progress = true; /* for the callbacks of what is flushed */
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
	for (int i = 0; i < ctx->neps; i++)
		ep_free(ctx->eps[i]);
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
