/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Posting with faults: -EAGAIN first, a bit of the data flipped under way, and
 * what comes at a chosen operation. An operation counts when it is taken, so
 * that what was refused meets the same fault when it is posted again.
 */
#include "fault.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUICK_MOST   4096
#define REFUSED_MOST 3
#define SPOILT_MOST  ((size_t)16 << 20) /* longer puts are left as they are */

static bool is_refused(struct fault_conn *conn, bool own)
{
	struct fault_posts *posts = own ? &conn->own : &conn->user;
	enum fault_draw what = DRAW_AGAIN + (own ? DRAW_OWN : 0);
	uint64_t bits;

	if (!posts->drawn) {
		bits = fault_draw(conn, what, posts->n);
		posts->drawn = true;
		posts->refusals = 0;
		if (fault_chance(bits, conn->ctx->plan->again))
			posts->refusals = 1 + (unsigned)(bits % REFUSED_MOST);
	}
	if (!posts->refusals)
		return false;
	posts->refusals--;
	conn->ctx->counts.refused++;
	conn->ctx->refused = true;
	return true;
}

static void taken(struct fault_conn *conn, bool own)
{
	struct fault_posts *posts = own ? &conn->own : &conn->user;

	posts->n++;
	posts->drawn = false;
	if (!own)
		conn->ctx->operations++;
}

enum fate { GOES, FAILS, STICKS };

void fault_doom(struct fault_conn *conn, int status, const char *why)
{
	conn->doom = why;
	conn->doom_status = status;
	conn->ctx->doomed = true;
}

static void die(struct fault_conn *conn)
{
	vbn_log(VBN_WARN, "rank %d: VBN_FAULT kills it at operation %llu",
		conn->wrap.info.self_rank,
		(unsigned long long)conn->ctx->operations + 1);
	kill(getpid(), SIGKILL);
}

/*
 * What the plan has for the operation that would be taken next. Nothing goes
 * out behind one that did not.
 */
static enum fate fate_of(struct fault_conn *conn)
{
	const struct fault_plan *plan = conn->ctx->plan;
	uint64_t k = conn->ctx->operations + 1;

	if (conn->doom)
		return STICKS;
	if (k == plan->kill)
		die(conn);
	if (k == plan->broken)
		return STICKS;
	return k == plan->fail ? FAILS : GOES;
}

static void broken(struct fault_conn *conn)
{
	if (conn->doom)
		return;
	conn->ctx->counts.broken++;
	fault_doom(conn, -ECONNRESET, "VBN_FAULT: its connection was to break");
}

static void op_done(struct vbn_op *op)
{
	fault_op_over(op->arg);
}

static struct fault_op *op_new(struct fault_conn *conn, struct vbn_op *user)
{
	struct fault_op *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->op.done = op_done;
	f->op.arg = f;
	f->op.status = -EINPROGRESS;
	f->op.bytes = user->bytes;
	f->user = user;
	f->conn = conn;
	f->n = conn->user.n;
	conn->refs++;
	return f;
}

static void op_drop(struct fault_op *f)
{
	fault_unspoil(f);
	f->conn->refs--;
	free(f);
}

/*
 * Before an operation is posted inside. 0 and *f: post it. 1: it is taken, and
 * not to be posted. -EAGAIN.
 */
static int before(struct fault_conn *conn, struct vbn_op *user,
		  struct fault_op **out)
{
	struct fault_ctx *ctx = conn->ctx;
	enum fate fate;
	struct fault_op *f;

	if (is_refused(conn, false))
		return -EAGAIN;
	fate = fate_of(conn);
	f = op_new(conn, user);
	if (!f)
		return vbn_fail(-ENOMEM, "no memory for an operation");
	*out = f;
	f->fails = fate == FAILS;
	/* It may have gone out before it fails, or not. */
	if (fate == GOES ||
	    (fate == FAILS && fault_draw(conn, DRAW_LATE, conn->user.n) & 1))
		return 0;
	taken(conn, false);
	if (fate == STICKS) {
		f->next = ctx->stuck;
		ctx->stuck = f;
		broken(conn);
		return 1;
	}
	ctx->counts.failed++;
	f->status = -EIO;
	fault_doom(conn, -EIO, FAULT_FAILED);
	fault_hold(f, 0);
	return 1;
}

static int after(struct fault_op *f, int err)
{
	struct fault_conn *conn = f->conn;

	if (err) {
		op_drop(f);
		return err;
	}
	conn->ctx->counts.failed += f->fails;
	taken(conn, false);
	return 0;
}

/* ---- a flipped bit ---- */

static bool draws_corrupt(struct fault_conn *conn, size_t len, uint64_t *bits)
{
	*bits = fault_draw(conn, DRAW_CORRUPT, conn->user.n);
	return len && fault_chance(*bits, conn->ctx->plan->corrupt);
}

static void flip(void *data, size_t len, uint64_t bits)
{
	uint8_t *byte = (uint8_t *)data + fault_mix(bits, 1) % len;

	*byte ^= (uint8_t)(1u << fault_mix(bits, 2) % 8);
}

/* Have the put send a copy with a bit flipped. Without memory it is spared. */
static void spoil(struct fault_op *f, struct put_args *args, uint64_t bits)
{
	const struct wrap_job *w = f->conn->wrap.pctx->pjob;
	struct blob announce;

	if (args->len > SPOILT_MOST)
		return;
	f->spoilt = malloc(args->len);
	if (!f->spoilt)
		return;
	memcpy(f->spoilt, args->local, args->len);
	flip(f->spoilt, args->len, bits);
	if (args->mem) {
		f->mem = (struct vbn_mem){.job = args->mem->job,
					  .addr = f->spoilt,
					  .len = args->len,
					  .fd = -1};
		if (w->ops->mem_register(w->pjob, &f->mem, &f->handle,
					 &announce)) {
			f->handle = NULL;
			return;
		}
		args->mem = &f->mem;
		args->mem_handle = f->handle;
	}
	args->local = f->spoilt;
}

void fault_unspoil(struct fault_op *f)
{
	const struct wrap_job *w = f->conn->wrap.pctx->pjob;

	if (f->handle)
		w->ops->mem_deregister(w->pjob, f->handle);
	free(f->spoilt);
	f->handle = f->spoilt = NULL;
}

/* ---- the slots ---- */

int fault_put(void *c, struct vbn_op *op, const struct put_args *args)
{
	struct fault_conn *conn = c;
	struct put_args mine = *args;
	struct fault_op *f;
	bool spoilt;
	uint64_t bits;
	int err = before(conn, op, &f);

	if (err)
		return err < 0 ? err : 0;
	if (draws_corrupt(conn, args->len, &bits))
		spoil(f, &mine, bits);
	spoilt = args->len && mine.local != args->local;
	err = after(f, conn->wrap.ops->put(conn->wrap.conn, &f->op, &mine));
	conn->ctx->counts.corrupted += !err && spoilt;
	return err;
}

int fault_get(void *c, struct vbn_op *op, const struct get_args *args)
{
	struct fault_conn *conn = c;
	struct fault_op *f;
	uint64_t bits;
	bool spoilt;
	int err = before(conn, op, &f);

	if (err)
		return err < 0 ? err : 0;
	if (draws_corrupt(conn, args->len, &bits)) {
		f->flip = (char *)args->local + fault_mix(bits, 1) % args->len;
		f->flip_bit = (uint8_t)(1u << fault_mix(bits, 2) % 8);
	}
	spoilt = f->flip != NULL;
	err = after(f, conn->wrap.ops->get(conn->wrap.conn, &f->op, args));
	conn->ctx->counts.corrupted += !err && spoilt;
	return err;
}

int fault_atomic(void *c, struct vbn_op *op, const struct atomic_args *args)
{
	struct fault_conn *conn = c;
	struct fault_op *f;
	int err = before(conn, op, &f);

	if (err)
		return err < 0 ? err : 0;
	return after(f, conn->wrap.ops->atomic(conn->wrap.conn, &f->op, args));
}

int fault_flush(void *c, struct vbn_op *op)
{
	struct fault_conn *conn = c;
	struct fault_op *f;
	int err = before(conn, op, &f);

	if (err)
		return err < 0 ? err : 0;
	return after(f, conn->wrap.ops->flush(conn->wrap.conn, &f->op));
}

/* Whether the library sends it by itself, at a moment that varies. */
static bool is_own(uint32_t kind)
{
	return kind != MESSAGE_USER && kind != MESSAGE_EAGER &&
	       kind != MESSAGE_RENDEZVOUS && kind != MESSAGE_ATOMIC;
}

/* Only what the user sends: the library believes its own words. */
static int send_spoilt(struct fault_conn *conn,
		       const struct message_header *header, const void *data,
		       size_t len)
{
	uint64_t bits;
	void *copy = NULL;
	int err;

	if ((header->kind == MESSAGE_USER || header->kind == MESSAGE_EAGER) &&
	    draws_corrupt(conn, len, &bits))
		copy = malloc(len);
	if (copy) {
		memcpy(copy, data, len);
		flip(copy, len, bits);
	}
	err = conn->wrap.ops->message(conn->wrap.conn, header,
				      copy ? copy : data, len);
	conn->ctx->counts.corrupted += !err && copy;
	free(copy);
	return err;
}

int fault_message(void *c, const struct message_header *header,
		  const void *data, size_t len)
{
	struct fault_conn *conn = c;
	bool own = is_own(header->kind);
	enum fate fate;
	int err;

	if (is_refused(conn, own))
		return -EAGAIN;
	fate = own && !conn->doom ? GOES : fate_of(conn);
	err = fate == STICKS ? 0 : send_spoilt(conn, header, data, len);
	if (err)
		return err;
	taken(conn, own);
	if (fate == FAILS) {
		conn->ctx->counts.failed++;
		fault_doom(conn, -EIO, FAULT_FAILED);
	} else if (fate == STICKS) {
		broken(conn);
	}
	return 0;
}

static struct fault_conn *of_quick(struct quick *quick)
{
	return (struct fault_conn *)((char *)quick -
				     offsetof(struct fault_conn, quick));
}

static int quick_put(struct quick *quick, struct vbn_op *op, const void *local,
		     size_t len, uint64_t key, uint64_t remote)
{
	struct fault_conn *conn = of_quick(quick);
	struct put_args args = {.local = local,
				.len = len,
				.remote = remote,
				.key = (void *)(uintptr_t)key};
	struct vbn_counters *counters = core_counters(conn->ctx->wrap.ctx);
	int err = fault_put(conn, op, &args);

	if (!err)
		put_begin(counters, op, len);
	else if (err == -EAGAIN)
		counters->again++;
	return err;
}

static bool quick_key(const void *key, uint64_t *quick)
{
	*quick = (uintptr_t)key;
	return true;
}

/* So that the core's short way is gone, too. */
struct quick *fault_quick(void *c)
{
	struct fault_conn *conn = c;
	size_t most = conn->wrap.pctx->pjob->caps.inline_max;

	conn->quick = (struct quick){most < QUICK_MOST ? most : QUICK_MOST,
				     quick_put, quick_key};
	return &conn->quick;
}
