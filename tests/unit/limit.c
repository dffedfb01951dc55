/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Limits, read from recorded trees of /proc and /sys: a container under
 * control groups of version 1, a Slurm step under version 2, and a machine
 * that shows hardly anything.
 */
#include "limit_tree.h"

#include "limit.h"

#include "cunit_run.h"

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <verbena/job.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

#define RLIMITS(memlock, files)                                                \
	"Limit                     Soft Limit           Hard Limit          "  \
	" Units     \n"                                                        \
	"Max cpu time              unlimited            unlimited           "  \
	" seconds   \n"                                                        \
	"Max open files            " files " files     \n"                     \
	"Max locked memory         " memlock " bytes     \n"

/* docker, no capability, control groups of version 1 as the host sees them */
static const struct tree_file v1[] = {
	{"proc/self/limits",
	 RLIMITS("65536                65536               ",
		 "1024                 524288              ")},
	{"proc/self/status", "Name:\ta\nVmLck:\t      8 kB\nVmPin:\t     16 "
			     "kB\nCapEff:\t00000000a80425fb\n"},
	{"proc/self/uid_map", "         0          0 4294967295\n"},
	{"proc/self/maps", "00400000-00401000 r--p\n7f00-7f01 rw-p\nx\n"},
	{"proc/self/fd/0", ""},
	{"proc/self/fd/1", ""},
	{"proc/self/fd/2", ""},
	{"proc/sys/vm/max_map_count", "65530\n"},
	{"proc/self/cgroup", "9:name=systemd:/docker/x\n8:pids:/docker/x\n"
			     "4:cpuset,memory:/docker/x\n0::/\n"},
	{"sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"},
	{"sys/fs/cgroup/memory/memory.usage_in_bytes", "314572800\n"},
	{"sys/fs/cgroup/memory/memory.stat",
	 "cache 1\ninactive_file 7\ntotal_inactive_file 104857600\n"},
	{"sys/fs/cgroup/pids/docker/x/pids.max", "100\n"},
	{"sys/fs/cgroup/pids/docker/x/pids.current", "98\n"},
	{"sys/fs/cgroup/pids/pids.max", "max\n"},
	{"sys/fs/cgroup/pids/pids.current", "500\n"},
	{NULL, NULL}};

/* a step of Slurm's: the job's group above it is the one that limits */
static const struct tree_file v2[] = {
	{"proc/self/limits",
	 RLIMITS("unlimited            unlimited           ",
		 "1048576              1048576             ")},
	{"proc/self/status", "VmLck:\t0 kB\nVmPin:\t2048 kB\nCapEff:\t0\n"},
	{"proc/self/cgroup", "0::/system.slice/job_7/step_0\n"},
	{"sys/fs/cgroup/system.slice/memory.max", "max\n"},
	{"sys/fs/cgroup/system.slice/memory.current", "9000000000\n"},
	{"sys/fs/cgroup/system.slice/job_7/memory.max", "4294967296\n"},
	{"sys/fs/cgroup/system.slice/job_7/memory.current", "3221225472\n"},
	{"sys/fs/cgroup/system.slice/job_7/memory.stat",
	 "anon 5\nfile 6\ninactive_file 1073741824\n"},
	{"sys/fs/cgroup/system.slice/job_7/step_0/memory.max", "max\n"},
	{"sys/fs/cgroup/system.slice/job_7/step_0/memory.current", "77\n"},
	{"proc/meminfo", "MemTotal:       16777216 kB\nMemFree:  5 kB\n"
			 "MemAvailable:    8388608 kB\nSwapFree: 1048576 kB\n"},
	{"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "10\n"},
	{"sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "4\n"},
	{"sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "1\n"},
	{"sys/kernel/mm/hugepages/hugepages-2048kB/surplus_hugepages", "2\n"},
	{"sys/kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages",
	 "5\n"},
	{"sys/kernel/mm/transparent_hugepage/shmem_enabled",
	 "always within_size [advise] never deny force\n"},
	{"sys/devices/system/node/online", "0,2-3\n"},
	{"sys/devices/system/node/node0/meminfo",
	 "Node 0 MemTotal:       2048 kB\nNode 0 MemFree:     1024 kB\n"},
	{"sys/devices/system/node/node0/cpulist", "0-3,8\n"},
	{"sys/devices/system/node/node3/meminfo",
	 "Node 3 MemTotal:       4096 kB\nNode 3 MemFree:        4 kB\n"},
	{NULL, NULL}};

static const struct tree_file none[] = {{"proc/empty", ""}, {NULL, NULL}};

static char root[TREE_PATH];

static void plant(const struct tree_file *files)
{
	CU_ASSERT_EQUAL_FATAL(tree_make(root, files), 0);
}

static void test_process(void)
{
	struct limits_memlock memlock;
	struct limits_count maps;
	struct limits_files files;

	plant(v1);
	CU_ASSERT_EQUAL(limits_memlock(root, &memlock), 0);
	CU_ASSERT_EQUAL(memlock.soft, 65536);
	CU_ASSERT_EQUAL(memlock.hard, 65536);
	CU_ASSERT_EQUAL(memlock.locked, 8192);
	CU_ASSERT_EQUAL(memlock.pinned, 16384);
	CU_ASSERT_FALSE(memlock.unbounded);
	CU_ASSERT_EQUAL(limits_maps(root, &maps), 0);
	CU_ASSERT(maps.limit == 65530 && maps.used == 3);
	CU_ASSERT_EQUAL(limits_files(root, &files), 0);
	CU_ASSERT(files.soft == 1024 && files.hard == 524288);
	CU_ASSERT_EQUAL(files.used, 3);
	tree_remove(root);
}

/* The capability counts in the first user namespace only. */
static void test_capability(void)
{
	static const struct {
		const char *caps, *ids;
		bool unbounded;
	} cases[] = {
		{"CapEff:\t0000000000004000\n", "0 0 4294967295\n", true},
		{"CapEff:\t0000000000004000\n", "0 1000 1\n", false},
		{"CapEff:\t0000000000003fff\n", "0 0 4294967295\n", false},
		{"CapEff:\t000001ffffffffff\n", "0 0 4294967295\n", true},
	};
	struct limits_memlock memlock;
	struct limit limit;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		plant(v1);
		tree_write(root, "proc/self/status", cases[i].caps);
		tree_write(root, "proc/self/uid_map", cases[i].ids);
		CU_ASSERT_EQUAL(limits_memlock(root, &memlock), 0);
		CU_ASSERT_EQUAL(memlock.unbounded, cases[i].unbounded);
		CU_ASSERT_EQUAL(limit_read(root, LIMIT_MEMLOCK, GIB, &limit),
				0);
		CU_ASSERT_EQUAL(limit_fits(&limit), cases[i].unbounded);
		tree_remove(root);
	}
}

static void test_groups(void)
{
	struct limits_cgroup group;

	plant(v1);
	/* the group's own path is not shown here: the top is taken */
	CU_ASSERT_EQUAL(limits_cgroup_memory(root, &group), 0);
	CU_ASSERT_EQUAL(group.version, 1);
	CU_ASSERT_EQUAL(group.limit, 512 * MIB);
	CU_ASSERT_EQUAL(group.used, 200 * MIB);
	CU_ASSERT_STRING_EQUAL(group.file,
			       "/sys/fs/cgroup/memory/memory.limit_in_bytes");
	CU_ASSERT_EQUAL(limits_cgroup_pids(root, &group), 0);
	CU_ASSERT(group.limit == 100 && group.used == 98);
	tree_write(root, "sys/fs/cgroup/memory/memory.limit_in_bytes",
		   "9223372036854771712\n");
	CU_ASSERT_EQUAL(limits_cgroup_memory(root, &group), 0);
	CU_ASSERT_EQUAL(group.limit, LIMITS_NONE);
	tree_remove(root);

	plant(v2);
	CU_ASSERT_EQUAL(limits_cgroup_memory(root, &group), 0);
	CU_ASSERT_EQUAL(group.version, 2);
	CU_ASSERT_EQUAL(group.limit, 4 * GIB);
	CU_ASSERT_EQUAL(group.used, 2 * GIB);
	CU_ASSERT_STRING_EQUAL(group.file, "/sys/fs/cgroup/system.slice/job_7/"
					   "memory.max");
	CU_ASSERT_EQUAL(limits_cgroup_pids(root, &group), -ENOENT);
	tree_remove(root);
}

/* The innermost group of a nested container, whose path is long, limits. */
static void test_deep_group(void)
{
	char group[700] = "", text[800];
	struct limits_cgroup memory;

	for (int i = 0; i < 6; i++)
		sprintf(group + strlen(group), "/%d-%0100d", i, 0);
	plant(none);
	snprintf(text, sizeof(text), "0::%s\n", group);
	tree_write(root, "proc/self/cgroup", text);
	snprintf(text, sizeof(text), "sys/fs/cgroup%s/memory.max", group);
	tree_write(root, text, "1000\n");
	snprintf(text, sizeof(text), "sys/fs/cgroup%s/memory.current", group);
	tree_write(root, text, "10\n");
	CU_ASSERT_EQUAL(limits_cgroup_memory(root, &memory), 0);
	CU_ASSERT_EQUAL(memory.limit, 1000);
	tree_remove(root);
}

static void test_machine(void)
{
	struct limits_node nodes[2];
	struct limits_memory memory;
	struct limits_huge huge;
	char mode[16];

	plant(v2);
	CU_ASSERT_EQUAL(limits_huge(root, LIMITS_2M, &huge), 0);
	CU_ASSERT(huge.total == 10 && huge.free == 4 && huge.reserved == 1);
	CU_ASSERT_EQUAL(limits_huge_left(&huge), 6);
	CU_ASSERT_EQUAL(limits_huge(root, LIMITS_1G, &huge), -ENOENT);
	CU_ASSERT_EQUAL(limits_thp_shmem(root, mode, sizeof(mode)), 0);
	CU_ASSERT_STRING_EQUAL(mode, "advise");
	CU_ASSERT_EQUAL(limits_memory(root, &memory), 0);
	CU_ASSERT_EQUAL(memory.total, 16 * GIB);
	CU_ASSERT_EQUAL(memory.available, 8 * GIB);
	CU_ASSERT_EQUAL(memory.swap_free, GIB);
	CU_ASSERT_EQUAL(limits_nodes(root, nodes, 2), 3);
	CU_ASSERT_EQUAL(nodes[0].memory, 2 * MIB);
	CU_ASSERT_EQUAL(nodes[0].free, MIB);
	CU_ASSERT_STRING_EQUAL(nodes[0].cpus, "0-3,8");
	CU_ASSERT_EQUAL(nodes[1].node, 2);
	CU_ASSERT_EQUAL(nodes[1].memory, 0);
	tree_remove(root);
}

/* ---- all alike ---- */

struct check {
	const struct tree_file *files;
	enum limit_kind which;
	uint64_t most; /* that still fits */
	int err;
	const char *line[4]; /* parts of the line for one more */
};

static const struct check checks[] = {
	{v1,
	 LIMIT_MEMLOCK,
	 49152,
	 -ENOMEM,
	 {"locked memory: 49153 bytes needed, 65536 allowed, 16384 in use",
	  "LimitMEMLOCK", "CAP_IPC_LOCK", "hard limit is 65536"}},
	{v1,
	 LIMIT_MAPS,
	 65527,
	 -ENOMEM,
	 {"mappings: 65528 mappings needed, 65530 allowed, 3 in use",
	  "sysctl -w vm.max_map_count=131060"}},
	{v1,
	 LIMIT_FILES,
	 1021,
	 -EMFILE,
	 {"1022 descriptors needed, 1024 allowed, 3 in use", "ulimit -n 524288",
	  "hard limit allows"}},
	{v1,
	 LIMIT_CGROUP_MEMORY,
	 312 * MIB,
	 -ENOMEM,
	 {"327155713 bytes needed, 536870912 allowed, 209715200 in use",
	  "--memory", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}},
	{v1,
	 LIMIT_PIDS,
	 2,
	 -EAGAIN,
	 {"3 threads needed, 100 allowed, 98 in use", "pids-limit"}},
	{v2,
	 LIMIT_CGROUP_MEMORY,
	 2 * GIB,
	 -ENOMEM,
	 {"2147483649 bytes needed, 4294967296 allowed, 2147483648 in use",
	  "--mem", "job_7/memory.max"}},
	{v2,
	 LIMIT_MEMORY,
	 9 * GIB,
	 -ENOMEM,
	 {"9663676417 bytes needed, 18253611008 allowed, 8589934592 in use"}},
	{v2,
	 LIMIT_HUGE_2M,
	 6,
	 -ENOMEM,
	 {"2 MiB pages: 7 pages needed, 13 allowed, 7 in use",
	  "echo 11 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"}},
};

static void test_checks(void)
{
	for (size_t i = 0; i < sizeof(checks) / sizeof(*checks); i++) {
		const struct check *c = &checks[i];
		char line[1024] = "";

		plant(c->files);
		CU_ASSERT_EQUAL(limit_check(root, c->which, c->most, line,
					    sizeof(line)),
				0);
		CU_ASSERT_STRING_EQUAL(line, "");
		CU_ASSERT_EQUAL(limit_check(root, c->which, c->most + 1, line,
					    sizeof(line)),
				c->err);
		for (int part = 0; part < 4 && c->line[part]; part++)
			CU_ASSERT_PTR_NOT_NULL(strstr(line, c->line[part]));
		CU_ASSERT_EQUAL(limit_check(root, c->which, UINT64_MAX, line,
					    sizeof(line)),
				c->err);
		tree_remove(root);
	}
}

/* What cannot be known does not forbid anything. */
static void test_nothing_known(void)
{
	struct limits_node node;
	struct limit limit;
	char line[64];

	plant(none);
	for (int k = 0; k < LIMIT_KINDS; k++) {
		enum limit_kind which = (enum limit_kind)k;

		CU_ASSERT(limit_read(root, which, 1, &limit) < 0);
		CU_ASSERT_EQUAL(limit_check(root, which, UINT64_MAX, line,
					    sizeof(line)),
				0);
	}
	CU_ASSERT_EQUAL(limits_nodes(root, &node, 1), -ENOENT);
	tree_remove(root);
}

static void test_this_machine(void)
{
	struct limits_count before, after;
	struct limits_files files, more;
	struct limit limit;
	uint64_t size, available;
	int fd;
	void *p;

	CU_ASSERT_EQUAL(limits_files("", &files), 0);
	fd = dup(0);
	CU_ASSERT_EQUAL(limits_files("", &more), 0);
	CU_ASSERT_EQUAL(more.used, files.used + 1);
	close(fd);
	CU_ASSERT_EQUAL(limits_maps("", &before), 0);
	p = mmap(NULL, 4096, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CU_ASSERT_EQUAL(limits_maps("", &after), 0);
	CU_ASSERT(after.used > before.used && after.used < after.limit);
	munmap(p, 4096);
	CU_ASSERT_EQUAL(limit_read("", LIMIT_MEMLOCK, 0, &limit), 0);
	CU_ASSERT_EQUAL(limit_read("", LIMIT_MEMORY, 0, &limit), 0);
	CU_ASSERT(limit.used < limit.allowed);
	if (!limits_dev_shm("", &size, &available))
		CU_ASSERT(available <= size);
}

/* ---- the library's own checks ---- */

static void test_pinned(void)
{
	plant(v1);
	limits_root = root;
	CU_ASSERT_EQUAL(limits_check_pinned("verbs", 24576, 2), 0);
	CU_ASSERT_EQUAL(limits_check_pinned("verbs", 24577, 2), -ENOMEM);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(),
				      "verbs: 24577 bytes for 2 devices: "
				      "locked memory: 49154 bytes needed"));
	CU_ASSERT_EQUAL(limits_check_pinned("verbs", SIZE_MAX, 2), -ENOMEM);
	limits_root = "";
	tree_remove(root);
}

static void write_maps(size_t n)
{
	char lines[256];

	memset(lines, '\n', n);
	lines[n] = 0;
	tree_write(root, "proc/self/maps", lines);
}

/* The mappings are counted seldom while there are few, in time when many. */
static void test_maps(void)
{
	plant(v1);
	limits_root = root;
	tree_write(root, "proc/sys/vm/max_map_count", "200\n");
	write_maps(100);
	for (int i = 0; i <= 10; i++)
		CU_ASSERT_EQUAL(limits_check_maps("test"), 0);
	write_maps(197);
	for (int i = 0; i < 20 && !limits_check_maps("test"); i++)
		CU_ASSERT_FATAL(i < 19);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "test: mappings: "));
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "200 allowed, 197 in use"));
	write_maps(150);
	CU_ASSERT_EQUAL(limits_check_maps("test"), 0); /* room again */
	limits_root = "";
	tree_remove(root);
}

static CU_TestInfo tests[] = {
	{"the process's", test_process},
	{"CAP_IPC_LOCK", test_capability},
	{"control groups", test_groups},
	{"a deep control group", test_deep_group},
	{"the machine's", test_machine},
	{"what fits, and the line when not", test_checks},
	{"nothing known", test_nothing_known},
	{"this machine", test_this_machine},
	{"memory to pin", test_pinned},
	{"mappings", test_maps},
	CU_TEST_INFO_NULL,
};

int main(void)
{
	CU_SuiteInfo suites[] = {{"limit", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};

	return run_suites(suites);
}
