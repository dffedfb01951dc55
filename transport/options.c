/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job's options from the caller and the environment. An empty variable is
 * an unset one. A number is all digits, in range, or an error that names the
 * variable: nothing is guessed.
 */
#include "options_impl.h"
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

int option_number(const char *name, const char *text, long min, long max,
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

/* ---- address ---- */

int option_host(const char *name, const char *host, size_t len,
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
	int rc = option_number(name, text, 1, UINT16_MAX, &port);

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
	rc = option_host(name, host, len, out);
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
	if (out->port || out->nranks == 1)
		return 0; /* rank 0 has told it, or none is needed */
	if (!host && !port)
		return option_launcher_address(out);
	if (!host || !port)
		return vbn_fail(-EINVAL, "%s is set but %s is not: set both",
				host ? "MASTER_ADDR" : "MASTER_PORT",
				host ? "MASTER_PORT" : "MASTER_ADDR");
	rc = option_host("MASTER_ADDR", host, strlen(host), out);
	if (!rc)
		rc = set_port("MASTER_PORT", port, out);
	return rc ? rc : option_own_port(out);
}

/* Where the ranks are and by which interface they meet. */
static int resolve_place(const struct vbn_job_options *in,
			 struct job_config *out)
{
	const char *ifname = env_text("VBN_SOCKET_IFNAME");
	int rc;

	(void)in;
	if (ifname && strlen(ifname) >= sizeof(out->ifname))
		return vbn_fail(-EINVAL,
				"VBN_SOCKET_IFNAME is \"%.64s\": an "
				"interface's name has at most %zu bytes",
				ifname, sizeof(out->ifname) - 1);
	snprintf(out->ifname, sizeof(out->ifname), "%s", ifname ? ifname : "");
	rc = launch_read(out->rank, out->nranks, &out->launch);
	if (!rc && out->launch.several_hosts == UNKNOWN && out->pmix_local)
		launch_from_local("PMIx", out->rank, out->nranks,
				  out->pmix_local, &out->launch);
	return rc;
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
	job_config_wipe(out); /* of what the launcher gave */
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
	if (st.st_mode & (S_IRWXG | S_IRWXO)) {
		close(fd);
		return vbn_fail(-EPERM,
				"VBN_SECRET_FILE %.200s is open to others "
				"(mode %03o): chmod 600 it",
				path, (unsigned)st.st_mode & 0777);
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
		rc = out->secret ? 0 : copy_secret("", 0, out);
	if (rc || out->nranks == 1 || out->secret[0] || insecure)
		return rc;
	return vbn_fail(-EINVAL,
			"a job of %d ranks has no secret: set VBN_SECRET or "
			"VBN_SECRET_FILE to the same on all ranks%s (or "
			"VBN_INSECURE=1 to let anyone join)",
			out->nranks,
			out->slurm ? ", or use srun --mpi=pmix" : "");
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

static int resolve_faults(const struct vbn_job_options *in,
			  struct job_config *out)
{
	int checksum = 0, rc = env_choice("VBN_CHECKSUM", &checksum);

	(void)in;
	out->checksum = checksum;
	return rc ? rc
		  : fault_plan_parse(env_text("VBN_FAULT"), out->rank,
				     out->nranks, &out->fault);
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

static int resolve_dead(const struct vbn_job_options *in,
			struct job_config *out)
{
	long ms = JOB_DEAD_MS;
	int rc = env_number("VBN_DEAD_MS", &ms);

	(void)in;
	if (!rc && ms && ms < JOB_DEAD_LEAST)
		rc = vbn_fail(-EINVAL,
			      "VBN_DEAD_MS is %ld: it must be 0, for no "
			      "heartbeats, or at least %d",
			      ms, JOB_DEAD_LEAST);
	out->dead_ms = (uint32_t)ms;
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

	if (out->listen_made)
		return 0;
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
		resolve_timeout, resolve_dead,	   option_rank,
		resolve_place,	 option_meet,	   resolve_address,
		resolve_secret,	 resolve_provider, resolve_listener,
		resolve_faults,
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
		option_pmix_end(&config);
		job_config_abandon(&config);
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

void job_config_abandon(struct job_config *config)
{
	job_config_wipe(config);
	if (config->listen_made)
		close(config->listen_fd);
	config->listen_made = false;
}
