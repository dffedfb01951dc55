/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The meeting place. A rank decides by what its own machine knows; ranks of
 * one machine decide alike, so that they meet.
 */
#include "rendezvous.h"
#include "control_net.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CANDIDATES 160

/* ---- the choice ---- */

/* An address, or a name that means this machine anywhere. */
static bool names_itself(const char *host)
{
	struct in6_addr any;

	return inet_pton(AF_INET, host, &any) == 1 ||
	       inet_pton(AF_INET6, host, &any) == 1 ||
	       !strncmp(host, "localhost", 9);
}

static void add(struct net_addr *list, size_t *n, const struct net_addr *a,
		uint16_t port)
{
	if (*n == RENDEZVOUS_ADDRS)
		return;
	list[*n] = *a;
	net_addr_set_port(&list[(*n)++], port);
}

/* The interface of this machine that has the address, or NULL. */
static const struct netif *own_netif(const struct rendezvous_facts *f,
				     const struct net_addr *a)
{
	for (size_t i = 0; i < f->ifs.n; i++)
		if (f->ifs.list[i].addr.len &&
		    net_addr_same(&f->ifs.list[i].addr, a))
			return &f->ifs.list[i];
	return NULL;
}

/*
 * How little an address promises: 0 most; then link-local ones, bridges of
 * containers (which other hosts may have, too), and interfaces that are down.
 */
enum { CLASSES = 4 };

static int class_of(const struct rendezvous_facts *f, const struct net_addr *a)
{
	const struct netif *i = own_netif(f, a);

	if (i && !i->up)
		return 3;
	if (i && netif_bridge(i))
		return 2;
	return net_addr_link_local(a);
}

/* The addresses that were found, those that are @local or the others. */
static void add_found(const struct rendezvous_facts *f, bool local,
		      struct rendezvous_plan *p)
{
	for (int class = 0; class < CLASSES; class ++)
		for (size_t i = 0; i < f->nfound; i++)
			if (net_addr_local(&f->found[i]) == local &&
			    class_of(f, &f->found[i]) == class)
				add(p->addr, &p->n, &f->found[i], f->port);
}

/* The chosen interface's addresses, IPv4 first; those of others are not. */
static int interface_addrs(const struct rendezvous_facts *f,
			   struct net_addr *list, size_t *n)
{
	static const sa_family_t families[] = {AF_INET, AF_INET6};
	char candidates[CANDIDATES];
	bool known = false;

	for (size_t i = 0; i < f->ifs.n; i++)
		known |= !strcmp(f->ifs.list[i].name, f->ifname);
	for (int k = 0; k < 2; k++)
		for (size_t i = 0; i < f->ifs.n; i++) {
			const struct netif *netif = &f->ifs.list[i];

			if (!strcmp(netif->name, f->ifname) && netif->up &&
			    netif->addr.sa.ss_family == families[k] &&
			    !netif->link_local)
				add(list, n, &netif->addr, f->port);
		}
	if (*n)
		return 0;
	netifs_candidates(&f->ifs, candidates, sizeof(candidates));
	return vbn_fail(known ? -ENETDOWN : -ENODEV,
			"VBN_SOCKET_IFNAME is %s: %s; interfaces that other "
			"hosts reach: %s",
			f->ifname,
			known ? "it is down or has no address"
			      : "this machine has no such interface",
			candidates);
}

/* Rank 0 listens where the others go: at an address of the interface. */
static int keep_interface(const struct rendezvous_facts *f,
			  const struct net_addr *own, size_t nown,
			  struct rendezvous_plan *p)
{
	char text[NETIF_TEXT], given[NETIF_TEXT];
	bool name = !names_itself(f->host);
	size_t kept = 0;

	net_addr_text(&p->addr[0], given);
	for (size_t i = 0; i < p->n; i++)
		for (size_t k = 0; k < nown; k++)
			if (net_addr_same(&p->addr[i], &own[k])) {
				p->addr[kept++] = p->addr[i];
				break;
			}
	p->n = kept;
	if (kept)
		return 0;
	return vbn_fail(-EADDRNOTAVAIL,
			"VBN_SOCKET_IFNAME is %s, which has %s, but the other "
			"ranks go to %s%s%s: set VBN_ADDRESS to the "
			"interface's address on all ranks, or unset "
			"VBN_SOCKET_IFNAME",
			f->ifname, net_addr_text(&own[0], text), given,
			name ? ", as " : "", name ? f->host : "");
}

/* "; here they are eth0 10.1.2.3", where it helps. */
static const char *here(const struct rendezvous_facts *f, char *text,
			size_t room)
{
	char candidates[CANDIDATES];

	text[0] = '\0';
	if (f->launch.rank0_here == YES)
		snprintf(text, room, " (interfaces here: %s)",
			 netifs_candidates(&f->ifs, candidates,
					   sizeof(candidates)));
	return text;
}

static int refuse_loopback(const struct rendezvous_facts *f)
{
	char text[CANDIDATES + 32];

	return vbn_fail(-EADDRNOTAVAIL,
			"the job's address is %s, which means each host "
			"itself, but its ranks are on several hosts (%s): set "
			"VBN_ADDRESS, or MASTER_ADDR, to an address of rank "
			"0's host on all ranks%s; if all are on one host: "
			"VBN_LOCAL_SIZE=%d",
			f->host, f->launch.why, here(f, text, sizeof(text)),
			f->nranks);
}

/* Rank 0 is elsewhere, so none of this machine's addresses is its. */
static int drop_own(const struct rendezvous_facts *f, struct rendezvous_plan *p)
{
	char text[NETIF_TEXT], candidates[CANDIDATES];
	const struct netif *i = own_netif(f, &p->addr[0]);
	size_t kept = 0;

	net_addr_text(&p->addr[0], text);
	for (size_t k = 0; k < p->n; k++)
		if (!own_netif(f, &p->addr[k]))
			p->addr[kept++] = p->addr[k];
	p->n = kept;
	if (kept)
		return 0;
	return vbn_fail(
		-EADDRNOTAVAIL,
		"the job's address %s is this machine's own (%s), but "
		"rank 0 is on another (%s): name an address of rank "
		"0's host that only it has (interfaces here: %s)",
		text, i ? i->name : "?", f->launch.why,
		netifs_candidates(&f->ifs, candidates, sizeof(candidates)));
}

/* Rank 0's best address is one that others will hardly reach. */
static void doubt(const struct rendezvous_facts *f, struct rendezvous_plan *p)
{
	static const char *const kinds[CLASSES] = {
		"", "a link-local address", "a bridge for containers", "down"};
	const struct netif *i = own_netif(f, &p->addr[0]);
	char text[NETIF_TEXT], candidates[CANDIDATES];
	int class = class_of(f, &p->addr[0]);

	if (!i || !class || f->launch.several_hosts == NO)
		return;
	p->doubtful = f->launch.several_hosts == YES;
	snprintf(p->why, sizeof(p->why),
		 "the job's address %s is that of %s, %s, which other hosts "
		 "hardly reach; interfaces here: %s",
		 net_addr_text(&p->addr[0], text), i->name, kinds[class],
		 netifs_candidates(&f->ifs, candidates, sizeof(candidates)));
}

static int choose_routable(const struct rendezvous_facts *f,
			   struct rendezvous_plan *p)
{
	struct net_addr own[RENDEZVOUS_ADDRS];
	size_t nown = 0;
	int rc;

	add_found(f, false, p);
	if (f->launch.several_hosts != YES)
		add_found(f, true, p);
	if (f->launch.several_hosts == YES && f->launch.rank0_here == NO) {
		rc = drop_own(f, p);
		if (rc)
			return rc;
	}
	if (f->rank == 0)
		doubt(f, p);
	if (!f->ifname[0])
		return 0;
	rc = interface_addrs(f, own, &nown);
	if (rc)
		return rc;
	if (f->rank == 0)
		return keep_interface(f, own, nown, p);
	for (size_t i = 0; i < nown; i++)
		add(p->from, &p->nfrom, &own[i], 0);
	return 0;
}

/* The host has a name, which on this machine stands for itself. */
static int choose_name(const struct rendezvous_facts *f,
		       struct rendezvous_plan *p)
{
	bool several = f->launch.several_hosts == YES;
	char candidates[CANDIDATES], text[NETIF_TEXT];

	net_addr_text(&f->found[0], text);
	netifs_candidates(&f->ifs, candidates, sizeof(candidates));
	if (several && f->launch.rank0_here == NO)
		return vbn_fail(-EADDRNOTAVAIL,
				"host %s of the job's address is %s here, "
				"which is this machine, but rank 0 is on "
				"another (%s): name rank 0's host, by its "
				"address if /etc/hosts here is wrong",
				f->host, text, f->launch.why);
	if (f->ifname[0]) {
		snprintf(p->why, sizeof(p->why),
			 "host %s is %s here, which other hosts do not reach: "
			 "the ranks meet at the address of VBN_SOCKET_IFNAME "
			 "%s",
			 f->host, text, f->ifname);
		return interface_addrs(f, p->addr, &p->n);
	}
	if (several && !netifs_routable(&f->ifs))
		return vbn_fail(-EADDRNOTAVAIL,
				"host %s of the job's address is %s here, "
				"which other hosts do not reach, and no "
				"interface that they reach is up; but the "
				"ranks are on several hosts (%s)",
				f->host, text, f->launch.why);
	if (f->rank == 0 && netifs_routable(&f->ifs)) {
		p->any = true;
		snprintf(p->why, sizeof(p->why),
			 "host %s is %s here, which other hosts do not reach: "
			 "rank 0 listens on all interfaces (%s); "
			 "VBN_SOCKET_IFNAME chooses one",
			 f->host, text, candidates);
	} else if (f->rank) {
		snprintf(p->why, sizeof(p->why),
			 "host %s is %s here, which is this machine: if rank "
			 "0 is on another, name that by its address",
			 f->host, text);
	}
	add_found(f, true, p);
	return 0;
}

int rendezvous_choose(const struct rendezvous_facts *f,
		      struct rendezvous_plan *p)
{
	*p = (struct rendezvous_plan){.n = 0};
	for (size_t i = 0; i < f->nfound; i++)
		if (!net_addr_local(&f->found[i]))
			return choose_routable(f, p);
	if (f->launch.several_hosts != NO && !names_itself(f->host))
		return choose_name(f, p);
	add_found(f, true, p);
	if (f->launch.several_hosts != YES ||
	    (f->rank == 0 && f->nfound && net_addr_any(&f->found[0])))
		return 0;
	return refuse_loopback(f);
}

/* ---- doing it ---- */

/* netifs_free() them in any case. */
static int read_facts(const struct control_options *o, int64_t deadline,
		      struct rendezvous_facts *f)
{
	*f = (struct rendezvous_facts){.rank = o->rank,
				       .nranks = o->nranks,
				       .host = o->host,
				       .port = o->port,
				       .ifname = o->ifname ? o->ifname : "",
				       .launch = o->launch};
	int rc = netifs_read(&f->ifs);

	return rc ? rc
		  : net_resolve(o->host, o->port, deadline, f->found,
				RENDEZVOUS_ADDRS, &f->nfound);
}

static int listen_failed(const struct control_options *o, int rc)
{
	switch (rc) {
	case -EADDRINUSE:
		return vbn_fail(rc,
				"port %u of %s is in use: end the program "
				"that serves it, or give the job another port "
				"(VBN_ADDRESS=host:port)",
				(unsigned)o->port, o->host);
	case -EADDRNOTAVAIL:
		return vbn_fail(rc,
				"%s is not an address of this machine: the "
				"job's address must be one of rank 0's host",
				o->host);
	default:
		return vbn_fail(rc, "cannot listen at %s port %u: %s", o->host,
				(unsigned)o->port, strerror(-rc));
	}
}

static int loopback_down(void)
{
	return vbn_fail(-ENETDOWN,
			"the job's ranks meet over the loopback interface, "
			"which is down in this network namespace: switch it "
			"on (ip link set lo up), or give rank 0 an address on "
			"another interface (VBN_ADDRESS)");
}

/* Can the other ranks come to this listening socket? */
static int check_listener(const struct control_options *o, int fd)
{
	struct net_addr a = {.len = sizeof(a.sa)};
	char text[NETIF_TEXT];
	struct netifs ifs;
	int rc;

	if (getsockname(fd, (struct sockaddr *)&a.sa, &a.len) ||
	    !net_addr_local(&a) || net_addr_any(&a))
		return 0;
	rc = netifs_read(&ifs);
	if (rc)
		return rc;
	if (!netifs_loopback_up(&ifs)) {
		rc = loopback_down();
	} else if (o->launch.several_hosts == YES) {
		struct rendezvous_facts f = {
			.nranks = o->nranks,
			.host = net_addr_text(&a, text),
			.launch = o->launch,
			.ifs = ifs,
		};

		rc = refuse_loopback(&f);
	}
	netifs_free(&ifs);
	return rc;
}

int rendezvous_listen(const struct control_options *o, int64_t deadline,
		      int *fd)
{
	struct rendezvous_facts f;
	struct rendezvous_plan p;
	int rc = read_facts(o, deadline, &f);

	if (!rc)
		rc = rendezvous_choose(&f, &p);
	netifs_free(&f.ifs);
	if (rc)
		return rc;
	if (p.why[0])
		vbn_log(p.doubtful ? VBN_WARN : VBN_INFO, "%s", p.why);
	rc = p.any ? net_listen_any(o->port, fd) : -EADDRNOTAVAIL;
	for (size_t i = 0; !p.any && i < p.n; i++) {
		rc = net_listen(&p.addr[i], fd);
		if (!rc || rc == -EADDRINUSE)
			break;
	}
	if (rc)
		return listen_failed(o, rc);
	rc = check_listener(o, *fd);
	if (rc)
		net_close(*fd);
	return rc;
}

int rendezvous_adopt(const struct control_options *o)
{
	int rc = net_adopt_listener(o->listen_fd);

	if (rc || o->nranks == 1)
		return rc;
	rc = check_listener(o, o->listen_fd);
	if (rc)
		net_close(o->listen_fd);
	return rc;
}

/* The own end on the chosen interface, for a way to @to; NULL: any. */
static const struct net_addr *own_end(const struct rendezvous_plan *p,
				      const struct net_addr *to)
{
	for (size_t i = 0; i < p->nfrom; i++)
		if (p->from[i].sa.ss_family == to->sa.ss_family)
			return &p->from[i];
	return NULL;
}

/* Waiting does not help where no interface is up. */
static int final_error(const struct rendezvous_facts *f,
		       const struct net_addr *to, int rc)
{
	char text[NETIF_TEXT];

	if (rc != -ENETUNREACH && rc != -ENETDOWN && rc != -EHOSTUNREACH)
		return -EAGAIN;
	if (net_addr_local(to) || netifs_routable(&f->ifs))
		return -EAGAIN;
	return vbn_fail(-ENETDOWN,
			"rank 0's address %s cannot be reached: no network "
			"interface but loopback is up here, or none has an "
			"address",
			net_addr_text(to, text));
}

static int try_all(const struct rendezvous_facts *f,
		   const struct rendezvous_plan *p, int64_t deadline, int *fd,
		   char *why, size_t room)
{
	int rc = -EADDRNOTAVAIL;

	/* Some kernels let such a try time out. */
	if (p->n && net_addr_local(&p->addr[0]) && !netifs_loopback_up(&f->ifs))
		return loopback_down();
	for (size_t i = 0; i < p->n; i++) {
		rc = net_connect(&p->addr[i], own_end(p, &p->addr[i]), deadline,
				 fd);
		if (!rc)
			return 0;
	}
	snprintf(why, room, "%s%s%.200s", strerror(-rc), p->why[0] ? "; " : "",
		 p->why);
	return p->n ? final_error(f, &p->addr[p->n - 1], rc) : -EAGAIN;
}

int rendezvous_connect(const struct control_options *o, int64_t deadline,
		       int *fd, char *why, size_t room)
{
	struct rendezvous_facts f;
	struct rendezvous_plan p;
	int rc = read_facts(o, deadline, &f);

	if (!rc)
		rc = rendezvous_choose(&f, &p);
	if (!rc)
		rc = try_all(&f, &p, deadline, fd, why, room);
	/* Names may become known yet, but not without a network. */
	if (rc == -ENXIO && netifs_routable(&f.ifs)) {
		snprintf(why, room, "%s", vbn_error());
		rc = -EAGAIN;
	}
	netifs_free(&f.ifs);
	return rc;
}
