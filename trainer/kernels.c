/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The layers' arithmetic. Every sum has one fixed order: along a row as
 * simd.h says, over rows from the first to the last.
 */
#include "kernels.h"

#include "model.h"
#include "simd.h"

#define LN_EPSILON ((real)1e-5)

static real *row(real *x, int i, int width)
{
	return x + (size_t)i * (size_t)width;
}

static const real *crow(const real *x, int i, int width)
{
	return x + (size_t)i * (size_t)width;
}

void linear_forward(int rows, int in, int out, const real *x,
		    const real *weight, const real *bias, const real *residual,
		    real *y)
{
	for (int i = 0; bias && i < rows; i++) {
		real *to = row(y, i, out);

		if (residual) {
			const real *from = crow(residual, i, out);

			for (int j = 0; j < out; j++)
				to[j] = from[j] + bias[j];
		} else {
			memcpy(to, bias, (size_t)out * sizeof(real));
		}
	}
	real_gemm(false, true, rows, out, in, 1, x, in, weight, in,
		  bias ? 1 : 0, y, out);
}

void linear_backward_input(int rows, int in, int out, const real *dy,
			   const real *weight, real *dx)
{
	real_gemm(false, false, rows, in, out, 1, dy, out, weight, in, 0, dx,
		  in);
}

void linear_backward_weight(int rows, int in, int out, const real *dy,
			    const real *x, real *dweight, real *dbias)
{
	real_gemm(true, false, out, in, rows, 1, dy, out, x, in, 1, dweight,
		  in);
	if (!dbias)
		return;
	for (int i = 0; i < rows; i++) {
		const real *from = crow(dy, i, out);

		for (int j = 0; j < out; j++)
			dbias[j] += from[j];
	}
}

/* Sum of x, and of (x - centre)^2. */
static real row_sum(const real *x, int n)
{
	vreal sum = simd_set(0);
	int i = 0;

	for (; i + SIMD_LANES <= n; i += SIMD_LANES)
		sum += simd_load(x + i);
	if (i < n)
		sum += simd_load_part(x + i, n - i, 0);
	return simd_sum_lanes(sum);
}

static real row_square_sum(const real *x, int n, real centre)
{
	vreal sum = simd_set(0), d;
	int i = 0;

	for (; i + SIMD_LANES <= n; i += SIMD_LANES) {
		d = simd_load(x + i) - centre;
		sum += d * d;
	}
	if (i < n) {
		d = simd_load_part(x + i, n - i, centre) - centre;
		sum += d * d;
	}
	return simd_sum_lanes(sum);
}

void layernorm_forward(int rows, int dim, const real *x, const real *gain,
		       const real *bias, real *y, real *mean, real *inverse)
{
	for (int i = 0; i < rows; i++) {
		const real *from = crow(x, i, dim);
		real *to = row(y, i, dim);
		const real m = row_sum(from, dim) / (real)dim;
		const real v = row_square_sum(from, dim, m) / (real)dim;
		const real s = (real)(1 / sqrt((double)(v + LN_EPSILON)));

		for (int j = 0; j < dim; j++)
			to[j] = (from[j] - m) * s * gain[j] + bias[j];
		mean[i] = m;
		inverse[i] = s;
	}
}

/* Sums over a row of dxhat and of dxhat * xhat, where dxhat = dy * gain. */
static void layernorm_sums(int dim, const real *dy, const real *x,
			   const real *gain, real mean, real inverse, real *sum,
			   real *dot)
{
	vreal sums = simd_set(0), dots = simd_set(0), d;
	int j = 0;

	for (; j + SIMD_LANES <= dim; j += SIMD_LANES) {
		d = simd_load(dy + j) * simd_load(gain + j);
		sums += d;
		dots += d * ((simd_load(x + j) - mean) * inverse);
	}
	if (j < dim) {
		d = simd_load_part(dy + j, dim - j, 0) *
		    simd_load_part(gain + j, dim - j, 0);
		sums += d;
		dots += d *
			((simd_load_part(x + j, dim - j, 0) - mean) * inverse);
	}
	*sum = simd_sum_lanes(sums);
	*dot = simd_sum_lanes(dots);
}

void layernorm_backward(int rows, int dim, const real *dy, const real *x,
			const real *gain, const real *mean, const real *inverse,
			const real *residual, real *dx, real *restrict dgain,
			real *restrict dbias)
{
	for (int i = 0; i < rows; i++) {
		const real *d = crow(dy, i, dim);
		const real *from = crow(x, i, dim);
		const real *add = residual ? crow(residual, i, dim) : NULL;
		const real m = mean[i], s = inverse[i];
		real *restrict to = row(dx, i, dim);
		real sum, dot;

		layernorm_sums(dim, d, from, gain, m, s, &sum, &dot);
		sum /= (real)dim;
		dot /= (real)dim;
		for (int j = 0; j < dim; j++) {
			const real hat = (from[j] - m) * s;

			dgain[j] += d[j] * hat;
			dbias[j] += d[j];
			to[j] = (d[j] * gain[j] - sum - hat * dot) * s;
		}
		for (int j = 0; add && j < dim; j++)
			to[j] += add[j];
	}
}

/*
 * (1 + tanh(u)) / 2 is the logistic function of 2u, which takes one
 * exponential and loses no digits where the result is small.
 */
static inline vreal gelu(vreal x, vreal *slope)
{
	const real a = (real)0.79788456080286535588; /* sqrt(2 / pi) */
	const real b = (real)0.044715;
	const vreal xx = x * x;
	const vreal u2 = x * (1 + xx * b) * (2 * a);
	const vreal du2 = (1 + xx * (3 * b)) * (2 * a);
	const vreal s = 1 / (1 + simd_exp(-u2));

	*slope = s + x * s * (1 - s) * du2;
	return x * s;
}

void gelu_forward(size_t count, real *x, real *y)
{
	const size_t lanes = (size_t)SIMD_LANES;
	vreal slope;
	size_t i = 0;

	for (; i + lanes <= count; i += lanes) {
		simd_store(y + i, gelu(simd_load(x + i), &slope));
		simd_store(x + i, slope);
	}
	if (i < count) {
		const int n = (int)(count - i);
		const vreal v = simd_load_part(x + i, n, 0);

		simd_store_part(y + i, n, gelu(v, &slope));
		simd_store_part(x + i, n, slope);
	}
}

void multiply(size_t count, real *x, const real *y)
{
	for (size_t i = 0; i < count; i++)
		x[i] *= y[i];
}

void embedding_forward(int sequences, int context, int dim,
		       const uint8_t *tokens, const real *tok, const real *pos,
		       real *y)
{
	for (int i = 0; i < sequences * context; i++) {
		const real *a = crow(tok, tokens[i], dim);
		const real *b = crow(pos, i % context, dim);
		real *to = row(y, i, dim);

		for (int j = 0; j < dim; j++)
			to[j] = a[j] + b[j];
	}
}

void embedding_backward(int sequences, int context, int dim,
			const uint8_t *tokens, const real *dy, real *dtok,
			real *dpos)
{
	for (int i = 0; i < sequences * context; i++) {
		const real *from = crow(dy, i, dim);
		real *a = row(dtok, tokens[i], dim);
		real *b = row(dpos, i % context, dim);

		for (int j = 0; j < dim; j++) {
			a[j] += from[j];
			b[j] += from[j];
		}
	}
}

/* Replaces a row of logits by its softmax; returns ln of sum of e^logit. */
static double softmax_row(real *logits)
{
	vreal max = simd_load(logits), sum = simd_set(0);
	real top, total;

	_Static_assert(MODEL_VOCABULARY % (SIMD_BYTES / sizeof(real)) == 0,
		       "a row of logits is whole vectors");
	for (int j = 0; j < MODEL_VOCABULARY; j += SIMD_LANES)
		max = simd_max(max, simd_load(logits + j));
	top = simd_max_lanes(max);
	for (int j = 0; j < MODEL_VOCABULARY; j += SIMD_LANES) {
		const vreal e = simd_exp(simd_load(logits + j) - top);

		simd_store(logits + j, e);
		sum += e;
	}
	total = simd_sum_lanes(sum);
	for (int j = 0; j < MODEL_VOCABULARY; j++)
		logits[j] *= 1 / total;
	return (double)top + log((double)total);
}

double softmax_loss(int rows, real *logits, const uint8_t *targets)
{
	double loss = 0;

	for (int i = 0; i < rows; i++) {
		real *at = row(logits, i, MODEL_VOCABULARY);
		const double target = (double)at[targets[i]];

		loss += softmax_row(at) - target;
	}
	return loss;
}

void softmax_loss_backward(int rows, real *softmax, const uint8_t *targets,
			   real scale)
{
	for (int i = 0; i < rows; i++) {
		real *at = row(softmax, i, MODEL_VOCABULARY);

		at[targets[i]] -= 1;
		for (int j = 0; j < MODEL_VOCABULARY; j++)
			at[j] *= scale;
	}
}
