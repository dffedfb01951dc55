/* SPDX-License-Identifier: BSD-3-Clause */
/* What checksum.c and checksum_post.c share. */
#ifndef VBN_CHECKSUM_IMPL_H
#define VBN_CHECKSUM_IMPL_H

#include "checksum.h"
#include "wrap.h"

#include <xxhash.h>

#define SUM_BYTES    8
#define RANGES	     32	 /* of one notify; older ones go without */
#define RANGE_BYTES  24	 /* of one, on the wire */
#define SENT_MOST    256 /* ranges that the receiver has not compared yet */
#define HEADER_BYTES 32

struct range {
	uint64_t addr, len, sum;
	uint64_t id; /* of its MESSAGE_SUMS, once sent */
};

/* What came in the last MESSAGE_SUMS, until its notify. */
struct announced {
	bool any;
	uint64_t id;
	uint32_t imm;
	unsigned n;
	struct range range[RANGES];
};

struct check_conn {
	struct wrap_conn wrap; /* first */
	/* sending */
	struct range range[RANGES]; /* since the last notify */
	unsigned n;
	XXH3_state_t *state, *next; /* of the last range; and to be */
	struct range sent[SENT_MOST];
	unsigned nsent;
	uint64_t id;	       /* of the last MESSAGE_SUMS */
	struct announced last; /* what it told; any: the notify was not taken */
	bool nudged;
	/* receiving */
	struct announced theirs;
	uint64_t seen; /* their last that is compared */
	bool owing;    /* to say so */
	struct check_conn *next_owing;
};

struct check_ctx {
	struct wrap_ctx wrap; /* first */
	struct check_conn *owing;
	bool room;		    /* since the last progress */
	uint8_t *scratch;	    /* max_message bytes */
	uint64_t compared, skipped; /* ranges */
};

static inline struct check_ctx *ctx_of(const struct check_conn *conn)
{
	return (struct check_ctx *)conn->wrap.pctx;
}

/* A message with its sum. @data may be the context's scratch. */
int checksum_send(struct check_conn *conn, const struct message_header *h,
		  const void *data, size_t len);

/* checksum_post.c: the provider's slots */
int checksum_put(void *conn, struct vbn_op *op, const struct put_args *args);
int checksum_atomic(void *conn, struct vbn_op *op,
		    const struct atomic_args *args);
int checksum_flush(void *conn, struct vbn_op *op);
int checksum_message(void *conn, const struct message_header *header,
		     const void *data, size_t len);

#endif
