/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs provider: its table, its part of a job, and registrations. A job
 * speaks through one port of one device, chosen at job_open(), and all of its
 * contexts share one protection domain, so a registration serves them all.
 */
#include "internal.h"
#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_ALIGN 4096u
#define PIECE_MAX   (1u << 30)

static void fill_caps(const struct verbs_job *job, struct provider_caps *caps)
{
	size_t piece = job->port_attr.max_msg_sz;

	memset(caps, 0, sizeof(*caps));
	if (piece > PIECE_MAX)
		piece = PIECE_MAX;
	caps->max_piece = piece / PIECE_ALIGN * PIECE_ALIGN;
	caps->max_message = MESSAGE_DATA;
	caps->credits = CREDITS;
	caps->inline_max = job->inline_max < INLINE_WANTED ? job->inline_max
							   : INLINE_WANTED;
	caps->credits_max = CREDITS_MAX;
}

/* Where the kernel copies pinned pages at fork, it is needless and costly. */
static int fork_safety(void)
{
	int err;

	if (ibv_is_fork_initialized() != IBV_FORK_DISABLED)
		return 0;
	err = ibv_fork_init();
	if (err)
		vbn_log(VBN_WARN,
			"verbs: ibv_fork_init: %s; this process must not fork "
			"while memory is registered",
			strerror(err));
	return 0;
}

static int verbs_job_open(struct vbn_job *core, void **pjob,
			  struct provider_caps *caps)
{
	struct verbs_job *job;
	int err;

	job = calloc(1, sizeof(*job));
	if (!job)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	job->core = core;
	pthread_mutex_init(&job->lock, NULL);
	fork_safety();
	err = device_open(job);
	if (err)
		goto free_job;
	err = qp_probe(job);
	if (err)
		goto close_device;
	err = events_start(job);
	if (err)
		goto close_device;
	fill_caps(job, caps);
	*pjob = job;
	return 0;
close_device:
	device_close(job);
free_job:
	pthread_mutex_destroy(&job->lock);
	free(job);
	return err;
}

static void verbs_job_close(void *pjob)
{
	struct verbs_job *job = pjob;

	device_close(job);
	pthread_mutex_destroy(&job->lock);
	free(job);
}

static int access_flags(const struct verbs_job *job, unsigned access)
{
	int flags = IBV_ACCESS_LOCAL_WRITE;

	if (access & VBN_ACCESS_READ)
		flags |= IBV_ACCESS_REMOTE_READ;
	if (access & VBN_ACCESS_WRITE)
		flags |= IBV_ACCESS_REMOTE_WRITE;
	if ((access & VBN_ACCESS_ATOMIC) && job->atomics)
		flags |= IBV_ACCESS_REMOTE_ATOMIC;
	return flags;
}

static int verbs_mem_register(void *pjob, const struct vbn_mem *mem,
			      void **handle, struct blob *announce)
{
	struct verbs_job *job = pjob;
	struct announcement out = {.access = mem->access};
	struct ibv_mr *mr;

	if (mem->len > job->attr.max_mr_size)
		return vbn_fail(-EFBIG,
				"verbs: %s registers at most %llu bytes at "
				"once, %zu were asked for; register in parts",
				job->name,
				(unsigned long long)job->attr.max_mr_size,
				mem->len);
	mr = ibv_reg_mr(job->pd, mem->addr, mem->len,
			access_flags(job, mem->access));
	if (!mr)
		return limits_explain(job, errno, "registering memory",
				      mem->len);
	atomic_fetch_add(&job->mrs, 1);
	out.rkey = mr->rkey;
	memcpy(announce->data, &out, sizeof(out));
	announce->len = sizeof(out);
	*handle = mr;
	return 0;
}

static void verbs_mem_deregister(void *pjob, void *handle)
{
	struct verbs_job *job = pjob;
	int err = ibv_dereg_mr(handle);

	if (err)
		vbn_log(VBN_ERR, "verbs: %s: ibv_dereg_mr: %s", job->name,
			strerror(err));
	else
		atomic_fetch_sub(&job->mrs, 1);
}

const struct provider provider_verbs = {
	.name = "verbs",
	.job_open = verbs_job_open,
	.job_close = verbs_job_close,
	.mem_register = verbs_mem_register,
	.mem_deregister = verbs_mem_deregister,
	.ctx_open = verbs_ctx_open,
	.ctx_close = verbs_ctx_close,
	.progress = verbs_progress,
	.poll = verbs_poll,
	.fd = verbs_fd,
	.arm = verbs_arm,
	.reaches = verbs_reaches,
	.conn_create = verbs_conn_create,
	.conn_accept = verbs_conn_accept,
	.conn_finish = verbs_conn_finish,
	.conn_attach = verbs_conn_attach,
	.conn_close = verbs_conn_close,
	.window = verbs_window,
	.put = verbs_put,
	.get = verbs_get,
	.atomic = verbs_atomic,
	.flush = verbs_flush,
	.quick = verbs_quick,
	.message = verbs_message,
};
