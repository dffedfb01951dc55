/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations at random between all ranks, with a model of what must come of
 * them: each completes exactly once; what arrives is what was sent, once, in
 * order; and unless a fault ends an endpoint, all of it arrives.
 */
#ifndef RANDOM_OPS_H
#define RANDOM_OPS_H

#include <verbena/transport.h>

#include <stdbool.h>

#define RANKS_MOST   8
#define SLOTS	     4
#define SLOT_BYTES   ((size_t)40000)
#define CONST_BYTES  ((size_t)100000)
#define SEND_MOST    ((size_t)60000)
#define MESSAGE_MOST 700
#define ITEMS	     24
#define RECEIVES     3

enum kind { PUT_NOTIFY, PUT_BACK, GET, ADD, SEND, RECEIVE, FLUSH, KINDS };

/* What is posted, one operation after another. */
struct item {
	struct vbn_op op; /* first */
	struct rank *r;
	enum kind kind;
	enum { FREE, POSTED, DONE } state;
	int peer, slot, step;
	uint64_t seq;
	size_t len, offset;
	char *buf; /* SEND_MOST */
	bool heap; /* it is not registered */
	uint64_t value, before;
};

/* Between this rank and another. */
struct peer {
	struct vbn_ep *ep;
	struct vbn_rkey window, constant, words;
	bool failed; /* its endpoint has ended */
	bool slot_busy[SLOTS];
	unsigned acks; /* slots to be given back to it, as bits */
	/* what was taken, and what has come; notifies and messages together */
	uint64_t sent_events, sent_sends, got_events, got_sends;
	uint64_t theirs_events, theirs_sends; /* as it says at the end */
	bool told, heard;		      /* of the end */
	struct item receive[RECEIVES];
	uint64_t posted_receives;
};

struct rank {
	struct vbn_job *job;
	struct vbn_ctx *ctx;
	struct vbn_pool *pool;
	int me, n;
	uint64_t seed, random;
	bool faulty;  /* endpoints may end */
	bool checked; /* only what checksums cover */
	bool closing;
	char *window; /* of each rank: SLOTS times SLOT_BYTES */
	char *constant;
	uint64_t *words; /* the sum; of all ranks' additions */
	uint64_t added[RANKS_MOST];
	struct peer peer[RANKS_MOST];
	struct item item[ITEMS];
	unsigned ops, errors, failures;
};

/* Note what is wrong. */
void wrong(struct rank *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
uint64_t mix(uint64_t a, uint64_t b);
uint64_t draw(struct rank *r, uint64_t below);
/* The bytes of a stream, from @offset. */
void fill(char *to, size_t len, uint64_t stream, size_t offset);
bool is_pattern(const char *at, size_t len, uint64_t stream, size_t offset);

/* random_arrive.c */
enum { EVENTS = VBN_CHANNEL_USER, CONTROL = VBN_CHANNEL_USER + 1 };

/* What a control message says. */
struct word {
	uint32_t end; /* 0: a slot is given back */
	uint32_t slot;
	uint64_t events, sends;
};

enum stream { CONSTANT, SLOT, SENT, MESSAGE };

uint64_t stream_of(const struct rank *r, enum stream what, int from, int to,
		   uint64_t seq);
size_t length_of(uint64_t stream, size_t most);
const char *kind_name(enum kind kind);
void peer_failed(struct rank *r, int peer);
void op_done(struct vbn_op *op);
void on_notify(void *arg, struct vbn_ep *from, uint32_t value);
void on_event(void *arg, struct vbn_ep *from, const void *data, size_t len);
void on_control(void *arg, struct vbn_ep *from, const void *data, size_t len);
/* Whether that is an end that an injected fault may have. */
bool may_fail_with(const struct rank *r, int status);

/* random_ops.c */
bool ops_open(struct rank *r);
void ops_run(struct rank *r, int count);
void ops_close(struct rank *r);

/* random_coll.c */
void coll_run(struct rank *r, int count);

#endif
