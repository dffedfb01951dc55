/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs provider when a device refuses or fails a request: at each
 * position of a chain, with each status, each order of flushing. The mock core
 * ends the program if an operation completes twice; each must complete once.
 */
#include "cunit_run.h"
#include "fake_rig.h"

#include <errno.h>
#include <string.h>

#define CHAIN 7

static const enum ibv_wc_status statuses[] = {
	IBV_WC_LOC_LEN_ERR,	IBV_WC_LOC_QP_OP_ERR,	  IBV_WC_LOC_PROT_ERR,
	IBV_WC_MW_BIND_ERR,	IBV_WC_BAD_RESP_ERR,	  IBV_WC_LOC_ACCESS_ERR,
	IBV_WC_REM_INV_REQ_ERR, IBV_WC_REM_ACCESS_ERR,	  IBV_WC_REM_OP_ERR,
	IBV_WC_RETRY_EXC_ERR,	IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_REM_ABORT_ERR,
	IBV_WC_FATAL_ERR,	IBV_WC_RESP_TIMEOUT_ERR,  IBV_WC_GENERAL_ERR,
};
#define NSTATUSES (sizeof(statuses) / sizeof(statuses[0]))

static void flush_signalled(struct fake_config *config)
{
	config->flush = FAKE_FLUSH_SIGNALLED;
}

static void flush_late(struct fake_config *config)
{
	config->flush = FAKE_FLUSH_LATE;
}

static void with_builders(struct fake_config *config)
{
	config->builders = true;
}

static void (*const tweaks[])(struct fake_config *) = {
	NULL, flush_signalled, flush_late, with_builders};
#define NTWEAKS (sizeof(tweaks) / sizeof(tweaks[0]))

static void progress_some(struct rig *rig)
{
	for (int i = 0; i < 20; i++)
		bench_progress(&rig->b);
}

/* The endpoint has been told once, with a line that names what failed. */
static void check_told(struct rig *rig)
{
	progress_some(rig);
	CU_ASSERT_EQUAL(rig->x.ep.failures, 1);
	CU_ASSERT_PTR_NULL(rig->x.ep.conn);
	CU_ASSERT_PTR_NOT_NULL(strstr(rig->x.ep.why, "rank 1"));
	CU_ASSERT_PTR_NOT_NULL(strstr(rig->x.ep.why, "fake1"));
}

/* Request @at of a chain fails with @status. All others are puts. */
static void one_status(struct rig *rig, unsigned at, enum ibv_wc_status status,
		       bool landed)
{
	struct vbn_op ops[CHAIN];

	rig_connect(rig);
	fake_fail_request(rig->xqp, at + 1, status, landed);
	for (unsigned i = 0; i < CHAIN; i++) {
		mock_op_init(&ops[i], NULL, NULL);
		CHECK(!rig_post(rig, &ops[i], 0, i + 1 < CHAIN));
	}
	for (unsigned i = 0; i < CHAIN; i++) {
		int got = rig_wait(rig, &ops[i]);

		if (i < at)
			CU_ASSERT_EQUAL(got, 0);
		if (i == at)
			CU_ASSERT(got < 0 && ops[i].wc == (uint32_t)status &&
				  ops[i].vendor == 0x100u + (uint32_t)status);
		if (i > at)
			CU_ASSERT_EQUAL(got, -ECONNRESET);
	}
	check_told(rig);
	rig_disconnect(rig);
}

static void test_each_status(void)
{
	for (size_t t = 0; t < NTWEAKS; t++) {
		struct rig rig;

		rig_open_bare(&rig, tweaks[t]);
		for (size_t s = 0; s < NSTATUSES; s++)
			for (unsigned at = 0; at < CHAIN; at++)
				one_status(&rig, at, statuses[s], s % 2);
		rig_close(&rig);
	}
}

/* The same among operations of every kind; what preceded may be unknown. */
static void one_mixed(struct rig *rig, unsigned at, unsigned shift)
{
	struct vbn_op ops[2 * RIG_KINDS];

	rig_connect(rig);
	fake_fail_request(rig->xqp, at + 1, IBV_WC_REM_OP_ERR, false);
	for (unsigned i = 0; i < 2 * RIG_KINDS; i++) {
		int err;

		mock_op_init(&ops[i], NULL, NULL);
		err = rig->x.ep.conn
			      ? rig_post(rig, &ops[i], (i + shift) % RIG_KINDS,
					 i % 3 != 2)
			      : -ECONNRESET;
		CU_ASSERT(!err || err == -ECONNRESET);
		if (err)
			ops[i].status = err;
	}
	for (unsigned i = 0; i < 2 * RIG_KINDS; i++)
		rig_wait(rig, &ops[i]);
	check_told(rig);
	rig_disconnect(rig);
}

static void test_mixed(void)
{
	for (size_t t = 0; t < NTWEAKS; t++) {
		struct rig rig;

		rig_open_bare(&rig, tweaks[t]);
		for (unsigned shift = 0; shift < RIG_KINDS; shift++)
			for (unsigned at = 0; at < 2 * (RIG_KINDS - 1); at++)
				one_mixed(&rig, at, shift);
		rig_close(&rig);
	}
}

/* ---- posting fails ---- */

/* The device takes k - 1 requests of the chain and refuses the k-th. */
static void one_refusal(struct rig *rig, unsigned k, int err)
{
	bool whole = fake_device(0)->builders; /* or nothing of it */
	struct vbn_op ops[CHAIN];

	rig_connect(rig);
	fake_fail(FAKE_POST_SEND, k, err);
	for (unsigned i = 0; i < CHAIN; i++) {
		mock_op_init(&ops[i], NULL, NULL);
		CHECK(!rig_post(rig, &ops[i], 0, i + 1 < CHAIN));
	}
	for (unsigned i = 0; i < CHAIN; i++) {
		int got = rig_wait(rig, &ops[i]);

		/* what went before may have been done: nobody knows */
		CU_ASSERT(i + 1 < k && !whole ? !got || got == -ECONNRESET
					      : got < 0);
	}
	check_told(rig);
	rig_disconnect(rig);
}

static void test_refusals(void)
{
	static const int errs[NTWEAKS] = {ENOMEM, EINVAL, EIO, ENOMEM};

	for (size_t t = 0; t < NTWEAKS; t++) {
		struct rig rig;

		rig_open_bare(&rig, tweaks[t]);
		for (unsigned k = 1; k <= CHAIN; k++)
			one_refusal(&rig, k, errs[t]);
		rig_close(&rig);
	}
}

/* Refused while the requests before are still under way. */
static void test_refusal_deferred(void)
{
	struct vbn_op early, late;
	struct rig rig;

	rig_open(&rig, NULL);
	fake_defer(true);
	mock_op_init(&early, NULL, NULL);
	mock_op_init(&late, NULL, NULL);
	CHECK(!rig_post(&rig, &early, 0, false));
	fake_fail(FAKE_POST_SEND, 1, ENOMEM);
	CHECK(!rig_post(&rig, &late, 0, false));
	progress_some(&rig);
	fake_defer(false);
	CU_ASSERT(rig_wait(&rig, &late) < 0);
	rig_wait(&rig, &early);
	check_told(&rig);
	rig_close(&rig);
}

/* ---- queue pairs in error ---- */

static void test_broken_qp(void)
{
	for (size_t t = 0; t < NTWEAKS; t++) {
		struct vbn_op ops[4];
		struct side other;
		struct rig rig;

		rig_open(&rig, tweaks[t]);
		self_connect(&rig.b, &other, &rig.b.a);
		fake_break_qp(rig.xqp); /* nothing was under way: no news */
		for (unsigned i = 0; i < 4; i++) {
			int err = -ECONNRESET;

			mock_op_init(&ops[i], NULL, NULL);
			if (rig.x.ep.conn)
				err = rig_post(&rig, &ops[i], 0, i < 2);
			CU_ASSERT(!err || err == -ECONNRESET);
			if (err)
				ops[i].status = err;
		}
		for (unsigned i = 0; i < 4; i++)
			CU_ASSERT_EQUAL(rig_wait(&rig, &ops[i]), -ECONNRESET);
		check_told(&rig);
		rig_works(&rig, &other);
		side_close(&other, -ECANCELED);
		rig_close(&rig);
	}
}

static void test_broken_in_flight(void)
{
	for (size_t t = 0; t < NTWEAKS; t++) {
		struct vbn_op ops[8];
		struct rig rig;

		rig_open(&rig, tweaks[t]);
		fake_defer(true);
		for (unsigned i = 0; i < 8; i++) {
			mock_op_init(&ops[i], NULL, NULL);
			CHECK(!rig_post(&rig, &ops[i], i % RIG_KINDS,
					i % 2 == 0));
		}
		fake_step_qp(rig.xqp, 3);
		fake_break_qp(rig.xqp);
		fake_defer(false);
		for (unsigned i = 0; i < 8; i++)
			rig_wait(&rig, &ops[i]);
		CU_ASSERT_EQUAL(ops[7].status, -ECONNRESET);
		check_told(&rig);
		rig_close(&rig);
	}
}

/* ---- a peer that is no more ---- */

static void test_vanished(void)
{
	struct vbn_op ops[4];
	struct side other;
	struct rig rig;

	rig_open(&rig, NULL);
	self_connect(&rig.b, &other, &rig.b.a);
	fake_vanish(rig.yqp);
	for (unsigned i = 0; i < 4; i++) {
		mock_op_init(&ops[i], NULL, NULL);
		CHECK(!rig_post(&rig, &ops[i], i % 3, i != 3));
	}
	CU_ASSERT_EQUAL(ops[0].status, -EINPROGRESS);
	rig_works(&rig, &other);
	for (unsigned i = 0; i < 4; i++)
		CU_ASSERT_EQUAL(rig_wait(&rig, &ops[i]), -ECONNRESET);
	CU_ASSERT_EQUAL(ops[0].wc, IBV_WC_RETRY_EXC_ERR);
	check_told(&rig);
	rig_works(&rig, &other);
	side_close(&other, -ECANCELED);
	rig_close(&rig);
}

/* A key that opens nothing breaks this connection, at both ends, alone. */
static void test_bad_key(void)
{
	struct region bad;
	struct side other;
	struct vbn_op op;
	struct rig rig;

	rig_open(&rig, NULL);
	self_connect(&rig.b, &other, &rig.b.a);
	region_open(&rig.b, &bad, 4096, VBN_ACCESS_ALL);
	region_close(&rig.b, &bad);
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_put(&rig.b, &rig.x, &op, &rig.src, 3000, &bad, false, 0,
			false));
	CU_ASSERT_EQUAL(rig_wait(&rig, &op), -EACCES);
	CU_ASSERT_EQUAL(op.wc, IBV_WC_REM_ACCESS_ERR);
	check_told(&rig);
	rig_works(&rig, &other);
	side_close(&other, -ECANCELED);
	rig_close(&rig);
}

/* ---- closing ---- */

static void count_done(struct vbn_op *op)
{
	++*(unsigned *)op->arg;
}

/* Closed with anything in flight, none or some of it carried out. */
static void test_close_in_flight(void)
{
	for (size_t t = 0; t < NTWEAKS; t++)
		for (unsigned steps = 0; steps < 10; steps++) {
			struct vbn_op ops[10];
			unsigned done = 0;
			struct rig rig;

			rig_open(&rig, tweaks[t]);
			fake_defer(true);
			for (unsigned i = 0; i < 10; i++) {
				mock_op_init(&ops[i], count_done, &done);
				CHECK(!rig_post(&rig, &ops[i], i % RIG_KINDS,
						i % 4 != 3));
			}
			fake_step_qp(rig.xqp, steps);
			rig_disconnect(&rig);
			CU_ASSERT_EQUAL(done, 10);
			fake_defer(false);
			rig_close(&rig);
		}
}

struct closer {
	struct side *victim;
	unsigned done;
};

static void close_other(struct vbn_op *op)
{
	struct closer *closer = op->arg;

	closer->done++;
	side_close(closer->victim, -ECANCELED);
}

/*
 * A callback closes a connection: its own, or one whose completions were
 * polled in the same batch. What had ended has ended well.
 */
static void test_close_in_callback(void)
{
	for (int own = 0; own < 2; own++) {
		struct closer closer = {0};
		struct vbn_op ops[6];
		struct side other;
		unsigned done = 0;
		struct rig rig;

		rig_open(&rig, NULL);
		self_connect(&rig.b, &other, &rig.b.a);
		closer.victim = own ? &rig.x : &other;
		for (int i = 0; i < 6; i++) {
			if (i)
				mock_op_init(&ops[i], count_done, &done);
			else
				mock_op_init(&ops[i], close_other, &closer);
			CHECK(!side_put(&rig.b, i < 3 ? &rig.x : &other,
					&ops[i], &rig.src, 100, &rig.dst, false,
					0, false));
		}
		mock_progress(&rig.b.a.core, rig.b.ops, rig.b.a.pctx);
		CU_ASSERT(closer.done == 1 && done == 5);
		for (int i = 0; i < 6; i++)
			CU_ASSERT_EQUAL(ops[i].status, 0);
		side_close(&other, -ECANCELED);
		rig_close(&rig);
	}
}

/* The queue itself fails: every connection of the context is told. */
static void test_broken_cq(void)
{
	struct vbn_op op;
	struct rig rig;

	rig_open(&rig, NULL);
	mock_op_init(&op, NULL, NULL);
	CHECK(!rig_post(&rig, &op, 0, false));
	fake_break_cqs(0);
	CU_ASSERT_EQUAL(rig_wait(&rig, &op), -ECONNRESET);
	check_told(&rig);
	CU_ASSERT_EQUAL(rig.y.ep.failures, 1);
	rig_close(&rig);
}

/* The device is gone: everything fails, and can still be closed. */
static void test_broken_device(void)
{
	struct vbn_op ops[2];
	struct rig rig;

	rig_open(&rig, NULL);
	mock_op_init(&ops[0], NULL, NULL);
	mock_op_init(&ops[1], NULL, NULL);
	CHECK(!rig_post(&rig, &ops[0], 0, true));
	fake_break_device(0);
	CHECK(!rig_post(&rig, &ops[1], 0, false));
	CU_ASSERT(rig_wait(&rig, &ops[0]) < 0);
	CU_ASSERT(rig_wait(&rig, &ops[1]) < 0);
	check_told(&rig);
	rig_close(&rig);
}

int main(void)
{
	CU_TestInfo chains[] = {
		{"each status at each position", test_each_status},
		{"among all kinds", test_mixed},
		{"refused at each position", test_refusals},
		{"refused with others under way", test_refusal_deferred},
		CU_TEST_INFO_NULL,
	};
	CU_TestInfo ends[] = {
		{"queue pair in error", test_broken_qp},
		{"queue pair breaks in flight", test_broken_in_flight},
		{"peer vanishes", test_vanished},
		{"key that opens nothing", test_bad_key},
		{"closed in flight", test_close_in_flight},
		{"closed in a callback", test_close_in_callback},
		{"completion queue breaks", test_broken_cq},
		{"device breaks", test_broken_device},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "chains", .pTests = chains},
		{.pName = "ends", .pTests = ends},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
