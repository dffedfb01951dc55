/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial trees, segmented: reduce, broadcast, and allreduce (reduce to the
 * root, then broadcast); log2(n) rounds each. R. Thakur, R. Rabenseifner,
 * W. Gropp: Optimization of collective communication operations in MPICH.
 * Int. J. High Perform. Comput. Appl. 19(1), 2005.
 *
 * Ranks are numbered from the root: v = (rank - root) mod n. The parent of v
 * is v without its lowest bit; its children are v + 2^j below that bit. Sums
 * are made child by child, the smallest subtree first, on the way up, once;
 * what comes down is the same bits for all.
 *
 * First a rank opens for its parent and, where there is an up, its children.
 *
 * Iteration i of the allreduce reduces segment i and hands down segment
 * i - lag, the lag being the way up and down, so that both flows are busy
 * even when steps are executed in order. All ranks use the same lag, without
 * which a small window could stop.
 *
 * Partial sums that have no place in OUTPUT are in SCRATCH, in SLOTS places
 * used in turn by the segments; a put out of one is waited for.
 */
#include "plan.h"

enum { SLOTS = 8 };

static uint64_t virtual_rank(const struct plan_page *page)
{
	uint64_t n = (uint64_t)page->shape.n;

	return ((uint64_t)page->shape.rank + n - (uint64_t)page->shape.root) %
	       n;
}

static int real_rank(const struct plan_page *page, uint64_t v)
{
	uint64_t n = (uint64_t)page->shape.n;

	return (int)((v + (uint64_t)page->shape.root) % n);
}

static int parent(const struct plan_page *page)
{
	uint64_t v = virtual_rank(page);

	return real_rank(page, v & (v - 1));
}

static int child(const struct plan_page *page, unsigned j)
{
	return real_rank(page, virtual_rank(page) + (UINT64_C(1) << j));
}

static bool has_up(const struct plan_page *page)
{
	return page->shape.operation != PLAN_OP_BROADCAST;
}

static bool has_down(const struct plan_page *page)
{
	return page->shape.operation != PLAN_OP_REDUCE;
}

static void begin(struct plan_page *page)
{
	uint64_t v = virtual_rank(page), n = (uint64_t)page->shape.n;
	uint64_t bit = 1;

	plan_segment(page, page->shape.count);
	while (!(v & bit) && v + bit < n) {
		page->children++;
		bit <<= 1;
	}
	page->opens = v != 0 && has_down(page);
	if (has_up(page))
		page->opens += page->children;
	if (has_up(page) && has_down(page))
		page->lag = 2 * plan_log2(n);
}

/* Segment @s: its length; *off gets its offset. */
static uint64_t segment_at(const struct plan_page *page, uint64_t s,
			   uint64_t *off)
{
	return plan_segment_at(page, page->shape.count, s, off);
}

/* Steps of the reduce part, then of the broadcast part, per iteration. */
static unsigned up_steps(const struct plan_page *page)
{
	if (!has_up(page))
		return 0;
	return 2 * page->children + (virtual_rank(page) != 0);
}

static unsigned down_steps(const struct plan_page *page)
{
	if (!has_down(page))
		return 0;
	return page->children + (virtual_rank(page) != 0);
}

/* Steps before iteration @i. */
static uint64_t steps_before(const struct plan_page *page, uint64_t i)
{
	uint64_t ups = i < page->segments ? i : page->segments;
	uint64_t downs = i > page->lag ? i - page->lag : 0;

	return page->opens + ups * up_steps(page) + downs * down_steps(page);
}

static void put_up(const struct plan_page *page, struct plan_step *step,
		   uint64_t off)
{
	step->kind = PLAN_PUT;
	step->peer = parent(page);
	step->dst = PLAN_LANDING;
	step->src = PLAN_INPUT;
	step->src_off = off;
	if (page->children == 0)
		return;
	step->dep[0] = page->next - 1;
	step->src = plan_partial(&page->shape);
	if (step->src == PLAN_SCRATCH) {
		step->src_off = page->iteration % SLOTS * page->segment;
		step->flags |= PLAN_SYNC;
	}
}

static void reduce_up(const struct plan_page *page, struct plan_step *step,
		      unsigned j, uint64_t off)
{
	uint8_t partial = plan_partial(&page->shape);
	uint64_t slot = page->iteration % SLOTS * page->segment;
	bool root = virtual_rank(page) == 0;

	step->kind = PLAN_REDUCE;
	step->src = PLAN_LANDING;
	step->dep[0] = page->next - 1;
	step->acc = j == 0 ? PLAN_INPUT : partial;
	step->acc_off = step->acc == PLAN_SCRATCH ? slot : off;
	step->dst = partial;
	if (root && j == page->children - 1) {
		step->dst = PLAN_OUTPUT;
		step->flags |= PLAN_FINISH;
	}
	step->dst_off = step->dst == PLAN_SCRATCH ? slot : off;
	if (j > 0)
		step->dep[1] = page->next - 2;
	else if (partial == PLAN_SCRATCH && page->iteration >= SLOTS)
		/* What read the slot last: the put, the root's last reduce. */
		step->dep[1] = steps_before(page, page->iteration - SLOTS) +
			       up_steps(page) - 1;
}

static void up_step(const struct plan_page *page, struct plan_step *step,
		    unsigned part)
{
	uint64_t off;

	step->len = segment_at(page, page->iteration, &off);
	if (part == 2 * page->children) {
		put_up(page, step, off);
		return;
	}
	step->peer = child(page, part / 2);
	/* A child without children sends its contribution as it is. */
	if (part / 2 > 0 && virtual_rank(page) + (UINT64_C(1) << part / 2) + 1 <
				    (uint64_t)page->shape.n)
		step->flags |= PLAN_WIDE;
	if (part % 2 == 0) {
		step->kind = PLAN_WAIT;
		step->dst = PLAN_LANDING;
		return;
	}
	reduce_up(page, step, part / 2, off);
}

/* The root's last reduce of segment @s. */
static uint64_t summed(const struct plan_page *page, uint64_t s)
{
	return steps_before(page, s) + 2 * page->children - 1;
}

static void down_step(const struct plan_page *page, struct plan_step *step,
		      unsigned part)
{
	uint64_t s = page->iteration - page->lag;
	bool root = virtual_rank(page) == 0;
	unsigned puts_before = part - (root ? 0 : 1);
	uint64_t off;

	step->len = segment_at(page, s, &off);
	step->dst = PLAN_OUTPUT;
	step->dst_off = off;
	if (!root && part == 0) {
		step->kind = PLAN_WAIT;
		step->peer = parent(page);
		return;
	}
	step->kind = PLAN_PUT;
	step->peer = child(page, page->children - 1 - puts_before);
	step->src = root && !has_up(page) ? PLAN_INPUT : PLAN_OUTPUT;
	step->src_off = off;
	if (!root)
		step->dep[0] = page->next - part;
	else if (has_up(page))
		step->dep[0] = summed(page, s);
}

static void open_step(const struct plan_page *page, struct plan_step *step)
{
	uint64_t i = page->next;
	bool down = virtual_rank(page) != 0 && has_down(page);

	if (down && i == 0)
		*step = plan_open(page, parent(page), PLAN_OUTPUT);
	else
		*step = plan_open(page, child(page, (unsigned)(i - down)),
				  PLAN_LANDING);
}

static bool next(struct plan_page *page, struct plan_step *step)
{
	unsigned ups = up_steps(page), all = ups + down_steps(page);

	if (page->shape.n == 1 || page->segments == 0)
		return false;
	if (page->next < page->opens) {
		open_step(page, step);
		return true;
	}
	for (; page->iteration < page->segments + page->lag;
	     page->iteration++, page->part = 0) {
		bool up = page->iteration < page->segments;
		bool down = page->iteration >= page->lag;

		if (page->part < ups && !up)
			page->part = ups;
		if (page->part < ups) {
			up_step(page, step, page->part++);
			return true;
		}
		if (page->part < all && down) {
			down_step(page, step, page->part++ - ups);
			return true;
		}
	}
	return false;
}

static const struct plan_page_ops ops = {begin, next};

static bool phase(const struct plan_shape *shape, unsigned i,
		  struct plan_phase *phase)
{
	*phase = plan_whole(shape, &ops);
	return i == 0;
}

static uint64_t scratch(const struct plan_shape *shape)
{
	struct plan_page page = {.shape = *shape};

	if (plan_partial(shape) != PLAN_SCRATCH)
		return 0;
	begin(&page);
	if (page.children == 0)
		return 0;
	return (page.segments < SLOTS ? page.segments : SLOTS) * page.segment;
}

#define SOURCE                                                                 \
	"Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521"

const struct plan_algo plan_tree_allreduce = {
	.phase = phase, .scratch = scratch, .source = SOURCE};
const struct plan_algo plan_tree_reduce = {
	.phase = phase, .scratch = scratch, .source = SOURCE};
const struct plan_algo plan_tree_broadcast = {.phase = phase, .source = SOURCE};
