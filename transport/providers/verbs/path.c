/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Within an InfiniBand subnet the LID suffices; across subnets, without a LID
 * and on RoCE packets carry a global routing header. The creating side chooses
 * the pair of GIDs and its offer names both, so that the sides cannot differ.
 */
#include "path.h"
#include "error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RNR_TIMER    12 /* 0.64 ms; 0 would be 655 ms */
#define RNR_RETRY    7	/* without end: credits keep receives posted */
#define HOP_LIMIT    64
#define SUBNET_BYTES 8
#define PKEY_FULL    0x8000u
#define PKEY_DEFAULT 0xffffu

/* ---- settings ---- */

int path_settings_read(struct path_settings *out)
{
	static const char *const names[] = {
		"VBN_IB_GID_INDEX", "VBN_IB_TIMEOUT", "VBN_IB_RETRY_CNT",
		"VBN_IB_SL",	    "VBN_IB_TC",      "VBN_IB_QPS",
		"VBN_IB_PKEY",	    "VBN_IB_RAILS",
	};
	long value[] = {-1, -1, RETRIES, 0, 0, 1, PKEY_DEFAULT, RAILS_MAX};
	struct env_devices devices = {.n = 0};
	int mtu = IBV_MTU_4096 - IBV_MTU_256, connect = 0;
	int err = env_devices("VBN_IB_HCA", &devices);

	for (size_t i = 0; !err && i < sizeof(value) / sizeof(value[0]); i++)
		err = env_number(names[i], &value[i]);
	if (!err)
		err = env_choice("VBN_IB_MTU", &mtu);
	if (!err)
		err = env_choice("VBN_CONNECT", &connect);
	if (err)
		return err;
	*out = (struct path_settings){
		.devices = devices,
		.gid_index = (int)value[0],
		.timeout = (int)value[1],
		.retry_cnt = (uint8_t)value[2],
		.mtu_max = (uint8_t)(IBV_MTU_256 + mtu),
		.sl = (uint8_t)value[3],
		.tc = (uint8_t)value[4],
		.qps = (uint8_t)value[5],
		.pkey = (uint16_t)value[6],
		.rails = (uint8_t)value[7],
		.rdmacm = connect == 1,
	};
	return 0;
}

/* ---- can the two talk ---- */

static const char *layer_name(const struct port_address *port)
{
	return port->infiniband ? "InfiniBand" : "Ethernet";
}

static int check_layer(const struct port_address *self,
		       const struct port_address *peer, const struct path *path)
{
	if (self->infiniband == peer->infiniband)
		return 0;
	return vbn_fail(-EHOSTUNREACH,
			"verbs: rank %d's %s port %u is %s, rank %d's %s port "
			"%u is %s; choose devices of one network (VBN_IB_HCA)",
			path->self_rank, self->name, self->port_num,
			layer_name(self), path->rank, peer->name,
			peer->port_num, layer_name(peer));
}

/* Limited members of a partition cannot talk to each other. */
static int check_pkey(const struct port_address *self,
		      const struct port_address *peer, const struct path *path)
{
	bool one = !((self->pkey ^ peer->pkey) & ~PKEY_FULL);

	if (one && ((self->pkey | peer->pkey) & PKEY_FULL))
		return 0;
	return vbn_fail(-EHOSTUNREACH,
			"verbs: rank %d's %s port %u uses partition key "
			"0x%04x, rank %d's %s port %u 0x%04x; %s",
			path->self_rank, self->name, self->port_num, self->pkey,
			path->rank, peer->name, peer->port_num, peer->pkey,
			one ? "both are limited members, one must be full"
			    : "set VBN_IB_PKEY to one partition on both");
}

/* What a port would speak with, for the line that says it cannot. */
static void first_gid(const struct port_address *port, char *text, size_t room)
{
	char gid[GID_TEXT_LENGTH];

	if (!port->ngids)
		snprintf(text, room, "no GID");
	else
		snprintf(text, room, "%s %s", gid_type_name(port->gids[0].type),
			 gid_text(port->gids[0].raw, gid));
}

static int no_pair(const struct port_address *self,
		   const struct port_address *peer, const struct path *path)
{
	char here[80], there[80];
	bool types = self->ngids && peer->ngids &&
		     self->gids[0].type != peer->gids[0].type;

	first_gid(self, here, sizeof(here));
	first_gid(peer, there, sizeof(there));
	return vbn_fail(-EHOSTUNREACH,
			"verbs: no GIDs of one %s: rank %d's %s port %u has "
			"%s, rank %d's %s port %u has %s; give both network "
			"interfaces addresses of one family, or choose GIDs "
			"(VBN_IB_GID_INDEX)",
			types ? "RoCE version" : "address family",
			path->self_rank, self->name, self->port_num, here,
			path->rank, peer->name, peer->port_num, there);
}

static int check_both(const struct port_address *self,
		      const struct port_address *peer, const struct path *path)
{
	int err = check_layer(self, peer, path);

	return err ? err : check_pkey(self, peer, path);
}

int path_choose(const struct path_port *port, const struct port_address *peer,
		struct path *path)
{
	const struct port_address *self = &port->address;
	struct gid_pair pair;
	int err = check_both(self, peer, path);

	if (err)
		return err;
	path->infiniband = self->infiniband;
	memset(&path->local, 0, sizeof(path->local));
	memset(path->peer, 0, GID_BYTES);
	if (self->infiniband) {
		if (self->ngids)
			path->local = self->gids[0];
		if (peer->ngids)
			memcpy(path->peer, peer->gids[0].raw, GID_BYTES);
		return 0;
	}
	if (!gid_pair(self->gids, self->ngids, peer->gids, peer->ngids, &pair))
		return no_pair(self, peer, path);
	path->local = self->gids[pair.local];
	memcpy(path->peer, peer->gids[pair.peer].raw, GID_BYTES);
	return 0;
}

int path_accept(const struct path_port *port, const struct port_address *peer,
		const struct qp_offer *offer, struct path *path)
{
	const struct port_address *self = &port->address;
	char gid[GID_TEXT_LENGTH];
	int err = check_both(self, peer, path);

	if (err)
		return err;
	path->infiniband = self->infiniband;
	memset(&path->local, 0, sizeof(path->local));
	memcpy(path->peer, offer->from, GID_BYTES);
	for (unsigned i = 0; i < self->ngids; i++)
		if (self->gids[i].type == offer->gid_type &&
		    !memcmp(self->gids[i].raw, offer->to, GID_BYTES)) {
			path->local = self->gids[i];
			return 0;
		}
	if (self->infiniband && !self->ngids)
		return 0;
	return vbn_fail(-EHOSTUNREACH,
			"verbs: rank %d wants to reach %s GID %s, which rank "
			"%d's %s port %u does not have (any more); has its "
			"network interface changed its address?",
			path->rank, gid_type_name(offer->gid_type),
			gid_text(offer->to, gid), path->self_rank, self->name,
			self->port_num);
}

bool path_one_subnet(const struct path *path)
{
	if (path->infiniband)
		return !memcmp(path->local.raw, path->peer, SUBNET_BYTES);
	return gid_one_subnet(path->local.raw, path->peer);
}

int path_confirm(const struct path *path, const struct qp_offer *answer)
{
	if (answer->gid_type == path->local.type &&
	    !memcmp(answer->to, path->local.raw, GID_BYTES) &&
	    !memcmp(answer->from, path->peer, GID_BYTES))
		return 0;
	return vbn_fail(-EPROTO,
			"verbs: rank %d answers for other addresses "
			"than it was offered",
			path->rank);
}

/* ---- attributes ---- */

static uint8_t smaller(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

void path_offer(const struct path_port *port, const struct path *path,
		struct qp_offer *offer)
{
	offer->gid_type = path->local.type;
	memcpy(offer->from, path->local.raw, GID_BYTES);
	memcpy(offer->to, path->peer, GID_BYTES);
	offer->lid = port->address.lid;
	offer->mtu = port->address.mtu;
}

uint8_t path_mtu(const struct path_port *port, const struct qp_offer *peer)
{
	return smaller(port->address.mtu, peer->mtu);
}

int path_init(const struct path_port *port, bool atomics,
	      struct ibv_qp_attr *attr)
{
	*attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_INIT,
		.port_num = port->address.port_num,
		.pkey_index = port->pkey_index,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};
	if (atomics)
		attr->qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
	return IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
	       IBV_QP_ACCESS_FLAGS;
}

static void fill_route(const struct path_port *port, const struct path *path,
		       uint16_t dlid, struct ibv_ah_attr *ah)
{
	ah->port_num = port->address.port_num;
	ah->sl = port->sl;
	ah->dlid = dlid;
	if (!port->grh && dlid && port->address.lid &&
	    !memcmp(path->local.raw, path->peer, SUBNET_BYTES))
		return;
	ah->is_global = 1;
	memcpy(ah->grh.dgid.raw, path->peer, GID_BYTES);
	ah->grh.sgid_index = (uint8_t)path->local.index;
	ah->grh.hop_limit = HOP_LIMIT;
	ah->grh.traffic_class = port->tc;
}

int path_rtr(const struct path_port *port, const struct path *path,
	     const struct qp_offer *self, const struct qp_offer *peer,
	     struct ibv_qp_attr *attr)
{
	*attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)path_mtu(port, peer),
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = smaller(self->read_in, peer->read_out),
		.min_rnr_timer = RNR_TIMER,
	};
	fill_route(port, path, peer->lid, &attr->ah_attr);
	return IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
	       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

int path_rts(const struct path_port *port, const struct qp_offer *self,
	     const struct qp_offer *peer, struct ibv_qp_attr *attr)
{
	*attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = port->timeout,
		.retry_cnt = port->retry_cnt,
		.rnr_retry = RNR_RETRY,
		.sq_psn = self->psn,
		.max_rd_atomic = smaller(self->read_out, peer->read_in),
	};
	return IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
	       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
}

/* ---- text ---- */

const char *path_text(const struct path_port *port, const struct path *path,
		      char text[PATH_WHY])
{
	char here[GID_TEXT_LENGTH], there[GID_TEXT_LENGTH];

	snprintf(text, PATH_WHY,
		 "rank %d (%s port %u GID %s) to rank %d (GID "
		 "%s)",
		 path->self_rank, port->address.name, port->address.port_num,
		 gid_text(path->local.raw, here), path->rank,
		 gid_text(path->peer, there));
	return text;
}
