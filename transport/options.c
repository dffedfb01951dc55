/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job's options from the caller and the environment. An empty variable is
 * an unset one. A number is all digits, in range, or an error that names the
 * variable: nothing is guessed.
 */
#include "options.h"
#include "env.h"
#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int number(const char *name, const char *text, long min, long max,
		  long *out)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < min || value > max ||
	    !((*text >= '0' && *text <= '9') || *text == '-'))
		return vbn_fail(-EINVAL,
				"%s is \"%.64s\": it must be a number from "
				"%ld to %ld",
				name, text, min, max);
	*out = value;
	return 0;
}

/* ---- rank and size ---- */

/* A pair of variables; 1: both unset. */
static int rank_pair(const char *rank_name, const char *size_name,
		     struct job_config *out)
{
	const char *rank = env_text(rank_name), *size = env_text(size_name);
	long r, n;
	int rc;

	if (!rank && !size)
		return 1;
	if (!rank || !size)
		return vbn_fail(-EINVAL, "%s is set but %s is not: set both",
				rank ? rank_name : size_name,
				rank ? size_name : rank_name);
	rc = number(size_name, size, 1, JOB_RANKS_MAX, &n);
	if (!rc)
		rc = number(rank_name, rank, 0, JOB_RANKS_MAX - 1, &r);
	if (rc)
		return rc;
	if (r >= n)
		return vbn_fail(-EINVAL,
				"%s is %ld: it must be less than %s, which is "
				"%ld",
				rank_name, r, size_name, n);
	out->rank = (int)r;
	out->nranks = (int)n;
	return 0;
}

static int resolve_rank(const struct vbn_job_options *in,
			struct job_config *out)
{
	int rc;

	if (in->nranks == 0) {
		rc = rank_pair("VBN_RANK", "VBN_SIZE", out);
		if (rc == 1)
			rc = rank_pair("RANK", "WORLD_SIZE", out);
		if (rc == 1) {
			out->rank = 0;
			out->nranks = 1;
		}
		return rc == 1 ? 0 : rc;
	}
	if (in->nranks < 0 || in->nranks > JOB_RANKS_MAX)
		return vbn_fail(-EINVAL,
				"option nranks is %d: it must be from 1 to %d",
				in->nranks, JOB_RANKS_MAX);
	if (in->rank < 0 || in->rank >= in->nranks)
		return vbn_fail(-EINVAL,
				"option rank is %d: it must be from 0 to %d",
				in->rank, in->nranks - 1);
	out->rank = in->rank;
	out->nranks = in->nranks;
	return 0;
}

/* ---- address ---- */

static int set_host(const char *name, const char *host, size_t len,
		    struct job_config *out)
{
	if (len < 1 || len >= sizeof(out->host))
		return vbn_fail(-EINVAL, "%s: the host has 1 to %zu bytes",
				name, sizeof(out->host) - 1);
	memcpy(out->host, host, len);
	out->host[len] = '\0';
	return 0;
}

static int set_port(const char *name, const char *text, struct job_config *out)
{
	long port;
	int rc = number(name, text, 1, UINT16_MAX, &port);

	if (!rc)
		out->port = (uint16_t)port;
	return rc;
}

/* "host:port" or "[IPv6 address]:port" */
static int set_address(const char *name, const char *text,
		       struct job_config *out)
{
	const char *host = text, *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : 0;
	int rc;

	if (text[0] == '[') {
		if (len < 3 || colon[-1] != ']')
			return vbn_fail(-EINVAL,
					"%s is \"%.64s\": it must be "
					"[address]:port",
					name, text);
		host++;
		len -= 2;
	} else if (!colon || memchr(text, ':', len)) {
		return vbn_fail(-EINVAL,
				"%s is \"%.64s\": it must be host:port, an "
				"IPv6 address in brackets",
				name, text);
	}
	rc = set_host(name, host, len, out);
	return rc ? rc : set_port(name, colon + 1, out);
}

static int resolve_address(const struct vbn_job_options *in,
			   struct job_config *out)
{
	const char *address = env_text("VBN_ADDRESS");
	const char *host = env_text("MASTER_ADDR");
	const char *port = env_text("MASTER_PORT");
	int rc;

	if (in->address)
		return set_address("option address", in->address, out);
	if (address)
		return set_address("VBN_ADDRESS", address, out);
	if (out->nranks == 1 || (!host && !port))
		return 0; /* whether one is needed is asked later */
	if (!host || !port)
		return vbn_fail(-EINVAL, "%s is set but %s is not: set both",
				host ? "MASTER_ADDR" : "MASTER_PORT",
				host ? "MASTER_PORT" : "MASTER_ADDR");
	rc = set_host("MASTER_ADDR", host, strlen(host), out);
	return rc ? rc : set_port("MASTER_PORT", port, out);
}

/* Where the ranks are and by which interface they meet. */
static int resolve_place(const struct vbn_job_options *in,
			 struct job_config *out)
{
	const char *ifname = env_text("VBN_SOCKET_IFNAME");

	(void)in;
	if (ifname && strlen(ifname) >= sizeof(out->ifname))
		return vbn_fail(-EINVAL,
				"VBN_SOCKET_IFNAME is \"%.64s\": an "
				"interface's name has at most %zu bytes",
				ifname, sizeof(out->ifname) - 1);
	snprintf(out->ifname, sizeof(out->ifname), "%s", ifname ? ifname : "");
	return launch_read(out->rank, out->nranks, &out->launch);
}

/* ---- secret ---- */

static int copy_secret(const char *from, size_t len, struct job_config *out)
{
	if (len > JOB_SECRET_MAX)
		return vbn_fail(-EINVAL,
				"the job's secret has more than %d bytes",
				JOB_SECRET_MAX);
	if (memchr(from, 0, len))
		return vbn_fail(-EINVAL, "the job's secret has a zero byte: "
					 "use text");
	out->secret = malloc(len + 1);
	if (!out->secret)
		return vbn_fail(-ENOMEM, "no memory for the job's secret");
	memcpy(out->secret, from, len);
	out->secret[len] = '\0';
	return 0;
}

static ssize_t read_all(int fd, char *buf, size_t room)
{
	size_t have = 0;
	ssize_t n;

	while (have < room) {
		n = read(fd, buf + have, room - have);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

/* A final newline is an editor's, not the secret's. */
static int read_secret(const char *path, struct job_config *out)
{
	char buf[JOB_SECRET_MAX + 2];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;
	struct stat st;
	ssize_t n;

	if (fd < 0)
		return vbn_fail(-errno, "VBN_SECRET_FILE %.200s: %s", path,
				strerror(errno));
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		close(fd);
		return vbn_fail(-EINVAL, "VBN_SECRET_FILE %.200s is no file",
				path);
	}
	n = read_all(fd, buf, sizeof(buf));
	close(fd);
	if (n < 0)
		return vbn_fail((int)n, "VBN_SECRET_FILE %.200s: %s", path,
				strerror((int)-n));
	if (n && buf[n - 1] == '\n')
		n--;
	if (n && buf[n - 1] == '\r')
		n--;
	rc = n ? copy_secret(buf, (size_t)n, out)
	       : vbn_fail(-EINVAL, "VBN_SECRET_FILE %.200s is empty", path);
	sodium_memzero(buf, sizeof(buf));
	return rc;
}

static int resolve_secret(const struct vbn_job_options *in,
			  struct job_config *out)
{
	const char *secret = in->secret ? in->secret : env_text("VBN_SECRET");
	const char *path = env_text("VBN_SECRET_FILE");
	int insecure = 0, rc = env_choice("VBN_INSECURE", &insecure);

	if (rc)
		return rc;
	if (secret)
		rc = copy_secret(secret, strlen(secret), out);
	else if (path)
		rc = read_secret(path, out);
	else
		rc = copy_secret("", 0, out);
	if (rc || out->nranks == 1 || out->secret[0] || insecure)
		return rc;
	return vbn_fail(-EINVAL,
			"a job of %d ranks has no secret: set VBN_SECRET or "
			"VBN_SECRET_FILE to the same on all ranks (or "
			"VBN_INSECURE=1 to let anyone join)",
			out->nranks);
}

/* ---- the rest ---- */

static int resolve_provider(const struct vbn_job_options *in,
			    struct job_config *out)
{
	static const char *const known[] = {"shm", "verbs", "ucx"};
	const char *name =
		in->provider ? in->provider : env_text("VBN_PROVIDER");

	out->provider[0] = '\0';
	if (!name || !name[0])
		return 0;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(name, known[i])) {
			snprintf(out->provider, sizeof(out->provider), "%s",
				 name);
			return 0;
		}
	return vbn_fail(
		-EINVAL, "%s is \"%.64s\": it must be shm, verbs or ucx",
		in->provider ? "option provider" : "VBN_PROVIDER", name);
}

static int resolve_timeout(const struct vbn_job_options *in,
			   struct job_config *out)
{
	long ms = JOB_TIMEOUT_MS;
	int rc = 0;

	if (in->timeout_ms)
		ms = in->timeout_ms;
	else
		rc = env_number("VBN_TIMEOUT_MS", &ms);
	if (!rc && !ms)
		rc = vbn_fail(-EINVAL, "VBN_TIMEOUT_MS is 0: it must be at "
				       "least 1, or -1 for no limit");
	out->timeout_ms = (int)ms;
	return rc;
}

static bool listens(int fd)
{
	socklen_t len = sizeof(int);
	int on = 0;

	return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) && on;
}

/* Open, and something else than a listening socket. */
static bool is_other(int fd)
{
	return fcntl(fd, F_GETFD) >= 0 && !listens(fd);
}

static bool listens_at(int fd, uint16_t port)
{
	struct sockaddr_storage addr = {0};
	socklen_t len = sizeof(addr);

	if (!listens(fd) || getsockname(fd, (struct sockaddr *)&addr, &len))
		return false;
	if (addr.ss_family == AF_INET)
		return ntohs(((struct sockaddr_in *)&addr)->sin_port) == port;
	if (addr.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&addr)->sin6_port) == port;
	return false;
}

/*
 * The variable outlives the socket: the process's second job finds the number
 * closed, or another file under it, and listens for itself. Before that, a
 * file which is no listening socket is a mistake of who set the variable.
 */
static int inherit_listener(struct job_config *out, int fd)
{
	static atomic_bool had;

	if (listens_at(fd, out->port)) {
		out->listen_fd = fd;
		atomic_store(&had, true);
	} else if (!atomic_load(&had) && out->nranks > 1 && is_other(fd)) {
		return vbn_fail(-EINVAL,
				"VBN_LISTEN_FD is %d, which is no listening "
				"socket: unset it, or have the launcher pass "
				"one to rank 0",
				fd);
	}
	return 0;
}

static int resolve_listener(const struct vbn_job_options *in,
			    struct job_config *out)
{
	long fd = -1;
	int rc;

	out->listen_fd = -1;
	if (in->listen_fd < 0 || (in->listen_fd && out->rank != 0))
		return vbn_fail(-EINVAL, "option listen_fd is for rank 0: a "
					 "listening socket + 1, or 0");
	if (in->listen_fd) {
		out->listen_fd = in->listen_fd - 1;
		return 0;
	}
	if (out->rank != 0)
		return 0;
	rc = env_number("VBN_LISTEN_FD", &fd);
	return rc || fd < 0 || !out->port ? rc : inherit_listener(out, (int)fd);
}

static int check_address(const struct job_config *config)
{
	if (config->nranks == 1 || config->port || config->listen_fd >= 0)
		return 0;
	return vbn_fail(-EINVAL,
			"a job of %d ranks needs rank 0's address: set "
			"VBN_ADDRESS=host:port, or MASTER_ADDR and "
			"MASTER_PORT",
			config->nranks);
}

int job_options_resolve(const struct vbn_job_options *in,
			struct job_config *out)
{
	static int (*const steps[])(const struct vbn_job_options *,
				    struct job_config *) = {
		resolve_rank,	  resolve_address, resolve_secret,
		resolve_provider, resolve_timeout, resolve_listener,
		resolve_place,
	};
	struct vbn_job_options options = {0};
	struct job_config config = {.listen_fd = -1};
	int rc = 0;

	if (in && in->size < sizeof(in->size) + 2 * sizeof(int))
		return vbn_fail(-EINVAL, "options: set size to sizeof(struct "
					 "vbn_job_options)");
	if (in)
		memcpy(&options, in,
		       in->size < sizeof(options) ? in->size : sizeof(options));
	rc = env_check();
	for (size_t i = 0; !rc && i < sizeof(steps) / sizeof(steps[0]); i++)
		rc = steps[i](&options, &config);
	if (!rc)
		rc = check_address(&config);
	if (rc) {
		job_config_wipe(&config);
		return rc;
	}
	*out = config;
	return 0;
}

void job_config_wipe(struct job_config *config)
{
	if (config->secret) {
		sodium_memzero(config->secret, strlen(config->secret));
		free(config->secret);
	}
	config->secret = NULL;
}
