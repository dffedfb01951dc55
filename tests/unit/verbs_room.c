/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs provider's arithmetic of room: queues that are small for the
 * connections they serve, windows that grow.
 * The device complains when a completion queue overruns, and counts each
 * arrival that finds no receive: there must be none.
 */
#include "cunit_run.h"
#include "fake_rig.h"

#include <errno.h>
#include <string.h>

#define CONNS  64
#define ROUNDS 4000

static uint32_t random_number(void)
{
	static uint64_t state = 0x9e3779b97f4a7c15u;

	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 11);
}

/* ---- many connections, small queues ---- */

static void cqe_512(struct fake_config *config)
{
	config->attr.max_cqe = 512;
}

static void cqe_1000(struct fake_config *config)
{
	config->attr.max_cqe = 1000;
	config->flush = FAKE_FLUSH_LATE;
}

static void srq_200(struct fake_config *config)
{
	config->attr.max_srq_wr = 200;
}

static void qp_wr_32(struct fake_config *config)
{
	config->attr.max_qp_wr = 32;
	config->attr.max_cqe = 2000;
}

struct link {
	struct side x, y;
	unsigned sent, got;
	struct vbn_op ops[64];
};

/* As many as there is room for, at most CONNS; the error names the limit. */
static unsigned connect_many(struct rig *rig, struct link *links)
{
	const struct provider *ops = rig->b.ops;

	for (unsigned i = 0; i < CONNS; i++) {
		struct conn_info info = {.rank = 1, .generation = i + 1};
		struct blob offer;
		void *probe;
		int err = ops->conn_create(rig->b.a.pctx, &info,
					   &rig->b.b.address, &probe, &offer);

		if (err) {
			CU_ASSERT_EQUAL(err, -ENOSPC);
			CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "max_cqe"));
			return i;
		}
		ops->conn_close(probe, -ECANCELED);
		bench_progress(&rig->b);
		pair_connect(&rig->b, &links[i].x, &rig->b.a, &links[i].y,
			     &rig->b.b);
	}
	return CONNS;
}

static void count_notify(struct vbn_ep *ep, uint32_t imm)
{
	struct link *link = ep->arg;

	if ((imm & VBN_NOTIFY_MAX) != link->got % 1000)
		CU_FAIL("a notify out of order");
	link->got++;
}

static void step_and_progress(struct rig *rig)
{
	fake_step(random_number() % 8);
	if (random_number() % 3 == 0)
		mock_progress(&rig->b.a.core, rig->b.ops, rig->b.a.pctx);
	if (random_number() % 7 == 0)
		mock_progress(&rig->b.b.core, rig->b.ops, rig->b.b.pctx);
}

/* A notify on some connection, as far as there is credit and room. */
static void send_some(struct rig *rig, struct link *link)
{
	struct put_args args = {
		.notify = true,
		.imm = 1u << 28 | link->sent % 1000,
		.more = random_number() % 2,
	};
	struct vbn_op *op = &link->ops[link->sent % 64];
	int err;

	if (link->sent - link->got >= rig->b.caps.credits ||
	    op->status == -EINPROGRESS)
		return;
	mock_op_init(op, NULL, NULL);
	err = rig->b.ops->put(link->x.ep.conn, op, &args);
	CU_ASSERT(!err || err == -EAGAIN);
	if (err)
		op->status = 0;
	else
		link->sent++;
}

static void drain(struct rig *rig, struct link *links, unsigned n)
{
	for (int i = 0; i < 20000; i++) {
		unsigned left = 0;

		for (unsigned j = 0; j < n; j++)
			left += links[j].got != links[j].sent;
		if (!left)
			break;
		step_and_progress(rig);
	}
	for (unsigned j = 0; j < n; j++)
		CU_ASSERT_EQUAL(links[j].got, links[j].sent);
}

/*
 * As much as a side may send at once. Only @a ever progresses: what has come
 * to @b, and what it has sent, stays in its completion queue.
 */
static void flood(struct rig *rig, struct side *side, struct vbn_op *ops,
		  unsigned n)
{
	struct put_args args = {.notify = true, .imm = 1u << 28};

	for (unsigned i = 0; i < n; i++) {
		int err;

		mock_op_init(&ops[i], NULL, NULL);
		err = rig->b.ops->put(side->ep.conn, &ops[i], &args);
		if (err == -EAGAIN && side->end == &rig->b.a) {
			mock_progress(&rig->b.a.core, rig->b.ops,
				      rig->b.a.pctx);
			err = rig->b.ops->put(side->ep.conn, &ops[i], &args);
			CU_ASSERT_EQUAL(err, 0);
		}
		CU_ASSERT(!err || err == -EAGAIN);
		if (err)
			ops[i].status = 0;
	}
}

/* Everything that may come at once does; the queues hold it. */
static void all_at_once(void (*tweak)(struct fake_config *config))
{
	static struct link links[CONNS];
	struct rig rig;
	unsigned n, most;

	memset(links, 0, sizeof(links));
	rig_open_bare(&rig, tweak);
	n = connect_many(&rig, links);
	most = rig.b.caps.credits + CREDIT_SLACK;
	CHECK(most <= 32);
	for (int round = 0; round < 3; round++) {
		for (unsigned i = 0; i < n; i++)
			flood(&rig, &links[i].x, links[i].ops, most);
		for (unsigned i = 0; i < n; i++)
			flood(&rig, &links[i].y, links[i].ops + 32, most);
		CU_ASSERT(fake_count().cq_peak >
			  (unsigned)fake_device(0)->attr.max_cqe / 2);
		for (unsigned i = 0; i < n; i++)
			for (unsigned j = 0; j < 64; j++)
				CU_ASSERT_EQUAL(
					rig_wait(&rig, &links[i].ops[j]), 0);
		for (int i = 0; i < 100; i++)
			bench_progress(&rig.b);
	}
	for (unsigned i = 0; i < n; i++) {
		side_close(&links[i].y, -ECANCELED);
		side_close(&links[i].x, -ECANCELED);
	}
	CU_ASSERT_EQUAL(fake_count().rnr, 0);
	rig_close(&rig);
}

static void test_all_at_once(void)
{
	all_at_once(cqe_512);
	all_at_once(cqe_1000);
}

static void many(void (*tweak)(struct fake_config *config), unsigned least)
{
	static struct link links[CONNS];
	struct rig rig;
	unsigned n;

	memset(links, 0, sizeof(links));
	rig_open_bare(&rig, tweak);
	n = connect_many(&rig, links);
	CU_ASSERT_FATAL(n >= least);
	for (unsigned i = 0; i < n; i++) {
		links[i].y.ep.on_notify = count_notify;
		links[i].y.ep.arg = &links[i];
	}
	fake_defer(true);
	for (int i = 0; i < ROUNDS; i++) {
		send_some(&rig, &links[random_number() % n]);
		if (i % 4 == 0)
			step_and_progress(&rig);
	}
	drain(&rig, links, n);
	/* and all of them die at once, with requests under way */
	for (unsigned i = 0; i < n; i++)
		send_some(&rig, &links[i]);
	for (unsigned i = 0; i < n; i++) {
		side_close(&links[i].y, -ECANCELED);
		side_close(&links[i].x, -ECANCELED);
	}
	fake_defer(false);
	CU_ASSERT_EQUAL(fake_count().rnr, 0);
	rig_close(&rig);
}

static void test_many(void)
{
	many(NULL, CONNS);
	many(cqe_512, 2);
	many(cqe_1000, 4);
	many(srq_200, 2);
	many(qp_wr_32, 4);
}

/* ---- windows ---- */

/* What a window promises is there, whatever the others hold. */
static void test_window(void)
{
	unsigned got = 0, n;
	struct vbn_op ops[512];
	struct rig rig;

	rig_open(&rig, NULL);
	n = rig.b.caps.credits_max;
	CU_ASSERT_FATAL(n >= rig.b.caps.credits && n <= 512);
	if (!rig.b.ops->window) {
		CU_ASSERT_EQUAL(n, rig.b.caps.credits);
		rig_close(&rig);
		return;
	}
	CU_ASSERT_EQUAL(rig.b.ops->window(rig.y.ep.conn, n), 0);
	for (unsigned i = 0; i < n; i++) {
		mock_op_init(&ops[i], NULL, NULL);
		CHECK(!side_put(&rig.b, &rig.x, &ops[i], NULL, 0, NULL, true, i,
				false));
		mock_progress(&rig.b.a.core, rig.b.ops, rig.b.a.pctx);
	}
	for (unsigned i = 0; i < 1000 && rig.y.ep.notifies < n; i++)
		bench_progress(&rig.b);
	got = (unsigned)rig.y.ep.notifies;
	CU_ASSERT_EQUAL(got, n);
	CU_ASSERT_EQUAL(fake_count().rnr, 0);
	rig_close(&rig);
}

/* Those that find no room keep what they had; closing gives it back. */
static void test_windows_full(void)
{
	static struct link links[CONNS];
	unsigned grown = 0, refused = 0, n;
	struct rig rig;

	rig_open_bare(&rig, cqe_1000);
	if (rig.b.ops->window) {
		memset(links, 0, sizeof(links));
		n = connect_many(&rig, links);
		for (unsigned i = 0; i < n; i++)
			side_close(&links[i].y, -ECANCELED);
		for (unsigned i = 0; i < n; i++)
			side_close(&links[i].x, -ECANCELED);
		n /= 2;
		for (unsigned i = 0; i < n; i++)
			pair_connect(&rig.b, &links[i].x, &rig.b.a, &links[i].y,
				     &rig.b.b);
		for (unsigned i = 0; i < n; i++) {
			int err = rig.b.ops->window(links[i].y.ep.conn,
						    rig.b.caps.credits_max);

			CU_ASSERT(!err || err == -EAGAIN);
			grown += !err;
			refused += err == -EAGAIN;
		}
		CU_ASSERT(grown > 0 && refused > 0);
		for (unsigned i = 0; i < n; i++) {
			side_close(&links[i].y, -ECANCELED);
			side_close(&links[i].x, -ECANCELED);
		}
		CU_ASSERT_EQUAL(connect_many(&rig, links), 2 * n);
		for (unsigned i = 0; i < 2 * n; i++) {
			side_close(&links[i].y, -ECANCELED);
			side_close(&links[i].x, -ECANCELED);
		}
	}
	rig_close(&rig);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"many connections, small queues", test_many},
		{"all that may come at once", test_all_at_once},
		{"a window that grows", test_window},
		{"windows that find no room", test_windows_full},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "room", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
