/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The trainer's scalar type and its matrix product.
 *
 * `real` is float, or double when VBN_REAL_DOUBLE is defined (the build that
 * gradients are checked in). It is one of the component's two typedefs; the
 * other is its vector, in simd.h. Matrices are row-major everywhere.
 *
 * Nothing here reads the time, the thread count or the process's rank: one
 * program on one machine gives the same bits each time.
 */
#ifndef VBN_TRAINER_REAL_H
#define VBN_TRAINER_REAL_H

#include <stdbool.h>

#ifdef VBN_REAL_DOUBLE
typedef double real;
#define VBN_REAL_NAME "double"
#else
typedef float real;
#define VBN_REAL_NAME "float"
#endif

/*
 * Sets how many threads the BLAS uses in this process; to be called once,
 * before any other call of the trainer. Less than 1 means 1, which is what
 * several ranks sharing a machine want.
 */
void real_init(int threads);

/*
 * c[m,n] = alpha * a' b' + beta * c, where a' is a[m,k], or the transpose of
 * a[k,m] if ta; b' is b[k,n], or the transpose of b[n,k] if tb. lda, ldb and
 * ldc are the distances between the rows as they are stored, in elements.
 * With beta == 0, c is written without being read.
 */
void real_gemm(bool ta, bool tb, int m, int n, int k, real alpha, const real *a,
	       int lda, const real *b, int ldb, real beta, real *c, int ldc);

#endif
