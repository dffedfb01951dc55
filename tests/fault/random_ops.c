/* SPDX-License-Identifier: BSD-3-Clause */
#include "random_ops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WAIT_MS = 20000 };

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- posting ---- */

/* true: taken. What is refused now is left: it is tried again, or not. */
static bool took(struct rank *r, struct item *it, int err)
{
	if (!err) {
		r->ops++;
		return true;
	}
	it->state = it->step ? DONE : FREE;
	it->op.status = 0;
	if (err == -EAGAIN)
		return false;
	if (err == -ECONNRESET || err == -ETIMEDOUT ||
	    (r->faulty && err == -EKEYREJECTED)) /* of one that has left */
		peer_failed(r, it->peer);
	else
		wrong(r, "%s gives %s: %s", kind_name(it->kind), strerror(-err),
		      vbn_error());
	return false;
}

static void begin(struct item *it)
{
	it->op.done = op_done;
	it->op.arg = NULL;
	it->state = POSTED; /* first: it may be over before we know */
}

static uint64_t slot_offset(const struct rank *r, int slot)
{
	return (uint64_t)(r->me * SLOTS + slot) * SLOT_BYTES;
}

static int free_slot(const struct peer *p)
{
	for (int i = 0; i < SLOTS; i++)
		if (!p->slot_busy[i])
			return i;
	return -1;
}

static void post_put(struct rank *r, struct item *it, unsigned flags)
{
	struct peer *p = &r->peer[it->peer];
	uint64_t stream;
	int err;

	it->slot = free_slot(p);
	if (it->slot < 0)
		return;
	it->seq = it->kind == PUT_BACK ? mix(draw(r, UINT64_MAX), 5)
				       : p->sent_events;
	stream = stream_of(r, SLOT, r->me, it->peer, it->seq);
	it->len = length_of(stream, SLOT_BYTES);
	fill(it->buf, it->len, stream, 0);
	begin(it);
	if (it->kind == PUT_BACK)
		err = vbn_put(p->ep, &it->op, it->buf, it->len, &p->window,
			      slot_offset(r, it->slot), flags);
	else
		err = vbn_put_notify(p->ep, &it->op, it->buf, it->len,
				     &p->window, slot_offset(r, it->slot),
				     EVENTS,
				     (uint32_t)(it->slot << 16) |
					     (uint32_t)(it->seq & 0xffff),
				     flags);
	if (!took(r, it, err))
		return;
	p->slot_busy[it->slot] = true;
	p->sent_events += it->kind == PUT_NOTIFY;
}

static void post_message(struct rank *r, struct item *it)
{
	struct peer *p = &r->peer[it->peer];
	uint64_t stream =
		stream_of(r, MESSAGE, r->me, it->peer, p->sent_events);
	size_t len = length_of(stream, MESSAGE_MOST);
	int err;

	fill(it->buf, len, stream, 0);
	err = vbn_message(p->ep, EVENTS, it->buf, len);
	it->step = 0;
	if (took(r, it, err))
		p->sent_events++;
}

static void post_send(struct rank *r, struct item *it)
{
	struct peer *p = &r->peer[it->peer];
	uint64_t stream = stream_of(r, SENT, r->me, it->peer, p->sent_sends);

	it->len = length_of(stream, SEND_MOST);
	fill(it->buf, it->len, stream, 0);
	begin(it);
	if (took(r, it, vbn_send(p->ep, &it->op, it->buf, it->len, 0)))
		p->sent_sends++;
}

static void post_get(struct rank *r, struct item *it, unsigned flags)
{
	struct peer *p = &r->peer[it->peer];

	it->offset = draw(r, CONST_BYTES);
	it->len = draw(r, CONST_BYTES - it->offset + 1);
	if (it->len > SEND_MOST)
		it->len = SEND_MOST;
	begin(it);
	took(r, it,
	     vbn_get(p->ep, &it->op, it->buf, it->len, &p->constant, it->offset,
		     flags));
}

static void post_add(struct rank *r, struct item *it)
{
	struct peer *p = &r->peer[it->peer];

	it->value = draw(r, 1000);
	begin(it);
	took(r, it,
	     vbn_fetch_add(p->ep, &it->op, &it->before, it->value, &p->words, 0,
			   0));
}

/* The next step of a put that is fetched back: flush, then get. */
static void go_on(struct rank *r, struct item *it)
{
	struct peer *p = &r->peer[it->peer];

	if (it->op.status || it->kind != PUT_BACK || it->step == 2 ||
	    p->failed) {
		it->state = FREE;
		return;
	}
	it->step++;
	begin(it);
	if (it->step == 1) {
		if (!took(r, it, vbn_flush(p->ep, &it->op)))
			it->step--;
		return;
	}
	memset(it->buf, 0, it->len);
	if (!took(r, it,
		  vbn_get(p->ep, &it->op, it->buf, it->len, &p->window,
			  slot_offset(r, it->slot), 0)))
		it->step--;
}

static void post_any(struct rank *r, struct item *it)
{
	static const enum kind kinds[] = {PUT_NOTIFY, PUT_NOTIFY, SEND,
					  RECEIVE,    GET,	  ADD,
					  PUT_BACK,   FLUSH};
	unsigned flags = draw(r, 4) == 0 ? VBN_MORE : 0;

	it->peer = (int)draw(r, (uint64_t)r->n);
	it->kind = kinds[draw(r, r->checked ? 4 : 8)];
	it->step = 0;
	if (r->peer[it->peer].failed)
		return;
	switch (it->kind) {
	case PUT_NOTIFY:
	case PUT_BACK:
		post_put(r, it, flags);
		break;
	case SEND:
		post_send(r, it);
		break;
	case RECEIVE: /* which are posted all the time */
		post_message(r, it);
		break;
	case GET:
		post_get(r, it, flags);
		break;
	case ADD:
		post_add(r, it);
		break;
	default:
		begin(it);
		took(r, it, vbn_flush(r->peer[it->peer].ep, &it->op));
	}
}

/* The k-th receive is for the k-th send, whichever is over first. */
static void keep_receiving(struct rank *r, struct peer *p, int rank)
{
	for (int i = 0; i < RECEIVES && !p->failed; i++) {
		struct item *it = &p->receive[i];
		int err;

		if (it->state == POSTED)
			continue;
		it->kind = RECEIVE;
		it->peer = rank;
		it->seq = p->posted_receives;
		begin(it);
		err = vbn_recv(p->ep, &it->op, it->buf, SEND_MOST);
		if (!took(r, it, err))
			return;
		p->posted_receives++;
	}
}

static void give_back(struct rank *r, struct peer *p, int rank)
{
	for (uint32_t slot = 0; slot < SLOTS && !p->failed; slot++) {
		struct word word = {.slot = slot};
		int err;

		if (!(p->acks & 1u << slot))
			continue;
		err = vbn_message(p->ep, CONTROL, &word, sizeof(word));
		if (err == -EAGAIN)
			return;
		if (err)
			peer_failed(r, rank);
		p->acks &= ~(1u << slot);
	}
}

static void tell_end(struct rank *r, struct peer *p, int rank)
{
	struct word word = {
		.end = 1, .events = p->sent_events, .sends = p->sent_sends};
	int err;

	if (p->told || p->failed)
		return;
	err = vbn_message(p->ep, CONTROL, &word, sizeof(word));
	if (err && err != -EAGAIN)
		peer_failed(r, rank);
	p->told = !err;
}

/* ---- the run ---- */

static bool tend(struct rank *r)
{
	bool idle = true;

	for (int i = 0; i < r->n; i++) {
		struct peer *p = &r->peer[i];
		int status = vbn_ep_status(p->ep);

		if (status && status != -EINPROGRESS && !p->failed)
			peer_failed(r, i);
		keep_receiving(r, p, i);
		give_back(r, p, i);
	}
	for (int i = 0; i < ITEMS; i++) {
		if (r->item[i].state == DONE)
			go_on(r, &r->item[i]);
		idle &= r->item[i].state == FREE;
	}
	return idle;
}

/* All that it told us of has come, and the slots are ours again. */
static bool settled(const struct peer *p)
{
	if (p->failed)
		return true;
	for (int i = 0; i < SLOTS; i++)
		if (p->slot_busy[i])
			return false;
	return p->told && p->heard && p->got_events == p->theirs_events &&
	       p->got_sends == p->theirs_sends && !p->acks;
}

static void say_missing(struct rank *r)
{
	for (int i = 0; i < ITEMS; i++)
		if (r->item[i].state == POSTED)
			wrong(r, "hangs: a %s to rank %d, step %d",
			      kind_name(r->item[i].kind), r->item[i].peer,
			      r->item[i].step);
	for (int i = 0; i < r->n; i++) {
		const struct peer *p = &r->peer[i];

		if (settled(p))
			continue;
		wrong(r,
		      "hangs: rank %d: events %llu of %llu, sends %llu of "
		      "%llu, told %d, heard %d, acks %x",
		      i, (unsigned long long)p->got_events,
		      (unsigned long long)p->theirs_events,
		      (unsigned long long)p->got_sends,
		      (unsigned long long)p->theirs_sends, p->told, p->heard,
		      p->acks);
	}
}

static void finish(struct rank *r)
{
	double end = now_ms() + WAIT_MS;

	for (;;) {
		bool idle = tend(r), over = idle;

		for (int i = 0; i < r->n; i++) {
			if (idle)
				tell_end(r, &r->peer[i], i);
			over &= settled(&r->peer[i]);
		}
		if (over)
			return;
		if (now_ms() > end)
			break;
		vbn_ctx_wait(r->ctx, 1);
	}
	say_missing(r);
}

static bool exchange_keys(struct rank *r)
{
	struct vbn_rkey keys[3];
	char name[32];

	if (vbn_rkey_of(r->job, r->window, RANKS_MOST * SLOTS * SLOT_BYTES,
			&keys[0]) ||
	    vbn_rkey_of(r->job, r->constant, CONST_BYTES, &keys[1]) ||
	    vbn_rkey_of(r->job, r->words, 8, &keys[2]))
		return false;
	snprintf(name, sizeof(name), "keys/%d", r->me);
	if (vbn_job_set(r->job, name, keys, sizeof(keys), WAIT_MS))
		return false;
	for (int i = 0; i < r->n; i++) {
		size_t len = sizeof(keys);

		snprintf(name, sizeof(name), "keys/%d", i);
		if (vbn_job_get(r->job, name, keys, &len, WAIT_MS) ||
		    vbn_ep_open(&r->peer[i].ep, r->ctx, i, 0))
			return false;
		r->peer[i].window = keys[0];
		r->peer[i].constant = keys[1];
		r->peer[i].words = keys[2];
	}
	return true;
}

static char *pool_buffer(struct rank *r, size_t bytes)
{
	return vbn_pool_alloc(r->pool, bytes, 0);
}

/* Of every other item the memory is not registered. */
static bool item_init(struct rank *r, struct item *it, int i)
{
	*it = (struct item){.r = r, .heap = i % 2};
	it->buf = it->heap ? malloc(SEND_MOST) : pool_buffer(r, SEND_MOST);
	return it->buf != NULL;
}

static void item_free(struct item *it)
{
	if (it->heap)
		free(it->buf);
}

bool ops_open(struct rank *r)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL};

	if (vbn_pool_create(&r->pool, r->job, &opts))
		return false;
	r->window = pool_buffer(r, RANKS_MOST * SLOTS * SLOT_BYTES);
	r->constant = pool_buffer(r, CONST_BYTES);
	r->words = (uint64_t *)(void *)pool_buffer(r, 64);
	if (!r->window || !r->constant || !r->words)
		return false;
	r->words[0] = 0;
	fill(r->constant, CONST_BYTES, stream_of(r, CONSTANT, r->me, 0, 0), 0);
	for (int i = 0; i < ITEMS; i++)
		if (!item_init(r, &r->item[i], i))
			return false;
	for (int i = 0; i < r->n; i++)
		for (int k = 0; k < RECEIVES; k++)
			if (!item_init(r, &r->peer[i].receive[k], k))
				return false;
	vbn_notify_handler(r->ctx, EVENTS, on_notify, r);
	vbn_message_handler(r->ctx, EVENTS, on_event, r);
	vbn_message_handler(r->ctx, CONTROL, on_control, r);
	/* nobody is to die before all are there */
	return exchange_keys(r) && !vbn_job_fence(r->job, WAIT_MS);
}

/* Every rank's word has what all ranks have added. */
static void check_sums(struct rank *r)
{
	uint64_t all[RANKS_MOST], sum = 0;
	char name[32];

	snprintf(name, sizeof(name), "added/%d", r->me);
	if (vbn_job_set(r->job, name, r->added, sizeof(r->added), WAIT_MS)) {
		wrong(r, "store: %s", vbn_error());
		return;
	}
	for (int i = 0; i < r->n; i++) {
		size_t len = sizeof(all);

		snprintf(name, sizeof(name), "added/%d", i);
		if (vbn_job_get(r->job, name, all, &len, WAIT_MS)) {
			wrong(r, "store: %s", vbn_error());
			return;
		}
		sum += all[r->me];
	}
	if (__atomic_load_n(r->words, __ATOMIC_SEQ_CST) != sum)
		wrong(r, "the sum is %llu instead of %llu",
		      (unsigned long long)*r->words, (unsigned long long)sum);
}

void ops_run(struct rank *r, int count)
{
	double end = now_ms() + WAIT_MS;

	while (r->ops < (unsigned)count && now_ms() < end) {
		bool any = false;

		tend(r);
		for (int i = 0; i < r->n; i++)
			any |= !r->peer[i].failed;
		if (!any)
			break;
		for (uint64_t k = draw(r, 4); k; k--) {
			struct item *it = &r->item[draw(r, ITEMS)];

			if (it->state == FREE)
				post_any(r, it);
		}
		if (draw(r, 8))
			vbn_progress(r->ctx);
		else
			vbn_ctx_wait(r->ctx, 1);
	}
	finish(r);
	if (!r->faulty)
		check_sums(r);
}

void ops_close(struct rank *r)
{
	for (int i = 0; i < ITEMS; i++) {
		if (r->item[i].state == POSTED)
			wrong(r, "a %s never completed",
			      kind_name(r->item[i].kind));
		item_free(&r->item[i]);
	}
	for (int i = 0; i < r->n; i++)
		for (int k = 0; k < RECEIVES; k++) {
			if (r->peer[i].receive[k].state == POSTED)
				wrong(r, "a receive never completed");
			item_free(&r->peer[i].receive[k]);
		}
	vbn_pool_destroy(r->pool);
}
