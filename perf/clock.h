/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Time, as perftest takes it: the processor's cycle counter, which costs a
 * measurement nearly nothing; clock_gettime() can be a system call (in a
 * virtual machine it often is). What a tick lasts is found out by comparing
 * both clocks over the whole run so far.
 */
#ifndef PERF_CLOCK_H
#define PERF_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Seconds of the monotonic clock. */
static inline double perf_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static inline uint64_t perf_ticks(void)
{
#ifdef __x86_64__
	return __builtin_ia32_rdtsc();
#else
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
#endif
}

/* Once, before anything is measured. */
void perf_clock_start(void);

/*
 * Between two looks at memory that another processor is to write: a reader that
 * looks all the time slows the writer's taking of the line. Processors' pauses
 * last 10 to 60 ns; one that would cost more than that saves is left out.
 */
extern bool perf_pauses;
static inline void perf_pause(void)
{
#ifdef __x86_64__
	if (perf_pauses)
		__builtin_ia32_pause();
#endif
}
/* Seconds per tick, by what has passed since. */
double perf_tick_seconds(void);

#endif
