/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that travel as their data alone, among those that cannot: both ends
 * send at random, lengths and headers on either side of every limit, with
 * inline data and without. All arrive as they were sent, in order, and rings
 * never stop for want of room that the peer has kept.
 */
#include "cunit_run.h"
#include "fake_rig.h"

#include "providers/verbs/mailbox.h"

#include <errno.h>
#include <string.h>

#define MESSAGES 3000u
#define LONGEST	 4000u

static void no_inline(struct fake_config *config)
{
	config->max_inline = 0;
}

static void little_inline(struct fake_config *config)
{
	config->max_inline = 60;
	config->inline_rule = FAKE_INLINE_LESS;
}

static void much_inline(struct fake_config *config)
{
	config->max_inline = 1024;
}

static void builders(struct fake_config *config)
{
	config->builders = true;
}

static void (*const tweaks[])(struct fake_config *) = {
	NULL, no_inline, little_inline, much_inline, builders};
#define NTWEAKS (sizeof(tweaks) / sizeof(tweaks[0]))

/* What one end sends and has got. */
struct flow {
	unsigned seed, sent, got, wrong;
};

/* The @n-th message of a flow. */
static size_t make(unsigned seed, unsigned n, struct message_header *header,
		   uint8_t *data)
{
	static const size_t lens[] = {1,   8,	59,  60,  61,  64,	65,
				      128, 255, 256, 511, 512, LONGEST, 0};
	uint32_t r = (n + seed) * 2654435761u;
	size_t len = lens[(r >> 8) % (sizeof(lens) / sizeof(lens[0]))];

	*header = (struct message_header){
		.kind = r >> 16 & 0xf,
		.u32 = (r >> 20 & 7) == 7 ? 16 + n % 300 : r >> 24 & 0xf,
		.u64 = {(r >> 13 & 7) == 7 ? n + 1 : 0},
	};
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(n + seed + i * 7);
	return len;
}

static void on_message(struct vbn_ep *ep, const struct message_header *header,
		       const void *data, size_t len)
{
	struct flow *flow = ep->arg;
	struct message_header want;
	uint8_t bytes[LONGEST];
	size_t n = make(flow->seed, flow->got++, &want, bytes);

	if (len != n || (n && memcmp(data, bytes, n) != 0) ||
	    memcmp(header, &want, sizeof(want)) != 0)
		flow->wrong++;
}

/* One more of @flow, if there is credit. True: it was taken. */
static bool send_one(struct rig *rig, struct side *from, struct flow *flow)
{
	struct message_header header;
	uint8_t data[LONGEST];
	size_t len;
	int err;

	if (flow->sent == MESSAGES ||
	    flow->sent - flow->got == rig->b.caps.credits)
		return false;
	len = make(flow->seed, flow->sent, &header, data);
	err = rig->b.ops->message(from->ep.conn, &header, data, len);
	CHECK(!err || err == -EAGAIN);
	memset(data, 0xee, sizeof(data)); /* it was copied */
	flow->sent += !err;
	return !err;
}

/* @ratio: messages of the one end for each of the other's. */
static void exchange(void (*tweak)(struct fake_config *), unsigned ratio)
{
	struct flow there = {.seed = 5}, back = {.seed = 1000};
	struct rig rig;

	rig_open(&rig, tweak);
	rig.x.ep.on_message = rig.y.ep.on_message = on_message;
	rig.y.ep.arg = &there;
	rig.x.ep.arg = &back;
	fake_defer(true);
	for (unsigned i = 0; i < 200 * MESSAGES && there.got < MESSAGES; i++) {
		send_one(&rig, &rig.x, &there);
		if (i % ratio == 0)
			send_one(&rig, &rig.y, &back);
		fake_step(1 + i % 3);
		bench_progress(&rig.b);
	}
	fake_defer(false);
	for (unsigned i = 0; i < 1000 && back.got < back.sent; i++)
		bench_progress(&rig.b);
	CU_ASSERT_EQUAL(there.got, MESSAGES);
	CU_ASSERT_EQUAL(back.got, back.sent);
	CU_ASSERT(back.got > MESSAGES / (2 * ratio));
	CU_ASSERT(!there.wrong && !back.wrong);
	CU_ASSERT_EQUAL(fake_count().rnr, 0);
	rig_close(&rig);
}

static void test_exchange(void)
{
	for (size_t i = 0; i < NTWEAKS; i++) {
		exchange(tweaks[i], 1);
		exchange(tweaks[i], 7);
	}
}

/* A full window of 128 bytes each fits in the first ring: 16 units. */
static void test_room(void)
{
	struct message_header header = {.kind = 3, .u32 = 0};
	uint8_t data[2 * MAILBOX_UNIT] = {0};
	struct rig rig;

	rig_open(&rig, NULL);
	for (unsigned i = 0; i < rig.b.caps.credits; i++)
		CU_ASSERT_EQUAL(rig.b.ops->message(rig.x.ep.conn, &header, data,
						   sizeof(data)),
				0);
	header.u64[1] = 1;
	CU_ASSERT_EQUAL(
		rig.b.ops->message(rig.x.ep.conn, &header, data, sizeof(data)),
		-EAGAIN);
	rig_close(&rig);
}

static void count_message(struct vbn_ep *ep,
			  const struct message_header *header, const void *data,
			  size_t len)
{
	(void)header;
	(void)data;
	(void)len;
	++*(unsigned *)ep->arg;
}

/* Sends, and progresses until it has arrived. False: there is no room. */
static bool deliver(struct rig *rig, struct side *from, size_t len)
{
	struct side *to = from == &rig->x ? &rig->y : &rig->x;
	struct message_header header = {.kind = 3};
	uint8_t data[LONGEST] = {0};
	unsigned got = 0;
	int err = -EAGAIN;

	to->ep.on_message = count_message;
	to->ep.arg = &got;
	for (int i = 0; i < 100 && !got; i++) {
		if (err)
			err = rig->b.ops->message(from->ep.conn, &header, data,
						  len);
		bench_progress(&rig->b);
	}
	return got;
}

/*
 * Five long messages free more than the notice of a short one has room for.
 * The rest is not lost: in the end all of the ring has been freed many times.
 */
static void test_units(void)
{
	struct rig rig;
	unsigned ok = 0;

	rig_open(&rig, NULL);
	for (unsigned i = 0; i < 240; i++)
		ok += deliver(&rig, i % 6 == 5 ? &rig.y : &rig.x,
			      i % 6 == 5 ? 8 : LONGEST);
	CU_ASSERT_EQUAL(ok, 240);
	rig_close(&rig);
}

int main(void)
{
	static CU_TestInfo tests[] = {
		{"both ways at random", test_exchange},
		{"room for the data alone", test_room},
		{"more units than a notice has room for", test_units},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "messages", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
