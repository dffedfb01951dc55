/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections that outlive one of their rails: see failover.c. All [ctx].
 */
#ifndef VBN_VERBS_FAILOVER_H
#define VBN_VERBS_FAILOVER_H

#include "slots.h"

enum lane_state {
	LANE_LIVE,
	LANE_DYING,   /* in error; to be drained and destroyed */
	LANE_DEAD,    /* has no queue pair; what it had under way is in doubt */
	LANE_REPLAY,  /* the peer has said what arrived: the rest goes anew */
	LANE_OUT,     /* nothing is left of it */
	LANE_OFFERED, /* has a queue pair again: see back.c */
	LANE_ACCEPTED, /* and it receives */
};

#define STATUS_OPEN 1 /* a slot whose end is not known */

/* What is taken from the room of all lanes while nothing may be posted. */
#define LANE_GATE (1 << 20)

/* ---- failover.c ---- */

/* Can the connection do without the lane's pair of rails? */
bool failover_can(const struct lane *lane);
/* The same of a bad completion: is it a rail's end, and not its request's? */
bool failover_takes(const struct lane *lane, enum ibv_wc_status status);
/* Take the lane's pair of rails out of its connection. */
void failover_start(struct lane *lane);
/* The same, when next there is time: others may be posting to it. */
void failover_refused(struct lane *lane);
/* Carry on with those connections that can. Runs callbacks. */
int failover_run(struct verbs_ctx *ctx);
/* The peer's word: a lane is destroyed, so many have arrived by it. */
void failover_told(struct verbs_conn *conn, uint32_t number, uint32_t arrived);
/* What came before the connection was attached. */
void failover_attach(struct verbs_conn *conn);
/* Ports and devices have changed: take out rails that are down. */
void failover_check(struct verbs_ctx *ctx);

/* ---- record.c ---- */

/* Records and what else failing over needs, if there are several rails. */
int records_create(struct verbs_ctx *ctx, uint32_t nslots);
void records_destroy(struct verbs_ctx *ctx);
/* Have the lane's requests recorded on their way to its queue pair. */
int record_lane(struct lane *lane);
/* Does the slot's request take a receive of the peer's? */
bool record_has_imm(const struct slot *slot);
/* Post the request of @old, of a lane that is gone, as the lane's @slot. */
void record_replay(struct lane *lane, struct slot *slot,
		   const struct slot *old);

/* ---- back.c ---- */

/*
 * Try to have lanes back that are out: those by the rail, whose port has come
 * up; or (-1) all, as far as tries are left.
 */
void back_try(struct verbs_conn *conn, int rail);
/* Say what is owed. 0, or -EAGAIN. */
int back_pay(struct verbs_conn *conn);
size_t back_notice_bytes(void);
/* What the peer has said. False: no peer would. */
bool back_told(struct verbs_conn *conn, const void *notice);

/* ---- conn.c ---- */

/* ibv_modify_qp(); the error names both ends. */
int lane_modify(struct lane *lane, struct ibv_qp_attr *attr, int mask,
		const char *state);
int lane_to_init(struct lane *lane, const struct path_port *port);
int lane_connect(struct lane *lane, const struct path_port *port,
		 const struct qp_offer *self, const struct qp_offer *peer);
uint32_t lane_psn(void);
/* What is said of it to the peer. */
void conn_offer_fill(const struct verbs_conn *conn, struct conn_offer *offer);

/* ---- table.c: the context's lanes ---- */

/* Into the table of queue pairs, and out of it. */
void lane_link(struct lane *lane);
void lane_unlink(struct lane *lane);

/* ---- close.c ---- */

/*
 * Collect what the lane's queue pair, which is in error, has still to tell,
 * for a bounded time; destroy it. Its arrivals are held; nothing finds it.
 */
void lane_drain(struct lane *lane);
/* Note the ends of slots that a completion tells. */
void lane_note(struct lane *lane, const struct ibv_wc *wc);

#endif
