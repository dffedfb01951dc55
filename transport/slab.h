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

#define SLAB_NODE_ANY	-1
#define SLAB_NODE_LOCAL -2

struct slab_wish {
	size_t size;	  /* a multiple of SLAB_ALIGNMENT and of page */
	size_t alignment; /* at least SLAB_ALIGNMENT */
	size_t page;	  /* LIMITS_2M, LIMITS_1G; 0: small pages */
	unsigned access;
	int node; /* that it is bound to, or SLAB_NODE_* */
};

/*
 * Blocks for the registration. What a limit would make fail later (by SIGBUS,
 * or by the kernel's killing the process) is refused here. -ENOBUFS: there
 * are not enough of the huge pages wished for; other ones may do.
 */
int slab_create(struct slab **slab, struct vbn_job *job, struct vbn_pool *pool,
		const struct slab_wish *wish);
void slab_destroy(struct slab *slab);

#endif
