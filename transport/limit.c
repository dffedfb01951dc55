/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits of the machine and the kernel, read from /proc and /sys.
 */
#include "limit.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#define CAP_IPC_LOCK_BIT 14
#define KIB		 ((uint64_t)1024)
#define V1_UNLIMITED	 ((uint64_t)1 << 62) /* what version 1 says is near */
#define ALL_IDS		 4294967295u

/* ---- files ---- */

static FILE *open_file(const char *root, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static FILE *open_file(const char *root, const char *fmt, ...)
{
	char path[PATH_MAX];
	va_list args;
	int n = snprintf(path, sizeof(path), "%s", root);

	if (n < 0 || (size_t)n >= sizeof(path)) {
		errno = ENAMETOOLONG;
		return NULL;
	}
	va_start(args, fmt);
	vsnprintf(path + n, sizeof(path) - (size_t)n, fmt, args);
	va_end(args);
	return fopen(path, "re");
}

/* The first line, without its end; closes @f. */
static int take_line(FILE *f, char *line, size_t room)
{
	char *got;

	if (!f)
		return -errno;
	got = fgets(line, (int)room, f);
	fclose(f);
	if (!got)
		return -ENODATA;
	line[strcspn(line, "\n")] = 0;
	return 0;
}

/* "max" and "unlimited" are LIMITS_NONE. False: no number. */
static bool parse(const char *text, uint64_t *value)
{
	char *end;

	while (*text == ' ' || *text == '\t')
		text++;
	if (!strncmp(text, "max", 3) || !strncmp(text, "unlimited", 9)) {
		*value = LIMITS_NONE;
		return true;
	}
	*value = strtoull(text, &end, 10);
	return end != text;
}

static int take_number(FILE *f, uint64_t *value)
{
	char line[64];
	int err = take_line(f, line, sizeof(line));

	if (err)
		return err;
	return parse(line, value) ? 0 : -EPROTO;
}

struct field {
	const char *name; /* what its line begins with */
	uint64_t *value;
	int base;
};

/* Numbers after names; what is not there keeps its value. Closes @f. */
static int take_fields(FILE *f, const struct field *fields, size_t n)
{
	char line[512];

	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f))
		for (size_t i = 0; i < n; i++) {
			size_t len = strlen(fields[i].name);

			if (!strncmp(line, fields[i].name, len))
				*fields[i].value = strtoull(line + len, NULL,
							    fields[i].base);
		}
	fclose(f);
	return 0;
}

/* The soft and the hard limit of a line of /proc/self/limits. */
static int read_rlimit(const char *root, const char *name, uint64_t *soft,
		       uint64_t *hard)
{
	FILE *f = open_file(root, "/proc/self/limits");
	size_t len = strlen(name);
	char line[256];
	int err = -ENOENT;

	if (!f)
		return -errno;
	while (fgets(line, sizeof(line), f)) {
		char *p = line + len;

		if (strncmp(line, name, len))
			continue;
		err = parse(p, soft) ? 0 : -EPROTO;
		p += strspn(p, " ");
		p += strcspn(p, " \n");
		if (!err && !parse(p, hard))
			err = -EPROTO;
		break;
	}
	fclose(f);
	return err;
}

/* ---- of the process ---- */

/* The kernel asks for the capability outside of user namespaces. */
static bool is_first_namespace(const char *root)
{
	FILE *f = open_file(root, "/proc/self/uid_map");
	unsigned inside, outside, count;
	bool first;

	if (!f)
		return true;
	first = fscanf(f, "%u %u %u", &inside, &outside, &count) == 3 &&
		!inside && !outside && count == ALL_IDS;
	fclose(f);
	return first;
}

int limits_memlock(const char *root, struct limits_memlock *memlock)
{
	struct limits_memlock m = {0};
	uint64_t caps = 0;
	const struct field fields[] = {{"VmLck:", &m.locked, 10},
				       {"VmPin:", &m.pinned, 10},
				       {"CapEff:", &caps, 16}};
	int err = read_rlimit(root, "Max locked memory", &m.soft, &m.hard);

	if (!err)
		err = take_fields(open_file(root, "/proc/self/status"), fields,
				  3);
	if (err)
		return err;
	m.locked *= KIB;
	m.pinned *= KIB;
	m.unbounded =
		((caps >> CAP_IPC_LOCK_BIT) & 1) && is_first_namespace(root);
	*memlock = m;
	return 0;
}

int limits_maps(const char *root, struct limits_count *maps)
{
	char block[4096];
	struct limits_count m = {0};
	size_t n;
	FILE *f;
	int err = take_number(open_file(root, "/proc/sys/vm/max_map_count"),
			      &m.limit);

	if (err)
		return err;
	f = open_file(root, "/proc/self/maps");
	if (!f)
		return -errno;
	while ((n = fread(block, 1, sizeof(block), f)))
		for (size_t i = 0; i < n; i++)
			m.used += block[i] == '\n';
	fclose(f);
	*maps = m;
	return 0;
}

static int count_files(const char *root, struct limits_files *files)
{
	struct limits_files m = {0};
	char path[PATH_MAX];
	struct dirent *entry;
	DIR *dir;
	int err = read_rlimit(root, "Max open files", &m.soft, &m.hard);

	if (err)
		return err;
	snprintf(path, sizeof(path), "%s/proc/self/fd", root);
	dir = opendir(path);
	if (!dir)
		return -errno;
	while ((entry = readdir(dir)))
		m.used += entry->d_name[0] != '.';
	closedir(dir);
	if (!*root && m.used)
		m.used--; /* the one that reads them */
	*files = m;
	return 0;
}

static uint64_t from_rlim(rlim_t value)
{
	return value == RLIM_INFINITY ? LIMITS_NONE : value;
}

/* No descriptor is left to count them with, which says how many there are. */
static int all_taken(struct limits_files *files)
{
	struct rlimit now;

	if (getrlimit(RLIMIT_NOFILE, &now))
		return -errno;
	*files = (struct limits_files){.soft = from_rlim(now.rlim_cur),
				       .hard = from_rlim(now.rlim_max),
				       .used = from_rlim(now.rlim_cur)};
	return 0;
}

int limits_files(const char *root, struct limits_files *files)
{
	int err = count_files(root, files);

	return err == -EMFILE && !*root ? all_taken(files) : err;
}

/* ---- of the control group ---- */

struct controller {
	const char *name;
	const char *limit[2], *used[2]; /* files, by version - 1 */
	const char *stat[2]; /* in memory.stat: what can be reclaimed */
};

static const struct controller memory_controller = {
	.name = "memory",
	.limit = {"memory.limit_in_bytes", "memory.max"},
	.used = {"memory.usage_in_bytes", "memory.current"},
	.stat = {"total_inactive_file ", "inactive_file "},
};

static const struct controller pids_controller = {
	.name = "pids",
	.limit = {"pids.max", "pids.max"},
	.used = {"pids.current", "pids.current"},
};

/* Whether @name is one of the words in @list, which commas separate. */
static bool has_word(const char *list, const char *name)
{
	size_t len = strlen(name);

	for (;;) {
		size_t n = strcspn(list, ",");

		if (n == len && !strncmp(list, name, n))
			return true;
		if (!list[n])
			return false;
		list += n + 1;
	}
}

/* The version whose hierarchy has the controller, and the group's path. */
static int find_group(const char *root, const char *name, char *path,
		      size_t room)
{
	FILE *f = open_file(root, "/proc/self/cgroup");
	char line[PATH_MAX];
	int version = 0;

	if (!f)
		return -errno;
	while (version != 1 && fgets(line, sizeof(line), f)) {
		char *names = strchr(line, ':');
		char *group = names ? strchr(names + 1, ':') : NULL;

		if (!group)
			continue;
		line[strcspn(line, "\n")] = 0;
		*group++ = 0;
		if (names[1] && !has_word(names + 1, name))
			continue;
		version = names[1] ? 1 : 2;
		snprintf(path, room, "%s", strcmp(group, "/") ? group : "");
	}
	fclose(f);
	return version ? version : -ENOENT;
}

/* The group at @dir; -ENOENT when it has no limit of its own. */
static int read_group(const char *root, const struct controller *c,
		      const char *dir, struct limits_cgroup *group)
{
	int v = group->version - 1, err;
	uint64_t idle = 0;

	snprintf(group->file, sizeof(group->file), "%s/%s", dir, c->limit[v]);
	err = take_number(open_file(root, "%s", group->file), &group->limit);
	if (!err)
		err = take_number(open_file(root, "%s/%s", dir, c->used[v]),
				  &group->used);
	if (err)
		return err;
	if (group->limit >= V1_UNLIMITED)
		group->limit = LIMITS_NONE;
	if (c->stat[v]) {
		const struct field field = {c->stat[v], &idle, 10};

		take_fields(open_file(root, "%s/memory.stat", dir), &field, 1);
	}
	group->used -= idle < group->used ? idle : group->used;
	return 0;
}

static uint64_t left(uint64_t limit, uint64_t used)
{
	if (limit == LIMITS_NONE)
		return LIMITS_NONE;
	return limit > used ? limit - used : 0;
}

static int read_cgroup(const char *root, const struct controller *c,
		       struct limits_cgroup *tightest)
{
	char path[PATH_MAX - 128], dir[PATH_MAX - 64], *slash;
	struct limits_cgroup group = {0};
	bool found = false;
	int version = find_group(root, c->name, path, sizeof(path));

	if (version < 0)
		return version;
	group.version = version;
	/* A container may see another path than its own: its top remains. */
	for (;;) {
		snprintf(dir, sizeof(dir), "/sys/fs/cgroup%s%s%s",
			 version == 1 ? "/" : "", version == 1 ? c->name : "",
			 path);
		if (!read_group(root, c, dir, &group) &&
		    (!found || left(group.limit, group.used) <
				       left(tightest->limit, tightest->used))) {
			*tightest = group;
			found = true;
		}
		slash = strrchr(path, '/');
		if (!slash)
			break;
		*slash = 0;
	}
	return found ? 0 : -ENOENT;
}

int limits_cgroup_memory(const char *root, struct limits_cgroup *group)
{
	return read_cgroup(root, &memory_controller, group);
}

int limits_cgroup_pids(const char *root, struct limits_cgroup *group)
{
	return read_cgroup(root, &pids_controller, group);
}

/* ---- of the machine ---- */

int limits_huge(const char *root, size_t page_bytes, struct limits_huge *huge)
{
	struct limits_huge h = {0};
	const struct {
		const char *name;
		uint64_t *value;
	} files[] = {{"nr_hugepages", &h.total},
		     {"free_hugepages", &h.free},
		     {"resv_hugepages", &h.reserved},
		     {"surplus_hugepages", &h.surplus},
		     {"nr_overcommit_hugepages", &h.overcommit}};

	for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
		int err =
			take_number(open_file(root,
					      "/sys/kernel/mm/hugepages/"
					      "hugepages-%zukB/%s",
					      page_bytes >> 10, files[i].name),
				    files[i].value);

		if (err)
			return err;
	}
	*huge = h;
	return 0;
}

uint64_t limits_huge_left(const struct limits_huge *huge)
{
	return left(huge->free, huge->reserved) +
	       left(huge->overcommit, huge->surplus);
}

int limits_thp_shmem(const char *root, char *mode, size_t room)
{
	char line[128], *word;
	int err = take_line(
		open_file(root,
			  "/sys/kernel/mm/transparent_hugepage/shmem_enabled"),
		line, sizeof(line));

	if (err)
		return err;
	word = strchr(line, '[');
	if (!word)
		return -EPROTO;
	word[strcspn(word, "]")] = 0;
	snprintf(mode, room, "%s", word + 1);
	return 0;
}

int limits_memory(const char *root, struct limits_memory *memory)
{
	struct limits_memory m = {0};
	const struct field fields[] = {{"MemTotal:", &m.total, 10},
				       {"MemAvailable:", &m.available, 10},
				       {"SwapFree:", &m.swap_free, 10}};
	int err = take_fields(open_file(root, "/proc/meminfo"), fields, 3);

	if (err)
		return err;
	m.total *= KIB;
	m.available *= KIB;
	m.swap_free *= KIB;
	*memory = m;
	return m.total ? 0 : -EPROTO;
}

int limits_dev_shm(const char *root, uint64_t *size, uint64_t *available)
{
	char path[PATH_MAX];
	struct statvfs fs;

	snprintf(path, sizeof(path), "%s/dev/shm", root);
	if (statvfs(path, &fs) < 0)
		return -errno;
	*size = (uint64_t)fs.f_blocks * fs.f_frsize;
	*available = (uint64_t)fs.f_bavail * fs.f_frsize;
	return 0;
}

static void read_node(const char *root, struct limits_node *node)
{
	char total[64], unused[64], files[64];
	const struct field fields[] = {{total, &node->memory, 10},
				       {unused, &node->free, 10},
				       {files, &node->reclaimable, 10}};

	snprintf(total, sizeof(total), "Node %d MemTotal:", node->node);
	snprintf(unused, sizeof(unused), "Node %d MemFree:", node->node);
	snprintf(files, sizeof(files), "Node %d Inactive(file):", node->node);
	take_fields(open_file(root, "/sys/devices/system/node/node%d/meminfo",
			      node->node),
		    fields, 3);
	node->memory *= KIB;
	node->free *= KIB;
	node->reclaimable *= KIB;
	if (take_line(open_file(root, "/sys/devices/system/node/node%d/cpulist",
				node->node),
		      node->cpus, sizeof(node->cpus)))
		node->cpus[0] = 0;
}

int limits_nodes(const char *root, struct limits_node *nodes, int room)
{
	char line[256], *p = line;
	int n = 0;
	int err = take_line(open_file(root, "/sys/devices/system/node/online"),
			    line, sizeof(line));

	if (err)
		return err;
	while (*p) {
		long first = strtol(p, &p, 10), last = first;

		if (*p == '-')
			last = strtol(p + 1, &p, 10);
		for (long node = first; node <= last && n < INT_MAX; node++) {
			if (n < room) {
				nodes[n] =
					(struct limits_node){.node = (int)node};
				read_node(root, &nodes[n]);
			}
			n++;
		}
		if (*p != ',')
			break;
		p++;
	}
	return n;
}
