/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Recursive doubling: in round q = 1, 2, ... a rank exchanges all it has with
 * the rank 2^(q - 1) away. R. Thakur, R. Rabenseifner, W. Gropp: Optimization
 * of collective communication operations in MPICH. Int. J. High Perform.
 * Comput. Appl. 19(1), 2005.
 *
 * Allgather, for n a power of two: log2(n) rounds, n - 1 blocks put. Stages
 * (plan_stage.h), straight into OUTPUT.
 *
 * Allreduce: log2(n) rounds, in each all m elements; the fewest rounds, for
 * small vectors. Both sides of an exchange add the same two operands, and
 * the kernels give a (+) b and b (+) a the same bits (reduce.h), so all ranks
 * get the same. Other n: the first ranks, in pairs (plan_stage.h), reduce to
 * one in round 0 and get the result from it in round rounds + 1.
 *
 * Segments go in groups: round by round, and within a round one after
 * another, so that the next segment travels while one is reduced. All ranks
 * do what they have of (group, round, segment) in this order and put before
 * they wait, so a window of 1 and one landing slot are enough.
 *
 * A segment's partial sums are in two places of SCRATCH in turn: round q
 * reads what round q - 1 left in place (q - 1) % 2 and leaves its own in
 * place q % 2, out of which the put of round q - 1 must be through. The last
 * goes to OUTPUT. The next group's segment takes the places over after the
 * last put and reduce.
 */
#include "plan_stage.h"

/* ---- allgather ---- */

static bool describe(const struct plan_page *page, unsigned i,
		     struct plan_stage *stage)
{
	uint64_t rank = (uint64_t)page->shape.rank, distance = UINT64_C(1) << i;
	uint64_t first = rank & ~(distance - 1);

	if (distance >= (uint64_t)page->shape.n)
		return false;
	stage->to = stage->from = (int)(rank ^ distance);
	stage->put = (struct plan_range){first, distance};
	stage->wait = (struct plan_range){first ^ distance, distance};
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

/* ---- allreduce ---- */

enum { GROUP = 4 };

/* Of a segment in a round, in this order; in round 0 only the last two. */
enum { PUT, WAIT, REDUCE, EXCHANGE };

/*
 * The page's state: the group is iteration, of children segments, the segment
 * in it mark[0], the round round.
 */
static void begin(struct plan_page *page)
{
	struct plan_fold fold = plan_fold(&page->shape, -1);
	uint64_t groups;

	plan_segment(page, page->shape.count);
	groups = (page->segments + GROUP - 1) / GROUP;
	page->children =
		groups ? (unsigned)((page->segments + groups - 1) / groups) : 0;
	page->opens = fold.out ? 1 : fold.rounds + fold.folded;
}

static unsigned first_round(const struct plan_fold *fold)
{
	return fold->folded ? 0 : 1;
}

/* The other one of the pair, or of the exchange. */
static int peer_of(const struct plan_page *page, const struct plan_fold *fold,
		   unsigned round)
{
	if (round == 0 || round > fold->rounds)
		return page->shape.rank ^ 1;
	return plan_fold_rank(fold, fold->number ^ UINT64_C(1) << (round - 1),
			      -1);
}

/* The number of a step of the segment that is in this place in its group. */
static uint64_t step_of(const struct plan_page *page,
			const struct plan_fold *fold, uint64_t group,
			unsigned round, unsigned part)
{
	/* Of each segment: in round 0 of a pair, in all of a group. */
	uint64_t folds = fold->folded ? EXCHANGE - WAIT : 0;
	uint64_t all = folds + EXCHANGE * fold->rounds + fold->folded;
	uint64_t before = page->opens + group * all * page->children;

	if (round == 0)
		return before + folds * page->mark[0] + part - WAIT;
	return before + (folds + EXCHANGE * (round - 1)) * page->children +
	       EXCHANGE * page->mark[0] + part;
}

/* @part of the round before, or of the last round of the group before. */
static uint64_t step_before(const struct plan_page *page,
			    const struct plan_fold *fold, unsigned part)
{
	unsigned first = first_round(fold);

	if (page->round > first)
		return page->round == 1 && part == PUT
			       ? PLAN_NO_STEP
			       : step_of(page, fold, page->iteration,
					 page->round - 1, part);
	return page->iteration == 0 ? PLAN_NO_STEP
				    : step_of(page, fold, page->iteration - 1,
					      fold->rounds, part);
}

static uint64_t place(const struct plan_page *page, unsigned round)
{
	return (2 * page->mark[0] + round % 2) * page->segment;
}

static void reduce_step(const struct plan_page *page,
			const struct plan_fold *fold, struct plan_step *step,
			uint64_t off)
{
	step->kind = PLAN_REDUCE;
	step->src = PLAN_LANDING;
	step->dep[0] = page->next - 1;
	/* What read the place that this writes; in place, INPUT. */
	step->dep[1] = step_before(page, fold, PUT);
	if (fold->rounds == 1 && !fold->folded)
		step->dep[1] = page->next - 2;
	step->dst = PLAN_SCRATCH;
	step->dst_off = place(page, page->round);
	if (page->round == fold->rounds) {
		step->dst = PLAN_OUTPUT;
		step->dst_off = off;
		step->flags |= PLAN_FINISH;
	}
}

static void exchange_step(const struct plan_page *page,
			  const struct plan_fold *fold, unsigned part,
			  struct plan_step *step, uint64_t off)
{
	bool raw = page->round == first_round(fold);
	uint8_t has = raw ? PLAN_INPUT : PLAN_SCRATCH;
	uint64_t has_off = raw ? off : place(page, page->round - 1);
	bool peer_is_raw =
		page->round == 0 ||
		(page->round == 1 && (fold->number ^ 1) >= fold->pairs);

	step->dst = PLAN_LANDING;
	if (part == PUT) {
		step->kind = PLAN_PUT;
		step->src = has;
		step->src_off = has_off;
		if (!raw || page->shape.in_place)
			step->flags |= PLAN_SYNC;
		if (!raw)
			step->dep[0] = step_before(page, fold, REDUCE);
		return;
	}
	if (!peer_is_raw)
		step->flags |= PLAN_WIDE;
	if (part == WAIT) {
		step->kind = PLAN_WAIT;
		/* For the reduce, which has no room for it. */
		step->dep[0] = step_before(page, fold, REDUCE);
		return;
	}
	step->acc = has;
	step->acc_off = has_off;
	reduce_step(page, fold, step, off);
}

static void hand_out_step(const struct plan_page *page,
			  const struct plan_fold *fold, struct plan_step *step,
			  uint64_t off)
{
	step->dst = PLAN_OUTPUT;
	step->dst_off = off;
	step->kind = fold->out ? PLAN_WAIT : PLAN_PUT;
	if (fold->out)
		return;
	step->src = PLAN_OUTPUT;
	step->src_off = off;
	step->dep[0] = step_before(page, fold, REDUCE);
}

/* Steps of a segment in the round. */
static unsigned steps_in(const struct plan_page *page,
			 const struct plan_fold *fold)
{
	if (page->round == 0 && !fold->out)
		return fold->folded ? EXCHANGE - WAIT : 0;
	if (page->round == 0 || page->round > fold->rounds)
		return fold->folded;
	return fold->out ? 0 : EXCHANGE;
}

static void any_step(const struct plan_page *page, const struct plan_fold *fold,
		     struct plan_step *step)
{
	uint64_t s = page->iteration * page->children + page->mark[0], off;
	unsigned skipped = page->round == 0 && !fold->out ? WAIT : PUT;

	step->len = plan_segment_at(page, page->shape.count, s, &off);
	step->peer = peer_of(page, fold, page->round);
	if (page->round > fold->rounds)
		hand_out_step(page, fold, step, off);
	else
		exchange_step(page, fold, page->part + skipped, step, off);
	if (step->len == 0)
		step->kind = PLAN_NONE;
}

static bool next(struct plan_page *page, struct plan_step *step)
{
	struct plan_fold fold = plan_fold(&page->shape, -1);

	if (page->shape.n == 1 || page->segments == 0)
		return false;
	if (page->next < page->opens) {
		*step = plan_open(
			page,
			peer_of(page, &fold,
				(unsigned)page->next + first_round(&fold)),
			fold.out ? PLAN_OUTPUT : PLAN_LANDING);
		return true;
	}
	while (page->iteration * page->children < page->segments) {
		if (page->part < steps_in(page, &fold)) {
			any_step(page, &fold, step);
			page->part++;
			return true;
		}
		page->part = 0;
		if (++page->mark[0] < page->children)
			continue;
		page->mark[0] = 0;
		if (page->round++ <= fold.rounds)
			continue;
		page->round = 0;
		page->iteration++;
	}
	return false;
}

/* ---- both ---- */

static const struct plan_page_ops allreduce_ops = {begin, next};
static const struct plan_page_ops allgather_ops = {begin_gather, next_gather};

static bool phase(const struct plan_shape *shape, unsigned i,
		  struct plan_phase *phase)
{
	*phase = plan_whole(shape, shape->operation == PLAN_OP_ALLGATHER
					   ? &allgather_ops
					   : &allreduce_ops);
	return i == 0;
}

static uint64_t scratch(const struct plan_shape *shape)
{
	struct plan_fold fold = plan_fold(shape, -1);
	struct plan_page page = {.shape = *shape};

	if (fold.out || (fold.rounds <= 1 && !fold.folded))
		return 0;
	begin(&page);
	return 2 * page.children * page.segment;
}

#define SOURCE                                                                 \
	"Thakur, Rabenseifner and Gropp 2005, doi:10.1177/1094342005051521"

const struct plan_algo plan_doubling_allreduce = {
	.phase = phase, .scratch = scratch, .source = SOURCE};
const struct plan_algo plan_doubling_allgather = {
	.phase = phase, .power_of_two = true, .source = SOURCE};
