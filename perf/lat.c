/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency of the library's operations.
 *
 * Between two ranks, puts, notifies and sends are a ping-pong: rank 0 begins,
 * rank 1 answers. Each waits for its own operation's completion before it
 * waits for the other's answer, as perftest does. Gets and atomics, and
 * everything in a job of one rank, go from post to completion (and arrival).
 *
 * put: the last byte of a buffer says that a put has come. Its values go
 * round 1..255, so an older put's is never taken for the one awaited. That
 * the last byte comes last is presumed here, as it is by ib_write_lat; so with
 * --validate the rest is compared after a meeting only. A notify or a message
 * is compared when it comes.
 */
#include "check.h"
#include "perf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LAT_CHANNEL VBN_CHANNEL_USER
#define RECEIVES    16

struct lat {
	struct perf *p;
	uint8_t *local, *target;
	struct vbn_rkey rkey; /* of the other's target */
	struct vbn_op op, recvs[RECEIVES];
	uint64_t result, word;	   /* of atomics: got, expected */
	uint64_t arrived, awaited; /* notifies or messages, since the start */
	uint64_t sent_puts, got_puts; /* their number is their last byte */
	size_t room;
};

static uint8_t put_value(uint64_t number)
{
	return (uint8_t)(number % 255 + 1);
}

static void on_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct lat *l = arg;

	(void)from;
	(void)value;
	l->arrived++;
}

static void on_receive(struct vbn_op *op)
{
	struct lat *l = op->arg;

	l->arrived++;
}

/* ---- one operation ---- */

static inline int post_once(struct lat *l, size_t size, enum perf_op op)
{
	struct vbn_ep *ep = l->p->ep;

	switch (op) {
	case PERF_PUT:
		return vbn_put(ep, &l->op, l->local, size, &l->rkey, 0, 0);
	case PERF_NOTIFY:
		return vbn_put_notify(ep, &l->op, l->local, size, &l->rkey, 0,
				      LAT_CHANNEL, 0, 0);
	case PERF_GET:
		return vbn_get(ep, &l->op, l->local, size, &l->rkey, 0, 0);
	case PERF_ATOMIC:
		return vbn_fetch_add(ep, &l->op, &l->result, 1, &l->rkey, 0, 0);
	default:
		return vbn_send(ep, &l->op, l->local, size, 0);
	}
}

static inline int post(struct lat *l, size_t size, enum perf_op op)
{
	struct perf_wait w = {0};
	int rc;

	while ((rc = post_once(l, size, op)) == -EAGAIN) {
		rc = perf_go_on(l->p, &w);
		if (rc != 0)
			return rc;
	}
	return rc ? perf_failed(rc, "posting") : 0;
}

static __attribute__((noinline)) int complete_slowly(struct lat *l)
{
	struct perf_wait w = {0};
	int rc;

	while (l->op.status == -EINPROGRESS) {
		rc = perf_waiting(l->p, &w);
		if (rc != 0)
			return rc;
		perf_drive(l->p);
	}
	return l->op.status ? perf_op_failed(&l->op) : 0;
}

/* Over raw verbs one turn is enough nearly always. */
static inline int complete(struct lat *l)
{
	if (l->op.status == -EINPROGRESS)
		perf_drive(l->p);
	return l->op.status ? complete_slowly(l) : 0;
}

/* Memory alone is looked at, unless nothing would land that way. */
static inline int await_byte(struct lat *l, size_t size)
{
	const volatile uint8_t *at = l->target + size - 1;
	uint8_t value = put_value(l->got_puts++);
	struct perf_wait w = {0};
	int rc;

	while (*at != value) {
		perf_pause();
		if (l->p->target_drives)
			perf_drive(l->p);
		rc = perf_waiting(l->p, &w);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static inline int await_event(struct lat *l)
{
	struct perf_wait w = {0};
	int rc;

	l->awaited++;
	while (l->arrived < l->awaited) {
		rc = perf_go_on(l->p, &w);
		if (rc != 0)
			return rc;
	}
	return 0;
}

static int post_receive(struct lat *l, struct vbn_op *op)
{
	int rc;

	op->done = on_receive;
	op->arg = l;
	rc = vbn_recv(l->p->ep, op, l->target, l->room);
	return rc ? perf_failed(rc, "posting a receive") : 0;
}

/* That of the message that has just been awaited; they complete in order. */
static struct vbn_op *last_receive(struct lat *l)
{
	return &l->recvs[(l->awaited - 1) % RECEIVES];
}

/* ---- ping-pong ---- */

static inline int await_peer(struct lat *l, const struct turn *t, size_t i,
			     enum perf_op op)
{
	int rc = op == PERF_PUT ? await_byte(l, t->size) : await_event(l);

	if (rc == 0 && op == PERF_SEND && last_receive(l)->status != 0)
		rc = perf_op_failed(last_receive(l));
	if (rc == 0 && l->p->opts.validate && op != PERF_PUT)
		rc = perf_compare(l->p, l->target, t->size,
				  perf_seed(t, i, l->p->peer), i);
	/* It takes its place behind the others. */
	if (rc == 0 && op == PERF_SEND)
		rc = post_receive(l, last_receive(l));
	return rc;
}

static inline int send_peer(struct lat *l, const struct turn *t, size_t i,
			    enum perf_op op)
{
	int rc;

	if (op == PERF_PUT)
		l->local[t->size - 1] = put_value(l->sent_puts++);
	else if (l->p->opts.validate)
		check_fill(l->local, t->size, perf_seed(t, i, l->p->rank));
	rc = post(l, t->size, op);
	return rc ? rc : complete(l);
}

static inline __attribute__((always_inline)) int ping_pong(struct lat *l,
							   struct turn *t,
							   enum perf_op op)
{
	bool begins = l->p->rank == 0;
	int rc = 0;

	for (size_t i = 0; i < t->n && rc == 0; i++) {
		if (!begins)
			rc = await_peer(l, t, i, op);
		else
			t->posted[i] = perf_ticks();
		if (rc == 0)
			rc = send_peer(l, t, i, op);
		if (rc == 0 && begins)
			rc = await_peer(l, t, i, op);
	}
	t->posted[t->n] = perf_ticks();
	return rc;
}

/* ---- post to completion ---- */

static int judge(struct lat *l, const struct turn *t, size_t i)
{
	if (l->p->opts.test->op == PERF_ATOMIC && l->result != l->word++)
		return perf_fail(-EBADMSG,
				 "fetch-add gave %llu instead of %llu, in "
				 "iteration %zu",
				 (unsigned long long)l->result,
				 (unsigned long long)l->word - 1, i);
	if (l->p->opts.test->op != PERF_GET)
		return 0;
	return perf_compare(l->p, l->local, t->size,
			    perf_seed(t, 0, l->p->peer), i);
}

static inline __attribute__((always_inline)) int post_to_completion(
	struct lat *l, struct turn *t, enum perf_op op)
{
	bool arrives = op == PERF_NOTIFY || op == PERF_SEND;
	int rc = 0;

	for (size_t i = 0; i < t->n && rc == 0; i++) {
		if (l->p->opts.validate && arrives)
			check_fill(l->local, t->size,
				   perf_seed(t, i, l->p->rank));
		else if (l->p->opts.validate && op == PERF_GET)
			memset(l->local, 0, t->size);
		t->posted[i] = perf_ticks();
		rc = post(l, t->size, op);
		if (rc == 0)
			rc = complete(l);
		if (rc == 0 && arrives)
			rc = await_peer(l, t, i, op);
		if (rc == 0 && l->p->opts.validate && !arrives)
			rc = judge(l, t, i);
	}
	t->posted[t->n] = perf_ticks();
	return rc;
}

/* ---- the method ---- */

static int run_lat(void *self, struct turn *t)
{
	struct lat *l = self;
	enum perf_op op = l->p->opts.test->op;

	if (perf_ping_pong(l->p)) {
		if (op == PERF_PUT)
			return ping_pong(l, t, PERF_PUT);
		if (op == PERF_NOTIFY)
			return ping_pong(l, t, PERF_NOTIFY);
		return ping_pong(l, t, PERF_SEND);
	}
	if (!perf_active(l->p))
		return 0;
	switch (op) {
	case PERF_PUT:
		return post_to_completion(l, t, PERF_PUT);
	case PERF_NOTIFY:
		return post_to_completion(l, t, PERF_NOTIFY);
	case PERF_GET:
		return post_to_completion(l, t, PERF_GET);
	case PERF_ATOMIC:
		return post_to_completion(l, t, PERF_ATOMIC);
	default:
		return post_to_completion(l, t, PERF_SEND);
	}
}

/* What is not filled anew in every iteration. */
static void prepare_lat(void *self, const struct turn *t)
{
	struct lat *l = self;
	enum perf_op op = l->p->opts.test->op;

	if (op == PERF_PUT)
		check_fill(l->local, t->size, perf_seed(t, 0, l->p->rank));
	else if (op == PERF_GET)
		check_fill(l->target, t->size, perf_seed(t, 0, l->p->rank));
}

/* The last byte of a ping-pong's put is its number. */
static int check_lat(void *self, const struct turn *t)
{
	struct lat *l = self;

	if (l->p->opts.test->op != PERF_PUT)
		return 0;
	return perf_compare(l->p, l->target, t->size - perf_ping_pong(l->p),
			    perf_seed(t, 0, l->p->peer), t->n - 1);
}

static int open_receives(struct lat *l)
{
	int rc = 0;

	for (size_t k = 0; k < RECEIVES && rc == 0; k++)
		rc = post_receive(l, &l->recvs[k]);
	return rc;
}

int ours_lat_open(struct perf *p, struct method *m, size_t bytes)
{
	struct lat *l = calloc(1, sizeof(*l));
	int rc = 0;

	if (!l)
		return perf_fail(-ENOMEM, "no memory");
	*m = (struct method){.name = "verbena",
			     .prepare = prepare_lat,
			     .run = run_lat,
			     .check = check_lat,
			     .close = free,
			     .self = l};
	l->p = p;
	l->room = bytes;
	l->local = vbn_pool_alloc(p->pool, bytes, 4096);
	l->target = vbn_pool_alloc(p->pool, bytes, 4096);
	if (!l->local || !l->target)
		return perf_failed(-ENOMEM, "allocating buffers");
	memset(l->local, 0, bytes);
	memset(l->target, 0, bytes);
	rc = perf_exchange_keys(p, &l->target, 1, bytes, &l->rkey);
	if (rc == 0 && p->opts.test->op == PERF_SEND)
		rc = open_receives(l);
	if (rc == 0 && p->opts.test->op == PERF_NOTIFY)
		rc = vbn_notify_handler(p->ctx, LAT_CHANNEL, on_notify, l);
	return rc;
}
