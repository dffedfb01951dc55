/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stages: what algorithms of about log2(n) rounds have in common. In a stage
 * a rank puts a range of blocks to a peer, waits for one from a peer, or
 * both; what lands is reduced or copied. Ranges are cut in messages, which go
 * one after another within the stage; puts, reduces and copies come after
 * every step of the stages before.
 *
 * It cannot stop: all ranks go through the stages, and through a stage's
 * messages, in the same order, and for each put before they wait. So once
 * all messages before (stage, i) are through on all ranks, (stage, i) can
 * leave, having a landing slot, and be waited for. That needs stages that
 * match: a rank's `to` has it as `from`, with the same range and `at`.
 *
 * Blocks of different lengths (a layout) go in a message each, for ranks need
 * not agree on where blocks are; others that lie side by side go together.
 */
#ifndef VBN_PLAN_STAGE_H
#define VBN_PLAN_STAGE_H

#include "plan.h"

/* Blocks first, first + 1, ..., modulo all. */
struct plan_range {
	uint64_t first, blocks;
};

struct plan_stage {
	int to, from; /* peers; matter where there is something to do */
	struct plan_range put, wait;
	uint8_t at;   /* where both land: PLAN_LANDING, or OUTPUT to stay */
	uint8_t src;  /* of the put */
	uint8_t then; /* to what landed: PLAN_REDUCE, PLAN_COPY; */
	uint8_t acc, dst, flags; /* of that */
	bool opens;		 /* for from, whose puts go to: */
	enum plan_space opened;
	bool own;	 /* at the end, copy the own block to OUTPUT */
	uint8_t own_src; /* SCRATCH: it is a sum */
};

/* Stage @i, into a zeroed *stage; false: there is none. The same each time. */
typedef bool plan_stage_fn(const struct plan_page *page, unsigned i,
			   struct plan_stage *stage);

/*
 * For a page's begin: the vector has @blocks blocks: n, or of allreduce and
 * reduce another even split. SCRATCH is for what lies from block @base on.
 */
void plan_stage_begin(struct plan_page *page, uint64_t blocks, uint64_t base);

/* For a page's next. */
bool plan_stage_next(struct plan_page *page, struct plan_step *step,
		     plan_stage_fn *describe);

/*
 * Any n as a power of two: the first 2 (n - 2^rounds) ranks are pairs, and
 * one of each pair takes part for both. A number is a rank's among those
 * that take part.
 */
struct plan_fold {
	unsigned rounds;
	uint64_t pairs;
	uint64_t number; /* of the rank, or of the one that acts for it */
	bool folded;	 /* one of a pair */
	bool out;	 /* the other takes part */
};

/* @keep is a rank that must take part; -1: none. */
struct plan_fold plan_fold(const struct plan_shape *shape, int keep);
/* The rank that has a number. */
int plan_fold_rank(const struct plan_fold *fold, uint64_t number, int keep);

#endif
