/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The descriptor server. One request a connection: cookie and id in, one byte
 * and the descriptor out. A caller of another user is dropped unread, a slow
 * one after SERVE_TIMEOUT_MS.
 */
#include "share.h"

#include "error.h"
#include "thread.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* One is served at a time: who says nothing must not hold up the others. */
#define SERVE_TIMEOUT_MS 500
#define FETCH_TIMEOUT_MS 10000
#define ACCEPT_PAUSE_MS	 50

struct request {
	uint8_t cookie[SHARE_COOKIE];
	uint32_t id;
};

struct share {
	int listen_fd, stop_fd;
	pthread_t thread;
	pthread_mutex_t lock; /* guards fds */
	int *fds;	      /* by id - 1; -1 free */
	int nfds;
	uint8_t address[SHARE_BYTES]; /* name, zero padded; cookie */
};

static socklen_t make_address(struct sockaddr_un *sun, const uint8_t *name)
{
	size_t n = strnlen((const char *)name, SHARE_NAME);

	memset(sun, 0, sizeof(*sun));
	sun->sun_family = AF_UNIX;
	memcpy(sun->sun_path + 1, name, n); /* abstract: leading zero */
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

static void set_timeouts(int fd, int ms)
{
	struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof(t));
}

union control_room {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

static void send_fd(int sock, int fd)
{
	char byte = 1;
	struct iovec iov = {&byte, 1};
	union control_room room = {0};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

	if (fd >= 0) {
		struct cmsghdr *cmsg;

		msg.msg_control = &room;
		msg.msg_controllen = sizeof(room);
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cmsg), &fd, sizeof(int));
	}
	if (sendmsg(sock, &msg, MSG_NOSIGNAL) < 0)
		vbn_log(VBN_DEBUG, "share: sendmsg: %s", strerror(errno));
}

/* Who is at the other end: 0, -EACCES another user, -errno. */
static int check_user(int sock, uid_t *uid)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return -errno;
	*uid = cred.uid;
	return cred.uid == geteuid() ? 0 : -EACCES;
}

static void serve(struct share *share, int sock)
{
	struct request request;
	uint32_t id;
	uid_t uid;

	if (check_user(sock, &uid))
		return;
	set_timeouts(sock, SERVE_TIMEOUT_MS);
	if (recv(sock, &request, sizeof(request), 0) != sizeof(request) ||
	    memcmp(request.cookie, share->address + SHARE_NAME, SHARE_COOKIE))
		return;
	id = request.id;
	/* Locked while sending, so that the descriptor is not closed by then.
	 */
	pthread_mutex_lock(&share->lock);
	send_fd(sock, id >= 1 && id <= (uint32_t)share->nfds
			      ? share->fds[id - 1]
			      : -1);
	pthread_mutex_unlock(&share->lock);
}

static void *serve_all(void *arg)
{
	struct share *share = arg;
	struct pollfd pfds[2] = {{.fd = share->listen_fd, .events = POLLIN},
				 {.fd = share->stop_fd, .events = POLLIN}};

	for (;;) {
		int sock;

		if (poll(pfds, 2, -1) < 0 && errno != EINTR)
			break;
		if (pfds[1].revents)
			break;
		if (!pfds[0].revents)
			continue;
		sock = accept4(share->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		if (sock < 0) {
			/* for want of descriptors: it stays readable */
			poll(&pfds[1], 1, ACCEPT_PAUSE_MS);
			continue;
		}
		serve(share, sock);
		close(sock);
	}
	return NULL;
}

static int start_thread(struct share *share)
{
	int err = vbn_thread_start(&share->thread, "vbn-shm", serve_all, share);

	return err ? vbn_fail(err, "shm: no thread: %s", strerror(-err)) : 0;
}

static int listen_on(struct share *share)
{
	struct sockaddr_un sun;
	socklen_t len;
	uint64_t random;

	if (getrandom(&random, sizeof(random), 0) != sizeof(random) ||
	    getrandom(share->address + SHARE_NAME, SHARE_COOKIE, 0) !=
		    SHARE_COOKIE)
		return vbn_fail(-EIO, "shm: no random bytes");
	snprintf((char *)share->address, SHARE_NAME, "verbena-%d-%016llx",
		 (int)getpid(), (unsigned long long)random);
	len = make_address(&sun, share->address);
	share->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (share->listen_fd < 0 ||
	    bind(share->listen_fd, (struct sockaddr *)&sun, len) < 0 ||
	    listen(share->listen_fd, 128) < 0)
		return vbn_fail(-errno, "shm: no Unix socket: %s",
				strerror(errno));
	share->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (share->stop_fd < 0)
		return vbn_fail(-errno, "shm: eventfd: %s", strerror(errno));
	return 0;
}

static void share_free(struct share *share)
{
	if (share->listen_fd >= 0)
		close(share->listen_fd);
	if (share->stop_fd >= 0)
		close(share->stop_fd);
	pthread_mutex_destroy(&share->lock);
	free(share->fds);
	free(share);
}

int share_open(struct share **out)
{
	struct share *share = calloc(1, sizeof(*share));
	int err;

	if (!share)
		return vbn_fail(-ENOMEM, "shm: no memory");
	share->listen_fd = share->stop_fd = -1;
	pthread_mutex_init(&share->lock, NULL);
	err = listen_on(share);
	if (!err)
		err = start_thread(share);
	if (err) {
		share_free(share);
		return err;
	}
	*out = share;
	return 0;
}

void share_close(struct share *share)
{
	uint64_t one = 1;

	if (write(share->stop_fd, &one, sizeof(one)) < 0)
		vbn_log(VBN_ERR, "shm: eventfd: %s", strerror(errno));
	pthread_join(share->thread, NULL);
	share_free(share);
}

int share_export(struct share *share, int fd)
{
	int id = -ENOMEM;

	pthread_mutex_lock(&share->lock);
	for (int i = 0; i < share->nfds && id < 0; i++)
		if (share->fds[i] < 0)
			id = i + 1;
	if (id < 0) {
		int n = share->nfds ? 2 * share->nfds : 16;
		int *fds = realloc(share->fds, (size_t)n * sizeof(*fds));

		if (fds) {
			for (int i = share->nfds; i < n; i++)
				fds[i] = -1;
			id = share->nfds + 1;
			share->fds = fds;
			share->nfds = n;
		}
	}
	if (id > 0)
		share->fds[id - 1] = fd;
	pthread_mutex_unlock(&share->lock);
	return id;
}

void share_withdraw(struct share *share, int id)
{
	pthread_mutex_lock(&share->lock);
	if (id >= 1 && id <= share->nfds)
		share->fds[id - 1] = -1;
	pthread_mutex_unlock(&share->lock);
}

const uint8_t *share_address(const struct share *share)
{
	return share->address;
}

static int receive_fd(int sock)
{
	char byte;
	struct iovec iov = {&byte, 1};
	union control_room room = {0};
	struct msghdr msg = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = &room,
			     .msg_controllen = sizeof(room)};
	struct cmsghdr *cmsg;
	ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
	int fd;

	if (n < 0)
		return errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (n != 1)
		return -EACCES; /* dropped: another user, or a wrong cookie */
	if (msg.msg_flags & MSG_CTRUNC)
		return -EMFILE;
	cmsg = CMSG_FIRSTHDR(&msg);
	if (!cmsg || cmsg->cmsg_type != SCM_RIGHTS)
		return -ENOENT;
	memcpy(&fd, CMSG_DATA(cmsg), sizeof(int));
	return fd;
}

static int refused(const uint8_t *address, int err)
{
	if (err == -EMFILE)
		return vbn_fail(err, "shm: this process has no descriptor left "
				     "to map a peer's memory by: raise ulimit "
				     "-n");
	return vbn_fail(err,
			"shm: process %.*s does not hand out its memory: %s",
			SHARE_NAME, (const char *)address, strerror(-err));
}

/* The cookie goes to nobody but our own user's processes. */
static int connect_ours(int sock, const uint8_t *address)
{
	struct sockaddr_un sun;
	socklen_t len = make_address(&sun, address);
	uid_t uid = 0;
	int err;

	if (connect(sock, (struct sockaddr *)&sun, len) < 0)
		return refused(address, -errno);
	err = check_user(sock, &uid);
	if (err == -EACCES)
		return vbn_fail(err,
				"shm: process %.*s is user %u's, this one user "
				"%u's: memory is shared between processes of "
				"one user only",
				SHARE_NAME, (const char *)address,
				(unsigned)uid, (unsigned)geteuid());
	return err ? refused(address, err) : 0;
}

static int ask(int sock, const uint8_t *address, int id)
{
	struct request request = {.id = (uint32_t)id};
	int err = connect_ours(sock, address);
	int fd;

	if (err)
		return err;
	memcpy(request.cookie, address + SHARE_NAME, SHARE_COOKIE);
	if (send(sock, &request, sizeof(request), MSG_NOSIGNAL) < 0)
		return refused(address, -errno);
	fd = receive_fd(sock);
	return fd < 0 ? refused(address, fd) : fd;
}

int share_fetch(const uint8_t *address, int id)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	int fd;

	if (sock < 0)
		return vbn_fail(-errno, "shm: socket: %s", strerror(errno));
	set_timeouts(sock, FETCH_TIMEOUT_MS);
	fd = ask(sock, address, id);
	close(sock);
	return fd;
}
