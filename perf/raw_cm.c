/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * -R: the raw baseline's queue pairs, connected by rdma_cm. Rank 1 listens on
 * its GID's IP address and says through the job's store on which port; rank 0
 * connects one queue pair after another. The queue pairs are made as without
 * -R, and moved on with the attributes that rdma_cm found out.
 */
#include "raw.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>

#define STEP_MS 5000 /* for an address, for a route */

struct raw_cm {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *listener, *ids[PERF_QPS_MAX];
};

static int failed(const char *what)
{
	int rc = errno ? -errno : -EIO;

	return perf_fail(rc, "raw: -R: %s: %s", what, strerror(-rc));
}

/* The next event, which has to be @kind; acknowledge it. */
static int await(struct raw *raw, enum rdma_cm_event_type kind,
		 struct rdma_cm_event **event)
{
	struct pollfd fd = {.fd = raw->cm->channel->fd, .events = POLLIN};
	double until = perf_now() + PERF_WAIT_MS / 1e3;
	int rc;

	while (poll(&fd, 1, 1000) <= 0)
		if (vbn_job_rank_dead(raw->p->job, raw->p->peer) ||
		    perf_now() > until)
			return perf_fail(-ETIMEDOUT,
					 "raw: -R: rank %d does not connect",
					 raw->p->peer);
	if (rdma_get_cm_event(raw->cm->channel, event) != 0)
		return failed("waiting");
	if ((*event)->event == kind)
		return 0;
	rc = (*event)->status < 0 ? (*event)->status : -ECONNREFUSED;
	perf_fail(rc, "raw: -R: %s instead of %s, status %d",
		  rdma_event_str((*event)->event), rdma_event_str(kind),
		  (*event)->status);
	rdma_ack_cm_event(*event);
	return rc;
}

static int await_only(struct raw *raw, enum rdma_cm_event_type kind)
{
	struct rdma_cm_event *event;
	int rc = await(raw, kind, &event);

	if (rc == 0)
		rdma_ack_cm_event(event);
	return rc;
}

/* A GID of RoCE's is an IP address. */
static int ip_address(const struct raw *raw, struct sockaddr_storage *address)
{
	static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
	const uint8_t *gid = raw->gid.raw;
	struct sockaddr_in *v4 = (struct sockaddr_in *)address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;

	memset(address, 0, sizeof(*address));
	if (raw->port_attr.link_layer != IBV_LINK_LAYER_ETHERNET ||
	    (gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80))
		return perf_fail(-EADDRNOTAVAIL,
				 "raw: -R needs a RoCE port whose GID is an IP "
				 "address; that of %s is not (see -x)",
				 raw->device);
	if (memcmp(gid, mapped, sizeof(mapped)) == 0) {
		v4->sin_family = AF_INET;
		memcpy(&v4->sin_addr, gid + 12, 4);
	} else {
		v6->sin6_family = AF_INET6;
		memcpy(&v6->sin6_addr, gid, 16);
	}
	return 0;
}

/* Move a queue pair on, with what the library asks for besides. */
static int move(struct raw *raw, struct raw_qp *qp, struct rdma_cm_id *id,
		enum ibv_qp_state state)
{
	uint8_t mtu = qp->theirs.mtu;
	struct ibv_qp_attr attr = {.qp_state = state};
	int mask;

	if (rdma_init_qp_attr(id, &attr, &mask) != 0)
		return failed("the attributes of a queue pair");
	if (mask & IBV_QP_ACCESS_FLAGS)
		attr.qp_access_flags = raw_access(raw);
	if (mask & IBV_QP_PATH_MTU)
		attr.path_mtu = mtu < raw->path_mtu ? mtu : raw->path_mtu;
	if (mask & IBV_QP_AV && raw->p->opts.sl != PERF_UNSET)
		attr.ah_attr.sl = (uint8_t)raw->p->opts.sl;
	if (mask & IBV_QP_MIN_RNR_TIMER)
		attr.min_rnr_timer = 12;
	errno = ibv_modify_qp(qp->qp, &attr, mask);
	return errno ? failed("moving a queue pair on") : 0;
}

static int ready(struct raw *raw, struct raw_qp *qp, struct rdma_cm_id *id)
{
	int rc = move(raw, qp, id, IBV_QPS_RTR);

	return rc ? rc : move(raw, qp, id, IBV_QPS_RTS);
}

static int set_tos(const struct raw *raw, struct rdma_cm_id *id)
{
	uint8_t tos = (uint8_t)raw->p->opts.tos;

	if (raw->p->opts.tos != PERF_UNSET &&
	    rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos,
			    sizeof(tos)) != 0)
		return failed("the traffic class");
	return 0;
}

/* ---- rank 0 ---- */

static int connect_one(struct raw *raw, uint32_t i,
		       struct sockaddr_storage *from,
		       struct sockaddr_storage *to)
{
	struct raw_qp *qp = &raw->qps[i];
	struct rdma_conn_param param = {
		.private_data = &i,
		.private_data_len = sizeof(i),
		.responder_resources = (uint8_t)raw->attr.max_qp_rd_atom,
		.initiator_depth = (uint8_t)raw->attr.max_qp_init_rd_atom,
		.retry_count = 6,
		.rnr_retry_count = 7,
		.qp_num = qp->qp->qp_num,
	};
	struct rdma_cm_id *id;
	int rc;

	if (rdma_create_id(raw->cm->channel, &id, NULL, RDMA_PS_TCP) != 0)
		return failed("an identifier");
	raw->cm->ids[i] = id;
	rc = set_tos(raw, id);
	if (rc == 0 && rdma_resolve_addr(id, (struct sockaddr *)from,
					 (struct sockaddr *)to, STEP_MS) != 0)
		rc = failed("resolving the address");
	if (rc == 0)
		rc = await_only(raw, RDMA_CM_EVENT_ADDR_RESOLVED);
	if (rc == 0 && rdma_resolve_route(id, STEP_MS) != 0)
		rc = failed("resolving the route");
	if (rc == 0)
		rc = await_only(raw, RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (rc == 0)
		rc = move(raw, qp, id, IBV_QPS_INIT);
	if (rc == 0 && rdma_connect(id, &param) != 0)
		rc = failed("connecting");
	if (rc == 0)
		rc = await_only(raw, RDMA_CM_EVENT_CONNECT_RESPONSE);
	if (rc == 0)
		rc = ready(raw, qp, id);
	if (rc == 0 && rdma_establish(id) != 0)
		rc = failed("the last step of connecting");
	return rc;
}

static int connect_all(struct raw *raw, struct sockaddr_storage *own)
{
	struct sockaddr_storage to;
	size_t len = sizeof(to);
	int rc = vbn_job_get(raw->p->job, "perf/raw/cm", &to, &len,
			     PERF_WAIT_MS);

	if (rc != 0)
		return perf_failed(rc, "raw: -R: the other's address");
	for (uint32_t i = 0; i < raw->nqps && rc == 0; i++)
		rc = connect_one(raw, i, own, &to);
	return rc;
}

/* ---- rank 1 ---- */

static uint8_t lesser(int a, uint8_t b)
{
	return a < b ? (uint8_t)a : b;
}

static int accept_one(struct raw *raw)
{
	struct rdma_cm_event *event;
	struct rdma_conn_param param = {.rnr_retry_count = 7};
	struct rdma_cm_id *id;
	struct raw_qp *qp;
	uint32_t i;
	int rc = await(raw, RDMA_CM_EVENT_CONNECT_REQUEST, &event);

	if (rc != 0)
		return rc;
	id = event->id;
	memcpy(&i, event->param.conn.private_data, sizeof(i));
	param.responder_resources =
		lesser(raw->attr.max_qp_rd_atom,
		       event->param.conn.responder_resources);
	param.initiator_depth = lesser(raw->attr.max_qp_init_rd_atom,
				       event->param.conn.initiator_depth);
	rdma_ack_cm_event(event);
	if (i >= raw->nqps || raw->cm->ids[i]) {
		rdma_destroy_id(id);
		return perf_fail(-EPROTO, "raw: -R: a stranger connects");
	}
	raw->cm->ids[i] = id;
	qp = &raw->qps[i];
	param.qp_num = qp->qp->qp_num;
	rc = move(raw, qp, id, IBV_QPS_INIT);
	if (rc == 0)
		rc = ready(raw, qp, id);
	if (rc == 0 && rdma_accept(id, &param) != 0)
		rc = failed("accepting");
	return rc ? rc : await_only(raw, RDMA_CM_EVENT_ESTABLISHED);
}

static int accept_all(struct raw *raw, struct sockaddr_storage *own)
{
	struct rdma_cm_id *listener;
	uint16_t port;
	int rc;

	if (rdma_create_id(raw->cm->channel, &raw->cm->listener, NULL,
			   RDMA_PS_TCP) != 0)
		return failed("an identifier");
	listener = raw->cm->listener;
	rc = set_tos(raw, listener);
	if (rc != 0)
		return rc;
	if (rdma_bind_addr(listener, (struct sockaddr *)own) != 0 ||
	    rdma_listen(listener, PERF_QPS_MAX) != 0)
		return failed("listening");
	port = rdma_get_src_port(listener);
	if (own->ss_family == AF_INET)
		((struct sockaddr_in *)own)->sin_port = port;
	else
		((struct sockaddr_in6 *)own)->sin6_port = port;
	rc = vbn_job_set(raw->p->job, "perf/raw/cm", own, sizeof(*own),
			 PERF_WAIT_MS);
	if (rc != 0)
		return perf_failed(rc, "raw: -R: telling the address");
	for (size_t i = 0; i < raw->nqps && rc == 0; i++)
		rc = accept_one(raw);
	return rc;
}

int raw_cm_connect(struct raw *raw)
{
	struct sockaddr_storage own;
	int rc = ip_address(raw, &own);

	if (rc != 0)
		return rc;
	raw->cm = calloc(1, sizeof(*raw->cm));
	if (!raw->cm)
		return perf_fail(-ENOMEM, "no memory");
	errno = 0;
	raw->cm->channel = rdma_create_event_channel();
	if (!raw->cm->channel)
		return failed("an event channel (is the kernel's rdma_ucm "
			      "there?)");
	return raw->p->rank == 0 ? connect_all(raw, &own)
				 : accept_all(raw, &own);
}

void raw_cm_close(struct raw *raw)
{
	if (!raw->cm)
		return;
	for (size_t i = 0; i < PERF_QPS_MAX; i++)
		if (raw->cm->ids[i])
			rdma_destroy_id(raw->cm->ids[i]);
	if (raw->cm->listener)
		rdma_destroy_id(raw->cm->listener);
	if (raw->cm->channel)
		rdma_destroy_event_channel(raw->cm->channel);
	free(raw->cm);
}
