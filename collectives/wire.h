/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What collectives say to each other besides data: notify values, and the
 * messages open, expose, abort, ask, at, quick. Members run on machines of one
 * byte order; structures travel as they are.
 *
 * A notify's 28 bits, from the top:
 *   data:   0, tag (9), low 5 bits of the call's seq, its digest (13)
 *   slots:  1, tag (9), 0, low 17 bits of the count of slots given back
 *   ready:  1, tag (9), 1, low 17 bits of the seq of the call for which the
 *           buffers that were exposed last are ready again
 * The tag is the receiver's. A sender is less than REACH calls ahead of what it
 * knows of its receiver, so 5 bits of seq are unambiguous. It knows the call
 * of all that the receiver has sent or emptied; when that is nothing for half
 * the reach (calls without data, one direction only), it asks.
 */
#ifndef VBN_WIRE_H
#define VBN_WIRE_H

#include "coll.h"

enum { SEQ_BITS = 5, DIGEST_BITS = WIRE_DIGEST_BITS, COUNT_BITS = 17 };
enum { REACH = 16 };

_Static_assert((int)REACH <= (int)QUICK_KEPT, "none is overwritten");
_Static_assert(REACH == 1 << (SEQ_BITS - 1), "half for ahead, half for behind");

#define SEQ_MASK       ((1u << SEQ_BITS) - 1)
#define DIGEST_MASK    ((1u << DIGEST_BITS) - 1)
#define COUNT_MASK     ((1u << COUNT_BITS) - 1)
#define NOTIFY_CONTROL (1u << 27)
#define NOTIFY_READY   (1u << COUNT_BITS)

enum message_type {
	MESSAGE_OPEN = 1,
	MESSAGE_EXPOSE,
	MESSAGE_ABORT,
	MESSAGE_ASK, /* a head alone: say when you have got to call seq */
	MESSAGE_AT /* a head alone: got to call seq */,
	MESSAGE_QUICK
};

struct message_head {
	uint8_t type;
	uint8_t flag; /* open: with landing; expose: writable */
	uint16_t tag; /* open; quick: the digest */
	uint32_t seq; /* all but open */
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
	uint8_t input[VBN_RKEY_BYTES];
};

/* A contribution, which is of len minus the head's bytes. */
struct quick_message {
	struct message_head head;
	char data[QUICK_BYTES];
};

struct abort_message {
	struct message_head head;
	int32_t err;
	char why[COMM_WHY];
};

/* The peer is asked how far it is; whether it is near enough all the same. */
bool wire_ask(struct peer *peer, uint32_t seq, int32_t ahead);

/*
 * Whether a put of call @seq may be sent: the peer tells calls apart by the
 * low bits of seq. If not, it is asked to say how far it is.
 */
static inline bool wire_in_reach(struct peer *peer, uint32_t seq)
{
	int32_t ahead = (int32_t)(seq - peer->position);

	return ahead < REACH / 2 || wire_ask(peer, seq, ahead);
}

/*
 * A put of call @seq went to the peer, who takes from it that the slots of the
 * calls before are empty.
 */
static inline void wire_posted(struct peer *peer, uint32_t seq)
{
	uint64_t told = peer->emptied_seq == seq ? peer->emptied_before
						 : peer->emptied.freed;

	if (peer->returned < told)
		peer->returned = told;
}

/* What a put of @coll's call to the peer says by its notify. */
static inline uint32_t wire_data_value(const struct peer *peer,
				       const struct vbn_coll *coll)
{
	return peer->tag << (SEQ_BITS + DIGEST_BITS) |
	       (coll->seq & SEQ_MASK) << DIGEST_BITS |
	       wire_pair_digest(peer, coll, true);
}

#endif
