/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conformance suite of the transport: started as 2 ranks (3 for the cases
 * in which one dies or leaves), it runs every case over whatever provider the
 * job has, and says "ok", "not ok" or "skip" for each, from the lowest rank
 * that lives. Exit status: 0 when nothing failed, 1 when something did, 2 when
 * it could not run.
 */
#include "harness.h"

#include <errno.h>
#include <fnmatch.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct options {
	const char *filter;
	size_t max_size;
	bool list;
};

struct totals {
	int passed, failed, skipped;
};

static const struct cases *const groups[] = {
	&size_cases,	&atomic_cases,	 &order_cases, &pressure_cases,
	&message_cases, &sendrecv_cases, &error_cases, &wait_cases,
	&context_cases, &close_cases,	 &job_cases,   &pool_cases,
	&map_cases,	&death_cases,
};

#define NGROUPS (sizeof(groups) / sizeof(groups[0]))

/* ---- watchdog ---- */

static struct {
	pthread_mutex_t lock;
	const char *name;
	double until;
} watched = {PTHREAD_MUTEX_INITIALIZER, NULL, 0};

static void *watchdog(void *arg)
{
	(void)arg;
	for (;;) {
		sleep_ms(200);
		pthread_mutex_lock(&watched.lock);
		if (watched.name && now() > watched.until) {
			printf("not ok %s # does not end\n", watched.name);
			fflush(stdout);
			_exit(1);
		}
		pthread_mutex_unlock(&watched.lock);
	}
	return NULL;
}

static void watch(const struct test_case *tc)
{
	int seconds = tc && tc->deadline ? tc->deadline : 150;

	pthread_mutex_lock(&watched.lock);
	watched.name = tc ? tc->name : "closing";
	watched.until = now() + seconds;
	pthread_mutex_unlock(&watched.lock);
}

/* ---- results ---- */

struct verdict {
	int outcome;
	char why[400];
};

/* This rank's result, and the peer's in front of it when that says more. */
static void combine(struct test *t, struct verdict *v)
{
	struct verdict theirs;
	size_t len = sizeof(theirs);
	char key[64];

	v->outcome = t->outcome;
	snprintf(v->why, sizeof(v->why), "%s", t->why);
	if (t->nranks > 2)
		return; /* death cases judge the survivors themselves */
	snprintf(key, sizeof(key), "verdict/%u/%d", t->serial, t->rank);
	if (vbn_job_set(t->job, key, v, sizeof(*v), WAIT_MS) != 0) {
		v->outcome = FAILED;
		return;
	}
	snprintf(key, sizeof(key), "verdict/%u/%d", t->serial, t->peer);
	if (vbn_job_get(t->job, key, &theirs, &len, WAIT_MS * 2) != 0) {
		v->outcome = FAILED;
		snprintf(v->why, sizeof(v->why), "rank %d gives no result: %s",
			 t->peer, vbn_error());
		return;
	}
	if (theirs.outcome == FAILED &&
	    (v->outcome != FAILED || t->peer_failed)) {
		v->outcome = FAILED;
		snprintf(v->why, sizeof(v->why), "rank %d: %.380s", t->peer,
			 theirs.why);
	} else if (theirs.outcome == SKIPPED && v->outcome == PASSED) {
		*v = theirs;
	}
}

/* The lowest rank that lives. */
static int speaker(struct vbn_job *job)
{
	return vbn_job_rank_dead(job, 0) ? 1 : 0;
}

static void report(const struct test *t, const struct verdict *v, double took,
		   struct totals *totals)
{
	static const char *const words[] = {"ok", "not ok", "skip"};
	bool speaks = t->rank == speaker(t->job);

	totals->passed += v->outcome == PASSED;
	totals->failed += v->outcome == FAILED;
	totals->skipped += v->outcome == SKIPPED;
	/* Of three, each speaks of its own failures: there is no exchange. */
	if (!speaks && (t->nranks <= 2 || v->outcome != FAILED))
		return;
	if (v->why[0])
		printf("%s %s # %s\n", words[v->outcome], t->tc->name, v->why);
	else
		printf("%s %s # %.2f s\n", words[v->outcome], t->tc->name,
		       took);
	fflush(stdout);
}

static void run_case(struct vbn_job *job, const struct test_case *tc,
		     unsigned serial, struct totals *totals)
{
	struct test t = {.tc = tc, .job = job, .serial = serial};
	struct verdict v;
	double start = now();

	t.rank = vbn_job_rank(job);
	t.nranks = vbn_job_size(job);
	t.peer = t.rank == 0 ? 1 : 0;
	watch(tc);
	if (tc->ranks != 3)
		t_begin(&t);
	if (t.outcome == PASSED)
		tc->run(&t);
	t_end(&t);
	combine(&t, &v);
	report(&t, &v, now() - start, totals);
}

/* ---- selection ---- */

static bool selected(const struct options *o, const struct test_case *tc)
{
	size_t len = o->filter ? strlen(o->filter) : 0;

	if (tc->size > o->max_size)
		return false;
	if (!o->filter || strcmp(o->filter, tc->name) == 0)
		return true;
	if (strncmp(o->filter, tc->name, len) == 0 && tc->name[len] == '/')
		return true;
	return fnmatch(o->filter, tc->name, 0) == 0;
}

static int case_ranks(const struct test_case *tc)
{
	return tc->ranks ? tc->ranks : 2;
}

static int list(const struct options *o)
{
	for (size_t g = 0; g < NGROUPS; g++)
		for (size_t i = 0; i < groups[g]->count; i++)
			if (selected(o, &groups[g]->cases[i]))
				printf("%d %s\n",
				       case_ranks(&groups[g]->cases[i]),
				       groups[g]->cases[i].name);
	return 0;
}

static void run_all(struct vbn_job *job, const struct options *o,
		    struct totals *totals)
{
	unsigned serial = 0;

	for (size_t g = 0; g < NGROUPS; g++)
		for (size_t i = 0; i < groups[g]->count; i++) {
			const struct test_case *tc = &groups[g]->cases[i];

			serial++;
			if (case_ranks(tc) == vbn_job_size(job) &&
			    selected(o, tc))
				run_case(job, tc, serial, totals);
		}
}

/* ---- start ---- */

/* The handlers that the program has, by signal. */
static void note_signals(struct sigaction *have)
{
	for (int i = 1; i < NSIG; i++)
		if (sigaction(i, NULL, &have[i]))
			have[i].sa_handler = SIG_DFL; /* not for us */
}

/* The library and what it loads leave them alone. */
static void check_signals(const struct sigaction *had, struct totals *totals)
{
	static struct sigaction have[NSIG];

	note_signals(have);
	for (int i = 1; i < NSIG; i++) {
		if (have[i].sa_handler == had[i].sa_handler)
			continue;
		printf("not ok signals # the handler of signal %d (%s) is "
		       "another than before\n",
		       i, strsignal(i));
		totals->failed++;
	}
}

static int run(const struct options *o)
{
	static struct sigaction had[NSIG];
	struct totals totals = {0};
	struct vbn_job *job;
	pthread_t thread;
	int rc, rank, size;
	bool speaks;

	note_signals(had);
	rc = vbn_job_open(&job, NULL);
	if (rc != 0) {
		fprintf(stderr, "conformance: %s\n", vbn_error());
		return 2;
	}
	rank = vbn_job_rank(job);
	size = vbn_job_size(job);
	if (pthread_create(&thread, NULL, watchdog, NULL) != 0)
		return 2;
	pthread_detach(thread);
	if (size == 2 || size == 3)
		run_all(job, o, &totals);
	else if (rank == 0)
		fprintf(stderr,
			"conformance: needs 2 ranks, or 3 for the "
			"cases with a death; this job has %d\n",
			size);
	watch(NULL);
	speaks = rank == speaker(job);
	rc = vbn_job_close(job);
	if (rc != 0) {
		printf("not ok closing # vbn_job_close: %s (%s)\n",
		       err_name(rc), vbn_error());
		totals.failed++;
	}
	check_signals(had, &totals);
	if (speaks)
		printf("conformance: %d passed, %d failed, %d skipped\n",
		       totals.passed, totals.failed, totals.skipped);
	if (totals.passed + totals.failed + totals.skipped == 0) {
		if (rank == 0)
			fprintf(stderr, "conformance: no case to run; see "
					"--list\n");
		return 2;
	}
	return totals.failed ? 1 : 0;
}

/*
 * With 3 ranks one kills itself. A launcher would stop the others, so the
 * rank is a child; its parent accepts that death, and nothing else.
 */
static int run_in_child(const struct options *o)
{
	pid_t parent = getpid(), pid = fork();
	int status;

	if (pid < 0) {
		perror("conformance: fork");
		return 2;
	}
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(2);
		exit(run(o));
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 2;
	if (WIFSIGNALED(status))
		return WTERMSIG(status) == SIGKILL ? 0 : 1;
	return WEXITSTATUS(status);
}

static int usage(int status)
{
	fprintf(status ? stderr : stdout,
		"usage: conformance [--list] [--filter NAME] "
		"[--max-size BYTES]\n"
		"  under verbena-run -n 2 (-n 3 for the death cases)\n"
		"  NAME: a case, a group (put), or a pattern (*/4097)\n");
	return status;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"list", no_argument, NULL, 'l'},
		{"filter", required_argument, NULL, 'f'},
		{"max-size", required_argument, NULL, 'm'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct options o = {.max_size = SIZE_MAX};
	const char *size = getenv("VBN_SIZE");
	char *end;
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'l':
			o.list = true;
			break;
		case 'f':
			o.filter = optarg;
			break;
		case 'm':
			errno = 0;
			o.max_size = strtoull(optarg, &end, 10);
			if (errno || *end || end == optarg)
				return usage(2);
			break;
		case 'h':
			return usage(0);
		default:
			return usage(2);
		}
	}
	if (optind < argc)
		return usage(2);
	if (o.list)
		return list(&o);
	return size && strcmp(size, "3") == 0 ? run_in_child(&o) : run(&o);
}
