/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hosts of a job and the remote shells that lead to them. On each a
 * verbena-run serves as agent; its command line is nothing but "verbena-run
 * --agent": command, environment and secret go through the shell's standard
 * input.
 */
#ifndef VERBENA_RUN_HOSTS_H
#define VERBENA_RUN_HOSTS_H

#include "frame.h"
#include "places.h"
#include "ranks.h"

#include <poll.h>

/* What the job must know; called inside of hosts_handle() and the like. */
struct host_events {
	/* The job cannot start: a line, and the exit status. */
	void (*failed)(void *arg, int status, const char *line);
	void (*ended)(void *arg, int rank); /* its code and status are set */
	/* A host is gone, its ranks with it; @line says how. */
	void (*lost)(void *arg, const char *line);
	void *arg;
};

struct host {
	const char *name;
	int first, n; /* its ranks */
	int alive;
	pid_t pid;  /* of the remote shell; 0: reaped */
	int status; /* siginfo's, once reaped */
	int code;
	int out_fd;	   /* frames from the agent; -1: closed */
	struct sink to;	   /* frames to the agent; fd -1: closed */
	struct source err; /* what the remote shell says */
	struct frame_input in;
	bool banner; /* its first line has come */
	bool hello, started;
	bool gone;	 /* all has been said about it */
	int64_t gone_at; /* it is going: until then */
	int64_t heard, said;
};

struct hosts {
	struct host *list;
	int n;
	struct ranks *ranks; /* of the job: only their table is used here */
	struct sink *out, *err;
	struct host_events events;
	const char *shell; /* NULL: ssh, and none for this machine */
	const char *agent; /* verbena-run there */
	char **env;	   /* --env: names, or NAME=value; NULL at the end */
	int64_t deadline;  /* for all to answer */
	int64_t looked;	   /* when silence was last judged */
	bool listening, started, failed;
};

/* Start the remote shells. -errno, *what says of which step. */
int hosts_open(struct hosts *hosts, const struct places *places,
	       const char **what);
/* At most 3 for each host. Returns how many. */
size_t hosts_poll(struct hosts *hosts, struct pollfd *fds);
/* What poll() found, in the same order; and what time has brought. */
void hosts_handle(struct hosts *hosts, const struct pollfd *fds);
/* Milliseconds until something is due, or it is time to look again. */
int hosts_wait_ms(const struct hosts *hosts);
void hosts_signal(struct hosts *hosts, int sig);
/* After SIGCHLD. */
void hosts_reap(struct hosts *hosts);
/* The job cannot start, as hosts have not answered for @seconds. */
void hosts_too_late(struct hosts *hosts, double seconds);
/* No more is to come from any. */
bool hosts_ended(const struct hosts *hosts);
/* End the remote shells, at once. */
void hosts_kill(struct hosts *hosts);
void hosts_free(struct hosts *hosts);

#endif
