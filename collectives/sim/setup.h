/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What verbena-sim is asked for: the command line, checked. Pure functions of
 * their arguments and of the file of --tuning; one thread (getopt keeps its
 * place in the process).
 */
#ifndef SIM_SETUP_H
#define SIM_SETUP_H

#include "tuning.h"

#include <stddef.h>
#include <stdio.h>

enum { SETUP_VALUES = 64, SETUP_WHY = 400 };

/* Numbers in the order they were given in. */
struct setup_values {
	uint64_t at[SETUP_VALUES];
	unsigned n;
};

struct setup {
	enum plan_operation operation;
	bool named; /* the operation was given */
	/* sizes: bytes of the larger buffer; a barrier has the one size 0. */
	struct setup_values ranks, sizes;
	bool algorithms[PLAN_ALGORITHMS]; /* those to be compared */
	int type, reduction;		  /* enum vbn_type, vbn_reduction */
	/* Seconds, bytes per second. */
	double latency, overhead, bandwidth, reduce_speed;
	double local_latency, local_overhead, local_bandwidth;
	double call, wake;
	uint64_t processors; /* of a host; 0: one for each rank */
	int topology;	     /* enum setup_topology */
	uint64_t hosts_per_leaf, ranks_per_host;
	double oversubscription;
	bool shared_nic;
	uint64_t stragglers; /* ranks */
	double slowdown;
	uint64_t window, slots;
	uint64_t chunk;	 /* bytes; 0: as the library chooses */
	uint64_t budget; /* steps that are simulated for a row at most */
	bool check, list, predict, help;
	const char *json, *csv, *plot; /* files, "-": standard output */
	const char *tuning;	       /* a file, or NULL: */
	struct tuning *measured;       /* what it has */
};

enum setup_topology { SETUP_FLAT, SETUP_TREE };

/*
 * 0; -EINVAL, or another of --tuning: @why names the option, its value and what
 * it may be. setup_release() frees what it holds, in either case.
 */
int setup_parse(struct setup *setup, int argc, char **argv,
		char why[SETUP_WHY]);
void setup_release(struct setup *setup);
/* Take the parameters of the tuning file @path; 0, or as above. */
int setup_measured(struct setup *setup, const char *path, char why[SETUP_WHY]);
void setup_help(FILE *out);

/* By name; false: there is none of it. */
bool setup_operation(const char *name, enum plan_operation *operation);

/* A number with K, M, G, T (powers of 1024); 0 or -EINVAL. */
int setup_number(const char *text, uint64_t *value);
/*
 * A list of numbers and of ranges, whose steps are doublings: 8,64..1M. 0;
 * -EINVAL: not such a list, or a number is not in [min, max]; -E2BIG: more
 * than SETUP_VALUES.
 */
int setup_list(const char *text, uint64_t min, uint64_t max,
	       struct setup_values *values);

#endif
