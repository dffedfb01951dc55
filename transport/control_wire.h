/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What travels between a rank and the store, the same code on both sides.
 *
 * Handshake, messages of fixed size:
 *   rank  -> store  greeting: magic, version, nonce
 *   store -> rank   greeting: magic, version, nonce
 *   rank  -> store  proof:    MAC(secret, "rank", version, both nonces)
 *   store -> rank   verdict:  code, MAC(secret, "store", version, both nonces)
 * The first 16 bytes of a greeting are the same in every version. It keeps
 * strangers out; it does not protect against who can alter packets in flight.
 *
 * Then frames: u32 length of the rest, u8 type, fields. Little endian;
 * strings and values carry no terminator. Lengths are bounded on both sides.
 */
#ifndef VBN_CONTROL_WIRE_H
#define VBN_CONTROL_WIRE_H

#include "control.h"

#define WIRE_VERSION  1u
#define WIRE_NONCE    32
#define WIRE_MAC      32
#define WIRE_KEY      32
#define WIRE_PREFIX   16 /* magic 8, version 4, zero 4 */
#define WIRE_GREETING (WIRE_PREFIX + WIRE_NONCE)
#define WIRE_VERDICT  (4 + WIRE_MAC)

#define WIRE_FRAME_MAX (CONTROL_VALUE_MAX + CONTROL_KEY_MAX + 64)
/* Queued to one side that does not read: more than this, and it is cut off. */
#define WIRE_QUEUE_MAX (64u << 20)

enum wire_verdict { VERDICT_ACCEPTED = 1, VERDICT_DENIED = 2 };

enum wire_role { ROLE_RANK = 1, ROLE_STORE = 2 };

/* id: u64 of the asking side, 0 never; wait: u8 0 or 1; key: u8 length, key */
enum wire_type {
	/* rank to store */
	FRAME_JOIN = 1, /* u32 rank, nranks, ms it waits still, ms in all; ~0:
			   for ever */
	FRAME_SET,	/* id, key, value */
	FRAME_GET,	/* id, wait, key */
	FRAME_ERASE,	/* id, key */
	FRAME_FENCE,	/* id, wait */
	FRAME_CANCEL,	/* id, key ("" for a fence): no reply is wanted */
	FRAME_SEND,	/* u32 to, u32 type, data */
	FRAME_GOODBYE,	/* nothing */
	/* store to rank */
	FRAME_STARTED = 64, /* nothing: all have joined */
	FRAME_REFUSED,	    /* u8 enum wire_refusal, text */
	FRAME_REPLY,	    /* id, u8 enum wire_status, value */
	FRAME_MESSAGE,	    /* u32 from, u32 type, data */
	FRAME_GONE,	    /* u32 rank, u8 died */
};

enum wire_refusal {
	REFUSED_SHAPE = 1, /* rank or size does not fit */
	REFUSED_TIMEOUT,   /* not all joined in time */
	REFUSED_DEATH,	   /* a rank died, or rank 0 gave up, at the start */
	REFUSED_BUSY,	   /* an earlier job is ending: try again */
};

enum wire_status {
	STATUS_OK = 0,
	STATUS_ABSENT,
	STATUS_GONE, /* value: u32 rank, u8 died */
	STATUS_NOMEM,
};

/* ---- handshake ---- */

/* Once per process, before anything below. 0 or -EIO. */
int wire_setup(void);
void wire_key(uint8_t key[WIRE_KEY], const char *secret);
/* Fresh nonce; the greeting that carries it. */
void wire_greeting(uint8_t greeting[WIRE_GREETING], uint8_t nonce[WIRE_NONCE]);
/* -ENOMSG: not ours at all. -EPROTO: other version. *version if the magic is
 * right. Looks at the first WIRE_PREFIX bytes. */
int wire_greeting_check(const uint8_t *greeting, uint32_t *version);
void wire_mac(uint8_t mac[WIRE_MAC], const uint8_t key[WIRE_KEY],
	      enum wire_role role, const uint8_t rank_nonce[WIRE_NONCE],
	      const uint8_t store_nonce[WIRE_NONCE]);
bool wire_mac_equal(const uint8_t a[WIRE_MAC], const uint8_t b[WIRE_MAC]);
void wire_verdict(uint8_t verdict[WIRE_VERDICT], enum wire_verdict code,
		  const uint8_t mac[WIRE_MAC]);
uint32_t wire_verdict_code(const uint8_t verdict[WIRE_VERDICT]);

/* ---- frames ---- */

/* One to send; NULL (no memory) is taken by put and queue. */
struct wire_frame {
	struct wire_frame *next;
	size_t len, room, sent;
	uint8_t data[];
};

/* @body: exactly the bytes that will be put. */
struct wire_frame *wire_frame(enum wire_type type, size_t body);
void wire_put_u8(struct wire_frame *frame, uint8_t v);
void wire_put_u32(struct wire_frame *frame, uint32_t v);
void wire_put_u64(struct wire_frame *frame, uint64_t v);
void wire_put_bytes(struct wire_frame *frame, const void *data, size_t len);
void wire_put_key(struct wire_frame *frame, const char *key, size_t len);

/* A frame that has arrived. After a read past the end: bad, and zeros. */
struct wire_reader {
	const uint8_t *p, *end;
	bool bad;
};

uint8_t wire_get_u8(struct wire_reader *r);
uint32_t wire_get_u32(struct wire_reader *r);
uint64_t wire_get_u64(struct wire_reader *r);
/* 1..CONTROL_KEY_MAX bytes without NUL, or bad; @empty: 0 bytes are fine. */
const char *wire_get_key(struct wire_reader *r, size_t *len, bool empty);
/* All that is left. */
const uint8_t *wire_get_rest(struct wire_reader *r, size_t *len);

/* ---- a connection; one thread at a time reads, one writes ---- */

struct wire {
	int fd;
	uint8_t *in;
	size_t in_off, in_len, in_room;
	struct wire_frame *out, **out_end;
	size_t out_bytes;
};

void wire_init(struct wire *wire, int fd);
/* Close and free. */
void wire_close(struct wire *wire);

/*
 * Read once. @limit bounds what is kept before a frame's length is known to
 * be right. > 0, 0: the other side has closed, -EAGAIN, other -errno: broken.
 */
int wire_fill(struct wire *wire, size_t limit);
/*
 * The next @len raw bytes, or NULL: not there yet. Valid until wire_fill().
 * peek leaves them.
 */
const uint8_t *wire_peek(const struct wire *wire, size_t len);
const uint8_t *wire_take(struct wire *wire, size_t len);
/* The next frame: 1, 0 not there yet, -EPROTO. Valid until wire_fill(). */
int wire_next(struct wire *wire, enum wire_type *type,
	      struct wire_reader *reader);

/* Takes @frame in any case. -ENOMEM: NULL. -ENOBUFS: WIRE_QUEUE_MAX. */
int wire_queue(struct wire *wire, struct wire_frame *frame);
int wire_queue_raw(struct wire *wire, const void *data, size_t len);
/* Write what can be. 0: all, 1: the rest when writable, -errno: broken. */
int wire_flush(struct wire *wire);

#endif
