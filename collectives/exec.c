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

/* Give a step its numbers at its peer. */
static int number_step(struct exec *exec, struct exec_entry *entry)
{
	const struct plan_step *step = &entry->step;
	struct exec_peer *peer;

	entry->started = false;
	entry->peer = NULL;
	if (step->kind == PLAN_NONE ||
	    (step->kind == PLAN_COPY && step->src != PLAN_LANDING))
		return 0;
	peer = exec->backend->peer(exec, step->peer);
	if (!peer)
		return -ENOMEM;
	entry->peer = peer;
	if (step->kind == PLAN_OPEN)
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
	} else {
		if (peer->claim_first == peer->claim_end)
			return -EPROTO;
		entry->landing =
			peer->claims[peer->claim_first++ % EXEC_WINDOW];
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
		err = number_step(exec, entry);
		if (err)
			return err;
		exec->pending |= bit_of(exec->next);
		exec->next++;
		if (entry->step.kind == PLAN_NONE)
			set_done(exec, exec->next - 1);
		else
			exec->backend->enter(exec, entry);
	}
	return 0;
}

static int try_step(struct exec *exec, struct exec_entry *entry)
{
	const struct exec_backend *backend = exec->backend;
	int err = -EPROTO;

	if (entry->started || !is_done(exec, entry->step.dep[0]) ||
	    !is_done(exec, entry->step.dep[1]))
		return -EAGAIN;
	switch ((enum plan_kind)entry->step.kind) {
	case PLAN_OPEN:
		err = backend->open(exec, entry);
		break;
	case PLAN_PUT:
		if (entry->index != entry->peer->posted)
			return -EAGAIN;
		err = backend->put(exec, entry);
		if (!err)
			entry->peer->posted++;
		break;
	case PLAN_WAIT:
		err = backend->wait(exec, entry);
		break;
	case PLAN_REDUCE:
		err = backend->reduce(exec, entry);
		break;
	case PLAN_COPY:
		err = backend->copy(exec, entry);
		break;
	case PLAN_NONE:
	case PLAN_REDUCE_PEER:
		break;
	}
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
