/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The doctor's rules on made-up machines: a machine without fault has no
 * problem; each fault alone gives its problem and no other; what is printed as
 * text and as JSON is the same list.
 */
#include "info.h"

#include "cunit_run.h"

#include <CUnit/Basic.h>
#include <arpa/inet.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GIB ((uint64_t)1 << 30)

/* A host with a hardware RoCE port on eth2 and an InfiniBand port. */
static struct info info;
static struct inspect_report verbs;
static struct inspect_device devices[2], *roce = &devices[0], *ib = &devices[1];
static struct inspect_port ports[2];
static struct inspect_gid gids[2];
static struct netif netifs[3], *eth2 = &netifs[1], *ib0 = &netifs[2];
static struct info_variable variable;
static struct problems problems;

static void set_netif(struct netif *i, const char *name, const char *text)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&i->addr.sa;

	*i = (struct netif){.up = true,
			    .switched_on = true,
			    .loopback = !strcmp(name, "lo"),
			    .prefix = 24,
			    .mtu = 9000,
			    .addr.len = sizeof(*in)};
	snprintf(i->name, sizeof(i->name), "%s", name);
	snprintf(i->text, sizeof(i->text), "%s", text);
	in->sin_family = AF_INET;
	inet_pton(AF_INET, text, &in->sin_addr);
}

static void set_device(struct inspect_device *d, struct inspect_port *port,
		       const char *name, const char *layer, const char *netdev)
{
	*d = (struct inspect_device){.openable = true,
				     .usable = true,
				     .admitted = true,
				     .has_atomics = true,
				     .ports = port,
				     .nports = 1};
	snprintf(d->name, sizeof(d->name), "%s", name);
	snprintf(d->atomics, sizeof(d->atomics), "device");
	*port = (struct inspect_port){.number = 1,
				      .active = true,
				      .usable = true,
				      .active_mtu = 4096,
				      .max_mtu = 4096,
				      .pkeys = 1,
				      .pkey_found = true};
	snprintf(port->state, sizeof(port->state), "PORT_ACTIVE");
	snprintf(port->link_layer, sizeof(port->link_layer), "%s", layer);
	snprintf(port->netdev, sizeof(port->netdev), "%s", netdev);
}

static void set_gid(struct inspect_gid *g, unsigned index, const char *type,
		    const char *address)
{
	*g = (struct inspect_gid){.index = index, .readable = true};
	snprintf(g->type, sizeof(g->type), "%s", type);
	snprintf(g->address, sizeof(g->address), "%s", address);
	snprintf(g->why, sizeof(g->why), "because");
}

static void set_limits(struct info_limits *l)
{
	*l = (struct info_limits){
		.memlock_known = true,
		.maps_known = true,
		.files_known = true,
		.cgroup_known = true,
		.pids_known = true,
		.memory_known = true,
		.huge_2m_known = true,
		.memlock = {.soft = LIMITS_NONE, .hard = LIMITS_NONE},
		.maps = {.limit = 65530, .used = 60},
		.files = {.soft = 65536, .hard = 65536, .used = 5},
		.cgroup = {.limit = LIMITS_NONE},
		.pids = {.limit = LIMITS_NONE},
		.memory = {.total = 64 * GIB, .available = 32 * GIB},
		.huge_2m = {.total = 512, .free = 512},
	};
}

static void healthy(void)
{
	static const char *const names[] = {"shm", "verbs", "ucx"};

	memset(&info, 0, sizeof(info));
	memset(&verbs, 0, sizeof(verbs));
	for (int i = 0; i < INFO_PROVIDERS; i++)
		info.providers[i] = (struct info_provider){.name = names[i],
							   .usable = true};
	set_netif(&netifs[0], "lo", "127.0.0.1");
	set_netif(eth2, "eth2", "10.1.2.3");
	set_netif(ib0, "ib0", "10.2.2.3");
	info.network.ifs = (struct netifs){netifs, 3};
	info.network.resolves = true;
	snprintf(info.network.hostname, sizeof(info.network.hostname), "node");
	set_device(roce, &ports[0], "mlx5_0", "Ethernet", "eth2");
	set_device(ib, &ports[1], "mlx5_1", "InfiniBand", "");
	set_gid(&gids[0], 0, "RoCE v1", "fe80::1");
	set_gid(&gids[1], 1, "RoCE v2", "::ffff:10.1.2.3");
	ports[0].gids = gids;
	ports[0].ngids = 2;
	ports[1].lid = 7;
	ports[1].chosen = true;
	verbs = (struct inspect_report){
		.devices = devices, .ndevices = 2, .usable = true};
	info.verbs = &verbs;
	set_limits(&info.limits);
	info.system.yama = -1;
	info.system.kernel_major = 6;
	info.system.kernel_minor = 1;
}

/* ---- faults ---- */

static void no_provider(void)
{
	for (int i = 0; i < INFO_PROVIDERS; i++)
		info.providers[i].usable = false;
}

static void forced(void)
{
	snprintf(info.forced, sizeof(info.forced), "verbs");
	info.providers[INFO_VERBS].usable = false;
}

static void no_shm(void)
{
	info.providers[INFO_SHM].usable = false;
}

static void no_ucx(void)
{
	info.providers[INFO_UCX].usable = false;
}

static void no_ucx_small_shm(void)
{
	no_ucx();
	info.limits.shm_known = true;
	info.limits.dev_shm = info.limits.dev_shm_free = 65536;
}

static void add_variable(bool known)
{
	variable = (struct info_variable){.known = known, .bad = known};
	snprintf(variable.name, sizeof(variable.name), "VBN_IB_RETRY_CNT");
	info.variables = &variable;
	info.nvariables = 1;
}

static void unknown_variable(void)
{
	add_variable(false);
}

static void bad_variable(void)
{
	add_variable(true);
}

static void verbs_unknown(void)
{
	info.verbs = NULL;
}

static void no_device(void)
{
	verbs.ndevices = 0;
}

static void hidden_device(void)
{
	verbs.ndevices = 0;
	info.system.container = true;
	snprintf(info.system.sys_devices, sizeof(info.system.sys_devices),
		 "mlx5_0");
}

static void not_openable(void)
{
	roce->openable = roce->usable = false;
}

static void unusable(void)
{
	ib->usable = false;
}

static void no_atomics(void)
{
	ib->has_atomics = false;
}

static void port_down(void)
{
	ports[0].active = false;
}

static void no_gid(void)
{
	gids[0].readable = gids[1].readable = false;
}

static void v1_only(void)
{
	ports[0].gids = &gids[0];
	ports[0].ngids = 1;
	set_gid(&gids[0], 0, "RoCE v1", "::ffff:10.1.2.3");
}

static void link_local_only(void)
{
	set_gid(&gids[1], 1, "RoCE v2", "::ffff:169.254.1.2");
}

static void small_mtu(void)
{
	ports[0].active_mtu = 1024;
	eth2->mtu = 1500;
}

static void lossless(void)
{
	ports[0].chosen = true;
}

static void no_lid(void)
{
	ports[1].lid = 0;
}

static void no_pkey(void)
{
	ports[1].pkey_found = false;
}

static void one_subnet(void)
{
	snprintf(ports[1].netdev, sizeof(ports[1].netdev), "ib0");
	set_netif(ib0, "ib0", "10.1.2.4");
}

static void soft_roce(void)
{
	roce->software = true;
}

static void memlock_low(void)
{
	info.limits.memlock.soft = GIB;
}

static void memlock_tiny(void)
{
	info.limits.memlock.soft = 65536;
}

static void memlock_no_device(void)
{
	verbs.ndevices = 0;
	info.limits.memlock.soft = 65536;
}

static void files_low(void)
{
	info.limits.files.soft = 256;
}

static void files_tiny(void)
{
	info.limits.files.soft = 64;
}

static void maps_low(void)
{
	info.limits.maps.limit = 4096;
}

static void cgroup_low(void)
{
	info.limits.cgroup.limit = GIB;
	info.limits.cgroup.used = GIB - 4096;
}

static void pids_low(void)
{
	info.limits.pids.limit = 100;
	info.limits.pids.used = 90;
}

static void memory_low(void)
{
	info.limits.memory.available = GIB / 16;
}

static void no_huge(void)
{
	info.limits.huge_2m.free = 0;
}

static void vm_denied(void)
{
	info.system.vm_write_errno = EPERM;
}

static void yama(void)
{
	info.system.yama = 1;
}

static void old_kernel(void)
{
	info.system.kernel_major = 5;
	info.system.kernel_minor = 10;
}

static void retry(void)
{
	snprintf(info.system.ucx_retry, sizeof(info.system.ucx_retry),
		 "UCX_RC_RETRY_COUNT=7");
}

static void loopback_down(void)
{
	netifs[0].up = false;
}

static void no_interface(void)
{
	eth2->up = ib0->up = false;
}

static void bad_ifname(void)
{
	snprintf(info.network.ifname, sizeof(info.network.ifname), "eth9");
}

static void name_unknown(void)
{
	info.network.resolves = false;
}

static void name_loopback(void)
{
	info.network.resolves_to_loopback_only = true;
}

static const struct fault {
	void (*make)(void);
	enum severity severity;
	const char *id, *words;
	size_t n; /* problems that it makes in all */
} faults[] = {
	{no_provider, SEVERITY_ERROR, "no-provider", "no job can run", 3},
	{forced, SEVERITY_ERROR, "forced-provider-unusable", "verbs", 1},
	{no_shm, SEVERITY_WARNING, "shm-unusable", "memfd", 1},
	{no_ucx, SEVERITY_WARNING, "ucx-unusable", "libucx0", 1},
	{no_ucx_small_shm, SEVERITY_WARNING, "ucx-unusable", "room for 64 KiB",
	 1},
	{unknown_variable, SEVERITY_WARNING, "unknown-variable",
	 "VBN_IB_RETRY_CNT", 1},
	{bad_variable, SEVERITY_ERROR, "bad-variable", "VBN_IB_RETRY_CNT", 1},
	{verbs_unknown, SEVERITY_WARNING, "rdma-unknown", "cannot be listed",
	 1},
	{no_device, SEVERITY_WARNING, "no-rdma-device", "rdma link add", 1},
	{hidden_device, SEVERITY_WARNING, "rdma-device-hidden",
	 "--device=/dev/infiniband", 1},
	{not_openable, SEVERITY_WARNING, "device-not-openable", "uverbsN", 1},
	{unusable, SEVERITY_WARNING, "device-unusable", "mlx5_1", 1},
	{no_atomics, SEVERITY_NOTE, "no-atomics", "EOPNOTSUPP", 1},
	{port_down, SEVERITY_WARNING, "port-down", "ip link set eth2 up", 1},
	{no_gid, SEVERITY_WARNING, "no-gid", "dev eth2", 1},
	{v1_only, SEVERITY_WARNING, "no-roce-v2", "cma_roce_mode", 1},
	{link_local_only, SEVERITY_WARNING, "link-local-gids",
	 "ip addr add ADDRESS/24 dev eth2", 1},
	{small_mtu, SEVERITY_WARNING, "roce-mtu", "ip link set dev eth2 mtu",
	 1},
	{lossless, SEVERITY_NOTE, "pfc-ecn-unseen", "mlnx_qos -i eth2", 1},
	{no_lid, SEVERITY_WARNING, "no-lid", "opensm", 1},
	{no_pkey, SEVERITY_WARNING, "pkey-missing", "VBN_IB_PKEY", 1},
	{one_subnet, SEVERITY_WARNING, "ports-in-one-subnet", "arp_announce",
	 1},
	{soft_roce, SEVERITY_NOTE, "ucx-soft-roce", "UCX_TLS=rc_v,self", 1},
	{memlock_low, SEVERITY_WARNING, "memlock-low", "ulimit -l unlimited",
	 1},
	{memlock_tiny, SEVERITY_ERROR, "memlock-low", "64 KiB", 1},
	{memlock_no_device, SEVERITY_NOTE, "memlock-low", "none here", 2},
	{files_low, SEVERITY_WARNING, "open-files-low", "ulimit -n 65536", 1},
	{files_tiny, SEVERITY_ERROR, "open-files-low", "64 files", 1},
	{maps_low, SEVERITY_WARNING, "map-count-low", "vm.max_map_count", 1},
	{cgroup_low, SEVERITY_WARNING, "cgroup-memory-low", "4 KiB of 1 GiB",
	 1},
	{pids_low, SEVERITY_WARNING, "pids-low", "10 of 100", 1},
	{memory_low, SEVERITY_WARNING, "memory-low", "64 MiB", 1},
	{no_huge, SEVERITY_NOTE, "no-huge-pages", "vm.nr_hugepages", 1},
	{vm_denied, SEVERITY_WARNING, "vm-write-denied", "SYS_PTRACE", 1},
	{yama, SEVERITY_WARNING, "ptrace-scope", "ptrace_scope=0", 1},
	{old_kernel, SEVERITY_NOTE, "no-copy-on-fork", "fork()", 1},
	{retry, SEVERITY_WARNING, "retry-without-end", "UCX_RC_RETRY_COUNT=7",
	 1},
	{loopback_down, SEVERITY_ERROR, "loopback-down", "ip link set lo up",
	 1},
	{no_interface, SEVERITY_WARNING, "no-interface", "this machine only",
	 1},
	{bad_ifname, SEVERITY_ERROR, "socket-ifname", "eth9", 1},
	{name_unknown, SEVERITY_WARNING, "hostname-unknown", "/etc/hosts", 1},
	{name_loopback, SEVERITY_WARNING, "hostname-loopback", "127.0.1.1", 1},
};

#define FAULTS (sizeof(faults) / sizeof(faults[0]))

static const struct problem *find(const char *id)
{
	for (size_t i = 0; i < problems.n; i++)
		if (!strcmp(problems.list[i].id, id))
			return &problems.list[i];
	return NULL;
}

static void complain(const char *id)
{
	fprintf(stderr, "\n%s gives:\n", id);
	for (size_t i = 0; i < problems.n; i++)
		fprintf(stderr, "  %s: %s | %s\n", problems.list[i].id,
			problems.list[i].what, problems.list[i].fix);
}

static void test_healthy(void)
{
	healthy();
	doctor(&info, &problems);
	if (problems.n)
		complain("a healthy machine");
	CU_ASSERT_EQUAL(problems.n, 0);
}

static void test_each(void)
{
	for (size_t i = 0; i < FAULTS; i++) {
		const struct fault *f = &faults[i];
		const struct problem *p;
		bool right;

		healthy();
		f->make();
		doctor(&info, &problems);
		p = find(f->id);
		right = p && p->severity == f->severity && problems.n == f->n &&
			(strstr(p->what, f->words) || strstr(p->fix, f->words));
		if (!right)
			complain(f->id);
		CU_ASSERT(right);
		/* Cut off at the end, it would not say what to do. */
		CU_ASSERT(p && p->fix[0] && strlen(p->fix) < INFO_LINE - 1);
	}
}

/* What must not be called a fault. */
static void test_fine(void)
{
	healthy();
	info.limits.memlock.soft = 65536;
	info.limits.memlock.unbounded = true;
	info.limits.huge_2m.free = 0;
	snprintf(info.limits.thp_shmem, sizeof(info.limits.thp_shmem),
		 "advise");
	info.system.yama = 1;
	info.system.ptrace_capable = true;
	ports[0].active_mtu = ports[0].max_mtu = 1024;
	ib0->prefix = 16; /* the netdev of no port */
	roce->software = ports[0].chosen = true;
	info.system.ucx_tls_set = info.system.ucx_dgid_check_off = true;
	info.limits.memory_known = false;
	info.limits.memory.available = 0;
	doctor(&info, &problems);
	if (problems.n)
		complain("a machine without fault");
	CU_ASSERT_EQUAL(problems.n, 0);
}

static void all_faults(void)
{
	healthy();
	for (size_t i = 0; i < FAULTS; i++)
		if (faults[i].make != verbs_unknown &&
		    faults[i].make != no_device &&
		    faults[i].make != hidden_device)
			faults[i].make();
}

static void test_order(void)
{
	all_faults();
	doctor(&info, &problems);
	CU_ASSERT(problems.n > 15);
	CU_ASSERT_STRING_EQUAL(problems.list[0].id, "no-provider");
	for (size_t i = 1; i < problems.n; i++)
		CU_ASSERT(problems.list[i - 1].severity <=
			  problems.list[i].severity);
	/* More than there is room for. */
	for (int i = 0; i < 2 * PROBLEMS_MAX; i++)
		problem_add(&problems, SEVERITY_NOTE, "x", "%d", i);
	CU_ASSERT_EQUAL(problems.n, PROBLEMS_MAX);
}

static char *printed(bool json)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	if (!json)
		print_text(&info, &problems, f);
	CU_ASSERT(!json || !print_json(&info, &problems, f));
	fclose(f);
	return text;
}

/* The text has the same words in the same order, in lines that fit. */
static void same_list(const char *text, const cJSON *root)
{
	const cJSON *list = cJSON_GetObjectItem(root, "problems");
	const char *at = strstr(text, "\nDoctor\n");
	char wanted[64];

	CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	CU_ASSERT_EQUAL((size_t)cJSON_GetArraySize(list), problems.n);
	for (size_t i = 0; i < problems.n; i++) {
		const cJSON *o = cJSON_GetArrayItem(list, (int)i);
		const char *id = cJSON_GetObjectItem(o, "id")->valuestring;

		CU_ASSERT_STRING_EQUAL(id, problems.list[i].id);
		CU_ASSERT_STRING_EQUAL(
			cJSON_GetObjectItem(o, "fix")->valuestring,
			problems.list[i].fix);
		snprintf(wanted, sizeof(wanted), "[%s]", id);
		at = strstr(at, wanted);
		CU_ASSERT_PTR_NOT_NULL_FATAL(at);
		at++;
	}
	for (const char *p = text; *p; p += strcspn(p, "\n") + 1) {
		size_t len = strcspn(p, "\n");

		if (len > 79)
			fprintf(stderr, "\nlong: %.*s\n", (int)len, p);
		CU_ASSERT(len <= 79);
		if (len && p[len - 1] == ' ')
			fprintf(stderr, "\nends blank: %.*s\n", (int)len, p);
		CU_ASSERT(!len || p[len - 1] != ' ');
	}
}

static void test_printed(void)
{
	for (int faulty = 0; faulty < 2; faulty++) {
		char *text, *json;
		cJSON *root;

		if (faulty)
			all_faults();
		else
			healthy();
		doctor(&info, &problems);
		text = printed(false);
		json = printed(true);
		root = cJSON_Parse(json);
		CU_ASSERT_PTR_NOT_NULL_FATAL(root);
		same_list(text, root);
		CU_ASSERT_EQUAL(
			cJSON_IsTrue(cJSON_GetObjectItem(root, "usable")),
			!faulty);
		cJSON_Delete(root);
		free(text);
		free(json);
	}
}

static CU_TestInfo tests[] = {
	{"a healthy machine", test_healthy}, {"each fault", test_each},
	{"what is no fault", test_fine},     {"order", test_order},
	{"text and JSON", test_printed},     CU_TEST_INFO_NULL,
};

int main(void)
{
	CU_SuiteInfo suites[] = {{"info doctor", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};

	return run_suites(suites);
}
