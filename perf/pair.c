/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The two parties of a test, or those of a ring: contexts, endpoints, keys, and
 * how the ranks meet between measurements, by messages on a channel of their
 * own, each rank's to the next.
 */
#include "perf.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#define MEET_CHANNEL (VBN_CHANNEL_USER + 1)

/* The rank before is as many notes ahead as there are ranks, at most. */
static struct {
	unsigned count;
	uint8_t data[PERF_RING_MAX][PERF_NOTE];
} notes;

static void note(void *arg, struct vbn_ep *from, const void *data, size_t len)
{
	(void)arg;
	(void)from;
	if (len <= PERF_NOTE)
		memcpy(notes.data[notes.count % PERF_RING_MAX], data, len);
	notes.count++;
}

static int open_contexts(struct perf *p)
{
	size_t n = p->opts.test->transport ? p->opts.qps : 1;
	int rc = 0;

	while (rc == 0 && p->nctxs < n) {
		rc = vbn_ctx_open(&p->ctxs[p->nctxs], p->job, NULL);
		p->nctxs += rc == 0;
	}
	p->ctx = p->ctxs[0];
	return rc ? perf_failed(rc, "opening a context") : 0;
}

static int connect_all(struct perf *p)
{
	int rc = 0;

	for (size_t i = 0; i < p->nctxs && rc == 0; i++) {
		rc = vbn_ep_open(&p->eps[i], p->ctxs[i], p->peer,
				 vbn_ctx_index(p->ctxs[i]));
		if (rc == 0)
			rc = vbn_ep_connect(p->eps[i], PERF_WAIT_MS);
	}
	if (rc != 0)
		return perf_failed(rc, "connecting");
	p->ep = p->eps[0];
	p->polls_one = p->nctxs == 1 && !p->opts.events;
	p->target_drives = strcmp(vbn_ep_provider(p->ep), "ucx") == 0;
	if (!perf_wants_verbs(&p->opts) ||
	    strcmp(vbn_ep_provider(p->ep), "verbs") == 0)
		return 0;
	return perf_fail(-EINVAL,
			 "-d, -i, -x, -m, -S and -T are about verbs, but the "
			 "connection is over %s: use verbena-run --provider "
			 "verbs",
			 vbn_ep_provider(p->ep));
}

int perf_open(struct perf *p)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL};
	int rc = open_contexts(p);

	if (rc == 0) {
		rc = vbn_pool_create(&p->pool, p->job, &opts);
		if (rc != 0)
			perf_failed(rc, "creating a memory pool");
	}
	if (rc != 0 || !p->opts.test->transport)
		return rc;
	rc = vbn_message_handler(p->ctx, MEET_CHANNEL, note, NULL);
	return rc ? perf_failed(rc, "setting a handler") : connect_all(p);
}

void perf_close(struct perf *p)
{
	while (p->nctxs > 0)
		vbn_ctx_close(p->ctxs[--p->nctxs]);
	for (size_t i = 0; i < p->nmethods; i++)
		p->methods[i].close(p->methods[i].self);
	if (p->pool)
		vbn_pool_destroy(p->pool);
}

static int send_note(struct perf *p, const void *mine, size_t len)
{
	struct perf_wait w = {0};
	int rc;

	while ((rc = vbn_message(p->ep, MEET_CHANNEL, mine, len)) == -EAGAIN) {
		vbn_progress(p->ctx);
		rc = perf_waiting(p, &w);
		if (rc != 0)
			return rc;
	}
	return rc ? perf_failed(rc, "meeting the other rank") : 0;
}

/* Sleeping would slow an operation of the other's that needs us. */
static int wait_note(struct perf *p, struct perf_wait *w)
{
	int events = 0;

	for (size_t i = 0; i < p->nctxs; i++)
		events += vbn_progress(p->ctxs[i]);
	if (events != 0 || (p->target_drives && !p->opts.events))
		return perf_waiting(p, w);
	perf_sleep(p, 100);
	return perf_waiting_slow(p, w);
}

/* Send a note and await one, which is there until as many more have come. */
static int swap_notes(struct perf *p, const void **note, size_t len)
{
	struct perf_wait w = {0};
	int rc = send_note(p, *note, len);

	while (rc == 0 && notes.count <= p->notes)
		rc = wait_note(p, &w);
	*note = notes.data[p->notes++ % PERF_RING_MAX];
	return rc;
}

/* What has come is passed on, until each rank's note has been everywhere. */
int perf_meet(struct perf *p, const void *mine, void *theirs, size_t len)
{
	const void *note = mine;
	int rc = 0;

	if (p->nranks == 1 && len)
		memmove(theirs, mine, len);
	for (int k = 0; k < p->nranks - 1 && rc == 0; k++) {
		rc = swap_notes(p, &note, len);
		if (rc == 0 && len)
			memcpy((uint8_t *)theirs + (size_t)k * len, note, len);
	}
	return rc;
}

static void sleep_on_one(struct perf *p, int timeout_ms)
{
	int events = vbn_ctx_wait(p->ctx, timeout_ms);

	p->idle = events == 0;
	p->events += (uint64_t)events;
}

void perf_sleep(struct perf *p, int timeout_ms)
{
	struct pollfd fds[PERF_QPS_MAX];

	if (p->nctxs == 1) {
		sleep_on_one(p, timeout_ms);
		return;
	}
	for (size_t i = 0; i < p->nctxs; i++) {
		fds[i].fd = vbn_ctx_fd(p->ctxs[i]);
		fds[i].events = POLLIN;
		if (vbn_ctx_arm(p->ctxs[i]) != 0)
			return;
	}
	p->sleeps++;
	p->idle = poll(fds, p->nctxs, timeout_ms) == 0;
}

int perf_waiting_slow(struct perf *p, struct perf_wait *w)
{
	int rc;

	if (!p->opts.events)
		sched_yield();
	vbn_progress(p->ctx);
	rc = vbn_ep_connect(p->ep, 0);
	if (rc != 0)
		return perf_failed(rc, "waiting for the other rank");
	if (w->until == 0)
		w->until = perf_now() + PERF_WAIT_MS / 1e3;
	else if (perf_now() > w->until)
		return perf_fail(-ETIMEDOUT,
				 "rank %d: nothing has come from rank %d for "
				 "%d s",
				 p->rank, p->peer, PERF_WAIT_MS / 1000);
	return 0;
}

/* As vbn_job_get(), but a rank that has died is not waited for. */
static int get_from_peer(struct perf *p, const char *key, void *value,
			 size_t *len)
{
	double end = perf_now() + PERF_WAIT_MS / 1e3;
	size_t room = *len;
	int rc;

	do {
		*len = room;
		rc = vbn_job_get(p->job, key, value, len, 200);
		if (rc == -ETIMEDOUT && vbn_job_dead(p->job) >= 0)
			return -ECONNRESET;
	} while (rc == -ETIMEDOUT && perf_now() < end);
	return rc;
}

int perf_exchange_keys(struct perf *p, uint8_t *const *buffers, size_t n,
		       size_t bytes, struct vbn_rkey *theirs)
{
	uint8_t packed[PERF_QPS_MAX * VBN_RKEY_BYTES];
	size_t len = sizeof(packed);
	char name[32];
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		struct vbn_rkey key;

		rc = vbn_rkey_of(p->job, buffers[i], bytes, &key);
		if (rc == 0)
			vbn_rkey_pack(&key, packed + i * VBN_RKEY_BYTES);
	}
	snprintf(name, sizeof(name), "perf/keys/%d", p->rank);
	if (rc == 0)
		rc = vbn_job_set(p->job, name, packed, n * VBN_RKEY_BYTES,
				 PERF_WAIT_MS);
	snprintf(name, sizeof(name), "perf/keys/%d", p->peer);
	if (rc == 0)
		rc = get_from_peer(p, name, packed, &len);
	if (rc == 0 && len != n * VBN_RKEY_BYTES)
		return perf_fail(-EPROTO, "the ranks have different options");
	if (rc != 0)
		return perf_failed(rc, "exchanging keys");
	for (size_t i = 0; i < n; i++)
		vbn_rkey_unpack(&theirs[i], packed + i * VBN_RKEY_BYTES);
	return 0;
}
