/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs provider: its table, its part of a job, and registrations. A job
 * speaks through the rails chosen at job_open(), and all of its contexts share
 * each rail's protection domain, so a registration serves them all.
 */
#include "cm.h"
#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_ALIGN 4096u
#define PIECE_MAX   (1u << 30)

static void least(size_t *value, size_t other)
{
	if (other < *value)
		*value = other;
}

/* What all rails can do. */
static void fill_caps(struct verbs_job *job, struct provider_caps *caps)
{
	size_t piece = PIECE_MAX, inlined = INLINE_WANTED;

	job->atomics = true;
	for (unsigned i = 0; i < job->nrails; i++) {
		const struct rail *rail = &job->rail[i];

		least(&piece, rail->port_attr.max_msg_sz);
		least(&inlined, rail->inline_max);
		job->atomics = job->atomics && rail->atomics;
	}
	memset(caps, 0, sizeof(*caps));
	caps->max_piece = piece / PIECE_ALIGN * PIECE_ALIGN;
	caps->max_message = MESSAGE_DATA;
	caps->credits = CREDITS;
	caps->inline_max = inlined;
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
	for (unsigned i = 0; i < job->nrails && !err; i++)
		err = qp_probe(&job->rail[i]);
	if (!err && job->settings.rdmacm)
		err = cm_open(job);
	for (unsigned i = 0; i < job->nrails && !err; i++)
		err = events_start(&job->rail[i]);
	if (!err && job->cm)
		err = cm_start(job->cm);
	if (err)
		goto close_device;
	fill_caps(job, caps);
	*pjob = job;
	return 0;
close_device:
	cm_close(job->cm);
	device_close(job);
free_job:
	pthread_mutex_destroy(&job->lock);
	free(job);
	return err;
}

static void verbs_job_close(void *pjob)
{
	struct verbs_job *job = pjob;

	cm_close(job->cm);
	device_close(job);
	pthread_mutex_destroy(&job->lock);
	free(job);
}

static int access_flags(unsigned access)
{
	int flags = IBV_ACCESS_LOCAL_WRITE;

	if (access & VBN_ACCESS_READ)
		flags |= IBV_ACCESS_REMOTE_READ;
	if (access & VBN_ACCESS_WRITE)
		flags |= IBV_ACCESS_REMOTE_WRITE;
	if (access & VBN_ACCESS_ATOMIC)
		flags |= IBV_ACCESS_REMOTE_ATOMIC;
	return flags;
}

static int too_long(const struct rail *rail, size_t len)
{
	return vbn_fail(-EFBIG,
			"verbs: %s registers at most %llu bytes at "
			"once, %zu were asked for; register in parts",
			rail->name, (unsigned long long)rail->attr.max_mr_size,
			len);
}

static int verbs_mem_register(void *pjob, const struct vbn_mem *mem,
			      void **handle, struct blob *announce)
{
	struct verbs_job *job = pjob;
	struct announcement *out = (struct announcement *)announce->data;
	struct registration *mr;
	int err;

	for (unsigned i = 0; i < job->nrails; i++)
		if (mem->len > job->rail[i].attr.max_mr_size)
			return too_long(&job->rail[i], mem->len);
	err = register_all(job, mem->addr, mem->len, access_flags(mem->access),
			   "registering memory", &mr);
	if (err)
		return err;
	out->access = mem->access;
	for (unsigned i = 0; i < job->nrails; i++)
		out->rkey[i] = register_rkey(mr, i);
	announce->len = sizeof(*out) + job->nrails * sizeof(out->rkey[0]);
	*handle = mr;
	return 0;
}

static void verbs_mem_deregister(void *pjob, void *handle)
{
	register_free(pjob, handle);
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
