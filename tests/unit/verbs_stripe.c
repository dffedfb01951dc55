/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections of several queue pairs, of one device and by as many rails. Long
 * puts and gets are cut over them, and whatever the order in which the queue
 * pairs are carried out, what follows a put is delivered when all of its data
 * has landed.
 */
#include "cunit_run.h"
#include "fake_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define QPS	"3"
#define STRIPES 3
#define LONG	(RIG_BYTES - 8)
#define OPS	4

static uint32_t random_number(void)
{
	static uint64_t state = 0x2545f4914f6cdd1du;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 11);
}

static void up(struct rig *rig, void (*tweak)(struct fake_config *config))
{
	if (rig_devices == 1)
		setenv("VBN_IB_QPS", QPS, 1);
	rig_open(rig, tweak);
	unsetenv("VBN_IB_QPS");
	CU_ASSERT_EQUAL_FATAL(rig->qps, STRIPES);
}

static int put(struct rig *rig, struct vbn_op *op, size_t at, size_t len,
	       bool more)
{
	struct put_args args = {
		.local = (char *)rig->src.mem.addr + at,
		.len = len,
		.mem = &rig->src.mem,
		.mem_handle = rig->src.handle,
		.remote = (uintptr_t)rig->dst.mem.addr + at,
		.key = &rig->dst.announce,
		.more = more,
	};

	mock_op_init(op, NULL, NULL);
	return rig->b.ops->put(rig->x.ep.conn, op, &args);
}

static int notify(struct rig *rig, struct vbn_op *op, size_t len)
{
	struct put_args args = {
		.local = rig->src.mem.addr,
		.len = len,
		.mem = &rig->src.mem,
		.mem_handle = rig->src.handle,
		.remote = (uintptr_t)rig->dst.mem.addr,
		.key = &rig->dst.announce,
		.notify = true,
		.imm = 1u << 28,
	};

	mock_op_init(op, NULL, NULL);
	return rig->b.ops->put(rig->x.ep.conn, op, &args);
}

/* ---- arrivals ---- */

struct watch {
	struct rig *rig;
	unsigned seed, came, early;
};

static void arrived(struct watch *watch)
{
	watch->came++;
	if (!region_same(&watch->rig->dst, LONG, watch->seed))
		watch->early++;
}

static void on_notify(struct vbn_ep *ep, uint32_t imm)
{
	(void)imm;
	arrived(ep->arg);
}

static void on_message(struct vbn_ep *ep, const struct message_header *header,
		       const void *data, size_t len)
{
	(void)header;
	(void)data;
	(void)len;
	arrived(ep->arg);
}

/* One of the queue pairs at a time, some of its requests; both ends. */
static void step(struct rig *rig)
{
	uint32_t qpn[RIG_QPS];
	unsigned n = fake_qps(qpn, RIG_QPS);

	fake_step_qp(qpn[random_number() % n], 1 + random_number() % 3);
	if (random_number() % 2)
		bench_progress(&rig->b);
}

/*
 * How the data of a round goes, and what follows it. Returns 0, or what the
 * provider said to the first that it did not take.
 */
static int post_round(struct rig *rig, unsigned kind, struct vbn_op *ops)
{
	struct message_header header = {.kind = 5, .u32 = 77};
	int err;

	switch (kind) {
	case 0: /* at once */
		return notify(rig, &ops[0], LONG);
	case 1: /* in two parts, then a notify of nothing */
		err = put(rig, &ops[0], 0, LONG / 2, true);
		if (!err)
			err = put(rig, &ops[1], LONG / 2, LONG - LONG / 2,
				  true);
		return err ? err : notify(rig, &ops[2], 0);
	case 2: /* then a message */
		err = put(rig, &ops[0], 0, LONG, false);
		return err ? err
			   : rig->b.ops->message(rig->x.ep.conn, &header,
						 "data", 4);
	default: /* short ones behind it, then a notify with data */
		err = put(rig, &ops[0], 0, LONG, true);
		if (!err)
			err = put(rig, &ops[1], 8, 100, true);
		return err ? err : notify(rig, &ops[2], 64);
	}
}

static void orders(void (*tweak)(struct fake_config *config))
{
	struct watch watch = {0};
	struct rig rig;

	up(&rig, tweak);
	watch.rig = &rig;
	rig.y.ep.on_notify = on_notify;
	rig.y.ep.on_message = on_message;
	rig.y.ep.arg = &watch;
	fake_defer(true);
	for (unsigned round = 0; round < 80; round++) {
		struct vbn_op ops[OPS] = {{.status = 0}};

		watch.seed = round;
		region_fill(&rig.src, LONG, round);
		CU_ASSERT_EQUAL_FATAL(post_round(&rig, round % 4, ops), 0);
		for (int i = 0; i < 2000 && watch.came == round; i++)
			step(&rig);
		CU_ASSERT_EQUAL_FATAL(watch.came, round + 1);
		for (int i = 0; i < 2000; i++)
			step(&rig);
		for (int i = 0; i < OPS; i++)
			CU_ASSERT_EQUAL(ops[i].status, 0);
	}
	CU_ASSERT(watch.came == 80 && watch.early == 0);
	fake_defer(false);
	CU_ASSERT_EQUAL(fake_count().rnr, 0);
	rig_close(&rig);
}

static void late_data(struct fake_config *config)
{
	config->late_data = true;
}

static void builders(struct fake_config *config)
{
	config->builders = true;
}

static void test_orders(void)
{
	orders(NULL);
	orders(late_data);
	orders(builders);
}

/* It is cut at all: each queue pair has a share. */
static void test_shares(void)
{
	uint32_t qpn[RIG_QPS];
	struct vbn_op op;
	struct rig rig;

	up(&rig, NULL);
	fake_qps(qpn, RIG_QPS);
	fake_defer(true);
	CHECK(!put(&rig, &op, 0, LONG, false));
	for (unsigned i = 0; i < STRIPES; i++)
		CU_ASSERT(fake_qp_pending(qpn[i]) > 0);
	fake_step_qp(qpn[0], 100);
	fake_step_qp(qpn[2], 100);
	bench_progress(&rig.b);
	CU_ASSERT_EQUAL(op.status, -EINPROGRESS);
	fake_step_qp(qpn[1], 100);
	fake_defer(false);
	CU_ASSERT_EQUAL(rig_wait(&rig, &op), 0);
	rig_close(&rig);
}

/* A flush is over when all shares of the puts before it have landed. */
static void test_flush(void)
{
	struct rig rig;

	up(&rig, NULL);
	fake_defer(true);
	for (unsigned round = 0; round < 30; round++) {
		struct vbn_op op, flush;
		int err;

		region_fill(&rig.src, LONG, round + 1000);
		CHECK(!put(&rig, &op, 0, LONG, round % 2));
		mock_op_init(&flush, NULL, NULL);
		err = rig.b.ops->flush(rig.x.ep.conn, &flush);
		CU_ASSERT_EQUAL_FATAL(err, 0);
		for (int i = 0; i < 2000 && flush.status == -EINPROGRESS; i++)
			step(&rig);
		CU_ASSERT_EQUAL(flush.status, 0);
		CU_ASSERT(region_same(&rig.dst, LONG, round + 1000));
		for (int i = 0; i < 2000 && op.status == -EINPROGRESS; i++)
			step(&rig);
		CU_ASSERT_EQUAL(op.status, 0);
	}
	fake_defer(false);
	rig_close(&rig);
}

static void test_get(void)
{
	struct rig rig;

	up(&rig, NULL);
	fake_defer(true);
	for (unsigned round = 0; round < 20; round++) {
		struct get_args args = {.local = rig.src.mem.addr,
					.len = LONG,
					.mem = &rig.src.mem,
					.mem_handle = rig.src.handle,
					.remote = (uintptr_t)rig.dst.mem.addr,
					.key = &rig.dst.announce};
		struct vbn_op op;

		region_fill(&rig.dst, LONG, round + 500);
		memset(rig.src.mem.addr, 0, LONG);
		mock_op_init(&op, NULL, NULL);
		CHECK(!rig.b.ops->get(rig.x.ep.conn, &op, &args));
		for (int i = 0; i < 2000 && op.status == -EINPROGRESS; i++)
			step(&rig);
		CU_ASSERT_EQUAL(op.status, 0);
		CU_ASSERT(region_same(&rig.src, LONG, round + 500));
	}
	fake_defer(false);
	rig_close(&rig);
}

/* ---- failures ---- */

static void count_done(struct vbn_op *op)
{
	++*(unsigned *)op->arg;
}

/* Long puts until one is not taken; each that was ends once. */
static void run_into(struct rig *rig, bool deferred)
{
	struct vbn_op ops[12];
	unsigned taken = 0, done = 0;

	fake_defer(deferred);
	for (unsigned i = 0; i < 12 && rig->x.ep.conn; i++) {
		int err = i % 3 == 2 ? notify(rig, &ops[i], LONG)
				     : put(rig, &ops[i], 0, i % 3 ? LONG : 64,
					   true);

		if (err)
			break;
		ops[i].done = count_done;
		ops[i].arg = &done;
		taken++;
		if (deferred)
			step(rig);
	}
	fake_defer(false);
	for (int i = 0; i < 200; i++)
		bench_progress(&rig->b);
	rig_disconnect(rig);
	CU_ASSERT_EQUAL(done, taken);
}

/* The k-th request fails, by any queue pair, when posted or carried out. */
static void test_failures(void)
{
	for (unsigned k = 1; k <= 24; k++)
		for (unsigned which = 0; which <= STRIPES; which++) {
			uint32_t qpn[RIG_QPS];
			struct rig rig;

			up(&rig, k % 5 == 0 ? builders : NULL);
			fake_qps(qpn, RIG_QPS);
			if (which < STRIPES)
				fake_fail_request(qpn[which], k,
						  IBV_WC_REM_OP_ERR, k % 2);
			else
				fake_fail(FAKE_POST_SEND, k, ENOMEM);
			run_into(&rig, k % 3 == 0);
			rig_close(&rig);
		}
}

/* Long puts, one of whose shares fails: the put does, with its status. */
static void test_share_fails(void)
{
	for (unsigned which = 0; which < STRIPES; which++) {
		uint32_t qpn[RIG_QPS];
		struct vbn_op ops[3];
		struct rig rig;

		up(&rig, NULL);
		fake_qps(qpn, RIG_QPS);
		fake_fail_request(qpn[which], 1, IBV_WC_REM_OP_ERR, false);
		for (int i = 0; i < 3; i++)
			CHECK(!put(&rig, &ops[i], 0, LONG, i < 2));
		CU_ASSERT(rig_wait(&rig, &ops[0]) < 0);
		CU_ASSERT_EQUAL(ops[0].wc, IBV_WC_REM_OP_ERR);
		CU_ASSERT(rig_wait(&rig, &ops[1]) < 0);
		CU_ASSERT(rig_wait(&rig, &ops[2]) < 0);
		for (int i = 0; i < 10; i++)
			bench_progress(&rig.b);
		CU_ASSERT_EQUAL(rig.x.ep.failures, 1);
		rig_close(&rig);
	}
}

/* The sides disagree on how many there are. */
static void test_disagree(void)
{
	struct conn_info info = {.rank = 1, .generation = 1};
	struct blob offer, answer;
	struct bench a, b;
	struct fake_config config;
	void *x, *y;

	fake_config_init(&config, 1);
	fake_device_add(&config);
	bench_open(&a, &provider_verbs);
	setenv("VBN_IB_QPS", QPS, 1);
	bench_open(&b, &provider_verbs);
	unsetenv("VBN_IB_QPS");
	CHECK(!a.ops->conn_create(a.a.pctx, &info, &b.a.address, &x, &offer));
	CU_ASSERT_EQUAL(b.ops->conn_accept(b.a.pctx, &info, &a.a.address,
					   &offer, &y, &answer),
			-EPROTO);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "VBN_IB_QPS"));
	a.ops->conn_close(x, -ECANCELED);
	bench_progress(&a);
	bench_progress(&b);
	bench_close(&a);
	bench_close(&b);
	CU_ASSERT_EQUAL(fake_reset(), 0);
}

static int many_devices(void)
{
	rig_devices = STRIPES;
	return 0;
}

static int one_device(void)
{
	rig_devices = 1;
	return 0;
}

int main(void)
{
	CU_TestInfo orders_[] = {
		{"each queue pair has a share", test_shares},
		{"what follows, in any order", test_orders},
		{"flush", test_flush},
		{"get", test_get},
		CU_TEST_INFO_NULL,
	};
	CU_TestInfo failures[] = {
		{"a share fails", test_share_fails},
		{"anything fails", test_failures},
		{"sides disagree", test_disagree},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "orders", .pTests = orders_},
		{.pName = "failures", .pTests = failures},
		{.pName = "orders by rails",
		 .pInitFunc = many_devices,
		 .pTests = orders_,
		 .pCleanupFunc = one_device},
		{.pName = "failures by rails",
		 .pInitFunc = many_devices,
		 .pTests = failures,
		 .pCleanupFunc = one_device},
		CU_SUITE_INFO_NULL,
	};

	setenv("VBN_LOG", "error", 0);
	return run_suites(suites);
}
