/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a message costs. It holds its sender's interface for its bytes; its
 * head goes on at once, through the ways up and down of the leaf switches if
 * it leaves its leaf, and alpha later it holds its receiver's interface. Each
 * of these serves messages in the order in which their heads come. Within a
 * host it is a copy by its sender's processor, and handled by its receiver's.
 *
 * With a seed nothing is shared and all times are random. Either way the
 * messages of a pair arrive in their order.
 */
#include "sim_impl.h"

#include <errno.h>
#include <stdlib.h>

static int host_of(const struct sim *sim, int rank)
{
	const struct sim_fabric *fabric = sim->opts->fabric;

	return fabric && fabric->host ? fabric->host[rank] : rank;
}

static struct leaf *leaf_of(const struct sim *sim, const struct sim_rank *rank)
{
	return &sim->leaves[host_of(sim, rank->rank) /
			    sim->opts->fabric->leaf_hosts];
}

static int open_leaves(struct sim *sim, int hosts, bool shared)
{
	const struct sim_fabric *fabric = sim->opts->fabric;

	if (!fabric || fabric->leaf_hosts < 1)
		return 0;
	if (!(fabric->oversubscription > 0))
		return -EINVAL;
	sim->leaves =
		calloc((size_t)(hosts - 1) / (size_t)fabric->leaf_hosts + 1,
		       sizeof(struct leaf));
	if (!sim->leaves)
		return -ENOMEM;
	for (int r = 0; r < sim->opts->shape.n && !shared; r++)
		leaf_of(sim, &sim->ranks[r])->interfaces++;
	for (int h = 0; h < hosts && shared; h++)
		sim->leaves[h / fabric->leaf_hosts].interfaces++;
	return 0;
}

int sim_open_net(struct sim *sim)
{
	const struct sim_fabric *fabric = sim->opts->fabric;
	int n = sim->opts->shape.n, hosts = n;
	bool shared = fabric && fabric->host && fabric->shared_interface;
	int err;

	if (fabric && fabric->host) {
		hosts = 0;
		for (int r = 0; r < n; r++) {
			if (fabric->host[r] < 0 || fabric->host[r] >= n)
				return -EINVAL;
			if (fabric->host[r] >= hosts)
				hosts = fabric->host[r] + 1;
		}
	}
	if (n < 1)
		return -EINVAL;
	sim->interfaces = calloc((size_t)n, sizeof(struct interface));
	if (!sim->interfaces)
		return -ENOMEM;
	for (int r = 0; r < n; r++)
		sim->ranks[r].interface =
			&sim->interfaces[shared ? fabric->host[r] : r];
	err = open_leaves(sim, hosts, shared);
	return err ? err : sim_open_hosts(sim, hosts);
}

void sim_close_net(struct sim *sim)
{
	free(sim->interfaces);
	free(sim->leaves);
	free(sim->processors);
}

static double later(double a, double b)
{
	return a > b ? a : b;
}

static void arrive_at(struct sim *sim, struct sim_peer *there, double time)
{
	there->last_arrival = later(time, there->last_arrival);
	sim_add_event(sim, (struct event){.time = there->last_arrival,
					  .kind = EVENT_ARRIVE,
					  .rank = there->rank,
					  .peer = there});
}

/* A message within a host. */
static void send_local(struct sim *sim, struct sim_peer *there, double bytes)
{
	const struct sim_fabric *fabric = sim->opts->fabric;
	struct sim_rank *from = there->other->rank;
	double copied = sim_work(
		sim, from, fabric->local_overhead + fabric->local_beta * bytes);

	arrive_at(sim, there,
		  copied + sim_cost(sim, from, fabric->local_alpha));
}

static void send_at_random(struct sim *sim, struct sim_peer *there)
{
	struct sim_rank *from = there->other->rank;

	from->send_free =
		later(sim->now, from->send_free) + sim_cost(sim, from, 0);
	arrive_at(sim, there, from->send_free + sim_cost(sim, from, 0));
}

/* Seconds that a message holds the interface of @rank. */
static double hold(struct sim *sim, const struct sim_rank *rank, double bytes)
{
	return sim_cost(sim, rank,
			sim->opts->overhead + sim->opts->beta * bytes);
}

static bool is_local(const struct sim *sim, const struct sim_peer *here)
{
	return host_of(sim, here->rank->rank) == host_of(sim, here->peer);
}

void sim_take(struct sim *sim, struct sim_peer *here)
{
	if (!sim->opts->seed && is_local(sim, here))
		sim_work(sim, here->rank, sim->opts->fabric->local_overhead);
}

double sim_tell(struct sim *sim, const struct sim_peer *here)
{
	double alpha = is_local(sim, here) ? sim->opts->fabric->local_alpha
					   : sim->opts->alpha;

	return sim->now + sim_cost(sim, here->rank, alpha);
}

void sim_send(struct sim *sim, struct sim_peer *there, double bytes)
{
	const struct sim_options *opts = sim->opts;
	struct sim_rank *from = there->other->rank, *to = there->rank;
	bool climbs = sim->leaves && leaf_of(sim, from) != leaf_of(sim, to);
	double start = later(sim->now, from->interface->send_free);

	if (opts->seed) {
		send_at_random(sim, there);
		return;
	}
	if (is_local(sim, there)) {
		send_local(sim, there, bytes);
		return;
	}
	from->interface->send_free = start + hold(sim, from, bytes);
	sim_add_event(
		sim,
		(struct event){.time = climbs ? start
					      : start + sim_cost(sim, from,
								 opts->alpha),
			       .kind = climbs ? EVENT_UP : EVENT_HEAD,
			       .rank = to,
			       .peer = there,
			       .bytes = bytes});
}

/* Seconds that @bytes hold the way up or down of @leaf. */
static double climb(const struct sim *sim, const struct leaf *leaf,
		    double bytes)
{
	return bytes * sim->opts->beta * sim->opts->fabric->oversubscription /
	       leaf->interfaces;
}

void sim_travel(struct sim *sim, const struct event *event)
{
	struct sim_peer *there = event->peer;
	struct sim_rank *from = there->other->rank, *to = there->rank;
	double bytes = event->bytes, start;
	struct event next = *event;
	struct leaf *leaf;

	switch (event->kind) {
	case EVENT_UP:
		leaf = leaf_of(sim, from);
		start = later(sim->now, leaf->up_free);
		leaf->up_free = start + climb(sim, leaf, bytes);
		next.kind = EVENT_DOWN;
		next.time = start;
		sim_add_event(sim, next);
		break;
	case EVENT_DOWN:
		leaf = leaf_of(sim, to);
		start = later(sim->now, leaf->down_free);
		leaf->down_free = start + climb(sim, leaf, bytes);
		next.kind = EVENT_HEAD;
		next.time = start + sim_cost(sim, from, sim->opts->alpha);
		sim_add_event(sim, next);
		break;
	default:
		start = later(sim->now, to->interface->receive_free);
		/* Bytes come no faster than they leave. */
		start += later(hold(sim, to, bytes), hold(sim, from, bytes));
		to->interface->receive_free = start;
		arrive_at(sim, there, start);
		break;
	}
}
