/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Kinds of pools (huge pages, NUMA nodes), and as many registrations as are
 * allowed.
 */
#include "harness.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BLOCK	 (3u << 20)
#define APART	 ((size_t)64 << 10) /* of registrations: few in one chunk */
#define MANY	 65536		    /* regions that a rank may have */
#define MANY_MAX (MANY + 1)

/* Both ranks have @mine, or the case is skipped by both. */
static bool both(struct test *t, bool mine, const char *why)
{
	uint8_t here = mine, there = 0;

	if (!t_exchange(t, &here, &there, 1))
		return false;
	if (!here || !there)
		t_skip(t, here ? "the peer has none" : why);
	return here && there;
}

/* Peers' bytes to and from a block of the pool's, whatever it is made of. */
static void exchange(struct test *t, struct vbn_pool *pool, uint8_t *block)
{
	uint8_t *back = t_alloc(t, BLOCK);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	struct vbn_rkey mine, theirs;
	struct post to = {.ep = t->ep, .op = op, .rkey = &theirs};
	uint8_t *from = vbn_pool_alloc(pool, BLOCK, 0);

	if (!t_check(t, from != NULL, "allocation: %s", vbn_error()) ||
	    !t_ok(t, vbn_rkey_of(t->job, block, BLOCK, &mine), "vbn_rkey_of") ||
	    !t_exchange_rkey(t, &mine, &theirs))
		return;
	fill(from, BLOCK, 7u + (unsigned)t->rank);
	if (!t_ok(t, put(to, from, BLOCK), "put") || !t_wait(t, op, "put") ||
	    !t_flush(t) || !t_barrier(t))
		return;
	t_pattern(t, block, BLOCK, 7u + (unsigned)t->peer, "put");
	if (t_ok(t, get(to, back, BLOCK), "get") && t_wait(t, op, "get"))
		t_pattern(t, back, BLOCK, 7u + (unsigned)t->rank, "get");
	t_barrier(t);
}

static void run_kind(struct test *t, enum vbn_hugepages hugepages, int numa)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL,
					.hugepages = hugepages,
					.numa = numa};
	struct vbn_pool *pool;
	uint8_t *block;

	if (!t_ok(t, vbn_pool_create(&pool, t->job, &opts), "vbn_pool_create"))
		return;
	block = vbn_pool_alloc(pool, BLOCK, 0);
	if (both(t, block != NULL, vbn_error()))
		exchange(t, pool, block);
	vbn_pool_destroy(pool);
}

static void run_huge(struct test *t)
{
	run_kind(t, VBN_HUGE_REQUIRE_2M, VBN_NUMA_ANY);
}

static void run_local_node(struct test *t)
{
	run_kind(t, VBN_HUGE_AUTO, VBN_NUMA_LOCAL);
}

/*
 * Small registrations until one is refused: the line says why, those that
 * there are still serve, and one less makes room for one more.
 */
static void run_most(struct test *t)
{
	bool device = !t_any_local(t); /* slow where it is emulated */
	int most = device ? 2000 : MANY_MAX, made = 0;
	struct vbn_mem **mems = t_alloc(t, MANY_MAX * sizeof(*mems));
	uint8_t *block =
		mmap(NULL, APART * MANY_MAX, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (!t_check(t, block != MAP_FAILED, "mmap"))
		return;
	while (made < most && !vbn_mem_register(&mems[made], t->job,
						block + (size_t)made * APART,
						64, VBN_ACCESS_LOCAL))
		made++;
	if (!device)
		t_check(t, made <= MANY && strstr(vbn_error(), "65536"),
			"%d registered, then: %s", made, vbn_error());
	t_flush(t);
	vbn_mem_deregister(mems[made / 2]);
	t_ok(t,
	     vbn_mem_register(&mems[made / 2], t->job, block, 64,
			      VBN_ACCESS_LOCAL),
	     "one more after one less");
	for (int i = 0; i < made; i++)
		vbn_mem_deregister(mems[i]);
	munmap(block, APART * MANY_MAX);
}

/* Slabs that are mapped: each is one mapping of its own descriptor. */
static int count_slabs(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	int n = 0;

	while (f && fgets(line, sizeof(line), f))
		n += strstr(line, "memfd:verbena ") != NULL;
	if (f)
		fclose(f);
	return n;
}

/* The first operation that is staged need not wait for memory to be made. */
static void run_staging(struct test *t)
{
	struct buffer *from = t_buffer(t, UNREGISTERED, 1u << 20);
	struct buffer *to = t_buffer(t, POOL, 1u << 20);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	struct vbn_rkey rkey;
	struct post post = {.ep = t->ep, .op = op, .rkey = &rkey};
	int before;

	/* Over shm, the first put maps the peer's slab. */
	if (!from || !to || !t_exchange_rkey(t, &to->rkey, &rkey) ||
	    !t_ok(t, put(post, to->data, 1), "put") || !t_wait(t, op, "put") ||
	    !t_flush(t) || !t_barrier(t))
		return;
	before = count_slabs();
	fill(from->data, from->len, 3);
	if (t_ok(t, put(post, from->data, from->len), "put") &&
	    t_wait(t, op, "put") && t_flush(t) && t_barrier(t)) {
		t_pattern(t, to->data, to->len, 3,
			  "put of unregistered memory");
		t_check(t, count_slabs() == before,
			"%d slabs before the first staged put, %d after",
			before, count_slabs());
	}
	t_barrier(t);
}

static const struct test_case cases[] = {
	{"memory/staging-is-ready", run_staging, 0, 0, 0},
	{"memory/huge-pages", run_huge, 0, 0, 0},
	{"memory/local-node", run_local_node, 0, 0, 0},
	{"memory/most-registrations", run_most, 0, 0, 0},
};

const struct cases pool_cases = {cases, sizeof(cases) / sizeof(cases[0])};
