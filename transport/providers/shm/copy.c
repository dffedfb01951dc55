/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Large copies, by what the processor has: its string move (ERMS), which
 * takes lines over without reading them; else non-temporal stores (AVX2); else
 * the C library's. The first two leave overlapping memory to memmove().
 */
#include "copy.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#define STREAM_MIN   ((size_t)1 << 20) /* non-temporal stores win from here */
#define STREAM_BYTES 128	       /* stored a turn */

bool copy_has(enum copy_way way)
{
	unsigned a, b, c, d;

	switch (way) {
	case COPY_STRING:
		return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 9);
	case COPY_STREAM:
		return __builtin_cpu_supports("avx2");
	default:
		return true;
	}
}

/* @dst aligned to a cache line. Ordered before later stores by itself. */
static void string_move(char *dst, const char *src, size_t len)
{
	__asm__ volatile("rep movsb"
			 : "+D"(dst), "+S"(src), "+c"(len)
			 :
			 : "memory");
}

__attribute__((target("avx2"))) static void stream_32(char *dst,
						      const char *src)
{
	_mm256_stream_si256(
		(__m256i *)(void *)dst,
		_mm256_loadu_si256((const __m256i *)(const void *)src));
}

/* @dst aligned to a cache line. */
__attribute__((target("avx2"))) static void stream(char *dst, const char *src,
						   size_t len)
{
	size_t i;

	for (i = 0; i + STREAM_BYTES <= len; i += STREAM_BYTES)
		for (size_t k = 0; k < STREAM_BYTES; k += 32)
			stream_32(dst + i + k, src + i + k);
	_mm_sfence();
	memcpy(dst + i, src + i, len - i);
}

static bool overlap(const char *a, const char *b, size_t len)
{
	return a < b + len && b < a + len;
}

void copy_by(enum copy_way way, void *dst, const void *src, size_t len)
{
	size_t head = -(uintptr_t)dst & 63;
	const char *s = src;
	char *d = dst;

	if (way == COPY_LIBC || len < head || overlap(d, s, len)) {
		memmove(d, s, len);
		return;
	}
	memcpy(d, s, head);
	if (way == COPY_STRING)
		string_move(d + head, s + head, len - head);
	else
		stream(d + head, s + head, len - head);
}

/*
 * String moves are slow on some processors when the destination is a few bytes
 * ahead of the source within a page; the C library avoids it, too.
 */
static bool is_too_close(const void *dst, const void *src)
{
	uintptr_t ahead = ((uintptr_t)dst - (uintptr_t)src) & 4095;

	return ahead > 0 && ahead < 64;
}

static enum copy_way way_for(const void *dst, const void *src, size_t len)
{
	/* Asked once, without order: each thread gets the same answer. */
	static _Atomic signed char string = -1;

	if (string < 0)
		string = copy_has(COPY_STRING);
	if (string && !is_too_close(dst, src))
		return COPY_STRING;
	if (len >= STREAM_MIN && copy_has(COPY_STREAM))
		return COPY_STREAM;
	return COPY_LIBC;
}

#else

bool copy_has(enum copy_way way)
{
	return way == COPY_LIBC;
}

void copy_by(enum copy_way way, void *dst, const void *src, size_t len)
{
	(void)way;
	memmove(dst, src, len);
}

static enum copy_way way_for(const void *dst, const void *src, size_t len)
{
	(void)dst;
	(void)src;
	(void)len;
	return COPY_LIBC;
}

#endif

void copy_bulk(void *dst, const void *src, size_t len)
{
	copy_by(way_for(dst, src, len), dst, src, len);
}
