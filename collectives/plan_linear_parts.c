/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Linear gather, scatter, allgather and alltoall: whoever has a part for a
 * rank puts it there, all at once; one round. The root receives or sends the
 * n - 1 others' parts, and each other rank its own; in an allgather and an
 * alltoall every rank sends and receives n - 1 parts, with a fan-in of n - 1.
 * E. Chan, M. Heimlich, A. Purkayastha, R. van de Geijn: Collective
 * communication: theory, practice, and experience. Concurrency Comput. Pract.
 * Exp. 19(13), 2007.
 *
 * A rank begins with the one after it, so that not all begin with rank 0.
 *
 * Parts are cut into segments. Iteration s is the puts of segment s, then the
 * waits for it, so it cannot stop, however small the window. A sender does
 * not know where a gather's root or an alltoall's receiver has a part of a
 * layout, nor how long other parts are there: such parts go through landing
 * slots, and segments are of one length whatever the parts are.
 *
 * An alltoall in place needs the same layout for INPUT and OUTPUT. What comes
 * from a peer is where the part for that peer was: it goes through a landing
 * slot, and is copied once the put to the peer has been read.
 */
#include "plan.h"

/* What goes from one rank to another. */
struct part {
	uint64_t len, in,
		out; /* where in the sender's INPUT and OUTPUT there */
};

static bool has_root(const struct plan_page *page)
{
	return page->shape.operation == PLAN_OP_GATHER ||
	       page->shape.operation == PLAN_OP_SCATTER;
}

static bool is_root(const struct plan_page *page)
{
	return page->shape.rank == page->shape.root;
}

static bool sends(const struct plan_page *page)
{
	return !has_root(page) ||
	       is_root(page) == (page->shape.operation == PLAN_OP_SCATTER);
}

static bool receives(const struct plan_page *page)
{
	return !has_root(page) || !sends(page);
}

/* Whether what comes is copied out of landing slots. */
static bool lands(const struct plan_page *page)
{
	const struct plan_shape *shape = &page->shape;

	if (shape->operation == PLAN_OP_ALLTOALL)
		return shape->in_place || shape->layout;
	return shape->operation == PLAN_OP_GATHER && shape->layout;
}

static uint64_t longest(const struct plan_shape *shape)
{
	uint64_t most = plan_block_most(shape), off;

	if (shape->operation == PLAN_OP_ALLTOALL)
		for (int i = 0; i < shape->n; i++)
			if (plan_block_in(shape, i, &off) > most)
				most = plan_block_in(shape, i, &off);
	return most;
}

static void begin(struct plan_page *page)
{
	uint64_t most = longest(&page->shape);

	plan_segment(page, most);
	if (page->shape.layout && page->segments > 1)
		page->segment = page->shape.chunk;
	/* Peers: all others, or the root. */
	page->children = (unsigned)page->shape.n - 1;
	if (has_root(page) && !is_root(page))
		page->children = 1;
}

/* The @k-th peer to put to, or to wait for. */
static int peer_at(const struct plan_page *page, unsigned k, bool wait)
{
	unsigned n = (unsigned)page->shape.n;

	if (has_root(page) && !is_root(page))
		return page->shape.root;
	return (int)(((unsigned)page->shape.rank + (wait ? n - 1 - k : 1 + k)) %
		     n);
}

/* What we put to @peer. */
static struct part outgoing(const struct plan_page *page, int peer)
{
	const struct plan_shape *shape = &page->shape;
	struct part part = {0};

	if (shape->operation == PLAN_OP_SCATTER) {
		part.len = plan_block(shape, peer, &part.in);
	} else if (shape->operation == PLAN_OP_ALLTOALL) {
		part.len = plan_block_in(shape, peer, &part.in);
		part.out = (uint64_t)shape->rank * shape->count;
	} else {
		part.len = plan_block(shape, shape->rank, &part.out);
	}
	return part;
}

/* What comes from @peer; only .len and .out. */
static struct part incoming(const struct plan_page *page, int peer)
{
	const struct plan_shape *shape = &page->shape;
	struct part part = {0};

	if (shape->operation == PLAN_OP_SCATTER)
		part.len = plan_block(shape, shape->rank, &part.in);
	else
		part.len = plan_block(shape, peer, &part.out);
	return part;
}

static void put_step(const struct plan_page *page, struct plan_step *step)
{
	int peer = peer_at(page, page->part, false);
	struct part part = outgoing(page, peer);
	uint64_t skip;

	step->kind = PLAN_PUT;
	step->peer = peer;
	step->len = plan_segment_at(page, part.len, page->iteration, &skip);
	step->src = PLAN_INPUT;
	step->src_off = part.in + skip;
	step->dst = lands(page) ? PLAN_LANDING : PLAN_OUTPUT;
	step->dst_off = lands(page) ? 0 : part.out + skip;
	if (lands(page) && page->shape.in_place)
		step->flags = PLAN_SYNC;
}

/* The wait for the @k-th peer, and the copy that follows if it lands. */
static void receive_step(const struct plan_page *page, struct plan_step *step,
			 unsigned k, bool copy)
{
	int peer = peer_at(page, k, true);
	struct part part = incoming(page, peer);
	uint64_t skip;

	step->kind = copy ? PLAN_COPY : PLAN_WAIT;
	step->peer = peer;
	step->len = plan_segment_at(page, part.len, page->iteration, &skip);
	step->src = PLAN_LANDING;
	step->dst = lands(page) && !copy ? PLAN_LANDING : PLAN_OUTPUT;
	step->dst_off = step->dst == PLAN_LANDING ? 0 : part.out + skip;
	if (!copy)
		return;
	step->dep[0] = page->next - 1;
	if (page->shape.in_place && sends(page)) /* the put to the same peer */
		step->dep[1] = page->mark[0] + page->children - 1 - k;
}

static bool open_step(struct plan_page *page, struct plan_step *step)
{
	if (!receives(page) || page->opens == page->children)
		return false;
	*step = plan_open(page, peer_at(page, page->opens++, true),
			  lands(page) ? PLAN_LANDING : PLAN_OUTPUT);
	return true;
}

/* The part that stays; false: it is done, or there is none. */
static bool copy_own(struct plan_page *page, struct plan_step *step)
{
	struct part out = outgoing(page, page->shape.rank);
	struct part in = incoming(page, page->shape.rank);

	if (page->round++ > 0 || in.len == 0 ||
	    (has_root(page) && !is_root(page)))
		return false;
	step->kind = PLAN_COPY;
	step->len = in.len;
	step->src = PLAN_INPUT;
	step->src_off = out.in;
	step->dst = PLAN_OUTPUT;
	step->dst_off = in.out;
	return true;
}

static bool next(struct plan_page *page, struct plan_step *step)
{
	unsigned puts = sends(page) ? page->children : 0;
	unsigned per_wait = lands(page) ? 2 : 1;
	unsigned all = puts + (receives(page) ? per_wait * page->children : 0);

	if (page->segments == 0)
		return false;
	if (open_step(page, step) || copy_own(page, step))
		return true;
	if (page->part == all) {
		page->part = 0;
		page->iteration++;
	}
	if (page->iteration == page->segments || all == 0)
		return false;
	if (page->part == 0)
		page->mark[0] = page->next;
	if (page->part < puts)
		put_step(page, step);
	else
		receive_step(page, step, (page->part - puts) / per_wait,
			     (page->part - puts) % per_wait == 1);
	if (step->len == 0)
		*step = (struct plan_step){.dep = {PLAN_NO_STEP, PLAN_NO_STEP}};
	page->part++;
	return true;
}

static const struct plan_page_ops ops = {begin, next};

static bool phase(const struct plan_shape *shape, unsigned i,
		  struct plan_phase *phase)
{
	*phase = plan_whole(shape, &ops);
	return i == 0;
}

#define SOURCE "Chan et al. 2007, doi:10.1002/cpe.1206"

const struct plan_algo plan_linear_gather = {.phase = phase, .source = SOURCE};
const struct plan_algo plan_linear_scatter = {.phase = phase, .source = SOURCE};
const struct plan_algo plan_linear_allgather = {.phase = phase,
						.source = SOURCE};
const struct plan_algo plan_linear_alltoall = {.phase = phase,
					       .source = SOURCE};
