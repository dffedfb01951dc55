/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rings, segmented and pipelined: reduce-scatter and allgather, each n - 1
 * rounds around the ring, and allreduce as the one followed by the other;
 * there every rank sends 2 (n - 1) / n of the data, which is the least
 * possible. P. Patarasuk, X. Yuan: Bandwidth optimal all-reduce algorithms for
 * clusters of workstations. J. Parallel Distrib. Comput. 69(2), 2009.
 *
 * In round k rank r sends block r - shift - k (mod n) to r + 1 and receives
 * block r - 1 - shift - k; shift is 1 in the reduce-scatter, so that the last
 * block is its own. Blocks are cut into the same number of segments; message
 * m = k * segments + s. Iteration m is {put, wait, reduce}, in the allgather
 * {put, wait}; put m needs what came in iteration m minus segments. Putting
 * before waiting in each iteration is what keeps the ring from stopping,
 * however small the window.
 *
 * With two ways, blocks are cut in halves, of which the second goes round the
 * other way; the ways take turns.
 *
 * Block b is summed along the ring, once, so all ranks get the same bits.
 * Partial sums that have no place in OUTPUT are in two buffers of SCRATCH,
 * used in turn by the rounds; a put out of one is waited for.
 */
#include "plan.h"

struct piece {
	uint64_t len, off, in_block, in_share; /* off: in the vector */
};

static bool has_reduce(const struct plan_page *page)
{
	return page->shape.operation != PLAN_OP_ALLGATHER;
}

static bool has_gather(const struct plan_page *page)
{
	return page->shape.operation != PLAN_OP_REDUCE_SCATTER;
}

/* Rounds that reduce, and all rounds. */
static uint64_t reducing(const struct plan_page *page)
{
	return has_reduce(page) ? (uint64_t)page->shape.n - 1 : 0;
}

static uint64_t rounds(const struct plan_page *page)
{
	return reducing(page) +
	       (has_gather(page) ? (uint64_t)page->shape.n - 1 : 0);
}

static bool in_scratch(const struct plan_shape *shape)
{
	return shape->wide || shape->operation == PLAN_OP_REDUCE_SCATTER;
}

/* The longest share of a block that goes one way. */
static uint64_t share_most(const struct plan_shape *shape, unsigned ways)
{
	return (plan_block_most(shape) + ways - 1) / ways;
}

static void begin(struct plan_page *page, unsigned ways)
{
	page->children = ways;
	plan_segment(page, share_most(&page->shape, ways));
	page->opens = ways + (page->shape.operation == PLAN_OP_ALLGATHER);
}

static void begin_ring(struct plan_page *page)
{
	begin(page, 1);
}

static void begin_biring(struct plan_page *page)
{
	begin(page, 2);
}

/* The rank @distance further along @way. */
static int along(const struct plan_page *page, unsigned way, int64_t distance)
{
	int64_t n = page->shape.n;
	int64_t at = page->shape.rank + (way ? -distance : distance) % n;

	return (int)((at + n) % n);
}

/* Segment @s of @way's share of the block that is @back behind us. */
static struct piece piece_at(const struct plan_page *page, unsigned way,
			     uint64_t back, uint64_t s)
{
	unsigned ways = page->children;
	int block = along(page, way, -(int64_t)back);
	struct piece piece;
	uint64_t len = plan_block(&page->shape, block, &piece.off);

	piece.len = plan_segment_at(page, plan_part_len(len, ways, way), s,
				    &piece.in_share);
	piece.in_block = plan_part_off(len, ways, way) + piece.in_share;
	piece.off += piece.in_block;
	return piece;
}

/* The number of the first step of iteration @m of @way. */
static uint64_t first_step(const struct plan_page *page, uint64_t m,
			   unsigned way)
{
	uint64_t turn = m * page->children + way;
	uint64_t three = reducing(page) * page->segments * page->children;

	return page->opens +
	       (turn < three ? 3 * turn : 3 * three + 2 * (turn - three));
}

/* Where the partial sum of round @k is. */
static void partial(const struct plan_page *page, uint64_t k, unsigned way,
		    const struct piece *piece, uint8_t *space, uint64_t *off)
{
	if (!in_scratch(&page->shape)) {
		*space = PLAN_OUTPUT;
		*off = piece->off;
		return;
	}
	*space = PLAN_SCRATCH;
	*off = (k % 2 * page->children + way) *
		       share_most(&page->shape, page->children) +
	       piece->in_share;
}

static uint64_t shift(const struct plan_page *page)
{
	return page->shape.operation == PLAN_OP_REDUCE_SCATTER ? 1 : 0;
}

static void put_step(const struct plan_page *page, struct plan_step *step,
		     uint64_t k, uint64_t s, unsigned way)
{
	struct piece piece = piece_at(page, way, k + shift(page), s);
	bool gather = k >= reducing(page);

	step->len = piece.len;
	step->kind = PLAN_PUT;
	step->peer = along(page, way, 1);
	step->dst = gather ? PLAN_OUTPUT : PLAN_LANDING;
	step->dst_off = gather ? piece.off : 0;
	if (k == 0) {
		step->src = PLAN_INPUT;
		step->src_off = has_reduce(page) ? piece.off : piece.in_block;
		return;
	}
	/* The reduce, or in the allgather the wait, of its data. */
	step->dep[0] = first_step(page, page->iteration - page->segments, way) +
		       (k - 1 < reducing(page) ? 2 : 1);
	if (gather) {
		step->src = PLAN_OUTPUT;
		step->src_off = piece.off;
		return;
	}
	partial(page, k - 1, way, &piece, &step->src, &step->src_off);
	if (step->src == PLAN_SCRATCH)
		step->flags |= PLAN_SYNC;
}

static void receive_step(const struct plan_page *page, struct plan_step *step,
			 uint64_t k, uint64_t s, unsigned way)
{
	struct piece piece = piece_at(page, way, k + 1 + shift(page), s);
	bool gather = k >= reducing(page);

	step->len = piece.len;
	step->peer = along(page, way, -1);
	if (!gather && k > 0 && in_scratch(&page->shape))
		step->flags |= PLAN_WIDE;
	if (page->part == 1) {
		step->kind = PLAN_WAIT;
		step->dst = gather ? PLAN_OUTPUT : PLAN_LANDING;
		step->dst_off = gather ? piece.off : 0;
		return;
	}
	step->kind = PLAN_REDUCE;
	step->src = PLAN_LANDING;
	step->acc = PLAN_INPUT;
	step->acc_off = piece.off;
	step->dep[0] = page->next - 1;
	if (k == reducing(page) - 1) {
		step->flags |= PLAN_FINISH;
		step->dst = PLAN_OUTPUT;
		step->dst_off = has_gather(page) ? piece.off : piece.in_block;
		return;
	}
	partial(page, k, way, &piece, &step->dst, &step->dst_off);
	/* The put of round k - 1 out of the same buffer. */
	if (step->dst == PLAN_SCRATCH && k >= 2)
		step->dep[1] =
			first_step(page, page->iteration - page->segments, way);
}

static void open_step(const struct plan_page *page, struct plan_step *step)
{
	unsigned i = (unsigned)page->next;
	struct piece piece;

	if (i < page->children) {
		*step = plan_open(page, along(page, i, -1),
				  has_gather(page) ? PLAN_OUTPUT
						   : PLAN_LANDING);
		return;
	}
	piece.len = plan_block(&page->shape, page->shape.rank, &piece.off);
	step->kind = piece.len ? PLAN_COPY : PLAN_NONE;
	step->src = PLAN_INPUT;
	step->dst = PLAN_OUTPUT;
	step->dst_off = piece.off;
	step->len = piece.len;
}

static bool next_ring(struct plan_page *page, struct plan_step *step)
{
	unsigned way = page->round;
	uint64_t k, s;

	if (page->segments == 0 ||
	    page->iteration >= rounds(page) * page->segments)
		return false;
	if (page->next < page->opens) {
		open_step(page, step);
		return true;
	}
	k = page->iteration / page->segments;
	s = page->iteration % page->segments;
	if (page->part == 0)
		put_step(page, step, k, s, way);
	else
		receive_step(page, step, k, s, way);
	if (step->len == 0)
		step->kind = PLAN_NONE;
	if (++page->part == (k < reducing(page) ? 3 : 2)) {
		page->part = 0;
		if (++page->round == page->children) {
			page->round = 0;
			page->iteration++;
		}
	}
	return true;
}

static const struct plan_page_ops ring_ops = {begin_ring, next_ring};
static const struct plan_page_ops biring_ops = {begin_biring, next_ring};

static bool ring_phase(const struct plan_shape *shape, unsigned i,
		       struct plan_phase *phase)
{
	*phase = plan_whole(shape, &ring_ops);
	return i == 0;
}

static bool biring_phase(const struct plan_shape *shape, unsigned i,
			 struct plan_phase *phase)
{
	*phase = plan_whole(shape, &biring_ops);
	return i == 0;
}

static uint64_t scratch(const struct plan_shape *shape)
{
	/* Two buffers a way; of a share's rounding, at most one more each. */
	return in_scratch(shape) && shape->n > 2 ? 4 * share_most(shape, 2) + 4
						 : 0;
}

#define SOURCE "Patarasuk and Yuan 2009, doi:10.1016/j.jpdc.2008.09.002"

const struct plan_algo plan_ring_allreduce = {
	.phase = ring_phase, .scratch = scratch, .source = SOURCE};
const struct plan_algo plan_ring_reduce_scatter = {
	.phase = ring_phase, .scratch = scratch, .source = SOURCE};
const struct plan_algo plan_ring_allgather = {.phase = ring_phase,
					      .source = SOURCE};
const struct plan_algo plan_biring_allreduce = {
	.phase = biring_phase, .scratch = scratch, .source = SOURCE};
