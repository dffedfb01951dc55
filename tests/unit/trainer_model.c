/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The model and its stages: every parameter's gradient against central finite
 * differences (double build), and that nothing depends on how the model is cut
 * into stages or the batch into micro-batches.
 *
 * A `pipeline` is all the stages of a model in one process, run one after
 * another. Initial values are disturbed so that biases and gains are not at
 * their special values, by the same amount in any cut.
 */
#include "stage.h"

#include "random.h"
#include "cunit_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STAGES    4
#define MAX_SEQUENCES 5

#ifdef VBN_REAL_DOUBLE
#define TOLERANCE 1e-12
#else
#define TOLERANCE 1e-5
#endif

struct pipeline {
	struct model_config config;
	int count;
	struct stage *stages[MAX_STAGES];
	real *params[MAX_STAGES], *grads[MAX_STAGES];
	size_t sizes[MAX_STAGES];
	/* Between stages s - 1 and s, for each of two slots. */
	real *x[2][MAX_STAGES], *dx[2][MAX_STAGES];
};

static const struct model_config small = {
	.layers = 4,
	.dim = 12,
	.heads = 3,
	.context = 9,
	.seed = 3,
};

static uint8_t tokens[MAX_SEQUENCES * 128], targets[MAX_SEQUENCES * 128];

static void *zeros(size_t count)
{
	void *memory = calloc(count, sizeof(real));

	CU_ASSERT_PTR_NOT_NULL_FATAL(memory);
	return memory;
}

static const struct tensor *list(const struct pipeline *pipeline, int s,
				 int *count)
{
	return stage_tensors(pipeline->stages[s], count);
}

static void disturb(const struct tensor *tensor, real *params)
{
	const uint64_t key = random_key(99, tensor->name);

	for (size_t i = 0; i < tensor->count; i++)
		params[tensor->offset + i] +=
			(real)(0.2 * random_normal(key, i));
}

static void create_stage(struct pipeline *pipeline, int s)
{
	const struct model_config *config = &pipeline->config;
	const struct tensor *tensors;
	struct model_part part;
	char why[200];
	size_t size;
	int count;

	CU_ASSERT_EQUAL_FATAL(model_split(config, pipeline->count, s, &part,
					  why, sizeof(why)),
			      0);
	size = pipeline->sizes[s] = model_param_count(config, &part);
	pipeline->params[s] = zeros(size);
	pipeline->grads[s] = zeros(size);
	CU_ASSERT_EQUAL_FATAL(stage_create(config, &part, MAX_SEQUENCES, 2,
					   pipeline->params[s],
					   pipeline->grads[s],
					   &pipeline->stages[s]),
			      0);
	tensors = list(pipeline, s, &count);
	model_init(config, tensors, count, pipeline->params[s]);
	size = stage_activation_count(pipeline->stages[s], MAX_SEQUENCES);
	for (int slot = 0; slot < 2; slot++) {
		pipeline->x[slot][s] = zeros(size);
		pipeline->dx[slot][s] = zeros(size);
	}
}

/* Undisturbed. */
static struct pipeline create_plain(struct model_config config, int count)
{
	struct pipeline pipeline = {.config = config, .count = count};

	for (int s = 0; s < count; s++)
		create_stage(&pipeline, s);
	return pipeline;
}

static struct pipeline create(struct model_config config, int stages)
{
	struct pipeline pipeline = create_plain(config, stages);

	for (int s = 0; s < stages; s++) {
		int count;
		const struct tensor *tensors = list(&pipeline, s, &count);

		for (int t = 0; t < count; t++)
			disturb(&tensors[t], pipeline.params[s]);
	}
	return pipeline;
}

static void destroy(struct pipeline *pipeline)
{
	for (int s = 0; s < pipeline->count; s++) {
		stage_destroy(pipeline->stages[s]);
		free(pipeline->params[s]);
		free(pipeline->grads[s]);
		for (int slot = 0; slot < 2; slot++) {
			free(pipeline->x[slot][s]);
			free(pipeline->dx[slot][s]);
		}
	}
}

/* 16 different bytes, 0 and 255 among them. */
static void make_batch(const struct model_config *config)
{
	const uint64_t key = random_key(5, "test batch");

	for (int i = 0; i < MAX_SEQUENCES * config->context; i++) {
		tokens[i] =
			(uint8_t)(17 * random_below(key, 2 * (uint64_t)i, 16));
		targets[i] =
			(uint8_t)(17 *
				  random_below(key, 2 * (uint64_t)i + 1, 16));
	}
}

/* Sequences [first, first + count) through all stages; the sum of losses. */
static double forward(struct pipeline *pipeline, int slot, int first, int count)
{
	const size_t at = (size_t)(first * pipeline->config.context);
	double loss = 0;

	for (int s = 0; s < pipeline->count; s++) {
		const bool last = s == pipeline->count - 1;
		const struct stage_io io = {
			.tokens = s == 0 ? tokens + at : NULL,
			.input = s > 0 ? pipeline->x[slot][s] : NULL,
			.output = last ? NULL : pipeline->x[slot][s + 1],
			.targets = last ? targets + at : NULL,
		};

		loss += stage_forward(pipeline->stages[s], slot, count, &io);
	}
	return loss;
}

typedef void (*backward_step)(struct stage *stage, int slot, real scale,
			      const real *output_grad, real *input_grad);

static void backward(struct pipeline *pipeline, int slot, double scale,
		     backward_step step)
{
	for (int s = pipeline->count - 1; s >= 0; s--) {
		const bool last = s == pipeline->count - 1;

		step(pipeline->stages[s], slot, (real)scale,
		     last ? NULL : pipeline->dx[slot][s + 1],
		     s > 0 ? pipeline->dx[slot][s] : NULL);
	}
}

static double run(struct pipeline *pipeline, int first, int count, double scale)
{
	const double loss = forward(pipeline, 0, first, count);

	backward(pipeline, 0, scale, stage_backward);
	return loss;
}

/* A tensor by name: where its values are in one stage, or NULL. */
static const struct tensor *find(const struct pipeline *pipeline, int s,
				 const char *name)
{
	int count;
	const struct tensor *tensors = list(pipeline, s, &count);

	for (int t = 0; t < count; t++)
		if (strcmp(tensors[t].name, name) == 0)
			return &tensors[t];
	return NULL;
}

/* The gradient of element i of a tensor, over all the stages that hold it. */
static double gradient(const struct pipeline *pipeline, const char *name,
		       size_t i)
{
	double sum = 0;

	for (int s = 0; s < pipeline->count; s++) {
		const struct tensor *tensor = find(pipeline, s, name);

		if (tensor)
			sum += (double)pipeline->grads[s][tensor->offset + i];
	}
	return sum;
}

/* |a - b| / |b|: 1 for an a of zeros, and infinite for a b of zeros. */
static double relative_error(const double *a, const double *b, size_t count)
{
	double difference = 0, norm = 0;

	for (size_t i = 0; i < count; i++) {
		difference += (a[i] - b[i]) * (a[i] - b[i]);
		norm += b[i] * b[i];
	}
	return norm > 0 ? sqrt(difference / norm) : HUGE_VAL;
}

static void test_relative_error(void)
{
	static const double some[] = {1, -2, 1e-9}, none[3];

	CU_ASSERT_EQUAL(relative_error(some, some, 3), 0);
	CU_ASSERT_EQUAL(relative_error(none, some, 3), 1);
	CU_ASSERT_EQUAL(relative_error(none, none, 3), HUGE_VAL);
	CU_ASSERT_EQUAL(relative_error(some, none, 3), HUGE_VAL);
}

static void gradients(const struct pipeline *pipeline,
		      const struct tensor *tensor, double *values)
{
	for (size_t i = 0; i < tensor->count; i++)
		values[i] = gradient(pipeline, tensor->name, i);
}

/* The largest relative error of a tensor's gradient between two pipelines. */
static double compare(const struct pipeline *a, const struct pipeline *b)
{
	double worst = 0;

	for (int s = 0; s < b->count; s++) {
		int count;
		const struct tensor *tensors = list(b, s, &count);

		for (int t = 0; t < count; t++) {
			const size_t size = tensors[t].count;
			double *left = calloc(2 * size, sizeof(*left));
			double *right = left + size;

			CU_ASSERT_PTR_NOT_NULL_FATAL(left);
			gradients(a, &tensors[t], left);
			gradients(b, &tensors[t], right);
			worst = fmax(worst, relative_error(left, right, size));
			free(left);
		}
	}
	return worst;
}

#ifdef VBN_REAL_DOUBLE

/* Adds h to an element in every stage that holds it. */
static void shift(struct pipeline *pipeline, const char *name, size_t i,
		  double h)
{
	for (int s = 0; s < pipeline->count; s++) {
		const struct tensor *tensor = find(pipeline, s, name);

		if (tensor)
			pipeline->params[s][tensor->offset + i] += (real)h;
	}
}

/* Over at most `most` elements of the tensor, spread over it. */
static double difference_error(struct pipeline *pipeline,
			       const struct tensor *tensor, size_t most)
{
	const size_t samples = tensor->count < most ? tensor->count : most;
	const double h = 1e-4;
	double *analytic = calloc(2 * samples, sizeof(*analytic));
	double *numeric = analytic + samples, error;

	CU_ASSERT_PTR_NOT_NULL_FATAL(analytic);
	for (size_t k = 0; k < samples; k++) {
		const size_t i = k * tensor->count / samples;
		double up, down;

		shift(pipeline, tensor->name, i, h);
		up = forward(pipeline, 0, 0, 2);
		shift(pipeline, tensor->name, i, -2 * h);
		down = forward(pipeline, 0, 0, 2);
		shift(pipeline, tensor->name, i, h);
		numeric[k] = (up - down) / (2 * h);
		analytic[k] = gradient(pipeline, tensor->name, i);
	}
	error = relative_error(analytic, numeric, samples);
	free(analytic);
	return error;
}

static void check_differences(struct model_config config, int stages,
			      size_t most)
{
	struct pipeline pipeline = create(config, stages);
	double worst = 0;
	int tensors_checked = 0;

	make_batch(&config);
	run(&pipeline, 0, 2, 1);
	for (int s = 0; s < stages; s++) {
		int count;
		const struct tensor *tensors = list(&pipeline, s, &count);

		for (int t = 0; t < count; t++) {
			const double error =
				difference_error(&pipeline, &tensors[t], most);

			if (!(error < 1e-6))
				printf("\n    %s: error %.3g", tensors[t].name,
				       error);
			CU_ASSERT_TRUE(error < 1e-6);
			worst = fmax(worst, error);
			tensors_checked++;
		}
	}
	printf("\n    %s, context %d, %d stage(s): %d tensors, worst error "
	       "%.2g",
	       config.tied ? "tied" : "untied", config.context, stages,
	       tensors_checked, worst);
	destroy(&pipeline);
}

static void test_differences(void)
{
	for (int tied = 0; tied <= 1; tied++) {
		struct model_config config = small;

		config.tied = tied;
		check_differences(config, 1, SIZE_MAX);
		for (int stages = 2; stages <= MAX_STAGES; stages++)
			check_differences(config, stages, 200);
	}
}

/* Longer than one of attention's blocks, and not a multiple of one. */
static void test_long_differences(void)
{
	struct model_config config = small;

	config.layers = 2;
	config.context = 71;
	check_differences(config, 1, 40);
}

#endif

static void test_stages(void)
{
	for (int tied = 0; tied <= 1; tied++) {
		struct model_config config = small;
		struct pipeline whole;
		double loss;

		config.tied = tied;
		make_batch(&config);
		whole = create(config, 1);
		loss = run(&whole, 0, MAX_SEQUENCES, 0.01);
		for (int stages = 2; stages <= MAX_STAGES; stages++) {
			struct pipeline cut = create(config, stages);

			CU_ASSERT_DOUBLE_EQUAL(
				run(&cut, 0, MAX_SEQUENCES, 0.01), loss,
				TOLERANCE * loss);
			CU_ASSERT_TRUE(compare(&cut, &whole) < TOLERANCE);
			CU_ASSERT_TRUE(compare(&whole, &cut) < TOLERANCE);
			destroy(&cut);
		}
		destroy(&whole);
	}
}

static void test_micro_batches(void)
{
	struct pipeline whole = create(small, 2), parts = create(small, 2);
	double loss, sum;

	make_batch(&small);
	loss = run(&whole, 0, 5, 0.01);
	sum = run(&parts, 0, 2, 0.01);
	sum += run(&parts, 2, 1, 0.01);
	sum += run(&parts, 3, 2, 0.01);
	CU_ASSERT_DOUBLE_EQUAL(sum, loss, TOLERANCE * loss);
	CU_ASSERT_TRUE(compare(&parts, &whole) < TOLERANCE);
	destroy(&whole);
	destroy(&parts);
}

static void weights(struct pipeline *pipeline, int slot)
{
	for (int s = 0; s < pipeline->count; s++)
		stage_backward_weight(pipeline->stages[s], slot);
}

/* Two micro-batches in flight; weights at once or later: the same bits. */
static void test_split_backward(void)
{
	struct pipeline once = create(small, 2), later = create(small, 2);

	make_batch(&small);
	forward(&once, 0, 0, 2);
	forward(&once, 1, 2, 3);
	backward(&once, 0, 0.01, stage_backward);
	backward(&once, 1, 0.01, stage_backward);
	forward(&later, 0, 0, 2);
	forward(&later, 1, 2, 3);
	backward(&later, 0, 0.01, stage_backward_input);
	backward(&later, 1, 0.01, stage_backward_input);
	weights(&later, 0);
	weights(&later, 1);
	for (int s = 0; s < 2; s++)
		CU_ASSERT_EQUAL(memcmp(once.grads[s], later.grads[s],
				       once.sizes[s] * sizeof(real)),
				0);
	destroy(&once);
	destroy(&later);
}

/* Logits say the same as the loss, and do not look ahead. */
static void test_logits(void)
{
	struct pipeline pipeline = create(small, 1);
	real logits[MAX_SEQUENCES * MODEL_VOCABULARY];
	double loss, sum = 0;

	make_batch(&small);
	loss = forward(&pipeline, 0, 0, 3);
	for (int t = 0; t < small.context; t++) {
		const struct stage_io io = {
			.tokens = tokens,
			.logits = logits,
			.position = t,
		};

		/* From the end to the front would hide a look ahead. */
		for (int s = 0; s < 3; s++)
			for (int i = t + 1; i < small.context; i++)
				tokens[s * small.context + i] ^= 0x55;
		stage_forward(pipeline.stages[0], 1, 3, &io);
		for (int s = 0; s < 3; s++)
			sum += stage_logits_loss(
				logits + s * MODEL_VOCABULARY,
				targets[s * small.context + t]);
		make_batch(&small);
	}
	CU_ASSERT_DOUBLE_EQUAL(sum, loss, TOLERANCE * loss);
	destroy(&pipeline);
}

static void test_first_loss(void)
{
	struct pipeline pipeline = create_plain(small, 2);

	make_batch(&small);
	CU_ASSERT_DOUBLE_EQUAL(forward(&pipeline, 0, 0, 5) / (5 * 9), log(256),
			       0.1);
	destroy(&pipeline);
}

static CU_TestInfo tests[] = {
	{"relative error", test_relative_error},
#ifdef VBN_REAL_DOUBLE
	{"finite differences", test_differences},
	{"finite differences, long context", test_long_differences},
#endif
	{"stages", test_stages},
	{"micro-batches", test_micro_batches},
	{"split backward", test_split_backward},
	{"logits", test_logits},
	{"first loss", test_first_loss},
	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"model", NULL, NULL, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	real_init(1);
	return run_suites(suites);
}
