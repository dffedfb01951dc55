/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Encoding of addresses and offers. A peer of another version is refused
 * before anything else of its blob is looked at.
 */
#include "offer.h"
#include "error.h"

#include <errno.h>
#include <string.h>

#define OFFER_VERSION 5
#define VERSION_BYTES 2
#define RAILS_AT      (VERSION_BYTES + 1)
#define PORT_BYTES    (1 + 1 + 1 + 2 + 2 + PORT_NAME + 1)
#define GID_ITEM      (1 + GID_BYTES)
#define PAIR_BYTES    (1 + 1 + 4 + 1 + 2 * GID_BYTES + 2 + 1 + 1 + 1)
#define LANE_BYTES    (4 + 4)
#define PLACE_BYTES   (GID_BYTES + 2)
#define PAIRS_AT      (VERSION_BYTES + 8 + 8 + 4 + 1 + 1 + 1)
#define OFFER_BYTES(npairs, nlanes, cm)                                        \
	(PAIRS_AT + (npairs)*PAIR_BYTES + (nlanes)*LANE_BYTES +                \
	 ((cm) ? CM_KEY_BYTES + (npairs)*PLACE_BYTES : 0))

/* So many GIDs of each port fit a blob, whatever their number. */
#define GIDS_OF(nrails)                                                        \
	(((BLOB_MAX - RAILS_AT) / (nrails)-PORT_BYTES) / GID_ITEM)

#define MTU_FIRST 1 /* enum ibv_mtu: 256 bytes */
#define MTU_LAST  5 /* 4096 bytes */
#define BITS_24	  0xffffffu

_Static_assert(GIDS_OF(RAILS_MAX) >= 8, "enough of each");
_Static_assert(OFFER_BYTES(RAILS_MAX, LANES_MAX, true) <= BLOB_MAX,
	       "fits a blob");

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

/* ---- addresses ---- */

static uint8_t *put_port(uint8_t *p, const struct port_address *port,
			 unsigned most)
{
	unsigned n = port->ngids < most ? port->ngids : most;

	p = put(p, port->infiniband, 1);
	p = put(p, port->mtu, 1);
	p = put(p, port->port_num, 1);
	p = put(p, port->lid, 2);
	p = put(p, port->pkey, 2);
	p = put_bytes(p, port->name, PORT_NAME);
	p = put(p, n, 1);
	for (unsigned i = 0; i < n; i++) {
		p = put(p, port->gids[i].type, 1);
		p = put_bytes(p, port->gids[i].raw, GID_BYTES);
	}
	return p;
}

void offer_pack_addresses(struct blob *blob,
			  const struct rail_addresses *address)
{
	uint8_t *p = put(blob->data, OFFER_VERSION, VERSION_BYTES);

	p = put(p, address->n, 1);
	for (unsigned i = 0; i < address->n; i++)
		p = put_port(p, &address->rail[i], GIDS_OF(address->n));
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

static int get_port(const struct blob *blob, const uint8_t **p,
		    struct port_address *a)
{
	const uint8_t *end = blob->data + blob->len;
	uint64_t layer, n;

	if (end - *p < PORT_BYTES)
		return bad_length(blob, blob->len + PORT_BYTES);
	layer = get(p, 1);
	a->infiniband = layer != 0;
	a->mtu = (uint8_t)get(p, 1);
	a->port_num = (uint8_t)get(p, 1);
	a->lid = (uint16_t)get(p, 2);
	a->pkey = (uint16_t)get(p, 2);
	get_bytes(p, a->name, PORT_NAME);
	n = get(p, 1);
	if (n > PORT_GIDS || (size_t)(end - *p) < n * GID_ITEM)
		return bad_length(blob, blob->len + n * GID_ITEM);
	a->ngids = (uint8_t)n;
	if (layer > 1 || !get_gids(p, a) || bad_mtu(a->mtu) ||
	    a->name[PORT_NAME - 1])
		return vbn_fail(-EPROTO,
				"verbs: the peer's address names no known "
				"link layer, MTU or GID type");
	return 0;
}

int offer_unpack_addresses(const struct blob *blob, struct rail_addresses *out)
{
	struct rail_addresses a = {0};
	const uint8_t *p;
	int err = open_blob(blob, RAILS_AT + PORT_BYTES, &p);
	uint64_t n;

	if (err)
		return err;
	n = get(&p, 1);
	if (!n || n > RAILS_MAX)
		return vbn_fail(-EPROTO,
				"verbs: the peer's address names %u ports",
				(unsigned)n);
	a.n = (uint8_t)n;
	for (unsigned i = 0; i < n && !err; i++)
		err = get_port(blob, &p, &a.rail[i]);
	if (err)
		return err;
	if (p != blob->data + blob->len)
		return bad_length(blob, (size_t)(p - blob->data));
	*out = a;
	return 0;
}

/* ---- offers ---- */

static uint8_t *put_pair(uint8_t *p, const struct pair_offer *pair)
{
	const struct qp_offer *qp = &pair->qp;

	p = put(p, pair->from, 1);
	p = put(p, pair->to, 1);
	p = put(p, pair->ring_rkey, 4);
	p = put(p, qp->gid_type, 1);
	p = put_bytes(p, qp->from, GID_BYTES);
	p = put_bytes(p, qp->to, GID_BYTES);
	p = put(p, qp->lid, 2);
	p = put(p, qp->mtu, 1);
	p = put(p, qp->read_out, 1);
	return put(p, qp->read_in, 1);
}

static uint8_t *put_places(uint8_t *p, const struct conn_offer *offer)
{
	p = put_bytes(p, offer->cm_key, CM_KEY_BYTES);
	for (unsigned i = 0; i < offer->npairs; i++) {
		p = put_bytes(p, offer->cm_place[i].ip, GID_BYTES);
		p = put(p, offer->cm_place[i].port, 2);
	}
	return p;
}

static void get_places(const uint8_t **p, struct conn_offer *o)
{
	get_bytes(p, o->cm_key, CM_KEY_BYTES);
	for (unsigned i = 0; i < o->npairs; i++) {
		get_bytes(p, o->cm_place[i].ip, GID_BYTES);
		o->cm_place[i].port = (uint16_t)get(p, 2);
	}
}

void offer_pack(struct blob *blob, const struct conn_offer *offer)
{
	uint8_t *p = put(blob->data, OFFER_VERSION, VERSION_BYTES);

	p = put(p, offer->generation, 8);
	p = put(p, offer->ring_addr, 8);
	p = put(p, offer->ring_bytes, 4);
	p = put(p, offer->npairs, 1);
	p = put(p, offer->nlanes, 1);
	p = put(p, offer->rdmacm, 1);
	for (unsigned i = 0; i < offer->npairs; i++)
		p = put_pair(p, &offer->pair[i]);
	for (unsigned i = 0; i < offer->nlanes; i++) {
		p = put(p, offer->lane[i].qpn, 4);
		p = put(p, offer->lane[i].psn, 4);
	}
	if (offer->rdmacm)
		p = put_places(p, offer);
	blob->len = (size_t)(p - blob->data);
}

static bool get_pair(const uint8_t **p, struct pair_offer *pair)
{
	struct qp_offer *qp = &pair->qp;
	uint64_t type;

	pair->from = (uint8_t)get(p, 1);
	pair->to = (uint8_t)get(p, 1);
	pair->ring_rkey = (uint32_t)get(p, 4);
	type = get(p, 1);
	qp->gid_type = (enum gid_type)type;
	get_bytes(p, qp->from, GID_BYTES);
	get_bytes(p, qp->to, GID_BYTES);
	qp->lid = (uint16_t)get(p, 2);
	qp->mtu = (uint8_t)get(p, 1);
	qp->read_out = (uint8_t)get(p, 1);
	qp->read_in = (uint8_t)get(p, 1);
	return type <= GID_ROCE_V2 && !bad_mtu(qp->mtu) &&
	       pair->from < RAILS_MAX && pair->to < RAILS_MAX;
}

static bool get_lanes(const uint8_t **p, struct conn_offer *o)
{
	bool ok = true;

	for (unsigned i = 0; i < o->nlanes; i++) {
		o->lane[i].qpn = (uint32_t)get(p, 4);
		o->lane[i].psn = (uint32_t)get(p, 4);
		ok = ok && o->lane[i].qpn <= BITS_24 &&
		     o->lane[i].psn <= BITS_24;
	}
	return ok;
}

int offer_unpack(const struct blob *blob, struct conn_offer *offer)
{
	struct conn_offer o = {0};
	const uint8_t *p;
	int err = open_blob(blob, PAIRS_AT, &p);
	bool ok = true;
	size_t due;

	if (err)
		return err;
	o.generation = get(&p, 8);
	o.ring_addr = get(&p, 8);
	o.ring_bytes = (uint32_t)get(&p, 4);
	o.npairs = (uint8_t)get(&p, 1);
	o.nlanes = (uint8_t)get(&p, 1);
	o.rdmacm = get(&p, 1) != 0;
	if (!o.npairs || o.npairs > RAILS_MAX || o.nlanes < o.npairs ||
	    o.nlanes > LANES_MAX)
		return vbn_fail(-EPROTO, "verbs: the peer's offer holds an "
					 "impossible number of queue pairs");
	due = OFFER_BYTES((size_t)o.npairs, (size_t)o.nlanes, o.rdmacm);
	if (blob->len != due)
		return bad_length(blob, due);
	for (unsigned i = 0; i < o.npairs; i++)
		ok = get_pair(&p, &o.pair[i]) && ok;
	if (!get_lanes(&p, &o) || !ok)
		return vbn_fail(-EPROTO, "verbs: the peer's offer holds an "
					 "impossible GID type, queue pair, "
					 "sequence number or MTU");
	if (o.rdmacm)
		get_places(&p, &o);
	*offer = o;
	return 0;
}

struct qp_offer offer_of_lane(const struct conn_offer *offer, unsigned lane)
{
	struct qp_offer one = offer->pair[lane % offer->npairs].qp;

	one.qpn = offer->lane[lane].qpn;
	one.psn = offer->lane[lane].psn;
	return one;
}
