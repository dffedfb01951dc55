/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The quick way of short puts, of the whole transport over the fake device:
 * what has gone it once must be checked as if it had not, stays in order with
 * what goes another way, and is over exactly once.
 */
#include "cunit_run.h"
#include "fake_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 20000
#define DEPTH	128 /* requests of a lane in flight */

static struct vbn_ctx *a, *b;
static struct vbn_ep *ep, *back;
static struct vbn_pool *pool;
static uint64_t *src, *dst;
static struct vbn_rkey rkey;
static unsigned over;

static void fatal(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, vbn_error());
	exit(EXIT_FAILURE);
}

/* In order: arg is how many were before. */
static void on_done(struct vbn_op *op)
{
	if (op->arg && (uintptr_t)op->arg != over + 1)
		fatal("out of order");
	over++;
}

static int put_to(const struct vbn_rkey *key, struct vbn_op *op, uint64_t value,
		  uint64_t offset, unsigned flags)
{
	*op = (struct vbn_op){.done = on_done};
	*src = value;
	return vbn_put(ep, op, src, 8, key, offset, flags);
}

static int put(struct vbn_op *op, uint64_t value)
{
	return put_to(&rkey, op, value, 0, 0);
}

/* Until the key is known, and the put over. */
static void put_first(const struct vbn_rkey *key)
{
	uint64_t end = fake_now_ms() + WAIT_MS;
	struct vbn_op op;
	int err;

	while ((err = put_to(key, &op, 1, 0, 0)) == -EAGAIN &&
	       fake_now_ms() < end)
		vbn_progress(a);
	if (err || fake_job_wait(a, b, &op, WAIT_MS))
		fatal("the first put");
	over = 0;
}

/* The same, but it is not what was put by last. */
static void get_first(const struct vbn_rkey *key)
{
	uint64_t end = fake_now_ms() + WAIT_MS;
	struct vbn_op op = {0};
	int err;

	while ((err = vbn_get(ep, &op, src, 8, key, 0, 0)) == -EAGAIN &&
	       fake_now_ms() < end)
		vbn_progress(a);
	if (err || fake_job_wait(a, b, &op, WAIT_MS))
		fatal("the first get");
}

static void up(void (*tweak)(struct fake_config *config))
{
	struct vbn_ctx *ctxs[2];
	struct vbn_ep *eps[2];

	fake_job_two(tweak, ctxs, eps, &pool);
	a = ctxs[0];
	b = ctxs[1];
	ep = eps[0];
	back = eps[1];
	src = vbn_pool_alloc(pool, 4096, 0);
	dst = vbn_pool_alloc(pool, 4096, 0);
	if (!src || !dst || vbn_rkey_of(fake_the_job, dst, 64, &rkey))
		fatal("memory");
	memset(dst, 0, 4096);
	put_first(&rkey);
}

static void down(void)
{
	fake_defer(false);
	vbn_ep_close(ep);
	vbn_ep_close(back);
	vbn_ctx_close(a);
	vbn_ctx_close(b);
	vbn_pool_destroy(pool);
	fake_job_close();
	CU_ASSERT_EQUAL(fake_reset(), 0);
}

static struct vbn_counters counters(void)
{
	struct vbn_counters c;

	vbn_ctx_counters(a, &c);
	return c;
}

static void with_builders(struct fake_config *config)
{
	config->builders = true;
}

static void counted(void (*tweak)(struct fake_config *config))
{
	struct vbn_counters before, after;
	struct vbn_op op;

	up(tweak);
	before = counters();
	for (unsigned i = 1; i <= 300; i++) {
		CU_ASSERT_EQUAL(put(&op, i), 0);
		CU_ASSERT_EQUAL(op.status, -EINPROGRESS);
		while (op.status == -EINPROGRESS)
			vbn_progress(a);
		CU_ASSERT(!op.status && *dst == i && op.bytes == 8);
		CU_ASSERT_EQUAL(over, i);
	}
	after = counters();
	CU_ASSERT_EQUAL(after.puts - before.puts, 300);
	CU_ASSERT_EQUAL(after.put_bytes - before.put_bytes, 2400);
	CU_ASSERT_EQUAL(after.doorbells - before.doorbells, 300);
	CU_ASSERT_EQUAL(after.completions - before.completions, 300);
	down();
}

static void test_counted(void)
{
	counted(NULL);
	counted(with_builders);
}

static void test_checks(void)
{
	struct vbn_rkey bad;
	struct vbn_op op;

	up(NULL);
	CU_ASSERT_EQUAL(put_to(&rkey, &op, 2, 56, 0), 0);
	CU_ASSERT_EQUAL(fake_job_wait(a, b, &op, WAIT_MS), 0);
	CU_ASSERT_EQUAL(dst[7], 2);
	CU_ASSERT_EQUAL(put_to(&rkey, &op, 3, 57, 0), -EINVAL);
	CU_ASSERT_EQUAL(put_to(&rkey, &op, 3, 64, 0), -EINVAL);
	CU_ASSERT_EQUAL(put_to(&rkey, &op, 3, UINT64_MAX - 3, 0), -EINVAL);
	CU_ASSERT_EQUAL(vbn_put(ep, NULL, src, 8, &rkey, 0, 0), -EINVAL);
	CU_ASSERT_EQUAL(vbn_put(ep, &op, NULL, 8, &rkey, 0, 0), -EINVAL);
	CU_ASSERT_EQUAL(vbn_put(ep, &op, src, 8, NULL, 0, 0), -EINVAL);
	bad = rkey;
	bad.base = 8;
	CU_ASSERT_EQUAL(put_to(&bad, &op, 3, 0, 0), -EKEYREJECTED);
	bad = rkey;
	bad.length = UINT64_MAX / 2;
	CU_ASSERT_EQUAL(put_to(&bad, &op, 3, 0, 0), -EKEYREJECTED);
	bad = rkey;
	bad.generation += 2;
	CU_ASSERT_NOT_EQUAL(put_to(&bad, &op, 3, 0, 0), 0);
	CU_ASSERT(dst[0] == 1 && dst[7] == 2 && !dst[8]);
	CU_ASSERT_EQUAL(put(&op, 4), 0);
	CU_ASSERT_EQUAL(fake_job_wait(a, b, &op, WAIT_MS), 0);
	CU_ASSERT_EQUAL(dst[0], 4);
	down();
}

/* The region's number is another's now: what was put by last is no key. */
static void test_stale_key(void)
{
	struct vbn_rkey old, new;
	struct vbn_mem *mem;
	struct vbn_op op;

	void *p = aligned_alloc(4096, 4096);

	up(NULL);
	memset(p, 0, 4096);
	if (vbn_mem_register(&mem, fake_the_job, p, 4096, VBN_ACCESS_ALL) ||
	    vbn_rkey_of(fake_the_job, p, 64, &old))
		fatal("registering");
	put_first(&old);
	put_first(&old); /* by its key, which is there */
	vbn_mem_deregister(mem);
	if (vbn_mem_register(&mem, fake_the_job, p, 4096, VBN_ACCESS_ALL) ||
	    vbn_rkey_of(fake_the_job, p, 64, &new))
		fatal("registering");
	CU_ASSERT(new.region == old.region &&new.generation != old.generation);
	get_first(&new);
	CU_ASSERT_NOT_EQUAL(put_to(&old, &op, 5, 0, 0), 0);
	CU_ASSERT_EQUAL(put_to(&new, &op, 6, 0, 0), 0);
	CU_ASSERT_EQUAL(fake_job_wait(a, b, &op, WAIT_MS), 0);
	CU_ASSERT_EQUAL(*(uint64_t *)p, 6);
	vbn_mem_deregister(mem);
	free(p);
	down();
}

/* Each time: what it may not, it does not learn to. */
static void test_access(void)
{
	uint64_t end = fake_now_ms() + WAIT_MS;
	struct vbn_rkey key;
	struct vbn_mem *mem;
	struct vbn_op op;
	int err;

	void *p = aligned_alloc(4096, 4096);

	up(NULL);
	if (vbn_mem_register(&mem, fake_the_job, p, 4096, VBN_ACCESS_READ) ||
	    vbn_rkey_of(fake_the_job, p, 64, &key))
		fatal("registering");
	while ((err = put_to(&key, &op, 1, 0, 0)) == -EAGAIN &&
	       fake_now_ms() < end)
		vbn_progress(a);
	CU_ASSERT_EQUAL(err, -EACCES);
	CU_ASSERT_EQUAL(put_to(&key, &op, 1, 0, 0), -EACCES);
	vbn_mem_deregister(mem);
	free(p);
	down();
}

/* A chain that waits goes first. */
static void test_chain(void)
{
	struct vbn_op first, second;

	up(NULL);
	CU_ASSERT_EQUAL(put_to(&rkey, &first, 7, 0, VBN_MORE), 0);
	CU_ASSERT_EQUAL(dst[0], 1);
	CU_ASSERT_EQUAL(put(&second, 8), 0);
	CU_ASSERT_EQUAL(fake_job_wait(a, b, &second, WAIT_MS), 0);
	CU_ASSERT(!first.status && dst[0] == 8);
	CU_ASSERT_EQUAL(over, 2);
	down();
}

static struct vbn_op chained;

static void chain_on(struct vbn_op *op)
{
	(void)op;
	CU_ASSERT_EQUAL(put_to(&rkey, &chained, 10, 0, VBN_MORE), 0);
}

/* What a callback chains leaves with the progress that the callback is in. */
static void test_chain_in_callback(void)
{
	struct vbn_op op = {.done = chain_on};

	up(NULL);
	*src = 9;
	CU_ASSERT_EQUAL(vbn_put(ep, &op, src, 8, &rkey, 0, 0), 0);
	CU_ASSERT_EQUAL(dst[0], 9);
	CU_ASSERT(vbn_progress(a) > 0);
	CU_ASSERT_EQUAL(dst[0], 10);
	CU_ASSERT_EQUAL(fake_job_wait(a, b, &chained, WAIT_MS), 0);
	down();
}

/* All that fit, from the first on. */
static void fill(struct vbn_op *ops)
{
	struct vbn_op op;

	over = 0;
	for (uintptr_t i = 0; i < DEPTH; i++) {
		ops[i] = (struct vbn_op){.done = on_done,
					 .arg = (void *)(i + 1)};
		CU_ASSERT_EQUAL(vbn_put(ep, &ops[i], src, 8, &rkey, 0, 0), 0);
	}
	CU_ASSERT_EQUAL(put(&op, 1), -EAGAIN);
	CU_ASSERT_EQUAL(put(&op, 1), -EAGAIN);
}

static void test_room(void)
{
	static struct vbn_op ops[DEPTH];
	struct vbn_counters before;

	up(NULL);
	fake_defer(true);
	before = counters();
	for (unsigned round = 1; round <= 3; round++) {
		fill(ops);
		CU_ASSERT_EQUAL(counters().again - before.again, 2 * round);
		CU_ASSERT_EQUAL(counters().puts - before.puts, DEPTH * round);
		CU_ASSERT_EQUAL(fake_step(3), 3);
		vbn_progress(a);
		CU_ASSERT_EQUAL(over, 3);
		fake_step(DEPTH);
		while (ops[DEPTH - 1].status == -EINPROGRESS)
			vbn_progress(a);
		CU_ASSERT_EQUAL(over, DEPTH);
		for (int i = 0; i < DEPTH; i++)
			CU_ASSERT_EQUAL(ops[i].status, 0);
	}
	down();
}

static void test_flush(void)
{
	struct vbn_op ops[3], flush = {.done = on_done};

	up(NULL);
	fake_defer(true);
	for (int i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(put(&ops[i], 1), 0);
	CU_ASSERT_EQUAL(vbn_flush(ep, &flush), 0);
	CU_ASSERT_EQUAL(fake_step(2), 2);
	vbn_progress(a);
	CU_ASSERT(over == 2 && flush.status == -EINPROGRESS);
	CU_ASSERT_EQUAL(fake_step(1), 1);
	vbn_progress(a);
	CU_ASSERT(over == 4 && !ops[2].status && !flush.status);
	down();
}

/* The device refuses: it was taken, so it is over by a callback. */
static void test_refused(void)
{
	struct vbn_op op, next;

	up(NULL);
	fake_fail(FAKE_POST_SEND, 1, EIO);
	CU_ASSERT_EQUAL(put(&op, 1), 0);
	CU_ASSERT_EQUAL(op.status, -EINPROGRESS);
	CU_ASSERT_EQUAL(put(&next, 1), -ECONNRESET);
	CU_ASSERT_EQUAL(fake_job_wait(a, b, &op, WAIT_MS), -EIO);
	CU_ASSERT(over == 1 && op.wc == IBV_WC_GENERAL_ERR && op.vendor == EIO);
	CU_ASSERT_EQUAL(put(&next, 1), -ECONNRESET);
	CU_ASSERT_EQUAL(over, 1);
	down();
}

/* Closed with puts in flight: each is over once. */
static void test_closed(void)
{
	struct vbn_op ops[5];

	up(NULL);
	fake_defer(true);
	for (int i = 0; i < 5; i++)
		CU_ASSERT_EQUAL(put(&ops[i], 1), 0);
	CU_ASSERT_EQUAL(fake_step(2), 2);
	fake_defer(false);
	vbn_ep_close(ep);
	CU_ASSERT_EQUAL(over, 5);
	CU_ASSERT(!ops[0].status && !ops[1].status);
	CU_ASSERT_NOT_EQUAL(put(&ops[0], 1), 0);
	while (vbn_progress(a))
		;
	CU_ASSERT_EQUAL(over, 5);
	ep = NULL;
	down();
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"over once, and counted", test_counted},
		{"checks", test_checks},
		{"a key that is no more", test_stale_key},
		{"access", test_access},
		{"behind a chain", test_chain},
		{"a chain in a callback", test_chain_in_callback},
		{"room", test_room},
		{"a flush behind", test_flush},
		{"refused by the device", test_refused},
		{"closed", test_closed},
		CU_TEST_INFO_NULL,
	};
	CU_SuiteInfo suites[] = {
		{.pName = "quick puts", .pTests = tests},
		CU_SUITE_INFO_NULL,
	};

	setenv("VBN_LOG", "error", 0);
	return run_suites(suites);
}
