/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The model's description: tensor lists, initial values that no cut into
 * stages changes, what is said of impossible configurations; and sampling.
 */
#include "stage.h"

#include "cunit_run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TENSORS 64

static const struct model_config small = {
	.layers = 4,
	.dim = 12,
	.heads = 3,
	.context = 9,
	.seed = 3,
};

/* A stage's list and its initial values. */
struct shape {
	struct model_part part;
	struct tensor tensors[MAX_TENSORS];
	int count;
	real *params;
};

static void create(struct shape *shape, const struct model_config *config,
		   int stages, int s)
{
	CU_ASSERT_EQUAL_FATAL(
		model_split(config, stages, s, &shape->part, NULL, 0), 0);
	shape->count = model_tensor_count(config, &shape->part);
	CU_ASSERT_TRUE_FATAL(shape->count <= MAX_TENSORS);
	model_tensors(config, &shape->part, shape->tensors);
	shape->params =
		calloc(model_param_count(config, &shape->part), sizeof(real));
	CU_ASSERT_PTR_NOT_NULL_FATAL(shape->params);
	model_init(config, shape->tensors, shape->count, shape->params);
}

static const struct tensor *find(const struct shape *shape, const char *name)
{
	for (int t = 0; t < shape->count; t++)
		if (strcmp(shape->tensors[t].name, name) == 0)
			return &shape->tensors[t];
	return NULL;
}

/* How many of the part's tensors have the whole model's values and names. */
static int count_equal(const struct shape *part, const struct shape *whole)
{
	int equal = 0;

	for (int t = 0; t < part->count; t++) {
		const struct tensor *have = &part->tensors[t];
		const struct tensor *want = find(whole, have->name);

		CU_ASSERT_PTR_NOT_NULL_FATAL(want);
		CU_ASSERT_EQUAL_FATAL(want->count, have->count);
		equal += memcmp(part->params + have->offset,
				whole->params + want->offset,
				want->count * sizeof(real)) == 0;
	}
	return equal;
}

static void test_initial_values(void)
{
	struct model_config config = small;
	struct shape whole, part;

	config.tied = true;
	create(&whole, &config, 1, 0);
	for (int stages = 1; stages <= 4; stages++) {
		for (int s = 0; s < stages; s++) {
			create(&part, &config, stages, s);
			CU_ASSERT_EQUAL(count_equal(&part, &whole), part.count);
			free(part.params);
		}
	}
	config.seed++;
	create(&part, &config, 1, 0);
	/* Only gains and biases: 8 in each layer, 2 at the end. */
	CU_ASSERT_EQUAL(count_equal(&part, &whole), 4 * 8 + 2);
	free(part.params);
	free(whole.params);
}

/* Standard deviations, by the rule of the tensor. */
static void test_deviations(void)
{
	const struct model_config config = {
		.layers = 8,
		.dim = 64,
		.heads = 4,
		.context = 16,
		.seed = 1,
	};
	struct shape shape;

	create(&shape, &config, 4, 0);
	for (int t = 0; t < shape.count; t++) {
		const struct tensor *tensor = &shape.tensors[t];
		const real *values = shape.params + tensor->offset;
		const double want =
			tensor->init == TENSOR_RESIDUAL ? 0.02 / 4 : 0.02;
		double sum = 0, squares = 0, n = (double)tensor->count;

		if (!tensor->decay)
			continue;
		for (size_t i = 0; i < tensor->count; i++) {
			sum += (double)values[i];
			squares += (double)values[i] * (double)values[i];
		}
		CU_ASSERT_DOUBLE_EQUAL(sum / n, 0, 4 * want / sqrt(n));
		CU_ASSERT_DOUBLE_EQUAL(sqrt(squares / n), want, 0.1 * want);
	}
	CU_ASSERT_EQUAL(find(&shape, "layer.0.attn.proj.weight")->init,
			TENSOR_RESIDUAL);
	CU_ASSERT_EQUAL(find(&shape, "layer.1.mlp.down.weight")->init,
			TENSOR_RESIDUAL);
	free(shape.params);
}

/* Lists cover their buffers without gaps, layers are dealt out once each, and
 * only the token embeddings at the two ends are tied, if at all. */
static void check_lists(const struct model_config *config)
{
	size_t total = 0;
	int layers = 0;

	for (int s = 0; s < 3; s++) {
		struct shape shape;
		size_t offset = 0;

		create(&shape, config, 3, s);
		for (int t = 0; t < shape.count; t++) {
			const struct tensor *tensor = &shape.tensors[t];

			CU_ASSERT_EQUAL(tensor->offset, offset);
			offset += tensor->count;
			CU_ASSERT_EQUAL(tensor->tied,
					config->tied && t == 0 && s != 1);
		}
		CU_ASSERT_EQUAL(offset, model_param_count(config, &shape.part));
		CU_ASSERT_EQUAL(shape.part.first_layer, layers);
		layers = shape.part.last_layer;
		total += offset;
		free(shape.params);
	}
	CU_ASSERT_EQUAL(layers, 4);
	CU_ASSERT_EQUAL(total, (size_t)(4 * (12 * 144 + 13 * 12) +
					2 * 256 * 12 + 9 * 12 + 2 * 12));
}

static void test_tensor_lists(void)
{
	struct model_config config = small;
	struct shape shape;

	check_lists(&config);
	config.tied = true;
	check_lists(&config);
	create(&shape, &config, 1, 0);
	CU_ASSERT_FALSE(find(&shape, "tok_emb.weight")->tied);
	CU_ASSERT_PTR_NULL(find(&shape, "head.weight"));
	free(shape.params);
}

static void test_sampling(void)
{
	real logits[MODEL_VOCABULARY];
	int count = 0;

	for (int i = 0; i < MODEL_VOCABULARY; i++)
		logits[i] = -100;
	logits[65] = 1;
	logits[200] = (real)(1 + log(3));
	CU_ASSERT_EQUAL(stage_logits_sample(logits, 0, 0.01), 200);
	for (int i = 0; i < 1000; i++) {
		const uint8_t byte =
			stage_logits_sample(logits, 1, (i + 0.5) / 1000);

		CU_ASSERT_TRUE(byte == 65 || byte == 200);
		count += byte == 200;
	}
	CU_ASSERT_TRUE(abs(count - 750) <= 1);
}

static void check_config(struct model_config config, const char *word)
{
	char why[200] = "";

	CU_ASSERT_EQUAL(model_config_check(&config, why, sizeof(why)), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, word));
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "choose"));
}

static void test_arguments(void)
{
	struct model_config config = small;
	struct model_part part;
	struct stage *stage = NULL;
	char why[200] = "";
	real none;

	CU_ASSERT_EQUAL(model_config_check(&config, why, sizeof(why)), 0);
	config.heads = 5;
	check_config(config, "5 heads do not divide the width 12");
	config.heads = 13;
	check_config(config, "heads is 13");
	config = small;
	config.layers = 0;
	check_config(config, "layers is 0");
	config = small;
	config.dim = -1;
	check_config(config, "dim");
	config = small;
	config.context = 1 << 30;
	check_config(config, "context");
	CU_ASSERT_EQUAL(model_split(&small, 5, 0, &part, why, sizeof(why)),
			-EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "4 layers"));
	CU_ASSERT_EQUAL(model_split(&small, 0, 0, &part, why, sizeof(why)),
			-EINVAL);
	CU_ASSERT_EQUAL(model_split(&small, 2, 2, &part, why, sizeof(why)),
			-EINVAL);
	CU_ASSERT_EQUAL_FATAL(
		model_split(&small, 1, 0, &part, why, sizeof(why)), 0);
	CU_ASSERT_EQUAL(stage_create(&small, &part, 0, 1, &none, NULL, &stage),
			-EINVAL);
	CU_ASSERT_EQUAL(stage_create(&small, &part, 1, 0, &none, NULL, &stage),
			-EINVAL);
	CU_ASSERT_EQUAL(
		stage_create(&small, &part, 1 << 30, 1, &none, NULL, &stage),
		-EINVAL);
	CU_ASSERT_PTR_NULL(stage);
	stage_destroy(NULL);
}

static CU_TestInfo tests[] = {
	{"initial values", test_initial_values},
	{"deviations", test_deviations},
	{"tensor lists", test_tensor_lists},
	{"sampling", test_sampling},
	{"arguments", test_arguments},
	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"shape", NULL, NULL, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	return run_suites(suites);
}
