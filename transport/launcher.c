/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the ranks are, as far as the environment tells. */
#include "launcher.h"
#include "error.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct launcher {
	const char *name;
	const char *total; /* ranks of the job */
	const char *local; /* ranks on this host, or NULL */
	const char *nodes; /* hosts of the job, or NULL */
	const char *node;  /* this one's number; rank 0 is on 0; or NULL */
} launchers[] = {
	{"torchrun", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE",
	 "GROUP_RANK"},
	{"Slurm", "SLURM_STEP_NUM_TASKS", NULL, "SLURM_STEP_NUM_NODES",
	 "SLURM_NODEID"},
	{"Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL,
	 NULL},
	{"MPICH", "PMI_SIZE", "MPI_LOCALNRANKS", NULL, NULL},
};

/* -1: unset, or no number. */
static long number(const char *name)
{
	const char *text = name ? getenv(name) : NULL;
	char *end;
	long value;

	if (!text || text[0] < '0' || text[0] > '9')
		return -1;
	errno = 0;
	value = strtol(text, &end, 10);
	return errno || *end ? -1 : value;
}

void launch_from_local(const char *name, int rank, int nranks, long local,
		       struct launch *out)
{
	out->several_hosts = local < nranks ? YES : NO;
	if (local == nranks)
		out->rank0_here = YES;
	else if (local == 1)
		out->rank0_here = rank ? NO : YES;
	snprintf(out->why, sizeof(out->why), "%s: %ld of %d ranks %s here",
		 name, local, nranks, local == 1 ? "is" : "are");
}

static void from_launcher(const struct launcher *l, int rank, int nranks,
			  struct launch *out)
{
	long local = number(l->local), nodes = number(l->nodes);
	long node = number(l->node);

	if (local >= 1 && local <= nranks)
		launch_from_local(l->name, rank, nranks, local, out);
	if (nodes < 1)
		return;
	out->several_hosts = nodes > 1 ? YES : NO;
	if (nodes == 1)
		out->rank0_here = YES;
	else if (node >= 0)
		out->rank0_here = node ? NO : YES;
	snprintf(out->why, sizeof(out->why), "%s: the job has %ld host%s",
		 l->name, nodes, nodes == 1 ? "" : "s");
}

int launch_read(int rank, int nranks, struct launch *out)
{
	const char *own = getenv("VBN_LOCAL_SIZE");
	long local = number("VBN_LOCAL_SIZE");

	*out = (struct launch){UNKNOWN, UNKNOWN, ""};
	if (own && own[0]) {
		if (local < 1 || local > nranks)
			return vbn_fail(-EINVAL,
					"VBN_LOCAL_SIZE is \"%.64s\": it must "
					"be a number from 1 to %d, the job's "
					"ranks",
					own, nranks);
		launch_from_local("VBN_LOCAL_SIZE", rank, nranks, local, out);
	}
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++)
		if (out->several_hosts == UNKNOWN &&
		    number(launchers[i].total) == nranks)
			from_launcher(&launchers[i], rank, nranks, out);
	if (rank == 0)
		out->rank0_here = YES;
	return 0;
}
