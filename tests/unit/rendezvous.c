/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the ranks meet: the choice on made-up machines, and what launchers'
 * variables say of the hosts.
 */
#include "rendezvous.h"

#include "cunit_run.h"

#include <CUnit/Basic.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <verbena/job.h>

#define PORT 4711

static struct rendezvous_facts facts;
static struct rendezvous_plan plan;
static struct netif netifs[8];

static struct net_addr address(const char *text)
{
	struct net_addr a = {.len = sizeof(struct sockaddr_in)};
	struct sockaddr_in *in4 = (struct sockaddr_in *)&a.sa;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&a.sa;

	if (strchr(text, ':')) {
		a.len = sizeof(*in6);
		in6->sin6_family = AF_INET6;
		CU_ASSERT_EQUAL(inet_pton(AF_INET6, text, &in6->sin6_addr), 1);
	} else {
		in4->sin_family = AF_INET;
		CU_ASSERT_EQUAL(inet_pton(AF_INET, text, &in4->sin_addr), 1);
	}
	return a;
}

static void add_netif(const char *name, const char *text)
{
	struct netif *i = &netifs[facts.ifs.n++];

	*i = (struct netif){.up = true, .switched_on = true};
	snprintf(i->name, sizeof(i->name), "%s", name);
	snprintf(i->text, sizeof(i->text), "%s", text);
	i->loopback = !strcmp(name, "lo");
	i->link_local = !strncmp(text, "fe80:", 5);
	i->addr = address(text);
}

/* A host with eth0 10.1.2.3 and ib0 10.2.2.3; @found: what the name is. */
static void machine(int rank, const char *host, const char *found)
{
	char copy[128], *save = NULL;

	facts = (struct rendezvous_facts){.rank = rank,
					  .nranks = 2,
					  .host = host,
					  .port = PORT,
					  .ifname = "",
					  .launch.rank0_here =
						  rank ? UNKNOWN : YES};
	facts.ifs.list = netifs;
	add_netif("lo", "127.0.0.1");
	add_netif("eth0", "fe80::1");
	add_netif("eth0", "10.1.2.3");
	add_netif("ib0", "10.2.2.3");
	snprintf(copy, sizeof(copy), "%s", found);
	for (char *p = strtok_r(copy, " ", &save); p;
	     p = strtok_r(NULL, " ", &save))
		facts.found[facts.nfound++] = address(p);
}

static bool is(const struct net_addr *a, const char *text)
{
	struct net_addr b = address(text);

	return net_addr_same(a, &b);
}

static void fails(int err, const char *words)
{
	CU_ASSERT_EQUAL(rendezvous_choose(&facts, &plan), err);
	if (!strstr(vbn_error(), words))
		fprintf(stderr, "\n\"%s\" lacks \"%s\"\n", vbn_error(), words);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), words));
}

static void chooses(const char *first, size_t n)
{
	CU_ASSERT_EQUAL(rendezvous_choose(&facts, &plan), 0);
	CU_ASSERT_FALSE(plan.any);
	CU_ASSERT_EQUAL(plan.n, n);
	CU_ASSERT(is(&plan.addr[0], first));
	CU_ASSERT_EQUAL(
		ntohs(((struct sockaddr_in *)&plan.addr[0].sa)->sin_port),
		PORT);
}

static void test_routable(void)
{
	machine(0, "node", "10.1.2.3");
	chooses("10.1.2.3", 1);
	CU_ASSERT_STRING_EQUAL(plan.why, "");
	/* What other hosts reach comes first; the rest only if of use. */
	machine(0, "node", "127.0.1.1 10.1.2.3");
	chooses("10.1.2.3", 2);
	facts.launch.several_hosts = YES;
	chooses("10.1.2.3", 1);
}

static void test_own_name(void)
{
	machine(0, "node", "127.0.1.1");
	CU_ASSERT_EQUAL(rendezvous_choose(&facts, &plan), 0);
	CU_ASSERT(plan.any);
	CU_ASSERT_PTR_NOT_NULL(strstr(plan.why, "eth0 10.1.2.3, ib0 10.2.2.3"));
	facts.launch.several_hosts = YES;
	CU_ASSERT_EQUAL(rendezvous_choose(&facts, &plan), 0);
	CU_ASSERT(plan.any);
	facts.launch.several_hosts = NO;
	chooses("127.0.1.1", 1);

	machine(1, "node", "127.0.1.1");
	chooses("127.0.1.1", 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(plan.why, "which is this machine"));
	facts.launch = (struct launch){YES, YES, "why"};
	chooses("127.0.1.1", 1);
	facts.launch.rank0_here = NO;
	fails(-EADDRNOTAVAIL, "rank 0 is on another (why)");

	/* No interface to be reached by. */
	machine(0, "node", "127.0.1.1");
	netifs[2].up = netifs[3].up = false;
	chooses("127.0.1.1", 1);
	facts.launch.several_hosts = YES;
	fails(-EADDRNOTAVAIL, "no interface that they reach is up");
}

static void test_loopback(void)
{
	static const char *const hosts[] = {"127.0.0.1", "localhost"};

	for (int i = 0; i < 2; i++) {
		machine(i, hosts[i], "127.0.0.1");
		chooses("127.0.0.1", 1);
		facts.launch.several_hosts = NO;
		chooses("127.0.0.1", 1);
		facts.launch.several_hosts = YES;
		fails(-EADDRNOTAVAIL, hosts[i]);
		CU_ASSERT_EQUAL(strstr(vbn_error(), "10.1.2.3") != NULL,
				i == 0);
	}
	machine(0, "::1", "::1");
	facts.launch.several_hosts = YES;
	fails(-EADDRNOTAVAIL, "::1");
	/* Every address: to listen at, but not to go to. */
	machine(0, "0.0.0.0", "0.0.0.0");
	facts.launch.several_hosts = YES;
	chooses("0.0.0.0", 1);
	facts.rank = 1;
	fails(-EADDRNOTAVAIL, "0.0.0.0");
}

static void test_interface(void)
{
	machine(0, "node", "127.0.1.1");
	facts.ifname = "ib0";
	chooses("10.2.2.3", 1);
	machine(1, "node", "127.0.1.1"); /* beside rank 0: the same */
	facts.ifname = "ib0";
	chooses("10.2.2.3", 1);

	machine(0, "node", "10.1.2.3 10.2.2.3");
	facts.ifname = "ib0";
	chooses("10.2.2.3", 1);
	machine(0, "node", "10.1.2.3");
	facts.ifname = "ib0";
	fails(-EADDRNOTAVAIL, "go to 10.1.2.3, as node");
	machine(1, "other", "10.1.9.9");
	facts.ifname = "ib0";
	chooses("10.1.9.9", 1);
	CU_ASSERT(plan.nfrom == 1 && is(&plan.from[0], "10.2.2.3"));
	CU_ASSERT_EQUAL(((struct sockaddr_in *)&plan.from[0].sa)->sin_port, 0);

	facts.ifname = "ib7";
	fails(-ENODEV, "eth0 10.1.2.3");
	facts.ifname = "ib0";
	netifs[3].up = false;
	fails(-ENETDOWN, "down");
	/* A job on one host does without. */
	machine(0, "localhost", "127.0.0.1");
	facts.ifname = "ib7";
	chooses("127.0.0.1", 1);
}

/* What promises most comes first: bridges, link-local and down ones last. */
static void test_order(void)
{
	machine(0, "node", "172.17.0.1 169.254.3.3 10.1.2.3 fd00::3");
	add_netif("docker0", "172.17.0.1");
	add_netif("eth0", "fd00::3");
	chooses("10.1.2.3", 4);
	CU_ASSERT(is(&plan.addr[1], "fd00::3"));
	CU_ASSERT(is(&plan.addr[2], "169.254.3.3"));
	CU_ASSERT(is(&plan.addr[3], "172.17.0.1"));
	CU_ASSERT_STRING_EQUAL(plan.why, "");
	netifs[2].up = false; /* eth0's IPv4 address */
	CU_ASSERT_EQUAL(rendezvous_choose(&facts, &plan), 0);
	CU_ASSERT(is(&plan.addr[0], "fd00::3"));
	CU_ASSERT(is(&plan.addr[3], "10.1.2.3"));
	/* The others go the same way, unless they have that bridge themselves.
	 */
	facts.rank = 1;
	facts.launch = (struct launch){YES, NO, "why"};
	machine(1, "node", "172.17.0.1 10.1.2.9");
	add_netif("docker0", "172.17.0.1");
	chooses("10.1.2.9", 2);
	facts.launch = (struct launch){YES, NO, "why"};
	chooses("10.1.2.9", 1);
}

/* A wrong choice is reported with the candidates. */
static void test_wrong_address(void)
{
	char text[128];

	machine(0, "172.17.0.1", "172.17.0.1");
	add_netif("docker0", "172.17.0.1");
	CU_ASSERT_STRING_EQUAL(
		netifs_candidates(&facts.ifs, text, sizeof(text)),
		"eth0 10.1.2.3, ib0 10.2.2.3, docker0 172.17.0.1");
	facts.launch.several_hosts = YES;
	chooses("172.17.0.1", 1);
	CU_ASSERT(plan.doubtful);
	CU_ASSERT_PTR_NOT_NULL(strstr(plan.why, "docker0, a bridge"));
	CU_ASSERT_PTR_NOT_NULL(strstr(plan.why, "eth0 10.1.2.3, ib0"));
	facts.launch.several_hosts = NO;
	chooses("172.17.0.1", 1);
	CU_ASSERT_STRING_EQUAL(plan.why, "");

	machine(1, "172.17.0.1", "172.17.0.1");
	add_netif("docker0", "172.17.0.1");
	facts.launch = (struct launch){YES, NO, "why"};
	fails(-EADDRNOTAVAIL, "172.17.0.1 is this machine's own (docker0)");
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "eth0 10.1.2.3, ib0"));
}

static void test_families(void)
{
	machine(0, "node", "fd00::3 10.1.2.3");
	chooses("fd00::3", 2); /* the resolver's order */
	machine(0, "fe80::1", "fe80::1");
	facts.launch.several_hosts = YES;
	chooses("fe80::1", 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(plan.why, "link-local"));
	machine(0, "node", "127.0.1.1");
	add_netif("ib1", "fd00::9");
	facts.ifname = "ib1"; /* IPv6 alone */
	chooses("fd00::9", 1);
}

/* ---- launchers ---- */

static void launch(const char *text, int rank, int nranks, enum certainty hosts,
		   enum certainty here)
{
	char copy[256], *save = NULL, *value;
	struct launch l;

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *p = strtok_r(copy, " ", &save); p;
	     p = strtok_r(NULL, " ", &save)) {
		value = strchr(p, '=');
		*value++ = '\0';
		setenv(p, value, 1);
	}
	CU_ASSERT_EQUAL(launch_read(rank, nranks, &l), 0);
	if (l.several_hosts != hosts || l.rank0_here != here)
		fprintf(stderr, "\n%s, rank %d: %d %d\n", text, rank,
			l.several_hosts, l.rank0_here);
	CU_ASSERT_EQUAL(l.several_hosts, hosts);
	CU_ASSERT_EQUAL(l.rank0_here, here);
	CU_ASSERT_EQUAL(l.why[0] != '\0', hosts != UNKNOWN);
	snprintf(copy, sizeof(copy), "%s", text);
	for (char *p = strtok_r(copy, " ", &save); p;
	     p = strtok_r(NULL, " ", &save)) {
		*strchr(p, '=') = '\0';
		unsetenv(p);
	}
}

static void test_launchers(void)
{
	struct launch l;

	launch("", 1, 2, UNKNOWN, UNKNOWN);
	launch("", 0, 2, UNKNOWN, YES);
	launch("VBN_LOCAL_SIZE=2", 1, 2, NO, YES);
	launch("VBN_LOCAL_SIZE=1", 1, 2, YES, NO);
	launch("VBN_LOCAL_SIZE=2", 3, 4, YES, UNKNOWN);
	launch("WORLD_SIZE=4 LOCAL_WORLD_SIZE=2", 3, 4, YES, UNKNOWN);
	launch("WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_WORLD_SIZE=2 "
	       "GROUP_RANK=1",
	       3, 4, YES, NO);
	launch("WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 GROUP_WORLD_SIZE=2 "
	       "GROUP_RANK=0",
	       1, 4, YES, YES);
	launch("WORLD_SIZE=4 LOCAL_WORLD_SIZE=4", 3, 4, NO, YES);
	launch("SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=2 SLURM_NODEID=1",
	       3, 4, YES, NO);
	launch("SLURM_STEP_NUM_TASKS=4 SLURM_STEP_NUM_NODES=1 SLURM_NODEID=0",
	       3, 4, NO, YES);
	launch("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=1", 3, 4, YES,
	       NO);
	launch("PMI_SIZE=4 MPI_LOCALNRANKS=4", 3, 4, NO, YES);
	/* Of another job, and nonsense. */
	launch("WORLD_SIZE=16 LOCAL_WORLD_SIZE=8", 1, 2, UNKNOWN, UNKNOWN);
	launch("WORLD_SIZE=2 LOCAL_WORLD_SIZE=x", 1, 2, UNKNOWN, UNKNOWN);
	launch("WORLD_SIZE=2 LOCAL_WORLD_SIZE=3", 1, 2, UNKNOWN, UNKNOWN);
	launch("VBN_LOCAL_SIZE=2 WORLD_SIZE=2 LOCAL_WORLD_SIZE=1", 1, 2, NO,
	       YES);
	setenv("VBN_LOCAL_SIZE", "3", 1);
	CU_ASSERT_EQUAL(launch_read(0, 2, &l), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "from 1 to 2"));
	unsetenv("VBN_LOCAL_SIZE");
}

static CU_TestInfo tests[] = {
	{"a routable address", test_routable},
	{"own name is the loopback address", test_own_name},
	{"the loopback address given", test_loopback},
	{"an interface given", test_interface},
	{"the order of addresses", test_order},
	{"an address that others do not reach", test_wrong_address},
	{"IPv4 and IPv6", test_families},
	{"launchers", test_launchers},
	CU_TEST_INFO_NULL,
};

int main(void)
{
	CU_SuiteInfo suites[] = {{"rendezvous", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};

	return run_suites(suites);
}
