/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Talking to the agents. A host's life: its shell starts, HELLO comes, START
 * goes, its ranks end, the shell ends. Whatever breaks that off is told once,
 * when both the pipe and the process have ended, for then it is known how.
 */
#include "hosts.h"
#include "hosts_start.h"
#include "status.h"
#include "timing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* For the other of the two signs that a remote shell has ended. */
#define GOING_MS 1000
/* What a login shell may say before the agent's first line. */
#define NOISE_MAX 65536u

/* ---- to agents ---- */

void host_say(struct host *h, enum frame_type type, uint32_t value,
	      const void *data, size_t len)
{
	struct frame f = {.type = type, .value = value, .len = (uint32_t)len};
	char head[FRAME_HEAD];

	if (h->to.fd < 0)
		return;
	frame_head(head, &f);
	sink_put(&h->to, head, sizeof(head));
	sink_put(&h->to, data, len);
	h->said = now_ms();
}

void hosts_signal(struct hosts *hosts, int sig)
{
	for (int i = 0; i < hosts->n; i++)
		host_say(&hosts->list[i], FRAME_SIGNAL, (uint32_t)sig, "", 0);
	if (sig == SIGKILL && !hosts->started)
		hosts_kill(hosts);
}

/* ---- hosts that go ---- */

static void host_close(struct host *h)
{
	if (h->out_fd >= 0)
		close(h->out_fd);
	h->out_fd = -1;
	source_end(&h->err);
	if (h->to.fd >= 0) {
		int fd = h->to.fd;

		h->to.len = h->to.off = 0; /* nobody reads it */
		sink_end(&h->to);
		close(fd);
	}
	h->to.fd = -1;
	frame_input_free(&h->in);
}

static void describe_end(const struct host *h, char *text, size_t room)
{
	if (h->pid)
		snprintf(text, room, "the remote shell has closed its output");
	else if (h->code == CLD_EXITED)
		snprintf(text, room, "the remote shell ended with status %d",
			 h->status);
	else
		snprintf(text, room, "the remote shell was killed by signal %d",
			 h->status);
}

static void list_ranks(const struct host *h, char *text, size_t room)
{
	if (h->n == 1)
		snprintf(text, room, "rank %d", h->first);
	else
		snprintf(text, room, "ranks %d to %d", h->first,
			 h->first + h->n - 1);
}

static void drop_ranks(struct hosts *hosts, struct host *h)
{
	for (int i = h->first; i < h->first + h->n; i++) {
		struct rank *r = &hosts->ranks->rank[i];

		if (!r->alive)
			continue;
		r->alive = false;
		hosts->ranks->alive--;
		r->code = CLD_KILLED;
		r->status = SIGKILL;
	}
	h->alive = 0;
}

static void tell_lost(struct hosts *hosts, struct host *h, const char *why)
{
	char line[512], which[64];

	list_ranks(h, which, sizeof(which));
	snprintf(line, sizeof(line), "host %s is lost: %s; %s %s", h->name, why,
		 which, h->started ? "with it" : "cannot start");
	if (hosts->started)
		hosts->events.lost(hosts->events.arg, line);
	else
		hosts_failed(hosts, EXIT_LAUNCHER, line);
}

static void tell_unreached(struct hosts *hosts, struct host *h)
{
	char line[512], why[128];

	describe_end(h, why, sizeof(why));
	if (!h->pid && h->code == CLD_EXITED &&
	    (h->status == EXIT_NOT_FOUND || h->status == EXIT_CANNOT))
		snprintf(line, sizeof(line),
			 "host %s: %s there cannot be run (status %d); --agent "
			 "says where verbena-run is on the hosts",
			 h->name, hosts->agent, h->status);
	else
		snprintf(line, sizeof(line),
			 "host %s cannot be reached: %s before verbena-run "
			 "answered there",
			 h->name, why);
	hosts_failed(hosts, EXIT_LAUNCHER, line);
}

/* It is gone: what does that mean? */
static void judge(struct hosts *hosts, struct host *h)
{
	bool early = h->alive || !h->started;
	char why[128];

	h->gone = true;
	host_close(h);
	drop_ranks(hosts, h);
	if (hosts->failed)
		return;
	if (!h->hello) {
		tell_unreached(hosts, h);
	} else if (early) {
		describe_end(h, why, sizeof(why));
		tell_lost(hosts, h, why);
	}
}

static void going(struct host *h)
{
	if (h->gone_at == INT64_MAX)
		h->gone_at = now_ms() + GOING_MS;
	if (!h->pid && h->out_fd < 0)
		h->gone_at = 0;
}

static void give_up(struct hosts *hosts, struct host *h, const char *why)
{
	if (h->pid)
		kill(h->pid, SIGKILL);
	h->gone = true;
	host_close(h);
	drop_ranks(hosts, h);
	if (!hosts->failed)
		tell_lost(hosts, h, why);
}

void hosts_failed(struct hosts *hosts, int status, const char *line)
{
	if (hosts->failed)
		return;
	hosts->failed = true;
	hosts->events.failed(hosts->events.arg, status, line);
}

void hosts_reap(struct hosts *hosts)
{
	for (int i = 0; i < hosts->n; i++) {
		struct host *h = &hosts->list[i];
		siginfo_t info = {0};

		if (!h->pid ||
		    waitid(P_PID, (id_t)h->pid, &info, WEXITED | WNOHANG) ||
		    !info.si_pid)
			continue;
		h->pid = 0;
		h->code = info.si_code;
		h->status = info.si_status;
		going(h);
	}
}

/* ---- from agents ---- */

static struct rank *rank_of(struct hosts *hosts, const struct host *h,
			    uint32_t rank)
{
	if (rank < (uint32_t)h->first || rank >= (uint32_t)(h->first + h->n))
		return NULL;
	return &hosts->ranks->rank[rank];
}

static void on_rank(struct hosts *hosts, struct host *h, const struct frame *f)
{
	struct rank *r = rank_of(hosts, h, f->rank);

	if (!r || !h->started) {
		give_up(hosts, h, "its answer makes no sense");
		return;
	}
	switch (f->type) {
	case FRAME_STARTED:
		r->pid = (pid_t)f->value;
		break;
	case FRAME_OUT:
		source_feed(&r->out, f->data, f->len);
		break;
	case FRAME_ERR:
		source_feed(&r->err, f->data, f->len);
		break;
	default:
		if (!r->alive)
			return;
		r->alive = false;
		hosts->ranks->alive--;
		h->alive--;
		r->code = (int)(f->value / 256);
		r->status = (int)(f->value % 256);
		hosts->events.ended(hosts->events.arg, (int)f->rank);
	}
}

static void on_failed(struct hosts *hosts, struct host *h,
		      const struct frame *f)
{
	char line[640];
	int status = EXIT_LAUNCHER;

	if (f->rank)
		status = f->value == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT;
	snprintf(line, sizeof(line), "host %s: %.*s", h->name,
		 (int)(f->len > 512 ? 512 : f->len), f->data);
	hosts_failed(hosts, status, line);
}

static void on_frame(struct hosts *hosts, struct host *h, const struct frame *f)
{
	switch (f->type) {
	case FRAME_HELLO:
		h->hello = true;
		hosts_proceed(hosts);
		break;
	case FRAME_ADDRESS:
		if (h == hosts->list)
			hosts_start(hosts, f);
		break;
	case FRAME_STARTED:
	case FRAME_OUT:
	case FRAME_ERR:
	case FRAME_ENDED:
		on_rank(hosts, h, f);
		break;
	case FRAME_FAILED:
		on_failed(hosts, h, f);
		break;
	case FRAME_PING:
		break;
	default:
		give_up(hosts, h, "its answer makes no sense");
	}
}

/* Pass over the agent's first line. false: it has not come yet. */
static bool skip_noise(struct hosts *hosts, struct host *h)
{
	static const size_t n = sizeof(AGENT_BANNER) - 1;
	const char *at;

	if (h->banner)
		return true;
	at = memmem(h->in.data + h->in.off, h->in.len - h->in.off, AGENT_BANNER,
		    n);
	if (at) {
		h->in.off = (size_t)(at - h->in.data) + n;
		h->banner = true;
	} else if (h->in.len > NOISE_MAX) {
		give_up(hosts, h, "something else than verbena-run answers");
	}
	return h->banner;
}

static void on_output(struct hosts *hosts, struct host *h)
{
	struct frame f;
	int rc = frame_read(&h->in, h->out_fd);

	if (rc == -EAGAIN)
		return;
	if (rc <= 0) {
		close(h->out_fd);
		h->out_fd = -1;
		going(h);
		return;
	}
	h->heard = now_ms();
	if (!skip_noise(hosts, h))
		return;
	while (!h->gone && !(rc = frame_next(&h->in, &f)))
		on_frame(hosts, h, &f);
	if (!h->gone && rc == -EPROTO)
		give_up(hosts, h, "its answer makes no sense");
}

/* ---- the loop ---- */

static void one_poll(struct pollfd *p, int fd, short events)
{
	*p = (struct pollfd){.fd = fd, .events = events};
}

size_t hosts_poll(struct hosts *hosts, struct pollfd *fds)
{
	bool full = sink_full(hosts->out) || sink_full(hosts->err);
	size_t n = 0;

	for (int i = 0; i < hosts->n; i++) {
		struct host *h = &hosts->list[i];

		one_poll(&fds[n++], full ? -1 : h->out_fd, POLLIN);
		one_poll(&fds[n++], full ? -1 : h->err.fd, POLLIN);
		one_poll(&fds[n++], sink_empty(&h->to) ? -1 : h->to.fd,
			 POLLOUT);
	}
	return n;
}

void hosts_too_late(struct hosts *hosts, double seconds)
{
	char line[512];
	size_t len = (size_t)snprintf(line, sizeof(line),
				      "no answer within %g s from", seconds);

	for (int i = 0; i < hosts->n && len + 64 < sizeof(line); i++)
		if (!hosts->list[i].hello)
			len += (size_t)snprintf(line + len, sizeof(line) - len,
						" host %.40s",
						hosts->list[i].name);
	hosts_failed(hosts, EXIT_LAUNCHER, line);
}

static void by_time(struct hosts *hosts)
{
	int64_t now = now_ms();
	bool slept = now - hosts->looked >= PING_MS;

	hosts->looked = now;
	for (int i = 0; i < hosts->n; i++) {
		struct host *h = &hosts->list[i];

		if (h->gone)
			continue;
		if (slept)
			h->heard = now; /* it is we who were stopped */
		if (now >= h->gone_at)
			judge(hosts, h);
		else if (h->hello && now - h->heard >= SILENCE_MS)
			give_up(hosts, h, "it has not answered for a minute");
		else if (h->hello && now - h->said >= PING_MS)
			host_say(h, FRAME_PING, 0, "", 0);
	}
	if (!hosts->started && !hosts->failed && now >= hosts->deadline)
		hosts_too_late(hosts, CONNECT_MS / 1000);
}

void hosts_handle(struct hosts *hosts, const struct pollfd *fds)
{
	bool full = sink_full(hosts->out) || sink_full(hosts->err);

	for (int i = 0; i < hosts->n; i++, fds += 3) {
		struct host *h = &hosts->list[i];

		if (full)
			h->heard = now_ms(); /* it is we who do not listen */
		if (fds[0].revents && h->out_fd >= 0)
			on_output(hosts, h);
		if (fds[1].revents && h->err.fd >= 0)
			source_read(&h->err);
		if (h->to.fd >= 0)
			sink_flush(&h->to);
	}
	by_time(hosts);
}

int hosts_wait_ms(const struct hosts *hosts)
{
	int64_t now = now_ms(), least = now + PING_MS / 5;

	if (!hosts->started && !hosts->failed && hosts->deadline < least)
		least = hosts->deadline;
	for (int i = 0; i < hosts->n; i++)
		if (!hosts->list[i].gone && hosts->list[i].gone_at < least)
			least = hosts->list[i].gone_at;
	return least > now ? (int)(least - now) : 0;
}

bool hosts_ended(const struct hosts *hosts)
{
	for (int i = 0; i < hosts->n; i++)
		if (!hosts->list[i].gone)
			return false;
	return true;
}

void hosts_kill(struct hosts *hosts)
{
	for (int i = 0; i < hosts->n; i++) {
		struct host *h = &hosts->list[i];

		if (h->pid)
			kill(h->pid, SIGKILL);
		h->gone = true;
		host_close(h);
	}
}

void hosts_free(struct hosts *hosts)
{
	hosts_kill(hosts);
	free(hosts->list);
	hosts->list = NULL;
	hosts->n = 0;
}
