/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Places of peers' memory that the user was told of. They stay mapped until
 * the user's context is closed, whatever becomes of key and connection, since
 * nobody knows when they are read last. When all keys of a region are gone, its
 * mapping is replaced by pages of zeros: the owner's memory is let go of, and
 * a late load gives no fault.
 */
#include "shm.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

void shm_region_put(struct shm_region *region)
{
	if (atomic_fetch_sub(&region->refs, 1) > 1)
		return;
	if (region->map && !region->own)
		munmap(region->map, region->map_len);
	free(region);
}

/* Where it fails, the owner's memory stays: that is safe, too. */
void shm_region_blank(struct shm_region *region)
{
	mmap(region->map, region->map_len, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static bool make_room(struct shm_given *given)
{
	int room = given->room ? 2 * given->room : 4;
	struct shm_region **regions =
		realloc(given->regions, (size_t)room * sizeof(*regions));

	if (!regions)
		return false;
	given->regions = regions;
	given->room = room;
	return true;
}

/* Counts @region if it is not there yet, and puts it first. */
static __attribute__((noinline)) int give(struct shm_given *given,
					  struct shm_region *region)
{
	int at = 0;

	while (at < given->n && given->regions[at] != region)
		at++;
	if (at == given->n) {
		if (at == given->room && !make_room(given))
			return vbn_fail(-ENOMEM, "shm: no memory");
		atomic_fetch_add(&region->refs, 1);
		given->n++;
	}
	for (; at; at--)
		given->regions[at] = given->regions[at - 1];
	given->regions[0] = region;
	return 0;
}

void shm_given_hand_over(struct shm_given *from, struct shm_given *to)
{
	/* Without memory to remember it by, it stays counted for ever. */
	for (int i = from->n; i-- > 0;)
		if (!give(to, from->regions[i]))
			shm_region_put(from->regions[i]);
	free(from->regions);
}

void shm_given_free(struct shm_given *given)
{
	for (int i = 0; i < given->n; i++)
		shm_region_put(given->regions[i]);
	free(given->regions);
}

static __attribute__((noinline)) int no_access(const struct shm_region *region)
{
	return vbn_fail(-EACCES, "shm: the region is %s",
			shm_region_is_live(region)
				? "not open for reading (VBN_ACCESS_READ)"
				: "not registered any more");
}

int shm_map(void *c, void *key, uint64_t remote, void **ptr)
{
	struct shm_region *region = key;
	struct shm_given *given = &((struct shm_conn *)c)->given;
	int err = 0;

	if (!shm_region_may(region, VBN_ACCESS_READ))
		return no_access(region);
	if (!region->map)
		return -EOPNOTSUPP; /* heap memory of another process */
	if (!region->own && (!given->n || given->regions[0] != region))
		err = give(given, region);
	*ptr = region->map + (remote - region->base);
	return err;
}
