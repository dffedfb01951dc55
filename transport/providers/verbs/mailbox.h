/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mailboxes: rings of bytes in a receiver's memory that its peer writes
 * messages into, one ring a direction. Arithmetic only. The sender alone
 * decides where; the receiver follows by the same rule, so that a message's
 * notice names no place: messages lie one behind another, in units of 64
 * bytes, and one that does not fit before the end begins at the start. What
 * is skipped then counts as a part of the message, and is freed with it.
 *
 * Also the immediates that carry such notices: those of channel 0, which is
 * the library's own.
 */
#ifndef VBN_VERBS_MAILBOX_H
#define VBN_VERBS_MAILBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAILBOX_UNIT 64u
#define UNITS_MAX    1024u /* of a ring; an immediate has room for so many */

/* The sender's side. */
struct mailbox_out {
	uint64_t addr; /* of the ring, at the receiver */
	uint32_t rkey;
	uint16_t units; /* the ring's size */
	uint16_t at;	/* < units: where the next goes, before the rule */
	uint16_t room;	/* units that the receiver does not need any more */
};

/* The receiver's side. */
struct mailbox_in {
	uint8_t *base;
	uint16_t units;
	uint16_t at;	/* < units: where the next lies, before the rule */
	uint16_t freed; /* units that the sender does not know of yet */
};

static inline uint32_t mailbox_units(uint32_t bytes)
{
	return (bytes + MAILBOX_UNIT - 1) / MAILBOX_UNIT;
}

/* The rule. */
static inline uint32_t mailbox_skip(uint32_t units, uint32_t at, uint32_t n)
{
	return at + n > units ? units - at : 0;
}

static inline uint16_t mailbox_next(uint32_t units, uint32_t at, uint32_t n)
{
	return (uint16_t)(at + n == units ? 0 : at + n);
}

/* Is there room for a message of @n units now? */
static inline bool mailbox_fits(const struct mailbox_out *out, uint32_t n)
{
	return n <= out->units &&
	       mailbox_skip(out->units, out->at, n) + n <= out->room;
}

/*
 * Will there be, at the latest when the receiver has read all? It returns
 * what it has freed when that is half of the ring, so that it may keep all but
 * one unit of that half for ever.
 */
static inline bool mailbox_will_fit(const struct mailbox_out *out, uint32_t n)
{
	return mailbox_skip(out->units, out->at, n) + n <=
	       out->units - (out->units / 2 - 1u);
}

/* Take the room of a message that fits. Returns the remote address. */
static inline uint64_t mailbox_put(struct mailbox_out *out, uint32_t n)
{
	uint32_t skip = mailbox_skip(out->units, out->at, n);
	uint32_t at = skip ? 0 : out->at;

	out->at = mailbox_next(out->units, at, n);
	out->room = (uint16_t)(out->room - n - skip);
	return out->addr + (uint64_t)at * MAILBOX_UNIT;
}

/*
 * Where the message of @n units lies that has arrived; NULL: no sender that
 * keeps to the rule has such a one. *taken: what to free once it is read.
 */
static inline const uint8_t *mailbox_take(struct mailbox_in *in, uint32_t n,
					  uint32_t *taken)
{
	uint32_t skip = mailbox_skip(in->units, in->at, n);
	uint32_t at = skip ? 0 : in->at;

	if (n > in->units)
		return NULL;
	in->at = mailbox_next(in->units, at, n);
	*taken = n + skip;
	return in->base + (uint64_t)at * MAILBOX_UNIT;
}

/* Freed enough that the sender has to hear of it? */
static inline bool mailbox_owes(const struct mailbox_in *in)
{
	return in->freed >= in->units / 2;
}

/* False: more than was ever taken. */
static inline bool mailbox_returned(struct mailbox_out *out, uint32_t n)
{
	if (out->room + n > out->units)
		return false;
	out->room = (uint16_t)(out->room + n);
	return true;
}

/* What OWN_RING writes: the ring to use from now on. */
struct ring_notice {
	uint64_t addr;
	uint32_t units;
	uint32_t rkey[4]; /* by the connection's pairs of rails */
};

/* ---- immediates of channel 0 ---- */

enum notice_kind {
	NOTICE_MESSAGE, /* value: its bytes, header included, in the ring */
	NOTICE_BARE,	/* a message that is nothing but kind and u32: value */
	NOTICE_DATA,	/* in the ring is its data alone; value: how long, and
			   above it kind and u32 */
	NOTICE_OWN,	/* value: enum own_notice, and above it a number */
};

#define OWN_BITS     4
#define ARRIVED_MASK 0xfffu

enum own_notice {
	OWN_UNITS,    /* nothing but the units */
	OWN_GROW,     /* a larger ring would be welcome */
	OWN_NEED,     /* a message waits that needs a larger ring */
	OWN_SWITCHED, /* what follows is in the larger ring */
	OWN_FENCE,    /* number: a lane, all of whose data has landed */
	OWN_WAIT,     /* number: the lanes whose next fence comes first */
	OWN_FENCED,   /* number: so many waits are over */
	OWN_RING,     /* the description of a larger ring lies in this one */
	OWN_DEAD,     /* number: a lane that is destroyed, and above it its
			 generation; in place of units:
			 how many immediates have arrived by it */
	OWN_BACK,     /* words on a lane that comes back lie in the ring */
};

/*
 * Bits: 4 channel (0), 2 kind; then 13 value, 1 ring, 12 units, or, of
 * NOTICE_DATA, 17 value, 1 ring, 8 units: what it has no room for stays with
 * the receiver and goes with a later notice.
 */
struct notice {
	uint32_t kind;
	uint32_t value; /* < NOTICE_VALUES, or DATA_VALUES */
	uint32_t ring;	/* 0 or 1: which one the units are of */
	uint32_t units; /* freed, of the ring that the other side writes */
};

#define NOTICE_VALUES 8192u
#define DATA_VALUES   131072u
#define DATA_UNITS    255u /* that such a notice carries, at most */
#define CHANNEL_SHIFT 28

/* Of NOTICE_DATA's value: 4 bits kind, 4 bits u32, 9 bits how long. */
#define DATA_KINDS 16u
#define DATA_U32S  16u
#define DATA_BYTES 512u /* less than these */

static inline uint32_t data_value(uint32_t kind, uint32_t u32, uint32_t len)
{
	return (kind * DATA_U32S + u32) * DATA_BYTES + len;
}

static inline uint32_t notice_pack(uint32_t kind, uint32_t value, uint32_t ring,
				   uint32_t units)
{
	if (kind == NOTICE_DATA)
		return kind << 26 | value << 9 | ring << 8 | units;
	return kind << 26 | value << 13 | ring << 12 | units;
}

static inline struct notice notice_unpack(uint32_t imm)
{
	uint32_t kind = imm >> 26 & 3;

	if (kind == NOTICE_DATA)
		return (struct notice){
			.kind = kind,
			.value = imm >> 9 & (DATA_VALUES - 1),
			.ring = imm >> 8 & 1,
			.units = imm & DATA_UNITS,
		};
	return (struct notice){
		.kind = kind,
		.value = imm >> 13 & (NOTICE_VALUES - 1),
		.ring = imm >> 12 & 1,
		.units = imm & 0xfff,
	};
}

#endif
