/* SPDX-License-Identifier: BSD-3-Clause */
/* Remote shells, and what an agent is told to start. */
#include "hosts_start.h"
#include "status.h"
#include "timing.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

extern char **environ;

/* ---- the remote shell ---- */

/* As a word of a shell's: 'it'\''s'. */
static void quote(const char *text, char *out, size_t room)
{
	size_t n = 0;

	if (room < 3)
		return;
	out[n++] = '\'';
	for (; *text && n + 6 < room; text++)
		if (*text == '\'') {
			memcpy(out + n, "'\\''", 4);
			n += 4;
		} else {
			out[n++] = *text;
		}
	out[n++] = '\'';
	out[n] = '\0';
}

/* localhost, or this machine's own name: no remote shell is needed. */
static bool is_here(const char *name)
{
	char own[256] = "";

	gethostname(own, sizeof(own) - 1);
	return !strcmp(name, "localhost") || !strcmp(name, own);
}

static void child(const struct hosts *hosts, const struct host *h, int in,
		  int out, int err, pid_t parent)
{
	char quoted[PATH_MAX * 2], command[PATH_MAX * 2 + 32];
	char shell[4096];

	setpgid(0, 0); /* the terminal's signals are the launcher's */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || dup2(in, STDIN_FILENO) < 0 ||
	    dup2(out, STDOUT_FILENO) < 0 || dup2(err, STDERR_FILENO) < 0)
		_exit(EXIT_FAILURE);
	unsetenv("VBN_SECRET"); /* an outer job's is not the shell's to see */
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &hosts->ranks->mask, NULL);
	quote(hosts->agent, quoted, sizeof(quoted));
	snprintf(command, sizeof(command), "exec %s --agent", quoted);
	if (hosts->shell) {
		snprintf(shell, sizeof(shell), "exec %s \"$@\"", hosts->shell);
		execlp("sh", "sh", "-c", shell, "sh", h->name, command, NULL);
	} else if (is_here(h->name)) {
		execlp(hosts->agent, hosts->agent, "--agent", NULL);
	} else {
		execlp("ssh", "ssh", "-T", "-x", "-o", "BatchMode=yes", "-o",
		       "ConnectTimeout=15", "--", h->name, command, NULL);
	}
	fprintf(stderr, "cannot run %s: %s\n",
		hosts->shell	   ? "sh"
		: is_here(h->name) ? hosts->agent
				   : "ssh",
		strerror(errno));
	_exit(errno == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT);
}

static int open_one(struct hosts *hosts, struct host *h, const char **what)
{
	int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, rc = 0;
	pid_t parent = getpid();

	*what = "pipe";
	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) ||
	    pipe2(err, O_CLOEXEC))
		rc = -errno;
	if (!rc) {
		*what = "fork";
		h->pid = fork();
		if (h->pid < 0)
			rc = -errno;
		if (h->pid == 0)
			child(hosts, h, in[0], out[1], err[1], parent);
	}
	close(in[0]);
	close(out[1]);
	close(err[1]);
	if (rc) {
		h->pid = 0;
		close(in[1]);
		close(out[0]);
		close(err[0]);
		return rc;
	}
	setpgid(h->pid, h->pid);
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	h->out_fd = out[0];
	sink_init(&h->to, in[1]);
	source_init(&h->err, err[0], -1, hosts->err);
	h->err.label = h->name;
	h->gone_at = INT64_MAX;
	h->heard = h->said = now_ms();
	return 0;
}

/* Three descriptors for each host. */
static void allow_descriptors(int hosts)
{
	struct rlimit limit;
	rlim_t need = 64 + 3 * (rlim_t)hosts;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= need)
		return;
	limit.rlim_cur = need < limit.rlim_max ? need : limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
}

int hosts_open(struct hosts *hosts, const struct places *places,
	       const char **what)
{
	int first = 0, rc = 0;

	*what = "memory";
	hosts->list = calloc((size_t)places->n, sizeof(*hosts->list));
	if (!hosts->list)
		return -ENOMEM;
	allow_descriptors(places->n);
	hosts->deadline = now_ms() + CONNECT_MS;
	for (int i = 0; i < places->n && !rc; i++) {
		struct host *h = &hosts->list[i];

		h->name = places->list[i].name;
		h->first = first;
		h->n = places->list[i].slots;
		h->out_fd = h->to.fd = h->err.fd = -1;
		hosts->n = i + 1;
		rc = open_one(hosts, h, what);
		first += h->n;
	}
	for (int i = 0; i < hosts->ranks->n; i++) {
		source_init(&hosts->ranks->rank[i].out, -1, i, hosts->out);
		source_init(&hosts->ranks->rank[i].err, -1, i, hosts->err);
	}
	return rc;
}

/* ---- START ---- */

void hosts_proceed(struct hosts *hosts)
{
	const char *ifname = getenv("VBN_SOCKET_IFNAME");

	for (int i = 0; i < hosts->n; i++)
		if (!hosts->list[i].hello)
			return;
	if (hosts->listening || hosts->failed)
		return;
	hosts->listening = true;
	if (!ifname)
		ifname = "";
	host_say(&hosts->list[0], FRAME_LISTEN, hosts->n > 1, ifname,
		 strlen(ifname));
}

/* What is about the launcher's own place, or a job around it, stays here. */
static bool is_private(const char *entry)
{
	static const char *const names[] = {
		"VBN_RANK=",	    "VBN_SIZE=",     "VBN_LOCAL_SIZE=",
		"VBN_ADDRESS=",	    "VBN_PORT=",     "VBN_SECRET=",
		"VBN_SECRET_FILE=", "VBN_LISTEN_FD="};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(entry, names[i], strlen(names[i])))
			return true;
	return false;
}

static bool passed_on(const char *entry)
{
	static const char *const begins[] = {"VBN_",	   "UCX_",
					     "UCS_",	   "RDMAV_",
					     "IBV_",	   "MLX5_",
					     "OMP_",	   "OPENBLAS_",
					     "ASAN_",	   "UBSAN_",
					     "TSAN_",	   "LSAN_",
					     "PATH=",	   "LD_LIBRARY_PATH=",
					     "PYTHONPATH="};

	if (is_private(entry))
		return false;
	for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++)
		if (!strncmp(entry, begins[i], strlen(begins[i])))
			return true;
	return false;
}

/* --env NAME, or NAME=value: what becomes of it, or NULL. */
static const char *wanted(const char *option)
{
	size_t len = strlen(option);

	if (strchr(option, '='))
		return option;
	for (char **p = environ; *p; p++)
		if (!strncmp(*p, option, len) && (*p)[len] == '=')
			return *p;
	return NULL;
}

static void add_environment(struct strings *s, char *const *options)
{
	long n = 0;

	for (char **p = environ; *p; p++)
		n += passed_on(*p);
	for (char *const *p = options; p && *p; p++)
		n += wanted(*p) ? 1 : 0;
	strings_number(s, n);
	for (char **p = environ; *p; p++)
		if (passed_on(*p))
			strings_add(s, *p);
	for (char *const *p = options; p && *p; p++)
		if (wanted(*p))
			strings_add(s, wanted(*p));
}

static void add_command(struct strings *s, char *const *command)
{
	long n = 0;

	while (command[n])
		n++;
	strings_number(s, n);
	for (long i = 0; i < n; i++)
		strings_add(s, command[i]);
}

static void write_start(const struct hosts *hosts, const struct host *h,
			const char *list, unsigned port, const char *cwd,
			struct strings *s)
{
	const struct ranks *r = hosts->ranks;

	strings_number(s, r->n);
	strings_number(s, h->first);
	strings_number(s, h->n);
	strings_add(s, list);
	strings_number(s, port);
	strings_add(s, r->secret);
	strings_add(s, r->provider ? r->provider : "");
	strings_add(s, cwd);
	add_environment(s, hosts->env);
	add_command(s, r->command);
}

static void start_host(struct hosts *hosts, struct host *h, const char *list,
		       unsigned port, const char *cwd)
{
	struct strings s = {NULL, 0, 0, false};

	write_start(hosts, h, list, port, cwd, &s);
	if (s.failed || s.len > FRAME_MAX) {
		hosts_failed(hosts, EXIT_LAUNCHER,
			     "command and environment are too large");
	} else {
		host_say(h, FRAME_START, 0, s.data, s.len);
		h->started = true;
		h->alive = h->n;
		hosts->ranks->alive += h->n;
		for (int i = h->first; i < h->first + h->n; i++)
			hosts->ranks->rank[i].alive = true;
	}
	strings_free(&s);
}

void hosts_start(struct hosts *hosts, const struct frame *address)
{
	char cwd[PATH_MAX], list[1024];

	if (hosts->started || hosts->failed)
		return;
	snprintf(list, sizeof(list), "%.*s", (int)address->len, address->data);
	if (!getcwd(cwd, sizeof(cwd))) {
		hosts_failed(hosts, EXIT_LAUNCHER,
			     "the working directory has no name");
		return;
	}
	hosts->started = true;
	for (int i = 0; i < hosts->n; i++)
		start_host(hosts, &hosts->list[i], list, address->value, cwd);
}
