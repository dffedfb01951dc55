/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arrivals. An immediate is all that a receive brings; one of channel 0 is a
 * notice, of a message in the mailbox or of the mailbox itself. Messages are
 * read where they lie, and their room is free when the core has returned.
 *
 * What comes before the connection is attached, or while lane 0 waits for the
 * fences of others, is held: its immediates in a list as long as all that may
 * be in flight, its messages in the ring.
 */
#include "failover.h"
#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A peer that does not keep to the rules. */
static void violated(struct verbs_conn *conn, const char *what)
{
	progress_break(conn, what, IBV_WC_BAD_RESP_ERR, 0);
}

static void grow(struct verbs_conn *conn, bool needed)
{
	int err;

	if (conn->ring[1].base)
		return; /* announced, or about to be */
	err = ring_take_large(conn->ctx, needed, &conn->ring[1]);
	if (!err) {
		message_owe(conn, OWE_RING);
	} else if (needed) {
		vbn_log(VBN_ERR, "%s", vbn_error());
		progress_break(conn, "making room for messages",
			       IBV_WC_GENERAL_ERR, (uint32_t)-err);
	}
}

/* All that lay in the small ring has been read. */
static void switched(struct verbs_conn *conn)
{
	const struct ring *ring = &conn->ring[1];

	if (!ring->base || conn->in_ring) {
		violated(conn, "changing the mailbox");
		return;
	}
	conn->in = (struct mailbox_in){
		.base = ring->base,
		.units = (uint16_t)(ring->bytes / MAILBOX_UNIT),
	};
	conn->in_ring = 1;
	ring_give(conn->ctx, &conn->ring[0]);
}

static void answered(struct verbs_conn *conn, uint32_t n)
{
	if (n > conn->fences_sent)
		violated(conn, "reading a notice");
	else
		conn->fences_sent -= (uint8_t)n;
}

/* Its description has been read at @p. */
static void new_ring(struct verbs_conn *conn, const uint8_t *p)
{
	struct ring_notice notice;

	memcpy(&notice, p, sizeof(notice));
	if (conn->out_next.units || notice.units < RING_LEAST / MAILBOX_UNIT ||
	    notice.units > UNITS_MAX) {
		violated(conn, "reading a notice");
		return;
	}
	conn->out_next = (struct mailbox_out){
		.addr = notice.addr,
		.units = (uint16_t)notice.units,
		.room = (uint16_t)notice.units,
	};
	for (unsigned i = 0; i < conn->npairs; i++)
		conn->pair[i].out_rkey[1] = notice.rkey[i];
	message_owe(conn, OWE_SWITCH);
}

/* What lies in the ring: @bytes of it. NULL: nothing that a peer would write.
 */
static const uint8_t *take(struct verbs_conn *conn, uint32_t bytes,
			   uint32_t *taken)
{
	const uint8_t *p = NULL;

	if (bytes && bytes <= MESSAGE_BYTES)
		p = mailbox_take(&conn->in, mailbox_units(bytes), taken);
	if (!p)
		violated(conn, "reading a message");
	return p;
}

/* It has been read. */
static inline void taken_over(struct verbs_conn *conn, uint32_t taken)
{
	if (conn->closed)
		return;
	conn->in.freed = (uint16_t)(conn->in.freed + taken);
	if (mailbox_owes(&conn->in))
		message_owe(conn, OWE_UNITS);
}

/* A message, header and all. */
static void on_message(struct verbs_conn *conn, uint32_t bytes)
{
	const struct message_header *header;
	uint32_t taken;
	const uint8_t *p;

	if (bytes < sizeof(*header)) {
		violated(conn, "reading a message");
		return;
	}
	p = take(conn, bytes, &taken);
	if (!p)
		return;
	header = (const struct message_header *)p;
	core_message(conn->ep, header, p + sizeof(*header),
		     bytes - sizeof(*header));
	taken_over(conn, taken);
}

/* The data alone; what the header says is in the notice. */
static inline void on_data(struct verbs_conn *conn, uint32_t value)
{
	const struct message_header header = {
		.kind = value / (DATA_U32S * DATA_BYTES),
		.u32 = value / DATA_BYTES % DATA_U32S,
	};
	uint32_t bytes = value % DATA_BYTES, taken;
	const uint8_t *p = take(conn, bytes, &taken);

	if (!p)
		return;
	core_message(conn->ep, &header, p, bytes);
	taken_over(conn, taken);
}

/* Nothing but what the header says. */
static void on_bare(struct verbs_conn *conn, uint32_t value)
{
	const struct message_header header = {.kind = value >> 8,
					      .u32 = value & 0xff};

	core_message(conn->ep, &header, NULL, 0);
}

static void on_ring(struct verbs_conn *conn)
{
	uint32_t taken;
	const uint8_t *p = take(conn, sizeof(struct ring_notice), &taken);

	if (!p)
		return;
	new_ring(conn, p);
	taken_over(conn, taken);
}

static void on_back(struct verbs_conn *conn)
{
	uint32_t taken;
	const uint8_t *p = take(conn, (uint32_t)back_notice_bytes(), &taken);

	if (!p)
		return;
	if (back_told(conn, p))
		taken_over(conn, taken);
	else
		violated(conn, "reading a notice");
}

static void own(struct lane *lane, uint32_t value)
{
	struct verbs_conn *conn = lane->conn;
	uint32_t what = value % (1u << OWN_BITS), n = value >> OWN_BITS;

	switch ((enum own_notice)what) {
	case OWN_UNITS:
		break;
	case OWN_GROW:
	case OWN_NEED:
		grow(conn, what == OWN_NEED);
		break;
	case OWN_SWITCHED:
		switched(conn);
		break;
	case OWN_FENCE:
		lanes_fenced(conn, n);
		break;
	case OWN_WAIT:
		lanes_wait(conn, n);
		break;
	case OWN_FENCED:
		answered(conn, n);
		break;
	case OWN_RING:
		on_ring(conn);
		break;
	case OWN_BACK:
		on_back(conn);
		break;
	default:
		violated(conn, "reading a notice");
	}
}

static bool is_own(const struct notice *n, enum own_notice what)
{
	return n->kind == NOTICE_OWN && n->value % (1u << OWN_BITS) == what;
}

/* Does it stand beside the order of all else? */
static bool is_beside(uint32_t imm)
{
	const struct notice n = notice_unpack(imm);

	return !(imm >> CHANNEL_SHIFT) &&
	       (is_own(&n, OWN_FENCE) || is_own(&n, OWN_DEAD));
}

static void on_notice(struct lane *lane, uint32_t imm)
{
	struct verbs_conn *conn = lane->conn;
	const struct notice n = notice_unpack(imm);

	if (is_own(&n, OWN_DEAD)) {
		failover_told(conn, n.value >> OWN_BITS, n.units);
		return;
	}
	/* what is free in a ring that is left behind is of no interest */
	if (n.ring == conn->out_ring &&
	    !mailbox_returned(&conn->out, n.units)) {
		violated(conn, "reading a notice");
		return;
	}
	switch ((enum notice_kind)n.kind) {
	case NOTICE_BARE:
		on_bare(conn, n.value);
		break;
	case NOTICE_OWN:
		own(lane, n.value);
		break;
	case NOTICE_DATA:
		on_data(conn, n.value);
		break;
	case NOTICE_MESSAGE:
		on_message(conn, n.value);
		break;
	}
}

void arrive(struct lane *lane, uint32_t imm)
{
	if (imm >> CHANNEL_SHIFT)
		core_notify(lane->conn->ep, imm);
	else
		on_notice(lane, imm);
}

/* ---- what has to wait ---- */

int arrive_prepare(struct verbs_conn *conn)
{
	uint32_t room = CREDITS_MAX + conn_slack(conn);
	struct held *held = malloc(sizeof(*held) + room * sizeof(uint32_t));

	if (!held)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	held->n = held->at = 0;
	held->room = room;
	conn->held = held;
	return 0;
}

void arrive_hold(struct lane *lane, uint32_t imm)
{
	struct verbs_conn *conn = lane->conn;
	struct held *held;

	if (conn->broken)
		return;
	if (is_beside(imm)) {
		on_notice(lane, imm);
		return;
	}
	if (!conn->held && arrive_prepare(conn)) {
		progress_break(conn, "keeping an arrival", IBV_WC_GENERAL_ERR,
			       ENOMEM);
		return;
	}
	held = conn->held;
	if (held->n == held->room && held->at) {
		held->n -= held->at;
		memmove(held->imms, held->imms + held->at,
			held->n * sizeof(held->imms[0]));
		held->at = 0;
	}
	if (held->n == held->room)
		violated(conn, "keeping an arrival");
	else
		held->imms[held->n++] = imm;
}

void arrive_resume(struct verbs_conn *conn)
{
	struct verbs_ctx *ctx = conn->ctx;

	if (!conn->attached || conn->in_held)
		return;
	conn->in_held = true;
	conn->next_held = ctx->held;
	ctx->held = conn;
	ctx_due(ctx);
}

/* If all is delivered, arrivals go to the core at once again. */
static void settle(struct verbs_conn *conn)
{
	struct held *held = conn->held;

	if (conn->closed || conn->waiting || conn->broken)
		return;
	conn->direct = true;
	if (!held)
		return;
	held->n = held->at = 0;
	/* several lanes wait time and again */
	if (conn->nlanes == 1) {
		conn->held = NULL;
		free(held);
	}
}

int arrive_held(struct verbs_ctx *ctx)
{
	struct verbs_conn *conn;
	int events = 0;

	/* one by one: a callback may close any of them */
	while ((conn = ctx->held)) {
		struct held *held = conn->held;

		ctx->held = conn->next_held;
		conn->in_held = false;
		conn->pins++;
		while (!conn->broken && !conn->waiting && held &&
		       held->at != held->n) {
			arrive(&conn->lane[0], held->imms[held->at++]);
			events++;
		}
		settle(conn);
		progress_unpin(conn);
	}
	return events;
}
