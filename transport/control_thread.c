/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control thread: reads frames, runs callbacks and functions, watches
 * descriptors. No callback runs under the lock.
 */
#include "control_impl.h"
#include "control_net.h"
#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ROUND_EVENTS 32
#define GOODBYE_MS   2000

/* ---- frames ---- */

/* The answer to @r has come, or will never: takes it out, under the lock. */
static void request_end(struct control *c, struct request *r, int status,
			const void *value, size_t len)
{
	TAILQ_REMOVE(control_bucket(c, r->id), r, link);
	r->status = status;
	r->len = len;
	if (!status && len <= r->room && len)
		memcpy(r->value, value, len);
	r->done = true;
	pthread_cond_signal(&r->cond);
}

static int status_errno(struct request *r, enum wire_status status,
			struct wire_reader *reader)
{
	switch (status) {
	case STATUS_OK:
		return 0;
	case STATUS_ABSENT:
		return r->done_fn ? -ENOENT : -ETIMEDOUT;
	case STATUS_GONE:
		r->gone_rank = (int)wire_get_u32(reader);
		r->gone_died = wire_get_u8(reader);
		return -ECONNRESET;
	case STATUS_NOMEM:
	default:
		return -ENOMEM;
	}
}

static void on_reply(struct control *c, struct wire_reader *reader)
{
	uint64_t id = wire_get_u64(reader);
	enum wire_status wire_status = (enum wire_status)wire_get_u8(reader);
	struct request *r;
	const uint8_t *value;
	size_t len;
	int status;

	pthread_mutex_lock(&c->lock);
	r = TAILQ_FIRST(control_bucket(c, id));
	while (r && r->id != id)
		r = TAILQ_NEXT(r, link);
	if (!r) { /* cancelled meanwhile */
		pthread_mutex_unlock(&c->lock);
		return;
	}
	status = status_errno(r, wire_status, reader);
	value = wire_get_rest(reader, &len);
	if (!r->done_fn) {
		request_end(c, r, status, value, len);
		pthread_mutex_unlock(&c->lock);
		return;
	}
	TAILQ_REMOVE(control_bucket(c, id), r, link);
	pthread_mutex_unlock(&c->lock);
	r->done_fn(r->arg, status, status ? NULL : value, status ? 0 : len);
	free(r);
}

/*
 * Whoever sees a rank dead sees a first one, too, and why. true: it is news.
 */
static bool set_gone(struct control *c, int rank, bool died, const char *why)
{
	if (atomic_load(&c->gone[rank]) != PRESENT)
		return false;
	live_keep_why(c, rank, why);
	/* The first, as others may die of it. */
	if (died && atomic_load(&c->first_dead) < 0)
		atomic_store(&c->first_dead, rank);
	/* Rank 0 is never named dead by its own store: it loses it. */
	if (died && rank && rank == c->rank)
		atomic_store(&c->expelled, true);
	atomic_store(&c->gone[rank], died ? DIED : LEFT);
	return true;
}

static void tell_gone(struct control *c, int rank, bool died, const char *why)
{
	if (c->events.gone)
		c->events.gone(c->events.arg, rank, died, why);
}

static void gone(struct control *c, int rank, bool died, const char *why)
{
	if (set_gone(c, rank, died, why))
		tell_gone(c, rank, died, why);
}

static void on_gone(struct control *c, struct wire_reader *r)
{
	uint32_t rank = wire_get_u32(r);
	bool died = wire_get_u8(r);
	char why[WIRE_WHY_MAX];

	wire_get_text(r, why, sizeof(why));
	if (!r->bad && rank < (uint32_t)c->nranks)
		gone(c, (int)rank, died, why);
}

static void on_left(struct control *c, struct wire_reader *r)
{
	while (r->p < r->end) {
		uint32_t rank = wire_get_u32(r);

		if (r->bad)
			return;
		if (rank < (uint32_t)c->nranks)
			gone(c, (int)rank, false, "");
	}
}

static void on_message(struct control *c, struct wire_reader *r)
{
	uint32_t rank = wire_get_u32(r), type = wire_get_u32(r);
	size_t len;
	const uint8_t *data = wire_get_rest(r, &len);

	if (r->bad || rank >= (uint32_t)c->nranks || len > CONTROL_MESSAGE_MAX)
		return;
	if (atomic_load(&c->gone[rank]) == PRESENT && c->events.message)
		c->events.message(c->events.arg, (int)rank, type, data, len);
}

static void on_frame(struct control *c, enum wire_type type,
		     struct wire_reader *r)
{
	switch (type) {
	case FRAME_REPLY:
		on_reply(c, r);
		return;
	case FRAME_MESSAGE:
		on_message(c, r);
		return;
	case FRAME_GONE:
		on_gone(c, r);
		return;
	case FRAME_LEFT:
		on_left(c, r);
		return;
	default: /* a beat, or a later version's news, harmless to miss */
		return;
	}
}

/* Under the lock. Waiting requests fail; look-ups are due with @lookups. */
static void end_pending(struct control *c, int lookups)
{
	struct request *r, *next;

	for (unsigned b = 0; b < REQUEST_BUCKETS; b++)
		for (r = TAILQ_FIRST(&c->pending[b]); r; r = next) {
			next = TAILQ_NEXT(r, link);
			if (!r->done_fn) {
				request_end(c, r, -ECONNRESET, NULL, 0);
				continue;
			}
			TAILQ_REMOVE(&c->pending[b], r, link);
			r->status = lookups;
			TAILQ_INSERT_TAIL(&c->due, r, link);
		}
}

/* The connection has ended: all that waits for the store has failed. */
static void lose_store(struct control *c, const char *why)
{
	/* First: whoever sees a request fail asks why. */
	bool news = set_gone(c, 0, true, why);

	pthread_mutex_lock(&c->lock);
	c->lost = true;
	end_pending(c, -ECONNRESET);
	epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, c->wire.fd, NULL);
	wire_close(&c->wire);
	pthread_cond_broadcast(&c->rest);
	pthread_mutex_unlock(&c->lock);
	if (news)
		tell_gone(c, 0, true, why);
}

/* The same; whose fault it is depends on who was away. */
static void lose_silently(struct control *c, const char *why)
{
	char away[64];

	if (live_was_away(c, away, sizeof(away)))
		gone(c, c->rank, true, away);
	lose_store(c, why);
}

static void drain_frames(struct control *c)
{
	struct wire_reader reader;
	enum wire_type type;
	int rc = 0;

	while (!atomic_load(&c->expelled) &&
	       (rc = wire_next(&c->wire, &type, &reader)) > 0)
		on_frame(c, type, &reader);
	if (atomic_load(&c->expelled))
		lose_store(c, "it has named this rank dead");
	else if (rc < 0)
		lose_store(c, rc == -EBADMSG
				      ? "what came was not sealed by it"
				      : "what came was no frame of ours");
}

static void on_readable(struct control *c)
{
	char why[WIRE_WHY_MAX];
	int rc = wire_fill(&c->wire, SIZE_MAX);

	if (rc > 0) {
		c->heard = net_now_ms();
		drain_frames(c);
	} else if (rc != -EAGAIN) {
		live_ended(c, rc, why, sizeof(why));
		lose_silently(c, why);
	}
}

/* Nothing has been read for too long: what has come meanwhile counts. */
static void on_silence(struct control *c)
{
	char why[WIRE_WHY_MAX];

	on_readable(c);
	if (!live_silent(c))
		return;
	live_give_up(c, why, sizeof(why));
	lose_silently(c, why);
}

static void flush(struct control *c)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.u64 = TAG_WIRE};
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = c->lost ? 0 : wire_flush(&c->wire);
	/* When writing has failed, reading still gives what came before. */
	if (rc >= 0 && !c->lost && c->want_out != (rc == 1)) {
		c->want_out = rc == 1;
		ev.events |= c->want_out ? EPOLLOUT : 0;
		epoll_ctl(c->epoll_fd, EPOLL_CTL_MOD, c->wire.fd, &ev);
	}
	pthread_mutex_unlock(&c->lock);
}

/* ---- functions to run, look-ups that are due ---- */

static void run_one(struct control *c, struct run_fn *f)
{
	bool *done = f->done;

	f->fn(f->arg);
	if (!done) {
		free(f);
		return;
	}
	pthread_mutex_lock(&c->lock);
	*done = true;
	pthread_cond_broadcast(&c->ran);
	pthread_mutex_unlock(&c->lock);
}

static void run_all(struct control *c)
{
	struct request *r;
	struct run_fn *f;

	for (;;) {
		pthread_mutex_lock(&c->lock);
		f = STAILQ_FIRST(&c->run);
		r = f ? NULL : TAILQ_FIRST(&c->due);
		if (f)
			STAILQ_REMOVE_HEAD(&c->run, link);
		if (r)
			TAILQ_REMOVE(&c->due, r, link);
		pthread_mutex_unlock(&c->lock);
		if (f) {
			run_one(c, f);
		} else if (r) {
			r->done_fn(r->arg, r->status, NULL, 0);
			free(r);
		} else {
			return;
		}
	}
}

/* ---- end ---- */

static void cancel_lookups(struct control *c)
{
	pthread_mutex_lock(&c->lock);
	end_pending(c, -ECANCELED);
	pthread_mutex_unlock(&c->lock);
}

/*
 * Goodbye, and read until the store closes: if we closed first, what it still
 * sends would reset the connection and could overtake the goodbye.
 */
static void say_goodbye(struct control *c)
{
	int64_t deadline = net_deadline(GOODBYE_MS);
	struct epoll_event ev;
	int rc;

	pthread_mutex_lock(&c->lock);
	rc = wire_queue(&c->wire, wire_frame(FRAME_GOODBYE, 0));
	pthread_mutex_unlock(&c->lock);
	while (!rc && net_now_ms() < deadline) {
		flush(c);
		if (epoll_wait(c->epoll_fd, &ev, 1, net_remaining(deadline)) <
		    0)
			continue;
		rc = wire_fill(&c->wire, SIZE_MAX);
		if (rc > 0)
			wire_take(&c->wire, c->wire.in_len - c->wire.in_off);
		rc = rc > 0 || rc == -EAGAIN ? 0 : 1;
	}
}

static void unwatch_all(struct control *c)
{
	for (size_t i = 0; i < c->nwatches; i++)
		epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, c->watches[i].fd, NULL);
	c->nwatches = 0;
	epoll_ctl(c->epoll_fd, EPOLL_CTL_DEL, c->wake_fd, NULL);
}

static void watch_event(struct control *c, uint64_t tag)
{
	for (size_t i = 0; i < c->nwatches; i++)
		if (c->watches[i].fd == (int)(uint32_t)tag &&
		    c->watches[i].generation == (uint32_t)(tag >> 32)) {
			c->watches[i].fn(c->watches[i].arg, c->watches[i].fd);
			return;
		}
}

static void round_once(struct control *c)
{
	struct epoll_event events[ROUND_EVENTS];
	uint64_t count;
	int64_t slept = net_now_ms();
	int n = epoll_wait(c->epoll_fd, events, ROUND_EVENTS, live_timeout(c));

	live_woke(c, slept, net_now_ms());
	for (int i = 0; i < n; i++) {
		uint64_t tag = events[i].data.u64;

		if (tag == TAG_WAKE)
			(void)!read(c->wake_fd, &count, sizeof(count));
		else if (tag != TAG_WIRE)
			watch_event(c, tag);
		else if (c->wire.fd >= 0 && events[i].events != EPOLLOUT)
			on_readable(c);
	}
	if (live_silent(c))
		on_silence(c);
}

static bool over(struct control *c)
{
	bool yes;

	pthread_mutex_lock(&c->lock);
	yes = c->closing && STAILQ_EMPTY(&c->run) && TAILQ_EMPTY(&c->due);
	pthread_mutex_unlock(&c->lock);
	return yes;
}

void *control_main(void *arg)
{
	struct control *c = arg;

	drain_frames(c); /* what came with the start */
	for (;;) {
		run_all(c);
		flush(c);
		if (over(c))
			break;
		round_once(c);
	}
	cancel_lookups(c);
	run_all(c);
	unwatch_all(c);
	if (c->wire.fd >= 0)
		say_goodbye(c);
	return NULL;
}
