/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The binomial tree of a gather or scatter, and what goes along its edges.
 *
 * Ranks have an index, counted from the root, upwards for a gather and
 * downwards for a scatter. The parent of index v is v without its lowest bit;
 * its children are v + 2^j below that bit; its subtree, the indices from v on
 * that are below the next.
 *
 * Between a rank and its parent goes the stream of its subtree's blocks, in
 * the order of the ranks (modulo n): of a gather its own block and then its
 * children's streams, the smallest first, in the order in which they can be
 * there; of a scatter the reverse, the largest stream first and its own block
 * last. Blocks are numbered in this order by positions, 0..n - 1, so that a
 * stream is a range of them.
 *
 * Pure functions of (shape of a gather or scatter).
 */
#ifndef VBN_PLAN_STREAM_H
#define VBN_PLAN_STREAM_H

#include "plan.h"

/* A place in a stream. */
struct stream_cursor {
	uint64_t at, in; /* position, and elements of its block behind */
	uint64_t packed; /* elements behind, from the stream's begin */
};

struct stream_piece {
	uint64_t len;
	uint64_t packed; /* where it is, if the stream is packed */
	uint64_t off;	 /* where it is in the root's buffer */
};

uint64_t stream_index(const struct plan_shape *shape);
int stream_rank(const struct plan_shape *shape, uint64_t v);
/* How many ranks: 1 if it is a leaf. */
uint64_t stream_subtree(const struct plan_shape *shape, uint64_t v);

/* The position behind the stream of @v. */
uint64_t stream_end(const struct plan_shape *shape, uint64_t v);

/*
 * The next message of a stream that ends at @end, and behind it with *cursor:
 * as much as lies together at the root, at most @segment elements (>= 1), of
 * as many blocks as there are in that. Of length 0: there is none. Whoever
 * cuts the same stream gets the same messages.
 */
struct stream_piece stream_cut(const struct plan_shape *shape, uint64_t segment,
			       struct stream_cursor *cursor, uint64_t end);

#endif
