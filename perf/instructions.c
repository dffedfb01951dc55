/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Operations one after another over the fake verbs device, for callgrind to
 * count: each kind of operation N times, then 2 N times, from post to
 * completion, through the library, and by the bare ibv_post_send() and
 * ibv_poll_cq() that it stands on. perf/instructions runs it and subtracts.
 *
 * The device costs both the same: the same requests, doorbells and polls.
 */
#include "fake_job.h"
#include "fake_raw.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/callgrind.h>

#define BYTES	8
#define RECVS	64
#define TIMEOUT 10000

static struct vbn_ctx *ctx, *other;
static struct vbn_ep *ep, *back;
static struct vbn_pool *pool;
static struct vbn_rkey rkey;
static uint64_t *local, *remote;
static unsigned done, arrived;

static void fail(const char *what)
{
	fprintf(stderr, "instructions: %s: %s\n", what, vbn_error());
	exit(EXIT_FAILURE);
}

/* ---- through the library ---- */

static void on_done(struct vbn_op *op)
{
	if (op->status)
		fail("an operation");
	done++;
}

static void on_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	(void)arg;
	(void)from;
	(void)value;
	arrived++;
}

static void run_put(unsigned n)
{
	struct vbn_op op = {.done = on_done};

	for (unsigned end = done + n; done != end;) {
		if (vbn_put(ep, &op, local, BYTES, &rkey, 0, 0))
			fail("put");
		while (op.status == -EINPROGRESS)
			vbn_progress(ctx);
	}
}

static void run_get(unsigned n)
{
	struct vbn_op op = {.done = on_done};

	for (unsigned end = done + n; done != end;) {
		if (vbn_get(ep, &op, local, BYTES, &rkey, 0, 0))
			fail("get");
		while (op.status == -EINPROGRESS)
			vbn_progress(ctx);
	}
}

static void run_notify(unsigned n)
{
	struct vbn_op op = {.done = on_done};

	for (unsigned end = arrived + n; arrived != end;) {
		unsigned before = arrived;

		if (vbn_notify(ep, &op, VBN_CHANNEL_USER, 1, 0))
			fail("notify");
		while (op.status == -EINPROGRESS)
			vbn_progress(ctx);
		while (arrived == before)
			vbn_progress(other);
	}
}

static void run_send(unsigned n)
{
	struct vbn_op op = {.done = on_done}, recv = {.done = on_done};

	for (unsigned end = done + 2 * n; done != end;) {
		if (vbn_recv(back, &recv, remote, BYTES) ||
		    vbn_send(ep, &op, local, BYTES, 0))
			fail("send");
		while (op.status == -EINPROGRESS)
			vbn_progress(ctx);
		while (recv.status == -EINPROGRESS)
			vbn_progress(other);
	}
}

static void library_open(void)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL};

	fake_job_open();
	if (vbn_ctx_open(&ctx, fake_the_job, NULL) ||
	    vbn_ctx_open(&other, fake_the_job, NULL) ||
	    vbn_pool_create(&pool, fake_the_job, &opts))
		fail("opening");
	local = vbn_pool_alloc(pool, 4096, 0);
	remote = vbn_pool_alloc(pool, 4096, 0);
	if (!local || !remote ||
	    vbn_rkey_of(fake_the_job, remote, 4096, &rkey) ||
	    fake_job_connect(ctx, other, &ep, &back) ||
	    vbn_notify_handler(other, VBN_CHANNEL_USER, on_notify, NULL))
		fail("connecting");
}

/* The key of the peer's memory is looked up at its first use. */
static void library_warm(void)
{
	struct vbn_op op = {.done = on_done};
	uint64_t end = fake_now_ms() + TIMEOUT;

	while (vbn_put(ep, &op, local, BYTES, &rkey, 0, 0) == -EAGAIN &&
	       fake_now_ms() < end)
		vbn_progress(ctx);
	while (op.status == -EINPROGRESS && fake_now_ms() < end)
		vbn_progress(ctx);
	if (op.status)
		fail("the first put");
	run_put(RECVS);
	run_notify(RECVS);
	run_get(RECVS);
	run_send(RECVS);
}

static void library_close(void)
{
	vbn_ep_close(ep);
	vbn_ep_close(back);
	vbn_ctx_close(ctx);
	vbn_ctx_close(other);
	vbn_pool_free(pool, local);
	vbn_pool_free(pool, remote);
	vbn_pool_destroy(pool);
	fake_job_close();
}

/* ---- bare ---- */

static struct raw raw;
static struct raw_request request;

static void poll_one(struct ibv_cq *from)
{
	struct ibv_wc wc;
	int got;

	do
		got = ibv_poll_cq(from, 1, &wc);
	while (!got);
	if (got < 0 || wc.status != IBV_WC_SUCCESS)
		fail("a completion");
}

static void post_one(void)
{
	struct ibv_send_wr *bad;

	if (ibv_post_send(raw.qp[0], &request.wr, &bad))
		fail("posting");
	poll_one(raw.cq[0]);
}

static void run_bare(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		post_one();
}

static void run_bare_delivered(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		post_one();
		poll_one(raw.cq[1]);
		if (raw_receive(&raw))
			fail("posting a receive");
	}
}

static void bare_open(void)
{
	raw_open(&raw, NULL);
	for (int i = 0; i < RECVS / 2; i++)
		if (raw_receive(&raw))
			fail("posting a receive");
}

static void bare_request(enum ibv_wr_opcode opcode, unsigned flags)
{
	raw_request(&raw, &request, opcode, flags | IBV_SEND_SIGNALED);
	if (opcode == IBV_WR_RDMA_WRITE_WITH_IMM)
		request.wr.num_sge = 0;
}

/* Twice, with another N: what each operation costs is the difference. */
static void twice(const char *name, void (*run)(unsigned n), unsigned n)
{
	CALLGRIND_TOGGLE_COLLECT;
	run(n);
	CALLGRIND_TOGGLE_COLLECT;
	CALLGRIND_DUMP_STATS_AT(name);
	CALLGRIND_TOGGLE_COLLECT;
	run(2 * n);
	CALLGRIND_TOGGLE_COLLECT;
	CALLGRIND_DUMP_STATS_AT(name);
}

int main(int argc, char **argv)
{
	unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 500;

	library_open();
	bare_open();
	library_warm();
	twice("put", run_put, n);
	twice("notify", run_notify, n);
	twice("get", run_get, n);
	twice("send", run_send, n);
	bare_request(IBV_WR_RDMA_WRITE, IBV_SEND_INLINE);
	twice("bare-put", run_bare, n);
	bare_request(IBV_WR_RDMA_WRITE_WITH_IMM, 0);
	twice("bare-notify", run_bare_delivered, n);
	bare_request(IBV_WR_RDMA_READ, 0);
	twice("bare-get", run_bare, n);
	bare_request(IBV_WR_SEND, IBV_SEND_INLINE);
	twice("bare-send", run_bare_delivered, n);
	raw_close(&raw);
	library_close();
	return fake_reset() ? EXIT_FAILURE : EXIT_SUCCESS;
}
