/* SPDX-License-Identifier: BSD-3-Clause */
/* Connecting by rdma_cm: the side that calls, a lane at a time or all. */
#include "cm_impl.h"
#include "error.h"

#include <errno.h>

static int set_tos(const struct cm_link *link)
{
	uint8_t tos = cm_lane(link)->queues->rail->port.tc;

	if (tos && rdma_set_option(link->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS,
				   &tos, sizeof(tos)))
		return cm_failed_errno(link->attempt, link->lane,
				       "the traffic class");
	return 0;
}

int cm_find_address(struct cm_link *link)
{
	const struct cm_try *attempt = link->attempt;
	unsigned pair = link->lane % attempt->conn->npairs;
	const struct cm_place *to = &attempt->peer.cm_place[pair];
	struct sockaddr_storage src, dst;
	int err;

	if (!to->port || !cm_sockaddr(to->ip, to->port, &dst) ||
	    !cm_sockaddr(attempt->place[pair].ip, 0, &src))
		return cm_failed(attempt, link->lane, -EADDRNOTAVAIL,
				 "no place to call",
				 "give both ports IP addresses");
	if (rdma_create_id(link->cm->channel, &link->id, link, RDMA_PS_TCP))
		return cm_failed_errno(attempt, link->lane, "an identifier");
	link->state = CM_ADDRESS;
	err = set_tos(link);
	if (err)
		return err;
	if (rdma_resolve_addr(link->id, (struct sockaddr *)&src,
			      (struct sockaddr *)&dst, RESOLVE_MS))
		return cm_failed_errno(attempt, link->lane,
				       "looking up the address");
	return 0;
}

static int find_route(struct cm_link *link)
{
	int err = cm_check_port(link);

	if (err)
		return err;
	link->state = CM_ROUTE;
	if (rdma_resolve_route(link->id, RESOLVE_MS))
		return cm_failed_errno(link->attempt, link->lane,
				       "looking for a route");
	return 0;
}

static int call(struct cm_link *link)
{
	uint8_t hello[CM_HELLO_BYTES];
	struct rdma_conn_param param;

	cm_param(link, &param, hello, false);
	link->state = CM_CALLED;
	if (rdma_connect(link->id, &param))
		return cm_failed_errno(link->attempt, link->lane, "calling");
	return 0;
}

/* The peer's port has not forgotten the last queue pair of this number. */
static void retry(struct cm_link *link)
{
	rdma_destroy_id(link->id);
	link->id = NULL;
	link->state = CM_AGAIN;
}

static int finish(struct cm_link *link, const struct cm_news *news)
{
	int err;

	if (!cm_is_genuine(link->attempt, link->lane, news, true))
		return cm_failed(link->attempt, link->lane, -EPROTO,
				 "the reply is not the peer's",
				 "a stranger answers at its address");
	err = cm_connect_lane(link);
	if (!err && rdma_establish(link->id))
		err = cm_failed_errno(link->attempt, link->lane,
				      "the last step");
	return err;
}

void cm_on_caller(struct cm_link *link, const struct cm_news *news)
{
	struct cm_try *attempt = link->attempt;
	unsigned lane = link->lane;
	int err = 0;

	switch (cm_next(link->state, news->event, news->status)) {
	case CM_FIND_ROUTE:
		err = find_route(link);
		break;
	case CM_CALL:
		err = call(link);
		break;
	case CM_RETRY:
		retry(link);
		break;
	case CM_AWAIT_REASON:
		link->state = CM_REFUSED;
		cm_deadline(attempt, REASON_MS);
		break;
	case CM_FINISH:
		err = finish(link, news);
		if (err)
			break;
		cm_link_end(link);
		cm_lane_done(attempt, lane);
		return;
	case CM_IGNORE:
		break;
	default:
		err = cm_failed(attempt, lane, -EHOSTUNREACH,
				rdma_event_str(news->event),
				cm_reason(news->event, news->status));
	}
	if (err)
		cm_try_over(attempt, err);
}

int cm_call(struct verbs_conn *conn, const struct conn_offer *answer)
{
	struct cm_try *attempt = conn->cm;
	int err = 0;

	attempt->peer = *answer;
	attempt->deadline_ms = 0;
	cm_deadline(attempt, attempt->cm->call_ms);
	for (unsigned i = 0; i < conn->nlanes && !err; i++) {
		struct cm_link *link = cm_link_add(attempt->cm, NULL, CM_AGAIN);

		if (!link)
			return vbn_fail(-ENOMEM, "verbs: out of memory");
		link->attempt = attempt;
		link->lane = (uint8_t)i;
		err = cm_find_address(link);
	}
	return err;
}
