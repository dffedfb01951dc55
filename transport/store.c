/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store's thread: connections, the loop.
 *
 * A stranger costs a place (PENDING_MAX more than ranks to come) for
 * STORE_HANDSHAKE_MS at most, or less when others come: the oldest connection
 * that has not proved itself gives way. A rank that lost its place so tries
 * again.
 */
#include "store_impl.h"
#include "control_net.h"
#include "error.h"
#include "thread.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define PENDING_MAX	128
#define HANDSHAKE_BYTES 128 /* more than the longest message of it */
#define ACCEPT_PAUSE_MS 100
#define YOUNG_MS	20
#define LINGER_MS	500
#define ROUND_EVENTS	64

/* ---- peers ---- */

static void peer_watch(struct store *s, struct peer *p, bool out)
{
	struct epoll_event ev = {.events = EPOLLIN | (out ? EPOLLOUT : 0),
				 .data.ptr = p};

	p->want_out = out;
	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, p->wire.fd, &ev))
		peer_doom(s, p);
}

static void peer_flush(struct store *s, struct peer *p)
{
	int rc = p->mute ? 0 : wire_flush(&p->wire);

	if (rc < 0)
		p->mute = true;
	else if ((rc == 1) != p->want_out)
		peer_watch(s, p, rc == 1);
}

static void peer_queued(struct store *s, struct peer *p, int rc)
{
	if (rc) {
		snprintf(p->why, sizeof(p->why), "%s",
			 rc == -ENOBUFS ? "it does not read what it is sent"
					: "rank 0 has no memory for it");
		vbn_log(VBN_WARN, "the store cuts off rank %d: %s", p->rank,
			p->why);
		peer_doom(s, p);
	} else if (!p->want_out && !p->dirty) {
		p->dirty = true;
		TAILQ_INSERT_TAIL(&s->dirty, p, dirty_link);
	}
}

/* Once a round: what was queued to one peer meanwhile goes together. */
static void flush_dirty(struct store *s)
{
	struct peer *p;

	while ((p = TAILQ_FIRST(&s->dirty))) {
		TAILQ_REMOVE(&s->dirty, p, dirty_link);
		p->dirty = false;
		peer_flush(s, p);
		if (p->state == PEER_DRAIN && !p->wire.out)
			shutdown(p->wire.fd, SHUT_WR);
	}
}

void peer_send(struct store *s, struct peer *p, struct wire_frame *frame)
{
	if (p->doomed || p->mute)
		free(frame);
	else
		peer_queued(s, p, wire_queue(&p->wire, frame));
}

void peer_send_raw(struct store *s, struct peer *p, const void *data,
		   size_t len)
{
	if (!p->doomed && !p->mute)
		peer_queued(s, p, wire_queue_raw(&p->wire, data, len));
}

void peer_doom(struct store *s, struct peer *p)
{
	if (p->doomed)
		return;
	p->doomed = true;
	if (p->state == PEER_JOINED) {
		TAILQ_REMOVE(&s->joined, p, link);
	} else {
		TAILQ_REMOVE(&s->pending, p, link);
		s->npending--;
	}
	TAILQ_INSERT_TAIL(&s->doomed, p, link);
}

void peer_drain(struct store *s, struct peer *p)
{
	if (p->doomed)
		return;
	if (p->state == PEER_JOINED) {
		TAILQ_REMOVE(&s->joined, p, link);
		TAILQ_INSERT_TAIL(&s->pending, p, link);
		s->npending++;
		p->deadline = net_deadline(STORE_HANDSHAKE_MS);
	}
	p->state = PEER_DRAIN;
	p->rank = -1;
	if (!p->wire.out)
		shutdown(p->wire.fd, SHUT_WR);
}

static int peer_create(struct store *s, int fd, bool local)
{
	struct peer *p = calloc(1, sizeof(*p));
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = p};

	if (!p || epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &ev)) {
		int rc = p ? -errno : -ENOMEM;

		free(p);
		net_close(fd);
		return rc;
	}
	wire_init(&p->wire, fd);
	p->rank = -1;
	p->local = p->proved = local;
	p->born = net_now_ms();
	p->state = local ? PEER_JOINING : PEER_GREETING;
	p->deadline = local ? NET_NEVER : net_deadline(STORE_HANDSHAKE_MS);
	TAILQ_INSERT_TAIL(&s->pending, p, link);
	s->npending++;
	return 0;
}

static void peer_free(struct store *s, struct peer *p)
{
	/* A child of fork() may still hold the socket: closing is not enough.
	 */
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, p->wire.fd, NULL);
	if (p->dirty)
		TAILQ_REMOVE(&s->dirty, p, dirty_link);
	wire_close(&p->wire);
	sodium_memzero(p, sizeof(*p));
	free(p);
}

static void reap(struct store *s)
{
	struct peer *p;

	while ((p = TAILQ_FIRST(&s->doomed))) {
		TAILQ_REMOVE(&s->doomed, p, link);
		if (p->rank >= 0)
			store_gone(s, p->rank, true, p->why);
		peer_free(s, p);
	}
}

/* ---- input ---- */

/* One step; false: no more input for one. */
static bool peer_step(struct store *s, struct peer *p)
{
	enum wire_type type;
	struct wire_reader reader;
	int rc;

	switch (p->state) {
	case PEER_GREETING:
	case PEER_PROOF:
		return store_shake(s, p);
	case PEER_JOINING:
	case PEER_JOINED:
		rc = wire_next(&p->wire, &type, &reader);
		if (rc < 0) {
			store_broken_rules(s, p,
					   rc == -EBADMSG ? "what its key did "
							    "not seal"
							  : "no frame of ours");
		} else if (rc) {
			store_frame(s, p, type, &reader);
		}
		return rc > 0;
	case PEER_DRAIN:
		wire_take(&p->wire, p->wire.in_len - p->wire.in_off);
		return false;
	}
	return false;
}

static void peer_readable(struct store *s, struct peer *p)
{
	int rc = wire_fill(&p->wire, p->state == PEER_JOINED ? SIZE_MAX
							     : HANDSHAKE_BYTES);

	if (rc == -EAGAIN)
		return;
	if (rc <= 0) {
		if (p->state < PEER_JOINING)
			s->strangers++;
		snprintf(p->why, sizeof(p->why), "its connection %s%s",
			 rc ? "broke: " : "closed", rc ? strerror(-rc) : "");
		peer_doom(s, p);
		return;
	}
	p->heard = net_now_ms();
	while (!p->doomed && peer_step(s, p))
		;
}

static void peer_event(struct store *s, struct peer *p, uint32_t events)
{
	if (p->doomed)
		return;
	if (events & EPOLLOUT) {
		peer_flush(s, p);
		if (p->state == PEER_DRAIN && !p->wire.out)
			shutdown(p->wire.fd, SHUT_WR);
	}
	if (!p->doomed && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		peer_readable(s, p);
}

/* ---- accepting ---- */

static void listen_watch(struct store *s, bool on)
{
	struct epoll_event ev = {.events = on ? EPOLLIN : 0,
				 .data.ptr = &s->listen_fd};

	epoll_ctl(s->epoll_fd, EPOLL_CTL_MOD, s->listen_fd, &ev);
}

static void listen_pause(struct store *s, int ms)
{
	listen_watch(s, false);
	s->accept_again = net_deadline(ms);
}

/*
 * Who gives way to the next, or NULL: the oldest that was refused, else the
 * oldest that has not proved itself.
 */
static struct peer *victim(struct store *s)
{
	struct peer *p, *oldest = NULL;

	for (p = TAILQ_FIRST(&s->pending); p; p = TAILQ_NEXT(p, link)) {
		if (p->state == PEER_DRAIN)
			return p;
		if (!oldest && p->state != PEER_JOINING)
			oldest = p;
	}
	return oldest;
}

static void evict(struct store *s)
{
	struct peer *p = victim(s);

	if (p) {
		s->strangers++;
		peer_doom(s, p);
	}
}

/* Ranks to come may all come at once. */
static bool full(const struct store *s)
{
	return s->npending >= PENDING_MAX + (unsigned)(s->nranks - s->njoined);
}

/* Each has YOUNG_MS to prove itself; others wait in the kernel's queue. */
static bool all_young(struct store *s)
{
	const struct peer *p = victim(s);

	return p && net_now_ms() - p->born < YOUNG_MS;
}

static void accept_some(struct store *s)
{
	int fd, rc;

	for (int i = 0; i < ROUND_EVENTS; i++) {
		if (full(s) && all_young(s)) {
			listen_pause(s, YOUNG_MS / 2);
			s->crowded = true;
			return;
		}
		rc = net_accept(s->listen_fd, &fd);
		if (rc == -EAGAIN)
			return;
		if (rc == -EINTR || rc == -ECONNABORTED)
			continue;
		if (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ||
		    rc == -ENOBUFS) {
			evict(s);
			listen_pause(s, ACCEPT_PAUSE_MS);
			return;
		}
		if (rc) /* of that connection, which is gone */
			continue;
		if (full(s))
			evict(s);
		peer_create(s, fd, false);
	}
}

/* ---- the loop ---- */

static int64_t next_deadline(struct store *s)
{
	int64_t next = net_sooner(net_sooner(s->start_deadline, s->live_at),
				  net_sooner(s->accept_again, s->left_at));
	struct peer *p;

	TAILQ_FOREACH(p, &s->pending, link)
	next = net_sooner(next, p->deadline);
	return next;
}

static void timers(struct store *s)
{
	int64_t now = net_now_ms();
	struct peer *p, *next;

	for (p = TAILQ_FIRST(&s->pending); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->deadline <= now) {
			s->strangers += p->state < PEER_JOINING;
			peer_doom(s, p);
		}
	}
	if (s->start_deadline <= now)
		store_start_timeout(s);
	if (s->left_at <= now)
		store_tell_left(s);
}

static void accept_again(struct store *s)
{
	if (s->accept_again > net_now_ms() && (!s->crowded || full(s)))
		return;
	listen_watch(s, true);
	s->accept_again = NET_NEVER;
	s->crowded = false;
}

static void round_once(struct store *s, int64_t deadline)
{
	struct epoll_event events[ROUND_EVENTS];
	uint64_t count;
	int n;

	flush_dirty(s);
	deadline = net_sooner(deadline, next_deadline(s));
	n = epoll_wait(s->epoll_fd, events, ROUND_EVENTS,
		       net_remaining(deadline));
	store_live_woke(s, net_now_ms());
	for (int i = 0; i < n; i++) {
		void *ptr = events[i].data.ptr;

		if (ptr == &s->listen_fd)
			accept_some(s);
		else if (ptr == &s->wake_fd)
			(void)!read(s->wake_fd, &count, sizeof(count));
		else
			peer_event(s, ptr, events[i].events);
	}
	timers(s);
	store_live_round(s, n == ROUND_EVENTS);
	reap(s);
	accept_again(s);
}

static bool stop_asked(struct store *s, int64_t *deadline)
{
	bool stop;

	pthread_mutex_lock(&s->lock);
	stop = s->stop;
	*deadline = stop ? s->stop_deadline : NET_NEVER;
	pthread_mutex_unlock(&s->lock);
	return stop;
}

/* Everyone still here reads the last news, and closes. */
static void farewell(struct store *s)
{
	int64_t deadline = net_deadline(LINGER_MS);
	struct peer *p, *next;

	if (!s->started && !s->failed)
		store_fail_start(s, REFUSED_DEATH,
				 "rank 0 gave up the start of the job");
	if (s->started && s->members[0].state == MEMBER_JOINED)
		store_gone(s, 0, false, "");
	store_tell_left(s);
	while ((p = TAILQ_FIRST(&s->joined)))
		peer_drain(s, p);
	if (s->listen_fd >= 0) {
		epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->listen_fd, NULL);
		net_close(s->listen_fd);
		s->listen_fd = -1;
	}
	s->accept_again = NET_NEVER;
	s->crowded = false;
	for (p = TAILQ_FIRST(&s->pending); p; p = next) {
		next = TAILQ_NEXT(p, link);
		/* Its FRAME_JOIN may be under way, meant for the next job. */
		if (p->state == PEER_JOINING && !p->local)
			store_refuse(s, p,
				     s->failed ? s->refusal : REFUSED_BUSY,
				     s->failed ? s->why : "the job has ended");
		if (p->state == PEER_DRAIN && p->proved)
			p->deadline = deadline;
		else /* at once: one step more, and it would be JOINING */
			peer_doom(s, p);
	}
	reap(s);
	while (TAILQ_FIRST(&s->pending) && net_now_ms() <= deadline)
		round_once(s, deadline);
}

static void *store_main(void *arg)
{
	struct store *s = arg;
	int64_t deadline;
	struct peer *p;

	while (!stop_asked(s, &deadline) ||
	       (s->started && s->nothers && net_now_ms() < deadline))
		round_once(s, deadline);
	farewell(s);
	while ((p = TAILQ_FIRST(&s->pending)))
		peer_doom(s, p);
	reap(s);
	return NULL;
}

/* ---- start and stop ---- */

static void store_free(struct store *s)
{
	struct peer *p;

	while ((p = TAILQ_FIRST(&s->pending))) {
		TAILQ_REMOVE(&s->pending, p, link);
		peer_free(s, p);
	}
	store_free_ranks(s);
	net_close(s->listen_fd);
	if (s->epoll_fd >= 0)
		close(s->epoll_fd);
	if (s->wake_fd >= 0)
		close(s->wake_fd);
	pthread_mutex_destroy(&s->lock);
	sodium_memzero(s->key, sizeof(s->key));
	free(s);
}

static struct store *store_alloc(const struct store_options *opts)
{
	struct store *s = calloc(1, sizeof(*s));

	if (!s) {
		net_close(opts->listen_fd);
		return NULL;
	}
	pthread_mutex_init(&s->lock, NULL);
	TAILQ_INIT(&s->pending);
	TAILQ_INIT(&s->joined);
	TAILQ_INIT(&s->doomed);
	TAILQ_INIT(&s->dirty);
	wire_key(s->key, opts->secret);
	s->listen_fd = opts->listen_fd;
	s->accept_again = s->start_deadline = NET_NEVER;
	s->live_at = s->left_at = NET_NEVER;
	s->dead_ms = opts->dead_ms;
	s->first_gone = -1;
	s->nranks = opts->nranks;
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->members = calloc((size_t)opts->nranks, sizeof(*s->members));
	s->left = calloc((size_t)opts->nranks, sizeof(*s->left));
	s->kv = kv_create();
	return s;
}

static int watch_own(struct store *s)
{
	struct epoll_event wake = {.events = EPOLLIN, .data.ptr = &s->wake_fd};
	struct epoll_event more = {.events = EPOLLIN,
				   .data.ptr = &s->listen_fd};

	if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->wake_fd, &wake))
		return -errno;
	if (s->listen_fd >= 0 &&
	    epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->listen_fd, &more))
		return -errno;
	return 0;
}

static int check_descriptors(int nranks)
{
	struct rlimit limit;

	if (!getrlimit(RLIMIT_NOFILE, &limit) &&
	    limit.rlim_cur < (rlim_t)nranks + 32)
		return vbn_fail(-EMFILE,
				"rank 0 needs a descriptor for each of %d "
				"ranks and 32 more, its limit is %lu: raise "
				"it (ulimit -n)",
				nranks, (unsigned long)limit.rlim_cur);
	return 0;
}

int store_start(struct store **store, const struct store_options *opts,
		int *local_fd)
{
	struct store *s;
	int pair[2] = {-1, -1}, rc = check_descriptors(opts->nranks);

	if (rc) {
		net_close(opts->listen_fd);
		return rc;
	}
	s = store_alloc(opts);
	if (!s || !s->members || !s->left || !s->kv || s->epoll_fd < 0 ||
	    s->wake_fd < 0)
		rc = -ENOMEM;
	if (!rc)
		rc = watch_own(s);
	if (!rc)
		rc = net_pair(pair);
	if (!rc) {
		rc = peer_create(s, pair[0], true);
		if (!rc)
			rc = vbn_thread_start(&s->thread, "vbn-store",
					      store_main, s);
	}
	if (rc) {
		net_close(pair[1]);
		if (s)
			store_free(s);
		return vbn_fail(rc, "cannot start the job's store: %s",
				strerror(-rc));
	}
	*local_fd = pair[1];
	*store = s;
	return 0;
}

void store_stop(struct store *s, int timeout_ms)
{
	uint64_t one = 1;

	pthread_mutex_lock(&s->lock);
	s->stop = true;
	s->stop_deadline = net_deadline(timeout_ms);
	pthread_mutex_unlock(&s->lock);
	/* It can only fail when the counter is full: it is awake then. */
	(void)!write(s->wake_fd, &one, sizeof(one));
	pthread_join(s->thread, NULL);
	store_free(s);
}
