/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One slab of a pool: memfd memory, mapped shared and registered once.
 */
#ifndef VBN_SLAB_H
#define VBN_SLAB_H

#include "extents.h"
#include "memory.h"

#define SLAB_ALIGNMENT ((size_t)2 << 20)

struct slab {
	struct slab_range range;
	int fd;
	struct vbn_mem *mem;
};

/*
 * @size: a multiple of SLAB_ALIGNMENT; @alignment: at least that. Blocks for
 * the registration. *huge: try huge pages; cleared when there are none.
 */
int slab_create(struct slab **slab, struct vbn_job *job, struct vbn_pool *pool,
		size_t size, size_t alignment, unsigned access, bool *huge);
void slab_destroy(struct slab *slab);

#endif
