/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * Causal attention, head by head, as matrix products.
 *
 * Query rows are taken in blocks, each against the keys up to the block's end
 * only, which skips most of what the causal mask would throw away. Invariant:
 * within a block, probabilities after the diagonal are exactly 0, so products
 * over whole blocks need no mask.
 */
#include "attention.h"

#include "simd.h"

/* Rows in a block: smaller skips more, larger multiplies faster. */
#define BLOCK 64

/* One head of one sequence: where its parts are, and how rows are spaced. */
struct head {
	const real *query, *key, *value;
	int context, width; /* T, D/H */
	int ld;		    /* between rows of qkv */
	int ld_out;	    /* between rows of out */
	int stride;	    /* between rows of probabilities */
	real scale;	    /* 1 / sqrt(D/H) */
};

static int round_up(int n, int unit)
{
	return (n + unit - 1) / unit * unit;
}

int attention_stride(int context)
{
	return round_up(context, SIMD_LANES);
}

size_t attention_matrix(int context)
{
	return (size_t)attention_stride(context) * (size_t)context;
}

static struct head head_of(const struct attention *shape, const real *qkv,
			   int sequence, int head)
{
	const int width = shape->dim / shape->heads;
	const size_t positions = (size_t)sequence * (size_t)shape->context;
	const real *base =
		qkv + positions * 3 * (size_t)shape->dim + head * width;

	return (struct head){
		.query = base,
		.key = base + shape->dim,
		.value = base + 2 * shape->dim,
		.context = shape->context,
		.width = width,
		.ld = 3 * shape->dim,
		.ld_out = shape->dim,
		.stride = attention_stride(shape->context),
		.scale = (real)(1 / sqrt((double)width)),
	};
}

/* Softmax of the first `valid` scores; 0 from there to `end`, rounded up. */
static void softmax_causal(real *scores, int valid, int end)
{
	const int whole = round_up(valid, SIMD_LANES);
	const int rest = round_up(end, SIMD_LANES) - whole;
	vreal max, sum = simd_set(0);
	real top, factor;

	/* e^-1e30 is 0: what pads the last vector adds nothing. */
	for (int j = valid; j < whole; j++)
		scores[j] = (real)-1e30;
	max = simd_load(scores);
	for (int j = SIMD_LANES; j < whole; j += SIMD_LANES)
		max = simd_max(max, simd_load(scores + j));
	top = simd_max_lanes(max);
	for (int j = 0; j < whole; j += SIMD_LANES) {
		const vreal e = simd_exp(simd_load(scores + j) - top);

		simd_store(scores + j, e);
		sum += e;
	}
	factor = 1 / simd_sum_lanes(sum);
	for (int j = 0; j < whole; j += SIMD_LANES)
		simd_store(scores + j, simd_load(scores + j) * factor);
	memset(scores + whole, 0, (size_t)rest * sizeof(*scores));
}

static void head_forward(const struct head *h, real *probs, real *out)
{
	for (int at = 0; at < h->context; at += BLOCK) {
		const int end =
			at + BLOCK < h->context ? at + BLOCK : h->context;
		real *block = probs + (size_t)at * (size_t)h->stride;

		real_gemm(false, true, end - at, end, h->width, h->scale,
			  h->query + (size_t)at * (size_t)h->ld, h->ld, h->key,
			  h->ld, 0, block, h->stride);
		for (int t = at; t < end; t++)
			softmax_causal(probs + (size_t)t * (size_t)h->stride,
				       t + 1, end);
		real_gemm(false, false, end - at, h->width, end, 1, block,
			  h->stride, h->value, h->ld, 0,
			  out + (size_t)at * (size_t)h->ld_out, h->ld_out);
	}
}

void attention_forward(const struct attention *shape, const real *qkv,
		       real *probs, real *out)
{
	const size_t matrix = attention_matrix(shape->context);
	const size_t sequence = (size_t)shape->context * (size_t)shape->dim;

	for (int s = 0; s < shape->sequences; s++) {
		for (int i = 0; i < shape->heads; i++) {
			const struct head h = head_of(shape, qkv, s, i);

			head_forward(&h, probs, out + i * h.width);
			probs += matrix;
		}
		out += sequence;
	}
}

/*
 * A row of the softmax's backward pass, in place, scale included:
 * dscore = scale * p * (dp - sum of p * dp).
 */
static void softmax_backward(const real *probs, real *d, int end, real scale)
{
	vreal dots = simd_set(0);
	real dot;

	for (int j = 0; j < end; j += SIMD_LANES)
		dots += simd_load(probs + j) * simd_load(d + j);
	dot = simd_sum_lanes(dots);
	for (int j = 0; j < end; j += SIMD_LANES)
		simd_store(d + j, simd_load(probs + j) * scale *
					  (simd_load(d + j) - dot));
}

/* dout is the head's columns of the gradient of out; dquery, dkey and dvalue
 * are spaced as qkv is. */
static void head_backward(const struct head *h, const real *probs,
			  const real *dout, real *dquery, real *scratch)
{
	real *dkey = dquery + h->ld / 3, *dvalue = dkey + h->ld / 3;
	const int blocks = (h->context + BLOCK - 1) / BLOCK;

	/* The last block reaches every key: it sets, the others add. */
	for (int b = blocks - 1; b >= 0; b--) {
		const int at = b * BLOCK;
		const int end = b == blocks - 1 ? h->context : at + BLOCK;
		const real beta = b == blocks - 1 ? 0 : 1;
		const size_t skip = (size_t)at * (size_t)h->ld;
		const real *p = probs + (size_t)at * (size_t)h->stride;
		const real *d = dout + (size_t)at * (size_t)h->ld_out;

		real_gemm(true, false, end, h->width, end - at, 1, p, h->stride,
			  d, h->ld_out, beta, dvalue, h->ld);
		real_gemm(false, true, end - at, end, h->width, 1, d, h->ld_out,
			  h->value, h->ld, 0, scratch, h->stride);
		for (int t = at; t < end; t++) {
			const size_t skipped =
				(size_t)(t - at) * (size_t)h->stride;
			real *ds = scratch + skipped;

			softmax_backward(p + skipped, ds, end, h->scale);
		}
		real_gemm(false, false, end - at, h->width, end, 1, scratch,
			  h->stride, h->key, h->ld, 0, dquery + skip, h->ld);
		real_gemm(true, false, end, h->width, end - at, 1, scratch,
			  h->stride, h->query + skip, h->ld, beta, dkey, h->ld);
	}
}

void attention_backward(const struct attention *shape, const real *qkv,
			const real *probs, const real *dout, real *dqkv,
			real *scratch)
{
	const size_t matrix = attention_matrix(shape->context);
	const size_t sequence = (size_t)shape->context * (size_t)shape->dim;

	for (int s = 0; s < shape->sequences; s++) {
		for (int i = 0; i < shape->heads; i++) {
			const struct head h = head_of(shape, qkv, s, i);

			head_backward(&h, probs, dout + i * h.width,
				      dqkv + i * h.width, scratch);
			probs += matrix;
		}
		dout += sequence;
		dqkv += 3 * sequence;
	}
}
