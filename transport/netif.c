/* SPDX-License-Identifier: BSD-3-Clause */
/* Network interfaces, from getifaddrs() and /sys/class/net. */
#include "netif.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- addresses ---- */

static const struct in6_addr *in6(const struct net_addr *a)
{
	return &((const struct sockaddr_in6 *)&a->sa)->sin6_addr;
}

static in_addr_t in4(const struct net_addr *a)
{
	return ntohl(((const struct sockaddr_in *)&a->sa)->sin_addr.s_addr);
}

bool net_addr_any(const struct net_addr *a)
{
	if (a->sa.ss_family == AF_INET)
		return in4(a) == INADDR_ANY;
	return a->sa.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(in6(a));
}

bool net_addr_local(const struct net_addr *a)
{
	if (net_addr_any(a))
		return true;
	if (a->sa.ss_family == AF_INET)
		return in4(a) >> 24 == IN_LOOPBACKNET;
	return a->sa.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(in6(a));
}

bool net_addr_link_local(const struct net_addr *a)
{
	if (a->sa.ss_family == AF_INET)
		return in4(a) >> 16 == 0xa9fe; /* 169.254/16 */
	return a->sa.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(in6(a));
}

bool net_addr_same(const struct net_addr *a, const struct net_addr *b)
{
	if (a->sa.ss_family != b->sa.ss_family)
		return false;
	if (a->sa.ss_family == AF_INET)
		return in4(a) == in4(b);
	return IN6_ARE_ADDR_EQUAL(in6(a), in6(b));
}

const char *net_addr_text(const struct net_addr *a, char text[NETIF_TEXT])
{
	if (getnameinfo((const struct sockaddr *)&a->sa, a->len, text,
			NETIF_TEXT, NULL, 0, NI_NUMERICHOST))
		snprintf(text, NETIF_TEXT, "?");
	return text;
}

void net_addr_set_port(struct net_addr *a, uint16_t port)
{
	if (a->sa.ss_family == AF_INET6)
		((struct sockaddr_in6 *)&a->sa)->sin6_port = htons(port);
	else
		((struct sockaddr_in *)&a->sa)->sin_port = htons(port);
}

/* ---- interfaces ---- */

static long read_number(const char *name, const char *file)
{
	char path[64 + IF_NAMESIZE];
	long value = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/sys/class/net/%s/%s", name, file);
	f = fopen(path, "re");
	if (!f)
		return 0;
	/* A speed that is not known is an error, -1, or all ones. */
	if (fscanf(f, "%ld", &value) != 1 || value < 0 || value >= INT32_MAX)
		value = 0;
	fclose(f);
	return value;
}

static unsigned mask_bits(const struct sockaddr *mask)
{
	const uint8_t *p;
	size_t n;
	unsigned bits = 0;

	if (!mask)
		return 0;
	if (mask->sa_family == AF_INET6) {
		p = ((const struct sockaddr_in6 *)mask)->sin6_addr.s6_addr;
		n = 16;
	} else {
		p = (const uint8_t *)&((const struct sockaddr_in *)mask)
			    ->sin_addr;
		n = 4;
	}
	for (size_t i = 0; i < n; i++)
		bits += (unsigned)__builtin_popcount(p[i]);
	return bits;
}

static void fill(struct netif *i, const struct ifaddrs *from, bool ip)
{
	memset(i, 0, sizeof(*i));
	snprintf(i->name, sizeof(i->name), "%s", from->ifa_name);
	i->switched_on = from->ifa_flags & IFF_UP;
	i->up = i->switched_on && from->ifa_flags & IFF_RUNNING;
	i->loopback = from->ifa_flags & IFF_LOOPBACK;
	if (!ip)
		return;
	i->addr.len = from->ifa_addr->sa_family == AF_INET6
			      ? sizeof(struct sockaddr_in6)
			      : sizeof(struct sockaddr_in);
	memcpy(&i->addr.sa, from->ifa_addr, i->addr.len);
	i->link_local = net_addr_link_local(&i->addr);
	i->prefix = mask_bits(from->ifa_netmask);
	net_addr_text(&i->addr, i->text);
}

static bool is_ip(const struct ifaddrs *a)
{
	return a->ifa_addr && (a->ifa_addr->sa_family == AF_INET ||
			       a->ifa_addr->sa_family == AF_INET6);
}

/* Each interface comes once without an IP address: needed if it has none. */
static bool wanted(const struct ifaddrs *all, const struct ifaddrs *a)
{
	if (is_ip(a))
		return true;
	for (; all; all = all->ifa_next)
		if (is_ip(all) && !strcmp(all->ifa_name, a->ifa_name))
			return false;
	return true;
}

int netifs_read(struct netifs *out)
{
	struct netifs ifs = {NULL, 0};
	struct ifaddrs *all, *a;
	size_t n = 0;

	if (getifaddrs(&all))
		return vbn_fail(-errno, "cannot list network interfaces: %s",
				strerror(errno));
	for (a = all; a; a = a->ifa_next)
		n++;
	ifs.list = calloc(n ? n : 1, sizeof(*ifs.list));
	if (!ifs.list) {
		freeifaddrs(all);
		return vbn_fail(-ENOMEM, "no memory for a list of interfaces");
	}
	for (a = all; a; a = a->ifa_next)
		if (wanted(all, a))
			fill(&ifs.list[ifs.n++], a, is_ip(a));
	freeifaddrs(all);
	*out = ifs;
	return 0;
}

void netif_details(struct netif *i)
{
	i->mtu = (unsigned)read_number(i->name, "mtu");
	i->mbits = (int)read_number(i->name, "speed");
}

void netifs_free(struct netifs *ifs)
{
	free(ifs->list);
	*ifs = (struct netifs){NULL, 0};
}

bool netif_routable(const struct netif *i)
{
	return i->up && i->addr.len && !i->loopback && !i->link_local &&
	       !net_addr_local(&i->addr);
}

bool netifs_loopback_up(const struct netifs *ifs)
{
	for (size_t i = 0; i < ifs->n; i++)
		if (ifs->list[i].loopback && ifs->list[i].up &&
		    ifs->list[i].addr.len)
			return true;
	return false;
}

size_t netifs_routable(const struct netifs *ifs)
{
	size_t n = 0;

	for (size_t i = 0; i < ifs->n; i++)
		n += netif_routable(&ifs->list[i]);
	return n;
}

bool netif_bridge(const struct netif *i)
{
	static const char *const kinds[] = {
		"docker", "br-",     "virbr", "veth",  "cni",	  "podman",
		"lxcbr",  "flannel", "cali",  "lxdbr", "nerdctl",
	};

	for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
		if (!strncmp(i->name, kinds[k], strlen(kinds[k])))
			return true;
	return false;
}

const char *netifs_candidates(const struct netifs *ifs, char *text, size_t room)
{
	size_t len = 0;

	snprintf(text, room, "none is up");
	for (int bridges = 0; bridges < 2; bridges++)
		for (size_t i = 0; i < ifs->n && len + 1 < room; i++) {
			const struct netif *netif = &ifs->list[i];

			if (!netif_routable(netif) ||
			    netif_bridge(netif) != bridges)
				continue;
			len += (size_t)snprintf(text + len, room - len,
						"%s%s %s", len ? ", " : "",
						netif->name, netif->text);
		}
	return text;
}
