/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The library's private jemalloc (see cmake/jemalloc.cmake). It believes that
 * the process has one thread: every call of it happens between
 * jemalloc_lock() and jemalloc_unlock(), extent hooks included, so they must
 * neither block nor lock again.
 */
#ifndef VBN_JEMALLOC_H
#define VBN_JEMALLOC_H

/* For the types and constants; the functions are the renamed ones below. */
#define JEMALLOC_NO_RENAME
#include <jemalloc/jemalloc.h>

#include <stddef.h>

void *vbn_je_mallocx(size_t size, int flags);
void vbn_je_dallocx(void *ptr, int flags);
int vbn_je_mallctl(const char *name, void *old, size_t *old_len, void *value,
		   size_t len);
extern const char *vbn_je_malloc_conf;

void jemalloc_lock(void);
void jemalloc_unlock(void);

#endif
