/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sockets and deadlines of the control plane. Every descriptor made here is
 * non-blocking and close-on-exec, and is closed in a child of fork(): a
 * connection that a child kept open would hide its parent's death.
 */
#ifndef VBN_CONTROL_NET_H
#define VBN_CONTROL_NET_H

#include "netif.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NET_NEVER INT64_MAX

int64_t net_now_ms(void); /* monotonic */
/* The moment @timeout_ms from now; NET_NEVER if negative. */
int64_t net_deadline(int timeout_ms);
/* Until @deadline, for poll() and epoll_wait(): -1 never, else >= 0. */
int net_remaining(int64_t deadline);
int64_t net_sooner(int64_t a, int64_t b);

/*
 * @host's addresses, at most @room. -ENXIO: not found, with vbn_fail(), also
 * at the deadline.
 */
int net_resolve(const char *host, uint16_t port, int64_t deadline,
		struct net_addr *addrs, size_t room, size_t *n);
/* -EADDRINUSE, -EADDRNOTAVAIL (not an address of this machine). */
int net_listen(const struct net_addr *addr, int *fd);
int net_listen_any(uint16_t port, int *fd); /* all addresses, both families */
/* Take over a listening socket; it is closed on error. -EINVAL if it is not. */
int net_adopt_listener(int fd);
/* -EAGAIN: none waiting. -EMFILE and the like as accept4(). */
int net_accept(int listen_fd, int *fd);
/* One try; @from is the own end, or NULL. */
int net_connect(const struct net_addr *to, const struct net_addr *from,
		int64_t deadline, int *fd);
/*
 * From here on heartbeats say who lives: the kernel keeps trying for longer
 * than they do, and soon after a gap.
 */
void net_patient(int fd);
/* A connected pair, for the rank that serves the store. */
int net_pair(int fds[2]);
void net_close(int fd);

/* "10.0.0.1:4711" of the other end (@peer) or ours; "?" if unknown. */
void net_name(int fd, bool peer, char *buf, size_t len);

#endif
