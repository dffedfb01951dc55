/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane as other threads see it: functions to run on the control
 * thread, who is gone; opening and closing. control_request.c has the rest.
 */
#include "control_impl.h"
#include "control_join.h"
#include "control_net.h"
#include "error.h"
#include "rendezvous.h"
#include "store.h"
#include "thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

void control_wake(struct control *c)
{
	uint64_t one = 1;

	/* It can only fail when the counter is full: the thread is awake. */
	(void)!write(c->wake_fd, &one, sizeof(one));
}

int control_check_thread(struct control *c)
{
	if (!pthread_equal(pthread_self(), c->thread))
		return 0;
	return vbn_fail(-EDEADLK, "a blocking request on the control thread "
				  "itself");
}

int control_run(struct control *c, void (*fn)(void *arg), void *arg)
{
	struct run_fn *f = calloc(1, sizeof(*f));

	if (!f)
		return vbn_fail(-ENOMEM, "no memory for the control thread");
	f->fn = fn;
	f->arg = arg;
	pthread_mutex_lock(&c->lock);
	STAILQ_INSERT_TAIL(&c->run, f, link);
	pthread_mutex_unlock(&c->lock);
	control_wake(c);
	return 0;
}

int control_run_wait(struct control *c, void (*fn)(void *arg), void *arg)
{
	bool done = false;
	struct run_fn f = {.fn = fn, .arg = arg, .done = &done};
	int rc = control_check_thread(c);

	if (rc)
		return rc;
	pthread_mutex_lock(&c->lock);
	STAILQ_INSERT_TAIL(&c->run, &f, link);
	control_wake(c);
	while (!done)
		pthread_cond_wait(&c->ran, &c->lock);
	pthread_mutex_unlock(&c->lock);
	return 0;
}

int control_watch(struct control *c, int fd, void (*fn)(void *arg, int fd),
		  void *arg)
{
	uint32_t generation = ++c->generation;
	struct epoll_event ev = {.events = EPOLLIN,
				 .data.u64 = (uint64_t)generation << 32 |
					     (uint32_t)fd};
	struct watch *more =
		realloc(c->watches, (c->nwatches + 1) * sizeof(*more));

	if (!more)
		return vbn_fail(-ENOMEM, "no memory to watch a descriptor");
	c->watches = more;
	if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fd, &ev))
		return vbn_fail(-errno, "cannot watch descriptor %d: %s", fd,
				strerror(errno));
	more[c->nwatches++] = (struct watch){
		.fd = fd, .generation = generation, .fn = fn, .arg = arg};
	return 0;
}

void control_unwatch(struct control *c, int fd)
{
	for (size_t i = 0; i < c->nwatches; i++)
		if (c->watches[i].fd == fd) {
			epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
			c->watches[i] = c->watches[--c->nwatches];
			return;
		}
}

bool control_rank_dead(const struct control *c, int rank)
{
	return rank >= 0 && rank < c->nranks &&
	       atomic_load(&c->gone[rank]) == DIED;
}

bool control_rank_gone(const struct control *c, int rank)
{
	return rank >= 0 && rank < c->nranks &&
	       atomic_load(&c->gone[rank]) != PRESENT;
}

int control_first_dead(const struct control *c)
{
	return atomic_load(&c->first_dead);
}

/* ---- open and close ---- */

static int check_options(const struct control_options *o)
{
	bool listener = o->rank == 0 && o->listen_fd >= 0;

	if (o->nranks < 1 || o->rank < 0 || o->rank >= o->nranks)
		return vbn_fail(-EINVAL, "rank %d does not fit a job of %d",
				o->rank, o->nranks);
	if (o->nranks > 1 && !listener && (!o->host || !o->host[0] || !o->port))
		return vbn_fail(-EINVAL,
				"a job of %d ranks needs an address: set "
				"VBN_ADDRESS=host:port",
				o->nranks);
	return 0;
}

static void control_free(struct control *c)
{
	wire_close(&c->wire);
	if (c->epoll_fd >= 0)
		close(c->epoll_fd);
	if (c->wake_fd >= 0)
		close(c->wake_fd);
	free(c->watches);
	free(c->gone);
	for (int i = 0; c->why && i < c->nranks; i++)
		free(c->why[i]);
	free(c->why);
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->ran);
	pthread_cond_destroy(&c->rest);
	free(c);
}

static struct control *control_alloc(const struct control_options *o)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = TAG_WAKE};
	struct control *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->rank = o->rank;
	c->nranks = o->nranks;
	c->timeout_ms = o->timeout_ms;
	c->events = o->events;
	wire_init(&c->wire, -1);
	atomic_init(&c->first_dead, -1);
	pthread_mutex_init(&c->lock, NULL);
	pthread_cond_init(&c->ran, NULL);
	cond_init_monotonic(&c->rest);
	for (unsigned b = 0; b < REQUEST_BUCKETS; b++)
		TAILQ_INIT(&c->pending[b]);
	TAILQ_INIT(&c->due);
	STAILQ_INIT(&c->run);
	c->gone = calloc((size_t)o->nranks, sizeof(*c->gone));
	c->why = calloc((size_t)o->nranks, sizeof(*c->why));
	c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->gone && c->why && c->epoll_fd >= 0 && c->wake_fd >= 0 &&
	    !epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->wake_fd, &ev))
		return c;
	control_free(c);
	return NULL;
}

/* Rank 0. Takes the listening socket of the options in any case. */
static int start_store(struct control *c, const struct control_options *o,
		       int64_t deadline, int *local_fd)
{
	struct store_options so = {.nranks = o->nranks,
				   .secret = o->secret ? o->secret : "",
				   .dead_ms = o->nranks > 1 ? o->dead_ms : 0,
				   .listen_fd = -1};
	int rc = 0;

	if (o->listen_fd >= 0) {
		rc = rendezvous_adopt(o);
		so.listen_fd = o->listen_fd;
	} else if (o->nranks > 1) {
		rc = rendezvous_listen(o, deadline, &so.listen_fd);
	}
	if (rc)
		return rc;
	if (o->nranks == 1) { /* nobody is to come */
		net_close(so.listen_fd);
		so.listen_fd = -1;
	}
	return store_start(&c->store, &so, local_fd);
}

static int start_thread(struct control *c)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = TAG_WIRE};
	int rc;

	if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->wire.fd, &ev))
		return vbn_fail(-errno, "epoll: %s", strerror(errno));
	rc = vbn_thread_start(&c->thread, "vbn-control", control_main, c);
	if (rc)
		return vbn_fail(rc, "cannot start the control thread: %s",
				strerror(-rc));
	return 0;
}

int control_open(struct control **out, const struct control_options *o)
{
	int64_t deadline = net_deadline(o->timeout_ms);
	struct control *c = NULL, *before = *out;
	int local_fd = -1, rc = check_options(o);

	if (!rc)
		rc = wire_setup();
	if (!rc) {
		c = control_alloc(o);
		if (!c)
			rc = vbn_fail(-ENOMEM, "no memory, or no descriptor, "
					       "for the control plane");
	}
	if (rc) {
		if (o->rank == 0 && o->listen_fd >= 0)
			close(o->listen_fd);
		return rc;
	}
	if (o->rank == 0)
		rc = start_store(c, o, deadline, &local_fd);
	if (!rc)
		rc = control_join(&c->wire, o, local_fd, deadline, &c->dead_ms);
	if (!rc && c->dead_ms > CONTROL_DEAD_MAX)
		c->dead_ms = CONTROL_DEAD_MAX;
	if (!rc)
		rc = live_start(c);
	if (!rc) {
		*out = c; /* before the first callback */
		rc = start_thread(c);
	}
	if (!rc)
		return 0;
	*out = before;
	live_stop(c);
	wire_close(&c->wire);
	if (c->store)
		store_stop(c->store, 0);
	control_free(c);
	return rc;
}

void control_close(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	c->closing = true;
	pthread_mutex_unlock(&c->lock);
	control_wake(c);
	pthread_join(c->thread, NULL);
	live_stop(c);
	wire_close(&c->wire);
	if (c->store)
		store_stop(c->store, c->timeout_ms);
	control_free(c);
}
