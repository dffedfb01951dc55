/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The model's shape: configuration, cut into stages, tensor lists, initial
 * values. The tensor list is the single description of a stage's buffer; all
 * offsets come from it.
 */
#include "model.h"

#include "random.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAX_LAYERS  1024
#define MAX_DIM	    16384
#define MAX_CONTEXT 16384

struct layer_entry {
	const char *name;
	int rows, columns; /* in units of dim; no columns: a vector */
	enum tensor_init init;
};

static const struct layer_entry layer_entries[LAYER_TENSORS] = {
	[LN1_GAIN] = {"ln1.gain", 1, 0, TENSOR_ONE},
	[LN1_BIAS] = {"ln1.bias", 1, 0, TENSOR_ZERO},
	[QKV_WEIGHT] = {"attn.qkv.weight", 3, 1, TENSOR_NORMAL},
	[QKV_BIAS] = {"attn.qkv.bias", 3, 0, TENSOR_ZERO},
	[PROJ_WEIGHT] = {"attn.proj.weight", 1, 1, TENSOR_RESIDUAL},
	[PROJ_BIAS] = {"attn.proj.bias", 1, 0, TENSOR_ZERO},
	[LN2_GAIN] = {"ln2.gain", 1, 0, TENSOR_ONE},
	[LN2_BIAS] = {"ln2.bias", 1, 0, TENSOR_ZERO},
	[UP_WEIGHT] = {"mlp.up.weight", 4, 1, TENSOR_NORMAL},
	[UP_BIAS] = {"mlp.up.bias", 4, 0, TENSOR_ZERO},
	[DOWN_WEIGHT] = {"mlp.down.weight", 1, 4, TENSOR_RESIDUAL},
	[DOWN_BIAS] = {"mlp.down.bias", 1, 0, TENSOR_ZERO},
};

/* Where the list being written stands. */
struct cursor {
	struct tensor *next;
	size_t offset;
};

static int check_range(const char *what, int value, int max, char *why,
		       size_t size)
{
	if (value >= 1 && value <= max)
		return 0;
	snprintf(why, size, "%s is %d: choose a number from 1 to %d", what,
		 value, max);
	return -EINVAL;
}

int model_config_check(const struct model_config *config, char *why,
		       size_t size)
{
	if (check_range("the number of layers", config->layers, MAX_LAYERS, why,
			size) ||
	    check_range("the width (dim)", config->dim, MAX_DIM, why, size) ||
	    check_range("the number of heads", config->heads, config->dim, why,
			size) ||
	    check_range("the context", config->context, MAX_CONTEXT, why, size))
		return -EINVAL;
	if (config->dim % config->heads) {
		snprintf(why, size,
			 "%d heads do not divide the width %d: "
			 "choose a width that is a multiple of %d",
			 config->heads, config->dim, config->heads);
		return -EINVAL;
	}
	return 0;
}

int model_split(const struct model_config *config, int stages, int stage,
		struct model_part *part, char *why, size_t size)
{
	int each, extra;

	if (stages < 1 || stages > config->layers) {
		snprintf(why, size,
			 "%d layers cannot be cut into %d stages: "
			 "choose from 1 to %d stages",
			 config->layers, stages, config->layers);
		return -EINVAL;
	}
	if (stage < 0 || stage >= stages) {
		snprintf(why, size,
			 "there is no stage %d of %d: "
			 "stages are numbered from 0",
			 stage, stages);
		return -EINVAL;
	}
	each = config->layers / stages;
	extra = config->layers % stages;
	part->first_layer = stage * each + (stage < extra ? stage : extra);
	part->last_layer = part->first_layer + each + (stage < extra);
	part->first = stage == 0;
	part->last = stage == stages - 1;
	return 0;
}

int model_tensor_count(const struct model_config *config,
		       const struct model_part *part)
{
	const bool own_head = !config->tied || !part->first;

	return (part->first ? 2 : 0) +
	       LAYER_TENSORS * (part->last_layer - part->first_layer) +
	       (part->last ? 2 + own_head : 0);
}

size_t model_param_count(const struct model_config *config,
			 const struct model_part *part)
{
	const size_t dim = (size_t)config->dim;
	const size_t layers = (size_t)(part->last_layer - part->first_layer);
	size_t layer = 0, count;

	for (int i = 0; i < LAYER_TENSORS; i++) {
		const struct layer_entry *entry = &layer_entries[i];
		const size_t columns = (size_t)entry->columns * dim;

		layer += (size_t)entry->rows * dim * (columns ? columns : 1);
	}
	count = layers * layer;
	if (part->first)
		count += (MODEL_VOCABULARY + (size_t)config->context) * dim;
	if (part->last)
		count += 2 * dim;
	if (part->last && (!config->tied || !part->first))
		count += MODEL_VOCABULARY * dim;
	return count;
}

/* Appends a tensor; columns == 0 makes it a vector. */
static struct tensor *append(struct cursor *cursor, int rows, int columns,
			     enum tensor_init init)
{
	struct tensor *tensor = cursor->next++;

	memset(tensor, 0, sizeof(*tensor));
	tensor->dims = columns ? 2 : 1;
	tensor->shape[0] = rows;
	tensor->shape[1] = columns ? columns : 1;
	tensor->count = (size_t)rows * (size_t)tensor->shape[1];
	tensor->offset = cursor->offset;
	tensor->init = init;
	tensor->decay = columns != 0;
	cursor->offset += tensor->count;
	return tensor;
}

static void name(struct tensor *tensor, const char *text)
{
	snprintf(tensor->name, sizeof(tensor->name), "%s", text);
}

static void append_layer(struct cursor *cursor, int dim, int layer)
{
	for (int i = 0; i < LAYER_TENSORS; i++) {
		const struct layer_entry *entry = &layer_entries[i];
		struct tensor *tensor;

		tensor = append(cursor, entry->rows * dim, entry->columns * dim,
				entry->init);
		snprintf(tensor->name, sizeof(tensor->name), "layer.%d.%s",
			 layer, entry->name);
	}
}

void model_tensors(const struct model_config *config,
		   const struct model_part *part, struct tensor *tensors)
{
	const bool both = part->first && part->last;
	const int dim = config->dim;
	struct cursor cursor = {.next = tensors};
	struct tensor *tensor;

	if (part->first || (part->last && config->tied)) {
		tensor = append(&cursor, MODEL_VOCABULARY, dim, TENSOR_NORMAL);
		name(tensor, "tok_emb.weight");
		tensor->tied = config->tied && !both;
	}
	if (part->first)
		name(append(&cursor, config->context, dim, TENSOR_NORMAL),
		     "pos_emb.weight");
	for (int l = part->first_layer; l < part->last_layer; l++)
		append_layer(&cursor, dim, l);
	if (!part->last)
		return;
	name(append(&cursor, dim, 0, TENSOR_ONE), "ln_f.gain");
	name(append(&cursor, dim, 0, TENSOR_ZERO), "ln_f.bias");
	if (!config->tied)
		name(append(&cursor, MODEL_VOCABULARY, dim, TENSOR_NORMAL),
		     "head.weight");
}

static void init_normal(real *values, size_t count, uint64_t key,
			double deviation)
{
	for (size_t i = 0; i < count; i++)
		values[i] = (real)(deviation * random_normal(key, i));
}

void model_init(const struct model_config *config, const struct tensor *tensors,
		int count, real *params)
{
	for (int t = 0; t < count; t++) {
		const struct tensor *tensor = &tensors[t];
		real *values = params + tensor->offset;
		double deviation = 0.02;

		switch (tensor->init) {
		case TENSOR_ZERO:
		case TENSOR_ONE:
			for (size_t i = 0; i < tensor->count; i++)
				values[i] = tensor->init == TENSOR_ONE;
			break;
		case TENSOR_RESIDUAL:
			deviation /= sqrt(2.0 * config->layers);
			/* fall through */
		case TENSOR_NORMAL:
			init_normal(values, tensor->count,
				    random_key(config->seed, tensor->name),
				    deviation);
			break;
		}
	}
}
