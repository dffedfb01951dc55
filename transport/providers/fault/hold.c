/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What is held back: arrivals, in the order of each connection, and
 * completions, in any. A callback may close any connection and post on any, so
 * lists are looked at anew after each.
 */
#include "fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t fault_now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

uint64_t fault_draw(const struct fault_conn *conn, enum fault_draw what,
		    uint64_t n)
{
	return fault_mix(fault_mix(conn->stream, (uint64_t)what), n);
}

static uint64_t time_of(const struct fault_conn *conn, uint64_t bits)
{
	uint64_t most = (uint64_t)conn->ctx->plan->time_us;

	return fault_now_us() + fault_mix(bits, 0) % (most + 1);
}

void fault_unref(struct fault_conn *conn)
{
	if (--conn->refs == 0)
		free(conn);
}

/* ---- arrivals ---- */

static uint64_t others(const struct fault_conn *conn)
{
	return conn->ctx->delivered - conn->delivered;
}

static void count_delivered(struct fault_conn *conn)
{
	conn->delivered++;
	conn->ctx->delivered++;
}

/* Whether the next is to be held: then since when and for what. */
static bool draw_arrival(struct fault_conn *conn, struct fault_arrival *a)
{
	struct fault_ctx *ctx = conn->ctx;
	uint64_t n = conn->arrivals++;
	uint64_t delay = fault_draw(conn, DRAW_DELAY, n);
	uint64_t reorder = fault_draw(conn, DRAW_REORDER, n);
	bool waits =
		ctx->nconns > 1 && fault_chance(reorder, ctx->plan->reorder);
	bool delayed = !waits && fault_chance(delay, ctx->plan->delay);

	*a = (struct fault_arrival){.waits = waits, .passed = others(conn)};
	if (waits)
		a->due_us = fault_now_us() + (uint64_t)ctx->plan->time_us;
	else if (delayed)
		a->due_us = time_of(conn, delay);
	ctx->counts.reordered += waits;
	ctx->counts.delayed += delayed;
	return waits || delayed || conn->held;
}

static void hold_arrival(struct fault_conn *conn, const struct fault_arrival *a,
			 const void *data)
{
	struct fault_arrival *copy = malloc(sizeof(*copy) + a->len);

	if (!copy) {
		core_failed(conn->wrap.tap.ep, -ENOMEM,
			    "no memory for an arrival");
		return;
	}
	*copy = *a;
	if (a->len)
		memcpy(copy->data, data, a->len);
	*conn->held_tail = copy;
	conn->held_tail = &copy->next;
}

void fault_on_notify(struct tap *tap, uint32_t imm)
{
	struct fault_conn *conn = (struct fault_conn *)tap;
	struct fault_arrival a;

	if (draw_arrival(conn, &a)) {
		a.imm = imm;
		hold_arrival(conn, &a, NULL);
		return;
	}
	count_delivered(conn);
	tap_notify(tap, imm);
}

void fault_on_message(struct tap *tap, const struct message_header *header,
		      const void *data, size_t len)
{
	struct fault_conn *conn = (struct fault_conn *)tap;
	struct fault_arrival a;

	if (draw_arrival(conn, &a)) {
		a.is_message = true;
		a.header = *header;
		a.len = len;
		hold_arrival(conn, &a, data);
		return;
	}
	count_delivered(conn);
	tap_message(tap, header, data, len);
}

static bool is_due(const struct fault_conn *conn, uint64_t now)
{
	const struct fault_arrival *a = conn->held;

	return a &&
	       (a->due_us <= now || (a->waits && others(conn) > a->passed));
}

static void deliver_one(struct fault_conn *conn)
{
	struct fault_arrival *a = conn->held;

	conn->held = a->next;
	if (!a->next)
		conn->held_tail = &conn->held;
	count_delivered(conn);
	if (a->is_message)
		tap_message(&conn->wrap.tap, &a->header, a->data, a->len);
	else
		tap_notify(&conn->wrap.tap, a->imm);
	free(a);
}

/* From another connection first each time. */
int fault_deliver(struct fault_ctx *ctx)
{
	uint64_t now = fault_now_us();
	int events = 0, n = ctx->nconns;
	int first =
		n ? (int)(fault_mix(ctx->plan->seed, ctx->turn++) % (uint64_t)n)
		  : 0;

	for (int i = 0; i < n; i++) {
		int at = (first + i) % n;
		struct fault_conn *conn = ctx->conns[at];

		while (conn && ctx->conns[at] == conn && is_due(conn, now)) {
			deliver_one(conn);
			events++;
		}
	}
	return events;
}

void fault_drop_arrivals(struct fault_conn *conn)
{
	while (conn->held) {
		struct fault_arrival *next = conn->held->next;

		free(conn->held);
		conn->held = next;
	}
	conn->held_tail = &conn->held;
}

/* ---- completions ---- */

static void op_finish(struct fault_op *f, int status)
{
	struct fault_conn *conn = f->conn;
	struct vbn_ctx *ctx = conn->ctx->wrap.ctx;
	struct vbn_op *user = f->user;

	user->wc = f->op.wc;
	user->vendor = f->op.vendor;
	fault_unspoil(f);
	free(f);
	fault_unref(conn);
	core_complete(ctx, user, status);
}

void fault_hold(struct fault_op *f, uint64_t due_us)
{
	struct fault_ctx *ctx = f->conn->ctx;

	f->due_us = due_us;
	f->next = NULL;
	*ctx->held_tail = f;
	ctx->held_tail = &f->next;
}

void fault_op_over(struct fault_op *f)
{
	struct fault_conn *conn = f->conn;
	const struct fault_plan *plan = conn->ctx->plan;
	uint64_t bits;

	f->status = f->op.status;
	if (f->status) /* counted again when the user's ends */
		core_counters(conn->ctx->wrap.ctx)->errors--;
	if (f->flip && !f->status)
		*f->flip = (char)(*f->flip ^ f->flip_bit);
	if (f->fails && !conn->closed) {
		f->status = -EIO;
		fault_doom(conn, -EIO, FAULT_FAILED);
	}
	bits = fault_draw(conn, DRAW_LATE, f->n);
	if (conn->closed || !fault_chance(bits, plan->late)) {
		op_finish(f, f->status);
		return;
	}
	conn->ctx->counts.late++;
	fault_hold(f, time_of(conn, bits));
}

static struct fault_op *take_held(struct fault_ctx *ctx,
				  const struct fault_conn *conn, uint64_t now)
{
	struct fault_op **link = &ctx->held, *f;

	while ((f = *link) && (f->due_us > now || (conn && f->conn != conn)))
		link = &f->next;
	if (!f)
		return NULL;
	*link = f->next;
	if (!*link)
		ctx->held_tail = link;
	return f;
}

int fault_complete(struct fault_ctx *ctx)
{
	uint64_t now = fault_now_us();
	struct fault_op *f;
	int events = 0;

	while ((f = take_held(ctx, NULL, now))) {
		op_finish(f, f->status);
		events++;
	}
	return events;
}

void fault_complete_all(struct fault_conn *conn, int status)
{
	struct fault_ctx *ctx = conn->ctx;
	struct fault_op **link = &ctx->stuck, *f;

	while ((f = take_held(ctx, conn, UINT64_MAX)))
		op_finish(f, f->status);
	while ((f = *link)) {
		if (f->conn != conn) {
			link = &f->next;
			continue;
		}
		*link = f->next;
		op_finish(f, status);
		link = &ctx->stuck; /* the callback may have changed it */
	}
}

uint64_t fault_next_due(const struct fault_ctx *ctx)
{
	uint64_t due = UINT64_MAX;

	for (const struct fault_op *f = ctx->held; f; f = f->next)
		if (f->due_us < due)
			due = f->due_us;
	for (int i = 0; i < ctx->nconns; i++) {
		const struct fault_conn *conn = ctx->conns[i];

		if (conn && conn->held && is_due(conn, 0))
			return 0;
		if (conn && conn->held && conn->held->due_us < due)
			due = conn->held->due_us;
	}
	return due;
}
