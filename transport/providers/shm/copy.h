/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies to and from memory that another process works on. Small ones are the
 * C library's, or one store; large ones avoid fetching the lines that they
 * overwrite, which the other's cache may hold: figures in docs/perf-shm.md.
 * When a copy returns, later stores are seen after it.
 */
#ifndef SHM_COPY_H
#define SHM_COPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* From here on copy_bulk() is at least as fast; see docs/perf-shm.md. */
#define COPY_BULK ((size_t)256 << 10)

enum copy_way {
	COPY_LIBC,
	COPY_STRING, /* the processor's string move (ERMS) */
	COPY_STREAM, /* non-temporal stores (AVX2) */
};

/* As memmove(), for any length, by the best way that the processor has. */
void copy_bulk(void *dst, const void *src, size_t len);
bool copy_has(enum copy_way way);
/* By a way that it has. */
void copy_by(enum copy_way way, void *dst, const void *src, size_t len);

/*
 * Begin to take the cache line at @dst over from who reads it: sooner than the
 * store could, which waits for all that is before it.
 */
static inline void copy_claim(void *dst)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)dst));
#else
	__builtin_prefetch(dst, 1);
#endif
}

static inline void copy_bytes(void *dst, const void *src, size_t len)
{
	uint64_t word;

	if (len == sizeof(word)) {
		memcpy(&word, src, sizeof(word));
		memcpy(dst, &word, sizeof(word));
	} else if (len < COPY_BULK) {
		memmove(dst, src, len);
	} else {
		copy_bulk(dst, src, len);
	}
}

#endif
