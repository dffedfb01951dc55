/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The choice of GIDs: pure functions over copies of ports' tables, so that
 * tests can feed them any table.
 */
#ifndef VBN_VERBS_GID_H
#define VBN_VERBS_GID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GID_BYTES	16
#define GID_TEXT_LENGTH 48

enum gid_type { GID_IB, GID_ROCE_V1, GID_ROCE_V2 };

struct gid_entry {
	uint8_t raw[GID_BYTES];
	uint32_t index; /* in the port's table */
	enum gid_type type;
	bool readable;
};

/*
 * The best entry for RoCE, or NULL: RoCE v2 over v1; a routable address
 * (IPv4-mapped or global IPv6) before a link-local one; IPv4 before IPv6; the
 * lowest position among equals. Unreadable, empty, loopback and multicast
 * entries never are.
 */
const struct gid_entry *gid_choose(const struct gid_entry *entries, size_t n);

/* Those that may be chosen, best first, at most @room. Returns how many. */
size_t gid_candidates(const struct gid_entry *entries, size_t n,
		      struct gid_entry *out, size_t room);

/* Why an entry never is chosen for RoCE, or NULL if it may be. */
const char *gid_unfit(const struct gid_entry *entry);
/* Why @entry, which may be, is not preferred to @best. */
const char *gid_lesser(const struct gid_entry *entry,
		       const struct gid_entry *best);

/* Positions in the two tables. */
struct gid_pair {
	size_t local, peer;
};

/*
 * The two entries that a connection of two RoCE ports runs between: of one
 * type and address family, else false. Preferred are, in this order: RoCE v2,
 * routable addresses, addresses of one subnet, IPv4, the longest common
 * prefix. Symmetric: the peer finds the same pair.
 */
bool gid_pair(const struct gid_entry *local, size_t nlocal,
	      const struct gid_entry *peer, size_t npeer,
	      struct gid_pair *pair);

/* Bits enough alike that both are of one subnet, most likely. */
bool gid_one_subnet(const uint8_t a[GID_BYTES], const uint8_t b[GID_BYTES]);
bool gid_is_empty(const uint8_t raw[GID_BYTES]);
bool gid_is_ipv4(const uint8_t raw[GID_BYTES]);

/* The address as people write it. Returns @text. */
const char *gid_text(const uint8_t raw[GID_BYTES], char text[GID_TEXT_LENGTH]);

const char *gid_type_name(enum gid_type type);

#endif
