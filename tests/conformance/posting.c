/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations as the conformance cases post them: again while the library says
 * -EAGAIN, driving the context in between, up to the deadline; and the waits
 * for their completion.
 */
#include "harness.h"

#include <errno.h>
#include <stddef.h>

/*
 * Endpoints other than the case's own, and who drives them. Per thread, since
 * a context and its endpoints belong to one.
 */
#define DRIVEN_MAX 16
static _Thread_local struct {
	struct vbn_ep *ep;
	struct vbn_ctx *ctx;
} driven[DRIVEN_MAX];
static _Thread_local unsigned driven_next;

void drives(struct vbn_ep *ep, struct vbn_ctx *ctx)
{
	driven[driven_next % DRIVEN_MAX].ep = ep;
	driven[driven_next % DRIVEN_MAX].ctx = ctx;
	driven_next++;
}

/* After -EAGAIN: let the context move. Returns false past the deadline. */
static bool again(struct vbn_ep *ep, int rc, double *until)
{
	struct vbn_ctx *ctx = NULL;

	if (rc != -EAGAIN)
		return false;
	for (unsigned i = 1; i <= DRIVEN_MAX && !ctx; i++)
		if (driven[(driven_next - i) % DRIVEN_MAX].ep == ep)
			ctx = driven[(driven_next - i) % DRIVEN_MAX].ctx;
	if (*until == 0)
		*until = now() + WAIT_MS / 1e3;
	if (!ctx || now() > *until)
		return false;
	vbn_ctx_wait(ctx, 5);
	return true;
}

int put(struct post p, const void *local, size_t len)
{
	double until = 0;
	int rc;

	do
		rc = vbn_put(p.ep, p.op, local, len, p.rkey, p.offset, p.flags);
	while (again(p.ep, rc, &until));
	return rc;
}

int put_notify(struct post p, const void *local, size_t len, unsigned channel,
	       uint32_t value)
{
	double until = 0;
	int rc;

	do
		rc = vbn_put_notify(p.ep, p.op, local, len, p.rkey, p.offset,
				    channel, value, p.flags);
	while (again(p.ep, rc, &until));
	return rc;
}

int get(struct post p, void *local, size_t len)
{
	double until = 0;
	int rc;

	do
		rc = vbn_get(p.ep, p.op, local, len, p.rkey, p.offset, p.flags);
	while (again(p.ep, rc, &until));
	return rc;
}

int fetch_add(struct post p, uint64_t *result, uint64_t add)
{
	double until = 0;
	int rc;

	do
		rc = vbn_fetch_add(p.ep, p.op, result, add, p.rkey, p.offset,
				   p.flags);
	while (again(p.ep, rc, &until));
	return rc;
}

int compare_swap(struct post p, uint64_t *result, uint64_t compare,
		 uint64_t swap)
{
	double until = 0;
	int rc;

	do
		rc = vbn_compare_swap(p.ep, p.op, result, compare, swap, p.rkey,
				      p.offset, p.flags);
	while (again(p.ep, rc, &until));
	return rc;
}

int notify(struct vbn_ep *ep, struct vbn_op *op, unsigned channel,
	   uint32_t value)
{
	double until = 0;
	int rc;

	do
		rc = vbn_notify(ep, op, channel, value, 0);
	while (again(ep, rc, &until));
	return rc;
}

int send_to(struct vbn_ep *ep, struct vbn_op *op, const void *buf, size_t len)
{
	double until = 0;
	int rc;

	do
		rc = vbn_send(ep, op, buf, len, 0);
	while (again(ep, rc, &until));
	return rc;
}

int recv_from(struct vbn_ep *ep, struct vbn_op *op, void *buf, size_t len)
{
	double until = 0;
	int rc;

	do
		rc = vbn_recv(ep, op, buf, len);
	while (again(ep, rc, &until));
	return rc;
}

int flush(struct vbn_ep *ep, struct vbn_op *op)
{
	double until = 0;
	int rc;

	do
		rc = vbn_flush(ep, op);
	while (again(ep, rc, &until));
	return rc;
}

int message(struct vbn_ep *ep, unsigned channel, const void *data, size_t len)
{
	double until = 0;
	int rc;

	do
		rc = vbn_message(ep, channel, data, len);
	while (again(ep, rc, &until));
	return rc;
}

/* ---- waits ---- */

bool t_wait(struct test *t, struct vbn_op *op, const char *what)
{
	int rc = vbn_wait(t->ctx, op, WAIT_MS);

	return t_check(t, rc == 0 && op->status == 0,
		       "%s completed with %s (status %s, wc %u, vendor %u): %s",
		       what, err_name(rc), err_name(op->status), op->wc,
		       op->vendor, vbn_error());
}

bool t_flush(struct test *t)
{
	struct vbn_op *op = t_alloc(t, sizeof(*op));

	return t_ok(t, flush(t->ep, op), "vbn_flush") && t_wait(t, op, "flush");
}

bool t_count(struct test *t, const int *counter, int target, const char *what)
{
	double until = now() + WAIT_MS / 1e3;

	while (*counter < target && now() < until)
		vbn_ctx_wait(t->ctx, 10);
	return t_check(t, *counter >= target, "%s: %d of %d after %d s", what,
		       *counter, target, WAIT_MS / 1000);
}

void t_drive(struct test *t, int ms)
{
	double until = now() + ms / 1e3;
	int left = ms;

	do {
		vbn_ctx_wait(t->ctx, left > 0 ? left : 0);
		left = (int)((until - now()) * 1e3);
	} while (left > 0);
}

void count_done(struct vbn_op *op)
{
	int *count = op->arg;

	(*count)++;
}
