/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random operations, or collectives, under verbena-run: seeds.sh runs it with
 * faults of many kinds. The rank is a child, so that the launcher does not see
 * one that VBN_FAULT kills. A line for each rank that finds something wrong;
 * rank 0 tells how much there was. Exit status 1 if something was wrong.
 */
#include "random_ops.h"

#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct options {
	uint64_t seed;
	int count;
	bool coll, faulty, checked;
};

void wrong(struct rank *r, const char *fmt, ...)
{
	char text[400];
	va_list args;

	if (++r->failures > 5)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	printf("wrong: rank %d: %s\n", r->me, text);
	fflush(stdout);
}

uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t z = (a ^ b * 0xd6e8feb86659fd93u) + 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 32) * 0xd6e8feb86659fd93u;
	z = (z ^ z >> 32) * 0xd6e8feb86659fd93u;
	return z ^ z >> 32;
}

uint64_t draw(struct rank *r, uint64_t below)
{
	r->random = mix(r->random, 1);
	return below ? r->random % below : 0;
}

static uint8_t byte_of(uint64_t stream, size_t i)
{
	return (uint8_t)(stream >> i % 8 * 8) ^ (uint8_t)(i * 37 >> 3);
}

void fill(char *to, size_t len, uint64_t stream, size_t offset)
{
	for (size_t i = 0; i < len; i++)
		to[i] = (char)byte_of(stream, offset + i);
}

bool is_pattern(const char *at, size_t len, uint64_t stream, size_t offset)
{
	for (size_t i = 0; i < len; i++)
		if (at[i] != (char)byte_of(stream, offset + i))
			return false;
	return true;
}

static int run(const struct options *o)
{
	static struct rank r;

	r.seed = o->seed;
	r.faulty = o->faulty;
	r.checked = o->checked;
	if (vbn_job_open(&r.job, NULL)) {
		printf("wrong: %s\n", vbn_error());
		return 1;
	}
	r.me = vbn_job_rank(r.job);
	r.n = vbn_job_size(r.job);
	r.random = mix(o->seed, (uint64_t)r.me + 1000);
	if (r.n > RANKS_MOST || vbn_ctx_open(&r.ctx, r.job, NULL) ||
	    (!o->coll && !ops_open(&r))) {
		wrong(&r, "setup: %s", vbn_error());
		return 1;
	}
	if (o->coll)
		coll_run(&r, o->count);
	else
		ops_run(&r, o->count);
	r.closing = true;
	vbn_ctx_close(r.ctx);
	if (!o->coll)
		ops_close(&r);
	if (vbn_job_close(r.job))
		wrong(&r, "close: %s", vbn_error());
	if (r.me == 0)
		printf("rank 0: %u operations, %u errors\n", r.ops, r.errors);
	return r.failures ? 1 : 0;
}

/* A death by SIGKILL is VBN_FAULT's, if endpoints may fail. */
static int run_in_child(const struct options *o)
{
	pid_t parent = getpid(), pid = fork();
	int status;

	if (pid < 0) {
		perror("fork");
		return 2;
	}
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(2);
		status = run(o);
		fflush(stdout);
		exit(status);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 2;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	if (o->faulty && WTERMSIG(status) == SIGKILL)
		return 0;
	printf("wrong: a rank ended by signal %d\n", WTERMSIG(status));
	return 1;
}

static int usage(void)
{
	fprintf(stderr, "usage: random_ops --seed S [--count N] [--coll] "
			"[--faulty] [--checked]\n"
			"  --faulty   endpoints may fail\n"
			"  --checked  only what VBN_CHECKSUM=1 covers\n");
	return 2;
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{"seed", required_argument, NULL, 's'},
		{"count", required_argument, NULL, 'c'},
		{"coll", no_argument, NULL, 'o'},
		{"faulty", no_argument, NULL, 'f'},
		{"checked", no_argument, NULL, 'k'},
		{NULL, 0, NULL, 0},
	};
	struct options o = {.seed = 1, .count = 300};
	int c;

	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		if (c == 's')
			o.seed = strtoull(optarg, NULL, 10);
		else if (c == 'c')
			o.count = (int)strtol(optarg, NULL, 10);
		else if (c == 'o')
			o.coll = true;
		else if (c == 'f')
			o.faulty = true;
		else if (c == 'k')
			o.checked = true;
		else
			return usage();
	}
	return optind < argc ? usage() : run_in_child(&o);
}
