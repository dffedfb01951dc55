/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans: a collective algorithm as a pure function of (rank r of n, count,
 * chunk, root) that yields the rank's steps one after another. No I/O, no
 * memory beyond struct plan, whatever n and count are. The executor
 * (exec.h) runs a plan for the engine and for the simulator alike.
 *
 * A plan is one or more phases, each a page of code that knows nothing of the
 * others: an algorithm of the field is a page, or a list of pages (a
 * hierarchical allreduce: reduce within the host, allreduce between leaders,
 * broadcast within the host). What a page yields is translated: its ranks to
 * members, its spaces and offsets to the plan's.
 *
 * Units: offsets and lengths are in elements, so that a plan does not depend
 * on how many bytes an element has in a space or on the wire. Elements are
 * narrow (the caller's type) in INPUT and OUTPUT, wide (the type that partial
 * results have: float32 for 16-bit types) in SCRATCH, and in LANDING as they
 * were where they came from. For most types narrow and wide are the same.
 *
 * Rules that every plan keeps, and the simulator checks:
 * - Steps are numbered 0, 1, 2, ... in the order of generation; dependencies
 *   have lower numbers. Executed strictly in this order (a window of 1) and
 *   with one landing slot per pair of ranks, a plan still ends.
 * - Per ordered pair of ranks, the k-th put matches the k-th wait, with the
 *   same length and destination space.
 * - A wait into LANDING is followed by exactly one reduce or copy from the
 *   landing of that peer; per peer these are in the order of the waits. An
 *   empty one (length 0) has none. A REDUCE_ALL takes one landing of each
 *   other rank of the phase; no plan mixes it with REDUCE or COPY of landings
 *   from the same peers while either is outstanding.
 * - A put waits until its receiver has opened for its sender. A plan opens
 *   for a peer before any step that another rank may be waiting for.
 * - A put is done once posted: its source may be read until its receiver's
 *   wait is done, so what overwrites the source must be causally after that.
 *   With PLAN_SYNC it is done once its source may be overwritten.
 * - Memory that a put into OUTPUT writes is not touched by its owner between
 *   the owner's open and the matching wait, unless causally before.
 * - Memory of a peer that is mapped (PLAN_REDUCE_ALL from INPUT,
 *   PLAN_COPY_PEER) is read causally after the peer's put that says it is
 *   there, and the peer waits for a put of the reader's before its plan ends
 *   or it overwrites that memory.
 */
#ifndef VBN_PLAN_H
#define VBN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum plan_kind {
	PLAN_NONE,	 /* an empty part: done with its dependencies */
	PLAN_OPEN,	 /* peer may put from here on: into landing slots, if
			    len is not 0 (elements of a message at most), and,
			    if dst says so, into our OUTPUT. src INPUT: and it
			    may read our mapped INPUT (and OUTPUT) */
	PLAN_PUT,	 /* src -> dst of peer */
	PLAN_WAIT,	 /* for the peer's next put, which lands in dst */
	PLAN_REDUCE,	 /* dst = (landing of peer) + acc */
	PLAN_REDUCE_ALL, /* dst = contribution of rank 0 + of rank 1 + ... of
			    the phase, ours at acc; the others' from their
			    landings (src LANDING), or from their mapped INPUT
			    at src_off (src INPUT) */
	PLAN_COPY,	 /* dst = src; LANDING: of peer */
	PLAN_COPY_PEER	 /* dst = the peer's mapped src (INPUT, OUTPUT) */
};

enum plan_space {
	PLAN_INPUT,
	PLAN_OUTPUT,
	PLAN_LANDING, /* the executor picks the slot; offsets are 0 */
	PLAN_SCRATCH
};

enum plan_flags {
	PLAN_SYNC = 1,	 /* put: done once its source may be overwritten */
	PLAN_WIDE = 2,	 /* reduce, copy, wait: the landing holds wide elements;
			    a page need not say it of what came from INPUT */
	PLAN_FINISH = 4, /* reduce, copy: the last of its elements: an average
			    divides. Of a copy: src holds a sum */
	PLAN_EARLY = 8	 /* open: does not wait for the phases before */
};

#define PLAN_NO_STEP UINT64_MAX

struct plan_step {
	uint8_t kind, src, acc, dst; /* enum plan_kind, plan_space */
	uint8_t flags;
	int peer;
	uint64_t src_off, acc_off, dst_off, len;
	uint64_t dep[2]; /* step numbers, or PLAN_NO_STEP */
	uint64_t after;	 /* all steps with lower numbers must be done */
	/* reduce_all: the ranks that contribute, NULL: 0 .. n - 1, in order. */
	const int *members;
	int n;
};

/* What the caller asks for. */
enum plan_operation {
	PLAN_OP_ALLREDUCE,
	PLAN_OP_REDUCE,
	PLAN_OP_BROADCAST,
	PLAN_OP_REDUCE_SCATTER,
	PLAN_OP_ALLGATHER,
	PLAN_OP_GATHER,
	PLAN_OP_SCATTER,
	PLAN_OP_ALLTOALL,
	PLAN_OP_BARRIER,
	PLAN_OPERATIONS
};

enum plan_algorithm {
	PLAN_LOCAL, /* one rank: a copy */
	PLAN_CENTRAL,
	PLAN_SHARDED,
	PLAN_DECENTRALIZED,
	PLAN_RING,
	PLAN_BIRING, /* both ways round the ring at once */
	PLAN_DOUBLING,
	PLAN_HALVING,
	PLAN_TREE,
	PLAN_DOUBLE_TREE,
	PLAN_BRUCK,
	PLAN_PAIRWISE,
	PLAN_LINEAR,
	PLAN_ONESHOT,
	PLAN_DISSEMINATION,
	PLAN_HIERARCHICAL,
	PLAN_MAPPED,
	PLAN_ALGORITHMS
};

/*
 * The parts of gather, scatter, allgather, reduce-scatter and alltoall when
 * they are not all of @count elements one after another. Part i of the side
 * that has n parts; an alltoall has two such sides. Arrays of n.
 */
struct plan_layout {
	const uint64_t *len, *off;	 /* alltoall: of OUTPUT */
	const uint64_t *in_len, *in_off; /* alltoall: of INPUT */
};

/* Which ranks share a host, for hierarchical plans. Arrays of n. */
struct plan_topology {
	int hosts;
	const int *host;   /* of each rank, 0 .. hosts - 1 */
	const int *order;  /* ranks, by host, ascending within one */
	const int *first;  /* hosts + 1: where a host begins in order */
	const int *leader; /* hosts: its leader, the lowest rank */
};

struct plan_shape {
	enum plan_operation operation;
	enum plan_algorithm algorithm;
	int rank, n, root;
	uint64_t count; /* allreduce, reduce, broadcast: of the vector; others:
			   of a part */
	uint64_t chunk; /* elements per message at most, >= 1 */
	bool wide;	/* partial results are of another type than elements */
	bool in_place;	/* INPUT and OUTPUT (the own part of it) are one */
	bool no_output; /* reduce: this rank has none */
	const struct plan_layout *layout; /* NULL: parts of count */
	const struct plan_topology *topology;
};

/* A page's state while it yields its steps. */
struct plan_page {
	struct plan_shape shape; /* as the page sees it */
	uint64_t next;		 /* number of the next step, in the page */
	/* The page's own. */
	uint64_t segments, segment; /* how many, elements of each */
	uint64_t iteration;
	unsigned part; /* position in the iteration */
	unsigned children, opens, lag, round;
	uint64_t mark[4];
};

/* How a phase's page is to be run, and what it yields translated. */
struct plan_phase {
	const struct plan_page_ops *ops; /* NULL: the rank has no part in it */
	struct plan_shape shape;
	const int *members;    /* member of each of its ranks; NULL: the same.
				  Lives as long as the plan */
	uint8_t input, output; /* spaces that its INPUT and OUTPUT are */
	uint64_t offset;       /* where its spaces begin in the plan's */
};

struct plan_page_ops {
	void (*begin)(struct plan_page *page); /* may be NULL */
	/* False at the end; *step is zeroed, without dependencies, before. */
	bool (*next)(struct plan_page *page, struct plan_step *step);
};

/* An algorithm for an operation. */
struct plan_algo {
	/* The i-th phase; false: there is none. */
	bool (*phase)(const struct plan_shape *shape, unsigned i,
		      struct plan_phase *phase);
	/* Moves raw contributions and sums them in the order of the ranks. */
	bool in_order;
	bool mapped;	   /* needs all peers' memory mapped */
	bool power_of_two; /* n must be one */
	bool even;	   /* no layout */
	bool apart;	   /* not in place */
	/*
	 * A rank waits for a put of each peer before it puts into that peer's
	 * OUTPUT or reads its memory.
	 */
	bool greets;
	/* Elements of SCRATCH; NULL: none. */
	uint64_t (*scratch)(const struct plan_shape *shape);
	const char *source; /* where it is described */
};

struct plan {
	struct plan_shape shape;
	const struct plan_algo *algo;
	uint64_t next; /* number of the next step */
	unsigned phases;
	uint64_t first; /* number of the phase's first step */
	struct plan_phase phase;
	struct plan_page page;
};

/*
 * 0, -EINVAL, or -EOPNOTSUPP: the operation has no such algorithm. One rank
 * alone copies, whatever the algorithm.
 */
int plan_begin(struct plan *plan, const struct plan_shape *shape);

/* The next step; false at the end. Its number is plan->next before. */
bool plan_next(struct plan *plan, struct plan_step *step);

/* NULL: the operation has no such algorithm. */
const struct plan_algo *plan_find(enum plan_operation operation,
				  enum plan_algorithm algorithm);
const char *plan_name(enum plan_algorithm algorithm);
const char *plan_operation_name(enum plan_operation operation);
/* By name; false: there is none of it. */
bool plan_by_name(const char *name, enum plan_algorithm *algorithm);

/* Elements of SCRATCH that the plan needs. */
uint64_t plan_scratch(const struct plan_shape *shape);
/* Elements of INPUT and of OUTPUT of a rank. */
uint64_t plan_input(const struct plan_shape *shape);
uint64_t plan_output(const struct plan_shape *shape);

/* ---- for the pages ---- */

/* Part @i of @count elements split evenly in @n parts. */
static inline uint64_t plan_part_off(uint64_t count, uint64_t n, uint64_t i)
{
	uint64_t more = count % n;

	return count / n * i + (i < more ? i : more);
}

static inline uint64_t plan_part_len(uint64_t count, uint64_t n, uint64_t i)
{
	return count / n + (i < count % n ? 1 : 0);
}

/*
 * Block @i of the n that the vector consists of: an even part of count for
 * allreduce, reduce and broadcast, else as the layout says. Returns its
 * length; *off gets its offset in the side that has n blocks.
 */
uint64_t plan_block(const struct plan_shape *shape, int i, uint64_t *off);
/* The same of an alltoall's INPUT. */
uint64_t plan_block_in(const struct plan_shape *shape, int i, uint64_t *off);
/* The longest block. */
uint64_t plan_block_most(const struct plan_shape *shape);

/* Cut @len elements in segments of equal size, at most a chunk each. */
void plan_segment(struct plan_page *page, uint64_t len);

/*
 * Segment @s of a block of @len elements: its length, 0 if there is none;
 * *skip gets where it begins in the block.
 */
uint64_t plan_segment_at(const struct plan_page *page, uint64_t len, uint64_t s,
			 uint64_t *skip);

/* Rounds of doubling to reach n: ceil(log2(n)). */
unsigned plan_log2(uint64_t n);

/* Where partial results are: SCRATCH if they are wide or there is no OUTPUT. */
static inline uint8_t plan_partial(const struct plan_shape *shape)
{
	return shape->wide || shape->no_output ? PLAN_SCRATCH : PLAN_OUTPUT;
}

/* The step that opens for @peer's puts, of which some go into @dst. */
struct plan_step plan_open(const struct plan_page *page, int peer,
			   enum plan_space dst);

/* A phase of the whole shape as it is. */
struct plan_phase plan_whole(const struct plan_shape *shape,
			     const struct plan_page_ops *ops);

/* The algorithms, each in the file of its name. */
extern const struct plan_algo plan_ring_allreduce, plan_ring_reduce_scatter,
	plan_ring_allgather, plan_biring_allreduce;
extern const struct plan_algo plan_tree_allreduce, plan_tree_broadcast,
	plan_tree_reduce, plan_tree_gather, plan_tree_scatter;
extern const struct plan_algo plan_double_tree_allreduce,
	plan_double_tree_broadcast;
extern const struct plan_algo plan_doubling_allreduce, plan_doubling_allgather;
extern const struct plan_algo plan_halving_allreduce,
	plan_halving_reduce_scatter, plan_halving_reduce;
extern const struct plan_algo plan_central_allreduce, plan_sharded_allreduce,
	plan_decentralized_allreduce, plan_oneshot_allreduce;
extern const struct plan_algo plan_linear_reduce, plan_linear_broadcast,
	plan_linear_reduce_scatter, plan_linear_allgather, plan_linear_gather,
	plan_linear_scatter, plan_linear_alltoall;
extern const struct plan_algo plan_pairwise_alltoall, plan_bruck_alltoall,
	plan_bruck_allgather;
extern const struct plan_algo plan_dissemination_barrier;
extern const struct plan_algo plan_hierarchical_allreduce,
	plan_hierarchical_broadcast, plan_hierarchical_reduce;
extern const struct plan_algo plan_mapped_allreduce, plan_mapped_reduce,
	plan_mapped_reduce_scatter, plan_mapped_allgather,
	plan_mapped_broadcast, plan_mapped_alltoall;

#endif
