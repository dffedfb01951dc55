/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What connecting by rdma_cm says, believes and does next: private data that is
 * forged in each bit, addresses, each event in each state, attributes.
 */
#include "providers/verbs/cm_wire.h"

#include "cunit_run.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

static const struct cm_hello hello = {
	.generation = 0x123456789abc, .qpn = 0xabcdef, .lane = 7};

static void fill_key(uint8_t key[CM_KEY_BYTES], uint8_t seed)
{
	for (unsigned i = 0; i < CM_KEY_BYTES; i++)
		key[i] = (uint8_t)(seed + 31 * i);
}

static void test_round_trip(void)
{
	uint8_t key[CM_KEY_BYTES], data[56] = {0};
	struct cm_hello got;

	fill_key(key, 1);
	for (int reply = 0; reply < 2; reply++) {
		struct cm_hello say = hello;

		say.reply = reply;
		cm_hello_pack(data, &say, key);
		CU_ASSERT_TRUE_FATAL(cm_hello_unpack(data, sizeof(data), &got));
		CU_ASSERT_EQUAL(got.generation, hello.generation);
		CU_ASSERT_EQUAL(got.qpn, hello.qpn);
		CU_ASSERT_EQUAL(got.lane, hello.lane);
		CU_ASSERT_EQUAL(got.reply, reply);
		CU_ASSERT(cm_hello_proves(data, sizeof(data), key, reply));
		/* a request that is sent back is no reply */
		CU_ASSERT_FALSE(
			cm_hello_proves(data, sizeof(data), key, !reply));
	}
}

static void test_forged(void)
{
	uint8_t key[CM_KEY_BYTES], other[CM_KEY_BYTES], data[CM_HELLO_BYTES];

	fill_key(key, 1);
	fill_key(other, 2);
	cm_hello_pack(data, &hello, other);
	CU_ASSERT_FALSE(cm_hello_proves(data, sizeof(data), key, false));
	cm_hello_pack(data, &hello, key);
	for (unsigned bit = 0; bit < 8 * CM_HELLO_BYTES; bit++) {
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		CU_ASSERT_FALSE(
			cm_hello_proves(data, sizeof(data), key, false));
		data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	for (size_t len = 0; len < sizeof(data); len++)
		CU_ASSERT_FALSE(cm_hello_proves(data, len, key, false));
	CU_ASSERT(cm_hello_proves(data, sizeof(data), key, false));
}

static void test_malformed(void)
{
	uint8_t key[CM_KEY_BYTES], data[CM_HELLO_BYTES];
	struct cm_hello got;

	fill_key(key, 1);
	cm_hello_pack(data, &hello, key);
	for (size_t len = 0; len < sizeof(data); len++)
		CU_ASSERT_FALSE(cm_hello_unpack(data, len, &got));
	CU_ASSERT_FALSE(cm_hello_unpack(NULL, 0, &got));
	data[1] = LANES_MAX;
	CU_ASSERT_FALSE(cm_hello_unpack(data, sizeof(data), &got));
	data[1] = 0;
	data[0] = 2; /* another version */
	CU_ASSERT_FALSE(cm_hello_unpack(data, sizeof(data), &got));
}

static struct cm_place place_of(const char *text, uint16_t port)
{
	struct cm_place place = {.port = port};

	inet_pton(AF_INET6, text, place.ip);
	return place;
}

static void test_addresses(void)
{
	static const char *const none[] = {"::", "fe80::1", "febf::2"};
	struct cm_place v4 = place_of("::ffff:10.1.2.3", 4000);
	struct cm_place v6 = place_of("2001:db8::5", 0);
	struct sockaddr_storage a;
	char text[CM_TEXT];

	CU_ASSERT_TRUE_FATAL(cm_sockaddr(v4.ip, v4.port, &a));
	CU_ASSERT_EQUAL(a.ss_family, AF_INET);
	CU_ASSERT_EQUAL(((struct sockaddr_in *)&a)->sin_port, htons(4000));
	CU_ASSERT_EQUAL(((struct sockaddr_in *)&a)->sin_addr.s_addr,
			htonl(0x0a010203));
	CU_ASSERT_STRING_EQUAL(cm_text(&v4, text), "10.1.2.3 port 4000");
	CU_ASSERT_TRUE_FATAL(cm_sockaddr(v6.ip, 9, &a));
	CU_ASSERT_EQUAL(a.ss_family, AF_INET6);
	CU_ASSERT_EQUAL(((struct sockaddr_in6 *)&a)->sin6_port, htons(9));
	CU_ASSERT_STRING_EQUAL(cm_text(&v6, text), "2001:db8::5");
	for (unsigned i = 0; i < 3; i++) {
		struct cm_place p = place_of(none[i], 0);

		CU_ASSERT_FALSE(cm_sockaddr(p.ip, 1, &a));
		CU_ASSERT_STRING_EQUAL(cm_text(&p, text), "no IP address");
	}
}

/* Whatever the kernel says, nothing but the expected goes on. */
static void test_states(void)
{
	static const struct {
		enum cm_state state;
		enum rdma_cm_event_type event;
		int status;
		enum cm_action action;
	} on[] = {
		{CM_ADDRESS, RDMA_CM_EVENT_ADDR_RESOLVED, 0, CM_FIND_ROUTE},
		{CM_ROUTE, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, CM_CALL},
		{CM_CALLED, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, CM_FINISH},
		{CM_CALLED, RDMA_CM_EVENT_REJECTED, 10, CM_RETRY},
		{CM_CALLED, RDMA_CM_EVENT_REJECTED, 28, CM_AWAIT_REASON},
		{CM_LISTENING, RDMA_CM_EVENT_CONNECT_REQUEST, 0, CM_ANSWER},
		{CM_LISTENING, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, CM_END},
	};

	for (int s = CM_LISTENING; s <= CM_ACCEPTED; s++)
		for (int e = RDMA_CM_EVENT_ADDR_RESOLVED;
		     e <= RDMA_CM_EVENT_TIMEWAIT_EXIT; e++)
			for (int status = 0; status <= 28;
			     status += status ? 18 : 10) {
				enum cm_action want =
					e == RDMA_CM_EVENT_ADDR_CHANGE ||
							s == CM_AGAIN ||
							s == CM_REFUSED ||
							s == CM_LISTENING
						? CM_IGNORE
					: s == CM_ACCEPTED ? CM_END
							   : CM_FAIL;

				for (unsigned i = 0;
				     i < sizeof(on) / sizeof(on[0]); i++)
					if ((int)on[i].state == s &&
					    (int)on[i].event == e &&
					    (e != RDMA_CM_EVENT_REJECTED ||
					     on[i].status == status))
						want = on[i].action;
				CU_ASSERT_EQUAL(
					cm_next((enum cm_state)s,
						(enum rdma_cm_event_type)e,
						status),
					want);
				CU_ASSERT(cm_reason((enum rdma_cm_event_type)e,
						    status)[0]);
			}
}

#define RTR_MASK (IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)

static void test_attributes(void)
{
	struct ibv_qp_attr own = {.path_mtu = IBV_MTU_1024,
				  .dest_qp_num = 17,
				  .rq_psn = 1,
				  .min_rnr_timer = 12,
				  .timeout = 14,
				  .retry_cnt = 6,
				  .max_rd_atomic = 3,
				  .max_dest_rd_atomic = 4};
	struct ibv_qp_attr from = {.dest_qp_num = 17,
				   .rq_psn = 99,
				   .path_mtu = IBV_MTU_4096,
				   .timeout = 20};
	struct ibv_qp_attr attr;

	own.ah_attr.is_global = from.ah_attr.is_global = 1;
	own.ah_attr.sl = 5;
	own.ah_attr.grh.traffic_class = 32;
	own.ah_attr.grh.dgid.raw[15] = from.ah_attr.grh.dgid.raw[15] = 9;
	from.ah_attr.grh.sgid_index = 3;
	attr = from;
	CU_ASSERT(cm_attributes(&attr, RTR_MASK, &own, RTR_MASK));
	CU_ASSERT_EQUAL(attr.rq_psn, 99);
	CU_ASSERT_EQUAL(attr.ah_attr.grh.sgid_index, 3);
	CU_ASSERT_EQUAL(attr.ah_attr.sl, 5);
	CU_ASSERT_EQUAL(attr.ah_attr.grh.traffic_class, 32);
	CU_ASSERT_EQUAL(attr.path_mtu, IBV_MTU_1024);
	CU_ASSERT_EQUAL(attr.min_rnr_timer, 12);
	CU_ASSERT_EQUAL(attr.timeout, 14);
	CU_ASSERT_EQUAL(attr.retry_cnt, 6);
	CU_ASSERT_EQUAL(attr.max_rd_atomic, 3);
	CU_ASSERT_EQUAL(attr.max_dest_rd_atomic, 4);
	attr = from;
	attr.dest_qp_num = 18;
	CU_ASSERT_FALSE(cm_attributes(&attr, RTR_MASK, &own, RTR_MASK));
	attr = from;
	attr.ah_attr.grh.dgid.raw[0] ^= 1;
	CU_ASSERT_FALSE(cm_attributes(&attr, RTR_MASK, &own, RTR_MASK));
	attr = from;
	attr.ah_attr.is_global = 0;
	CU_ASSERT_FALSE(cm_attributes(&attr, RTR_MASK, &own, RTR_MASK));
}

/* What the offer says of it. */
static void test_offer(void)
{
	struct conn_offer offer = {
		.ring_bytes = 1024, .npairs = 2, .nlanes = 4, .rdmacm = true};
	struct conn_offer got;
	struct blob blob, cut;

	for (unsigned i = 0; i < 2; i++) {
		offer.pair[i].qp.mtu = IBV_MTU_1024;
		offer.cm_place[i] =
			place_of("::ffff:10.1.2.3", (uint16_t)(5000 + i));
	}
	fill_key(offer.cm_key, 3);
	offer_pack(&blob, &offer);
	CU_ASSERT_EQUAL_FATAL(offer_unpack(&blob, &got), 0);
	CU_ASSERT(got.rdmacm);
	CU_ASSERT_EQUAL(memcmp(got.cm_key, offer.cm_key, CM_KEY_BYTES), 0);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(got.cm_place[i].port, 5000 + i);
		CU_ASSERT_EQUAL(memcmp(got.cm_place[i].ip, offer.cm_place[i].ip,
				       GID_BYTES),
				0);
	}
	for (cut = blob; cut.len--;)
		CU_ASSERT_EQUAL(offer_unpack(&cut, &got), -EPROTO);
	offer.rdmacm = false;
	offer_pack(&blob, &offer);
	CU_ASSERT_EQUAL_FATAL(offer_unpack(&blob, &got), 0);
	CU_ASSERT_FALSE(got.rdmacm);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"private data", test_round_trip},
		{"forged", test_forged},
		{"malformed", test_malformed},
		{"addresses", test_addresses},
		{"each event in each state", test_states},
		{"attributes", test_attributes},
		{"offers", test_offer},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "rdma_cm", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
