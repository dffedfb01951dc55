/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduction kernels: AVX-512 F, BW, DQ and VL. */
#include <immintrin.h>

#define widen(half)		 ((vec)_mm512_cvtepu16_epi32((__m256i)(half)))
#define narrow(v)		 ((v_half)_mm512_cvtepi32_epi16((__m512i)(v)))
#define float16_to_float32(half) ((vec)_mm512_cvtph_ps((__m256i)(half)))
#define float32_to_float16(v)                                                  \
	((v_half)_mm512_cvtps_ph((__m512)(v), _MM_FROUND_TO_NEAREST_INT))

#define TABLE  reduce_avx512
#define VECTOR 64
#include "reduce_template.h"
