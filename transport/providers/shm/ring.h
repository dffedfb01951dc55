/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A ring in shared memory, one producer and one consumer, of notifies and
 * messages. A slot is one cache line, valid when the turn in its word is the
 * position's: publishing is one release store to that line, and the consumer
 * reads no other. The consumer's head is read by the producer only when its
 * copy of it says that the ring is full. The data of a message that does not
 * fit its slot lies in the arena, whose positions both sides reckon alike.
 *
 * Positions grow for ever. Stale slots hold the turn before; a producer that
 * dies in the middle of one has not stored its word.
 */
#ifndef SHM_RING_H
#define SHM_RING_H

#include "provider.h"

#include <stdatomic.h>

#define RING_SLOTS  256u		 /* powers of two */
#define RING_ARENA  ((uint32_t)32 << 10) /* bytes */
#define RING_INLINE 24			 /* bytes of data in the slot */
#define RING_DATA   (RING_ARENA / 2)	 /* longest data: fits anywhere */

enum slot_kind { SLOT_NOTIFY = 1, SLOT_MESSAGE };

struct slot {
	/* turn << 40 | kind << 32 | notify: imm, message: length of data */
	_Alignas(64) _Atomic uint64_t word;
	struct message_header header;
	uint8_t data[RING_INLINE];
};

struct ring_shared {
	/* The consumer's line. */
	_Alignas(64) _Atomic uint64_t head;
	_Atomic uint64_t arena_head;
	_Atomic uint32_t starved; /* the producer waits for room */
	_Atomic uint32_t closed;  /* the producer's end is */
	struct slot slots[RING_SLOTS];
	_Alignas(64) uint8_t arena[RING_ARENA];
};

struct ring {
	struct ring_shared *shared;
	uint64_t mine;	      /* producer: next to fill; consumer: to read */
	uint64_t arena_mine;  /* the same of the arena */
	uint64_t other;	      /* producer: head as last seen */
	uint64_t arena_other; /* the same of the arena */
	uint64_t wanted;      /* producer: arena bytes it found no room for */
	bool starving;	      /* producer: found no room */
};

/* What the consumer finds. Header and data lie in the ring until popped. */
struct arrival {
	enum slot_kind kind;
	uint32_t imm;
	const struct message_header *header;
	const uint8_t *data;
	uint32_t len;
	uint64_t arena_next; /* where the arena's head goes */
};

static inline uint64_t ring_turn(uint64_t position)
{
	return (position / RING_SLOTS + 1) << 40;
}

static inline struct slot *ring_slot(const struct ring *ring)
{
	return &ring->shared->slots[ring->mine % RING_SLOTS];
}

/* The slow half of ring_has_slot(): looks at the consumer's head. */
bool ring_slot_freed(struct ring *ring);
/* Remembers that there was no room for this and @arena bytes. Returns false. */
bool ring_want(struct ring *ring, uint64_t arena);

/* Producer: whether a notify has room. It has until one is sent. */
static inline bool ring_has_slot(struct ring *ring)
{
	return ring->mine - ring->other < RING_SLOTS || ring_slot_freed(ring);
}
/* The same; false is remembered, see ring_starve(). */
static inline bool ring_want_slot(struct ring *ring)
{
	return ring_has_slot(ring) || ring_want(ring, 0);
}

/* Producer: publish a notify; it has room. */
static inline void ring_notify(struct ring *ring, uint32_t imm)
{
	atomic_store_explicit(&ring_slot(ring)->word,
			      ring_turn(ring->mine) |
				      (uint64_t)SLOT_NOTIFY << 32 | imm,
			      memory_order_release);
	ring->mine++;
}

/* Producer: publish a message, @len <= RING_DATA; false: no room. */
bool ring_message(struct ring *ring, const struct message_header *header,
		  const void *data, size_t len);

/*
 * Producer that found no room and goes to sleep: mark it, for the consumer to
 * see after it has freed; then fence_heavy() and look again.
 */
void ring_starve(struct ring *ring);
/* Producer: what it found no room for has room now. Says so once. */
bool ring_has_room_again(struct ring *ring);

/* Consumer: whether there is something to read, and its @word. */
static inline bool ring_peek(const struct ring *ring, uint64_t *word)
{
	*word = atomic_load_explicit(&ring_slot(ring)->word,
				     memory_order_acquire);
	return ((*word ^ ring_turn(ring->mine)) >> 40 & 0xffffff) == 0;
}

static inline bool ring_is_empty(const struct ring *ring)
{
	uint64_t word;

	return !ring_peek(ring, &word);
}

/* Consumer: whether what was peeked at is a notify, of imm (uint32_t)@word. */
static inline bool word_is_notify(uint64_t word)
{
	return (word >> 32 & 0xff) == SLOT_NOTIFY;
}

/* Consumer: free the slot; of a notify that is all. */
static inline void ring_pop_slot(struct ring *ring)
{
	ring->mine++;
	atomic_store_explicit(&ring->shared->head, ring->mine,
			      memory_order_release);
}

/* Consumer, not empty: read the slot. False: the ring is corrupt. */
bool ring_read(const struct ring *ring, struct arrival *arrival);
/* Consumer: free what was read. */
void ring_pop(struct ring *ring, const struct arrival *arrival);

#endif
