/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The choice of a GID, over tables as real ports have them, and the encoding
 * of what two sides of a verbs connection exchange.
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

/* The index chosen in @rows, or -1. */
static int choose(const struct row *rows, size_t n)
{
	struct gid_entry table[16];
	const struct gid_entry *best;

	memset(table, 0, sizeof(table));
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
	best = gid_choose(table, n);
	return best ? (int)best->index : -1;
}

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

static void offers_survive(void)
{
	struct qp_offer in = {.port = {.infiniband = true,
				       .gid_type = GID_ROCE_V2,
				       .lid = 0xfedc,
				       .gid = {1, 2, 3, [15] = 0xff}},
			      .qpn = 0xabcdef,
			      .psn = 0x123456,
			      .mtu = 5,
			      .read_out = 16,
			      .read_in = 7,
			      .generation = 0x1122334455667788};
	struct port_address port;
	struct qp_offer out;
	struct blob blob;

	offer_pack(&blob, &in);
	CU_ASSERT_EQUAL_FATAL(offer_unpack(&blob, &out), 0);
	CU_ASSERT_EQUAL(out.port.infiniband, in.port.infiniband);
	CU_ASSERT_EQUAL(out.port.gid_type, in.port.gid_type);
	CU_ASSERT_EQUAL(out.port.lid, in.port.lid);
	CU_ASSERT_EQUAL(memcmp(out.port.gid, in.port.gid, GID_BYTES), 0);
	CU_ASSERT_EQUAL(out.qpn, in.qpn);
	CU_ASSERT_EQUAL(out.psn, in.psn);
	CU_ASSERT_EQUAL(out.mtu, in.mtu);
	CU_ASSERT_EQUAL(out.read_out, in.read_out);
	CU_ASSERT_EQUAL(out.read_in, in.read_in);
	CU_ASSERT_EQUAL(out.generation, in.generation);
	offer_pack_address(&blob, &in.port);
	CU_ASSERT_EQUAL(offer_unpack_address(&blob, &port), 0);
	CU_ASSERT_EQUAL(port.lid, in.port.lid);
}

/* Every length but the right one, and every field out of its range. */
static void bad_offers_are_refused(void)
{
	struct qp_offer in = {.mtu = 3}, out = {.mtu = 77};
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
	blob = good;
	blob.data[2] = 2; /* link layer */
	CU_ASSERT_EQUAL(offer_unpack(&blob, &out), -EPROTO);
	blob = good;
	blob.data[3] = 3; /* GID type */
	CU_ASSERT_EQUAL(offer_unpack(&blob, &out), -EPROTO);
	in.mtu = 0;
	offer_pack(&blob, &in);
	CU_ASSERT_EQUAL(offer_unpack(&blob, &out), -EPROTO);
	in.mtu = 6;
	offer_pack(&blob, &in);
	CU_ASSERT_EQUAL(offer_unpack(&blob, &out), -EPROTO);
	in.mtu = 5;
	in.qpn = 1u << 24;
	offer_pack(&blob, &in);
	CU_ASSERT_EQUAL(offer_unpack(&blob, &out), -EPROTO);
	CU_ASSERT_EQUAL(out.mtu, 77); /* written on success only */
}

int main(void)
{
	static CU_TestInfo tests[] = {
		{"an unreadable entry is skipped", unreadable_is_skipped},
		{"RoCE v2 before v1", v2_before_v1},
		{"routable before link-local", routable_before_link_local},
		{"some addresses are never chosen", never_chosen},
		{"offers and addresses survive the wire", offers_survive},
		{"bad offers are refused", bad_offers_are_refused},
		CU_TEST_INFO_NULL,
	};
	static CU_SuiteInfo suites[] = {
		{"verbs_gid", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
