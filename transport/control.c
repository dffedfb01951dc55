/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane as other threads see it: requests, messages, functions to
 * run on the control thread; opening and closing.
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
#include <time.h>
#include <unistd.h>

/* "Does not wait" still needs the store's answer. */
#define ROUND_TRIP_MS 1000

static void wake(struct control *c)
{
	uint64_t one = 1;

	/* It can only fail when the counter is full: the thread is awake. */
	(void)!write(c->wake_fd, &one, sizeof(one));
}

/* ---- requests ---- */

/* Under the lock. Gives the request its number and the frame's begin. */
static struct wire_frame *request_begin(struct control *c, struct request *r,
					enum wire_type type, size_t body)
{
	struct wire_frame *f = wire_frame(type, 8 + body);

	r->id = ++c->next_id;
	wire_put_u64(f, r->id);
	return f;
}

/* Under the lock; takes @f. 0: pending. */
static int request_send(struct control *c, struct request *r,
			struct wire_frame *f)
{
	int rc;

	if (c->lost || c->closing) {
		free(f);
		return -ECONNRESET;
	}
	rc = wire_queue(&c->wire, f);
	if (rc)
		return -ENOMEM;
	TAILQ_INSERT_TAIL(control_bucket(c, r->id), r, link);
	return 0;
}

/* Under the lock. Nobody waits for the answer any more. */
static void request_cancel(struct control *c, struct request *r,
			   const char *key)
{
	size_t len = strlen(key);
	struct wire_frame *f = wire_frame(FRAME_CANCEL, 9 + len);

	TAILQ_REMOVE(control_bucket(c, r->id), r, link);
	wire_put_u64(f, r->id);
	wire_put_key(f, key, len);
	/* Not told, the store answers one day, to nobody. */
	(void)wire_queue(&c->wire, f);
}

/* Blocking: send, wait. @key of a get, "" otherwise. */
static int request_wait(struct control *c, struct request *r,
			struct wire_frame *f, const char *key, int timeout_ms)
{
	int64_t deadline =
		net_deadline(timeout_ms == 0 ? ROUND_TRIP_MS : timeout_ms);
	struct timespec t = {.tv_sec = deadline / 1000,
			     .tv_nsec = deadline % 1000 * 1000000};
	int rc = request_send(c, r, f);

	if (rc) {
		pthread_mutex_unlock(&c->lock);
		return rc;
	}
	wake(c);
	while (!r->done && rc != ETIMEDOUT) {
		if (deadline == NET_NEVER)
			pthread_cond_wait(&r->cond, &c->lock);
		else
			rc = pthread_cond_timedwait(&r->cond, &c->lock, &t);
	}
	if (!r->done) {
		request_cancel(c, r, key);
		wake(c);
		r->status = -ETIMEDOUT;
	}
	pthread_mutex_unlock(&c->lock);
	return r->status;
}

static void cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* A key that can be sent, or -EINVAL. */
static int check_key(const char *key)
{
	size_t len = strlen(key);

	if (len < 1 || len > CONTROL_KEY_MAX)
		return vbn_fail(-EINVAL,
				"a key has 1 to %d bytes, this one %zu",
				CONTROL_KEY_MAX, len);
	return 0;
}

static int check_thread(struct control *c)
{
	if (!pthread_equal(pthread_self(), c->thread))
		return 0;
	return vbn_fail(-EDEADLK, "a blocking request on the control thread "
				  "itself");
}

static int request_failed(struct control *c, struct request *r, int rc,
			  const char *what, const char *key, int timeout_ms)
{
	switch (rc) {
	case 0:
		return 0;
	case -ETIMEDOUT:
		return vbn_fail(rc, "%s%s%s timed out after %d ms", what,
				key[0] ? " of key " : "", key, timeout_ms);
	case -ECONNRESET:
		if (r->gone_rank >= 0)
			return vbn_fail(rc, "%s: rank %d has %s", what,
					r->gone_rank,
					r->gone_died ? "died" : "left the job");
		return vbn_fail(rc, "%s%s%s: the store of rank 0 is gone (%s)",
				what, key[0] ? " of key " : "", key,
				control_rank_dead(c, 0) ? "rank 0 has died"
							: "rank 0 has left");
	default:
		return vbn_fail(rc, "%s%s%s: %s", what,
				key[0] ? " of key " : "", key, strerror(-rc));
	}
}

/* One blocking request. */
struct call {
	enum wire_type type;
	const char *what, *key;
	const void *value; /* of a set */
	size_t len;
	void *out; /* of a get */
	size_t room;
};

static int call(struct control *c, const struct call *call, size_t *len,
		int timeout_ms)
{
	struct request r = {
		.value = call->out, .room = call->room, .gone_rank = -1};
	size_t key_len = strlen(call->key), body = 0;
	bool waits = call->type == FRAME_GET || call->type == FRAME_FENCE;
	struct wire_frame *f;
	int rc = check_thread(c);

	if (rc)
		return rc;
	body += waits ? 1 : 0;
	body += call->type == FRAME_FENCE ? 0 : 1 + key_len;
	body += call->len;
	cond_init(&r.cond);
	pthread_mutex_lock(&c->lock);
	f = request_begin(c, &r, call->type, body);
	if (waits)
		wire_put_u8(f, timeout_ms != 0);
	if (call->type != FRAME_FENCE)
		wire_put_key(f, call->key, key_len);
	wire_put_bytes(f, call->value, call->len);
	rc = request_wait(c, &r, f, call->type == FRAME_GET ? call->key : "",
			  timeout_ms);
	pthread_cond_destroy(&r.cond);
	if (!rc && len) {
		if (r.len > call->room)
			return vbn_fail(-EMSGSIZE,
					"the value of key %s has %zu bytes, "
					"there is room for %zu",
					call->key, r.len, call->room);
		*len = r.len;
	}
	return request_failed(c, &r, rc, call->what, call->key, timeout_ms);
}

int control_set(struct control *c, const char *key, const void *value,
		size_t len, int timeout_ms)
{
	const struct call set = {.type = FRAME_SET,
				 .what = "set",
				 .key = key,
				 .value = value,
				 .len = len};
	int rc = check_key(key);

	if (rc)
		return rc;
	if (len > CONTROL_VALUE_MAX)
		return vbn_fail(-EMSGSIZE,
				"a value has at most %d bytes, the one of key "
				"%s has %zu",
				CONTROL_VALUE_MAX, key, len);
	return call(c, &set, NULL, timeout_ms);
}

int control_get(struct control *c, const char *key, void *value, size_t *len,
		int timeout_ms)
{
	const struct call get = {.type = FRAME_GET,
				 .what = "get",
				 .key = key,
				 .out = value,
				 .room = *len};
	int rc = check_key(key);

	return rc ? rc : call(c, &get, len, timeout_ms);
}

int control_erase(struct control *c, const char *key, int timeout_ms)
{
	const struct call erase = {
		.type = FRAME_ERASE, .what = "erase", .key = key};
	int rc = check_key(key);

	return rc ? rc : call(c, &erase, NULL, timeout_ms);
}

int control_fence(struct control *c, int timeout_ms)
{
	const struct call fence = {
		.type = FRAME_FENCE, .what = "fence", .key = ""};

	return call(c, &fence, NULL, timeout_ms);
}

/* ---- what does not block ---- */

void control_lookup(struct control *c, const char *key, bool wait,
		    void (*done)(void *arg, int err, const void *value,
				 size_t len),
		    void *arg)
{
	struct request *r = calloc(1, sizeof(*r));
	struct wire_frame *f;
	size_t len = strlen(key);
	int rc;

	if (!r) { /* no memory to say it later */
		done(arg, -ENOMEM, NULL, 0);
		return;
	}
	r->done_fn = done;
	r->arg = arg;
	pthread_mutex_lock(&c->lock);
	if (len < 1 || len > CONTROL_KEY_MAX) {
		rc = -EINVAL;
	} else {
		f = request_begin(c, r, FRAME_GET, 2 + len);
		wire_put_u8(f, wait);
		wire_put_key(f, key, len);
		rc = request_send(c, r, f);
	}
	if (rc) {
		r->status = rc == -ECONNRESET && !c->lost ? -ECANCELED : rc;
		TAILQ_INSERT_TAIL(&c->due, r, link);
	}
	pthread_mutex_unlock(&c->lock);
	wake(c);
}

int control_publish(struct control *c, const char *key, const void *value,
		    size_t len)
{
	size_t key_len = strlen(key);
	struct request unanswered;
	struct wire_frame *f;
	int rc = check_key(key);

	if (rc)
		return rc;
	if (len > CONTROL_VALUE_MAX)
		return vbn_fail(-EMSGSIZE, "key %s: %zu bytes are too many",
				key, len);
	pthread_mutex_lock(&c->lock);
	f = request_begin(c, &unanswered, FRAME_SET, 1 + key_len + len);
	wire_put_key(f, key, key_len);
	wire_put_bytes(f, value, len);
	if (c->lost || c->closing) {
		free(f);
		rc = -ECONNRESET;
	} else {
		rc = wire_queue(&c->wire, f) ? -ENOMEM : 0;
	}
	pthread_mutex_unlock(&c->lock);
	if (rc)
		return vbn_fail(rc, "key %s cannot be set: %s", key,
				rc == -ENOMEM ? "no memory, or too many wait"
					      : "the store of rank 0 is gone");
	wake(c);
	return 0;
}

int control_send(struct control *c, int rank, unsigned type, const void *data,
		 size_t len)
{
	struct wire_frame *f;
	int rc = -ECONNRESET;

	if (rank < 0 || rank >= c->nranks)
		return vbn_fail(-EINVAL, "no rank %d in a job of %d", rank,
				c->nranks);
	if (len > CONTROL_MESSAGE_MAX)
		return vbn_fail(-EMSGSIZE,
				"a control message has at most %d bytes, this "
				"one %zu",
				CONTROL_MESSAGE_MAX, len);
	f = wire_frame(FRAME_SEND, 8 + len);
	wire_put_u32(f, (uint32_t)rank);
	wire_put_u32(f, type);
	wire_put_bytes(f, data, len);
	pthread_mutex_lock(&c->lock);
	if (c->lost)
		free(f);
	else
		rc = wire_queue(&c->wire, f) ? -ENOMEM : 0;
	pthread_mutex_unlock(&c->lock);
	if (rc)
		return vbn_fail(rc, "no message to rank %d: %s", rank,
				rc == -ENOMEM ? "no memory, or too many wait"
					      : "the store of rank 0 is gone");
	wake(c);
	return 0;
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
	wake(c);
	return 0;
}

int control_run_wait(struct control *c, void (*fn)(void *arg), void *arg)
{
	bool done = false;
	struct run_fn f = {.fn = fn, .arg = arg, .done = &done};
	int rc = check_thread(c);

	if (rc)
		return rc;
	pthread_mutex_lock(&c->lock);
	STAILQ_INSERT_TAIL(&c->run, &f, link);
	wake(c);
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
	pthread_mutex_destroy(&c->lock);
	pthread_cond_destroy(&c->ran);
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
	for (unsigned b = 0; b < REQUEST_BUCKETS; b++)
		TAILQ_INIT(&c->pending[b]);
	TAILQ_INIT(&c->due);
	STAILQ_INIT(&c->run);
	c->gone = calloc((size_t)o->nranks, sizeof(*c->gone));
	c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->gone && c->epoll_fd >= 0 && c->wake_fd >= 0 &&
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
		rc = control_join(&c->wire, o, local_fd, deadline);
	if (!rc) {
		*out = c; /* before the first callback */
		rc = start_thread(c);
	}
	if (!rc)
		return 0;
	*out = before;
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
	wake(c);
	pthread_join(c->thread, NULL);
	wire_close(&c->wire);
	if (c->store)
		store_stop(c->store, c->timeout_ms);
	control_free(c);
}
