/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting by rdma_cm: the side that is called. A request is nobody's until
 * it has proved which attempt's it is.
 */
#include "cm_impl.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define LISTENERS 16u
#define BACKLOG	  1024

static bool is_called(const struct cm *cm, const struct cm_try *attempt,
		      unsigned lane)
{
	for (const struct cm_link *l = cm->links; l; l = l->next)
		if (l->attempt == attempt && l->lane == lane)
			return true;
	return attempt->done >> lane & 1;
}

/* Of whom the request is, or NULL: a stranger's, or too late. */
static struct cm_try *find_try(struct cm *cm, const struct cm_news *news,
			       unsigned *lane)
{
	struct cm_hello hello;

	if (!cm_hello_unpack(news->data, news->len, &hello))
		return NULL;
	*lane = hello.lane;
	for (struct cm_try *t = cm->tries; t; t = t->next)
		if (!t->calls && t->info.generation == hello.generation &&
		    hello.lane < t->conn->nlanes &&
		    !is_called(cm, t, hello.lane) &&
		    cm_is_genuine(t, hello.lane, news, false))
			return t;
	return NULL;
}

static void turn_away(struct cm *cm, struct rdma_cm_id *id)
{
	const struct sockaddr *from = rdma_get_peer_addr(id);
	char ip[INET6_ADDRSTRLEN] = "?";

	if (from->sa_family == AF_INET)
		inet_ntop(AF_INET,
			  &((const struct sockaddr_in *)from)->sin_addr, ip,
			  sizeof(ip));
	else if (from->sa_family == AF_INET6)
		inet_ntop(AF_INET6,
			  &((const struct sockaddr_in6 *)from)->sin6_addr, ip,
			  sizeof(ip));
	vbn_log(cm->strangers_told ? VBN_DEBUG : VBN_WARN,
		"verbs: rdma_cm: a request from %s is no rank's that is "
		"expected: refused (others: VBN_LOG=debug)",
		ip);
	cm->strangers_told = true;
	rdma_reject(id, NULL, 0);
	rdma_destroy_id(id);
}

static int reply(struct cm_link *link)
{
	uint8_t hello[CM_HELLO_BYTES];
	struct rdma_conn_param param;
	int err = cm_check_port(link);

	if (!err)
		err = cm_connect_lane(link);
	if (err)
		return err;
	cm_param(link, &param, hello, true);
	if (rdma_accept(link->id, &param))
		return cm_failed_errno(link->attempt, link->lane, "replying");
	return 0;
}

void cm_on_request(struct cm *cm, const struct cm_news *news)
{
	unsigned lane = 0;
	struct cm_try *attempt = find_try(cm, news, &lane);
	struct cm_link *link;
	int err;

	link = attempt ? cm_link_add(cm, news->id, CM_ACCEPTED) : NULL;
	if (!link) {
		turn_away(cm, news->id);
		return;
	}
	link->attempt = attempt;
	link->lane = (uint8_t)lane;
	err = reply(link);
	if (err) {
		rdma_reject(link->id, NULL, 0);
		cm_try_over(attempt, err);
		return;
	}
	link->attempt = NULL; /* it ends with the kernel's next word */
	cm_lane_done(attempt, lane);
}

static struct cm_link *find_listener(struct cm *cm, const uint8_t *ip,
				     unsigned *n)
{
	*n = 0;
	for (struct cm_link *l = cm->links; l; l = l->next) {
		if (l->state != CM_LISTENING)
			continue;
		if (!memcmp(l->place.ip, ip, GID_BYTES))
			return l;
		++*n;
	}
	return NULL;
}

/* Listen at the address, if nobody does; place->port. */
int cm_listen(struct cm_try *attempt, unsigned pair)
{
	struct cm_place *place = &attempt->place[pair];
	struct sockaddr_storage address;
	struct cm_link *link;
	unsigned n;

	cm_sockaddr(place->ip, 0, &address);
	link = find_listener(attempt->cm, place->ip, &n);
	if (link) {
		place->port = link->place.port;
		return 0;
	}
	if (n >= LISTENERS)
		return cm_failed(attempt, pair, -ENOSPC, "listening",
				 "this job has too many addresses");
	link = cm_link_add(attempt->cm, NULL, CM_LISTENING);
	if (!link)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	if (rdma_create_id(attempt->cm->channel, &link->id, link,
			   RDMA_PS_TCP) ||
	    rdma_bind_addr(link->id, (struct sockaddr *)&address) ||
	    rdma_listen(link->id, BACKLOG)) {
		int err = cm_failed_errno(attempt, pair, "listening");

		cm_link_end(link);
		return err;
	}
	memcpy(link->place.ip, place->ip, GID_BYTES);
	place->port = link->place.port = ntohs(rdma_get_src_port(link->id));
	return 0;
}
