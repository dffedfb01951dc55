/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Failing over. A pair of rails whose port goes down, or by which requests stay
 * without an answer, is taken out of a connection that has another:
 *
 * 1. Each side, as soon as it learns of it (an event, a completion, or the
 *    other side's word), puts the pair's queue pairs in error, collects what
 *    they have still to tell, and destroys them. From then on nothing that the
 *    peer has sent by them can land here, however long it was under way: the
 *    device drops what is for a queue pair that does not exist, and a new one
 *    that gets the number has another sequence number, chosen at random.
 * 2. It says so by a lane that lives: OWN_DEAD, with the number of immediates
 *    that have arrived by the lane. Arrivals are counted when they were polled,
 *    and the queue was polled empty, so the number is final, and all of them
 *    are ahead of whatever comes by other lanes.
 * 3. Who has destroyed its own and heard the peer's word knows of each request
 *    whether it was delivered: a reliable connection carries them out in order,
 *    so all up to the last immediate that arrived were. These are over. An
 *    atomic whose answer is missing may have been done or not: -EIO. All else
 *    goes again, in order, by the lane that is first now: what is written twice
 *    is the same bytes at the same place, before whatever tells of it, and
 *    nothing older can land behind it (1.). Gets are read again.
 *
 * Another rail may go meanwhile. Then what was moved to it waits for the peer's
 * word on it, and is older than what is still to be moved: of several dead
 * lanes the last to die goes first, and none before all are known of. Words
 * stand beside that order: they are said again, and not replayed.
 *
 * Meanwhile nothing else is posted to the connection (LANE_GATE). What is first
 * is lane[0]: when it dies, its place is changed with that of one that lives.
 * Each side does that for itself: ordered arrivals are taken by whichever lane
 * they come, since only one of the sender's has such under way at a time.
 */
#include "failover.h"
#include "error.h"

#include <arpa/inet.h>
#include <errno.h>

#define GENERATIONS 32u /* told apart in a word */
_Static_assert(GENERATIONS *LANES_MAX <= 512, "9 bits of a notice");

static unsigned pair_of(const struct lane *lane)
{
	return lane->id % lane->conn->npairs;
}

bool failover_can(const struct lane *lane)
{
	const struct verbs_conn *conn = lane->conn;

	if (conn->npairs == 1 || conn->broken || !conn->attached)
		return false;
	for (unsigned i = 0; i < conn->nlanes; i++)
		if (conn->lane[i].state == LANE_LIVE &&
		    pair_of(&conn->lane[i]) != pair_of(lane))
			return true;
	return false;
}

/*
 * Soft-RoCE says LOC_QP_OP_ERR where there is no way out of a link. If it was
 * the request's fault after all, it fails by the last rail as well.
 */
static bool is_rails(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
	case IBV_WC_WR_FLUSH_ERR:
	case IBV_WC_LOC_QP_OP_ERR:
	case IBV_WC_FATAL_ERR:
	case IBV_WC_GENERAL_ERR:
		return true;
	default:
		return false;
	}
}

bool failover_takes(const struct lane *lane, enum ibv_wc_status status)
{
	if (lane->state != LANE_LIVE)
		return !lane->conn->broken;
	return is_rails(status) && failover_can(lane);
}

static void enlist(struct verbs_conn *conn)
{
	struct verbs_ctx *ctx = conn->ctx;

	if (conn->in_failing)
		return;
	conn->in_failing = true;
	conn->next_failing = ctx->failing;
	ctx->failing = conn;
	ctx_due(ctx);
}

static void gate(struct verbs_conn *conn)
{
	if (conn->gated)
		return;
	conn->gated = true;
	for (unsigned i = 0; i < conn->nlanes; i++)
		conn->lane[i].room -= LANE_GATE;
}

static void ungate(struct verbs_conn *conn)
{
	unsigned live = 0;

	conn->gated = false;
	for (unsigned i = 0; i < conn->nlanes; i++) {
		conn->lane[i].room += LANE_GATE;
		live += conn->lane[i].state == LANE_LIVE;
	}
	if (live < 2)
		conn->stripe_min = SIZE_MAX;
	ctx_due(conn->ctx);
	back_try(conn, -1);
}

void failover_start(struct lane *lane)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct verbs_conn *conn = lane->conn;
	const struct rail *rail = lane->queues->rail;

	if (lane->state != LANE_LIVE)
		return;
	vbn_log(VBN_WARN,
		"verbs: rank %d: %s port %u is taken out of the connection to "
		"rank %d, others go on",
		conn->self_rank, rail->name, rail->port_num, conn->rank);
	gate(conn);
	for (unsigned i = 0; i < conn->nlanes; i++) {
		struct lane *l = &conn->lane[i];

		if (pair_of(l) != pair_of(lane) || l->state != LANE_LIVE)
			continue;
		l->state = LANE_DYING;
		l->owes_word = true;
		ibv_modify_qp(l->qp, &attr, IBV_QP_STATE);
	}
	enlist(conn);
}

void failover_refused(struct lane *lane)
{
	lane->refused = true;
	enlist(lane->conn);
}

/* Those that the device has refused to post to. */
static void start_refused(struct verbs_conn *conn)
{
	for (unsigned i = 0; i < conn->nlanes; i++) {
		struct lane *lane = &conn->lane[i];

		if (!lane->refused || lane->state != LANE_LIVE)
			continue;
		if (failover_can(lane))
			failover_start(lane);
		else
			progress_break(conn, "posting", IBV_WC_GENERAL_ERR, 0);
	}
}

void failover_told(struct verbs_conn *conn, uint32_t number, uint32_t arrived)
{
	uint32_t id = number % LANES_MAX, generation = number / LANES_MAX;

	for (unsigned i = 0; i < conn->nlanes; i++) {
		struct lane *lane = &conn->lane[i];

		if (lane->id != id ||
		    lane->generation % GENERATIONS != generation)
			continue;
		lane->peer_dead = true;
		lane->peer_rx = (uint16_t)arrived;
		if (!conn->attached)
			return; /* failover_attach() */
		if (lane->state == LANE_ACCEPTED)
			lane->state = LANE_LIVE; /* as it was for the peer */
		if (failover_can(lane))
			failover_start(lane);
		else if (lane->state == LANE_LIVE)
			progress_break(conn, "losing its last rail",
				       IBV_WC_RETRY_EXC_ERR, 0);
		if (!conn->broken)
			enlist(conn);
		return;
	}
}

/* Which lane, of which generation. */
static uint32_t number_of(const struct lane *lane, uint32_t generation)
{
	return generation % GENERATIONS * LANES_MAX + lane->id;
}

void failover_attach(struct verbs_conn *conn)
{
	for (unsigned i = 0; conn->npairs > 1 && i < conn->nlanes; i++)
		if (conn->lane[i].peer_dead)
			failover_told(conn,
				      number_of(&conn->lane[i],
						conn->lane[i].generation),
				      conn->lane[i].peer_rx);
}

static void check_lane(struct lane *lane, unsigned changed)
{
	const struct rail *rail = lane->queues->rail;
	bool up = rail_is_up(rail);

	if (up && changed >> lane->rail & 1)
		back_try(lane->conn, lane->rail);
	else if (!up && lane->state == LANE_LIVE && failover_can(lane))
		failover_start(lane);
}

void failover_check(struct verbs_ctx *ctx)
{
	unsigned changed = atomic_exchange(&ctx->rails_up, 0);

	/* of each connection at least one lane is in the table */
	for (unsigned i = 0; ctx->nrails > 1 && i < BUCKETS; i++)
		for (struct lane *lane = ctx->bucket[i], *next; lane;
		     lane = next) {
			struct verbs_conn *conn = lane->conn;

			next = lane->next_bucket;
			if (lane != &conn->lane[0])
				continue;
			for (unsigned k = 0; k < conn->nlanes; k++)
				check_lane(&conn->lane[k], changed);
		}
}

/* ---- who is first ---- */

static void own_slots(struct lane *lane)
{
	for (struct slot *slot = lane->first; slot; slot = slot->next) {
		slot->lane = lane;
		if (slot == lane->spare)
			break;
	}
	lane->sender->qp_context = lane;
}

/* The first lane is dead, another lives: they change places. */
static void change_places(struct verbs_conn *conn, struct lane *other)
{
	struct lane *first = &conn->lane[0], was = *first;
	const struct quick quick = first->quick;
	unsigned first_bit;

	lane_unlink(other); /* the dead one is in no table */
	*first = *other;
	*other = was;
	other->quick = first->quick;
	first->quick = quick;
	own_slots(first);
	own_slots(other);
	lane_link(first);
	first_bit = 1u << first->id;
	/* what it has carried is ahead of what is in order from now on */
	conn->striped &= (uint8_t)~first_bit;
	conn->out.rkey = lane_pair(first)->out_rkey[conn->out_ring];
}

static void choose_first(struct verbs_conn *conn)
{
	if (conn->lane[0].state == LANE_LIVE)
		return;
	for (unsigned i = 1; i < conn->nlanes; i++)
		if (conn->lane[i].state == LANE_LIVE) {
			change_places(conn, &conn->lane[i]);
			return;
		}
}

/* ---- the end of a lane ---- */

static void bury(struct lane *lane)
{
	struct verbs_conn *conn = lane->conn;
	struct verbs_ctx *ctx = conn->ctx;

	if (ctx->chain_n && ctx->chain_lane->conn == conn)
		post_chain(ctx); /* is only recorded if it is this lane's */
	lane_drain(lane);
	lane->state = LANE_DEAD;
	lane->death = ++conn->deaths;
	lane->word_rx = lane->rx;
	lane->word_generation = lane->generation;
	lane->back_owed = 0;
	conn->striped &= (uint8_t) ~(1u << lane->id);
	/* a word may have been under way by it */
	for (unsigned i = 0; i < conn->nlanes; i++)
		if (conn->lane[i].state != LANE_LIVE)
			conn->lane[i].owes_word = true;
}

static int say(struct lane *lane)
{
	struct verbs_conn *conn = lane->conn;
	struct lane *by = &conn->lane[0];
	struct verbs_ctx *ctx = conn->ctx;
	unsigned kind = SLOT_MESSAGE | SLOT_WORD;
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	struct slot *slot, *fresh = ctx->free_slots;
	uint32_t number = number_of(lane, lane->word_generation);

	if (fresh) {
		ctx->free_slots = fresh->next;
	} else {
		fresh = ctx->kick_slots;
		if (!fresh)
			return -EAGAIN;
		ctx->kick_slots = fresh->next;
		kind |= SLOT_KEPT;
	}
	by->room--;
	slot = fill_slot(by, fresh, kind, NULL);
	slot->index = NO_INDEX;
	wr.wr_id = slot->wr_id;
	wr.imm_data =
		htonl(notice_pack(NOTICE_OWN, OWN_DEAD | number << OWN_BITS, 0,
				  lane->word_rx & ARRIVED_MASK));
	ctx->counters->doorbells++;
	return ibv_post_send(by->sender, &wr, &bad);
}

/* ---- what becomes of what was under way ---- */

static bool is_gone(const struct slot *slot, bool delivered)
{
	if (slot->kind & SLOT_WORD)
		return true;
	switch (slot_kind(slot)) {
	case SLOT_VOID:
	case SLOT_KICK:
		return true;
	case SLOT_GET:
		return false;
	default:
		return delivered;
	}
}

/* Give each slot its end, or leave it open. False: impossible. */
static bool resolve(struct lane *lane)
{
	const struct slot *last = NULL;
	uint32_t under_way = 0, arrived;
	bool delivered;

	for (struct slot *s = lane->first; s != lane->spare; s = s->next)
		under_way += record_has_imm(s);
	arrived = (lane->peer_rx - (lane->tx - under_way)) & ARRIVED_MASK;
	if (arrived > under_way)
		return false;
	for (struct slot *s = lane->first; arrived; s = s->next)
		if (record_has_imm(s)) {
			arrived--;
			last = s;
		}
	delivered = last != NULL;
	for (struct slot *s = lane->first; s != lane->spare; s = s->next) {
		if (slot_kind(s) == SLOT_ATOMIC && s->status)
			s->status = -EIO;
		else if (s->status && is_gone(s, delivered))
			s->status = 0;
		else if (s->status)
			s->status = STATUS_OPEN;
		if (s == last)
			delivered = false;
	}
	lane->ended = NULL;
	return true;
}

/* Its operation, or NULL, is over. */
static void finish(struct lane *lane)
{
	struct verbs_ctx *ctx = lane->ctx;
	struct slot *slot = lane_pop(lane);
	int status = slot->status;
	struct vbn_op *op = slot->op;

	if (status && op)
		op->wc = IBV_WC_RETRY_EXC_ERR;
	op = slot_release(ctx, slot, status);
	if (op)
		core_complete(ctx->core, op, status);
}

/* The oldest of a dead lane goes by the first; @lane's slot is its spare. */
static void move(struct lane *dead, struct lane *lane)
{
	struct slot *old = lane_pop(dead), *slot = lane->spare;

	slot->next = old;
	slot->op = old->op;
	slot->result = old->result;
	slot->index = old->index;
	slot->key = old->key;
	slot->from = old->from;
	slot->status = 0;
	slot->kind = old->kind & (uint16_t)~SLOT_ENDER;
	lane->spare = old;
	lane->room--;
	if (slot_kind(slot) == SLOT_FLUSH) {
		dead->silent--;
		lane->silent++;
		lane_enders(lane);
	} else {
		record_replay(lane, slot, old);
	}
	old->wr_id += WR_USED;
	old->lane = lane;
}

/* Returns whether all of the lane is done. Runs callbacks. */
static bool replay(struct lane *dead)
{
	struct verbs_conn *conn = dead->conn;

	while (!lane_empty(dead)) {
		struct lane *lane = &conn->lane[0];

		if (dead->first->status != STATUS_OPEN) {
			finish(dead);
		} else if (slot_kind(dead->first) == SLOT_FLUSH &&
			   lane_empty(lane)) {
			dead->first->status = 0;
			finish(dead);
		} else if (lane->state != LANE_LIVE ||
			   lane->room + LANE_GATE <= 0) {
			return false;
		} else {
			move(dead, lane);
		}
		if (conn->closed || conn->broken)
			return false;
	}
	dead->state = LANE_OUT;
	return true;
}

/* ---- step by step ---- */

static void bury_all(struct verbs_conn *conn)
{
	for (unsigned i = 0; i < conn->nlanes; i++)
		if (conn->lane[i].state == LANE_DYING)
			bury(&conn->lane[i]);
	choose_first(conn);
}

static bool say_all(struct verbs_conn *conn)
{
	bool all = true;

	for (unsigned i = 0; i < conn->nlanes; i++) {
		struct lane *lane = &conn->lane[i];

		if (lane->state < LANE_DEAD || !lane->owes_word)
			continue;
		lane->owes_word = say(lane) != 0;
		all = all && !lane->owes_word;
	}
	return all;
}

static bool resolve_all(struct verbs_conn *conn)
{
	for (unsigned i = 0; i < conn->nlanes; i++) {
		struct lane *lane = &conn->lane[i];

		if (lane->state != LANE_DEAD || lane->owes_word ||
		    !lane->peer_dead)
			continue;
		if (!resolve(lane)) {
			progress_break(conn, "counting arrivals",
				       IBV_WC_BAD_RESP_ERR, 0);
			return false;
		}
		lane->state = LANE_REPLAY;
	}
	return true;
}

static bool any_unknown(const struct verbs_conn *conn)
{
	for (unsigned i = 0; i < conn->nlanes; i++)
		if (conn->lane[i].state == LANE_DYING ||
		    conn->lane[i].state == LANE_DEAD)
			return true;
	return false;
}

/* What is to be replayed first, or NULL. */
static struct lane *next_replay(struct verbs_conn *conn)
{
	struct lane *last = NULL;

	for (unsigned i = 0; i < conn->nlanes; i++) {
		struct lane *lane = &conn->lane[i];

		if (lane->state == LANE_REPLAY &&
		    (!last || lane->death > last->death))
			last = lane;
	}
	return last;
}

/* Returns whether there is more to do without hearing of the peer. */
static bool step(struct verbs_conn *conn)
{
	struct lane *lane;
	bool more;

	start_refused(conn);
	bury_all(conn);
	if (conn->broken)
		return false;
	more = !say_all(conn);
	if (!resolve_all(conn))
		return false;
	if (any_unknown(conn))
		return more;
	while ((lane = next_replay(conn)))
		if (!replay(lane))
			return !conn->closed && !conn->broken;
	if (conn->gated)
		ungate(conn);
	return more;
}

int failover_run(struct verbs_ctx *ctx)
{
	struct verbs_conn *conn;
	int events = 0;

	/* one by one: a callback may close any of them */
	while ((conn = ctx->failing)) {
		bool more;

		ctx->failing = conn->next_failing;
		conn->in_failing = false;
		conn->pins++;
		more = step(conn);
		if (more && !conn->closed && !conn->in_failing) {
			conn->in_failing = true;
			conn->next_failing = ctx->failing_next;
			ctx->failing_next = conn;
		}
		progress_unpin(conn);
		events++;
	}
	ctx->failing = ctx->failing_next;
	ctx->failing_next = NULL;
	if (ctx->failing)
		ctx_due(ctx);
	return events;
}
