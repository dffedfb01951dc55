/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * librdmacm in this process, for tests over the fake device: it takes the
 * library's place in what it is linked into. Identifiers call each other by
 * port number; what happens rarely happens on demand. All may be called from
 * any thread.
 */
#ifndef TESTS_FAKE_RDMACM_H
#define TESTS_FAKE_RDMACM_H

#include <rdma/rdma_cma.h>

#include <stdbool.h>

/* The next @n events @type come as @by with @status; @by -1: not at all. */
void fake_cm_instead(int type, int by, int status, unsigned n);
/* Private data of the next @n events @type has a wrong bit. */
void fake_cm_garble(int type, unsigned n);
/* The next @n calls are refused as those of old queue pairs. */
void fake_cm_stale(unsigned n);
/* The @k-th call from now (1: the next) fails; 0: none does. */
void fake_cm_fail(unsigned k);
/* Event channels cannot be made. */
void fake_cm_absent(bool absent);
/* Numbers of queue pairs that arrive are others than were sent. */
void fake_cm_translate(bool translate);
/* Someone calls each port that is listened at, with @len bytes of @data. */
void fake_cm_call(const void *data, uint8_t len);

struct fake_cm_counts {
	unsigned listening, others; /* identifiers */
	unsigned rejected;	    /* calls, so far */
	unsigned calls;		    /* rdma_connect(), so far */
	unsigned violations;
};
struct fake_cm_counts fake_cm_count(void);
/* All as at the beginning. */
void fake_cm_reset(void);

#endif
