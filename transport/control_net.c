/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets of the control plane. A table of all open ones exists for the
 * child handler of fork(), which closes them there.
 */
#include "control_net.h"
#include "error.h"
#include "thread.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* A host that vanished is noticed after this long, until heartbeats do. */
#define NET_DEAD_MS    8000
#define NET_PATIENT_MS 120000
/* One address of several must not use up the deadline. */
#define NET_DIAL_MS 3000

int64_t net_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

int64_t net_deadline(int timeout_ms)
{
	return timeout_ms < 0 ? NET_NEVER : net_now_ms() + timeout_ms;
}

int net_remaining(int64_t deadline)
{
	int64_t left;

	if (deadline == NET_NEVER)
		return -1;
	left = deadline - net_now_ms();
	return left < 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

int64_t net_sooner(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* ---- open sockets, for fork ---- */

static pthread_mutex_t guard_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t guard_once = PTHREAD_ONCE_INIT;
static int *guarded;
static size_t guarded_count, guarded_room;

static void guard_prepare(void)
{
	pthread_mutex_lock(&guard_lock);
}

static void guard_parent(void)
{
	pthread_mutex_unlock(&guard_lock);
}

static void guard_child(void)
{
	for (size_t i = 0; i < guarded_count; i++)
		close(guarded[i]);
	guarded_count = 0;
	pthread_mutex_unlock(&guard_lock);
}

static void guard_install(void)
{
	pthread_atfork(guard_prepare, guard_parent, guard_child);
}

static int guard(int fd)
{
	int rc = 0;

	pthread_once(&guard_once, guard_install);
	pthread_mutex_lock(&guard_lock);
	if (guarded_count == guarded_room) {
		size_t room = guarded_room ? 2 * guarded_room : 64;
		int *more = realloc(guarded, room * sizeof(*more));

		if (more) {
			guarded = more;
			guarded_room = room;
		} else {
			rc = -ENOMEM;
		}
	}
	if (!rc)
		guarded[guarded_count++] = fd;
	pthread_mutex_unlock(&guard_lock);
	if (rc)
		close(fd);
	return rc;
}

void net_close(int fd)
{
	if (fd < 0)
		return;
	/* Under the lock: a fork must not see a number that is another's. */
	pthread_mutex_lock(&guard_lock);
	for (size_t i = guarded_count; i-- > 0;)
		if (guarded[i] == fd) {
			guarded[i] = guarded[--guarded_count];
			break;
		}
	if (!guarded_count) {
		free(guarded);
		guarded = NULL;
		guarded_room = 0;
	}
	close(fd);
	pthread_mutex_unlock(&guard_lock);
}

/* ---- names ---- */

/* A look-up that may outlast whoever asked for it: getaddrinfo() blocks. */
struct lookup {
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool finished, abandoned;
	int rc;
	struct addrinfo *list;
	char host[256], port[8];
};

static void lookup_free(struct lookup *l)
{
	pthread_mutex_destroy(&l->lock);
	pthread_cond_destroy(&l->done);
	free(l);
}

static int lookup_now(const char *host, const char *port, int flags,
		      struct addrinfo **list)
{
	const struct addrinfo hints = {
		.ai_flags = AI_NUMERICSERV | flags,
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
	};

	return getaddrinfo(host, port, &hints, list);
}

static void *lookup_thread(void *arg)
{
	struct lookup *l = arg;
	struct addrinfo *list = NULL;
	int rc = lookup_now(l->host, l->port, 0, &list);
	bool abandoned;

	pthread_mutex_lock(&l->lock);
	l->rc = rc;
	l->list = rc ? NULL : list;
	l->finished = true;
	abandoned = l->abandoned;
	pthread_cond_signal(&l->done);
	pthread_mutex_unlock(&l->lock);
	if (abandoned) {
		if (!rc)
			freeaddrinfo(list);
		lookup_free(l);
	}
	return NULL;
}

static struct lookup *lookup_create(const char *host, const char *port)
{
	struct lookup *l = calloc(1, sizeof(*l));
	pthread_condattr_t attr;

	if (!l)
		return NULL;
	snprintf(l->host, sizeof(l->host), "%s", host);
	snprintf(l->port, sizeof(l->port), "%s", port);
	pthread_mutex_init(&l->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&l->done, &attr);
	pthread_condattr_destroy(&attr);
	return l;
}

/* 0 and the list, EAI_AGAIN at the deadline, or another EAI_ code. */
static int lookup_wait(struct lookup *l, int64_t deadline,
		       struct addrinfo **list)
{
	struct timespec t = {.tv_sec = deadline / 1000,
			     .tv_nsec = deadline % 1000 * 1000000};
	int rc = 0;

	pthread_mutex_lock(&l->lock);
	while (!l->finished && rc != ETIMEDOUT) {
		if (deadline == NET_NEVER)
			pthread_cond_wait(&l->done, &l->lock);
		else
			rc = pthread_cond_timedwait(&l->done, &l->lock, &t);
	}
	if (!l->finished) {
		l->abandoned = true;
		pthread_mutex_unlock(&l->lock);
		return EAI_AGAIN;
	}
	rc = l->rc;
	*list = l->list;
	pthread_mutex_unlock(&l->lock);
	lookup_free(l);
	return rc;
}

/* The list without blocking longer than @deadline. */
static int look_up(const char *host, uint16_t port, int64_t deadline,
		   struct addrinfo **list)
{
	struct lookup *l;
	pthread_t thread;
	char service[8];
	int rc;

	snprintf(service, sizeof(service), "%u", (unsigned)port);
	if (!lookup_now(host, service, AI_NUMERICHOST, list))
		return 0;
	l = lookup_create(host, service);
	if (!l)
		return vbn_fail(-ENOMEM, "no memory to look up %s", host);
	rc = vbn_thread_start(&thread, "vbn-lookup", lookup_thread, l);
	if (rc) {
		lookup_free(l);
		return vbn_fail(rc, "cannot start a thread: %s", strerror(-rc));
	}
	pthread_detach(thread);
	rc = lookup_wait(l, deadline, list);
	if (rc)
		return vbn_fail(-ENXIO,
				"cannot look up host %s of the job's address: "
				"%s; check VBN_ADDRESS or MASTER_ADDR",
				host, gai_strerror(rc));
	return 0;
}

int net_resolve(const char *host, uint16_t port, int64_t deadline,
		struct net_addr *addrs, size_t room, size_t *n)
{
	struct addrinfo *list;
	int rc = look_up(host, port, deadline, &list);

	if (rc)
		return rc;
	*n = 0;
	for (const struct addrinfo *ai = list; ai && *n < room;
	     ai = ai->ai_next) {
		memcpy(&addrs[*n].sa, ai->ai_addr, ai->ai_addrlen);
		addrs[(*n)++].len = ai->ai_addrlen;
	}
	freeaddrinfo(list);
	return 0;
}

void net_name(int fd, bool peer, char *buf, size_t len)
{
	struct sockaddr_storage addr = {0};
	socklen_t addr_len = sizeof(addr);
	char host[INET6_ADDRSTRLEN], port[8];
	int rc = peer ? getpeername(fd, (struct sockaddr *)&addr, &addr_len)
		      : getsockname(fd, (struct sockaddr *)&addr, &addr_len);

	if (rc ||
	    getnameinfo((struct sockaddr *)&addr, addr_len, host, sizeof(host),
			port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(buf, len, "?");
	else
		snprintf(buf, len,
			 addr.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
			 port);
}

/* ---- sockets ---- */

static void set_option(int fd, int level, int name, int value)
{
	/* All of them only sharpen timing: a kernel may refuse one. */
	if (setsockopt(fd, level, name, &value, sizeof(value)))
		vbn_log(VBN_DEBUG, "setsockopt %d, %d: %s", level, name,
			strerror(errno));
}

static void tune(int fd)
{
	set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 2);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, NET_DEAD_MS / 2000 - 1);
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, NET_DEAD_MS);
}

void net_patient(int fd)
{
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 0);
	set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, NET_PATIENT_MS);
	set_option(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
}

static int make_socket(sa_family_t family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
			IPPROTO_TCP);

	return fd < 0 ? -errno : fd;
}

static int listen_at(const struct net_addr *addr, bool v6only, int *out)
{
	int fd = make_socket(addr->sa.ss_family);
	int rc;

	if (fd < 0)
		return fd;
	set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
	if (addr->sa.ss_family == AF_INET6)
		set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, v6only);
	if (bind(fd, (const struct sockaddr *)&addr->sa, addr->len) ||
	    listen(fd, SOMAXCONN)) {
		rc = -errno;
		close(fd);
		return rc;
	}
	rc = guard(fd);
	if (!rc)
		*out = fd;
	return rc;
}

int net_listen(const struct net_addr *addr, int *fd)
{
	return listen_at(addr, true, fd);
}

int net_listen_any(uint16_t port, int *fd)
{
	struct net_addr any = {.len = sizeof(struct sockaddr_in6)};
	int rc;

	any.sa.ss_family = AF_INET6; /* all zero: every address */
	net_addr_set_port(&any, port);
	rc = listen_at(&any, false, fd);
	if (rc != -EAFNOSUPPORT && rc != -EADDRNOTAVAIL)
		return rc;
	/* No IPv6 here. */
	any = (struct net_addr){.len = sizeof(struct sockaddr_in)};
	any.sa.ss_family = AF_INET;
	net_addr_set_port(&any, port);
	return listen_at(&any, true, fd);
}

int net_adopt_listener(int fd)
{
	int on = 0, flags = fcntl(fd, F_GETFL), rc;
	socklen_t len = sizeof(on);

	if (flags < 0)
		return vbn_fail(-EBADF, "listen_fd: descriptor %d is not open",
				fd);
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) || !on) {
		close(fd);
		return vbn_fail(-EINVAL,
				"listen_fd: descriptor %d is not a listening "
				"socket",
				fd);
	}
	if (fcntl(fd, F_SETFL, flags | O_NONBLOCK) ||
	    fcntl(fd, F_SETFD, FD_CLOEXEC)) {
		rc = -errno;
		close(fd);
		return vbn_fail(rc, "listen_fd: %s", strerror(-rc));
	}
	rc = guard(fd);
	return rc ? vbn_fail(rc, "no memory for a socket") : 0;
}

int net_accept(int listen_fd, int *out)
{
	int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	int rc;

	if (fd < 0)
		return -errno;
	tune(fd);
	rc = guard(fd);
	if (!rc)
		*out = fd;
	return rc;
}

/*
 * A connect to a port of the ephemeral range on this machine, where nobody
 * listens yet, can meet itself.
 */
static bool is_self(int fd)
{
	struct sockaddr_storage a = {0}, b = {0};
	socklen_t alen = sizeof(a), blen = sizeof(b);

	return !getsockname(fd, (struct sockaddr *)&a, &alen) &&
	       !getpeername(fd, (struct sockaddr *)&b, &blen) && alen == blen &&
	       !memcmp(&a, &b, alen);
}

static int dial(int fd, const struct net_addr *to, int64_t deadline)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	socklen_t len = sizeof(int);
	int err = 0, n;

	if (connect(fd, (const struct sockaddr *)&to->sa, to->len)) {
		if (errno != EINPROGRESS && errno != EINTR)
			return -errno;
		do
			n = poll(&p, 1, net_remaining(deadline));
		while (n < 0 && errno == EINTR);
		if (n <= 0)
			return n ? -errno : -ETIMEDOUT;
		if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &len))
			return -errno;
	}
	if (!err && is_self(fd))
		return -ECONNREFUSED;
	return -err;
}

int net_connect(const struct net_addr *to, const struct net_addr *from,
		int64_t deadline, int *out)
{
	int fd = make_socket(to->sa.ss_family), rc = 0;

	if (fd < 0)
		return fd;
	if (from && bind(fd, (const struct sockaddr *)&from->sa, from->len))
		rc = -errno;
	if (!rc)
		rc = dial(fd, to,
			  net_sooner(deadline, net_deadline(NET_DIAL_MS)));
	if (rc) {
		close(fd);
		return rc;
	}
	tune(fd);
	rc = guard(fd);
	if (!rc)
		*out = fd;
	return rc;
}

int net_pair(int fds[2])
{
	int pair[2], rc;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
		       pair))
		return -errno;
	rc = guard(pair[0]);
	if (rc) {
		close(pair[1]);
		return rc;
	}
	rc = guard(pair[1]);
	if (rc) {
		net_close(pair[0]);
		return rc;
	}
	fds[0] = pair[0];
	fds[1] = pair[1];
	return 0;
}
