/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks as processes: start, signal, reap. Each leads a process group of
 * its own, so that what it starts ends with it.
 */
#ifndef VERBENA_RUN_RANKS_H
#define VERBENA_RUN_RANKS_H

#include "output.h"

#include <signal.h>
#include <sys/types.h>

struct rank {
	pid_t pid; /* 0: reaped */
	int code;  /* siginfo's CLD_ code and status, once reaped */
	int status;
	struct source out, err;
};

struct ranks {
	int n, alive;
	struct rank *rank;
	/* what a child needs before it runs the command */
	sigset_t mask; /* as the launcher found it */
	int listen_fd; /* for rank 0 */
	char address[32];
	char secret[65];
	const char *provider; /* or NULL */
	char **command;
};

/* A listening socket on this machine, and a secret. -errno. */
int ranks_prepare(struct ranks *ranks);
/*
 * Start all. On failure -errno, *what says which step; the command that
 * cannot be run is "exec". Those that were started are still there.
 */
int ranks_start(struct ranks *ranks, struct sink *out, struct sink *err,
		const char **what);
/* To every group that is still there. */
void ranks_signal(const struct ranks *ranks, int sig);
/*
 * Reap one that has ended, and end its group: its number, or -1. Its output
 * so far has been read.
 */
int ranks_reap(struct ranks *ranks);
bool rank_failed(const struct rank *rank);
/* As a shell would say it. */
int rank_exit_status(const struct rank *rank);
void ranks_free(struct ranks *ranks);

#endif
