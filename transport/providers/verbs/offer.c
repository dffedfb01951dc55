/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Encoding of addresses and offers. A peer of another version is refused
 * before anything else of its blob is looked at.
 */
#include "offer.h"
#include "error.h"

#include <errno.h>
#include <string.h>

#define OFFER_VERSION 3
#define VERSION_BYTES 2
#define GID_AT	      (VERSION_BYTES + 1 + 1 + 1 + 2 + 2 + PORT_NAME + 1)
#define GID_ITEM      (1 + GID_BYTES)
#define OFFER_BYTES                                                            \
	(VERSION_BYTES + 1 + 2 * GID_BYTES + 2 + 4 + 4 + 1 + 1 + 1 + 8 + 8 +   \
	 4 + 4 + 1 + (LANES_MAX - 1) * (4 + 4))

#define MTU_FIRST 1 /* enum ibv_mtu: 256 bytes */
#define MTU_LAST  5 /* 4096 bytes */
#define BITS_24	  0xffffffu

_Static_assert(GID_AT + PORT_GIDS * GID_ITEM <= BLOB_MAX, "fits a blob");

static uint8_t *put(uint8_t *p, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		*p++ = (uint8_t)(value >> (8 * i));
	return p;
}

static uint8_t *put_bytes(uint8_t *p, const void *from, size_t bytes)
{
	memcpy(p, from, bytes);
	return p + bytes;
}

static uint64_t get(const uint8_t **p, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value |= (uint64_t) * (*p)++ << (8 * i);
	return value;
}

static void get_bytes(const uint8_t **p, void *to, size_t bytes)
{
	memcpy(to, *p, bytes);
	*p += bytes;
}

static int bad_length(const struct blob *blob, size_t bytes)
{
	return vbn_fail(-EPROTO,
			"verbs: connection data of %zu bytes where %zu are "
			"due; run the same verbena on all ranks",
			blob->len, bytes);
}

/* Past the version, if it is ours and the blob has at least @bytes. */
static int open_blob(const struct blob *blob, size_t bytes, const uint8_t **p)
{
	uint64_t version;

	*p = blob->data;
	version = blob->len >= VERSION_BYTES ? get(p, VERSION_BYTES) : 0;
	if (version != OFFER_VERSION)
		return vbn_fail(-EPROTO,
				"verbs: the peer speaks version %u of the "
				"connection exchange, this side %u; run the "
				"same verbena on all ranks",
				(unsigned)version, OFFER_VERSION);
	return blob->len >= bytes ? 0 : bad_length(blob, bytes);
}

static bool bad_mtu(uint8_t mtu)
{
	return mtu < MTU_FIRST || mtu > MTU_LAST;
}

void offer_pack_address(struct blob *blob, const struct port_address *port)
{
	uint8_t *p = put(blob->data, OFFER_VERSION, VERSION_BYTES);

	p = put(p, port->infiniband, 1);
	p = put(p, port->mtu, 1);
	p = put(p, port->port_num, 1);
	p = put(p, port->lid, 2);
	p = put(p, port->pkey, 2);
	p = put_bytes(p, port->name, PORT_NAME);
	p = put(p, port->ngids, 1);
	for (unsigned i = 0; i < port->ngids; i++) {
		p = put(p, port->gids[i].type, 1);
		p = put_bytes(p, port->gids[i].raw, GID_BYTES);
	}
	blob->len = (size_t)(p - blob->data);
}

static bool get_gids(const uint8_t **p, struct port_address *port)
{
	for (unsigned i = 0; i < port->ngids; i++) {
		uint64_t type = get(p, 1);

		if (type > GID_ROCE_V2)
			return false;
		port->gids[i].type = (enum gid_type)type;
		port->gids[i].readable = true;
		get_bytes(p, port->gids[i].raw, GID_BYTES);
	}
	return true;
}

int offer_unpack_address(const struct blob *blob, struct port_address *port)
{
	struct port_address a = {0};
	const uint8_t *p;
	int err = open_blob(blob, GID_AT, &p);
	uint64_t layer, n;

	if (err)
		return err;
	layer = get(&p, 1);
	a.infiniband = layer != 0;
	a.mtu = (uint8_t)get(&p, 1);
	a.port_num = (uint8_t)get(&p, 1);
	a.lid = (uint16_t)get(&p, 2);
	a.pkey = (uint16_t)get(&p, 2);
	get_bytes(&p, a.name, PORT_NAME);
	n = get(&p, 1);
	if (n > PORT_GIDS || blob->len != GID_AT + n * GID_ITEM)
		return bad_length(blob, GID_AT + n * GID_ITEM);
	a.ngids = (uint8_t)n;
	if (layer > 1 || !get_gids(&p, &a) || bad_mtu(a.mtu) ||
	    a.name[PORT_NAME - 1])
		return vbn_fail(-EPROTO,
				"verbs: the peer's address names no known "
				"link layer, MTU or GID type");
	*port = a;
	return 0;
}

void offer_pack(struct blob *blob, const struct qp_offer *offer)
{
	uint8_t *p = put(blob->data, OFFER_VERSION, VERSION_BYTES);

	p = put(p, offer->gid_type, 1);
	p = put_bytes(p, offer->from, GID_BYTES);
	p = put_bytes(p, offer->to, GID_BYTES);
	p = put(p, offer->lid, 2);
	p = put(p, offer->qpn, 4);
	p = put(p, offer->psn, 4);
	p = put(p, offer->mtu, 1);
	p = put(p, offer->read_out, 1);
	p = put(p, offer->read_in, 1);
	p = put(p, offer->generation, 8);
	p = put(p, offer->ring_addr, 8);
	p = put(p, offer->ring_rkey, 4);
	p = put(p, offer->ring_bytes, 4);
	p = put(p, offer->nlanes, 1);
	for (int i = 0; i < LANES_MAX - 1; i++) {
		p = put(p, offer->other[i].qpn, 4);
		p = put(p, offer->other[i].psn, 4);
	}
	blob->len = (size_t)(p - blob->data);
}

int offer_unpack(const struct blob *blob, struct qp_offer *offer)
{
	struct qp_offer o;
	const uint8_t *p;
	uint64_t type;
	int err = open_blob(blob, OFFER_BYTES, &p);

	if (err)
		return err;
	if (blob->len != OFFER_BYTES)
		return bad_length(blob, OFFER_BYTES);
	type = get(&p, 1);
	o.gid_type = (enum gid_type)type;
	get_bytes(&p, o.from, GID_BYTES);
	get_bytes(&p, o.to, GID_BYTES);
	o.lid = (uint16_t)get(&p, 2);
	o.qpn = (uint32_t)get(&p, 4);
	o.psn = (uint32_t)get(&p, 4);
	o.mtu = (uint8_t)get(&p, 1);
	o.read_out = (uint8_t)get(&p, 1);
	o.read_in = (uint8_t)get(&p, 1);
	o.generation = get(&p, 8);
	o.ring_addr = get(&p, 8);
	o.ring_rkey = (uint32_t)get(&p, 4);
	o.ring_bytes = (uint32_t)get(&p, 4);
	o.nlanes = (uint8_t)get(&p, 1);
	for (int i = 0; i < LANES_MAX - 1; i++) {
		o.other[i].qpn = (uint32_t)get(&p, 4) & BITS_24;
		o.other[i].psn = (uint32_t)get(&p, 4) & BITS_24;
	}
	if (type > GID_ROCE_V2 || o.qpn > BITS_24 || o.psn > BITS_24 ||
	    bad_mtu(o.mtu))
		return vbn_fail(-EPROTO, "verbs: the peer's offer holds an "
					 "impossible GID type, queue pair, "
					 "sequence number or MTU");
	*offer = o;
	return 0;
}
