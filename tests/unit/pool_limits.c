/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pools at the limits of the process and the machine, on huge pages and NUMA
 * nodes: what is refused, with which line, and that what there was goes on
 * working. Limits come from recorded trees, or are lowered for real.
 */
#include "fake_mem.h"
#include "limit_tree.h"

#include "limit.h"

#include "cunit_run.h"

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>

#include <errno.h>
#include <numaif.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB	 ((size_t)1 << 20)
#define HUGE_DIR "sys/kernel/mm/hugepages/hugepages-2048kB/"
#define NR_HUGE	 "/proc/sys/vm/nr_hugepages"
#define RESERVE	 48
#define RLIMITS(files)                                                         \
	"Max open files            " files "                  1024       "     \
	"          files     \n"

/* A machine where everything is plenty, but huge pages. */
static const struct tree_file plenty[] = {
	{"proc/self/limits", RLIMITS("100")},
	{"proc/self/fd/0", ""},
	{"proc/self/fd/1", ""},
	{"proc/sys/vm/max_map_count", "100\n"},
	{"proc/self/maps", "1\n2\n3\n"},
	{"proc/self/cgroup", "0::/job\n"},
	{"sys/fs/cgroup/job/memory.max", "1073741824\n"},
	{"sys/fs/cgroup/job/memory.current", "536870912\n"},
	{"proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n"
			 "SwapFree: 0 kB\n"},
	{HUGE_DIR "nr_hugepages", "3\n"},
	{HUGE_DIR "free_hugepages", "1\n"},
	{HUGE_DIR "resv_hugepages", "0\n"},
	{HUGE_DIR "surplus_hugepages", "0\n"},
	{HUGE_DIR "nr_overcommit_hugepages", "0\n"},
	{"sys/devices/system/node/online", "0\n"},
	{"sys/devices/system/node/node0/meminfo",
	 "Node 0 MemTotal: 8388608 kB\nNode 0 MemFree: 4096 kB\n"
	 "Node 0 Inactive(file): 4096 kB\n"},
	{NULL, NULL}};

static char root[TREE_PATH];

static void plant(void)
{
	CU_ASSERT_EQUAL_FATAL(tree_make(root, plenty), 0);
	limits_root = root;
}

static void uproot(void)
{
	limits_root = "";
	tree_remove(root);
}

static struct vbn_pool *make_pool(enum vbn_hugepages hugepages, int numa)
{
	struct vbn_pool_options o = {.size = sizeof(o),
				     .slab_bytes = 2 * MIB,
				     .hugepages = hugepages,
				     .numa = numa};
	struct vbn_pool *pool = NULL;

	CU_ASSERT_EQUAL_FATAL(vbn_pool_create(&pool, fake_job(), &o), 0);
	return pool;
}

static void destroy_pool(struct vbn_pool *pool)
{
	vbn_pool_destroy(pool);
	CU_ASSERT_EQUAL(fake_mem_registered(), 0);
	CU_ASSERT_EQUAL(fake_mem_wrong(), 0);
}

static bool error_has(const char *part)
{
	bool has = strstr(vbn_error(), part) != NULL;

	if (!has)
		fprintf(stderr, "\n  \"%s\" is not in \"%s\"\n", part,
			vbn_error());
	return has;
}

/* ---- options ---- */

static void test_options(void)
{
	struct vbn_pool_options o = {
		.size = offsetof(struct vbn_pool_options, hugepages),
		.hugepages = (enum vbn_hugepages)99,
		.numa = 4712};
	struct vbn_pool *pool = NULL;

	/* of an older caller: what it does not know is not read */
	CU_ASSERT_EQUAL(vbn_pool_create(&pool, fake_job(), &o), 0);
	CU_ASSERT_PTR_NOT_NULL(vbn_pool_alloc(pool, 100, 0));
	destroy_pool(pool);
	o.size = sizeof(o);
	CU_ASSERT_EQUAL(vbn_pool_create(&pool, fake_job(), &o), -EINVAL);
	CU_ASSERT(error_has("unknown choice 99 of huge pages"));
	o.hugepages = VBN_HUGE_AUTO;
	CU_ASSERT_EQUAL(vbn_pool_create(&pool, fake_job(), &o), -EINVAL);
	CU_ASSERT(error_has("no NUMA node 4711"));
	o.numa = VBN_NUMA_NODE(-7);
	CU_ASSERT_EQUAL(vbn_pool_create(&pool, fake_job(), &o), -EINVAL);
	o.numa = VBN_NUMA_ANY;
	o.hugepages = VBN_HUGE_REQUIRE_1G;
	o.limit = 512 * MIB;
	CU_ASSERT_EQUAL(vbn_pool_create(&pool, fake_job(), &o), -EINVAL);
	CU_ASSERT(error_has("below one slab of 1073741824"));
}

/* ---- limits ---- */

struct bite {
	const char *file, *content, *good;
	const char *lines[4];
};

static const struct bite bites[] = {
	{"proc/self/limits",
	 RLIMITS("2  "),
	 RLIMITS("3  "),
	 {"a slab of 4194304 bytes", "open files: 1 descriptors needed",
	  "2 allowed, 2 in use", "ulimit -n 1024"}},
	{"proc/sys/vm/max_map_count",
	 "5\n",
	 "6\n",
	 {"mappings: 3 mappings needed, 5 allowed, 3 in use",
	  "vm.max_map_count="}},
	{"sys/fs/cgroup/job/memory.max",
	 "541065215\n",
	 "541065216\n",
	 {"memory of the control group: 4194304 bytes needed, 541065215 "
	  "allowed, 536870912 in use",
	  "/sys/fs/cgroup/job/memory.max", "--mem"}},
	{"proc/meminfo",
	 "MemTotal: 8388608 kB\nMemAvailable: 4095 kB\nSwapFree: 0 kB\n",
	 "MemTotal: 8388608 kB\nMemAvailable: 4095 kB\nSwapFree: 1 kB\n",
	 {"memory of the machine: 4194304 bytes needed, 8589934592 allowed"}},
};

static void test_bites(void)
{
	for (size_t i = 0; i < sizeof(bites) / sizeof(*bites); i++) {
		const struct bite *b = &bites[i];
		struct vbn_pool *pool;
		char *p;

		plant();
		pool = make_pool(VBN_HUGE_NONE, VBN_NUMA_ANY);
		p = vbn_pool_alloc(pool, 2 * MIB, 0);
		CU_ASSERT_PTR_NOT_NULL_FATAL(p);
		memset(p, 0x5a, 2 * MIB);
		tree_write(root, b->file, b->content);
		CU_ASSERT_PTR_NULL(vbn_pool_alloc(pool, 4 * MIB, 0));
		for (int line = 0; line < 4 && b->lines[line]; line++)
			CU_ASSERT(error_has(b->lines[line]));
		CU_ASSERT(p[0] == 0x5a && p[2 * MIB - 1] == 0x5a);
		tree_write(root, b->file, b->good);
		CU_ASSERT_PTR_NOT_NULL(vbn_pool_alloc(pool, 4 * MIB, 0));
		destroy_pool(pool);
		uproot();
	}
}

/* A slab that is larger than need be becomes smaller, rather than fail. */
static void test_less_growth(void)
{
	struct vbn_pool *pool;

	plant();
	pool = make_pool(VBN_HUGE_NONE, VBN_NUMA_ANY);
	CU_ASSERT_PTR_NOT_NULL(vbn_pool_alloc(pool, 64 * MIB, 0));
	tree_write(root, "sys/fs/cgroup/job/memory.max", "538968064\n");
	CU_ASSERT_PTR_NOT_NULL(vbn_pool_alloc(pool, 2 * MIB, 0));
	CU_ASSERT_EQUAL(fake_mem_bytes(), 66 * MIB);
	destroy_pool(pool);
	uproot();
}

/* For real: until the descriptors are used up; freeing makes room. */
static void use_up_descriptors(void)
{
	enum { MOST = 64 };
	struct vbn_pool *pool = make_pool(VBN_HUGE_NONE, VBN_NUMA_ANY);
	struct rlimit old, low;
	struct limits_files files;
	void *p[MOST];
	int n = 0;

	CU_ASSERT_EQUAL_FATAL(limits_files("", &files), 0);
	CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = files.used + 8;
	CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &low), 0);
	while (n < MOST && (p[n] = vbn_pool_alloc(pool, 2 * MIB, 0))) {
		n++;
		memset(p[n - 1], n, 2 * MIB);
	}
	setrlimit(RLIMIT_NOFILE, &old);
	CU_ASSERT(n > 2 && n < MOST);
	CU_ASSERT(error_has("open files: 1 descriptors needed"));
	CU_ASSERT(error_has("ulimit -n"));
	for (int i = 0; i < n; i++)
		CU_ASSERT_EQUAL(((char *)p[i])[i], i + 1);
	low.rlim_cur = files.used + 8;
	setrlimit(RLIMIT_NOFILE, &low);
	vbn_pool_free(pool, p[0]);
	p[0] = vbn_pool_alloc(pool, 2 * MIB, 0);
	CU_ASSERT_PTR_NOT_NULL(p[0]);
	setrlimit(RLIMIT_NOFILE, &old);
	destroy_pool(pool);
}

/*
 * Numbers without a gap: the last one is taken, and none is left to read the
 * limit with. With one far above: the count bites while numbers are free.
 */
static void test_descriptors(void)
{
	enum { FAR = 400 };
	int fill[FAR], n = 0, far;

	do {
		fill[n] = dup(STDERR_FILENO);
	} while (fill[n] >= 0 && fill[n] < FAR - 1 && ++n < FAR);
	CU_ASSERT_FATAL(n < FAR && fill[n] == FAR - 1);
	n++;
	use_up_descriptors();
	far = dup2(STDERR_FILENO, FAR + 50);
	CU_ASSERT(far > 0);
	use_up_descriptors();
	close(far);
	while (n--)
		close(fill[n]);
}

/* More than there is: not left to overcommitment. */
static void test_too_much(void)
{
	struct vbn_pool *pool = make_pool(VBN_HUGE_AUTO, VBN_NUMA_ANY);

	for (int bits = 44; bits <= 60; bits += 4) {
		CU_ASSERT_PTR_NULL(vbn_pool_alloc(pool, (size_t)1 << bits, 0));
		CU_ASSERT(error_has("memory of the machine: "));
	}
	CU_ASSERT_PTR_NOT_NULL(vbn_pool_alloc(pool, 100, 0));
	destroy_pool(pool);
}

/* ---- NUMA nodes ---- */

static void test_node(void)
{
	struct vbn_pool *pool;
	struct limits_node first;
	int mode, node, was;
	char *p;

	if (limits_nodes("", &first, 1) < 1 ||
	    get_mempolicy(&mode, NULL, 0, NULL, 0)) {
		printf("(skipped: the kernel shows no NUMA nodes) ");
		return;
	}
	pool = make_pool(VBN_HUGE_AUTO, VBN_NUMA_NODE(first.node));
	p = vbn_pool_alloc(pool, MIB, 0);
	if (!p && error_has("seccomp")) {
		printf("(skipped: mbind() is forbidden here) ");
		destroy_pool(pool);
		return;
	}
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	memset(p, 1, MIB);
	CU_ASSERT_EQUAL(get_mempolicy(&mode, NULL, 0, p, MPOL_F_ADDR), 0);
	CU_ASSERT_EQUAL(mode, MPOL_BIND);
	was = get_mempolicy(&node, NULL, 0, p, MPOL_F_NODE | MPOL_F_ADDR);
	CU_ASSERT_EQUAL(was, 0);
	CU_ASSERT_EQUAL(node, first.node);
	destroy_pool(pool);
	pool = make_pool(VBN_HUGE_AUTO, VBN_NUMA_LOCAL);
	p = vbn_pool_alloc(pool, MIB, 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	memset(p, 1, MIB);
	CU_ASSERT_EQUAL(get_mempolicy(&mode, NULL, 0, p, MPOL_F_ADDR), 0);
	CU_ASSERT_EQUAL(mode, MPOL_PREFERRED);
	destroy_pool(pool);
}

static void test_node_is_full(void)
{
	struct vbn_pool *pool;

	plant();
	pool = make_pool(VBN_HUGE_NONE, VBN_NUMA_NODE(0));
	CU_ASSERT_PTR_NULL(vbn_pool_alloc(pool, 10 * MIB, 0));
	CU_ASSERT(error_has("10485760 bytes needed on NUMA node 0, which has "
			    "4194304 free and 4194304"));
	destroy_pool(pool);
	uproot();
}

/* ---- huge pages ---- */

/* When there are not enough: the next smaller ones, or a clear error. */
static void test_no_huge_pages(void)
{
	struct vbn_pool *pool;
	char *p;

	plant();
	pool = make_pool(VBN_HUGE_REQUIRE_2M, VBN_NUMA_ANY);
	CU_ASSERT_PTR_NULL(vbn_pool_alloc(pool, 4 * MIB, 0));
	CU_ASSERT(error_has("2 MiB pages: 2 pages needed, 3 allowed, 2 in "
			    "use; to raise it: echo 4 > /sys/kernel/mm/"
			    "hugepages/hugepages-2048kB/nr_hugepages"));
	destroy_pool(pool);
	for (int h = VBN_HUGE_AUTO; h <= VBN_HUGE_PREFER_1G; h++) {
		pool = make_pool((enum vbn_hugepages)h, VBN_NUMA_ANY);
		p = vbn_pool_alloc(pool, 4 * MIB, 0);
		CU_ASSERT_PTR_NOT_NULL_FATAL(p);
		CU_ASSERT_EQUAL(fake_mem_page(p), 4096);
		CU_ASSERT_EQUAL(fake_mem_bytes(), 4 * MIB);
		destroy_pool(pool);
	}
	/* The count is right, the kernel says no all the same. */
	tree_write(root, HUGE_DIR "nr_hugepages", "1000000000\n");
	tree_write(root, HUGE_DIR "free_hugepages", "1000000000\n");
	pool = make_pool(VBN_HUGE_REQUIRE_2M, VBN_NUMA_ANY);
	CU_ASSERT_PTR_NULL(vbn_pool_alloc(pool, 1024 * 1024 * MIB, 0));
	CU_ASSERT(error_has("cannot get 524288 pages of 2048 KiB"));
	destroy_pool(pool);
	uproot();
}

/* What is logged while @pool makes a slab of small pages. */
static void logged(struct vbn_pool *pool, char *text, size_t room)
{
	int was = dup(STDERR_FILENO), to = memfd_create("log", MFD_CLOEXEC);
	ssize_t n;
	char *p;

	dup2(to, STDERR_FILENO);
	p = vbn_pool_alloc(pool, 4 * MIB, 0);
	dup2(was, STDERR_FILENO);
	n = pread(to, text, room - 1, 0);
	text[n < 0 ? 0 : n] = 0;
	close(was);
	close(to);
	CU_ASSERT_PTR_NOT_NULL(p);
}

/* One line, which names the pages that were got in the end. */
static void test_fallback_is_said(void)
{
	char first[512], second[512];
	struct vbn_pool *pool;

	plant();
	pool = make_pool(VBN_HUGE_PREFER_1G, VBN_NUMA_ANY);
	logged(pool, first, sizeof(first));
	logged(pool, second, sizeof(second));
	CU_ASSERT_PTR_NOT_NULL(strstr(first, "going on with small pages"));
	CU_ASSERT_PTR_EQUAL(strchr(first, '\n'), strrchr(first, '\n'));
	CU_ASSERT_STRING_EQUAL(second, "");
	destroy_pool(pool);
	uproot();
}

static bool write_number(const char *path, long n)
{
	FILE *f = fopen(path, "w");
	bool good = f && fprintf(f, "%ld\n", n) > 0;

	return (f && fclose(f) == 0) && good;
}

/* Reserve pages. False, saying why: not to be had here. */
static bool reserve(long *before)
{
	struct limits_huge huge;

	if (limits_huge("", LIMITS_2M, &huge)) {
		printf("(skipped: the kernel has no 2 MiB pages) ");
		return false;
	}
	*before = (long)huge.total;
	if (limits_huge_left(&huge) >= RESERVE)
		return true;
	if (!write_number(NR_HUGE, *before + RESERVE)) {
		printf("(skipped: " NR_HUGE ": %s) ", strerror(errno));
		return false;
	}
	if (!limits_huge("", LIMITS_2M, &huge) &&
	    limits_huge_left(&huge) >= RESERVE)
		return true;
	printf("(skipped: memory is too fragmented for %d huge pages) ",
	       RESERVE);
	write_number(NR_HUGE, *before);
	return false;
}

static bool child_sees(const char *p, char want)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0)
		_exit(p[0] == want ? 0 : 1);
	waitpid(pid, &status, 0);
	return status == 0;
}

static void use_huge_pages(void)
{
	struct vbn_pool *need = make_pool(VBN_HUGE_REQUIRE_2M, VBN_NUMA_ANY);
	struct vbn_pool *pool = make_pool(VBN_HUGE_AUTO, VBN_NUMA_ANY);
	char *p = vbn_pool_alloc(need, 6 * MIB, 0), *q;
	int n = 0;
	void *peer;

	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	CU_ASSERT_EQUAL(fake_mem_page(p), 2 * MIB);
	memset(p, 0x77, 6 * MIB);
	CU_ASSERT(ftruncate(fake_mem_fd(p), 0) < 0 && errno == EPERM);
	CU_ASSERT(child_sees(p, 0x77));
	/* as a peer on this host maps it */
	peer = mmap(NULL, 6 * MIB, PROT_READ, MAP_SHARED, fake_mem_fd(p), 0);
	CU_ASSERT(peer != MAP_FAILED && !memcmp(peer, p, 6 * MIB));
	munmap(peer, 6 * MIB);
	/* to the last page, and on with small ones */
	do
		q = vbn_pool_alloc(pool, 2 * MIB, 0);
	while (q && memset(q, 1, 2 * MIB) && fake_mem_page(q) == 2 * MIB &&
	       ++n < 100 * RESERVE);
	CU_ASSERT(n > 0);
	CU_ASSERT(q && fake_mem_page(q) == 4096);
	CU_ASSERT_PTR_NULL(vbn_pool_alloc(need, 64 * MIB, 0));
	CU_ASSERT(error_has("2 MiB pages: 32 pages needed"));
	CU_ASSERT(p[0] == 0x77 && p[6 * MIB - 1] == 0x77);
	vbn_pool_destroy(pool);
	destroy_pool(need);
}

static void test_huge_pages(void)
{
	long before;

	if (!reserve(&before))
		return;
	use_huge_pages();
	CU_ASSERT(write_number(NR_HUGE, before));
}

static CU_TestInfo tests[] = {
	{"options", test_options},
	{"limits that bite", test_bites},
	{"less growth", test_less_growth},
	{"descriptors", test_descriptors},
	{"more than there is", test_too_much},
	{"NUMA node", test_node},
	{"full NUMA node", test_node_is_full},
	{"no huge pages", test_no_huge_pages},
	{"smaller pages are said", test_fallback_is_said},
	{"huge pages", test_huge_pages},
	CU_TEST_INFO_NULL,
};

int main(void)
{
	CU_SuiteInfo suites[] = {{"pool limits", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};

	return run_suites(suites);
}
