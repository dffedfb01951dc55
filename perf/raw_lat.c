/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Latency on ibverbs alone: see raw.h. Signalling and polling are perftest's:
 * a write is signalled and its completion awaited before the answer is; of
 * sends each 50th is, for they are answered.
 */
#include "check.h"
#include "raw.h"

#include <errno.h>
#include <string.h>

static uint8_t put_value(uint64_t number)
{
	return (uint8_t)(number % 255 + 1);
}

static inline int await_byte(struct raw *raw, size_t size)
{
	const volatile uint8_t *at = raw->qps[0].target + size - 1;
	uint8_t value = put_value(raw->got_puts++);
	struct perf_wait w = {0};

	while (*at != value) {
		int rc = perf_waiting(raw->p, &w);

		if (rc != 0)
			return rc;
	}
	return 0;
}

static inline int await_peer(struct raw *raw, const struct turn *t, size_t i)
{
	enum perf_op op = raw->p->opts.test->op;
	struct ibv_wc wc;
	int rc;

	if (op == PERF_PUT)
		return await_byte(raw, t->size);
	rc = raw_completion(raw, raw->recv_cq, &wc);
	if (rc == 0 && raw->p->opts.validate)
		rc = perf_compare(raw->p, raw->qps[0].target, t->size,
				  perf_seed(t, i, raw->p->peer), i);
	return rc ? rc : raw_post_receive(raw, 0);
}

static inline int send_peer(struct raw *raw, const struct turn *t, size_t i)
{
	enum perf_op op = raw->p->opts.test->op;
	struct raw_qp *qp = &raw->qps[0];
	bool signalled = op != PERF_SEND || ++raw->sent % RAW_LAT_DEPTH == 0;
	struct ibv_wc wc;
	int rc;

	if (op == PERF_PUT && raw->p->nranks == 2)
		qp->local[t->size - 1] = put_value(raw->sent_puts++);
	else if (raw->p->opts.validate && op != PERF_PUT)
		check_fill(qp->local, t->size, perf_seed(t, i, raw->p->rank));
	if (signalled)
		qp->list[0].send_flags |= IBV_SEND_SIGNALED;
	else
		qp->list[0].send_flags &= ~(unsigned)IBV_SEND_SIGNALED;
	rc = raw_post(qp);
	return rc || !signalled ? rc : raw_completion(raw, raw->send_cq, &wc);
}

static int ping_pong(struct raw *raw, struct turn *t)
{
	bool begins = raw->p->rank == 0;
	int rc = 0;

	for (size_t i = 0; i < t->n && rc == 0; i++) {
		if (!begins)
			rc = await_peer(raw, t, i);
		else
			t->posted[i] = perf_ticks();
		if (rc == 0)
			rc = send_peer(raw, t, i);
		if (rc == 0 && begins)
			rc = await_peer(raw, t, i);
	}
	t->posted[t->n] = perf_ticks();
	return rc;
}

static int judge(struct raw *raw, const struct turn *t, size_t i)
{
	enum perf_op op = raw->p->opts.test->op;
	uint64_t got;

	memcpy(&got, raw->qps[0].local, sizeof(got));
	if (op == PERF_ATOMIC && got != raw->word++)
		return perf_fail(-EBADMSG,
				 "raw fetch-add gave %llu instead of %llu, in "
				 "iteration %zu",
				 (unsigned long long)got,
				 (unsigned long long)raw->word - 1, i);
	if (op != PERF_GET)
		return 0;
	return perf_compare(raw->p, raw->qps[0].local, t->size,
			    perf_seed(t, 0, raw->p->peer), i);
}

static int post_to_completion(struct raw *raw, struct turn *t)
{
	enum perf_op op = raw->p->opts.test->op;
	bool arrives = op == PERF_NOTIFY || op == PERF_SEND;
	struct raw_qp *qp = &raw->qps[0];
	struct ibv_wc wc;
	int rc = 0;

	qp->list[0].send_flags |= IBV_SEND_SIGNALED;
	for (size_t i = 0; i < t->n && rc == 0; i++) {
		if (raw->p->opts.validate && arrives)
			check_fill(qp->local, t->size,
				   perf_seed(t, i, raw->p->rank));
		else if (raw->p->opts.validate && op == PERF_GET)
			memset(qp->local, 0, t->size);
		t->posted[i] = perf_ticks();
		rc = raw_post(qp);
		if (rc == 0)
			rc = raw_completion(raw, raw->send_cq, &wc);
		if (rc == 0 && arrives)
			rc = await_peer(raw, t, i);
		if (rc == 0 && raw->p->opts.validate && !arrives)
			rc = judge(raw, t, i);
	}
	t->posted[t->n] = perf_ticks();
	return rc;
}

int raw_run_lat(void *self, struct turn *t)
{
	struct raw *raw = self;
	int rc = 0;

	raw_prepare(raw, &raw->qps[0], t->size);
	if (perf_ping_pong(raw->p))
		rc = ping_pong(raw, t);
	else if (perf_active(raw->p))
		rc = post_to_completion(raw, t);
	return rc;
}

void raw_prepare_lat(void *self, const struct turn *t)
{
	struct raw *raw = self;
	enum perf_op op = raw->p->opts.test->op;
	uint64_t seed = perf_seed(t, 0, raw->p->rank);

	if (op == PERF_PUT)
		check_fill(raw->qps[0].local, t->size, seed);
	else if (op == PERF_GET)
		check_fill(raw->qps[0].target, t->size, seed);
}

int raw_check_lat(void *self, const struct turn *t)
{
	struct raw *raw = self;

	if (raw->p->opts.test->op != PERF_PUT)
		return 0;
	return perf_compare(raw->p, raw->qps[0].target,
			    t->size - perf_ping_pong(raw->p),
			    perf_seed(t, 0, raw->p->peer), t->n - 1);
}
