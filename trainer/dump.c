/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tensors to a file, for comparisons: per tensor a line "NAME COUNT TYPE" and
 * the values in the machine's byte order.
 */
#include "train.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

int dump_tensors(const struct trainer *t, const char *prefix,
		 const real *values)
{
	char path[4096];
	FILE *file;
	bool bad = false;

	if (!prefix || t->replica != 0)
		return 0;
	snprintf(path, sizeof(path), "%s.%d", prefix, t->stage_index);
	file = fopen(path, "wb");
	if (!file)
		return trainer_fail(-errno, "%s: %s", path, strerror(errno));
	for (int i = 0; i < t->ntensors; i++) {
		const struct tensor *x = &t->tensors[i];

		bad |= fprintf(file, "%s %zu %s\n", x->name, x->count,
			       VBN_REAL_NAME) < 0;
		bad |= fwrite(values + x->offset, sizeof(real), x->count,
			      file) != x->count;
	}
	bad |= fclose(file) != 0;
	return bad ? trainer_fail(-EIO, "%s: write error", path) : 0;
}
