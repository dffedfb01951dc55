/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How far the queue pairs of one connection may run ahead of each other: fences
 * are never more than the receiver has receives for, waits on lane 0 stand
 * behind each other, and answers make room again.
 */
#include "cunit_run.h"
#include "fake_rig.h"
#include "providers/verbs/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((size_t)256 << 10)

static struct region src, dst;
static struct rig rig;

struct seen {
	unsigned next, wrong;
};

static void open_all(void)
{
	setenv("VBN_IB_QPS", "3", 1);
	rig_open(&rig, NULL);
	unsetenv("VBN_IB_QPS");
	region_open(&rig.b, &src, BYTES, VBN_ACCESS_ALL);
	region_open(&rig.b, &dst, BYTES, VBN_ACCESS_ALL);
}

static void close_all(void)
{
	region_close(&rig.b, &src);
	region_close(&rig.b, &dst);
	rig_close(&rig);
}

static uint32_t qpn(const struct side *side, int lane)
{
	const struct verbs_conn *conn = side->ep.conn;

	return conn->lane[lane].qpn;
}

static void progress_some(void)
{
	for (int i = 0; i < 8; i++)
		bench_progress(&rig.b);
}

static void count_value(struct vbn_ep *ep, uint32_t imm)
{
	struct seen *seen = ep->arg;

	seen->wrong += (imm & VBN_NOTIFY_MAX) != seen->next;
	seen->next++;
}

/* Several waits, one behind another, while the other lanes lag. */
static void test_waits_queue(void)
{
	struct vbn_op ops[16];
	struct seen seen = {0};
	unsigned n = 0;

	open_all();
	rig.y.ep.on_notify = count_value;
	rig.y.ep.arg = &seen;
	fake_defer(true);
	for (; n < 16; n++) {
		struct put_args args = {.local = src.mem.addr,
					.len = BYTES,
					.mem = &src.mem,
					.mem_handle = src.handle,
					.remote = (uintptr_t)dst.mem.addr,
					.key = &dst.announce,
					.notify = true,
					.imm = 1u << 28 | n};

		mock_op_init(&ops[n], NULL, NULL);
		if (rig.b.ops->put(rig.x.ep.conn, &ops[n], &args) == -EAGAIN)
			break;
	}
	CU_ASSERT_EQUAL(n, FENCES); /* the receiver has room for no more */
	fake_step_qp(qpn(&rig.x, 0), 1000);
	progress_some();
	CU_ASSERT_EQUAL(seen.next, 0);
	fake_step_qp(qpn(&rig.x, 1), 1000);
	progress_some();
	CU_ASSERT_EQUAL(seen.next, 0);
	for (unsigned i = 0; i < n; i++) { /* a part and a fence each */
		fake_step_qp(qpn(&rig.x, 2), 2);
		progress_some();
		CU_ASSERT_EQUAL(seen.next, i + 1);
	}
	fake_defer(false);
	fake_step(1000);
	for (unsigned i = 0; i < n; i++)
		CU_ASSERT_EQUAL(rig_wait(&rig, &ops[i]), 0);
	progress_some(); /* the answers have made room again */
	mock_op_init(&ops[0], NULL, NULL);
	CU_ASSERT_EQUAL(side_put(&rig.b, &rig.x, &ops[0], &src, BYTES, &dst,
				 true, n, false),
			0);
	CU_ASSERT_EQUAL(rig_wait(&rig, &ops[0]), 0);
	progress_some();
	CU_ASSERT(seen.next == n + 1 && !seen.wrong);
	close_all();
}

int main(void)
{
	static CU_TestInfo tests[] = {
		{"waits queue", test_waits_queue},
		CU_TEST_INFO_NULL,
	};
	static CU_SuiteInfo suites[] = {
		{"verbs_lanes", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
