/* SPDX-License-Identifier: BSD-3-Clause */
#include "plan_stage.h"

enum { FIRST, BASE, BLOCKS }; /* page->mark: the stage's first step, ... */
enum { PUT, WAIT, TAKE, PARTS };

/* ---- ranges and messages ---- */

static uint64_t block_at(const struct plan_page *page, uint64_t i,
			 uint64_t *off)
{
	uint64_t blocks = page->mark[BLOCKS], count = page->shape.count;

	if (blocks == (uint64_t)page->shape.n)
		return plan_block(&page->shape, (int)i, off);
	*off = plan_part_off(count, blocks, i);
	return plan_part_len(count, blocks, i);
}

/* @blocks of them side by side. */
static uint64_t run_at(const struct plan_page *page, uint64_t first,
		       uint64_t blocks, uint64_t *off)
{
	uint64_t len, last;

	if (blocks == 0)
		return 0;
	block_at(page, first, off);
	len = block_at(page, first + blocks - 1, &last);
	return last + len - *off;
}

/* Blocks of the range before it begins again at 0. */
static uint64_t head(const struct plan_page *page,
		     const struct plan_range *range)
{
	uint64_t room = page->mark[BLOCKS] - range->first;

	return range->blocks < room ? range->blocks : room;
}

static uint64_t messages_of(const struct plan_page *page, uint64_t len)
{
	return len == 0 ? 0 : (len - 1) / page->segment + 1;
}

static uint64_t messages(const struct plan_page *page,
			 const struct plan_range *range)
{
	uint64_t blocks = head(page, range), off;

	if (page->shape.layout)
		return range->blocks * page->segments;
	return messages_of(page, run_at(page, range->first, blocks, &off)) +
	       messages_of(page, run_at(page, 0, range->blocks - blocks, &off));
}

/* Message @i of the range: its length, 0 if there is none, and offset. */
static uint64_t message_at(const struct plan_page *page,
			   const struct plan_range *range, uint64_t i,
			   uint64_t *off)
{
	uint64_t blocks = head(page, range), len, skip, before;

	if (page->shape.layout) {
		if (i >= range->blocks * page->segments)
			return 0;
		len = block_at(page,
			       (range->first + i / page->segments) %
				       page->mark[BLOCKS],
			       off);
		i %= page->segments;
	} else {
		len = run_at(page, range->first, blocks, off);
		before = messages_of(page, len);
		if (i >= before) {
			len = run_at(page, 0, range->blocks - blocks, off);
			i -= before;
		}
	}
	len = plan_segment_at(page, len, i, &skip);
	*off += skip;
	return len;
}

/* Where in a space is what is at @off of the vector. */
static uint64_t place(const struct plan_page *page, uint8_t space, uint64_t off)
{
	enum plan_operation operation = page->shape.operation;
	bool own_only = operation == PLAN_OP_ALLGATHER ? space == PLAN_INPUT
			: operation == PLAN_OP_REDUCE_SCATTER
				? space == PLAN_OUTPUT
				: false;
	uint64_t own;

	if (space == PLAN_SCRATCH)
		return off - page->mark[BASE];
	if (!own_only)
		return off;
	plan_block(&page->shape, page->shape.rank, &own);
	return off - own;
}

/* ---- steps ---- */

static void put_step(const struct plan_page *page,
		     const struct plan_stage *stage, uint64_t off,
		     struct plan_step *step)
{
	step->kind = PLAN_PUT;
	step->peer = stage->to;
	step->src = stage->src;
	step->src_off = place(page, stage->src, off);
	step->dst = stage->at;
	step->dst_off = stage->at == PLAN_OUTPUT ? off : 0;
	step->after = page->mark[FIRST];
}

static void wait_step(const struct plan_stage *stage, uint64_t off,
		      struct plan_step *step)
{
	step->kind = PLAN_WAIT;
	step->peer = stage->from;
	step->dst = stage->at;
	step->dst_off = stage->at == PLAN_OUTPUT ? off : 0;
	step->flags = stage->flags & PLAN_WIDE;
}

static void take_step(const struct plan_page *page,
		      const struct plan_stage *stage, uint64_t off,
		      struct plan_step *step)
{
	step->kind = stage->then;
	step->peer = stage->from;
	step->src = PLAN_LANDING;
	step->dst = stage->dst;
	step->dst_off = place(page, stage->dst, off);
	step->flags = stage->flags;
	step->dep[0] = page->next - 1;
	step->after = page->mark[FIRST];
	if (stage->then == PLAN_REDUCE) {
		step->acc = stage->acc;
		step->acc_off = place(page, stage->acc, off);
	}
}

/* Part @part of message page->iteration; false if it has none. */
static bool message_step(const struct plan_page *page,
			 const struct plan_stage *stage, unsigned part,
			 struct plan_step *step)
{
	uint64_t off = 0;

	step->len = message_at(page, part == PUT ? &stage->put : &stage->wait,
			       page->iteration, &off);
	if (step->len == 0 || (part == TAKE && stage->at != PLAN_LANDING))
		return false;
	if (part == PUT)
		put_step(page, stage, off, step);
	else if (part == WAIT)
		wait_step(stage, off, step);
	else
		take_step(page, stage, off, step);
	return true;
}

static bool own_step(const struct plan_page *page,
		     const struct plan_stage *stage, struct plan_step *step)
{
	uint64_t off, len = plan_block(&page->shape, page->shape.rank, &off);

	if (!stage->own || len == 0)
		return false;
	step->len = len;
	step->kind = PLAN_COPY;
	step->src = stage->own_src;
	step->src_off = place(page, stage->own_src, off);
	step->dst = PLAN_OUTPUT;
	step->dst_off = place(page, PLAN_OUTPUT, off);
	step->flags = stage->own_src == PLAN_SCRATCH ? PLAN_FINISH : 0;
	step->after = page->mark[FIRST];
	return true;
}

/* The opens of all stages come first. */
static bool open_step(struct plan_page *page, struct plan_step *step,
		      plan_stage_fn *describe)
{
	while (!page->opens) {
		struct plan_stage stage = {0};

		if (!describe(page, page->round, &stage)) {
			page->opens = 1;
			page->round = 0;
			return false;
		}
		page->round++;
		if (stage.opens) {
			*step = plan_open(page, stage.from, stage.opened);
			return true;
		}
	}
	return false;
}

/* ---- for the pages ---- */

void plan_stage_begin(struct plan_page *page, uint64_t blocks, uint64_t base)
{
	uint64_t off;

	page->mark[BLOCKS] = blocks;
	if (page->shape.layout) {
		plan_segment(page, plan_block_most(&page->shape));
		return;
	}
	plan_segment(page, run_at(page, 0, blocks, &off));
	block_at(page, base, &page->mark[BASE]);
}

bool plan_stage_next(struct plan_page *page, struct plan_step *step,
		     plan_stage_fn *describe)
{
	if (page->segments == 0)
		return false;
	if (open_step(page, step, describe))
		return true;
	for (;;) {
		struct plan_stage stage = {0};
		uint64_t puts, waits;

		if (!describe(page, page->round, &stage))
			return false;
		puts = messages(page, &stage.put);
		waits = messages(page, &stage.wait);
		for (; page->iteration < puts || page->iteration < waits;
		     page->iteration++, page->part = PUT)
			while (page->part < PARTS)
				if (message_step(page, &stage, page->part++,
						 step))
					return true;
		if (page->part++ == PUT && own_step(page, &stage, step))
			return true;
		page->part = PUT;
		page->iteration = 0;
		page->round++;
		page->mark[FIRST] = page->next;
	}
}

struct plan_fold plan_fold(const struct plan_shape *shape, int keep)
{
	uint64_t n = (uint64_t)shape->n, rank = (uint64_t)shape->rank;
	struct plan_fold fold = {.rounds = plan_log2(n)};

	if (UINT64_C(1) << fold.rounds > n)
		fold.rounds--;
	fold.pairs = n - (UINT64_C(1) << fold.rounds);
	fold.folded = rank < 2 * fold.pairs;
	fold.number = fold.folded ? rank / 2 : rank - fold.pairs;
	fold.out = plan_fold_rank(&fold, fold.number, keep) != shape->rank;
	return fold;
}

int plan_fold_rank(const struct plan_fold *fold, uint64_t number, int keep)
{
	if (number >= fold->pairs)
		return (int)(number + fold->pairs);
	return (int)(2 * number) + ((int)(2 * number) != keep);
}
