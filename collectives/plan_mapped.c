/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans for ranks that share memory: who needs data reads it where it is, in
 * the peers' mapped INPUT, so each byte is moved once. As in R. Graham,
 * G. Shipman: MPI support for multi-core architectures: optimized shared
 * memory collectives (2008), with reads straight from the callers' buffers.
 *
 * 1. Each rank tells those who read its memory that it is there (an empty
 *    put), and waits for those whose memory it reads.
 * 2. Work. Allreduce: rank r sums part r of all inputs, in the order of the
 *    ranks, and puts each segment of the sum into everybody's OUTPUT.
 *    Reduce-scatter: the same without the puts. Reduce: the root sums all.
 *    Allgather, alltoall, broadcast: copies from the peers.
 * 3. Each rank tells those whose memory it has read that it is done with it,
 *    and waits for the same. In the allreduce the puts have said so.
 *
 * Only rank r reads part r anywhere in the allreduce, so what is put there is
 * written after it was read, in place too.
 */
#include "plan.h"

static unsigned others(const struct plan_page *page)
{
	return (unsigned)page->shape.n - 1;
}

static int other(const struct plan_page *page, uint64_t i)
{
	return (int)((uint64_t)(page->shape.rank + 1) + i) % page->shape.n;
}

static bool is_root(const struct plan_page *page)
{
	return page->shape.rank == page->shape.root;
}

/* Whether this rank reads all others, or the root only (or none). */
static bool reads_all(const struct plan_page *page)
{
	switch (page->shape.operation) {
	case PLAN_OP_BROADCAST:
		return false;
	case PLAN_OP_REDUCE:
		return is_root(page);
	default:
		return true;
	}
}

static bool reads(const struct plan_page *page, int from)
{
	if (page->shape.operation == PLAN_OP_BROADCAST)
		return from == page->shape.root;
	return reads_all(page);
}

static bool is_read_by(const struct plan_page *page, int by)
{
	if (page->shape.operation == PLAN_OP_BROADCAST)
		return is_root(page);
	return page->shape.operation != PLAN_OP_REDUCE ||
	       by == page->shape.root;
}

static bool has_puts(const struct plan_page *page)
{
	return page->shape.operation == PLAN_OP_ALLREDUCE;
}

static void begin(struct plan_page *page)
{
	uint64_t off, len = page->shape.count;

	if (page->shape.operation == PLAN_OP_ALLREDUCE)
		len = plan_block_most(&page->shape);
	else if (page->shape.operation == PLAN_OP_REDUCE_SCATTER)
		len = plan_block(&page->shape, page->shape.rank, &off);
	plan_segment(page, len);
	/* Where each part of the plan begins. */
	page->mark[0] = others(page);
	page->mark[1] = page->mark[0] + 2 * others(page);
}

static void empty(const struct plan_page *page, struct plan_step *step,
		  uint64_t i, bool putting, bool wanted)
{
	step->peer = other(page, i);
	step->kind = !wanted ? PLAN_NONE : putting ? PLAN_PUT : PLAN_WAIT;
	step->dst = PLAN_LANDING;
}

static void greeting(const struct plan_page *page, struct plan_step *step,
		     uint64_t i)
{
	int peer = other(page, i % others(page));
	bool putting = i < others(page);

	empty(page, step, i % others(page), putting,
	      putting ? is_read_by(page, peer) : reads(page, peer));
	if (putting) /* the peer has been told where it may read */
		step->after = page->mark[0];
}

static void farewell(const struct plan_page *page, struct plan_step *step,
		     uint64_t i)
{
	int peer = other(page, i % others(page));
	bool putting = i < others(page);

	empty(page, step, i % others(page), putting,
	      putting ? reads(page, peer) : is_read_by(page, peer));
	step->after = putting ? page->mark[2] : 0;
}

/* dst = all ranks' [off, off + len), at @dst_off of OUTPUT. */
static void sum(const struct plan_page *page, struct plan_step *step,
		uint64_t off, uint64_t len, uint64_t dst_off)
{
	step->kind = len ? PLAN_REDUCE_ALL : PLAN_NONE;
	step->src = step->acc = PLAN_INPUT;
	step->src_off = step->acc_off = off;
	step->dst = PLAN_OUTPUT;
	step->dst_off = dst_off;
	step->len = len;
	step->flags = PLAN_FINISH;
	step->after = page->mark[1];
}

/* Allreduce: per segment the sum, its puts, and the waits for the others'. */
static bool allreduce_step(struct plan_page *page, struct plan_step *step)
{
	uint64_t s = page->iteration, off, skip, len;
	unsigned part = page->part, k = others(page);
	int owner = page->shape.rank;

	if (s == page->segments)
		return false;
	if (part > k)
		owner = other(page, part - k - 1);
	len = plan_block(&page->shape, owner, &off);
	len = plan_segment_at(page, len, s, &skip);
	off += skip;
	if (part == 0) {
		sum(page, step, off, len, off);
	} else {
		bool putting = part <= k;

		empty(page, step, putting ? part - 1 : part - k - 1, putting,
		      len > 0);
		step->len = len;
		step->src = step->dst = PLAN_OUTPUT;
		step->src_off = step->dst_off = off;
		if (putting)
			step->dep[0] = page->next - part;
	}
	if (++page->part == 2 * k + 1) {
		page->part = 0;
		page->iteration++;
	}
	return true;
}

static bool reduce_step(struct plan_page *page, struct plan_step *step)
{
	const struct plan_shape *shape = &page->shape;
	uint64_t off = 0, skip, len = shape->count;

	if (!reads_all(page) || page->iteration == page->segments)
		return false;
	if (shape->operation == PLAN_OP_REDUCE_SCATTER)
		len = plan_block(shape, shape->rank, &off);
	len = plan_segment_at(page, len, page->iteration++, &skip);
	sum(page, step, off + skip, len, skip);
	return true;
}

/* Copies, each of a whole part: there is nothing to overlap with. */
static bool copy_step(struct plan_page *page, struct plan_step *step)
{
	const struct plan_shape *shape = &page->shape;
	bool broadcast = shape->operation == PLAN_OP_BROADCAST;
	uint64_t i = page->iteration++;
	int from = broadcast ? shape->root : other(page, i);

	if (broadcast ? i > 0 || is_root(page) : i == (uint64_t)shape->n)
		return false;
	step->len = shape->count;
	step->src = PLAN_INPUT;
	step->dst = PLAN_OUTPUT;
	step->peer = from;
	if (!broadcast)
		step->len = plan_block(shape, from, &step->dst_off);
	if (shape->operation == PLAN_OP_ALLTOALL)
		plan_block_in(shape, shape->rank, &step->src_off);
	step->kind = from == shape->rank ? PLAN_COPY : PLAN_COPY_PEER;
	if (step->kind == PLAN_COPY_PEER)
		step->after = page->mark[1];
	else if (shape->operation == PLAN_OP_ALLTOALL)
		plan_block_in(shape, from, &step->src_off);
	if (step->len == 0)
		step->kind = PLAN_NONE;
	return true;
}

static bool work(struct plan_page *page, struct plan_step *step)
{
	switch (page->shape.operation) {
	case PLAN_OP_ALLREDUCE:
		return allreduce_step(page, step);
	case PLAN_OP_REDUCE:
	case PLAN_OP_REDUCE_SCATTER:
		return reduce_step(page, step);
	default:
		return copy_step(page, step);
	}
}

/* The steps of 3 begin at mark[2], which is 0 until then. */
static bool next(struct plan_page *page, struct plan_step *step)
{
	uint64_t i = page->next;

	if (page->shape.count == 0 && !page->shape.layout)
		return false;
	if (i < page->mark[0]) {
		*step = plan_open(page, other(page, i),
				  has_puts(page) ? PLAN_OUTPUT : PLAN_LANDING);
		step->src = PLAN_INPUT;
		step->len = has_puts(page) ? page->segment : 0;
		return true;
	}
	if (i < page->mark[1]) {
		greeting(page, step, i - page->mark[0]);
		return true;
	}
	if (!page->mark[2]) {
		if (work(page, step))
			return true;
		page->mark[2] = i;
	}
	if (has_puts(page) || i == page->mark[2] + 2 * others(page))
		return false;
	farewell(page, step, i - page->mark[2]);
	return true;
}

static const struct plan_page_ops ops = {begin, next};

static bool phase(const struct plan_shape *shape, unsigned i,
		  struct plan_phase *phase)
{
	*phase = plan_whole(shape, &ops);
	return i == 0;
}

#define MAPPED                                                                 \
	.phase = phase, .mapped = true, .greets = true,                        \
	.source = "after Graham and Shipman 2008, EuroPVM/MPI"

const struct plan_algo plan_mapped_allreduce = {MAPPED, .in_order = true};
const struct plan_algo plan_mapped_reduce = {MAPPED, .in_order = true};
const struct plan_algo plan_mapped_reduce_scatter = {MAPPED, .in_order = true};
const struct plan_algo plan_mapped_allgather = {MAPPED};
const struct plan_algo plan_mapped_broadcast = {MAPPED};
const struct plan_algo plan_mapped_alltoall = {MAPPED, .even = true,
					       .apart = true};
