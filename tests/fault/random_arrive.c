/* SPDX-License-Identifier: BSD-3-Clause */
/* What completes and what arrives, held against the model. */
#include "random_ops.h"

#include <errno.h>
#include <string.h>

uint64_t stream_of(const struct rank *r, enum stream what, int from, int to,
		   uint64_t seq)
{
	return mix(
		mix(mix(r->seed, (uint64_t)what), (uint64_t)(from * 64 + to)),
		seq);
}

size_t length_of(uint64_t stream, size_t most)
{
	uint64_t bits = mix(stream, 77);

	/* short ones more often than long ones */
	return (size_t)(mix(bits, 1) % ((most >> bits % 12) + 1));
}

const char *kind_name(enum kind kind)
{
	const char *const names[KINDS] = {
		"put_notify", "put", "get", "add", "send", "receive", "flush"};

	return names[kind];
}

/* ---- completions ---- */

/* -EACCES, -EKEYREJECTED: of a rank that has left, as another has died. */
bool may_fail_with(const struct rank *r, int status)
{
	static const int known[] = {-EIO,     -ECONNRESET, -ECANCELED,
				    -EBADMSG, -EACCES,	   -EKEYREJECTED};

	for (size_t i = 0; r->faulty && i < sizeof(known) / sizeof(*known); i++)
		if (status == known[i])
			return true;
	return false;
}

void peer_failed(struct rank *r, int peer)
{
	if (!r->faulty && !r->peer[peer].failed)
		wrong(r, "the endpoint to rank %d failed: %s", peer,
		      vbn_error());
	r->peer[peer].failed = true;
}

static void receive_done(struct rank *r, struct item *it)
{
	struct peer *p = &r->peer[it->peer];
	uint64_t stream = stream_of(r, SENT, it->peer, r->me, it->seq);
	size_t len = length_of(stream, SEND_MOST);

	p->got_sends++;
	if (it->op.bytes != len || !is_pattern(it->buf, len, stream, 0))
		wrong(r,
		      "send %llu of rank %d: %zu bytes instead of %zu, or "
		      "wrong data",
		      (unsigned long long)it->seq, it->peer, it->op.bytes, len);
}

static void succeeded(struct rank *r, struct item *it)
{
	struct peer *p = &r->peer[it->peer];

	if (it->kind == RECEIVE)
		receive_done(r, it);
	else if (it->kind == GET &&
		 !is_pattern(it->buf, it->len,
			     stream_of(r, CONSTANT, it->peer, 0, 0),
			     it->offset))
		wrong(r, "get of rank %d: wrong data", it->peer);
	else if (it->kind == ADD)
		r->added[it->peer] += it->value;
	else if (it->kind == PUT_BACK && it->step == 2) {
		if (!is_pattern(it->buf, it->len,
				stream_of(r, SLOT, r->me, it->peer, it->seq),
				0))
			wrong(r, "put to rank %d: wrong data", it->peer);
		p->slot_busy[it->slot] = false;
	}
}

void op_done(struct vbn_op *op)
{
	struct item *it = (struct item *)op;
	struct rank *r = it->r;

	if (it->state != POSTED) {
		wrong(r, "a %s completed twice", kind_name(it->kind));
		return;
	}
	it->state = DONE;
	if (!op->status) {
		succeeded(r, it);
		return;
	}
	r->errors += !r->closing;
	/* endings of the own close are no failures */
	if (!may_fail_with(r, op->status) && op->status != -ECANCELED)
		wrong(r, "a %s to rank %d ended with %s", kind_name(it->kind),
		      it->peer, strerror(-op->status));
	if (op->status == -EBADMSG && it->kind == RECEIVE)
		r->peer[it->peer].got_sends++; /* the endpoint lives */
}

/* ---- arrivals ---- */

static int peer_of(struct vbn_ep *ep)
{
	return vbn_ep_rank(ep);
}

static void next_event(struct rank *r, int from, uint64_t low, const char *what)
{
	struct peer *p = &r->peer[from];

	if ((p->got_events & 0xffff) != low)
		wrong(r, "%s %llu of rank %d came instead of %llu", what,
		      (unsigned long long)low, from,
		      (unsigned long long)(p->got_events & 0xffff));
	p->got_events++;
}

/* The value: 16 bits of the event's number, and the slot. */
void on_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct rank *r = arg;
	int rank = peer_of(from), slot = (int)(value >> 16);
	struct peer *p = &r->peer[rank];
	uint64_t seq = p->got_events;
	uint64_t stream = stream_of(r, SLOT, rank, r->me, seq);
	const char *at = r->window + (size_t)(rank * SLOTS + slot) * SLOT_BYTES;

	next_event(r, rank, value & 0xffff, "notify");
	if (!is_pattern(at, length_of(stream, SLOT_BYTES), stream, 0))
		wrong(r, "notify %llu of rank %d: wrong data",
		      (unsigned long long)seq, rank);
	p->acks |= 1u << slot;
}

void on_event(void *arg, struct vbn_ep *from, const void *data, size_t len)
{
	struct rank *r = arg;
	int rank = peer_of(from);
	uint64_t seq = r->peer[rank].got_events;
	uint64_t stream = stream_of(r, MESSAGE, rank, r->me, seq);

	if (len != length_of(stream, MESSAGE_MOST) ||
	    !is_pattern(data, len, stream, 0))
		wrong(r, "message %llu of rank %d: wrong data",
		      (unsigned long long)seq, rank);
	next_event(r, rank, seq & 0xffff, "message");
}

void on_control(void *arg, struct vbn_ep *from, const void *data, size_t len)
{
	struct rank *r = arg;
	struct peer *p = &r->peer[peer_of(from)];
	struct word word;

	if (len != sizeof(word)) {
		wrong(r, "a control message of %zu bytes", len);
		return;
	}
	memcpy(&word, data, sizeof(word));
	if (word.end) {
		p->heard = true;
		p->theirs_events = word.events;
		p->theirs_sends = word.sends;
	} else if (word.slot >= SLOTS || !p->slot_busy[word.slot]) {
		wrong(r, "slot %u came back unasked", word.slot);
	} else {
		p->slot_busy[word.slot] = false;
	}
}
