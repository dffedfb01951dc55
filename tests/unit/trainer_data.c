/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The data file: its split, the choice of batches, and what is said of files
 * that cannot be used.
 */
#include "data.h"

#include "random.h"
#include "cunit_run.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONTEXT 16
#define SIZE	5003
#define TRAIN	4502 /* 90 % of SIZE, rounded down */

static char path[] = "/tmp/verbena-data-XXXXXX";

/* A byte of the file, such that windows differ. */
static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)random_bits(1, i);
}

static void write_file(uint64_t size)
{
	FILE *file = fopen(path, "wb");

	CU_ASSERT_PTR_NOT_NULL_FATAL(file);
	for (uint64_t i = 0; i < size; i++)
		fputc(byte_at(i), file);
	CU_ASSERT_EQUAL_FATAL(fclose(file), 0);
}

static struct data *open_file(void)
{
	struct data *data = NULL;
	char why[200] = "";

	write_file(SIZE);
	CU_ASSERT_EQUAL_FATAL(data_open(path, CONTEXT, &data, why, sizeof(why)),
			      0);
	return data;
}

static void test_split(void)
{
	struct data *data = open_file();

	CU_ASSERT_EQUAL(data_train_bytes(data), TRAIN);
	CU_ASSERT_EQUAL(data_validation_bytes(data), SIZE - TRAIN);
	data_close(data);
	data_close(NULL);
}

/* Every training window lies in the training part, the first and the last
 * possible ones come up, and seeds and steps differ. */
static void test_train_offsets(void)
{
	struct data *data = open_file();
	const uint64_t last = TRAIN - (CONTEXT + 1);
	uint64_t low = SIZE, high = 0;
	int same_step = 0, same_seed = 0;

	for (uint64_t step = 0; step < 1000; step++) {
		for (uint64_t i = 0; i < 100; i++) {
			const uint64_t at = data_train_offset(data, 7, step, i);

			low = at < low ? at : low;
			high = at > high ? at : high;
			same_step +=
				at == data_train_offset(data, 7, step + 1, i);
			same_seed += at == data_train_offset(data, 8, step, i);
		}
	}
	CU_ASSERT_EQUAL(low, 0);
	CU_ASSERT_EQUAL(high, last);
	/* 100,000 pairs, 4,486 offsets: about 22 agree by chance. */
	CU_ASSERT_TRUE(same_step < 60);
	CU_ASSERT_TRUE(same_seed < 60);
	data_close(data);
}

static void test_train_batch(void)
{
	struct data *data = open_file();
	uint8_t tokens[10 * CONTEXT], targets[10 * CONTEXT];
	uint8_t part[3 * CONTEXT];
	bool right = true;

	data_train_batch(data, 7, 3, 0, 10, tokens, targets);
	for (uint64_t i = 0; i < 10; i++) {
		const uint64_t at = data_train_offset(data, 7, 3, i);

		for (uint64_t t = 0; t < CONTEXT; t++) {
			right &= tokens[i * CONTEXT + t] == byte_at(at + t);
			right &=
				targets[i * CONTEXT + t] == byte_at(at + t + 1);
		}
	}
	CU_ASSERT_TRUE(right);
	/* A share of the batch is what the whole has there. */
	data_train_batch(data, 7, 3, 4, 3, part, NULL);
	CU_ASSERT_EQUAL(memcmp(part, tokens + 4 * CONTEXT, sizeof(part)), 0);
	data_train_batch(data, 7, 3, 4, 3, NULL, part);
	CU_ASSERT_EQUAL(memcmp(part, targets + 4 * CONTEXT, sizeof(part)), 0);
	data_close(data);
}

static void test_validation(void)
{
	struct data *data = open_file();
	uint8_t tokens[2 * CONTEXT], targets[2 * CONTEXT];

	for (uint64_t n = 1; n <= 300; n++) {
		uint64_t before = TRAIN;

		CU_ASSERT_EQUAL(data_validation_offset(data, n, 0), TRAIN);
		for (uint64_t i = 0; i < n; i++) {
			const uint64_t at = data_validation_offset(data, n, i);

			CU_ASSERT_TRUE(at >= before);
			CU_ASSERT_TRUE(at + CONTEXT + 1 <= SIZE);
			before = at;
		}
		if (n > 1)
			CU_ASSERT_EQUAL(before, SIZE - (CONTEXT + 1));
	}
	data_validation_batch(data, 50, 48, 2, tokens, targets);
	CU_ASSERT_EQUAL(targets[2 * CONTEXT - 1], byte_at(SIZE - 1));
	CU_ASSERT_EQUAL(tokens[2 * CONTEXT - 1], byte_at(SIZE - 2));
	data_close(data);
}

static void test_shuffle(void)
{
	uint8_t tokens[CONTEXT], again[CONTEXT];
	int count[CONTEXT] = {0}, moved = 0;

	for (int i = 0; i < CONTEXT; i++)
		tokens[i] = again[i] = (uint8_t)i;
	data_shuffle_context(tokens, CONTEXT, 5);
	data_shuffle_context(again, CONTEXT, 5);
	CU_ASSERT_EQUAL(memcmp(tokens, again, CONTEXT), 0);
	CU_ASSERT_EQUAL(tokens[CONTEXT - 1], CONTEXT - 1);
	for (int i = 0; i < CONTEXT; i++) {
		count[tokens[i]]++;
		moved += tokens[i] != i;
	}
	for (int i = 0; i < CONTEXT; i++)
		CU_ASSERT_EQUAL(count[i], 1);
	CU_ASSERT_TRUE(moved > CONTEXT / 2);
	data_shuffle_context(tokens, 1, 5);
}

static void check_error(const char *name, int error, const char *word)
{
	struct data *data = NULL;
	char why[300] = "";

	CU_ASSERT_EQUAL(data_open(name, CONTEXT, &data, why, sizeof(why)),
			error);
	CU_ASSERT_PTR_NULL(data);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, name));
	CU_ASSERT_PTR_NOT_NULL(strstr(why, word));
	CU_ASSERT_PTR_NULL(strchr(why, '\n'));
}

static void test_errors(void)
{
	struct data *data = NULL;
	char why[300];

	check_error("/nonexistent/text", -ENOENT, "No such file");
	check_error("/tmp", -EINVAL, "not a regular file");
	write_file(0);
	check_error(path, -EINVAL, "too small");
	/* Validation gets the rounding: 161 bytes leave it 17, 160 just 16. */
	write_file(160);
	check_error(path, -EINVAL, "too small");
	write_file(161);
	CU_ASSERT_EQUAL(data_open(path, CONTEXT, &data, why, sizeof(why)), 0);
	CU_ASSERT_EQUAL(data_validation_offset(data, 1, 0), 144);
	CU_ASSERT_EQUAL(data_validation_offset(data, 9, 8), 144);
	data_close(data);
}

static int make_path(void)
{
	const int fd = mkstemp(path);

	if (fd < 0)
		return 1;
	return close(fd);
}

static int remove_path(void)
{
	return unlink(path);
}

static CU_TestInfo tests[] = {
	{"split", test_split},
	{"training offsets", test_train_offsets},
	{"training batch", test_train_batch},
	{"validation windows", test_validation},
	{"shuffled context", test_shuffle},
	{"unusable files", test_errors},
	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"data", make_path, remove_path, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	return run_suites(suites);
}
