/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the client of the control plane: control.c is what other threads
 * call, control_thread.c the control thread.
 *
 * The thread alone reads the connection, runs callbacks, and holds the list of
 * watched descriptors. Everything else that threads share is under the lock:
 * the queue of frames to send, requests without an answer, functions to run.
 * A request is in exactly one place: the table of pending ones, the list of
 * look-ups whose callback is due, or (blocking ones) back with its caller.
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

	_Atomic uint8_t *gone; /* per rank */
	atomic_int first_dead;

	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t ran;
	bool lost, closing;
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

#endif
