/* SPDX-License-Identifier: BSD-3-Clause */
/* The listening socket of rank 0's host, and where others find it. */
#include "meeting.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A listening socket at @host, or at all addresses if that is "". */
static int listen_on(const char *host, uint16_t *port)
{
	struct sockaddr_in6 a6 = {.sin6_family = AF_INET6};
	struct sockaddr_in a4 = {.sin_family = AF_INET};
	bool six = strchr(host, ':') || !host[0];
	struct sockaddr *sa = six ? (void *)&a6 : (void *)&a4;
	socklen_t len = six ? sizeof(a6) : sizeof(a4);
	int off = 0, rc, fd;

	if (host[0] &&
	    inet_pton(six ? AF_INET6 : AF_INET, host,
		      six ? (void *)&a6.sin6_addr : (void *)&a4.sin_addr) != 1)
		return -EINVAL;
	fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if ((six && !host[0] &&
	     setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off))) ||
	    bind(fd, sa, len) || listen(fd, SOMAXCONN) ||
	    getsockname(fd, sa, &len)) {
		rc = -errno;
		close(fd);
		return rc;
	}
	*port = ntohs(six ? a6.sin6_port : a4.sin_port);
	return fd;
}

/* All addresses; those of IPv4 alone where there is no other. */
static int listen_any(uint16_t *port)
{
	int fd = listen_on("", port);

	return fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL
		       ? listen_on("0.0.0.0", port)
		       : fd;
}

static int no_interface(const char *ifname, const char *why,
			const struct netifs *ifs)
{
	char candidates[160];

	return vbn_fail(-EADDRNOTAVAIL,
			"rank 0's host has no address that other hosts "
			"reach%s%s (%s); interfaces that they may reach: %s",
			ifname[0] ? " on VBN_SOCKET_IFNAME " : "", ifname, why,
			netifs_candidates(ifs, candidates, sizeof(candidates)));
}

int meeting_open(bool several, const char *ifname, const char *why,
		 char list[REACH_TEXT], uint16_t *port)
{
	char first[INET6_ADDRSTRLEN] = "127.0.0.1";
	struct netifs ifs;
	int fd, rc = netifs_read(&ifs);

	if (rc)
		return rc;
	if (!several)
		snprintf(list, REACH_TEXT, "127.0.0.1/8");
	else if (!reach_list(&ifs, ifname, list, REACH_TEXT))
		rc = no_interface(ifname, why, &ifs);
	netifs_free(&ifs);
	if (rc)
		return rc;
	snprintf(first, sizeof(first), "%.*s", (int)strcspn(list, "/"), list);
	fd = several && !ifname[0] ? listen_any(port) : listen_on(first, port);
	return fd < 0 ? vbn_fail(fd, "cannot listen at %s: %s", first,
				 strerror(-fd))
		      : fd;
}
