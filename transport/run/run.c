/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbena-run: start the ranks of a job on this machine, pass on their output
 * and our signals, and see to it that all end when one fails.
 *
 * Stages only go forward: RUNNING, GRACE (a rank has failed: the others
 * should notice by themselves and say so), TERM, KILL.
 */
#include "agent.h"
#include "arguments.h"
#include "hosts.h"
#include "ranks.h"
#include "status.h"
#include "timing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define GRACE_MS     6000
#define TERM_MS	     2000
#define SETTLE_MS    150  /* for a rank that was killed to be seen ended */
#define UNREACHED_MS 3000 /* for agents to say that all is over */

enum stage { RUNNING, GRACE, TERM, KILL };

struct run {
	struct arguments args;
	struct ranks ranks;
	struct hosts hosts; /* n is 0: all ranks are here */
	struct sink out, err;
	struct sink *err_to; /* &out when both are the same file */
	int signal_fd;

	enum stage stage;
	int64_t deadline; /* of the stage, or of the job; INT64_MAX: none */
	int64_t tail;	  /* all ranks have ended: until then */
	int status;	  /* exit status, once something went wrong */
	int asked;	  /* the signal that told us to stop, or 0 */
	bool give_up;	  /* no more output either */
	int cause;	  /* the rank that failed first, or -1 */
	int64_t settled;  /* then it is judged; INT64_MAX: none failed */
};

static bool remote(const struct run *run)
{
	return run->hosts.n;
}

static void signal_all(struct run *run, int sig)
{
	if (remote(run))
		hosts_signal(&run->hosts, sig);
	else
		ranks_signal(&run->ranks, sig);
}

/* ---- stages ---- */

static void enter(struct run *run, enum stage stage)
{
	run->stage = stage;
	switch (stage) {
	case RUNNING:
		break;
	case GRACE:
		run->deadline = now_ms() + GRACE_MS;
		break;
	case TERM:
		signal_all(run, SIGTERM);
		signal_all(run, SIGCONT); /* or it waits, stopped */
		run->deadline = now_ms() + TERM_MS;
		break;
	case KILL:
		signal_all(run, SIGKILL);
		/* Here nothing survives it; a host may be out of reach. */
		run->deadline =
			remote(run) ? now_ms() + UNREACHED_MS : INT64_MAX;
		break;
	}
}

/* "rank 1 has", "ranks 1, 4 have" */
static void list_alive(const struct run *run, char *buf, size_t size)
{
	const char *sep = " ";
	size_t len = (size_t)snprintf(buf, size, "%s",
				      run->ranks.alive == 1 ? "rank" : "ranks");

	for (int i = 0; i < run->ranks.n && len + 32 < size; i++)
		if (run->ranks.rank[i].alive) {
			len += (size_t)snprintf(buf + len, size - len, "%s%d",
						sep, i);
			sep = ", ";
		}
	snprintf(buf + len, size - len, " %s",
		 run->ranks.alive == 1 ? "has" : "have");
}

static void job_too_late(struct run *run, const char *who)
{
	double seconds = (double)run->args.timeout_ms / 1000;

	run->status = EXIT_TIMEOUT;
	if (remote(run) && !run->hosts.started) {
		hosts_too_late(&run->hosts, seconds);
		return;
	}
	sink_say(run->err_to,
		 "the job has not ended within %g s (%s not); stopping it",
		 seconds, who);
	enter(run, TERM);
}

static void deadline_passed(struct run *run)
{
	char who[256];

	list_alive(run, who, sizeof(who));
	switch (run->stage) {
	case RUNNING:
		job_too_late(run, who);
		break;
	case GRACE:
		sink_say(run->err_to,
			 "%s not ended within %d s; sending SIGTERM", who,
			 GRACE_MS / 1000);
		enter(run, TERM);
		break;
	case TERM:
		sink_say(run->err_to, "%s ignored SIGTERM; sending SIGKILL",
			 who);
		enter(run, KILL);
		break;
	case KILL:
		hosts_kill(&run->hosts);
		run->give_up = true;
		break;
	}
}

/* "rank 1 (pid 7)", "rank 1 (pid 7 on host b)" */
static void name_rank(const struct run *run, int rank, char *text, size_t room)
{
	const struct rank *r = &run->ranks.rank[rank];
	int i = 0;

	while (i < run->hosts.n &&
	       rank >= run->hosts.list[i].first + run->hosts.list[i].n)
		i++;
	snprintf(text, room, "rank %d (pid %d%s%s)", rank, (int)r->pid,
		 remote(run) ? " on host " : "",
		 remote(run) ? run->hosts.list[i].name : "");
}

/* The rank that has made the job fail. */
static void judge(struct run *run)
{
	const struct rank *r = &run->ranks.rank[run->cause];
	const char *rest = run->ranks.alive ? "; stopping the others" : "";
	char who[320];

	run->settled = INT64_MAX;
	if (run->stage != RUNNING || run->status)
		return;
	run->status = rank_exit_status(r);
	name_rank(run, run->cause, who, sizeof(who));
	if (r->code == CLD_EXITED)
		sink_say(run->err_to, "%s exited with status %d%s", who,
			 r->status, rest);
	else
		sink_say(run->err_to, "%s was killed by signal %d (%s)%s", who,
			 r->status, sigdescr_np(r->status), rest);
	enter(run, GRACE);
}

/*
 * Ranks that ended at the same time come in no order. The one that a signal
 * killed is rather the cause than those that report an error; but a dying
 * process closes its sockets before it is seen dead: so there is a moment
 * before the first is judged.
 */
static void rank_ended(void *arg, int rank)
{
	struct run *run = arg;
	const struct rank *r = &run->ranks.rank[rank];

	if (!run->ranks.alive)
		run->tail = now_ms() + TAIL_MS + 2000 * remote(run);
	if (!rank_failed(r))
		return;
	if (run->stage != RUNNING || run->status) {
		if (run->asked && !run->status)
			run->status = rank_exit_status(r);
		return;
	}
	if (run->settled == INT64_MAX) {
		run->cause = rank;
		run->settled = now_ms() + SETTLE_MS;
	} else if (run->ranks.rank[run->cause].code == CLD_EXITED &&
		   r->code != CLD_EXITED) {
		run->cause = rank;
	}
	if (r->code != CLD_EXITED || !run->ranks.alive)
		run->settled = 0;
}

static void reap_all(struct run *run)
{
	int rank;

	if (remote(run)) {
		hosts_reap(&run->hosts);
		return;
	}
	while ((rank = ranks_reap(&run->ranks)) >= 0) {
		rank_drain(&run->ranks.rank[rank]);
		rank_ended(run, rank);
	}
}

/* ---- hosts ---- */

static void job_failed(void *arg, int status, const char *line)
{
	struct run *run = arg;

	sink_say(run->err_to, "%s", line);
	if (!run->status)
		run->status = status;
	enter(run, KILL);
}

static void host_lost(void *arg, const char *line)
{
	struct run *run = arg;

	if (!run->ranks.alive)
		run->tail = now_ms() + TAIL_MS;
	if (run->stage == KILL)
		return;
	sink_say(run->err_to, "%s%s", line,
		 run->ranks.alive ? "; stopping the others" : "");
	if (!run->status)
		run->status = EXIT_LAUNCHER;
	if (run->stage == RUNNING)
		enter(run, GRACE);
}

/* ---- signals ---- */

static void stop_asked(struct run *run, int sig)
{
	if (!run->ranks.alive) { /* all have ended, or none has begun */
		run->give_up = true;
		if (!run->status)
			run->status = 128 + sig;
		return;
	}
	if (run->asked) { /* the second time in earnest */
		enter(run, KILL);
		return;
	}
	run->asked = sig;
	sink_say(run->err_to, "signal %d (%s): stopping the ranks", sig,
		 sigdescr_np(sig));
	signal_all(run, sig);
	signal_all(run, SIGCONT);
	if (run->stage == RUNNING)
		enter(run, GRACE);
}

/* Before we stop, the agents are to know that we shall be silent. */
static void flush_hosts(struct run *run)
{
	for (int i = 0; i < run->hosts.n; i++)
		if (run->hosts.list[i].to.fd >= 0)
			sink_flush(&run->hosts.list[i].to);
}

static void on_signal(struct run *run)
{
	struct signalfd_siginfo info;

	if (read(run->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	switch (info.ssi_signo) {
	case SIGCHLD:
		reap_all(run);
		break;
	case SIGINT:
	case SIGTERM:
	case SIGHUP:
	case SIGQUIT:
		stop_asked(run, (int)info.ssi_signo);
		break;
	case SIGTSTP:
		signal_all(run, SIGTSTP);
		flush_hosts(run);
		raise(SIGSTOP);
		break;
	default:
		signal_all(run, (int)info.ssi_signo);
		break;
	}
}

/* Signals wait in a descriptor from here on. */
static int take_signals(struct run *run)
{
	static const int ours[] = {SIGCHLD, SIGINT,   SIGTERM, SIGHUP,
				   SIGQUIT, SIGUSR1,  SIGUSR2, SIGTSTP,
				   SIGCONT, SIGWINCH, SIGALRM};
	sigset_t set;

	sigemptyset(&set);
	for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++)
		sigaddset(&set, ours[i]);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL); /* ignored, there would be no status */
	if (sigprocmask(SIG_BLOCK, &set, &run->ranks.mask))
		return -errno;
	run->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return run->signal_fd < 0 ? -errno : 0;
}

/* ---- the loop ---- */

static bool ended(struct run *run)
{
	if (run->give_up)
		return true;
	if (run->ranks.alive || run->settled != INT64_MAX)
		return false;
	if (remote(run) && !hosts_ended(&run->hosts) &&
	    (now_ms() < run->tail || !run->hosts.started))
		return false;
	if (now_ms() < run->tail)
		for (int i = 0; i < run->ranks.n; i++)
			if (run->ranks.rank[i].out.fd >= 0 ||
			    run->ranks.rank[i].err.fd >= 0)
				return false;
	for (int i = 0; i < run->ranks.n; i++) {
		source_end(&run->ranks.rank[i].out);
		source_end(&run->ranks.rank[i].err);
	}
	return sink_empty(&run->out) && sink_empty(&run->err);
}

static int64_t sooner(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Ranks, or hosts on the way to them. */
static bool under_way(const struct run *run)
{
	return run->ranks.alive || (remote(run) && !run->hosts.started);
}

static int wait_ms(const struct run *run)
{
	int64_t until = under_way(run) ? run->deadline : run->tail;
	int64_t left = sooner(until, run->settled) - now_ms();

	if (remote(run))
		left = sooner(left, hosts_wait_ms(&run->hosts));
	else if (!run->ranks.alive && left <= 0)
		return -1; /* only the sinks are waited for */
	return left <= 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

static void add(struct pollfd *fds, struct source **sources, size_t *n,
		struct source *source)
{
	if (source->fd < 0)
		return;
	/* A pipe whose sink is broken is closed at once. */
	if (sink_full(source->sink) && !source->sink->broken)
		return;
	sources[*n] = source;
	fds[(*n)++] = (struct pollfd){.fd = source->fd, .events = POLLIN};
}

static void add_sink(struct pollfd *fds, size_t *n, const struct sink *sink)
{
	if (!sink_empty(sink))
		fds[(*n)++] =
			(struct pollfd){.fd = sink->fd, .events = POLLOUT};
}

static void round_once(struct run *run, struct pollfd *fds,
		       struct source **sources)
{
	size_t n = 1, nsources, nsinks;

	fds[0] = (struct pollfd){.fd = run->signal_fd, .events = POLLIN};
	for (int i = 0; i < run->ranks.n; i++) {
		add(fds, sources, &n, &run->ranks.rank[i].out);
		add(fds, sources, &n, &run->ranks.rank[i].err);
	}
	nsources = n;
	add_sink(fds, &n, &run->out);
	add_sink(fds, &n, &run->err);
	nsinks = n;
	if (remote(run))
		n += hosts_poll(&run->hosts, fds + n);
	if (poll(fds, n, wait_ms(run)) < 0)
		return;
	for (size_t i = 1; i < nsources; i++)
		if (fds[i].revents || sources[i]->sink->broken)
			source_read(sources[i]);
	if (fds[0].revents)
		on_signal(run);
	if (remote(run))
		hosts_handle(&run->hosts, fds + nsinks);
	if (now_ms() >= run->settled)
		judge(run);
	if (under_way(run) && now_ms() >= run->deadline)
		deadline_passed(run);
	sink_flush(&run->out);
	sink_flush(&run->err);
}

static int loop(struct run *run)
{
	size_t max = 2 * (size_t)run->ranks.n + 3 + 3 * (size_t)run->hosts.n;
	struct pollfd *fds = calloc(max, sizeof(*fds));
	struct source **sources = calloc(max, sizeof(struct source *));

	if (!fds || !sources) {
		signal_all(run, SIGKILL);
		free(fds);
		free(sources);
		return -ENOMEM;
	}
	while (!ended(run))
		round_once(run, fds, sources);
	free(fds);
	free(sources);
	return 0;
}

static bool same_file(int a, int b)
{
	struct stat sa, sb;

	return !fstat(a, &sa) && !fstat(b, &sb) && sa.st_dev == sb.st_dev &&
	       sa.st_ino == sb.st_ino;
}

static int start_failed(struct run *run, int rc, const char *what)
{
	int status = EXIT_LAUNCHER;

	if (!strcmp(what, "exec")) {
		sink_say(run->err_to, "cannot run %s: %s",
			 run->ranks.command[0], strerror(-rc));
		status = rc == -ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT;
	} else {
		sink_say(run->err_to, "cannot start %d ranks: %s: %s",
			 run->ranks.n, what, strerror(-rc));
	}
	run->status = status;
	enter(run, KILL);
	return loop(run);
}

static int run_here(struct run *run)
{
	const char *what = "socket";
	int rc = ranks_prepare(&run->ranks);

	if (!rc)
		rc = ranks_start(&run->ranks, &run->out, run->err_to, &what);
	return rc ? start_failed(run, rc, what) : loop(run);
}

static int run_on_hosts(struct run *run)
{
	const char *what = "secret";
	int rc = ranks_make_secret(&run->ranks);

	run->hosts = (struct hosts){
		.ranks = &run->ranks,
		.out = &run->out,
		.err = run->err_to,
		.events = {job_failed, rank_ended, host_lost, run},
		.shell = run->args.remote_shell,
		.agent = run->args.agent,
		.env = run->args.env,
	};
	if (!rc)
		rc = ranks_alloc(&run->ranks, run->args.places.slots);
	if (!rc)
		rc = hosts_open(&run->hosts, &run->args.places, &what);
	rc = rc ? start_failed(run, rc, what) : loop(run);
	hosts_free(&run->hosts);
	return rc;
}

static int run_job(struct run *run)
{
	bool lost;
	int rc;

	sink_init(&run->out, STDOUT_FILENO);
	sink_init(&run->err, STDERR_FILENO);
	run->out.plain = run->err.plain = run->args.plain;
	/* One sink keeps the lines of both whole and in order. */
	run->err_to =
		same_file(STDOUT_FILENO, STDERR_FILENO) ? &run->out : &run->err;
	run->deadline = run->args.timeout_ms ? now_ms() + run->args.timeout_ms
					     : INT64_MAX;
	run->settled = INT64_MAX;
	run->ranks.n = run->args.n;
	run->ranks.provider = run->args.provider;
	run->ranks.command = run->args.command;
	rc = take_signals(run);
	if (!rc)
		rc = run->args.places.n ? run_on_hosts(run) : run_here(run);
	ranks_free(&run->ranks);
	/* a reader that has gone wants no more; all else is a loss */
	lost = run->out.broken && run->out.error != EPIPE;
	if (lost)
		fprintf(stderr, "verbena-run: output is lost: %s\n",
			strerror(run->out.error));
	sink_end(&run->out);
	sink_end(&run->err);
	return rc || (lost && !run->status) ? EXIT_LAUNCHER : run->status;
}

/* What we open must not become a standard stream that was closed. */
static void fill_standard_streams(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

int main(int argc, char **argv)
{
	struct run run = {.ranks.listen_fd = -1};
	int status;

	fill_standard_streams();
	if (argc == 2 && !strcmp(argv[1], "--agent"))
		return agent_main();
	status = arguments_read(argc, argv, &run.args);
	if (status < 0)
		status = run_job(&run);
	arguments_free(&run.args);
	return status;
}
