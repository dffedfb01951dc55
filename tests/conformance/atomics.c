/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomics from both ranks, and from the owner through its self endpoint, on
 * the same words: no update is lost, no value is given twice.
 */
#include "harness.h"

#include <errno.h>
#include <string.h>

#define ADDS   2000
#define WINDOW 16 /* adds in flight */

/* The words of this rank, and the key to the peer's. */
static uint64_t *words(struct test *t, struct vbn_rkey *mine,
		       struct vbn_rkey *theirs)
{
	struct vbn_pool *pool = t_pool(t);
	uint64_t *w = pool ? vbn_pool_alloc(pool, 64, 64) : NULL;

	if (!t_check(t, w != NULL, "vbn_pool_alloc: %s", vbn_error()))
		return NULL;
	memset(w, 0, 64);
	if (!t_ok(t, vbn_rkey_of(t->job, w, 64, mine), "vbn_rkey_of") ||
	    !t_exchange_rkey(t, mine, theirs))
		return NULL;
	return w;
}

struct adder {
	struct vbn_op op;
	uint64_t before;
	bool busy;
};

/*
 * Add ADDS times to one word of rank 0's, all of it through @ep. Each value
 * before is marked in @seen.
 */
static bool add_many(struct test *t, struct vbn_ep *ep,
		     const struct vbn_rkey *rkey, uint8_t *seen)
{
	struct adder *adders = t_alloc(t, WINDOW * sizeof(*adders));

	for (int i = 0; i < ADDS + WINDOW; i++) {
		struct adder *a = &adders[i % WINDOW];

		if (a->busy) {
			if (!t_wait(t, &a->op, "fetch-add") ||
			    !t_check(t, a->before < 2 * ADDS,
				     "the value before is %llu",
				     (unsigned long long)a->before))
				return false;
			seen[a->before]++;
			a->busy = false;
		}
		if (i >= ADDS)
			continue;
		if (!t_ok(t,
			  fetch_add((struct post){ep, &a->op, rkey, 8, 0},
				    &a->before, 1),
			  "vbn_fetch_add"))
			return false;
		a->busy = true;
	}
	return true;
}

static void run_contention(struct test *t)
{
	uint8_t *seen = t_alloc(t, 2 * ADDS);
	struct vbn_rkey mine, theirs;
	uint64_t *w = words(t, &mine, &theirs);
	struct vbn_ep *ep = t->ep;
	unsigned mask[2] = {0}, other[2];

	if (!w)
		return;
	/* The owner, too, goes through the library: one provider serves. */
	if (t->rank == 0)
		ep = t_endpoint(t, t->ctx, 0, vbn_ctx_index(t->ctx));
	if (!ep || !t_barrier(t) ||
	    !add_many(t, ep, t->rank == 0 ? &mine : &theirs, seen) ||
	    !t_barrier(t))
		return;
	if (t->rank == 0)
		t_check(t, __atomic_load_n(&w[1], __ATOMIC_ACQUIRE) == 2 * ADDS,
			"the sum is %llu instead of %d",
			(unsigned long long)w[1], 2 * ADDS);
	/* Each value once over both ranks: distinct here, and sums agree. */
	for (unsigned i = 0; i < 2 * ADDS; i++) {
		if (!t_check(t, seen[i] <= 1, "value %u came twice", i))
			return;
		if (seen[i]) {
			mask[0] += i;
			mask[1] += i * i;
		}
	}
	if (!t_exchange(t, mask, other, sizeof(mask)))
		return;
	for (unsigned i = 0; i < 2 * ADDS; i++) {
		mask[0] -= i;
		mask[1] -= i * i;
	}
	t_check(t, mask[0] + other[0] == 0 && mask[1] + other[1] == 0,
		"the values before are not each of 0..%d once", 2 * ADDS - 1);
}

/* A lock made of compare-swap guards a counter moved by get and put. */
static bool locked_increment(struct test *t, struct vbn_ep *ep,
			     const struct vbn_rkey *rkey, uint64_t *value)
{
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	uint64_t *before = t_alloc(t, sizeof(*before));
	struct post lock = {ep, op, rkey, 0, 0}, data = {ep, op, rkey, 8, 0};

	for (;;) {
		if (!t_ok(t, compare_swap(lock, before, 0, 1), "lock") ||
		    !t_wait(t, op, "lock"))
			return false;
		if (*before == 0)
			break;
		vbn_progress(t->ctx);
	}
	if (!t_ok(t, get(data, value, 8), "vbn_get") || !t_wait(t, op, "get"))
		return false;
	++*value;
	if (!t_ok(t, put(data, value, 8), "vbn_put") || !t_wait(t, op, "put") ||
	    !t_ok(t, flush(ep, op), "vbn_flush") || !t_wait(t, op, "flush"))
		return false;
	return t_ok(t, compare_swap(lock, before, 1, 0), "unlock") &&
	       t_wait(t, op, "unlock") &&
	       t_check(t, *before == 1, "the lock was %llu when held",
		       (unsigned long long)*before);
}

static void run_lock(struct test *t)
{
	struct vbn_rkey mine, theirs;
	uint64_t *w = words(t, &mine, &theirs), *value;
	struct vbn_ep *ep = t->ep;

	if (!w)
		return;
	if (t->rank == 0)
		ep = t_endpoint(t, t->ctx, 0, vbn_ctx_index(t->ctx));
	value = vbn_pool_alloc(t_pool(t), 8, 8);
	if (!ep || !t_check(t, value != NULL, "vbn_pool_alloc") ||
	    !t_barrier(t))
		return;
	for (int i = 0; i < 100; i++)
		if (!locked_increment(t, ep, t->rank == 0 ? &mine : &theirs,
				      value))
			return;
	if (t_barrier(t) && t->rank == 0)
		t_check(t, w[1] == 200 && w[0] == 0,
			"the counter is %llu instead of 200, the lock %llu",
			(unsigned long long)w[1], (unsigned long long)w[0]);
}

/* Registered memory of the caller's serves atomics as well. */
static void run_registered(struct test *t)
{
	uint64_t *block = t_alloc(t, 256), *result = t_alloc(t, 8);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	struct vbn_rkey mine, theirs;
	struct vbn_mem *mem;

	if (!t_ok(t, vbn_mem_register(&mem, t->job, block, 256, VBN_ACCESS_ALL),
		  "vbn_mem_register"))
		return;
	if (t_ok(t, vbn_rkey_of(t->job, block, 256, &mine), "vbn_rkey_of") &&
	    t_exchange_rkey(t, &mine, &theirs) &&
	    t_ok(t,
		 fetch_add((struct post){t->ep, op, &theirs, 16, 0}, result, 5),
		 "vbn_fetch_add") &&
	    t_wait(t, op, "fetch-add") && t_barrier(t)) {
		t_check(t, block[2] == 5 && *result == 0, "word %llu, not 5",
			(unsigned long long)block[2]);
		t_check(t, block[1] == 0 && block[3] == 0, "its neighbours");
	}
	vbn_ctx_close(t->ctx);
	t->ctx = NULL;
	vbn_mem_deregister(mem);
}

static const struct test_case cases[] = {
	{"atomics/contention", run_contention, 0, 0, 0},
	{"atomics/lock", run_lock, 0, 0, 0},
	{"atomics/registered", run_registered, 0, 0, 0},
};

const struct cases atomic_cases = {cases, sizeof(cases) / sizeof(cases[0])};
