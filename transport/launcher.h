/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the launcher's variables say of where the ranks are: it decides
 * whether rank 0 may be reached over the loopback interface.
 */
#ifndef VBN_LAUNCHER_H
#define VBN_LAUNCHER_H

enum certainty { UNKNOWN, NO, YES };

struct launch {
	enum certainty several_hosts; /* are the ranks on more than one? */
	enum certainty rank0_here;    /* is rank 0 on this one? */
	char why[96];		      /* "torchrun: 1 of 2 ranks are here" */
};

/*
 * From VBN_LOCAL_SIZE, or what torchrun, Slurm, Open MPI or MPICH set, if it
 * is about a job of @nranks (a job inside of another's process finds that
 * one's variables, too). -EINVAL: VBN_LOCAL_SIZE is bad; others' variables
 * that make no sense are as if unset.
 */
int launch_read(int rank, int nranks, struct launch *out);

/* What follows from @local of the ranks being on this host, as @name says. */
void launch_from_local(const char *name, int rank, int nranks, long local,
		       struct launch *out);

#endif
