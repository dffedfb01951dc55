/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Injected faults, and the checksums that catch some of them, in a job of one
 * rank over the fake verbs device: two contexts that are connected. What is
 * injected depends on the seed alone.
 */
#include "cunit_run.h"
#include "fake_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 20000
#define OPS	200
#define BYTES	((size_t)5000)
#define CHANNEL VBN_CHANNEL_USER

static struct vbn_ctx *ctx[2];
static struct vbn_ep *ep[2];
static struct vbn_pool *pool;
static char *from, *to;
static struct vbn_rkey rkey;

static struct {
	int completed[OPS];
	uint32_t next; /* notify that is to come */
	int arrived, disordered, wrong;
} seen;
static struct vbn_op ops[OPS];

static void done(struct vbn_op *op)
{
	seen.completed[op - ops]++;
}

/* The data of notify n is n everywhere. */
static void arrived(void *arg, struct vbn_ep *ep_, uint32_t value)
{
	(void)arg;
	(void)ep_;
	seen.disordered += value != seen.next;
	seen.next = value + 1;
	seen.arrived++;
	for (size_t i = 0; i < BYTES; i++)
		if (to[(value % 64) * BYTES + i] != (char)value) {
			seen.wrong++;
			break;
		}
}

static void up(const char *fault, const char *checksum)
{
	setenv("VBN_FAULT", fault, 1);
	setenv("VBN_CHECKSUM", checksum, 1);
	setenv("VBN_LOG", "error", 1);
	fake_job_two(NULL, ctx, ep, &pool);
	memset(&seen, 0, sizeof(seen));
	from = vbn_pool_alloc(pool, OPS * BYTES, 0);
	to = vbn_pool_alloc(pool, 64 * BYTES, 0);
	if (!from || !to || vbn_rkey_of(fake_the_job, to, 64 * BYTES, &rkey)) {
		fprintf(stderr, "%s\n", vbn_error());
		exit(EXIT_FAILURE);
	}
	for (size_t i = 0; i < OPS * BYTES; i++)
		from[i] = (char)(i / BYTES);
	vbn_notify_handler(ctx[1], CHANNEL, arrived, NULL);
}

static void down(void)
{
	for (int i = 0; i < 2; i++) {
		vbn_ep_close(ep[i]);
		vbn_ctx_close(ctx[i]);
	}
	for (int i = 0; i < OPS; i++)
		if (ops[i].status == -EINPROGRESS || seen.completed[i] > 1)
			CU_FAIL("an operation completes once");
	vbn_pool_destroy(pool);
	fake_job_close();
	CU_ASSERT_EQUAL(fake_reset(), 0);
	unsetenv("VBN_FAULT");
	unsetenv("VBN_CHECKSUM");
}

static void drive(void)
{
	vbn_progress(ctx[0]);
	vbn_progress(ctx[1]);
}

/* Whether it was taken; if not, the endpoint has failed. */
static bool notify(int i)
{
	uint64_t end = fake_now_ms() + WAIT_MS;
	int err;

	ops[i] = (struct vbn_op){.done = done};
	do {
		err = vbn_put_notify(ep[0], &ops[i], from + (size_t)i * BYTES,
				     BYTES, &rkey, (uint64_t)(i % 64) * BYTES,
				     CHANNEL, (uint32_t)i, 0);
		drive();
	} while (err == -EAGAIN && fake_now_ms() < end);
	if (err)
		CU_ASSERT_EQUAL(err, -ECONNRESET);
	return !err;
}

/* All but what is not to come has come. Returns how many were taken. */
static int notify_all(void)
{
	uint64_t end = fake_now_ms() + WAIT_MS;
	int taken = 0, open = 1;

	memset(ops, 0, sizeof(ops));
	while (taken < OPS && notify(taken))
		taken++;
	while (open && fake_now_ms() < end) {
		drive();
		open = seen.arrived < taken && !vbn_ep_status(ep[0]) &&
		       !vbn_ep_status(ep[1]);
		for (int i = 0; i < taken; i++)
			open |= ops[i].status == -EINPROGRESS;
	}
	CU_ASSERT_FALSE(open);
	CU_ASSERT_EQUAL(seen.disordered, 0);
	CU_ASSERT_EQUAL(seen.wrong, 0);
	for (int i = 0; i < taken; i++)
		CU_ASSERT_EQUAL(seen.completed[i], 1);
	return taken;
}

/* A counter that the context dumps; 0: none. */
static unsigned long dumped(struct vbn_ctx *c, const char *name)
{
	char text[8192] = "", *at;
	FILE *out = fmemopen(text, sizeof(text) - 1, "w");
	unsigned long n = 0;

	vbn_ctx_dump(c, out);
	fclose(out);
	at = strstr(text, name);
	if (at)
		n = strtoul(at + strlen(name), NULL, 10);
	return n;
}

/* Late and refused in every way, all is as it would be. */
static void timing(void)
{
	char fault[128];

	for (int seed = 1; seed <= 5; seed++) {
		snprintf(fault, sizeof(fault),
			 "seed=%d,delay=0.3,late=0.3,again=0.4,time=100", seed);
		up(fault, seed % 2 ? "1" : "0");
		CU_ASSERT_EQUAL(notify_all(), OPS);
		CU_ASSERT_EQUAL(seen.arrived, OPS);
		CU_ASSERT_TRUE(dumped(ctx[1], "fault_delayed") > 10);
		CU_ASSERT_TRUE(dumped(ctx[0], "fault_late") > 10);
		CU_ASSERT_TRUE(dumped(ctx[0], "fault_refused") > 10);
		down();
	}
}

/* The same operations meet the same faults, whenever they are posted. */
static void repeats(void)
{
	unsigned long first[3], again;

	for (int round = 0; round < 3; round++) {
		up(round < 2 ? "seed=3,again=0.3" : "seed=4,again=0.3", "0");
		if (round == 1)
			fake_job_wait(ctx[0], ctx[1],
				      &(struct vbn_op){.status = -EINPROGRESS},
				      20);
		notify_all();
		again = dumped(ctx[0], "fault_refused");
		first[round] = again;
		down();
	}
	/* the library's own messages vary in number */
	CU_ASSERT_TRUE(labs((long)first[0] - (long)first[1]) <= 6);
}

static void fails(void)
{
	int taken;

	up("fail=20", "0");
	taken = notify_all();
	CU_ASSERT_TRUE(taken >= 20 && taken < OPS);
	CU_ASSERT_EQUAL(ops[18].status, 0);
	CU_ASSERT_EQUAL(ops[19].status, -EIO);
	CU_ASSERT_EQUAL(vbn_ep_status(ep[0]), -EIO);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "VBN_FAULT"));
	CU_ASSERT_EQUAL(dumped(ctx[0], "fault_failed"), 1);
	down();
}

static void breaks(void)
{
	up("break=7", "1");
	/* each notify has a message before it, which counts for nobody */
	CU_ASSERT_TRUE(notify_all() < OPS);
	CU_ASSERT_EQUAL(ops[5].status, 0);
	CU_ASSERT_EQUAL(ops[6].status, -ECONNRESET);
	CU_ASSERT_EQUAL(dumped(ctx[0], "fault_broken"), 1);
	down();
}

/* A bit of registered memory is flipped under way: never seen by the user. */
static void corrupt(void)
{
	up("seed=5,corrupt=0.05", "1");
	CU_ASSERT_TRUE(notify_all() < OPS);
	CU_ASSERT_TRUE(seen.arrived < OPS);
	CU_ASSERT_EQUAL(vbn_ep_status(ep[1]), -EBADMSG);
	CU_ASSERT_TRUE(dumped(ctx[0], "fault_corrupted") > 0);
	CU_ASSERT_TRUE(dumped(ctx[1], "checksums_compared") > 0);
	down();
}

/* Without checksums it arrives, and nothing ends; with none flipped, none. */
static void unchecked(void)
{
	up("seed=5,corrupt=0.05", "0");
	memset(ops, 0, sizeof(ops));
	for (int i = 0; i < 50; i++)
		notify(i);
	fake_job_wait(ctx[0], ctx[1], &ops[49], WAIT_MS);
	for (int i = 0; i < 1000; i++)
		drive();
	CU_ASSERT_EQUAL(seen.arrived, 50);
	CU_ASSERT_EQUAL(seen.wrong, (int)dumped(ctx[0], "fault_corrupted"));
	CU_ASSERT_TRUE(seen.wrong > 0);
	down();
}

/* A range is not put into again before it was compared. */
static void same_range(void)
{
	uint64_t end = fake_now_ms() + WAIT_MS;
	int err;

	up("again=0", "1");
	memset(ops, 0, sizeof(ops));
	CU_ASSERT_TRUE(!vbn_ep_connect(ep[0], WAIT_MS));
	CU_ASSERT_TRUE(notify(0));
	ops[1] = (struct vbn_op){.done = done};
	while (seen.arrived < 1 && fake_now_ms() < end)
		drive();
	do {
		err = vbn_put(ep[0], &ops[1], from + BYTES, BYTES, &rkey, 0, 0);
		drive();
	} while (err == -EAGAIN && fake_now_ms() < end);
	CU_ASSERT_EQUAL(err, 0);
	CU_ASSERT_EQUAL(fake_job_wait(ctx[0], ctx[1], &ops[1], WAIT_MS), 0);
	/* what a put without a notify wrote, another notify is not to judge */
	ops[2] = (struct vbn_op){.done = done};
	CU_ASSERT_EQUAL(vbn_flush(ep[0], &ops[2]), 0);
	CU_ASSERT_EQUAL(fake_job_wait(ctx[0], ctx[1], &ops[2], WAIT_MS), 0);
	memset(to, 1, BYTES);
	memset(to + BYTES, 1, BYTES);
	ops[3] = (struct vbn_op){.done = done};
	CU_ASSERT_EQUAL(vbn_notify(ep[0], &ops[3], CHANNEL, 1, 0), 0);
	while (seen.arrived < 2 && fake_now_ms() < end)
		drive();
	CU_ASSERT_EQUAL(seen.arrived, 2);
	CU_ASSERT_EQUAL(vbn_ep_status(ep[1]), 0);
	down();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"late, refused", timing},
		{"the same again", repeats},
		{"an operation fails", fails},
		{"a connection breaks", breaks},
		{"a bit is flipped, and caught", corrupt},
		{"a bit is flipped, and not", unchecked},
		{"the same range again", same_range},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{"fault_provider", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	return run_suites(suites);
}
