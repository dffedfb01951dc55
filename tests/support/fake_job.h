/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job of one rank over the verbs provider and the fake device, for tests
 * of the whole transport: contexts of the rank connect with each other.
 */
#ifndef TESTS_FAKE_JOB_H
#define TESTS_FAKE_JOB_H

#include "fake_verbs.h"

#include <verbena/transport.h>

extern struct vbn_job *fake_the_job;

uint64_t fake_now_ms(void);

/* Ends the program if it fails. Adds a device if there is none. */
void fake_job_open(void);
void fake_job_close(void);
/*
 * Connect two contexts of the job, or one with itself. @ep: from @a to @b;
 * @back (may be NULL): from @b to @a. 0 or -errno.
 */
int fake_job_connect(struct vbn_ctx *a, struct vbn_ctx *b, struct vbn_ep **ep,
		     struct vbn_ep **back);
/*
 * A device (@tweak, which may be NULL, changes its configuration), a job, two
 * contexts, connected, and a pool for all accesses. Ends the program if it
 * fails.
 */
void fake_job_two(void (*tweak)(struct fake_config *config),
		  struct vbn_ctx *ctxs[2], struct vbn_ep *eps[2],
		  struct vbn_pool **pool);
/* Wait until the device's asynchronous events have been read. */
void fake_job_events(void);
/* Progress both until @op is over, at most @ms. Returns its status. */
int fake_job_wait(struct vbn_ctx *a, struct vbn_ctx *b, struct vbn_op *op,
		  int ms);

#endif
