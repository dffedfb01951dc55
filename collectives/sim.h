/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator: runs the plans of all n ranks in one thread, with the real
 * executor and the real reduction kernels, as events in time. It proves that
 * a plan gives the right result and cannot stop under a window and a number
 * of landing slots, and prices it by a latency-bandwidth model.
 *
 * Costs: a message takes alpha plus beta per byte, and holds its sender's
 * and its receiver's network interface for the bytes; a reduction or copy
 * takes gamma per byte of the rank's processor. To open takes nothing: it is
 * done once for many calls, or early in a call. With a seed, ranks start at
 * random times and every cost is random instead, so that steps meet in
 * unusual orders; data is then read as late as the rules of plans allow.
 */
#ifndef VBN_SIM_H
#define VBN_SIM_H

#include "plan.h"

#include <verbena/collectives.h>

struct sim_options {
	struct plan_shape shape; /* its rank is ignored */
	enum vbn_type type;
	enum vbn_reduction reduction;
	unsigned window; /* 1..64 */
	unsigned slots;	 /* landing slots per ordered pair, 1..64 */
	bool direct;	 /* puts into OUTPUT go there, else through landing */
	uint64_t seed;
	double alpha, beta, gamma; /* seconds: per message, byte, byte */
	/* Per rank; NULL: a dry run, which touches no data. */
	const void *const *in;
	void *const *out;
};

struct sim_result {
	double time; /* of the last rank's end */
	double last_start, first_end;
	uint64_t steps, messages;
	uint64_t max_sent, max_received; /* elements, of one rank */
	unsigned peak_fan_in;		 /* senders to one rank at once */
	char why[200];			 /* of a failure */
};

/*
 * 0; -EDEADLK, -EPROTO (a plan broke its rules), -ENOMEM, -EINVAL; result is
 * filled as far as it came.
 */
int sim_run(const struct sim_options *opts, struct sim_result *result);

#endif
