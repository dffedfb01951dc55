/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of a host and its processors. A rank works with one processor: it
 * copies, sums and handles messages one after another. Where a host has fewer
 * processors than ranks, each processor has some of them, which take turns: a
 * rank keeps it until nothing is left to do, and each further turn begins a
 * switch of processes later. Ranks that have nothing to do have turns, too. So
 * it is in the library, where a rank that waits looks for news, then yields.
 *
 * With a seed each rank has its own.
 */
#include "sim_impl.h"

#include <errno.h>
#include <stdlib.h>

/* So many turns in vain: they are so short that nobody waits for one. */
#define MANY 1e15

/* Neighbours to a processor, as many to each as can be. */
static void share_out(struct sim *sim, const unsigned *ranks, unsigned *left)
{
	const struct sim_fabric *fabric = sim->opts->fabric;

	/* From the last on: each goes before those that are there. */
	for (int r = sim->opts->shape.n - 1; r >= 0; r--) {
		struct sim_rank *rank = &sim->ranks[r];
		int host = fabric->host[r];
		size_t own = (size_t)--left[host] * fabric->processors;
		struct sim_processor *p =
			&sim->processors[(size_t)host * fabric->processors +
					 own / ranks[host]];

		if (!p->ranks++)
			p->last = rank;
		rank->processor = p;
		rank->next = p->first ? p->first : rank;
		p->first = p->last->next = rank;
	}
	for (int r = 0; r < sim->opts->shape.n; r++)
		sim->ranks[r].processor->last = sim->ranks[r].processor->first;
}

int sim_open_hosts(struct sim *sim, int hosts)
{
	const struct sim_fabric *fabric = sim->opts->fabric;
	size_t each = fabric && fabric->host ? fabric->processors : 0;
	unsigned *ranks;

	if (each == 0 || each >= (size_t)sim->opts->shape.n || sim->opts->seed)
		return 0;
	ranks = calloc(2 * (size_t)hosts, sizeof(unsigned));
	sim->processors =
		calloc((size_t)hosts * each, sizeof(struct sim_processor));
	for (int r = 0; r < sim->opts->shape.n && ranks; r++) {
		ranks[fabric->host[r]]++;
		ranks[hosts + fabric->host[r]]++;
	}
	if (ranks && sim->processors)
		share_out(sim, ranks, ranks + hosts);
	free(ranks);
	return ranks && sim->processors ? 0 : -ENOMEM;
}

/* The rank goes on in its turn, @turns from the one that began at @since. */
static void give(struct sim *sim, struct sim_rank *rank, double since,
		 uint64_t turns)
{
	struct sim_processor *p = rank->processor;
	double time = since + (double)turns * sim->opts->fabric->wake;

	p->holder = rank;
	rank->due = true;
	sim_add_event(sim,
		      (struct event){.time = time > sim->now ? time : sim->now,
				     .kind = EVENT_RUN,
				     .rank = rank});
}

/* Turns from the last one's to the rank's. */
static unsigned distance(const struct sim_rank *rank)
{
	const struct sim_rank *at = rank->processor->last;
	unsigned turns = 0;

	for (; at != rank; at = at->next)
		turns++;
	return turns;
}

bool sim_may_run(struct sim *sim, struct sim_rank *rank)
{
	struct sim_processor *p = rank->processor;
	uint64_t turns;
	unsigned now, own;
	double wake;

	if (!p || p->ranks == 1 || p->holder == rank)
		return true;
	if (p->holder) {
		rank->due = rank->queues = true;
		return false;
	}
	/* Whose turn it is, of those that have nothing to do. */
	wake = sim->opts->fabric->wake;
	turns = sim->now - p->since < wake * MANY
			? (uint64_t)((sim->now - p->since) / wake)
			: 0;
	now = (unsigned)(turns % p->ranks);
	own = distance(rank);
	if (now == own) {
		p->holder = rank;
		return true;
	}
	give(sim, rank, p->since,
	     turns + (own > now ? own - now : own + p->ranks - now));
	return false;
}

void sim_rest(struct sim *sim, struct sim_rank *rank)
{
	struct sim_processor *p = rank->processor;
	struct sim_rank *next;

	if (!p || p->holder != rank || rank->due || rank->rests)
		return;
	if (rank->cpu_free > sim->now) {
		rank->rests = true;
		sim_add_event(sim, (struct event){.time = rank->cpu_free,
						  .kind = EVENT_REST,
						  .rank = rank});
		return;
	}
	p->holder = NULL;
	p->last = rank;
	p->since = sim->now;
	for (next = rank->next; next != rank; next = next->next)
		if (next->queues) {
			next->queues = false;
			give(sim, next, sim->now, distance(next));
			return;
		}
}

double sim_work(struct sim *sim, struct sim_rank *rank, double seconds)
{
	double start = sim->now > rank->cpu_free ? sim->now : rank->cpu_free;

	rank->cpu_free = start + sim_cost(sim, rank, seconds);
	return rank->cpu_free;
}
