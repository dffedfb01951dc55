/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * Making a stage: one arena, measured first and carved then by the same code,
 * so that the two cannot disagree.
 */
#include "stage_internal.h"

#include "attention.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Carves an arena; without a base, only adds up what would be taken. */
struct carver {
	char *base;
	size_t used;
	bool overflow;
};

static real *take(struct carver *carver, size_t rows, size_t width)
{
	char *at = carver->base ? carver->base + carver->used : NULL;
	size_t bytes;

	if (__builtin_mul_overflow(rows, width * sizeof(real), &bytes) ||
	    bytes > SIZE_MAX / 4 ||
	    __builtin_add_overflow(carver->used, (bytes + 63) / 64 * 64,
				   &carver->used))
		carver->overflow = true;
	return (real *)(void *)at;
}

static void carve_layer(struct carver *carver, struct layer *layer,
			const struct stage *stage, size_t rows)
{
	const size_t dim = (size_t)stage->config.dim;
	const size_t heads =
		(size_t)stage->max_sequences * (size_t)stage->config.heads;

	layer->mean1 = take(carver, rows, 1);
	layer->inverse1 = take(carver, rows, 1);
	layer->ln1 = take(carver, rows, dim);
	layer->qkv = take(carver, rows, 3 * dim);
	layer->probs =
		take(carver, heads, attention_matrix(stage->config.context));
	layer->att = take(carver, rows, dim);
	layer->mid = take(carver, rows, dim);
	layer->mean2 = take(carver, rows, 1);
	layer->inverse2 = take(carver, rows, 1);
	layer->ln2 = take(carver, rows, dim);
	layer->up = take(carver, rows, 4 * dim);
	layer->act = take(carver, rows, 4 * dim);
	if (stage->grads) {
		layer->dmid = take(carver, rows, dim);
		layer->dqkv = take(carver, rows, 3 * dim);
	}
}

static void carve_slot(struct carver *carver, struct slot *slot,
		       const struct stage *stage, size_t rows)
{
	const size_t dim = (size_t)stage->config.dim;

	for (int l = 0; l <= stage->layers; l++) {
		struct border *border = &slot->borders[l];

		if (l > 0 || stage->part.first) {
			if (l < stage->layers || stage->part.last)
				border->own_x = take(carver, rows, dim);
			if (stage->grads)
				border->own_dx = take(carver, rows, dim);
		}
	}
	for (int l = 0; l < stage->layers; l++)
		carve_layer(carver, &slot->layers[l], stage, rows);
	if (!stage->part.last)
		return;
	slot->mean = take(carver, rows, 1);
	slot->inverse = take(carver, rows, 1);
	slot->ln = take(carver, rows, dim);
	slot->softmax = take(carver, rows, MODEL_VOCABULARY);
}

static void carve_stage(struct carver *carver, struct stage *stage)
{
	const size_t dim = (size_t)stage->config.dim;
	const size_t rows =
		stage_activation_count(stage, stage->max_sequences) / dim;

	for (int i = 0; i < stage->slot_count; i++)
		carve_slot(carver, &stage->slots[i], stage, rows);
	stage->narrow = take(carver, rows, dim);
	if (stage->grads) {
		stage->wide = take(carver, rows, 4 * dim);
		stage->matrix = take(carver, 1,
				     attention_matrix(stage->config.context));
	}
}

static int allocate_tables(struct stage *stage)
{
	const size_t slots = (size_t)stage->slot_count;
	const size_t layers = (size_t)stage->layers;

	stage->tensors =
		calloc((size_t)stage->tensor_count, sizeof(*stage->tensors));
	stage->slots = calloc(slots, sizeof(*stage->slots));
	stage->all_layers =
		calloc(slots * layers + 1, sizeof(*stage->all_layers));
	stage->all_borders =
		calloc(slots * (layers + 1), sizeof(*stage->all_borders));
	if (!stage->tensors || !stage->slots || !stage->all_layers ||
	    !stage->all_borders)
		return -ENOMEM;
	for (size_t i = 0; i < slots; i++) {
		stage->slots[i].layers = stage->all_layers + i * layers;
		stage->slots[i].borders = stage->all_borders + i * (layers + 1);
	}
	return 0;
}

static int allocate_arena(struct stage *stage)
{
	struct carver carver = {.base = NULL};

	carve_stage(&carver, stage);
	if (carver.overflow)
		return -ENOMEM;
	stage->bytes = carver.used;
	stage->arena = aligned_alloc(64, stage->bytes);
	if (!stage->arena)
		return -ENOMEM;
	/* Also makes the paddings finite, which attention asks for. */
	memset(stage->arena, 0, stage->bytes);
	carver = (struct carver){.base = stage->arena};
	carve_stage(&carver, stage);
	return 0;
}

int stage_create(const struct model_config *config,
		 const struct model_part *part, int max_sequences, int slots,
		 const real *params, real *grads, struct stage **out)
{
	struct stage *stage;

	if (max_sequences < 1 || slots < 1 ||
	    max_sequences > INT_MAX / config->context)
		return -EINVAL;
	stage = calloc(1, sizeof(*stage));
	if (!stage)
		return -ENOMEM;
	stage->config = *config;
	stage->part = *part;
	stage->layers = part->last_layer - part->first_layer;
	stage->max_sequences = max_sequences;
	stage->slot_count = slots;
	stage->params = params;
	stage->grads = grads;
	stage->tensor_count = model_tensor_count(config, part);
	if (allocate_tables(stage) || allocate_arena(stage)) {
		stage_destroy(stage);
		return -ENOMEM;
	}
	model_tensors(config, part, stage->tensors);
	*out = stage;
	return 0;
}

void stage_destroy(struct stage *stage)
{
	if (!stage)
		return;
	free(stage->arena);
	free(stage->all_borders);
	free(stage->all_layers);
	free(stage->slots);
	free(stage->tensors);
	free(stage);
}

const struct tensor *stage_tensors(const struct stage *stage, int *count)
{
	*count = stage->tensor_count;
	return stage->tensors;
}

size_t stage_bytes(const struct stage *stage)
{
	return stage->bytes;
}

size_t stage_activation_count(const struct stage *stage, int sequences)
{
	return (size_t)sequences * (size_t)stage->config.context *
	       (size_t)stage->config.dim;
}
