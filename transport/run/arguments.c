/* SPDX-License-Identifier: BSD-3-Clause */
/* Options of verbena-run, and what is said of wrong ones. */
#include "arguments.h"
#include "status.h"

#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RANKS_MAX 1024 /* of one machine */

static void usage(FILE *to)
{
	fputs("usage: verbena-run [-n N] [--provider P] [--connect C] "
	      "[--timeout S] [--no-prefix]\n"
	      "                   [--hosts LIST | --hostfile FILE] "
	      "[--remote-shell CMD]\n"
	      "                   [--agent PATH] [--env NAME[=VALUE]] "
	      "COMMAND...\n"
	      "\n"
	      "Start N ranks of COMMAND as one verbena job, on this machine "
	      "or on several.\n"
	      "\n"
	      "  -n N           ranks (default: the number of processors, or "
	      "all of the list)\n"
	      "  --provider P   shm, verbs or ucx for all connections "
	      "(VBN_PROVIDER)\n"
	      "  --connect C    control or rdmacm: who connects verbs' queue "
	      "pairs (VBN_CONNECT)\n"
	      "  --timeout S    stop the job after S seconds, exit with 124\n"
	      "  --no-prefix    no rank in front of each line of output\n"
	      "  --hosts LIST   hosts and their ranks: a:2,b:2, node[01-08]:4\n"
	      "  --hostfile F   the same from a file, a line each: "
	      "\"host slots=N\"\n"
	      "  --remote-shell CMD  run as CMD HOST COMMAND (default: ssh; "
	      "without it,\n"
	      "                 none for localhost)\n"
	      "  --agent PATH   verbena-run on the hosts (default: where this "
	      "one is)\n"
	      "  --env NAME[=VALUE]  a variable more for the hosts' ranks; "
	      "VBN_*, UCX_*, OMP_*,\n"
	      "                 PATH and the like go there anyway\n"
	      "  --help         this text\n"
	      "\n"
	      "Each line of output has its rank in front. When a rank fails, "
	      "the others\n"
	      "are stopped, and its status is the exit status (128 + signal "
	      "if killed).\n"
	      "On hosts the working directory is the same, and standard input "
	      "is empty.\n",
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
	if (errno || end == text || *end || value < 1 || value > SLOTS_MAX)
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

/* Ranks inherit it, those on hosts as all VBN_*. */
static int set_connect(const char *value)
{
	if (strcmp(value, "control") && strcmp(value, "rdmacm"))
		return bad("--connect ", value,
			   ": it must be control or rdmacm");
	return setenv("VBN_CONNECT", value, 1)
		       ? bad("--connect ", value, ": no memory")
		       : -1;
}

static int add_env(struct arguments *a, char *text)
{
	char **more;

	if (!text[0] || text[0] == '=')
		return bad("--env ", text, ": it must be NAME or NAME=VALUE");
	more = realloc(a->env, (size_t)(a->nenv + 2) * sizeof(*more));
	if (!more)
		return bad("--env ", text, ": no memory");
	a->env = more;
	a->env[a->nenv++] = text;
	a->env[a->nenv] = NULL;
	return -1;
}

static int add_places(struct arguments *a, const char *text, bool file)
{
	int rc = file ? places_read(&a->places, text)
		      : places_add(&a->places, text);

	return rc ? bad(file ? "--hostfile: " : "--hosts: ", a->places.why, "")
		  : -1;
}

/* An option that takes a value. -1: go on. */
static int take(struct arguments *a, int option, char *value)
{
	switch (option) {
	case 'n':
		if (parse_ranks(value, &a->n))
			return -1;
		return bad("-n ", value,
			   ": it must be a number from 1 to 65536");
	case 'p':
		a->provider = value;
		if (known_provider(value))
			return -1;
		return bad("--provider ", value,
			   ": it must be shm, verbs or ucx");
	case 'c':
		return set_connect(value);
	case 't':
		if (parse_seconds(value, &a->timeout_ms))
			return -1;
		return bad("--timeout ", value,
			   ": it must be a number of seconds above 0");
	case 'H':
	case 'F':
		return add_places(a, value, option == 'F');
	case 'r':
		a->remote_shell = value;
		return value[0] ? -1 : bad("--remote-shell", "", " is empty");
	case 'e':
		return add_env(a, value);
	default:
		if (!value[0] || strlen(value) >= sizeof(a->agent))
			return bad("--agent ", value, ": this is no path");
		strcpy(a->agent, value);
		return -1;
	}
}

/* How many ranks, and where. -1: go on. */
static int settle(struct arguments *a)
{
	char text[24];
	ssize_t len;

	if (!a->places.n) {
		if (a->n > RANKS_MAX)
			return bad("-n ", "",
				   "on one machine there are at "
				   "most 1024 ranks");
		if (!a->n)
			a->n = processors();
		return -1;
	}
	snprintf(text, sizeof(text), "%d", a->n);
	if (a->n > a->places.slots)
		return bad("-n ", text,
			   ": the hosts are given fewer ranks in all");
	if (a->n)
		places_cut(&a->places, a->n);
	a->n = a->places.slots;
	if (a->agent[0])
		return -1;
	len = readlink("/proc/self/exe", a->agent, sizeof(a->agent) - 1);
	if (len < 0)
		return bad("--agent", "", " is needed: /proc is not here");
	a->agent[len] = '\0';
	return -1;
}

static int wrong_option(char **argv, int option)
{
	char letter[] = "-?";

	if (!strncmp(argv[optind - 1], "--", 2))
		return bad("unknown option ", argv[optind - 1], "");
	letter[1] = (char)option;
	return bad("unknown option ", letter, "");
}

int arguments_read(int argc, char **argv, struct arguments *a)
{
	static const struct option options[] = {
		{"ranks", required_argument, NULL, 'n'},
		{"provider", required_argument, NULL, 'p'},
		{"connect", required_argument, NULL, 'c'},
		{"timeout", required_argument, NULL, 't'},
		{"hosts", required_argument, NULL, 'H'},
		{"hostfile", required_argument, NULL, 'F'},
		{"remote-shell", required_argument, NULL, 'r'},
		{"agent", required_argument, NULL, 'a'},
		{"env", required_argument, NULL, 'e'},
		{"no-prefix", no_argument, NULL, 'x'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	int c, status = -1;

	opterr = 0;
	while (status < 0 &&
	       (c = getopt_long(argc, argv, "+:n:h", options, NULL)) != -1)
		switch (c) {
		case 'x':
			a->plain = true;
			break;
		case 'h':
			usage(stdout);
			return fflush(stdout) ? EXIT_LAUNCHER : 0;
		case ':':
			return bad("", argv[optind - 1], " needs a value");
		case '?':
			return wrong_option(argv, optopt);
		default:
			status = take(a, c, optarg);
		}
	if (status < 0 && optind == argc)
		return bad("no COMMAND", "", "");
	a->command = argv + optind;
	return status < 0 ? settle(a) : status;
}

void arguments_free(struct arguments *a)
{
	places_free(&a->places);
	free(a->env);
}
