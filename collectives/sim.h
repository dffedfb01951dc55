/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator: runs the plans of all n ranks in one thread, with the real
 * executor and the real reduction kernels, as events in time. It proves that
 * a plan gives the right result, keeps the rules of plan.h and cannot stop
 * under a window and a number of landing slots, and prices it by a
 * latency-bandwidth model.
 *
 * Costs: a message takes alpha, plus overhead and beta per byte, for which it
 * holds its sender's and its receiver's network interface, or within a host its
 * sender's processor, which copies, and for overhead its receiver's; a
 * reduction or copy takes gamma per byte of the rank's processor, and call is
 * what it takes before anything else. To open takes nothing: it is done once
 * for many calls, or early in a call. With a seed, ranks start at random times
 * and every cost is random instead, so that steps meet in unusual orders.
 *
 * Memory is read as late as the rules allow: a message's when it arrives, a
 * mapped peer's when the step that reads it ends. What a put writes is
 * garbage from the put to its arrival. Source and destination of each put are
 * looked at again when its receiver waits for it: they must not have changed.
 * SCRATCH, landing slots and what has been taken out of them are garbage.
 */
#ifndef VBN_SIM_H
#define VBN_SIM_H

#include "plan.h"

#include <verbena/collectives.h>

/* What is between the ranks; without one, a switch with all of them on it. */
struct sim_fabric {
	const int *host;       /* of each rank; NULL: each has its own */
	bool shared_interface; /* the ranks of a host share one, else own ones
				*/
	/* Of messages between ranks of a host, beside the interfaces. */
	double local_alpha, local_overhead, local_beta;
	/* Of a host; its ranks, if more, take turns. 0: each has its own. */
	unsigned processors;
	double wake; /* seconds until another rank has a processor */
	/* Hosts of a leaf switch, 0: one switch has all of them. A leaf's
	   interfaces have oversubscription times the bandwidth of its way up
	   (and of its way down), which its messages share. */
	int leaf_hosts;
	double oversubscription;
};

struct sim_options {
	/* Its rank, wide and no_output (rooted operations: ranks other than
	   the root have no OUTPUT) are ignored. */
	struct plan_shape shape;
	const struct plan_layout *layouts; /* of each rank; NULL: the shape's */
	/* In place of the shape's, for tests; NULL: the shape's. */
	const struct plan_algo *algo;
	enum vbn_type type;
	enum vbn_reduction reduction; /* of the operations that reduce */
	bool wire16;
	unsigned window; /* 1..64 */
	unsigned slots;	 /* landing slots per ordered pair, 1..64 */
	/* Puts into OUTPUT go there; else through landing, with a seed at some
	   ranks only. */
	bool direct;
	/* As after earlier calls: ranks are open for messages into landing
	   slots, and if the plan greets for all, before they begin. */
	bool warm;
	uint64_t seed;
	double alpha, beta, gamma; /* seconds: per message, byte, byte */
	double overhead;	   /* per message */
	double call;		   /* of each rank, before its first step */
	const struct sim_fabric *fabric;
	const double *slowness; /* of each rank, on its costs; NULL: 1 */
	/* Per rank, of plan_input() and plan_output() elements; with in_place
	   the one is in the other. NULL: a dry run, which touches no data. */
	const void *const *in;
	void *const *out;
};

struct sim_result {
	double time; /* of the last rank's end: the critical path's */
	double last_start, first_end;
	uint64_t steps, messages;
	/* Of one rank, at most: bytes, messages sent, bytes read from mapped
	   peers, peers that it sends to or receives from. */
	uint64_t max_sent, max_received, max_messages, max_read;
	unsigned max_peers;
	uint64_t pairs;	      /* (rank, peer) that had to do with each other */
	unsigned peak_fan_in; /* senders to one rank at once */
	uint64_t max_scratch; /* bytes */
	char why[200];	      /* of a failure */
};

/*
 * 0; -EDEADLK, -EPROTO (a plan broke its rules), -ENOMEM, -EINVAL,
 * -EOPNOTSUPP (no such plan or kernel); result is filled as far as it came.
 */
int sim_run(const struct sim_options *opts, struct sim_result *result);

#endif
