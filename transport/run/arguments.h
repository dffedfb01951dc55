/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of verbena-run. */
#ifndef VERBENA_RUN_ARGUMENTS_H
#define VERBENA_RUN_ARGUMENTS_H

#include "places.h"

#include <limits.h>
#include <stdint.h>

struct arguments {
	int n;		      /* ranks */
	const char *provider; /* or NULL */
	int64_t timeout_ms;   /* 0: none */
	bool plain;	      /* no rank in front of each line */
	char **command;
	struct places places;	  /* none: all ranks are here */
	const char *remote_shell; /* or NULL */
	char agent[PATH_MAX];	  /* verbena-run on the hosts */
	char **env; /* for the hosts: NAME or NAME=value; NULL at the end */
	int nenv;
};

/* -1: go on; else the exit status, and what is wrong has been said. */
int arguments_read(int argc, char **argv, struct arguments *args);
void arguments_free(struct arguments *args);

#endif
