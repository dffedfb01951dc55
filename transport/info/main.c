/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbena-info: what this machine can do for a job, and what to mend. Exit
 * status 0: a provider can be used; 1: none; 2: the arguments are wrong.
 */
#include "info.h"

#include "env.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define EXIT_UNUSABLE 1
#define EXIT_USAGE    2

static void usage(FILE *to)
{
	fputs("usage: verbena-info [--json | --env]\n"
	      "\n"
	      "Say what this machine can do for a verbena job: providers, RDMA "
	      "devices, network\n"
	      "interfaces, limits, versions; and what to mend.\n"
	      "\n"
	      "  --json   the same as JSON (docs/info.md lists the keys)\n"
	      "  --env    all VBN_* variables, with their values or defaults\n"
	      "  --help   this text\n"
	      "\n"
	      "Exit status: 0 if a provider can be used, 1 if none can, 2 for "
	      "wrong arguments.\n",
	      to);
}

static int report(bool json)
{
	struct problems *problems = calloc(1, sizeof(*problems));
	struct info *info = calloc(1, sizeof(*info));
	int status = EXIT_UNUSABLE;

	if (!problems || !info) {
		fputs("verbena-info: no memory\n", stderr);
	} else {
		info_gather(info);
		doctor(info, problems);
		status = info_usable(info) ? 0 : EXIT_UNUSABLE;
		if (!json)
			print_text(info, problems, stdout);
		else if (print_json(info, problems, stdout))
			fputs("verbena-info: no memory\n", stderr);
		info_free(info);
	}
	free(problems);
	free(info);
	return status;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"json", no_argument, NULL, 'j'},
		{"env", no_argument, NULL, 'e'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	bool json = false, env = false, help = false, bad = false;
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		json |= c == 'j';
		env |= c == 'e';
		help |= c == 'h';
		bad |= c == '?';
	}
	if (bad || optind < argc || (json && env)) {
		usage(stderr);
		return EXIT_USAGE;
	}
	if (help)
		usage(stdout);
	else if (env)
		env_print(stdout);
	c = help || env ? 0 : report(json);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr,
			"verbena-info: cannot write to standard output: %s\n",
			strerror(errno ? errno : EIO));
		return EXIT_UNUSABLE;
	}
	return c;
}
