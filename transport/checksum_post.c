/* SPDX-License-Identifier: BSD-3-Clause */
/* What is posted, summed; see checksum.c. */
#include "checksum_impl.h"
#include "wire.h"

#include <string.h>

static bool overlap(const struct range *r, uint64_t addr, uint64_t len)
{
	return addr < r->addr + r->len && r->addr < addr + len;
}

static bool is_awaited(const struct check_conn *conn, uint64_t addr,
		       uint64_t len)
{
	for (unsigned i = 0; i < conn->nsent; i++)
		if (overlap(&conn->sent[i], addr, len))
			return true;
	return false;
}

/* The receiver may have been told of a notify that was refused. */
static void nudge(struct check_conn *conn)
{
	struct message_header h = {.kind = MESSAGE_SUMS,
				   .u64 = {conn->id + 1, 1}};

	if (conn->nudged || checksum_send(conn, &h, NULL, 0))
		return;
	conn->id++;
	conn->last.any = false;
	conn->nudged = true;
}

/* Forget what a new write to the range makes void. */
static void forget(struct check_conn *conn, uint64_t addr, uint64_t len)
{
	unsigned n = 0;

	for (unsigned i = 0; i < conn->n; i++) {
		if (overlap(&conn->range[i], addr, len))
			ctx_of(conn)->skipped++;
		else
			conn->range[n++] = conn->range[i];
	}
	conn->n = n;
}

/*
 * The ranges with this put: the last one may grow by it, as a put in pieces
 * does. Returns how many.
 */
static unsigned ranges_with(struct check_conn *conn,
			    const struct put_args *args, struct range *out)
{
	unsigned n = conn->n;
	struct range *r;

	memcpy(out, conn->range, n * sizeof(*out));
	if (!args->len)
		return n;
	r = n ? &out[n - 1] : NULL;
	if (r && r->addr + r->len == args->remote) {
		XXH3_copyState(conn->next, conn->state);
	} else {
		if (n == RANGES) {
			ctx_of(conn)->skipped++;
			memmove(out, out + 1, --n * sizeof(*out));
		}
		r = &out[n++];
		*r = (struct range){.addr = args->remote};
		XXH3_64bits_reset(conn->next);
	}
	XXH3_64bits_update(conn->next, args->local, args->len);
	r->len += args->len;
	r->sum = XXH3_64bits_digest(conn->next);
	return n;
}

static bool is_told(const struct check_conn *conn, uint32_t imm,
		    const struct range *range, unsigned n)
{
	return conn->last.any && conn->last.imm == imm && conn->last.n == n &&
	       !memcmp(conn->last.range, range, n * sizeof(*range));
}

/* Tell of the notify that is to be posted, unless that was done. */
static int announce(struct check_conn *conn, uint32_t imm,
		    const struct range *range, unsigned n)
{
	struct message_header h = {
		.kind = MESSAGE_SUMS, .u32 = imm, .u64 = {conn->id + 1}};
	uint8_t *p = ctx_of(conn)->scratch;
	int err;

	if (conn->nsent + n > SENT_MOST)
		return -EAGAIN;
	if (is_told(conn, imm, range, n))
		return 0;
	for (unsigned i = 0; i < n; i++) {
		p = put_u64(p, range[i].addr);
		p = put_u64(p, range[i].len);
		p = put_u64(p, range[i].sum);
	}
	err = checksum_send(conn, &h, ctx_of(conn)->scratch,
			    (size_t)n * RANGE_BYTES);
	if (err)
		return err;
	conn->id++;
	conn->last.any = true;
	conn->last.imm = imm;
	conn->last.n = n;
	memcpy(conn->last.range, range, n * sizeof(*range));
	return 0;
}

static void taken(struct check_conn *conn, const struct put_args *args,
		  const struct range *range, unsigned n)
{
	XXH3_state_t *state = conn->state;

	if (args->notify) {
		for (unsigned i = 0; i < n; i++) {
			conn->sent[conn->nsent] = range[i];
			conn->sent[conn->nsent++].id = conn->id;
		}
		conn->n = 0;
		conn->last.any = false;
		return;
	}
	memcpy(conn->range, range, n * sizeof(*range));
	conn->n = n;
	if (args->len) {
		conn->state = conn->next;
		conn->next = state;
	}
}

int checksum_put(void *c, struct vbn_op *op, const struct put_args *args)
{
	struct check_conn *conn = c;
	struct range range[RANGES];
	unsigned n;
	int err = 0;

	if (args->len && is_awaited(conn, args->remote, args->len)) {
		nudge(conn);
		return -EAGAIN;
	}
	if (args->len)
		forget(conn, args->remote, args->len);
	n = ranges_with(conn, args, range);
	if (args->notify)
		err = announce(conn, args->imm, range, n);
	if (!err)
		err = conn->wrap.ops->put(conn->wrap.conn, op, args);
	if (!err)
		taken(conn, args, range, n);
	return err;
}

int checksum_atomic(void *c, struct vbn_op *op, const struct atomic_args *args)
{
	struct check_conn *conn = c;
	uint64_t len = sizeof(uint64_t);

	if (is_awaited(conn, args->remote, len)) {
		nudge(conn);
		return -EAGAIN;
	}
	forget(conn, args->remote, len);
	return conn->wrap.ops->atomic(conn->wrap.conn, op, args);
}

int checksum_flush(void *c, struct vbn_op *op)
{
	struct check_conn *conn = c;
	int err = conn->wrap.ops->flush(conn->wrap.conn, op);

	if (!err)
		conn->n = 0;
	return err;
}

int checksum_message(void *c, const struct message_header *header,
		     const void *data, size_t len)
{
	struct check_conn *conn = c;
	int err = checksum_send(conn, header, data, len);

	if (!err && header->kind != MESSAGE_CREDIT &&
	    header->kind != MESSAGE_FETCHED &&
	    header->kind != MESSAGE_ATOMIC_DONE)
		conn->n = 0;
	return err;
}
