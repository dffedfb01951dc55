/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What travels between a rank and the store, the same code on both sides:
 * a handshake (control_crypt.h), then frames.
 *
 * A frame is u32 length of the rest, u8 type, fields; little endian; strings
 * and values carry no terminator. All but the length is sealed, except on the
 * pair of sockets by which rank 0 talks with its own store. Lengths are bounded
 * on both sides.
 */
#ifndef VBN_CONTROL_WIRE_H
#define VBN_CONTROL_WIRE_H

#include "control.h"
#include "control_crypt.h"

#define WIRE_FRAME_MAX (CONTROL_VALUE_MAX + CONTROL_KEY_MAX + 64)
#define WIRE_HOST_MAX  64    /* bytes of a host's name */
#define WIRE_WHY_MAX   200   /* bytes of why a rank is gone */
#define WIRE_CARDS_MAX 4096u /* that one request asks for */
/* Queued to one side that does not read: more than this, and it is cut off. */
#define WIRE_QUEUE_MAX (64u << 20)

/* id: u64 of the asking side, 0 never; wait: u8 0 or 1; key: u8 length, key */
enum wire_type {
	/* rank to store */
	FRAME_JOIN = 1, /* u32 rank, nranks, ms it waits still, ms in all; ~0:
			   for ever; its host's name */
	FRAME_SET,	/* id, key, value */
	FRAME_GET,	/* id, wait, key */
	FRAME_ERASE,	/* id, key */
	FRAME_FENCE,	/* id, wait */
	FRAME_CANCEL,	/* id, key ("" for all else): no reply is wanted */
	FRAME_SEND,	/* u32 to, u32 type, data */
	FRAME_GOODBYE,	/* nothing */
	FRAME_CARD,	/* the rank's card */
	FRAME_CARDS,	/* id, wait, u32 first, u32 how many */
	FRAME_GIVEUP,	/* text: why the rank holds rank 0 for dead */
	/* either way */
	FRAME_BEAT = 32, /* nothing: the sender lives */
	/* store to rank */
	FRAME_STARTED = 64, /* u32 VBN_DEAD_MS of rank 0: all have joined */
	FRAME_REFUSED,	    /* u8 enum wire_refusal, text */
	FRAME_REPLY,	    /* id, u8 enum wire_status, value */
	FRAME_MESSAGE,	    /* u32 from, u32 type, data */
	FRAME_GONE,	    /* u32 rank, u8 died, text; of the reader: it was
			       named dead, and is out of the job */
	FRAME_LEFT,	    /* u32 rank, as often as there is room */
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
/* The same as text, cut to @room; what cannot be printed is '?'. */
void wire_get_text(struct wire_reader *r, char *text, size_t room);

/* ---- signs of life ---- */

/*
 * Either side sends a beat each interval, and holds the other for dead when
 * nothing has come for seven: so all know within @dead_ms.
 */
static inline int64_t beat_interval(uint32_t dead_ms)
{
	return dead_ms < 8 ? 1 : dead_ms / 8;
}

static inline int64_t beat_limit(uint32_t dead_ms)
{
	return 7 * beat_interval(dead_ms);
}

/*
 * Who has not run itself until @now proves nothing by what it has not heard: it
 * counts the other as heard at this time at the earliest.
 */
static inline int64_t beat_excused(uint32_t dead_ms, int64_t now)
{
	return now - beat_limit(dead_ms) + 2 * beat_interval(dead_ms);
}

/* ---- a connection; one thread at a time reads, one writes ---- */

struct wire {
	int fd;
	uint8_t *in;
	size_t in_off, in_len, in_room;
	struct wire_frame *out, **out_end;
	size_t out_bytes;
	struct wire_crypt crypt; /* of frames, once it is on */
};

void wire_init(struct wire *wire, int fd);
/* Close and free, and wipe the keys. */
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
/*
 * The next frame: 1, 0 not there yet, -EPROTO, -EBADMSG: not sealed by the
 * other side, or not the next. Valid until wire_fill().
 */
int wire_next(struct wire *wire, enum wire_type *type,
	      struct wire_reader *reader);

/*
 * Seals and takes @frame in any case, filled up to its @body. -ENOMEM: NULL.
 * -ENOBUFS: WIRE_QUEUE_MAX.
 */
int wire_queue(struct wire *wire, struct wire_frame *frame);
int wire_queue_raw(struct wire *wire, const void *data, size_t len);
/* Write what can be. 0: all, 1: the rest when writable, -errno: broken. */
int wire_flush(struct wire *wire);

#endif
