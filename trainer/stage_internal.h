/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * A stage's memory, shared by the two files that make it and compute in it.
 *
 * The residual stream at the L + 1 borders of a stage's L layers, and its
 * gradient, live in the stage's own memory between layers and in the caller's
 * at the stage's ends. What the weights' gradients need stays in the slot
 * after backward-input, so that backward-weight can run at any later time.
 */
#ifndef VBN_TRAINER_STAGE_INTERNAL_H
#define VBN_TRAINER_STAGE_INTERNAL_H

#include "stage.h"

/* What one layer keeps of a micro-batch; R = sequences * context rows. */
struct layer {
	real *mean1, *inverse1; /* [R] */
	real *ln1;		/* [R, dim] */
	real *qkv;		/* [R, 3 dim] */
	real *probs;		/* [sequences, heads, matrix] */
	real *att;		/* [R, dim] */
	real *mid;		/* [R, dim]: stream after attention */
	real *mean2, *inverse2; /* [R] */
	real *ln2;		/* [R, dim] */
	real *up;		/* [R, 4 dim]: before GELU; its slope;
				 * then the gradient */
	real *act;		/* [R, 4 dim] */
	real *dmid;		/* [R, dim] */
	real *dqkv;		/* [R, 3 dim] */
};

/* The residual stream between two layers. x and dx are what to read: own_x
 * and own_dx, or the caller's buffer at an end of the stage. */
struct border {
	const real *x, *dx; /* [R, dim] */
	real *own_x, *own_dx;
};

enum slot_state {
	SLOT_EMPTY,
	SLOT_FORWARD, /* ready for backward-input */
	SLOT_INPUT,   /* ready for backward-weight */
};

struct slot {
	enum slot_state state;
	int sequences;
	const uint8_t *tokens, *targets;
	struct layer *layers;
	struct border *borders; /* one more than layers */
	real *mean, *inverse;	/* last stage: final norm */
	real *ln;		/* [R, dim] */
	real *softmax;		/* [R, 256]; then the gradient */
};

struct stage {
	struct model_config config;
	struct model_part part;
	int layers;
	int max_sequences;
	int slot_count;
	const real *params;
	real *grads;
	struct tensor *tensors;
	int tensor_count;
	struct slot *slots;
	struct layer *all_layers;
	struct border *all_borders;
	real *wide;   /* scratch, [R, 4 dim] */
	real *narrow; /* scratch, [R, dim] */
	real *matrix; /* scratch of attention_backward() */
	char *arena;
	size_t bytes;
};

#endif
