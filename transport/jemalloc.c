/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the private jemalloc is bound to (see cmake/jemalloc.cmake): its
 * per-thread state, which is one plain structure here, used under one lock;
 * its configuration; and the ways out that it must not take.
 *
 * The state is found through vbn_je_tsd_tls, the distance from the calling
 * thread's pointer to it. It is set with the lock held, so it is right for
 * whoever runs jemalloc code. No thread ever owns the state, hence no
 * destructor for it; a forked child must not use pools, hence no fork
 * handlers either.
 */
#include "jemalloc.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The hook allocator of pool.c is the cache: extents go back to it at once. */
const char *vbn_je_malloc_conf =
	"narenas:1,tcache:false,retain:false,dirty_decay_ms:0,"
	"muzzy_decay_ms:0,background_thread:false,"
	"dss:disabled,metadata_thp:disabled,percpu_arena:disabled,"
	"oversize_threshold:0,stats_print:false";

/*
 * jemalloc 5.3 has no option to turn this off: a page more for each large
 * allocation, which would make a slab for 64 MiB 2 MiB larger.
 */
extern bool vbn_je_i_opt_cache_oblivious __attribute__((visibility("hidden")));
extern char vbn_je_tsd_image[] __attribute__((visibility("hidden")));
extern uintptr_t vbn_je_tsd_tls __attribute__((visibility("hidden")));
uintptr_t vbn_je_tsd_tls;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void jemalloc_lock(void)
{
	pthread_mutex_lock(&mutex);
	vbn_je_i_opt_cache_oblivious = false; /* read at the first call */
	vbn_je_tsd_tls = (uintptr_t)vbn_je_tsd_image -
			 (uintptr_t)__builtin_thread_pointer();
}

void jemalloc_unlock(void)
{
	pthread_mutex_unlock(&mutex);
}

/* Stand-ins for C library calls of the same names. */
int vbn_je_no_pthread_key_create(pthread_key_t *key, void (*fn)(void *));
int vbn_je_no_pthread_setspecific(pthread_key_t key, const void *value);
int vbn_je_no_pthread_atfork(void (*before)(void), void (*parent)(void),
			     void (*child)(void));
int vbn_je_no_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			     void *(*fn)(void *), void *arg);
char *vbn_je_no_secure_getenv(const char *name);
ssize_t vbn_je_no_readlink(const char *path, char *target, size_t len);
int vbn_je_no_atexit(void (*fn)(void));
void *vbn_je_no_sbrk(intptr_t increment);

int vbn_je_no_pthread_key_create(pthread_key_t *key, void (*fn)(void *))
{
	(void)fn;
	*key = 0;
	return 0;
}

int vbn_je_no_pthread_setspecific(pthread_key_t key, const void *value)
{
	(void)key;
	(void)value;
	return 0;
}

int vbn_je_no_pthread_atfork(void (*before)(void), void (*parent)(void),
			     void (*child)(void))
{
	(void)before;
	(void)parent;
	(void)child;
	return 0;
}

int vbn_je_no_pthread_create(pthread_t *thread, const pthread_attr_t *attr,
			     void *(*fn)(void *), void *arg)
{
	(void)thread;
	(void)attr;
	(void)fn;
	(void)arg;
	return EAGAIN;
}

/* Neither MALLOC_CONF nor /etc/malloc.conf is meant for this copy. */
char *vbn_je_no_secure_getenv(const char *name)
{
	(void)name;
	return NULL;
}

ssize_t vbn_je_no_readlink(const char *path, char *target, size_t len)
{
	(void)path;
	(void)target;
	(void)len;
	errno = ENOENT;
	return -1;
}

int vbn_je_no_atexit(void (*fn)(void))
{
	(void)fn;
	return 0;
}

void *vbn_je_no_sbrk(intptr_t increment)
{
	(void)increment;
	errno = ENOMEM;
	return (void *)-1;
}
