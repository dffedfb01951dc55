/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The closed forms. n members, L = ceil(log2(n)) rounds, m bytes, parts of
 * b = m / n. What is said of one chunk is in units of chunks.
 */
#include "cost.h"

/*
 * Within a host, as verbena-perf tune found it: a virtual machine with two
 * processors (AMD EPYC 9004, L2 1 MiB a core, L3 32 MiB shared) and other work
 * on it; the shortest of many runs. The network is an estimate, of 100 to 200
 * Gb/s. Only ratios matter for the choice.
 */
const struct cost_params cost_usual = {
	.local = {.alpha = 0.06e-6, .overhead = 0.06e-6, .beta = 0.43e-10},
	.net = {.alpha = 2e-6, .overhead = 0.2e-6, .beta = 0.6e-10},
	.gamma = 0.77e-10,
	.call = 0.22e-6,
	.wake = 1e-6,
	.processors = 2,
};

/* A vector of so many bytes makes plan_hierarchical.c go for few rounds. */
#define HIERARCHICAL_SMALL 16384
/* DIRECT_BYTES of coll.h. */
#define DIRECT 32768
/* Slots of the groups of doubling, plan_doubling.c. */
#define DOUBLING_GROUP 4
/*
 * Between hosts, what all ranks put to all at once takes longer than what comes
 * in rounds: switches drop or pause.
 */
#define FAN_IN 1.1

/* A call among members that are alike, over one kind of link. */
struct scene {
	double n, rounds, m, b;
	double wide;  /* of partial results, over elements */
	bool adds_up; /* moving and summing are the same processor's */
	double alpha, overhead, beta, gamma;
	double chunk;
	int members;
	enum plan_operation operation;
};

/* How a piece of some bytes goes through, by chunks. */
struct pipe {
	double bytes; /* of the piece */
	double hops;  /* messages that follow each other, for the first chunk */
	/* Messages that keep a rank busy, and inputs it sums or copies: on the
	   first chunk's way; and for each other chunk, of the busiest rank. */
	double way_sent, way_summed, sent, summed;
};

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static double pieces(double bytes, double chunk)
{
	double n = bytes / chunk;
	double whole = (double)(uint64_t)n;

	return n <= 1 ? 1 : whole < n ? whole + 1 : whole;
}

/* How long a rank is busy with @sent messages and @summed inputs of @bytes. */
static double busy(const struct scene *s, double bytes, double sent,
		   double summed)
{
	double moving = sent * bytes * s->beta;
	double summing = summed * bytes * s->gamma;

	return sent * s->overhead +
	       (s->adds_up ? moving + summing : larger(moving, summing));
}

static double way(const struct scene *s, double bytes, double hops, double sent,
		  double summed)
{
	return hops * s->alpha + sent * (s->overhead + bytes * s->beta) +
	       summed * bytes * s->gamma;
}

static double flow(const struct scene *s, struct pipe p)
{
	double segments = pieces(p.bytes, s->chunk);
	double bytes = p.bytes / segments;

	return way(s, bytes, p.hops, p.way_sent, p.way_summed) +
	       (segments - 1) * busy(s, bytes, p.sent, p.summed);
}

/* One exchange of @bytes, all of which are through before the next begins. */
static double stage(const struct scene *s, double bytes, double summed)
{
	return flow(s, (struct pipe){bytes, 1, 1, summed, 1, summed});
}

/*
 * Until a rank knows that its last put has been read. Within a host it copies
 * itself, and knows.
 */
static double last_read(const struct scene *s)
{
	return s->adds_up ? 0 : s->alpha;
}

/* ---- the algorithms ---- */

/*
 * Rings: @rounds messages one after another of each chunk of a part; a rank
 * goes on with a chunk when it has come, or when it is done with the others.
 */
static double ring(const struct scene *s, double rounds, double summed,
		   double part, double ways)
{
	double segments = pieces(part / ways, s->chunk);
	double bytes = part / ways / segments;
	double each = busy(s, bytes, 1, summed / rounds);
	double hop = way(s, bytes, 1, 1, summed / rounds);
	double messages = segments * ways;

	return (rounds - 1) * larger(messages * each, hop) + hop +
	       (messages - 1) * each;
}

static bool is_folded(const struct scene *s)
{
	return (s->members & (s->members - 1)) != 0;
}

/*
 * floor(log2(n)): rounds that all ranks, or those that act for two, take part
 * in; and the depth of a binomial tree, whose root has L children.
 */
static double full_rounds(const struct scene *s)
{
	return s->rounds - is_folded(s);
}

/*
 * Partial results on the way up, elements on the way down. In a reduce the
 * ranks between end when their puts have been read.
 */
static double binomial(const struct scene *s, bool up, bool down)
{
	double l = s->rounds, depth = full_rounds(s);
	double sent = (up ? s->wide : 0) + down;

	return (!down && depth > 1 ? last_read(s) : 0) +
	       flow(s,
		    (struct pipe){s->m, depth * (up + down), l * sent, l * up,
				  l * larger(up ? s->wide : 0, down), l * up});
}

/* Each tree carries half; a rank has children in one and is a leaf in one. */
static double double_tree(const struct scene *s, bool up)
{
	double l = s->rounds, wide = up ? 2 * s->wide : 0, sent = 2 + wide;

	/* Of two ranks, each goes one way. */
	return flow(s,
		    (struct pipe){s->m / 2, l * (1 + up), l * sent, l * up,
				  s->n > 2 ? sent : larger(2, wide), 2 * up});
}

/*
 * Groups of segments, round by round. Raw vectors fold in, results out, while
 * others are in their rounds. Without that, a rank ends when its last put has
 * been read.
 */
static double doubling_allreduce(const struct scene *s)
{
	double bytes = s->m * s->wide, rounds = full_rounds(s);
	double segments = pieces(bytes, s->chunk);
	double groups = pieces(segments, DOUBLING_GROUP);
	double time = groups * rounds * stage(s, bytes / groups, 1 / s->wide);

	if (is_folded(s))
		return time + flow(s, (struct pipe){s->m, 2, 2, 1, 1, 1});
	return time + (rounds > 1 ? last_read(s) : 0);
}

/* Halves of halves, one way; each is summed at one rank. */
static double halves(const struct scene *s, bool sums, double wide)
{
	double bytes = s->m * wide, time = 0;

	for (double left = full_rounds(s); left > 0; left--) {
		bytes /= 2;
		time += stage(s, bytes, sums ? 1 / wide : 0);
	}
	return time;
}

static double halving(const struct scene *s)
{
	double time = halves(s, true, s->wide);

	if (is_folded(s))
		time += stage(s, s->m, 1);
	if (s->operation == PLAN_OP_REDUCE_SCATTER)
		return time + (is_folded(s) ? stage(s, s->b, 0) : 0);
	time += halves(s, false, 1);
	if (is_folded(s) && s->operation == PLAN_OP_ALLREDUCE)
		time += stage(s, s->m, 0);
	return time;
}

/*
 * To owners and back, each in one round with a fan-in of n - 1. The root owns
 * the vector, or each rank a part.
 */
static double owners(const struct scene *s, bool parts, bool collect,
		     bool share)
{
	double others = s->n - 1, halves_done = collect + share;
	double sent = parts ? others * halves_done : others;

	return flow(s, (struct pipe){parts ? s->b : s->m, halves_done,
				     others * halves_done, others * collect,
				     sent, others * collect});
}

/* The sum of a segment goes on beside the rounds of the next. */
static double decentralized(const struct scene *s)
{
	double segments = pieces(s->m, s->chunk), bytes = s->m / segments;
	double others = s->n - 1;

	if (s->adds_up)
		return segments * others * way(s, bytes, 1, 1, 1);
	return segments * others * way(s, bytes, 1, 1, 0) +
	       others * bytes * s->gamma +
	       (segments - 1) * larger(0, others * (bytes * s->gamma -
						    way(s, bytes, 1, 1, 0)));
}

/* Everything to everybody at once. */
static double oneshot(const struct scene *s)
{
	double others = s->n - 1;

	return flow(s, (struct pipe){s->m, 1, others, others, others, others});
}

/*
 * A greeting of all, work on mapped memory, and a farewell, which in the
 * allreduce the puts of the sums are. To copy from a peer is to put to one.
 */
static double mapped(const struct scene *s)
{
	double others = s->n - 1, greet = s->alpha + others * s->overhead;

	switch (s->operation) {
	case PLAN_OP_ALLREDUCE:
		return greet + flow(s, (struct pipe){s->b, 1, others, others,
						     others, others});
	case PLAN_OP_REDUCE:
		return 2 * greet + others * s->m * s->gamma;
	case PLAN_OP_BROADCAST:
		return 2 * greet + s->m * s->beta;
	case PLAN_OP_REDUCE_SCATTER:
		return 2 * greet + others * s->b * s->gamma;
	default:
		return 2 * greet + others * s->b * s->beta;
	}
}

/* Blocks of half of what is there, then of all: n - 1 in all. */
static double gather_by_doubling(const struct scene *s)
{
	double time = 0, have = 1;

	for (double left = s->rounds; left > 0; left--) {
		double blocks = have < s->n - have ? have : s->n - have;

		time += stage(s, blocks * s->b, 0);
		have *= 2;
	}
	return time;
}

/* Half of the parts in each round, packed before; and unpacked at the end. */
static double bruck_alltoall(const struct scene *s)
{
	double round = stage(s, s->m / 2, 0) + s->m / 2 * s->gamma;

	return s->rounds * round + s->m * s->gamma;
}

static double straight(const struct scene *s)
{
	double others = s->n - 1;

	return flow(s, (struct pipe){s->b, 1, others, 0, others, 0});
}

/* All at once. */
static double linear_parts(const struct scene *s)
{
	struct scene crowd = *s;

	if (s->n > 2 && !s->adds_up &&
	    (s->operation == PLAN_OP_ALLGATHER ||
	     s->operation == PLAN_OP_ALLTOALL))
		crowd.beta *= FAN_IN;
	return straight(&crowd);
}

/* In each round a rank waits for one before it puts to the next. */
static double pairwise(const struct scene *s)
{
	return straight(s) + (s->n - 1) * s->overhead;
}

/* The subtree's blocks in one stream; those between copy what they pass. */
static double tree_of_parts(const struct scene *s)
{
	double all = (s->n - 1) * s->b;
	double messages = s->rounds + pieces(all, s->chunk) - 1;
	double copied = all / 2 < s->chunk ? all / 2 : s->chunk;

	return full_rounds(s) * s->alpha + messages * s->overhead +
	       all * s->beta + copied * s->gamma;
}

/*
 * Below DIRECT, what is put into OUTPUT goes through landing and is copied:
 * bytes of it, at the member that ends last. Between hosts that is little.
 */
static double landed(const struct scene *s, enum plan_algorithm algorithm)
{
	double others = s->n - 1;

	if (!s->adds_up || s->m >= DIRECT || s->operation == PLAN_OP_REDUCE ||
	    s->operation == PLAN_OP_REDUCE_SCATTER)
		return 0;
	if (s->operation > PLAN_OP_BROADCAST)
		return algorithm == PLAN_MAPPED ? 0 : others * s->b;
	switch (algorithm) {
	case PLAN_TREE:
	case PLAN_DOUBLE_TREE:
		return full_rounds(s) * s->m;
	case PLAN_CENTRAL:
	case PLAN_LINEAR:
		return s->m;
	case PLAN_DOUBLING:
	case PLAN_ONESHOT:
	case PLAN_DECENTRALIZED:
		return 0;
	case PLAN_MAPPED:
		return s->operation == PLAN_OP_BROADCAST ? 0 : others * s->b;
	default:
		return others * s->b;
	}
}

/* Of members over one kind of link. */
static double flat(const struct scene *s, enum plan_algorithm algorithm)
{
	bool up = s->operation != PLAN_OP_BROADCAST;
	bool down = s->operation != PLAN_OP_REDUCE;
	bool shares = s->operation == PLAN_OP_ALLREDUCE;
	double others = s->n - 1;

	switch (algorithm) {
	case PLAN_RING:
		if (s->operation == PLAN_OP_ALLGATHER)
			return ring(s, others, 0, s->b, 1);
		if (shares)
			return ring(s, 2 * others, others,
				    s->b * (1 + s->wide) / 2, 1);
		return ring(s, others, others, s->b * s->wide, 1) +
		       (s->n > 2 ? last_read(s) : 0);
	case PLAN_BIRING:
		return ring(s, 2 * others, others, s->b * (1 + s->wide) / 2, 2);
	case PLAN_TREE:
		return s->operation > PLAN_OP_BROADCAST ? tree_of_parts(s)
							: binomial(s, up, down);
	case PLAN_DOUBLE_TREE:
		return double_tree(s, shares);
	case PLAN_DOUBLING:
		return shares ? doubling_allreduce(s) : gather_by_doubling(s);
	case PLAN_HALVING:
		return halving(s);
	case PLAN_CENTRAL:
		return owners(s, false, true, true);
	case PLAN_SHARDED:
		return owners(s, true, true, true);
	case PLAN_DECENTRALIZED:
		return decentralized(s);
	case PLAN_ONESHOT:
		return oneshot(s);
	case PLAN_MAPPED:
		return mapped(s);
	case PLAN_BRUCK:
		return s->operation == PLAN_OP_ALLTOALL ? bruck_alltoall(s)
							: gather_by_doubling(s);
	case PLAN_PAIRWISE:
		return pairwise(s);
	case PLAN_LINEAR:
		if (s->operation == PLAN_OP_REDUCE_SCATTER)
			return owners(s, true, true, false);
		if (s->operation <= PLAN_OP_BROADCAST)
			return owners(s, false, up, !up);
		return linear_parts(s);
	default:
		return s->rounds * (s->alpha + s->overhead);
	}
}

/* ---- from members and hosts to links ---- */

/* Members of the fullest host. */
static double per_host(const struct cost_case *what)
{
	return pieces(what->n, what->hosts);
}

/* Members to a processor, at least 1. */
static double turns_of(const struct cost_params *params,
		       const struct cost_case *what)
{
	return larger(1, per_host(what) / params->processors);
}

/*
 * @members among which @what is done; @share of them use a host's interface at
 * the same time. What is moved within a host, and what is summed, is the work
 * of its processors, on each of which @turns members take turns.
 */
static struct scene scene_of(const struct cost_params *params,
			     const struct cost_case *what, bool within,
			     double members, double share, double turns)
{
	const struct cost_link *link = within ? &params->local : &params->net;
	bool crowded = per_host(what) > params->processors;
	double wait = crowded ? params->wake * turns_of(params, what) : 0;

	return (struct scene){
		.n = members,
		.members = (int)members,
		.rounds = plan_log2((uint64_t)members),
		.m = what->bytes,
		.b = what->bytes / members,
		.wide = what->widen,
		.adds_up = within,
		.alpha = link->alpha + wait + (within ? link->overhead : 0),
		.overhead = link->overhead,
		.beta = link->beta * (within ? turns : share),
		.gamma = params->gamma * turns,
		.operation = what->operation,
	};
}

/* As plan_hierarchical.c has it. */
static double leaders(const struct scene *s)
{
	if (s->operation != PLAN_OP_ALLREDUCE)
		return flat(s, s->operation == PLAN_OP_REDUCE || s->n <= 2 ||
					       s->m <= HIERARCHICAL_SMALL
				       ? PLAN_TREE
				       : PLAN_DOUBLE_TREE);
	if (s->m <= HIERARCHICAL_SMALL)
		return flat(s, PLAN_DOUBLING);
	return flat(s, !is_folded(s) && s->b <= s->chunk ? PLAN_HALVING
							 : PLAN_RING);
}

static double hierarchical(const struct cost_params *params,
			   const struct cost_case *what, double chunk)
{
	bool one = what->hosts == 1, is_flat = one || what->hosts == what->n;
	double turns = turns_of(params, what);
	struct scene between =
		scene_of(params, what, one, is_flat ? what->n : what->hosts, 1,
			 one ? turns : 1);
	struct scene within =
		scene_of(params, what, true, per_host(what), 1, turns);
	double time;

	between.chunk = within.chunk = chunk;
	time = leaders(&between);
	if (is_flat)
		return time;
	if (what->operation != PLAN_OP_BROADCAST) {
		within.operation = PLAN_OP_REDUCE;
		time += flat(&within, PLAN_TREE);
	}
	within.operation = PLAN_OP_BROADCAST;
	return what->operation == PLAN_OP_REDUCE ? time
						 : time + leaders(&within);
}

/* Whether all of a host's members send to other hosts at the same time. */
static bool all_cross(const struct cost_case *what,
		      enum plan_algorithm algorithm)
{
	switch (algorithm) {
	case PLAN_RING:
	case PLAN_BIRING:
	case PLAN_TREE:
	case PLAN_CENTRAL:
		return false;
	case PLAN_LINEAR:
		return what->operation == PLAN_OP_ALLGATHER ||
		       what->operation == PLAN_OP_REDUCE_SCATTER ||
		       what->operation == PLAN_OP_ALLTOALL;
	default:
		return true;
	}
}

/* Whether the root does all that takes long. */
static bool one_works(const struct cost_case *what,
		      enum plan_algorithm algorithm)
{
	if (algorithm == PLAN_MAPPED)
		return what->operation == PLAN_OP_REDUCE;
	return algorithm == PLAN_CENTRAL ||
	       (algorithm == PLAN_LINEAR && !all_cross(what, algorithm));
}

/*
 * Turns that the rank which has most to do waits for: none if the others have
 * little. In a tree the root deals with L of the n - 1 messages each way.
 */
static double turns_at(const struct cost_params *params,
		       const struct cost_case *what,
		       enum plan_algorithm algorithm)
{
	double turns = turns_of(params, what), all = what->n - 1;

	if (one_works(what, algorithm))
		return 1;
	if (algorithm == PLAN_MAPPED && what->operation == PLAN_OP_BROADCAST)
		return larger(1, all / params->processors);
	if (algorithm != PLAN_TREE || what->hosts > 1 ||
	    what->operation > PLAN_OP_BROADCAST)
		return turns;
	if (what->operation == PLAN_OP_ALLREDUCE)
		all *= 1.5; /* it sums one way, and puts the other */
	all /= plan_log2((uint64_t)what->n) * (double)params->processors;
	return turns > all ? larger(1, all) : turns;
}

/* Whether quick.c runs it: one round of one small message a pair. */
bool cost_is_quick(const struct cost_case *what, enum plan_algorithm algorithm,
		   double chunk)
{
	return (algorithm == PLAN_ONESHOT || algorithm == PLAN_LINEAR) &&
	       what->bytes < DIRECT && cost_piece(what, algorithm) <= chunk;
}

double cost_predict(const struct cost_params *params,
		    const struct cost_case *what, enum plan_algorithm algorithm,
		    double chunk)
{
	struct scene s;

	if (algorithm == PLAN_LOCAL)
		return what->bytes * params->gamma;
	if (algorithm == PLAN_HIERARCHICAL)
		return params->call + hierarchical(params, what, chunk);
	s = scene_of(params, what, what->hosts == 1, what->n,
		     all_cross(what, algorithm) ? per_host(what) : 1,
		     turns_at(params, what, algorithm));
	s.chunk = chunk;
	return (cost_is_quick(what, algorithm, chunk) ? 0 : params->call) +
	       flat(&s, algorithm) + landed(&s, algorithm) * s.gamma;
}

double cost_piece(const struct cost_case *what, enum plan_algorithm algorithm)
{
	bool vector = what->operation <= PLAN_OP_BROADCAST;

	switch (algorithm) {
	case PLAN_RING:
	case PLAN_BIRING:
	case PLAN_SHARDED:
	case PLAN_MAPPED:
	case PLAN_PAIRWISE:
		return what->bytes / what->n;
	case PLAN_LINEAR:
		return vector ? what->bytes : what->bytes / what->n;
	default:
		return what->bytes;
	}
}
