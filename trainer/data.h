/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The training text: a file mapped into memory, whose first 90 % of bytes are
 * for training and the rest for validation, and the choice of batches.
 *
 * Which bytes make up sequence i of step s is a function of (file size,
 * context, seed, s, i) alone: neither ranks, stages, replicas nor
 * micro-batches come into it, so any layout trains on the same batches and any
 * rank can fetch just its own share.
 *
 * A sequence is context + 1 bytes of the file: the tokens are all but the
 * last, the targets all but the first. The file must not be truncated while it
 * is mapped.
 */
#ifndef VBN_TRAINER_DATA_H
#define VBN_TRAINER_DATA_H

#include <stddef.h>
#include <stdint.h>

struct data;

/*
 * Maps the file for sequences of `context` bytes. On failure -errno and one
 * line in `why` (size bytes): the file cannot be read, is not a regular file
 * (-EINVAL), or either part is shorter than a sequence (-EINVAL).
 */
int data_open(const char *path, int context, struct data **out, char *why,
	      size_t size);
void data_close(struct data *data);

/* Bytes in each part. */
uint64_t data_train_bytes(const struct data *data);
uint64_t data_validation_bytes(const struct data *data);

/* Where in the file sequence number i of a training step begins. */
uint64_t data_train_offset(const struct data *data, uint64_t seed,
			   uint64_t step, uint64_t i);

/*
 * Where in the file validation window i of n begins, i < n: they are spread
 * evenly over the part, and overlap if n windows do not fit side by side.
 */
uint64_t data_validation_offset(const struct data *data, uint64_t n,
				uint64_t i);

/*
 * Copies sequences [first, first + count) of a training step, or windows of a
 * validation set of n: tokens[count, context] and targets[count, context],
 * either of which may be NULL.
 */
void data_train_batch(const struct data *data, uint64_t seed, uint64_t step,
		      uint64_t first, int count, uint8_t *tokens,
		      uint8_t *targets);
void data_validation_batch(const struct data *data, uint64_t n, uint64_t first,
			   int count, uint8_t *tokens, uint8_t *targets);

/*
 * Shuffles tokens[context] except for its last byte, by `seed`: what a model
 * that looks at the last byte only would not notice.
 */
void data_shuffle_context(uint8_t *tokens, int context, uint64_t seed);

#endif
