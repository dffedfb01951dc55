/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several queue pairs of one connection. Lane 0 carries everything; a long put
 * or get is cut in parts, one a lane. The operation is over with its last part
 * (op->priv[2] counts them), and fails with the first that has failed
 * (priv[3]).
 *
 * A notify or message is delivered after the data of earlier puts. Before one
 * is posted, each lane that carried data since the last time ends with
 * OWN_FENCE, which names it (one that has died has its fences sent by another,
 * behind its data), and lane 0 says by OWN_WAIT which ones. The receiver counts
 * fences, and what follows OWN_WAIT on lane 0 is held until as many have come
 * by each lane as were waited for. At most FENCES of these are in flight: the
 * receiver answers each half of that by OWN_FENCED. So they take at most
 * FENCES receives for each lane, and their answers FENCES / 2.
 */
#include "failover.h"

#include <errno.h>

bool lanes_slots(const struct verbs_ctx *ctx, unsigned n)
{
	const struct slot *slot = ctx->free_slots;

	while (n && slot) {
		slot = slot->next;
		n--;
	}
	return n == 0;
}

/* Those that take data, the first first. Returns how many. */
static unsigned live_lanes(struct verbs_conn *conn, struct lane **lanes)
{
	unsigned n = 0;

	for (unsigned i = 0; i < conn->nlanes; i++)
		if (conn->lane[i].state == LANE_LIVE)
			lanes[n++] = &conn->lane[i];
	return n;
}

static inline unsigned lane_bit(const struct lane *lane)
{
	return 1u << lane->id;
}

int lanes_stripe(struct verbs_conn *conn, struct vbn_op *op,
		 const struct stripe *all)
{
	struct lane *lanes[LANES_MAX];
	unsigned n = live_lanes(conn, lanes);
	size_t part = (all->len + n - 1) / n;
	int need =
		all->notify ? 3 : 1; /* a lane: data, fence or wait, notify */
	unsigned carried = 0;
	size_t off = 0;

	part = (part + STRIPE_ALIGN - 1) / STRIPE_ALIGN * STRIPE_ALIGN;
	for (unsigned i = 0; i < n; i++)
		if (lanes[i]->room < need)
			return post_refused(conn);
	if (!lanes_slots(conn->ctx, (unsigned)need * n) ||
	    (all->notify && conn->fences_sent == FENCES))
		return -EAGAIN;
	op->priv[2] = (all->len + part - 1) / part + all->notify;
	op->priv[3] = 0;
	for (unsigned i = 0; off < all->len; i++, off += part) {
		size_t len = all->len - off < part ? all->len - off : part;

		post_part(lanes[i], op, all, off, len);
		carried |= lane_bit(lanes[i]);
	}
	if (all->kind != SLOT_PUT)
		return 0;
	conn->striped |= (uint8_t)(carried & ~lane_bit(&conn->lane[0]));
	if (all->notify) {
		lanes_fence(conn); /* if it fails, all does */
		post_part(&conn->lane[0], op, all, 0, 0);
	}
	return 0;
}

int lanes_fence(struct verbs_conn *conn)
{
	unsigned n = 0;

	for (unsigned i = 0; i < conn->nlanes; i++) {
		if (i && !(conn->striped & lane_bit(&conn->lane[i])))
			continue;
		if (conn->lane[i].room <= 0)
			return post_refused(conn);
		n++;
	}
	if (conn->fences_sent == FENCES || !lanes_slots(conn->ctx, n))
		return -EAGAIN;
	for (unsigned i = 1; i < conn->nlanes; i++) {
		struct lane *lane = &conn->lane[i];

		if (conn->striped & lane_bit(lane))
			post_own(lane, OWN_FENCE, lane->id);
	}
	post_own(&conn->lane[0], OWN_WAIT, conn->striped);
	conn->striped = 0;
	conn->fences_sent++;
	return 0;
}

void lanes_part_over(struct verbs_ctx *ctx, struct vbn_op *op, int status)
{
	if (status && !op->priv[3])
		op->priv[3] = (uint64_t)(int64_t)status;
	if (--op->priv[2] == 0)
		core_complete(ctx->core, op, (int)(int64_t)op->priv[3]);
}

/* ---- the receiver's side ---- */

static bool missing(const struct verbs_conn *conn)
{
	for (unsigned i = 0; i < conn->nlanes; i++)
		if (conn->lane[i].fences < 0)
			return true;
	return false;
}

static void wait_over(struct verbs_conn *conn)
{
	if (++conn->fences_seen >= FENCES / 2)
		message_owe(conn, OWE_FENCED);
}

void lanes_fenced(struct verbs_conn *conn, uint32_t id)
{
	for (unsigned i = 0; i < conn->nlanes; i++)
		conn->lane[i].fences += conn->lane[i].id == id;
	if (!conn->waiting || missing(conn))
		return;
	conn->waiting = false;
	wait_over(conn);
	arrive_resume(conn);
}

void lanes_wait(struct verbs_conn *conn, uint32_t mask)
{
	for (unsigned i = 0; i < conn->nlanes; i++) {
		struct lane *lane = &conn->lane[i];

		lane->fences -= (int16_t)(mask >> lane->id & 1);
	}
	if (missing(conn)) {
		conn->waiting = true;
		conn->direct = false;
	} else {
		wait_over(conn);
	}
}
