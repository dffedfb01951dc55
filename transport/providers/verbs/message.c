/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sending messages: by RDMA write into the peer's ring, with an immediate
 * that says how many bytes; a message that is nothing but a kind and a small
 * number is the immediate alone, and of a short one with such a header the data
 * alone is written, straight from where the caller has it.
 *
 * What is free in a ring comes back in every immediate of channel 0 that goes
 * the other way (those of NOTICE_DATA carry a part of it, at most), and in one
 * of its own when half of the ring or more is left. Notices of our own take
 * receives that no credit pays for; at most OWN_SLACK are in flight in a
 * direction: 2 returns of units for each of the two rings that a connection can
 * have in its life (each returns half a ring or more, which cannot be used
 * again before it has arrived), OWN_GROW, OWN_NEED, OWN_SWITCHED and OWN_RING
 * once.
 *
 * The sender asks for a larger ring when a message finds no room: with
 * OWN_NEED when it might never, with OWN_GROW when waiting would do. The
 * receiver answers with OWN_RING, in the ring of the other direction;
 * OWN_SWITCHED precedes the first message in the new one, so all in the old
 * have been read when it arrives. A refused OWN_GROW is not answered.
 */
#include "failover.h"

#include <errno.h>

#define BARE_KINDS  16u
#define BARE_VALUES 256u

void message_owe(struct verbs_conn *conn, enum owed what)
{
	struct verbs_ctx *ctx = conn->ctx;

	if (!conn->owes) {
		conn->next_owing = ctx->owing;
		ctx->owing = conn;
		ctx_due(ctx);
	}
	conn->owes |= (uint8_t)what;
}

static int pay_ring(struct verbs_conn *conn)
{
	const struct ring *ring = &conn->ring[1];
	struct ring_notice notice = {
		.addr = (uintptr_t)ring->base,
		.units = ring->bytes / MAILBOX_UNIT,
	};

	for (unsigned i = 0; i < conn->npairs; i++)
		notice.rkey[i] = ring->rkey[conn->pair[i].rail];
	if (!mailbox_fits(&conn->out, mailbox_units(sizeof(notice))))
		return -EAGAIN;
	return post_message(conn, NOTICE_OWN, OWN_RING, &notice, sizeof(notice),
			    NULL, 0);
}

static int pay_switch(struct verbs_conn *conn)
{
	int err = post_own(&conn->lane[0], OWN_SWITCHED, 0);

	if (err)
		return err;
	conn->out = conn->out_next;
	conn->out_ring = 1;
	conn->out.rkey = lane_pair(&conn->lane[0])->out_rkey[1];
	return 0;
}

static int pay_fenced(struct verbs_conn *conn)
{
	int err = post_own(&conn->lane[0], OWN_FENCED, conn->fences_seen);

	if (!err)
		conn->fences_seen = 0;
	return err;
}

/* What stays owed is tried again at the next progress. */
static void pay(struct verbs_conn *conn)
{
	if ((conn->owes & OWE_SWITCH) && !pay_switch(conn))
		conn->owes &= (uint8_t)~OWE_SWITCH;
	if ((conn->owes & OWE_RING) && !pay_ring(conn))
		conn->owes &= (uint8_t)~OWE_RING;
	if ((conn->owes & OWE_FENCED) && !pay_fenced(conn))
		conn->owes &= (uint8_t)~OWE_FENCED;
	if ((conn->owes & OWE_BACK) && !back_pay(conn))
		conn->owes &= (uint8_t)~OWE_BACK;
	if ((conn->owes & OWE_UNITS) &&
	    (!mailbox_owes(&conn->in) || /* a notice has carried it */
	     !post_own(&conn->lane[0], OWN_UNITS, 0)))
		conn->owes &= (uint8_t)~OWE_UNITS;
}

void message_pay(struct verbs_ctx *ctx)
{
	struct verbs_conn **link = &ctx->owing;

	while (*link) {
		struct verbs_conn *conn = *link;

		if (conn->broken)
			conn->owes = 0;
		else
			pay(conn);
		if (conn->owes)
			link = &conn->next_owing;
		else
			*link = conn->next_owing;
	}
}

/* No room for a message of @units. */
static int want_room(struct verbs_conn *conn, uint32_t units)
{
	bool need = !mailbox_will_fit(&conn->out, units);
	bool *asked = need ? &conn->asked_need : &conn->asked_grow;

	if (conn->broken)
		return -ECONNRESET;
	if (!conn->out_ring && !conn->asked_need && !*asked)
		*asked = !post_own(&conn->lane[0], need ? OWN_NEED : OWN_GROW,
				   0);
	return -EAGAIN;
}

int verbs_message(void *vconn, const struct message_header *header,
		  const void *data, size_t len)
{
	struct verbs_conn *conn = vconn;
	uint32_t bytes = (uint32_t)(sizeof(*header) + len), units;
	bool plain = !(header->u64[0] | header->u64[1] | header->u64[2]);
	int err = conn->striped ? lanes_fence(conn) : 0;

	if (err)
		return err;
	if (plain && !len && header->kind < BARE_KINDS &&
	    header->u32 < BARE_VALUES)
		return post_notice(conn, NOTICE_BARE,
				   header->kind * BARE_VALUES + header->u32);
	plain = plain && len && len < DATA_BYTES && header->kind < DATA_KINDS &&
		header->u32 < DATA_U32S;
	/* after the word, messages lie in the new ring: not before it is out */
	if ((conn->owes & OWE_SWITCH) && !conn->broken)
		message_pay(conn->ctx);
	units = mailbox_units(plain ? (uint32_t)len : bytes);
	if (!mailbox_fits(&conn->out, units))
		return want_room(conn, units);
	if (plain)
		return post_data(
			conn,
			data_value(header->kind, header->u32, (uint32_t)len),
			data, len);
	return post_message(conn, NOTICE_MESSAGE, bytes, header,
			    sizeof(*header), data, len);
}
