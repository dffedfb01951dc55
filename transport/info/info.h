/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What verbena-info knows. gather_*() read the machine into a struct info and
 * judge nothing; doctor() is a pure function from it to a list of problems;
 * the printers show both. So every rule can be tried on a made-up machine.
 */
#ifndef VBN_INFO_H
#define VBN_INFO_H

#include "limit.h"
#include "netif.h"
#include "providers/verbs/inspect.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define INFO_LINE    512
#define INFO_NODES   16
#define INFO_FEATURE 16

enum { INFO_SHM, INFO_VERBS, INFO_UCX, INFO_PROVIDERS };

struct info_provider {
	const char *name;
	bool usable;
	char why[INFO_LINE]; /* not usable: the error that a job would give */
};

/* A limit that is there or not (@known). */
struct info_limits {
	bool memlock_known, maps_known, files_known, cgroup_known, pids_known;
	bool memory_known, shm_known, huge_2m_known, huge_1g_known;
	struct limits_memlock memlock;
	struct limits_count maps;
	struct limits_files files;
	struct limits_cgroup cgroup, pids;
	struct limits_memory memory;
	struct limits_huge huge_2m, huge_1g;
	char thp_shmem[32]; /* "" if not known */
	uint64_t dev_shm, dev_shm_free;
	struct limits_node nodes[INFO_NODES];
	int nnodes; /* there; the first INFO_NODES are listed */
};

struct info_network {
	char hostname[256];
	char resolves_to[256]; /* addresses, "" if to none */
	bool resolves, resolves_to_loopback_only;
	char ifname[IF_NAMESIZE]; /* VBN_SOCKET_IFNAME, or "" */
	struct netifs ifs;
	/*
	 * Where rank 0 would listen here if the job's address named this host
	 * and others held ranks, too: an address, or "every interface".
	 */
	char choice[INFO_LINE], choice_why[INFO_LINE];
	bool choice_any;   /* then each that is routable is it */
	bool choice_fails; /* then choice_why is the error */
};

struct info_variable {
	char name[64], value[128];
	bool known;	  /* something reads it */
	char nearest[64]; /* if not: a name like it, or "" */
	bool bad;
	char why[INFO_LINE]; /* if bad */
};

struct info_system {
	char verbena[32], kernel[128], verbs[128], ucx[64], jemalloc[64];
	char cpu[128];
	char features[8][INFO_FEATURE]; /* instruction sets in use */
	size_t nfeatures;
	int processors;
	int kernel_major, kernel_minor;
	bool container;
	int yama;	       /* ptrace_scope, -1: no such thing */
	int vm_write_errno;    /* of process_vm_writev() on itself */
	bool ptrace_capable;   /* CAP_SYS_PTRACE */
	char sys_devices[256]; /* /sys/class/infiniband, "" if none */
	bool rxe_module;       /* loaded */
	char ucx_retry[64];    /* "NAME=VALUE" if set to retry without end */
	bool ucx_tls_set, ucx_dgid_check_off;
};

struct info {
	struct info_system system;
	struct info_provider providers[INFO_PROVIDERS];
	char forced[16];	      /* VBN_PROVIDER, or "" */
	struct inspect_report *verbs; /* NULL: it could not be had */
	char verbs_error[INFO_LINE];  /* why */
	struct info_limits limits;
	struct info_network network;
	struct info_variable *variables; /* VBN_* that are set */
	size_t nvariables;
};

/* ---- gathering (I/O) ---- */

/* Never fails: what cannot be read is marked as not known. */
void info_gather(struct info *info);
void info_free(struct info *info);
void gather_system(struct info_system *system);
/* After the providers were tried: UCX is loaded then. */
void gather_versions(struct info_system *system);
void gather_limits(struct info_limits *limits);
void gather_network(struct info_network *network);

/* ---- the doctor (pure) ---- */

enum severity { SEVERITY_ERROR, SEVERITY_WARNING, SEVERITY_NOTE };

struct problem {
	enum severity severity;
	const char *id; /* stable: "port-down" */
	char what[INFO_LINE];
	char fix[INFO_LINE];
};

#define PROBLEMS_MAX 128

struct problems {
	struct problem list[PROBLEMS_MAX];
	size_t n;
};

/* Most severe first. */
void doctor(const struct info *info, struct problems *problems);
const char *severity_name(enum severity severity);

/* For the rules. */
__attribute__((format(printf, 4, 5))) struct problem *problem_add(
	struct problems *problems, enum severity severity, const char *id,
	const char *what, ...);
__attribute__((format(printf, 2, 3))) void problem_fix(struct problem *problem,
						       const char *fix, ...);
void doctor_rdma(const struct info *info, struct problems *problems);
void doctor_network(const struct info *info, struct problems *problems);
void doctor_system(const struct info *info, struct problems *problems);

/* Would rank 0 listen there? */
bool netif_chosen(const struct info_network *net, const struct netif *netif);
bool info_bad_variable(const struct info *info);
/* Can any provider be used? */
bool info_usable(const struct info *info);

/* ---- printing ---- */

void print_text(const struct info *info, const struct problems *problems,
		FILE *out);
/* 0, or -ENOMEM. */
int print_json(const struct info *info, const struct problems *problems,
	       FILE *out);
/* "8.0 MiB", "unlimited". Returns @text. */
const char *bytes_text(uint64_t bytes, char text[32]);

#endif
