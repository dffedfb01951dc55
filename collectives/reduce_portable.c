/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduction kernels: the compiler's vector types alone, of any processor's
 * size. */
#define TABLE  reduce_portable
#define VECTOR 16
#include "reduce_template.h"
