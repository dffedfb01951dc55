/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a job needs to start, taken from the caller's options and from the
 * environment (verbena/job.h says the order), checked, as plain values.
 */
#ifndef VBN_OPTIONS_H
#define VBN_OPTIONS_H

#include "launcher.h"
#include "providers/fault/plan.h"

#include <net/if.h>
#include <verbena/job.h>

#define JOB_RANKS_MAX	  65536
#define JOB_HOST_MAX	  256
#define JOB_TIMEOUT_MS	  30000
#define JOB_DEAD_MS	  5000
#define JOB_DEAD_LEAST	  200
#define JOB_SECRET_MAX	  4096
#define JOB_PROVIDER_NAME 8

struct pmix_module;

struct job_config {
	int rank, nranks;
	char host[JOB_HOST_MAX]; /* "": none; then port is 0 */
	uint16_t port;
	char ifname[IF_NAMESIZE]; /* to meet over; "": any */
	struct launch launch;
	char *secret; /* never NULL; "" for none. Wiped by clear */
	char provider[JOB_PROVIDER_NAME]; /* "": chosen per peer */
	bool checksum;
	struct fault_plan fault;
	int timeout_ms;	  /* never 0; < 0: no limit */
	uint32_t dead_ms; /* 0: no heartbeats */
	int listen_fd;	  /* rank 0: listening socket, or -1 */
	bool listen_made; /* here: to be closed if the job cannot open */
	bool slurm;	  /* the rank is Slurm's */
	const struct pmix_module *pmix; /* begun, while options are read */
	int pmix_local;			/* ranks on this host; 0: not known */
};

/*
 * Fill @out from @in (may be NULL) and the environment. -EINVAL names the
 * option or variable that is wrong; -errno of a secret's file. A descriptor in
 * @in stays the caller's on error. Thread: any, but like getenv() not beside
 * setenv().
 */
int job_options_resolve(const struct vbn_job_options *in,
			struct job_config *out);

/* Wipe and free the secret. */
void job_config_wipe(struct job_config *config);
/* That, and close the socket that was made for it: no job will have it. */
void job_config_abandon(struct job_config *config);

#endif
