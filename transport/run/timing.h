/* SPDX-License-Identifier: BSD-3-Clause */
/* Times that the launcher and its agents go by. */
#ifndef VERBENA_RUN_TIMING_H
#define VERBENA_RUN_TIMING_H

#include <stdint.h>
#include <time.h>

/* Output of descendants that outlive their rank is waited for this long. */
#define TAIL_MS 1000

static inline int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

#endif
