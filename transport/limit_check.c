/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits all alike: what is needed, allowed and used, and how to raise it.
 */
#include "limit.h"

#include "error.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define NEAR_PERCENT 90
/* Mappings that one counted by limits_check_maps() costs at most. */
#define MAPS_EACH 4

const char *limits_root = "";

static void fill(struct limit *limit, uint64_t allowed, uint64_t used)
{
	limit->allowed = allowed;
	limit->used = used;
}

/* What to raise a limit to, so that it does not bite again at once. */
static uint64_t raised(uint64_t allowed, uint64_t used, uint64_t needed)
{
	uint64_t least = used + needed < used ? LIMITS_NONE : used + needed;

	return least / 2 < allowed ? 2 * allowed : least;
}

static int read_memlock(const char *root, struct limit *limit)
{
	struct limits_memlock m;
	int err = limits_memlock(root, &m);

	if (err)
		return err;
	fill(limit, m.unbounded ? LIMITS_NONE : m.soft, m.pinned);
	if (m.hard == LIMITS_NONE || m.hard > m.soft)
		snprintf(limit->how_to_raise, sizeof(limit->how_to_raise),
			 "ulimit -l unlimited, memlock in "
			 "/etc/security/limits.conf, or CAP_IPC_LOCK");
	else
		snprintf(limit->how_to_raise, sizeof(limit->how_to_raise),
			 "the hard limit is %" PRIu64 ": memlock in "
			 "/etc/security/limits.conf (a service: "
			 "LimitMEMLOCK=infinity, a container: --ulimit "
			 "memlock=-1), or CAP_IPC_LOCK",
			 m.hard);
	return 0;
}

static int read_maps(const char *root, struct limit *limit)
{
	struct limits_count m;
	int err = limits_maps(root, &m);

	if (err)
		return err;
	fill(limit, m.limit, m.used);
	snprintf(limit->how_to_raise, sizeof(limit->how_to_raise),
		 "sysctl -w vm.max_map_count=%" PRIu64
		 ", or register fewer, larger regions (a pool)",
		 raised(m.limit, m.used, limit->needed));
	return 0;
}

static int read_files(const char *root, struct limit *limit)
{
	struct limits_files m;
	int err = limits_files(root, &m);

	if (err)
		return err;
	fill(limit, m.soft, m.used);
	if (m.hard == LIMITS_NONE)
		snprintf(limit->how_to_raise, sizeof(limit->how_to_raise),
			 "ulimit -n %" PRIu64,
			 raised(m.soft, m.used, limit->needed));
	else if (m.hard > m.soft)
		snprintf(limit->how_to_raise, sizeof(limit->how_to_raise),
			 "ulimit -n %" PRIu64 ", which the hard limit allows",
			 m.hard);
	else
		snprintf(limit->how_to_raise, sizeof(limit->how_to_raise),
			 "nofile in /etc/security/limits.conf (a service: "
			 "LimitNOFILE=, a container: --ulimit nofile=)");
	return 0;
}

static int fill_group(struct limit *limit, int err,
		      const struct limits_cgroup *group, const char *also)
{
	if (err)
		return err;
	fill(limit, group->limit, group->used);
	snprintf(limit->how_to_raise, sizeof(limit->how_to_raise), "%s (%s)",
		 also, group->file);
	return 0;
}

static int read_group_memory(const char *root, struct limit *limit)
{
	struct limits_cgroup group;
	int err = limits_cgroup_memory(root, &group);

	return fill_group(limit, err, &group,
			  "give the job more memory: Slurm --mem, docker "
			  "--memory, Kubernetes resources.limits.memory");
}

static int read_group_pids(const char *root, struct limit *limit)
{
	struct limits_cgroup group;
	int err = limits_cgroup_pids(root, &group);

	return fill_group(limit, err, &group,
			  "allow more threads: docker --pids-limit, systemd "
			  "TasksMax=");
}

static int read_memory(const char *root, struct limit *limit)
{
	struct limits_memory m;
	int err = limits_memory(root, &m);

	if (err)
		return err;
	fill(limit, m.total + m.swap_free,
	     m.total > m.available ? m.total - m.available : 0);
	snprintf(limit->how_to_raise, sizeof(limit->how_to_raise),
		 "free memory, or ask for less");
	return 0;
}

static int read_huge(const char *root, size_t page, struct limit *limit)
{
	struct limits_huge h;
	int err = limits_huge(root, page, &h);
	uint64_t all, have, need;

	if (err)
		return err;
	all = h.total - (h.surplus < h.total ? h.surplus : h.total);
	all += h.overcommit > h.surplus ? h.overcommit : h.surplus;
	have = limits_huge_left(&h);
	fill(limit, all, all > have ? all - have : 0);
	need = h.total + (limit->needed > have ? limit->needed - have : 0);
	snprintf(limit->how_to_raise, sizeof(limit->how_to_raise),
		 "echo %" PRIu64 " > /sys/kernel/mm/hugepages/hugepages-%zukB/"
		 "nr_hugepages",
		 need, page >> 10);
	return 0;
}

static int read_huge_2m(const char *root, struct limit *limit)
{
	return read_huge(root, LIMITS_2M, limit);
}

static int read_huge_1g(const char *root, struct limit *limit)
{
	return read_huge(root, LIMITS_1G, limit);
}

static const struct kind {
	const char *name, *unit;
	int (*read)(const char *root, struct limit *limit);
	int err;
} kinds[LIMIT_KINDS] = {
	[LIMIT_MEMLOCK] = {"locked memory", "bytes", read_memlock, -ENOMEM},
	[LIMIT_MAPS] = {"mappings", "mappings", read_maps, -ENOMEM},
	[LIMIT_FILES] = {"open files", "descriptors", read_files, -EMFILE},
	[LIMIT_CGROUP_MEMORY] = {"memory of the control group", "bytes",
				 read_group_memory, -ENOMEM},
	[LIMIT_PIDS] = {"threads of the control group", "threads",
			read_group_pids, -EAGAIN},
	[LIMIT_MEMORY] = {"memory of the machine", "bytes", read_memory,
			  -ENOMEM},
	[LIMIT_HUGE_2M] = {"2 MiB pages", "pages", read_huge_2m, -ENOMEM},
	[LIMIT_HUGE_1G] = {"1 GiB pages", "pages", read_huge_1g, -ENOMEM},
};

int limit_read(const char *root, enum limit_kind which, uint64_t needed,
	       struct limit *limit)
{
	struct limit l = {.name = kinds[which].name,
			  .unit = kinds[which].unit,
			  .needed = needed};
	int err = kinds[which].read(root, &l);

	if (!err)
		*limit = l;
	return err;
}

bool limit_fits(const struct limit *limit)
{
	return limit->allowed == LIMITS_NONE ||
	       (limit->used <= limit->allowed &&
		limit->needed <= limit->allowed - limit->used);
}

void limit_line(const struct limit *limit, char *line, size_t room)
{
	char allowed[32] = "no limit";

	if (limit->allowed != LIMITS_NONE)
		snprintf(allowed, sizeof(allowed), "%" PRIu64 " allowed",
			 limit->allowed);
	snprintf(line, room,
		 "%s: %" PRIu64 " %s needed, %s, %" PRIu64 " in use%s%s",
		 limit->name, limit->needed, limit->unit, allowed, limit->used,
		 limit_fits(limit) ? "" : "; to raise it: ",
		 limit_fits(limit) ? "" : limit->how_to_raise);
}

int limit_check(const char *root, enum limit_kind which, uint64_t needed,
		char *line, size_t room)
{
	struct limit limit;

	if (limit_read(root, which, needed, &limit) || limit_fits(&limit))
		return 0;
	limit_line(&limit, line, room);
	return kinds[which].err;
}

/* ---- the library's own checks ---- */

int limits_check_pinned(const char *what, size_t bytes, unsigned devices)
{
	char line[400];
	size_t all;

	if (__builtin_mul_overflow(bytes, (size_t)devices, &all))
		all = SIZE_MAX;
	if (!limit_check(limits_root, LIMIT_MEMLOCK, all, line, sizeof(line)))
		return 0;
	return vbn_fail(-ENOMEM, "%s: %zu bytes for %u device%s: %s", what,
			bytes, devices, devices == 1 ? "" : "s", line);
}

/* Counts @limit again; how many more may come before the next count. */
static long count_maps(struct limit *limit)
{
	static atomic_bool warned;
	uint64_t near, room;

	if (limit_read(limits_root, LIMIT_MAPS, MAPS_EACH, limit)) {
		fill(limit, LIMITS_NONE, 0);
		return LONG_MAX;
	}
	near = limit->allowed / 100 * NEAR_PERCENT;
	if (limit->used > near && !atomic_exchange(&warned, true)) {
		vbn_log(VBN_WARN,
			"%" PRIu64 " of %" PRIu64 " mappings are in use; to "
			"raise the limit: %s",
			limit->used, limit->allowed, limit->how_to_raise);
	}
	room = limit->allowed > limit->used ? limit->allowed - limit->used : 0;
	if (limit->used < near)
		room = near - limit->used;
	/* Others map, too: half of what this could take. */
	return (long)(room / MAPS_EACH / 2);
}

int limits_check_maps(const char *what)
{
	static atomic_long left;
	struct limit limit;
	char line[400];

	if (atomic_fetch_sub(&left, 1) > 0)
		return 0;
	atomic_store(&left, count_maps(&limit));
	if (limit_fits(&limit))
		return 0;
	limit_line(&limit, line, sizeof(line));
	return vbn_fail(-ENOMEM, "%s: %s", what, line);
}
