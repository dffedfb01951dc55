/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of verbena-train, checked, as plain values. */
#ifndef VBN_TRAINER_OPTIONS_H
#define VBN_TRAINER_OPTIONS_H

#include "model.h"
#include "optimizer.h"
#include "schedule.h"

#include <stdbool.h>
#include <stdint.h>

struct train_options {
	const char *data;
	int stages, replicas, micro_batches;
	int batch; /* sequences a step, over all replicas */
	struct model_config model;
	enum schedule_kind schedule;
	const char *sync; /* "ring" or "tree" */
	enum optimizer_kind optimizer;
	uint64_t steps;
	double lr;
	const char *metrics; /* file, or NULL */
	int sample;	     /* bytes to print at the end */
	uint64_t eval_every; /* steps; 0: at the end only */
	int eval_sequences;  /* 0: no validation */
	const char *dump_gradients, *dump_parameters; /* prefix, or NULL */
	int timeout_ms; /* longest wait for another rank */
};

/*
 * Parse and check. 0; 1: --help was printed; -EINVAL: one line was printed to
 * stderr that says what is wrong and what to do.
 */
int train_options_parse(int argc, char **argv, struct train_options *options);

#endif
