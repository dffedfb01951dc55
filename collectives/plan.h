/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Plans: a collective algorithm as a pure function of (rank r of n, count,
 * chunk, root) that yields the rank's steps one after another. No I/O, no
 * memory beyond struct plan, whatever n and count are. The executor
 * (exec.h) runs a plan for the engine and for the simulator alike.
 *
 * Units: offsets and lengths are in elements, so that a plan does not depend
 * on how many bytes an element has in a space or on the wire.
 *
 * Rules that every plan keeps, and the simulator checks:
 * - Steps are numbered 0, 1, 2, ... in the order of generation; dependencies
 *   have lower numbers. Executed strictly in this order (a window of 1) and
 *   with one landing slot per pair of ranks, a plan still ends.
 * - Per ordered pair of ranks, the k-th put matches the k-th wait, with the
 *   same length and destination space.
 * - A wait into LANDING is followed by exactly one reduce or copy from the
 *   landing of that peer; per peer these are in the order of the waits. An
 *   empty one (length 0) has none.
 * - A put waits until its receiver has opened for its sender. A plan opens
 *   for a peer before any step that another rank may be waiting for.
 * - A put is done once posted: its source may be read until its receiver's
 *   wait is done, so what overwrites the source must be causally after that.
 * - Memory that a put into OUTPUT writes is not touched by its owner between
 *   the owner's open and the matching wait, unless causally before.
 */
#ifndef VBN_PLAN_H
#define VBN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

enum plan_kind {
	PLAN_NONE,	  /* an empty part: done at once, holds a number */
	PLAN_OPEN,	  /* peer may put from here on: into landing slots, if
			     len is not 0 (elements of a message at most), and,
			     if dst says so, into our OUTPUT */
	PLAN_PUT,	  /* src -> dst of peer */
	PLAN_WAIT,	  /* for the peer's next put, which lands in dst */
	PLAN_REDUCE,	  /* dst = (landing of peer) + acc */
	PLAN_REDUCE_PEER, /* dst = (src of peer, mapped) + acc: reserved */
	PLAN_COPY	  /* dst = src; LANDING: of peer */
};

enum plan_space {
	PLAN_INPUT,
	PLAN_OUTPUT,
	PLAN_LANDING, /* the executor picks the slot; offsets are 0 */
	PLAN_SCRATCH
};

#define PLAN_NO_STEP UINT64_MAX

struct plan_step {
	uint8_t kind, src, acc, dst; /* enum plan_kind, plan_space */
	int peer;
	uint64_t src_off, acc_off, dst_off, len;
	uint64_t dep[2]; /* step numbers, or PLAN_NO_STEP */
};

enum plan_algorithm {
	PLAN_LOCAL, /* one rank: a copy */
	PLAN_RING_ALLREDUCE,
	PLAN_TREE_ALLREDUCE,
	PLAN_TREE_BROADCAST,
	PLAN_DISSEMINATION, /* barrier */
	PLAN_ALGORITHMS
};

struct plan_shape {
	enum plan_algorithm algorithm;
	int rank, n, root;
	uint64_t count;
	uint64_t chunk; /* elements per message at most, >= 1 */
};

struct plan {
	struct plan_shape shape;
	uint64_t next; /* number of the next step */
	/* The algorithm's own. */
	uint64_t segments, segment; /* how many, elements of each */
	uint64_t iteration;
	unsigned part; /* position in the iteration */
	unsigned children, opens;
	unsigned lag;
};

/* 0 or -EINVAL. */
int plan_begin(struct plan *plan, const struct plan_shape *shape);

/* The next step; false at the end. Its number is plan->next before. */
bool plan_next(struct plan *plan, struct plan_step *step);

const char *plan_name(enum plan_algorithm algorithm);

/*
 * Which allreduce of @bytes among n is faster by a latency-bandwidth model;
 * and how many bytes a message should have, given the most that is allowed.
 */
enum plan_algorithm plan_choose_allreduce(int n, uint64_t bytes);
uint64_t plan_choose_chunk(enum plan_algorithm algorithm, int n, uint64_t bytes,
			   uint64_t max);

/* ---- for the algorithms ---- */

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

/* Cut @len elements in segments of equal size, at most a chunk each. */
void plan_segment(struct plan *plan, uint64_t len);

/* Rounds of doubling to reach n: ceil(log2(n)). */
unsigned plan_log2(uint64_t n);

/* The step that opens for @peer's puts, of which some go into @dst. */
struct plan_step plan_open(const struct plan *plan, int peer,
			   enum plan_space dst);

void plan_begin_ring(struct plan *plan);
bool plan_next_ring(struct plan *plan, struct plan_step *step);
void plan_begin_tree(struct plan *plan);
bool plan_next_tree_allreduce(struct plan *plan, struct plan_step *step);
bool plan_next_tree_broadcast(struct plan *plan, struct plan_step *step);
bool plan_next_dissemination(struct plan *plan, struct plan_step *step);

#endif
