/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The digest is a CRC over what members must agree on, so that one field that
 * differs in a range of up to 13 bits (a kind, a type, a root, a count off by
 * one) is always seen.
 */
#include "coll.h"

#define DIGEST_MASK ((1u << WIRE_DIGEST_BITS) - 1)

/* CRC-13, polynomial 0x1cf5, by nibbles. */
static const uint16_t crc_table[16] = {
	0x0000, 0x1cf5, 0x051f, 0x19ea, 0x0a3e, 0x16cb, 0x0f21, 0x13d4,
	0x147c, 0x0889, 0x1163, 0x0d96, 0x1e42, 0x02b7, 0x1b5d, 0x07a8};

static uint16_t crc_add(uint16_t crc, uint64_t value, int nibbles)
{
	for (int i = nibbles - 1; i >= 0; i--)
		crc = (uint16_t)((crc << 4 & DIGEST_MASK) ^
				 crc_table[(crc >> (WIRE_DIGEST_BITS - 4) ^
					    value >> (4 * i)) &
					   15]);
	return crc;
}

uint16_t wire_digest(const struct call *call)
{
	uint16_t crc = crc_add(DIGEST_MASK, (uint64_t)call->operation, 2);

	crc = crc_add(crc, (uint64_t)call->type, 2);
	crc = crc_add(crc, (uint64_t)call->reduction, 2);
	crc = crc_add(crc, (uint64_t)call->algorithm, 2);
	crc = crc_add(crc, call->wire16 | call->in_place << 1, 1);
	crc = crc_add(crc, (uint64_t)call->root, 8);
	crc = crc_add(crc, call->layout, 16);
	crc = crc_add(crc, call->chunk, 16);
	crc = crc_add(crc, call->landing_bytes, 8);
	return crc_add(crc, call->count, 16);
}

uint16_t wire_part_digest(const struct peer *peer, const struct vbn_coll *coll,
			  bool sending)
{
	const struct plan_shape *shape = &coll->shape;
	int self = shape->rank, other = peer->member;
	uint64_t len;

	switch (shape->operation) {
	case PLAN_OP_ALLTOALL:
		len = sending ? shape->layout->in_len[other]
			      : shape->layout->len[other];
		break;
	case PLAN_OP_GATHER:
		len = shape->layout->len[sending ? self : other];
		break;
	default: /* scatter */
		len = shape->layout->len[sending ? other : self];
		break;
	}
	return crc_add(coll->digest, len, 16);
}
