/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The conformance harness: set-up and tear-down of a case, checks, buffers
 * between guards, exchanges through the job's store.
 */
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

double thread_cpu(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

void sleep_ms(int ms)
{
	struct timespec ts = {.tv_sec = ms / 1000,
			      .tv_nsec = ms % 1000 * 1000000L};

	while (nanosleep(&ts, &ts) != 0 && errno == EINTR)
		;
}

const char *err_name(int err)
{
	static _Thread_local char names[4][32];
	static _Thread_local unsigned turn;
	char *name = names[turn++ % 4];
	const char *known = err ? strerrorname_np(abs(err)) : "0";

	if (known)
		snprintf(name, sizeof(names[0]), "%s%s", err < 0 ? "-" : "",
			 known);
	else
		snprintf(name, sizeof(names[0]), "%d", err);
	return name;
}

/* ---- checks ---- */

static void record(struct test *t, enum outcome outcome, const char *fmt,
		   va_list ap)
{
	if (t->outcome == FAILED)
		return;
	t->outcome = outcome;
	vsnprintf(t->why, sizeof(t->why), fmt, ap);
}

bool t_check(struct test *t, bool ok, const char *fmt, ...)
{
	va_list ap;

	if (ok)
		return true;
	va_start(ap, fmt);
	record(t, FAILED, fmt, ap);
	va_end(ap);
	return false;
}

bool t_ok(struct test *t, int rc, const char *what)
{
	return t_check(t, rc == 0, "%s: %s (%s)", what, err_name(rc),
		       vbn_error());
}

bool t_is(struct test *t, int rc, int want, const char *what)
{
	return t_check(t, rc == want, "%s: %s instead of %s", what,
		       err_name(rc), err_name(want));
}

void t_skip(struct test *t, const char *why)
{
	if (t->outcome != PASSED)
		return;
	t->outcome = SKIPPED;
	snprintf(t->why, sizeof(t->why), "%s", why);
}

/* ---- memory ---- */

void *t_alloc(struct test *t, size_t size)
{
	size_t n = t->nallocations;
	void **list = realloc(t->allocations, (n + 1) * sizeof(void *));
	void *p = calloc(1, size ? size : 1);

	if (!list || !p) {
		fprintf(stderr, "conformance: out of memory (%zu bytes)\n",
			size);
		exit(2);
	}
	list[n] = p;
	t->allocations = list;
	t->nallocations = n + 1;
	return p;
}

struct vbn_pool *t_pool(struct test *t)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL};

	if (!t->pool_)
		t_ok(t, vbn_pool_create(&t->pool_, t->job, &opts),
		     "vbn_pool_create");
	return t->pool_;
}

struct buffer *t_buffer(struct test *t, enum memory kind, size_t len)
{
	struct buffer *buf = t_alloc(t, sizeof(*buf));
	size_t total = len + 2 * GUARD + 1;

	buf->kind = kind;
	buf->len = len;
	if (kind == POOL) {
		if (!t_pool(t))
			return NULL;
		buf->block = vbn_pool_alloc(t->pool_, total, 0);
		if (!t_check(t, buf->block != NULL, "vbn_pool_alloc: %s",
			     vbn_error()))
			return NULL;
	} else {
		buf->block = t_alloc(t, total);
	}
	memset(buf->block, 0xa5, total);
	/* An odd address; what is registered shares pages with the rest. */
	buf->data = buf->block + GUARD + 1;
	buf->next = t->buffers;
	t->buffers = buf;
	if (kind == REGISTERED && len > 0 &&
	    !t_ok(t,
		  vbn_mem_register(&buf->mem, t->job, buf->data, len,
				   VBN_ACCESS_ALL),
		  "vbn_mem_register"))
		return NULL;
	if (kind != UNREGISTERED && len > 0 &&
	    !t_ok(t, vbn_rkey_of(t->job, buf->data, len, &buf->rkey),
		  "vbn_rkey_of"))
		return NULL;
	return buf;
}

static void buffer_free(struct test *t, struct buffer *buf)
{
	if (buf->mem)
		vbn_mem_deregister(buf->mem);
	if (buf->kind == POOL)
		vbn_pool_free(t->pool_, buf->block);
	buf->mem = NULL;
}

void t_release(struct test *t, struct buffer *buf)
{
	struct buffer **link = &t->buffers;

	while (*link && *link != buf)
		link = &(*link)->next;
	if (*link)
		*link = buf->next;
	buffer_free(t, buf);
}

bool t_guards(struct test *t, const struct buffer *buf)
{
	const uint8_t *end = buf->data + buf->len;
	bool ok = true;

	for (size_t i = 0; i <= GUARD; i++)
		ok = ok && buf->block[i] == 0xa5;
	if (!t_check(t, ok, "bytes before the window were changed"))
		return false;
	for (size_t i = 0; i < GUARD; i++)
		ok = ok && end[i] == 0xa5;
	return t_check(t, ok, "bytes after the window were changed");
}

bool t_any_local(const struct test *t)
{
	const char *provider = vbn_ep_provider(t->ep);

	return strcmp(provider, "shm") == 0 || strcmp(provider, "ucx") == 0;
}

struct vbn_ctx *t_context(struct test *t)
{
	struct vbn_ctx *ctx;

	if (!t_check(t, t->ncontexts < CONTEXTS_MAX, "too many contexts") ||
	    !t_ok(t, vbn_ctx_open(&ctx, t->job, NULL), "vbn_ctx_open"))
		return NULL;
	t->contexts[t->ncontexts++] = ctx;
	return ctx;
}

static uint8_t pattern(size_t i, unsigned seed)
{
	uint32_t x = ((uint32_t)i + seed * 7919u) * 2654435761u;

	return (uint8_t)(x >> 24 ^ x >> 13);
}

void fill(void *data, size_t len, unsigned seed)
{
	uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		p[i] = pattern(i, seed);
}

size_t differs(const void *data, size_t len, unsigned seed)
{
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++)
		if (p[i] != pattern(i, seed))
			return i;
	return len;
}

bool t_pattern(struct test *t, const void *data, size_t len, unsigned seed,
	       const char *what)
{
	size_t at = differs(data, len, seed);

	return t_check(t, at == len, "%s: byte %zu of %zu is wrong", what, at,
		       len);
}

/* ---- exchanges ---- */

struct fetch {
	struct vbn_job *job;
	char key[64];
	uint8_t value[256];
	size_t len;
	int rc;
	bool done;
};

static void *fetch_run(void *arg)
{
	struct fetch *f = arg;

	f->rc = vbn_job_get(f->job, f->key, f->value, &f->len, WAIT_MS);
	__atomic_store_n(&f->done, true, __ATOMIC_RELEASE);
	return NULL;
}

/* The first byte of a value tells whether its sender had failed. */
static int publish(struct test *t, unsigned exchange, const void *mine,
		   size_t len)
{
	char key[64];
	uint8_t value[256] = {t->outcome == FAILED};

	if (len)
		memcpy(value + 1, mine, len);
	snprintf(key, sizeof(key), "case/%u/%u/%d", t->serial, exchange,
		 t->rank);
	return vbn_job_set(t->job, key, value, len + 1, WAIT_MS);
}

static bool exchange(struct test *t, const void *mine, void *theirs, size_t len,
		     bool drive)
{
	struct fetch f = {.job = t->job, .len = sizeof(f.value)};
	unsigned n = t->exchanges++;
	pthread_t thread;

	if (!t_ok(t, publish(t, n, mine, len), "vbn_job_set"))
		return false;
	snprintf(f.key, sizeof(f.key), "case/%u/%u/%d", t->serial, n, t->peer);
	/* A thread, as the context must go on: puts may need the target. */
	if (!t_check(t, pthread_create(&thread, NULL, fetch_run, &f) == 0,
		     "cannot start a thread"))
		return false;
	while (!__atomic_load_n(&f.done, __ATOMIC_ACQUIRE)) {
		if (drive && t->ctx)
			vbn_ctx_wait(t->ctx, 1);
		else
			sleep_ms(1);
	}
	pthread_join(thread, NULL);
	if (!t_check(t, f.rc == 0, "waiting for rank %d: %s", t->peer,
		     err_name(f.rc)))
		return false;
	if (f.value[0]) {
		t->peer_failed = true;
		return t_check(t, false, "rank %d failed", t->peer);
	}
	if (theirs)
		memcpy(theirs, f.value + 1, len);
	return true;
}

bool t_exchange(struct test *t, const void *mine, void *theirs, size_t len)
{
	return exchange(t, mine, theirs, len, true);
}

bool t_barrier(struct test *t)
{
	return exchange(t, NULL, NULL, 0, true);
}

bool t_barrier_still(struct test *t)
{
	return exchange(t, NULL, NULL, 0, false);
}

bool t_exchange_rkey(struct test *t, const struct vbn_rkey *mine,
		     struct vbn_rkey *theirs)
{
	uint8_t packed[VBN_RKEY_BYTES], other[VBN_RKEY_BYTES];

	vbn_rkey_pack(mine, packed);
	if (!t_exchange(t, packed, other, sizeof(packed)))
		return false;
	vbn_rkey_unpack(theirs, other);
	return true;
}

bool t_exchange_index(struct test *t, struct vbn_ctx *mine, int *theirs)
{
	int index = vbn_ctx_index(mine);

	return t_exchange(t, &index, theirs, sizeof(index));
}

struct vbn_ep *t_endpoint(struct test *t, struct vbn_ctx *ctx, int rank,
			  int index)
{
	struct vbn_ep *ep;

	if (!t_ok(t, vbn_ep_open(&ep, ctx, rank, index), "vbn_ep_open") ||
	    !t_ok(t, vbn_ep_connect(ep, WAIT_MS), "vbn_ep_connect"))
		return NULL;
	drives(ep, ctx);
	return ep;
}

/* ---- begin and end of a case ---- */

void t_begin(struct test *t)
{
	if (!t_ok(t, vbn_ctx_open(&t->ctx, t->job, NULL), "vbn_ctx_open"))
		return;
	if (t_exchange_index(t, t->ctx, &t->peer_index))
		t->ep = t_endpoint(t, t->ctx, t->peer, t->peer_index);
}

void t_end(struct test *t)
{
	/* Whatever exchange the peer stands at, it shall learn of a failure. */
	if (t->nranks > 2)
		; /* the cases of three end as they see fit */
	else if (t->outcome == FAILED)
		for (unsigned i = t->exchanges; i < CASE_ENDS; i++)
			publish(t, i, NULL, 0);
	else
		t_barrier(t);
	for (int i = 0; i < t->ncontexts; i++)
		vbn_ctx_close(t->contexts[i]);
	if (t->ctx)
		vbn_ctx_close(t->ctx);
	for (struct buffer *b = t->buffers; b; b = b->next)
		buffer_free(t, b);
	if (t->pool_)
		vbn_pool_destroy(t->pool_);
	for (size_t i = 0; i < t->nallocations; i++)
		free(t->allocations[i]);
	free(t->allocations);
	t->allocations = NULL;
	t->nallocations = 0;
}
