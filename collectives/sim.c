/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator's events. Time goes from event to event (a heap, ties in the
 * order of creation). An event of a rank is followed by exec_run() of it,
 * whose backend slots create further events. No event left and a rank
 * unfinished is a deadlock.
 */
#include "sim_impl.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- for the other files ---- */

void sim_add_event(struct sim *sim, struct event event)
{
	int err = heap_add(&sim->heap, &event);

	if (err) {
		free(event.work);
		sim->failed = err;
	}
}

static const char *const kinds[] = {
	[PLAN_NONE] = "none",	  [PLAN_OPEN] = "open",
	[PLAN_PUT] = "put",	  [PLAN_WAIT] = "wait",
	[PLAN_REDUCE] = "reduce", [PLAN_REDUCE_ALL] = "reduce-all",
	[PLAN_COPY] = "copy",	  [PLAN_COPY_PEER] = "copy-peer",
};

static const char spaces[] = "IOLS"; /* of enum plan_space */

static void say(const struct sim_rank *rank, const struct exec_entry *entry,
		const char *what)
{
	const struct exec *exec = &rank->exec;
	char *why = rank->sim->result->why;
	size_t room = sizeof(rank->sim->result->why);
	const struct plan_step *step;
	uint64_t number;

	if (!entry) {
		snprintf(why, room, "rank %d: %s", rank->rank, what);
		return;
	}
	step = &entry->step;
	number = (uint64_t)(entry - exec->entries);
	number =
		exec->base +
		(number + EXEC_WINDOW - exec->base % EXEC_WINDOW) % EXEC_WINDOW;
	snprintf(
		why, room,
		"rank %d: %s: step %llu %s peer %d %c%llu+%c%llu->%c%llu len %llu flags %x",
		rank->rank, what, (unsigned long long)number, kinds[step->kind],
		step->peer, spaces[step->src & 3],
		(unsigned long long)step->src_off, spaces[step->acc & 3],
		(unsigned long long)step->acc_off, spaces[step->dst & 3],
		(unsigned long long)step->dst_off,
		(unsigned long long)step->len, step->flags);
}

int sim_broken(const struct sim_rank *rank, const struct exec_entry *entry,
	       const char *what)
{
	say(rank, entry, what);
	return -EPROTO;
}

uint64_t sim_draw(struct sim *sim)
{
	uint64_t x = sim->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	return sim->random = x;
}

double sim_cost(struct sim *sim, const struct sim_rank *rank, double asked)
{
	double unit;

	if (!sim->opts->seed)
		return sim->opts->slowness
			       ? asked * sim->opts->slowness[rank->rank]
			       : asked;
	unit = (double)(sim_draw(sim) % 1000) / 1000;
	return sim_draw(sim) % 16 == 0 ? 20 * unit : unit;
}

struct plan_shape sim_shape(const struct sim *sim, int rank)
{
	struct plan_shape shape = sim->opts->shape;
	bool roots = shape.operation == PLAN_OP_REDUCE ||
		     shape.operation == PLAN_OP_GATHER ||
		     shape.operation == PLAN_OP_SCATTER;

	shape.rank = rank;
	shape.wide = sim->is_wide;
	shape.no_output =
		rank != shape.root && (shape.operation == PLAN_OP_REDUCE ||
				       shape.operation == PLAN_OP_GATHER);
	if (roots && rank != shape.root)
		shape.in_place = false;
	if (sim->opts->layouts)
		shape.layout = &sim->opts->layouts[rank];
	return shape;
}

/* ---- the executor's backend ---- */

static struct exec_peer *peer_get(struct exec *exec, int number)
{
	struct sim_rank *rank = rank_of(exec);
	struct sim_peer *peer;

	if (number < 0 || number >= rank->sim->opts->shape.n ||
	    number == rank->rank) {
		rank->sim->failed = sim_broken(rank, NULL, "no such peer");
		return NULL;
	}
	peer = sim_peer_get(rank, number);
	return peer ? &peer->exec : NULL;
}

static bool via_landing(struct exec *exec, struct exec_peer *peer)
{
	(void)peer;
	return !rank_of(exec)->direct;
}

static void enter(struct exec *exec, struct exec_entry *entry)
{
	struct sim_rank *rank = rank_of(exec);
	const struct plan_step *step = &entry->step;
	int err;

	rank->sim->result->steps++;
	if (step->kind == PLAN_OPEN) {
		uint8_t *opening = &peer_of(entry->peer)->opening;

		*opening |= OPENED;
		*opening |= step->dst == PLAN_OUTPUT ? OPENED_OUTPUT : 0;
		*opening |= step->src == PLAN_INPUT ? OPENED_READ : 0;
	}
	err = sim_check_step(rank, entry);
	if (err)
		rank->sim->failed = err;
}

static int open_step(struct exec *exec, struct exec_entry *entry)
{
	struct sim *sim = rank_of(exec)->sim;
	struct sim_peer *peer = peer_of(entry->peer);
	const struct plan_step *step = &entry->step;

	sim_add_event(
		sim, (struct event){
			     .time = sim->now + sim_cost(sim, rank_of(exec), 0),
			     .kind = EVENT_OPENED,
			     .rank = peer->other->rank,
			     .peer = peer->other,
			     .opened = (uint8_t)(OPENED |
						 (step->dst == PLAN_OUTPUT
							  ? OPENED_OUTPUT
							  : 0) |
						 (step->src == PLAN_INPUT
							  ? OPENED_READ
							  : 0)),
			     .len = step->len});
	return 0;
}

/* Whether the peer has opened for the message, and a slot is free. */
static bool may_put(struct sim_peer *peer, const struct message *message)
{
	uint8_t need = message->len > 0 && message->dst == PLAN_OUTPUT
			       ? OPENED_OUTPUT
			       : OPENED;

	if (peer->opened & need &&
	    (!message->landed || peer->landed < peer->credits))
		return true;
	peer->blocked = true;
	return false;
}

static int put(struct exec *exec, struct exec_entry *entry)
{
	struct sim_rank *from = rank_of(exec);
	struct sim *sim = from->sim;
	struct sim_peer *peer = peer_of(entry->peer), *there = peer->other;
	struct sim_rank *to = there->rank;
	const struct plan_step *step = &entry->step;
	uint64_t bytes = step->len * combine_bytes(&sim->combine, step->src, 0);
	struct message message = {
		.src = step->src,
		.dst = step->dst,
		.landed = step->len > 0 &&
			  (step->dst == PLAN_LANDING || !to->direct),
		.wide = sim->is_wide && step->src == PLAN_SCRATCH,
		.sync = step->flags & PLAN_SYNC,
		.src_off = step->src_off,
		.dst_off = step->dst_off,
		.len = step->len,
		.landing = peer->landed,
		.entry = step->flags & PLAN_SYNC ? entry : NULL,
	};
	int err;

	if (!may_put(peer, &message))
		return -EAGAIN;
	if (message.landed && step->len > peer->opened_len)
		return sim_broken(from, entry, "longer than was opened for");
	if (sim->greets && step->dst == PLAN_OUTPUT && step->len > 0 &&
	    !peer->greeted)
		return sim_broken(from, entry, "before the peer's greeting");
	err = sim_put_memory(there, &message);
	if (!err)
		err = sim_push_message(there, &message);
	if (err)
		return err;
	peer->landed += message.landed;
	from->sent += bytes;
	to->received += bytes;
	from->messages++;
	sim->result->messages++;
	if (there->end - there->arrived == 1 &&
	    ++to->fan_in > sim->result->peak_fan_in)
		sim->result->peak_fan_in = to->fan_in;
	sim_send(sim, there, (double)bytes);
	return message.sync ? -EINPROGRESS : 0;
}

static int wait_step(struct exec *exec, struct exec_entry *entry)
{
	struct sim_rank *rank = rank_of(exec);
	struct sim *sim = rank->sim;
	struct sim_peer *peer = peer_of(entry->peer);
	const struct plan_step *step = &entry->step;
	const struct message *m;
	int err;

	if (entry->index >= peer->arrived) {
		peer->awaited = true;
		return -EAGAIN;
	}
	m = &peer->messages[entry->index % peer->room];
	if (m->len != step->len || m->dst != step->dst ||
	    (step->dst == PLAN_OUTPUT && m->dst_off != step->dst_off))
		return sim_broken(rank, entry, "a put and its wait differ");
	if (step->dst == PLAN_LANDING && step->len > 0 && sim->is_wide &&
	    m->wide != !!(step->flags & PLAN_WIDE))
		return sim_broken(rank, entry,
				  "a put and its wait differ in width");
	if (m->landed && m->landing != entry->landing)
		return sim_broken(rank, entry, "landing numbers differ");
	peer->greeted = true;
	sim_take(sim, peer);
	err = sim_wait_memory(peer, m, entry);
	if (err || !m->landed || step->dst == PLAN_LANDING)
		return err;
	return sim_compute(exec, entry);
}

static const struct exec_backend backend = {
	.peer = peer_get,
	.via_landing = via_landing,
	.enter = enter,
	.open = open_step,
	.put = put,
	.wait = wait_step,
	.reduce = sim_compute,
	.reduce_all = sim_compute,
	.copy = sim_compute,
	.copy_peer = sim_compute,
};

/* ---- events ---- */

static int start(struct sim *sim, struct sim_rank *rank)
{
	struct plan_shape shape = sim_shape(sim, rank->rank);
	int err;

	sim->result->last_start = sim->now;
	err = exec_begin(&rank->exec, &backend, &shape, sim->opts->window);
	if (!err && sim->opts->algo)
		rank->exec.plan.algo = sim->opts->algo;
	return err;
}

/* Whether the rank may have something to do; *wakes may get another. */
static int arrive(struct sim *sim, struct sim_peer *peer, bool *runs)
{
	const struct message *m = &peer->messages[peer->arrived % peer->room];
	struct sim_rank *from = peer->other->rank;

	if (++peer->arrived == peer->end)
		peer->rank->fan_in--;
	*runs = peer->awaited;
	peer->awaited = false;
	if (m->sync)
		sim_add_event(sim,
			      (struct event){.time = sim_tell(sim, peer->other),
					     .kind = EVENT_SENT,
					     .rank = from,
					     .entry = m->entry});
	return sim_arrive_memory(peer, m);
}

static bool unblocks(struct sim_peer *peer)
{
	bool blocked = peer->blocked;

	peer->blocked = false;
	return blocked;
}

/* What the library does before the first step. */
static bool is_in_call(struct sim *sim, struct sim_rank *rank)
{
	if (rank->called || sim->opts->call <= 0 || sim->opts->seed)
		return false;
	rank->called = rank->due = true;
	sim_add_event(sim, (struct event){
				   .time = sim_work(sim, rank, sim->opts->call),
				   .kind = EVENT_RUN,
				   .rank = rank});
	return true;
}

static int run_steps(struct sim *sim, struct sim_rank *rank)
{
	int err;

	if (!rank->exec.backend || rank->ended)
		return 0; /* not started yet, or just ended */
	if (is_in_call(sim, rank))
		return 0;
	err = exec_run(&rank->exec);
	if (sim->failed)
		return sim->failed;
	if (err == -EPROTO && !sim->result->why[0])
		sim_broken(rank, NULL,
			   "dependencies or claims of landings in disorder");
	if (err)
		return err == -EAGAIN ? 0 : err;
	rank->ended = true;
	if (sim->result->first_end < 0)
		sim->result->first_end = sim->now;
	/* Its last messages may still be in its processor's hands. */
	if (sim->result->time < sim->now)
		sim->result->time = sim->now;
	if (sim->result->time < rank->cpu_free && !sim->opts->seed)
		sim->result->time = rank->cpu_free;
	return 0;
}

static int run_rank(struct sim *sim, struct sim_rank *rank)
{
	int err = run_steps(sim, rank);

	sim_rest(sim, rank);
	return err;
}

/* Returns 0 or an error; *runs: the rank may have something to do. */
static int handle(struct sim *sim, const struct event *event, bool *runs)
{
	struct sim_peer *peer = event->peer;

	*runs = true;
	switch (event->kind) {
	case EVENT_START:
		return start(sim, event->rank);
	case EVENT_UP:
	case EVENT_DOWN:
	case EVENT_HEAD:
		*runs = false;
		sim_travel(sim, event);
		return 0;
	case EVENT_ARRIVE:
		return arrive(sim, peer, runs);
	case EVENT_SENT:
		exec_done(&event->rank->exec, event->entry);
		return 0;
	case EVENT_CREDIT:
		peer->credits++;
		*runs = unblocks(peer);
		return 0;
	case EVENT_OPENED:
		peer->opened |= event->opened;
		if (event->len > peer->opened_len)
			peer->opened_len = event->len;
		*runs = unblocks(peer);
		return 0;
	case EVENT_COMPUTED:
		return sim_computed(sim, event);
	case EVENT_REST:
		*runs = event->rank->rests = false;
		sim_rest(sim, event->rank);
		return 0;
	case EVENT_RUN:
		*runs = false;
		event->rank->due = false;
		return run_rank(sim, event->rank);
	}
	return -EINVAL;
}

/* Now, or once for all that happens at this time, or has a processor. */
static int run_soon(struct sim *sim, struct sim_rank *rank)
{
	if (rank->ended || !sim_may_run(sim, rank))
		return 0; /* ended: only credits come */
	if (sim->heap.count == 0 || sim->heap.events[0].time > sim->now)
		return run_rank(sim, rank);
	rank->due = true;
	sim_add_event(sim, (struct event){.time = sim->now,
					  .kind = EVENT_RUN,
					  .rank = rank});
	return 0;
}

static int run_events(struct sim *sim)
{
	while (sim->heap.count > 0) {
		struct event event = heap_take(&sim->heap);
		bool runs;
		int err;

		sim->now = event.time;
		err = handle(sim, &event, &runs);
		if (!err && runs && !event.rank->due)
			err = run_soon(sim, event.rank);
		if (err || sim->failed)
			return err ? err : sim->failed;
	}
	return 0;
}

/* ---- the whole ---- */

static void note(struct sim_result *result, const struct sim_rank *rank)
{
	if (rank->sent > result->max_sent)
		result->max_sent = rank->sent;
	if (rank->received > result->max_received)
		result->max_received = rank->received;
	if (rank->messages > result->max_messages)
		result->max_messages = rank->messages;
	if (rank->read > result->max_read)
		result->max_read = rank->read;
	result->pairs += rank->peer_count;
	if (rank->peer_count > result->max_peers)
		result->max_peers = rank->peer_count;
}

/* After the last event: all ended, and both sides agree on all counts. */
static int check_end(struct sim *sim)
{
	for (int r = 0; r < sim->opts->shape.n; r++) {
		struct sim_rank *rank = &sim->ranks[r];

		if (!rank->ended) {
			say(rank, exec_oldest(&rank->exec), "stops");
			return -EDEADLK;
		}
		note(sim->result, rank);
		for (unsigned i = 0; i < rank->peer_room; i++) {
			const struct sim_peer *p = rank->peers[i];

			if (p && (p->arrived != p->exec.waits ||
				  p->slots.freed != p->exec.landings ||
				  p->exec.claim_first != p->exec.claim_end))
				return sim_broken(rank, NULL,
						  "messages left over");
		}
	}
	return 0;
}

static void free_all(struct sim *sim)
{
	while (sim->heap.count > 0)
		free(heap_take(&sim->heap).work);
	free(sim->heap.events);
	for (int r = 0; sim->ranks && r < sim->opts->shape.n; r++) {
		sim_free_peers(&sim->ranks[r]);
		free(sim->ranks[r].scratch);
	}
	sim_close_net(sim);
	free(sim->contributions);
	free(sim->ranks);
}

/* The kernel and the sizes of elements. */
static int open_combine(struct sim *sim)
{
	const struct sim_options *opts = sim->opts;
	enum plan_operation operation = opts->shape.operation;
	struct combine *combine = &sim->combine;
	bool floats = opts->type >= VBN_FLOAT16;

	combine->narrow = combine->wide = vbn_type_bytes(opts->type);
	combine->members = (unsigned)opts->shape.n;
	sim->garbage = floats ? 0xff : 0x5b; /* all ones is a NaN */
	if (combine->narrow == 0)
		return -EINVAL;
	if (operation != PLAN_OP_ALLREDUCE && operation != PLAN_OP_REDUCE &&
	    operation != PLAN_OP_REDUCE_SCATTER)
		return 0;
	combine->kernel =
		reduce_find(opts->type, opts->reduction, opts->wire16);
	if (!combine->kernel)
		return -EOPNOTSUPP;
	combine->wide = combine->kernel->wide;
	sim->is_wide = combine->wide != combine->narrow;
	return 0;
}

static int open_ranks(struct sim *sim)
{
	const struct sim_options *opts = sim->opts;
	size_t n = (size_t)opts->shape.n;
	struct plan_shape shape = sim_shape(sim, 0);
	struct plan plan;
	int err = n < 1 || n > INT_MAX ? -EINVAL : plan_begin(&plan, &shape);

	if (err)
		return err;
	sim->greets = opts->algo ? opts->algo->greets : plan.algo->greets;
	sim->ranks = calloc(n, sizeof(*sim->ranks));
	sim->contributions = calloc(n, sizeof(void *));
	if (!sim->ranks || !sim->contributions)
		return -ENOMEM;
	for (int r = 0; r < opts->shape.n && !err; r++) {
		sim->ranks[r].sim = sim;
		sim->ranks[r].rank = r;
		sim->ranks[r].direct =
			opts->direct || (opts->seed && sim_draw(sim) % 2);
		err = sim_open_memory(&sim->ranks[r]);
	}
	return err ? err : sim_open_net(sim);
}

int sim_run(const struct sim_options *opts, struct sim_result *result)
{
	struct sim sim = {
		.opts = opts,
		.result = result,
		.random = opts->seed * UINT64_C(0x9e3779b97f4a7c15) | 1,
	};
	int err;

	*result = (struct sim_result){.first_end = -1};
	if (opts->slots < 1 || opts->slots > 64)
		return -EINVAL;
	err = open_combine(&sim);
	if (!err)
		err = open_ranks(&sim);
	for (int r = 0; r < opts->shape.n && !err; r++)
		sim_add_event(
			&sim,
			(struct event){
				.time = opts->seed ? sim_cost(&sim,
							      &sim.ranks[r], 0)
						   : 0,
				.kind = EVENT_START,
				.rank = &sim.ranks[r]});
	if (!err)
		err = run_events(&sim);
	if (!err)
		err = check_end(&sim);
	free_all(&sim);
	return err;
}
