/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which members of a communicator share a host, as plans want it.
 */
#include "coll.h"

#include <errno.h>
#include <stdlib.h>

/* The arrays lie behind it. */
struct topology {
	struct plan_topology plan;
	int space[];
};

static void fill(struct topology *t, int n, int hosts)
{
	int *host = t->space, *order = host + n, *first = order + n;
	int *leader = first + hosts + 1;
	int at = 0;

	for (int h = 0; h < hosts; h++) {
		first[h] = at;
		for (int i = 0; i < n; i++)
			if (host[i] == h)
				order[at++] = i;
		leader[h] = order[first[h]];
	}
	first[hosts] = at;
	t->plan = (struct plan_topology){.hosts = hosts,
					 .host = host,
					 .order = order,
					 .first = first,
					 .leader = leader};
}

int topology_make(struct vbn_comm *comm, int timeout_ms)
{
	size_t n = (size_t)comm->n;
	struct topology *t = calloc(1, sizeof(*t) + (4 * n + 1) * sizeof(int));
	int hosts;

	if (!t)
		return vbn_fail(-ENOMEM, "no memory for a communicator");
	hosts = vbn_job_hosts(comm->job, comm->ranks, comm->n, t->space,
			      timeout_ms);
	if (hosts < 0) {
		free(t);
		return hosts;
	}
	fill(t, comm->n, hosts);
	comm->topology = t;
	return 0;
}

const struct plan_topology *topology_of(const struct vbn_comm *comm)
{
	return &comm->topology->plan;
}
