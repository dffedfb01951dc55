/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What collectives say to each other besides data: notify values, and the
 * three messages open, expose, abort. Members run on machines of one byte
 * order; structures travel as they are.
 *
 * A notify's 28 bits, from the top:
 *   data:   0, tag (9), low 5 bits of the call's seq, its digest (13)
 *   slots:  1, tag (9), low 18 bits of the count of slots given back
 * The tag is the receiver's. A peer can be ahead by as many calls as it has
 * landing slots and two more, so 5 bits of seq are unambiguous.
 *
 * The digest is a CRC over what members must agree on, so that one field that
 * differs in a range of up to 13 bits (a kind, a type, a root, a count off by
 * one) is always seen.
 */
#include "coll.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQ_BITS = 5, DIGEST_BITS = 13, RETURN_BITS = 18, EARLY_MOST = 4096 };

#define SEQ_MASK    ((1u << SEQ_BITS) - 1)
#define DIGEST_MASK ((1u << DIGEST_BITS) - 1)
#define RETURN_MASK ((1u << RETURN_BITS) - 1)

enum message_type { MESSAGE_OPEN = 1, MESSAGE_EXPOSE, MESSAGE_ABORT };

struct message_head {
	uint8_t type;
	uint8_t flag; /* open: with landing; expose: writable */
	uint16_t tag; /* open */
	uint32_t seq; /* expose, abort */
	uint64_t uid;
};

struct open_message {
	struct message_head head;
	uint32_t slots, zero;
	uint64_t slot_bytes;
	uint8_t landing[VBN_RKEY_BYTES];
};

struct expose_message {
	struct message_head head;
	uint8_t output[VBN_RKEY_BYTES];
};

struct abort_message {
	struct message_head head;
	int32_t err;
	char why[COMM_WHY];
};

/* ---- digest ---- */

/* CRC-13, polynomial 0x1cf5, by nibbles. */
static const uint16_t crc_table[16] = {
	0x0000, 0x1cf5, 0x051f, 0x19ea, 0x0a3e, 0x16cb, 0x0f21, 0x13d4,
	0x147c, 0x0889, 0x1163, 0x0d96, 0x1e42, 0x02b7, 0x1b5d, 0x07a8};

static uint16_t crc_add(uint16_t crc, uint64_t value, int nibbles)
{
	for (int i = nibbles - 1; i >= 0; i--)
		crc = (uint16_t)((crc << 4 & DIGEST_MASK) ^
				 crc_table[(crc >> (DIGEST_BITS - 4) ^
					    value >> (4 * i)) &
					   15]);
	return crc;
}

uint16_t wire_digest(const struct call *call)
{
	uint16_t crc = crc_add(DIGEST_MASK, (uint64_t)call->kind, 2);

	crc = crc_add(crc, (uint64_t)call->type, 2);
	crc = crc_add(crc, (uint64_t)call->reduction, 2);
	crc = crc_add(crc, (uint64_t)call->algorithm, 2);
	crc = crc_add(crc, (uint64_t)call->root, 8);
	crc = crc_add(crc, call->chunk, 16);
	crc = crc_add(crc, call->landing_bytes, 8);
	return crc_add(crc, call->count, 16);
}

uint32_t wire_data_value(const struct peer *peer, const struct vbn_coll *coll)
{
	return peer->tag << (SEQ_BITS + DIGEST_BITS) |
	       (coll->seq & SEQ_MASK) << DIGEST_BITS | coll->digest;
}

/* ---- sending ---- */

static int send_message(struct peer *peer, const void *message, size_t len)
{
	int err = vbn_message(peer->ep, VBN_CHANNEL_COLL, message, len);

	if (err == -EAGAIN)
		peer->comm->stalled = true;
	return err;
}

static int make_landing(struct peer *peer)
{
	struct vbn_comm *comm = peer->comm;
	struct shared *shared = comm->shared;
	const struct vbn_pool_options opts = {
		.size = sizeof(opts),
		.access = VBN_ACCESS_WRITE,
	};

	if (peer->memory)
		return 0;
	if (!shared->pool) {
		int err = vbn_pool_create(&shared->pool, comm->job, &opts);

		if (err)
			return err;
	}
	peer->memory = vbn_pool_alloc(shared->pool,
				      comm->slots * comm->slot_bytes, 4096);
	return peer->memory ? 0 : -ENOMEM;
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

int wire_expose(struct peer *peer, const struct vbn_coll *coll)
{
	struct expose_message message = {
		.head = {.type = MESSAGE_EXPOSE,
			 .flag = coll->direct,
			 .seq = coll->seq,
			 .uid = peer->comm->uid},
	};
	int err;

	if (peer->exposing && peer->exposing_seq == coll->seq)
		return 0;
	if (coll->direct)
		vbn_rkey_pack(&coll->output, message.output);
	err = send_message(peer, &message, sizeof(message));
	if (!err) {
		peer->exposing = true;
		peer->exposing_seq = coll->seq;
	}
	return err;
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

/* Slots are given back half of them at a time, not one by one. */
void wire_return_slots(struct peer *peer)
{
	struct vbn_comm *comm = peer->comm;
	struct coll_op *op;
	int err;

	if (!peer->opened ||
	    2 * (peer->emptied.freed - peer->returned) < comm->slots)
		return;
	op = engine_take_op(peer, false);
	if (!op)
		return; /* one that completes pumps again */
	err = vbn_notify(peer->ep, &op->op, VBN_CHANNEL_COLL,
			 1u << 27 | peer->tag << (SEQ_BITS + DIGEST_BITS) |
				 ((uint32_t)peer->emptied.freed & RETURN_MASK),
			 0);
	if (!err) {
		peer->returned = peer->emptied.freed;
		return;
	}
	engine_return_op(op);
	if (err == -EAGAIN)
		comm->stalled = true;
	/* Another error: the peer is gone; who needs it will notice. */
}

/* ---- receiving ---- */

static struct vbn_comm *find_comm(const struct shared *shared, uint64_t uid)
{
	struct vbn_comm *comm = shared->comms;

	while (comm && (comm->uid != uid || comm->orphan))
		comm = comm->next;
	return comm;
}

static int member_of(const struct vbn_comm *comm, struct vbn_ep *from)
{
	int member = comm->member_of[vbn_ep_rank(from)];

	if (member < 0 || comm->indexes[member] != vbn_ep_index(from))
		return -1;
	return member;
}

static void take_open(struct peer *peer, const struct open_message *message)
{
	peer->opened = true;
	peer->tag = message->head.tag % COMM_TAGS;
	if (!message->head.flag || peer->has_landing)
		return;
	vbn_rkey_unpack(&peer->landing, message->landing);
	peer->slots = message->slots;
	peer->slot_bytes = message->slot_bytes;
	peer->credits = message->slots;
	peer->has_landing = peer->slots >= 1 &&
			    peer->slots <= COMM_SLOTS_MOST &&
			    peer->slot_bytes <= UINT64_MAX / COMM_SLOTS_MOST;
}

static void take_message(struct vbn_comm *comm, struct vbn_ep *from,
			 const void *data, size_t len)
{
	const struct message_head *head = data;
	int member = member_of(comm, from);
	struct peer *peer = member < 0 ? NULL : comm_peer(comm, member);

	if (!peer)
		return;
	if (comm->error) { /* it may not have heard */
		peer->owes_abort |= head->type == MESSAGE_OPEN;
		comm_pass_on(comm);
		return;
	}
	if (head->type == MESSAGE_OPEN && len == sizeof(struct open_message)) {
		take_open(peer, data);
	} else if (head->type == MESSAGE_EXPOSE &&
		   len == sizeof(struct expose_message)) {
		const struct expose_message *message = data;

		peer->exposed = true;
		peer->exposed_seq = head->seq;
		peer->writable = head->flag;
		vbn_rkey_unpack(&peer->output, message->output);
	} else if (head->type == MESSAGE_ABORT &&
		   len == sizeof(struct abort_message)) {
		const struct abort_message *message = data;
		char why[COMM_WHY];

		memcpy(why, message->why, sizeof(why));
		why[sizeof(why) - 1] = '\0';
		comm_fail_in(comm, peer,
			     message->err < 0 ? message->err : -EPROTO,
			     head->seq, why);
		return;
	}
	engine_pump(comm);
}

static void keep_early(struct shared *shared, struct vbn_ep *from,
		       const struct message_head *head, size_t len)
{
	struct early_message *early = malloc(sizeof(*early) + len);

	if (!early)
		return;
	*early = (struct early_message){
		.uid = head->uid, .from = from, .len = len};
	memcpy(early->data, head, len);
	*shared->early_tail = early;
	shared->early_tail = &early->next;
	if (++shared->nearly <= EARLY_MOST)
		return;
	/* Left over from communicators that broke: the oldest goes. */
	early = shared->early;
	shared->early = early->next;
	shared->nearly--;
	free(early);
}

static void on_message(void *arg, struct vbn_ep *from, const void *data,
		       size_t len)
{
	struct shared *shared = arg;
	union {
		struct message_head head;
		struct open_message open;
		struct expose_message expose;
		struct abort_message abort;
	} message;
	struct vbn_comm *comm;

	if (len < sizeof(message.head) || len > sizeof(message))
		return;
	memcpy(&message, data, len); /* aligned */
	comm = find_comm(shared, message.head.uid);
	if (comm)
		take_message(comm, from, &message, len);
	else
		keep_early(shared, from, &message.head, len);
}

void wire_adopt_early(struct vbn_comm *comm)
{
	struct shared *shared = comm->shared;
	struct early_message **link = &shared->early;

	while (*link) {
		struct early_message *early = *link;

		if (early->uid != comm->uid) {
			link = &early->next;
			continue;
		}
		*link = early->next;
		if (!*link)
			shared->early_tail = link;
		shared->nearly--;
		on_message(shared, early->from, early->data, early->len);
		free(early);
	}
}

void wire_disagree(struct vbn_comm *comm, const struct peer *peer, uint32_t seq)
{
	char mine[128], why[COMM_WHY];

	call_describe(&comm->history[seq % COMM_HISTORY], mine, sizeof(mine));
	snprintf(
		why, sizeof(why),
		"call %u of the communicator: rank %d does not agree with rank %d's %s",
		seq, comm->ranks[peer->member], comm->ranks[comm->rank], mine);
	comm_fail_in(comm, NULL, -EPROTO, seq, why);
}

/* A put of call @seq (low bits) came; it may be of a later call than ours. */
static void note_call(struct peer *peer, uint8_t seq, uint16_t digest)
{
	struct vbn_comm *comm = peer->comm;
	uint32_t ahead = (seq - comm->next_seq) & SEQ_MASK;
	struct early_call *last;

	if (ahead > SEQ_MASK / 2) { /* of a call that is over here */
		wire_disagree(comm, peer,
			      comm->next_seq + ahead - SEQ_MASK - 1);
		return;
	}
	peer->seen = true;
	peer->seen_seq = comm->next_seq + ahead;
	if (ahead == 0 && comm->first && comm->first->state == COLL_RUNNING) {
		if (digest != comm->first->digest)
			wire_disagree(comm, peer, comm->next_seq);
		return;
	}
	last = peer->nearly ? &peer->early[peer->nearly - 1] : NULL;
	if (last && last->seq == seq && last->digest == digest)
		return;
	if (peer->nearly == sizeof(peer->early) / sizeof(*peer->early)) {
		comm_fail(comm, -EPROTO, "rank %d is too many calls ahead",
			  comm->ranks[peer->member]);
		return;
	}
	peer->early[peer->nearly++] =
		(struct early_call){peer->arrived - 1, seq, digest};
}

uint64_t wire_arrived(const struct peer *peer)
{
	return peer->nearly ? peer->early[0].from : peer->arrived;
}

bool wire_check_early(struct vbn_coll *coll)
{
	struct vbn_comm *comm = coll->comm;

	for (struct peer *peer = comm->peers; peer; peer = peer->next) {
		while (peer->nearly &&
		       peer->early[0].seq == (coll->seq & SEQ_MASK)) {
			if (peer->early[0].digest != coll->digest) {
				wire_disagree(comm, peer, coll->seq);
				return false;
			}
			memmove(peer->early, peer->early + 1,
				--peer->nearly * sizeof(*peer->early));
		}
	}
	return true;
}

static void on_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct shared *shared = arg;
	unsigned tag = value >> (SEQ_BITS + DIGEST_BITS) & (COMM_TAGS - 1);
	struct vbn_comm *comm = shared->by_tag[tag];
	int member = comm && !comm->error ? member_of(comm, from) : -1;
	struct peer *peer = member < 0 ? NULL : comm->by_member[member];

	if (!peer || !peer->opened)
		return; /* of an earlier communicator */
	if (value >> 27) {
		peer->credits +=
			(value - (uint32_t)(peer->credits - peer->slots)) &
			RETURN_MASK;
	} else {
		peer->arrived++;
		note_call(peer, value >> DIGEST_BITS & SEQ_MASK,
			  value & DIGEST_MASK);
	}
	engine_pump(comm);
}

int wire_install(struct shared *shared)
{
	int err = vbn_notify_handler(shared->ctx, VBN_CHANNEL_COLL, on_notify,
				     shared);

	if (err)
		return err;
	return vbn_message_handler(shared->ctx, VBN_CHANNEL_COLL, on_message,
				   shared);
}
