/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * Writes one forward and backward pass of the model to standard output, for
 * compare.py to check against PyTorch:
 *
 *	dump LAYERS DIM HEADS CONTEXT SEQUENCES TIED
 *
 * Lines of text up to an empty line: "real float|double"; "loss" and the mean
 * loss; for each tensor "tensor", its name and its shape. Then, as in memory:
 * tokens and targets (bytes, [sequences, context]); of each tensor the values
 * and then the gradients of the mean loss.
 */
#include "stage.h"

#include "random.h"

#include <stdio.h>
#include <stdlib.h>

struct dump {
	struct model_config config;
	int sequences;
	struct stage *stage;
	const struct tensor *tensors;
	int count;
	size_t positions;
	real *params, *grads;
	uint8_t *tokens, *targets;
};

static int parse(const char *text, int *value)
{
	char *end;
	const long number = strtol(text, &end, 10);

	if (end == text || *end || number < 0 || number > 1000000)
		return -1;
	*value = (int)number;
	return 0;
}

static int parse_arguments(struct dump *dump, char **argv)
{
	struct model_config *config = &dump->config;
	char why[200];
	int tied;

	if (parse(argv[1], &config->layers) || parse(argv[2], &config->dim) ||
	    parse(argv[3], &config->heads) ||
	    parse(argv[4], &config->context) ||
	    parse(argv[5], &dump->sequences) || parse(argv[6], &tied)) {
		fprintf(stderr, "dump: arguments must be whole numbers\n");
		return -1;
	}
	config->tied = tied;
	config->seed = 1;
	if (model_config_check(config, why, sizeof(why))) {
		fprintf(stderr, "dump: %s\n", why);
		return -1;
	}
	return 0;
}

static int create(struct dump *dump)
{
	struct model_part part;
	char why[200];
	size_t count;

	if (model_split(&dump->config, 1, 0, &part, why, sizeof(why)))
		return -1;
	count = model_param_count(&dump->config, &part);
	dump->positions =
		(size_t)dump->sequences * (size_t)dump->config.context;
	dump->params = calloc(count, sizeof(real));
	dump->grads = calloc(count, sizeof(real));
	dump->tokens = malloc(dump->positions + 1);
	dump->targets = malloc(dump->positions + 1);
	if (!dump->params || !dump->grads || !dump->tokens || !dump->targets ||
	    stage_create(&dump->config, &part, dump->sequences, 1, dump->params,
			 dump->grads, &dump->stage)) {
		fprintf(stderr, "dump: cannot make the model\n");
		return -1;
	}
	dump->tensors = stage_tensors(dump->stage, &dump->count);
	return 0;
}

static void destroy(struct dump *dump)
{
	stage_destroy(dump->stage);
	free(dump->targets);
	free(dump->tokens);
	free(dump->grads);
	free(dump->params);
}

/* Random bytes, and parameters that are nowhere at a special value. */
static void fill(struct dump *dump)
{
	const uint64_t key = random_key(2, "dump");

	for (size_t i = 0; i < dump->positions; i++) {
		dump->tokens[i] = (uint8_t)random_bits(key, 2 * i);
		dump->targets[i] = (uint8_t)random_bits(key, 2 * i + 1);
	}
	model_init(&dump->config, dump->tensors, dump->count, dump->params);
	for (int t = 0; t < dump->count; t++) {
		const struct tensor *tensor = &dump->tensors[t];
		const uint64_t more = random_key(3, tensor->name);

		for (size_t i = 0; i < tensor->count; i++)
			dump->params[tensor->offset + i] +=
				(real)(0.1 * random_normal(more, i));
	}
}

static void write_out(const struct dump *dump, double loss)
{
	printf("real %s\nloss %.17g\n", VBN_REAL_NAME, loss);
	for (int t = 0; t < dump->count; t++) {
		const struct tensor *tensor = &dump->tensors[t];

		printf("tensor %s %d", tensor->name, tensor->shape[0]);
		if (tensor->dims == 2)
			printf(" %d", tensor->shape[1]);
		printf("\n");
	}
	printf("\n");
	fwrite(dump->tokens, 1, dump->positions, stdout);
	fwrite(dump->targets, 1, dump->positions, stdout);
	for (int t = 0; t < dump->count; t++) {
		const struct tensor *tensor = &dump->tensors[t];

		fwrite(dump->params + tensor->offset, sizeof(real),
		       tensor->count, stdout);
		fwrite(dump->grads + tensor->offset, sizeof(real),
		       tensor->count, stdout);
	}
}

int main(int argc, char **argv)
{
	struct dump dump = {.sequences = 0};
	struct stage_io io = {.position = 0};
	double loss;

	if (argc != 7) {
		fprintf(stderr, "usage: dump LAYERS DIM HEADS CONTEXT "
				"SEQUENCES TIED > FILE\n");
		return EXIT_FAILURE;
	}
	real_init(1);
	if (parse_arguments(&dump, argv) || create(&dump)) {
		destroy(&dump);
		return EXIT_FAILURE;
	}
	fill(&dump);
	io.tokens = dump.tokens;
	io.targets = dump.targets;
	loss = stage_forward(dump.stage, 0, dump.sequences, &io);
	stage_backward(dump.stage, 0, (real)(1 / (double)dump.positions), NULL,
		       NULL);
	write_out(&dump, loss / (double)dump.positions);
	destroy(&dump);
	return ferror(stdout) || fclose(stdout) ? EXIT_FAILURE : EXIT_SUCCESS;
}
