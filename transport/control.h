/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane of a job: one client thread per rank ("control thread"),
 * connected to the store that rank 0 serves (a thread of its own there). It
 * carries key-value requests, fences, messages between control threads, and
 * the news that a rank died or left. It touches no data path.
 */
#ifndef VBN_CONTROL_H
#define VBN_CONTROL_H

#include "launcher.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONTROL_KEY_MAX	    255
#define CONTROL_VALUE_MAX   65536
#define CONTROL_MESSAGE_MAX 4096
#define CONTROL_DEAD_MAX    3600000 /* ms */

struct control;

/* Called on the control thread; they must not block for long. */
struct control_events {
	/* A message that another rank's (or this) control thread sent. */
	void (*message)(void *arg, int from, unsigned type, const void *data,
			size_t len);
	/*
	 * @rank has died, or left in order. Once per rank. When the store is
	 * lost, rank 0 is reported dead; before that this rank itself, when the
	 * job has named it dead. @why: its host and what was noticed, or "".
	 */
	void (*gone)(void *arg, int rank, bool died, const char *why);
	void *arg;
};

struct control_options {
	int rank, nranks;
	const char *host;   /* of the store */
	uint16_t port;	    /* rank 0 may have listen_fd instead */
	const char *ifname; /* interface to meet over; NULL or "": any */
	struct launch launch;
	const char *secret; /* never NULL; "" is a secret too */
	int listen_fd;	    /* rank 0: listening socket to take over, or -1 */
	int timeout_ms;
	uint32_t dead_ms; /* rank 0's is the job's: VBN_DEAD_MS; 0: none */
	struct control_events events;
};

/*
 * Start the store (rank 0), connect, authenticate, and wait until all ranks
 * have joined. Blocking, at most timeout_ms; errors as vbn_job_open().
 */
int control_open(struct control **control, const struct control_options *opts);

/*
 * Say goodbye and end the threads. Rank 0 first waits, at most timeout_ms,
 * until all others are gone. No callback runs after it returns.
 */
void control_close(struct control *control);

/*
 * Requests, from any thread but the control thread; blocking with a deadline.
 * get waits until the key exists. erase of an absent key is fine.
 * -ETIMEDOUT, -ECONNRESET (store gone), -EMSGSIZE.
 */
int control_set(struct control *control, const char *key, const void *value,
		size_t len, int timeout_ms);
int control_get(struct control *control, const char *key, void *value,
		size_t *len, int timeout_ms);
int control_erase(struct control *control, const char *key, int timeout_ms);
int control_fence(struct control *control, int timeout_ms);
/*
 * Set without waiting for the store's answer, any thread, never blocks; in
 * order with the caller's later requests. 0, -ENOMEM, -ECONNRESET.
 */
int control_publish(struct control *control, const char *key, const void *value,
		    size_t len);

/*
 * Asynchronous look-up, any thread, never blocks. done runs on the control
 * thread exactly once: err 0 and the value, -ENOENT (absent and !wait),
 * -ECONNRESET, -ENOMEM. With @wait it waits until the key exists, or until
 * close (-ECANCELED).
 */
void control_lookup(struct control *control, const char *key, bool wait,
		    void (*done)(void *arg, int err, const void *value,
				 size_t len),
		    void *arg);

/*
 * Send to @rank's control thread (itself is fine), any thread, never blocks;
 * in order per pair of ranks. len <= CONTROL_MESSAGE_MAX. Dropped if @rank is
 * gone. 0, -EMSGSIZE, -ENOMEM, -ECONNRESET.
 */
int control_send(struct control *control, int rank, unsigned type,
		 const void *data, size_t len);

/*
 * Have fn(arg) run on the control thread soon, any thread. In order. Runs
 * before close returns. 0 or -ENOMEM.
 */
int control_run(struct control *control, void (*fn)(void *arg), void *arg);
/* The same, and wait until it has run (not on the control thread itself). */
int control_run_wait(struct control *control, void (*fn)(void *arg), void *arg);

/*
 * Have fn(arg, fd) run on the control thread whenever @fd is readable. Call
 * both on the control thread or through control_run_wait(). fn may unwatch.
 */
int control_watch(struct control *control, int fd,
		  void (*fn)(void *arg, int fd), void *arg);
void control_unwatch(struct control *control, int fd);

/* Gone state, any thread, never blocks. */
bool control_rank_dead(const struct control *control, int rank);
bool control_rank_gone(const struct control *control, int rank);
/* The first that was heard to have died, or -1. */
int control_first_dead(const struct control *control);
/*
 * Is all work with @rank in vain, because it has died, or rank 0 with the
 * store, or the job has named this rank dead? Then @why says so. Any thread.
 */
bool control_lost(struct control *control, int rank, char *why, size_t room);

/*
 * What each rank says of itself in CONTROL_CARD bytes: one message of each
 * rank, and one answer for up to 4,096 of them, so that a start costs a rank
 * no message per other rank. card never blocks; cards waits for all of ranks
 * first to first + n - 1. Errors as above; -ECONNRESET: one is gone.
 */
#define CONTROL_CARD 9
int control_card(struct control *control, const uint8_t card[CONTROL_CARD]);
int control_cards(struct control *control, int first, int n, uint8_t *cards,
		  int timeout_ms);

#endif
