/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator's memory: what steps read, write and compute, and the checks
 * that they keep within what they may touch, and when.
 */
#include "sim_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- where things are ---- */

int sim_open_memory(struct sim_rank *rank)
{
	struct sim *sim = rank->sim;
	const struct plan_algo *algo = sim->opts->algo;
	struct plan_shape shape = sim_shape(sim, rank->rank);
	size_t bytes;

	rank->room[PLAN_INPUT] = plan_input(&shape);
	rank->room[PLAN_OUTPUT] = plan_output(&shape);
	if (!algo)
		algo = plan_find(shape.operation, shape.algorithm);
	rank->room[PLAN_SCRATCH] =
		algo && algo->scratch ? algo->scratch(&shape) : 0;
	bytes = rank->room[PLAN_SCRATCH] * sim->combine.wide;
	if (bytes > sim->result->max_scratch)
		sim->result->max_scratch = bytes;
	if (!sim->opts->out)
		return 0;
	rank->scratch = malloc(bytes + 1);
	if (!rank->scratch)
		return -ENOMEM;
	memset(rank->scratch, sim->garbage, bytes);
	return 0;
}

static size_t bytes_of(const struct sim *sim, uint8_t space)
{
	return combine_bytes(&sim->combine, space, 0);
}

static const char *source(const struct sim_rank *rank, uint8_t space,
			  uint64_t off)
{
	const struct sim_options *opts = rank->sim->opts;
	const void *base = space == PLAN_INPUT	  ? opts->in[rank->rank]
			   : space == PLAN_OUTPUT ? opts->out[rank->rank]
						  : rank->scratch;

	return (const char *)base + off * bytes_of(rank->sim, space);
}

static char *target(const struct sim_rank *rank, uint8_t space, uint64_t off)
{
	char *base = space == PLAN_OUTPUT
			     ? (char *)rank->sim->opts->out[rank->rank]
			     : rank->scratch;

	return base + off * bytes_of(rank->sim, space);
}

static struct landed *landed(const struct sim_peer *peer, uint64_t landing)
{
	return &peer->landings[landing % peer->rank->sim->opts->slots];
}

static char *slot(const struct sim_peer *peer, uint64_t landing)
{
	return landed(peer, landing)->memory;
}

static uint64_t sum_bytes(const void *memory, size_t bytes)
{
	const char *at = memory;
	uint64_t sum = bytes, word;

	for (; bytes >= sizeof(word); at += sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		sum = (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
		sum ^= sum >> 32;
		bytes -= sizeof(word);
	}
	word = 0;
	memcpy(&word, at, bytes);
	return (sum ^ word) * UINT64_C(0x9e3779b97f4a7c15);
}

/* ---- what a step may touch ---- */

static bool exists(const struct sim_rank *rank, uint8_t space, uint64_t off,
		   uint64_t len)
{
	uint64_t room = rank->room[space & 3];

	if (space == PLAN_LANDING)
		return off == 0;
	return off <= room && len <= room - off;
}

static bool is_written(uint8_t space)
{
	return space == PLAN_OUTPUT || space == PLAN_SCRATCH;
}

static const char *check_put(const struct sim_rank *rank,
			     const struct exec_entry *entry)
{
	const struct plan_step *step = &entry->step;
	const struct sim_rank *to = peer_of(entry->peer)->other->rank;

	if (step->src == PLAN_LANDING ||
	    !exists(rank, step->src, step->src_off, step->len))
		return "the source does not exist";
	if ((step->dst != PLAN_OUTPUT && step->dst != PLAN_LANDING) ||
	    !exists(to, step->dst, step->dst_off, step->len))
		return "the destination does not exist";
	if (step->dst == PLAN_OUTPUT && step->src == PLAN_SCRATCH &&
	    rank->sim->is_wide)
		return "wide elements into OUTPUT";
	return NULL;
}

static const char *check_wait(const struct sim_rank *rank,
			      const struct exec_entry *entry)
{
	const struct plan_step *step = &entry->step;
	uint8_t opening = peer_of(entry->peer)->opening;

	if (!opening || (step->dst == PLAN_OUTPUT && step->len > 0 &&
			 !(opening & OPENED_OUTPUT)))
		return "a wait without open";
	if ((step->dst != PLAN_OUTPUT && step->dst != PLAN_LANDING) ||
	    !exists(rank, step->dst, step->dst_off, step->len))
		return "the destination does not exist";
	return NULL;
}

static const char *check_compute(const struct sim_rank *rank,
				 const struct plan_step *step)
{
	bool adds = step->kind == PLAN_REDUCE || step->kind == PLAN_REDUCE_ALL;

	if (step->len == 0)
		return "an empty step";
	if (!is_written(step->dst) ||
	    !exists(rank, step->dst, step->dst_off, step->len))
		return "the destination does not exist";
	if (adds && (step->acc == PLAN_LANDING ||
		     !exists(rank, step->acc, step->acc_off, step->len)))
		return "the accumulator does not exist";
	if (adds && !rank->sim->combine.kernel)
		return "a reduction of an operation that has none";
	if (step->kind == PLAN_REDUCE && step->src != PLAN_LANDING)
		return "the source is not a landing";
	if (step->kind == PLAN_COPY &&
	    !exists(rank, step->src, step->src_off, step->len))
		return "the source does not exist";
	return NULL;
}

/* The rank that contributes as the i-th, NULL: no such. */
static const struct sim_rank *contributor(const struct sim_rank *rank,
					  const struct plan_step *step, int i)
{
	int member = step->members ? step->members[i] : i;

	return member >= 0 && member < rank->sim->opts->shape.n
		       ? &rank->sim->ranks[member]
		       : NULL;
}

static const char *check_reads(const struct sim_rank *rank,
			       const struct exec_entry *entry)
{
	const struct plan_step *step = &entry->step;
	const struct sim_rank *from;
	bool own = false;

	if (step->kind == PLAN_COPY_PEER) {
		from = peer_of(entry->peer)->other->rank;
		return (step->src == PLAN_INPUT || step->src == PLAN_OUTPUT) &&
				       exists(from, step->src, step->src_off,
					      step->len)
			       ? NULL
			       : "the peer's source does not exist";
	}
	for (int i = 0; i < step->n; i++) {
		from = contributor(rank, step, i);
		if (!from)
			return "no such member";
		own |= from == rank;
		if (from != rank && step->src != PLAN_LANDING &&
		    (step->src != PLAN_INPUT ||
		     !exists(from, step->src, step->src_off, step->len)))
			return "a member's source does not exist";
	}
	return own ? NULL : "not a member itself";
}

int sim_check_step(struct sim_rank *rank, const struct exec_entry *entry)
{
	const struct plan_step *step = &entry->step;
	bool message = step->kind == PLAN_PUT || step->kind == PLAN_WAIT ||
		       (step->src == PLAN_LANDING && step->kind != PLAN_OPEN);
	const char *wrong = NULL;

	if (step->kind == PLAN_OPEN)
		wrong = (step->dst != PLAN_OUTPUT &&
			 step->dst != PLAN_LANDING) ||
					(step->src != PLAN_INPUT &&
					 step->src != PLAN_LANDING)
				? "opens what cannot be opened"
				: NULL;
	else if (step->kind == PLAN_PUT)
		wrong = check_put(rank, entry);
	else if (step->kind == PLAN_WAIT)
		wrong = check_wait(rank, entry);
	else
		wrong = check_compute(rank, step);
	if (!wrong &&
	    (step->kind == PLAN_REDUCE_ALL || step->kind == PLAN_COPY_PEER))
		wrong = check_reads(rank, entry);
	if (!wrong && message && step->len > rank->sim->opts->shape.chunk)
		wrong = "longer than a chunk";
	return wrong ? sim_broken(rank, entry, wrong) : 0;
}

/* ---- messages ---- */

static const char *message_source(const struct sim_peer *there,
				  const struct message *m)
{
	return source(there->other->rank, m->src, m->src_off);
}

static char *message_target(const struct sim_peer *there,
			    const struct message *m)
{
	return m->landed ? slot(there, m->landing)
			 : target(there->rank, m->dst, m->dst_off);
}

static size_t message_bytes(const struct sim_peer *there,
			    const struct message *m)
{
	return m->len * bytes_of(there->rank->sim, m->src);
}

int sim_put_memory(struct sim_peer *there, struct message *message)
{
	struct sim *sim = there->rank->sim;
	size_t bytes = message_bytes(there, message);

	if (!sim->opts->out || message->len == 0)
		return 0;
	if (message->landed) {
		struct landed *l = landed(there, message->landing);

		l->memory = malloc(bytes);
		if (!l->memory)
			return -ENOMEM;
	}
	message->sum = sum_bytes(message_source(there, message), bytes);
	memset(message_target(there, message), sim->garbage, bytes);
	return 0;
}

static int source_changed(const struct sim_peer *there)
{
	return sim_broken(there->other->rank, NULL,
			  "a put's source changed before it was read");
}

static int target_changed(const struct sim_peer *here,
			  const struct exec_entry *entry)
{
	return sim_broken(here->rank, entry,
			  "what was put changed before the wait");
}

int sim_arrive_memory(struct sim_peer *there, const struct message *message)
{
	size_t bytes = message_bytes(there, message);
	const char *from;
	char *to;

	if (message->landed) {
		struct landed *l = landed(there, message->landing);

		l->len = message->len;
		l->wide = message->wide;
		l->waited = false;
	}
	if (!there->rank->sim->opts->out || message->len == 0)
		return 0;
	from = message_source(there, message);
	if (sum_bytes(from, bytes) != message->sum)
		return source_changed(there);
	to = message_target(there, message);
	for (size_t i = 0; i < bytes; i++)
		if (to[i] != (char)there->rank->sim->garbage)
			return target_changed(there, NULL);
	memcpy(to, from, bytes);
	return 0;
}

int sim_wait_memory(struct sim_peer *here, const struct message *message,
		    const struct exec_entry *entry)
{
	size_t bytes = message_bytes(here, message);

	if (message->landed)
		landed(here, message->landing)->waited =
			message->dst == PLAN_LANDING;
	if (!here->rank->sim->opts->out || message->len == 0)
		return 0;
	if (!message->sync &&
	    sum_bytes(message_source(here, message), bytes) != message->sum)
		return source_changed(here);
	if (sum_bytes(message_target(here, message), bytes) != message->sum)
		return target_changed(here, entry);
	return 0;
}

/* ---- what takes time ---- */

/* Take a landing that a reduce or copy is about to read. */
static int take_landing(struct sim_rank *rank, struct sim_peer *peer,
			const struct exec_entry *entry, uint64_t landing)
{
	const struct plan_step *step = &entry->step;
	struct landed *l = landed(peer, landing);

	if (!l->waited)
		return sim_broken(rank, entry, "a landing before its wait");
	if (l->len != step->len)
		return sim_broken(rank, entry, "a landing of another length");
	if (rank->sim->is_wide && l->wide != !!(step->flags & PLAN_WIDE))
		return sim_broken(
			rank, entry,
			"a put and its reduce or copy differ in width");
	l->waited = false;
	return 0;
}

static int may_read(struct sim_peer *peer, const struct exec_entry *entry)
{
	if (!(peer->opened & OPENED_READ)) {
		peer->blocked = true;
		return -EAGAIN;
	}
	return peer->rank->sim->greets && !peer->greeted
		       ? sim_broken(peer->rank, entry,
				    "before the peer's greeting")
		       : 0;
}

/* Sum of what @entry reads of mapped peers. */
static uint64_t sum_mapped(const struct sim_rank *rank,
			   const struct exec_entry *entry)
{
	const struct plan_step *step = &entry->step;
	size_t bytes = step->len * bytes_of(rank->sim, step->src);
	uint64_t sum = 0;

	if (!rank->sim->opts->out)
		return 0;
	if (step->kind == PLAN_COPY_PEER)
		return sum_bytes(source(peer_of(entry->peer)->other->rank,
					step->src, step->src_off),
				 bytes);
	for (int i = 0; i < step->n; i++) {
		const struct sim_rank *from = contributor(rank, step, i);

		if (from != rank)
			sum = sum * 31 +
			      sum_bytes(source(from, step->src, step->src_off),
					bytes);
	}
	return sum;
}

static bool is_mapped(const struct plan_step *step)
{
	return step->kind == PLAN_COPY_PEER ||
	       (step->kind == PLAN_REDUCE_ALL && step->src != PLAN_LANDING);
}

/* Claim a landing of each other rank, or see that all may be read. */
static int begin_all(struct sim_rank *rank, const struct exec_entry *entry,
		     struct sim_work *work)
{
	const struct plan_step *step = &entry->step;
	bool mapped = is_mapped(step);

	for (int i = 0; i < step->n; i++) {
		const struct sim_rank *from = contributor(rank, step, i);
		struct sim_peer *peer;
		int err;

		if (from == rank)
			continue;
		peer = sim_peer_get(rank, from->rank);
		if (!peer)
			return -ENOMEM;
		if (mapped) {
			err = may_read(peer, entry);
			if (err)
				return err;
			continue;
		}
		if (!exec_claim(&peer->exec, &work->landings[i]))
			return sim_broken(rank, entry, "no landing to sum");
		err = take_landing(rank, peer, entry, work->landings[i]);
		if (err)
			return err;
	}
	return 0;
}

static int begin(struct sim_rank *rank, const struct exec_entry *entry,
		 struct sim_work *work)
{
	const struct plan_step *step = &entry->step;
	int err = 0;

	if (step->kind == PLAN_REDUCE_ALL)
		err = begin_all(rank, entry, work);
	else if (step->kind == PLAN_COPY_PEER)
		err = may_read(peer_of(entry->peer), entry);
	else if (entry->peer && step->kind != PLAN_WAIT)
		err = take_landing(rank, peer_of(entry->peer), entry,
				   entry->landing);
	if (!err && is_mapped(step))
		work->sum = sum_mapped(rank, entry);
	return err;
}

/* Of a byte: to copy from a peer is to put to one. */
static double rate(const struct sim *sim, const struct plan_step *step)
{
	return step->kind == PLAN_COPY_PEER && sim->opts->fabric
		       ? sim->opts->fabric->local_beta
		       : sim->opts->gamma;
}

int sim_compute(struct exec *exec, struct exec_entry *entry)
{
	const struct plan_step *step = &entry->step;
	struct sim_rank *rank = rank_of(exec);
	struct sim *sim = rank->sim;
	bool all = step->kind == PLAN_REDUCE_ALL;
	double bytes = (double)(step->len * sim->combine.narrow);
	struct sim_work *work = malloc(
		sizeof(*work) + (all ? (size_t)step->n * sizeof(uint64_t) : 0));
	int err = work ? begin(rank, entry, work) : -ENOMEM;

	if (err) {
		free(work);
		return err;
	}
	if (all)
		bytes *= step->n - 1;
	if (is_mapped(step))
		rank->read += (uint64_t)bytes;
	sim_add_event(sim,
		      (struct event){.time = sim_work(sim, rank,
						      rate(sim, step) * bytes),
				     .kind = EVENT_COMPUTED,
				     .rank = rank,
				     .entry = entry,
				     .work = work});
	return -EINPROGRESS;
}

static void free_landing(struct sim *sim, struct sim_peer *peer,
			 uint64_t landing)
{
	uint64_t freed = peer->slots.freed;

	free(landed(peer, landing)->memory);
	landed(peer, landing)->memory = NULL;
	freed = exec_slot_free(&peer->slots, landing) - freed;
	for (; freed > 0; freed--)
		sim_add_event(sim, (struct event){.time = sim_tell(sim, peer),
						  .kind = EVENT_CREDIT,
						  .rank = peer->other->rank,
						  .peer = peer->other});
}

static void compute_all(struct sim_rank *rank, const struct plan_step *step,
			const struct sim_work *work)
{
	struct sim *sim = rank->sim;

	for (int i = 0; i < step->n; i++) {
		const struct sim_rank *from = contributor(rank, step, i);

		if (from == rank)
			sim->contributions[i] =
				source(rank, step->acc, step->acc_off);
		else if (is_mapped(step))
			sim->contributions[i] =
				source(from, step->src, step->src_off);
		else
			sim->contributions[i] =
				slot(sim_peer_get(rank, from->rank),
				     work->landings[i]);
	}
	combine_all(&sim->combine, step, target(rank, step->dst, step->dst_off),
		    sim->contributions);
}

static void compute(struct sim_rank *rank, const struct exec_entry *entry,
		    const struct sim_work *work)
{
	const struct combine *combine = &rank->sim->combine;
	const struct plan_step *step = &entry->step;
	struct sim_peer *peer = entry->peer ? peer_of(entry->peer) : NULL;
	char *to = target(rank, step->dst, step->dst_off);

	switch (step->kind) {
	case PLAN_REDUCE_ALL:
		compute_all(rank, step, work);
		break;
	case PLAN_REDUCE:
		combine_reduce(combine, step, to, slot(peer, entry->landing),
			       source(rank, step->acc, step->acc_off));
		break;
	case PLAN_COPY_PEER:
		combine_copy(
			combine, step, to,
			source(peer->other->rank, step->src, step->src_off));
		break;
	case PLAN_COPY:
		combine_copy(combine, step, to,
			     peer ? slot(peer, entry->landing)
				  : source(rank, step->src, step->src_off));
		break;
	default: /* a wait for what came through landing */
		memcpy(to, slot(peer, entry->landing),
		       step->len * combine->narrow);
		break;
	}
}

static int check_mapped(struct sim_rank *rank, const struct exec_entry *entry,
			uint64_t sum)
{
	const struct plan_step *step = &entry->step;

	if (sum_mapped(rank, entry) != sum)
		return sim_broken(rank, entry,
				  "mapped memory changed while it was read");
	if (step->kind == PLAN_COPY_PEER)
		return peer_of(entry->peer)->other->rank->ended
			       ? sim_broken(rank, entry,
					    "read a rank that had ended")
			       : 0;
	for (int i = 0; i < step->n; i++)
		if (contributor(rank, step, i)->ended)
			return sim_broken(rank, entry,
					  "read a rank that had ended");
	return 0;
}

int sim_computed(struct sim *sim, const struct event *event)
{
	struct sim_rank *rank = event->rank;
	struct exec_entry *entry = event->entry;
	const struct plan_step *step = &entry->step;
	int err = is_mapped(step) ? check_mapped(rank, entry, event->work->sum)
				  : 0;

	if (!err && sim->opts->out)
		compute(rank, entry, event->work);
	if (step->kind == PLAN_REDUCE_ALL) {
		for (int i = 0; i < step->n && !is_mapped(step); i++) {
			int member = contributor(rank, step, i)->rank;

			if (member != rank->rank)
				free_landing(sim, sim_peer_get(rank, member),
					     event->work->landings[i]);
		}
	} else if (entry->peer && step->kind != PLAN_COPY_PEER) {
		free_landing(sim, peer_of(entry->peer), entry->landing);
	}
	free(event->work);
	exec_done(&rank->exec, entry);
	return err;
}
