/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Notifies and messages as such: values, channels, senders, and what comes
 * before there is a handler.
 */
#include "harness.h"

#include <errno.h>
#include <string.h>

struct mail {
	struct test *t;
	unsigned channel;
	uint32_t values[64];
	int count;
};

static void mail_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct mail *m = arg;

	t_check(m->t,
		vbn_ep_rank(from) == m->t->peer &&
			vbn_ep_index(from) == m->t->peer_index,
		"notify from rank %d context %d", vbn_ep_rank(from),
		vbn_ep_index(from));
	if (m->count < 64)
		m->values[m->count] = value;
	m->count++;
}

static uint32_t channel_value(unsigned channel, int i)
{
	static const uint32_t edges[] = {0, 1, VBN_NOTIFY_MAX,
					 VBN_NOTIFY_MAX - 1};

	return i < 4 ? edges[i] : channel * 1000 + (uint32_t)i;
}

#define EACH 20

static bool mail_check(struct test *t, const struct mail *m)
{
	for (int i = 0; i < EACH; i++)
		if (!t_check(t, m->values[i] == channel_value(m->channel, i),
			     "channel %u: value %d is %u instead of %u",
			     m->channel, i, m->values[i],
			     channel_value(m->channel, i)))
			return false;
	return t_check(t, m->count == EACH, "channel %u: %d notifies, not %d",
		       m->channel, m->count, EACH);
}

static bool post_channels(struct test *t, unsigned last)
{
	struct vbn_op *ops = t_alloc(t, EACH * VBN_CHANNELS * sizeof(*ops));

	for (int i = 0; i < EACH; i++)
		for (unsigned c = 1; c <= last; c++) {
			struct vbn_op *op =
				&ops[(unsigned)i * VBN_CHANNELS + c];

			if (!t_ok(t, notify(t->ep, op, c, channel_value(c, i)),
				  "vbn_notify"))
				return false;
		}
	return true;
}

static void run_channels(struct test *t)
{
	struct mail *m = t_alloc(t, VBN_CHANNELS * sizeof(*m));

	for (unsigned c = 1; c < VBN_CHANNELS; c++) {
		m[c] = (struct mail){.t = t, .channel = c};
		t_ok(t, vbn_notify_handler(t->ctx, c, mail_notify, &m[c]),
		     "vbn_notify_handler");
	}
	if (!post_channels(t, VBN_CHANNELS - 1))
		return;
	for (unsigned c = 1; c < VBN_CHANNELS; c++)
		if (!t_count(t, &m[c].count, EACH, "notifies"))
			return;
	t_barrier(t);
	for (unsigned c = 1; c < VBN_CHANNELS; c++)
		if (!mail_check(t, &m[c]))
			return;
}

/* The handler is set after the arrivals. */
static void run_late_handler(struct test *t)
{
	struct mail *m = t_alloc(t, 2 * sizeof(*m));

	m[0] = (struct mail){.t = t, .channel = 1};
	m[1] = (struct mail){.t = t, .channel = 2};
	if (!post_channels(t, 2))
		return;
	t_drive(t, 200);
	vbn_notify_handler(t->ctx, 2, mail_notify, &m[1]);
	if (!t_count(t, &m[1].count, EACH, "notifies of channel 2"))
		return;
	t_drive(t, 50);
	t_check(t, m[0].count == 0, "delivered without a handler");
	vbn_notify_handler(t->ctx, 1, mail_notify, &m[0]);
	if (!t_count(t, &m[0].count, EACH, "notifies of channel 1") ||
	    !t_barrier(t))
		return;
	for (int i = 0; i < 2; i++)
		if (!mail_check(t, &m[i]))
			return;
}

/* A handler taken away, and set again. */
static void run_handler_removed(struct test *t)
{
	struct mail *m = t_alloc(t, sizeof(*m));
	struct vbn_op *ops = t_alloc(t, 2 * sizeof(*ops));

	*m = (struct mail){.t = t, .channel = 1};
	vbn_notify_handler(t->ctx, 1, mail_notify, m);
	if (!t_ok(t, notify(t->ep, &ops[0], 1, 7), "vbn_notify") ||
	    !t_count(t, &m->count, 1, "notify"))
		return;
	vbn_notify_handler(t->ctx, 1, NULL, NULL);
	if (!t_barrier(t) ||
	    !t_ok(t, notify(t->ep, &ops[1], 1, 8), "vbn_notify"))
		return;
	t_drive(t, 100);
	t_check(t, m->count == 1, "delivered to a handler taken away");
	vbn_notify_handler(t->ctx, 1, mail_notify, m);
	t_count(t, &m->count, 2, "notify after the handler came back");
	t_check(t, m->values[1] == 8, "value %u", m->values[1]);
}

/* ---- messages ---- */

static const size_t sizes[] = {0, 1, 7, 8, 64, 1000, 2047, 2048, 2048, 3};

#define NSIZES (sizeof(sizes) / sizeof(sizes[0]))

struct letters {
	struct test *t;
	int count;
};

static void letter(void *arg, struct vbn_ep *from, const void *data, size_t len)
{
	struct letters *l = arg;
	size_t want = sizes[(size_t)l->count % NSIZES];

	t_check(l->t, vbn_ep_rank(from) == l->t->peer, "from rank %d",
		vbn_ep_rank(from));
	if (t_check(l->t, len == want, "message %d has %zu bytes, not %zu",
		    l->count, len, want))
		t_pattern(l->t, data, len, (unsigned)l->count, "message");
	l->count++;
}

static bool post_letters(struct test *t, int first, int count)
{
	uint8_t data[VBN_MESSAGE_MAX];

	for (int i = first; i < first + count; i++) {
		size_t len = sizes[(size_t)i % NSIZES];

		fill(data, len, (unsigned)i);
		if (!t_ok(t, message(t->ep, 3, len ? data : NULL, len),
			  "vbn_message"))
			return false;
		/* It was copied: what happens now must not matter. */
		memset(data, 0xee, sizeof(data));
	}
	return true;
}

static void run_sizes(struct test *t)
{
	struct letters *l = t_alloc(t, sizeof(*l));

	l->t = t;
	vbn_message_handler(t->ctx, 3, letter, l);
	if (post_letters(t, 0, NSIZES))
		t_count(t, &l->count, NSIZES, "messages");
	t_barrier(t);
}

static void run_flood(struct test *t)
{
	struct letters *l = t_alloc(t, sizeof(*l));

	l->t = t;
	vbn_message_handler(t->ctx, 3, letter, l);
	if (post_letters(t, 0, 5000))
		t_count(t, &l->count, 5000, "messages");
	t_barrier(t);
	t_check(t, l->count == 5000, "%d messages, not 5000", l->count);
}

static void run_message_late(struct test *t)
{
	struct letters *l = t_alloc(t, sizeof(*l));

	l->t = t;
	if (!post_letters(t, 0, 5))
		return;
	t_drive(t, 100);
	vbn_message_handler(t->ctx, 3, letter, l);
	t_count(t, &l->count, 5, "messages that came before the handler");
	t_barrier(t);
}

/*
 * Nobody listens on the channel: the sender is stopped by -EAGAIN, and other
 * traffic that needs no credit goes on.
 */
static void run_no_listener(struct test *t)
{
	struct letters *l = t_alloc(t, sizeof(*l));
	struct buffer *local = t_buffer(t, POOL, 64);
	struct buffer *target = t_buffer(t, POOL, 64);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	struct vbn_rkey rkey;
	double until = now() + 1.5;
	int taken = 0, rc = 0;

	if (!local || !target || !t_exchange_rkey(t, &target->rkey, &rkey))
		return;
	while (now() < until && taken < 1000000) {
		uint8_t data[VBN_MESSAGE_MAX];
		size_t len = sizes[(size_t)taken % NSIZES];

		fill(data, len, (unsigned)taken);
		rc = vbn_message(t->ep, 3, data, len);
		if (rc == 0)
			taken++;
		else if (rc == -EAGAIN)
			vbn_ctx_wait(t->ctx, 5);
		else
			break;
	}
	if (!t_is(t, rc, -EAGAIN, "messages that nobody takes"))
		return;
	fill(local->data, 64, 9);
	if (!t_ok(t,
		  put((struct post){t->ep, op, &rkey, 0, 0}, local->data, 64),
		  "vbn_put") ||
	    !t_wait(t, op, "put beside it") || !t_flush(t) || !t_barrier(t) ||
	    !t_pattern(t, target->data, 64, 9, "put"))
		return;
	l->t = t;
	vbn_message_handler(t->ctx, 3, letter, l);
	if (!t_exchange(t, &taken, &taken, sizeof(taken)))
		return;
	t_count(t, &l->count, taken, "messages after the handler was set");
	t_barrier(t);
}

static const struct test_case cases[] = {
	{"notify/channels-and-values", run_channels, 0, 0, 0},
	{"notify/before-the-handler", run_late_handler, 0, 0, 0},
	{"notify/handler-removed", run_handler_removed, 0, 0, 0},
	{"message/sizes", run_sizes, 0, 0, 0},
	{"message/flood", run_flood, 0, 0, 0},
	{"message/before-the-handler", run_message_late, 0, 0, 0},
	{"message/no-listener", run_no_listener, 0, 0, 0},
};

const struct cases message_cases = {cases, sizeof(cases) / sizeof(cases[0])};
