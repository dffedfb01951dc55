/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The job's own calls: key-value exchange, fences, what cannot be closed yet.
 */
#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void run_identity(struct test *t)
{
	t_check(t, vbn_job_size(t->job) == 2, "size %d", vbn_job_size(t->job));
	t_check(t, vbn_job_rank(t->job) == t->rank, "rank");
	t_check(t, vbn_job_timeout_ms(t->job) > 0, "timeout %d ms",
		vbn_job_timeout_ms(t->job));
	t_check(t, vbn_job_dead(t->job) == -1, "rank %d is dead",
		vbn_job_dead(t->job));
	t_check(t, !vbn_job_rank_dead(t->job, t->peer), "the peer is dead");
}

static void run_values(struct test *t)
{
	size_t len, lengths[] = {0, 1, 100, 4096, 65536};
	uint8_t *out = t_alloc(t, 65536), *in = t_alloc(t, 65536);
	char key[64];

	for (unsigned i = 0; i < 5; i++) {
		fill(out, lengths[i], i + 10 * (unsigned)t->rank);
		snprintf(key, sizeof(key), "values/%u/%d", i, t->rank);
		if (!t_ok(t, vbn_job_set(t->job, key, out, lengths[i], WAIT_MS),
			  "vbn_job_set"))
			return;
		snprintf(key, sizeof(key), "values/%u/%d", i, t->peer);
		len = 65536;
		if (!t_ok(t, vbn_job_get(t->job, key, in, &len, WAIT_MS),
			  "vbn_job_get") ||
		    !t_check(t, len == lengths[i], "%zu bytes, not %zu", len,
			     lengths[i]) ||
		    !t_pattern(t, in, len, i + 10 * (unsigned)t->peer, "value"))
			return;
	}
	len = 99;
	snprintf(key, sizeof(key), "values/2/%d", t->peer);
	t_is(t, vbn_job_get(t->job, key, in, &len, WAIT_MS), -EMSGSIZE,
	     "a value longer than the room");
	/* set replaces */
	if (!t_barrier(t))
		return;
	snprintf(key, sizeof(key), "values/2/%d", t->rank);
	t_ok(t, vbn_job_set(t->job, key, "new", 4, WAIT_MS), "vbn_job_set");
	len = 99;
	t_ok(t, vbn_job_get(t->job, key, in, &len, WAIT_MS), "vbn_job_get");
	t_check(t, len == 4 && memcmp(in, "new", 4) == 0, "value not replaced");
}

static void run_limits(struct test *t)
{
	uint8_t *big = t_alloc(t, 65537);
	char key[300];
	size_t len = 8;
	double start = now();

	t_is(t, vbn_job_get(t->job, "no/such/key", big, &len, 300), -ETIMEDOUT,
	     "a key that nobody sets");
	t_check(t, now() - start > 0.25 && now() - start < 2,
		"300 ms lasted %.3f s", now() - start);
	t_check(t, len == 8, "an output changed in spite of an error");
	t_check(t, vbn_job_set(t->job, "", big, 1, WAIT_MS) == -EINVAL,
		"an empty key was taken");
	memset(key, 'k', sizeof(key) - 1);
	key[256] = 0;
	t_check(t, vbn_job_set(t->job, key, big, 1, WAIT_MS) < 0,
		"a key of 256 bytes was taken");
	key[255] = 0;
	t_ok(t, vbn_job_set(t->job, key, big, 1, WAIT_MS),
	     "a key of 255 bytes");
	t_check(t, vbn_job_set(t->job, "k", big, 65537, WAIT_MS) < 0,
		"a value of 65537 bytes was taken");
}

static void run_fence(struct test *t)
{
	double times[2], theirs[2];

	for (int i = 0; i < 20; i++)
		if (!t_ok(t, vbn_job_fence(t->job, WAIT_MS), "vbn_job_fence"))
			return;
	/* None leaves before the last has come. */
	if (t->rank == 1)
		sleep_ms(200);
	times[0] = now();
	if (!t_ok(t, vbn_job_fence(t->job, WAIT_MS), "vbn_job_fence"))
		return;
	times[1] = now();
	if (t_exchange(t, times, theirs, sizeof(times)))
		t_check(t, times[1] >= theirs[0],
			"left the fence %.3f s before the peer came",
			theirs[0] - times[1]);
}

static void run_busy(struct test *t)
{
	t_is(t, vbn_job_close(t->job), -EBUSY, "closing with a context open");
	/* Nothing was done: all goes on. */
	t_barrier(t);
	t_flush(t);
}

/* Registrations by the hundred, and all given back. */
static void run_registrations(struct test *t)
{
	enum { COUNT = 300 };
	uint8_t *block = t_alloc(t, COUNT * 100);
	struct vbn_mem **mems = t_alloc(t, COUNT * sizeof(struct vbn_mem *));
	struct vbn_rkey rkey;
	int made = 0;

	for (; made < COUNT; made++)
		if (!t_ok(t,
			  vbn_mem_register(&mems[made], t->job,
					   block + made * 100, 99,
					   VBN_ACCESS_ALL),
			  "vbn_mem_register"))
			break;
	for (int i = 0; i < made; i++) {
		t_ok(t, vbn_rkey_of(t->job, block + i * 100, 99, &rkey),
		     "vbn_rkey_of");
		t_check(t,
			rkey.base == (uintptr_t)(block + i * 100) &&
				rkey.length == 99,
			"the window of registration %d", i);
		t_is(t, vbn_rkey_of(t->job, block + i * 100, 100, &rkey),
		     -EINVAL, "a key of more than was registered");
	}
	for (int i = 0; i < made; i++)
		vbn_mem_deregister(mems[i]);
}

/* Pools: aligned, distinct, inside their limit, and free makes room. */
static void run_pool(struct test *t)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL,
					.limit = 16u << 20};
	struct vbn_pool *pool;
	uint8_t *all[64];
	void *a, *b;
	int n = 0;

	if (!t_ok(t, vbn_pool_create(&pool, t->job, &opts), "vbn_pool_create"))
		return;
	for (size_t align = 1; align <= 65536; align *= 2) {
		uint8_t *p = vbn_pool_alloc(pool, 100, align);

		t_check(t, p && (uintptr_t)p % align == 0, "alignment %zu",
			align);
		vbn_pool_free(pool, p);
	}
	a = vbn_pool_alloc(pool, 10, 0);
	b = vbn_pool_alloc(pool, 0, 0);
	t_check(t, a && (uintptr_t)a % 64 == 0, "alignment 0 means 64");
	t_check(t, b && b != a, "a size of 0 has no pointer of its own");
	vbn_pool_free(pool, a);
	vbn_pool_free(pool, b);
	vbn_pool_free(pool, NULL);
	for (; n < 64; n++) {
		all[n] = vbn_pool_alloc(pool, 1u << 20, 0);
		if (!all[n])
			break;
		memset(all[n], n, 1u << 20);
	}
	t_check(t, n >= 8 && n <= 16, "%d MiB from a pool limited to 16", n);
	t_check(t, vbn_error()[0] != 0, "no error line at the limit");
	for (int i = 0; i < n; i++) {
		t_check(t, all[i][0] == i && all[i][(1u << 20) - 1] == i,
			"allocations overlap");
		vbn_pool_free(pool, all[i]);
	}
	a = vbn_pool_alloc(pool, 4u << 20, 0);
	t_check(t, a != NULL, "free makes no room: %s", vbn_error());
	vbn_pool_destroy(pool);
}

static const struct test_case cases[] = {
	{"job/identity", run_identity, 0, 0, 0},
	{"job/values", run_values, 0, 0, 0},
	{"job/limits", run_limits, 0, 0, 0},
	{"job/fence", run_fence, 0, 0, 0},
	{"job/busy", run_busy, 0, 0, 0},
	{"memory/registrations", run_registrations, 0, 0, 0},
	{"memory/pool", run_pool, 0, 0, 0},
};

const struct cases job_cases = {cases, sizeof(cases) / sizeof(cases[0])};
