/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Handing descriptors (memfds, eventfds) to other processes of this host: a
 * thread serves them over an abstract Unix socket, to processes of the same
 * user that know the cookie. The thread never waits for another rank, so
 * ranks that fetch from each other cannot block each other.
 */
#ifndef SHM_SHARE_H
#define SHM_SHARE_H

#include "provider.h"

#define SHARE_NAME   40
#define SHARE_COOKIE 16
#define SHARE_BYTES  (SHARE_NAME + SHARE_COOKIE)

struct share;

int share_open(struct share **share);
void share_close(struct share *share);

/* [any] Serve @fd (not taken over) until withdrawn. Returns an id > 0. */
int share_export(struct share *share, int fd);
void share_withdraw(struct share *share, int id);

/* Where others fetch: SHARE_BYTES, goes into blobs. */
const uint8_t *share_address(const struct share *share);

/* [any] Fetch from another process; returns a descriptor. At most 2 s. */
int share_fetch(const uint8_t *address, int id);

#endif
