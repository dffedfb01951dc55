/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * NUMA nodes: which there are, and binding memory to one. (Not "numa.h", which
 * is libnuma's.)
 */
#ifndef VBN_NODE_H
#define VBN_NODE_H

#include <stdbool.h>
#include <stddef.h>

/* 0, or -EINVAL and the line for people: there is no such node. */
int node_check(int node);
/* Of the processor that this thread runs on; -1: unknown. */
int node_local(void);
/*
 * Have the pages of a shared mapping come from @node, as they are touched: by
 * this process or any other. Strict: from there only. 0, or -errno and the
 * line for people.
 */
int node_bind(void *addr, size_t size, int node, bool strict);
/* -ENOMEM and the line for people when @node cannot hold @size small pages. */
int node_has_room(int node, size_t size);

#endif
