/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Processes of the ranks. The secret travels in the environment, never on a
 * command line; the socket of the rendezvous is bound here and inherited by
 * rank 0, so that no other program can take its port in between.
 */
#include "ranks.h"
#include "status.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int ranks_make_secret(struct ranks *r)
{
	unsigned char bytes[32];

	if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes))
		return -EIO;
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(r->secret + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

int ranks_alloc(struct ranks *r, int n)
{
	r->rank = calloc((size_t)n, sizeof(*r->rank));
	if (!r->rank)
		return -ENOMEM;
	r->n = r->total = n;
	r->listen_fd = -1;
	for (int i = 0; i < n; i++)
		r->rank[i].out.fd = r->rank[i].err.fd = -1;
	return 0;
}

int ranks_prepare(struct ranks *r)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(addr);
	int rc = ranks_make_secret(r);

	if (!rc)
		rc = ranks_alloc(r, r->n);
	if (rc)
		return rc;
	r->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (r->listen_fd < 0 ||
	    bind(r->listen_fd, (struct sockaddr *)&addr, sizeof(addr)) ||
	    listen(r->listen_fd, SOMAXCONN) ||
	    getsockname(r->listen_fd, (struct sockaddr *)&addr, &len))
		return -errno;
	snprintf(r->address, sizeof(r->address), "127.0.0.1:%u",
		 (unsigned)ntohs(addr.sin_port));
	return 0;
}

/* ---- in the child ---- */

static void set_number(const char *name, int value)
{
	char text[16];

	snprintf(text, sizeof(text), "%d", value);
	setenv(name, text, 1);
}

static void child_environment(const struct ranks *r, int rank)
{
	set_number("VBN_RANK", rank);
	set_number("VBN_SIZE", r->total);
	set_number("VBN_LOCAL_SIZE", r->n);
	setenv("VBN_ADDRESS", r->address, 1);
	setenv("VBN_SECRET", r->secret, 1);
	if (r->listen_fd >= 0)
		set_number("VBN_LISTEN_FD", r->listen_fd);
	else
		unsetenv("VBN_LISTEN_FD");
	if (r->provider)
		setenv("VBN_PROVIDER", r->provider, 1);
	/* Ranks that share a machine would each take all of its processors. */
	setenv("OPENBLAS_NUM_THREADS", "1", 0);
	setenv("OMP_NUM_THREADS", "1", 0);
}

/*
 * A terminal belongs to the launcher's group: a rank that reads from it would
 * be stopped.
 */
static int child_stdin(const struct ranks *r, int rank)
{
	int fd;

	if (rank == 0 && !r->agent && !isatty(STDIN_FILENO) &&
	    fcntl(STDIN_FILENO, F_GETFD) >= 0)
		return 0;
	fd = open("/dev/null", O_RDONLY);
	if (fd < 0)
		return -errno;
	if (fd != STDIN_FILENO) {
		if (dup2(fd, STDIN_FILENO) < 0)
			return -errno;
		close(fd);
	}
	return 0;
}

static void child_main(const struct ranks *r, int rank, pid_t parent, int out,
		       int err, int report)
{
	int rc;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_LAUNCHER); /* it ended before the line above */
	rc = child_stdin(r, rank);
	if (!rc &&
	    (dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0 ||
	     (r->listen_fd >= 0 && fcntl(r->listen_fd, F_SETFD, 0))))
		rc = -errno;
	if (!rc) {
		child_environment(r, rank);
		signal(SIGPIPE, SIG_DFL);
		sigprocmask(SIG_SETMASK, &r->mask, NULL);
		execvp(r->command[0], r->command);
		rc = -errno;
	}
	(void)!write(report, &rc, sizeof(rc));
	_exit(EXIT_NOT_FOUND);
}

/* ---- in the launcher ---- */

/* 0, or why the child could not run the command. */
static int read_report(int fd)
{
	int rc = 0;
	ssize_t n;

	do
		n = read(fd, &rc, sizeof(rc));
	while (n < 0 && errno == EINTR);
	close(fd);
	return n == (ssize_t)sizeof(rc) ? rc : 0;
}

static void close_pair(int pair[2])
{
	if (pair[0] >= 0)
		close(pair[0]);
	if (pair[1] >= 0)
		close(pair[1]);
}

static int start_one(struct ranks *r, int i, struct sink *out, struct sink *err,
		     const char **what)
{
	int rank = r->first + i;
	int o[2] = {-1, -1}, e[2] = {-1, -1}, report[2] = {-1, -1}, rc;
	pid_t pid, parent = getpid();

	*what = "pipe";
	if (pipe2(o, O_CLOEXEC) || pipe2(e, O_CLOEXEC) ||
	    pipe2(report, O_CLOEXEC))
		goto fail;
	*what = "fork";
	pid = fork();
	if (pid < 0)
		goto fail;
	if (pid == 0)
		child_main(r, rank, parent, o[1], e[1], report[1]);
	setpgid(pid, pid); /* the child does so too: whoever comes first */
	close(o[1]);
	close(e[1]);
	close(report[1]);
	r->rank[i].pid = pid;
	r->rank[i].alive = true;
	r->alive++;
	source_init(&r->rank[i].out, o[0], rank, out);
	source_init(&r->rank[i].err, e[0], rank, err);
	*what = "exec";
	return read_report(report[0]);
fail:
	rc = -errno;
	close_pair(o);
	close_pair(e);
	close_pair(report);
	return rc;
}

int ranks_start(struct ranks *r, struct sink *out, struct sink *err,
		const char **what)
{
	int rc = 0;

	for (int i = 0; i < r->n && !rc; i++) {
		rc = start_one(r, i, out, err, what);
		if (r->listen_fd >= 0) {
			/* From here on it is rank 0's alone. */
			close(r->listen_fd);
			r->listen_fd = -1;
		}
	}
	return rc;
}

void ranks_signal(const struct ranks *r, int sig)
{
	for (int i = 0; i < r->n; i++)
		if (r->rank[i].alive)
			kill(-r->rank[i].pid, sig);
}

int ranks_reap(struct ranks *r)
{
	siginfo_t info = {0};
	int i = 0;

	/* Left a zombie, its group's number cannot be another's yet. */
	if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) ||
	    !info.si_pid)
		return -1;
	while (i < r->n && (!r->rank[i].alive || r->rank[i].pid != info.si_pid))
		i++;
	if (i < r->n) {
		kill(-info.si_pid, SIGKILL);
		r->rank[i].alive = false;
		r->rank[i].code = info.si_code;
		r->rank[i].status = info.si_status;
		r->alive--;
	}
	waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG);
	return i == r->n ? ranks_reap(r) : i;
}

void rank_drain(struct rank *rank)
{
	while (source_read(&rank->out))
		;
	while (source_read(&rank->err))
		;
}

bool rank_failed(const struct rank *rank)
{
	return rank->code != CLD_EXITED || rank->status;
}

int rank_exit_status(const struct rank *rank)
{
	return rank->code == CLD_EXITED ? rank->status : 128 + rank->status;
}

void ranks_free(struct ranks *r)
{
	for (int i = 0; r->rank && i < r->n; i++) {
		source_end(&r->rank[i].out);
		source_end(&r->rank[i].err);
	}
	if (r->listen_fd >= 0)
		close(r->listen_fd);
	free(r->rank);
	explicit_bzero(r->secret, sizeof(r->secret));
}
