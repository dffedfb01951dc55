/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The free page ranges of a pool's slabs. Best fit; neighbours join, never
 * across slabs. Not thread-safe. All bookkeeping is in ordinary memory.
 */
#ifndef VBN_EXTENTS_H
#define VBN_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A piece of memory that extents come from; the caller embeds it. */
struct slab_range {
	uintptr_t base;
	size_t size;
	size_t free;
};

struct extents {
	void *by_address, *by_size;
};

void extents_init(struct extents *extents);
void extents_destroy(struct extents *extents);

/* Make all of @slab available. 0 or -ENOMEM. */
int extents_add(struct extents *extents, struct slab_range *slab);
/* Take all of @slab away again; it must be free as a whole. */
void extents_remove(struct extents *extents, struct slab_range *slab);

/* @size: of pages; @alignment: a power of two. NULL: no room. */
void *extents_alloc(struct extents *extents, size_t size, size_t alignment);
/* Any range of @slab that is not free. False: no memory to note it. */
bool extents_free(struct extents *extents, struct slab_range *slab, void *addr,
		  size_t size);

#endif
