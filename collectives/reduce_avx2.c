/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduction kernels: AVX2 and F16C. */
#include <immintrin.h>

#define widen(half) ((vec)_mm256_cvtepu16_epi32((__m128i)(half)))
/* The pack works in each 128-bit half: its quarters 0 and 2 are the result. */
#define narrow(v)                                                              \
	((v_half)_mm256_castsi256_si128(_mm256_permute4x64_epi64(              \
		_mm256_packus_epi32((__m256i)(v), (__m256i)(v)), 0x08)))
#define float16_to_float32(half) ((vec)_mm256_cvtph_ps((__m128i)(half)))
#define float32_to_float16(v)                                                  \
	((v_half)_mm256_cvtps_ph((__m256)(v), _MM_FROUND_TO_NEAREST_INT))

#define TABLE  reduce_avx2
#define VECTOR 32
#include "reduce_template.h"
