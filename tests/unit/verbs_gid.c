/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The choice of a GID and of a connection's pair of them, over tables as real
 * ports have them, and the encoding of what two sides exchange.
 */
#include "providers/verbs/gid.h"
#include "providers/verbs/offer.h"

#include "cunit_run.h"

#include <CUnit/Basic.h>
#include <CUnit/CUnit.h>

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#define ROWS(table) (sizeof(table) / sizeof((table)[0]))

struct row {
	const char *address; /* NULL: cannot be read */
	enum gid_type type;
};

#define TABLE_MAX 32

static void fill(struct gid_entry *table, const struct row *rows, size_t n)
{
	memset(table, 0, n * sizeof(*table));
	for (size_t i = 0; i < n; i++) {
		table[i].index = (uint32_t)i;
		table[i].type = rows[i].type;
		table[i].readable = rows[i].address != NULL;
		if (rows[i].address)
			CU_ASSERT_EQUAL_FATAL(inet_pton(AF_INET6,
							rows[i].address,
							table[i].raw),
					      1);
	}
}

/* The index chosen in @rows, or -1. */
static int choose(const struct row *rows, size_t n)
{
	struct gid_entry table[TABLE_MAX];
	const struct gid_entry *best;

	fill(table, rows, n);
	best = gid_choose(table, n);
	return best ? (int)best->index : -1;
}

/* Both sides' choice, which must agree: local * 100 + peer, or -1. */
static int pair(const struct row *a, size_t na, const struct row *b, size_t nb)
{
	struct gid_entry x[TABLE_MAX], y[TABLE_MAX];
	struct gid_pair there, back;
	bool found;

	fill(x, a, na);
	fill(y, b, nb);
	found = gid_pair(x, na, y, nb, &there);
	CU_ASSERT_EQUAL(gid_pair(y, nb, x, na, &back), found);
	if (!found)
		return -1;
	CU_ASSERT_EQUAL(there.local, back.peer);
	CU_ASSERT_EQUAL(there.peer, back.local);
	return (int)(there.local * 100 + there.peer);
}

#define PAIR(a, b) pair(a, ROWS(a), b, ROWS(b))

static void unreadable_is_skipped(void)
{
	static const struct row first[] = {{NULL, GID_ROCE_V2},
					   {"::ffff:10.1.2.3", GID_ROCE_V2}};
	static const struct row all[] = {{NULL, GID_ROCE_V2},
					 {NULL, GID_ROCE_V1}};

	CU_ASSERT_EQUAL(choose(first, ROWS(first)), 1);
	CU_ASSERT_EQUAL(choose(all, ROWS(all)), -1);
	CU_ASSERT_EQUAL(choose(NULL, 0), -1);
}

static void v2_before_v1(void)
{
	static const struct row usual[] = {{"fe80::1", GID_ROCE_V1},
					   {"fe80::1", GID_ROCE_V2},
					   {"::ffff:10.1.2.3", GID_ROCE_V1},
					   {"::ffff:10.1.2.3", GID_ROCE_V2}};
	static const struct row sparse[] = {{"fe80::1", GID_ROCE_V2},
					    {NULL, GID_IB},
					    {"::ffff:10.1.2.3", GID_ROCE_V1},
					    {"::ffff:10.1.2.3", GID_ROCE_V2}};
	static const struct row old[] = {{"fe80::1", GID_ROCE_V1},
					 {"::ffff:10.1.2.3", GID_ROCE_V1}};
	static const struct row local_v2[] = {{"2001:db8::1", GID_ROCE_V1},
					      {"fe80::1", GID_ROCE_V2}};

	CU_ASSERT_EQUAL(choose(usual, ROWS(usual)), 3);
	CU_ASSERT_EQUAL(choose(sparse, ROWS(sparse)), 3);
	CU_ASSERT_EQUAL(choose(old, ROWS(old)), 1);
	CU_ASSERT_EQUAL(choose(local_v2, ROWS(local_v2)), 1);
}

static void routable_before_link_local(void)
{
	static const struct row global[] = {{"2001:db8::7", GID_ROCE_V2}};
	static const struct row six[] = {{"fe80::1", GID_ROCE_V2},
					 {"2001:db8::7", GID_ROCE_V2}};
	static const struct row apipa[] = {{"::ffff:169.254.1.1", GID_ROCE_V2},
					   {"::ffff:192.168.1.1", GID_ROCE_V2}};
	static const struct row only_local[] = {{"fe80::1", GID_ROCE_V2}};
	static const struct row equal[] = {{"::ffff:10.0.0.1", GID_ROCE_V2},
					   {"2001:db8::7", GID_ROCE_V2}};

	CU_ASSERT_EQUAL(choose(global, ROWS(global)), 0);
	CU_ASSERT_EQUAL(choose(six, ROWS(six)), 1);
	CU_ASSERT_EQUAL(choose(apipa, ROWS(apipa)), 1);
	CU_ASSERT_EQUAL(choose(only_local, ROWS(only_local)), 0);
	CU_ASSERT_EQUAL(choose(equal, ROWS(equal)), 0);
}

static void never_chosen(void)
{
	static const struct row bad[] = {{"::", GID_ROCE_V2},
					 {"::1", GID_ROCE_V2},
					 {"ff02::1", GID_ROCE_V2},
					 {"::ffff:127.0.0.1", GID_ROCE_V2},
					 {"::ffff:0.0.0.0", GID_ROCE_V2},
					 {"::ffff:224.0.0.1", GID_ROCE_V2},
					 {"2001:db8::1", GID_IB}};

	CU_ASSERT_EQUAL(choose(bad, ROWS(bad)), -1);
}

static void ipv4_before_ipv6(void)
{
	static const struct row both[] = {{"2001:db8::7", GID_ROCE_V2},
					  {"::ffff:10.0.0.1", GID_ROCE_V2}};
	static const struct row old[] = {{"2001:db8::7", GID_ROCE_V2},
					 {"::ffff:10.0.0.1", GID_ROCE_V1}};

	CU_ASSERT_EQUAL(choose(both, ROWS(both)), 1);
	CU_ASSERT_EQUAL(choose(old, ROWS(old)), 0);
}

static void candidates_are_sorted(void)
{
	static const struct row rows[] = {{NULL, GID_ROCE_V2},
					  {"fe80::1", GID_ROCE_V2},
					  {"::", GID_ROCE_V2},
					  {"::ffff:10.1.2.3", GID_ROCE_V1},
					  {"::ffff:10.1.2.3", GID_ROCE_V2},
					  {"2001:db8::1", GID_ROCE_V2},
					  {"::ffff:10.9.9.9", GID_ROCE_V2}};
	static const unsigned want[] = {4, 6, 5, 1, 3};
	struct gid_entry table[ROWS(rows)], out[8];

	fill(table, rows, ROWS(rows));
	CU_ASSERT_EQUAL_FATAL(gid_candidates(table, ROWS(rows), out, 8), 5);
	for (size_t i = 0; i < 5; i++)
		CU_ASSERT_EQUAL(out[i].index, want[i]);
	memset(out, 0xee, sizeof(out));
	CU_ASSERT_EQUAL_FATAL(gid_candidates(table, ROWS(rows), out, 2), 2);
	CU_ASSERT(out[0].index == 4 && out[1].index == 6);
	CU_ASSERT_EQUAL(out[2].index, 0xeeeeeeee);
}

static void every_entry_has_its_reason(void)
{
	static const struct row rows[] = {{NULL, GID_ROCE_V2},
					  {"::", GID_ROCE_V2},
					  {"::ffff:127.0.0.1", GID_ROCE_V2},
					  {"2001:db8::1", GID_IB},
					  {"::ffff:10.1.2.3", GID_ROCE_V2},
					  {"::ffff:10.1.2.3", GID_ROCE_V1},
					  {"fe80::1", GID_ROCE_V2},
					  {"2001:db8::1", GID_ROCE_V2},
					  {"::ffff:10.1.2.4", GID_ROCE_V2}};
	struct gid_entry t[ROWS(rows)];

	fill(t, rows, ROWS(rows));
	CU_ASSERT_STRING_EQUAL(gid_unfit(&t[0]), "cannot be read");
	CU_ASSERT_STRING_EQUAL(gid_unfit(&t[1]), "empty");
	CU_ASSERT_PTR_NOT_NULL(gid_unfit(&t[2]));
	CU_ASSERT_PTR_NOT_NULL(gid_unfit(&t[3]));
	CU_ASSERT_PTR_NULL(gid_unfit(&t[4]));
	CU_ASSERT_PTR_NOT_NULL(strstr(gid_lesser(&t[5], &t[4]), "RoCE v2"));
	CU_ASSERT_PTR_NOT_NULL(strstr(gid_lesser(&t[6], &t[4]), "link-local"));
	CU_ASSERT_PTR_NOT_NULL(strstr(gid_lesser(&t[7], &t[4]), "IPv4"));
	CU_ASSERT_PTR_NOT_NULL(strstr(gid_lesser(&t[8], &t[4]), "lower"));
}

static void pairs_are_of_one_kind(void)
{
	static const struct row v4[] = {{"::ffff:10.1.2.3", GID_ROCE_V2}};
	static const struct row v4b[] = {{"::ffff:10.1.2.4", GID_ROCE_V2}};
	static const struct row v4old[] = {{"::ffff:10.1.2.4", GID_ROCE_V1}};
	static const struct row v6[] = {{"2001:db8::1", GID_ROCE_V2}};
	static const struct row mixed[] = {{"2001:db8::9", GID_ROCE_V2},
					   {NULL, GID_ROCE_V2},
					   {"::ffff:10.1.2.3", GID_ROCE_V1},
					   {"::ffff:10.1.2.3", GID_ROCE_V2}};
	static const struct row ib[] = {{"fe80::1", GID_IB}};

	CU_ASSERT_EQUAL(PAIR(v4, v4b), 0);
	CU_ASSERT_EQUAL(PAIR(v4, v6), -1);
	CU_ASSERT_EQUAL(PAIR(v4, v4old), -1);
	CU_ASSERT_EQUAL(PAIR(v4, ib), -1);
	/* IPv4 is preferred, but for a peer that has IPv6, or v1, only */
	CU_ASSERT_EQUAL(PAIR(mixed, v4b), 300);
	CU_ASSERT_EQUAL(PAIR(mixed, v6), 0);
	CU_ASSERT_EQUAL(PAIR(mixed, v4old), 200);
	CU_ASSERT_EQUAL(PAIR(mixed, mixed), 303);
	CU_ASSERT_EQUAL(pair(v4, 1, NULL, 0), -1);
}

static void pairs_are_of_one_subnet(void)
{
	static const struct row rails[] = {{"::ffff:10.0.1.5", GID_ROCE_V2},
					   {"::ffff:10.0.2.5", GID_ROCE_V2}};
	static const struct row second[] = {{"::ffff:192.168.0.7", GID_ROCE_V2},
					    {"::ffff:10.0.2.7", GID_ROCE_V2}};
	static const struct row far4[] = {{"::ffff:10.0.1.5", GID_ROCE_V2},
					  {"2001:db8:0:1::5", GID_ROCE_V2}};
	static const struct row near6[] = {{"::ffff:172.16.0.1", GID_ROCE_V2},
					   {"2001:db8:0:1::6", GID_ROCE_V2}};
	static const struct row near_v1[] = {
		{"::ffff:10.0.1.6", GID_ROCE_V1},
		{"::ffff:172.16.0.1", GID_ROCE_V2}};
	static const struct row far_v1[] = {{"::ffff:10.0.1.5", GID_ROCE_V1},
					    {"::ffff:10.0.1.5", GID_ROCE_V2}};
	static const struct row local[] = {{"fe80::5", GID_ROCE_V2},
					   {"::ffff:10.0.1.5", GID_ROCE_V2}};
	static const struct row local_far[] = {
		{"fe80::6", GID_ROCE_V2}, {"::ffff:172.16.0.1", GID_ROCE_V2}};

	CU_ASSERT_EQUAL(PAIR(rails, second), 101);
	CU_ASSERT_EQUAL(PAIR(rails, rails), 0);
	/* one subnet counts more than the family, less than version, reach */
	CU_ASSERT_EQUAL(PAIR(far4, near6), 101);
	CU_ASSERT_EQUAL(PAIR(far_v1, near_v1), 101);
	CU_ASSERT_EQUAL(PAIR(local, local_far), 101);
}

/* Every pair of tables of up to three rows: both sides agree. */
static void pairs_are_symmetric(void)
{
	static const struct row all[] = {
		{"::ffff:10.0.1.5", GID_ROCE_V2}, {"fe80::5", GID_ROCE_V2},
		{"::ffff:10.0.1.6", GID_ROCE_V2}, {"2001:db8::5", GID_ROCE_V2},
		{"::ffff:10.0.1.5", GID_ROCE_V1}, {NULL, GID_ROCE_V2}};
	enum { N = ROWS(all), TABLES = N * N * N };
	int found = 0;

	for (int i = 0; i < TABLES * TABLES; i++) {
		int x = i / TABLES, y = i % TABLES;
		struct row a[] = {all[x % N], all[x / N % N], all[x / N / N]};
		struct row b[] = {all[y % N], all[y / N % N], all[y / N / N]};
		struct gid_entry p[3], q[3];
		struct gid_pair there, back;

		fill(p, a, 3);
		fill(q, b, 3);
		if (!gid_pair(p, 3, q, 3, &there) ||
		    !gid_pair(q, 3, p, 3, &back))
			continue;
		found++;
		if (memcmp(p[there.local].raw, p[back.peer].raw, GID_BYTES) ||
		    memcmp(q[there.peer].raw, q[back.local].raw, GID_BYTES) ||
		    p[there.local].type != p[back.peer].type)
			CU_FAIL("the sides chose differently");
	}
	CU_ASSERT(found > 1000);
}

static const struct port_address sample = {
	.infiniband = true,
	.mtu = 5,
	.port_num = 2,
	.lid = 0xfedc,
	.pkey = 0x8001,
	.name = "mlx5_bond_0",
	.ngids = 2,
	.gids = {{.raw = {1, 2, 3, [15] = 0xff}, .type = GID_ROCE_V2},
		 {.raw = {4, [15] = 9}, .type = GID_ROCE_V1}},
};

static void addresses_survive(void)
{
	struct rail_addresses all = {.n = 1, .rail = {sample}}, got;
	struct port_address *in = &all.rail[0], out;
	struct blob blob;

	offer_pack_addresses(&blob, &all);
	CU_ASSERT_EQUAL_FATAL(offer_unpack_addresses(&blob, &got), 0);
	CU_ASSERT_EQUAL(got.n, 1);
	out = got.rail[0];
	CU_ASSERT(out.infiniband && out.mtu == 5 && out.port_num == 2);
	CU_ASSERT(out.lid == 0xfedc && out.pkey == 0x8001 && out.ngids == 2);
	CU_ASSERT_STRING_EQUAL(out.name, "mlx5_bond_0");
	for (int i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(out.gids[i].type, in->gids[i].type);
		CU_ASSERT_TRUE(out.gids[i].readable);
		CU_ASSERT_EQUAL(
			memcmp(out.gids[i].raw, in->gids[i].raw, GID_BYTES), 0);
	}
	in->ngids = PORT_GIDS;
	offer_pack_addresses(&blob, &all);
	CU_ASSERT(blob.len <= BLOB_MAX);
	CU_ASSERT_EQUAL(offer_unpack_addresses(&blob, &got), 0);
	out = got.rail[0];
	CU_ASSERT_EQUAL(out.ngids, PORT_GIDS);
	in->ngids = 0;
	offer_pack_addresses(&blob, &all);
	CU_ASSERT_EQUAL(offer_unpack_addresses(&blob, &got), 0);
	out = got.rail[0];
	CU_ASSERT_EQUAL(out.ngids, 0);
}

/* As many GIDs of each as fit a blob. */
static void many_ports_fit(void)
{
	struct rail_addresses in = {.n = RAILS_MAX}, out;
	struct blob blob;

	for (int i = 0; i < RAILS_MAX; i++) {
		in.rail[i] = sample;
		in.rail[i].ngids = PORT_GIDS;
		in.rail[i].lid = (uint16_t)i;
	}
	offer_pack_addresses(&blob, &in);
	CU_ASSERT(blob.len <= BLOB_MAX);
	CU_ASSERT_EQUAL_FATAL(offer_unpack_addresses(&blob, &out), 0);
	CU_ASSERT_EQUAL(out.n, RAILS_MAX);
	for (int i = 0; i < RAILS_MAX; i++)
		CU_ASSERT(out.rail[i].lid == i && out.rail[i].ngids >= 8);
}

static void bad_addresses_are_refused(void)
{
	const struct rail_addresses in = {.n = 2, .rail = {sample, sample}};
	struct rail_addresses out = {.n = 77};
	struct blob good, blob;

	offer_pack_addresses(&good, &in);
	for (size_t len = 0; len <= BLOB_MAX; len++) {
		memset(&blob, 0, sizeof(blob));
		memcpy(blob.data, good.data, good.len);
		blob.len = len;
		if (len != good.len)
			CU_ASSERT_EQUAL(offer_unpack_addresses(&blob, &out),
					-EPROTO);
	}
	/* each byte's every value: refused or taken, never out of range */
	for (size_t i = 0; i < good.len; i++)
		for (int v = 0; v < 256; v++) {
			const struct port_address *a;
			struct rail_addresses got;

			blob = good;
			blob.data[i] = (uint8_t)v;
			if (offer_unpack_addresses(&blob, &got))
				continue;
			a = &got.rail[1];
			if (got.n != 2 || a->ngids > PORT_GIDS || a->mtu < 1 ||
			    a->mtu > 5 || a->name[PORT_NAME - 1] ||
			    a->gids[0].type > GID_ROCE_V2)
				CU_FAIL("a bad address was taken");
		}
	CU_ASSERT_EQUAL(out.n, 77); /* written on success only */
}

static const struct conn_offer offered = {
	.generation = 0x1122334455667788,
	.ring_addr = 0x99aabbccddeeff00,
	.ring_bytes = 1024,
	.npairs = 2,
	.nlanes = 4,
	.pair = {{.to = 1,
		  .ring_rkey = 0x12345678,
		  .qp = {.gid_type = GID_ROCE_V2,
			 .from = {1, 2, 3, [15] = 0xff},
			 .to = {5, 6, 7, [15] = 0xfe},
			 .lid = 0xfedc,
			 .mtu = 5,
			 .read_out = 16,
			 .read_in = 7}},
		 {.from = 1, .qp = {.mtu = 3}}},
	.lane = {{0xabcdef, 0x123456}, {1, 2}, {3, 4}, {5, 6}},
};

static void offers_survive(void)
{
	struct conn_offer out;
	struct qp_offer lane;
	struct blob blob;

	offer_pack(&blob, &offered);
	CU_ASSERT_EQUAL_FATAL(offer_unpack(&blob, &out), 0);
	CU_ASSERT_EQUAL(out.generation, offered.generation);
	CU_ASSERT_EQUAL(out.ring_addr, offered.ring_addr);
	CU_ASSERT(out.ring_bytes == 1024 && out.npairs == 2 && out.nlanes == 4);
	CU_ASSERT(out.pair[0].to == 1 && out.pair[1].from == 1);
	CU_ASSERT_EQUAL(out.pair[0].ring_rkey, 0x12345678);
	lane = offer_of_lane(&out, 0);
	CU_ASSERT_EQUAL(lane.gid_type, GID_ROCE_V2);
	CU_ASSERT(lane.from[15] == 0xff && lane.to[15] == 0xfe);
	CU_ASSERT(lane.lid == 0xfedc && lane.mtu == 5);
	CU_ASSERT(lane.qpn == 0xabcdef && lane.psn == 0x123456);
	CU_ASSERT(lane.read_out == 16 && lane.read_in == 7);
	lane = offer_of_lane(&out, 3); /* of the second pair */
	CU_ASSERT(lane.qpn == 5 && lane.psn == 6 && lane.mtu == 3);
}

static int refused(const struct conn_offer *in)
{
	struct conn_offer out = {.npairs = 77};
	struct blob blob;
	int err;

	offer_pack(&blob, in);
	err = offer_unpack(&blob, &out);
	CU_ASSERT_EQUAL(out.npairs, 77); /* written on success only */
	return err;
}

/* Every length but the right one, and every field out of its range. */
static void bad_offers_are_refused(void)
{
	struct conn_offer in = offered, out = {.npairs = 77};
	struct blob good, blob;

	offer_pack(&good, &in);
	for (size_t len = 0; len <= BLOB_MAX; len++) {
		memset(&blob, 0, sizeof(blob));
		memcpy(blob.data, good.data, good.len);
		blob.len = len;
		if (len != good.len)
			CU_ASSERT_EQUAL(offer_unpack(&blob, &out), -EPROTO);
	}
	blob = good;
	blob.data[0] ^= 0x40; /* version */
	CU_ASSERT_EQUAL(offer_unpack(&blob, &out), -EPROTO);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "version"));
	for (int field = 0; field < 7; field++) {
		in = offered;
		if (field == 0)
			in.pair[1].qp.gid_type = (enum gid_type)3;
		else if (field == 1)
			in.pair[0].qp.mtu = 0;
		else if (field == 2)
			in.pair[1].qp.mtu = 6;
		else if (field == 3)
			in.lane[3].qpn = 1u << 24;
		else if (field == 4)
			in.pair[0].to = RAILS_MAX;
		else if (field == 5)
			in.nlanes = 1;
		else
			in.npairs = 0;
		CU_ASSERT_EQUAL(refused(&in), -EPROTO);
	}
	for (size_t i = 2; i < good.len; i++)
		for (int v = 0; v < 256; v++) {
			struct conn_offer got;

			blob = good;
			blob.data[i] = (uint8_t)v;
			if (!offer_unpack(&blob, &got) &&
			    (!got.npairs || got.npairs > RAILS_MAX ||
			     got.nlanes > LANES_MAX))
				CU_FAIL("a bad offer was taken");
		}
	CU_ASSERT_EQUAL(out.npairs, 77);
}

int main(void)
{
	static CU_TestInfo tests[] = {
		{"an unreadable entry is skipped", unreadable_is_skipped},
		{"RoCE v2 before v1", v2_before_v1},
		{"routable before link-local", routable_before_link_local},
		{"some addresses are never chosen", never_chosen},
		{"IPv4 before IPv6", ipv4_before_ipv6},
		{"candidates are sorted", candidates_are_sorted},
		{"every entry has its reason", every_entry_has_its_reason},
		{"pairs are of one kind", pairs_are_of_one_kind},
		{"pairs are of one subnet", pairs_are_of_one_subnet},
		{"pairs are symmetric", pairs_are_symmetric},
		{"addresses survive the wire", addresses_survive},
		{"bad addresses are refused", bad_addresses_are_refused},
		{"many ports fit", many_ports_fit},
		{"offers survive the wire", offers_survive},
		{"bad offers are refused", bad_offers_are_refused},
		CU_TEST_INFO_NULL,
	};
	static CU_SuiteInfo suites[] = {
		{"verbs_gid", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
