/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which GID a RoCE port speaks with. An entry's score says how far its
 * packets get: the version of the encapsulation counts before the address,
 * since two ports of different versions cannot talk at all.
 */
#include "gid.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { SCORE_NONE = 0, SCORE_LINK_LOCAL = 1, SCORE_ROUTABLE = 2, SCORE_V2 = 4 };

static bool is_mapped(const uint8_t *raw)
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(raw, prefix, sizeof(prefix));
}

static int score_ipv4(const uint8_t *ip)
{
	if (ip[0] == 0 || ip[0] == 127 || ip[0] >= 224)
		return SCORE_NONE;
	if (ip[0] == 169 && ip[1] == 254)
		return SCORE_LINK_LOCAL;
	return SCORE_ROUTABLE;
}

static int score_ipv6(const uint8_t *raw)
{
	static const uint8_t any[GID_BYTES];
	static const uint8_t loopback[GID_BYTES] = {[15] = 1};

	if (!memcmp(raw, any, sizeof(any)) ||
	    !memcmp(raw, loopback, sizeof(loopback)) || raw[0] == 0xff)
		return SCORE_NONE;
	if (raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80)
		return SCORE_LINK_LOCAL;
	return SCORE_ROUTABLE;
}

static int score(const struct gid_entry *entry)
{
	int address;

	if (!entry->readable || entry->type == GID_IB)
		return SCORE_NONE;
	address = is_mapped(entry->raw) ? score_ipv4(entry->raw + 12)
					: score_ipv6(entry->raw);
	if (address == SCORE_NONE)
		return SCORE_NONE;
	return address + (entry->type == GID_ROCE_V2 ? SCORE_V2 : 0);
}

const struct gid_entry *gid_choose(const struct gid_entry *entries, size_t n)
{
	const struct gid_entry *best = NULL;
	int best_score = SCORE_NONE;

	for (size_t i = 0; i < n; i++) {
		int s = score(&entries[i]);

		if (s > best_score) {
			best_score = s;
			best = &entries[i];
		}
	}
	return best;
}

const char *gid_text(const uint8_t raw[GID_BYTES], char text[GID_TEXT_LENGTH])
{
	if (!inet_ntop(AF_INET6, raw, text, GID_TEXT_LENGTH))
		snprintf(text, GID_TEXT_LENGTH, "?");
	return text;
}

const char *gid_type_name(enum gid_type type)
{
	switch (type) {
	case GID_ROCE_V1:
		return "RoCE v1";
	case GID_ROCE_V2:
		return "RoCE v2";
	case GID_IB:
		break;
	}
	return "InfiniBand";
}
