/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits, huge pages and NUMA nodes, from the library's own readers. */
#include "info.h"

void gather_limits(struct info_limits *l)
{
	int n;

	l->memlock_known = !limits_memlock("", &l->memlock);
	l->maps_known = !limits_maps("", &l->maps);
	l->files_known = !limits_files("", &l->files);
	l->cgroup_known = !limits_cgroup_memory("", &l->cgroup);
	l->pids_known = !limits_cgroup_pids("", &l->pids);
	l->memory_known = !limits_memory("", &l->memory);
	l->shm_known = !limits_dev_shm("", &l->dev_shm, &l->dev_shm_free);
	l->huge_2m_known = !limits_huge("", LIMITS_2M, &l->huge_2m);
	l->huge_1g_known = !limits_huge("", LIMITS_1G, &l->huge_1g);
	if (limits_thp_shmem("", l->thp_shmem, sizeof(l->thp_shmem)))
		l->thp_shmem[0] = '\0';
	n = limits_nodes("", l->nodes, INFO_NODES);
	l->nnodes = n < 0 ? 0 : n;
}
