/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Where the ranks meet: which of this machine's addresses rank 0 listens at,
 * and to which the others go, when the job's address names a host. The choice
 * is a pure function. It sees to it that a name which /etc/hosts gives the
 * loopback address (Debian's 127.0.1.1) does not make the ranks of other hosts
 * wait for nothing.
 */
#ifndef VBN_RENDEZVOUS_H
#define VBN_RENDEZVOUS_H

#include "control.h"
#include "launcher.h"
#include "netif.h"

#define RENDEZVOUS_ADDRS 16

struct rendezvous_facts {
	int rank, nranks;
	const char *host; /* of the job's address */
	uint16_t port;
	const char *ifname; /* VBN_SOCKET_IFNAME, or "" */
	struct launch launch;
	struct net_addr found[RENDEZVOUS_ADDRS]; /* what host resolves to */
	size_t nfound;
	struct netifs ifs;
};

struct rendezvous_plan {
	struct net_addr addr[RENDEZVOUS_ADDRS]; /* to try, in order */
	size_t n;
	bool any; /* rank 0: on all addresses of the machine instead */
	struct net_addr from[RENDEZVOUS_ADDRS]; /* others: own ends */
	size_t nfrom;
	char why[256]; /* what is not as the address says, or "" */
	bool doubtful; /* others will hardly come there: why says so */
};

/*
 * -EADDRNOTAVAIL with vbn_fail(): other hosts cannot reach it; -ENODEV,
 * -ENETDOWN: the named interface is not there or down.
 */
int rendezvous_choose(const struct rendezvous_facts *facts,
		      struct rendezvous_plan *plan);

/*
 * Rank 0: a listening socket, or the one of @o, which is closed on error.
 * Errors as rendezvous_choose(), -EADDRINUSE, -ENXIO (name not found),
 * -ENETDOWN (the loopback interface is needed and down).
 */
int rendezvous_listen(const struct control_options *o, int64_t deadline,
		      int *fd);
int rendezvous_adopt(const struct control_options *o);

/*
 * One try. -EAGAIN: worth another, @why says what went wrong. Else as above.
 */
int rendezvous_connect(const struct control_options *o, int64_t deadline,
		       int *fd, char *why, size_t room);

#endif
