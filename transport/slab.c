/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slabs: sealed memfd memory. It is shared memory of its own, so it shares no
 * page with the heap, a fork leaves its pages alone, and peers on the host
 * can map the descriptor without fear that it shrinks under them.
 */
#include "slab.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int memory_fd(size_t size, bool huge)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd;

	if (huge)
		flags |= MFD_HUGETLB | MFD_HUGE_2MB;
	fd = memfd_create("verbena", flags);
	if (fd < 0)
		return -errno;
	/*
	 * Huge pages are taken now: one that is missing later, or that a
	 * control group denies, would be a SIGBUS.
	 */
	if (ftruncate(fd, (off_t)size) < 0 ||
	    (huge && fallocate(fd, 0, 0, (off_t)size) < 0) ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	return fd;
}

/* Map @fd at an aligned address: take more, then give back the ends. */
static void *map_aligned(int fd, size_t size, size_t alignment)
{
	size_t room = size + alignment;
	uintptr_t start, base, end;
	void *p;

	if (room < size) {
		errno = ENOMEM;
		return NULL;
	}
	p = mmap(NULL, room, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	start = (uintptr_t)p;
	end = start + room;
	base = (start + alignment - 1) & ~(uintptr_t)(alignment - 1);
	if (mmap((void *)base, size, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
		int err = errno;

		munmap(p, room);
		errno = err;
		return NULL;
	}
	if (base > start)
		munmap(p, base - start);
	if (end > base + size)
		munmap((void *)(base + size), end - base - size);
	return (void *)base;
}

static int slab_map(struct slab *slab, size_t size, size_t alignment, bool huge)
{
	void *base;

	slab->fd = memory_fd(size, huge);
	if (slab->fd < 0)
		return slab->fd;
	base = map_aligned(slab->fd, size, alignment);
	if (!base) {
		int err = -errno;

		close(slab->fd);
		return err;
	}
	slab->range.base = (uintptr_t)base;
	slab->range.size = size;
	return 0;
}

static int map_failed(int err, size_t size)
{
	const char *fix = "free memory, or give the job more";

	if (err == -EMFILE || err == -ENFILE)
		fix = "raise the limit of open files (ulimit -n)";
	return vbn_fail(err,
			"pool: cannot get %zu bytes of shared memory: "
			"%s; %s",
			size, strerror(-err), fix);
}

int slab_create(struct slab **out, struct vbn_job *job, struct vbn_pool *pool,
		size_t size, size_t alignment, unsigned access, bool *huge)
{
	struct slab *slab = calloc(1, sizeof(*slab));
	int err = -ENOMEM;

	if (!slab)
		return vbn_fail(-ENOMEM, "pool: out of memory for a slab");
	if (*huge)
		err = slab_map(slab, size, alignment, true);
	if (err) {
		*huge = false;
		err = slab_map(slab, size, alignment, false);
	}
	if (err) {
		map_failed(err, size);
		goto free_slab;
	}
	err = mem_register(job, (void *)slab->range.base, size, access,
			   slab->fd, 0, pool, &slab->mem);
	if (err)
		goto unmap;
	*out = slab;
	return 0;

unmap:
	munmap((void *)slab->range.base, size);
	close(slab->fd);
free_slab:
	free(slab);
	return err;
}

void slab_destroy(struct slab *slab)
{
	mem_deregister(slab->mem);
	munmap((void *)slab->range.base, slab->range.size);
	close(slab->fd);
	free(slab);
}
