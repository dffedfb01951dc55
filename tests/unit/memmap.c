/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The map from address to registration: against a plain search, at the edges,
 * and with readers on other threads while it changes. Addresses need not be
 * mapped: the map never looks at the memory.
 */
#include "memory.h"

#include "cunit_run.h"

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)
#define TIB ((size_t)1 << 40)

static _Atomic long freed;

static void free_mem(struct vbn_mem *mem)
{
	freed++;
	memset(mem, 0xee, sizeof(*mem));
	free(mem);
}

static struct vbn_mem *add(struct memmap *map, uintptr_t addr, size_t len)
{
	struct vbn_mem *mem = calloc(1, sizeof(*mem));

	mem->addr = (void *)addr;
	mem->len = len;
	CU_ASSERT_EQUAL_FATAL(memmap_insert(map, mem), 0);
	return mem;
}

static const struct vbn_mem *find(struct memmap_reader *reader, uintptr_t addr,
				  size_t len)
{
	return memmap_find(reader, (const void *)addr, len);
}

struct fixture {
	struct memmap *map;
	struct memmap_reader *reader;
};

static struct fixture setup(void)
{
	struct fixture f;

	freed = 0;
	CU_ASSERT_EQUAL_FATAL(memmap_create(&f.map), 0);
	CU_ASSERT_EQUAL_FATAL(memmap_reader_open(f.map, &f.reader), 0);
	return f;
}

static void teardown(struct fixture *f)
{
	memmap_reader_close(f->reader);
	memmap_destroy(f->map);
}

static void test_edges(void)
{
	struct fixture f = setup();
	uintptr_t base = 0x7f0000000000;
	struct vbn_mem *mem = add(f.map, base + 100, 50), copy;

	CU_ASSERT_PTR_EQUAL(find(f.reader, base + 100, 50), mem);
	CU_ASSERT_PTR_EQUAL(find(f.reader, base + 149, 1), mem);
	CU_ASSERT_PTR_EQUAL(find(f.reader, base + 120, 0), mem);
	CU_ASSERT_PTR_NULL(find(f.reader, base + 99, 1));
	CU_ASSERT_PTR_NULL(find(f.reader, base + 99, 50));
	CU_ASSERT_PTR_NULL(find(f.reader, base + 150, 1));
	CU_ASSERT_PTR_NULL(find(f.reader, base + 150, 0));
	CU_ASSERT_PTR_NULL(find(f.reader, base + 149, 2));
	CU_ASSERT_PTR_NULL(find(f.reader, base + 120, SIZE_MAX));
	CU_ASSERT_PTR_NULL(find(f.reader, base + 120, SIZE_MAX - 119));
	CU_ASSERT_PTR_NULL(find(f.reader, 0, 1));
	CU_ASSERT_PTR_NULL(find(f.reader, UINTPTR_MAX, 1));
	CU_ASSERT(memmap_find_locked(f.map, (void *)(base + 100), 50, &copy));
	CU_ASSERT(memcmp(&copy, mem, sizeof(copy)) == 0);
	CU_ASSERT(!memmap_find_locked(f.map, (void *)base, 50, &copy));
	memmap_remove(f.map, mem, free_mem);
	CU_ASSERT_PTR_NULL(find(f.reader, base + 100, 50));
	teardown(&f);
	CU_ASSERT_EQUAL(freed, 1);
}

static void test_refused(void)
{
	struct fixture f = setup();
	struct vbn_mem mem = {.addr = (void *)((uintptr_t)1 << 48), .len = 1};

	CU_ASSERT(memmap_insert(f.map, &mem) < 0);
	mem.addr = (void *)(((uintptr_t)1 << 48) - 1);
	mem.len = 2;
	CU_ASSERT(memmap_insert(f.map, &mem) < 0);
	mem.len = 0;
	CU_ASSERT(memmap_insert(f.map, &mem) < 0);
	mem.len = 1;
	CU_ASSERT_EQUAL(memmap_insert(f.map, &mem), 0);
	CU_ASSERT_PTR_EQUAL(find(f.reader, ((uintptr_t)1 << 48) - 1, 1), &mem);
	memmap_remove(f.map, &mem, NULL);
	teardown(&f);
}

/* One byte each, all in one chunk, with gaps and without. */
static void test_crowd(void)
{
	enum { N = 1000 };
	struct fixture f = setup();
	uintptr_t base = 0x123400000;
	struct vbn_mem *mems[N];

	for (int i = 0; i < N; i++)
		mems[i] = add(f.map, base + (unsigned)i, 1);
	for (int i = 0; i < N; i++)
		CU_ASSERT_PTR_EQUAL(find(f.reader, base + (unsigned)i, 1),
				    mems[i]);
	CU_ASSERT_PTR_NULL(find(f.reader, base, 2));
	CU_ASSERT_PTR_NULL(find(f.reader, base + N, 1));
	for (int i = 0; i < N; i += 2)
		memmap_remove(f.map, mems[i], free_mem);
	for (int i = 0; i < N; i++)
		CU_ASSERT_PTR_EQUAL(find(f.reader, base + (unsigned)i, 1),
				    i % 2 ? mems[i] : NULL);
	for (int i = 1; i < N; i += 2)
		memmap_remove(f.map, mems[i], free_mem);
	CU_ASSERT_PTR_NULL(find(f.reader, base + 1, 1));
	teardown(&f);
	CU_ASSERT_EQUAL(freed, N);
}

static void test_newest_wins(void)
{
	struct fixture f = setup();
	uintptr_t base = 0x55500000;
	struct vbn_mem *a = add(f.map, base, 4 * MIB);
	struct vbn_mem *b = add(f.map, base + MIB, 2 * MIB);
	struct vbn_mem *c = add(f.map, base, 4 * MIB);

	CU_ASSERT_PTR_EQUAL(find(f.reader, base + MIB, 10), c);
	memmap_remove(f.map, c, free_mem);
	CU_ASSERT_PTR_EQUAL(find(f.reader, base + MIB, 10), b);
	CU_ASSERT_PTR_EQUAL(find(f.reader, base + MIB, 2 * MIB), b);
	CU_ASSERT_PTR_EQUAL(find(f.reader, base + MIB, 2 * MIB + 1), a);
	CU_ASSERT_PTR_EQUAL(find(f.reader, base, 10), a);
	memmap_remove(f.map, b, free_mem);
	CU_ASSERT_PTR_EQUAL(find(f.reader, base + MIB, 10), a);
	memmap_remove(f.map, a, free_mem);
	CU_ASSERT_PTR_NULL(find(f.reader, base + MIB, 10));
	teardown(&f);
	CU_ASSERT_EQUAL(freed, 3);
}

static void test_huge(void)
{
	struct fixture f = setup();
	uintptr_t base = 0x100000000000 + 4096;
	struct vbn_mem *huge = add(f.map, base, TIB);
	struct vbn_mem *next = add(f.map, base + TIB, 1);

	CU_ASSERT_PTR_EQUAL(find(f.reader, base, TIB), huge);
	CU_ASSERT_PTR_NULL(find(f.reader, base, TIB + 1));
	CU_ASSERT_PTR_EQUAL(find(f.reader, base + TIB / 3, TIB / 2), huge);
	CU_ASSERT_PTR_EQUAL(find(f.reader, base + TIB - 1, 1), huge);
	CU_ASSERT_PTR_EQUAL(find(f.reader, base + TIB, 1), next);
	memmap_remove(f.map, huge, free_mem);
	CU_ASSERT_PTR_NULL(find(f.reader, base + TIB / 3, 1));
	CU_ASSERT_PTR_EQUAL(find(f.reader, base + TIB, 1), next);
	memmap_remove(f.map, next, free_mem);
	teardown(&f);
}

/* ---- against a plain search ---- */

#define SHADOW 512

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static const struct vbn_mem *plain_find(struct vbn_mem **mems,
					const uint64_t *ages, uintptr_t addr,
					size_t len)
{
	const struct vbn_mem *best = NULL;
	uint64_t age = 0;

	for (int i = 0; i < SHADOW; i++) {
		uintptr_t base;

		if (!mems[i])
			continue;
		base = (uintptr_t)mems[i]->addr;
		if (addr < base || addr + len > base + mems[i]->len ||
		    ages[i] < age)
			continue;
		age = ages[i];
		best = mems[i];
	}
	return best;
}

static void test_random(void)
{
	static struct vbn_mem *mems[SHADOW];
	static uint64_t ages[SHADOW];
	struct fixture f = setup();
	uintptr_t base = 0x700000000000 - 16 * MIB;
	uint64_t seed = 12345, age = 0;
	long added = 0;
	bool good = true;

	for (int round = 0; round < 100000 && good; round++) {
		size_t i = next_random(&seed) % SHADOW;
		size_t top = (size_t)1 << (next_random(&seed) % 24);
		uintptr_t addr = base + next_random(&seed) % (32 * MIB);
		size_t len = next_random(&seed) % top + 1;

		if (round % 3) {
			good = find(f.reader, addr, len) ==
			       plain_find(mems, ages, addr, len);
			memmap_quiescent(f.reader);
		} else if (mems[i]) {
			memmap_remove(f.map, mems[i], free_mem);
			mems[i] = NULL;
		} else {
			mems[i] = add(f.map, addr, len);
			ages[i] = ++age;
			added++;
		}
	}
	CU_ASSERT(good);
	for (int i = 0; i < SHADOW; i++)
		if (mems[i])
			memmap_remove(f.map, mems[i], free_mem);
	memset(mems, 0, sizeof(mems));
	teardown(&f);
	CU_ASSERT_EQUAL(freed, added);
}

/* ---- reclamation and threads ---- */

static void test_reclamation(void)
{
	struct fixture f = setup();
	struct vbn_mem *a = add(f.map, 0x1000, 10), *b = add(f.map, 0x2000, 10);
	struct memmap_reader *second;

	CU_ASSERT_EQUAL_FATAL(memmap_reader_open(f.map, &second), 0);
	memmap_remove(f.map, a, free_mem);
	CU_ASSERT_EQUAL(freed, 0);
	memmap_quiescent(f.reader);
	memmap_remove(f.map, b, free_mem);
	CU_ASSERT_EQUAL(freed, 0); /* second has not spoken */
	memmap_quiescent(second);
	memmap_remove(f.map, add(f.map, 0x3000, 1), free_mem);
	CU_ASSERT_EQUAL(freed, 1); /* f.reader has not, since b */
	memmap_reader_close(second);
	CU_ASSERT_EQUAL(freed, 1);
	teardown(&f);
	CU_ASSERT_EQUAL(freed, 3);

	CU_ASSERT_EQUAL_FATAL(memmap_create(&f.map), 0);
	memmap_remove(f.map, add(f.map, 0x3000, 1), free_mem);
	CU_ASSERT_EQUAL(freed, 4); /* no reader: at once */
	memmap_destroy(f.map);
}

struct shared {
	struct memmap *map;
	pthread_barrier_t start;
	_Atomic bool stop;
	_Atomic long wrong, hits;
};

/* Registrations say where they are; a stale one would not. */
static void *read_thread(void *arg)
{
	struct shared *shared = arg;
	struct memmap_reader *reader;
	uint64_t seed = (uint64_t)(uintptr_t)&reader | 1;
	long hits = 0;

	if (memmap_reader_open(shared->map, &reader))
		return NULL;
	pthread_barrier_wait(&shared->start);
	while (!shared->stop) {
		uintptr_t addr = 0x40000000 + next_random(&seed) % (8 * MIB);
		const struct vbn_mem *mem = find(reader, addr, 16);

		if (mem && (addr < (uintptr_t)mem->addr ||
			    addr + 16 > (uintptr_t)mem->addr + mem->len))
			shared->wrong++;
		hits += mem != NULL;
		if (next_random(&seed) % 16 == 0)
			memmap_quiescent(reader);
	}
	shared->hits += hits;
	memmap_reader_close(reader);
	return NULL;
}

static void *write_thread(void *arg)
{
	struct shared *shared = arg;
	struct vbn_mem *mems[32] = {NULL}, copy;
	uint64_t seed = (uint64_t)(uintptr_t)&seed | 1;

	pthread_barrier_wait(&shared->start);
	for (int i = 0; i < 20000; i++) {
		uint64_t k = next_random(&seed) % 32;

		if (i % 64 == 0)
			sched_yield();
		if (mems[k]) {
			if (!memmap_find_locked(shared->map, mems[k]->addr,
						mems[k]->len, &copy))
				shared->wrong++;
			memmap_remove(shared->map, mems[k], free_mem);
			mems[k] = NULL;
			continue;
		}
		mems[k] = calloc(1, sizeof(*mems[k]));
		mems[k]->addr =
			(void *)(0x40000000 + next_random(&seed) % (8 * MIB));
		mems[k]->len = next_random(&seed) % (3 * MIB) + 1;
		if (memmap_insert(shared->map, mems[k]))
			shared->wrong++;
	}
	for (int k = 0; k < 32; k++)
		if (mems[k])
			memmap_remove(shared->map, mems[k], free_mem);
	return NULL;
}

static void test_threads(void)
{
	struct shared shared = {.map = NULL};
	pthread_t readers[3], writers[2];

	CU_ASSERT_EQUAL_FATAL(memmap_create(&shared.map), 0);
	pthread_barrier_init(&shared.start, NULL, 5);
	for (int i = 0; i < 3; i++)
		pthread_create(&readers[i], NULL, read_thread, &shared);
	for (int i = 0; i < 2; i++)
		pthread_create(&writers[i], NULL, write_thread, &shared);
	for (int i = 0; i < 2; i++)
		pthread_join(writers[i], NULL);
	shared.stop = true;
	for (int i = 0; i < 3; i++)
		pthread_join(readers[i], NULL);
	pthread_barrier_destroy(&shared.start);
	memmap_destroy(shared.map);
	CU_ASSERT_EQUAL(shared.wrong, 0);
	CU_ASSERT(shared.hits > 0);
}

static CU_TestInfo tests[] = {
	{"edges", test_edges},
	{"refused", test_refused},
	{"a thousand in one chunk", test_crowd},
	{"the newest wins", test_newest_wins},
	{"1 TiB", test_huge},
	{"random against a plain search", test_random},
	{"reclamation", test_reclamation},
	{"threads", test_threads},
	CU_TEST_INFO_NULL,
};

int main(void)
{
	CU_SuiteInfo suites[] = {{"memmap", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};

	return run_suites(suites);
}
