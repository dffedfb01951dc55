/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The choice of a GID: pure functions over a copy of a port's table, so that
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
 * (IPv4-mapped or global IPv6) before a link-local one; the lowest position
 * among equals. Unreadable, empty, loopback and multicast entries never are.
 */
const struct gid_entry *gid_choose(const struct gid_entry *entries, size_t n);

/* The address as people write it. Returns @text. */
const char *gid_text(const uint8_t raw[GID_BYTES], char text[GID_TEXT_LENGTH]);

const char *gid_type_name(enum gid_type type);

#endif
