/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors for people: a line per thread (vbn_error()), and a log for what
 * happens in the background. VBN_LOG=error|warn|info|debug, default warn.
 */
#ifndef VBN_ERROR_H
#define VBN_ERROR_H

#include <verbena/job.h>

/* Set the thread's line; returns @err (a negative errno) for the caller. */
VBN_API int vbn_fail(int err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

enum vbn_log_level { VBN_ERR, VBN_WARN, VBN_INFO, VBN_DEBUG };

/* One line to stderr, "verbena: ", in one write. Thread-safe. */
VBN_API void vbn_log(enum vbn_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
