/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring. Positions grow for ever; the offset is position % RING_BYTES. */
#include "ring.h"

static struct record *at(struct ring *ring, uint64_t pos)
{
	return (struct record *)&ring->shared->bytes[pos & (RING_BYTES - 1)];
}

static bool has_room(struct ring *ring, uint64_t size)
{
	if (ring->mine + size - ring->other <= RING_BYTES)
		return true;
	ring->other =
		atomic_load_explicit(&ring->shared->head, memory_order_acquire);
	return ring->mine + size - ring->other <= RING_BYTES;
}

bool ring_arm(struct ring *ring)
{
	if (!ring->wanted)
		return true;
	/* Told before looking; the consumer frees before it looks. */
	atomic_store_explicit(&ring->shared->starved, 1, memory_order_relaxed);
	ring_full_fence();
	return !has_room(ring, ring->wanted);
}

static bool starve(struct ring *ring, uint64_t size)
{
	ring->wanted = size;
	if (ring_arm(ring))
		return true;
	ring->wanted = 0;
	return false;
}

bool ring_has_room_again(struct ring *ring)
{
	if (!ring->wanted || !has_room(ring, ring->wanted))
		return false;
	ring->wanted = 0;
	return true;
}

struct record *ring_reserve(struct ring *ring, enum record_kind kind,
			    size_t len)
{
	uint64_t size = (sizeof(struct record) + len + 15) & ~(uint64_t)15;
	uint64_t left = RING_BYTES - (ring->mine & (RING_BYTES - 1));
	struct record *record;

	if (left < size) {
		if (!has_room(ring, left + size) && starve(ring, left + size))
			return NULL;
		record = at(ring, ring->mine);
		record->size = (uint32_t)left;
		record->kind = RECORD_FILLER;
		ring->mine += left; /* published with what follows */
	} else if (!has_room(ring, size) && starve(ring, size)) {
		return NULL;
	}
	record = at(ring, ring->mine);
	record->size = (uint32_t)size;
	record->kind = kind;
	record->len = (uint32_t)len;
	return record;
}

void ring_publish(struct ring *ring, const struct record *record)
{
	ring->mine += record->size;
	atomic_store_explicit(&ring->shared->tail, ring->mine,
			      memory_order_release);
}

const struct record *ring_peek(struct ring *ring, bool *bad)
{
	const struct record *record;
	uint64_t left, room;

	*bad = false;
	for (;;) {
		if (ring->other == ring->mine) {
			ring->other = atomic_load_explicit(
				&ring->shared->tail, memory_order_acquire);
			if (ring->other == ring->mine)
				return NULL;
		}
		record = at(ring, ring->mine);
		left = ring->other - ring->mine;
		room = RING_BYTES - (ring->mine & (RING_BYTES - 1));
		if (record->size < sizeof(*record) || record->size % 16 ||
		    record->size > left || record->size > room ||
		    (record->kind == RECORD_MESSAGE &&
		     record->len > record->size - sizeof(*record))) {
			*bad = true;
			return NULL;
		}
		if (record->kind != RECORD_FILLER)
			return record;
		ring->mine += record->size;
	}
}

void ring_pop(struct ring *ring, const struct record *record)
{
	ring->mine += record->size;
	atomic_store_explicit(&ring->shared->head, ring->mine,
			      memory_order_release);
}
