/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What algorithms cost: each by a simulation, or where that would have too
 * many steps, by formula. One thread; a call takes seconds at most for each
 * algorithm with the usual budget.
 *
 * The formula: with all else the same, what a plan costs is affine in how
 * often it repeats its pattern. Where every rank deals with every other, or
 * goes round the ring, that is n (for blocks of the same size: the ring's
 * 2 (n - 1) rounds of alpha + beta m / n); in trees and in halving and
 * doubling it is log2(n); in a pipeline of chunks, the size. So are the costs
 * in R. Thakur, R. Rabenseifner and W. Gropp: Optimization of collective
 * communication operations in MPICH. Int. J. High Performance Computing
 * Applications 19(1), 2005. The two constants come from simulations of two
 * smaller n or sizes, and all that a row tells follows the same line. It is
 * used only if rank 0's plan, which can be counted, is on the line at the end,
 * and a third, yet smaller simulation at the beginning.
 */
#ifndef SIM_PRICE_H
#define SIM_PRICE_H

#include "choose.h"
#include "setup.h"
#include "sim.h"

enum row_by { ROW_NONE, ROW_SIMULATION, ROW_FORMULA };
enum row_check { ROW_UNCHECKED, ROW_RIGHT, ROW_WRONG };

/* One algorithm's. */
struct row {
	enum plan_algorithm algorithm;
	enum row_by by;
	enum row_check check;
	uint64_t chunk; /* bytes of a message at most */
	double model;	/* seconds, as the library's closed form has it */
	/* Of a formula: time, max_*, peak_fan_in; the rest is 0. */
	struct sim_result cost;
	int err;       /* of a simulation that should have gone well */
	char why[240]; /* there is no cost, or what is wrong */
};

/* One n and size: the rows by time, those without one last. */
struct cell {
	int n;
	uint64_t bytes; /* of the larger buffer, a whole number of elements
			   for each rank */
	struct row rows[PLAN_ALGORITHMS];
	unsigned nrows;
	struct choice choice; /* the library's */
};

void price_cell(const struct setup *setup, int n, uint64_t bytes,
		struct cell *cell);

/* ---- between the files ---- */

/* One run that may be made. */
struct question {
	const struct setup *setup;
	enum plan_algorithm algorithm;
	/* In place of the algorithm's, for tests of the checks; NULL. */
	const struct plan_algo *algo;
	int n;
	uint64_t bytes; /* of the larger buffer; or of less than an element */
	uint64_t chunk; /* bytes */
};

/* What the model needs of n ranks. */
struct machine {
	struct plan_topology topology;
	struct sim_fabric fabric;
	double *slowness; /* NULL: nobody is slow */
	int *numbers;	  /* of the topology */
};

/* 0 or -ENOMEM; to be closed. */
int machine_open(struct machine *machine, const struct setup *setup, int n);
void machine_close(struct machine *machine);
int machine_hosts(const struct setup *setup, int n);

/* Bytes of a partial result's element. */
uint64_t wide_bytes(const struct setup *setup);
/* Rank 0's shape; without a topology if @machine is NULL. */
struct plan_shape question_shape(const struct question *q,
				 const struct machine *machine);
/* Dry, warm. */
struct sim_options question_options(const struct question *q,
				    const struct machine *machine);
/* 0 or what sim_run() returns, or -ENOMEM. */
int question_run(const struct question *q, struct sim_result *result);

struct steps {
	uint64_t steps, pairs;
};

/*
 * Of ranks [0, ranks): how many steps, and (rank, peer) that have to do with
 * each other. 0; -E2BIG: more than @most of one of them; -ENOMEM.
 */
int question_count(const struct question *q, int ranks,
		   const struct steps *most, struct steps *count);

/* row->why, of row->err and what the simulator says. */
void row_error(struct row *row, const struct sim_result *result);

/* Fills row->cost and by, or why. */
void formula_row(const struct question *q, struct row *row);

/* Whether it may be simulated: within the budget. 0, -E2BIG, -ENOMEM. */
int question_fits(const struct question *q);

/*
 * Runs with data, at the model's times and at several random ones. 0: right;
 * -EBADMSG: an element is wrong; -E2BIG: more memory than 1 GiB; or what
 * sim_run() returns. @why gets what is wrong.
 */
int check_question(const struct question *q, char *why, size_t room);

#endif
