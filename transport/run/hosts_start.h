/* SPDX-License-Identifier: BSD-3-Clause */
/* How hosts are started: between hosts.c and hosts_start.c. */
#ifndef VERBENA_RUN_HOSTS_START_H
#define VERBENA_RUN_HOSTS_START_H

#include "hosts.h"

#define CONNECT_MS 30000 /* for all hosts to answer */

void host_say(struct host *host, enum frame_type type, uint32_t value,
	      const void *data, size_t len);
/* Once: the job cannot start. */
void hosts_failed(struct hosts *hosts, int status, const char *line);
/* A host has answered: if all have, rank 0's is to listen. */
void hosts_proceed(struct hosts *hosts);
/* Rank 0's host listens at @address: all start. */
void hosts_start(struct hosts *hosts, const struct frame *address);

#endif
