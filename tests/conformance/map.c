/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers' memory by plain loads and stores: what is there, what is refused, the
 * order that notifies give, and that a late load does not fault. Where the
 * provider maps nothing, get and put are what serves, and the case is skipped.
 */
#include "harness.h"

#include <errno.h>
#include <string.h>

#define BLOCK  100000u
#define ROUNDS 3000
#define WORDS  64u

/* As an operation is: again while -EAGAIN. */
static int map(struct test *t, struct vbn_ep *ep, const struct vbn_rkey *rkey,
	       uint64_t offset, size_t len, void **ptr)
{
	double until = now() + WAIT_MS / 1e3;
	int rc;

	while ((rc = vbn_rkey_map(ep, rkey, offset, len, ptr)) == -EAGAIN &&
	       now() < until)
		vbn_ctx_wait(t->ctx, 10);
	return rc;
}

/* The place of all of @rkey; NULL: none, and the case is over. */
static void *place(struct test *t, const struct vbn_rkey *rkey)
{
	void *ptr = NULL;
	int rc = map(t, t->ep, rkey, 0, rkey->length, &ptr);

	if (rc == -EOPNOTSUPP) {
		t_skip(t, "the provider maps no memory of a peer's");
		return NULL;
	}
	return t_ok(t, rc, "vbn_rkey_map") &&
			       t_check(t, ptr != NULL, "a place of NULL")
		       ? ptr
		       : NULL;
}

/* What is not mapped is there for get all the same. */
static void get_serves(struct test *t, const struct vbn_rkey *rkey,
		       unsigned seed)
{
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	uint8_t *back = t_alloc(t, BLOCK);

	if (t_ok(t,
		 get((struct post){t->ep, op, rkey, 0, 0}, back, rkey->length),
		 "vbn_get") &&
	    t_wait(t, op, "get"))
		t_pattern(t, back, rkey->length, seed, "get");
	t_barrier(t);
}

/* Reads what the peer wrote, at any offset, and writes for it to read. */
static void run_pool(struct test *t)
{
	static const size_t offsets[] = {0, 1, 4095, 4096, BLOCK - 1, BLOCK};
	struct buffer *mine = t_buffer(t, POOL, BLOCK);
	struct vbn_rkey rkey;
	void *ptr, *at;

	if (!mine)
		return;
	fill(mine->data, BLOCK, 5u + (unsigned)t->rank);
	if (!t_exchange_rkey(t, &mine->rkey, &rkey))
		return;
	ptr = place(t, &rkey);
	if (t->outcome == SKIPPED)
		get_serves(t, &rkey, 5u + (unsigned)t->peer);
	if (!ptr || !t_pattern(t, ptr, BLOCK, 5u + (unsigned)t->peer, "map") ||
	    !t_barrier(t))
		return;
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
		if (t_ok(t,
			 vbn_rkey_map(t->ep, &rkey, offsets[i],
				      BLOCK - offsets[i], &at),
			 "vbn_rkey_map"))
			t_check(t, at == (char *)ptr + offsets[i],
				"offset %zu is elsewhere", offsets[i]);
	fill(ptr, BLOCK, 9u + (unsigned)t->rank);
	if (t_barrier(t))
		t_pattern(t, mine->data, BLOCK, 9u + (unsigned)t->peer,
			  "the peer's stores");
	t_guards(t, mine);
}

static void run_heap(struct test *t)
{
	struct buffer *mine = t_buffer(t, REGISTERED, 5000);
	struct vbn_rkey rkey;
	void *ptr = t;
	int rc;

	if (!mine)
		return;
	fill(mine->data, 5000, 3u + (unsigned)t->rank);
	if (!t_exchange_rkey(t, &mine->rkey, &rkey))
		return;
	rc = map(t, t->ep, &rkey, 0, 5000, &ptr);
	if (rc == -EOPNOTSUPP)
		t_check(t, ptr == t, "a refusal has set the pointer");
	else if (t_ok(t, rc, "vbn_rkey_map"))
		t_pattern(t, ptr, 5000, 3u + (unsigned)t->peer, "map");
	get_serves(t, &rkey, 3u + (unsigned)t->peer);
}

/* Over every provider, one's own memory is where it is. */
static void run_self(struct test *t)
{
	struct vbn_ep *ep =
		t_endpoint(t, t->ctx, t->rank, vbn_ctx_index(t->ctx));
	struct buffer *bufs[] = {t_buffer(t, POOL, 3000),
				 t_buffer(t, REGISTERED, 3000)};
	struct vbn_rkey bad;
	void *ptr = NULL;

	if (!ep || !bufs[0] || !bufs[1])
		return;
	for (int i = 0; i < 2; i++) {
		const struct vbn_rkey *rkey = &bufs[i]->rkey;

		if (t_ok(t, map(t, ep, rkey, 1000, 2000, &ptr), "vbn_rkey_map"))
			t_check(t, ptr == bufs[i]->data + 1000,
				"one's own memory is at %p instead of %p", ptr,
				(void *)(bufs[i]->data + 1000));
		t_is(t, map(t, ep, rkey, 1001, 2000, &ptr), -EINVAL,
		     "a map that leaves the window");
	}
	bad = bufs[0]->rkey;
	bad.generation += 1;
	t_is(t, map(t, ep, &bad, 0, 1, &ptr), -EKEYREJECTED,
	     "a generation to come");
	bad = bufs[1]->rkey;
	t_release(t, bufs[1]);
	t_is(t, map(t, ep, &bad, 0, 1, &ptr), -EACCES, "deregistered memory");
}

/* ---- refusals ---- */

static void run_bad_keys(struct test *t)
{
	struct buffer *mine = t_buffer(t, POOL, 100);
	struct vbn_rkey rkey, bad;
	void *ptr = NULL;

	if (!mine || !t_exchange_rkey(t, &mine->rkey, &rkey) ||
	    !place(t, &rkey))
		return;
	t_is(t, map(t, t->ep, NULL, 0, 1, &ptr), -EINVAL, "no key");
	t_is(t, map(t, t->ep, &rkey, 0, 1, NULL), -EINVAL, "no pointer");
	t_is(t, map(t, t->ep, &rkey, 100, 1, &ptr), -EINVAL, "behind it");
	t_is(t, map(t, t->ep, &rkey, 99, 2, &ptr), -EINVAL, "over its end");
	t_is(t, map(t, t->ep, &rkey, UINT64_MAX, 2, &ptr), -EINVAL,
	     "around the end of memory");
	bad = rkey;
	bad.length = 1ull << 40;
	t_is(t, map(t, t->ep, &bad, 0, 1, &ptr), -EKEYREJECTED,
	     "a forged length");
	bad = rkey;
	bad.base -= 1ull << 30;
	t_is(t, map(t, t->ep, &bad, 0, 1, &ptr), -EKEYREJECTED,
	     "a forged base");
	bad = rkey;
	bad.generation += 1;
	t_is(t, map(t, t->ep, &bad, 0, 1, &ptr), -EKEYREJECTED,
	     "a generation to come");
	bad.generation = rkey.generation;
	bad.region = UINT32_MAX;
	t_is(t, map(t, t->ep, &bad, 0, 1, &ptr), -EKEYREJECTED,
	     "an unknown region");
	t_check(t, !ptr, "a refusal has set the pointer");
	t_barrier(t);
}

static void run_rights(struct test *t)
{
	struct vbn_pool_options opts = {.size = sizeof(opts)};
	static const unsigned rights[] = {VBN_ACCESS_WRITE, VBN_ACCESS_READ};
	struct vbn_pool *pools[2] = {0};

	for (int i = 0; i < 2 && t->outcome == PASSED; i++) {
		bool readable = rights[i] & VBN_ACCESS_READ;
		struct vbn_rkey mine, theirs;
		void *ptr = NULL;
		int rc;

		opts.access = rights[i];
		if (!t_ok(t, vbn_pool_create(&pools[i], t->job, &opts),
			  "vbn_pool_create"))
			break;
		ptr = vbn_pool_alloc(pools[i], 64, 0);
		if (!t_check(t, ptr != NULL, "vbn_pool_alloc") ||
		    !t_ok(t, vbn_rkey_of(t->job, ptr, 64, &mine),
			  "vbn_rkey_of") ||
		    !t_exchange_rkey(t, &mine, &theirs))
			break;
		rc = map(t, t->ep, &theirs, 0, 64, &ptr);
		if (rc == -EOPNOTSUPP)
			t_skip(t, "the provider maps no memory of a peer's");
		else
			t_is(t, rc, readable ? 0 : -EACCES,
			     readable ? "open for reading"
				      : "open for writing only");
		t_barrier(t);
	}
	vbn_ctx_close(t->ctx);
	t->ctx = NULL;
	for (int i = 0; i < 2; i++)
		vbn_pool_destroy(pools[i]);
}

static void run_connecting(struct test *t)
{
	struct buffer *mine = t_buffer(t, POOL, 64);
	int base = vbn_ctx_index(t->ctx);
	struct vbn_ep *ep;
	void *ptr;

	/* A context that the peer does not open. */
	if (!mine || !t_ok(t, vbn_ep_open(&ep, t->ctx, t->peer, base + 100),
			   "vbn_ep_open"))
		return;
	t_is(t, vbn_rkey_map(ep, &mine->rkey, 0, 1, &ptr), -EAGAIN,
	     "while connecting");
	vbn_ep_close(ep);
	t_is(t, vbn_rkey_map(ep, &mine->rkey, 0, 1, &ptr), -ECONNRESET,
	     "a closed endpoint");
	t_barrier(t);
}

/* ---- order ---- */

static void count_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	int *count = arg;

	(void)from;
	(void)value;
	(*count)++;
}

/* The first aligned word at @p, which is at @base where it is owned. */
static volatile uint64_t *words_at(void *p, uint64_t base)
{
	return (volatile uint64_t *)(void *)((char *)p + (-base & 7));
}

/*
 * Each writes its own memory and says so, the other reads it and says so, over
 * and over: neither sees words of another round.
 */
static void run_order(struct test *t)
{
	struct buffer *mine = t_buffer(t, POOL, WORDS * 64 + 8);
	struct vbn_op *ops = t_alloc(t, 2 * sizeof(*ops));
	volatile uint64_t *own, *theirs;
	int *count = t_alloc(t, sizeof(*count));
	struct vbn_rkey rkey;
	void *ptr;

	if (!mine)
		return;
	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, count_notify, count);
	if (!t_exchange_rkey(t, &mine->rkey, &rkey))
		return;
	ptr = place(t, &rkey);
	if (!ptr)
		return;
	own = words_at(mine->data, mine->rkey.base);
	theirs = words_at(ptr, rkey.base);
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t want = (uint64_t)i + 1;

		for (unsigned k = 0; k < WORDS; k++)
			own[8 * k] = want;
		if (!t_ok(t, notify(t->ep, &ops[0], VBN_CHANNEL_USER, 0),
			  "written") ||
		    !t_wait(t, &ops[0], "written") ||
		    !t_count(t, count, 2 * i + 1, "written"))
			return;
		for (unsigned k = WORDS; k-- > 0;)
			if (!t_check(t, theirs[8 * k] == want,
				     "round %d: word %u is of round %llu", i, k,
				     (unsigned long long)theirs[8 * k] - 1))
				return;
		if (!t_ok(t, notify(t->ep, &ops[1], VBN_CHANNEL_USER, 0),
			  "read") ||
		    !t_wait(t, &ops[1], "read") ||
		    !t_count(t, count, 2 * i + 2, "read"))
			return;
	}
	t_barrier(t);
}

/* ---- memory that is gone ---- */

static bool new_pool(struct test *t, struct vbn_pool **pool, unsigned seed,
		     struct vbn_rkey *theirs)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL};
	struct vbn_rkey mine;
	uint8_t *block;

	if (!t_ok(t, vbn_pool_create(pool, t->job, &opts), "vbn_pool_create"))
		return false;
	block = vbn_pool_alloc(*pool, BLOCK, 0);
	if (!t_check(t, block != NULL, "vbn_pool_alloc"))
		return false;
	fill(block, BLOCK, seed);
	return t_ok(t, vbn_rkey_of(t->job, block, BLOCK, &mine),
		    "vbn_rkey_of") &&
	       t_exchange_rkey(t, &mine, theirs);
}

/* What was mapped of memory that is gone: its last bytes, or zeros. */
static void last_or_zeros(struct test *t, const uint8_t *was, unsigned seed)
{
	uint8_t *zeros = t_alloc(t, BLOCK);

	t_check(t,
		differs(was, BLOCK, seed) == BLOCK ||
			memcmp(was, zeros, BLOCK) == 0,
		"neither what was there nor zeros");
}

/* Loads go on after the owner has given it back and others took its number. */
static void run_outlived(struct test *t)
{
	struct vbn_pool *first = NULL, *second = NULL;
	struct vbn_rkey old, fresh;
	void *was, *is, *again;

	if (!new_pool(t, &first, 1, &old))
		goto end;
	was = place(t, &old);
	if (!was || !t_pattern(t, was, BLOCK, 1, "map") || !t_barrier(t))
		goto end;
	vbn_pool_destroy(first);
	first = NULL;
	if (!t_barrier(t))
		goto end;
	t_is(t, map(t, t->ep, &old, 0, 1, &again), -EACCES,
	     "a pool that is destroyed");
	last_or_zeros(t, was, 1);
	if (!new_pool(t, &second, 2, &fresh))
		goto end;
	t_check(t, fresh.region == old.region, "the number was not used again");
	is = place(t, &fresh);
	if (!is || !t_pattern(t, is, BLOCK, 2, "the new pool"))
		goto end;
	last_or_zeros(t, was, 1);
	if (!t_barrier(t))
		goto end;
	vbn_ep_close(t->ep);
	last_or_zeros(t, was, 1);
	t_pattern(t, is, BLOCK, 2, "after the endpoint's close");
end:
	vbn_ctx_close(t->ctx);
	t->ctx = NULL;
	vbn_pool_destroy(first);
	vbn_pool_destroy(second);
}

static const struct test_case cases[] = {
	{"map/pool", run_pool, 0, 0, 0},
	{"map/heap", run_heap, 0, 0, 0},
	{"map/self", run_self, 0, 0, 0},
	{"map/bad-keys", run_bad_keys, 0, 0, 0},
	{"map/rights", run_rights, 0, 0, 0},
	{"map/connecting", run_connecting, 0, 0, 0},
	{"map/order", run_order, 0, 0, 0},
	{"map/outlived", run_outlived, 0, 0, 0},
};

const struct cases map_cases = {cases, sizeof(cases) / sizeof(cases[0])};
