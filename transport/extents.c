/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Free page ranges, in two balanced trees of the C library's (tsearch): by
 * address, to join neighbours, and by (size, address), for the best fit.
 *
 * Invariants: each extent is in both trees; extents of one slab never touch;
 * slab->free is the sum of its extents.
 */
#include "extents.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>

struct extent {
	struct slab_range *slab;
	uintptr_t addr;
	size_t size;
};

/*
 * tfind() knows equal only. A probe is a key that notes the extents it is
 * compared with: the closest below, and the closest not below.
 */
struct probe {
	struct extent key; /* first: the trees compare extents */
	struct extent *below, *above;
};

static int order_address(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

static int order_size(const void *a, const void *b)
{
	const struct extent *x = a, *y = b;

	if (x->size != y->size)
		return x->size < y->size ? -1 : 1;
	return order_address(a, b);
}

static int note(const void *key, const void *node, int order)
{
	struct probe *probe = (struct probe *)key;

	if (order > 0)
		probe->below = (struct extent *)node;
	else
		probe->above = (struct extent *)node;
	return order;
}

static int probe_address(const void *key, const void *node)
{
	return note(key, node, order_address(key, node));
}

static int probe_size(const void *key, const void *node)
{
	return note(key, node, order_size(key, node));
}

void extents_init(struct extents *extents)
{
	extents->by_address = NULL;
	extents->by_size = NULL;
}

static void keep(void *node)
{
	(void)node;
}

void extents_destroy(struct extents *extents)
{
	tdestroy(extents->by_size, keep);
	tdestroy(extents->by_address, free);
	extents_init(extents);
}

static int insert(struct extents *extents, struct slab_range *slab,
		  uintptr_t addr, size_t size)
{
	struct extent *e = malloc(sizeof(*e));

	if (!e)
		return -ENOMEM;
	*e = (struct extent){.slab = slab, .addr = addr, .size = size};
	if (!tsearch(e, &extents->by_address, order_address)) {
		free(e);
		return -ENOMEM;
	}
	if (!tsearch(e, &extents->by_size, order_size)) {
		tdelete(e, &extents->by_address, order_address);
		free(e);
		return -ENOMEM;
	}
	slab->free += size;
	return 0;
}

static void drop(struct extents *extents, struct extent *e)
{
	tdelete(e, &extents->by_address, order_address);
	tdelete(e, &extents->by_size, order_size);
	e->slab->free -= e->size;
	free(e);
}

int extents_add(struct extents *extents, struct slab_range *slab)
{
	slab->free = 0;
	return insert(extents, slab, slab->base, slab->size);
}

void extents_remove(struct extents *extents, struct slab_range *slab)
{
	struct probe probe = {.key = {.addr = slab->base}};

	tfind(&probe, &extents->by_address, probe_address);
	if (probe.above && probe.above->slab == slab)
		drop(extents, probe.above);
}

static uintptr_t align_up(uintptr_t addr, size_t alignment)
{
	return (addr + alignment - 1) & ~(uintptr_t)(alignment - 1);
}

static bool fits(const struct extent *e, size_t size, size_t alignment)
{
	size_t gap = align_up(e->addr, alignment) - e->addr;

	return gap <= e->size && e->size - gap >= size;
}

/* From the smallest up: one that is larger by the alignment always fits. */
static struct extent *find(struct extents *extents, size_t size,
			   size_t alignment)
{
	struct probe probe = {.key = {.size = size}};

	for (;;) {
		probe.above = NULL;
		tfind(&probe, &extents->by_size, probe_size);
		if (!probe.above || fits(probe.above, size, alignment))
			return probe.above;
		probe.key.size = probe.above->size;
		probe.key.addr = probe.above->addr + 1;
	}
}

void *extents_alloc(struct extents *extents, size_t size, size_t alignment)
{
	struct extent *e = find(extents, size, alignment);
	struct extent old;
	uintptr_t at, end;

	if (!e)
		return NULL;
	old = *e;
	at = align_up(old.addr, alignment);
	end = at + size;
	drop(extents, e);
	/*
	 * When there is no memory to note a rest, the rest is lost until the
	 * pool is destroyed: it counts as used.
	 */
	if (at > old.addr)
		insert(extents, old.slab, old.addr, at - old.addr);
	if (end < old.addr + old.size)
		insert(extents, old.slab, end, old.addr + old.size - end);
	return (void *)at;
}

bool extents_free(struct extents *extents, struct slab_range *slab, void *addr,
		  size_t size)
{
	struct probe probe = {.key = {.addr = (uintptr_t)addr}};
	uintptr_t start = (uintptr_t)addr, end = start + size;
	struct extent *below, *above;

	tfind(&probe, &extents->by_address, probe_address);
	below = probe.below;
	above = probe.above;
	if (below &&
	    (below->slab != slab || below->addr + below->size != start))
		below = NULL;
	if (above && (above->slab != slab || above->addr != end))
		above = NULL;
	if (below) {
		start = below->addr;
		drop(extents, below);
	}
	if (above) {
		end = above->addr + above->size;
		drop(extents, above);
	}
	return insert(extents, slab, start, end - start) == 0;
}
