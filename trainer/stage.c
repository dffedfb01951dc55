/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * A pipeline stage's forward and backward passes. Nothing is recomputed but
 * the normalised rows; every buffer is written before it is read.
 */
#include "stage_internal.h"

#include "attention.h"
#include "kernels.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Offsets of tensors: of layer l of this stage, and of those at its ends. */
static size_t layer_offset(const struct stage *stage, int l,
			   enum layer_tensor which)
{
	const bool token =
		stage->part.first || (stage->part.last && stage->config.tied);
	const int before = token + stage->part.first;

	return stage->tensors[before + l * LAYER_TENSORS + (int)which].offset;
}

static size_t norm_offset(const struct stage *stage, int which)
{
	const int after = stage->config.tied ? 2 : 3;

	return stage->tensors[stage->tensor_count - after + which].offset;
}

static size_t head_offset(const struct stage *stage)
{
	return stage->config.tied
		       ? 0
		       : stage->tensors[stage->tensor_count - 1].offset;
}

static size_t position_offset(const struct stage *stage)
{
	return stage->tensors[1].offset;
}

static const real *layer_param(const struct stage *stage, int l,
			       enum layer_tensor which)
{
	return stage->params + layer_offset(stage, l, which);
}

static real *layer_grad(const struct stage *stage, int l,
			enum layer_tensor which)
{
	return stage->grads + layer_offset(stage, l, which);
}

static struct attention attention_shape(const struct stage *stage,
					const struct slot *slot)
{
	return (struct attention){
		.sequences = slot->sequences,
		.context = stage->config.context,
		.dim = stage->config.dim,
		.heads = stage->config.heads,
	};
}

static int slot_rows(const struct stage *stage, const struct slot *slot)
{
	return slot->sequences * stage->config.context;
}

static void layer_forward(const struct stage *stage, struct slot *slot, int l,
			  real *out)
{
	const struct attention shape = attention_shape(stage, slot);
	const int rows = slot_rows(stage, slot), dim = stage->config.dim;
	const real *x = slot->borders[l].x;
	const struct layer *a = &slot->layers[l];
#define PARAM(which) layer_param(stage, l, which)

	layernorm_forward(rows, dim, x, PARAM(LN1_GAIN), PARAM(LN1_BIAS),
			  a->ln1, a->mean1, a->inverse1);
	linear_forward(rows, dim, 3 * dim, a->ln1, PARAM(QKV_WEIGHT),
		       PARAM(QKV_BIAS), NULL, a->qkv);
	attention_forward(&shape, a->qkv, a->probs, a->att);
	linear_forward(rows, dim, dim, a->att, PARAM(PROJ_WEIGHT),
		       PARAM(PROJ_BIAS), x, a->mid);
	layernorm_forward(rows, dim, a->mid, PARAM(LN2_GAIN), PARAM(LN2_BIAS),
			  a->ln2, a->mean2, a->inverse2);
	linear_forward(rows, dim, 4 * dim, a->ln2, PARAM(UP_WEIGHT),
		       PARAM(UP_BIAS), NULL, a->up);
	gelu_forward((size_t)rows * 4 * (size_t)dim, a->up, a->act);
	linear_forward(rows, 4 * dim, dim, a->act, PARAM(DOWN_WEIGHT),
		       PARAM(DOWN_BIAS), a->mid, out);
}

static void layer_backward_input(const struct stage *stage, struct slot *slot,
				 int l, real *dx)
{
	const struct attention shape = attention_shape(stage, slot);
	const int rows = slot_rows(stage, slot), dim = stage->config.dim;
	const real *dout = slot->borders[l + 1].dx;
	const struct layer *a = &slot->layers[l];
	real *narrow = stage->narrow, *wide = stage->wide;
#define GRAD(which) layer_grad(stage, l, which)

	linear_backward_input(rows, 4 * dim, dim, dout, PARAM(DOWN_WEIGHT),
			      wide);
	multiply((size_t)rows * 4 * (size_t)dim, a->up, wide);
	linear_backward_input(rows, dim, 4 * dim, a->up, PARAM(UP_WEIGHT),
			      narrow);
	layernorm_backward(rows, dim, narrow, a->mid, PARAM(LN2_GAIN), a->mean2,
			   a->inverse2, dout, a->dmid, GRAD(LN2_GAIN),
			   GRAD(LN2_BIAS));
	linear_backward_input(rows, dim, dim, a->dmid, PARAM(PROJ_WEIGHT),
			      narrow);
	attention_backward(&shape, a->qkv, a->probs, narrow, a->dqkv,
			   stage->matrix);
	linear_backward_input(rows, dim, 3 * dim, a->dqkv, PARAM(QKV_WEIGHT),
			      narrow);
	layernorm_backward(rows, dim, narrow, slot->borders[l].x,
			   PARAM(LN1_GAIN), a->mean1, a->inverse1, a->dmid, dx,
			   GRAD(LN1_GAIN), GRAD(LN1_BIAS));
#undef PARAM
}

static void layer_backward_weight(const struct stage *stage,
				  const struct slot *slot, int l)
{
	const int rows = slot_rows(stage, slot), dim = stage->config.dim;
	const real *dout = slot->borders[l + 1].dx;
	const struct layer *a = &slot->layers[l];

	linear_backward_weight(rows, 4 * dim, dim, dout, a->act,
			       GRAD(DOWN_WEIGHT), GRAD(DOWN_BIAS));
	linear_backward_weight(rows, dim, 4 * dim, a->up, a->ln2,
			       GRAD(UP_WEIGHT), GRAD(UP_BIAS));
	linear_backward_weight(rows, dim, dim, a->dmid, a->att,
			       GRAD(PROJ_WEIGHT), GRAD(PROJ_BIAS));
	linear_backward_weight(rows, dim, 3 * dim, a->dqkv, a->ln1,
			       GRAD(QKV_WEIGHT), GRAD(QKV_BIAS));
#undef GRAD
}

/* The final norm and the head, over rows of x; logits is [rows, 256]. */
static void head_forward(const struct stage *stage, struct slot *slot, int rows,
			 const real *x, real *logits)
{
	const int dim = stage->config.dim;

	layernorm_forward(rows, dim, x, stage->params + norm_offset(stage, 0),
			  stage->params + norm_offset(stage, 1), slot->ln,
			  slot->mean, slot->inverse);
	linear_forward(rows, dim, MODEL_VOCABULARY, slot->ln,
		       stage->params + head_offset(stage), NULL, NULL, logits);
}

static void head_backward_input(const struct stage *stage, struct slot *slot,
				real scale)
{
	const int rows = slot_rows(stage, slot), dim = stage->config.dim;
	struct border *border = &slot->borders[stage->layers];

	softmax_loss_backward(rows, slot->softmax, slot->targets, scale);
	linear_backward_input(rows, dim, MODEL_VOCABULARY, slot->softmax,
			      stage->params + head_offset(stage),
			      stage->narrow);
	layernorm_backward(rows, dim, stage->narrow, border->x,
			   stage->params + norm_offset(stage, 0), slot->mean,
			   slot->inverse, NULL, border->own_dx,
			   stage->grads + norm_offset(stage, 0),
			   stage->grads + norm_offset(stage, 1));
	border->dx = border->own_dx;
}

static void head_backward_weight(const struct stage *stage,
				 const struct slot *slot)
{
	linear_backward_weight(slot_rows(stage, slot), stage->config.dim,
			       MODEL_VOCABULARY, slot->softmax, slot->ln,
			       stage->grads + head_offset(stage), NULL);
}

/* The logits of one position of each sequence. */
static void logits_forward(const struct stage *stage, struct slot *slot,
			   const struct stage_io *io)
{
	const size_t dim = (size_t)stage->config.dim;
	const real *x = slot->borders[stage->layers].x;

	for (int s = 0; s < slot->sequences; s++) {
		const size_t from = (size_t)s * (size_t)stage->config.context +
				    (size_t)io->position;

		memcpy(stage->narrow + (size_t)s * dim, x + from * dim,
		       dim * sizeof(*x));
	}
	head_forward(stage, slot, slot->sequences, stage->narrow, io->logits);
}

static struct slot *slot_at(const struct stage *stage, int slot)
{
	assert(slot >= 0 && slot < stage->slot_count);
	return &stage->slots[slot];
}

double stage_forward(struct stage *stage, int slot_index, int sequences,
		     const struct stage_io *io)
{
	struct slot *slot = slot_at(stage, slot_index);
	struct border *borders = slot->borders;
	const int layers = stage->layers;

	assert(sequences >= 1 && sequences <= stage->max_sequences);
	slot->sequences = sequences;
	slot->tokens = io->tokens;
	slot->targets = io->targets;
	if (stage->part.first)
		embedding_forward(sequences, stage->config.context,
				  stage->config.dim, io->tokens, stage->params,
				  stage->params + position_offset(stage),
				  borders[0].own_x);
	borders[0].x = stage->part.first ? borders[0].own_x : io->input;
	for (int l = 0; l < layers; l++) {
		const bool out = l == layers - 1 && !stage->part.last;
		real *to = out ? io->output : borders[l + 1].own_x;

		layer_forward(stage, slot, l, to);
		borders[l + 1].x = to;
	}
	slot->state = SLOT_FORWARD;
	if (!stage->part.last)
		return 0;
	if (!io->targets) {
		slot->state = SLOT_EMPTY;
		if (io->logits)
			logits_forward(stage, slot, io);
		return 0;
	}
	head_forward(stage, slot, slot_rows(stage, slot), borders[layers].x,
		     slot->softmax);
	return softmax_loss(slot_rows(stage, slot), slot->softmax,
			    slot->targets);
}

static void backward(struct stage *stage, struct slot *slot, real scale,
		     const real *output_grad, real *input_grad, bool weights)
{
	struct border *borders = slot->borders;

	assert(slot->state == SLOT_FORWARD && stage->grads);
	borders[stage->layers].dx = output_grad;
	if (stage->part.last)
		head_backward_input(stage, slot, scale);
	if (stage->part.last && weights)
		head_backward_weight(stage, slot);
	for (int l = stage->layers - 1; l >= 0; l--) {
		const bool in = l == 0 && !stage->part.first;
		real *to = in ? input_grad : borders[l].own_dx;

		layer_backward_input(stage, slot, l, to);
		borders[l].dx = to;
		/* At once, while what both read is still in the cache. */
		if (weights)
			layer_backward_weight(stage, slot, l);
	}
	slot->state = SLOT_INPUT;
}

static void embeddings_backward(const struct stage *stage,
				const struct slot *slot)
{
	embedding_backward(slot->sequences, stage->config.context,
			   stage->config.dim, slot->tokens, slot->borders[0].dx,
			   stage->grads, stage->grads + position_offset(stage));
}

void stage_backward(struct stage *stage, int slot_index, real scale,
		    const real *output_grad, real *input_grad)
{
	struct slot *slot = slot_at(stage, slot_index);

	backward(stage, slot, scale, output_grad, input_grad, true);
	if (stage->part.first)
		embeddings_backward(stage, slot);
	slot->state = SLOT_EMPTY;
}

void stage_backward_input(struct stage *stage, int slot_index, real scale,
			  const real *output_grad, real *input_grad)
{
	backward(stage, slot_at(stage, slot_index), scale, output_grad,
		 input_grad, false);
}

void stage_backward_weight(struct stage *stage, int slot_index)
{
	struct slot *slot = slot_at(stage, slot_index);

	assert(slot->state == SLOT_INPUT);
	if (stage->part.last)
		head_backward_weight(stage, slot);
	for (int l = stage->layers - 1; l >= 0; l--)
		layer_backward_weight(stage, slot, l);
	if (stage->part.first)
		embeddings_backward(stage, slot);
	slot->state = SLOT_EMPTY;
}

double stage_logits_loss(const real *logits, uint8_t target)
{
	double max = (double)logits[0], sum = 0;

	for (int i = 1; i < MODEL_VOCABULARY; i++)
		max = fmax(max, (double)logits[i]);
	for (int i = 0; i < MODEL_VOCABULARY; i++)
		sum += exp((double)logits[i] - max);
	return max + log(sum) - (double)logits[target];
}

uint8_t stage_logits_sample(const real *logits, double temperature, double u)
{
	double max = (double)logits[0], sum = 0, at = 0;
	int best = 0;

	for (int i = 1; i < MODEL_VOCABULARY; i++) {
		if ((double)logits[i] > max) {
			max = (double)logits[i];
			best = i;
		}
	}
	if (temperature <= 0)
		return (uint8_t)best;
	for (int i = 0; i < MODEL_VOCABULARY; i++)
		sum += exp(((double)logits[i] - max) / temperature);
	for (int i = 0; i < MODEL_VOCABULARY; i++) {
		at += exp(((double)logits[i] - max) / temperature) / sum;
		if (u < at)
			return (uint8_t)i;
	}
	return (uint8_t)best;
}
