/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Why the kernel refused memory. It says ENOMEM for several limits; this
 * looks at each and names the one that was met.
 */
#include "internal.h"
#include "error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define CAP_IPC_LOCK_BIT 14
#define MAPS_NEAR_LIMIT	 16 /* a registration splits a few mappings */

static bool may_lock_anything(void)
{
	unsigned long long caps = 0;
	char line[128];
	FILE *f = fopen("/proc/self/status", "re");

	if (!f)
		return false;
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "CapEff: %llx", &caps) == 1)
			break;
	fclose(f);
	return (caps >> CAP_IPC_LOCK_BIT) & 1;
}

static bool maps_exhausted(long *limit)
{
	FILE *f = fopen("/proc/sys/vm/max_map_count", "re");
	long maps = 0;
	int c;

	if (!f)
		return false;
	if (fscanf(f, "%ld", limit) != 1)
		*limit = 0;
	fclose(f);
	f = *limit > 0 ? fopen("/proc/self/maps", "re") : NULL;
	if (!f)
		return false;
	while ((c = getc(f)) != EOF)
		maps += c == '\n';
	fclose(f);
	return maps + MAPS_NEAR_LIMIT >= *limit;
}

static int explain_enomem(struct verbs_job *job, const char *what, size_t bytes)
{
	unsigned mrs = atomic_load(&job->mrs);
	struct rlimit rl;
	long maps;

	if (!getrlimit(RLIMIT_MEMLOCK, &rl) && rl.rlim_cur != RLIM_INFINITY &&
	    !may_lock_anything())
		return vbn_fail(-ENOMEM,
				"verbs: %s on %s needs %zu bytes of locked "
				"memory for 1 device, over the limit of %llu "
				"with what is locked already; raise it: ulimit "
				"-l unlimited, memlock in "
				"/etc/security/limits.conf, or give "
				"CAP_IPC_LOCK",
				what, job->name, bytes,
				(unsigned long long)rl.rlim_cur);
	if (job->attr.max_mr > 0 && mrs >= (unsigned)job->attr.max_mr)
		return vbn_fail(-ENOMEM,
				"verbs: %s: %s holds %u registrations, its "
				"max_mr is %d; register fewer, larger regions "
				"(a pool)",
				what, job->name, mrs, job->attr.max_mr);
	if (maps_exhausted(&maps))
		return vbn_fail(-ENOMEM,
				"verbs: %s: the process has as many mappings "
				"as vm.max_map_count (%ld) allows; raise it by "
				"sysctl, or register fewer, larger regions (a "
				"pool)",
				what, maps);
	return vbn_fail(-ENOMEM,
			"verbs: %s of %zu bytes on %s: out of memory with %u "
			"registrations (max_mr %d); the device or the kernel "
			"has no more, free some",
			what, bytes, job->name, mrs, job->attr.max_mr);
}

int limits_explain(struct verbs_job *job, int err, const char *what,
		   size_t bytes)
{
	switch (err) {
	case ENOMEM:
		return explain_enomem(job, what, bytes);
	case EFAULT:
		return vbn_fail(-EFAULT,
				"verbs: %s of %zu bytes on %s: not all of it "
				"is mapped and writable",
				what, bytes, job->name);
	default:
		return vbn_fail(err ? -err : -EIO, "verbs: %s on %s: %s", what,
				job->name, strerror(err));
	}
}
