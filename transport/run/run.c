/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbena-run: start the ranks of a job on this machine, pass on their output
 * and our signals, and see to it that all end when one fails.
 *
 * Stages only go forward: RUNNING, GRACE (a rank has failed: the others
 * should notice by themselves and say so), TERM, KILL.
 */
#include "ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MAX 1024

#define GRACE_MS  6000
#define TERM_MS	  2000
#define SETTLE_MS 150 /* for a rank that was killed to be seen ended */
/* Output of descendants that outlive their rank is waited for this long. */
#define TAIL_MS 1000

#define EXIT_TIMEOUT   124
#define EXIT_LAUNCHER  125
#define EXIT_CANNOT    126
#define EXIT_NOT_FOUND 127

enum stage { RUNNING, GRACE, TERM, KILL };

struct run {
	struct ranks ranks;
	struct sink out, err;
	struct sink *err_to; /* &out when both are the same file */
	int signal_fd;
	int64_t timeout_ms; /* 0: none */
	bool plain;	    /* no rank in front of each line */

	enum stage stage;
	int64_t deadline; /* of the stage, or of the job; INT64_MAX: none */
	int64_t tail;	  /* all ranks have ended: until then */
	int status;	  /* exit status, once something went wrong */
	int asked;	  /* the signal that told us to stop, or 0 */
	bool give_up;	  /* no more output either */
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
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
		ranks_signal(&run->ranks, SIGTERM);
		ranks_signal(&run->ranks, SIGCONT); /* or it waits, stopped */
		run->deadline = now_ms() + TERM_MS;
		break;
	case KILL:
		ranks_signal(&run->ranks, SIGKILL);
		run->deadline = INT64_MAX;
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
		if (run->ranks.rank[i].pid) {
			len += (size_t)snprintf(buf + len, size - len, "%s%d",
						sep, i);
			sep = ", ";
		}
	snprintf(buf + len, size - len, " %s",
		 run->ranks.alive == 1 ? "has" : "have");
}

static void deadline_passed(struct run *run)
{
	char who[256];

	list_alive(run, who, sizeof(who));
	switch (run->stage) {
	case RUNNING:
		sink_say(run->err_to,
			 "the job has not ended within %g s (%s not); stopping "
			 "it",
			 (double)run->timeout_ms / 1000, who);
		run->status = EXIT_TIMEOUT;
		enter(run, TERM);
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
		break;
	}
}

static void rank_ended(struct run *run, int rank, pid_t pid)
{
	const struct rank *r = &run->ranks.rank[rank];
	const char *rest = run->ranks.alive ? "; stopping the others" : "";

	if (run->stage != RUNNING || run->status || !rank_failed(r)) {
		if (run->asked && rank_failed(r) && !run->status)
			run->status = rank_exit_status(r);
		return;
	}
	run->status = rank_exit_status(r);
	if (r->code == CLD_EXITED)
		sink_say(run->err_to,
			 "rank %d (pid %d) exited with status %d%s", rank,
			 (int)pid, r->status, rest);
	else
		sink_say(run->err_to,
			 "rank %d (pid %d) was killed by signal %d (%s)%s",
			 rank, (int)pid, r->status, sigdescr_np(r->status),
			 rest);
	enter(run, GRACE);
}

/*
 * Ranks that ended at the same time come in no order. The one that a signal
 * killed is rather the cause than those that report an error.
 */
static void reap_all(struct run *run)
{
	int n = run->ranks.n, first = -1, count = 0, rank;
	pid_t *pids = calloc((size_t)n, sizeof(*pids));
	int *ended = calloc((size_t)n, sizeof(*ended));
	bool failed = false;

	for (int i = 0; pids && i < n; i++)
		pids[i] = run->ranks.rank[i].pid;
	for (int pass = 0; pass < 2; pass++) {
		while ((rank = ranks_reap(&run->ranks)) >= 0) {
			const struct rank *r = &run->ranks.rank[rank];

			if (first < 0 && r->code != CLD_EXITED)
				first = rank;
			failed |= rank_failed(r);
			if (ended)
				ended[count++] = rank;
		}
		if (first >= 0 || !failed || run->stage != RUNNING)
			break;
		/* A dying process closes its sockets before it is seen dead. */
		poll(NULL, 0, SETTLE_MS);
	}
	if (pids && first >= 0)
		rank_ended(run, first, pids[first]);
	for (int i = 0; pids && ended && i < count; i++)
		if (ended[i] != first)
			rank_ended(run, ended[i], pids[ended[i]]);
	free(pids);
	free(ended);
	if (!run->ranks.alive)
		run->tail = now_ms() + TAIL_MS;
}

/* ---- signals ---- */

static void stop_asked(struct run *run, int sig)
{
	if (!run->ranks.alive) {
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
	ranks_signal(&run->ranks, sig);
	ranks_signal(&run->ranks, SIGCONT);
	if (run->stage == RUNNING)
		enter(run, GRACE);
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
		ranks_signal(&run->ranks, SIGTSTP);
		raise(SIGSTOP);
		break;
	default:
		ranks_signal(&run->ranks, (int)info.ssi_signo);
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
	if (run->ranks.alive)
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

static int wait_ms(const struct run *run)
{
	int64_t until = run->ranks.alive ? run->deadline : run->tail;
	int64_t left = until - now_ms();

	if (!run->ranks.alive && left <= 0)
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
	size_t n = 1, nsources;

	fds[0] = (struct pollfd){.fd = run->signal_fd, .events = POLLIN};
	for (int i = 0; i < run->ranks.n; i++) {
		add(fds, sources, &n, &run->ranks.rank[i].out);
		add(fds, sources, &n, &run->ranks.rank[i].err);
	}
	nsources = n;
	add_sink(fds, &n, &run->out);
	add_sink(fds, &n, &run->err);
	if (poll(fds, n, wait_ms(run)) < 0)
		return;
	for (size_t i = 1; i < nsources; i++)
		if (fds[i].revents || sources[i]->sink->broken)
			source_read(sources[i]);
	if (fds[0].revents)
		on_signal(run);
	if (run->ranks.alive && now_ms() >= run->deadline)
		deadline_passed(run);
	sink_flush(&run->out);
	sink_flush(&run->err);
}

static int loop(struct run *run)
{
	size_t max = 2 * (size_t)run->ranks.n + 3;
	struct pollfd *fds = calloc(max, sizeof(*fds));
	struct source **sources = calloc(max, sizeof(struct source *));

	if (!fds || !sources) {
		ranks_signal(&run->ranks, SIGKILL);
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

static int run_job(struct run *run)
{
	const char *what = "socket";
	bool lost;
	int rc;

	sink_init(&run->out, STDOUT_FILENO);
	sink_init(&run->err, STDERR_FILENO);
	run->out.plain = run->err.plain = run->plain;
	/* One sink keeps the lines of both whole and in order. */
	run->err_to =
		same_file(STDOUT_FILENO, STDERR_FILENO) ? &run->out : &run->err;
	run->deadline =
		run->timeout_ms ? now_ms() + run->timeout_ms : INT64_MAX;
	rc = take_signals(run);
	if (!rc)
		rc = ranks_prepare(&run->ranks);
	if (!rc)
		rc = ranks_start(&run->ranks, &run->out, run->err_to, &what);
	rc = rc ? start_failed(run, rc, what) : loop(run);
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

/* ---- arguments ---- */

static void usage(FILE *to)
{
	fputs("usage: verbena-run [-n N] [--provider P] [--timeout S] "
	      "[--no-prefix]\n"
	      "                   COMMAND...\n"
	      "\n"
	      "Start N ranks of COMMAND on this machine as one verbena job.\n"
	      "\n"
	      "  -n N           ranks (default: the number of processors)\n"
	      "  --provider P   shm, verbs or ucx for all connections "
	      "(VBN_PROVIDER)\n"
	      "  --timeout S    stop the job after S seconds, exit with 124\n"
	      "  --no-prefix    no rank in front of each line of output\n"
	      "  --help         this text\n"
	      "\n"
	      "Each line of output has its rank in front. When a rank fails, "
	      "the others\n"
	      "are stopped, and its status is the exit status (128 + signal "
	      "if killed).\n",
	      to);
}

static int bad(const char *what, const char *value, const char *why)
{
	fprintf(stderr, "verbena-run: %s%s%s; see verbena-run --help\n", what,
		value, why);
	return 2;
}

static int processors(void)
{
	cpu_set_t set;

	if (!sched_getaffinity(0, sizeof(set), &set) && CPU_COUNT(&set) > 0)
		return CPU_COUNT(&set);
	return 1;
}

static bool parse_ranks(const char *text, int *n)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || end == text || *end || value < 1 || value > RANKS_MAX)
		return false;
	*n = (int)value;
	return true;
}

static bool parse_seconds(const char *text, int64_t *ms)
{
	char *end;
	double value;

	errno = 0;
	value = strtod(text, &end);
	if (errno || end == text || *end || !(value >= 0.001) || value > 1e9)
		return false;
	*ms = (int64_t)(value * 1000);
	return true;
}

static bool known_provider(const char *name)
{
	return !strcmp(name, "shm") || !strcmp(name, "verbs") ||
	       !strcmp(name, "ucx");
}

/* -1: go on; else the exit status. */
static int parse(int argc, char **argv, struct run *run)
{
	static const struct option options[] = {
		{"ranks", required_argument, NULL, 'n'},
		{"provider", required_argument, NULL, 'p'},
		{"timeout", required_argument, NULL, 't'},
		{"no-prefix", no_argument, NULL, 'x'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	char letter[] = "-?";
	int c;

	opterr = 0;
	while ((c = getopt_long(argc, argv, "+:n:h", options, NULL)) != -1)
		switch (c) {
		case 'n':
			if (!parse_ranks(optarg, &run->ranks.n))
				return bad("-n ", optarg,
					   ": it must be a number from 1 to "
					   "1024");
			break;
		case 'p':
			if (!known_provider(optarg))
				return bad("--provider ", optarg,
					   ": it must be shm, verbs or ucx");
			run->ranks.provider = optarg;
			break;
		case 't':
			if (!parse_seconds(optarg, &run->timeout_ms))
				return bad("--timeout ", optarg,
					   ": it must be a number of seconds "
					   "above 0");
			break;
		case 'x':
			run->plain = true;
			break;
		case 'h':
			usage(stdout);
			return fflush(stdout) ? EXIT_LAUNCHER : 0;
		case ':':
			return bad("", argv[optind - 1], " needs a value");
		default:
			if (!strncmp(argv[optind - 1], "--", 2))
				return bad("unknown option ", argv[optind - 1],
					   "");
			letter[1] = (char)optopt;
			return bad("unknown option ", letter, "");
		}
	if (optind == argc)
		return bad("no COMMAND", "", "");
	run->ranks.command = argv + optind;
	return -1;
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
	struct run run = {.ranks.n = processors()};
	int status;

	fill_standard_streams();
	status = parse(argc, argv, &run);
	return status >= 0 ? status : run_job(&run);
}
