/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The progress thread: makes progress with a context's calls while its user
 * computes. The context still belongs to one thread at a time: to the user's
 * while that is in a call of ours, which holds the lock from beginning to end,
 * and to this one in between. With a call in flight it polls, then sleeps
 * armed, the lock released. With none it sleeps; it still answers what comes
 * (a peer may wait for that) until the user's thread has used the context:
 * then what comes is that one's, whose sleep would wake this one in vain. What
 * comes for a broken communicator is always answered.
 */
#include "coll.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/*
 * Polls without an event before it sleeps, the core given away in between. That
 * takes longer than SWITCHED_NS if another wants the core, and may keep it for
 * milliseconds: one that sleeps is let in at once when something comes.
 */
#define IDLE_NS	    UINT64_C(25000)
#define SWITCHED_NS UINT64_C(2000)
/* While the user's thread is about to take the lock: so often, then naps. */
#define YIELDS 16
#define NAP_US 200
/* What nothing signals (a death) is looked for this often. */
#define LOOK_EVERY_MS 100
/* What was refused is tried again after 1 ms, then rarer. */
#define RETRY_MOST_MS 16
/*
 * A context that cannot be armed, or wakes in vain (UCX does while a peer does
 * not answer its connection), mostly brings something soon. Else it is not
 * heeded for a while.
 */
#define QUIET_NS UINT64_C(20000000)

struct thread {
	struct shared *shared;
	pthread_t id;
	pthread_mutex_t lock; /* recursive: public calls use public calls */
	atomic_bool wanted;   /* the user's thread waits for the lock */
	/* Under the lock. */
	bool asleep; /* or about to be */
	bool stop;
	bool attends; /* the user has not come since it had something to do */
	bool vain;    /* woken by the context, and nothing has come since */
	int retry_ms;
	uint64_t heard_ns; /* when something came last, or work */
	uint64_t looked_ms;
};

/* ---- the user's side ---- */

void thread_kick(struct shared *shared)
{
	const uint64_t one = 1;
	int fd = atomic_load(&shared->kick_fd);

	/* It cannot fail: the counter does not get anywhere near its limit. */
	if (fd >= 0)
		(void)!write(fd, &one, sizeof(one));
}

void thread_take(struct thread *thread)
{
	atomic_store(&thread->wanted, true);
	pthread_mutex_lock(&thread->lock);
	atomic_store(&thread->wanted, false);
	thread->attends = false;
}

static bool has_work(const struct shared *shared)
{
	for (const struct vbn_comm *c = shared->comms; c; c = c->next)
		if (c->error)
			return true;
	return engine_busy(shared);
}

void thread_give(struct thread *thread)
{
	/* We may have eaten the event it was to be woken by. */
	if (thread->asleep && has_work(thread->shared)) {
		thread->asleep = false;
		thread_kick(thread->shared);
	}
	pthread_mutex_unlock(&thread->lock);
}

/* ---- the thread's ---- */

static void look(struct thread *thread, uint64_t now)
{
	if (now - thread->looked_ms < LOOK_EVERY_MS)
		return;
	thread->looked_ms = now;
	for (struct vbn_comm *c = thread->shared->comms; c; c = c->next)
		comm_check_dead(c);
}

/*
 * The user's thread is not kept waiting longer than for a turn. It sleeps while
 * it waits, and would not get a lock that is taken back at once.
 */
static void offer_lock(struct thread *thread)
{
	int yields = 0;

	pthread_mutex_unlock(&thread->lock);
	do
		if (yields++ < YIELDS)
			sched_yield();
		else
			usleep(NAP_US);
	while (atomic_load(&thread->wanted));
	pthread_mutex_lock(&thread->lock);
}

/* Polls until there is nothing to do, or nothing has come for a while. */
static void poll_awhile(struct thread *thread)
{
	struct shared *shared = thread->shared;
	uint64_t now = coll_now_ns(), last = now;

	thread->attends = true;
	while (!thread->stop && now - last < IDLE_NS) {
		int events = vbn_progress(shared->ctx);

		engine_pump_all(shared);
		now = coll_now_ns();
		look(thread, now / 1000000);
		if (events > 0) {
			thread->heard_ns = last = now;
			thread->vain = false;
			thread->retry_ms = 1;
		}
		if (!engine_busy(shared))
			return;
		offer_lock(thread);
		if (events == 0 && coll_now_ns() - now >= SWITCHED_NS)
			return;
	}
}

/* *limit (-1: none) until the next look at what was refused. */
static void retry_within(struct thread *thread, int *limit)
{
	if (*limit < 0 || *limit > thread->retry_ms)
		*limit = thread->retry_ms;
	if (thread->retry_ms < RETRY_MOST_MS)
		thread->retry_ms *= 2;
}

/* Whether it sleeps armed; *again: it cannot, and should poll on. */
static bool arm(struct thread *thread, int *limit, bool *again)
{
	bool quiet = coll_now_ns() - thread->heard_ns >= QUIET_NS;

	*again = false;
	if (!thread->attends && !has_work(thread->shared))
		return false;
	if (!(quiet && thread->vain)) {
		if (!vbn_ctx_arm_within(thread->shared->ctx, limit))
			return true;
		*again = !quiet;
	}
	if (!*again)
		retry_within(thread, limit);
	return false;
}

/* Until an event, a kick, or the time to look for what nothing signals. */
static void sleep_awhile(struct thread *thread)
{
	struct shared *shared = thread->shared;
	struct pollfd fds[] = {
		{.fd = atomic_load(&shared->kick_fd), .events = POLLIN},
		{.fd = vbn_ctx_fd(shared->ctx), .events = POLLIN},
	};
	int limit = engine_busy(shared) ? LOOK_EVERY_MS : -1;
	bool again, armed = arm(thread, &limit, &again);
	uint64_t count;

	if (thread->stop || again)
		return;
	if (engine_stalled(shared))
		retry_within(thread, &limit);
	thread->asleep = true;
	pthread_mutex_unlock(&thread->lock);
	poll(fds, armed ? 2 : 1, limit);
	pthread_mutex_lock(&thread->lock);
	thread->asleep = false;
	thread->vain = fds[1].revents != 0;
	if (read(fds[0].fd, &count, sizeof(count)) > 0)
		thread->heard_ns = coll_now_ns();
}

static void *run(void *arg)
{
	struct thread *thread = arg;

	pthread_mutex_lock(&thread->lock);
	while (!thread->stop) {
		if (thread->attends || has_work(thread->shared))
			poll_awhile(thread);
		sleep_awhile(thread);
	}
	pthread_mutex_unlock(&thread->lock);
	return NULL;
}

/* ---- starting and stopping ---- */

static int take_options(struct vbn_coll_thread_options *opts,
			const struct vbn_coll_thread_options *given)
{
	if (!given)
		return 0;
	if (given->size < sizeof(given->size))
		return vbn_fail(-EINVAL,
				"vbn_coll_thread_options.size is not set");
	memcpy(opts, given,
	       given->size < sizeof(*opts) ? given->size : sizeof(*opts));
	if (opts->bind && (opts->cpu < 0 || opts->cpu >= CPU_SETSIZE))
		return vbn_fail(-EINVAL, "no processor %d to bind to",
				opts->cpu);
	return 0;
}

/*
 * In a callback the context is being progressed by whom we would join. Asked
 * in turn with a progress thread, whose progress is not a callback of ours.
 */
static int check_callback(struct shared *shared)
{
	struct thread *taken = coll_take(shared);
	bool in_callback = vbn_ctx_in_callback(shared->ctx);

	coll_give(taken);
	if (!in_callback)
		return 0;
	return vbn_fail(
		-EDEADLK,
		"a progress thread is not started or stopped in a callback");
}

/* Its own lock, recursive, and what wakes it, which the context keeps. */
static int set_up(struct thread *thread)
{
	pthread_mutexattr_t attr;

	if (thread->shared->kick_fd < 0)
		thread->shared->kick_fd =
			eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (thread->shared->kick_fd < 0)
		return vbn_fail(-errno, "progress thread: eventfd: %s",
				strerror(errno));
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&thread->lock, &attr);
	pthread_mutexattr_destroy(&attr);
	return 0;
}

static void take_down(struct thread *thread)
{
	pthread_mutex_destroy(&thread->lock);
	free(thread);
}

static int bind_to(struct thread *thread, int cpu)
{
	cpu_set_t set;
	int rc;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	rc = pthread_setaffinity_np(thread->id, sizeof(set), &set);
	return rc ? vbn_fail(-rc,
			     "progress thread: cannot run on processor %d: %s",
			     cpu, strerror(rc))
		  : 0;
}

static int begin(struct shared *shared,
		 const struct vbn_coll_thread_options *opts)
{
	struct thread *thread = calloc(1, sizeof(*thread));
	int err;

	if (!thread)
		return vbn_fail(-ENOMEM, "no memory for a progress thread");
	thread->shared = shared;
	thread->attends = true;
	thread->retry_ms = 1;
	err = set_up(thread);
	if (err) {
		free(thread);
		return err;
	}
	err = vbn_thread_start(&thread->id, "vbn-progress", run, thread);
	if (err) {
		take_down(thread);
		return vbn_fail(err, "no progress thread: %s", strerror(-err));
	}
	shared->thread = thread;
	err = opts->bind ? bind_to(thread, opts->cpu) : 0;
	if (err)
		thread_end(shared);
	return err;
}

int vbn_coll_thread_start(struct vbn_ctx *ctx,
			  const struct vbn_coll_thread_options *given)
{
	struct vbn_coll_thread_options opts = {0};
	struct shared *shared = shared_get(ctx);
	int err = take_options(&opts, given);

	if (err)
		return err;
	if (!shared)
		return vbn_fail(-ENOMEM, "no memory for a progress thread");
	err = check_callback(shared);
	if (err)
		return err;
	if (shared->thread)
		return vbn_fail(-EEXIST,
				"the context has a progress thread already");
	return begin(shared, &opts);
}

void thread_end(struct shared *shared)
{
	struct thread *thread = shared->thread;

	if (!thread)
		return;
	thread_take(thread);
	thread->stop = true;
	pthread_mutex_unlock(&thread->lock);
	thread_kick(shared);
	pthread_join(thread->id, NULL);
	shared->thread = NULL;
	take_down(thread);
}

int vbn_coll_thread_stop(struct vbn_ctx *ctx)
{
	struct shared *shared = shared_find(ctx);
	int err = 0;

	if (shared && shared->thread) {
		err = check_callback(shared);
		if (!err)
			thread_end(shared);
	}
	return err;
}
