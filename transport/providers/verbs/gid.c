/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which GIDs RoCE ports speak with. An entry's reach says how far its packets
 * get; the version of the encapsulation counts before it, since two ports of
 * different versions cannot talk at all.
 */
#include "gid.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define IPV4_AT	     12 /* in an IPv4-mapped GID */
#define SUBNET_IPV4  24 /* bits alike: one subnet, most likely */
#define SUBNET_IPV6  64
#define BITS_OF_BYTE 8u

enum reach { REACH_NONE, REACH_LINK, REACH_ROUTED };

bool gid_is_ipv4(const uint8_t raw[GID_BYTES])
{
	static const uint8_t prefix[IPV4_AT] = {[10] = 0xff, [11] = 0xff};

	return !memcmp(raw, prefix, sizeof(prefix));
}

bool gid_is_empty(const uint8_t raw[GID_BYTES])
{
	static const uint8_t zero[GID_BYTES];

	return !memcmp(raw, zero, sizeof(zero));
}

static enum reach reach_ipv4(const uint8_t *ip)
{
	if (ip[0] == 0 || ip[0] == 127 || ip[0] >= 224)
		return REACH_NONE;
	if (ip[0] == 169 && ip[1] == 254)
		return REACH_LINK;
	return REACH_ROUTED;
}

static enum reach reach_ipv6(const uint8_t *raw)
{
	static const uint8_t loopback[GID_BYTES] = {[15] = 1};

	if (gid_is_empty(raw) || !memcmp(raw, loopback, sizeof(loopback)) ||
	    raw[0] == 0xff)
		return REACH_NONE;
	if (raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80)
		return REACH_LINK;
	return REACH_ROUTED;
}

static enum reach reach_of(const struct gid_entry *entry)
{
	if (!entry->readable || entry->type == GID_IB)
		return REACH_NONE;
	return gid_is_ipv4(entry->raw) ? reach_ipv4(entry->raw + IPV4_AT)
				       : reach_ipv6(entry->raw);
}

const char *gid_unfit(const struct gid_entry *entry)
{
	if (!entry->readable)
		return "cannot be read";
	if (gid_is_empty(entry->raw))
		return "empty";
	if (entry->type == GID_IB)
		return "not of a RoCE type";
	if (reach_of(entry) == REACH_NONE)
		return "no address of one host";
	return NULL;
}

/* 0: never chosen. */
static int score(const struct gid_entry *entry)
{
	enum reach reach = reach_of(entry);

	if (reach == REACH_NONE)
		return 0;
	return (entry->type == GID_ROCE_V2) << 3 | (int)reach << 1 |
	       (int)gid_is_ipv4(entry->raw);
}

const char *gid_lesser(const struct gid_entry *entry,
		       const struct gid_entry *best)
{
	if (entry->type != best->type)
		return "RoCE v2 is preferred";
	if (reach_of(entry) != reach_of(best))
		return "link-local, a routable address is preferred";
	if (gid_is_ipv4(entry->raw) != gid_is_ipv4(best->raw))
		return "IPv6, of two as good IPv4 is preferred";
	return "as good, the lower index is preferred";
}

const struct gid_entry *gid_choose(const struct gid_entry *entries, size_t n)
{
	const struct gid_entry *best = NULL;
	int best_score = 0;

	for (size_t i = 0; i < n; i++) {
		int s = score(&entries[i]);

		if (s > best_score) {
			best_score = s;
			best = &entries[i];
		}
	}
	return best;
}

size_t gid_candidates(const struct gid_entry *entries, size_t n,
		      struct gid_entry *out, size_t room)
{
	size_t have = 0;

	for (size_t i = 0; i < n; i++) {
		int s = score(&entries[i]);
		size_t at = have;

		while (at && s > score(&out[at - 1]))
			at--;
		if (!s || at == room)
			continue;
		if (have < room)
			have++;
		memmove(&out[at + 1], &out[at], (have - 1 - at) * sizeof(*out));
		out[at] = entries[i];
	}
	return have;
}

/* ---- pairs ---- */

/* Leading bits alike; of IPv4 addresses, in those. */
static int common_bits(const uint8_t *a, const uint8_t *b)
{
	int at = gid_is_ipv4(a) ? IPV4_AT : 0, bits = 0;

	for (int i = at; i < GID_BYTES; i++) {
		unsigned differ = a[i] ^ b[i];

		if (differ)
			return bits + __builtin_clz(differ) -
			       (int)(sizeof(differ) - 1) * (int)BITS_OF_BYTE;
		bits += (int)BITS_OF_BYTE;
	}
	return bits;
}

bool gid_one_subnet(const uint8_t a[GID_BYTES], const uint8_t b[GID_BYTES])
{
	return common_bits(a, b) >=
	       (gid_is_ipv4(a) ? SUBNET_IPV4 : SUBNET_IPV6);
}

/* 0: these two cannot talk. */
static int pair_score(const struct gid_entry *a, const struct gid_entry *b)
{
	enum reach reach =
		reach_of(a) < reach_of(b) ? reach_of(a) : reach_of(b);
	bool ipv4 = gid_is_ipv4(a->raw);
	int bits;

	if (reach == REACH_NONE || a->type != b->type ||
	    ipv4 != gid_is_ipv4(b->raw))
		return 0;
	bits = common_bits(a->raw, b->raw);
	return (a->type == GID_ROCE_V2) << 12 | (int)reach << 10 |
	       gid_one_subnet(a->raw, b->raw) << 9 | (int)ipv4 << 8 | bits;
}

/* Of two pairs that are as good: an order that both sides agree on. */
static int compare_pairs(const uint8_t *a, const uint8_t *b, const uint8_t *c,
			 const uint8_t *d)
{
	const uint8_t *low = memcmp(a, b, GID_BYTES) < 0 ? a : b;
	const uint8_t *other = memcmp(c, d, GID_BYTES) < 0 ? c : d;
	int order = memcmp(low, other, GID_BYTES);

	return order ? order
		     : memcmp(low == a ? b : a, other == c ? d : c, GID_BYTES);
}

bool gid_pair(const struct gid_entry *local, size_t nlocal,
	      const struct gid_entry *peer, size_t npeer, struct gid_pair *pair)
{
	int best = 0;

	for (size_t i = 0; i < nlocal; i++)
		for (size_t j = 0; j < npeer; j++) {
			int s = pair_score(&local[i], &peer[j]);

			if (s < best || !s)
				continue;
			if (s == best &&
			    compare_pairs(local[i].raw, peer[j].raw,
					  local[pair->local].raw,
					  peer[pair->peer].raw) >= 0)
				continue;
			best = s;
			*pair = (struct gid_pair){i, j};
		}
	return best > 0;
}

/* ---- text ---- */

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
