/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What collectives say to each other besides data (wire.h): the sending.
 */
#include "wire.h"

#include <errno.h>
#include <string.h>

static int send_message(struct peer *peer, const void *message, size_t len)
{
	int err = vbn_message(peer->ep, VBN_CHANNEL_COLL, message, len);

	if (err == -EAGAIN)
		peer->comm->stalled = true;
	return err;
}

struct vbn_pool *wire_pool(struct vbn_comm *comm)
{
	struct shared *shared = comm->shared;
	const struct vbn_pool_options opts = {
		.size = sizeof(opts),
		.access = VBN_ACCESS_READ | VBN_ACCESS_WRITE,
	};

	if (!shared->pool)
		(void)vbn_pool_create(&shared->pool, comm->job, &opts);
	return shared->pool;
}

static int make_landing(struct peer *peer)
{
	struct vbn_comm *comm = peer->comm;
	struct vbn_pool *pool;

	if (peer->memory)
		return 0;
	pool = wire_pool(comm);
	if (pool)
		peer->memory = vbn_pool_alloc(
			pool, comm->slots * comm->slot_bytes, 4096);
	return peer->memory ? 0 : comm_no_memory(comm);
}

int wire_open(struct peer *peer, bool landing)
{
	struct vbn_comm *comm = peer->comm;
	struct open_message message = {
		.head = {.type = MESSAGE_OPEN,
			 .flag = landing,
			 .tag = (uint16_t)comm->tag,
			 .uid = comm->uid},
		.slots = comm->slots,
		.slot_bytes = comm->slot_bytes,
	};
	int err;

	if (landing ? peer->landing_told : peer->told)
		return 0;
	if (landing) {
		struct vbn_rkey rkey;

		err = make_landing(peer);
		if (!err)
			err = vbn_rkey_of(comm->job, peer->memory,
					  comm->slots * comm->slot_bytes,
					  &rkey);
		if (err)
			return err;
		vbn_rkey_pack(&rkey, message.landing);
	}
	err = send_message(peer, &message, sizeof(message));
	if (!err) {
		peer->told = true;
		peer->landing_told |= landing;
	}
	return err;
}

static int notify(struct peer *peer, uint32_t value)
{
	struct coll_op *op = engine_take_op(peer);
	int err;

	if (!op)
		return -EAGAIN; /* one that completes pumps again */
	err = vbn_notify(peer->ep, &op->op, VBN_CHANNEL_COLL,
			 NOTIFY_CONTROL |
				 peer->tag << (SEQ_BITS + DIGEST_BITS) | value,
			 0);
	if (err)
		engine_return_op(op);
	if (err == -EAGAIN)
		peer->comm->stalled = true;
	return err;
}

static bool same_key(const struct vbn_rkey *a, const struct vbn_rkey *b)
{
	return a->region == b->region && a->generation == b->generation &&
	       a->base == b->base && a->length == b->length;
}

/* What was exposed last is told again by a notify, or, where the plan's own
   puts say when it is ready, not at all. */
static int expose_again(struct peer *peer, const struct vbn_coll *coll)
{
	if (coll->algo->greets)
		return 0;
	if (!peer->opened)
		return -EAGAIN;
	return notify(peer, NOTIFY_READY | (coll->seq & COUNT_MASK));
}

int wire_expose(struct peer *peer, const struct vbn_coll *coll)
{
	struct expose_message message = {
		.head = {.type = MESSAGE_EXPOSE,
			 .flag = coll->output.length > 0,
			 .seq = coll->seq,
			 .uid = peer->comm->uid},
	};
	int err;

	if (peer->exposing && peer->exposing_seq == coll->seq)
		return 0;
	if (peer->exposing && same_key(&peer->told_output, &coll->output) &&
	    same_key(&peer->told_input, &coll->input)) {
		err = expose_again(peer, coll);
	} else {
		vbn_rkey_pack(&coll->output, message.output);
		vbn_rkey_pack(&coll->input, message.input);
		err = send_message(peer, &message, sizeof(message));
	}
	if (!err) {
		peer->exposing = true;
		peer->exposing_seq = coll->seq;
		peer->told_output = coll->output;
		peer->told_input = coll->input;
	}
	return err;
}

int wire_quick(struct peer *peer, const struct vbn_coll *coll, const void *data,
	       size_t bytes)
{
	struct quick_message message;

	if (!wire_in_reach(peer, coll->seq))
		return -EAGAIN;
	message.head = (struct message_head){.type = MESSAGE_QUICK,
					     .tag = coll->digest,
					     .seq = coll->seq,
					     .uid = peer->comm->uid};
	memcpy(message.data, data, bytes);
	return send_message(peer, &message, sizeof(message.head) + bytes);
}

/* Tell a peer that the communicator broke; what cannot be sent never is. */
void wire_abort(struct peer *peer)
{
	struct vbn_comm *comm = peer->comm;
	struct abort_message message = {
		.head = {.type = MESSAGE_ABORT,
			 .seq = comm->fault_seq,
			 .uid = comm->uid},
		.err = comm->fault,
	};

	memcpy(message.why, comm->why, sizeof(message.why));
	if (send_message(peer, &message, sizeof(message)) != -EAGAIN)
		peer->owes_abort = false;
}

void wire_empty_slot(struct peer *peer, uint64_t landing)
{
	uint32_t seq = peer->comm->next_seq;

	if (peer->emptied_seq != seq) {
		peer->emptied_seq = seq;
		peer->emptied_before = peer->emptied.freed;
	}
	exec_slot_free(&peer->emptied, landing);
	wire_return_slots(peer);
}

/*
 * Those that no put of ours has given back by being of a later call; half of
 * the slots at a time, not one by one.
 */
void wire_return_slots(struct peer *peer)
{
	struct vbn_comm *comm = peer->comm;

	if (2 * (peer->emptied.freed - peer->returned) < comm->slots)
		return;
	/* On an error but -EAGAIN the peer is gone; who needs it notices. */
	if (peer->opened &&
	    !notify(peer, (uint32_t)peer->emptied.freed & COUNT_MASK))
		peer->returned = peer->emptied.freed;
	else
		comm->owes_slots = true;
}

static int send_head(struct peer *peer, enum message_type type, uint32_t seq)
{
	const struct message_head head = {
		.type = (uint8_t)type, .seq = seq, .uid = peer->comm->uid};

	return send_message(peer, &head, sizeof(head));
}

bool wire_ask(struct peer *peer, uint32_t seq, int32_t ahead)
{
	if (!peer->asked)
		peer->asked =
			!send_head(peer, MESSAGE_ASK, seq - REACH / 2 + 1);
	return ahead < REACH;
}

void wire_answer(struct peer *peer)
{
	struct vbn_comm *comm = peer->comm;

	if (!peer->asks || (int32_t)(comm->next_seq - peer->wanted) < 0)
		return;
	if (send_head(peer, MESSAGE_AT, comm->next_seq) == -EAGAIN)
		return;
	peer->asks = false;
	comm->askers--;
}
