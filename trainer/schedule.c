/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The schedules, each a closed form of the action's index, and the simulator.
 */
#include "schedule.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* An event that has not happened yet in the simulation. */
#define NEVER (-1.0)

static const char *const schedule_names[] = {
	[SCHEDULE_GPIPE] = "gpipe",
	[SCHEDULE_1F1B] = "1f1b",
};

static int min(int a, int b)
{
	return a < b ? a : b;
}

int schedule_parse(const char *name, enum schedule_kind *kind)
{
	for (int i = SCHEDULE_GPIPE; i <= SCHEDULE_1F1B; i++) {
		if (strcmp(name, schedule_names[i]) == 0) {
			*kind = (enum schedule_kind)i;
			return 0;
		}
	}
	return -EINVAL;
}

const char *schedule_name(enum schedule_kind kind)
{
	return schedule_names[kind];
}

int schedule_slots(enum schedule_kind kind, int p, int m, int s)
{
	return kind == SCHEDULE_GPIPE ? m : min(p - s, m);
}

int schedule_length(enum schedule_kind kind, int p, int m, int s)
{
	(void)kind;
	(void)p;
	(void)s;
	return 2 * m;
}

struct action schedule_action(enum schedule_kind kind, int p, int m, int s,
			      int i)
{
	/* Both kinds fill their slots but one, then alternate while there are
	 * forwards left, then drain: GPipe's slots hold every micro-batch. */
	const int warmup = schedule_slots(kind, p, m, s) - 1;
	const int steady = 2 * (m - warmup);
	const int j = i - warmup;

	if (j < 0)
		return (struct action){ACTION_FORWARD, i};
	if (j >= steady)
		return (struct action){ACTION_BACKWARD, i - m};
	if (j % 2)
		return (struct action){ACTION_BACKWARD, j / 2};
	return (struct action){ACTION_FORWARD, warmup + j / 2};
}

/* The ends of the actions so far: forward[s * m + b], backward likewise. */
struct simulation {
	enum schedule_kind kind;
	int p, m;
	const struct stage_cost *costs;
	const struct schedule_links *links;
	double *forward, *backward;
	double *clock;	       /* [p]: when the stage is free */
	int *next;	       /* [p]: index of its next action */
	int *in_flight, *peak; /* [p] */
};

static double at(const struct simulation *sim, const double *ends, int s, int b)
{
	return ends[(size_t)s * (size_t)sim->m + (size_t)b];
}

/*
 * When the b-th message of a link arrives, or NEVER: it leaves when it is
 * ready and when the buffer of the message `buffers` before it was freed.
 * Messages are in ascending order of micro-batch, as both passes are.
 */
static double arrival(const struct simulation *sim, double ready, int buffers,
		      int receiver, int b)
{
	double freed = 0;

	if (b >= buffers)
		freed = at(sim, sim->backward, receiver, b - buffers);
	if (ready < 0 || freed < 0)
		return NEVER;
	return (ready > freed ? ready : freed) + sim->links->transfer;
}

/* Activation b at stage s, from s - 1. */
static double activation_arrival(const struct simulation *sim, int s, int b)
{
	const int buffers =
		sim->links->activations
			? sim->links->activations[s]
			: schedule_slots(sim->kind, sim->p, sim->m, s);

	return arrival(sim, at(sim, sim->forward, s - 1, b), buffers, s, b);
}

/* Gradient b at stage s, from s + 1. */
static double gradient_arrival(const struct simulation *sim, int s, int b)
{
	return arrival(sim, at(sim, sim->backward, s + 1, b),
		       sim->links->gradients, s, b);
}

static double later(double a, double b)
{
	if (a < 0 || b < 0)
		return NEVER;
	return a > b ? a : b;
}

/* When the action can start, or NEVER as far as is known. */
static double start(const struct simulation *sim, int s, struct action action)
{
	const int b = action.micro_batch;
	const int sent = b - sim->links->sends;
	double when = sim->clock[s];

	if (action.kind == ACTION_FORWARD) {
		if (s > 0)
			when = later(when, activation_arrival(sim, s, b));
		if (s < sim->p - 1 && sent >= 0)
			when = later(when,
				     activation_arrival(sim, s + 1, sent));
	} else {
		if (s < sim->p - 1)
			when = later(when, gradient_arrival(sim, s, b));
		if (s > 0 && sent >= 0)
			when = later(when, gradient_arrival(sim, s - 1, sent));
	}
	return when;
}

/* Runs a stage's actions until one has to wait; false if the first had to. */
static bool run_stage(struct simulation *sim, int s)
{
	const int length = schedule_length(sim->kind, sim->p, sim->m, s);
	const int first = sim->next[s];

	for (; sim->next[s] < length; sim->next[s]++) {
		const struct action action = schedule_action(
			sim->kind, sim->p, sim->m, s, sim->next[s]);
		const size_t cell =
			(size_t)s * (size_t)sim->m + (size_t)action.micro_batch;
		double when = start(sim, s, action);

		if (when < 0)
			break;
		if (action.kind == ACTION_FORWARD) {
			when += sim->costs[s].forward;
			sim->forward[cell] = when;
			if (++sim->in_flight[s] > sim->peak[s])
				sim->peak[s] = sim->in_flight[s];
		} else {
			when += sim->costs[s].backward;
			sim->backward[cell] = when;
			sim->in_flight[s]--;
		}
		sim->clock[s] = when;
	}
	return sim->next[s] > first;
}

static int run(struct simulation *sim)
{
	bool moved = true;

	while (moved) {
		moved = false;
		for (int s = 0; s < sim->p; s++)
			moved |= run_stage(sim, s);
	}
	for (int s = 0; s < sim->p; s++)
		if (sim->next[s] <
		    schedule_length(sim->kind, sim->p, sim->m, s))
			return -EDEADLK;
	return 0;
}

static void measure(const struct simulation *sim,
		    struct schedule_result *result)
{
	double makespan = 0, busy = 0, total;

	for (int s = 0; s < sim->p; s++) {
		if (sim->clock[s] > makespan)
			makespan = sim->clock[s];
		busy += sim->m *
			(sim->costs[s].forward + sim->costs[s].backward);
	}
	total = makespan * sim->p;
	result->makespan = makespan;
	result->bubble = total > 0 ? 1 - busy / total : 0;
	result->bubble_ideal = busy > 0 ? total / busy - 1 : 0;
}

int schedule_simulate(enum schedule_kind kind, int p, int m,
		      const struct stage_cost *costs,
		      const struct schedule_links *links,
		      struct schedule_result *result, int *peaks)
{
	struct simulation sim = {
		.kind = kind,
		.p = p,
		.m = m,
		.costs = costs,
		.links = links,
	};
	size_t stages, cells;
	int error = -ENOMEM;

	if (p < 1 || m < 1 || links->gradients < 1 || links->sends < 1)
		return -EINVAL;
	stages = (size_t)p;
	cells = stages * (size_t)m;
	sim.forward = calloc(2 * cells + stages, sizeof(*sim.forward));
	sim.next = calloc(3 * stages, sizeof(*sim.next));
	if (!sim.forward || !sim.next)
		goto free_arrays;
	sim.backward = sim.forward + cells;
	sim.clock = sim.backward + cells;
	sim.in_flight = sim.next + stages;
	sim.peak = sim.in_flight + stages;
	for (size_t i = 0; i < 2 * cells; i++)
		sim.forward[i] = NEVER;
	error = run(&sim);
	if (error)
		goto free_arrays;
	measure(&sim, result);
	if (peaks)
		memcpy(peaks, sim.peak, stages * sizeof(*peaks));
free_arrays:
	free(sim.next);
	free(sim.forward);
	return error;
}
