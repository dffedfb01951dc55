/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bruck's algorithms: allgather and alltoall in ceil(log2(n)) rounds for any
 * n. J. Bruck, C. Ho, S. Kipnis, E. Upfal, D. Weathersby: Efficient algorithms
 * for all-to-all communications in multiport message-passing systems. IEEE
 * Trans. Parallel Distrib. Syst. 8(11), 1997.
 *
 * Allgather: in round j rank r has the blocks r .. r + 2^j - 1 (mod n) and
 * puts them, as many as are missing there, to r - 2^j, straight to their
 * place in OUTPUT; n - 1 blocks in all. Stages (plan_stage.h).
 *
 * Alltoall: a rank's part number i is the one that is to move i ranks on. In
 * round j all with bit j set move by 2^j, from r to r + 2^j, so after the
 * last, part i is the one from r - i. About half of the parts in each round:
 * log2(n) / 2 times the bytes of a direct exchange, but few messages; for
 * small parts.
 * - The parts of a round are packed into one buffer and arrive as one, in
 *   segments of both; both buffers are the round's own, so no put's source is
 *   overwritten. The place of i among those with bit j is i without the bit.
 * - Where part i is before round j: in the buffer that came in the round of
 *   its highest bit below j, or, without such a bit, where it was in INPUT.
 * - OUTPUT is written after the last round, when INPUT has been read.
 * All ranks pack, put and wait in the same order: a window of 1 and one
 * landing slot are enough.
 */
#include "plan_stage.h"

/* ---- allgather ---- */

static bool describe(const struct plan_page *page, unsigned i,
		     struct plan_stage *stage)
{
	uint64_t n = (uint64_t)page->shape.n, r = (uint64_t)page->shape.rank;
	uint64_t distance = UINT64_C(1) << i, blocks = distance;

	if (distance >= n)
		return false;
	if (blocks > n - distance)
		blocks = n - distance;
	stage->to = (int)((r + n - distance) % n);
	stage->from = (int)((r + distance) % n);
	stage->put = (struct plan_range){r, blocks};
	stage->wait = (struct plan_range){(r + distance) % n, blocks};
	stage->at = PLAN_OUTPUT;
	stage->src = i == 0 ? PLAN_INPUT : PLAN_OUTPUT;
	stage->opens = true;
	stage->opened = PLAN_OUTPUT;
	stage->own = i == 0;
	stage->own_src = PLAN_INPUT;
	return true;
}

static void begin_gather(struct plan_page *page)
{
	plan_stage_begin(page, (uint64_t)page->shape.n, 0);
}

static bool next_gather(struct plan_page *page, struct plan_step *step)
{
	return plan_stage_next(page, step, describe);
}

/* ---- alltoall ---- */

enum { PACK, MOVE }; /* page->lag */

/* Numbers below n with bit @j, and the place of @i among them. */
static uint64_t parts_with(uint64_t n, unsigned j)
{
	uint64_t bit = UINT64_C(1) << j, rest = n & (2 * bit - 1);

	return (n >> (j + 1) << j) + (rest > bit ? rest - bit : 0);
}

static uint64_t without(uint64_t i, unsigned j)
{
	return (i >> (j + 1) << j) | (i & ((UINT64_C(1) << j) - 1));
}

/* The inverse: the @k-th number with bit @j. */
static uint64_t with(uint64_t k, unsigned j)
{
	uint64_t low = k & ((UINT64_C(1) << j) - 1);

	return (k - low) << 1 | UINT64_C(1) << j | low;
}

/* The buffers of round @j: of what leaves, and of what came. */
static uint64_t buffer(const struct plan_page *page, unsigned j, bool came)
{
	uint64_t half = (uint64_t)page->shape.n / 2 * page->shape.count;

	return (2 * (uint64_t)j + came) * half;
}

/* Where part @i is before round @j. */
static void find(const struct plan_page *page, uint64_t i, unsigned j,
		 struct plan_step *step)
{
	uint64_t n = (uint64_t)page->shape.n, count = page->shape.count;
	uint64_t low = i & ((UINT64_C(1) << j) - 1);
	unsigned top;

	step->src = PLAN_INPUT;
	step->src_off = ((uint64_t)page->shape.rank + i) % n * count;
	if (low == 0)
		return;
	top = plan_log2(low + 1) - 1;
	step->src = PLAN_SCRATCH;
	step->src_off = buffer(page, top, true) + without(i, top) * count;
}

static void pack_step(const struct plan_page *page, struct plan_step *step)
{
	uint64_t k = page->iteration;

	step->kind = PLAN_COPY;
	step->len = page->shape.count;
	step->dst = PLAN_SCRATCH;
	step->dst_off = buffer(page, page->round, false) + k * step->len;
	step->after = page->mark[0];
	find(page, with(k, page->round), page->round, step);
}

static void move_step(const struct plan_page *page, struct plan_step *step,
		      uint64_t skip)
{
	uint64_t n = (uint64_t)page->shape.n, r = (uint64_t)page->shape.rank;
	uint64_t distance = UINT64_C(1) << page->round;

	step->dst = PLAN_LANDING;
	step->flags = PLAN_WIDE; /* SCRATCH is. */
	if (page->part == 0) {
		step->kind = PLAN_PUT;
		step->flags = 0;
		step->peer = (int)((r + distance) % n);
		step->src = PLAN_SCRATCH;
		step->src_off = buffer(page, page->round, false) + skip;
		step->after = page->mark[0];
		return;
	}
	step->kind = page->part == 1 ? PLAN_WAIT : PLAN_COPY;
	step->peer = (int)((r + n - distance) % n);
	if (page->part == 1)
		return;
	step->src = PLAN_LANDING;
	step->dst = PLAN_SCRATCH;
	step->dst_off = buffer(page, page->round, true) + skip;
	step->dep[0] = page->next - 1;
}

/* Part @i is the one from r - i. */
static void unpack_step(const struct plan_page *page, struct plan_step *step)
{
	uint64_t n = (uint64_t)page->shape.n, r = (uint64_t)page->shape.rank;
	uint64_t i = page->iteration;

	step->kind = PLAN_COPY;
	step->len = page->shape.count;
	step->dst = PLAN_OUTPUT;
	step->dst_off = (r + n - i) % n * step->len;
	step->after = page->mark[0];
	find(page, i, page->round, step);
}

static void begin(struct plan_page *page)
{
	uint64_t n = (uint64_t)page->shape.n;

	plan_segment(page, n / 2 * page->shape.count);
}

/* From packing to moving, and to the next round's packing. */
static void turn(struct plan_page *page)
{
	page->round += page->lag == MOVE;
	page->lag = page->lag == MOVE ? PACK : MOVE;
	page->iteration = 0;
	page->mark[0] = page->next;
}

static bool next(struct plan_page *page, struct plan_step *step)
{
	uint64_t n = (uint64_t)page->shape.n, r = (uint64_t)page->shape.rank;
	unsigned rounds = plan_log2(n);
	uint64_t parts, skip;

	if (page->shape.count == 0)
		return false;
	if (page->opens < rounds) {
		uint64_t distance = UINT64_C(1) << page->opens++;

		*step = plan_open(page, (int)((r + n - distance) % n),
				  PLAN_LANDING);
		return true;
	}
	for (; page->round < rounds; turn(page)) {
		parts = parts_with(n, page->round);
		if (page->lag == PACK && page->iteration < parts) {
			pack_step(page, step);
			page->iteration++;
			return true;
		}
		if (page->lag == PACK)
			continue;
		step->len = plan_segment_at(page, parts * page->shape.count,
					    page->iteration, &skip);
		if (step->len == 0)
			continue;
		move_step(page, step, skip);
		if (++page->part == 3) {
			page->part = 0;
			page->iteration++;
		}
		return true;
	}
	if (page->iteration == n)
		return false;
	unpack_step(page, step);
	page->iteration++;
	return true;
}

/* ---- both ---- */

static const struct plan_page_ops alltoall_ops = {begin, next};
static const struct plan_page_ops allgather_ops = {begin_gather, next_gather};

static bool phase(const struct plan_shape *shape, unsigned i,
		  struct plan_phase *phase)
{
	*phase = plan_whole(shape, shape->operation == PLAN_OP_ALLGATHER
					   ? &allgather_ops
					   : &alltoall_ops);
	return i == 0;
}

static uint64_t scratch(const struct plan_shape *shape)
{
	uint64_t n = (uint64_t)shape->n;

	return 2 * plan_log2(n) * (n / 2) * shape->count;
}

#define SOURCE "Bruck et al. 1997, doi:10.1109/71.642949"

const struct plan_algo plan_bruck_allgather = {.phase = phase,
					       .source = SOURCE};
const struct plan_algo plan_bruck_alltoall = {
	.phase = phase, .even = true, .scratch = scratch, .source = SOURCE};
