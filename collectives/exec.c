/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor. Each pass goes over the pending steps from the oldest;
 * passes repeat while one of them got something done, since that may have
 * let others go or made room in the window.
 */
#include "exec.h"

#include <errno.h>
#include <string.h>

_Static_assert(EXEC_WINDOW == 64, "pending is a mask of 64 bits");

int exec_begin(struct exec *exec, const struct exec_backend *backend,
	       const struct plan_shape *shape, unsigned window)
{
	if (window < 1 || window > EXEC_WINDOW)
		return -EINVAL;
	exec->backend = backend;
	exec->window = window;
	exec->ended = false;
	exec->base = exec->next = 0;
	exec->pending = 0;
	return plan_begin(&exec->plan, shape);
}

static uint64_t bit_of(uint64_t number)
{
	return UINT64_C(1) << (number % EXEC_WINDOW);
}

static bool is_done(const struct exec *exec, uint64_t number)
{
	return number == PLAN_NO_STEP || number < exec->base ||
	       !(exec->pending & bit_of(number));
}

static void set_done(struct exec *exec, uint64_t number)
{
	exec->pending &= ~bit_of(number);
	while (exec->base < exec->next && !(exec->pending & bit_of(exec->base)))
		exec->base++;
}

void exec_done(struct exec *exec, struct exec_entry *entry)
{
	uint64_t slot = (uint64_t)(entry - exec->entries);
	uint64_t first = exec->base % EXEC_WINDOW;

	set_done(exec, exec->base + (slot + EXEC_WINDOW - first) % EXEC_WINDOW);
}

uint64_t exec_slot_free(struct exec_slots *slots, uint64_t number)
{
	if (number > slots->freed) {
		slots->ahead |= UINT64_C(1) << (number - slots->freed - 1);
		return slots->freed;
	}
	slots->freed++;
	while (slots->ahead & 1) {
		slots->ahead >>= 1;
		slots->freed++;
	}
	slots->ahead >>= 1;
	return slots->freed;
}

bool exec_oldest_claim(const struct exec_peer *peer, uint64_t *landing)
{
	if (peer->claim_first == peer->claim_end)
		return false;
	*landing = peer->claims[peer->claim_first % EXEC_WINDOW];
	return true;
}

bool exec_claim(struct exec_peer *peer, uint64_t *landing)
{
	if (!exec_oldest_claim(peer, landing))
		return false;
	peer->claim_first++;
	return true;
}

/* Give a step its numbers at its peer. */
static int number_step(struct exec *exec, struct exec_entry *entry)
{
	const struct plan_step *step = &entry->step;
	struct exec_peer *peer;

	entry->started = false;
	entry->peer = NULL;
	if (step->kind == PLAN_NONE || step->kind == PLAN_REDUCE_ALL ||
	    (step->kind == PLAN_COPY && step->src != PLAN_LANDING))
		return 0;
	peer = exec->backend->peer(exec, step->peer);
	if (!peer)
		return -ENOMEM;
	entry->peer = peer;
	if (step->kind == PLAN_OPEN || step->kind == PLAN_COPY_PEER)
		return 0;
	if (step->kind == PLAN_PUT) {
		entry->index = peer->puts++;
	} else if (step->kind == PLAN_WAIT) {
		entry->index = peer->waits++;
		if (step->len == 0)
			return 0;
		if (step->dst == PLAN_LANDING) {
			if (peer->claim_end - peer->claim_first == EXEC_WINDOW)
				return -EPROTO;
			entry->landing = peer->landings++;
			peer->claims[peer->claim_end++ % EXEC_WINDOW] =
				entry->landing;
		} else if (exec->backend->via_landing(exec, peer)) {
			entry->landing = peer->landings++;
		}
	} else if (!exec_claim(peer, &entry->landing)) {
		return -EPROTO;
	}
	return 0;
}

static int fill_window(struct exec *exec)
{
	while (!exec->ended && exec->next - exec->base < exec->window) {
		struct exec_entry *entry =
			&exec->entries[exec->next % EXEC_WINDOW];
		int err;

		if (!plan_next(&exec->plan, &entry->step)) {
			exec->ended = true;
			break;
		}
		for (int i = 0; i < 2; i++)
			if (entry->step.dep[i] != PLAN_NO_STEP &&
			    entry->step.dep[i] >= exec->next)
				return -EPROTO;
		if (entry->step.after > exec->next)
			return -EPROTO;
		err = number_step(exec, entry);
		if (err)
			return err;
		exec->pending |= bit_of(exec->next);
		exec->next++;
		if (entry->step.kind != PLAN_NONE)
			exec->backend->enter(exec, entry);
	}
	return 0;
}

static int post(struct exec *exec, struct exec_entry *entry)
{
	int err;

	if (entry->index != entry->peer->posted)
		return -EAGAIN;
	err = exec->backend->put(exec, entry);
	if (!err || err == -EINPROGRESS)
		entry->peer->posted++;
	return err;
}

static int do_step(struct exec *exec, struct exec_entry *entry)
{
	const struct exec_backend *backend = exec->backend;

	switch ((enum plan_kind)entry->step.kind) {
	case PLAN_OPEN:
		return backend->open(exec, entry);
	case PLAN_PUT:
		return post(exec, entry);
	case PLAN_WAIT:
		return backend->wait(exec, entry);
	case PLAN_REDUCE:
		return backend->reduce(exec, entry);
	case PLAN_REDUCE_ALL:
		return backend->reduce_all(exec, entry);
	case PLAN_COPY:
		return backend->copy(exec, entry);
	case PLAN_COPY_PEER:
		return backend->copy_peer(exec, entry);
	case PLAN_NONE:
		return 0;
	}
	return -EPROTO;
}

static int try_step(struct exec *exec, struct exec_entry *entry)
{
	int err;

	if (entry->started || exec->base < entry->step.after ||
	    !is_done(exec, entry->step.dep[0]) ||
	    !is_done(exec, entry->step.dep[1]))
		return -EAGAIN;
	err = do_step(exec, entry);
	if (err == -EINPROGRESS) {
		entry->started = true;
		return -EAGAIN;
	}
	return err;
}

/* One pass over the window; *moved tells whether something was done. */
static int pass(struct exec *exec, bool *moved)
{
	uint64_t end = exec->next;

	for (uint64_t i = exec->base; i < end; i++) {
		int err;

		if (!(exec->pending & bit_of(i)))
			continue;
		err = try_step(exec, &exec->entries[i % EXEC_WINDOW]);
		if (err && err != -EAGAIN)
			return err;
		if (!err) {
			set_done(exec, i);
			*moved = true;
		}
	}
	return 0;
}

int exec_run(struct exec *exec)
{
	bool moved = true;

	while (moved) {
		int err = fill_window(exec);

		moved = false;
		if (!err)
			err = pass(exec, &moved);
		if (err)
			return err;
		if (exec->ended && exec->base == exec->next)
			return 0;
	}
	return -EAGAIN;
}

const struct exec_entry *exec_oldest(const struct exec *exec)
{
	return exec->base < exec->next
		       ? &exec->entries[exec->base % EXEC_WINDOW]
		       : NULL;
}
