/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pools: against a shadow of what is allocated, at their limits, from many
 * threads; and that jemalloc stays where it belongs.
 */
#include "fake_mem.h"

#include "cunit_run.h"

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static struct vbn_pool *make_pool(size_t slab_bytes, size_t limit)
{
	struct vbn_pool_options o = {.size = sizeof(o),
				     .access = VBN_ACCESS_ALL,
				     .slab_bytes = slab_bytes,
				     .limit = limit};
	struct vbn_pool *pool = NULL;

	CU_ASSERT_EQUAL_FATAL(vbn_pool_create(&pool, fake_job(), &o), 0);
	return pool;
}

static void destroy_pool(struct vbn_pool *pool)
{
	vbn_pool_destroy(pool);
	CU_ASSERT_EQUAL(fake_mem_registered(), 0);
	CU_ASSERT_EQUAL(fake_mem_bytes(), 0);
	CU_ASSERT_EQUAL(fake_mem_holds(), 0);
	CU_ASSERT_EQUAL(fake_mem_wrong(), 0);
}

/* ---- random use against a shadow ---- */

struct block {
	unsigned char *p;
	size_t size;
	unsigned char tag;
};

/* Sizes of every magnitude up to @most. */
static size_t random_size(uint64_t *state, size_t most)
{
	size_t top = (size_t)1 << (next_random(state) % 24);

	if (top > most)
		top = most;
	return next_random(state) % (top + 1);
}

static bool block_make(struct vbn_pool *pool, struct block *b, size_t size,
		       size_t alignment, unsigned char tag)
{
	b->p = vbn_pool_alloc(pool, size, alignment);
	if (!b->p)
		return false;
	b->size = size;
	b->tag = tag;
	memset(b->p, tag, size);
	return true;
}

static bool block_good(const struct block *b, size_t alignment)
{
	if (b->size &&
	    (b->p[0] != b->tag || memcmp(b->p, b->p + 1, b->size - 1) != 0))
		return false;
	return (uintptr_t)b->p % (alignment ? alignment : 64) == 0;
}

static bool random_rounds(struct vbn_pool *pool, uint64_t seed, int rounds,
			  size_t most)
{
	enum { BLOCKS = 256 };
	struct block blocks[BLOCKS] = {{0}};
	bool good = true;

	for (int i = 0; i < rounds && good; i++) {
		struct block *b = &blocks[next_random(&seed) % BLOCKS];
		size_t alignment = 0;

		if (b->p) {
			good = block_good(b, 1);
			vbn_pool_free(pool, b->p);
			b->p = NULL;
			continue;
		}
		if (next_random(&seed) % 4 == 0)
			alignment = (size_t)1 << (next_random(&seed) % 17);
		good = block_make(pool, b, random_size(&seed, most), alignment,
				  (unsigned char)next_random(&seed)) &&
		       block_good(b, alignment) &&
		       fake_mem_holds_range(b->p, b->size);
	}
	for (int i = 0; i < BLOCKS; i++) {
		good = good && (!blocks[i].p || block_good(&blocks[i], 1));
		vbn_pool_free(pool, blocks[i].p);
	}
	return good;
}

static void test_random(void)
{
	struct vbn_pool *pool = make_pool(0, 0);

	CU_ASSERT_EQUAL(fake_mem_registered(), 0);
	CU_ASSERT_EQUAL(fake_mem_holds(), 1);
	CU_ASSERT(random_rounds(pool, 4711, SANITIZED ? 4000 : 20000, 8 * MIB));
	destroy_pool(pool);
}

static void *random_thread(void *arg)
{
	static _Atomic uint64_t seeds = 1;

	return random_rounds(arg, 77 * ++seeds, 1000, 256 << 10) ? arg : NULL;
}

static void test_threads(void)
{
	enum { THREADS = 8 };
	struct vbn_pool *pools[2] = {make_pool(0, 0), make_pool(2 * MIB, 0)};
	pthread_t threads[THREADS];
	void *result;

	for (int i = 0; i < THREADS; i++)
		CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL,
						     random_thread,
						     pools[i % 2]),
				      0);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &result);
		CU_ASSERT_PTR_NOT_NULL(result);
	}
	/* What one thread allocated, another frees. */
	for (int i = 0; i < 2; i++)
		CU_ASSERT(random_rounds(pools[i], 5, 500, MIB));
	vbn_pool_destroy(pools[0]);
	destroy_pool(pools[1]);
}

/* ---- special sizes ---- */

static void test_zero(void)
{
	struct vbn_pool *pool = make_pool(0, 0);
	void *a = vbn_pool_alloc(pool, 0, 0), *b = vbn_pool_alloc(pool, 0, 0);

	CU_ASSERT(a && b && a != b);
	vbn_pool_free(pool, a);
	vbn_pool_free(pool, NULL);
	destroy_pool(pool); /* with b */
}

static void test_alignment(void)
{
	struct vbn_pool *pool = make_pool(0, 0);

	for (size_t alignment = 1; alignment <= 64 * MIB; alignment *= 2) {
		void *p = vbn_pool_alloc(pool, 3000, alignment);
		void *q = vbn_pool_alloc(pool, 3 * MIB, alignment);

		CU_ASSERT(p && (uintptr_t)p % alignment == 0);
		CU_ASSERT(q && (uintptr_t)q % alignment == 0);
		CU_ASSERT(fake_mem_holds_range(p, 3000));
		CU_ASSERT(fake_mem_holds_range(q, 3 * MIB));
	}
	CU_ASSERT_PTR_NULL(vbn_pool_alloc(pool, 8, 24));
	CU_ASSERT(strstr(vbn_error(), "power of two") != NULL);
	destroy_pool(pool);
}

static void test_large(void)
{
	struct vbn_pool *pool = make_pool(0, 0);
	char *p = vbn_pool_alloc(pool, 3 * GIB + 1, 0);

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	p[0] = p[3 * GIB] = 1;
	vbn_pool_free(pool, p);
	CU_ASSERT_PTR_NULL(vbn_pool_alloc(pool, SIZE_MAX, 0));
	CU_ASSERT(strlen(vbn_error()) > 0);
	CU_ASSERT_PTR_NULL(vbn_pool_alloc(pool, SIZE_MAX / 2, 0));
	CU_ASSERT_PTR_NULL(vbn_pool_alloc(pool, (size_t)1 << 47, 0));
	CU_ASSERT(strlen(vbn_error()) > 0);
	p = vbn_pool_alloc(pool, 100, 0); /* unharmed */
	CU_ASSERT_PTR_NOT_NULL(p);
	destroy_pool(pool);
}

/* How much more is mapped than was asked for. */
static void test_waste(void)
{
	static const size_t sizes[] = {4 * MIB, 64 * MIB, 64 * MIB + 1, GIB};
	struct vbn_pool *pool;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		pool = make_pool(0, 0);
		CU_ASSERT_PTR_NOT_NULL(vbn_pool_alloc(pool, sizes[i], 0));
		CU_ASSERT(fake_mem_bytes() <= sizes[i] + sizes[i] / 4 + 4096);
		if (sizes[i] % (2 * MIB) == 0)
			CU_ASSERT_EQUAL(fake_mem_bytes(), sizes[i]);
		destroy_pool(pool);
	}
	pool = make_pool(0, 0);
	for (int i = 0; i < 4096; i++)
		CU_ASSERT_PTR_NOT_NULL(vbn_pool_alloc(pool, 64 << 10, 0));
	CU_ASSERT(fake_mem_bytes() <= 256 * MIB + 256 * MIB / 8 + 4 * MIB);
	destroy_pool(pool);
}

/* Use, free, use again: what was freed serves. */
static void test_reuse(void)
{
	struct vbn_pool *pool = make_pool(0, 0);
	static void *p[2000];
	size_t bytes = 0;

	for (int round = 0; round < 20; round++) {
		size_t size = (size_t)1 << (round % 17 + 4);

		for (int i = 0; i < 2000; i++)
			p[i] = vbn_pool_alloc(pool, size, 0);
		for (int i = 0; i < 2000; i++) {
			CU_ASSERT_PTR_NOT_NULL(p[i]);
			vbn_pool_free(pool, p[(i * 7) % 2000]);
		}
		bytes = fake_mem_bytes();
	}
	CU_ASSERT(bytes <= 2000 * MIB * 9 / 8 + 8 * MIB);
	destroy_pool(pool);
}

static void test_many_slabs(void)
{
	enum { N = 1000 };
	struct vbn_pool *pool = make_pool(2 * MIB, 0);
	static char *p[N];

	for (int i = 0; i < N; i++) {
		p[i] = vbn_pool_alloc(pool, 3 * MIB, 4096);
		CU_ASSERT_PTR_NOT_NULL_FATAL(p[i]);
		p[i][0] = (char)i;
	}
	CU_ASSERT(fake_mem_registered() < 200);
	for (int i = 0; i < N; i++) {
		CU_ASSERT_EQUAL(p[i][0], (char)i);
		if (i % 3)
			vbn_pool_free(pool, p[i]);
	}
	CU_ASSERT(random_rounds(pool, 99, 2000, 2 * MIB));
	destroy_pool(pool);
}

/* ---- limits and failures ---- */

static void test_limit(void)
{
	struct vbn_pool *pool = make_pool(2 * MIB, 16 * MIB);
	static void *p[64];
	size_t got = 0;

	fake_mem_reset_peak();
	while (got < 64 && (p[got] = vbn_pool_alloc(pool, MIB, 0)))
		got++;
	CU_ASSERT_EQUAL(got, 16);
	CU_ASSERT(strstr(vbn_error(), "limit of 16777216 bytes") != NULL);
	CU_ASSERT_EQUAL(fake_mem_bytes(), 16 * MIB);
	while (got > 0)
		vbn_pool_free(pool, p[--got]);
	/* Empty slabs make room for what fits in none of them. */
	p[0] = vbn_pool_alloc(pool, 14 * MIB, 0);
	CU_ASSERT_PTR_NOT_NULL(p[0]);
	CU_ASSERT_PTR_NULL(vbn_pool_alloc(pool, 17 * MIB, 0));
	p[1] = vbn_pool_alloc(pool, 2 * MIB, 0);
	CU_ASSERT_PTR_NOT_NULL(p[1]);
	CU_ASSERT(fake_mem_peak() <= 16 * MIB);
	destroy_pool(pool);
}

static void test_registration_fails(void)
{
	struct vbn_pool *pool = make_pool(2 * MIB, 0);
	void *p, *q;

	fake_mem_fail_after(0);
	CU_ASSERT_PTR_NULL(vbn_pool_alloc(pool, 100, 0));
	CU_ASSERT_STRING_EQUAL(vbn_error(), "fake: no more registrations");
	fake_mem_fail_after(1);
	p = vbn_pool_alloc(pool, 2 * MIB, 0);
	CU_ASSERT_PTR_NOT_NULL(p);
	CU_ASSERT_PTR_NULL(vbn_pool_alloc(pool, 2 * MIB, 0));
	vbn_pool_free(pool, p);
	q = vbn_pool_alloc(pool, MIB, 0); /* from what there is */
	CU_ASSERT_PTR_NOT_NULL(q);
	fake_mem_fail_after(-1);
	CU_ASSERT_PTR_NOT_NULL(vbn_pool_alloc(pool, 8 * MIB, 0));
	destroy_pool(pool);
}

static void test_options(void)
{
	struct vbn_pool_options o = {.size = sizeof(o), .access = 1u << 30};
	struct vbn_pool *pool = NULL;

	CU_ASSERT(vbn_pool_create(&pool, fake_job(), &o) < 0);
	o.access = 0;
	o.slab_bytes = 64 * MIB;
	o.limit = 8 * MIB;
	CU_ASSERT(vbn_pool_create(&pool, fake_job(), &o) < 0);
	o.size = 0;
	CU_ASSERT(vbn_pool_create(&pool, fake_job(), &o) < 0);
	CU_ASSERT_PTR_NULL(pool);
	CU_ASSERT_EQUAL(vbn_pool_create(&pool, fake_job(), NULL), 0);
	destroy_pool(pool);
	vbn_pool_destroy(NULL);
}

/* ---- jemalloc's place ---- */

/*
 * With the slabs out of reach, freeing, allocating and destroying work, so
 * none of jemalloc's data is in them.
 */
static void test_metadata(void)
{
	struct vbn_pool *pool = make_pool(0, 0);
	static void *p[6000];
	uint64_t seed = 3;

	for (int i = 0; i < 6000; i++) {
		p[i] = vbn_pool_alloc(pool, random_size(&seed, MIB), 0);
		CU_ASSERT_PTR_NOT_NULL_FATAL(p[i]);
	}
	CU_ASSERT_EQUAL_FATAL(fake_mem_protect(PROT_NONE), 0);
	fake_mem_fail_after(0);
	for (int i = 0; i < 6000; i += 2)
		vbn_pool_free(pool, p[i]);
	for (int i = 0; i < 6000; i += 2)
		p[i] = vbn_pool_alloc(pool, random_size(&seed, MIB / 4), 0);
	for (int i = 0; i < 6000; i += 3)
		vbn_pool_free(pool, p[i]);
	fake_mem_fail_after(-1);
	destroy_pool(pool);
}

static void test_malloc_is_libc(void)
{
	Dl_info info;
	void *p = dlsym(RTLD_DEFAULT, "malloc");

	CU_ASSERT_PTR_NULL(dlsym(RTLD_DEFAULT, "mallocx"));
	CU_ASSERT_PTR_NULL(dlsym(RTLD_DEFAULT, "vbn_je_mallocx"));
	CU_ASSERT(p && dladdr(p, &info));
	if (!SANITIZED)
		CU_ASSERT_PTR_NOT_NULL(strstr(info.dli_fname, "libc.so"));
}

static void test_many_pools(void)
{
	for (int round = 0; round < 20; round++) {
		struct vbn_pool *pools[50];

		for (int i = 0; i < 50; i++)
			pools[i] = make_pool(2 * MIB, 0);
		for (int i = 0; i < 50; i += 2)
			CU_ASSERT_PTR_NOT_NULL(
				vbn_pool_alloc(pools[i], 1000, 0));
		for (int i = 0; i < 50; i++)
			vbn_pool_destroy(pools[i]);
	}
	CU_ASSERT_EQUAL(fake_mem_registered(), 0);
}

static void test_foreign_free(void)
{
	struct vbn_pool *a = make_pool(0, 0), *b = make_pool(0, 0);
	void *p = vbn_pool_alloc(a, 100, 0);

	setenv("VBN_LOG", "error", 1);
	vbn_pool_free(b, p); /* logged, nothing else */
	memset(p, 1, 100);
	vbn_pool_free(a, p);
	vbn_pool_destroy(a);
	destroy_pool(b);
}

static CU_TestInfo tests[] = {
	{"random against a shadow", test_random},
	{"threads", test_threads},
	{"size zero", test_zero},
	{"alignment", test_alignment},
	{"large", test_large},
	{"waste", test_waste},
	{"reuse", test_reuse},
	{"many slabs", test_many_slabs},
	{"limit", test_limit},
	{"failing registration", test_registration_fails},
	{"options", test_options},
	{"metadata is in no slab", test_metadata},
	{"malloc is the C library's", test_malloc_is_libc},
	{"many pools", test_many_pools},
	{"foreign pointers", test_foreign_free},
	CU_TEST_INFO_NULL,
};

int main(void)
{
	CU_SuiteInfo suites[] = {{"pool", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};

	return run_suites(suites);
}
