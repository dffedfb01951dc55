/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One rank of a training run: its stage, its links to the neighbouring
 * stages, its part in the summing of gradients, and the reports that go to
 * rank 0. Rank = replica * stages + stage.
 */
#ifndef VBN_TRAINER_TRAIN_H
#define VBN_TRAINER_TRAIN_H

#include "data.h"
#include "link.h"
#include "options.h"
#include "stage.h"

#include <verbena/collectives.h>

struct report;

struct trainer {
	const struct train_options *o;
	int rank, ranks, stage_index, replica;

	struct vbn_job *job;
	struct vbn_ctx *ctx;
	struct vbn_pool *pool;
	struct net *net; /* NULL when there is one stage */
	struct report *report;

	struct data *data;
	struct model_part part;
	struct stage *stage;
	const struct tensor *tensors;
	int ntensors;
	size_t params_count;
	real *params, *grads; /* grads: pool memory */
	struct optimizer *optimizer;

	struct vbn_comm *replicas, *tied;
	struct vbn_coll *sum_replicas, *sum_tied;

	/* Of every micro-batch: a stage's input tokens and targets. */
	uint8_t *tokens, *targets;
	int share, first_sequence;  /* of each batch: this replica's */
	int largest;		    /* sequences of a micro-batch */
	uint64_t items[LINK_KINDS]; /* micro-batches that went over links */

	double compute_ms; /* in stages */
};

/* trainer.c: everything that a rank holds. -errno, trainer_error(). */
int trainer_open(struct trainer *t, const struct train_options *o);
void trainer_close(struct trainer *t);
/* Sequences of micro-batch @b, and the first of them within the share. */
int trainer_micro_batch(const struct trainer *t, int b, int *first);

/* pipeline.c */
/* Run a step's schedule: gradients are in t->grads; *loss the share's sum. */
int pipeline_step(struct trainer *t, uint64_t step, double *loss);
/* The share's sum of losses over @windows validation windows. */
int pipeline_validate(struct trainer *t, double *loss, uint64_t *positions);
/*
 * Losses of the last byte of each window, with the context before it as it is
 * and shuffled. Sums over the share.
 */
int pipeline_check_context(struct trainer *t, double *intact, double *shuffled,
			   uint64_t *windows);
/* Print @n bytes that the model writes on from a piece of the text. */
int pipeline_sample(struct trainer *t, int n);

/* sync.c */
int sync_open(struct trainer *t);
void sync_close(struct trainer *t);
/* Sum the gradients over replicas, then those of the tied embedding. */
int sync_gradients(struct trainer *t);

/* report.c: what goes to rank 0. */
enum report_kind {
	REPORT_LOSS,
	REPORT_VALIDATION,
	REPORT_CONTEXT,
	REPORT_BYTE
};
/* Whether @step is followed by a validation, whose report is to come. */
bool report_is_evaluated(const struct train_options *o, uint64_t step);
int report_open(struct trainer *t);
void report_close(struct trainer *t);
/* Last stages call it; @a, @b: sums, @n: what they are to be divided by. */
int report_send(struct trainer *t, enum report_kind kind, uint64_t step,
		double a, double b, uint64_t n);
/* Rank 0: wait until everything of @step and kind is in; others: nothing. */
int report_finish(struct trainer *t, enum report_kind kind, uint64_t step);
/* Whether the run can go on: -EIO when what was reported says that not. */
int report_check(const struct trainer *t);
/* Rank 0: wait for the byte of sample position @i. */
int report_byte(struct trainer *t, uint64_t i, uint8_t *byte);
double now_s(void);

/* dump.c: "P.<stage>", replica 0's; a text header, then the values. */
int dump_tensors(const struct trainer *t, const char *prefix,
		 const real *values);

#endif
