/* SPDX-License-Identifier: BSD-3-Clause */
/* The parts of job_options_resolve(): each fills in what it is for. */
#ifndef VBN_OPTIONS_IMPL_H
#define VBN_OPTIONS_IMPL_H

#include "options.h"

/* All digits and in range, or -EINVAL that names @name. */
int option_number(const char *name, const char *text, long min, long max,
		  long *out);
int option_host(const char *name, const char *host, size_t len,
		struct job_config *out);

/* Rank and size, and who says them. It may begin PMIx, for out->pmix. */
int option_rank(const struct vbn_job_options *in, struct job_config *out);
/*
 * With PMIx: rank 0 tells all where it listens, and the job's secret. All
 * ranks of the launcher's come here. It ends PMIx, also on error.
 */
int option_meet(const struct vbn_job_options *in, struct job_config *out);
void option_pmix_end(struct job_config *out);

/* What Slurm implies of rank 0's address; port 0: nothing does. */
int option_launcher_address(struct job_config *out);
/* The port beside torchrun's, where its agent has taken that. */
int option_own_port(struct job_config *out);

#endif
