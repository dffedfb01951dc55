/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a call costs, by algorithm, in closed form: what the simulator (sim.h)
 * finds by going through the steps, in some tens of nanoseconds. Pure.
 *
 * A message takes alpha from its sender to its receiver, its sender and
 * receiver are busy with it for overhead + beta per byte, and a byte that is
 * summed or copied takes gamma of its rank. That is LogGP with gamma:
 * A. Alexandrov et al.: LogGP: incorporating long messages into the LogP
 * model. SPAA 1995; the sums by algorithm are those of the works that the
 * plan_*.c files name. What is cut in chunks is a pipeline:
 * the first chunk's way, and for each other one the time that the busiest
 * rank has for it.
 *
 * Between hosts a rank's interface moves bytes while its processor sums. Within
 * a host the sender's processor copies them, so the two add up, and overhead is
 * taken of the sender's processor, then of the receiver's.
 */
#ifndef VBN_COST_H
#define VBN_COST_H

#include "plan.h"

/* Seconds: a message's way, its handling by a rank, a byte. */
struct cost_link {
	double alpha, overhead, beta;
};

struct cost_params {
	struct cost_link local, net; /* within a host; between hosts */
	double gamma;		     /* a byte of one input, summed or copied */
	/* What a call takes, but for those that quick.c runs. */
	double call;
	/* A switch to another process. Where a host has more members than
	   processors, a message waits for as many as there are members to one:
	   they take turns, its receiver's last. How many there are is not asked
	   of the machine, whose hosts may differ, since all members must come
	   to the same. */
	double wake;
	unsigned processors; /* of a host */
};

/* What all members know. */
struct cost_case {
	enum plan_operation operation;
	int n;
	int hosts;    /* that the members are on; alike, in order, assumed */
	double bytes; /* of the vector, or of all n parts together */
	double widen; /* width of partial results over that of elements */
};

/* Where nothing was measured; see the .c file for their source. */
extern const struct cost_params cost_usual;

/*
 * Seconds that @algorithm, which the operation has, is predicted to take with
 * messages of @chunk bytes at most; the same on all members.
 */
double cost_predict(const struct cost_params *params,
		    const struct cost_case *what, enum plan_algorithm algorithm,
		    double chunk);

/*
 * Whether the library runs it without the executor (quick.c), so that it takes
 * no params->call: one round of one small message a pair.
 */
bool cost_is_quick(const struct cost_case *what, enum plan_algorithm algorithm,
		   double chunk);

/* Bytes of what the algorithm cuts in chunks. */
double cost_piece(const struct cost_case *what, enum plan_algorithm algorithm);

#endif
