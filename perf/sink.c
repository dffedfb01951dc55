/* SPDX-License-Identifier: BSD-3-Clause */
/* Where results go: see sink.h. */
#include "sink.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static bool is_standard(const char *path)
{
	return !path || strcmp(path, "-") == 0;
}

int sink_open(FILE **out, const char *path)
{
	if (!path)
		return 0;
	*out = is_standard(path) ? stdout : fopen(path, "w");
	return *out ? 0 : -errno;
}

int sink_close(FILE *f)
{
	int error = 0;

	if (!f)
		return 0;
	if (fflush(f) != 0)
		error = errno;
	else if (ferror(f)) /* an earlier write's; what it was is lost */
		error = EIO;
	if (f != stdout && fclose(f) != 0 && error == 0)
		error = errno;
	return -error;
}

const char *sink_name(const char *path)
{
	return is_standard(path) ? "standard output" : path;
}
