/* SPDX-License-Identifier: BSD-3-Clause */
/* Which address of a host others should take. */
#include "reach.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_MAX 16

/* ---- addresses in bytes ---- */

struct place {
	int family;
	unsigned char bytes[16];
	unsigned prefix;
};

static unsigned bits_of(int family)
{
	return family == AF_INET6 ? 128 : 32;
}

static bool from_netif(const struct netif *i, struct place *out)
{
	const struct sockaddr_storage *sa = &i->addr.sa;

	out->family = sa->ss_family;
	out->prefix = i->prefix;
	if (sa->ss_family == AF_INET)
		memcpy(out->bytes, &((const struct sockaddr_in *)sa)->sin_addr,
		       4);
	else if (sa->ss_family == AF_INET6)
		memcpy(out->bytes,
		       &((const struct sockaddr_in6 *)sa)->sin6_addr, 16);
	else
		return false;
	return true;
}

/* "10.1.2.3/16", of @len bytes */
static bool from_text(const char *text, size_t len, struct place *out)
{
	char copy[INET6_ADDRSTRLEN + 8], *slash, *end;
	long prefix;

	if (len >= sizeof(copy))
		return false;
	memcpy(copy, text, len);
	copy[len] = '\0';
	slash = strchr(copy, '/');
	if (!slash)
		return false;
	*slash++ = '\0';
	out->family = strchr(copy, ':') ? AF_INET6 : AF_INET;
	if (inet_pton(out->family, copy, out->bytes) != 1)
		return false;
	prefix = strtol(slash, &end, 10);
	if (*slash < '0' || *slash > '9' || *end || prefix > 128 ||
	    (unsigned)prefix > bits_of(out->family))
		return false;
	out->prefix = (unsigned)prefix;
	return true;
}

static bool same_bits(const struct place *a, const struct place *b,
		      unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	if (memcmp(a->bytes, b->bytes, whole))
		return false;
	return !rest || (a->bytes[whole] ^ b->bytes[whole]) >> (8 - rest) == 0;
}

/* ---- the list ---- */

/* 0 the best; -1: not to be reached */
static int rank_of(const struct netif *i, const char *ifname)
{
	if (!netif_routable(i) || (ifname[0] && strcmp(i->name, ifname)))
		return -1;
	return 2 * netif_bridge(i) + (i->addr.sa.ss_family == AF_INET6);
}

size_t reach_list(const struct netifs *ifs, const char *ifname, char *text,
		  size_t room)
{
	size_t n = 0, len = 0;

	text[0] = '\0';
	for (int rank = 0; rank < 4; rank++)
		for (size_t i = 0; i < ifs->n && n < LIST_MAX; i++) {
			const struct netif *netif = &ifs->list[i];
			int more;

			if (rank_of(netif, ifname) != rank)
				continue;
			more = snprintf(text + len, room - len, "%s%s/%u",
					n ? " " : "", netif->text,
					netif->prefix);
			if (more < 0 || (size_t)more >= room - len) {
				text[len] = '\0';
				return n;
			}
			len += (size_t)more;
			n++;
		}
	return n;
}

/* ---- the choice ---- */

enum fit { FOREIGN, NEAR, OURS };

/*
 * An address that this host has itself is not the other's: bridges have the
 * same one everywhere.
 */
static enum fit fit(const struct place *theirs, const struct netifs *ifs,
		    const char *ifname)
{
	enum fit best = FOREIGN;
	struct place own;

	for (size_t i = 0; i < ifs->n; i++) {
		const struct netif *netif = &ifs->list[i];

		if (!netif_routable(netif) || !from_netif(netif, &own) ||
		    own.family != theirs->family)
			continue;
		if (same_bits(&own, theirs, bits_of(own.family)))
			return OURS;
		if ((!ifname[0] || !strcmp(netif->name, ifname)) &&
		    own.prefix && same_bits(&own, theirs, own.prefix))
			best = NEAR;
	}
	return best;
}

bool reach_choose(const char *list, const struct netifs *ifs,
		  const char *ifname, char host[INET6_ADDRSTRLEN])
{
	struct place place, chosen = {.family = AF_UNSPEC};
	enum fit best = OURS;
	size_t n = 0;

	for (const char *p = list; *p && n < LIST_MAX; n++) {
		size_t len = strcspn(p, " ");
		enum fit this;

		if (!from_text(p, len, &place))
			return false;
		this = fit(&place, ifs, ifname);
		if (chosen.family == AF_UNSPEC ||
		    (this == NEAR && best != NEAR) ||
		    (this == FOREIGN && best == OURS)) {
			chosen = place;
			best = this;
		}
		p += len + (p[len] == ' ');
	}
	return chosen.family != AF_UNSPEC &&
	       inet_ntop(chosen.family, chosen.bytes, host, INET6_ADDRSTRLEN);
}
