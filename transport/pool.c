/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pools of registered memory: one jemalloc arena per pool, whose extent hooks
 * carve the pool's slabs.
 *
 * - The hooks only ever take from what slabs there are, and say what was
 *   missing. A slab is made outside of jemalloc, since registering one may
 *   wait for the control plane; then the allocation is tried again.
 * - The arena is created with jemalloc's own hooks and gets ours afterwards:
 *   what it keeps about itself goes on coming from ordinary memory (jemalloc
 *   5.3 binds that at creation), never from memory that peers can write.
 * - Locks: grow (may block), then jemalloc's. The slab table, the extents and
 *   want are guarded by jemalloc's lock; the table grows under both.
 * - Slabs are kept until the pool is destroyed, except that empty ones make
 *   room when the limit is met or memory is short.
 */
#include "error.h"
#include "extents.h"
#include "jemalloc.h"
#include "limit.h"
#include "memory.h"
#include "node.h"
#include "slab.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES ((size_t)4 << 20)
#define PAGE	   ((size_t)4096)
#define ALIGNMENT  ((size_t)64)
/* A slab is at least this part of the pool: keeps the number of slabs low. */
#define GROWTH	      8
#define GROW_ATTEMPTS 16

/* Which pages a slab is made of: the sizes in turn, 0 being small ones. */
struct page_choice {
	size_t sizes[3];
	bool else_next; /* or fail, when there are none of a size */
	enum vbn_log_level level;
};

static const struct page_choice choices[] = {
	[VBN_HUGE_AUTO] = {{LIMITS_2M, 0}, true, VBN_INFO},
	[VBN_HUGE_NONE] = {{0}, false, VBN_INFO},
	[VBN_HUGE_PREFER_2M] = {{LIMITS_2M, 0}, true, VBN_WARN},
	[VBN_HUGE_PREFER_1G] = {{LIMITS_1G, LIMITS_2M, 0}, true, VBN_WARN},
	[VBN_HUGE_REQUIRE_2M] = {{LIMITS_2M}, false, VBN_WARN},
	[VBN_HUGE_REQUIRE_1G] = {{LIMITS_1G}, false, VBN_WARN},
};

struct vbn_pool {
	extent_hooks_t hooks; /* first: a hook finds its pool by it */
	struct vbn_job *job;
	unsigned access, arena;
	size_t slab_bytes, limit;

	const struct page_choice *pages;
	int node; /* as in struct slab_wish */

	pthread_mutex_t grow;
	bool fallback_said; /* guarded by grow */

	struct extents extents;
	struct slab **slabs; /* by address */
	size_t nslabs, slab_room, total;
	size_t want, want_alignment; /* what a hook could not give, or 0 */
};

/* ---- hooks: jemalloc's lock is held ---- */

/* The index of the first slab above @addr. */
static size_t slab_above(const struct vbn_pool *pool, uintptr_t addr)
{
	size_t low = 0, high = pool->nslabs;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (pool->slabs[mid]->range.base > addr)
			high = mid;
		else
			low = mid + 1;
	}
	return low;
}

static struct slab *slab_of(const struct vbn_pool *pool, const void *addr)
{
	size_t i = slab_above(pool, (uintptr_t)addr);
	struct slab *slab = i ? pool->slabs[i - 1] : NULL;

	if (!slab || (uintptr_t)addr - slab->range.base >= slab->range.size)
		return NULL;
	return slab;
}

static void *hook_alloc(extent_hooks_t *hooks, void *addr, size_t size,
			size_t alignment, bool *zero, bool *commit,
			unsigned arena)
{
	struct vbn_pool *pool = (struct vbn_pool *)hooks;
	void *p;

	(void)arena;
	if (addr)
		return NULL;
	p = extents_alloc(&pool->extents, size,
			  alignment > PAGE ? alignment : PAGE);
	if (!p) {
		pool->want = size;
		pool->want_alignment = alignment;
		return NULL;
	}
	if (*zero)
		memset(p, 0, size);
	*commit = true;
	return p;
}

/* True means: keep it. */
static bool hook_dalloc(extent_hooks_t *hooks, void *addr, size_t size,
			bool committed, unsigned arena)
{
	struct vbn_pool *pool = (struct vbn_pool *)hooks;
	struct slab *slab = slab_of(pool, addr);

	(void)committed;
	(void)arena;
	return !slab || !extents_free(&pool->extents, &slab->range, addr, size);
}

static void hook_destroy(extent_hooks_t *hooks, void *addr, size_t size,
			 bool committed, unsigned arena)
{
	(void)hook_dalloc(hooks, addr, size, committed, arena);
}

static bool hook_commit(extent_hooks_t *hooks, void *addr, size_t size,
			size_t offset, size_t len, unsigned arena)
{
	(void)hooks;
	(void)addr;
	(void)size;
	(void)offset;
	(void)len;
	(void)arena;
	return false; /* it always is */
}

/* Decommit and purge: registered pages stay where they are. */
static bool hook_refuse(extent_hooks_t *hooks, void *addr, size_t size,
			size_t offset, size_t len, unsigned arena)
{
	(void)hooks;
	(void)addr;
	(void)size;
	(void)offset;
	(void)len;
	(void)arena;
	return true;
}

static bool hook_split(extent_hooks_t *hooks, void *addr, size_t size, size_t a,
		       size_t b, bool committed, unsigned arena)
{
	(void)hooks;
	(void)addr;
	(void)size;
	(void)a;
	(void)b;
	(void)committed;
	(void)arena;
	return false;
}

/* Joining is the extents' business, who know where a slab ends. */
static bool hook_merge(extent_hooks_t *hooks, void *a, size_t size_a, void *b,
		       size_t size_b, bool committed, unsigned arena)
{
	(void)hooks;
	(void)a;
	(void)size_a;
	(void)b;
	(void)size_b;
	(void)committed;
	(void)arena;
	return true;
}

static const extent_hooks_t pool_hooks = {
	.alloc = hook_alloc,
	.dalloc = hook_dalloc,
	.destroy = hook_destroy,
	.commit = hook_commit,
	.decommit = hook_refuse,
	.purge_lazy = hook_refuse,
	.purge_forced = hook_refuse,
	.split = hook_split,
	.merge = hook_merge,
};

/* ---- arena ---- */

static int arena_create(struct vbn_pool *pool)
{
	extent_hooks_t *hooks = &pool->hooks;
	size_t len = sizeof(pool->arena);
	int err;

	jemalloc_lock();
	err = vbn_je_mallctl("arenas.create", &pool->arena, &len, NULL, 0);
	if (!err) {
		char name[64];

		snprintf(name, sizeof(name), "arena.%u.extent_hooks",
			 pool->arena);
		err = vbn_je_mallctl(name, NULL, NULL, &hooks, sizeof(hooks));
	}
	jemalloc_unlock();
	if (err)
		return vbn_fail(-ENOMEM, "pool: cannot create an arena: %s",
				strerror(err));
	return 0;
}

static void arena_destroy(struct vbn_pool *pool)
{
	char name[64];

	snprintf(name, sizeof(name), "arena.%u.destroy", pool->arena);
	jemalloc_lock();
	if (vbn_je_mallctl(name, NULL, NULL, NULL, 0))
		vbn_log(VBN_ERR, "pool: arena %u could not be destroyed",
			pool->arena);
	jemalloc_unlock();
}

/* ---- slabs: grow is held ---- */

static int slab_table_add(struct vbn_pool *pool, struct slab *slab)
{
	size_t at = slab_above(pool, slab->range.base);

	if (pool->nslabs == pool->slab_room) {
		size_t room = pool->slab_room ? 2 * pool->slab_room : 16;
		struct slab **slabs =
			realloc(pool->slabs, room * sizeof(struct slab *));

		if (!slabs)
			return -ENOMEM;
		pool->slabs = slabs;
		pool->slab_room = room;
	}
	if (extents_add(&pool->extents, &slab->range))
		return -ENOMEM;
	memmove(&pool->slabs[at + 1], &pool->slabs[at],
		(pool->nslabs - at) * sizeof(struct slab *));
	pool->slabs[at] = slab;
	pool->nslabs++;
	pool->total += slab->range.size;
	return 0;
}

/* An empty slab, taken out of the table, or NULL. */
static struct slab *slab_take_empty(struct vbn_pool *pool)
{
	struct slab *slab = NULL;

	jemalloc_lock();
	for (size_t i = 0; i < pool->nslabs; i++) {
		slab = pool->slabs[i];
		if (slab->range.free == slab->range.size)
			break;
		slab = NULL;
	}
	if (slab) {
		size_t at = slab_above(pool, slab->range.base);

		extents_remove(&pool->extents, &slab->range);
		memmove(&pool->slabs[at - 1], &pool->slabs[at],
			(pool->nslabs - at) * sizeof(struct slab *));
		pool->nslabs--;
		pool->total -= slab->range.size;
	}
	jemalloc_unlock();
	return slab;
}

static bool release_empty(struct vbn_pool *pool)
{
	struct slab *slab = slab_take_empty(pool);

	if (!slab)
		return false;
	slab_destroy(slab);
	return true;
}

/* @size in whole @units, or 0 and why not. */
static size_t whole(size_t size, size_t unit)
{
	if (size <= SIZE_MAX / 2)
		return (size + unit - 1) & ~(unit - 1);
	vbn_fail(-ENOMEM, "pool: %zu bytes are more than can be mapped", size);
	return 0;
}

/* Room for a slab of @size within the limit, which empty slabs may make. */
static bool make_room(struct vbn_pool *pool, size_t size)
{
	while (pool->limit && (pool->total > pool->limit ||
			       size > pool->limit - pool->total)) {
		if (release_empty(pool))
			continue;
		vbn_fail(-ENOMEM,
			 "pool: its limit of %zu bytes is reached (%zu in "
			 "slabs, %zu more needed): raise the limit or free "
			 "memory",
			 pool->limit, pool->total, size);
		return false;
	}
	return true;
}

/* What a slab is better made of than @least, when there is enough. */
static size_t grown_size(const struct vbn_pool *pool, size_t least, size_t unit)
{
	size_t grown = pool->total / GROWTH;

	if (pool->limit && grown > pool->limit - pool->total)
		grown = pool->limit - pool->total;
	grown &= ~(unit - 1);
	return grown > least ? grown : least;
}

/* Giving back an empty slab makes room for what failed by @err. */
static bool empty_helps(const struct vbn_pool *pool, int err)
{
	return err == -ENOMEM || err == -EMFILE ||
	       (err == -ENOBUFS && !pool->pages->else_next);
}

static int slab_add(struct vbn_pool *pool, const struct slab_wish *wish)
{
	struct slab *slab = NULL;
	int err;

	do
		err = slab_create(&slab, pool->job, pool, wish);
	while (empty_helps(pool, err) && release_empty(pool));
	if (err)
		return err;
	jemalloc_lock();
	err = slab_table_add(pool, slab);
	jemalloc_unlock();
	if (err) {
		slab_destroy(slab);
		return vbn_fail(err, "pool: out of memory for its tables");
	}
	return 0;
}

/* By a slab of pages of one size. */
static int grow_by(struct vbn_pool *pool, size_t page, size_t size,
		   size_t alignment)
{
	size_t unit = page > SLAB_ALIGNMENT ? page : SLAB_ALIGNMENT;
	size_t least =
		whole(size > pool->slab_bytes ? size : pool->slab_bytes, unit);
	struct slab_wish wish = {.alignment = alignment > SLAB_ALIGNMENT
						      ? alignment
						      : SLAB_ALIGNMENT,
				 .page = page,
				 .access = pool->access,
				 .node = pool->node};
	int err;

	if (!least || !make_room(pool, least))
		return -ENOMEM;
	wish.size = grown_size(pool, least, unit);
	err = slab_add(pool, &wish);
	if (err && wish.size > least) {
		wish.size = least;
		err = slab_add(pool, &wish);
	}
	return err;
}

static int pool_grow(struct vbn_pool *pool, size_t size, size_t alignment)
{
	const size_t *page = pool->pages->sizes;
	char why[256] = ""; /* it has no pages of the first size */
	int err;

	for (;;) {
		err = grow_by(pool, *page, size, alignment);
		if (!err || !*page || !pool->pages->else_next)
			break;
		if (err == -ENOBUFS && !why[0])
			snprintf(why, sizeof(why), "%s", vbn_error());
		page++;
	}
	if (!err && why[0] && !pool->fallback_said) {
		pool->fallback_said = true;
		vbn_log(pool->pages->level, "%s; going on with %s pages", why,
			*page ? "2 MiB" : "small");
	}
	return err;
}

/* ---- entry points ---- */

static int check_sizes(struct vbn_pool_options *o)
{
	size_t unit = choices[o->hugepages].else_next
			      ? SLAB_ALIGNMENT
			      : choices[o->hugepages].sizes[0];

	if (unit < SLAB_ALIGNMENT)
		unit = SLAB_ALIGNMENT;
	if (o->slab_bytes > SIZE_MAX / 4)
		return vbn_fail(-EINVAL,
				"pool: slabs of %zu bytes are more "
				"than can be mapped",
				o->slab_bytes);
	if (!o->slab_bytes) {
		o->slab_bytes = SLAB_BYTES;
		if (o->limit && o->limit < SLAB_BYTES)
			o->slab_bytes = SLAB_ALIGNMENT;
	}
	o->slab_bytes = whole(o->slab_bytes, unit);
	if (o->limit && o->limit < o->slab_bytes)
		return vbn_fail(-EINVAL,
				"pool: the limit of %zu bytes is "
				"below one slab of %zu",
				o->limit, o->slab_bytes);
	return 0;
}

static int check_options(struct vbn_pool_options *o)
{
	if (o->access & ~VBN_ACCESS_ALL)
		return vbn_fail(-EINVAL, "pool: unknown access bits 0x%x",
				o->access & ~VBN_ACCESS_ALL);
	if ((unsigned)o->hugepages > VBN_HUGE_REQUIRE_1G)
		return vbn_fail(-EINVAL,
				"pool: unknown choice %d of huge pages",
				(int)o->hugepages);
	if (o->numa != VBN_NUMA_ANY && o->numa != VBN_NUMA_LOCAL &&
	    node_check(o->numa - 1))
		return -EINVAL;
	return check_sizes(o);
}

static int node_wished(int numa)
{
	if (numa == VBN_NUMA_ANY)
		return SLAB_NODE_ANY;
	return numa == VBN_NUMA_LOCAL ? SLAB_NODE_LOCAL : numa - 1;
}

int vbn_pool_create(struct vbn_pool **out, struct vbn_job *job,
		    const struct vbn_pool_options *opts)
{
	struct vbn_pool_options o = {0};
	struct vbn_pool *pool;
	int err;

	if (!out || !job)
		return vbn_fail(-EINVAL, "pool: no job, or nowhere to put it");
	if (opts && opts->size < sizeof(opts->size))
		return vbn_fail(-EINVAL, "pool: set the options' size member");
	if (opts)
		memcpy(&o, opts,
		       opts->size < sizeof(o) ? opts->size : sizeof(o));
	err = check_options(&o);
	if (err)
		return err;
	pool = calloc(1, sizeof(*pool));
	if (!pool)
		return vbn_fail(-ENOMEM, "pool: out of memory");
	pool->hooks = pool_hooks;
	pool->job = job;
	pool->access = o.access;
	pool->slab_bytes = o.slab_bytes;
	pool->limit = o.limit;
	pool->pages = &choices[o.hugepages];
	pool->node = node_wished(o.numa);
	extents_init(&pool->extents);
	pthread_mutex_init(&pool->grow, NULL);
	err = arena_create(pool);
	if (err) {
		pthread_mutex_destroy(&pool->grow);
		free(pool);
		return err;
	}
	job_hold(job);
	*out = pool;
	return 0;
}

void vbn_pool_destroy(struct vbn_pool *pool)
{
	if (!pool)
		return;
	arena_destroy(pool);
	for (size_t i = 0; i < pool->nslabs; i++)
		slab_destroy(pool->slabs[i]);
	extents_destroy(&pool->extents);
	pthread_mutex_destroy(&pool->grow);
	job_release(pool->job);
	free(pool->slabs);
	free(pool);
}

static void *try_alloc(struct vbn_pool *pool, size_t size, int flags,
		       size_t *want, size_t *want_alignment)
{
	void *p;

	jemalloc_lock();
	pool->want = 0;
	p = vbn_je_mallocx(size, flags);
	*want = pool->want;
	*want_alignment = pool->want_alignment;
	jemalloc_unlock();
	return p;
}

static void *alloc_growing(struct vbn_pool *pool, size_t size, int flags)
{
	size_t want, alignment;
	void *p = NULL;

	/* Others may take what a new slab offers, hence attempts. */
	pthread_mutex_lock(&pool->grow);
	for (int i = 0; i < GROW_ATTEMPTS; i++) {
		p = try_alloc(pool, size, flags, &want, &alignment);
		if (p)
			break;
		if (!want) {
			vbn_fail(-ENOMEM,
				 "pool: cannot allocate %zu bytes: "
				 "out of memory, or too large",
				 size);
			break;
		}
		if (pool_grow(pool, want, alignment))
			break;
	}
	if (!p)
		p = try_alloc(pool, size, flags, &want, &alignment);
	pthread_mutex_unlock(&pool->grow);
	return p;
}

void *vbn_pool_alloc(struct vbn_pool *pool, size_t size, size_t alignment)
{
	size_t want, want_alignment;
	int flags;
	void *p;

	if (!alignment)
		alignment = ALIGNMENT;
	if (!pool || (alignment & (alignment - 1))) {
		vbn_fail(-EINVAL,
			 "pool: the alignment %zu is not a power of "
			 "two",
			 alignment);
		return NULL;
	}
	if (!size)
		size = 1;
	flags = MALLOCX_ARENA(pool->arena) | MALLOCX_TCACHE_NONE |
		MALLOCX_LG_ALIGN(__builtin_ctzl(alignment));
	p = try_alloc(pool, size, flags, &want, &want_alignment);
	return p ? p : alloc_growing(pool, size, flags);
}

void vbn_pool_free(struct vbn_pool *pool, void *ptr)
{
	bool ours;

	if (!pool || !ptr)
		return;
	jemalloc_lock();
	ours = slab_of(pool, ptr) != NULL;
	if (ours)
		vbn_je_dallocx(ptr, MALLOCX_TCACHE_NONE);
	jemalloc_unlock();
	if (!ours)
		vbn_log(VBN_ERR, "pool: free of %p, which is not of this pool",
			ptr);
}
