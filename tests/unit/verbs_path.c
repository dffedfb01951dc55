/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Paths: whether two ports can talk, which addresses they use, and what a
 * queue pair is told of it. Both sides of each connection are gone through.
 */
#include "providers/verbs/path.h"
#include "error.h"

#include "cunit_run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void add_gid(struct path_port *port, const char *text,
		    enum gid_type type, uint32_t index)
{
	struct gid_entry *gid = &port->address.gids[port->address.ngids++];

	memset(gid, 0, sizeof(*gid));
	inet_pton(AF_INET6, text, gid->raw);
	gid->type = type;
	gid->index = index;
	gid->readable = true;
}

static struct path_port roce(const char *name, const char *gid,
			     enum gid_type type, uint32_t index)
{
	struct path_port port = {
		.address = {.mtu = IBV_MTU_4096, .port_num = 1, .pkey = 0xffff},
		.timeout = TIMEOUT_SOFTWARE,
		.retry_cnt = RETRIES,
		.grh = true,
	};

	strcpy(port.address.name, name);
	add_gid(&port, gid, type, index);
	return port;
}

static struct path_port infiniband(uint16_t lid, const char *gid)
{
	struct path_port port = roce("mlx5_0", gid, GID_IB, 0);

	port.address.infiniband = true;
	port.address.lid = lid;
	port.grh = false;
	return port;
}

/* What a peer learns of the port. */
static struct port_address published(const struct path_port *port)
{
	const struct rail_addresses in = {.n = 1, .rail = {port->address}};
	struct rail_addresses out;
	struct blob blob;

	offer_pack_addresses(&blob, &in);
	CU_ASSERT_EQUAL_FATAL(offer_unpack_addresses(&blob, &out), 0);
	return out.rail[0];
}

struct side {
	struct path_port port;
	struct path path;
	struct qp_offer offer;
	struct ibv_qp_attr rtr, rts;
	int rtr_mask, rts_mask;
};

/* As verbs_conn_create(), accept(), finish() do it. 0 or the first error. */
static int connect_sides(struct side *a, struct side *b)
{
	struct port_address at_a = published(&a->port);
	struct port_address at_b = published(&b->port);
	int err;

	a->path.rank = b->path.self_rank = 3;
	a->path.self_rank = b->path.rank = 0;
	a->offer.qpn = 0x111;
	b->offer.qpn = 0x222;
	a->offer.psn = 0x333;
	b->offer.psn = 0x444;
	a->offer.read_out = 16;
	a->offer.read_in = 4;
	b->offer.read_out = b->offer.read_in = 8;
	err = path_choose(&a->port, &at_b, &a->path);
	if (err)
		return err;
	path_offer(&a->port, &a->path, &a->offer);
	err = path_accept(&b->port, &at_a, &a->offer, &b->path);
	if (err)
		return err;
	path_offer(&b->port, &b->path, &b->offer);
	err = path_confirm(&a->path, &b->offer);
	if (err)
		return err;
	a->rtr_mask =
		path_rtr(&a->port, &a->path, &a->offer, &b->offer, &a->rtr);
	b->rtr_mask =
		path_rtr(&b->port, &b->path, &b->offer, &a->offer, &b->rtr);
	a->rts_mask = path_rts(&a->port, &a->offer, &b->offer, &a->rts);
	b->rts_mask = path_rts(&b->port, &b->offer, &a->offer, &b->rts);
	return 0;
}

static void refused(struct side *a, struct side *b, const char *here,
		    const char *there, const char *what)
{
	struct side x = *b, y = *a;

	CU_ASSERT_EQUAL(connect_sides(a, b), -EHOSTUNREACH);
	if (!strstr(vbn_error(), here) || !strstr(vbn_error(), there) ||
	    !strstr(vbn_error(), what) || !strstr(vbn_error(), "rank 0") ||
	    !strstr(vbn_error(), "rank 3"))
		CU_FAIL("the line lacks an end, or what differs");
	CU_ASSERT_EQUAL(connect_sides(&x, &y), -EHOSTUNREACH);
}

static void smaller_mtu_on_both(void)
{
	struct side a = {
		.port = roce("rxe0", "::ffff:10.1.2.3", GID_ROCE_V2, 3)};
	struct side b = {
		.port = roce("rxe1", "::ffff:10.1.2.4", GID_ROCE_V2, 1)};

	b.port.address.mtu = IBV_MTU_1024;
	CU_ASSERT_EQUAL_FATAL(connect_sides(&a, &b), 0);
	CU_ASSERT_EQUAL(a.rtr.path_mtu, IBV_MTU_1024);
	CU_ASSERT_EQUAL(b.rtr.path_mtu, IBV_MTU_1024);
}

static void roce_has_a_header(void)
{
	struct side a = {
		.port = roce("rxe0", "::ffff:10.1.2.3", GID_ROCE_V2, 3)};
	struct side b = {
		.port = roce("rxe1", "::ffff:10.1.2.4", GID_ROCE_V2, 1)};

	a.port.sl = 5;
	a.port.tc = 104;
	CU_ASSERT_EQUAL_FATAL(connect_sides(&a, &b), 0);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.is_global, 1);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.grh.sgid_index, 3);
	CU_ASSERT_EQUAL(b.rtr.ah_attr.grh.sgid_index, 1);
	CU_ASSERT_EQUAL(memcmp(a.rtr.ah_attr.grh.dgid.raw,
			       b.port.address.gids[0].raw, GID_BYTES),
			0);
	CU_ASSERT_EQUAL(memcmp(b.rtr.ah_attr.grh.dgid.raw,
			       a.port.address.gids[0].raw, GID_BYTES),
			0);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.grh.traffic_class, 104);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.sl, 5);
	CU_ASSERT_EQUAL(b.rtr.ah_attr.sl, 0);
	CU_ASSERT(a.rtr.ah_attr.grh.hop_limit > 1);
	CU_ASSERT_EQUAL(a.rtr.dest_qp_num, 0x222);
	CU_ASSERT_EQUAL(a.rtr.rq_psn, 0x444);
	CU_ASSERT_EQUAL(a.rts.sq_psn, 0x333);
	CU_ASSERT_EQUAL(b.rtr.rq_psn, 0x333);
	/* what one may send at once is what the other can serve at once */
	CU_ASSERT_EQUAL(a.rts.max_rd_atomic, 8);
	CU_ASSERT_EQUAL(b.rtr.max_dest_rd_atomic, 8);
	CU_ASSERT_EQUAL(b.rts.max_rd_atomic, 4);
	CU_ASSERT_EQUAL(a.rtr.max_dest_rd_atomic, 4);
}

static void the_pair_is_used(void)
{
	struct side a = {
		.port = roce("rxe0", "::ffff:172.16.0.1", GID_ROCE_V2, 5)};
	struct side b = {
		.port = roce("rxe1", "::ffff:10.1.2.4", GID_ROCE_V2, 1)};

	add_gid(&a.port, "::ffff:10.1.2.3", GID_ROCE_V2, 7);
	add_gid(&b.port, "2001:db8::1", GID_ROCE_V2, 2);
	CU_ASSERT_EQUAL_FATAL(connect_sides(&a, &b), 0);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.grh.sgid_index, 7);
	CU_ASSERT_EQUAL(b.rtr.ah_attr.grh.sgid_index, 1);
	CU_ASSERT_EQUAL(memcmp(b.rtr.ah_attr.grh.dgid.raw,
			       a.port.address.gids[1].raw, GID_BYTES),
			0);
}

static void lid_within_a_subnet(void)
{
	struct side a = {.port = infiniband(7, "fe80::1:2:3:4")};
	struct side b = {.port = infiniband(9, "fe80::5:6:7:8")};

	a.port.sl = 3;
	a.port.tc = 9;
	CU_ASSERT_EQUAL_FATAL(connect_sides(&a, &b), 0);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.is_global, 0);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.dlid, 9);
	CU_ASSERT_EQUAL(b.rtr.ah_attr.dlid, 7);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.sl, 3);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.grh.traffic_class, 0);
}

static void header_across_subnets(void)
{
	struct side a = {.port = infiniband(7, "fe80:0:0:1::1")};
	struct side b = {.port = infiniband(9, "fe80:0:0:2::2")};
	struct side c = {.port = infiniband(7, "fe80::1")};
	struct side d = {.port = infiniband(0, "fe80::2")};

	CU_ASSERT_EQUAL_FATAL(connect_sides(&a, &b), 0);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.is_global, 1);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.dlid, 9);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.grh.dgid.raw[7], 2);
	d.port.grh = true;
	CU_ASSERT_EQUAL_FATAL(connect_sides(&c, &d), 0);
	CU_ASSERT_EQUAL(c.rtr.ah_attr.is_global, 1);
	CU_ASSERT_EQUAL(d.rtr.ah_attr.is_global, 1);
}

static void lid_alone(void)
{
	struct side a = {.port = infiniband(7, "fe80::1")};
	struct side b = {.port = infiniband(9, "fe80::2")};

	a.port.address.ngids = b.port.address.ngids = 0;
	CU_ASSERT_EQUAL_FATAL(connect_sides(&a, &b), 0);
	CU_ASSERT_EQUAL(a.rtr.ah_attr.is_global, 0);
}

static void what_differs_is_told(void)
{
	struct side eth = {
		.port = roce("rxe0", "::ffff:10.1.2.3", GID_ROCE_V2, 3)};
	struct side ib = {.port = infiniband(7, "fe80::1")};
	struct side old = {
		.port = roce("mlx4_0", "::ffff:10.1.2.4", GID_ROCE_V1, 0)};
	struct side six = {.port = roce("rxe6", "2001:db8::1", GID_ROCE_V2, 0)};
	struct side other = {
		.port = roce("rxe7", "::ffff:10.1.2.5", GID_ROCE_V2, 0)};
	struct side limited = other;

	refused(&eth, &ib, "rxe0", "mlx5_0", "InfiniBand");
	refused(&eth, &old, "10.1.2.3", "10.1.2.4", "RoCE v1");
	refused(&eth, &six, "10.1.2.3", "2001:db8::1", "family");
	other.port.address.pkey = 0x9234;
	refused(&eth, &other, "0xffff", "0x9234", "VBN_IB_PKEY");
	limited.port.address.pkey = eth.port.address.pkey = 0x7fff;
	refused(&eth, &limited, "rxe0", "rxe7", "limited");
	eth.port.address.pkey = 0xffff;
	CU_ASSERT_EQUAL(connect_sides(&eth, &limited), 0);
}

static void changed_addresses_are_told(void)
{
	struct side a = {
		.port = roce("rxe0", "::ffff:10.1.2.3", GID_ROCE_V2, 3)};
	struct side b = {
		.port = roce("rxe1", "::ffff:10.1.2.4", GID_ROCE_V2, 1)};
	struct port_address at_a = published(&a.port);

	CU_ASSERT_EQUAL_FATAL(connect_sides(&a, &b), 0);
	b.port.address.gids[0].raw[15]++;
	CU_ASSERT_EQUAL(path_accept(&b.port, &at_a, &a.offer, &b.path),
			-EHOSTUNREACH);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "::ffff:10.1.2.4"));
	b.offer.from[15]++;
	CU_ASSERT_EQUAL(path_confirm(&a.path, &b.offer), -EPROTO);
}

static void settings_are_placed(void)
{
	struct side a = {
		.port = roce("rxe0", "::ffff:10.1.2.3", GID_ROCE_V2, 3)};
	struct side b = a;
	struct ibv_qp_attr attr;
	int mask;

	a.port.pkey_index = 5;
	a.port.timeout = 21;
	a.port.retry_cnt = 2;
	mask = path_init(&a.port, true, &attr);
	CU_ASSERT(mask & IBV_QP_PKEY_INDEX);
	CU_ASSERT_EQUAL(attr.pkey_index, 5);
	CU_ASSERT_EQUAL(attr.port_num, 1);
	CU_ASSERT(attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC);
	path_init(&a.port, false, &attr);
	CU_ASSERT(!(attr.qp_access_flags & IBV_ACCESS_REMOTE_ATOMIC));
	CU_ASSERT_EQUAL_FATAL(connect_sides(&a, &b), 0);
	CU_ASSERT_EQUAL(a.rts.timeout, 21);
	CU_ASSERT_EQUAL(a.rts.retry_cnt, 2);
	CU_ASSERT_EQUAL(b.rts.timeout, 14);
	CU_ASSERT_EQUAL(b.rts.retry_cnt, 6);
	CU_ASSERT_EQUAL(a.rtr.min_rnr_timer, 12);
	CU_ASSERT(a.rtr_mask & IBV_QP_MIN_RNR_TIMER);
	CU_ASSERT(a.rts_mask & IBV_QP_RETRY_CNT);
}

static void settings_are_read(void)
{
	static const char *const set[][2] = {
		{"VBN_IB_GID_INDEX", "3"}, {"VBN_IB_TIMEOUT", "20"},
		{"VBN_IB_RETRY_CNT", "0"}, {"VBN_IB_SL", "4"},
		{"VBN_IB_TC", "104"},	   {"VBN_IB_QPS", "8"},
		{"VBN_IB_PKEY", "0x8123"}, {"VBN_IB_MTU", "1024"},
		{"VBN_IB_HCA", "^mlx5_1"},
	};
	struct path_settings s;

	CU_ASSERT_EQUAL_FATAL(path_settings_read(&s), 0);
	CU_ASSERT(s.gid_index == -1 && s.timeout == -1 && s.retry_cnt == 6);
	CU_ASSERT(s.sl == 0 && s.tc == 0 && s.qps == 1 && s.pkey == 0xffff);
	CU_ASSERT(s.mtu_max == IBV_MTU_4096 && s.devices.n == 0);
	for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++)
		setenv(set[i][0], set[i][1], 1);
	CU_ASSERT_EQUAL_FATAL(path_settings_read(&s), 0);
	CU_ASSERT(s.gid_index == 3 && s.timeout == 20 && s.retry_cnt == 0);
	CU_ASSERT(s.sl == 4 && s.tc == 104 && s.qps == 8 && s.pkey == 0x8123);
	CU_ASSERT(s.mtu_max == IBV_MTU_1024 && s.devices.excluded);
	setenv("VBN_IB_RETRY_CNT", "7", 1);
	CU_ASSERT_EQUAL(path_settings_read(&s), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "VBN_IB_RETRY_CNT"));
	for (size_t i = 0; i < sizeof(set) / sizeof(set[0]); i++)
		unsetenv(set[i][0]);
}

int main(void)
{
	static CU_TestInfo tests[] = {
		{"the smaller MTU on both", smaller_mtu_on_both},
		{"RoCE has a routing header", roce_has_a_header},
		{"the pair that was chosen is used", the_pair_is_used},
		{"a LID within a subnet", lid_within_a_subnet},
		{"a header across subnets", header_across_subnets},
		{"a LID alone", lid_alone},
		{"what differs is told", what_differs_is_told},
		{"changed addresses are told", changed_addresses_are_told},
		{"settings are placed", settings_are_placed},
		{"settings are read", settings_are_read},
		CU_TEST_INFO_NULL,
	};
	static CU_SuiteInfo suites[] = {
		{"verbs_path", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
