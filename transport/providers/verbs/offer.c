/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Encoding of addresses and offers. A peer of another version is refused
 * before anything else of its blob is looked at.
 */
#include "offer.h"
#include "error.h"

#include <errno.h>
#include <string.h>

#define OFFER_VERSION 1
#define ADDRESS_BYTES (2 + 1 + 1 + 2 + GID_BYTES)
#define OFFER_BYTES   (ADDRESS_BYTES + 4 + 4 + 1 + 1 + 1 + 8)

#define MTU_FIRST 1 /* enum ibv_mtu: 256 bytes */
#define MTU_LAST  5 /* 4096 bytes */
#define BITS_24	  0xffffffu

static uint8_t *put(uint8_t *p, uint64_t value, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		*p++ = (uint8_t)(value >> (8 * i));
	return p;
}

static uint64_t get(const uint8_t **p, size_t bytes)
{
	uint64_t value = 0;

	for (size_t i = 0; i < bytes; i++)
		value |= (uint64_t) * (*p)++ << (8 * i);
	return value;
}

static uint8_t *put_port(uint8_t *p, const struct port_address *port)
{
	p = put(p, OFFER_VERSION, 2);
	p = put(p, port->infiniband, 1);
	p = put(p, port->gid_type, 1);
	p = put(p, port->lid, 2);
	memcpy(p, port->gid, GID_BYTES);
	return p + GID_BYTES;
}

static int get_port(const struct blob *blob, size_t bytes, const uint8_t **p,
		    struct port_address *port)
{
	uint64_t version, layer, type;

	*p = blob->data;
	version = blob->len >= 2 ? get(p, 2) : 0;
	if (version != OFFER_VERSION)
		return vbn_fail(-EPROTO,
				"verbs: the peer speaks version %u of the "
				"connection exchange, this side %u; run the "
				"same verbena on all ranks",
				(unsigned)version, OFFER_VERSION);
	if (blob->len != bytes)
		return vbn_fail(-EPROTO,
				"verbs: connection data of %zu bytes where %zu "
				"are due; run the same verbena on all ranks",
				blob->len, bytes);
	layer = get(p, 1);
	type = get(p, 1);
	if (layer > 1 || type > GID_ROCE_V2)
		return vbn_fail(-EPROTO, "verbs: the peer's address names no "
					 "known link layer or GID type");
	port->infiniband = layer != 0;
	port->gid_type = (enum gid_type)type;
	port->lid = (uint16_t)get(p, 2);
	memcpy(port->gid, *p, GID_BYTES);
	*p += GID_BYTES;
	return 0;
}

void offer_pack_address(struct blob *blob, const struct port_address *port)
{
	put_port(blob->data, port);
	blob->len = ADDRESS_BYTES;
}

int offer_unpack_address(const struct blob *blob, struct port_address *port)
{
	const uint8_t *p;

	return get_port(blob, ADDRESS_BYTES, &p, port);
}

void offer_pack(struct blob *blob, const struct qp_offer *offer)
{
	uint8_t *p = put_port(blob->data, &offer->port);

	p = put(p, offer->qpn, 4);
	p = put(p, offer->psn, 4);
	p = put(p, offer->mtu, 1);
	p = put(p, offer->read_out, 1);
	p = put(p, offer->read_in, 1);
	put(p, offer->generation, 8);
	blob->len = OFFER_BYTES;
}

int offer_unpack(const struct blob *blob, struct qp_offer *offer)
{
	struct qp_offer o;
	const uint8_t *p;
	int err = get_port(blob, OFFER_BYTES, &p, &o.port);

	if (err)
		return err;
	o.qpn = (uint32_t)get(&p, 4);
	o.psn = (uint32_t)get(&p, 4);
	o.mtu = (uint8_t)get(&p, 1);
	o.read_out = (uint8_t)get(&p, 1);
	o.read_in = (uint8_t)get(&p, 1);
	o.generation = get(&p, 8);
	if (o.qpn > BITS_24 || o.psn > BITS_24 || o.mtu < MTU_FIRST ||
	    o.mtu > MTU_LAST)
		return vbn_fail(-EPROTO, "verbs: the peer's offer holds an "
					 "impossible queue pair, sequence "
					 "number or MTU");
	*offer = o;
	return 0;
}
