/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A byte ring in shared memory, one producer and one consumer, of records.
 * The producer publishes by a release store of tail, the consumer frees by
 * one of head; each caches the other's. A record never wraps: a filler
 * record takes the room that is left at the end. Sizes are multiples of 16.
 */
#ifndef SHM_RING_H
#define SHM_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_BYTES ((uint64_t)64 << 10) /* a power of two */

enum record_kind { RECORD_FILLER = 1, RECORD_NOTIFY, RECORD_MESSAGE };

/*
 * Orders a store before a later load, both ways (Dekker): what sleeping and
 * waking rest on. The thread sanitizer knows no fences, but this.
 */
static inline void ring_full_fence(void)
{
#ifdef __SANITIZE_THREAD__
	static _Atomic int order;

	atomic_fetch_add(&order, 1);
#else
	atomic_thread_fence(memory_order_seq_cst);
#endif
}

struct record {
	uint32_t size; /* all of it */
	uint32_t kind;
	uint32_t imm;
	uint32_t len; /* of data */
	uint8_t data[];
};

struct ring_shared {
	_Alignas(64) _Atomic uint64_t tail;
	_Alignas(64) _Atomic uint64_t head;
	_Atomic uint32_t starved; /* the producer waits for room */
	_Alignas(64) uint8_t bytes[RING_BYTES];
};

struct ring {
	struct ring_shared *shared;
	uint64_t mine;	 /* producer: tail, consumer: head */
	uint64_t other;	 /* the other's, as last seen */
	uint64_t wanted; /* producer: bytes it found no room for, or 0 */
};

/*
 * Producer: room for a record with @len bytes of data, or NULL. Fill it and
 * publish. A record that is not published is forgotten.
 */
struct record *ring_reserve(struct ring *ring, enum record_kind kind,
			    size_t len);
void ring_publish(struct ring *ring, const struct record *record);

/* Producer: ask to be woken when there is room; false: there is. */
bool ring_arm(struct ring *ring);
/* Producer: what it found no room for has room now. Says so once. */
bool ring_has_room_again(struct ring *ring);

/* Consumer: the next record, or NULL; *bad when the ring is corrupt. */
const struct record *ring_peek(struct ring *ring, bool *bad);
void ring_pop(struct ring *ring, const struct record *record);

/* Consumer: nothing published beyond what was popped. */
static inline bool ring_is_empty(const struct ring *ring)
{
	return atomic_load_explicit(&ring->shared->tail,
				    memory_order_acquire) == ring->mine;
}

#endif
