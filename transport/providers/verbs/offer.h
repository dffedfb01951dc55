/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the two sides of a connection tell each other: an address per context
 * and an offer or answer per queue pair. Little endian, fixed size, with a
 * version; decoding checks every field's range.
 */
#ifndef VBN_VERBS_OFFER_H
#define VBN_VERBS_OFFER_H

#include "provider.h"
#include "gid.h"

/* How a port is reached. */
struct port_address {
	bool infiniband; /* link layer; else Ethernet */
	enum gid_type gid_type;
	uint16_t lid;
	uint8_t gid[GID_BYTES];
};

struct qp_offer {
	struct port_address port;
	uint32_t qpn, psn;
	uint8_t mtu;	  /* enum ibv_mtu */
	uint8_t read_out; /* reads and atomics it may have outstanding */
	uint8_t read_in;  /* and can serve at once */
	uint64_t generation;
};

void offer_pack_address(struct blob *blob, const struct port_address *port);
/* 0 or -EPROTO with vbn_fail(). */
int offer_unpack_address(const struct blob *blob, struct port_address *port);
void offer_pack(struct blob *blob, const struct qp_offer *offer);
int offer_unpack(const struct blob *blob, struct qp_offer *offer);

#endif
