/* SPDX-License-Identifier: BSD-3-Clause */
/* The thread's error line and the log. A line is never split. */
#include "error.h"

#include <verbena/job.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static __thread char error_line[512];

int vbn_fail(int err, const char *fmt, ...)
{
	char line[sizeof(error_line)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	memcpy(error_line, line, sizeof(line)); /* fmt's args may be the line */
	return err;
}

const char *vbn_error(void)
{
	return error_line;
}

static enum vbn_log_level log_level(void)
{
	static const char *const names[] = {"error", "warn", "info", "debug"};
	const char *want = getenv("VBN_LOG");

	for (int i = 0; want && i < 4; i++)
		if (!strcmp(want, names[i]))
			return (enum vbn_log_level)i;
	return VBN_WARN;
}

void vbn_log(enum vbn_log_level level, const char *fmt, ...)
{
	char line[1024];
	size_t n = (size_t)snprintf(line, sizeof(line), "verbena: ");
	va_list args;
	int m;

	if (level > log_level())
		return;
	va_start(args, fmt);
	m = vsnprintf(line + n, sizeof(line) - n - 1, fmt, args);
	va_end(args);
	n += m < 0 ? 0 : (size_t)m;
	if (n > sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		return; /* nowhere left to say it */
}
