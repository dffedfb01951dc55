/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The layers' arithmetic, on plain arrays. Row-major; `rows` counts positions
 * (sequences * context). Gradients of parameters are added to what is there;
 * gradients of activations are overwritten. Outputs may not overlap inputs
 * unless it is said.
 */
#ifndef VBN_TRAINER_KERNELS_H
#define VBN_TRAINER_KERNELS_H

#include "real.h"

#include <stddef.h>
#include <stdint.h>

/* y[rows,out] = x[rows,in] weight[out,in]^T; + bias[out]; + residual, as y.
 * bias and residual may be NULL. */
void linear_forward(int rows, int in, int out, const real *x,
		    const real *weight, const real *bias, const real *residual,
		    real *y);

/* dx[rows,in] = dy[rows,out] weight[out,in] */
void linear_backward_input(int rows, int in, int out, const real *dy,
			   const real *weight, real *dx);

/* dweight[out,in] += dy[rows,out]^T x[rows,in]; dbias[out] += sum of dy's
 * rows, unless NULL. */
void linear_backward_weight(int rows, int in, int out, const real *dy,
			    const real *x, real *dweight, real *dbias);

/* Layer normalisation (Ba et al., 2016), epsilon 1e-5: mean and the inverse
 * deviation of each row are kept for the backward pass. */
void layernorm_forward(int rows, int dim, const real *x, const real *gain,
		       const real *bias, real *y, real *mean, real *inverse);

/* dx = gradient of x, + residual[rows,dim] unless NULL. */
void layernorm_backward(int rows, int dim, const real *dy, const real *x,
			const real *gain, const real *mean, const real *inverse,
			const real *residual, real *dx, real *restrict dgain,
			real *restrict dbias);

/*
 * GELU in tanh form (Hendrycks and Gimpel, 2016):
 *	y = x (1 + tanh(u)) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3)
 * x is overwritten with dy/dx.
 */
void gelu_forward(size_t count, real *x, real *y);

/* x *= y, element by element. */
void multiply(size_t count, real *x, const real *y);

/* y[s,t] = tok[tokens[s,t]] + pos[t] */
void embedding_forward(int sequences, int context, int dim,
		       const uint8_t *tokens, const real *tok, const real *pos,
		       real *y);
void embedding_backward(int sequences, int context, int dim,
			const uint8_t *tokens, const real *dy, real *dtok,
			real *dpos);

/*
 * Replaces the logits[rows,256] by their softmax and returns the sum of
 * -ln softmax(target) over the rows, in nats.
 */
double softmax_loss(int rows, real *logits, const uint8_t *targets);

/* Turns the softmax into the gradient of scale * loss by the logits. */
void softmax_loss_backward(int rows, real *softmax, const uint8_t *targets,
			   real scale);

#endif
