/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * Parameter updates: plain SGD, and AdamW (Loshchilov and Hutter, "Decoupled
 * weight decay regularization", 2019).
 *
 * An update is element by element and a function of (step, parameter,
 * gradient, state) alone: replicas that hold the same values still do after
 * it, and any range of a buffer may be updated apart from the rest, in any
 * order, with the same bits.
 */
#ifndef VBN_TRAINER_OPTIMIZER_H
#define VBN_TRAINER_OPTIMIZER_H

#include "model.h"

enum optimizer_kind {
	OPTIMIZER_SGD, /* p -= lr g; no decay, no schedule */
	OPTIMIZER_ADAMW,
};

struct optimizer_config {
	enum optimizer_kind kind;
	double lr; /* the highest learning rate */
	double beta1, beta2, epsilon;
	double decay;	       /* of tensors whose decay flag is set */
	uint64_t warmup_steps; /* AdamW: linear up to lr, ... */
	uint64_t total_steps;  /* ... then a half cosine down to ... */
	double lr_floor;       /* ... this share of lr, and no further */
};

struct optimizer;

/*
 * The defaults: beta 0.9 and 0.95, epsilon 1e-8, decay 0.1, warm-up over a
 * tenth of the steps but no more than 100, floor 0.1.
 */
struct optimizer_config optimizer_defaults(enum optimizer_kind kind, double lr,
					   uint64_t total_steps);

/* The learning rate of a step. Steps are counted from 1. */
double optimizer_lr(const struct optimizer_config *config, uint64_t step);

/*
 * Makes the state for a buffer with that tensor list (copied): for AdamW two
 * moments, zero, of as many elements as the tensors have together. -ENOMEM.
 */
int optimizer_create(const struct optimizer_config *config,
		     const struct tensor *tensors, int count,
		     struct optimizer **out);
void optimizer_destroy(struct optimizer *optimizer);

/*
 * Updates elements [begin, end) of params from grads. params and grads are the
 * whole buffers. Steps are counted from 1 and go up by 1; each element is
 * updated once a step.
 */
void optimizer_update(struct optimizer *optimizer, uint64_t step, size_t begin,
		      size_t end, real *params, const real *grads);

/*
 * The state to save or to restore: the first moments, then the second, `count`
 * elements in all (0 for SGD). Owned by the optimizer.
 */
real *optimizer_state(struct optimizer *optimizer, size_t *count);

#endif
