/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * Pipeline schedules: pure functions from (kind, stages p, micro-batches m,
 * stage s) to the list of actions that stage s takes in one step; and a
 * simulator that runs all stages' lists against each other.
 *
 * Both kinds run the micro-batches' backward passes in ascending order on
 * every stage, so that gradients are summed in the same order.
 *
 * GPipe (Huang et al., 2019): all forwards, then all backwards; m activations
 * are kept. 1F1B (PipeDream-flush; Narayanan et al., 2021): as soon as a
 * backward can run it does; min(p - s, m) activations are kept. With equal
 * costs both take (m + p - 1) times a micro-batch's forward and backward: the
 * bubble is (p - 1) / (m + p - 1) of the time, or (p - 1) / m of the ideal
 * time.
 *
 * p >= 1, m >= 1, 0 <= s < p throughout; m may be less than p.
 */
#ifndef VBN_TRAINER_SCHEDULE_H
#define VBN_TRAINER_SCHEDULE_H

#include <stddef.h>

enum schedule_kind {
	SCHEDULE_GPIPE,
	SCHEDULE_1F1B,
};

enum action_kind {
	ACTION_FORWARD,
	ACTION_BACKWARD,
};

struct action {
	enum action_kind kind;
	int micro_batch; /* 0 <= micro_batch < m */
};

/* 0 and the kind of that name ("gpipe", "1f1b"), or -EINVAL. */
int schedule_parse(const char *name, enum schedule_kind *kind);
const char *schedule_name(enum schedule_kind kind);

/* Actions in a stage's list, and the i-th of them, 0 <= i < length. */
int schedule_length(enum schedule_kind kind, int p, int m, int s);
struct action schedule_action(enum schedule_kind kind, int p, int m, int s,
			      int i);

/*
 * How many micro-batches a stage has in flight at most: the activation slots
 * it needs, and the least number of receive buffers for activations (which
 * stay in use from their arrival to the end of their backward) with which the
 * schedule cannot hang. Micro-batch b may use slot b % schedule_slots().
 */
int schedule_slots(enum schedule_kind kind, int p, int m, int s);

/* What one micro-batch costs a stage, in any unit of time. */
struct stage_cost {
	double forward;
	double backward;
};

/*
 * The pipeline's buffers. A transfer starts when its source is ready and the
 * receiver has a buffer free, takes `transfer`, and leaves the stages free to
 * compute. A send buffer is in use from the start of the action that fills it
 * until its transfer is done; a receive buffer from the start of the transfer
 * until the end of the micro-batch's backward.
 */
struct schedule_links {
	const int *activations; /* [p]: stage s's receive buffers from
				 * s - 1; NULL: schedule_slots() */
	int gradients;		/* receive buffers from s + 1, >= 1 */
	int sends;		/* send buffers, each way, >= 1 */
	double transfer;
};

struct schedule_result {
	double makespan;     /* from 0 to the end of the last action */
	double bubble;	     /* idle share of p * makespan */
	double bubble_ideal; /* idle time / busy time */
};

/*
 * Runs one step of all stages. costs is [p]; peaks, if not NULL, is [p] and
 * receives the most activations that each stage had in flight. -EDEADLK if
 * the stages end up waiting for each other, -EINVAL for counts below 1,
 * -ENOMEM.
 */
int schedule_simulate(enum schedule_kind kind, int p, int m,
		      const struct stage_cost *costs,
		      const struct schedule_links *links,
		      struct schedule_result *result, int *peaks);

#endif
