/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slabs: sealed memfd memory. It is shared memory of its own, so it shares no
 * page with the heap, a fork leaves its pages alone, and peers on the host
 * can map the descriptor without fear that it shrinks under them.
 *
 * Huge pages are reserved by mapping and taken by fallocate(), so that one
 * that is missing is an error here and no SIGBUS later, in whichever process
 * touches it first. Small pages come when they are touched (or registered
 * with a device).
 */
#include "slab.h"

#include "error.h"
#include "limit.h"
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINE 400
/* Mappings that a slab takes while it is made: it, and what is left around. */
#define SLAB_MAPS 3

/* ---- before it bites ---- */

static int check(enum limit_kind which, uint64_t needed, size_t bytes)
{
	char line[LINE];
	int err = limit_check(limits_root, which, needed, line, sizeof(line));

	if (!err)
		return 0;
	return vbn_fail(err, "pool: a slab of %zu bytes: %s", bytes, line);
}

static int check_limits(const struct slab_wish *wish)
{
	size_t size = wish->size;
	int err = check(LIMIT_FILES, 1, size);

	if (!err)
		err = check(LIMIT_MAPS, SLAB_MAPS, size);
	if (!err && wish->page) {
		err = check(wish->page == LIMITS_2M ? LIMIT_HUGE_2M
						    : LIMIT_HUGE_1G,
			    size / wish->page, size);
		return err ? -ENOBUFS : 0;
	}
	if (!err)
		err = check(LIMIT_MEMORY, size, size);
	if (!err)
		err = check(LIMIT_CGROUP_MEMORY, size, size);
	if (!err && wish->node >= 0)
		err = node_has_room(wish->node, size);
	return err;
}

/* ---- memory ---- */

static int memory_fd(const struct slab_wish *wish)
{
	unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd;

	if (wish->page)
		flags |= MFD_HUGETLB | (wish->page == LIMITS_2M ? MFD_HUGE_2MB
								: MFD_HUGE_1GB);
	fd = memfd_create("verbena", flags);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)wish->size) < 0 ||
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

static int refused(const struct slab_wish *wish, int err)
{
	const char *fix = "free memory, or give the job more";

	if (wish->page && err == -ENODEV)
		return vbn_fail(-ENOBUFS,
				"pool: the kernel has no pages of %zu KiB",
				wish->page >> 10);
	if (wish->page)
		return vbn_fail(-ENOBUFS,
				"pool: cannot get %zu pages of %zu KiB: %s "
				"(others took them, or a hugetlb control "
				"group limits them)",
				wish->size / wish->page, wish->page >> 10,
				strerror(-err));
	if (err == -EMFILE)
		fix = "raise ulimit -n, the process's limit of open files";
	if (err == -ENFILE)
		fix = "raise fs.file-max, the machine's limit of open files";
	return vbn_fail(err,
			"pool: cannot get %zu bytes of shared memory: "
			"%s; %s",
			wish->size, strerror(-err), fix);
}

/* Where the pages shall be, before the first is touched. */
static int place(const struct slab *slab, const struct slab_wish *wish)
{
	bool strict = wish->node >= 0;
	int node = wish->node, err;

	if (node == SLAB_NODE_LOCAL)
		node = node_local();
	if (node < 0)
		return 0;
	err = node_bind((void *)slab->range.base, slab->range.size, node,
			strict);
	if (err && !strict)
		vbn_log(VBN_INFO, "%s; its memory may be anywhere",
			vbn_error());
	return strict ? err : 0;
}

static int slab_map(struct slab *slab, const struct slab_wish *wish)
{
	size_t alignment = wish->alignment;
	void *base;
	int err;

	slab->fd = memory_fd(wish);
	if (slab->fd < 0)
		return refused(wish, slab->fd);
	if (alignment < wish->page)
		alignment = wish->page;
	base = map_aligned(slab->fd, wish->size, alignment);
	if (!base) {
		err = refused(wish, -errno);
		goto close;
	}
	slab->range.base = (uintptr_t)base;
	slab->range.size = wish->size;
	err = place(slab, wish);
	if (err)
		goto unmap;
	if (wish->page && fallocate(slab->fd, 0, 0, (off_t)wish->size) < 0) {
		err = refused(wish, -errno);
		goto unmap;
	}
	return 0;

unmap:
	munmap(base, wish->size);
close:
	close(slab->fd);
	return err;
}

int slab_create(struct slab **out, struct vbn_job *job, struct vbn_pool *pool,
		const struct slab_wish *wish)
{
	struct slab *slab;
	int err = check_limits(wish);

	if (err)
		return err;
	slab = calloc(1, sizeof(*slab));
	if (!slab)
		return vbn_fail(-ENOMEM, "pool: out of memory for a slab");
	err = slab_map(slab, wish);
	if (err)
		goto free_slab;
	err = mem_register(job, (void *)slab->range.base, wish->size,
			   wish->access, slab->fd, 0, pool, &slab->mem);
	if (err)
		goto unmap;
	*out = slab;
	return 0;

unmap:
	munmap((void *)slab->range.base, wish->size);
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
