/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The model: a byte-level GPT, its cut into pipeline stages, and the tensors
 * of each. Pure functions; what computes with them is in stage.h.
 *
 * The network is GPT-2's (Radford et al., 2019): token and position
 * embeddings; blocks of
 *	x += attention(layernorm(x)), causal, with biases
 *	x += mlp(layernorm(x)), four times as wide inside, GELU in tanh form;
 * a final layer norm, and a head without bias onto the 256 byte values. The
 * head is the transpose of the token embedding (tied) or a matrix of its own.
 *
 * A linear layer's weight is stored [outputs, inputs]. A stage's parameters
 * lie end to end in one buffer, in the order of its tensor list; its gradients
 * in another, at the same offsets. The buffers are the caller's.
 */
#ifndef VBN_TRAINER_MODEL_H
#define VBN_TRAINER_MODEL_H

#include "real.h"

#include <stddef.h>
#include <stdint.h>

#define MODEL_VOCABULARY 256

struct model_config {
	int layers;
	int dim;       /* width of the residual stream */
	int heads;     /* divides dim */
	int context;   /* bytes in a sequence */
	bool tied;     /* head = token embedding, transposed */
	uint64_t seed; /* of the initial values */
};

/* A stage's share of the model: layers [first_layer, last_layer), ... */
struct model_part {
	int first_layer;
	int last_layer;
	bool first; /* ... the embeddings before them, ... */
	bool last;  /* ... the final norm and the head after them */
};

enum tensor_init {
	TENSOR_ZERO,	 /* biases */
	TENSOR_ONE,	 /* gains */
	TENSOR_NORMAL,	 /* standard deviation 0.02 */
	TENSOR_RESIDUAL, /* 0.02 / sqrt(2 * layers): GPT-2's rule */
};

struct tensor {
	char name[40]; /* "layer.3.attn.qkv.weight" */
	int dims;      /* 1 or 2 */
	int shape[2];  /* shape[1] is 1 if dims is 1 */
	size_t count;  /* elements */
	size_t offset; /* in the stage's buffer, in elements */
	enum tensor_init init;
	bool decay; /* weight decay applies (matrices) */
	/*
	 * The first and the last stage both hold this tensor: before the
	 * update, the caller adds up the two gradients and gives the sum to
	 * both. Only ever set on "tok_emb.weight", the first tensor of either
	 * stage, and never when one stage is both.
	 */
	bool tied;
};

/*
 * Tensors of one layer, in the order of the tensor list. Gains and biases of
 * norms are [dim]. Weights: QKV [3 dim, dim] (query, key, then value rows),
 * PROJ [dim, dim], UP [4 dim, dim], DOWN [dim, 4 dim]; biases are as long as
 * their weight has rows.
 */
enum layer_tensor {
	LN1_GAIN,
	LN1_BIAS,
	QKV_WEIGHT,
	QKV_BIAS,
	PROJ_WEIGHT,
	PROJ_BIAS,
	LN2_GAIN,
	LN2_BIAS,
	UP_WEIGHT,
	UP_BIAS,
	DOWN_WEIGHT,
	DOWN_BIAS,
	LAYER_TENSORS,
};

/*
 * 0, or -EINVAL with one line in `why` (size bytes, cut if too long) that
 * says what is wrong and what to do. Every other function of the trainer
 * expects a configuration that passed.
 */
int model_config_check(const struct model_config *config, char *why,
		       size_t size);

/*
 * The part of stage number `stage` of `stages`: layers are dealt out evenly,
 * one more to each of the first when they do not divide. -EINVAL and a line
 * in `why` if there are no stages, or more than layers.
 */
int model_split(const struct model_config *config, int stages, int stage,
		struct model_part *part, char *why, size_t size);

/* How many tensors the part has, and how many elements they have together. */
int model_tensor_count(const struct model_config *config,
		       const struct model_part *part);
size_t model_param_count(const struct model_config *config,
			 const struct model_part *part);

/* Writes the part's tensor list: model_tensor_count() entries. */
void model_tensors(const struct model_config *config,
		   const struct model_part *part, struct tensor *tensors);

/*
 * Writes the initial values of the listed tensors to params. Element i of a
 * tensor depends on (seed, name, i) only: random_normal() under
 * random_key(seed, name). So each split of a model starts as the same model.
 */
void model_init(const struct model_config *config, const struct tensor *tensors,
		int count, real *params);

#endif
