/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links over verbena's one-sided operations. Notify values: kind, whether it
 * is a release, and the item's number (modulo 2^24), which is checked: an
 * endpoint delivers them in order, so that anything else is a fault.
 */
#include "link.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NUMBER_MASK 0xffffffu
#define VALUE(kind, release, i)                                                \
	((uint32_t)(kind) << 25 | (uint32_t)(release) << 24 |                  \
	 ((uint32_t)(i)&NUMBER_MASK))

struct link {
	struct net *net;
	enum link_kind kind;
	int peer;
	struct vbn_ep *ep;
	size_t stride;
	int slots;

	/* in */
	char *landing;
	uint64_t arrived;
	/* out */
	struct vbn_rkey rkey;
	char *buffers;
	struct vbn_op ops[LINK_SENDS];
	uint64_t freed; /* items, by the receiver */

	struct vbn_op release_op;
};

struct net {
	struct vbn_ctx *ctx;
	struct vbn_pool *pool;
	int timeout_ms;
	bool out_of_order;
	double waited_ms;
	struct link links[2][LINK_KINDS]; /* [0] in, [1] out; peer -1: none */
};

static __thread char error_line[512];

const char *trainer_error(void)
{
	return error_line;
}

int trainer_fail(int err, const char *fmt, ...)
{
	char line[sizeof(error_line)];
	va_list args;

	va_start(args, fmt);
	vsnprintf(line, sizeof(line), fmt, args);
	va_end(args);
	memcpy(error_line, line, sizeof(line));
	return err;
}

static double clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

double net_waited_ms(const struct net *net)
{
	return net->waited_ms;
}

const char *net_provider(const struct net *net)
{
	const char *name = "";

	for (int i = 0; i < 2 * LINK_KINDS && !*name; i++)
		if (net->links[i / LINK_KINDS][i % LINK_KINDS].ep)
			name = vbn_ep_provider(
				net->links[i / LINK_KINDS][i % LINK_KINDS].ep);
	return name;
}

int net_wait(struct vbn_ctx *ctx, int timeout_ms, bool (*done)(void *arg),
	     void *arg, const char *what)
{
	struct vbn_job *job = vbn_ctx_job(ctx);
	double end = clock_ms() + timeout_ms;

	while (!done(arg)) {
		double left = end - clock_ms();

		if (vbn_job_dead(job) >= 0)
			return trainer_fail(-ECONNRESET,
					    "rank %d has died; waiting for %s",
					    vbn_job_dead(job), what);
		if (left <= 0)
			return trainer_fail(-ETIMEDOUT,
					    "no %s within %d s: is a rank "
					    "stopped? (--timeout)",
					    what, timeout_ms / 1000);
		/* Slices, as a death may come between look and sleep. */
		vbn_ctx_wait(ctx, left < 500 ? (int)left + 1 : 500);
	}
	return 0;
}

struct condition {
	struct link *link;
	uint64_t i;
};

static bool has_arrived(void *arg)
{
	const struct condition *c = arg;

	return c->link->arrived > c->i || c->link->net->out_of_order;
}

static bool is_freed(void *arg)
{
	const struct condition *c = arg;

	return c->i < c->link->freed + (uint64_t)c->link->slots ||
	       c->link->net->out_of_order;
}

static bool is_sent(void *arg)
{
	const struct condition *c = arg;

	return c->link->ops[c->i % LINK_SENDS].status != -EINPROGRESS;
}

static bool is_released(void *arg)
{
	const struct condition *c = arg;

	return c->link->release_op.status != -EINPROGRESS;
}

static int wait_for(struct link *link, bool (*done)(void *arg), uint64_t i,
		    const char *what)
{
	struct condition c = {link, i};
	char text[96];
	double begin;
	int err;

	if (done(&c) && !link->net->out_of_order)
		return 0;
	begin = clock_ms();
	snprintf(text, sizeof(text), "%s rank %d", what, link->peer);
	err = net_wait(link->net->ctx, link->net->timeout_ms, done, &c, text);
	link->net->waited_ms += clock_ms() - begin;
	if (!err && link->net->out_of_order)
		err = trainer_fail(-EPROTO,
				   "a neighbour's micro-batches came out of "
				   "order: are all ranks started alike?");
	return err;
}

static int op_error(const struct link *link, const struct vbn_op *op)
{
	if (!op->status)
		return 0;
	return trainer_fail(op->status, "sending to rank %d: %s", link->peer,
			    strerror(-op->status));
}

static void on_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct net *net = arg;
	enum link_kind kind = (enum link_kind)(value >> 25);
	bool release = value >> 24 & 1;
	struct link *link;
	uint64_t *count;

	if (kind >= LINK_KINDS)
		return;
	link = &net->links[release][kind];
	if (link->peer < 0 || vbn_ep_rank(from) != link->peer)
		return;
	count = release ? &link->freed : &link->arrived;
	if ((*count & NUMBER_MASK) != (value & NUMBER_MASK))
		net->out_of_order = true;
	++*count;
}

int link_receive(struct link *link, uint64_t i, void **data)
{
	int err = wait_for(link, has_arrived, i, "micro-batch from");

	if (!err)
		*data = link->landing +
			i % (uint64_t)link->slots * link->stride;
	return err;
}

/* Post until it is taken. */
static int post(struct link *link, struct vbn_op *op, const void *data,
		size_t len, uint64_t offset, uint32_t value)
{
	struct net *net = link->net;
	double end = clock_ms() + net->timeout_ms;

	for (;;) {
		int err = vbn_put_notify(link->ep, op, data, len, &link->rkey,
					 offset, VBN_CHANNEL_TRAINER, value, 0);

		if (!err)
			return 0;
		if (err != -EAGAIN)
			return trainer_fail(err, "%s", vbn_error());
		if (vbn_job_dead(vbn_ctx_job(net->ctx)) >= 0)
			return trainer_fail(
				-ECONNRESET, "rank %d has died",
				vbn_job_dead(vbn_ctx_job(net->ctx)));
		if (clock_ms() > end)
			return trainer_fail(-ETIMEDOUT,
					    "rank %d takes no data within "
					    "%d s (--timeout)",
					    link->peer, net->timeout_ms / 1000);
		vbn_ctx_wait(net->ctx, 1);
	}
}

int link_release(struct link *link, uint64_t i)
{
	int err = wait_for(link, is_released, 0, "release taken by");

	if (err)
		return err;
	err = op_error(link, &link->release_op);
	if (!err)
		err = post(link, &link->release_op, NULL, 0, 0,
			   VALUE(link->kind, 1, i));
	return err;
}

int link_buffer(struct link *link, uint64_t i, void **data)
{
	int err = wait_for(link, is_sent, i, "send completed by");

	if (!err)
		err = op_error(link, &link->ops[i % LINK_SENDS]);
	if (!err)
		*data = link->buffers + i % LINK_SENDS * link->stride;
	return err;
}

int link_send(struct link *link, uint64_t i, size_t len)
{
	int err = wait_for(link, is_freed, i, "free slot at");

	if (err)
		return err;
	return post(link, &link->ops[i % LINK_SENDS],
		    link->buffers + i % LINK_SENDS * link->stride, len,
		    i % (uint64_t)link->slots * link->stride,
		    VALUE(link->kind, 0, i));
}

static int link_drain(struct link *link)
{
	for (uint64_t b = 0; b < LINK_SENDS; b++) {
		int err = wait_for(link, is_sent, b, "send completed by");

		if (!err)
			err = op_error(link, &link->ops[b]);
		if (err)
			return err;
	}
	return wait_for(link, is_released, 0, "release taken by");
}

int net_drain(struct net *net)
{
	int err = 0;

	for (int i = 0; i < 2 * LINK_KINDS && !err; i++) {
		struct link *link = &net->links[i / LINK_KINDS][i % LINK_KINDS];

		if (link->peer >= 0)
			err = link_drain(link);
	}
	return err;
}

/* ---- setting up ---- */

static size_t stride_of(size_t bytes)
{
	return (bytes + 4095) & ~(size_t)4095;
}

static void key_name(char *key, size_t room, int owner, enum link_kind kind)
{
	snprintf(key, room, "trainer/%d/%d", owner, kind);
}

int net_get(struct vbn_job *job, const char *key, void *value, size_t *len)
{
	int timeout_ms = vbn_job_timeout_ms(job);
	double end = timeout_ms < 0 ? INFINITY : clock_ms() + timeout_ms;
	size_t room = *len;
	int err;

	do {
		*len = room;
		err = vbn_job_get(job, key, value, len, 200);
		if (vbn_job_dead(job) >= 0)
			return trainer_fail(-ECONNRESET,
					    "rank %d has died at the start",
					    vbn_job_dead(job));
	} while (err == -ETIMEDOUT && clock_ms() < end);
	return err ? trainer_fail(err, "%s", vbn_error()) : 0;
}

/* The receiving side: make the slots and publish their key and number. */
static int open_in(struct link *link, int slots)
{
	struct vbn_job *job = vbn_ctx_job(link->net->ctx);
	uint8_t value[VBN_RKEY_BYTES + 4];
	struct vbn_rkey rkey;
	char key[64];
	size_t n = (size_t)slots * link->stride;

	link->slots = slots;
	link->landing = vbn_pool_alloc(link->net->pool, n, 4096);
	if (!link->landing || vbn_rkey_of(job, link->landing, n, &rkey))
		return trainer_fail(-ENOMEM, "%s", vbn_error());
	vbn_rkey_pack(&rkey, value);
	memcpy(value + VBN_RKEY_BYTES, &slots, 4);
	key_name(key, sizeof(key), vbn_job_rank(job), link->kind);
	if (vbn_job_set(job, key, value, sizeof(value),
			vbn_job_timeout_ms(job)))
		return trainer_fail(-EIO, "%s", vbn_error());
	return 0;
}

static int open_out(struct link *link)
{
	struct vbn_job *job = vbn_ctx_job(link->net->ctx);
	uint8_t value[VBN_RKEY_BYTES + 4];
	size_t len = sizeof(value);
	char key[64];
	int err;

	link->buffers = vbn_pool_alloc(link->net->pool,
				       LINK_SENDS * link->stride, 4096);
	if (!link->buffers)
		return trainer_fail(-ENOMEM, "%s", vbn_error());
	key_name(key, sizeof(key), link->peer, link->kind);
	err = net_get(job, key, value, &len);
	if (err)
		return err;
	if (len != sizeof(value))
		return trainer_fail(-EPROTO, "rank %d has no slots",
				    link->peer);
	vbn_rkey_unpack(&link->rkey, value);
	memcpy(&link->slots, value + VBN_RKEY_BYTES, 4);
	return 0;
}

static int open_links(struct net *net, const struct net_options *o)
{
	/* in: activations from prev, gradients from next; out: opposite */
	const int peers[2][LINK_KINDS] = {{o->prev, o->next},
					  {o->next, o->prev}};
	int err = 0;

	for (int out = 0; out < 2; out++)
		for (int kind = 0; kind < LINK_KINDS; kind++)
			net->links[out][kind] =
				(struct link){.net = net,
					      .kind = (enum link_kind)kind,
					      .peer = peers[out][kind],
					      .stride = stride_of(o->bytes)};
	/* All keys are published before any is waited for. */
	for (int out = 0; out < 2 && !err; out++)
		for (int kind = 0; kind < LINK_KINDS && !err; kind++) {
			struct link *link = &net->links[out][kind];

			if (link->peer < 0)
				continue;
			if (vbn_ep_open(&link->ep, net->ctx, link->peer, 0))
				return trainer_fail(-EIO, "%s", vbn_error());
			if (out)
				err = open_out(link);
			else
				err = open_in(link, kind == LINK_GRADIENTS
							    ? LINK_SENDS
							    : o->slots);
		}
	return err;
}

int net_open(struct net **out, struct vbn_ctx *ctx, struct vbn_pool *pool,
	     const struct net_options *options)
{
	struct net *net = calloc(1, sizeof(*net));
	int err;

	if (!net)
		return trainer_fail(-ENOMEM, "no memory for links");
	net->ctx = ctx;
	net->pool = pool;
	net->timeout_ms = options->timeout_ms;
	vbn_notify_handler(ctx, VBN_CHANNEL_TRAINER, on_notify, net);
	err = open_links(net, options);
	if (err) {
		net_close(net);
		return err;
	}
	*out = net;
	return 0;
}

void net_close(struct net *net)
{
	vbn_notify_handler(net->ctx, VBN_CHANNEL_TRAINER, NULL, NULL);
	for (int out = 0; out < 2; out++)
		for (int kind = 0; kind < LINK_KINDS; kind++) {
			struct link *link = &net->links[out][kind];

			if (link->ep)
				vbn_ep_close(link->ep);
			if (link->landing)
				vbn_pool_free(net->pool, link->landing);
			if (link->buffers)
				vbn_pool_free(net->pool, link->buffers);
		}
	free(net);
}

static struct link *pick(struct net *net, int out, enum link_kind kind)
{
	return net->links[out][kind].peer < 0 ? NULL : &net->links[out][kind];
}

struct link *net_in(struct net *net, enum link_kind kind)
{
	return pick(net, 0, kind);
}

struct link *net_out(struct net *net, enum link_kind kind)
{
	return pick(net, 1, kind);
}
