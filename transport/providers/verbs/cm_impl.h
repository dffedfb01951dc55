/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of connecting by rdma_cm share: see cm.c. [control] */
#ifndef VBN_VERBS_CM_IMPL_H
#define VBN_VERBS_CM_IMPL_H

#include "cm.h"
#include "cm_wire.h"

#define RESOLVE_MS 4000 /* an address, a route */
#define CALL_MS	   15000u
#define REASON_MS  1000u /* for the word of who refuses */

/* An identifier of rdma_cm's. */
struct cm_link {
	struct cm_link *next;
	struct cm *cm;
	struct rdma_cm_id *id;
	struct cm_try *attempt; /* whose lane; NULL: nobody's (any more) */
	enum cm_state state;
	uint8_t lane;
	struct cm_place place; /* CM_LISTENING: where */
};

/* A connection that is being made. */
struct cm_try {
	struct cm_try *next;
	struct cm *cm;
	struct verbs_conn *conn;
	struct conn_info info;
	bool calls;
	uint64_t deadline_ms;
	unsigned done; /* lanes, a bit each */
	uint8_t key[CM_KEY_BYTES];
	struct cm_place place[RAILS_MAX];
	struct conn_offer self, peer;
};

struct cm {
	struct verbs_job *job;
	struct rdma_event_channel *channel;
	int timer;
	uint32_t call_ms;
	bool ticking, strangers_told;
	struct cm_link *links;
	struct cm_try *tries;
};

/* What an event brings, kept beyond its acknowledgement. */
struct cm_news {
	enum rdma_cm_event_type event;
	int status;
	struct rdma_cm_id *id;
	uint32_t qpn;
	size_t len;
	uint8_t data[CM_HELLO_BYTES];
};

/* ---- cm_link.c ---- */

/* In so many ms, or before that if it was to be. */
void cm_deadline(struct cm_try *attempt, uint32_t ms);
struct lane *cm_lane(const struct cm_link *link);
/* @err with a line that names both ends. */
int cm_failed(const struct cm_try *attempt, unsigned lane, int err,
	      const char *what, const char *hint);
int cm_failed_errno(const struct cm_try *attempt, unsigned lane,
		    const char *what);
struct cm_link *cm_link_add(struct cm *cm, struct rdma_cm_id *id,
			    enum cm_state state);
void cm_link_end(struct cm_link *link);
void cm_tick(struct cm *cm, bool ticking);
/* Nothing of rdma_cm's refers to the connection from here on. */
void cm_try_end(struct cm_try *attempt);
/* The attempt is over, and the core closes the connection if it has failed. */
void cm_try_over(struct cm_try *attempt, int status);
void cm_lane_done(struct cm_try *attempt, unsigned lane);
/* The lane's queue pair to RTS. */
int cm_connect_lane(struct cm_link *link);
/* Is the identifier bound to the lane's port? */
int cm_check_port(const struct cm_link *link);
void cm_param(const struct cm_link *link, struct rdma_conn_param *param,
	      uint8_t hello[CM_HELLO_BYTES], bool reply);
/* What has come is the lane's other end's? */
bool cm_is_genuine(const struct cm_try *attempt, unsigned lane,
		   const struct cm_news *news, bool reply);

/* ---- cm_call.c: who calls ---- */

/* Also again. */
int cm_find_address(struct cm_link *link);
void cm_on_caller(struct cm_link *link, const struct cm_news *news);

/* ---- cm_answer.c: who is called ---- */

/* Listen at the pair's address, if nobody does: its port. */
int cm_listen(struct cm_try *attempt, unsigned pair);
void cm_on_request(struct cm *cm, const struct cm_news *news);

#endif
