/* SPDX-License-Identifier: BSD-3-Clause */
/* The length of a tick: see clock.h. */
#include "clock.h"

#define PAUSES	     1000
#define PAUSE_MOST_S 35e-9

bool perf_pauses;

static double start_seconds;
static uint64_t start_ticks;

/* The shortest of three: the first may be interrupted. */
static void time_pauses(void)
{
	double least = 1;

	perf_pauses = true;
	for (int turn = 0; turn < 3; turn++) {
		double start = perf_now(), took;

		for (int i = 0; i < PAUSES; i++)
			perf_pause();
		took = (perf_now() - start) / PAUSES;
		if (took < least)
			least = took;
	}
	perf_pauses = least < PAUSE_MOST_S;
}

void perf_clock_start(void)
{
	time_pauses();
	start_seconds = perf_now();
	start_ticks = perf_ticks();
}

double perf_tick_seconds(void)
{
	double seconds = perf_now() - start_seconds;
	uint64_t ticks = perf_ticks() - start_ticks;

	return ticks ? seconds / (double)ticks : 0;
}
