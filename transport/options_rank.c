/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which rank of how many, by whatever launcher there is. The first that says
 * so counts, the nearest to the program first: our own variables; torchrun's;
 * PMIx; MPI's own ones, where they are not Slurm's; Slurm's.
 */
#include "env.h"
#include "error.h"
#include "hostlist.h"
#include "module.h"
#include "options_impl.h"
#include "pmix_module.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Above what the kernel gives to outgoing connections (32768 to 60999). */
#define PORT_FIRST 61000u
#define PORT_COUNT 4500u

/* A pair of variables; 1: both unset. */
static int rank_pair(const char *rank_name, const char *size_name,
		     struct job_config *out)
{
	const char *rank = env_text(rank_name), *size = env_text(size_name);
	long r, n;
	int rc;

	if (!rank && !size)
		return 1;
	if (!rank || !size)
		return vbn_fail(-EINVAL, "%s is set but %s is not: set both",
				rank ? rank_name : size_name,
				rank ? size_name : rank_name);
	rc = option_number(size_name, size, 1, JOB_RANKS_MAX, &n);
	if (!rc)
		rc = option_number(rank_name, rank, 0, JOB_RANKS_MAX - 1, &r);
	if (rc)
		return rc;
	if (r >= n)
		return vbn_fail(-EINVAL,
				"%s is %ld: it must be less than %s, which is "
				"%ld",
				rank_name, r, size_name, n);
	out->rank = (int)r;
	out->nranks = (int)n;
	return 0;
}

/* Kubernetes gives each pod of an indexed Job its number, but not how many. */
static int own_pair(struct job_config *out)
{
	if (env_text("VBN_SIZE") && !env_text("VBN_RANK") &&
	    env_text("JOB_COMPLETION_INDEX"))
		return rank_pair("JOB_COMPLETION_INDEX", "VBN_SIZE", out);
	return rank_pair("VBN_RANK", "VBN_SIZE", out);
}

static int from_pmix(struct job_config *out)
{
	struct pmix_place place;
	char why[256];
	int rc;

	if (!env_text("PMIX_NAMESPACE") || !env_text("PMIX_RANK"))
		return 1;
	out->pmix =
		module_load(VBN_PMIX_FILE, VBN_PMIX_SYMBOL, why, sizeof(why));
	if (!out->pmix)
		return vbn_fail(-ENOENT,
				"the launcher speaks PMIx, but verbena's "
				"module for it cannot be loaded: %s; without "
				"it, set VBN_RANK, VBN_SIZE, VBN_ADDRESS and "
				"VBN_SECRET on all ranks",
				why);
	rc = out->pmix->begin(&place, out->timeout_ms);
	if (rc) {
		out->pmix = NULL;
		return rc;
	}
	out->rank = place.rank;
	out->nranks = place.nranks;
	out->pmix_local = place.local;
	return 0;
}

/* Do both variables hold the same text? */
static bool same(const char *a, const char *b)
{
	const char *x = env_text(a), *y = env_text(b);

	return x && y && !strcmp(x, y);
}

/*
 * mpirun without PMIx. Slurm's srun sets MPICH's variables, too; where they
 * are not about the same ranks, mpirun has run inside of Slurm's.
 */
static int from_mpi(struct job_config *out)
{
	if (env_text("OMPI_COMM_WORLD_RANK"))
		return rank_pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
				 out);
	if (!env_text("PMI_RANK") || !env_text("PMI_SIZE") ||
	    (same("PMI_RANK", "SLURM_PROCID") &&
	     same("PMI_SIZE", "SLURM_STEP_NUM_TASKS")))
		return 1;
	return rank_pair("PMI_RANK", "PMI_SIZE", out);
}

/* A batch script has a SLURM_PROCID, too: only srun's are ranks. */
static int from_slurm(struct job_config *out)
{
	int rc = 1;

	if (env_text("SLURM_PROCID") && env_text("SLURM_STEP_NUM_TASKS"))
		rc = rank_pair("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", out);
	out->slurm = !rc;
	return rc;
}

static int from_environment(struct job_config *out)
{
	int rc = own_pair(out);

	if (rc == 1)
		rc = rank_pair("RANK", "WORLD_SIZE", out);
	if (rc == 1)
		rc = from_pmix(out);
	if (rc == 1)
		rc = from_mpi(out);
	if (rc == 1)
		rc = from_slurm(out);
	if (rc == 1) {
		out->rank = 0;
		out->nranks = 1;
		rc = 0;
	}
	return rc;
}

int option_rank(const struct vbn_job_options *in, struct job_config *out)
{
	if (in->nranks == 0)
		return from_environment(out);
	if (in->nranks < 0 || in->nranks > JOB_RANKS_MAX)
		return vbn_fail(-EINVAL,
				"option nranks is %d: it must be from 1 to %d",
				in->nranks, JOB_RANKS_MAX);
	if (in->rank < 0 || in->rank >= in->nranks)
		return vbn_fail(-EINVAL,
				"option rank is %d: it must be from 0 to %d",
				in->rank, in->nranks - 1);
	out->rank = in->rank;
	out->nranks = in->nranks;
	return 0;
}

/* ---- address ---- */

/* Two jobs of one host should not meet at the same port. */
static uint16_t port_of(const char *a, const char *b)
{
	unsigned hash = 0x811c9dc5u; /* FNV-1a */

	for (; *a; a++)
		hash = (hash ^ (unsigned char)*a) * 0x01000193u;
	for (; *b; b++)
		hash = (hash ^ (unsigned char)*b) * 0x01000193u;
	return (uint16_t)(PORT_FIRST + hash % PORT_COUNT);
}

int option_own_port(struct job_config *out)
{
	const char *agent = env_text("TORCHELASTIC_USE_AGENT_STORE");
	long port = out->port;
	int rc = env_number("VBN_PORT", &port);

	if (!rc && !env_text("VBN_PORT") && agent && !strcmp(agent, "True"))
		port = port_of("torchrun", env_text("MASTER_PORT"));
	out->port = (uint16_t)port;
	return rc;
}

/* "12000-12003" or "12000,12007": what srun --resv-ports has reserved */
static long reserved_port(void)
{
	const char *text = env_text("SLURM_STEP_RESV_PORTS");
	long port = text ? strtol(text, NULL, 10) : 0;

	return port > 0 && port <= UINT16_MAX ? port : 0;
}

static int slurm_port(struct job_config *out)
{
	const char *job = env_text("SLURM_JOB_ID");
	const char *step = env_text("SLURM_STEP_ID");
	long port = reserved_port();
	int rc = env_number("VBN_PORT", &port);

	if (!port)
		port = port_of(job ? job : "", step ? step : "");
	out->port = (uint16_t)port;
	return rc;
}

static int slurm_failed(const char *what, const char *list)
{
	return vbn_fail(-EINVAL,
			"SLURM_STEP_NODELIST is \"%.64s\": %s; set "
			"VBN_ADDRESS=host:port on all ranks",
			list, what);
}

/* Task 0 of a step is on its first node. */
static int slurm_host(struct job_config *out)
{
	const char *list = env_text("SLURM_STEP_NODELIST");
	const char *node = env_text("SLURMD_NODENAME");

	if (!list)
		list = env_text("SLURM_JOB_NODELIST");
	if (!list)
		return slurm_failed("it does not name rank 0's node", "");
	if (hostlist_first(list, out->host, sizeof(out->host)))
		return slurm_failed("it is no list of hosts", list);
	if (out->rank == 0 && node && strcmp(node, out->host))
		return slurm_failed("rank 0 is not on its first node", list);
	return 0;
}

int option_launcher_address(struct job_config *out)
{
	int rc;

	if (!out->slurm)
		return 0; /* whether one is needed is asked later */
	/* A node's name need not be a host's: it is not needed here. */
	if (out->launch.several_hosts == NO)
		rc = option_host("Slurm", "127.0.0.1", 9, out);
	else
		rc = slurm_host(out);
	return rc ? rc : slurm_port(out);
}
