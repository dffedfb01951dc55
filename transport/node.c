/* SPDX-License-Identifier: BSD-3-Clause */
/* NUMA nodes, by libnuma's mbind(). */
#include "node.h"

#include "error.h"
#include "limit.h"

#include <errno.h>
#include <inttypes.h>
#include <numaif.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define NODES	  1024 /* what Linux can have */
#define WORD_BITS (8 * (int)sizeof(unsigned long))

static bool find_node(int node, struct limits_node *found, char *list,
		      size_t room)
{
	struct limits_node nodes[64];
	int n = limits_nodes(limits_root, nodes, 64);
	size_t len = 0;

	list[0] = 0;
	for (int i = 0; i < n && i < 64; i++) {
		if (nodes[i].node == node) {
			*found = nodes[i];
			return true;
		}
		if (len < room)
			len += (size_t)snprintf(list + len, room - len, " %d",
						nodes[i].node);
	}
	return false;
}

int node_check(int node)
{
	struct limits_node found;
	char list[128];

	if (node >= 0 && node < NODES &&
	    find_node(node, &found, list, sizeof(list)))
		return 0;
	return vbn_fail(-EINVAL,
			"pool: there is no NUMA node %d on this machine; it "
			"has:%s",
			node, list[0] ? list : " none");
}

int node_local(void)
{
	unsigned cpu, node;

	return getcpu(&cpu, &node) ? -1 : (int)node;
}

int node_bind(void *addr, size_t size, int node, bool strict)
{
	unsigned long mask[NODES / WORD_BITS] = {0};
	const char *why;

	mask[node / WORD_BITS] = 1UL << (node % WORD_BITS);
	if (!mbind(addr, size, strict ? MPOL_BIND : MPOL_PREFERRED, mask,
		   NODES + 1, 0))
		return 0;
	switch (errno) {
	case EPERM:
		why = "the container's seccomp filter forbids mbind(): give "
		      "it CAP_SYS_NICE (docker --cap-add SYS_NICE)";
		break;
	case EINVAL:
		why = "the node is not among those this process may use "
		      "(Mems_allowed in /proc/self/status)";
		break;
	case ENOSYS:
		why = "the kernel is built without NUMA";
		break;
	default:
		why = strerror(errno);
	}
	return vbn_fail(-errno, "pool: cannot bind memory to NUMA node %d: %s",
			node, why);
}

int node_has_room(int node, size_t size)
{
	struct limits_node found;
	char list[128];

	if (!find_node(node, &found, list, sizeof(list)) ||
	    size <= found.free + found.reclaimable)
		return 0;
	return vbn_fail(-ENOMEM,
			"pool: %zu bytes needed on NUMA node %d, which has "
			"%" PRIu64 " free and %" PRIu64
			" that can be reclaimed, of %" PRIu64
			"; free memory there, or do not bind the pool",
			size, node, found.free, found.reclaimable,
			found.memory);
}
