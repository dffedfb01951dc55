/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a job needs to start, taken from the caller's options and from the
 * environment (verbena/job.h says the order), checked, as plain values.
 */
#ifndef VBN_OPTIONS_H
#define VBN_OPTIONS_H

#include "launcher.h"

#include <net/if.h>
#include <verbena/job.h>

#define JOB_RANKS_MAX	  65536
#define JOB_HOST_MAX	  256
#define JOB_TIMEOUT_MS	  30000
#define JOB_SECRET_MAX	  4096
#define JOB_PROVIDER_NAME 8

struct job_config {
	int rank, nranks;
	char host[JOB_HOST_MAX]; /* "": none; then port is 0 */
	uint16_t port;
	char ifname[IF_NAMESIZE]; /* to meet over; "": any */
	struct launch launch;
	char *secret; /* never NULL; "" for none. Wiped by clear */
	char provider[JOB_PROVIDER_NAME]; /* "": chosen per peer */
	int timeout_ms;			  /* never 0; < 0: no limit */
	int listen_fd;			  /* rank 0: listening socket, or -1 */
};

/*
 * Fill @out from @in (may be NULL) and the environment. -EINVAL names the
 * option or variable that is wrong; -errno of a secret's file. A descriptor in
 * @in stays the caller's on error. Thread: any, but like getenv() not beside
 * setenv().
 */
int job_options_resolve(const struct vbn_job_options *in,
			struct job_config *out);

/* Wipe and free what @config owns; not the descriptor. */
void job_config_wipe(struct job_config *config);

#endif
