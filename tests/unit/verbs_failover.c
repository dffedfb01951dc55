/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections of several rails, one of which fails at a random moment, in one
 * of the ways in which rails fail, while operations of all kinds are under way
 * in both directions and requests are carried out in random order: every
 * operation ends once, and well (an atomic may end in doubt); data is right
 * when the notify that follows it arrives; notifies and messages arrive once
 * and in order.
 */
#include "cunit_run.h"
#include "fake_hosts.h"
#include "traffic.h"
#include "providers/verbs/failover.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define QPS_MAX 64
#define OPS	39u

/* ---- how a rail fails ---- */

struct fault {
	unsigned kind, rail, at;
	bool here; /* at a, or at b */
};

#define FAULTS 7

static uint32_t qpn_of(struct hosts *h, bool here, unsigned rail)
{
	const struct verbs_conn *conn = here ? h->x.ep.conn : h->y.ep.conn;

	for (unsigned i = 0; i < conn->nlanes; i++)
		if (conn->lane[i].rail == rail && conn->lane[i].qp)
			return conn->lane[i].qpn & QPN_MASK;
	return 0;
}

static void port_events(struct hosts *h)
{
	struct verbs_job *jobs[] = {h->a.pjob, h->b.pjob};

	for (int j = 0; j < 2; j++)
		for (unsigned i = 0; i < jobs[j]->nrails; i++)
			events_take(&jobs[j]->rail[i]);
}

static void fail(struct hosts *h, const struct fault *f, unsigned rails)
{
	int device = (int)(f->here ? f->rail : rails + f->rail);
	uint32_t qpn = qpn_of(h, f->here, f->rail);

	switch (f->kind) {
	case 0: /* noticed by its event */
		fake_port_state(device, 1, IBV_PORT_DOWN);
		port_events(h);
		break;
	case 1: /* by retries that run out; the event comes later */
		fake_port_state(device, 1, IBV_PORT_DOWN);
		break;
	case 2: /* carried out, the answer lost */
		fake_fail_request(qpn, 1 + traffic_random() % 3,
				  IBV_WC_RETRY_EXC_ERR, true);
		break;
	case 3:
		fake_fail_request(qpn, 1 + traffic_random() % 3,
				  IBV_WC_RETRY_EXC_ERR, false);
		break;
	case 4:
		fake_fail_request(qpn, 1, IBV_WC_LOC_QP_OP_ERR, false);
		break;
	case 5:
		fake_vanish(qpn);
		break;
	default:
		fake_break_device(device);
		port_events(h);
	}
}

/* ---- the run ---- */

static void step(struct hosts *h)
{
	uint32_t qpn[QPS_MAX];
	unsigned n = fake_qps(qpn, QPS_MAX);

	if (n)
		fake_step_qp(qpn[traffic_random() % n],
			     1 + traffic_random() % 3);
	if (traffic_random() % 3 == 0)
		bench_progress(&h->a);
	if (traffic_random() % 3 == 0)
		bench_progress(&h->b);
}

struct story {
	unsigned seed;
	const char *subnets;
	struct fault f[2];
	unsigned faults;  /* of other rails each */
	unsigned closing; /* when a side closes; 0: after all */
	bool broken;	  /* no rail may be left */
	bool back;	  /* the rail comes back, and all is used again */
};

static struct way ways[2];

static void story_plan(struct story *s)
{
	unsigned rails = (unsigned)strlen(s->subnets);

	traffic_seed(s->seed);
	for (unsigned i = 0; i < s->faults; i++)
		s->f[i] = (struct fault){.kind = (s->seed + i) % FAULTS,
					 .rail = traffic_random() % rails,
					 .at = traffic_random() % 300,
					 .here = traffic_random() % 2};
	s->f[1].rail = (s->f[0].rail + 1) % rails;
	for (unsigned i = 0; s->back && i < s->faults; i++)
		if (s->f[i].kind == FAULTS - 1) /* that is for good */
			s->f[i].kind = s->seed % 2;
	if (s->closing)
		s->closing = s->f[0].at + traffic_random() % 60;
}

static void story_open(const struct story *s, struct hosts *h)
{
	if (traffic_random() % 3 == 0)
		setenv("VBN_IB_QPS", "2", 1);
	hosts_open(h, s->subnets, s->subnets, 4096);
	unsetenv("VBN_IB_QPS");
	way_open(&ways[0], &h->a, &h->b, &h->x, &h->y, OPS);
	way_open(&ways[1], &h->b, &h->a, &h->y, &h->x, OPS);
	fake_defer(true);
}

static void story_close(struct hosts *h)
{
	fake_defer(false);
	side_close(&h->x, -ECANCELED);
	side_close(&h->y, -ECANCELED);
	way_close(&ways[0]);
	way_close(&ways[1]);
	hosts_close(h);
}

static void story_run(const struct story *s, struct hosts *h)
{
	unsigned rails = (unsigned)strlen(s->subnets);

	for (unsigned i = 0; i < 400; i++) {
		for (unsigned k = 0; k < s->faults; k++)
			if (i == s->f[k].at && h->x.ep.conn && h->y.ep.conn)
				fail(h, &s->f[k], rails);
		for (int k = 0; k < 2; k++)
			if (traffic_random() % 3 == 0)
				way_post(&ways[k]);
		step(h);
		if (i == s->closing && i)
			side_close(traffic_random() % 2 ? &h->x : &h->y,
				   -ECANCELED);
	}
	port_events(h);
	for (unsigned i = 0; i < 100000; i++) {
		if (way_over(&ways[0]) && way_over(&ways[1]))
			break;
		if ((s->closing || s->broken) && i > 3000)
			break;
		for (int k = 0; k < 2; k++)
			if (ways[k].word_due)
				way_post(&ways[k]);
		step(h);
	}
}

static unsigned live_lanes(const struct side *side)
{
	const struct verbs_conn *conn = side->ep.conn;
	unsigned n = 0;

	for (unsigned i = 0; i < conn->nlanes; i++)
		n += conn->lane[i].state == LANE_LIVE;
	return n;
}

/* All lanes live again, and carry. */
static void come_back(const struct story *s, struct hosts *h)
{
	const struct verbs_conn *conn = h->x.ep.conn;
	unsigned rails = (unsigned)strlen(s->subnets);

	if (!h->x.ep.conn || !h->y.ep.conn)
		return; /* which is said later */
	for (unsigned i = 0; i < 2 * rails; i++)
		fake_port_state((int)i, 1, IBV_PORT_ACTIVE);
	port_events(h);
	for (unsigned i = 0; i < 50000 && (live_lanes(&h->x) != conn->nlanes ||
					   live_lanes(&h->y) != conn->nlanes);
	     i++)
		step(h);
	CU_ASSERT_EQUAL(live_lanes(&h->x), conn->nlanes);
	CU_ASSERT_EQUAL(live_lanes(&h->y), conn->nlanes);
	ways[0].limit = ways[1].limit = 2 * OPS;
	for (unsigned i = 0; i < 100000; i++) {
		if (i > 200 && way_over(&ways[0]) && way_over(&ways[1]))
			break;
		for (int k = 0; k < 2; k++)
			if (i < 200 || ways[k].word_due)
				way_post(&ways[k]);
		step(h);
	}
	CU_ASSERT_EQUAL(live_lanes(&h->x), conn->nlanes);
}

static void check(const struct story *s)
{
	char what[128];

	snprintf(what, sizeof(what),
		 "seed %u of %s: fault %u of rail %u at %u, here %d", s->seed,
		 s->subnets, s->f[0].kind, s->f[0].rail, s->f[0].at,
		 s->f[0].here);
	CU_ASSERT(way_right(&ways[0], what));
	CU_ASSERT(way_right(&ways[1], what));
}

static void run(struct story s)
{
	struct hosts h;

	story_plan(&s);
	story_open(&s, &h);
	story_run(&s, &h);
	if (s.back)
		come_back(&s, &h);
	if (!s.closing && !s.broken)
		check(&s);
	story_close(&h);
	/* whatever became of the connection */
	CU_ASSERT_EQUAL(ways[0].done, ways[0].posted);
	CU_ASSERT_EQUAL(ways[1].done, ways[1].posted);
}

static unsigned seeds = 60;

static void test_two(void)
{
	for (unsigned i = 0; i < seeds; i++)
		run((struct story){.seed = i, .subnets = "12", .faults = 1});
}

static void test_three(void)
{
	for (unsigned i = 0; i < seeds; i++)
		run((struct story){
			.seed = 1000 + i, .subnets = "123", .faults = 1});
}

static void test_two_of_three(void)
{
	for (unsigned i = 0; i < seeds; i++)
		run((struct story){
			.seed = 2000 + i, .subnets = "123", .faults = 2});
}

static void test_all_fail(void)
{
	for (unsigned i = 0; i < seeds; i++)
		run((struct story){.seed = 3000 + i,
				   .subnets = "12",
				   .faults = 2,
				   .broken = true});
}

static void test_close(void)
{
	for (unsigned i = 0; i < seeds; i++)
		run((struct story){.seed = 4000 + i,
				   .subnets = "12",
				   .faults = 1,
				   .closing = 1});
}

static void test_back(void)
{
	for (unsigned i = 0; i < seeds; i++)
		run((struct story){.seed = 5000 + i,
				   .subnets = i % 2 ? "12" : "123",
				   .faults = i % 2 ? 1 : 2,
				   .back = true});
}

/* A connection of a context with itself. */
static void test_self(void)
{
	for (unsigned k = 0; k < 2; k++) {
		struct vbn_op ops[20];
		struct region r;
		struct side self;
		struct hosts h;

		hosts_open(&h, "12", "12", 4096);
		region_open(&h.a, &r, 2 * STRIPE_MIN, VBN_ACCESS_ALL);
		self_connect(&h.a, &self, &h.a.a);
		fake_defer(true);
		for (unsigned i = 0; i < 20; i++) {
			mock_op_init(&ops[i], NULL, NULL);
			CHECK(!side_put(&h.a, &self, &ops[i], &r,
					i % 3 ? 3000 : 2 * STRIPE_MIN, &r,
					i % 8 == 0, i, false));
			fake_step(traffic_random() % 3);
		}
		fake_port_state((int)k, 1, IBV_PORT_DOWN);
		port_events(&h);
		bench_progress(&h.a);
		fake_defer(false);
		for (unsigned i = 0; i < 20; i++)
			CU_ASSERT_EQUAL(hosts_wait(&h, &ops[i]), 0);
		for (unsigned i = 0; i < 20; i++)
			hosts_progress(&h);
		CU_ASSERT(self.ep.notifies == 3 && !self.ep.failures);
		CU_ASSERT_EQUAL(live_lanes(&self), 1);
		fake_port_state((int)k, 1, IBV_PORT_ACTIVE);
		port_events(&h);
		bench_progress(&h.a);
		CU_ASSERT_EQUAL(live_lanes(&self), 2);
		mock_op_init(&ops[0], NULL, NULL);
		CHECK(!side_put(&h.a, &self, &ops[0], &r, 2 * STRIPE_MIN, &r,
				true, 0, false));
		CU_ASSERT_EQUAL(hosts_wait(&h, &ops[0]), 0);
		side_close(&self, -ECANCELED);
		region_close(&h.a, &r);
		hosts_close(&h);
	}
}

int main(int argc, char **argv)
{
	CU_TestInfo tests[] = {
		{"one of two rails", test_two},
		{"one of three", test_three},
		{"two of three", test_two_of_three},
		{"all of two", test_all_fail},
		{"closing", test_close},
		{"back", test_back},
		{"with itself", test_self},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "failover", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	setenv("VBN_LOG", "error", 0);
	if (argc > 3) { /* SEED SUBNETS FAULTS [back]: one run */
		run((struct story){.seed = (unsigned)atoi(argv[1]),
				   .subnets = argv[2],
				   .faults = (unsigned)atoi(argv[3]),
				   .back = argc > 4});
		return 0;
	}
	if (argc > 1)
		seeds = (unsigned)atoi(argv[1]);
	return run_suites(suites);
}
