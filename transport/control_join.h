/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank's way into the job: connect, prove the secret, join, wait. */
#ifndef VBN_CONTROL_JOIN_H
#define VBN_CONTROL_JOIN_H

#include "control_wire.h"

/*
 * @local_fd: rank 0's connection from store_start(), else -1. On success
 * @wire is connected and the job has started; frames may be in it already;
 * *dead_ms is rank 0's VBN_DEAD_MS.
 * Blocking, at most @deadline. Errors as vbn_job_open().
 */
int control_join(struct wire *wire, const struct control_options *opts,
		 int local_fd, int64_t deadline, uint32_t *dead_ms);

#endif
