/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store: the thread of rank 0 that admits ranks, keeps keys and values,
 * counts fences, passes messages on, and tells who died or left.
 */
#ifndef VBN_STORE_H
#define VBN_STORE_H

#include <stdint.h>

struct store;

struct store_options {
	int nranks;
	const char *secret;
	uint32_t dead_ms; /* VBN_DEAD_MS; 0: no heartbeats */
	int listen_fd;	  /* taken over by net_adopt_listener() or made by
			     rendezvous_listen(); -1: a job of one */
};

/*
 * Start the thread. *local_fd is rank 0's connection, past the handshake. The
 * store owns listen_fd from here, also on error.
 */
int store_start(struct store **store, const struct store_options *opts,
		int *local_fd);

/*
 * End: wait, at most timeout_ms (< 0: for ever), until every other rank is
 * gone; those that stay see rank 0 leave. At once if the job never started.
 */
void store_stop(struct store *store, int timeout_ms);

#endif
