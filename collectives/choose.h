/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The choice of algorithm and chunk: a function of what all members know, so
 * that all come to the same answer without talking. A tuning file's line
 * decides if it has one for the call, else the least predicted time (cost.h).
 */
#ifndef VBN_CHOOSE_H
#define VBN_CHOOSE_H

#include "tuning.h"

#include <stddef.h>

/* Of a landing slot, bytes. */
#define LANDING_LEAST ((uint64_t)64)
#define LANDING_MOST  ((uint64_t)1 << 30)

/* What the environment says; read once a communicator. */
struct coll_settings {
	/* By operation; PLAN_ALGORITHMS: not said. */
	enum plan_algorithm algorithm[PLAN_OPERATIONS];
	uint64_t chunk, landing; /* bytes; 0: not said */
	bool trace, reproducible, wire16;
	struct tuning *tuning; /* NULL: no file */
};

struct choice_input {
	enum plan_operation operation;
	int n;
	uint64_t bytes; /* of the vector, or of all parts together */
	bool uneven;	/* parts of different lengths */
	bool unknown;	/* a member knows its own parts only; bytes is 0 */
	bool in_place;
	bool in_order; /* only algorithms that sum in order */
	bool may_map;  /* all members share memory */
	bool wide;     /* partial results have twice the elements' width */
	int hosts;     /* 1 .. n */
	uint64_t chunk_most;	     /* bytes */
	uint64_t chunk;		     /* asked for; 0: to be chosen */
	const struct tuning *tuning; /* or NULL */
};

struct choice {
	enum plan_algorithm algorithm;
	uint64_t chunk;	  /* bytes of a message at most */
	double predicted; /* seconds */
	char why[80];
};

/*
 * Some microseconds at most, whatever n is. There is an admissible algorithm
 * for each operation.
 */
void choose(const struct choice_input *input, struct choice *choice);
/* The same for an algorithm that was asked for and is admissible. */
void choose_asked(const struct choice_input *input,
		  enum plan_algorithm algorithm, struct choice *choice);

/*
 * NULL if the algorithm can be used, else why not: the end of a sentence that
 * begins with its name and the operation's.
 */
const char *choose_refusal(const struct choice_input *input,
			   enum plan_algorithm algorithm);

/*
 * 0, or what is wrong with a variable or a file: vbn_error() names it and what
 * it may be. Into zeroed *settings; settings_release() frees what it holds, in
 * either case.
 */
int settings_read(struct coll_settings *settings);
void settings_release(struct coll_settings *settings);

#endif
