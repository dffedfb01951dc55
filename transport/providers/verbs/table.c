/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The context's lanes by the numbers of their queue pairs. What the control
 * thread has made is entered when it is first looked for.
 */
#include "failover.h"

#include <errno.h>

struct lane **lane_bucket(struct verbs_ctx *ctx, uint32_t qpn)
{
	return &ctx->bucket[qpn % BUCKETS];
}

void lane_link(struct lane *lane)
{
	struct lane **bucket = lane_bucket(lane->ctx, lane->qpn);

	lane->next_bucket = *bucket;
	*bucket = lane;
}

void lane_unlink(struct lane *lane)
{
	struct verbs_ctx *ctx = lane->ctx;
	struct lane **link = lane_bucket(ctx, lane->qpn);

	while (*link && *link != lane)
		link = &(*link)->next_bucket;
	if (*link)
		*link = lane->next_bucket;
	if (ctx->last_lane == lane)
		ctx->last_lane = NULL;
}

static void adopt(struct verbs_ctx *ctx, struct lane *lane)
{
	lane_link(lane);
	lane->first = lane->spare = ctx->spare_slots;
	if (lane->spare) {
		ctx->spare_slots = lane->spare->next;
		lane->spare->lane = lane;
	} else { /* those that are being closed have them */
		progress_break(lane->conn, "taking a slot", IBV_WC_GENERAL_ERR,
			       ENOMEM);
	}
}

void conn_adopt(struct verbs_ctx *ctx)
{
	struct verbs_conn *conn = atomic_exchange(&ctx->newborn, NULL);

	while (conn) {
		struct verbs_conn *next = conn->next_newborn;

		for (unsigned i = 0; i < conn->nlanes; i++)
			adopt(ctx, &conn->lane[i]);
		conn = next;
	}
}

struct lane *lane_lookup(struct verbs_ctx *ctx, uint32_t qpn)
{
	for (int adopted = 0; adopted < 2; adopted++) {
		struct lane *lane = *lane_bucket(ctx, qpn);

		while (lane && lane->qpn != qpn)
			lane = lane->next_bucket;
		if (lane ||
		    !atomic_load_explicit(&ctx->newborn, memory_order_relaxed))
			return lane;
		conn_adopt(ctx);
	}
	return NULL;
}
