/* SPDX-License-Identifier: BSD-3-Clause */
/* A command line of verbena-sim's, as one string. */
#ifndef VBN_TESTS_SIM_LINE_H
#define VBN_TESTS_SIM_LINE_H

#include "setup.h"

#include <string.h>

enum { SIM_WORDS = 32 };

/*
 * What setup_parse() returns of the words of @line; "" has none. The setup
 * keeps some of them: they last until the next line.
 */
static inline int sim_line(struct setup *setup, const char *line,
			   char why[SETUP_WHY])
{
	static char name[] = "verbena-sim", copy[256];
	char *rest = copy;
	char *argv[SIM_WORDS] = {name};
	int argc = 1;

	snprintf(copy, sizeof(copy), "%s", line);
	while (*line && argc < SIM_WORDS - 1 &&
	       (argv[argc] = strsep(&rest, " ")))
		argc++;
	why[0] = '\0';
	return setup_parse(setup, argc, argv, why);
}

#endif
