/* SPDX-License-Identifier: BSD-3-Clause */
#include "cm_wire.h"
#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define VERSION	  1
#define REPLY	  0x80 /* with the version */
#define MAC_AT	  (CM_HELLO_BYTES - CM_MAC_BYTES)
#define STALE	  10 /* reasons of the InfiniBand specification's */
#define NO_SERVER 8
#define BY_USER	  28
_Static_assert(CM_MAC_BYTES == crypto_auth_BYTES, "sizes agree");
_Static_assert(CM_KEY_BYTES == crypto_auth_KEYBYTES, "sizes agree");

void cm_hello_pack(uint8_t out[CM_HELLO_BYTES], const struct cm_hello *hello,
		   const uint8_t key[CM_KEY_BYTES])
{
	uint8_t *p = out;

	*p++ = VERSION | (hello->reply ? REPLY : 0);
	*p++ = hello->lane;
	p = put_u64(p, hello->generation);
	p = put_u32(p, hello->qpn);
	crypto_auth(p, out, MAC_AT, key);
}

bool cm_hello_unpack(const void *data, size_t len, struct cm_hello *hello)
{
	const uint8_t *p = data;

	/* more may follow: what was not filled arrives, too */
	if (!p || len < CM_HELLO_BYTES || (p[0] & ~REPLY) != VERSION ||
	    p[1] >= LANES_MAX)
		return false;
	hello->reply = p[0] & REPLY;
	hello->lane = p[1];
	hello->generation = get_u64(p + 2);
	hello->qpn = get_u32(p + 10);
	return true;
}

bool cm_hello_proves(const void *data, size_t len,
		     const uint8_t key[CM_KEY_BYTES], bool reply)
{
	const uint8_t *p = data;

	return p && len >= CM_HELLO_BYTES &&
	       p[0] == (VERSION | (reply ? REPLY : 0)) &&
	       !crypto_auth_verify(p + MAC_AT, p, MAC_AT, key);
}

/* ---- addresses ---- */

bool cm_sockaddr(const uint8_t gid[GID_BYTES], uint16_t port,
		 struct sockaddr_storage *address)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	struct sockaddr_in *v4 = (struct sockaddr_in *)address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;

	memset(address, 0, sizeof(*address));
	if (gid_is_empty(gid) || (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80))
		return false;
	if (!memcmp(gid, mapped, sizeof(mapped))) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		memcpy(&v4->sin_addr, gid + sizeof(mapped), 4);
	} else {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		memcpy(&v6->sin6_addr, gid, GID_BYTES);
	}
	return true;
}

const char *cm_text(const struct cm_place *place, char text[CM_TEXT])
{
	struct sockaddr_storage address;
	char ip[INET6_ADDRSTRLEN] = "no IP address";

	if (cm_sockaddr(place->ip, 0, &address)) {
		bool v4 = address.ss_family == AF_INET;

		inet_ntop(address.ss_family,
			  place->ip + (v4 ? GID_BYTES - 4 : 0), ip, sizeof(ip));
	}
	if (place->port)
		snprintf(text, CM_TEXT, "%s port %u", ip, place->port);
	else
		snprintf(text, CM_TEXT, "%s", ip);
	return text;
}

/* ---- one lane's way ---- */

static enum cm_action next_of_caller(enum cm_state state,
				     enum rdma_cm_event_type event, int status)
{
	if (event == RDMA_CM_EVENT_ADDR_RESOLVED && state == CM_ADDRESS)
		return CM_FIND_ROUTE;
	if (event == RDMA_CM_EVENT_ROUTE_RESOLVED && state == CM_ROUTE)
		return CM_CALL;
	if (event == RDMA_CM_EVENT_CONNECT_RESPONSE && state == CM_CALLED)
		return CM_FINISH;
	if (event == RDMA_CM_EVENT_REJECTED && status == STALE &&
	    state == CM_CALLED)
		return CM_RETRY;
	if (event == RDMA_CM_EVENT_REJECTED && status == BY_USER &&
	    state == CM_CALLED)
		return CM_AWAIT_REASON;
	return CM_FAIL;
}

enum cm_action cm_next(enum cm_state state, enum rdma_cm_event_type event,
		       int status)
{
	/* a path that moves does not move what is settled */
	if (event == RDMA_CM_EVENT_ADDR_CHANGE || state == CM_AGAIN ||
	    state == CM_REFUSED)
		return CM_IGNORE;
	switch (state) {
	case CM_LISTENING:
		return event == RDMA_CM_EVENT_CONNECT_REQUEST  ? CM_ANSWER
		       : event == RDMA_CM_EVENT_DEVICE_REMOVAL ? CM_END
							       : CM_IGNORE;
	case CM_ACCEPTED:
		return CM_END;
	default:
		return next_of_caller(state, event, status);
	}
}

const char *cm_reason(enum rdma_cm_event_type event, int status)
{
	switch (event) {
	case RDMA_CM_EVENT_ADDR_ERROR:
		return "the peer's address does not answer from this port; "
		       "see ip route get and ip neigh";
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return "there is no route; see ip route get, and on InfiniBand "
		       "the subnet manager";
	case RDMA_CM_EVENT_UNREACHABLE:
		return "the peer does not answer; do packets (on RoCE: UDP "
		       "port 4791) get there?";
	case RDMA_CM_EVENT_REJECTED:
		return status == NO_SERVER
			       ? "nobody listens there; has the peer's address "
				 "moved to another host?"
			       : "the peer's rdma_cm refuses; see the kernel's "
				 "log";
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		return "the device is being removed";
	default:
		return "rdma_cm fails; VBN_CONNECT=control does without it";
	}
}

/* ---- attributes ---- */

bool cm_attributes(struct ibv_qp_attr *from, int from_mask,
		   const struct ibv_qp_attr *own, int own_mask)
{
	struct ibv_ah_attr *ah = &from->ah_attr;
	const struct ibv_ah_attr *ours = &own->ah_attr;

	if (from_mask & own_mask & IBV_QP_DEST_QPN &&
	    from->dest_qp_num != own->dest_qp_num)
		return false;
	if (from_mask & own_mask & IBV_QP_AV) {
		if (ah->is_global && ours->is_global &&
		    memcmp(ah->grh.dgid.raw, ours->grh.dgid.raw, GID_BYTES))
			return false;
		ah->sl = ours->sl;
		ah->grh.traffic_class = ours->grh.traffic_class;
		if (!ah->is_global && ours->is_global)
			return false;
	}
	from->path_mtu = own->path_mtu;
	from->max_dest_rd_atomic = own->max_dest_rd_atomic;
	from->max_rd_atomic = own->max_rd_atomic;
	from->min_rnr_timer = own->min_rnr_timer;
	from->timeout = own->timeout;
	from->retry_cnt = own->retry_cnt;
	from->rnr_retry = own->rnr_retry;
	return true;
}
