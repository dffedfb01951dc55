/* SPDX-License-Identifier: BSD-3-Clause */
/* A pattern in words of 8 bytes, each a mixture of seed and index. */
#include "check.h"

#include <string.h>

static uint64_t word(uint64_t index, uint64_t seed)
{
	uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u + index;

	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
	return x ^ (x >> 32);
}

void check_fill(uint8_t *data, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t w = word(i / 8, seed);

		memcpy(data + i, &w, len - i < 8 ? len - i : 8);
	}
}

uint8_t check_byte(size_t offset, uint64_t seed)
{
	uint64_t w = word(offset / 8, seed);
	uint8_t bytes[8];

	memcpy(bytes, &w, 8);
	return bytes[offset % 8];
}

size_t check_find(const uint8_t *data, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i += 8) {
		uint64_t w = word(i / 8, seed);
		size_t n = len - i < 8 ? len - i : 8;

		for (size_t k = 0; memcmp(data + i, &w, n) != 0 && k < n; k++)
			if (data[i + k] != check_byte(i + k, seed))
				return i + k;
	}
	return len;
}
