/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bandwidth on ibverbs alone: see raw.h. Signalling is perftest's: up to 8 KiB
 * each hundredth work request, else every one; polled in batches.
 */
#include "check.h"
#include "raw.h"

#include <errno.h>
#include <string.h>

#define SIGNAL_EACH 100
#define SIGNAL_SIZE 8192

struct stream {
	struct raw *raw;
	struct turn *t;
	size_t posted, completed, received, awaited;
};

/* A list's last is always signalled; so is the last of all. */
static bool signal_due(const struct raw *raw, const struct raw_qp *qp,
		       size_t size)
{
	return raw->p->opts.list > 1 || size > SIGNAL_SIZE || qp->left == 0 ||
	       qp->unsignalled >= SIGNAL_EACH || qp->unsignalled >= raw->depth;
}

/* A list of @n, as one post. */
static int post_list(struct stream *s, struct raw_qp *qp, size_t n)
{
	struct ibv_send_wr *last = &qp->list[n - 1];
	uint64_t now = perf_ticks();
	int rc;

	for (size_t i = 0; i < n; i++)
		s->t->posted[s->posted + i] = now;
	qp->unsignalled += n;
	qp->left -= n;
	qp->flying += n;
	last->send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	if (signal_due(s->raw, qp, s->t->size)) {
		last->send_flags |= IBV_SEND_SIGNALED;
		last->wr_id =
			(uint64_t)(qp - s->raw->qps) << 32 | qp->unsignalled;
		qp->unsignalled = 0;
	}
	last->next = NULL;
	rc = raw_post(qp);
	if (n < s->raw->p->opts.list)
		last->next = last + 1;
	s->posted += n;
	return rc;
}

static int post_lists(struct stream *s, struct raw_qp *qp)
{
	size_t list = s->raw->p->opts.list;
	int rc = 0;

	while (rc == 0 && qp->left > 0) {
		size_t n = list < qp->left ? list : qp->left;

		if (qp->flying + n > s->raw->depth)
			break;
		rc = post_list(s, qp, n);
	}
	return rc;
}

/* Completions of sends; what came before them in their queue is over, too. */
static int reap(struct stream *s)
{
	struct ibv_wc wc[RAW_BATCH];
	int n = raw_poll(s->raw, s->raw->send_cq, wc, RAW_BATCH);
	uint64_t now = perf_ticks();

	for (int i = 0; i < n; i++) {
		size_t covered = (uint32_t)wc[i].wr_id;

		s->raw->qps[wc[i].wr_id >> 32].flying -= covered;
		for (size_t k = 0; k < covered; k++)
			s->t->completed[s->completed++] = now;
	}
	return n;
}

static int receive(struct stream *s)
{
	struct ibv_wc wc[RAW_BATCH];
	int n = raw_poll(s->raw, s->raw->recv_cq, wc, RAW_BATCH), rc = 0;

	for (int i = 0; i < n && rc == 0; i++) {
		struct raw_qp *qp = &s->raw->qps[wc[i].wr_id];

		s->received++;
		if (s->raw->p->opts.validate)
			rc = perf_compare(s->raw->p, qp->target, wc[i].byte_len,
					  qp->expected, s->received - 1);
		if (rc == 0)
			rc = raw_post_receive(s->raw, wc[i].wr_id);
	}
	return rc ? rc : n;
}

static int one_turn(struct stream *s, struct perf_wait *w)
{
	int sent = 0, came = 0, rc = 0;

	for (size_t i = 0; i < s->raw->nqps && rc == 0; i++)
		rc = post_lists(s, &s->raw->qps[i]);
	if (rc == 0 && s->completed < s->t->n)
		sent = reap(s);
	if (rc == 0 && sent >= 0 && s->received < s->awaited)
		came = receive(s);
	if (rc != 0 || sent < 0 || came < 0)
		return rc ? rc : sent < 0 ? sent : came;
	if (sent || came) {
		*w = (struct perf_wait){0};
		return 0;
	}
	if (s->raw->channel)
		rc = raw_sleep(s->raw);
	return rc ? rc : perf_waiting(s->raw->p, w);
}

int raw_run_bw(void *self, struct turn *t)
{
	struct raw *raw = self;
	struct stream s = {.raw = raw, .t = t};
	bool active = perf_active(raw->p);
	bool two_sided = raw->p->opts.test->op == PERF_SEND;
	struct perf_wait w = {0};
	int rc = 0;

	if (!active)
		s.completed = t->n;
	if (two_sided && perf_passive(raw->p))
		s.awaited = t->n;
	for (size_t i = 0; i < raw->nqps; i++) {
		struct raw_qp *qp = &raw->qps[i];

		raw_prepare(raw, qp, t->size);
		qp->left = active ? perf_share(t->n, raw->nqps, i) : 0;
		qp->flying = qp->unsignalled = 0;
	}
	while (rc == 0 && (s.completed < t->n || s.received < s.awaited))
		rc = one_turn(&s, &w);
	t->end = perf_ticks();
	return rc;
}

void raw_prepare_bw(void *self, const struct turn *t)
{
	struct raw *raw = self;
	bool get = raw->p->opts.test->op == PERF_GET;

	for (size_t i = 0; i < raw->nqps; i++) {
		struct raw_qp *qp = &raw->qps[i];

		check_fill(get ? qp->target : qp->local, t->size,
			   perf_seed(t, i, raw->p->rank));
		qp->expected = perf_seed(t, i, raw->p->peer);
		if (get)
			memset(qp->local, 0, t->size);
	}
}

int raw_check_bw(void *self, const struct turn *t)
{
	struct raw *raw = self;
	bool get = raw->p->opts.test->op == PERF_GET;
	int rc = 0;

	if (raw->p->opts.test->op == PERF_SEND ||
	    !(get ? perf_active(raw->p) : perf_passive(raw->p)))
		return 0;
	for (size_t i = 0; i < raw->nqps && i < t->n && rc == 0; i++)
		rc = perf_compare(raw->p,
				  get ? raw->qps[i].local : raw->qps[i].target,
				  t->size, raw->qps[i].expected, t->n - 1);
	return rc;
}
