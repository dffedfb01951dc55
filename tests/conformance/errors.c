/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What must be refused: bad keys, keys of memory that is gone, windows left,
 * access not granted, impossible arguments. Nothing may be written by any of
 * it, and a refusal at the post must leave the endpoint alone.
 */
#include "harness.h"

#include <errno.h>
#include <string.h>

/*
 * A put with a bad key: refused at the post, or by the target. @rkey is as
 * the case forged it. Rank 0 alone does it: where the target refuses, the
 * connection may break, and the peer's own operation would end with that.
 */
static void must_refuse_put(struct test *t, const struct vbn_rkey *rkey,
			    uint64_t offset, size_t len, const char *what)
{
	struct buffer *local = t_buffer(t, POOL, len);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	int rc;

	if (!local || t->rank != 0)
		return;
	fill(local->data, len, 77);
	rc = put((struct post){t->ep, op, rkey, offset, 0}, local->data, len);
	if (rc == 0)
		rc = vbn_wait(t->ctx, op, WAIT_MS);
	t_check(t, rc == -EKEYREJECTED || rc == -EACCES || rc == -EINVAL,
		"%s: %s", what, err_name(rc));
}

static void must_refuse_get(struct test *t, const struct vbn_rkey *rkey,
			    uint64_t offset, size_t len, const char *what)
{
	struct buffer *local = t_buffer(t, POOL, len);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	int rc;

	if (!local || t->rank != 0)
		return;
	rc = get((struct post){t->ep, op, rkey, offset, 0}, local->data, len);
	if (rc == 0)
		rc = vbn_wait(t->ctx, op, WAIT_MS);
	t_check(t, rc == -EKEYREJECTED || rc == -EACCES || rc == -EINVAL,
		"%s: %s", what, err_name(rc));
	for (size_t i = 0; i < len; i++)
		if (!t_check(t, local->data[i] == 0xa5, "%s: bytes came", what))
			return;
}

static bool untouched(struct test *t, const struct buffer *buf)
{
	bool same = true;

	for (size_t i = 0; i < buf->len; i++)
		same = same && buf->data[i] == 0xa5;
	return t_check(t, same, "bytes were written all the same") &&
	       t_guards(t, buf);
}

/* After refusals at the post, good operations work as before. */
static bool still_works(struct test *t, const struct vbn_rkey *rkey)
{
	struct buffer *local = t_buffer(t, POOL, 64);
	struct vbn_op *op = t_alloc(t, sizeof(*op));

	if (!local)
		return false;
	return t_ok(t,
		    get((struct post){t->ep, op, rkey, 0, 0}, local->data, 64),
		    "vbn_get after refusals") &&
	       t_wait(t, op, "get after refusals");
}

static void run_unknown_region(struct test *t)
{
	struct buffer *target = t_buffer(t, POOL, 64);
	struct vbn_rkey good, bad;

	if (!target || !t_exchange_rkey(t, &target->rkey, &good))
		return;
	bad = good;
	bad.region = 0x00fffff0;
	must_refuse_put(t, &bad, 0, 64, "put to an unknown region");
	must_refuse_get(t, &bad, 0, 64, "get from an unknown region");
	bad.region = UINT32_MAX;
	must_refuse_put(t, &bad, 0, 64, "put to region 2^32 - 1");
	if (still_works(t, &good) && t_barrier(t))
		untouched(t, target);
}

static void run_stale_generation(struct test *t)
{
	struct buffer *target = t_buffer(t, POOL, 64);
	struct vbn_rkey good, bad;

	if (!target || !t_exchange_rkey(t, &target->rkey, &good))
		return;
	bad = good;
	bad.generation = good.generation + 1;
	must_refuse_put(t, &bad, 0, 64, "put with a generation to come");
	bad.generation = good.generation - 1;
	must_refuse_get(t, &bad, 0, 64, "get with a generation gone by");
	if (still_works(t, &good) && t_barrier(t))
		untouched(t, target);
}

static void run_outside(struct test *t)
{
	struct buffer *target = t_buffer(t, POOL, 100);
	struct vbn_rkey rkey;
	static const struct {
		uint64_t offset;
		size_t len;
	} bad[] = {
		{100, 1},
		{0, 101},
		{99, 2},
		{UINT64_MAX, 1},
		{UINT64_MAX - 6, 8},
		{UINT64_MAX - 63, 64},
		{1ull << 63, 8},
		{1ull << 32, 1},
	};

	if (!target || !t_exchange_rkey(t, &target->rkey, &rkey))
		return;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct buffer *local = t_buffer(t, POOL, bad[i].len);
		struct vbn_op *op = t_alloc(t, sizeof(*op));
		struct post p = {t->ep, op, &rkey, bad[i].offset, 0};

		if (!local)
			return;
		t_is(t, put(p, local->data, bad[i].len), -EINVAL,
		     "a put that leaves the window");
		t_is(t, get(p, local->data, bad[i].len), -EINVAL,
		     "a get that leaves the window");
		t_is(t,
		     put_notify(p, local->data, bad[i].len, VBN_CHANNEL_USER,
				1),
		     -EINVAL, "a put with notify that leaves the window");
	}
	if (still_works(t, &rkey) && t_barrier(t))
		untouched(t, target);
}

/* The key claims more than its region has. */
static void run_forged_window(struct test *t)
{
	struct buffer *target = t_buffer(t, REGISTERED, 64);
	struct vbn_rkey bad;

	if (!target || !t_exchange_rkey(t, &target->rkey, &bad))
		return;
	bad.length = 1u << 20;
	must_refuse_put(t, &bad, 64, 8, "put behind the region");
	if (t->outcome != PASSED || !t_barrier(t))
		return;
	untouched(t, target);
}

static void run_forged_base(struct test *t)
{
	struct buffer *target = t_buffer(t, REGISTERED, 64);
	struct vbn_rkey bad;

	if (!target || !t_exchange_rkey(t, &target->rkey, &bad))
		return;
	bad.base -= 32;
	must_refuse_put(t, &bad, 0, 16, "put before the region");
	if (t->outcome != PASSED || !t_barrier(t))
		return;
	untouched(t, target);
}

/* ---- access ---- */

static void with_access(struct test *t, unsigned access,
			void (*fn)(struct test *t, const struct vbn_rkey *rkey))
{
	uint64_t *block = t_alloc(t, 256);
	struct vbn_rkey mine, theirs;
	struct vbn_mem *mem;

	if (!t_ok(t, vbn_mem_register(&mem, t->job, block, 256, access),
		  "vbn_mem_register"))
		return;
	if (t_ok(t, vbn_rkey_of(t->job, block, 256, &mine), "vbn_rkey_of") &&
	    t_exchange_rkey(t, &mine, &theirs)) {
		fn(t, &theirs);
		t_barrier(t);
	}
	for (int i = 0; i < 32; i++)
		t_check(t, block[i] == 0, "memory was written");
	vbn_ctx_close(t->ctx);
	t->ctx = NULL;
	vbn_mem_deregister(mem);
}

static void put_refused(struct test *t, const struct vbn_rkey *rkey)
{
	must_refuse_put(t, rkey, 0, 64, "put to memory for reading only");
}

static void run_read_only(struct test *t)
{
	with_access(t, VBN_ACCESS_READ, put_refused);
}

static void get_refused(struct test *t, const struct vbn_rkey *rkey)
{
	must_refuse_get(t, rkey, 0, 64, "get from memory for writing only");
}

static void run_write_only(struct test *t)
{
	with_access(t, VBN_ACCESS_WRITE, get_refused);
}

static void add_refused(struct test *t, const struct vbn_rkey *rkey)
{
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	int rc;

	if (t->rank != 0)
		return;
	rc = fetch_add((struct post){t->ep, op, rkey, 0, 0}, NULL, 1);
	if (rc == 0)
		rc = vbn_wait(t->ctx, op, WAIT_MS);
	t_check(t,
		rc == -EACCES || rc == -EKEYREJECTED || rc == -EINVAL ||
			rc == -EOPNOTSUPP,
		"fetch-add on memory without atomics: %s", err_name(rc));
}

static void run_no_atomics(struct test *t)
{
	with_access(t, VBN_ACCESS_READ | VBN_ACCESS_WRITE, add_refused);
}

static void run_local_only(struct test *t)
{
	uint8_t *block = t_alloc(t, 256);
	struct vbn_rkey rkey;
	struct vbn_mem *mem;

	if (!t_ok(t,
		  vbn_mem_register(&mem, t->job, block, 256, VBN_ACCESS_LOCAL),
		  "vbn_mem_register"))
		return;
	t_is(t, vbn_rkey_of(t->job, block, 256, &rkey), -EINVAL,
	     "a key of memory not open to peers");
	vbn_mem_deregister(mem);
}

/* ---- memory that is gone ---- */

static void run_deregistered(struct test *t)
{
	struct buffer *target = t_buffer(t, REGISTERED, 64);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	struct buffer *local = t_buffer(t, POOL, 64);
	struct vbn_rkey rkey;

	if (!target || !local || !t_exchange_rkey(t, &target->rkey, &rkey))
		return;
	/* Used once, so that nothing has to be asked of the owner any more. */
	fill(local->data, 64, 1);
	if (!t_ok(t,
		  put((struct post){t->ep, op, &rkey, 0, 0}, local->data, 64),
		  "vbn_put") ||
	    !t_wait(t, op, "put") || !t_flush(t) || !t_barrier(t) ||
	    !t_pattern(t, target->data, 64, 1, "put"))
		return;
	vbn_mem_deregister(target->mem);
	target->mem = NULL;
	memset(target->data, 0xa5, 64);
	if (!t_barrier(t))
		return;
	must_refuse_put(t, &rkey, 0, 64, "put to deregistered memory");
	if (t->outcome == PASSED && t_barrier(t))
		untouched(t, target);
}

/* The same memory registered again: the old key is stale, the new one good. */
static void run_registered_again(struct test *t)
{
	struct buffer *target = t_buffer(t, REGISTERED, 64);
	struct vbn_rkey old, fresh, unused;

	if (!target || !t_exchange_rkey(t, &target->rkey, &old))
		return;
	vbn_mem_deregister(target->mem);
	target->mem = NULL;
	t_is(t, vbn_rkey_of(t->job, target->data, 64, &unused), -EINVAL,
	     "a key of deregistered memory");
	if (!t_ok(t,
		  vbn_mem_register(&target->mem, t->job, target->data, 64,
				   VBN_ACCESS_ALL),
		  "vbn_mem_register") ||
	    !t_ok(t, vbn_rkey_of(t->job, target->data, 64, &target->rkey),
		  "vbn_rkey_of") ||
	    !t_exchange_rkey(t, &target->rkey, &fresh) ||
	    !still_works(t, &fresh) || !t_barrier(t))
		return;
	must_refuse_put(t, &old, 0, 64, "put with the old key");
	if (t->outcome == PASSED && t_barrier(t))
		untouched(t, target);
}

/* A pool's slab lives on, but its keys outlive the pool no more than that. */
static void run_pool_destroyed(struct test *t)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL};
	struct vbn_rkey mine, theirs;
	struct vbn_pool *pool;
	uint8_t *p;

	if (!t_ok(t, vbn_pool_create(&pool, t->job, &opts), "vbn_pool_create"))
		return;
	p = vbn_pool_alloc(pool, 64, 0);
	if (t_check(t, p != NULL, "vbn_pool_alloc") &&
	    t_ok(t, vbn_rkey_of(t->job, p, 64, &mine), "vbn_rkey_of"))
		t_exchange_rkey(t, &mine, &theirs);
	if (t->outcome == PASSED && still_works(t, &theirs))
		t_barrier(t);
	vbn_pool_destroy(pool);
	if (t->outcome == PASSED && t_barrier(t))
		must_refuse_put(t, &theirs, 0, 64, "put to a destroyed pool");
}

/* ---- arguments ---- */

static void ignored(void *arg, struct vbn_ep *from, uint32_t value)
{
	(void)arg;
	(void)from;
	(void)value;
}

static void run_arguments(struct test *t)
{
	struct buffer *buf = t_buffer(t, POOL, 64);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	uint8_t big[VBN_MESSAGE_MAX + 1] = {0};
	struct vbn_rkey rkey;
	struct post p = {t->ep, op, &rkey, 0, 0},
		    none = {t->ep, op, NULL, 0, 0};
	int rc;

	if (!buf || !t_exchange_rkey(t, &buf->rkey, &rkey))
		return;
	t_is(t, put(p, NULL, 8), -EINVAL, "put from NULL");
	t_is(t, get(p, NULL, 8), -EINVAL, "get into NULL");
	t_is(t, put(none, buf->data, 8), -EINVAL, "put without a key");
	t_is(t, get(none, buf->data, 8), -EINVAL, "get without a key");
	t_is(t, fetch_add(none, NULL, 1), -EINVAL, "fetch-add without a key");
	t_is(t, send_to(t->ep, op, NULL, 8), -EINVAL, "send from NULL");
	t_is(t, recv_from(t->ep, op, NULL, 8), -EINVAL, "receive into NULL");
	p.offset = (-(uintptr_t)rkey.base & 7) + 4;
	t_is(t, fetch_add(p, NULL, 1), -EINVAL, "fetch-add, not aligned");
	t_is(t, compare_swap(p, NULL, 1, 2), -EINVAL,
	     "compare-swap, not aligned");
	p.offset = 60;
	t_is(t, fetch_add(p, NULL, 1), -EINVAL, "fetch-add past the end");
	t_is(t, notify(t->ep, op, VBN_CHANNELS, 0), -EINVAL, "channel 16");
	t_is(t, notify(t->ep, op, UINT32_MAX, 0), -EINVAL, "channel 2^32 - 1");
	t_is(t, notify(t->ep, op, 0, 0), -EINVAL, "the library's channel");
	t_is(t, notify(t->ep, op, 8, VBN_NOTIFY_MAX + 1), -EINVAL,
	     "a value of 29 bits");
	t_is(t, message(t->ep, VBN_CHANNELS, big, 1), -EINVAL,
	     "message on channel 16");
	t_is(t, message(t->ep, 0, big, 1), -EINVAL,
	     "message on the library's channel");
	rc = message(t->ep, 8, big, VBN_MESSAGE_MAX + 1);
	t_check(t, rc == -EMSGSIZE || rc == -EINVAL, "a message too long: %s",
		err_name(rc));
	t_is(t, message(t->ep, 8, NULL, 1), -EINVAL, "message from NULL");
	t_is(t, vbn_notify_handler(t->ctx, VBN_CHANNELS, ignored, NULL),
	     -EINVAL, "handler of channel 16");
	t_is(t, vbn_notify_handler(t->ctx, 0, ignored, NULL), -EINVAL,
	     "handler of the library's channel");
	t_check(t, op->status != -EINPROGRESS,
		"an operation that was not taken looks as if in flight");
	if (still_works(t, &rkey) && t_barrier(t))
		untouched(t, buf);
}

static void run_object_arguments(struct test *t)
{
	struct vbn_pool_options odd = {.size = sizeof(odd), .access = 0x80};
	struct vbn_ep *ep;
	struct vbn_mem *mem;
	struct vbn_pool *pool;
	struct vbn_rkey rkey;
	int here = 0;

	t_is(t, vbn_ep_open(&ep, t->ctx, t->nranks, 0), -EINVAL,
	     "an endpoint to a rank that is not there");
	t_is(t, vbn_ep_open(&ep, t->ctx, -1, 0), -EINVAL, "rank -1");
	t_is(t, vbn_ep_open(&ep, t->ctx, 0, -1), -EINVAL, "context -1");
	t_is(t, vbn_mem_register(&mem, t->job, &here, 0, VBN_ACCESS_ALL),
	     -EINVAL, "registering no byte");
	t_is(t, vbn_mem_register(&mem, t->job, NULL, 8, VBN_ACCESS_ALL),
	     -EINVAL, "registering NULL");
	t_is(t, vbn_mem_register(&mem, t->job, &here, 4, 0x80), -EINVAL,
	     "an unknown access bit");
	t_is(t,
	     vbn_mem_register(&mem, t->job, &here, SIZE_MAX - 4,
			      VBN_ACCESS_ALL),
	     -EINVAL, "registering around the end of memory");
	t_is(t, vbn_rkey_of(t->job, &here, 4, &rkey), -EINVAL,
	     "a key of unregistered memory");
	t_is(t, vbn_pool_create(&pool, t->job, &odd), -EINVAL,
	     "a pool with an unknown access bit");
	if (!t_pool(t))
		return;
	t_check(t, !vbn_pool_alloc(t->pool_, 8, 3), "alignment 3 was given");
	t_check(t, !vbn_pool_alloc(t->pool_, SIZE_MAX - 100, 0),
		"all memory was given");
	t_check(t, vbn_error()[0] != 0, "no error line");
}

static void run_rkey_pack(struct test *t)
{
	struct vbn_rkey key = {0x01020304, 0xa1a2a3a4, 0x1112131415161718,
			       0xfffffffffffffffe};
	uint8_t bytes[VBN_RKEY_BYTES + 1];
	struct vbn_rkey back;

	bytes[VBN_RKEY_BYTES] = 0x5a;
	vbn_rkey_pack(&key, bytes);
	vbn_rkey_unpack(&back, bytes);
	t_check(t, bytes[VBN_RKEY_BYTES] == 0x5a, "pack writes too much");
	t_check(t, memcmp(&key, &back, sizeof(key)) == 0, "the key changed");
}

static const struct test_case cases[] = {
	{"rkey/unknown-region", run_unknown_region, 0, 0, 0},
	{"rkey/stale-generation", run_stale_generation, 0, 0, 0},
	{"rkey/outside-the-window", run_outside, 0, 0, 0},
	{"rkey/forged-length", run_forged_window, 0, 0, 0},
	{"rkey/forged-base", run_forged_base, 0, 0, 0},
	{"rkey/read-only", run_read_only, 0, 0, 0},
	{"rkey/write-only", run_write_only, 0, 0, 0},
	{"rkey/no-atomics", run_no_atomics, 0, 0, 0},
	{"rkey/local-only", run_local_only, 0, 0, 0},
	{"rkey/deregistered", run_deregistered, 0, 0, 0},
	{"rkey/registered-again", run_registered_again, 0, 0, 0},
	{"rkey/pool-destroyed", run_pool_destroyed, 0, 0, 0},
	{"rkey/pack", run_rkey_pack, 0, 0, 0},
	{"arguments/operations", run_arguments, 0, 0, 0},
	{"arguments/objects", run_object_arguments, 0, 0, 0},
};

const struct cases error_cases = {cases, sizeof(cases) / sizeof(cases[0])};
