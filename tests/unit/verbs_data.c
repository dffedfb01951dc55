/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Everything the verbs provider does, over devices of every kind: without
 * inline data or atomics, with builders, InfiniBand, tiny, with payload that
 * becomes visible as late as may be, and with requests that are carried out in
 * random order across queue pairs. The device counts what must not happen.
 */
#include "cunit_run.h"
#include "fake_rig.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

/* ---- kinds of devices ---- */

static void no_inline(struct fake_config *c)
{
	c->max_inline = 0;
	c->inline_rule = FAKE_INLINE_LESS;
}

static void no_inline_refused(struct fake_config *c)
{
	c->max_inline = 0;
}

static void little_inline(struct fake_config *c)
{
	c->max_inline = 60;
	c->inline_rule = FAKE_INLINE_LESS;
}

static void little_inline_refused(struct fake_config *c)
{
	c->max_inline = 28;
}

static void much_inline(struct fake_config *c)
{
	c->max_inline = 1000;
	c->inline_rule = FAKE_INLINE_MAX;
}

static void no_atomics(struct fake_config *c)
{
	c->attr.atomic_cap = IBV_ATOMIC_NONE;
}

static void builders(struct fake_config *c)
{
	c->builders = true;
	c->max_inline = 220;
}

static void late_data(struct fake_config *c)
{
	c->late_data = true;
}

static void infiniband(struct fake_config *c)
{
	struct fake_port *port = &c->ports[0];

	port->link_layer = IBV_LINK_LAYER_INFINIBAND;
	port->lid = 17;
	port->ngids = 1;
	port->gids[0].type = IBV_GID_TYPE_IB;
	port->max_msg_sz = 1u << 30;
	c->attr.vendor_id = 0x2c9;
}

static void infiniband_routed(struct fake_config *c)
{
	infiniband(c);
	c->ports[0].grh_required = true;
	c->ports[0].lid = 0;
}

static void small_mtu(struct fake_config *c)
{
	c->ports[0].active_mtu = IBV_MTU_1024;
}

static void tiny(struct fake_config *c)
{
	c->attr.max_qp_wr = 64;
	c->attr.max_cqe = 512;
	c->attr.max_srq_wr = 512;
	c->attr.max_qp_rd_atom = 1;
	c->attr.max_qp_init_rd_atom = 1;
	c->attr.max_sge = 2;
	c->attr.max_srq_sge = 1;
	c->ports[0].max_msg_sz = 8192;
}

static const struct {
	const char *name;
	void (*tweak)(struct fake_config *c);
} kinds[] = {
	{"as Soft-RoCE", NULL},
	{"no inline data", no_inline},
	{"inline data refused", no_inline_refused},
	{"little inline data", little_inline},
	{"more is refused", little_inline_refused},
	{"much inline data", much_inline},
	{"no atomics", no_atomics},
	{"builders", builders},
	{"late data", late_data},
	{"InfiniBand", infiniband},
	{"InfiniBand, routed", infiniband_routed},
	{"MTU 1024", small_mtu},
	{"tiny", tiny},
};
#define NKINDS (sizeof(kinds) / sizeof(kinds[0]))

static void on_each(void (*test)(struct rig *rig))
{
	for (size_t i = 0; i < NKINDS; i++) {
		unsigned failures = CU_get_number_of_failures();
		struct rig rig;

		rig_open(&rig, kinds[i].tweak);
		test(&rig);
		rig_close(&rig);
		if (CU_get_number_of_failures() != failures)
			fprintf(stderr, "over a device: %s\n", kinds[i].name);
	}
}

static uint32_t random_number(void)
{
	static uint64_t state = 88172645463325252u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 11);
}

/* Carry out a few requests of whatever queue pair. */
static void step_any(void)
{
	uint32_t qpn[RIG_QPS];
	unsigned n = fake_qps(qpn, RIG_QPS);

	fake_step_qp(qpn[random_number() % n], random_number() % 4);
}

static int wait_stepping(struct rig *rig, struct vbn_op *op)
{
	for (int i = 0; i < 100000 && op->status == -EINPROGRESS; i++) {
		step_any();
		bench_progress(&rig->b);
	}
	return op->status;
}

/* ---- data of all sizes ---- */

static void sizes_on(struct rig *rig)
{
	static const size_t sizes[] = {0,    1,	   7,	 8,    27,   28,
				       29,   59,   60,	 61,   220,  221,
				       256,  257,  512,	 513,  1000, 1001,
				       4095, 4096, 4097, 8192, 65000};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t len = sizes[i];
		uint8_t *dst = rig->dst.mem.addr;
		struct vbn_op op;

		if (len > rig->b.caps.max_piece)
			continue;
		region_fill(&rig->src, len, (unsigned)i);
		memset(dst, 0x5a, len + 8);
		mock_op_init(&op, NULL, NULL);
		CHECK(!side_put(&rig->b, &rig->y, &op, &rig->src, len,
				&rig->dst, false, 0, false));
		CU_ASSERT_EQUAL(rig_wait(rig, &op), 0);
		CU_ASSERT(region_same(&rig->dst, len, (unsigned)i));
		CU_ASSERT_EQUAL(dst[len], 0x5a);
		if (!len)
			continue;
		memset(rig->src.mem.addr, 0, len);
		mock_op_init(&op, NULL, NULL);
		CHECK(!side_get(&rig->b, &rig->x, &op, &rig->src, len,
				&rig->dst));
		CU_ASSERT_EQUAL(rig_wait(rig, &op), 0);
		CU_ASSERT(region_same(&rig->src, len, (unsigned)i));
	}
}

static void test_sizes(void)
{
	on_each(sizes_on);
}

/* ---- atomics ---- */

static void atomics_on(struct rig *rig)
{
	bool none = fake_device(0)->attr.atomic_cap == IBV_ATOMIC_NONE;
	uint64_t *word = rig->dst.mem.addr, before = 1;
	struct atomic_args args = {.operand = 5,
				   .result = &before,
				   .remote = (uintptr_t)word,
				   .key = &rig->dst.announce};
	struct vbn_op op;
	int err;

	*word = 40;
	mock_op_init(&op, NULL, NULL);
	err = rig->b.ops->atomic(rig->x.ep.conn, &op, &args);
	CU_ASSERT_EQUAL(err, none ? -EOPNOTSUPP : 0);
	if (err)
		return;
	CU_ASSERT_EQUAL(rig_wait(rig, &op), 0);
	CU_ASSERT(before == 40 && *word == 45);
	args.compare_swap = true;
	args.compare = 44;
	args.operand = 99;
	mock_op_init(&op, NULL, NULL);
	CHECK(!rig->b.ops->atomic(rig->x.ep.conn, &op, &args));
	CU_ASSERT_EQUAL(rig_wait(rig, &op), 0);
	CU_ASSERT(before == 45 && *word == 45);
	args.compare = 45;
	args.result = NULL;
	mock_op_init(&op, NULL, NULL);
	CHECK(!rig->b.ops->atomic(rig->y.ep.conn, &op, &args));
	CU_ASSERT_EQUAL(rig_wait(rig, &op), 0);
	CU_ASSERT_EQUAL(*word, 99);
}

static void test_atomics(void)
{
	on_each(atomics_on);
}

/* ---- notifies behind their data ---- */

struct expect {
	struct rig *rig;
	unsigned next, wrong;
	size_t len;
};

static void check_arrival(struct vbn_ep *ep, uint32_t imm)
{
	struct expect *e = ep->arg;

	if ((imm & VBN_NOTIFY_MAX) != e->next ||
	    !region_same(&e->rig->dst, e->len, e->next))
		e->wrong++;
	e->next++;
}

/* Three chained puts, the data last, then the notify with or without data. */
static void one_round(struct rig *rig, unsigned round, size_t len,
		      struct vbn_op *ops)
{
	region_fill(&rig->src, len, round);
	for (int i = 0; i < 4; i++)
		mock_op_init(&ops[i], NULL, NULL);
	for (int i = 0; i < 3; i++)
		CHECK(!side_put(&rig->b, &rig->x, &ops[i], &rig->src,
				i < 2 ? 100 : len, &rig->dst, false, 0, true));
	CHECK(!side_put(&rig->b, &rig->x, &ops[3], &rig->src,
			round % 2 ? len : 0, &rig->dst, true, round, false));
}

static void notify_on(struct rig *rig)
{
	struct expect e = {.rig = rig};
	struct vbn_op ops[4];

	rig->y.ep.on_notify = check_arrival;
	rig->y.ep.arg = &e;
	fake_defer(true);
	for (unsigned round = 0; round < 40; round++) {
		e.len = 1 + (size_t)round * 190;
		one_round(rig, round, e.len, ops);
		for (int i = 0; i < 4; i++)
			CU_ASSERT_EQUAL(wait_stepping(rig, &ops[i]), 0);
		for (int i = 0; i < 100 && e.next == round; i++) {
			step_any();
			bench_progress(&rig->b);
		}
	}
	fake_defer(false);
	CU_ASSERT(e.next == 40 && e.wrong == 0);
	CU_ASSERT_EQUAL(rig->x.ep.notifies, 0);
}

static void test_notify(void)
{
	on_each(notify_on);
}

/* ---- messages ---- */

struct inbox {
	uint64_t next;
	unsigned wrong;
};

static void check_message(struct vbn_ep *ep,
			  const struct message_header *header, const void *data,
			  size_t len)
{
	struct inbox *in = ep->arg;
	const uint8_t *p = data;

	if (header->u64[0] != in->next || header->u32 != len ||
	    header->kind != 3 || header->u64[2] != ~in->next)
		in->wrong++;
	for (size_t i = 0; i < len; i++)
		if (p[i] != (uint8_t)(header->u64[0] + i))
			in->wrong++;
	in->next++;
}

static void check_message_notify(struct vbn_ep *ep, uint32_t imm)
{
	struct inbox *in = ep->arg;

	if ((imm & VBN_NOTIFY_MAX) != in->next)
		in->wrong++;
	in->next++;
}

static int send_one(struct rig *rig, uint64_t n, size_t len)
{
	struct message_header header = {
		.kind = 3, .u32 = (uint32_t)len, .u64 = {n, 0, ~n}};
	uint8_t data[8192];

	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(n + i);
	return rig->b.ops->message(rig->x.ep.conn, &header, data, len);
}

/* One more of either, as far as there is credit. True: it was taken. */
static bool send_either(struct rig *rig, uint64_t n, struct vbn_op *op)
{
	static const size_t lens[] = {0,  1,   19,  20,	 21,   51,  52,
				      53, 200, 224, 225, 2048, 4000};
	size_t len = lens[n % (sizeof(lens) / sizeof(lens[0]))];
	int err;

	if (n % 5 != 4) {
		err = send_one(rig, n, len);
		CHECK(!err || err == -EAGAIN);
		return !err;
	}
	if (op->status == -EINPROGRESS)
		return false;
	mock_op_init(op, NULL, NULL);
	CHECK(!side_put(&rig->b, &rig->x, op, NULL, 0, NULL, true, (uint32_t)n,
			n % 2));
	return true;
}

static void messages_on(struct rig *rig)
{
	struct vbn_op op = {.status = 0};
	struct inbox in = {0};
	uint64_t sent = 0;

	rig->y.ep.on_message = check_message;
	rig->y.ep.on_notify = check_message_notify;
	rig->y.ep.arg = &in;
	fake_defer(true);
	for (int i = 0; i < 200000 && in.next < 600; i++) {
		if (sent < 600 && sent - in.next < rig->b.caps.credits &&
		    send_either(rig, sent, &op))
			sent++;
		step_any();
		bench_progress(&rig->b);
	}
	CU_ASSERT_EQUAL(in.next, 600);
	CU_ASSERT_EQUAL(in.wrong, 0);
	CU_ASSERT_EQUAL(wait_stepping(rig, &op), 0);
	fake_defer(false);
	CU_ASSERT_EQUAL(fake_count().rnr, 0);
}

static void test_messages(void)
{
	on_each(messages_on);
}

/*
 * All credit used while the receiver does nothing: notifies are taken for all
 * of it, messages as far as there is room. Nothing is lost, none finds the
 * receiver without a receive.
 */
static unsigned fill_window(struct rig *rig, uint64_t first, unsigned n,
			    struct vbn_op *ops)
{
	unsigned messages = 0, i;

	for (i = 0; i < n; i++) {
		int err = i % 2 ? 0 : send_one(rig, first + i, 4000);

		CHECK(!err || err == -EAGAIN);
		messages += !err && i % 2 == 0;
		if (err || i % 2) {
			mock_op_init(&ops[i], NULL, NULL);
			CHECK(!side_put(&rig->b, &rig->x, &ops[i], NULL, 0,
					NULL, true, (uint32_t)(first + i),
					false));
		} else {
			ops[i].status = 0;
		}
		mock_progress(&rig->b.a.core, rig->b.ops, rig->b.a.pctx);
	}
	return messages;
}

static void idle_on(struct rig *rig)
{
	unsigned n = rig->b.caps.credits, messages = 0;
	struct vbn_op ops[256];
	struct inbox in = {0};

	CHECK(n <= 256);
	rig->y.ep.on_message = check_message;
	rig->y.ep.on_notify = check_message_notify;
	rig->y.ep.arg = &in;
	for (unsigned round = 0; round < 20; round++) {
		messages += fill_window(rig, in.next, n, ops);
		for (int i = 0; i < 1000 && in.next < (round + 1) * n; i++)
			bench_progress(&rig->b);
		CU_ASSERT_EQUAL(in.next, (round + 1) * n);
		for (unsigned i = 0; i < n; i++)
			CU_ASSERT_EQUAL(rig_wait(rig, &ops[i]), 0);
	}
	CU_ASSERT(in.wrong == 0 && messages > 0);
	CU_ASSERT_EQUAL(fake_count().rnr, 0);
}

static void test_idle_receiver(void)
{
	on_each(idle_on);
}

/* ---- what was copied out may be used again ---- */

static void reuse_on(struct rig *rig)
{
	uint64_t words[3] = {0x1111, 0x2222, 0x3333};
	uint64_t *dst = rig->dst.mem.addr;
	struct put_args args = {.len = 8, .key = &rig->dst.announce};
	struct vbn_op ops[3];

	if (rig->b.caps.inline_max < 8)
		return;
	fake_defer(true);
	for (int i = 0; i < 3; i++) {
		mock_op_init(&ops[i], NULL, NULL);
		args.local = &words[i];
		args.remote = (uintptr_t)&dst[i];
		args.more = i < 2;
		CHECK(!rig->b.ops->put(rig->x.ep.conn, &ops[i], &args));
		words[i] = 0xdead; /* before any doorbell */
	}
	for (int i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(wait_stepping(rig, &ops[i]), 0);
	fake_defer(false);
	CU_ASSERT(dst[0] == 0x1111 && dst[1] == 0x2222 && dst[2] == 0x3333);
}

static void test_reuse(void)
{
	on_each(reuse_on);
}

/* ---- many in flight ---- */

static void count_done(struct vbn_op *op)
{
	++*(unsigned *)op->arg;
}

/* Queues fill up and give -EAGAIN; none overruns, none is lost. */
static void pressure_on(struct rig *rig)
{
	static struct vbn_op ops[2000];
	unsigned done = 0, again = 0, posted = 0;
	struct vbn_op flush;
	int err;

	fake_defer(true);
	while (posted < 2000) {
		mock_op_init(&ops[posted], count_done, &done);
		err = rig_post(rig, &ops[posted], posted % 2 ? 2 : 4,
			       posted % 7 != 0);
		CHECK(!err || err == -EAGAIN);
		posted += !err;
		if (!err)
			continue;
		again++;
		step_any();
		bench_progress(&rig->b);
	}
	mock_op_init(&flush, NULL, NULL);
	while ((err = rig_post(rig, &flush, 4, false)) == -EAGAIN) {
		step_any();
		bench_progress(&rig->b);
	}
	CU_ASSERT(!err && !wait_stepping(rig, &flush));
	fake_defer(false);
	CU_ASSERT(done == 2000 && again > 0);
}

static void test_pressure(void)
{
	on_each(pressure_on);
}

/* ---- sleeping ---- */

static void sleep_on(struct rig *rig)
{
	struct pollfd pfd = {.fd = rig->b.ops->fd(rig->b.b.pctx),
			     .events = POLLIN};

	for (unsigned i = 0; i < 20; i++) {
		struct vbn_op op;

		while (rig->b.ops->arm(rig->b.b.pctx) == -EAGAIN)
			bench_progress(&rig->b);
		CU_ASSERT_EQUAL(poll(&pfd, 1, 0), 0);
		mock_op_init(&op, NULL, NULL);
		CHECK(!side_put(&rig->b, &rig->x, &op, NULL, 0, NULL, true, i,
				false));
		CU_ASSERT_EQUAL(poll(&pfd, 1, 0), 1);
		CU_ASSERT_EQUAL(rig_wait(rig, &op), 0);
		for (int j = 0; j < 100 && rig->y.ep.notifies == i; j++)
			bench_progress(&rig->b);
		CU_ASSERT_EQUAL(rig->y.ep.notifies, i + 1);
	}
}

static void test_sleep(void)
{
	on_each(sleep_on);
}

/* ---- doorbells ---- */

static void test_doorbells(void)
{
	struct vbn_op ops[16];
	struct rig rig;
	uint64_t before;

	rig_open(&rig, NULL);
	before = fake_count().doorbells;
	for (int i = 0; i < 16; i++) {
		mock_op_init(&ops[i], NULL, NULL);
		CHECK(!rig_post(&rig, &ops[i], 0, i != 15));
	}
	CU_ASSERT_EQUAL(fake_count().doorbells, before + 1);
	CU_ASSERT(fake_count().signalled <= 1);
	for (int i = 0; i < 16; i++)
		CU_ASSERT_EQUAL(rig_wait(&rig, &ops[i]), 0);
	rig_close(&rig);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"sizes", test_sizes},
		{"atomics", test_atomics},
		{"notify behind data", test_notify},
		{"messages", test_messages},
		{"idle receiver", test_idle_receiver},
		{"copied data", test_reuse},
		{"back-pressure", test_pressure},
		{"sleeping", test_sleep},
		{"doorbells", test_doorbells},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "data over devices of every kind", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
