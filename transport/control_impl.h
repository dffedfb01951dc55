/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the client of the control plane: control.c and control_request.c are
 * what other threads call, control_thread.c the control thread, control_live.c
 * who lives.
 *
 * The control thread alone reads the connection, runs callbacks, and holds the
 * list of watched descriptors. Everything else that threads share is under the
 * lock: the queue of frames to send, requests without an answer, functions to
 * run. A request is in exactly one place: the table of pending ones, the list
 * of look-ups whose callback is due, or (blocking ones) back with its caller.
 */
#ifndef VBN_CONTROL_IMPL_H
#define VBN_CONTROL_IMPL_H

#include "control_wire.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#define REQUEST_BUCKETS 64u

enum { PRESENT, LEFT, DIED }; /* of a rank */

struct request {
	TAILQ_ENTRY(request) link;
	uint64_t id;
	int status;
	size_t len; /* of the value */
	/* blocking: on the caller's stack */
	bool done;
	pthread_cond_t cond;
	void *value;
	size_t room;
	int gone_rank; /* -ECONNRESET of a fence */
	bool gone_died;
	/* look-up: allocated, then done_fn is set */
	void (*done_fn)(void *arg, int err, const void *value, size_t len);
	void *arg;
};

TAILQ_HEAD(request_list, request);

struct run_fn {
	STAILQ_ENTRY(run_fn) link;
	void (*fn)(void *arg);
	void *arg;
	bool *done; /* run_wait: node and flag are the caller's */
};

STAILQ_HEAD(run_fn_list, run_fn);

struct watch {
	int fd;
	uint32_t generation; /* an event of an earlier watch is not ours */
	void (*fn)(void *arg, int fd);
	void *arg;
};

struct control {
	int rank, nranks, timeout_ms;
	struct control_events events;
	struct store *store; /* rank 0 */
	pthread_t thread;
	int epoll_fd, wake_fd;

	/* the thread's own */
	struct wire wire; /* its queue to send is under the lock */
	bool want_out;
	struct watch *watches;
	size_t nwatches;
	uint32_t generation;

	/* signs of life; the thread's own but for the last two */
	uint32_t dead_ms;		/* rank 0's; 0: there are none */
	int64_t heard;			/* of the store */
	int64_t stalled_ms, stalled_at; /* this process did not run */
	pthread_t beat;
	bool beating;

	_Atomic uint8_t *gone; /* per rank */
	char **why;	       /* per rank that died, under the lock */
	atomic_int first_dead;
	atomic_bool expelled; /* this rank was named dead */

	pthread_mutex_t lock;	     /* of what follows */
	pthread_cond_t ran, rest;    /* rest: of the thread that beats */
	bool lost, closing, resting; /* resting: no more beats */
	uint64_t next_id;
	struct request_list pending[REQUEST_BUCKETS];
	struct request_list due; /* look-ups without a connection */
	struct run_fn_list run;
};

static inline struct request_list *control_bucket(struct control *c,
						  uint64_t id)
{
	return &c->pending[id % REQUEST_BUCKETS];
}

/* The epoll set: watched descriptors are (generation << 32 | fd). */
#define TAG_WAKE UINT64_MAX
#define TAG_WIRE (UINT64_MAX - 1)

void *control_main(void *control);
/* Any thread. */
void control_wake(struct control *c);
/* -EDEADLK on the control thread itself, which must not wait. */
int control_check_thread(struct control *c);

/* ---- control_live.c ---- */

void cond_init_monotonic(pthread_cond_t *cond);
/* Once the connection is up; ends with the connection or by live_stop(). */
int live_start(struct control *c);
void live_stop(struct control *c);
/* Of a wait for events, so that time in which nothing ran is seen. */
int live_timeout(const struct control *c);
/* After a wait that took from @slept to @woke. */
void live_woke(struct control *c, int64_t slept, int64_t woke);
/* Nothing has come from the store for too long, unless it waits to be read. */
bool live_silent(const struct control *c);
/*
 * This process did not run for so long, lately, that the job holds this rank
 * for dead, if the connection to the store is lost: @why.
 */
bool live_was_away(const struct control *c, char *why, size_t room);
/* Tell the store that it is given up, in case it hears. @why as text. */
void live_give_up(struct control *c, char *why, size_t room);
/* Why the connection to the store has ended with @rc of a read. */
void live_ended(struct control *c, int rc, char *why, size_t room);
/* Keep @why for control_lost(), unless there is one. */
void live_keep_why(struct control *c, int rank, const char *why);

#endif
