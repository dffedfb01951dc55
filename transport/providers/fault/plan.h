/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What VBN_FAULT asks for, as it concerns one rank; and chance, which is a
 * function of the plan's seed and of what it is asked about.
 */
#ifndef FAULT_PLAN_H
#define FAULT_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#define FAULT_TIME_US	500
#define FAULT_TIME_MOST 1000000
#define FAULT_SLOW_MOST 100000

struct fault_plan {
	bool on; /* there is one */
	uint64_t seed;
	/* how likely, of each; 0 to 1 */
	double delay;	/* an arrival is delivered late */
	double reorder; /* one waits for another peer's */
	double late;	/* a completion comes late */
	double again;	/* a post gives -EAGAIN first */
	double corrupt; /* a bit of payload is flipped under way */
	long time_us;	/* the most that is held back */
	long slow_us;	/* each progress sleeps so long */
	/* at this operation of a context, counted from 1; 0: none */
	uint64_t fail;	 /* it completes with -EIO, and the endpoint fails */
	uint64_t broken; /* its connection breaks */
	uint64_t kill;	 /* the process kills itself */
};

/*
 * Fill @plan from @text, which may be NULL. -EINVAL with the item that is
 * wrong in vbn_error().
 */
int fault_plan_parse(const char *text, int rank, int nranks,
		     struct fault_plan *plan);

/* What chance is drawn for: one stream each, so that none shifts another. */
enum fault_draw {
	DRAW_AGAIN,
	DRAW_DELAY,
	DRAW_REORDER,
	DRAW_LATE,
	DRAW_CORRUPT,
	DRAW_WINDOW,
	DRAW_OWN /* added for what the library posts by itself */
};

/* 64 random bits, the same for the same arguments. */
uint64_t fault_mix(uint64_t a, uint64_t b);
/* Whether random @bits mean yes, which they do with @likely. */
bool fault_chance(uint64_t bits, double likely);

#endif
