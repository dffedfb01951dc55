/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Completions and arrivals, on their way to the user. What arrives before its
 * channel has a handler is parked, its credit kept back: that bounds it.
 */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void core_complete(struct vbn_ctx *ctx, struct vbn_op *op, int status)
{
	if (status)
		ctx->counters.errors++;
	ctx->happened = true;
	op->status = status;
	if (op->done)
		op->done(op);
}

void core_done(struct vbn_op *op)
{
	op->status = 0;
	if (op->done)
		op->done(op);
}

void core_defer(struct vbn_ctx *ctx, struct vbn_op *op, int status)
{
	op->priv[1] = (uint64_t)(int64_t)status;
	ctx->todo = true;
	op_push(&ctx->deferred, op);
}

static bool has_handler(const struct vbn_ctx *ctx, unsigned channel,
			bool message)
{
	return message ? ctx->channels[channel].message != NULL
		       : ctx->channels[channel].notify != NULL;
}

static void call(struct vbn_ep *ep, uint64_t generation, unsigned channel,
		 bool is_message, uint32_t value, const void *data, size_t len)
{
	const struct channel *ch = &ep->ctx->channels[channel];

	if (is_message)
		ch->message(ch->message_arg, ep, data, len);
	else
		ch->notify(ch->notify_arg, ep, value);
	ep_return_credit(ep, generation);
}

static void set_detour(struct vbn_ctx *ctx)
{
	ctx->detour = ctx->tapped || ctx->parked;
}

static void park(struct vbn_ep *ep, unsigned channel, bool is_message,
		 uint32_t value, const void *data, size_t len)
{
	struct vbn_ctx *ctx = ep->ctx;
	struct parked *parked = malloc(sizeof(*parked) + len);

	if (!parked) {
		core_failed(ep, -ENOMEM, "no memory for an arrival");
		return;
	}
	*parked = (struct parked){.ep = ep,
				  .generation = ep->generation,
				  .channel = channel,
				  .is_message = is_message,
				  .value = value,
				  .len = len};
	if (len)
		memcpy(parked->data, data, len);
	ctx->todo = true;
	*ctx->parked_tail = parked;
	ctx->parked_tail = &parked->next;
	set_detour(ctx);
	ep_keep(ep);
}

static void deliver(struct vbn_ep *ep, unsigned channel, bool is_message,
		    uint32_t value, const void *data, size_t len)
{
	void *conn = ep->conn;

	if (ep->ctx->parked)
		parked_deliver(ep->ctx); /* the older first */
	if (ep->conn != conn)
		return; /* closed by a handler: @data is gone */
	if (has_handler(ep->ctx, channel, is_message))
		call(ep, ep->generation, channel, is_message, value, data, len);
	else
		park(ep, channel, is_message, value, data, len);
}

bool parked_ready(const struct vbn_ctx *ctx)
{
	for (struct parked *p = ctx->parked; p; p = p->next)
		if (has_handler(ctx, p->channel, p->is_message))
			return true;
	return false;
}

void parked_deliver(struct vbn_ctx *ctx)
{
	struct parked **link = &ctx->parked;

	while (*link) {
		struct parked *parked = *link;

		if (!has_handler(ctx, parked->channel, parked->is_message)) {
			link = &parked->next;
			continue;
		}
		*link = parked->next;
		if (!*link)
			ctx->parked_tail = link;
		ctx->happened = true; /* no provider counts it now */
		ep_unkeep(parked->ep, parked->generation);
		call(parked->ep, parked->generation, parked->channel,
		     parked->is_message, parked->value, parked->data,
		     parked->len);
		free(parked);
	}
	set_detour(ctx);
}

void parked_free(struct vbn_ctx *ctx)
{
	while (ctx->parked) {
		struct parked *next = ctx->parked->next;

		free(ctx->parked);
		ctx->parked = next;
	}
	ctx->parked_tail = &ctx->parked;
}

void core_credit_back(struct vbn_ep *ep)
{
	ep->tx_credits++;
}

static void notify_slowly(struct vbn_ep *ep, uint32_t imm)
{
	deliver(ep, imm >> 28, false, imm & VBN_NOTIFY_MAX, NULL, 0);
}

static __attribute__((noinline)) void notify_by_detour(struct vbn_ep *ep,
						       uint32_t imm)
{
	if (ep->tap)
		ep->tap->notify(ep->tap, imm);
	else
		notify_slowly(ep, imm);
}

void core_notify(struct vbn_ep *ep, uint32_t imm)
{
	const struct channel *ch = &ep->ctx->channels[imm >> 28];
	uint64_t generation = ep->generation;

	if (ep->ctx->detour || !ch->notify) {
		notify_by_detour(ep, imm);
		return;
	}
	ch->notify(ch->notify_arg, ep, imm & VBN_NOTIFY_MAX);
	ep_return_credit(ep, generation);
}

static inline __attribute__((always_inline)) void message(
	struct vbn_ep *ep, const struct message_header *header,
	const void *data, size_t len)
{
	switch (header->kind) {
	case MESSAGE_EAGER:
		eager_deliver(ep, data, len);
		break;
	case MESSAGE_CREDIT:
		ep->tx_credits += header->u32;
		break;
	case MESSAGE_USER:
		if (header->u32 >= 1 && header->u32 < VBN_CHANNELS)
			deliver(ep, header->u32, true, 0, data, len);
		break;
	case MESSAGE_ATOMIC:
	case MESSAGE_ATOMIC_DONE:
		atomic_deliver(ep, header, data, len);
		break;
	default:
		send_deliver(ep, header, data, len);
	}
}

void core_message(struct vbn_ep *ep, const struct message_header *header,
		  const void *data, size_t len)
{
	if (__builtin_expect(ep->tap != NULL, 0))
		ep->tap->message(ep->tap, header, data, len);
	else
		message(ep, header, data, len);
}

void core_tap(struct vbn_ep *ep, struct tap *tap)
{
	if (tap) {
		tap->ep = ep;
		tap->above = ep->tap;
		ep->ctx->tapped = true;
		set_detour(ep->ctx);
	}
	ep->tap = tap;
}

void tap_notify(struct tap *tap, uint32_t imm)
{
	if (tap->above)
		tap->above->notify(tap->above, imm);
	else
		notify_slowly(tap->ep, imm);
}

void tap_message(struct tap *tap, const struct message_header *header,
		 const void *data, size_t len)
{
	if (tap->above)
		tap->above->message(tap->above, header, data, len);
	else
		message(tap->ep, header, data, len);
}

int vbn_notify_handler(struct vbn_ctx *ctx, unsigned channel,
		       void (*fn)(void *arg, struct vbn_ep *from,
				  uint32_t value),
		       void *arg)
{
	if (channel < 1 || channel >= VBN_CHANNELS)
		return vbn_fail(-EINVAL, "channel %u (1..%d)", channel,
				VBN_CHANNELS - 1);
	ctx->channels[channel].notify = fn;
	ctx->channels[channel].notify_arg = arg;
	return 0;
}

int vbn_message_handler(struct vbn_ctx *ctx, unsigned channel,
			void (*fn)(void *arg, struct vbn_ep *from,
				   const void *data, size_t len),
			void *arg)
{
	if (channel < 1 || channel >= VBN_CHANNELS)
		return vbn_fail(-EINVAL, "channel %u (1..%d)", channel,
				VBN_CHANNELS - 1);
	ctx->channels[channel].message = fn;
	ctx->channels[channel].message_arg = arg;
	return 0;
}

static void dump_providers(const struct vbn_ctx *ctx, FILE *out)
{
	for (int i = 0; i < PROVIDERS; i++) {
		const struct provider *ops = ctx->job->providers[i].ops;

		if (ctx->pctx[i] && ops->dump)
			ops->dump(ctx->pctx[i], out);
	}
}

void vbn_ctx_dump(const struct vbn_ctx *ctx, FILE *out)
{
	const struct vbn_counters *c = &ctx->counters;
	const struct {
		const char *name;
		uint64_t value;
	} rows[] = {
		{"puts", c->puts},
		{"gets", c->gets},
		{"atomics", c->atomics},
		{"sends", c->sends},
		{"receives", c->receives},
		{"notifies", c->notifies},
		{"messages", c->messages},
		{"put_bytes", c->put_bytes},
		{"get_bytes", c->get_bytes},
		{"send_bytes", c->send_bytes},
		{"again", c->again},
		{"staged_bytes", c->staged_bytes},
		{"copied_bytes", c->copied_bytes},
		{"doorbells", c->doorbells},
		{"errors", c->errors},
		{"sleeps", c->sleeps},
		{"completions", c->completions},
		{"kicks", c->kicks},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].value)
			fprintf(out, "verbena: rank %d ctx %d %s %llu\n",
				ctx->job->rank, ctx->index, rows[i].name,
				(unsigned long long)rows[i].value);
	dump_providers(ctx, out);
}
