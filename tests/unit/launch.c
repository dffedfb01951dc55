/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What launchers say: lists of hosts, which address of a host to take, and
 * rank, size and address from the variables of each.
 */
#include "hostlist.h"
#include "options.h"
#include "reach.h"

#include "cunit_run.h"

#include <CUnit/Basic.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ---- */

static int join(void *arg, const char *host)
{
	char *text = arg;
	size_t len = strlen(text);

	snprintf(text + len, 256 - len, "%s%s", len ? " " : "", host);
	return 0;
}

static void lists(const char *list, const char *want)
{
	char text[256] = "";

	CU_ASSERT_EQUAL(hostlist_each(list, join, text), 0);
	CU_ASSERT_STRING_EQUAL(text, want);
}

static void test_lists(void)
{
	lists("a", "a");
	lists("a,b.example.com,c", "a b.example.com c");
	lists("a[1-3,7]", "a1 a2 a3 a7");
	lists("n[08-11]", "n08 n09 n10 n11");
	lists("n[1-2]x,y", "n1x n2x y");
	lists("rack[1-2]n[01-02],b", "rack1n01 rack1n02 rack2n01 rack2n02 b");
	lists("a[1-2]:8", "a1:8 a2:8");
	lists("[fe80::1]:2,::1", "[fe80::1]:2 ::1");
}

static int count(void *arg, const char *host)
{
	(void)host;
	++*(unsigned *)arg;
	return 0;
}

static void test_bad_lists(void)
{
	static const char *const bad[] = {
		"",	 ",",	    "a,",	"a,,b",		"a[",
		"a]",	 "a[]",	    "a[1-2]]",	"a[[1]]",	"a[3-1]",
		"a[1-]", "a[-1]",   "a[1-2-3]", "a[x]",		"a[1,,2]",
		"a[1,]", "a[1 -2]", "a[1-2",	"a[1234567890]"};
	char longest[400], host[8];
	unsigned n = 0;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int rc = hostlist_each(bad[i], count, &n);

		if (rc != -EINVAL)
			fprintf(stderr, "\n\"%s\": %d\n", bad[i], rc);
		CU_ASSERT_EQUAL(rc, -EINVAL);
	}
	n = 0;
	CU_ASSERT_EQUAL(hostlist_each("a[1-99999999]", count, &n), -E2BIG);
	CU_ASSERT_EQUAL(n, HOSTLIST_MAX);
	CU_ASSERT_EQUAL(hostlist_each("a[1-2][1-2][1-2][1-2][1-2][1-2][1-2]"
				      "[1-2][1-2]",
				      count, &n),
			-E2BIG);
	memset(longest, 'x', sizeof(longest));
	longest[sizeof(longest) - 1] = '\0';
	CU_ASSERT_EQUAL(hostlist_each(longest, count, &n), -E2BIG);
	CU_ASSERT_EQUAL(hostlist_first("n[007-009],b", host, sizeof(host)), 0);
	CU_ASSERT_STRING_EQUAL(host, "n007");
	CU_ASSERT_EQUAL(hostlist_first("longer-name", host, sizeof(host)),
			-E2BIG);
}

/* ---- addresses ---- */

static struct netif list[8];
static struct netifs ifs = {list, 0};

static void interface(const char *name, const char *address, unsigned prefix)
{
	struct netif *i = &list[ifs.n++];

	*i = (struct netif){.up = true, .switched_on = true, .prefix = prefix};
	snprintf(i->name, sizeof(i->name), "%s", name);
	snprintf(i->text, sizeof(i->text), "%s", address);
	i->loopback = !strcmp(name, "lo");
	if (strchr(address, ':')) {
		struct sockaddr_in6 *a = (void *)&i->addr.sa;

		a->sin6_family = AF_INET6;
		i->addr.len = sizeof(*a);
		CU_ASSERT_EQUAL(inet_pton(AF_INET6, address, &a->sin6_addr), 1);
	} else {
		struct sockaddr_in *a = (void *)&i->addr.sa;

		a->sin_family = AF_INET;
		i->addr.len = sizeof(*a);
		CU_ASSERT_EQUAL(inet_pton(AF_INET, address, &a->sin_addr), 1);
	}
}

static void listed(const char *ifname, const char *want)
{
	char text[REACH_TEXT];

	reach_list(&ifs, ifname, text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, want);
}

static void test_reach_list(void)
{
	char text[40];

	ifs.n = 0;
	interface("lo", "127.0.0.1", 8);
	listed("", "");
	interface("docker0", "172.17.0.1", 16);
	interface("eth0", "fd00::2", 64);
	interface("eth0", "10.1.2.3", 16);
	interface("ib0", "10.2.2.3", 24);
	listed("", "10.1.2.3/16 10.2.2.3/24 fd00::2/64 172.17.0.1/16");
	listed("ib0", "10.2.2.3/24");
	listed("eth1", "");
	list[4].up = false;
	listed("ib0", "");
	/* What does not fit is left out whole. */
	CU_ASSERT_EQUAL(reach_list(&ifs, "", text, 20), 1);
	CU_ASSERT_STRING_EQUAL(text, "10.1.2.3/16");
}

static void chosen(const char *from, const char *ifname, const char *want)
{
	char host[INET6_ADDRSTRLEN] = "";
	bool found = reach_choose(from, &ifs, ifname, host);

	CU_ASSERT_EQUAL(found, *want != '\0');
	if (found)
		CU_ASSERT_STRING_EQUAL(host, want);
}

static void test_reach_choose(void)
{
	ifs.n = 0;
	interface("lo", "127.0.0.1", 8);
	interface("docker0", "172.17.0.1", 16);
	interface("eth0", "10.1.9.9", 16);
	interface("ib0", "10.2.2.9", 24);
	interface("ib0", "fd00:0:0:2::9", 64);
	/* the first subnet in common */
	chosen("10.1.2.3/16 10.2.2.3/24", "", "10.1.2.3");
	chosen("10.9.2.3/16 10.2.2.3/24", "", "10.2.2.3");
	chosen("10.1.2.3/16 10.2.2.3/24", "ib0", "10.2.2.3");
	chosen("10.9.2.3/16 fd00:0:0:2::1/64", "", "fd00:0:0:2::1");
	/* a router is between: the first */
	chosen("10.9.2.3/16 10.8.2.3/24", "", "10.9.2.3");
	/* a bridge of ours is not theirs, though the address is the same */
	chosen("172.17.0.1/16 10.9.2.3/16", "", "10.9.2.3");
	/* all are ours: this is the host */
	chosen("10.1.9.9/16 10.2.2.9/24", "", "10.1.9.9");
	chosen("127.0.0.1/8", "", "127.0.0.1");
	/* from another process */
	chosen("", "", "");
	chosen("10.1.2.3", "", "");
	chosen("10.1.2.3/", "", "");
	chosen("10.1.2.3/33", "", "");
	chosen("10.1.2/8", "", "");
	chosen("10.1.2.3/-1", "", "");
	chosen("fd00::2/129", "", "");
	chosen("x y z", "", "");
	chosen("10.1.2.3/16 x", "", "");
}

/* ---- variables ---- */

static struct job_config config;

static void clear(void)
{
	static const char *const names[] = {"VBN_RANK",
					    "VBN_SIZE",
					    "VBN_ADDRESS",
					    "VBN_PORT",
					    "VBN_SECRET",
					    "VBN_SECRET_FILE",
					    "VBN_PROVIDER",
					    "VBN_TIMEOUT_MS",
					    "VBN_LISTEN_FD",
					    "VBN_INSECURE",
					    "RANK",
					    "WORLD_SIZE",
					    "MASTER_ADDR",
					    "MASTER_PORT",
					    "VBN_SOCKET_IFNAME",
					    "VBN_LOCAL_SIZE",
					    "LOCAL_WORLD_SIZE",
					    "GROUP_WORLD_SIZE",
					    "GROUP_RANK",
					    "TORCHELASTIC_USE_AGENT_STORE",
					    "PMIX_RANK",
					    "PMIX_NAMESPACE",
					    "OMPI_COMM_WORLD_RANK",
					    "OMPI_COMM_WORLD_SIZE",
					    "PMI_RANK",
					    "PMI_SIZE",
					    "JOB_COMPLETION_INDEX",
					    "SLURM_PROCID",
					    "SLURM_NTASKS",
					    "SLURM_STEP_NUM_TASKS",
					    "SLURM_STEP_NODELIST",
					    "SLURM_JOB_NODELIST",
					    "SLURM_STEP_NUM_NODES",
					    "SLURM_NODEID",
					    "SLURM_JOB_ID",
					    "SLURM_STEP_ID",
					    "SLURMD_NODENAME",
					    "SLURM_STEP_RESV_PORTS"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unsetenv(names[i]);
}

/* "NAME=value NAME=value": the whole environment that matters. */
static int resolve(const char *text)
{
	char copy[512], *save = NULL, *word, *value;
	int rc;

	clear();
	setenv("VBN_SECRET", "s", 1);
	snprintf(copy, sizeof(copy), "%s", text);
	for (word = strtok_r(copy, " ", &save); word;
	     word = strtok_r(NULL, " ", &save)) {
		value = strchr(word, '=');
		*value++ = '\0';
		setenv(word, value, 1);
	}
	job_config_wipe(&config);
	rc = job_options_resolve(NULL, &config);
	clear();
	return rc;
}

static void gives(const char *text, int rank, int nranks, const char *host)
{
	int rc = resolve(text);

	if (rc)
		fprintf(stderr, "\n%s: %s\n", text, vbn_error());
	CU_ASSERT_EQUAL_FATAL(rc, 0);
	CU_ASSERT_EQUAL(config.rank, rank);
	CU_ASSERT_EQUAL(config.nranks, nranks);
	CU_ASSERT_STRING_EQUAL(config.host, host);
}

static void fails(const char *text, const char *words)
{
	int rc = resolve(text);

	if (rc >= 0 || !strstr(vbn_error(), words))
		fprintf(stderr, "\n%s: %d \"%s\" lacks \"%s\"\n", text, rc,
			vbn_error(), words);
	CU_ASSERT(rc < 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), words));
}

#define STEP                                                                   \
	"SLURM_STEP_NUM_TASKS=8 SLURM_STEP_NUM_NODES=2 SLURM_JOB_ID=7 "        \
	"SLURM_STEP_ID=0 "

static void test_slurm(void)
{
	uint16_t port;

	gives(STEP "SLURM_PROCID=5 SLURM_NODEID=1 "
		   "SLURM_STEP_NODELIST=gpu[03-04] SLURMD_NODENAME=gpu04",
	      5, 8, "gpu03");
	port = config.port;
	CU_ASSERT(port >= 61000 && port < 65500);
	CU_ASSERT_EQUAL(config.launch.several_hosts, YES);
	CU_ASSERT_EQUAL(config.launch.rank0_here, NO);
	gives(STEP "SLURM_PROCID=0 SLURM_NODEID=0 "
		   "SLURM_STEP_NODELIST=gpu[03-04] SLURMD_NODENAME=gpu03",
	      0, 8, "gpu03");
	CU_ASSERT_EQUAL(config.port, port);
	/* another step, another port */
	gives("SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_PROCID=1 "
	      "SLURM_JOB_ID=7 SLURM_STEP_ID=1 SLURM_STEP_NODELIST=x",
	      1, 2, "127.0.0.1");
	CU_ASSERT_NOT_EQUAL(config.port, port);
	gives(STEP "SLURM_PROCID=1 SLURM_STEP_NODELIST=a,b "
		   "SLURM_STEP_RESV_PORTS=12010-12011",
	      1, 8, "a");
	CU_ASSERT_EQUAL(config.port, 12010);
	gives(STEP "SLURM_PROCID=1 SLURM_STEP_NODELIST=a,b VBN_PORT=5000 "
		   "SLURM_STEP_RESV_PORTS=12010-12011",
	      1, 8, "a");
	CU_ASSERT_EQUAL(config.port, 5000);
	gives(STEP "SLURM_PROCID=1 MASTER_ADDR=m MASTER_PORT=9", 1, 8, "m");
	gives(STEP "SLURM_PROCID=1 VBN_ADDRESS=m:9", 1, 8, "m");
	fails(STEP "SLURM_PROCID=1", "does not name rank 0's node");
	fails(STEP "SLURM_PROCID=1 SLURM_STEP_NODELIST=a[", "no list of hosts");
	fails(STEP "SLURM_PROCID=8 SLURM_STEP_NODELIST=a", "less than SLURM_S");
	fails(STEP "SLURM_PROCID=0 SLURM_STEP_NODELIST=a,b SLURMD_NODENAME=b",
	      "rank 0 is not on its first node");
	fails(STEP "SLURM_PROCID=1 SLURM_STEP_NODELIST=a VBN_PORT=0",
	      "VBN_PORT is \"0\"");
	fails(STEP "SLURM_PROCID=1 SLURM_STEP_NODELIST=a VBN_SECRET=",
	      "or use srun --mpi=pmix");
	/* a batch script's own process */
	gives("SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=7", 0, 1, "");
}

static void test_mpi(void)
{
	gives("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 VBN_ADDRESS=a:1",
	      2, 4, "a");
	fails("OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4",
	      "set VBN_ADDRESS");
	gives("PMI_RANK=3 PMI_SIZE=4 VBN_ADDRESS=a:1", 3, 4, "a");
	fails("PMI_RANK=3 PMI_SIZE=4", "set VBN_ADDRESS");
	/* srun --mpi=pmi2: the same ranks */
	gives(STEP "SLURM_PROCID=3 SLURM_STEP_NODELIST=a,b PMI_RANK=3 "
		   "PMI_SIZE=8",
	      3, 8, "a");
	/* mpirun of MPICH inside of a step of one task a node */
	gives(STEP "SLURM_PROCID=1 SLURM_STEP_NODELIST=a,b PMI_RANK=30 "
		   "PMI_SIZE=32 VBN_ADDRESS=c:1",
	      30, 32, "c");
}

static void test_order(void)
{
	gives("VBN_RANK=1 VBN_SIZE=2 VBN_ADDRESS=a:1 RANK=3 WORLD_SIZE=4 "
	      "PMIX_RANK=0 PMIX_NAMESPACE=x SLURM_PROCID=5 "
	      "SLURM_STEP_NUM_TASKS=8",
	      1, 2, "a");
	gives("RANK=3 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=1 PMIX_RANK=0 "
	      "PMIX_NAMESPACE=x SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8",
	      3, 4, "a");
}

static void test_torchrun(void)
{
	static const char *const job =
		"RANK=1 WORLD_SIZE=4 MASTER_ADDR=a MASTER_PORT=29500 "
		"LOCAL_WORLD_SIZE=2 GROUP_WORLD_SIZE=2 GROUP_RANK=0 ";
	char text[256];

	gives(job, 1, 4, "a");
	CU_ASSERT_EQUAL(config.port, 29500);
	CU_ASSERT_EQUAL(config.launch.several_hosts, YES);
	snprintf(text, sizeof(text), "%sTORCHELASTIC_USE_AGENT_STORE=False",
		 job);
	gives(text, 1, 4, "a");
	CU_ASSERT_EQUAL(config.port, 29500);
	/* The agent listens at MASTER_PORT itself. */
	snprintf(text, sizeof(text), "%sTORCHELASTIC_USE_AGENT_STORE=True",
		 job);
	gives(text, 1, 4, "a");
	CU_ASSERT(config.port >= 61000);
	snprintf(text, sizeof(text), "%sVBN_PORT=4", job);
	gives(text, 1, 4, "a");
	CU_ASSERT_EQUAL(config.port, 4);
}

static void test_kubernetes(void)
{
	gives("JOB_COMPLETION_INDEX=3 VBN_SIZE=4 VBN_ADDRESS=job-0.svc:4700", 3,
	      4, "job-0.svc");
	gives("JOB_COMPLETION_INDEX=3 VBN_RANK=1 VBN_SIZE=4 VBN_ADDRESS=a:1", 1,
	      4, "a");
	gives("JOB_COMPLETION_INDEX=3", 0, 1, "");
	fails("JOB_COMPLETION_INDEX=4 VBN_SIZE=4 VBN_ADDRESS=a:1",
	      "JOB_COMPLETION_INDEX is 4: it must be less than VBN_SIZE");
	fails("JOB_COMPLETION_INDEX=3 VBN_SIZE=4", "set VBN_ADDRESS");
}

static CU_TestInfo tests[] = {
	{"lists of hosts", test_lists},
	{"bad lists", test_bad_lists},
	{"addresses of a host", test_reach_list},
	{"which address", test_reach_choose},
	{"Slurm", test_slurm},
	{"MPI", test_mpi},
	{"which launcher", test_order},
	{"torchrun", test_torchrun},
	{"Kubernetes", test_kubernetes},
	CU_TEST_INFO_NULL,
};

int main(void)
{
	CU_SuiteInfo suites[] = {{"launch", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};
	int status = run_suites(suites);

	job_config_wipe(&config);
	return status;
}
