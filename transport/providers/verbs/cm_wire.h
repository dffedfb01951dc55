/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting by rdma_cm, the parts without I/O: what its messages carry, the
 * addresses, what follows on which event, and the attributes of a queue pair
 * out of rdma_cm's and our own.
 *
 * What the messages carry travels in the clear and may come from anyone. So
 * each side makes a key for the connection, which the other learns through the
 * control plane, and who sends proves that it knows the receiver's key.
 */
#ifndef VBN_VERBS_CM_WIRE_H
#define VBN_VERBS_CM_WIRE_H

#include "offer.h"

#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#define CM_MAC_BYTES   32
#define CM_HELLO_BYTES (1 + 1 + 8 + 4 + CM_MAC_BYTES)
_Static_assert(CM_HELLO_BYTES <= 56, "what a request has room for");

/* Of which connection, which lane, and the sender's queue pair. */
struct cm_hello {
	uint64_t generation;
	uint32_t qpn;
	uint8_t lane;
	bool reply;
};

void cm_hello_pack(uint8_t out[CM_HELLO_BYTES], const struct cm_hello *hello,
		   const uint8_t key[CM_KEY_BYTES]);
/* Read what any stranger may have sent. False: it is none. */
bool cm_hello_unpack(const void *data, size_t len, struct cm_hello *hello);
/* Does its sender know the key? */
bool cm_hello_proves(const void *data, size_t len,
		     const uint8_t key[CM_KEY_BYTES], bool reply);

/*
 * The IP address that a GID of RoCE's is. False: it is none that reaches
 * other hosts (link-local ones lack the interface).
 */
bool cm_sockaddr(const uint8_t gid[GID_BYTES], uint16_t port,
		 struct sockaddr_storage *address);
#define CM_TEXT 64
const char *cm_text(const struct cm_place *place, char text[CM_TEXT]);

/* ---- one lane's way ---- */

enum cm_state {
	CM_LISTENING,
	CM_ADDRESS,  /* the caller: the peer's address is looked up */
	CM_ROUTE,    /* and how to get there */
	CM_CALLED,   /* and is called */
	CM_AGAIN,    /* and will be: the peer's port remembers an old caller */
	CM_REFUSED,  /* the peer will say why, by the control plane */
	CM_ACCEPTED, /* the other side: the queue pair is connected */
};

enum cm_action {
	CM_IGNORE,
	CM_FIND_ROUTE,
	CM_CALL,
	CM_FINISH,
	CM_ANSWER, /* a request */
	CM_RETRY,
	CM_AWAIT_REASON,
	CM_FAIL,
	CM_END, /* nothing more is wanted of the identifier */
};

enum cm_action cm_next(enum cm_state state, enum rdma_cm_event_type event,
		       int status);
/* What an event that was to be none means, and what to do. */
const char *cm_reason(enum rdma_cm_event_type event, int status);

/* ---- attributes ---- */

/*
 * rdma_cm's @from with what the job has settled (@own and its mask); false:
 * they are to another queue pair, or to another address than @own says.
 */
bool cm_attributes(struct ibv_qp_attr *from, int from_mask,
		   const struct ibv_qp_attr *own, int own_mask);

#endif
