/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator. Time goes from event to event (a heap, ties in the order of
 * creation). An event of a rank is followed by exec_run() of it, whose
 * backend slots create further events. No event left and a rank unfinished
 * is a deadlock.
 *
 * The memory of a message is read when it arrives, not when it is put: late,
 * as a network that retransmits may.
 */
#include "sim.h"

#include "exec.h"
#include "reduce.h"
#include "sim_heap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct message {
	uint8_t src, dst;
	bool landed; /* in a landing slot */
	uint64_t src_off, dst_off, len, landing;
};

/* What a rank keeps on a peer. */
struct sim_peer {
	struct exec_peer exec; /* first: the executor's handle */
	struct sim_peer *next; /* of the rank */
	struct sim_rank *rank;
	struct sim_peer *other; /* the peer's on us */
	int peer;
	uint64_t landed, credits; /* sender: slots taken, slots granted */
	bool opened;		  /* sender: may put */
	bool opening;		  /* receiver: has said so */
	double last_arrival;
	/* Receiver: messages [first, end) of a ring, arrived ones first. */
	struct message *messages;
	uint64_t first, end, room, arrived;
	struct exec_slots slots;
	char *memory; /* the landing slots */
};

struct sim_rank {
	struct exec exec; /* first */
	struct sim *sim;
	int rank;
	bool ended;
	double cpu_free, send_free, receive_free;
	uint64_t sent, received;
	unsigned fan_in;
	struct sim_peer *peers;
};

struct sim {
	const struct sim_options *opts;
	struct sim_result *result;
	const struct reduce_kernel *kernel;
	size_t element;
	double now;
	uint64_t random;
	struct heap heap;
	struct sim_rank *ranks;
	int failed; /* by a slot that can only be noticed later */
};

/* ---- helpers ---- */

static void add_event(struct sim *sim, struct event event)
{
	int err = heap_add(&sim->heap, &event);

	if (err)
		sim->failed = err;
}

static int broken(struct sim *sim, const struct sim_rank *rank,
		  const char *what)
{
	snprintf(sim->result->why, sizeof(sim->result->why), "rank %d: %s",
		 rank->rank, what);
	return -EPROTO;
}

static uint64_t draw(struct sim *sim)
{
	uint64_t x = sim->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return sim->random = x;
}

/* The time that something takes: as asked, or random with a long tail. */
static double cost(struct sim *sim, double asked)
{
	double unit;

	if (!sim->opts->seed)
		return asked;
	unit = (double)(draw(sim) % 1000) / 1000;
	return draw(sim) % 16 == 0 ? 20 * unit : unit;
}

static struct sim_rank *rank_of(struct exec *exec)
{
	return (struct sim_rank *)exec;
}

static struct sim_peer *peer_of(struct exec_peer *peer)
{
	return (struct sim_peer *)peer;
}

static struct sim_peer *find_peer(struct sim_rank *rank, int number)
{
	struct sim_peer *peer = rank->peers;

	while (peer && peer->peer != number)
		peer = peer->next;
	return peer;
}

static struct sim_peer *make_peer(struct sim_rank *rank, int number)
{
	const struct sim_options *opts = rank->sim->opts;
	struct sim_peer *peer = find_peer(rank, number);

	if (peer)
		return peer;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->rank = rank;
	peer->peer = number;
	peer->credits = opts->slots;
	peer->next = rank->peers;
	rank->peers = peer;
	if (opts->out) {
		peer->memory = malloc(opts->slots * opts->shape.chunk *
					      rank->sim->element +
				      1);
		if (!peer->memory)
			return NULL;
	}
	return peer;
}

static char *slot_memory(const struct sim_peer *peer, uint64_t landing)
{
	const struct sim *sim = peer->rank->sim;

	return peer->memory + landing % sim->opts->slots *
				      sim->opts->shape.chunk * sim->element;
}

static const char *source(const struct sim_rank *rank, uint8_t space,
			  uint64_t off)
{
	const struct sim_options *opts = rank->sim->opts;
	const void *base = space == PLAN_INPUT ? opts->in[rank->rank]
					       : opts->out[rank->rank];

	return (const char *)base + off * rank->sim->element;
}

static char *output(const struct sim_rank *rank, uint64_t off)
{
	return (char *)rank->sim->opts->out[rank->rank] +
	       off * rank->sim->element;
}

static bool in_range(const struct sim *sim, uint64_t off, uint64_t len)
{
	uint64_t count = sim->opts->shape.count;

	return off <= count && len <= count - off;
}

/* ---- the executor's backend ---- */

static struct exec_peer *sim_peer_get(struct exec *exec, int number)
{
	struct sim_rank *rank = rank_of(exec);
	struct sim_peer *peer, *other;

	if (number < 0 || number >= rank->sim->opts->shape.n ||
	    number == rank->rank)
		return NULL;
	peer = make_peer(rank, number);
	if (!peer || peer->other)
		return peer ? &peer->exec : NULL;
	other = make_peer(&rank->sim->ranks[number], rank->rank);
	if (!other)
		return NULL;
	peer->other = other;
	other->other = peer;
	return &peer->exec;
}

static bool sim_via_landing(struct exec *exec, struct exec_peer *peer)
{
	(void)peer;
	return !rank_of(exec)->sim->opts->direct;
}

static void sim_enter(struct exec *exec, struct exec_entry *entry)
{
	struct sim *sim = rank_of(exec)->sim;
	const struct plan_step *step = &entry->step;

	sim->result->steps++;
	if (step->kind == PLAN_OPEN)
		peer_of(entry->peer)->opening = true;
	if ((step->src != PLAN_LANDING &&
	     !in_range(sim, step->src_off, step->len)) ||
	    (step->dst != PLAN_LANDING &&
	     !in_range(sim, step->dst_off, step->len)) ||
	    (step->kind == PLAN_REDUCE &&
	     !in_range(sim, step->acc_off, step->len)) ||
	    (step->kind != PLAN_COPY && step->len > sim->opts->shape.chunk))
		sim->failed = broken(sim, rank_of(exec), "step out of range");
	if (step->kind == PLAN_WAIT && !peer_of(entry->peer)->opening)
		sim->failed = broken(sim, rank_of(exec), "a wait without open");
}

static int sim_open(struct exec *exec, struct exec_entry *entry)
{
	struct sim *sim = rank_of(exec)->sim;
	struct sim_peer *peer = peer_of(entry->peer);

	add_event(sim, (struct event){.time = sim->now + cost(sim, 0),
				      .kind = EVENT_OPENED,
				      .rank = peer->other->rank,
				      .peer = peer->other});
	return 0;
}

static int push_message(struct sim_peer *peer, struct message message)
{
	/* Waits reach back a window at most. */
	if (peer->exec.waits > EXEC_WINDOW &&
	    peer->first < peer->exec.waits - EXEC_WINDOW)
		peer->first = peer->exec.waits - EXEC_WINDOW;
	if (peer->end - peer->first >= peer->room) {
		uint64_t room = peer->room ? 2 * peer->room : 2 * EXEC_WINDOW;
		struct message *ring = malloc(room * sizeof(*ring));

		if (!ring)
			return -ENOMEM;
		for (uint64_t i = peer->first; i < peer->end; i++)
			ring[i % room] = peer->messages[i % peer->room];
		free(peer->messages);
		peer->messages = ring;
		peer->room = room;
	}
	peer->messages[peer->end++ % peer->room] = message;
	return 0;
}

static int sim_put(struct exec *exec, struct exec_entry *entry)
{
	struct sim_rank *from = rank_of(exec);
	struct sim *sim = from->sim;
	struct sim_peer *peer = peer_of(entry->peer), *there = peer->other;
	struct sim_rank *to = there->rank;
	const struct plan_step *step = &entry->step;
	double bytes = (double)(step->len * sim->element);
	double wire = cost(sim, sim->opts->beta * bytes);
	double latency = cost(sim, sim->opts->alpha);
	struct message message = {
		.src = step->src,
		.dst = step->dst,
		.src_off = step->src_off,
		.dst_off = step->dst_off,
		.len = step->len,
		.landed = step->len > 0 &&
			  (step->dst == PLAN_LANDING || !sim->opts->direct),
		.landing = peer->landed,
	};
	double start, arrival;
	int err;

	if (!peer->opened || (message.landed && peer->landed >= peer->credits))
		return -EAGAIN;
	err = push_message(there, message);
	if (err)
		return err;
	peer->landed += message.landed;
	start = sim->now > from->send_free ? sim->now : from->send_free;
	from->send_free = start + wire;
	arrival = start + latency;
	if (arrival < to->receive_free)
		arrival = to->receive_free;
	arrival += wire;
	if (arrival < there->last_arrival)
		arrival = there->last_arrival;
	to->receive_free = there->last_arrival = arrival;
	from->sent += step->len;
	to->received += step->len;
	sim->result->messages++;
	if (there->end - there->arrived == 1 &&
	    ++to->fan_in > sim->result->peak_fan_in)
		sim->result->peak_fan_in = to->fan_in;
	add_event(sim, (struct event){.time = arrival,
				      .kind = EVENT_ARRIVE,
				      .rank = to,
				      .peer = there});
	return 0;
}

static int sim_wait(struct exec *exec, struct exec_entry *entry)
{
	struct sim_rank *rank = rank_of(exec);
	struct sim *sim = rank->sim;
	struct sim_peer *peer = peer_of(entry->peer);
	const struct plan_step *step = &entry->step;
	const struct message *message;

	if (entry->index >= peer->arrived)
		return -EAGAIN;
	message = &peer->messages[entry->index % peer->room];
	if (message->len != step->len || message->dst != step->dst ||
	    (step->dst == PLAN_OUTPUT && message->dst_off != step->dst_off))
		return broken(sim, rank, "a put and its wait differ");
	if (message->landed && message->landing != entry->landing)
		return broken(sim, rank, "landing numbers differ");
	if (!message->landed || step->dst == PLAN_LANDING)
		return 0;
	return exec->backend->copy(exec, entry);
}

static int sim_compute(struct exec *exec, struct exec_entry *entry)
{
	struct sim_rank *rank = rank_of(exec);
	struct sim *sim = rank->sim;
	double bytes = (double)(entry->step.len * sim->element);
	double start = sim->now > rank->cpu_free ? sim->now : rank->cpu_free;

	rank->cpu_free = start + cost(sim, sim->opts->gamma * bytes);
	add_event(sim, (struct event){.time = rank->cpu_free,
				      .kind = EVENT_COMPUTED,
				      .rank = rank,
				      .entry = entry});
	return -EINPROGRESS;
}

static const struct exec_backend backend = {
	.peer = sim_peer_get,
	.via_landing = sim_via_landing,
	.enter = sim_enter,
	.open = sim_open,
	.put = sim_put,
	.wait = sim_wait,
	.reduce = sim_compute,
	.copy = sim_compute,
};

/* ---- events ---- */

static void arrive(struct sim *sim, struct sim_rank *rank,
		   struct sim_peer *peer)
{
	const struct message *m = &peer->messages[peer->arrived % peer->room];

	if (++peer->arrived == peer->end)
		rank->fan_in--;
	if (!sim->opts->out || m->len == 0)
		return;
	memcpy(m->landed ? slot_memory(peer, m->landing)
			 : output(rank, m->dst_off),
	       source(peer->other->rank, m->src, m->src_off),
	       m->len * sim->element);
}

static void computed(struct sim *sim, struct sim_rank *rank,
		     struct exec_entry *entry)
{
	const struct plan_step *step = &entry->step;
	struct sim_peer *peer = entry->peer ? peer_of(entry->peer) : NULL;
	uint64_t freed = 0;

	if (sim->opts->out) {
		const char *from =
			peer ? slot_memory(peer, entry->landing)
			     : source(rank, step->src, step->src_off);
		char *to = output(rank, step->dst_off);

		if (step->kind == PLAN_REDUCE)
			sim->kernel->run(to, from,
					 source(rank, step->acc, step->acc_off),
					 step->len);
		else
			memmove(to, from, step->len * sim->element);
	}
	if (peer) {
		freed = peer->slots.freed;
		freed = exec_slot_free(&peer->slots, entry->landing) - freed;
	}
	for (; freed > 0; freed--)
		add_event(sim,
			  (struct event){.time = sim->now +
						 cost(sim, sim->opts->alpha),
					 .kind = EVENT_CREDIT,
					 .rank = peer->other->rank,
					 .peer = peer->other});
	exec_done(&rank->exec, entry);
}

static int handle(struct sim *sim, const struct event *event)
{
	struct sim_rank *rank = event->rank;
	int err;

	switch (event->kind) {
	case EVENT_START:
		sim->result->last_start = sim->now;
		err = exec_begin(
			&rank->exec, &backend,
			&(struct plan_shape){
				sim->opts->shape.algorithm, rank->rank,
				sim->opts->shape.n, sim->opts->shape.root,
				sim->opts->shape.count, sim->opts->shape.chunk},
			sim->opts->window);
		if (err)
			return err;
		rank->ended = false;
		break;
	case EVENT_ARRIVE:
		arrive(sim, rank, event->peer);
		break;
	case EVENT_CREDIT:
		event->peer->credits++;
		break;
	case EVENT_OPENED:
		event->peer->opened = true;
		break;
	case EVENT_COMPUTED:
		computed(sim, rank, event->entry);
		break;
	}
	if (!rank->exec.backend || rank->ended)
		return 0; /* not started yet, or only credits come */
	err = exec_run(&rank->exec);
	if (err)
		return err == -EAGAIN ? sim->failed : err;
	rank->ended = true;
	if (sim->result->first_end < 0)
		sim->result->first_end = sim->now;
	sim->result->time = sim->now;
	return sim->failed;
}

/* After the last event: all ended, and both sides agree on all counts. */
static int check_end(struct sim *sim)
{
	for (int r = 0; r < sim->opts->shape.n; r++) {
		struct sim_rank *rank = &sim->ranks[r];
		const struct exec_entry *entry = exec_oldest(&rank->exec);

		if (!rank->ended) {
			snprintf(
				sim->result->why, sizeof(sim->result->why),
				"rank %d of %d stops at step %llu, kind %d, peer %d",
				r, sim->opts->shape.n,
				(unsigned long long)rank->exec.base,
				entry ? entry->step.kind : -1,
				entry ? entry->step.peer : -1);
			return -EDEADLK;
		}
		if (rank->sent > sim->result->max_sent)
			sim->result->max_sent = rank->sent;
		if (rank->received > sim->result->max_received)
			sim->result->max_received = rank->received;
		for (struct sim_peer *p = rank->peers; p; p = p->next)
			if (p->arrived != p->exec.waits ||
			    p->slots.freed != p->exec.landings ||
			    p->exec.claim_first != p->exec.claim_end)
				return broken(sim, rank, "messages left over");
	}
	return 0;
}

static void free_all(struct sim *sim)
{
	for (int r = 0; sim->ranks && r < sim->opts->shape.n; r++)
		while (sim->ranks[r].peers) {
			struct sim_peer *peer = sim->ranks[r].peers;

			sim->ranks[r].peers = peer->next;
			free(peer->messages);
			free(peer->memory);
			free(peer);
		}
	free(sim->ranks);
	free(sim->heap.events);
}

int sim_run(const struct sim_options *opts, struct sim_result *result)
{
	struct sim sim = {
		.opts = opts,
		.result = result,
		.kernel = reduce_find(opts->type, opts->reduction),
		.element = vbn_type_bytes(opts->type),
		.random = opts->seed * UINT64_C(0x9e3779b97f4a7c15) | 1,
	};
	int err = 0;

	*result = (struct sim_result){.first_end = -1};
	if (!sim.kernel || opts->slots < 1 || opts->slots > 64 ||
	    opts->shape.n < 1)
		return -EINVAL;
	sim.ranks = calloc((size_t)opts->shape.n, sizeof(*sim.ranks));
	if (!sim.ranks)
		return -ENOMEM;
	for (int r = 0; r < opts->shape.n; r++) {
		sim.ranks[r].sim = &sim;
		sim.ranks[r].rank = r;
		add_event(&sim,
			  (struct event){.time = opts->seed ? cost(&sim, 0) : 0,
					 .kind = EVENT_START,
					 .rank = &sim.ranks[r]});
	}
	while (!err && !sim.failed && sim.heap.count > 0) {
		struct event event = heap_take(&sim.heap);

		sim.now = event.time;
		err = handle(&sim, &event);
	}
	if (!err)
		err = sim.failed ? sim.failed : check_end(&sim);
	free_all(&sim);
	return err;
}
