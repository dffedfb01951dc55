/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * Random numbers by counter: a number is a function of (key, index) alone, so
 * that any rank can compute any of them, in any order, without state.
 *
 * The generator is splitmix64 (Steele, Lea and Flood, "Fast splittable
 * pseudorandom number generators", 2014), whose i-th output from state k is
 * mix(k + (i + 1) * gamma).
 */
#ifndef VBN_TRAINER_RANDOM_H
#define VBN_TRAINER_RANDOM_H

#include <stdint.h>

/* The key of the stream `name` (hashed by 64-bit FNV-1a) under a seed. */
uint64_t random_key(uint64_t seed, const char *name);

/* The key of the sub-stream number i of a stream. */
uint64_t random_subkey(uint64_t key, uint64_t i);

/* 64 uniform bits. */
uint64_t random_bits(uint64_t key, uint64_t i);

/* Uniform in [0, 1), a multiple of 2^-53. */
double random_unit(uint64_t key, uint64_t i);

/*
 * Uniform in [0, n), n >= 1. Some values are likelier than others by a share
 * of at most n / 2^64.
 */
uint64_t random_below(uint64_t key, uint64_t i, uint64_t n);

/*
 * Standard normal, by Box and Muller's transform of numbers 2j and 2j + 1,
 * j = i / 2: the cosine for even i, the sine for odd.
 */
double random_normal(uint64_t key, uint64_t i);

#endif
