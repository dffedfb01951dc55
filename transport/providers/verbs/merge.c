/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context with several rails has a completion queue and a channel of each.
 * So that what polls and sleeps need not know, they are made to look like one:
 * a completion queue of our own, whose context's poll_cq takes from each rail's
 * queue in turn, and a descriptor (epoll) that any channel makes readable.
 *
 * Numbers of queue pairs are a device's: what is polled has the rail's number
 * above its queue pair's, so that one table finds both.
 */
#include "internal.h"
#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

struct merged {
	struct ibv_cq cq;
	struct ibv_context context; /* the queue's, for its ops */
};

static int poll_one(struct queues *queues, int n, struct ibv_wc *wc)
{
	int got = ibv_poll_cq(queues->cq, n, wc);

	for (int i = 0; i < got; i++)
		wc[i].qp_num = queues_tag(wc[i].qp_num, queues->rail->index);
	return got;
}

/* As if the device had failed: others go on, if there are any. */
static int failed(struct queues *queues)
{
	struct verbs_ctx *ctx = queues->ctx;

	if (!atomic_exchange(&queues->rail->fatal, true)) {
		vbn_log(VBN_ERR, "verbs: %s: its completion queue has failed",
			queues->rail->name);
		atomic_store(&ctx->alerted, true);
		ctx_due(ctx);
	}
	return rails_all_dead(ctx->job) ? -1 : 0;
}

/* What one rail has must not keep the others waiting: each begins in turn. */
static int poll_merged(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct verbs_ctx *ctx = cq->cq_context;
	int got = 0;

	if (++ctx->poll_next >= ctx->nrails)
		ctx->poll_next = 0;
	for (unsigned k = 0; k < ctx->nrails && got < n; k++) {
		unsigned i = (ctx->poll_next + k) % ctx->nrails;
		int some = poll_one(&ctx->queues[i], n - got, wc + got);

		if (some < 0)
			some = failed(&ctx->queues[i]);
		if (some < 0)
			return got ? got : some;
		got += some;
	}
	return got;
}

static int watch_all(struct verbs_ctx *ctx)
{
	ctx->fd = epoll_create1(EPOLL_CLOEXEC);
	if (ctx->fd < 0)
		return vbn_fail(-errno, "verbs: epoll: %s", strerror(errno));
	for (unsigned i = 0; i < ctx->nrails; i++) {
		struct epoll_event event = {.events = EPOLLIN};

		if (!epoll_ctl(ctx->fd, EPOLL_CTL_ADD,
			       ctx->queues[i].channel->fd, &event))
			continue;
		close(ctx->fd);
		return vbn_fail(-errno, "verbs: epoll: %s", strerror(errno));
	}
	return 0;
}

int merge_create(struct verbs_ctx *ctx)
{
	struct merged *m;
	int err;

	ctx->cq = ctx->queues[0].cq;
	ctx->fd = ctx->queues[0].channel->fd;
	if (ctx->nrails == 1)
		return 0;
	m = calloc(1, sizeof(*m));
	if (!m)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	err = watch_all(ctx);
	if (err) {
		free(m);
		return err;
	}
	m->context.ops.poll_cq = poll_merged;
	m->cq.context = &m->context;
	m->cq.cq_context = ctx;
	ctx->merged = m;
	ctx->cq = &m->cq;
	return 0;
}

void merge_destroy(struct verbs_ctx *ctx)
{
	if (!ctx->merged)
		return;
	close(ctx->fd);
	free(ctx->merged);
}
