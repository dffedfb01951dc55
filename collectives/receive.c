/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What collectives say to each other besides data (wire.h): the receiving, and
 * finding out that a peer does not make our call.
 */
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The peer is in call @seq: it has emptied the slots of all calls before. */
static void note_position(struct peer *peer, uint32_t seq)
{
	uint64_t emptied = peer->credits - peer->slots;

	if ((int32_t)(seq - peer->position) <= 0)
		return;
	peer->position = seq;
	if (!peer->has_landing)
		return;
	for (; emptied < peer->landed; emptied++)
		if ((int32_t)(peer->put_seq[emptied % peer->slots] - seq) >= 0)
			break;
	peer->credits = emptied + peer->slots;
}

static void take_ask(struct peer *peer, uint32_t seq)
{
	if (!peer->asks)
		peer->comm->askers++;
	peer->asks = true;
	peer->wanted = seq;
}

static void take_at(struct peer *peer, uint32_t seq)
{
	peer->asked = false;
	note_position(peer, seq);
}

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

/* NULL: not used yet, or none of its members. */
static struct peer *peer_of(struct vbn_comm *comm, struct vbn_ep *from)
{
	int member;

	if (comm->recent && comm->recent->ep == from)
		return comm->recent;
	member = member_of(comm, from);
	if (member >= 0 && comm->by_member[member])
		comm->recent = comm->by_member[member];
	return member < 0 ? NULL : comm->by_member[member];
}

void wire_disagree(struct vbn_comm *comm, const struct peer *peer, uint32_t seq)
{
	char mine[128], why[COMM_WHY];

	call_describe(comm_call(comm, seq), mine, sizeof(mine));
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
	note_position(peer, peer->seen_seq);
	if (ahead == 0 && comm->first && comm->first->state == COLL_RUNNING) {
		if (digest != wire_pair_digest(peer, comm->first, false))
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
	comm->nearly++;
}

static void take_quick(struct peer *peer, const struct message_head *head,
		       const void *data, size_t bytes)
{
	memcpy(peer->quick[head->seq % QUICK_KEPT].data, data, bytes);
	peer->arrived++;
	note_call(peer, head->seq & SEQ_MASK, head->tag);
}

/*
 * A contribution, as most messages are, is not copied as a whole first. False:
 * it is none, or not for a communicator that is well.
 */
static bool take_contribution(struct shared *shared, struct vbn_ep *from,
			      const void *data, size_t len)
{
	struct message_head head;
	struct vbn_comm *comm;
	struct peer *peer;
	int member;

	memcpy(&head, data, sizeof(head));
	if (head.type != MESSAGE_QUICK || len > sizeof(struct quick_message))
		return false;
	comm = find_comm(shared, head.uid);
	member = comm && !comm->error ? member_of(comm, from) : -1;
	peer = member < 0 ? NULL : comm_peer(comm, member);
	if (!peer)
		return false;
	take_quick(peer, &head, (const char *)data + sizeof(head),
		   len - sizeof(head));
	if (!quick_advance(comm))
		engine_pump(comm);
	return true;
}

static void take_open(struct peer *peer, const struct open_message *message)
{
	peer->opened = true;
	peer->lingers = vbn_ep_provider(peer->ep)[0] == 'u';
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

static void take_expose(struct peer *peer, const struct expose_message *message)
{
	peer->exposed = true;
	peer->exposed_seq = message->head.seq;
	note_position(peer, message->head.seq);
	peer->writable = message->head.flag;
	vbn_rkey_unpack(&peer->output, message->output);
	vbn_rkey_unpack(&peer->input, message->input);
	peer->mapped_output = peer->mapped_input = NULL;
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
		take_expose(peer, data);
	} else if (head->type == MESSAGE_ASK) {
		take_ask(peer, head->seq);
	} else if (head->type == MESSAGE_AT) {
		take_at(peer, head->seq);
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

/* What cannot be sent now is said to the next message, and at creation. */
static void refuse(struct shared *shared, struct vbn_ep *from, uint64_t uid)
{
	struct abort_message message = {
		.head = {.type = MESSAGE_ABORT, .uid = uid}, .err = -ENOBUFS};

	snprintf(
		message.why, sizeof(message.why),
		"rank %d has not created the communicator yet, and has no room for more messages that come before",
		vbn_job_rank(vbn_ctx_job(shared->ctx)));
	(void)vbn_message(from, VBN_CHANNEL_COLL, &message, sizeof(message));
}

static void keep_early(struct shared *shared, struct vbn_ep *from,
		       const struct message_head *head, size_t len)
{
	/* Freed here, or failed: left over from calls that nobody makes. */
	if (comm_is_past(shared, head->uid))
		return;
	if (early_keep(&shared->early, head->uid, from, head, len) &&
	    head->type != MESSAGE_ABORT)
		refuse(shared, from, head->uid);
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
	if (take_contribution(shared, from, data, len))
		return;
	memcpy(&message, data, len); /* aligned */
	comm = find_comm(shared, message.head.uid);
	if (comm)
		take_message(comm, from, &message, len);
	else
		keep_early(shared, from, &message.head, len);
}

int wire_adopt_early(struct vbn_comm *comm)
{
	struct shared *shared = comm->shared;
	bool refused;
	struct early_message *early =
		early_take(&shared->early, comm->uid, &refused);

	while (early) {
		struct early_message *next = early->next;

		on_message(shared, early->from, early->data, early->len);
		free(early);
		early = next;
	}
	if (!refused)
		return 0;
	return vbn_fail(
		-ENOBUFS,
		"messages for the communicator came before it was created, and there was no room for them (%zu MiB for all communicators): create it before others use it much",
		shared->early.most >> 20);
}

uint64_t wire_arrived(const struct peer *peer)
{
	return peer->nearly ? peer->early[0].from : peer->arrived;
}

bool wire_check_early(struct vbn_coll *coll)
{
	struct vbn_comm *comm = coll->comm;

	if (comm->nearly == 0)
		return true;
	for (struct peer *peer = comm->peers; peer; peer = peer->next) {
		while (peer->nearly &&
		       peer->early[0].seq == (coll->seq & SEQ_MASK)) {
			if (peer->early[0].digest !=
			    wire_pair_digest(peer, coll, false)) {
				wire_disagree(comm, peer, coll->seq);
				return false;
			}
			memmove(peer->early, peer->early + 1,
				--peer->nearly * sizeof(*peer->early));
			comm->nearly--;
		}
	}
	return true;
}

static void take_slots(struct peer *peer, uint32_t value)
{
	uint64_t emptied = peer->credits - peer->slots;
	uint32_t more = (value - (uint32_t)emptied) & COUNT_MASK;

	if (more == 0)
		return;
	peer->credits += more;
	note_position(peer, peer->put_seq[(emptied + more - 1) % peer->slots]);
}

static void take_control(struct peer *peer, uint32_t value)
{
	if (value & NOTIFY_READY) {
		/* Near the call that we are at, ahead or behind. */
		uint32_t off = (value - peer->comm->next_seq) & COUNT_MASK;

		if (off > COUNT_MASK / 2)
			off -= COUNT_MASK + 1;
		peer->exposed_seq = peer->comm->next_seq + off;
		note_position(peer, peer->exposed_seq);
	} else if (peer->has_landing) {
		take_slots(peer, value);
	}
}

static void on_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct shared *shared = arg;
	unsigned tag = value >> (SEQ_BITS + DIGEST_BITS) & (COMM_TAGS - 1);
	struct vbn_comm *comm = shared->by_tag[tag];
	struct peer *peer = comm && !comm->error ? peer_of(comm, from) : NULL;

	if (!peer || !peer->opened)
		return; /* of an earlier communicator */
	if (value & NOTIFY_CONTROL) {
		take_control(peer, value);
	} else {
		peer->arrived++;
		note_call(peer, value >> DIGEST_BITS & SEQ_MASK,
			  value & DIGEST_MASK);
		if (quick_advance(comm))
			return;
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
