/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Identifiers of rdma_cm's and the attempts that they belong to, and a lane's
 * queue pair by them.
 */
#include "cm_impl.h"
#include "error.h"
#include "failover.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

#define TICK_MS	    250u
#define RNR_FOREVER 7

void cm_deadline(struct cm_try *attempt, uint32_t ms)
{
	uint64_t at = verbs_now_ms() + ms;

	if (!attempt->deadline_ms || at < attempt->deadline_ms)
		attempt->deadline_ms = at;
}

struct lane *cm_lane(const struct cm_link *link)
{
	return &link->attempt->conn->lane[link->lane];
}

int cm_failed(const struct cm_try *attempt, unsigned lane, int err,
	      const char *what, const char *hint)
{
	const struct verbs_conn *conn = attempt->conn;
	const struct rail *rail = conn->lane[lane].queues->rail;
	unsigned pair = lane % conn->npairs;
	char here[CM_TEXT], there[CM_TEXT];

	return vbn_fail(err,
			"verbs: rdma_cm: rank %d (%s port %u, %s) to rank %d "
			"(%s): %s: %s",
			conn->self_rank, rail->name, rail->port_num,
			cm_text(&attempt->place[pair], here), conn->rank,
			cm_text(&attempt->peer.cm_place[pair], there), what,
			hint);
}

int cm_failed_errno(const struct cm_try *attempt, unsigned lane,
		    const char *what)
{
	int err = errno ? errno : EIO;

	return cm_failed(attempt, lane, -err, what, strerror(err));
}

/* ---- identifiers ---- */

struct cm_link *cm_link_add(struct cm *cm, struct rdma_cm_id *id,
			    enum cm_state state)
{
	struct cm_link *link = calloc(1, sizeof(*link));

	if (!link)
		return NULL;
	link->cm = cm;
	link->state = state;
	link->id = id;
	if (id)
		id->context = link;
	link->next = cm->links;
	cm->links = link;
	return link;
}

void cm_link_end(struct cm_link *link)
{
	struct cm_link **at = &link->cm->links;

	while (*at != link)
		at = &(*at)->next;
	*at = link->next;
	if (link->id)
		rdma_destroy_id(link->id);
	free(link);
}

void cm_tick(struct cm *cm, bool ticking)
{
	long ns = ticking ? TICK_MS * 1000000L : 0;
	struct itimerspec every = {{0, ns}, {0, ns}};

	if (cm->ticking == ticking)
		return;
	cm->ticking = ticking;
	timerfd_settime(cm->timer, 0, &every, NULL);
}

void cm_try_end(struct cm_try *attempt)
{
	struct cm *cm = attempt->cm;
	struct cm_try **at = &cm->tries;
	struct cm_link *link, *next;

	for (link = cm->links; link; link = next) {
		next = link->next;
		if (link->attempt == attempt)
			cm_link_end(link);
	}
	while (*at != attempt)
		at = &(*at)->next;
	*at = attempt->next;
	cm_tick(cm, cm->tries);
	attempt->conn->cm = NULL;
	sodium_memzero(attempt, sizeof(*attempt));
	free(attempt);
}

void cm_try_over(struct cm_try *attempt, int status)
{
	struct vbn_ctx *core = attempt->conn->ctx->core;
	const struct conn_info info = attempt->info;
	bool tell = attempt->calls || status;

	if (!status)
		vbn_log(VBN_DEBUG,
			"verbs: rank %d: %u queue pair(s) to rank %d are "
			"connected by rdma_cm",
			info.self_rank, attempt->conn->nlanes, info.rank);
	cm_try_end(attempt);
	if (tell)
		core_connected(core, &info, status);
}

void cm_lane_done(struct cm_try *attempt, unsigned lane)
{
	attempt->done |= 1u << lane;
	if (attempt->done + 1 == 1u << attempt->conn->nlanes)
		cm_try_over(attempt, 0);
}

/* ---- queue pairs ---- */

/* To RTR or RTS, @own as we would without rdma_cm. */
static int move(struct cm_link *link, enum ibv_qp_state state,
		const struct ibv_qp_attr *own, int own_mask)
{
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask;

	if (rdma_init_qp_attr(link->id, &attr, &mask))
		return cm_failed_errno(link->attempt, link->lane,
				       "a queue pair's attributes");
	if (!cm_attributes(&attr, mask, own, own_mask))
		return cm_failed(
			link->attempt, link->lane, -EPROTO,
			"the queue pair or address is another than the "
			"control plane says",
			"is there address translation between the hosts?");
	return lane_modify(cm_lane(link), &attr, mask,
			   state == IBV_QPS_RTR ? "RTR" : "RTS");
}

int cm_connect_lane(struct cm_link *link)
{
	const struct cm_try *attempt = link->attempt;
	struct lane *lane = cm_lane(link);
	const struct path_port *port = &lane->queues->rail->port;
	const struct qp_offer self = offer_of_lane(&attempt->self, link->lane);
	const struct qp_offer peer = offer_of_lane(&attempt->peer, link->lane);
	struct ibv_qp_attr own;
	int mask = path_rtr(port, &lane_pair(lane)->path, &self, &peer, &own);
	int err = move(link, IBV_QPS_RTR, &own, mask);

	if (err)
		return err;
	mask = path_rts(port, &self, &peer, &own);
	return move(link, IBV_QPS_RTS, &own, mask);
}

int cm_check_port(const struct cm_link *link)
{
	const struct rail *rail = cm_lane(link)->queues->rail;
	const struct rdma_cm_id *id = link->id;

	if (id->verbs && id->port_num == rail->port_num &&
	    !strcmp(ibv_get_device_name(id->verbs->device), rail->name))
		return 0;
	return cm_failed(link->attempt, link->lane, -EHOSTUNREACH,
			 id->verbs ? ibv_get_device_name(id->verbs->device)
				   : "no device",
			 "that is where the address leads instead; give each "
			 "port an address of its own");
}

void cm_param(const struct cm_link *link, struct rdma_conn_param *param,
	      uint8_t hello[CM_HELLO_BYTES], bool reply)
{
	const struct cm_try *attempt = link->attempt;
	const struct lane *lane = cm_lane(link);
	const struct qp_offer self = offer_of_lane(&attempt->self, link->lane);
	const struct qp_offer peer = offer_of_lane(&attempt->peer, link->lane);
	const struct cm_hello say = {
		.generation = attempt->info.generation,
		.qpn = self.qpn,
		.lane = link->lane,
		.reply = reply,
	};

	cm_hello_pack(hello, &say, attempt->peer.cm_key);
	*param = (struct rdma_conn_param){
		.private_data = hello,
		.private_data_len = CM_HELLO_BYTES,
		.responder_resources = self.read_in < peer.read_out
					       ? self.read_in
					       : peer.read_out,
		.initiator_depth = self.read_out < peer.read_in ? self.read_out
								: peer.read_in,
		.retry_count = lane->queues->rail->port.retry_cnt,
		.rnr_retry_count = RNR_FOREVER,
		.qp_num = self.qpn,
	};
}

bool cm_is_genuine(const struct cm_try *attempt, unsigned lane,
		   const struct cm_news *news, bool reply)
{
	struct cm_hello hello;

	return cm_hello_unpack(news->data, news->len, &hello) &&
	       cm_hello_proves(news->data, news->len, attempt->key, reply) &&
	       hello.lane == lane &&
	       hello.generation == attempt->info.generation &&
	       hello.qpn == news->qpn &&
	       hello.qpn == attempt->peer.lane[lane].qpn;
}
