/* SPDX-License-Identifier: BSD-3-Clause */
/* The raw baseline, for those who know nothing of ibverbs: see raw.h. */
#ifndef PERF_RAW_OPEN_H
#define PERF_RAW_OPEN_H

#include "perf.h"

/* -ENODEV with a clear line when there is no usable RDMA device. */
int raw_open(struct perf *p, struct method *m, size_t bytes);
const char *raw_device(const void *self);

#endif
