/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The matrix product, by way of CBLAS: the only file that includes it.
 */
#include "real.h"

#include <cblas.h>

void real_init(int threads)
{
	openblas_set_num_threads(threads < 1 ? 1 : threads);
}

void real_gemm(bool ta, bool tb, int m, int n, int k, real alpha, const real *a,
	       int lda, const real *b, int ldb, real beta, real *c, int ldc)
{
	const enum CBLAS_TRANSPOSE opa = ta ? CblasTrans : CblasNoTrans;
	const enum CBLAS_TRANSPOSE opb = tb ? CblasTrans : CblasNoTrans;

#ifdef VBN_REAL_DOUBLE
	cblas_dgemm(CblasRowMajor, opa, opb, m, n, k, alpha, a, lda, b, ldb,
		    beta, c, ldc);
#else
	cblas_sgemm(CblasRowMajor, opa, opb, m, n, k, alpha, a, lda, b, ldb,
		    beta, c, ldc);
#endif
}
