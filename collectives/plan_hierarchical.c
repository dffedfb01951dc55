/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hierarchical allreduce, reduce and broadcast: between the ranks of a host
 * and their leader, and between the leaders of the hosts. N. T. Karonis et
 * al.: Exploiting hierarchy in parallel computer networks to optimize
 * collective operation performance. IPDPS 2000.
 *
 * Phases, each a page of another file:
 *   sum: a reduce to the leader by a binomial tree (allreduce, reduce);
 *   leaders: the operation between them: a broadcast as below, a reduce by a
 *   binomial tree, an allreduce by doubling if small, else by halving or the
 *   ring;
 *   share: a broadcast by the leader, by a binomial tree if small, else by two
 *   trees (allreduce, broadcast).
 * Between hosts there are the rounds and bytes of as many ranks as hosts, and
 * each vector crosses for its host once; within a host those of its ranks.
 *
 * The leader is the lowest rank of the host; on the root's host the root is.
 * Without a topology, or with one host, or one rank on each, all ranks are
 * leaders and there is one phase.
 *
 * The leader holds its host's sum where partial results are: in OUTPUT, or,
 * if that is too narrow or absent, at the begin of SCRATCH; what pages want of
 * SCRATCH themselves comes after it. A host of one rank has a sum too, for
 * leaders expect the same width of each other.
 */
#include "plan.h"

#include <stddef.h>

/* Elements up to which the fewest rounds matter more than the bytes. */
#define SMALL 4096

/* A rank's host: its members, and the places among them. */
struct host {
	const int *members;
	int number, n, rank, leader;
};

/* ---- who is where ---- */

static bool is_flat(const struct plan_shape *shape)
{
	const struct plan_topology *t = shape->topology;

	return !t || t->hosts <= 1 || t->hosts == shape->n;
}

static int leader_of(const struct plan_topology *t, int root, int host)
{
	return host == t->host[root] ? root : t->leader[host];
}

static struct host host_of(const struct plan_shape *shape)
{
	const struct plan_topology *t = shape->topology;
	int number = t->host[shape->rank];
	int leader = leader_of(t, shape->root, number);
	struct host host = {
		.members = t->order + t->first[number],
		.number = number,
		.n = t->first[number + 1] - t->first[number],
	};

	for (int i = 0; i < host.n; i++) {
		if (host.members[i] == shape->rank)
			host.rank = i;
		if (host.members[i] == leader)
			host.leader = i;
	}
	return host;
}

/* Whether the host's sum is the leader's INPUT as it is. */
static bool is_input(const struct plan_shape *shape, int host_ranks)
{
	return shape->operation == PLAN_OP_BROADCAST ||
	       (host_ranks == 1 && !shape->wide);
}

/* Elements at the begin of a leader's SCRATCH that are its host's sum. */
static uint64_t held(const struct plan_shape *shape, int host_ranks)
{
	if (is_input(shape, host_ranks))
		return 0;
	return plan_partial(shape) == PLAN_SCRATCH ? shape->count : 0;
}

static void skip_held(struct plan_step *step, uint64_t count)
{
	if (step->src == PLAN_SCRATCH)
		step->src_off += count;
	if (step->acc == PLAN_SCRATCH)
		step->acc_off += count;
	if (step->dst == PLAN_SCRATCH)
		step->dst_off += count;
}

/* ---- the algorithms inside ---- */

/* A broadcast's: its root sends the vector log2(n) times, or once. */
static enum plan_algorithm broadcast_by(const struct plan_shape *shape, int n)
{
	return n > 2 && shape->count > SMALL ? PLAN_DOUBLE_TREE : PLAN_TREE;
}

static enum plan_algorithm between(const struct plan_shape *shape, int hosts)
{
	if (hosts == 1)
		return PLAN_LOCAL;
	if (shape->operation == PLAN_OP_BROADCAST)
		return broadcast_by(shape, hosts);
	if (shape->operation == PLAN_OP_REDUCE)
		return PLAN_TREE;
	if (shape->count <= SMALL)
		return PLAN_DOUBLING;
	/* The least bytes either way; the ring is the better pipeline. */
	if ((hosts & (hosts - 1)) == 0 &&
	    shape->count / (uint64_t)hosts <= shape->chunk)
		return PLAN_HALVING;
	return PLAN_RING;
}

/* The page of what the shape names; those used here have one phase. */
static const struct plan_page_ops *inner(const struct plan_shape *shape)
{
	struct plan_phase phase;

	plan_find(shape->operation, shape->algorithm)->phase(shape, 0, &phase);
	return phase.ops;
}

static void begin_inner(struct plan_page *page)
{
	const struct plan_page_ops *ops = inner(&page->shape);

	if (ops->begin)
		ops->begin(page);
}

/* A leader's part in its host's sum, which is not the last. */
static bool next_sum(struct plan_page *page, struct plan_step *step)
{
	if (!inner(&page->shape)->next(page, step))
		return false;
	step->flags &= (uint8_t)~PLAN_FINISH;
	skip_held(step, page->shape.count);
	return true;
}

static const struct plan_page_ops sum_ops = {begin_inner, next_sum};

/*
 * Two ranks may be neighbours in both of a host's trees: what they open for
 * comes early, hence is for the messages of either.
 */
static bool next_share(struct plan_page *page, struct plan_step *step)
{
	const struct plan_shape *shape = &page->shape;

	if (!inner(shape)->next(page, step))
		return false;
	if (step->kind == PLAN_OPEN)
		step->len = shape->count < shape->chunk ? shape->count
							: shape->chunk;
	return true;
}

static const struct plan_page_ops share_ops = {begin_inner, next_share};

/*
 * Between leaders: ranks are numbers of hosts, but for the page's own steps
 * the shape's root is the rank that it is in the plan.
 */
static void begin_leaders(struct plan_page *page)
{
	int root = page->shape.root;

	page->shape.root = page->shape.topology->host[root];
	begin_inner(page);
	page->shape.root = root;
}

static bool next_leaders(struct plan_page *page, struct plan_step *step)
{
	const struct plan_topology *t = page->shape.topology;
	int root = page->shape.root, host = page->shape.rank;
	bool more;

	page->shape.root = t->host[root];
	more = inner(&page->shape)->next(page, step);
	page->shape.root = root;
	if (!more)
		return false;
	step->peer = leader_of(t, root, step->peer);
	skip_held(step,
		  held(&page->shape, t->first[host + 1] - t->first[host]));
	return true;
}

static const struct plan_page_ops leaders_ops = {begin_leaders, next_leaders};

/* ---- the phases ---- */

static void sum_phase(const struct plan_shape *shape, const struct host *host,
		      struct plan_phase *phase)
{
	if (is_input(shape, host->n))
		return;
	*phase = plan_whole(shape, &sum_ops);
	phase->members = host->members;
	phase->shape.operation = PLAN_OP_REDUCE;
	phase->shape.algorithm = host->n == 1 ? PLAN_LOCAL : PLAN_TREE;
	phase->shape.n = host->n;
	phase->shape.rank = host->rank;
	phase->shape.root = host->leader;
	if (host->rank == host->leader) {
		phase->output = plan_partial(shape);
		phase->shape.no_output = false;
	} else {
		phase->ops = inner(&phase->shape);
	}
}

static void leaders_phase(const struct plan_shape *shape,
			  const struct host *host, struct plan_phase *phase)
{
	if (host->rank != host->leader)
		return;
	*phase = plan_whole(shape, &leaders_ops);
	phase->shape.algorithm = between(shape, shape->topology->hosts);
	phase->shape.n = shape->topology->hosts;
	phase->shape.rank = host->number;
	if (is_input(shape, host->n))
		return;
	phase->input = plan_partial(shape);
	phase->shape.in_place = phase->input == PLAN_OUTPUT;
}

static void share_phase(const struct plan_shape *shape, const struct host *host,
			struct plan_phase *phase)
{
	if (host->n == 1)
		return;
	*phase = plan_whole(shape, &share_ops);
	phase->members = host->members;
	phase->shape.operation = PLAN_OP_BROADCAST;
	phase->shape.algorithm = broadcast_by(shape, host->n);
	phase->shape.n = host->n;
	phase->shape.rank = host->rank;
	phase->shape.root = host->leader;
	if (shape->operation != PLAN_OP_BROADCAST || shape->rank != shape->root)
		phase->input = PLAN_OUTPUT;
}

static bool phase_at(const struct plan_shape *shape, unsigned i,
		     struct plan_phase *phase)
{
	struct host host;

	if (is_flat(shape)) {
		*phase = plan_whole(shape, NULL);
		phase->shape.algorithm = between(shape, shape->n);
		phase->ops = inner(&phase->shape);
		return i == 0;
	}
	if (shape->operation == PLAN_OP_BROADCAST)
		i++;
	if (i > 2 || (i == 2 && shape->operation == PLAN_OP_REDUCE))
		return false;
	phase->ops = NULL;
	host = host_of(shape);
	if (i == 0)
		sum_phase(shape, &host, phase);
	else if (i == 1)
		leaders_phase(shape, &host, phase);
	else
		share_phase(shape, &host, phase);
	return true;
}

static uint64_t scratch(const struct plan_shape *shape)
{
	struct plan_phase phase;
	uint64_t most = 0, hold = 0;

	for (unsigned i = 0; phase_at(shape, i, &phase); i++) {
		uint64_t pages;

		if (!phase.ops)
			continue;
		if (phase.ops == &leaders_ops) {
			hold = held(shape, host_of(shape).n);
			phase.shape.root = shape->topology->host[shape->root];
		}
		pages = plan_scratch(&phase.shape);
		if (pages > most)
			most = pages;
	}
	return hold + most;
}

#define SOURCE "Karonis et al. 2000, doi:10.1109/IPDPS.2000.846009"

const struct plan_algo plan_hierarchical_allreduce = {
	.phase = phase_at, .scratch = scratch, .source = SOURCE};
const struct plan_algo plan_hierarchical_broadcast = {.phase = phase_at,
						      .source = SOURCE};
const struct plan_algo plan_hierarchical_reduce = {
	.phase = phase_at, .scratch = scratch, .source = SOURCE};
