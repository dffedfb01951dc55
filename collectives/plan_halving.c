/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive halving: reduce-scatter; allreduce and reduce go on with a
 * recursive-doubling allgather, or a gather along a binomial tree. Of what a
 * rank works on it keeps one half and puts the other to the rank 2^j away,
 * j = rounds - 1 .. 0, until it has its own block; then back, j = 0 ...
 * R. Rabenseifner: Optimization of collective reduction operations. Proc.
 * ICCS, LNCS 3036, 2004. R. Thakur, R. Rabenseifner, W. Gropp: Optimization
 * of collective communication operations in MPICH. Int. J. High Perform.
 * Comput. Appl. 19(1), 2005.
 *
 * For p = 2^rounds ranks and m elements, a rank puts m (p - 1) / p in
 * `rounds` rounds, and in the allreduce as much again on the way back. Other
 * n: before, ranks in pairs (plan_stage.h) reduce to one of them, and after,
 * it hands the other's result out: two rounds and up to 2 m elements more.
 * In the reduce the root is the one, so that nothing is handed out. In the
 * reduce-scatter the one works on both blocks.
 *
 * A block is summed at one rank, so all get the same bits. Partial sums stay
 * at their place, in SCRATCH from the first half kept on. What lay where
 * something is put, or copied to, on the way back went to the same peer on
 * the way there, and the peer had it before it put that: sources of puts are
 * never overwritten too early.
 */
#include "plan_stage.h"

static int kept_rank(const struct plan_shape *shape)
{
	return shape->operation == PLAN_OP_REDUCE ? shape->root : -1;
}

static uint8_t partial(const struct plan_shape *shape)
{
	return shape->operation == PLAN_OP_REDUCE_SCATTER ? PLAN_SCRATCH
							  : plan_partial(shape);
}

/* The blocks of @count numbers from @number on. */
static struct plan_range blocks_of(const struct plan_shape *shape,
				   const struct plan_fold *fold,
				   uint64_t number, uint64_t count)
{
	uint64_t end = number + count, pairs = fold->pairs;

	if (shape->operation == PLAN_OP_REDUCE_SCATTER) {
		number += number < pairs ? number : pairs;
		end += end < pairs ? end : pairs;
	}
	return (struct plan_range){number, end - number};
}

static struct plan_range all_blocks(const struct plan_shape *shape,
				    const struct plan_fold *fold)
{
	return blocks_of(shape, fold, 0, UINT64_C(1) << fold->rounds);
}

/* The blocks of those who share the number's bits from 2^j = @distance up. */
static struct plan_range near(const struct plan_shape *shape,
			      const struct plan_fold *fold, uint64_t number,
			      uint64_t distance)
{
	return blocks_of(shape, fold, number & ~(distance - 1), distance);
}

/* The pair's contributions become one. */
static void fold_in(const struct plan_page *page, const struct plan_fold *fold,
		    struct plan_stage *stage)
{
	if (!fold->folded)
		return;
	stage->at = PLAN_LANDING;
	stage->to = stage->from = page->shape.rank ^ 1;
	stage->src = stage->acc = PLAN_INPUT;
	if (fold->out) {
		stage->put = all_blocks(&page->shape, fold);
		return;
	}
	stage->wait = all_blocks(&page->shape, fold);
	stage->then = PLAN_REDUCE;
	stage->dst = partial(&page->shape);
	stage->opens = true;
	stage->opened = PLAN_LANDING;
}

static void halve(const struct plan_page *page, const struct plan_fold *fold,
		  uint64_t distance, struct plan_stage *stage)
{
	const struct plan_shape *shape = &page->shape;
	uint64_t peer = fold->number ^ distance;
	bool first = distance << 1 == UINT64_C(1) << fold->rounds;

	stage->to = stage->from = plan_fold_rank(fold, peer, kept_rank(shape));
	stage->put = near(shape, fold, peer, distance);
	stage->wait = near(shape, fold, fold->number, distance);
	stage->at = PLAN_LANDING;
	stage->src = first && !fold->folded ? PLAN_INPUT : partial(shape);
	stage->then = PLAN_REDUCE;
	stage->acc = stage->src;
	stage->dst = partial(shape);
	stage->opens = true;
	stage->opened = shape->operation == PLAN_OP_ALLREDUCE ? PLAN_OUTPUT
							      : PLAN_LANDING;
	if (!first || peer < fold->pairs)
		stage->flags |= PLAN_WIDE;
	if (distance > 1 ||
	    (shape->operation == PLAN_OP_REDUCE &&
	     shape->rank != shape->root) ||
	    (shape->operation == PLAN_OP_REDUCE_SCATTER && fold->folded))
		return;
	stage->dst = PLAN_OUTPUT;
	stage->flags |= PLAN_FINISH;
}

static void gather(const struct plan_page *page, const struct plan_fold *fold,
		   uint64_t distance, struct plan_stage *stage)
{
	const struct plan_shape *shape = &page->shape;
	uint64_t peer = fold->number ^ distance;

	stage->to = stage->from = plan_fold_rank(fold, peer, kept_rank(shape));
	stage->put = near(shape, fold, fold->number, distance);
	stage->wait = near(shape, fold, peer, distance);
	stage->at = stage->src = PLAN_OUTPUT;
}

static void gather_to_root(const struct plan_page *page,
			   const struct plan_fold *fold, uint64_t distance,
			   struct plan_stage *stage)
{
	const struct plan_shape *shape = &page->shape;
	uint64_t root = (uint64_t)shape->root;
	/* In which bits the root's number differs. */
	uint64_t way = fold->number ^
		       (root < 2 * fold->pairs ? root / 2 : root - fold->pairs);

	if (way & (distance - 1))
		return;
	gather(page, fold, distance, stage);
	stage->at = PLAN_LANDING;
	stage->src = stage->dst = partial(shape);
	stage->then = PLAN_COPY;
	stage->flags = PLAN_WIDE;
	if (way & distance)
		stage->wait.blocks = 0;
	else
		stage->put.blocks = 0;
	if (way == 0) {
		stage->dst = PLAN_OUTPUT;
		stage->flags |= PLAN_FINISH;
	}
}

/* The other of the pair gets the result, or its block. */
static void fold_out(const struct plan_page *page, const struct plan_fold *fold,
		     struct plan_stage *stage)
{
	bool scatter = page->shape.operation == PLAN_OP_REDUCE_SCATTER;
	uint64_t rank = (uint64_t)page->shape.rank;
	struct plan_range range = all_blocks(&page->shape, fold);

	if (!fold->folded)
		return;
	if (scatter)
		range = (struct plan_range){fold->out ? rank : rank ^ 1, 1};
	stage->at = scatter ? PLAN_LANDING : PLAN_OUTPUT;
	stage->to = stage->from = (int)(rank ^ 1);
	if (!fold->out) {
		stage->put = range;
		stage->src = scatter ? PLAN_SCRATCH : PLAN_OUTPUT;
		stage->own = scatter;
		stage->own_src = PLAN_SCRATCH;
		return;
	}
	stage->wait = range;
	stage->opens = true;
	stage->opened = (enum plan_space)stage->at;
	stage->then = PLAN_COPY;
	stage->dst = PLAN_OUTPUT;
	stage->flags = scatter ? PLAN_WIDE | PLAN_FINISH : 0;
}

static bool describe(const struct plan_page *page, unsigned i,
		     struct plan_stage *stage)
{
	enum plan_operation operation = page->shape.operation;
	struct plan_fold fold =
		plan_fold(&page->shape, kept_rank(&page->shape));
	unsigned back = operation == PLAN_OP_REDUCE_SCATTER ? 0 : fold.rounds;

	if (i == 0) {
		fold_in(page, &fold, stage);
		return true;
	}
	i--;
	if (i == fold.rounds + back && operation != PLAN_OP_REDUCE)
		fold_out(page, &fold, stage);
	if (i >= fold.rounds + back || fold.out)
		return i <= fold.rounds + back;
	if (i < fold.rounds)
		halve(page, &fold, UINT64_C(1) << (fold.rounds - 1 - i), stage);
	else if (operation == PLAN_OP_REDUCE)
		gather_to_root(page, &fold, UINT64_C(1) << (i - fold.rounds),
			       stage);
	else
		gather(page, &fold, UINT64_C(1) << (i - fold.rounds), stage);
	return true;
}

/* What SCRATCH is for: all, or the first half kept. */
static struct plan_range kept(const struct plan_shape *shape,
			      const struct plan_fold *fold)
{
	if (fold->folded || shape->layout)
		return all_blocks(shape, fold);
	return near(shape, fold, fold->number,
		    UINT64_C(1) << fold->rounds >> 1);
}

static void begin(struct plan_page *page)
{
	const struct plan_shape *shape = &page->shape;
	struct plan_fold fold = plan_fold(shape, kept_rank(shape));

	plan_stage_begin(page, all_blocks(shape, &fold).blocks,
			 kept(shape, &fold).first);
}

static bool next(struct plan_page *page, struct plan_step *step)
{
	return page->shape.n > 1 && plan_stage_next(page, step, describe);
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
	struct plan_fold fold = plan_fold(shape, kept_rank(shape));
	uint64_t count = shape->count, p = UINT64_C(1) << fold.rounds;
	struct plan_range range = kept(shape, &fold);
	bool only_last = shape->n == 2 && (shape->operation != PLAN_OP_REDUCE ||
					   shape->rank == shape->root);

	if (fold.out || only_last || partial(shape) != PLAN_SCRATCH)
		return 0;
	if (shape->operation != PLAN_OP_REDUCE_SCATTER)
		return plan_part_off(count, p, range.first + range.blocks) -
		       plan_part_off(count, p, range.first);
	return shape->layout ? plan_input(shape) : range.blocks * count;
}

#define SOURCE "Rabenseifner 2004, doi:10.1007/978-3-540-24685-5_1"

const struct plan_algo plan_halving_allreduce = {
	.phase = phase, .scratch = scratch, .source = SOURCE};
const struct plan_algo plan_halving_reduce_scatter = {
	.phase = phase, .scratch = scratch, .source = SOURCE};
const struct plan_algo plan_halving_reduce = {
	.phase = phase, .scratch = scratch, .source = SOURCE};
