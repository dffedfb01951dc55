/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two binary trees of the same ranks, in which every rank has children in one
 * at most. P. Sanders, J. Speck, J. L. Traff: Two-tree algorithms for full
 * bandwidth broadcast, reduction and scan. Parallel Comput. 35(12), 2009.
 *
 * The root of the shape is at position 0, of both trees, and has one child in
 * each. The others are at positions 1..m, m = n - 1, in order: those at odd
 * ones are leaves; the children of one with lowest bit b are b / 2 before it,
 * and b / 2 after it, or where that is past m, half as far, and so on. The
 * positions in tree 1 are those in tree 0 mirrored if m is even, and shifted
 * by one if m is odd, which makes odd ones even and even ones odd, except for
 * one that is a leaf in both.
 *
 * Pure functions; n >= 2, @tree 0 or 1, @at a position.
 */
#ifndef VBN_PLAN_TWO_TREES_H
#define VBN_PLAN_TWO_TREES_H

#include "plan.h"

/* The rank's position, and the rank at a position. */
uint64_t two_trees_position(const struct plan_shape *shape, unsigned tree);
int two_trees_rank(const struct plan_shape *shape, unsigned tree, uint64_t at);

/* Positions, the same in both: the parent's of at > 0, and the @j-th child's
   of two_trees_children(). */
uint64_t two_trees_parent(const struct plan_shape *shape, uint64_t at);
unsigned two_trees_children(const struct plan_shape *shape, uint64_t at);
uint64_t two_trees_child(const struct plan_shape *shape, uint64_t at,
			 unsigned j);

#endif
