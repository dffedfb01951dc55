/* SPDX-License-Identifier: BSD-3-Clause */
/* See fake_job.h. */
#include "fake_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define CONNECT_MS 10000

struct vbn_job *fake_the_job;

uint64_t fake_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void fake_job_open(void)
{
	struct vbn_job_options opts = {.size = sizeof(opts),
				       .rank = 0,
				       .nranks = 1,
				       .provider = "verbs",
				       .timeout_ms = CONNECT_MS};
	struct fake_config config;
	int n = 0;

	ibv_free_device_list(ibv_get_device_list(&n));
	if (!n) {
		fake_config_init(&config, 1);
		fake_device_add(&config);
	}
	if (vbn_job_open(&fake_the_job, &opts)) {
		fprintf(stderr, "fake_job: %s\n", vbn_error());
		exit(EXIT_FAILURE);
	}
}

void fake_job_close(void)
{
	if (vbn_job_close(fake_the_job)) {
		fprintf(stderr, "fake_job: %s\n", vbn_error());
		exit(EXIT_FAILURE);
	}
	fake_the_job = NULL;
}

int fake_job_connect(struct vbn_ctx *a, struct vbn_ctx *b, struct vbn_ep **ep,
		     struct vbn_ep **back)
{
	int err = vbn_ep_open(ep, a, 0, vbn_ctx_index(b));
	uint64_t end = fake_now_ms() + CONNECT_MS;

	if (!err && back)
		err = vbn_ep_open(back, b, 0, vbn_ctx_index(a));
	while (!err) {
		err = vbn_ep_status(*ep);
		if (!err && back)
			err = vbn_ep_status(*back);
		if (err != -EINPROGRESS || fake_now_ms() > end)
			break;
		err = 0;
		vbn_progress(a);
		if (b != a)
			vbn_progress(b);
		usleep(100); /* under valgrind one thread runs at a time */
	}
	return err;
}

void fake_job_two(void (*tweak)(struct fake_config *config),
		  struct vbn_ctx *ctxs[2], struct vbn_ep *eps[2],
		  struct vbn_pool **pool)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL};
	struct fake_config config;

	fake_config_init(&config, 1);
	if (tweak)
		tweak(&config);
	fake_device_add(&config);
	fake_job_open();
	if (vbn_ctx_open(&ctxs[0], fake_the_job, NULL) ||
	    vbn_ctx_open(&ctxs[1], fake_the_job, NULL) ||
	    vbn_pool_create(pool, fake_the_job, &opts) ||
	    fake_job_connect(ctxs[0], ctxs[1], &eps[0], &eps[1])) {
		fprintf(stderr, "fake_job: %s\n", vbn_error());
		exit(EXIT_FAILURE);
	}
}

void fake_job_events(void)
{
	uint64_t end = fake_now_ms() + CONNECT_MS;

	while (fake_count().events_unread && fake_now_ms() < end)
		usleep(1000);
}

int fake_job_wait(struct vbn_ctx *a, struct vbn_ctx *b, struct vbn_op *op,
		  int ms)
{
	uint64_t end = fake_now_ms() + (uint64_t)ms;

	while (op->status == -EINPROGRESS && fake_now_ms() < end) {
		vbn_progress(a);
		if (b != a)
			vbn_progress(b);
	}
	return op->status;
}
