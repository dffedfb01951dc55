/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agent decides nothing: it starts ranks, hands on what they write and how
 * they end, and signals them when told to. What it must do by itself is to
 * end them when nobody is there any more to do so.
 */
#include "agent.h"
#include "error.h"
#include "frame.h"
#include "meeting.h"
#include "ranks.h"
#include "timing.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define AGENT_RANKS_MAX 1024

struct agent {
	struct ranks ranks;
	struct frame_input in;
	struct strings keep; /* START's data: the command is in it */
	struct sink out;     /* frames to the launcher */
	int signal_fd, listen_fd;
	int64_t heard, said, looked;
	bool lost;   /* the launcher is gone */
	bool paused; /* it has told that it stops */
	bool started;
	int64_t tail; /* all ranks have ended: their output until then */
};

/* ---- to the launcher ---- */

static void say(struct agent *a, enum frame_type type, int rank, uint32_t value,
		const void *data, size_t len)
{
	struct frame f = {.type = type,
			  .rank = (uint32_t)rank,
			  .value = value,
			  .len = (uint32_t)len};
	char head[FRAME_HEAD];

	frame_head(head, &f);
	sink_put(&a->out, head, sizeof(head));
	sink_put(&a->out, data, len);
	a->said = now_ms();
}

static void say_failed(struct agent *a, int rank, int err, const char *what)
{
	say(a, FRAME_FAILED, rank, (uint32_t)-err, what, strlen(what));
}

/* The sink is the agent's: what a rank has written becomes a frame. */
static void relay(struct source *s, enum frame_type type, const char *data,
		  size_t len)
{
	struct agent *a = (struct agent *)(void *)((char *)s->sink -
						   offsetof(struct agent, out));

	say(a, type, s->rank, 0, data, len);
}

static void relay_out(struct source *s, const char *data, size_t len)
{
	relay(s, FRAME_OUT, data, len);
}

static void relay_err(struct source *s, const char *data, size_t len)
{
	relay(s, FRAME_ERR, data, len);
}

/* ---- from the launcher ---- */

static void on_listen(struct agent *a, const struct frame *f)
{
	char ifname[IF_NAMESIZE], list[REACH_TEXT];
	uint16_t port;
	int fd;

	snprintf(ifname, sizeof(ifname), "%.*s", (int)f->len, f->data);
	fd = meeting_open(f->value, ifname, "--hosts names several", list,
			  &port);
	if (fd < 0) {
		say_failed(a, 0, fd, vbn_error());
		return;
	}
	a->listen_fd = fd;
	say(a, FRAME_ADDRESS, 0, port, list, strlen(list));
}

static bool choose_address(struct ranks *r, const char *list, long port)
{
	const char *ifname = getenv("VBN_SOCKET_IFNAME");
	char host[INET6_ADDRSTRLEN];
	struct netifs ifs;
	bool found;

	if (netifs_read(&ifs))
		return false;
	found = reach_choose(list, &ifs, ifname ? ifname : "", host);
	netifs_free(&ifs);
	snprintf(r->address, sizeof(r->address),
		 strchr(host, ':') ? "[%s]:%ld" : "%s:%ld", host, port);
	return found;
}

/* "NAME=value", @n of them */
static bool take_environment(const char **p, size_t *left, long n)
{
	for (; n; n--) {
		const char *text = strings_next(p, left);
		char *copy = text ? strdup(text) : NULL;
		char *value = copy ? strchr(copy, '=') : NULL;

		if (value) {
			*value = '\0';
			setenv(copy, value + 1, 1);
		}
		free(copy);
		if (!value)
			return false;
	}
	return true;
}

static bool take_command(struct ranks *r, const char **p, size_t *left)
{
	long n;

	if (!strings_next_number(p, left, 1, 1 << 20, &n))
		return false;
	r->command = calloc((size_t)n + 1, sizeof(*r->command));
	for (long i = 0; r->command && i < n; i++) {
		r->command[i] = (char *)(uintptr_t)strings_next(p, left);
		if (!r->command[i])
			return false;
	}
	return r->command;
}

/* In the order in which hosts_start() writes them. */
static bool read_start(struct agent *a, const char *p, size_t left,
		       const char **cwd)
{
	struct ranks *r = &a->ranks;
	long total, first, n, port, nenv;
	const char *secret, *list;

	if (!strings_next_number(&p, &left, 1, INT32_MAX, &total) ||
	    !strings_next_number(&p, &left, 0, total - 1, &first) ||
	    !strings_next_number(&p, &left, 1, AGENT_RANKS_MAX, &n) ||
	    !(list = strings_next(&p, &left)) ||
	    !strings_next_number(&p, &left, 1, UINT16_MAX, &port) ||
	    !(secret = strings_next(&p, &left)) ||
	    strlen(secret) >= sizeof(r->secret) ||
	    !(r->provider = strings_next(&p, &left)) ||
	    !(*cwd = strings_next(&p, &left)) ||
	    !strings_next_number(&p, &left, 0, 1 << 20, &nenv) ||
	    !take_environment(&p, &left, nenv) || !take_command(r, &p, &left) ||
	    ranks_alloc(r, (int)n))
		return false;
	if (!r->provider[0])
		r->provider = NULL;
	r->first = (int)first;
	r->total = (int)total;
	strcpy(r->secret, secret);
	return choose_address(r, list, port);
}

static void start(struct agent *a, const char *cwd)
{
	const char *what = "chdir";
	char text[512];
	int rc = chdir(cwd) ? -errno : 0;

	if (!rc)
		rc = ranks_start(&a->ranks, &a->out, &a->out, &what);
	for (int i = 0; i < a->ranks.n; i++) {
		struct rank *r = &a->ranks.rank[i];

		r->out.raw = relay_out;
		r->err.raw = relay_err;
		if (r->alive)
			say(a, FRAME_STARTED, a->ranks.first + i,
			    (uint32_t)r->pid, "", 0);
	}
	if (!rc)
		return;
	if (!strcmp(what, "chdir"))
		snprintf(text, sizeof(text), "cannot change to %.400s: %s", cwd,
			 strerror(-rc));
	else if (!strcmp(what, "exec"))
		snprintf(text, sizeof(text), "cannot run %.400s: %s",
			 a->ranks.command[0], strerror(-rc));
	else
		snprintf(text, sizeof(text), "cannot start %d ranks: %s: %s",
			 a->ranks.n, what, strerror(-rc));
	say_failed(a, strcmp(what, "exec") ? 0 : 1, rc, text);
	ranks_signal(&a->ranks, SIGKILL);
}

static void on_start(struct agent *a, const struct frame *f)
{
	const char *cwd;

	if (a->started) {
		a->lost = true;
		return;
	}
	a->started = true;
	a->keep.data = malloc(f->len + 1);
	if (!a->keep.data) {
		say_failed(a, 0, -ENOMEM, "no memory");
		return;
	}
	memcpy(a->keep.data, f->data, f->len);
	a->keep.room = f->len;
	a->ranks.agent = true;
	if (!read_start(a, a->keep.data, f->len, &cwd)) {
		say_failed(a, 0, -EPROTO, "cannot read what to start");
		return;
	}
	a->ranks.listen_fd = a->listen_fd;
	a->listen_fd = -1;
	start(a, cwd);
}

static void on_frame(struct agent *a, const struct frame *f)
{
	a->heard = now_ms();
	switch (f->type) {
	case FRAME_LISTEN:
		on_listen(a, f);
		break;
	case FRAME_START:
		on_start(a, f);
		break;
	case FRAME_SIGNAL:
		a->paused = f->value == SIGTSTP;
		ranks_signal(&a->ranks, (int)f->value);
		break;
	case FRAME_PING:
		break;
	default:
		a->lost = true;
	}
}

static void on_input(struct agent *a)
{
	struct frame f;
	int rc = frame_read(&a->in, STDIN_FILENO);

	if (rc == -EAGAIN)
		return;
	a->lost |= rc <= 0;
	while (!a->lost && !(rc = frame_next(&a->in, &f)))
		on_frame(a, &f);
	a->lost |= rc == -EPROTO;
}

/* ---- the loop ---- */

static void reap(struct agent *a)
{
	int i;

	while ((i = ranks_reap(&a->ranks)) >= 0) {
		struct rank *r = &a->ranks.rank[i];

		rank_drain(r);
		say(a, FRAME_ENDED, a->ranks.first + i,
		    (uint32_t)(256 * r->code + r->status), "", 0);
		a->tail = now_ms() + TAIL_MS;
	}
}

static void on_signal(struct agent *a)
{
	struct signalfd_siginfo info;

	if (read(a->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGCHLD)
		reap(a);
	else
		a->lost = true; /* the remote shell ends us */
}

static int take_signals(struct agent *a)
{
	static const int ours[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		sigaddset(&set, ours[i]);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL);
	if (sigprocmask(SIG_BLOCK, &set, &a->ranks.mask))
		return -errno;
	a->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return a->signal_fd < 0 ? -errno : 0;
}

static size_t gather(struct agent *a, struct pollfd *fds,
		     struct source **sources)
{
	size_t n = 0;

	fds[n++] = (struct pollfd){.fd = a->signal_fd, .events = POLLIN};
	fds[n++] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
	fds[n++] =
		(struct pollfd){.fd = sink_empty(&a->out) ? -1 : STDOUT_FILENO,
				.events = POLLOUT};
	for (int i = 0; i < a->ranks.n && !sink_full(&a->out); i++) {
		struct rank *r = &a->ranks.rank[i];

		if (r->out.fd >= 0) {
			sources[n] = &r->out;
			fds[n++] = (struct pollfd){.fd = r->out.fd,
						   .events = POLLIN};
		}
		if (r->err.fd >= 0) {
			sources[n] = &r->err;
			fds[n++] = (struct pollfd){.fd = r->err.fd,
						   .events = POLLIN};
		}
	}
	return n;
}

static void by_time(struct agent *a)
{
	int64_t now = now_ms();

	if (now - a->looked >= PING_MS)
		a->heard = now; /* it is we who were stopped */
	a->looked = now;
	if (now - a->said >= PING_MS)
		say(a, FRAME_PING, 0, 0, "", 0);
	if (now - a->heard >= SILENCE_MS && !a->paused)
		a->lost = true;
}

static void round_once(struct agent *a, struct pollfd *fds,
		       struct source **sources)
{
	size_t n = gather(a, fds, sources);
	bool tail = a->started && !a->ranks.alive;

	if (poll(fds, n, tail ? 50 : PING_MS / 5) < 0)
		return;
	for (size_t i = 3; i < n; i++)
		if (fds[i].revents)
			source_read(sources[i]);
	if (fds[1].revents)
		on_input(a);
	if (fds[0].revents)
		on_signal(a);
	by_time(a);
	sink_flush(&a->out);
	a->lost |= a->out.broken;
}

/* All ranks have ended, and the launcher has all they wrote. */
static bool finished(const struct agent *a)
{
	if (!a->started || a->ranks.alive || !sink_empty(&a->out))
		return false;
	if (now_ms() < a->tail)
		for (int i = 0; i < a->ranks.n; i++)
			if (a->ranks.rank[i].out.fd >= 0 ||
			    a->ranks.rank[i].err.fd >= 0)
				return false;
	return true;
}

static int serve(struct agent *a)
{
	size_t max = 2 * AGENT_RANKS_MAX + 3;
	struct pollfd *fds = calloc(max, sizeof(*fds));
	struct source **sources = calloc(max, sizeof(struct source *));

	if (!fds || !sources)
		a->lost = true;
	while (!a->lost && !finished(a))
		round_once(a, fds, sources);
	free(fds);
	free(sources);
	/* SIGTERM first would be kinder, but nobody hears them any more. */
	ranks_signal(&a->ranks, SIGKILL);
	return a->lost ? 1 : 0;
}

int agent_main(void)
{
	struct agent a = {.listen_fd = -1, .ranks.listen_fd = -1};
	int status = take_signals(&a);

	if (status)
		return 1;
	a.heard = a.looked = now_ms();
	sink_init(&a.out, STDOUT_FILENO);
	sink_put(&a.out, AGENT_BANNER, sizeof(AGENT_BANNER) - 1);
	say(&a, FRAME_HELLO, 0, (uint32_t)getpid(), "", 0);
	status = serve(&a);
	ranks_free(&a.ranks);
	free(a.ranks.command);
	frame_input_free(&a.in);
	strings_free(&a.keep);
	sink_end(&a.out);
	return status;
}
