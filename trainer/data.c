/* SPDX-License-Identifier: BSD-3-Clause */
/* Copyright (c) The Verbena authors */
/*
 * The mapped text and its sampling.
 */
#include "data.h"

#include "random.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct data {
	const uint8_t *bytes;
	uint64_t size;
	uint64_t train;	 /* validation is [train, size) */
	uint64_t window; /* context + 1 */
};

/* The 90 % without overflow, whatever the size. */
static uint64_t train_share(uint64_t size)
{
	return size / 10 * 9 + size % 10 * 9 / 10;
}

static int check_size(const char *path, uint64_t size, uint64_t window,
		      char *why, size_t why_size)
{
	const uint64_t train = train_share(size);

	if (train >= window && size - train >= window)
		return 0;
	snprintf(why, why_size,
		 "%s is too small: its %" PRIu64 " bytes leave %" PRIu64
		 " to train and %" PRIu64 " to validate, and both need %" PRIu64
		 " (context + 1); use a longer text or a shorter "
		 "context",
		 path, size, train, size - train, window);
	return -EINVAL;
}

static int map_file(int fd, const char *path, struct data *data, char *why,
		    size_t size)
{
	struct stat status;
	void *bytes;
	int error;

	if (fstat(fd, &status) < 0) {
		error = errno;
		snprintf(why, size, "cannot examine %s: %s", path,
			 strerror(error));
		return -error;
	}
	if (!S_ISREG(status.st_mode)) {
		snprintf(why, size,
			 "%s is not a regular file: "
			 "give a file of text",
			 path);
		return -EINVAL;
	}
	data->size = (uint64_t)status.st_size;
	data->train = train_share(data->size);
	error = check_size(path, data->size, data->window, why, size);
	if (error)
		return error;
	bytes = mmap(NULL, (size_t)data->size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED) {
		error = errno;
		snprintf(why, size, "cannot map %s: %s", path, strerror(error));
		return -error;
	}
	data->bytes = bytes;
	return 0;
}

int data_open(const char *path, int context, struct data **out, char *why,
	      size_t size)
{
	struct data *data;
	int fd, error;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		error = errno;
		snprintf(why, size, "cannot read the data file %s: %s", path,
			 strerror(error));
		return -error;
	}
	data = calloc(1, sizeof(*data));
	if (!data) {
		snprintf(why, size, "out of memory");
		error = -ENOMEM;
		goto close_file;
	}
	data->window = (uint64_t)context + 1;
	error = map_file(fd, path, data, why, size);
	if (error)
		free(data);
	else
		*out = data;
close_file:
	close(fd);
	return error;
}

void data_close(struct data *data)
{
	if (!data)
		return;
	munmap((void *)(uintptr_t)data->bytes, (size_t)data->size);
	free(data);
}

uint64_t data_train_bytes(const struct data *data)
{
	return data->train;
}

uint64_t data_validation_bytes(const struct data *data)
{
	return data->size - data->train;
}

uint64_t data_train_offset(const struct data *data, uint64_t seed,
			   uint64_t step, uint64_t i)
{
	const uint64_t key = random_subkey(random_key(seed, "batch"), step);

	return random_below(key, i, data->train - data->window + 1);
}

uint64_t data_validation_offset(const struct data *data, uint64_t n, uint64_t i)
{
	const uint64_t room = data_validation_bytes(data) - data->window;

	if (n < 2)
		return data->train;
	/* room * i / (n - 1), without overflow. */
	return data->train + room / (n - 1) * i + room % (n - 1) * i / (n - 1);
}

static void copy_sequence(const struct data *data, uint64_t offset, int row,
			  uint8_t *tokens, uint8_t *targets)
{
	const size_t context = (size_t)data->window - 1;
	const size_t at = (size_t)row * context;

	if (tokens)
		memcpy(tokens + at, data->bytes + offset, context);
	if (targets)
		memcpy(targets + at, data->bytes + offset + 1, context);
}

void data_train_batch(const struct data *data, uint64_t seed, uint64_t step,
		      uint64_t first, int count, uint8_t *tokens,
		      uint8_t *targets)
{
	for (int i = 0; i < count; i++)
		copy_sequence(data,
			      data_train_offset(data, seed, step,
						first + (uint64_t)i),
			      i, tokens, targets);
}

void data_validation_batch(const struct data *data, uint64_t n, uint64_t first,
			   int count, uint8_t *tokens, uint8_t *targets)
{
	for (int i = 0; i < count; i++)
		copy_sequence(
			data,
			data_validation_offset(data, n, first + (uint64_t)i), i,
			tokens, targets);
}

void data_shuffle_context(uint8_t *tokens, int context, uint64_t seed)
{
	const uint64_t key = random_key(seed, "shuffle");

	for (int i = context - 2; i > 0; i--) {
		const uint64_t j =
			random_below(key, (uint64_t)i, (uint64_t)i + 1);
		const uint8_t byte = tokens[i];

		tokens[i] = tokens[j];
		tokens[j] = byte;
	}
}
