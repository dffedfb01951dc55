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
	pid_t pid; /* on its host; 0: not started */
	bool alive;
	int code; /* siginfo's CLD_ code and status, once reaped */
	int status;
	struct source out, err;
};

struct ranks {
	int n, alive;
	int first, total; /* the ranks here are first to first + n - 1 */
	bool agent;	  /* standard input is the launcher's */
	struct rank *rank;
	/* what a child needs before it runs the command */
	sigset_t mask; /* as the launcher found it */
	int listen_fd; /* for rank 0 */
	char address[80];
	char secret[65];
	const char *provider; /* or NULL */
	char **command;
};

/* A table of @n ranks. -errno */
int ranks_alloc(struct ranks *ranks, int n);
int ranks_make_secret(struct ranks *ranks);
/* That for ranks of this host alone, and a listening socket at loopback. */
int ranks_prepare(struct ranks *ranks);
/*
 * Start all. On failure -errno, *what says which step; the command that
 * cannot be run is "exec". Those that were started are still there.
 */
int ranks_start(struct ranks *ranks, struct sink *out, struct sink *err,
		const char **what);
/* To every group that is still there. */
void ranks_signal(const struct ranks *ranks, int sig);
/* Reap one that has ended, and end its group: its place, or -1. */
int ranks_reap(struct ranks *ranks);
/* Read what an ended one has left. */
void rank_drain(struct rank *rank);
bool rank_failed(const struct rank *rank);
/* As a shell would say it. */
int rank_exit_status(const struct rank *rank);
void ranks_free(struct ranks *ranks);

#endif
