/* SPDX-License-Identifier: BSD-3-Clause */
/* See traffic.h. */
#include "traffic.h"

#include <errno.h>
#include <string.h>

#define STRIPED ((size_t)128 << 10) /* what is put over several lanes */
#define PIECE	(STRIPED + 8192)
#define WORDS	4096u /* behind the pieces: a counter, a place for gets */
#define BYTES	(WAY_PIECES * PIECE + WORDS)
#define CREDITS 8u

/* Below these: a word, with data or without. */
#define KIND_ATOMIC 5u
#define KIND_GET    6u
#define KIND_FLUSH  7u

static uint64_t state = 1;

void traffic_seed(uint64_t seed)
{
	state = 0x9e3779b97f4a7c15u * (seed + 1);
}

uint32_t traffic_random(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 11);
}

static uint8_t *piece_of(struct region *r, unsigned k)
{
	return (uint8_t *)r->mem.addr + (k % WAY_PIECES) * PIECE;
}

static uint64_t *counter_of(struct region *r)
{
	return (uint64_t *)((uint8_t *)r->mem.addr + WAY_PIECES * PIECE);
}

/* ---- what arrives ---- */

static void arrived(struct way *w, uint32_t value)
{
	const uint8_t *p = piece_of(&w->dst, value);

	w->wrong += value != w->seen;
	w->seen++;
	if (value % 2)
		return; /* without data */
	for (size_t i = 0; i < PIECE; i += 1021)
		w->wrong += p[i] != (uint8_t)(value + i);
	w->wrong += p[PIECE - 1] != (uint8_t)(value + PIECE - 1);
}

static void on_notify(struct vbn_ep *ep, uint32_t imm)
{
	arrived(ep->arg, imm & VBN_NOTIFY_MAX);
}

static void on_message(struct vbn_ep *ep, const struct message_header *header,
		       const void *data, size_t len)
{
	struct way *w = ep->arg;

	for (size_t i = 0; i < len; i++)
		w->wrong += ((const uint8_t *)data)[i] != (uint8_t)header->u32;
	arrived(w, header->u32);
}

static void on_done(struct vbn_op *op)
{
	struct way *w = op->arg;
	unsigned k = (unsigned)(op - w->ops);

	w->done++;
	w->busy[k] = false;
	if (w->kind[k] == KIND_ATOMIC && op->status == -EIO)
		w->in_doubt++;
	else if (op->status)
		w->wrong++;
}

/* ---- what is posted ---- */

static int put(struct way *w, struct vbn_op *op, unsigned piece, size_t len,
	       bool notify)
{
	struct put_args args = {
		.local = len ? piece_of(&w->src, piece) : NULL,
		.len = len,
		.mem = len > 64 ? &w->src.mem : NULL,
		.mem_handle = len > 64 ? w->src.handle : NULL,
		.remote = len ? (uintptr_t)piece_of(&w->dst, piece) : 0,
		.key = &w->dst.announce,
		.notify = notify,
		.imm = 1u << 28 | w->sent,
		.more = traffic_random() % 4 == 0};

	return w->from->ops->put(w->side->ep.conn, op, &args);
}

static void fill_piece(struct way *w, unsigned k)
{
	uint8_t *p = piece_of(&w->src, k);

	for (size_t i = 0; i < PIECE; i++)
		p[i] = (uint8_t)(k + i);
}

static int add_one(struct way *w, struct vbn_op *op)
{
	struct atomic_args args = {
		.operand = 1,
		.result = &w->results[op - w->ops],
		.remote = (uintptr_t)counter_of(&w->dst),
		.key = &w->dst.announce,
		.more = traffic_random() % 4 == 0,
	};

	return w->from->ops->atomic(w->side->ep.conn, op, &args);
}

static int get(struct way *w, struct vbn_op *op)
{
	struct get_args args = {
		.local = counter_of(&w->src) + 8,
		.len = 1000,
		.mem = &w->src.mem,
		.mem_handle = w->src.handle,
		.remote = (uintptr_t)(counter_of(&w->dst) + 8),
		.key = &w->dst.announce,
	};

	return w->from->ops->get(w->side->ep.conn, op, &args);
}

static int message(struct way *w, size_t len)
{
	struct message_header header = {.kind = 5, .u32 = w->sent};
	uint8_t data[3000];

	memset(data, (int)w->sent, sizeof(data));
	header.u64[0] = len > 500;
	return w->from->ops->message(w->side->ep.conn, &header, data, len);
}

/* A put of a piece may go when all earlier ones of it have been seen. */
static bool piece_free(const struct way *w)
{
	return w->sent < w->seen + WAY_PIECES && w->sent < w->seen + CREDITS;
}

static int post_odd(struct way *w, struct vbn_op *op, unsigned kind)
{
	switch (kind) {
	case 0:
		return put(w, op, 0, 0, true);
	case 1:
		return message(w, 0);
	case 2:
		return message(w, 20);
	default:
		return message(w, 2000);
	}
}

/* Data, and its word with it or behind it. */
static int post_even(struct way *w, struct vbn_op *op, unsigned kind)
{
	int err;

	fill_piece(w, w->sent);
	err = put(w, op, w->sent, PIECE, kind == 0);
	w->word_due = !err && kind;
	return err;
}

static void post_word(struct way *w)
{
	int err = traffic_random() % 2 ? message(w, 0) : message(w, 30);

	w->sent += !err;
	w->word_due = err != 0;
}

static int post_kind(struct way *w, struct vbn_op *op, unsigned kind)
{
	switch (kind) {
	case KIND_ATOMIC:
		return add_one(w, op);
	case KIND_GET:
		return get(w, op);
	case KIND_FLUSH:
		return w->from->ops->flush(w->side->ep.conn, op);
	default:
		if (!piece_free(w))
			return -EAGAIN;
		return w->sent % 2 ? post_odd(w, op, kind)
				   : post_even(w, op, kind);
	}
}

static struct vbn_op *free_op(struct way *w)
{
	for (unsigned i = 0; i < WAY_OPS; i++)
		if (!w->busy[i])
			return &w->ops[i];
	return NULL;
}

void way_post(struct way *w)
{
	struct vbn_op *op = free_op(w);
	unsigned kind = traffic_random() % 8;
	bool word = kind < KIND_ATOMIC, bare;
	int err;

	if (!w->side->ep.conn)
		return;
	if (w->word_due) {
		post_word(w);
		return;
	}
	if (!op || w->posted >= w->limit)
		return;
	mock_op_init(op, on_done, w);
	bare = word && w->sent % 2 && kind; /* a message has no operation */
	err = post_kind(w, op, kind);
	CHECK(!err || err == -EAGAIN || err == -ECONNRESET);
	if (err)
		return;
	w->added += kind == KIND_ATOMIC;
	w->sent += word && !w->word_due;
	if (bare)
		return;
	w->busy[op - w->ops] = true;
	w->kind[op - w->ops] = (uint8_t)kind;
	w->posted++;
}

bool way_over(const struct way *w)
{
	return w->done == w->posted && w->seen == w->sent && !w->word_due;
}

bool way_right(struct way *w, const char *what)
{
	uint64_t counter = *counter_of(&w->dst);

	if (way_over(w) && !w->wrong && !w->side->ep.failures &&
	    counter <= w->added && counter >= w->added - w->in_doubt)
		return true;
	fprintf(stderr,
		"%s: %u of %u done, %u of %u seen, %u wrong, %u in doubt, "
		"counter %llu of %llu; %s %s\n",
		what, w->done, w->posted, w->seen, w->sent, w->wrong,
		w->in_doubt, (unsigned long long)counter,
		(unsigned long long)w->added, w->side->ep.why,
		w->other->ep.why);
	return false;
}

void way_open(struct way *w, struct bench *from, struct bench *to,
	      struct side *side, struct side *other, unsigned limit)
{
	memset(w, 0, sizeof(*w));
	w->from = from;
	w->to = to;
	w->side = side;
	w->other = other;
	w->limit = limit;
	region_open(from, &w->src, BYTES, VBN_ACCESS_ALL);
	region_open(to, &w->dst, BYTES, VBN_ACCESS_ALL);
	other->ep.on_notify = on_notify;
	other->ep.on_message = on_message;
	other->ep.arg = w;
}

void way_close(struct way *w)
{
	region_close(w->from, &w->src);
	region_close(w->to, &w->dst);
}
