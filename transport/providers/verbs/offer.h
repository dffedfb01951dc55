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
#define RAILS_MAX 4

#define CM_KEY_BYTES 32

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

/* How all of a context's rails are reached. */
struct rail_addresses {
	uint8_t n;
	struct port_address rail[RAILS_MAX];
};

/* One end of a queue pair. */
struct qp_offer {
	enum gid_type gid_type;	 /* of both */
	uint8_t from[GID_BYTES]; /* the sender's end */
	uint8_t to[GID_BYTES];	 /* the receiver's */
	uint16_t lid;		 /* the sender's */
	uint32_t qpn, psn;
	uint8_t mtu;	  /* enum ibv_mtu */
	uint8_t read_out; /* reads and atomics it may have outstanding */
	uint8_t read_in;  /* and can serve at once */
};

/* Two rails that a connection runs by. */
struct pair_offer {
	uint8_t from, to;   /* the sender's and the receiver's */
	uint32_t ring_rkey; /* of the sender's memory for messages */
	struct qp_offer qp; /* but number and sequence, which are a lane's */
};

/* Where rdma_cm finds a rail; port 0: it is not called, but calls. */
struct cm_place {
	uint8_t ip[GID_BYTES]; /* an IPv4 address mapped */
	uint16_t port;
};

struct conn_offer {
	uint64_t generation;
	/* the sender's memory that messages are written into */
	uint64_t ring_addr;
	uint32_t ring_bytes;
	uint8_t npairs, nlanes;
	struct pair_offer pair[RAILS_MAX];
	struct {
		uint32_t qpn, psn;
	} lane[LANES_MAX]; /* lane i is of pair i % npairs */
	bool rdmacm;	   /* who connects them (VBN_CONNECT); else we do */
	uint8_t cm_key[CM_KEY_BYTES];	     /* that rdma_cm's messages prove */
	struct cm_place cm_place[RAILS_MAX]; /* by pair: the sender's */
};

void offer_pack_addresses(struct blob *blob,
			  const struct rail_addresses *address);
/* 0 or -EPROTO with vbn_fail(). */
int offer_unpack_addresses(const struct blob *blob,
			   struct rail_addresses *address);
void offer_pack(struct blob *blob, const struct conn_offer *offer);
int offer_unpack(const struct blob *blob, struct conn_offer *offer);
/* One lane's end. */
struct qp_offer offer_of_lane(const struct conn_offer *offer, unsigned lane);

#endif
