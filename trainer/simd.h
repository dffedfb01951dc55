/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * Short vectors of `real`, in the compilers' portable vector extension.
 *
 * Reductions are written with these rather than left to the compiler, so that
 * their order of summation is fixed: element i goes to lane i % SIMD_LANES,
 * and lanes are added pairwise. An element's value never depends on its place
 * in an array: a tail is padded to a whole vector and takes the same path.
 */
#ifndef VBN_TRAINER_SIMD_H
#define VBN_TRAINER_SIMD_H

#include "real.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define SIMD_BYTES 32
#define SIMD_LANES ((int)(SIMD_BYTES / sizeof(real)))

typedef real vreal __attribute__((vector_size(SIMD_BYTES)));

#ifdef VBN_REAL_DOUBLE
typedef int64_t vbits __attribute__((vector_size(SIMD_BYTES)));
#else
typedef int32_t vbits __attribute__((vector_size(SIMD_BYTES)));
#endif

static inline vreal simd_set(real x)
{
	return x - (vreal){0};
}

static inline vreal simd_load(const real *p)
{
	vreal v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline void simd_store(real *p, vreal v)
{
	memcpy(p, &v, sizeof(v));
}

/* The first n elements (less than a vector) at p; `fill` in the rest. */
static inline vreal simd_load_part(const real *p, int n, real fill)
{
	vreal v = simd_set(fill);

	for (int i = 0; i < n; i++)
		v[i] = p[i];
	return v;
}

static inline void simd_store_part(real *p, int n, vreal v)
{
	for (int i = 0; i < n; i++)
		p[i] = v[i];
}

/* Lane by lane: mask ? a : b, where mask is the result of a comparison. */
static inline vreal simd_select(vbits mask, vreal a, vreal b)
{
	return (vreal)((mask & (vbits)a) | (~mask & (vbits)b));
}

static inline vreal simd_max(vreal a, vreal b)
{
	return simd_select((vbits)(a > b), a, b);
}

static inline vreal simd_min(vreal a, vreal b)
{
	return simd_select((vbits)(a < b), a, b);
}

static inline real simd_sum_lanes(vreal v)
{
	for (int width = SIMD_LANES / 2; width > 0; width /= 2)
		for (int i = 0; i < width; i++)
			v[i] += v[i + width];
	return v[0];
}

static inline real simd_max_lanes(vreal v)
{
	real max = v[0];

	for (int i = 1; i < SIMD_LANES; i++)
		max = v[i] > max ? v[i] : max;
	return max;
}

#ifdef VBN_REAL_DOUBLE

static inline vreal simd_exp(vreal x)
{
	for (int i = 0; i < SIMD_LANES; i++)
		x[i] = exp(x[i]);
	return x;
}

#else

/*
 * e^x to 2 units in the last place, 0 where the result would be subnormal and
 * e^88 above 88. The argument is reduced to n ln 2 + r, |r| <= ln 2 / 2; the
 * polynomial in r is that of expf() in Moshier's Cephes library.
 */
static inline vreal simd_exp(vreal x)
{
	const vreal low = simd_set(-87.33f);
	/* Adding 1.5 * 2^23 rounds to an integer, left in the low bits. */
	const vreal magic = simd_set(12582912.0f);
	const vbits normal = (vbits)(x > low);
	vreal t, n, r, p;

	x = simd_max(simd_min(x, simd_set(88.0f)), low);
	t = x * 1.44269504f + magic;
	n = t - magic;
	r = x - n * 0.693359375f;
	r = r + n * 2.12194440e-4f;
	p = r * 1.9875691500e-4f + 1.3981999507e-3f;
	p = p * r + 8.3334519073e-3f;
	p = p * r + 4.1665795894e-2f;
	p = p * r + 1.6666665459e-1f;
	p = p * r + 5.0000001201e-1f;
	p = p * r * r + r + 1.0f;
	p = (vreal)((vbits)p + (((vbits)t - (vbits)magic) << 23));
	return (vreal)((vbits)p & normal);
}

#endif

#endif
