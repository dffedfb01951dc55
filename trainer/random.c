/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * Counter-based random numbers: pure functions, no state.
 */
#include "random.h"

#include <math.h>

#define GAMMA 0x9e3779b97f4a7c15u

__extension__ typedef unsigned __int128 uint128;

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

uint64_t random_bits(uint64_t key, uint64_t i)
{
	return mix(key + (i + 1) * GAMMA);
}

uint64_t random_key(uint64_t seed, const char *name)
{
	uint64_t hash = 0xcbf29ce484222325u;

	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
	/* Mixed twice: close seeds must not give shifted streams. */
	return mix(mix(seed + GAMMA) ^ hash);
}

uint64_t random_subkey(uint64_t key, uint64_t i)
{
	return mix(random_bits(key, i) ^ GAMMA);
}

double random_unit(uint64_t key, uint64_t i)
{
	return (double)(random_bits(key, i) >> 11) * 0x1p-53;
}

uint64_t random_below(uint64_t key, uint64_t i, uint64_t n)
{
	return (uint64_t)(((uint128)random_bits(key, i) * n) >> 64);
}

double random_normal(uint64_t key, uint64_t i)
{
	const uint64_t pair = i & ~(uint64_t)1;
	/* 1 - u is in (0, 1], where the logarithm is finite. */
	const double u = 1.0 - random_unit(key, pair);
	const double angle = 2.0 * M_PI * random_unit(key, pair + 1);
	const double radius = sqrt(-2.0 * log(u));

	return radius * (i & 1 ? sin(angle) : cos(angle));
}
