/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registered memory inside the transport: the map from an address to its
 * registration, and what pools need from the job.
 *
 * Readers of the map are lock-free: each context owns a reader, and says
 * "quiescent" at the start of every progress; what was removed is freed only
 * once every reader has said so since.
 */
#ifndef VBN_MEMORY_H
#define VBN_MEMORY_H

#include "provider.h"

#include <stdatomic.h>

struct memmap;

/* memmap.c's, here for memmap_quiescent(). */
struct memmap_reader {
	const _Atomic uint64_t *now; /* the map's epoch */
	_Atomic uint64_t epoch;	     /* the last that it has seen */
	struct memmap *map;
	struct memmap_reader *next;
};

int memmap_create(struct memmap **map);
void memmap_destroy(struct memmap *map);

/* [any] @mem's addr and len are set; it must outlive its removal. */
int memmap_insert(struct memmap *map, struct vbn_mem *mem);
/*
 * [any] Remove; @mem is handed to free_mem(mem) when no reader can see it
 * any more (at once, later, or at memmap_destroy()).
 */
void memmap_remove(struct memmap *map, struct vbn_mem *mem,
		   void (*free_mem)(struct vbn_mem *mem));

int memmap_reader_open(struct memmap *map, struct memmap_reader **reader);
void memmap_reader_close(struct memmap_reader *reader);
/* [reader's thread] No pointer from an earlier find is in use. Cheap. */
static inline void memmap_quiescent(struct memmap_reader *reader)
{
	uint64_t now = atomic_load_explicit(reader->now, memory_order_acquire);

	if (now != atomic_load_explicit(&reader->epoch, memory_order_relaxed))
		atomic_store_explicit(&reader->epoch, now,
				      memory_order_release);
}

/*
 * [reader's thread] The registration that holds all of [addr, addr + len), or
 * NULL. O(1) for pool memory and for registrations that do not crowd one
 * chunk. When several hold it, the one most recently registered.
 */
const struct vbn_mem *memmap_find(struct memmap_reader *reader,
				  const void *addr, size_t len);
/* [any] The same under the map's lock; copies the registration's fields. */
bool memmap_find_locked(struct memmap *map, const void *addr, size_t len,
			struct vbn_mem *copy);

/*
 * Register memory with all of the job's providers, announce it, and enter it
 * into the map. @fd backs it at @offset, or -1. Defined in mem.c.
 */
int mem_register(struct vbn_job *job, void *addr, size_t len, unsigned access,
		 int fd, uint64_t offset, struct vbn_pool *pool,
		 struct vbn_mem **mem);
void mem_deregister(struct vbn_mem *mem);

/* [any] Pools count as open objects of the job. Defined in job.c. */
void job_hold(struct vbn_job *job);
void job_release(struct vbn_job *job);

#endif
