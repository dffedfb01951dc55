/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the doctor says of RDMA devices, ports and their addresses. Nothing of
 * it is an error: without verbs, jobs run over shm and UCX.
 */
#include "info.h"

#include <string.h>

#define ROCE_MTU_MAX	4096
#define ROCE_NETDEV_MTU 4200 /* 4096 and all headers */

static const struct netif *find_netif(const struct info *info, const char *name)
{
	const struct netifs *ifs = &info->network.ifs;

	for (size_t i = 0; name[0] && i < ifs->n; i++)
		if (!strcmp(ifs->list[i].name, name))
			return &ifs->list[i];
	return NULL;
}

/* ---- devices ---- */

static void no_device(const struct info *info, struct problems *problems)
{
	const struct info_system *s = &info->system;
	struct problem *p;

	if (!info->verbs && info_bad_variable(info))
		return;
	if (!info->verbs) {
		p = problem_add(problems, SEVERITY_WARNING, "rdma-unknown",
				"RDMA devices cannot be listed: %s",
				info->verbs_error);
		problem_fix(p, "try ibv_devices, and free memory");
		return;
	}
	if (info->verbs->ndevices)
		return;
	if (s->sys_devices[0]) {
		p = problem_add(problems, SEVERITY_WARNING,
				"rdma-device-hidden",
				"the kernel has RDMA devices (%s), but "
				"libibverbs sees none",
				s->sys_devices);
		problem_fix(p,
			    "%sinstall the user-space driver (Debian: "
			    "ibverbs-providers) and load ib_uverbs",
			    s->container
				    ? "give the container its device files "
				      "(docker --device=/dev/infiniband); "
				    : "");
		return;
	}
	p = problem_add(problems, SEVERITY_WARNING, "no-rdma-device",
			"this machine has no RDMA device: other hosts are "
			"reached over UCX%s",
			info->providers[INFO_UCX].usable ? " (TCP)"
							 : ", which fails");
	problem_fix(p,
		    "load the adapter's driver (modprobe mlx5_ib, irdma, "
		    "bnxt_re ...); or try soft-RoCE: modprobe crc32_generic; "
		    "modprobe rdma_rxe; rdma link add rxe0 type rxe netdev "
		    "INTERFACE");
}

static void not_openable(const struct info *info,
			 const struct inspect_device *d,
			 struct problems *problems)
{
	struct problem *p =
		problem_add(problems, SEVERITY_WARNING, "device-not-openable",
			    "%s: %s", d->name, d->why);

	problem_fix(
		p,
		"%sthis user needs to read and write "
		"/dev/infiniband/uverbsN (ls -l /dev/infiniband)",
		info->system.container
			? "give the container its device file (docker "
			  "--device=/dev/infiniband/uverbsN, Kubernetes: an "
			  "RDMA device plugin); "
			: "");
}

static void atomics(const struct inspect_device *d, struct problems *problems)
{
	if (!d->has_atomics)
		problem_fix(
			problem_add(problems, SEVERITY_NOTE, "no-atomics",
				    "%s has no atomics: fetch-add and "
				    "compare-swap over it give -EOPNOTSUPP",
				    d->name),
			"use another device or VBN_PROVIDER=ucx where atomics "
			"are needed");
}

/* ---- ports ---- */

static void port_down(const struct inspect_device *d,
		      const struct inspect_port *port,
		      struct problems *problems)
{
	struct problem *p = problem_add(problems, SEVERITY_WARNING, "port-down",
					"%s port %u is not active: %s", d->name,
					port->number, port->state);

	if (strcmp(port->link_layer, "Ethernet"))
		problem_fix(p, "check the cable (DOWN) or the subnet manager "
			       "(INIT: opensm, or the switch's)");
	else if (port->netdev[0])
		problem_fix(p,
			    "switch its interface on (ip link set %s up) "
			    "and check the cable",
			    port->netdev);
	else
		problem_fix(p, "switch its network interface on (rdma link "
			       "names it) and check the cable; in a "
			       "container, the interface must be in its "
			       "network namespace");
}

static bool is_link_local(const char *address)
{
	return !strncmp(address, "fe80:", 5) ||
	       !strncmp(address, "::ffff:169.254.", 15);
}

struct gids {
	unsigned usable, v2, routable;
};

static struct gids count_gids(const struct inspect_port *port)
{
	struct gids n = {0};

	for (size_t i = 0; i < port->ngids; i++) {
		const struct inspect_gid *g = &port->gids[i];

		if (!g->readable)
			continue;
		n.usable++;
		n.v2 += !strcmp(g->type, "RoCE v2");
		n.routable += !is_link_local(g->address);
	}
	return n;
}

static void roce_gids(const struct inspect_device *d,
		      const struct inspect_port *port,
		      struct problems *problems)
{
	const char *dev = port->netdev[0] ? port->netdev : "INTERFACE";
	struct gids n = count_gids(port);
	struct problem *p;

	if (!n.usable) {
		p = problem_add(problems, SEVERITY_WARNING, "no-gid",
				"%s port %u has no GID: nothing can address "
				"it",
				d->name, port->number);
		problem_fix(p,
			    "give its interface an address (ip addr add "
			    "ADDRESS/24 dev %s)",
			    dev);
		return;
	}
	if (!n.v2) {
		p = problem_add(problems, SEVERITY_WARNING, "no-roce-v2",
				"%s port %u has RoCE v1 GIDs only, which "
				"routers do not pass on and RoCE v2 peers do "
				"not understand",
				d->name, port->number);
		problem_fix(p,
			    "allow RoCE v2 in the driver (mlx: cma_roce_mode "
			    "-d %s -p %u -m 2), the same on all hosts",
			    d->name, port->number);
	}
	if (!n.routable) {
		p = problem_add(problems, SEVERITY_WARNING, "link-local-gids",
				"%s port %u has link-local GIDs only: they "
				"reach one Ethernet segment at most",
				d->name, port->number);
		problem_fix(p,
			    "give its interface an address (ip addr add "
			    "ADDRESS/24 dev %s)",
			    dev);
	}
}

static void roce_mtu(const struct info *info, const struct inspect_device *d,
		     const struct inspect_port *port, struct problems *problems)
{
	const struct netif *netif = find_netif(info, port->netdev);
	const char *dev = port->netdev[0] ? port->netdev : "INTERFACE";
	char mtu[48] = "";

	if (port->active_mtu >= ROCE_MTU_MAX || port->max_mtu < ROCE_MTU_MAX ||
	    (netif && netif->mtu >= ROCE_NETDEV_MTU))
		return;
	if (netif && netif->mtu)
		snprintf(mtu, sizeof(mtu), ", as %s has MTU %u", netif->name,
			 netif->mtu);
	problem_fix(problem_add(problems, SEVERITY_WARNING, "roce-mtu",
				"%s port %u sends packets of %u bytes, not "
				"%d%s: less bandwidth",
				d->name, port->number, port->active_mtu,
				ROCE_MTU_MAX, mtu),
		    "ip link set dev %s mtu %d (or 9000), on all hosts, and "
		    "jumbo frames on the switches between",
		    dev, ROCE_NETDEV_MTU);
}

static void lossless(const struct inspect_device *d,
		     const struct inspect_port *port, struct problems *problems)
{
	if (d->software || !port->chosen)
		return;
	problem_fix(problem_add(problems, SEVERITY_NOTE, "pfc-ecn-unseen",
				"whether PFC and ECN are set up for %s port %u "
				"cannot be seen from here",
				d->name, port->number),
		    "compare the adapter's (mlnx_qos -i %s, dcb pfc show) "
		    "with the switches'; VBN_IB_SL and VBN_IB_TC choose "
		    "priority and DSCP",
		    port->netdev[0] ? port->netdev : "INTERFACE");
}

static void pkey(const struct inspect_device *d,
		 const struct inspect_port *port, struct problems *problems)
{
	if (!port->pkey_found && port->active && port->pkeys)
		problem_fix(problem_add(problems, SEVERITY_WARNING,
					"pkey-missing",
					"%s port %u does not have the "
					"partition key that is wanted",
					d->name, port->number),
			    "have the subnet manager add the port to the "
			    "partition, or set VBN_IB_PKEY to one that it has "
			    "(/sys/class/infiniband/%s/ports/%u/pkeys)",
			    d->name, port->number);
}

static void ports(const struct info *info, const struct inspect_device *d,
		  struct problems *problems)
{
	for (size_t i = 0; i < d->nports; i++) {
		const struct inspect_port *port = &d->ports[i];
		bool roce = !strcmp(port->link_layer, "Ethernet");

		if (!port->active) {
			port_down(d, port, problems);
			continue;
		}
		if (roce) {
			roce_gids(d, port, problems);
			roce_mtu(info, d, port, problems);
			lossless(d, port, problems);
		} else if (!port->lid && !port->ngids) {
			problem_fix(problem_add(problems, SEVERITY_WARNING,
						"no-lid",
						"%s port %u has no LID",
						d->name, port->number),
				    "start a subnet manager (opensm, or the "
				    "switch's)");
		}
		pkey(d, port, problems);
	}
}

/* ---- several ports ---- */

static const struct netif *port_netif(const struct info *info, size_t device,
				      size_t port)
{
	const struct inspect_device *d = &info->verbs->devices[device];
	const struct netif *i =
		port < d->nports ? find_netif(info, d->ports[port].netdev)
				 : NULL;

	return i && netif_routable(i) ? i : NULL;
}

static bool same_subnet(const struct netif *a, const struct netif *b)
{
	const struct sockaddr_in *x = (const struct sockaddr_in *)&a->addr.sa;
	const struct sockaddr_in *y = (const struct sockaddr_in *)&b->addr.sa;
	uint32_t mask;

	if (!strcmp(a->name, b->name) || a->prefix != b->prefix || !a->prefix ||
	    a->prefix > 32 || a->addr.sa.ss_family != AF_INET ||
	    b->addr.sa.ss_family != AF_INET)
		return false;
	mask = htonl(UINT32_MAX << (32 - a->prefix));
	return ((x->sin_addr.s_addr ^ y->sin_addr.s_addr) & mask) == 0;
}

/* The kernel answers ARP for either address on either port. */
static void arp_flux(const struct info *info, struct problems *problems)
{
	const struct netif *seen[32];
	size_t n = 0;

	for (size_t d = 0; d < info->verbs->ndevices; d++)
		for (size_t p = 0; p < info->verbs->devices[d].nports; p++) {
			const struct netif *netif = port_netif(info, d, p);

			for (size_t k = 0; netif && k < n; k++)
				if (same_subnet(seen[k], netif))
					problem_fix(
						problem_add(
							problems,
							SEVERITY_WARNING,
							"ports-in-one-subnet",
							"the RDMA ports of %s "
							"(%s) and %s (%s) are "
							"in one subnet: ARP "
							"may send one's "
							"packets to the other",
							seen[k]->name,
							seen[k]->text,
							netif->name,
							netif->text),
						"a subnet for each, or sysctl "
						"net.ipv4.conf.all.arp_ignore="
						"1 net.ipv4.conf.all."
						"arp_announce=2 and a routing "
						"rule per source address");
			if (netif && n < 32)
				seen[n++] = netif;
		}
}

static void soft_roce_ucx(const struct info *info, struct problems *problems)
{
	const struct info_system *s = &info->system;
	bool software = false;

	for (size_t d = 0; d < info->verbs->ndevices; d++)
		software |= info->verbs->devices[d].software;
	if (!software || (s->ucx_tls_set && s->ucx_dgid_check_off) ||
	    !info->providers[INFO_UCX].usable)
		return;
	problem_fix(problem_add(problems, SEVERITY_NOTE, "ucx-soft-roce",
				"UCX's default transports do not connect over "
				"soft-RoCE (the verbs provider does)"),
		    "where ucx is wanted: UCX_TLS=rc_v,self "
		    "UCX_UD_VERBS_ETH_DGID_CHECK=n, or UCX_TLS=tcp,self");
}

void doctor_rdma(const struct info *info, struct problems *problems)
{
	no_device(info, problems);
	if (!info->verbs)
		return;
	for (size_t i = 0; i < info->verbs->ndevices; i++) {
		const struct inspect_device *d = &info->verbs->devices[i];
		size_t before = problems->n;

		if (!d->openable) {
			not_openable(info, d, problems);
			continue;
		}
		ports(info, d, problems);
		if (!d->usable && problems->n == before)
			problem_fix(problem_add(problems, SEVERITY_WARNING,
						"device-unusable",
						"%s cannot be used: %s",
						d->name, d->why),
				    "use another device (VBN_IB_HCA)");
		atomics(d, problems);
	}
	arp_flux(info, problems);
	soft_roce_ucx(info, problems);
}
