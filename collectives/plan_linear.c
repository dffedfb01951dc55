/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Linear algorithms of two halves: all ranks put their contributions to an
 * owner, who sums them (collect); the owner puts what it has to all (share).
 * Either the root owns the whole vector, or each rank owns its part:
 *
 *	collect		reduce			reduce-scatter
 *	share		broadcast
 *	both		allreduce "central"	allreduce "sharded"
 *
 * E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective
 * communication: theory, practice, and experience. Concurrency Comput. Pract.
 * Exp. 19(13), 2007. The allreduces are a parameter server, and one with a
 * shard on each worker: M. Li et al.: Scaling distributed machine learning
 * with the parameter server. OSDI 2014.
 *
 * A half is one round with a fan-in of n - 1. In it the root sends or receives
 * n - 1 vectors and every other rank one; or each rank sends and receives
 * n - 1 parts, so that the sharded allreduce moves 2 (n - 1) / n vectors per
 * rank, the least possible. Sums are in the order of the ranks.
 *
 * Blocks are cut into segments. Iteration i has five stages: puts of segment
 * i to the owners, waits for ours, their sum; puts of our segment i - lag,
 * waits for the owners'. Each stage needs what the stages before it left, on
 * this and on other ranks, and nothing else, hence it cannot stop, however
 * small the window. The lag, the same on all ranks, lets a segment be shared
 * while the next is collected.
 *
 * If INPUT and OUTPUT are one: a sum overwrites what its owner alone reads; a
 * share overwrites what its receiver had put to the owner, who has summed it.
 */
#include "plan.h"

enum stage { COLLECT_PUT, COLLECT_WAIT, SUM, SHARE_PUT, SHARE_WAIT, STAGES };

/* A segment of an owner's block, and where INPUT and OUTPUT have it. */
struct piece {
	uint64_t len, in, out;
};

static bool has_collect(const struct plan_page *page)
{
	return page->shape.operation != PLAN_OP_BROADCAST;
}

static bool has_share(const struct plan_page *page)
{
	return page->shape.operation != PLAN_OP_REDUCE &&
	       page->shape.operation != PLAN_OP_REDUCE_SCATTER;
}

/* page->children: the owners, 1 or n. */
static bool is_rooted(const struct plan_page *page)
{
	return page->children == 1;
}

static bool is_owner(const struct plan_page *page, int rank)
{
	return !is_rooted(page) || rank == page->shape.root;
}

static void begin_rooted(struct plan_page *page)
{
	page->children = 1;
	page->lag = has_collect(page) && has_share(page);
	plan_segment(page, page->shape.count);
}

static void begin_parts(struct plan_page *page)
{
	page->children = (unsigned)page->shape.n;
	page->lag = has_collect(page) && has_share(page);
	plan_segment(page, plan_block_most(&page->shape));
}

/* The rank @distance after or before ours; puts begin with the one after it,
   so that not all begin with rank 0. */
static int after(const struct plan_page *page, unsigned distance)
{
	return (int)(((unsigned)page->shape.rank + distance) %
		     (unsigned)page->shape.n);
}

static int before(const struct plan_page *page, unsigned distance)
{
	return after(page, (unsigned)page->shape.n - distance);
}

static struct piece piece_at(const struct plan_page *page, int owner,
			     uint64_t s)
{
	uint64_t off = 0, len = page->shape.count, skip;
	struct piece piece;

	if (!is_rooted(page))
		len = plan_block(&page->shape, owner, &off);
	piece.len = plan_segment_at(page, len, s, &skip);
	piece.in = piece.out = off + skip;
	if (page->shape.operation == PLAN_OP_REDUCE_SCATTER)
		piece.out = skip;
	return piece;
}

/* How many steps the stage has in this iteration. */
static unsigned steps_of(const struct plan_page *page, enum stage stage)
{
	bool owner = is_owner(page, page->shape.rank);
	unsigned others = (unsigned)page->shape.n - 1;

	if (stage <= SUM
		    ? !has_collect(page) || page->iteration >= page->segments
		    : !has_share(page) || page->iteration < page->lag)
		return 0;
	if (stage == SUM)
		return owner;
	if (is_rooted(page) && (stage == COLLECT_PUT || stage == SHARE_WAIT))
		return !owner;
	return owner ? others : 0;
}

static int peer_of(const struct plan_page *page, enum stage stage)
{
	if (stage == SUM)
		return page->shape.rank;
	if (is_rooted(page) && (stage == COLLECT_PUT || stage == SHARE_WAIT))
		return page->shape.root;
	if (stage == COLLECT_PUT || stage == SHARE_PUT)
		return after(page, 1 + page->round);
	return before(page, 1 + page->round);
}

static void sum_step(struct plan_page *page, struct plan_step *step,
		     const struct piece *piece, uint64_t s)
{
	step->kind = PLAN_REDUCE_ALL;
	step->src = PLAN_LANDING;
	step->acc = PLAN_INPUT;
	step->acc_off = piece->in;
	step->dst = PLAN_OUTPUT;
	step->dst_off = piece->out;
	step->flags = PLAN_FINISH;
	step->after = page->next;
	page->mark[s % 2] = page->next;
}

static void share_put(const struct plan_page *page, struct plan_step *step,
		      const struct piece *piece, uint64_t s)
{
	step->kind = PLAN_PUT;
	step->src = PLAN_INPUT;
	step->src_off = piece->in;
	if (has_collect(page)) {
		step->src = PLAN_OUTPUT;
		step->src_off = piece->out;
		step->dep[0] = page->mark[s % 2];
	}
	step->dst = PLAN_OUTPUT;
	step->dst_off = piece->out;
}

static void stage_step(struct plan_page *page, struct plan_step *step)
{
	enum stage stage = (enum stage)page->part;
	int peer = peer_of(page, stage);
	bool of_peer = stage == COLLECT_PUT || stage == SHARE_WAIT;
	uint64_t s = page->iteration - (stage > SUM ? page->lag : 0);
	struct piece piece =
		piece_at(page, of_peer ? peer : page->shape.rank, s);

	step->peer = peer;
	step->len = piece.len;
	switch (stage) {
	case COLLECT_PUT:
		step->kind = PLAN_PUT;
		step->src = PLAN_INPUT;
		step->src_off = piece.in;
		step->dst = PLAN_LANDING;
		break;
	case COLLECT_WAIT:
		step->kind = PLAN_WAIT;
		step->dst = PLAN_LANDING;
		break;
	case SUM:
		sum_step(page, step, &piece, s);
		break;
	case SHARE_PUT:
		share_put(page, step, &piece, s);
		break;
	default:
		step->kind = PLAN_WAIT;
		step->dst = PLAN_OUTPUT;
		step->dst_off = piece.out;
	}
	if (step->len == 0)
		*step = (struct plan_step){.dep = {PLAN_NO_STEP, PLAN_NO_STEP}};
}

/*
 * Open for the next rank that puts to us, first for the one whose first put
 * we get; false: there is no more.
 */
static bool open_step(struct plan_page *page, struct plan_step *step)
{
	while (page->opens < (unsigned)page->shape.n - 1) {
		int peer = before(page, ++page->opens);

		if (has_share(page) && is_owner(page, peer)) {
			*step = plan_open(page, peer, PLAN_OUTPUT);
			return true;
		}
		if (has_collect(page) && is_owner(page, page->shape.rank)) {
			*step = plan_open(page, peer, PLAN_LANDING);
			return true;
		}
	}
	return false;
}

static bool next(struct plan_page *page, struct plan_step *step)
{
	if (page->segments == 0)
		return false;
	if (open_step(page, step))
		return true;
	while (page->iteration < page->segments + page->lag) {
		if (page->round < steps_of(page, (enum stage)page->part)) {
			stage_step(page, step);
			page->round++;
			return true;
		}
		page->round = 0;
		if (++page->part == STAGES) {
			page->part = 0;
			page->iteration++;
		}
	}
	return false;
}

static const struct plan_page_ops rooted_ops = {begin_rooted, next};
static const struct plan_page_ops parts_ops = {begin_parts, next};

static bool rooted_phase(const struct plan_shape *shape, unsigned i,
			 struct plan_phase *phase)
{
	*phase = plan_whole(shape, &rooted_ops);
	return i == 0;
}

static bool parts_phase(const struct plan_shape *shape, unsigned i,
			struct plan_phase *phase)
{
	*phase = plan_whole(shape, &parts_ops);
	return i == 0;
}

#define SOURCE	"Chan et al. 2007, doi:10.1002/cpe.1206"
#define SERVERS "Li et al. 2014, OSDI (parameter server)"

const struct plan_algo plan_linear_reduce = {
	.phase = rooted_phase, .in_order = true, .source = SOURCE};
const struct plan_algo plan_linear_broadcast = {.phase = rooted_phase,
						.source = SOURCE};
const struct plan_algo plan_linear_reduce_scatter = {
	.phase = parts_phase, .in_order = true, .source = SOURCE};
const struct plan_algo plan_central_allreduce = {
	.phase = rooted_phase, .in_order = true, .source = SERVERS};
const struct plan_algo plan_sharded_allreduce = {
	.phase = parts_phase, .in_order = true, .source = SERVERS};
