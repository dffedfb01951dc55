/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How ranks of other hosts come to rank 0 when nobody has named it: its host
 * says all addresses it might be reached at, and each of the others takes the
 * one that it shares a subnet with. Pure functions.
 */
#ifndef VBN_REACH_H
#define VBN_REACH_H

#include "netif.h"

#define REACH_TEXT 512

/*
 * This host's addresses, the best first, as "10.1.2.3/16 fd00::2/64": those
 * that other hosts may reach, of @ifname alone unless it is ""; IPv4 first,
 * bridges of containers last. Returns how many; 0: @text is "".
 */
size_t reach_list(const struct netifs *ifs, const char *ifname, char *text,
		  size_t room);

/*
 * The address of @list (which came from another process) to go to from here:
 * the first that is in the subnet of an interface of ours (of @ifname, unless
 * it is ""), else the first. false: none is an address.
 */
bool reach_choose(const char *list, const struct netifs *ifs,
		  const char *ifname, char host[INET6_ADDRSTRLEN]);

#endif
