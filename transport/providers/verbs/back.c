/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rail that comes back. Lanes that are out get new queue pairs, of the next
 * generation, once the port is up at both ends. What connecting needs goes in
 * the mailbox, by the lane that is first, so in order with all else:
 *
 *	creating side			accepting side
 *	makes a queue pair, OFFER  ->	makes one and connects it
 *	connects its own	   <-	ANSWER
 *	uses it, READY		   ->	uses it
 *
 * The accepting side answers NO if its port is down, or if the lane's end is
 * not settled there yet, and says UP when that has changed. A rail that failed
 * without its port going down is tried again BACK_TRIES times only.
 */
#include "failover.h"
#include "error.h"

#include <errno.h>
#include <string.h>

#define BACK_TRIES 3

enum back_word {
	BACK_NONE,
	BACK_OFFER,
	BACK_ANSWER,
	BACK_READY,
	BACK_NO,
	BACK_UP,
};

/* In memory order, like announcements. */
struct back_notice {
	uint32_t word, id, generation;
	struct qp_offer qp;
};

/* The port as it is now: [control] may be about to change it. */
static struct path_port port_now(const struct lane *lane)
{
	struct rail *rail = lane->queues->rail;
	struct path_port port;

	pthread_mutex_lock(&rail->job->lock);
	port = rail->port;
	pthread_mutex_unlock(&rail->job->lock);
	return port;
}

/* Has the port the pair's address, wherever in its table? */
static bool has_address(struct lane *lane, const struct path_port *port)
{
	const struct port_address *a = &port->address;
	struct path *path = &lane_pair(lane)->path;

	for (unsigned i = 0; i < a->ngids; i++) {
		if (a->gids[i].type != path->local.type ||
		    memcmp(a->gids[i].raw, path->local.raw, GID_BYTES))
			continue;
		path->local.index = a->gids[i].index;
		return true;
	}
	return path->infiniband && !a->ngids;
}

static void owe(struct lane *lane, enum back_word word)
{
	lane->back_owed = (uint8_t)word;
	message_owe(lane->conn, OWE_BACK);
}

static void fill_self(const struct lane *lane, const struct path_port *port,
		      struct qp_offer *offer)
{
	const struct pair *pair = lane_pair(lane);

	memset(offer, 0, sizeof(*offer));
	path_offer(port, &pair->path, offer);
	offer->qpn = lane->qpn & QPN_MASK;
	offer->psn = lane->psn;
	offer->read_out = pair->read_out;
	offer->read_in = pair->read_in;
}

/* A queue pair, in INIT. */
static int make(struct lane *lane, uint32_t generation)
{
	const struct path_port port = port_now(lane);
	int err = -EHOSTUNREACH;

	if (rail_is_up(lane->queues->rail) && has_address(lane, &port))
		err = qp_create(lane);
	if (err)
		return err;
	err = record_lane(lane);
	if (!err)
		err = lane_to_init(lane, &port);
	if (err) {
		ibv_destroy_qp(lane->qp);
		lane->qp = NULL;
		return err;
	}
	lane->psn = lane_psn();
	lane->generation = generation;
	lane->rx = lane->tx = 0;
	lane->erred = lane->refused = lane->peer_dead = false;
	lane->kicked = false;
	lane->ended = NULL;
	lane_link(lane);
	return 0;
}

static void unmake(struct lane *lane)
{
	lane_unlink(lane);
	ibv_destroy_qp(lane->qp);
	lane->qp = NULL;
	lane->state = LANE_OUT;
}

static void go_live(struct lane *lane)
{
	struct verbs_conn *conn = lane->conn;

	lane->state = LANE_LIVE;
	lane->owes_word = false;
	conn->stripe_min = conn->stripe_full;
	vbn_log(VBN_INFO,
		"verbs: rank %d: %s port %u is back in the "
		"connection to rank %d",
		conn->self_rank, lane->queues->rail->name,
		lane->queues->rail->port_num, conn->rank);
	if (lane->peer_dead && failover_can(lane))
		failover_start(lane);
}

/* NULL: both ends are this one. */
static int connect_to(struct lane *lane, const struct qp_offer *peer)
{
	const struct path_port port = port_now(lane);
	struct qp_offer self;

	fill_self(lane, &port, &self);
	return lane_connect(lane, &port, &self, peer ? peer : &self);
}

static void revive_self(struct lane *lane)
{
	if (make(lane, lane->generation + 1))
		return;
	if (connect_to(lane, NULL))
		unmake(lane);
	else
		go_live(lane);
}

static void try_lane(struct lane *lane, bool fresh)
{
	struct verbs_conn *conn = lane->conn;

	if (fresh)
		lane->tries = 0;
	if (lane->state != LANE_OUT || !rail_is_up(lane->queues->rail) ||
	    lane->tries >= BACK_TRIES)
		return;
	lane->tries++;
	if (conn->self) {
		revive_self(lane);
	} else if (!conn->creator) {
		owe(lane, BACK_UP);
	} else if (!make(lane, lane->generation + 1)) {
		lane->state = LANE_OFFERED;
		owe(lane, BACK_OFFER);
	}
}

void back_try(struct verbs_conn *conn, int rail)
{
	if (conn->npairs == 1 || conn->gated || conn->broken || !conn->attached)
		return;
	for (unsigned i = 0; i < conn->nlanes; i++) {
		struct lane *lane = &conn->lane[i];

		if (rail < 0 || lane->rail == rail)
			try_lane(lane, rail >= 0);
	}
}

/* ---- words ---- */

int back_pay(struct verbs_conn *conn)
{
	for (unsigned i = 0; i < conn->nlanes; i++) {
		struct lane *lane = &conn->lane[i];
		struct back_notice notice = {
			.word = lane->back_owed,
			.id = lane->id,
			.generation = lane->generation,
		};
		int err;

		if (!lane->back_owed)
			continue;
		if (!mailbox_fits(&conn->out, mailbox_units(sizeof(notice))))
			return -EAGAIN;
		if (lane->qp) {
			const struct path_port port = port_now(lane);

			fill_self(lane, &port, &notice.qp);
		}
		err = post_message(conn, NOTICE_OWN, OWN_BACK, &notice,
				   sizeof(notice), NULL, 0);
		if (err)
			return err;
		lane->back_owed = BACK_NONE;
	}
	return 0;
}

static void on_offer(struct lane *lane, const struct back_notice *n)
{
	if (lane->state == LANE_ACCEPTED)
		unmake(lane); /* the one before it is not meant any more */
	if (lane->state != LANE_OUT || lane->conn->gated ||
	    n->generation <= lane->generation || make(lane, n->generation)) {
		owe(lane, BACK_NO);
		return;
	}
	if (connect_to(lane, &n->qp)) {
		unmake(lane);
		owe(lane, BACK_NO);
		return;
	}
	lane->state = LANE_ACCEPTED;
	owe(lane, BACK_ANSWER);
}

static void on_answer(struct lane *lane, const struct back_notice *n)
{
	if (lane->state == LANE_OUT)
		try_lane(lane, false); /* to an offer that we have given up */
	if (lane->state != LANE_OFFERED || n->generation != lane->generation)
		return;
	if (connect_to(lane, &n->qp)) {
		/* the other end has one: it goes as any that fails */
		vbn_log(VBN_WARN, "%s", vbn_error());
	}
	go_live(lane);
	owe(lane, BACK_READY);
}

/* Said in place of NO, perhaps, or before our offer has arrived. */
static void on_up(struct lane *lane)
{
	if (lane->state == LANE_OFFERED)
		unmake(lane);
	if (!lane->conn->gated)
		try_lane(lane, true);
}

static struct lane *lane_of_id(struct verbs_conn *conn, uint32_t id)
{
	for (unsigned i = 0; i < conn->nlanes; i++)
		if (conn->lane[i].id == id)
			return &conn->lane[i];
	return NULL;
}

size_t back_notice_bytes(void)
{
	return sizeof(struct back_notice);
}

bool back_told(struct verbs_conn *conn, const void *p)
{
	struct back_notice n;
	struct lane *lane;

	memcpy(&n, p, sizeof(n));
	lane = lane_of_id(conn, n.id);
	if (!lane || conn->npairs == 1)
		return false;
	switch ((enum back_word)n.word) {
	case BACK_OFFER:
		on_offer(lane, &n);
		break;
	case BACK_ANSWER:
		on_answer(lane, &n);
		break;
	case BACK_READY:
		if (lane->state == LANE_ACCEPTED)
			go_live(lane);
		break;
	case BACK_NO:
		if (lane->state == LANE_OFFERED)
			unmake(lane);
		break;
	case BACK_UP:
		on_up(lane);
		break;
	default:
		return false;
	}
	return true;
}
