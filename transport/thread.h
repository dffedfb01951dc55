/* SPDX-License-Identifier: BSD-3-Clause */
/* The library's own threads. */
#ifndef VBN_THREAD_H
#define VBN_THREAD_H

#include <pthread.h>

/*
 * Start a named thread that blocks asynchronous signals: those are the
 * application's. 0 or -errno, without vbn_fail().
 */
int vbn_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *),
		     void *arg);

#endif
