/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Slots and the lanes that have them outstanding: what posting, completing and
 * closing share.
 */
#ifndef VBN_VERBS_SLOTS_H
#define VBN_VERBS_SLOTS_H

#include "internal.h"

#include <errno.h>
#include <limits.h>

/* ---- wr_id ---- */

/* A send's: where the slot is among all, and above it a count of its uses. */
#define WR_USED ((uint64_t)1 << 32)
/*
 * A receive's: one is like another. By it one finds the first slot, which is
 * none and has no other's wr_id, as by one that is stale.
 */
#define WR_RECV WR_USED

static inline bool wr_is_recv(uint64_t id)
{
	return id == WR_RECV;
}

static inline struct slot *wr_slot(const struct verbs_ctx *ctx, uint64_t id)
{
	return (struct slot *)((char *)ctx->slots + (uint32_t)id);
}

static inline enum slot_kind slot_kind(const struct slot *slot)
{
	return (enum slot_kind)(slot->kind & 0xffu);
}

static inline bool slot_silent(const struct slot *slot)
{
	return slot_kind(slot) >= SLOT_FLUSH;
}

/* ---- lanes ---- */

static inline bool lane_empty(const struct lane *lane)
{
	return lane->first == lane->spare;
}

/* The slot behind one of the lane's, or NULL. */
static inline struct slot *lane_behind(const struct lane *lane,
				       const struct slot *slot)
{
	return slot->next == lane->spare ? NULL : slot->next;
}

/* Silent ones are behind its last slot, or among them. */
static inline void lane_enders(struct lane *lane)
{
	for (struct slot *i = lane->first; i != lane->spare; i = i->next)
		i->kind |= SLOT_ENDER;
}

/* Take the oldest out. */
static inline struct slot *lane_pop(struct lane *lane)
{
	struct slot *slot = lane->first;

	lane->first = slot->next;
	lane->room++;
	return slot;
}

/* Nothing more is accepted, whatever retires. */
static inline void lane_stop(struct lane *lane)
{
	lane->room = INT_MIN / 2;
}

/* Has the lane room for one more? */
static inline bool post_room(const struct lane *lane,
			     const struct verbs_ctx *ctx)
{
	return lane->room > 0 && ctx->free_slots;
}

/* Why it has none. */
static inline int post_refused(const struct verbs_conn *conn)
{
	return conn->broken ? -ECONNRESET : -EAGAIN;
}

/*
 * Fill the lane's spare slot, for which room was taken; @fresh is the spare
 * from now on.
 */
static inline struct slot *fill_slot(struct lane *lane, struct slot *fresh,
				     unsigned kind, struct vbn_op *op)
{
	struct slot *slot = lane->spare;

	fresh->lane = lane;
	lane->spare = fresh;
	slot->next = fresh;
	slot->op = op;
	slot->status = 0;
	slot->kind = (uint16_t)kind;
	return slot;
}

static inline struct slot *take_slot(struct verbs_ctx *ctx, struct lane *lane,
				     unsigned kind, struct vbn_op *op)
{
	struct slot *fresh = ctx->free_slots;

	ctx->free_slots = fresh->next;
	lane->room--;
	return fill_slot(lane, fresh, kind, op);
}

/* Quick puts may come: no chain of the connection waits. */
static inline void quick_open(struct verbs_conn *conn)
{
	conn->lane[0].quick.max = conn->quick_max;
}

#endif
