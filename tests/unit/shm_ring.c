/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The shared memory provider's ring, by itself: order, wrapping, being full,
 * what a producer that died leaves behind, what a broken one may write; and
 * its copies, at any length, alignment and overlap.
 */
#include "providers/shm/copy.h"
#include "providers/shm/ring.h"

#include "cunit_run.h"

#include <CUnit/CUnit.h>

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

struct pair {
	struct ring_shared *shared;
	struct ring tx, rx;
};

static void open_pair(struct pair *p)
{
	*p = (struct pair){.shared = aligned_alloc(64, sizeof(*p->shared))};
	CU_ASSERT_PTR_NOT_NULL_FATAL(p->shared);
	memset(p->shared, 0, sizeof(*p->shared));
	p->tx.shared = p->rx.shared = p->shared;
}

static void close_pair(struct pair *p)
{
	free(p->shared);
}

static bool send_notify(struct pair *p, uint32_t imm)
{
	if (!ring_want_slot(&p->tx))
		return false;
	ring_notify(&p->tx, imm);
	return true;
}

/* A message of @len bytes that @seed tells. */
static bool send_message(struct pair *p, uint32_t seed, size_t len)
{
	struct message_header header = {.kind = 7, .u32 = seed};
	uint8_t data[RING_DATA];

	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(seed * 31 + i * 7);
	header.u64[2] = ~(uint64_t)seed;
	return ring_message(&p->tx, &header, data, len);
}

static bool is_message(const struct arrival *a, uint32_t seed, size_t len)
{
	if (a->kind != SLOT_MESSAGE || a->len != len || a->header->kind != 7 ||
	    a->header->u32 != seed || a->header->u64[2] != ~(uint64_t)seed)
		return false;
	for (size_t i = 0; i < len; i++)
		if (a->data[i] != (uint8_t)(seed * 31 + i * 7))
			return false;
	return true;
}

static bool receive(struct pair *p, struct arrival *a)
{
	return !ring_is_empty(&p->rx) && ring_read(&p->rx, a);
}

static void receive_notify(struct pair *p, uint32_t imm)
{
	struct arrival a;

	CU_ASSERT_FATAL(receive(p, &a));
	CU_ASSERT_EQUAL(a.kind, SLOT_NOTIFY);
	CU_ASSERT_EQUAL(a.imm, imm);
	ring_pop(&p->rx, &a);
}

static void receive_message(struct pair *p, uint32_t seed, size_t len)
{
	struct arrival a;

	CU_ASSERT_FATAL(receive(p, &a));
	CU_ASSERT(is_message(&a, seed, len));
	ring_pop(&p->rx, &a);
}

/* ---- the ring ---- */

static void empty_at_first(void)
{
	struct pair p;

	open_pair(&p);
	CU_ASSERT(ring_is_empty(&p.rx));
	CU_ASSERT(ring_has_slot(&p.tx));
	CU_ASSERT_FALSE(ring_has_room_again(&p.tx)); /* it never lacked any */
	close_pair(&p);
}

static void wraps_in_order(void)
{
	static const size_t lens[] = {0,    1,	  RING_INLINE, RING_INLINE + 1,
				      8192, 4095, RING_DATA,   64};
	struct pair p;

	open_pair(&p);
	for (uint32_t i = 0; i < 20 * RING_SLOTS; i++) {
		size_t len = lens[i % 8];

		CU_ASSERT_FATAL(send_notify(&p, ~i));
		CU_ASSERT_FATAL(send_message(&p, i, len));
		receive_notify(&p, ~i);
		receive_message(&p, i, len);
		CU_ASSERT(ring_is_empty(&p.rx));
	}
	close_pair(&p);
}

/* The turn has 24 bits: nothing is special about its going round. */
static void turn_goes_round(void)
{
	struct pair p;

	open_pair(&p);
	p.tx.mine = p.tx.other = p.rx.mine =
		((uint64_t)RING_SLOTS << 24) - 2 * RING_SLOTS;
	atomic_store(&p.shared->head, p.rx.mine);
	for (uint32_t i = 0; i < 4 * RING_SLOTS; i++) {
		CU_ASSERT_FATAL(ring_is_empty(&p.rx));
		CU_ASSERT_FATAL(send_notify(&p, i));
		receive_notify(&p, i);
	}
	close_pair(&p);
}

static void full_of_notifies(void)
{
	struct pair p;

	open_pair(&p);
	for (uint32_t i = 0; i < RING_SLOTS; i++)
		CU_ASSERT_FATAL(send_notify(&p, i));
	CU_ASSERT_FALSE(send_notify(&p, 0));
	CU_ASSERT_FALSE(send_message(&p, 0, 0));
	CU_ASSERT_FALSE(ring_has_room_again(&p.tx));
	ring_starve(&p.tx);
	CU_ASSERT_EQUAL(atomic_load(&p.shared->starved), 1);
	receive_notify(&p, 0);
	CU_ASSERT(ring_has_room_again(&p.tx));
	CU_ASSERT_FALSE(ring_has_room_again(&p.tx)); /* said once */
	CU_ASSERT(send_notify(&p, RING_SLOTS));
	for (uint32_t i = 1; i <= RING_SLOTS; i++)
		receive_notify(&p, i);
	CU_ASSERT(ring_is_empty(&p.rx));
	close_pair(&p);
}

/* The arena may be full while there are slots; notifies go on then. */
static void full_of_data(void)
{
	const size_t len = 8192;
	uint32_t sent = 0;
	struct pair p;

	open_pair(&p);
	CU_ASSERT_FATAL(send_message(&p, 1000, 100)); /* not from its start */
	receive_message(&p, 1000, 100);
	while (sent < RING_SLOTS && send_message(&p, sent, len))
		sent++;
	CU_ASSERT(sent >= 2 && sent <= RING_ARENA / len);
	CU_ASSERT_FALSE(ring_has_room_again(&p.tx));
	CU_ASSERT_FALSE(send_message(&p, 0, RING_INLINE + 1 + len));
	CU_ASSERT(send_notify(&p, 5));
	for (uint32_t i = 0; i < sent; i++)
		receive_message(&p, i, len);
	CU_ASSERT(ring_has_room_again(&p.tx));
	receive_notify(&p, 5);
	CU_ASSERT(send_message(&p, 9, RING_DATA));
	receive_message(&p, 9, RING_DATA);
	close_pair(&p);
}

/* Killed in the middle of a slot or its data: nothing is seen of it. */
static void torn_writes_are_not_seen(void)
{
	struct pair p;

	open_pair(&p);
	for (uint32_t i = 0; i < RING_SLOTS + 3; i++) {
		CU_ASSERT_FATAL(send_message(&p, i, 100));
		receive_message(&p, i, 100);
	}
	memset(p.shared->arena, 0xff, sizeof(p.shared->arena));
	for (uint32_t i = 3; i < 3 + RING_SLOTS; i++) {
		struct slot *slot = &p.shared->slots[i % RING_SLOTS];

		memset(&slot->header, 0xff, sizeof(slot->header));
		memset(slot->data, 0xff, sizeof(slot->data));
	}
	CU_ASSERT(ring_is_empty(&p.rx));
	CU_ASSERT(send_notify(&p, 1)); /* another would go on from here */
	receive_notify(&p, 1);
	CU_ASSERT(ring_is_empty(&p.rx));
	close_pair(&p);
}

static void corruption_is_noticed(void)
{
	static const uint64_t words[] = {
		0,		   /* no kind */
		(uint64_t)3 << 32, /* none that there is */
		(uint64_t)SLOT_MESSAGE << 32 | (RING_DATA + 1),
		(uint64_t)SLOT_MESSAGE << 32 | 0xffffffffu,
	};
	struct arrival a;
	struct pair p;

	open_pair(&p);
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		atomic_store(&p.shared->slots[0].word, ring_turn(0) | words[i]);
		CU_ASSERT_FATAL(!ring_is_empty(&p.rx));
		CU_ASSERT_FALSE(ring_read(&p.rx, &a));
	}
	close_pair(&p);
}

#define STREAM 50000u

static size_t stream_len(uint32_t i)
{
	return i % 3 ? 0 : i * 13 % 3000;
}

static void *produce(void *arg)
{
	struct pair *p = arg;

	for (uint32_t i = 0; i < STREAM; i++)
		while (i % 3 ? !send_notify(p, i)
			     : !send_message(p, i, stream_len(i)))
			sched_yield();
	return NULL;
}

static void two_threads(void)
{
	pthread_t thread;
	struct pair p;

	open_pair(&p);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, produce, &p), 0);
	for (uint32_t i = 0; i < STREAM; i++) {
		while (ring_is_empty(&p.rx))
			sched_yield();
		if (i % 3)
			receive_notify(&p, i);
		else
			receive_message(&p, i, stream_len(i));
	}
	pthread_join(thread, NULL);
	CU_ASSERT(ring_is_empty(&p.rx));
	close_pair(&p);
}

/* ---- the copies ---- */

#define GUARD 256

static void copy(int way, void *dst, const void *src, size_t len)
{
	if (way < 0)
		copy_bytes(dst, src, len);
	else
		copy_by((enum copy_way)way, dst, src, len);
}

/* Copies @len bytes between the offsets, and looks at what is around. */
static bool copies(int way, uint8_t *dst, uint8_t *src, size_t len, size_t to,
		   size_t from)
{
	size_t begin = GUARD + to;

	for (size_t i = 0; i < len; i++)
		src[from + i] = (uint8_t)(i * 131 + (i >> 8));
	memset(dst, 0xee, begin + len + GUARD);
	copy(way, dst + begin, src + from, len);
	for (size_t i = 0; i < begin; i++)
		if (dst[i] != 0xee || dst[begin + len + i % GUARD] != 0xee)
			return false;
	return !memcmp(dst + begin, src + from, len);
}

static void copies_any_length(int way)
{
	static const size_t lens[] = {0,
				      1,
				      7,
				      8,
				      9,
				      64,
				      4097,
				      COPY_BULK - 1,
				      COPY_BULK,
				      COPY_BULK + 191,
				      (size_t)1 << 20,
				      ((size_t)1 << 20) + 129};
	static const size_t offsets[] = {0, 1, 8, 63, 65};
	const size_t room = (2u << 20) + 4096;
	uint8_t *dst = aligned_alloc(4096, room);
	uint8_t *src = aligned_alloc(4096, room);

	CU_ASSERT_FATAL(dst && src);
	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++)
		for (size_t t = 0; t < 5; t++)
			CU_ASSERT(copies(way, dst, src, lens[i], offsets[t],
					 offsets[(t * 2 + i) % 5]));
	free(dst);
	free(src);
}

static void fill(uint8_t *buf, size_t from, size_t len)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)((from + i) * 7 + ((from + i) >> 8));
}

/* A put to oneself may overlap. */
static void copies_overlap(int way)
{
	const size_t len = 2 * COPY_BULK, shift = 1000;
	uint8_t *buf = malloc(len + shift), *expected = malloc(len);

	CU_ASSERT_FATAL(buf && expected);
	fill(buf, 0, len + shift);
	fill(expected, 0, len);
	copy(way, buf + shift, buf, len);
	CU_ASSERT_EQUAL(memcmp(buf + shift, expected, len), 0);
	fill(buf, 0, len + shift);
	fill(expected, shift, len);
	copy(way, buf, buf + shift, len);
	CU_ASSERT_EQUAL(memcmp(buf, expected, len), 0);
	free(buf);
	free(expected);
}

static void as_chosen(void)
{
	copies_any_length(-1);
	copies_overlap(-1);
}

static void by_each_way(void)
{
	for (int way = COPY_LIBC; way <= COPY_STREAM; way++) {
		if (!copy_has((enum copy_way)way))
			continue;
		copies_any_length(way);
		copies_overlap(way);
	}
}

int main(void)
{
	CU_TestInfo ring[] = {
		{"empty at first", empty_at_first},
		{"wraps in order", wraps_in_order},
		{"the turn goes round", turn_goes_round},
		{"full of notifies", full_of_notifies},
		{"full of data", full_of_data},
		{"torn writes are not seen", torn_writes_are_not_seen},
		{"corruption is noticed", corruption_is_noticed},
		{"two threads", two_threads},
		CU_TEST_INFO_NULL};
	CU_TestInfo copy[] = {{"as chosen", as_chosen},
			      {"by each way", by_each_way},
			      CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"ring", NULL, NULL, NULL, NULL, ring},
				 {"copy", NULL, NULL, NULL, NULL, copy},
				 CU_SUITE_INFO_NULL};

	return run_suites(suites);
}
