/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The arithmetic of two binary trees.
 */
#include "plan_two_trees.h"

uint64_t two_trees_position(const struct plan_shape *shape, unsigned tree)
{
	uint64_t n = (uint64_t)shape->n;
	uint64_t v = ((uint64_t)shape->rank + n - (uint64_t)shape->root) % n;

	if (tree == 0 || v == 0)
		return v;
	if (n % 2 == 1)
		return n - v;
	return v == 1 ? n - 1 : v - 1;
}

int two_trees_rank(const struct plan_shape *shape, unsigned tree, uint64_t at)
{
	uint64_t n = (uint64_t)shape->n, v = at;

	if (tree == 1 && at > 0)
		v = n % 2 == 1 ? n - at : at % (n - 1) + 1;
	return (int)((v + (uint64_t)shape->root) % n);
}

static uint64_t lowest_bit(uint64_t at)
{
	return at & -at;
}

uint64_t two_trees_parent(const struct plan_shape *shape, uint64_t at)
{
	uint64_t bit = lowest_bit(at), without = at ^ bit;
	uint64_t up = without | bit << 1;

	return up < (uint64_t)shape->n ? up : without;
}

uint64_t two_trees_child(const struct plan_shape *shape, uint64_t at,
			 unsigned j)
{
	uint64_t n = (uint64_t)shape->n, half = lowest_bit(at) / 2;

	if (at == 0)
		return UINT64_C(1) << (plan_log2(n) - 1);
	if (j == 0)
		return at - half;
	while (at + half >= n)
		half /= 2;
	return at + half;
}

unsigned two_trees_children(const struct plan_shape *shape, uint64_t at)
{
	if (at == 0)
		return 1;
	if (at % 2 == 1)
		return 0;
	return at + 1 < (uint64_t)shape->n ? 2 : 1;
}
