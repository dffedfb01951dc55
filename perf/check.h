/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data that can be told from other data: what --validate sends and expects.
 * Pure functions.
 */
#ifndef PERF_CHECK_H
#define PERF_CHECK_H

#include <stddef.h>
#include <stdint.h>

/* Every byte depends on the seed and its offset. */
void check_fill(uint8_t *data, size_t len, uint64_t seed);
/* The offset of the first byte that is not so, or @len. */
size_t check_find(const uint8_t *data, size_t len, uint64_t seed);
/* What the byte at @offset should be. */
uint8_t check_byte(size_t offset, uint64_t seed);

#endif
