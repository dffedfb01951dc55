/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random traffic by a connection: long puts with a word behind them (a notify,
 * or a message), words alone, messages of several lengths, gets, atomics,
 * flushes. What arrives is checked: each word once, in order, and behind its
 * data. Operations end once (the mock core sees to that) and well; an atomic
 * may end in doubt.
 */
#ifndef TESTS_TRAFFIC_H
#define TESTS_TRAFFIC_H

#include "pair.h"

#define WAY_OPS	   40u
#define WAY_PIECES 6u

/* A direction: from one end to the other. */
struct way {
	struct bench *from, *to;
	struct side *side, *other;
	struct region src, dst; /* at the sender, at the receiver */
	unsigned limit;		/* operations to post */
	unsigned posted, done;
	unsigned sent, seen; /* notifies and messages */
	unsigned wrong, in_doubt;
	bool word_due; /* data has gone, its word not yet */
	uint64_t added;
	struct vbn_op ops[WAY_OPS];
	uint64_t results[WAY_OPS];
	uint8_t kind[WAY_OPS];
	bool busy[WAY_OPS];
};

/* Numbers that follow from the seed. */
void traffic_seed(uint64_t seed);
uint32_t traffic_random(void);

void way_open(struct way *w, struct bench *from, struct bench *to,
	      struct side *side, struct side *other, unsigned limit);
void way_close(struct way *w);
/* Post one more, if there is room. */
void way_post(struct way *w);
/* All that was posted has ended, and all that was sent has been seen. */
bool way_over(const struct way *w);
/* And all was right? Says what is not, after @what, on stderr. */
bool way_right(struct way *w, const char *what);

#endif
