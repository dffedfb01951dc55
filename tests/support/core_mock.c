/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See core_mock.h. As the real core does, core_failed() closes the connection
 * at once, in the midst of the provider's progress.
 */
#include "core_mock.h"
#include "control.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *what)
{
	fprintf(stderr, "core_mock: %s\n", what);
	abort();
}

void mock_ctx_init(struct vbn_ctx *ctx)
{
	memset(ctx, 0, sizeof(*ctx));
	ctx->deferred_tail = &ctx->deferred;
}

void mock_op_init(struct vbn_op *op, void (*done)(struct vbn_op *op), void *arg)
{
	memset(op, 0, sizeof(*op));
	op->done = done;
	op->arg = arg;
	op->status = -EINPROGRESS;
}

void core_complete(struct vbn_ctx *ctx, struct vbn_op *op, int status)
{
	if (op->status != -EINPROGRESS)
		die("an operation completed twice");
	if (status == -EINPROGRESS || status > 0)
		die("a completion without a status");
	op->status = status;
	ctx->completed++;
	if (status)
		ctx->failed_ops++;
	if (op->done)
		op->done(op);
}

void core_done(struct vbn_op *op)
{
	if (op->status != -EINPROGRESS)
		die("an operation completed twice");
	op->status = 0;
	if (op->done)
		op->done(op);
}

/* mock_progress() never calls poll(). */
void core_again(struct vbn_ctx *ctx)
{
	(void)ctx;
}

void core_again_any(struct vbn_ctx *ctx)
{
	(void)ctx;
}

void core_defer(struct vbn_ctx *ctx, struct vbn_op *op, int status)
{
	op->priv[0] = 0;
	op->priv[1] = (uint64_t)(int64_t)status;
	*ctx->deferred_tail = op;
	ctx->deferred_tail = (struct vbn_op **)&op->priv[0];
}

int mock_progress(struct vbn_ctx *ctx, const struct provider *ops, void *pctx)
{
	struct vbn_op *op = ctx->deferred, *next;
	int events = 0;

	ctx->deferred = NULL;
	ctx->deferred_tail = &ctx->deferred;
	for (; op; op = next) {
		next = (struct vbn_op *)op->priv[0];
		core_complete(ctx, op, (int)(int64_t)op->priv[1]);
		events++;
	}
	return events + ops->progress(pctx);
}

void core_notify(struct vbn_ep *ep, uint32_t imm)
{
	ep->notifies++;
	if (ep->on_notify)
		ep->on_notify(ep, imm);
}

void core_message(struct vbn_ep *ep, const struct message_header *header,
		  const void *data, size_t len)
{
	ep->messages++;
	if (ep->on_message)
		ep->on_message(ep, header, data, len);
}

void core_failed(struct vbn_ep *ep, int status, const char *why)
{
	void *conn = ep->conn;

	if (!status)
		die("a failure without a status");
	ep->failures++;
	ep->status = status;
	snprintf(ep->why, sizeof(ep->why), "%s", why);
	ep->conn = NULL;
	if (conn)
		ep->ops->conn_close(conn, status);
}

struct vbn_counters *core_counters(struct vbn_ctx *ctx)
{
	return &ctx->counters;
}

void vbn_ctx_wake(struct vbn_ctx *ctx)
{
	ctx->wakes++;
}

int vbn_ctx_wake_fd(const struct vbn_ctx *ctx)
{
	(void)ctx;
	return -1;
}

struct control *vbn_job_control(struct vbn_job *job)
{
	(void)job;
	return NULL;
}

/* No control thread: what it would run runs at once, and nobody watches. */
int control_run_wait(struct control *control, void (*fn)(void *arg), void *arg)
{
	(void)control;
	fn(arg);
	return 0;
}

int control_watch(struct control *control, int fd,
		  void (*fn)(void *arg, int fd), void *arg)
{
	(void)control;
	(void)fd;
	(void)fn;
	(void)arg;
	return 0;
}

void control_unwatch(struct control *control, int fd)
{
	(void)control;
	(void)fd;
}

void core_connected(struct vbn_ctx *ctx, const struct conn_info *info,
		    int status)
{
	(void)ctx;
	(void)info;
	(void)status;
}

void core_readdress(struct vbn_ctx *ctx, enum provider_id provider,
		    const struct blob *address)
{
	(void)provider;
	(void)address;
	ctx->wakes++;
}
