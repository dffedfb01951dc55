/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * Causal multi-head attention (Vaswani et al., 2017) over a micro-batch.
 *
 * qkv is [S, T, 3, H, D/H]: query, key and value of each position, all heads.
 * Rows of probabilities are `stride` elements apart, T rounded up to whole
 * vectors; of row t, elements after t are 0 up to the end of the block of rows
 * that is computed at once, and unspecified after it.
 */
#ifndef VBN_TRAINER_ATTENTION_H
#define VBN_TRAINER_ATTENTION_H

#include "real.h"

#include <stddef.h>

struct attention {
	int sequences; /* S */
	int context;   /* T */
	int dim;       /* D */
	int heads;     /* H */
};

/* Elements between rows of probabilities, and in the matrix of one head. */
int attention_stride(int context);
size_t attention_matrix(int context);

/* out[S,T,D] and probs[S,H,matrix], which the backward pass reads. */
void attention_forward(const struct attention *shape, const real *qkv,
		       real *probs, real *out);

/* dqkv, as qkv, from dout[S,T,D]. scratch is one matrix, initialised once to
 * any finite values. */
void attention_backward(const struct attention *shape, const real *qkv,
			const real *probs, const real *dout, real *dqkv,
			real *scratch);

#endif
