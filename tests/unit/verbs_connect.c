/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs provider while it opens devices and connects: each call of the
 * device failing in turn, addresses of all sorts, ends that differ, answers
 * that are stale, and devices that are too small.
 */
#include "cunit_run.h"
#include "fake_rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- two ends with a device each ---- */

struct two {
	struct bench a, b; /* contexts: a.a and b.a */
	struct side x, y;
	struct ibv_qp_attr xattr, yattr;
};

/* Open both jobs, each on its device. 0, or what the second says. */
static void two_open(struct two *two, const struct fake_config *first,
		     const struct fake_config *second)
{
	memset(two, 0, sizeof(*two));
	fake_device_add(first);
	fake_device_add(second);
	setenv("VBN_IB_HCA", first->name, 1);
	bench_open(&two->a, &provider_verbs);
	setenv("VBN_IB_HCA", second->name, 1);
	bench_open(&two->b, &provider_verbs);
	unsetenv("VBN_IB_HCA");
}

static void two_connect(struct two *two)
{
	uint32_t qpn[RIG_QPS];
	unsigned n;

	pair_connect(&two->a, &two->x, &two->a.a, &two->y, &two->b.a);
	n = fake_qps(qpn, RIG_QPS);
	CHECK(n >= 2 && fake_qp_attr(qpn[0], &two->xattr) &&
	      fake_qp_attr(qpn[n / 2], &two->yattr));
}

/* Data goes both ways. */
static void two_work(struct two *two)
{
	struct region src, dst;
	struct vbn_op op;

	region_open(&two->a, &src, 4096, VBN_ACCESS_ALL);
	region_open(&two->b, &dst, 4096, VBN_ACCESS_ALL);
	region_fill(&src, 4096, 5);
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_put(&two->a, &two->x, &op, &src, 4096, &dst, false, 0,
			false));
	CU_ASSERT_EQUAL(bench_wait(&two->a, &op, 5000), 0);
	CU_ASSERT(region_same(&dst, 4096, 5));
	mock_op_init(&op, NULL, NULL);
	CHECK(!side_put(&two->b, &two->y, &op, &dst, 4096, &src, false, 0,
			false));
	CU_ASSERT_EQUAL(bench_wait(&two->b, &op, 5000), 0);
	region_close(&two->a, &src);
	region_close(&two->b, &dst);
}

static void two_close(struct two *two)
{
	side_close(&two->x, -ECANCELED);
	side_close(&two->y, -ECANCELED);
	bench_close(&two->a);
	bench_close(&two->b);
	CHECK(fake_reset() == 0);
}

/* Connect, work, close. */
static void two_run(struct two *two)
{
	two_connect(two);
	two_work(two);
	two_close(two);
}

/* The connection is refused by the first end, with words. */
static void two_refused(struct two *two, int err, const char *words)
{
	struct conn_info info = {.rank = 1, .generation = 1};
	struct blob offer;
	void *conn;

	CU_ASSERT_EQUAL(two->a.ops->conn_create(two->a.a.pctx, &info,
						&two->b.a.address, &conn,
						&offer),
			err);
	if (!strstr(vbn_error(), words))
		fprintf(stderr, "\"%s\" lacks \"%s\"\n", vbn_error(), words);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), words));
	bench_close(&two->a);
	bench_close(&two->b);
	CHECK(fake_reset() == 0);
}

/* ---- addresses ---- */

static void two_configs(struct fake_config config[2])
{
	fake_config_init(&config[0], 1);
	fake_config_init(&config[1], 2);
}

static void make_infiniband(struct fake_config *c, uint16_t lid)
{
	struct fake_port *port = &c->ports[0];

	port->link_layer = IBV_LINK_LAYER_INFINIBAND;
	port->lid = lid;
	port->ngids = 1;
	port->gids[0].type = IBV_GID_TYPE_IB;
	c->attr.vendor_id = 0x2c9;
}

static void test_mtu(void)
{
	struct fake_config c[2];
	struct two two;

	two_configs(c);
	c[1].ports[0].active_mtu = IBV_MTU_1024;
	two_open(&two, &c[0], &c[1]);
	two_connect(&two);
	CU_ASSERT_EQUAL(two.xattr.path_mtu, IBV_MTU_1024);
	CU_ASSERT_EQUAL(two.yattr.path_mtu, IBV_MTU_1024);
	two_work(&two);
	two_close(&two);
}

static void test_infiniband(void)
{
	struct fake_config c[2];
	struct two two;

	two_configs(c);
	make_infiniband(&c[0], 11);
	make_infiniband(&c[1], 12);
	two_open(&two, &c[0], &c[1]);
	two_connect(&two);
	CU_ASSERT_EQUAL(two.xattr.ah_attr.dlid, 12);
	CU_ASSERT_EQUAL(two.yattr.ah_attr.dlid, 11);
	CU_ASSERT_EQUAL(two.xattr.ah_attr.is_global, 0);
	CU_ASSERT_EQUAL(two.xattr.timeout, 18); /* hardware, not Soft-RoCE */
	CU_ASSERT_EQUAL(two.xattr.retry_cnt, 6);
	CU_ASSERT(two.xattr.min_rnr_timer > 0);
	two_work(&two);
	two_close(&two);
}

/* Another subnet: only a route header finds the way. */
static void test_infiniband_subnets(void)
{
	struct fake_config c[2];
	struct two two;

	two_configs(c);
	make_infiniband(&c[0], 11);
	make_infiniband(&c[1], 12);
	c[1].ports[0].gids[0].raw[7] = 9;
	two_open(&two, &c[0], &c[1]);
	two_connect(&two);
	CU_ASSERT_EQUAL(two.xattr.ah_attr.is_global, 1);
	CU_ASSERT_EQUAL(two.xattr.ah_attr.grh.dgid.raw[7], 9);
	two_work(&two);
	two_close(&two);
}

static void test_layers_differ(void)
{
	struct fake_config c[2];
	struct two two;

	two_configs(c);
	make_infiniband(&c[1], 12);
	two_open(&two, &c[0], &c[1]);
	two_refused(&two, -EHOSTUNREACH, "InfiniBand");
}

static void test_gid_types_differ(void)
{
	struct fake_config c[2];
	struct two two;

	two_configs(c);
	for (int i = 0; i < 2; i++)
		c[1].ports[0].gids[i].type = IBV_GID_TYPE_ROCE_V1;
	two_open(&two, &c[0], &c[1]);
	two_refused(&two, -EHOSTUNREACH, "RoCE v1");
}

/* The first entry cannot be read, the last is the one to take. */
static void test_gid_table(void)
{
	struct fake_config c[2];
	struct fake_gid *gids;
	struct two two;

	two_configs(c);
	gids = c[0].ports[0].gids;
	gids[0].err = EINVAL;
	gids[1] = (struct fake_gid){.type = IBV_GID_TYPE_ROCE_V2};
	gids[1].raw[0] = 0xfe;
	gids[1].raw[1] = 0x80;
	gids[2] = fake_gid_ipv4(IBV_GID_TYPE_ROCE_V1, 10, 0, 0, 1);
	gids[3] = fake_gid_ipv4(IBV_GID_TYPE_ROCE_V2, 10, 0, 0, 1);
	c[0].ports[0].ngids = 4;
	two_open(&two, &c[0], &c[1]);
	two_connect(&two);
	CU_ASSERT_EQUAL(two.xattr.ah_attr.grh.sgid_index, 3);
	CU_ASSERT_EQUAL(two.yattr.ah_attr.grh.dgid.raw[15], 1);
	two_work(&two);
	two_close(&two);
}

static void test_ipv6_only(void)
{
	struct fake_config c[2];
	struct two two;

	two_configs(c);
	for (int i = 0; i < 2; i++) {
		struct fake_gid *gid = &c[i].ports[0].gids[0];

		memset(gid, 0, sizeof(*gid));
		gid->type = IBV_GID_TYPE_ROCE_V2;
		gid->raw[0] = 0x20;
		gid->raw[1] = 0x01;
		gid->raw[15] = (uint8_t)(i + 1);
		c[i].ports[0].ngids = 1;
	}
	two_open(&two, &c[0], &c[1]);
	two_run(&two);
}

/* The second port is the one with a link. */
static void test_second_port(void)
{
	struct fake_config c[2];
	struct two two;

	two_configs(c);
	c[0].attr.phys_port_cnt = 2;
	c[0].ports[0].state = IBV_PORT_DOWN;
	two_open(&two, &c[0], &c[1]);
	two_connect(&two);
	CU_ASSERT_EQUAL(two.xattr.port_num, 2);
	two_work(&two);
	two_close(&two);
}

/* ---- which device ---- */

static int open_error(void)
{
	struct provider_caps caps;
	void *pjob;
	int err = provider_verbs.job_open(NULL, &pjob, &caps);

	if (!err)
		provider_verbs.job_close(pjob);
	return err;
}

/* Four are listed, the first two may not be opened. */
static void test_devices(void)
{
	struct fake_config config;
	struct rig rig;

	for (unsigned i = 0; i < 4; i++) {
		fake_config_init(&config, 10 + i);
		config.open_errno = i < 2 ? EACCES : 0;
		fake_device_add(&config);
	}
	memset(&rig, 0, sizeof(rig));
	bench_open(&rig.b, &provider_verbs);
	region_open(&rig.b, &rig.src, RIG_BYTES, VBN_ACCESS_ALL);
	region_open(&rig.b, &rig.dst, RIG_BYTES, VBN_ACCESS_ALL);
	rig_connect(&rig);
	rig_works(&rig, &rig.x);
	rig_close(&rig);
}

static void test_no_device(void)
{
	struct fake_config config;

	CU_ASSERT_EQUAL(open_error(), -ENODEV);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "no RDMA device"));
	fake_config_init(&config, 1);
	config.open_errno = EACCES;
	fake_device_add(&config);
	fake_config_init(&config, 2);
	config.ports[0].state = IBV_PORT_DOWN;
	fake_device_add(&config);
	CU_ASSERT_EQUAL(open_error(), -ENODEV);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "fake1"));
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "fake2"));
	CHECK(fake_reset() == 0);
}

/* ---- each call fails in turn ---- */

static int connect_all(struct bench *b, void *conn[2], struct side *x,
		       struct side *y)
{
	struct conn_info info = {.rank = 1, .generation = 7};
	struct blob offer, answer;
	int err = b->ops->conn_create(b->a.pctx, &info, &b->b.address, &conn[0],
				      &offer);

	info.rank = 0;
	info.self_rank = 1;
	if (!err)
		err = b->ops->conn_accept(b->b.pctx, &info, &b->a.address,
					  &offer, &conn[1], &answer);
	if (!err)
		err = b->ops->conn_finish(conn[0], &answer);
	for (int i = 0; i < 2 && !err; i++) {
		struct side *side = i ? y : x;

		memset(side, 0, sizeof(*side));
		side->ep.ops = b->ops;
		side->ep.ctx = i ? &b->b.core : &b->a.core;
		err = b->ops->conn_attach(conn[i], &side->ep);
		if (!err)
			side->ep.conn = conn[i];
	}
	return err;
}

/* Open, connect and close, as the core would. 0, or what failed. */
static int whole_life(void)
{
	struct bench b = {.ops = &provider_verbs};
	void *conn[2] = {NULL, NULL};
	struct side x, y;
	int err = b.ops->job_open(NULL, &b.pjob, &b.caps);

	if (err)
		return err;
	mock_ctx_init(&b.a.core);
	mock_ctx_init(&b.b.core);
	err = b.ops->ctx_open(b.pjob, &b.a.core, &b.a.pctx, &b.a.address);
	if (!err)
		err = b.ops->ctx_open(b.pjob, &b.b.core, &b.b.pctx,
				      &b.b.address);
	if (!err)
		err = connect_all(&b, conn, &x, &y);
	for (int i = 0; i < 2; i++)
		if (conn[i])
			b.ops->conn_close(conn[i], -ECANCELED);
	if (b.b.pctx)
		b.ops->ctx_close(b.b.pctx);
	if (b.a.pctx)
		b.ops->ctx_close(b.a.pctx);
	b.ops->job_close(b.pjob);
	return err;
}

/* Returns how many calls there were until none failed. */
static unsigned each_fails(enum fake_call call)
{
	for (unsigned k = 1;; k++) {
		struct fake_config config;
		int err;

		fake_config_init(&config, 1);
		fake_device_add(&config);
		fake_fail(call, k, ENOMEM);
		err = whole_life();
		CHECK(fake_reset() == 0);
		if (!err)
			return k - 1;
		CU_ASSERT(err < 0 && vbn_error()[0]);
		CHECK(k < 100000);
	}
}

static void test_each_call_fails(void)
{
	CU_ASSERT(each_fails(FAKE_ALLOC_PD) >= 1);
	CU_ASSERT(each_fails(FAKE_CREATE_CHANNEL) >= 2);
	CU_ASSERT(each_fails(FAKE_CREATE_CQ) >= 2);
	CU_ASSERT(each_fails(FAKE_CREATE_SRQ) >= 2);
	CU_ASSERT(each_fails(FAKE_MODIFY_QP) >= 6);
	CU_ASSERT(each_fails(FAKE_REG_MR) >= 2);
	each_fails(FAKE_CREATE_QP); /* less inline data may do */
	each_fails(FAKE_POST_SRQ_RECV);
}

/* ---- stale answers ---- */

static void test_stale_answer(void)
{
	struct conn_info info = {.rank = 1, .generation = 1};
	struct blob offer, answer = {.len = 0}, old;
	struct rig rig;
	void *x, *y;

	rig_open_bare(&rig, NULL);
	for (info.generation = 1; info.generation < 3; info.generation++) {
		const struct provider *ops = rig.b.ops;

		old = answer;
		CHECK(!ops->conn_create(rig.b.a.pctx, &info, &rig.b.b.address,
					&x, &offer));
		CHECK(!ops->conn_accept(rig.b.b.pctx, &info, &rig.b.a.address,
					&offer, &y, &answer));
		if (info.generation == 2)
			CU_ASSERT_EQUAL(ops->conn_finish(x, &old), -ESTALE);
		CU_ASSERT_EQUAL(ops->conn_finish(x, &answer), 0);
		ops->conn_close(x, -ECANCELED);
		ops->conn_close(y, -ECANCELED);
		bench_progress(&rig.b);
	}
	rig_close(&rig);
}

/* A blob of any other length or version is refused, and nothing is left. */
static void test_garbled(void)
{
	struct conn_info info = {.rank = 1, .generation = 1};
	struct blob offer, bad, answer;
	struct rig rig;
	void *x, *y;

	rig_open_bare(&rig, NULL);
	CHECK(!rig.b.ops->conn_create(rig.b.a.pctx, &info, &rig.b.b.address, &x,
				      &offer));
	for (size_t len = 0; len < offer.len; len++) {
		bad = offer;
		bad.len = len;
		CU_ASSERT(rig.b.ops->conn_accept(rig.b.b.pctx, &info,
						 &rig.b.a.address, &bad, &y,
						 &answer) < 0);
	}
	bad = offer;
	bad.data[0] ^= 0x40;
	CU_ASSERT_EQUAL(rig.b.ops->conn_finish(x, &bad), -EPROTO);
	rig.b.ops->conn_close(x, -ECANCELED);
	bench_progress(&rig.b);
	rig_close(&rig);
}

int main(void)
{
	CU_TestInfo addresses[] = {
		{"MTU of both ends", test_mtu},
		{"InfiniBand", test_infiniband},
		{"InfiniBand across subnets", test_infiniband_subnets},
		{"link layers differ", test_layers_differ},
		{"GID types differ", test_gid_types_differ},
		{"GID table", test_gid_table},
		{"IPv6 only", test_ipv6_only},
		{"second port", test_second_port},
		CU_TEST_INFO_NULL,
	};
	CU_TestInfo devices[] = {
		{"some cannot be opened", test_devices},
		{"none is usable", test_no_device},
		{"each call fails", test_each_call_fails},
		CU_TEST_INFO_NULL,
	};
	CU_TestInfo handshake[] = {
		{"stale answer", test_stale_answer},
		{"garbled offers", test_garbled},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "addresses", .pTests = addresses},
		{.pName = "devices", .pTests = devices},
		{.pName = "handshake", .pTests = handshake},
		CU_SUITE_INFO_NULL,
	};

	setenv("VBN_LOG", "error", 0);
	return run_suites(suites);
}
