/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bandwidth of the library's operations: a stream over each endpoint (a lane),
 * a number of operations in flight on each. A stream of puts ends when a flush
 * of each lane has completed, that is when all data has landed; of gets and
 * sends, with the last completion.
 *
 * All operations of a lane read and write the same two buffers, as perftest's
 * do; all carry the same data, so that is what --validate compares with.
 */
#include "check.h"
#include "perf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define RECEIVES 128

struct lane;

struct slot {
	struct vbn_op op;
	struct lane *lane;
	struct slot *next_free;
};

struct lane {
	struct bw *bw;
	struct vbn_ep *ep;
	uint8_t *local, *target;
	struct vbn_rkey rkey;
	struct slot *slots, *free;
	size_t nfree, left; /* to be posted in this turn */
	struct slot recvs[RECEIVES];
	struct vbn_op flush;
	uint64_t expected; /* seed of what is sent here */
};

struct bw {
	struct perf *p;
	size_t room, nlanes;
	struct lane *lanes;
	struct turn *turn;
	size_t posted, completed;
	uint64_t received, awaited; /* messages, since the start */
	int status;		    /* of a failure, which has been told */
};

static void fail(struct bw *b, const struct vbn_op *op, int status)
{
	if (b->status == 0)
		perf_op_failed(op);
	b->status = status;
}

static void on_done(struct vbn_op *op)
{
	struct slot *slot = op->arg;
	struct lane *lane = slot->lane;
	struct bw *b = lane->bw;

	if (!b->turn)
		return; /* cancelled at the end */
	if (op->status != 0)
		fail(b, op, op->status);
	b->turn->completed[b->completed++] = perf_ticks();
	slot->next_free = lane->free;
	lane->free = slot;
	lane->nfree++;
}

static void on_receive(struct vbn_op *op)
{
	struct slot *slot = op->arg;
	struct lane *lane = slot->lane;
	struct bw *b = lane->bw;
	int rc = op->status;

	if (rc == -ECANCELED)
		return; /* at the end */
	if (rc != 0) {
		fail(b, op, rc);
		return;
	}
	if (b->p->opts.validate)
		rc = perf_compare(b->p, lane->target, op->bytes, lane->expected,
				  b->received);
	if (rc == 0)
		rc = vbn_recv(lane->ep, op, lane->target, b->room);
	if (rc != 0 && b->status == 0)
		b->status = rc == -EBADMSG ? rc : perf_failed(rc, "receiving");
	b->received++;
}

/* ---- the stream ---- */

static int post(struct lane *lane, bool more)
{
	struct bw *b = lane->bw;
	struct slot *slot = lane->free;
	unsigned flags = more ? VBN_MORE : 0;
	size_t size = b->turn->size;
	int rc;

	lane->free = slot->next_free;
	b->turn->posted[b->posted] = perf_ticks();
	switch (b->p->opts.test->op) {
	case PERF_PUT:
		rc = vbn_put(lane->ep, &slot->op, lane->local, size,
			     &lane->rkey, 0, flags);
		break;
	case PERF_GET:
		rc = vbn_get(lane->ep, &slot->op, lane->local, size,
			     &lane->rkey, 0, flags);
		break;
	default:
		rc = vbn_send(lane->ep, &slot->op, lane->local, size, flags);
	}
	if (rc != 0) {
		slot->next_free = lane->free;
		lane->free = slot;
		return rc;
	}
	lane->nfree--;
	lane->left--;
	b->posted++;
	return 0;
}

/* Lists as long as asked for, when there is room for one; 0 or -errno. */
static int post_lists(struct lane *lane)
{
	size_t list = lane->bw->p->opts.list;

	while (lane->left > 0) {
		size_t n = list < lane->left ? list : lane->left;

		if (lane->nfree < n)
			return 0;
		while (n-- > 0) {
			int rc = post(lane, n > 0);

			if (rc == -EAGAIN)
				return 0;
			if (rc != 0)
				return perf_failed(rc, "posting");
		}
	}
	return 0;
}

static int stream(struct bw *b)
{
	size_t before = b->completed + b->received;
	struct perf_wait w = {0};
	int rc = 0;

	while (rc == 0 && b->status == 0 &&
	       (b->completed < b->turn->n || b->received < b->awaited)) {
		for (size_t i = 0; i < b->nlanes && rc == 0; i++)
			rc = post_lists(&b->lanes[i]);
		perf_drive(b->p);
		if (b->completed + b->received != before) {
			before = b->completed + b->received;
			w = (struct perf_wait){0};
		} else if (rc == 0) {
			rc = perf_waiting(b->p, &w);
		}
	}
	return rc ? rc : b->status;
}

static int flush_lane(struct lane *lane)
{
	struct perf *p = lane->bw->p;
	struct perf_wait w = {0};
	int rc;

	while ((rc = vbn_flush(lane->ep, &lane->flush)) == -EAGAIN) {
		rc = perf_go_on(p, &w);
		if (rc != 0)
			return rc;
	}
	while (rc == 0 && lane->flush.status == -EINPROGRESS) {
		rc = perf_go_on(p, &w);
		if (rc != 0)
			return rc;
	}
	if (rc != 0)
		return perf_failed(rc, "a flush");
	return lane->flush.status ? perf_op_failed(&lane->flush) : 0;
}

static int run_bw(void *self, struct turn *t)
{
	struct bw *b = self;
	bool two_sided = b->p->opts.test->op == PERF_SEND;
	bool active = perf_active(b->p);
	int rc;

	b->turn = t;
	b->posted = 0;
	b->completed = active ? 0 : t->n;
	for (size_t i = 0; i < b->nlanes; i++) {
		b->lanes[i].left = active ? perf_share(t->n, b->nlanes, i) : 0;
	}
	/* The other's stream comes here, if it has one. */
	if (two_sided && perf_passive(b->p))
		b->awaited += t->n;
	rc = active || two_sided ? stream(b) : 0;
	for (size_t i = 0; i < b->nlanes && rc == 0 && active; i++)
		if (b->p->opts.test->op == PERF_PUT)
			rc = flush_lane(&b->lanes[i]);
	t->end = perf_ticks();
	b->turn = NULL;
	return rc;
}

static void prepare_bw(void *self, const struct turn *t)
{
	struct bw *b = self;

	for (size_t i = 0; i < b->nlanes; i++) {
		struct lane *lane = &b->lanes[i];
		bool get = b->p->opts.test->op == PERF_GET;

		check_fill(get ? lane->target : lane->local, t->size,
			   perf_seed(t, i, b->p->rank));
		lane->expected = perf_seed(t, i, b->p->from);
		if (get)
			memset(lane->local, 0, t->size);
	}
}

/* Messages have been compared when they came. */
static int check_bw(void *self, const struct turn *t)
{
	struct bw *b = self;
	bool get = b->p->opts.test->op == PERF_GET;
	bool came = get ? perf_active(b->p) : perf_passive(b->p);
	int rc = 0;

	if (b->p->opts.test->op == PERF_SEND || !came)
		return 0;
	for (size_t i = 0; i < b->nlanes && i < t->n && rc == 0; i++)
		rc = perf_compare(b->p,
				  get ? b->lanes[i].local : b->lanes[i].target,
				  t->size, b->lanes[i].expected, t->n - 1);
	return rc;
}

/* ---- set up ---- */

static int open_lane(struct bw *b, size_t i)
{
	struct lane *lane = &b->lanes[i];
	struct perf *p = b->p;
	int rc = 0;

	lane->bw = b;
	lane->ep = p->eps[i];
	lane->local = vbn_pool_alloc(p->pool, b->room, 4096);
	lane->target = vbn_pool_alloc(p->pool, b->room, 4096);
	lane->slots = calloc(p->opts.depth, sizeof(*lane->slots));
	if (!lane->local || !lane->target || !lane->slots)
		return perf_failed(-ENOMEM, "allocating buffers");
	memset(lane->local, 0, b->room);
	memset(lane->target, 0, b->room);
	for (size_t k = 0; k < p->opts.depth; k++) {
		lane->slots[k] = (struct slot){
			.op = {.done = on_done, .arg = &lane->slots[k]},
			.lane = lane,
			.next_free = lane->free};
		lane->free = &lane->slots[k];
	}
	lane->nfree = p->opts.depth;
	for (size_t k = 0; k < RECEIVES && rc == 0; k++) {
		lane->recvs[k].lane = lane;
		lane->recvs[k].op.done = on_receive;
		lane->recvs[k].op.arg = &lane->recvs[k];
		if (p->opts.test->op == PERF_SEND)
			rc = vbn_recv(lane->ep, &lane->recvs[k].op,
				      lane->target, b->room);
	}
	return rc ? perf_failed(rc, "posting a receive") : 0;
}

static void close_bw(void *self)
{
	struct bw *b = self;

	for (size_t i = 0; i < b->nlanes; i++)
		free(b->lanes[i].slots);
	free(b->lanes);
	free(b);
}

int ours_bw_open(struct perf *p, struct method *m, size_t bytes)
{
	uint8_t *targets[PERF_QPS_MAX];
	struct vbn_rkey rkeys[PERF_QPS_MAX];
	struct bw *b = calloc(1, sizeof(*b));
	int rc = 0;

	if (b)
		b->lanes = calloc(p->nctxs, sizeof(*b->lanes));
	if (!b || !b->lanes) {
		free(b);
		return perf_fail(-ENOMEM, "no memory");
	}
	*m = (struct method){.name = "verbena",
			     .prepare = prepare_bw,
			     .run = run_bw,
			     .check = check_bw,
			     .close = close_bw,
			     .self = b};
	b->p = p;
	b->room = bytes;
	b->nlanes = p->nctxs;
	for (size_t i = 0; i < b->nlanes && rc == 0; i++) {
		rc = open_lane(b, i);
		targets[i] = b->lanes[i].target;
	}
	if (rc == 0)
		rc = perf_exchange_keys(p, targets, b->nlanes, bytes, rkeys);
	for (size_t i = 0; i < b->nlanes && rc == 0; i++)
		b->lanes[i].rkey = rkeys[i];
	return rc;
}
