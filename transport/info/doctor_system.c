/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the doctor says of limits and the kernel. The thresholds are what a
 * rank of a small training job takes, with room.
 */
#include "info.h"

#include <errno.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

#define MEMLOCK_LEAST	   (64 * MIB)	/* below: hardly a context opens */
#define MEMLOCK_PLENTY	   (4096 * MIB) /* below: pools of models do not fit */
#define FILES_LEAST	   128		/* below: a rank of a few peers fails */
#define FILES_PLENTY	   1024
#define MEMORY_LEAST	   (512 * MIB)
#define PIDS_LEAST	   64
#define COPY_ON_FORK_MAJOR 5 /* Linux 5.12 copies pinned pages at fork() */
#define COPY_ON_FORK_MINOR 12

static bool has_device(const struct info *info)
{
	return info->verbs && info->verbs->ndevices;
}

static void memlock(const struct info *info, struct problems *problems)
{
	const struct limits_memlock *m = &info->limits.memlock;
	enum severity severity = SEVERITY_NOTE;
	char limit[32];

	if (!info->limits.memlock_known || m->unbounded ||
	    m->soft == LIMITS_NONE || m->soft >= MEMLOCK_PLENTY)
		return;
	if (has_device(info))
		severity = m->soft < MEMLOCK_LEAST ? SEVERITY_ERROR
						   : SEVERITY_WARNING;
	problem_fix(
		problem_add(problems, severity, "memlock-low",
			    "%s of memory may be locked, which is what "
			    "RDMA registrations count against%s",
			    bytes_text(m->soft, limit),
			    has_device(info) ? "" : " (none here: no device)"),
		"ulimit -l unlimited; for all: memlock in "
		"/etc/security/limits.conf; services: "
		"LimitMEMLOCK=infinity (slurmd's, too); docker --ulimit "
		"memlock=-1");
}

static void files(const struct info *info, struct problems *problems)
{
	const struct limits_files *f = &info->limits.files;

	if (!info->limits.files_known || f->soft >= FILES_PLENTY)
		return;
	problem_fix(problem_add(problems,
				f->soft < FILES_LEAST ? SEVERITY_ERROR
						      : SEVERITY_WARNING,
				"open-files-low",
				"%llu files may be open, %llu are: rank 0 "
				"takes one for each rank and 32 more, a "
				"context a few for each peer",
				(unsigned long long)f->soft,
				(unsigned long long)f->used),
		    "ulimit -n %llu%s",
		    (unsigned long long)(f->hard > 65536 ? 65536 : f->hard),
		    f->hard < FILES_PLENTY
			    ? " is the most; nofile in "
			      "/etc/security/limits.conf raises it"
			    : "");
}

static void maps(const struct info *info, struct problems *problems)
{
	const struct limits_count *m = &info->limits.maps;

	if (!info->limits.maps_known || !m->limit || m->limit == LIMITS_NONE ||
	    m->limit >= 65530)
		return;
	problem_fix(problem_add(problems, SEVERITY_WARNING, "map-count-low",
				"a process may have %llu mappings "
				"(vm.max_map_count): many registrations or "
				"large pools may meet it",
				(unsigned long long)m->limit),
		    "sysctl vm.max_map_count=262144");
}

static void cgroup(const struct info *info, struct problems *problems)
{
	const struct limits_cgroup *g = &info->limits.cgroup;
	const struct limits_cgroup *p = &info->limits.pids;
	char left[32], limit[32];

	if (info->limits.cgroup_known && g->limit != LIMITS_NONE &&
	    (g->limit < g->used || g->limit - g->used < MEMORY_LEAST))
		problem_fix(problem_add(problems, SEVERITY_WARNING,
					"cgroup-memory-low",
					"the control group leaves %s of %s: "
					"beyond, the kernel kills",
					bytes_text(g->limit < g->used
							   ? 0
							   : g->limit - g->used,
						   left),
					bytes_text(g->limit, limit)),
			    "raise it: docker --memory, Kubernetes "
			    "resources.limits.memory, Slurm --mem (it is %s)",
			    g->file);
	if (info->limits.pids_known && p->limit != LIMITS_NONE &&
	    (p->limit < p->used || p->limit - p->used < PIDS_LEAST))
		problem_fix(
			problem_add(
				problems, SEVERITY_WARNING, "pids-low",
				"the control group has %llu of %llu "
				"threads left; a rank takes 2 and "
				"more with each library",
				(unsigned long long)(p->limit < p->used
							     ? 0
							     : p->limit -
								       p->used),
				(unsigned long long)p->limit),
			"raise it: docker --pids-limit, systemd TasksMax");
}

static void memory(const struct info *info, struct problems *problems)
{
	char left[32];

	if (info->limits.memory_known &&
	    info->limits.memory.available < MEMORY_LEAST)
		problem_fix(
			problem_add(problems, SEVERITY_WARNING, "memory-low",
				    "%s of memory are available",
				    bytes_text(info->limits.memory.available,
					       left)),
			"end what takes it (ps aux --sort=-rss | head)");
}

static void huge_pages(const struct info *info, struct problems *problems)
{
	const struct limits_huge *h = &info->limits.huge_2m;

	if ((info->limits.huge_2m_known && limits_huge_left(h)) ||
	    (info->limits.huge_1g_known &&
	     limits_huge_left(&info->limits.huge_1g)) ||
	    !strcmp(info->limits.thp_shmem, "always") ||
	    !strcmp(info->limits.thp_shmem, "advise") ||
	    !strcmp(info->limits.thp_shmem, "within_size"))
		return;
	problem_fix(problem_add(problems, SEVERITY_NOTE, "no-huge-pages",
				"no huge pages can be had (%llu of 2 MiB, %llu "
				"free): pools take 4 KiB pages, which costs "
				"large transfers some speed",
				(unsigned long long)(info->limits.huge_2m_known
							     ? h->total
							     : 0),
				(unsigned long long)(info->limits.huge_2m_known
							     ? h->free
							     : 0)),
		    "sysctl vm.nr_hugepages=N (2 MiB each)");
}

static void vm_write(const struct info *info, struct problems *problems)
{
	const struct info_system *s = &info->system;

	if (s->vm_write_errno) {
		problem_fix(
			problem_add(problems, SEVERITY_WARNING,
				    "vm-write-denied",
				    "process_vm_writev() is refused (%s): "
				    "over shm, puts and gets of memory that "
				    "is not from a pool fail",
				    strerror(s->vm_write_errno)),
			"docker --cap-add SYS_PTRACE, or a seccomp profile "
			"that allows it; or allocate from a pool");
	} else if (s->yama > 0 && (!s->ptrace_capable || s->yama > 2)) {
		problem_fix(problem_add(problems, SEVERITY_WARNING,
					"ptrace-scope",
					"kernel.yama.ptrace_scope is %d: over "
					"shm, puts and gets of memory that is "
					"not from a pool fail",
					s->yama),
			    "sysctl kernel.yama.ptrace_scope=0, or allocate "
			    "from a pool");
	}
}

static void kernel(const struct info *info, struct problems *problems)
{
	const struct info_system *s = &info->system;

	if (!has_device(info) || !s->kernel_major ||
	    s->kernel_major > COPY_ON_FORK_MAJOR ||
	    (s->kernel_major == COPY_ON_FORK_MAJOR &&
	     s->kernel_minor >= COPY_ON_FORK_MINOR))
		return;
	problem_fix(problem_add(problems, SEVERITY_NOTE, "no-copy-on-fork",
				"%s may not copy registered pages at fork(): "
				"the library asks libibverbs to guard them, "
				"which makes registering slower",
				s->kernel),
		    "Linux %d.%d or later; else do not fork() while memory is "
		    "registered, or register pool memory only",
		    COPY_ON_FORK_MAJOR, COPY_ON_FORK_MINOR);
}

static void ucx_retry(const struct info *info, struct problems *problems)
{
	if (info->system.ucx_retry[0])
		problem_fix(problem_add(problems, SEVERITY_WARNING,
					"retry-without-end",
					"%s: on some devices 7 retries mean "
					"for ever, and a dead peer is never "
					"noticed",
					info->system.ucx_retry),
			    "set it to 6 or less, or unset it");
}

void doctor_system(const struct info *info, struct problems *problems)
{
	memlock(info, problems);
	files(info, problems);
	maps(info, problems);
	cgroup(info, problems);
	memory(info, problems);
	ucx_retry(info, problems);
	huge_pages(info, problems);
	vm_write(info, problems);
	kernel(info, problems);
}
