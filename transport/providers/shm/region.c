/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Regions over shared memory. Pool memory is mapped (its memfd is fetched
 * from the owner), so that a put is one copy straight into place. Memory that
 * its owner has on the heap cannot be mapped: the kernel copies it across
 * (process_vm_writev), which copied_bytes counts.
 */
#include "shm.h"
#include "wire.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define VM_CHUNK ((size_t)1 << 30) /* below the system call's 2 GiB limit */

struct shm_mem {
	int id; /* at the share; 0: heap */
	uint32_t region;
};

/* What is announced of a region. */
#define ANNOUNCE_BYTES (28 + 4 + SHARE_BYTES)

int shm_tables_open(struct shm_job *pjob)
{
	void *map;

	pjob->table_fd = memfd_create("verbena-regions", MFD_CLOEXEC);
	if (pjob->table_fd < 0 || ftruncate(pjob->table_fd, SHM_TABLE_BYTES))
		return vbn_fail(-errno, "shm: memfd: %s", strerror(errno));
	map = mmap(NULL, SHM_TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
		   pjob->table_fd, 0);
	if (map == MAP_FAILED)
		return vbn_fail(-errno, "shm: mmap: %s", strerror(errno));
	pjob->generations = map;
	pjob->table_id = share_export(pjob->share, pjob->table_fd);
	return pjob->table_id < 0 ? vbn_fail(-ENOMEM, "shm: no memory") : 0;
}

void shm_tables_close(struct shm_job *pjob)
{
	while (pjob->tables) {
		struct shm_table *next = pjob->tables->next;

		munmap((void *)pjob->tables->generations, SHM_TABLE_BYTES);
		free(pjob->tables);
		pjob->tables = next;
	}
	if (pjob->generations)
		munmap((void *)pjob->generations, SHM_TABLE_BYTES);
	if (pjob->table_fd >= 0)
		close(pjob->table_fd);
}

/* The table of the process at @address. */
static int find_table(struct shm_job *pjob, const uint8_t *address, int id,
		      const _Atomic uint32_t **generations)
{
	struct shm_table *table = pjob->tables;
	void *map;
	int fd;

	while (table && memcmp(table->address, address, SHARE_BYTES))
		table = table->next;
	if (table) {
		*generations = table->generations;
		return 0;
	}
	table = calloc(1, sizeof(*table));
	if (!table)
		return vbn_fail(-ENOMEM, "shm: no memory");
	fd = share_fetch(address, id);
	if (fd < 0) {
		free(table);
		return fd;
	}
	map = mmap(NULL, SHM_TABLE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED) {
		free(table);
		return vbn_fail(-errno, "shm: mmap: %s", strerror(errno));
	}
	memcpy(table->address, address, SHARE_BYTES);
	table->generations = map;
	table->next = pjob->tables;
	pjob->tables = table;
	*generations = table->generations;
	return 0;
}

int shm_mem_register(void *pjob, const struct vbn_mem *mem, void **handle,
		     struct blob *announce)
{
	struct shm_job *job = pjob;
	struct shm_mem *m = calloc(1, sizeof(*m));
	uint8_t *p = announce->data;

	if (!m)
		return vbn_fail(-ENOMEM, "shm: no memory");
	if (mem->fd >= 0) {
		m->id = share_export(job->share, mem->fd);
		if (m->id < 0) {
			free(m);
			return vbn_fail(-ENOMEM, "shm: no memory");
		}
	}
	p = put_u32(p, (uint32_t)m->id);
	p = put_u32(p, (uint32_t)getpid());
	p = put_u32(p, mem->access);
	p = put_u64(p, mem->offset);
	p = put_u32(p, (uint32_t)job->table_id);
	p = put_u32(p, mem->region);
	p = put_u32(p, mem->generation);
	memcpy(p, share_address(job->share), SHARE_BYTES);
	announce->len = (size_t)(p - announce->data) + SHARE_BYTES;
	m->region = mem->region;
	atomic_store(&job->generations[mem->region], mem->generation);
	*handle = m;
	return 0;
}

void shm_mem_deregister(void *pjob, void *handle)
{
	struct shm_job *job = pjob;
	struct shm_mem *m = handle;

	atomic_store(&job->generations[m->region], 0);
	if (m->id)
		share_withdraw(job->share, m->id);
	free(m);
}

static int map_region(struct shm_region *region, const uint8_t *address, int id,
		      uint64_t offset, uint64_t length)
{
	int prot = PROT_READ;
	int fd = share_fetch(address, id);
	void *map;

	if (fd < 0)
		return fd;
	if (region->access & (VBN_ACCESS_WRITE | VBN_ACCESS_ATOMIC))
		prot |= PROT_WRITE;
	map = mmap(NULL, length, prot, MAP_SHARED, fd, (off_t)offset);
	close(fd);
	if (map == MAP_FAILED)
		return vbn_fail(-errno, "shm: mmap of %llu bytes: %s",
				(unsigned long long)length, strerror(errno));
	region->map = map;
	region->map_len = length;
	return 0;
}

int shm_region_import(void *pjob, int rank, uint64_t base, uint64_t length,
		      const struct blob *announce, void **import)
{
	const uint8_t *p = announce->data;
	struct shm_region *region;
	struct shm_job *job = pjob;
	int id, err = 0;

	(void)rank;
	if (announce->len != ANNOUNCE_BYTES || get_u32(p + 24) >= SHM_REGIONS)
		return vbn_fail(-EPROTO, "shm: malformed announcement");
	region = calloc(1, sizeof(*region));
	if (!region)
		return vbn_fail(-ENOMEM, "shm: no memory");
	atomic_init(&region->refs, 1);
	id = (int)get_u32(p);
	region->pid = (pid_t)get_u32(p + 4);
	region->access = get_u32(p + 8);
	region->base = base;
	region->generation = get_u32(p + 28);
	region->own = !memcmp(p + 32, share_address(job->share), SHARE_BYTES);
	if (region->own) {
		region->now = job->generations;
		region->map = (char *)(uintptr_t)base;
	} else {
		err = find_table(job, p + 32, (int)get_u32(p + 20),
				 &region->now);
	}
	if (!err && id && !region->own)
		err = map_region(region, p + 32, id, get_u64(p + 12), length);
	if (!err)
		region->now += get_u32(p + 24);
	if (err) {
		free(region);
		return err;
	}
	*import = region;
	return 0;
}

void shm_import_release(void *pjob, void *import)
{
	struct shm_region *region = import;

	(void)pjob;
	if (atomic_load(&region->refs) > 1)
		shm_region_blank(region);
	shm_region_put(region);
}

static int vm_copy(const struct shm_region *region, uint64_t remote,
		   void *local, size_t len, bool write)
{
	while (len) {
		size_t n = len < VM_CHUNK ? len : VM_CHUNK;
		struct iovec here = {local, n};
		struct iovec there = {(void *)(uintptr_t)remote, n};
		ssize_t done = write ? process_vm_writev(region->pid, &here, 1,
							 &there, 1, 0)
				     : process_vm_readv(region->pid, &here, 1,
							&there, 1, 0);

		if (done < 0 && errno == EPERM)
			return vbn_fail(
				-EPERM,
				"shm: process %d's heap may not be accessed "
				"(ptrace_scope, or a container's seccomp "
				"filter): use pool memory, or allow it",
				(int)region->pid);
		if (done <= 0)
			return vbn_fail(done < 0 && errno == ESRCH ? -ECONNRESET
								   : -EACCES,
					"shm: copy to process %d: %s",
					(int)region->pid, strerror(errno));
		local = (char *)local + done;
		remote += (size_t)done;
		len -= (size_t)done;
	}
	return 0;
}

int shm_copy_across(struct shm_conn *conn, const struct shm_region *region,
		    uint64_t remote, void *local, size_t len, bool write)
{
	core_counters(conn->pctx->ctx)->copied_bytes += len;
	return vm_copy(region, remote, local, len, write);
}
