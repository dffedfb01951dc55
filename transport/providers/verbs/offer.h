/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the two sides of a connection tell each other: an address per context
 * and an offer or answer per connection. Little endian, with a version and
 * checked lengths; decoding checks every field's range.
 */
#ifndef VBN_VERBS_OFFER_H
#define VBN_VERBS_OFFER_H

#include "provider.h"
#include "gid.h"

#define PORT_GIDS 16 /* that an address lists, best first */
#define PORT_NAME 32
#define LANES_MAX 8

/* How a port is reached. */
struct port_address {
	bool infiniband; /* link layer; else Ethernet */
	uint8_t mtu;	 /* enum ibv_mtu: its largest packet */
	uint8_t port_num;
	uint16_t lid;	      /* 0: none */
	uint16_t pkey;	      /* as in its table, with the membership bit */
	char name[PORT_NAME]; /* of the device, cut if it is longer */
	uint8_t ngids;
	struct gid_entry gids[PORT_GIDS]; /* from a peer: without index */
};

struct qp_offer {
	enum gid_type gid_type;	 /* of both */
	uint8_t from[GID_BYTES]; /* the sender's end */
	uint8_t to[GID_BYTES];	 /* the receiver's */
	uint16_t lid;		 /* the sender's */
	uint32_t qpn, psn;
	uint8_t mtu;	  /* enum ibv_mtu */
	uint8_t read_out; /* reads and atomics it may have outstanding */
	uint8_t read_in;  /* and can serve at once */
	uint64_t generation;
	/* the sender's memory that messages are written into */
	uint64_t ring_addr;
	uint32_t ring_rkey, ring_bytes;
	uint8_t nlanes; /* queue pairs, with the one above */
	struct {
		uint32_t qpn, psn;
	} other[LANES_MAX - 1];
};

void offer_pack_address(struct blob *blob, const struct port_address *port);
/* 0 or -EPROTO with vbn_fail(). */
int offer_unpack_address(const struct blob *blob, struct port_address *port);
void offer_pack(struct blob *blob, const struct qp_offer *offer);
int offer_unpack(const struct blob *blob, struct qp_offer *offer);

#endif
