/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where results go, a file or standard output: verbena-perf's and
 * verbena-sim's. The words on errors are the caller's.
 */
#ifndef PERF_SINK_H
#define PERF_SINK_H

#include <stdio.h>

/*
 * Open the file @path for writing; "-": standard output. NULL: nothing is to be
 * written, *out stays as it is. 0 or -errno, then *out is NULL.
 */
int sink_open(FILE **out, const char *path);
/*
 * Write what is left, and close what is not standard output; NULL: nothing.
 * 0 or -errno, of an earlier write, too.
 */
int sink_close(FILE *f);
/* @path for a message; NULL is standard output, too. */
const char *sink_name(const char *path);

#endif
