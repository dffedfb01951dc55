/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A tuning file: what verbena-perf tune has measured. Text; docs/collectives.md
 * describes it. All ranks must have the same.
 */
#ifndef VBN_TUNING_H
#define VBN_TUNING_H

#include "cost.h"

#include <stddef.h>

/* For an operation of @n members on @bytes, counted as choose.h does. */
struct tuning_line {
	enum plan_operation operation;
	enum plan_algorithm algorithm;
	int n;
	size_t at;	       /* its number in the file, from 1 */
	uint64_t bytes, chunk; /* chunk 0: by the model */
};

struct tuning {
	struct cost_params params;
	size_t count;
	/* By operation, n and bytes; of the same three, the better first. */
	struct tuning_line lines[];
};

/*
 * Read the file @path. -EINVAL: vbn_error() names the line and what is
 * expected there; -ENOMEM; -errno of what cannot be read. Blocks for the
 * file. free() it.
 */
int tuning_load(const char *path, struct tuning **tuning);

/*
 * The lines of @operation and @n whose size is nearest to @bytes, by ratio:
 * *first is the better one; returns how many, 0: there is none.
 */
size_t tuning_find(const struct tuning *tuning, enum plan_operation operation,
		   int n, uint64_t bytes, const struct tuning_line **first);

#endif
