/* SPDX-License-Identifier: BSD-3-Clause */
/* Registrations kept in a list under a lock; see the header. */
#include "fake_mem.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

struct entry {
	struct vbn_mem mem; /* first */
	struct entry *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;
static long holds, registered, good = -1, wrong;
static size_t bytes, peak;
static char job;

struct vbn_job *fake_job(void)
{
	return (struct vbn_job *)&job;
}

#define GETTER(type, name, field)                                              \
	type name(void)                                                        \
	{                                                                      \
		type value;                                                    \
		pthread_mutex_lock(&lock);                                     \
		value = field;                                                 \
		pthread_mutex_unlock(&lock);                                   \
		return value;                                                  \
	}
GETTER(long, fake_mem_holds, holds)
GETTER(long, fake_mem_registered, registered)
GETTER(long, fake_mem_wrong, wrong)
GETTER(size_t, fake_mem_bytes, bytes)
GETTER(size_t, fake_mem_peak, peak)

void fake_mem_fail_after(long n)
{
	pthread_mutex_lock(&lock);
	good = n;
	pthread_mutex_unlock(&lock);
}

void fake_mem_reset_peak(void)
{
	pthread_mutex_lock(&lock);
	peak = bytes;
	pthread_mutex_unlock(&lock);
}

bool fake_mem_holds_range(const void *addr, size_t len)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (struct entry *e = entries; e && !found; e = e->next) {
		size_t offset = (size_t)((const char *)addr -
					 (const char *)e->mem.addr);

		found = offset <= e->mem.len && len <= e->mem.len - offset;
	}
	pthread_mutex_unlock(&lock);
	return found;
}

int fake_mem_fd(const void *addr)
{
	int fd = -1;

	pthread_mutex_lock(&lock);
	for (struct entry *e = entries; e && fd < 0; e = e->next)
		if ((size_t)((const char *)addr - (const char *)e->mem.addr) <
		    e->mem.len)
			fd = e->mem.fd;
	pthread_mutex_unlock(&lock);
	return fd;
}

size_t fake_mem_page(const void *addr)
{
	struct statfs fs;

	return fstatfs(fake_mem_fd(addr), &fs) ? 0 : (size_t)fs.f_bsize;
}

int fake_mem_protect(int prot)
{
	int err = 0;

	pthread_mutex_lock(&lock);
	for (struct entry *e = entries; e && !err; e = e->next)
		err = mprotect(e->mem.addr, e->mem.len, prot);
	pthread_mutex_unlock(&lock);
	return err;
}

static bool slab_is_right(const void *addr, size_t len, int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && (size_t)st.st_size >= len &&
	       (fcntl(fd, F_GETFD) & FD_CLOEXEC) &&
	       (fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) &&
	       (uintptr_t)addr % ((size_t)2 << 20) == 0;
}

int mem_register(struct vbn_job *j, void *addr, size_t len, unsigned access,
		 int fd, uint64_t offset, struct vbn_pool *pool,
		 struct vbn_mem **mem)
{
	struct entry *e;
	bool right = offset == 0 && slab_is_right(addr, len, fd);

	pthread_mutex_lock(&lock);
	if (good == 0) {
		pthread_mutex_unlock(&lock);
		return vbn_fail(-ENOMEM, "fake: no more registrations");
	}
	if (good > 0)
		good--;
	e = calloc(1, sizeof(*e));
	e->mem = (struct vbn_mem){.job = j,
				  .addr = addr,
				  .len = len,
				  .access = access,
				  .fd = fd,
				  .offset = offset,
				  .pool = pool};
	e->next = entries;
	entries = e;
	registered++;
	wrong += !right;
	bytes += len;
	if (bytes > peak)
		peak = bytes;
	*mem = &e->mem;
	pthread_mutex_unlock(&lock);
	return 0;
}

void mem_deregister(struct vbn_mem *mem)
{
	struct entry **p = &entries;

	pthread_mutex_lock(&lock);
	while (*p != (struct entry *)mem)
		p = &(*p)->next;
	*p = (*p)->next;
	registered--;
	bytes -= mem->len;
	free(mem);
	pthread_mutex_unlock(&lock);
}

void job_hold(struct vbn_job *j)
{
	(void)j;
	pthread_mutex_lock(&lock);
	holds++;
	pthread_mutex_unlock(&lock);
}

void job_release(struct vbn_job *j)
{
	(void)j;
	pthread_mutex_lock(&lock);
	holds--;
	pthread_mutex_unlock(&lock);
}
