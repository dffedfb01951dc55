/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Binomial gather and scatter; ceil(log2(n)) rounds. R. Thakur,
 * R. Rabenseifner, W. Gropp: Optimization of collective communication
 * operations in MPICH. Int. J. High Perform. Comput. Appl. 19(1), 2005.
 *
 * Between a rank and its parent goes the stream of its subtree's blocks
 * (plan_stream.h), short blocks several to a message. The root receives or
 * sends n - 1 blocks; a rank between has its subtree in and out: what comes
 * lands, is copied to SCRATCH, and is sent on as soon as a message is whole.
 * With layouts all ranks must know all parts.
 *
 * A rank waits for its children (gather) or its parent (scatter) alone, and
 * empties a landing slot right after its wait, so nothing stops.
 *
 * The page's own: iteration, mark[0], mark[1] are the cursor of the own
 * stream; segments, mark[2], mark[3] that of the children's streams, one after
 * another; round: which child's it is; part: what came is still to be copied;
 * lag: the own block is done.
 */
#include "plan_stream.h"

static bool gathers(const struct plan_page *page)
{
	return page->shape.operation == PLAN_OP_GATHER;
}

/* The index of the @k-th child in the order of the stream. */
static uint64_t child(const struct plan_page *page, unsigned k)
{
	unsigned j = gathers(page) ? k : page->children - 1 - k;

	return stream_index(&page->shape) + (UINT64_C(1) << j);
}

static struct stream_cursor own_stream(const struct plan_page *page)
{
	return (struct stream_cursor){page->iteration, page->mark[0],
				      page->mark[1]};
}

static struct stream_cursor children_stream(const struct plan_page *page)
{
	return (struct stream_cursor){page->segments, page->mark[2],
				      page->mark[3]};
}

/*
 * The next message with the parent (@own) or a child, whose index is in *peer;
 * @take: and go on behind it.
 */
static struct stream_piece next_piece(struct plan_page *page, bool own,
				      bool take, uint64_t *peer)
{
	uint64_t v = stream_index(&page->shape);
	struct stream_cursor c = own ? own_stream(page) : children_stream(page);
	struct stream_piece piece = {0};
	unsigned k = page->round;

	if (own) {
		*peer = v & (v - 1);
		if (v != 0)
			piece = stream_cut(&page->shape, page->segment, &c,
					   stream_end(&page->shape, v));
	}
	for (; !own && piece.len == 0 && k < page->children; k++) {
		*peer = child(page, k);
		page->round = k;
		piece = stream_cut(&page->shape, page->segment, &c,
				   stream_end(&page->shape, *peer));
	}
	if (take && own) {
		page->iteration = c.at;
		page->mark[0] = c.in;
		page->mark[1] = c.packed;
	} else if (take) {
		page->segments = c.at;
		page->mark[2] = c.in;
		page->mark[3] = c.packed;
	}
	return piece;
}

static bool has_in(const struct plan_page *page)
{
	return gathers(page) ? page->children > 0
			     : stream_index(&page->shape) != 0;
}

static bool relays(const struct plan_page *page)
{
	return page->children > 0 && stream_index(&page->shape) != 0;
}

static uint64_t own_block(const struct plan_page *page, uint64_t *off)
{
	return plan_block(&page->shape, page->shape.rank, off);
}

static void begin(struct plan_page *page)
{
	uint64_t n = (uint64_t)page->shape.n, v = stream_index(&page->shape);
	uint64_t total = 0, off;

	for (int i = 0; i < page->shape.n; i++)
		total += plan_block(&page->shape, i, &off);
	page->segment = total < page->shape.chunk ? total : page->shape.chunk;
	page->children = plan_log2(stream_subtree(&page->shape, v));
	if (gathers(page)) {
		page->iteration = v;
		page->segments = v + 1;
		page->mark[3] = own_block(page, &off);
	} else {
		page->iteration = n - v - stream_subtree(&page->shape, v);
		page->segments = page->iteration;
	}
}

/* Open for the next one that puts to us; false: there is no more. */
static bool open_step(struct plan_page *page, struct plan_step *step)
{
	unsigned all = gathers(page) ? page->children : has_in(page);
	uint64_t v = stream_index(&page->shape);
	uint64_t peer = v & (v - 1);

	if (page->opens == all)
		return false;
	if (gathers(page))
		peer = child(page, page->opens);
	page->opens++;
	*step = plan_open(page, stream_rank(&page->shape, peer),
			  relays(page) ? PLAN_LANDING : PLAN_OUTPUT);
	return true;
}

/* The own block, unless it is put or waited for as it is. */
static bool own_step(struct plan_page *page, struct plan_step *step)
{
	uint64_t off;

	page->lag = 1;
	step->len = own_block(page, &off);
	if (step->len == 0 ||
	    (stream_index(&page->shape) != 0 && !relays(page)))
		return false;
	step->kind = PLAN_COPY;
	step->src = PLAN_INPUT;
	step->dst = PLAN_OUTPUT;
	if (gathers(page) && relays(page)) {
		step->dst = PLAN_SCRATCH;
	} else if (gathers(page)) {
		step->dst_off = off;
	} else if (relays(page)) {
		step->src = PLAN_SCRATCH;
		step->src_off = page->mark[1] - step->len;
		step->after = page->next;
	} else {
		step->src_off = off;
	}
	return true;
}

/* The next message out, if all of it is there. */
static bool put_step(struct plan_page *page, struct plan_step *step)
{
	bool to_parent = gathers(page);
	uint64_t have = to_parent ? page->mark[3] : page->mark[1], peer;
	struct stream_piece piece = next_piece(page, to_parent, false, &peer);
	uint64_t off;

	if (piece.len == 0 || (relays(page) && piece.packed + piece.len > have))
		return false;
	next_piece(page, to_parent, true, &peer);
	step->kind = PLAN_PUT;
	step->peer = stream_rank(&page->shape, peer);
	step->len = piece.len;
	step->src = relays(page) ? PLAN_SCRATCH : PLAN_INPUT;
	step->src_off = to_parent || relays(page) ? piece.packed : piece.off;
	step->after = relays(page) ? page->next : 0;
	step->dst = PLAN_LANDING;
	if (to_parent && peer == 0) {
		step->dst = PLAN_OUTPUT;
		step->dst_off = piece.off;
	} else if (!to_parent && stream_subtree(&page->shape, peer) == 1) {
		plan_block(&page->shape, step->peer, &off);
		step->dst = PLAN_OUTPUT;
		step->dst_off = piece.off - off;
	}
	return true;
}

/* The next message in, and then its copy if it has landed. */
static bool receive_step(struct plan_page *page, struct plan_step *step)
{
	bool of_parent = !gathers(page), last = page->part || !relays(page);
	uint64_t peer;
	struct stream_piece piece;

	if (!has_in(page))
		return false;
	piece = next_piece(page, of_parent, last, &peer);
	if (piece.len == 0)
		return false;
	step->kind = page->part ? PLAN_COPY : PLAN_WAIT;
	step->peer = stream_rank(&page->shape, peer);
	step->len = piece.len;
	step->src = PLAN_LANDING;
	if (!relays(page)) {
		step->dst = PLAN_OUTPUT;
		step->dst_off = of_parent ? piece.packed : piece.off;
	} else if (page->part) {
		step->dst = PLAN_SCRATCH;
		step->dst_off = piece.packed;
		step->dep[0] = page->next - 1;
	} else {
		step->dst = PLAN_LANDING;
	}
	page->part = !last;
	return true;
}

static bool next(struct plan_page *page, struct plan_step *step)
{
	bool own_last = !gathers(page) && relays(page);

	if (page->segment == 0)
		return false;
	if (open_step(page, step))
		return true;
	if (!page->lag && !own_last && own_step(page, step))
		return true;
	if (!page->part && put_step(page, step))
		return true;
	if (receive_step(page, step))
		return true;
	return !page->lag && own_step(page, step);
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
	uint64_t v = stream_index(&page.shape), sum = 0, off;

	page.children = plan_log2(stream_subtree(&page.shape, v));
	for (uint64_t i = 0;
	     relays(&page) && i < stream_subtree(&page.shape, v); i++)
		sum += plan_block(shape, stream_rank(&page.shape, v + i), &off);
	return sum;
}

#define SOURCE                                                                 \
	"Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521"

const struct plan_algo plan_tree_gather = {
	.phase = phase, .scratch = scratch, .source = SOURCE};
const struct plan_algo plan_tree_scatter = {
	.phase = phase, .scratch = scratch, .source = SOURCE};
