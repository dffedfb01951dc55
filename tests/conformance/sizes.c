/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every operation at every size: right bytes, untouched guards, and what the
 * counters say of copies. Both ranks do the same to each other at once.
 */
#include "harness.h"

#include <errno.h>
#include <string.h>

#define LARGE (4u << 20)

/*
 * Inline posts may copy a little of unregistered memory without staging;
 * above this, every byte must be counted.
 */
#define INLINE_MAX 512

struct variant {
	enum memory local, target;
	bool large; /* also for sizes above LARGE */
};

static const struct variant variants[] = {
	{POOL, POOL, true},	    {REGISTERED, REGISTERED, true},
	{UNREGISTERED, POOL, true}, {POOL, REGISTERED, false},
	{REGISTERED, POOL, false},  {UNREGISTERED, REGISTERED, false},
};

#define NVARIANTS (sizeof(variants) / sizeof(variants[0]))

static const char *const memory_names[] = {"pool", "registered",
					   "unregistered"};

/* What one direction of an exchange is made of. */
struct window {
	struct buffer *local, *target;
	struct vbn_rkey rkey; /* of the peer's target */
	struct vbn_op *op;
	struct vbn_counters before;
};

static bool window_open(struct test *t, struct window *w,
			const struct variant *v)
{
	size_t len = t->tc->size;

	w->local = t_buffer(t, v->local, len);
	w->target = t_buffer(t, v->target, len);
	w->op = t_alloc(t, sizeof(*w->op));
	if (!w->local || !w->target ||
	    !t_exchange_rkey(t, &w->target->rkey, &w->rkey))
		return false;
	vbn_ctx_counters(t->ctx, &w->before);
	return true;
}

static void window_close(struct test *t, struct window *w)
{
	t_release(t, w->local);
	t_release(t, w->target);
}

/* Zero copy is a contract: the counters must tell the truth about it. */
static bool copies_counted(struct test *t, const struct window *w,
			   const struct variant *v)
{
	size_t len = t->tc->size;
	struct vbn_counters c;
	uint64_t staged, copied;

	vbn_ctx_counters(t->ctx, &c);
	staged = c.staged_bytes - w->before.staged_bytes;
	if (v->local != UNREGISTERED)
		t_check(t, staged == 0, "%s memory, but %llu bytes staged",
			memory_names[v->local], (unsigned long long)staged);
	else if (len > INLINE_MAX)
		t_check(t, staged == len || (staged == 0 && t_any_local(t)),
			"unregistered memory, but %llu of %zu bytes staged",
			(unsigned long long)staged, len);
	else
		t_check(t, staged <= len, "%llu of %zu bytes staged",
			(unsigned long long)staged, len);
	copied = c.copied_bytes - w->before.copied_bytes;
	if (v->local == POOL && v->target == POOL)
		t_check(t, copied == 0, "pool to pool, but %llu bytes copied",
			(unsigned long long)copied);
	/* Another process's heap cannot be mapped: the kernel copies. */
	if (!strcmp(vbn_ep_provider(t->ep), "shm"))
		t_check(t, copied == (v->target == REGISTERED ? len : 0),
			"%s memory of the peer's, but %llu of %zu bytes copied",
			memory_names[v->target], (unsigned long long)copied,
			len);
	return t->outcome == PASSED;
}

static struct post at(const struct window *w, struct test *t)
{
	return (struct post){
		.ep = t->ep,
		.op = w->op,
		.rkey = t->tc->size ? &w->rkey : NULL,
	};
}

static bool landed(struct test *t, const struct window *w, unsigned seed,
		   const char *what)
{
	return t_pattern(t, w->target->data, t->tc->size, seed, what) &&
	       t_guards(t, w->target) && t_guards(t, w->local);
}

/* Run @one for each variant that suits the size; says which one failed. */
static void each_variant(struct test *t,
			 bool (*one)(struct test *t, const struct variant *v,
				     unsigned seed))
{
	for (size_t i = 0; i < NVARIANTS; i++) {
		const struct variant *v = &variants[i];
		char why[sizeof(t->why)];

		if (t->tc->size > LARGE && !v->large)
			continue;
		if (one(t, v, (unsigned)i * 2 + 1) && t_barrier(t))
			continue;
		snprintf(why, sizeof(why), "%.300s (%s to %s)", t->why,
			 memory_names[v->local], memory_names[v->target]);
		memcpy(t->why, why, sizeof(t->why));
		return;
	}
}

/* ---- put ---- */

static bool put_one(struct test *t, const struct variant *v, unsigned seed)
{
	size_t len = t->tc->size;
	struct window w;

	if (!window_open(t, &w, v))
		return false;
	fill(w.local->data, len, seed + (unsigned)t->rank);
	if (!t_ok(t, put(at(&w, t), w.local->data, len), "vbn_put") ||
	    !t_wait(t, w.op, "put") || !t_flush(t) || !t_barrier(t))
		return false;
	t_check(t, w.op->bytes == len, "op->bytes is %zu, not %zu", w.op->bytes,
		len);
	if (!landed(t, &w, seed + (unsigned)t->peer, "put") ||
	    !copies_counted(t, &w, v))
		return false;
	window_close(t, &w);
	return true;
}

static void run_put(struct test *t)
{
	each_variant(t, put_one);
}

/* ---- put with notify ---- */

struct arrival {
	struct test *t;
	struct window *w;
	unsigned seed;
	int count;
	uint32_t value;
};

static void arrived(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct arrival *a = arg;

	a->count++;
	a->value = value;
	t_check(a->t, vbn_ep_rank(from) == a->t->peer, "notify from rank %d",
		vbn_ep_rank(from));
	/* The data must be there now, not a little later. */
	landed(a->t, a->w, a->seed, "at the notify");
}

static bool notify_one(struct test *t, const struct variant *v, unsigned seed)
{
	size_t len = t->tc->size;
	uint32_t value = (uint32_t)len & VBN_NOTIFY_MAX;
	struct window w;
	struct arrival a = {.t = t, .w = &w};

	if (!window_open(t, &w, v))
		return false;
	a.seed = seed + (unsigned)t->peer;
	if (!t_ok(t, vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, arrived, &a),
		  "vbn_notify_handler"))
		return false;
	fill(w.local->data, len, seed + (unsigned)t->rank);
	if (!t_ok(t,
		  put_notify(at(&w, t), w.local->data, len, VBN_CHANNEL_USER,
			     value),
		  "vbn_put_notify"))
		return false;
	t_wait(t, w.op, "put with notify");
	t_count(t, &a.count, 1, "notifies");
	t_barrier(t);
	vbn_notify_handler(t->ctx, VBN_CHANNEL_USER, NULL, NULL);
	t_check(t, a.count == 1, "%d notifies instead of 1", a.count);
	t_check(t, a.value == value, "value %u instead of %u", a.value, value);
	if (t->outcome != PASSED || !copies_counted(t, &w, v))
		return false;
	window_close(t, &w);
	return true;
}

static void run_notify(struct test *t)
{
	each_variant(t, notify_one);
}

/* ---- get ---- */

static bool get_one(struct test *t, const struct variant *v, unsigned seed)
{
	size_t len = t->tc->size;
	struct window w;

	if (!window_open(t, &w, v))
		return false;
	fill(w.target->data, len, seed + (unsigned)t->rank);
	if (!t_barrier(t) ||
	    !t_ok(t, get(at(&w, t), w.local->data, len), "vbn_get") ||
	    !t_wait(t, w.op, "get"))
		return false;
	t_check(t, w.op->bytes == len, "op->bytes is %zu, not %zu", w.op->bytes,
		len);
	if (!t_pattern(t, w.local->data, len, seed + (unsigned)t->peer,
		       "get") ||
	    !t_barrier(t) ||
	    !landed(t, &w, seed + (unsigned)t->rank, "source of the get") ||
	    !copies_counted(t, &w, v))
		return false;
	window_close(t, &w);
	return true;
}

static void run_get(struct test *t)
{
	each_variant(t, get_one);
}

/* ---- send and receive ---- */

static bool transfer(struct test *t, const struct variant *v, unsigned seed,
		     bool posted_before)
{
	size_t len = t->tc->size;
	struct vbn_op *recv = t_alloc(t, sizeof(*recv));
	struct window w;
	int rc = 0;

	if (!window_open(t, &w, v))
		return false;
	fill(w.local->data, len, seed + (unsigned)t->rank);
	if (posted_before)
		rc = recv_from(t->ep, recv, w.target->data, len);
	if (!t_ok(t, rc, "vbn_recv") || !t_barrier(t) ||
	    !t_ok(t, send_to(t->ep, w.op, w.local->data, len), "vbn_send"))
		return false;
	if (!posted_before) {
		t_drive(t, 20);
		rc = recv_from(t->ep, recv, w.target->data, len);
	}
	if (!t_ok(t, rc, "vbn_recv") || !t_wait(t, recv, "receive") ||
	    !t_wait(t, w.op, "send"))
		return false;
	t_check(t, recv->bytes == len, "receive: op->bytes is %zu, not %zu",
		recv->bytes, len);
	if (!landed(t, &w, seed + (unsigned)t->peer, "receive"))
		return false;
	window_close(t, &w);
	return true;
}

static bool send_one(struct test *t, const struct variant *v, unsigned seed)
{
	return transfer(t, v, seed, true);
}

static void run_send(struct test *t)
{
	each_variant(t, send_one);
}

static bool receive_one(struct test *t, const struct variant *v, unsigned seed)
{
	return transfer(t, v, seed, false);
}

static void run_receive(struct test *t)
{
	each_variant(t, receive_one);
}

/* ---- atomics have one size ---- */

static void run_fetch_add(struct test *t)
{
	struct buffer *buf = t_buffer(t, POOL, 64);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	uint64_t *result = t_alloc(t, sizeof(*result));
	uint64_t word = UINT64_C(0xfffffffffffffff0) + (unsigned)t->rank;
	struct vbn_rkey rkey;
	size_t odd;

	if (!buf)
		return;
	odd = -(uintptr_t)buf->data & 7;
	fill(buf->data, buf->len, 3);
	memcpy(buf->data + odd + 8, &word, 8);
	if (!t_exchange_rkey(t, &buf->rkey, &rkey))
		return;
	odd = -(uintptr_t)rkey.base & 7;
	/* The carry must not leave the word. */
	if (!t_ok(t,
		  fetch_add((struct post){t->ep, op, &rkey, odd + 8, 0}, result,
			    0x20),
		  "vbn_fetch_add") ||
	    !t_wait(t, op, "fetch-add") || !t_barrier(t))
		return;
	t_check(t, *result == UINT64_C(0xfffffffffffffff0) + (unsigned)t->peer,
		"the value before is %#llx", (unsigned long long)*result);
	odd = -(uintptr_t)buf->data & 7;
	memcpy(&word, buf->data + odd + 8, 8);
	t_check(t, word == 0x10 + (unsigned)t->rank, "the sum is %#llx",
		(unsigned long long)word);
	t_pattern(t, buf->data, odd + 8, 3, "around the word");
	t_check(t, t_guards(t, buf), "guards");
}

static void run_compare_swap(struct test *t)
{
	struct buffer *buf = t_buffer(t, POOL, 16);
	struct vbn_op *op = t_alloc(t, sizeof(*op));
	uint64_t *result = t_alloc(t, sizeof(*result)), word = 42;
	struct vbn_rkey rkey;
	struct post p = {t->ep, op, &rkey, 0, 0};
	size_t odd;

	if (!buf)
		return;
	odd = -(uintptr_t)buf->data & 7;
	memcpy(buf->data + odd, &word, 8);
	if (!t_exchange_rkey(t, &buf->rkey, &rkey))
		return;
	p.offset = -(uintptr_t)rkey.base & 7;
	if (!t_ok(t, compare_swap(p, result, 41, 7), "vbn_compare_swap") ||
	    !t_wait(t, op, "compare-swap") || !t_barrier(t))
		return;
	memcpy(&word, buf->data + odd, 8);
	t_check(t, *result == 42 && word == 42,
		"a swap that must not happen: before %llu, after %llu",
		(unsigned long long)*result, (unsigned long long)word);
	if (!t_barrier(t) ||
	    !t_ok(t, compare_swap(p, result, 42, UINT64_MAX), "second swap") ||
	    !t_wait(t, op, "compare-swap") || !t_barrier(t))
		return;
	memcpy(&word, buf->data + odd, 8);
	t_check(t, *result == 42 && word == UINT64_MAX,
		"a swap that must happen: before %llu, after %llu",
		(unsigned long long)*result, (unsigned long long)word);
	/* Nobody wants the value before. */
	if (!t_barrier(t) ||
	    !t_ok(t, compare_swap(p, NULL, UINT64_MAX, 1), "NULL result") ||
	    !t_wait(t, op, "compare-swap") || !t_barrier(t))
		return;
	memcpy(&word, buf->data + odd, 8);
	t_check(t, word == 1, "after the third swap: %llu",
		(unsigned long long)word);
	t_guards(t, buf);
}

#define SIZES(op, fn)                                                          \
	{op "/0", fn, 0, 0, 0}, {op "/1", fn, 1, 0, 0},                        \
		{op "/7", fn, 7, 0, 0}, {op "/8", fn, 8, 0, 0},                \
		{op "/64", fn, 64, 0, 0}, {op "/4095", fn, 4095, 0, 0},        \
		{op "/4096", fn, 4096, 0, 0}, {op "/4097", fn, 4097, 0, 0},    \
		{op "/1048577", fn, 1048577, 0, 0},                            \
	{                                                                      \
		op "/67108864", fn, 67108864, 0, 300                           \
	}

static const struct test_case cases[] = {
	SIZES("put", run_put),
	/* One more than the longest message of some devices. */
	{"put/8388609", run_put, 8388609, 0, 300},
	SIZES("put-notify", run_notify),
	SIZES("get", run_get),
	{"get/8388609", run_get, 8388609, 0, 300},
	{"fetch-add/8", run_fetch_add, 8, 0, 0},
	{"compare-swap/8", run_compare_swap, 8, 0, 0},
	SIZES("send", run_send),
	SIZES("receive", run_receive),
};

const struct cases size_cases = {cases, sizeof(cases) / sizeof(cases[0])};
