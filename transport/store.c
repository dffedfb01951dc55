/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store's thread: connections, handshakes, the loop.
 *
 * A stranger costs a place (PENDING_MAX more than ranks to come) for
 * HANDSHAKE_MS at most, or less when others come: the oldest connection that
 * has not proved itself gives way. A rank that lost its place so tries again.
 */
#include "store_impl.h"
#include "control_net.h"
#include "error.h"
#include "thread.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define PENDING_MAX	128
#define HANDSHAKE_MS	5000
#define HANDSHAKE_BYTES 128 /* more than the longest message of it */
#define ACCEPT_PAUSE_MS 100
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
		vbn_log(VBN_WARN, "the store cuts off rank %d: %s", p->rank,
			rc == -ENOBUFS ? "it does not read what it is sent"
				       : "no memory");
		peer_doom(s, p);
	} else if (!p->want_out) {
		peer_flush(s, p);
	}
}

void peer_send(struct store *s, struct peer *p, struct wire_frame *frame)
{
	if (p->doomed || p->mute)
		free(frame);
	else
		peer_queued(s, p, wire_queue(&p->wire, frame));
}

static void peer_send_raw(struct store *s, struct peer *p, const void *data,
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
		p->deadline = net_deadline(HANDSHAKE_MS);
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
	p->local = local;
	p->state = local ? PEER_JOINING : PEER_GREETING;
	p->deadline = local ? NET_NEVER : net_deadline(HANDSHAKE_MS);
	TAILQ_INSERT_TAIL(&s->pending, p, link);
	s->npending++;
	return 0;
}

static void peer_free(struct store *s, struct peer *p)
{
	/* A child of fork() may still hold the socket: closing is not enough.
	 */
	epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, p->wire.fd, NULL);
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
			store_gone(s, p->rank, true);
		peer_free(s, p);
	}
}

/* ---- handshake ---- */

static void shake_foreign(struct store *s, struct peer *p, uint32_t version)
{
	uint8_t reply[WIRE_GREETING];
	char name[64];

	net_name(p->wire.fd, true, name, sizeof(name));
	if (!s->foreign++)
		vbn_log(VBN_WARN,
			"refused %s: it speaks version %u of the control "
			"protocol, this rank %u",
			name, version, WIRE_VERSION);
	/* The other side reads our version in it. */
	wire_greeting(reply, p->store_nonce);
	peer_send_raw(s, p, reply, sizeof(reply));
	peer_drain(s, p);
}

/* Only the prefix is common to all versions: the rest may never come. */
static bool shake_greeting(struct store *s, struct peer *p)
{
	uint8_t reply[WIRE_GREETING];
	uint32_t version = 0;
	const uint8_t *greeting = wire_peek(&p->wire, WIRE_PREFIX);
	int rc;

	if (!greeting)
		return false;
	rc = wire_greeting_check(greeting, &version);
	if (rc == -ENOMSG) {
		s->strangers++;
		peer_doom(s, p);
		return false;
	}
	if (rc) {
		shake_foreign(s, p, version);
		return true;
	}
	greeting = wire_take(&p->wire, WIRE_GREETING);
	if (!greeting)
		return false;
	memcpy(p->rank_nonce, greeting + WIRE_PREFIX, WIRE_NONCE);
	wire_greeting(reply, p->store_nonce);
	peer_send_raw(s, p, reply, sizeof(reply));
	p->state = PEER_PROOF;
	return true;
}

static void shake_proof(struct store *s, struct peer *p, const uint8_t *proof)
{
	uint8_t mac[WIRE_MAC], verdict[WIRE_VERDICT];
	char name[64];

	wire_mac(mac, s->key, ROLE_RANK, p->rank_nonce, p->store_nonce);
	if (!wire_mac_equal(mac, proof)) {
		memset(mac, 0, sizeof(mac));
		wire_verdict(verdict, VERDICT_DENIED, mac);
		peer_send_raw(s, p, verdict, sizeof(verdict));
		net_name(p->wire.fd, true, name, sizeof(name));
		if (!s->denied++)
			vbn_log(VBN_WARN,
				"refused %s: it does not know the job's secret",
				name);
		peer_drain(s, p);
		return;
	}
	wire_mac(mac, s->key, ROLE_STORE, p->rank_nonce, p->store_nonce);
	wire_verdict(verdict, VERDICT_ACCEPTED, mac);
	peer_send_raw(s, p, verdict, sizeof(verdict));
	p->state = PEER_JOINING;
	p->deadline = net_deadline(HANDSHAKE_MS);
}

/* One step; false: no more input for one. */
static bool peer_step(struct store *s, struct peer *p)
{
	enum wire_type type;
	struct wire_reader reader;
	const uint8_t *raw;
	int rc;

	switch (p->state) {
	case PEER_GREETING:
		return shake_greeting(s, p);
	case PEER_PROOF:
		raw = wire_take(&p->wire, WIRE_MAC);
		if (raw)
			shake_proof(s, p, raw);
		return raw;
	case PEER_JOINING:
	case PEER_JOINED:
		rc = wire_next(&p->wire, &type, &reader);
		if (rc < 0) {
			vbn_log(VBN_WARN, "rank %d sent no frame of ours",
				p->rank);
			peer_doom(s, p);
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
		peer_doom(s, p);
		return;
	}
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
	s->accept_again = on ? NET_NEVER : net_deadline(ACCEPT_PAUSE_MS);
}

/* Make the oldest connection that has not proved itself give way. */
static void evict(struct store *s)
{
	struct peer *p = TAILQ_FIRST(&s->pending);

	while (p && p->state == PEER_JOINING)
		p = TAILQ_NEXT(p, link);
	if (p) {
		s->strangers++;
		peer_doom(s, p);
	}
}

static void accept_some(struct store *s)
{
	int fd, rc;

	for (int i = 0; i < ROUND_EVENTS; i++) {
		rc = net_accept(s->listen_fd, &fd);
		if (rc == -EAGAIN)
			return;
		if (rc == -EINTR || rc == -ECONNABORTED)
			continue;
		if (rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ||
		    rc == -ENOBUFS) {
			evict(s);
			listen_watch(s, false);
			return;
		}
		if (rc) /* of that connection, which is gone */
			continue;
		/* Ranks to come may all come at once. */
		if (s->npending >=
		    PENDING_MAX + (unsigned)(s->nranks - s->njoined))
			evict(s);
		peer_create(s, fd, false);
	}
}

/* ---- the loop ---- */

static int64_t next_deadline(struct store *s)
{
	int64_t next = net_sooner(s->start_deadline, s->accept_again);
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
	if (s->accept_again <= now)
		listen_watch(s, true);
}

static void round_once(struct store *s, int64_t deadline)
{
	struct epoll_event events[ROUND_EVENTS];
	uint64_t count;
	int n;

	deadline = net_sooner(deadline, next_deadline(s));
	n = epoll_wait(s->epoll_fd, events, ROUND_EVENTS,
		       net_remaining(deadline));
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
	reap(s);
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
		store_gone(s, 0, false);
	while ((p = TAILQ_FIRST(&s->joined)))
		peer_drain(s, p);
	if (s->listen_fd >= 0) {
		epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, s->listen_fd, NULL);
		net_close(s->listen_fd);
		s->listen_fd = -1;
	}
	s->accept_again = NET_NEVER;
	for (p = TAILQ_FIRST(&s->pending); p; p = next) {
		next = TAILQ_NEXT(p, link);
		/* Its FRAME_JOIN may be under way, meant for the next job. */
		if (p->state == PEER_JOINING && !p->local)
			store_refuse(s, p,
				     s->failed ? s->refusal : REFUSED_BUSY,
				     s->failed ? s->why : "the job has ended");
		if (p->state == PEER_DRAIN)
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
	wire_key(s->key, opts->secret);
	s->listen_fd = opts->listen_fd;
	s->accept_again = s->start_deadline = NET_NEVER;
	s->first_gone = -1;
	s->nranks = opts->nranks;
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	s->members = calloc((size_t)opts->nranks, sizeof(*s->members));
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
	if (!s || !s->members || !s->kv || s->epoll_fd < 0 || s->wake_fd < 0)
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
