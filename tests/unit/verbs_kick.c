/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A software device that stops with requests outstanding and nothing to wake
 * it: a request more, the kick, does. One for each connection that waits, none
 * for those that do not, none while the last is outstanding, and none on any
 * other device. Here the device stands still until it has been kicked.
 */
#include "cunit_run.h"
#include "fake_rig.h"

#include <errno.h>

#define SOFTWARE 0xffffffu
#define HARDWARE 0x02c9u
#define PUTS	 3
#define HOLD_US	 120000 /* several times what a kick takes */

static void software(struct fake_config *config)
{
	config->attr.vendor_id = SOFTWARE;
}

static void hardware(struct fake_config *config)
{
	config->attr.vendor_id = HARDWARE;
}

static uint64_t kicks(const struct rig *rig)
{
	return rig->b.a.core.counters.kicks + rig->b.b.core.counters.kicks;
}

static void progress_for(struct rig *rig, double us)
{
	double end = now_us() + us;

	while (now_us() < end)
		bench_progress(&rig->b);
}

static void put(struct rig *rig, struct side *side, struct vbn_op *op)
{
	mock_op_init(op, NULL, NULL);
	CHECK(!side_put(&rig->b, side, op, &rig->src, 100, &rig->dst, false, 0,
			false));
}

/* The device stands still: no kick early, @want of them, and no more. */
static void hold(struct rig *rig, unsigned want)
{
	uint64_t kicked = kicks(rig), requests = fake_count().requests;
	double since = now_us();

	while (now_us() < since + HOLD_US && kicks(rig) == kicked)
		bench_progress(&rig->b);
	if (want)
		CU_ASSERT(now_us() - since >= 20000);
	progress_for(rig, HOLD_US);
	CU_ASSERT_EQUAL(kicks(rig) - kicked, want);
	CU_ASSERT_EQUAL(fake_count().requests - requests, want);
}

static void finish(struct rig *rig, struct vbn_op *ops, unsigned n)
{
	while (fake_step(1))
		bench_progress(&rig->b);
	for (unsigned i = 0; i < n; i++)
		CU_ASSERT_EQUAL(rig_wait(rig, &ops[i]), 0);
}

/* Two connections that wait, and one that does not. */
static void run(void (*tweak)(struct fake_config *), unsigned each)
{
	struct side x[2], y[2];
	struct vbn_op ops[PUTS + 1];
	struct rig rig;

	rig_open(&rig, tweak);
	for (unsigned i = 0; i < 2; i++)
		pair_connect(&rig.b, &x[i], &rig.b.a, &y[i], &rig.b.b);
	for (unsigned round = 0; round < 2; round++) {
		fake_defer(true);
		for (unsigned i = 0; i < PUTS; i++)
			put(&rig, &rig.x, &ops[i]);
		put(&rig, &x[0], &ops[PUTS]);
		hold(&rig, 2 * each);
		finish(&rig, ops, PUTS + 1);
		hold(&rig, 0);
		fake_defer(false);
		rig_works(&rig, &rig.x);
	}
	CU_ASSERT_EQUAL(kicks(&rig), 4 * each);
	for (unsigned i = 0; i < 2; i++) {
		side_close(&x[i], -ECANCELED);
		side_close(&y[i], -ECANCELED);
	}
	rig_close(&rig);
}

static void test_software(void)
{
	run(software, 1);
}

static void test_hardware(void)
{
	run(hardware, 0);
}

int main(void)
{
	static CU_TestInfo tests[] = {
		{"a software device is kicked", test_software},
		{"another is not", test_hardware},
		CU_TEST_INFO_NULL,
	};

	CU_SuiteInfo suites[] = {
		{.pName = "kick", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
