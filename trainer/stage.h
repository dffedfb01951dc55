/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * A pipeline stage: what a schedule's actions call. It computes; it neither
 * sends nor waits.
 *
 * A stage has `slots`, each of which holds what the backward pass of one
 * micro-batch needs. A slot goes through forward, then backward (or
 * backward-input, then backward-weight), then may be used again; or through
 * forward only, when evaluating.
 *
 * Ownership: parameters, gradients and everything that crosses a stage's
 * boundary belong to the caller, and are used in place. The buffers named in
 * a slot's forward (tokens, input, targets) and backward-input (output_grad,
 * input_grad) must stay valid and unchanged until the slot's backward is
 * complete, backward-weight included; `output` may be reused as soon as
 * forward has returned and it was sent, as the backward pass does not read it.
 *
 * All memory is allocated by stage_create(). A stage belongs to one thread at
 * a time. Calls block while they compute, and cannot fail.
 *
 * Shapes: S sequences, T = context, D = dim, V = 256; an activation is
 * real[S, T, D]. Row (s, t) of the last stage predicts targets[s, t].
 */
#ifndef VBN_TRAINER_STAGE_H
#define VBN_TRAINER_STAGE_H

#include "model.h"

struct stage;

struct stage_io {
	const uint8_t *tokens;	/* first stage: [S, T]; others: unused */
	const real *input;	/* all but the first: [S, T, D] */
	real *output;		/* all but the last: [S, T, D] */
	const uint8_t *targets; /* last: [S, T], or NULL: no loss */
	real *logits;		/* last, without targets: [S, V] */
	int position;		/* whose logits: 0 <= position < T */
};

/*
 * Makes a stage for micro-batches of up to max_sequences sequences. params
 * (model_param_count() elements) must outlive it and is read at each call;
 * grads, the same size, is accumulated into by backward, never cleared; NULL
 * if backward will not be called. -EINVAL for counts below 1 or a size beyond
 * 32-bit BLAS indices; -ENOMEM.
 */
int stage_create(const struct model_config *config,
		 const struct model_part *part, int max_sequences, int slots,
		 const real *params, real *grads, struct stage **out);
void stage_destroy(struct stage *stage);

/* The tensor list; valid as long as the stage is. */
const struct tensor *stage_tensors(const struct stage *stage, int *count);

/* Bytes that the stage itself holds. */
size_t stage_bytes(const struct stage *stage);

/* Elements of an activation of that many sequences. */
size_t stage_activation_count(const struct stage *stage, int sequences);

/*
 * Runs the stage on one micro-batch, 1 <= sequences <= max_sequences.
 * Returns, on a last stage with targets, the sum over all S * T positions of
 * -ln p(target), in nats; otherwise 0. Without targets a last stage writes
 * the logits at io->position of each sequence (causal: what comes after that
 * position in tokens does not matter), and no backward may follow.
 */
double stage_forward(struct stage *stage, int slot, int sequences,
		     const struct stage_io *io);

/*
 * Accumulates into grads the gradient of scale * (sum of losses), for the
 * micro-batch in the slot. With scale = 1 / (positions of the global batch),
 * sums over micro-batches and replicas are the gradient of the global mean,
 * whatever the sizes of the micro-batches.
 *
 * scale is used by the last stage; output_grad [S, T, D] (gradient of
 * `output`) by all but the last; input_grad [S, T, D] (gradient of `input`) is
 * written by all but the first. NULL where not used.
 */
void stage_backward(struct stage *stage, int slot, real scale,
		    const real *output_grad, real *input_grad);

/*
 * The same in two steps. backward-input writes input_grad, which the stage
 * before waits for; backward-weight, at any later time, completes the
 * parameters' gradients. Together they give the same bits as stage_backward()
 * when the slots' backward-weights run in the order of the backward-inputs.
 */
void stage_backward_input(struct stage *stage, int slot, real scale,
			  const real *output_grad, real *input_grad);
void stage_backward_weight(struct stage *stage, int slot);

/* -ln p(target) given one position's 256 logits, in nats. */
double stage_logits_loss(const real *logits, uint8_t target);

/*
 * Draws a byte from the softmax of logits / temperature with u uniform in
 * [0, 1); the likeliest byte if temperature is 0.
 */
uint8_t stage_logits_sample(const real *logits, double temperature, double u);

#endif
