/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring: the parts off the shortest path, and the arena's bookkeeping. */
#include "ring.h"

#include <string.h>

_Static_assert(sizeof(struct slot) == 64, "a slot is one cache line");

/*
 * Where @len bytes begin, the arena's next byte being @position: data does not
 * wrap, it leaves out the end of the arena instead. *next: behind them.
 */
static uint32_t arena_place(uint64_t position, uint32_t len, uint64_t *next)
{
	uint32_t size = (len + 63u) & ~63u;
	uint32_t left = RING_ARENA - (uint32_t)(position % RING_ARENA);

	if (left < size)
		position += left;
	*next = position + size;
	return (uint32_t)(position % RING_ARENA);
}

bool ring_slot_freed(struct ring *ring)
{
	ring->other =
		atomic_load_explicit(&ring->shared->head, memory_order_acquire);
	return ring->mine - ring->other < RING_SLOTS;
}

bool ring_want(struct ring *ring, uint64_t arena)
{
	ring->starving = true;
	ring->wanted = arena;
	return false;
}

static bool has_arena(struct ring *ring, uint64_t next)
{
	if (next - ring->arena_other <= RING_ARENA)
		return true;
	ring->arena_other = atomic_load_explicit(&ring->shared->arena_head,
						 memory_order_acquire);
	return next - ring->arena_other <= RING_ARENA;
}

bool ring_message(struct ring *ring, const struct message_header *header,
		  const void *data, size_t len)
{
	struct slot *slot;
	uint8_t *place;

	if (!ring_has_slot(ring))
		return ring_want(ring, 0);
	slot = ring_slot(ring);
	place = slot->data;
	if (len > RING_INLINE) {
		uint64_t next;
		uint32_t at =
			arena_place(ring->arena_mine, (uint32_t)len, &next);

		if (!has_arena(ring, next))
			return ring_want(ring, next - ring->arena_mine);
		ring->arena_mine = next;
		place = ring->shared->arena + at;
	}
	slot->header = *header;
	if (len)
		memcpy(place, data, len);
	atomic_store_explicit(&slot->word,
			      ring_turn(ring->mine) |
				      (uint64_t)SLOT_MESSAGE << 32 | len,
			      memory_order_release);
	ring->mine++;
	return true;
}

void ring_starve(struct ring *ring)
{
	if (ring->starving)
		atomic_store_explicit(&ring->shared->starved, 1,
				      memory_order_relaxed);
}

bool ring_has_room_again(struct ring *ring)
{
	if (!ring->starving || !ring_has_slot(ring) ||
	    !has_arena(ring, ring->arena_mine + ring->wanted))
		return false;
	ring->starving = false;
	return true;
}

bool ring_read(const struct ring *ring, struct arrival *arrival)
{
	struct slot *slot = ring_slot(ring);
	uint64_t word = atomic_load_explicit(&slot->word, memory_order_relaxed);

	*arrival = (struct arrival){.kind = word >> 32 & 0xff,
				    .imm = (uint32_t)word,
				    .arena_next = ring->arena_mine};
	if (arrival->kind == SLOT_NOTIFY)
		return true;
	if (arrival->kind != SLOT_MESSAGE || arrival->imm > RING_DATA)
		return false;
	arrival->len = arrival->imm;
	arrival->header = &slot->header;
	arrival->data = slot->data;
	if (arrival->len > RING_INLINE)
		arrival->data = ring->shared->arena +
				arena_place(ring->arena_mine, arrival->len,
					    &arrival->arena_next);
	return true;
}

void ring_pop(struct ring *ring, const struct arrival *arrival)
{
	if (arrival->arena_next != ring->arena_mine) {
		ring->arena_mine = arrival->arena_next;
		atomic_store_explicit(&ring->shared->arena_head,
				      ring->arena_mine, memory_order_release);
	}
	ring_pop_slot(ring);
}
