/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake verbs device itself, by bare libibverbs calls: it must notice what
 * it is there to notice, or the tests that stand on it mean nothing.
 */
#include "cunit_run.h"
#include "fake_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define EVERYTHING                                                             \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |                    \
	 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)

static struct raw raw;

static void up(void (*tweak)(struct fake_config *config),
	       const struct raw_options *options)
{
	struct fake_config config;

	fake_config_init(&config, 1);
	if (tweak)
		tweak(&config);
	fake_device_add(&config);
	raw_open(&raw, options);
}

/* Close; the device has complained so often. */
static void down(unsigned violations)
{
	raw_close(&raw);
	CU_ASSERT_EQUAL(fake_reset(), violations);
}

static int post(enum ibv_wr_opcode opcode, unsigned flags)
{
	struct ibv_send_wr *bad;
	struct raw_request request;

	raw_request(&raw, &request, opcode, flags);
	return ibv_post_send(raw.qp[0], &request.wr, &bad);
}

/* The status of the next completion; -1: there is none. */
static int status_of(int side)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(raw.cq[side], 1, &wc);

	return n == 1 ? (int)wc.status : -1;
}

static int run(struct raw_request *request)
{
	struct ibv_send_wr *bad;

	request->wr.send_flags |= IBV_SEND_SIGNALED;
	CU_ASSERT_EQUAL(ibv_post_send(raw.qp[0], &request->wr, &bad), 0);
	return status_of(0);
}

/* ---- what works ---- */

static void test_data(void)
{
	struct raw_request request;

	up(NULL, NULL);
	raw.words[0] = 7;
	raw_request(&raw, &request, IBV_WR_RDMA_WRITE, 0);
	CU_ASSERT_EQUAL(run(&request), IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(raw.words[1], 7);
	raw.words[1] = 9;
	raw_request(&raw, &request, IBV_WR_RDMA_READ, 0);
	CU_ASSERT_EQUAL(run(&request), IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(raw.words[0], 9);
	raw_request(&raw, &request, IBV_WR_ATOMIC_FETCH_AND_ADD, 0);
	request.wr.wr.atomic.remote_addr = (uintptr_t)&raw.words[1];
	request.wr.wr.atomic.rkey = raw.mr->rkey;
	request.wr.wr.atomic.compare_add = 5;
	CU_ASSERT_EQUAL(run(&request), IBV_WC_SUCCESS);
	CU_ASSERT(raw.words[0] == 9 && raw.words[1] == 14);
	raw.words[0] = 3;
	CU_ASSERT_EQUAL(raw_receive(&raw), 0);
	raw_request(&raw, &request, IBV_WR_SEND, 0);
	CU_ASSERT_EQUAL(run(&request), IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(status_of(1), IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(raw.words[1], 3);
	CU_ASSERT_EQUAL(fake_count().rnr, 0);
	down(0);
}

static void with_builders(struct fake_config *config)
{
	config->builders = true;
}

static void test_builders(void)
{
	const struct raw_options options = {
		.access = EVERYTHING, .cqe = 8, .builders = true};
	struct ibv_qp_ex *qp;

	up(with_builders, &options);
	qp = ibv_qp_to_qp_ex(raw.qp[0]);
	CU_ASSERT_PTR_NOT_NULL_FATAL(qp);
	raw.words[0] = 11;
	ibv_wr_start(qp);
	qp->wr_id = 4;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, raw.mr->rkey, (uintptr_t)&raw.words[1]);
	ibv_wr_set_inline_data(qp, &raw.words[0], 8);
	CU_ASSERT_EQUAL(ibv_wr_complete(qp), 0);
	CU_ASSERT_EQUAL(status_of(0), IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(raw.words[1], 11);
	fake_fail(FAKE_POST_SEND, 1, ENOMEM);
	ibv_wr_start(qp);
	ibv_wr_rdma_write(qp, raw.mr->rkey, (uintptr_t)&raw.words[1]);
	ibv_wr_set_inline_data(qp, &raw.words[0], 8);
	CU_ASSERT_EQUAL(ibv_wr_complete(qp), ENOMEM);
	CU_ASSERT_EQUAL(status_of(0), -1);
	down(0);
}

/* Inline data is the device's at once, other data when it is carried out. */
static void test_copies(void)
{
	up(NULL, NULL);
	fake_defer(true);
	raw.words[0] = 1;
	CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE, IBV_SEND_INLINE), 0);
	raw.words[0] = 2;
	fake_step(1);
	CU_ASSERT_EQUAL(raw.words[1], 1);
	CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE, 0), 0);
	raw.words[0] = 3;
	fake_step(1);
	CU_ASSERT_EQUAL(raw.words[1], 3);
	fake_defer(false);
	down(0);
}

static void late(struct fake_config *config)
{
	config->late_data = true;
}

static void test_late(void)
{
	up(late, NULL);
	raw.words[0] = 8;
	CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE, 0), 0);
	CU_ASSERT_EQUAL(raw.words[1], 0);
	CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), 0);
	CU_ASSERT_EQUAL(raw.words[1], 0);
	CU_ASSERT_EQUAL(status_of(0), IBV_WC_SUCCESS);
	CU_ASSERT_EQUAL(raw.words[1], 8);
	down(0);
}

/* ---- what is refused ---- */

struct refusal {
	int64_t from, to;    /* added to the local and remote address */
	uint32_t lkey, rkey; /* exclusive or */
	enum ibv_wc_status status;
};

static void test_keys(void)
{
	static const struct refusal refusals[] = {
		{0, 0, 0, 0, IBV_WC_SUCCESS},
		{-1, 0, 0, 0, IBV_WC_LOC_PROT_ERR},
		{8 * RAW_WORDS - 7, 0, 0, 0, IBV_WC_LOC_PROT_ERR},
		{8 * RAW_WORDS - 8, 0, 0, 0, IBV_WC_SUCCESS},
		{0, -9, 0, 0, IBV_WC_REM_ACCESS_ERR},
		{0, 8 * RAW_WORDS - 15, 0, 0, IBV_WC_REM_ACCESS_ERR},
		{0, 8 * RAW_WORDS - 16, 0, 0, IBV_WC_SUCCESS},
		{0, 0, 0x100, 0, IBV_WC_LOC_PROT_ERR},
		{0, 0, 0, 0x100, IBV_WC_REM_ACCESS_ERR},
		{0, 0, 0x80000000u, 0, IBV_WC_LOC_PROT_ERR},
		{0, 0, 0, 0x80000000u, IBV_WC_REM_ACCESS_ERR},
	};

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		const struct refusal *r = &refusals[i];
		struct raw_request request;

		up(NULL, NULL);
		raw_request(&raw, &request, IBV_WR_RDMA_WRITE, 0);
		request.sge.addr += (uint64_t)r->from;
		request.wr.wr.rdma.remote_addr += (uint64_t)r->to;
		request.sge.lkey ^= r->lkey;
		request.wr.wr.rdma.rkey ^= r->rkey;
		CU_ASSERT_EQUAL(run(&request), (int)r->status);
		if (r->status != IBV_WC_SUCCESS)
			CU_ASSERT_EQUAL(raw.qp[0]->state, IBV_QPS_ERR);
		if (r->status == IBV_WC_REM_ACCESS_ERR)
			CU_ASSERT_EQUAL(raw.qp[1]->state, IBV_QPS_ERR);
		down(0);
	}
}

static void test_access(void)
{
	struct raw_options options = {.access = IBV_ACCESS_LOCAL_WRITE |
						IBV_ACCESS_REMOTE_READ,
				      .cqe = 8};
	struct raw_request request;

	up(NULL, &options);
	raw_request(&raw, &request, IBV_WR_RDMA_READ, 0);
	CU_ASSERT_EQUAL(run(&request), IBV_WC_SUCCESS);
	raw_request(&raw, &request, IBV_WR_RDMA_WRITE, 0);
	CU_ASSERT_EQUAL(run(&request), IBV_WC_REM_ACCESS_ERR);
	down(0);
}

static void test_posting(void)
{
	up(NULL, NULL);
	fake_defer(true);
	for (int i = 0; i < RAW_RECVS; i++)
		CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE, 0), 0);
	CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE, 0), ENOMEM);
	fake_step(RAW_RECVS); /* done, but nothing polled says so */
	CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE, 0), ENOMEM);
	fake_defer(false);
	down(0);
}

/* ---- what waits ---- */

static void test_no_receive(void)
{
	struct raw_options options = {
		.access = EVERYTHING, .cqe = 8, .rnr_retry = 2};

	up(NULL, &options);
	CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE_WITH_IMM, 0), 0);
	CU_ASSERT_EQUAL(status_of(0), -1);
	CU_ASSERT_EQUAL(raw_receive(&raw), 0);
	CU_ASSERT_EQUAL(status_of(1), IBV_WC_SUCCESS); /* tried again */
	CU_ASSERT_EQUAL(fake_count().rnr, 1);
	CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE_WITH_IMM, 0), 0);
	for (int i = 0; i < 3; i++)
		status_of(1);
	CU_ASSERT_EQUAL(status_of(0), IBV_WC_RNR_RETRY_EXC_ERR);
	CU_ASSERT_EQUAL(fake_count().rnr, 2);
	down(0);
}

static void test_no_answer(void)
{
	up(NULL, NULL);
	CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE, 0), 0);
	fake_vanish(raw.qp[1]->qp_num);
	CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE, 0), 0);
	CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE, 0), 0);
	for (int i = 0; i < 10; i++)
		status_of(1);
	CU_ASSERT_EQUAL(status_of(0), IBV_WC_RETRY_EXC_ERR);
	CU_ASSERT_EQUAL(status_of(0), IBV_WC_WR_FLUSH_ERR);
	CU_ASSERT_EQUAL(status_of(0), -1);
	down(0);
}

/* ---- violations ---- */

static void test_overrun(void)
{
	struct raw_options options = {.access = EVERYTHING, .cqe = 3};

	up(NULL, &options);
	for (int i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), 0);
	CU_ASSERT_EQUAL(fake_count().violations, 0);
	CU_ASSERT_EQUAL(post(IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED), 0);
	CU_ASSERT_EQUAL(fake_count().violations, 1);
	CU_ASSERT_EQUAL(status_of(0), -1);
	down(1);
}

static void test_order_of_destruction(void)
{
	up(NULL, NULL);
	CU_ASSERT_EQUAL(ibv_dealloc_pd(raw.pd), EBUSY);
	CU_ASSERT_EQUAL(ibv_destroy_cq(raw.cq[0]), EBUSY);
	CU_ASSERT_EQUAL(ibv_destroy_srq(raw.srq[1]), EBUSY);
	down(3);
}

static void test_events(void)
{
	struct ibv_async_event event;

	up(NULL, NULL);
	CU_ASSERT_EQUAL(fcntl(raw.device->async_fd, F_SETFL, O_NONBLOCK), 0);
	CU_ASSERT(ibv_get_async_event(raw.device, &event) < 0);
	fake_port_state(0, 1, IBV_PORT_DOWN);
	CU_ASSERT_EQUAL(ibv_get_async_event(raw.device, &event), 0);
	CU_ASSERT_EQUAL(event.event_type, IBV_EVENT_PORT_ERR);
	CU_ASSERT_EQUAL(event.element.port_num, 1);
	ibv_ack_async_event(&event);
	CU_ASSERT(ibv_get_async_event(raw.device, &event) < 0);
	fake_raise(0, IBV_EVENT_PORT_ACTIVE, 1);
	CU_ASSERT_EQUAL(ibv_get_async_event(raw.device, &event), 0);
	down(1); /* not acknowledged */
}

int main(void)
{
	CU_TestInfo works[] = {
		{"data", test_data},
		{"builders", test_builders},
		{"copies", test_copies},
		{"late data", test_late},
		{"no receive", test_no_receive},
		{"no answer", test_no_answer},
		CU_TEST_INFO_NULL,
	};
	CU_TestInfo refuses[] = {
		{"keys", test_keys},
		{"access", test_access},
		{"posting too much", test_posting},
		{"overrun", test_overrun},
		{"order of destruction", test_order_of_destruction},
		{"events", test_events},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "the fake device works", .pTests = works},
		{.pName = "the fake device refuses", .pTests = refuses},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
