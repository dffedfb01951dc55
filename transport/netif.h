/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The network interfaces of this machine (of this network namespace) as data:
 * for the rendezvous, and for programs that tell people.
 */
#ifndef VBN_NETIF_H
#define VBN_NETIF_H

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>

#define NETIF_TEXT (INET6_ADDRSTRLEN + IF_NAMESIZE)

struct net_addr {
	struct sockaddr_storage sa;
	socklen_t len;
};

/* One address of an interface; one without addresses is listed once. */
struct netif {
	char name[IF_NAMESIZE];
	bool up; /* switched on, and its cable or peer answers */
	bool switched_on;
	bool loopback;
	bool link_local;       /* the address */
	struct net_addr addr;  /* port 0; len 0: none */
	char text[NETIF_TEXT]; /* the address for people, "" if none */
	unsigned prefix;       /* bits of its subnet */
	unsigned mtu;	       /* 0: not known */
	int mbits;	       /* per second; 0: not known */
};

struct netifs {
	struct netif *list;
	size_t n;
};

/* 0, to be freed by netifs_free(); -errno with vbn_fail(). */
int netifs_read(struct netifs *ifs);
void netifs_free(struct netifs *ifs);
void netif_details(struct netif *i);

/* Can another host send to this address? (up, not loopback nor link-local) */
bool netif_routable(const struct netif *i);
/* A bridge or cable end of containers, by its name: other hosts have the like.
 */
bool netif_bridge(const struct netif *i);
/* Is any loopback interface with an address up? */
bool netifs_loopback_up(const struct netifs *ifs);
size_t netifs_routable(const struct netifs *ifs); /* how many are */
/*
 * "eth0 10.1.2.3, ib0 10.2.2.3": those that are routable, bridges of containers
 * last. Returns @text.
 */
const char *netifs_candidates(const struct netifs *ifs, char *text,
			      size_t room);

/* This machine only: 127.0.0.0/8, ::1, and "any". */
bool net_addr_local(const struct net_addr *a);
bool net_addr_any(const struct net_addr *a);
/* 169.254.0.0/16, fe80::/10. */
bool net_addr_link_local(const struct net_addr *a);
/* The same host address, whatever the port. */
bool net_addr_same(const struct net_addr *a, const struct net_addr *b);
const char *net_addr_text(const struct net_addr *a, char text[NETIF_TEXT]);
void net_addr_set_port(struct net_addr *a, uint16_t port);

#endif
