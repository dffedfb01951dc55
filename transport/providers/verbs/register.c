/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registrations: one with each rail's protection domain, but for those whose
 * device has failed.
 */
#include "rail.h"
#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int register_one(struct rail *rail, void *addr, size_t len, int access,
			const char *what, struct ibv_mr **out)
{
	if (atomic_load(&rail->fatal) && rail->job->nrails > 1)
		return 0; /* nothing goes by it any more */
	if (!rail->atomics)
		access &= ~IBV_ACCESS_REMOTE_ATOMIC;
	*out = ibv_reg_mr(rail->pd, addr, len, access);
	if (!*out)
		return limits_explain(rail, errno, what, len);
	atomic_fetch_add(&rail->mrs, 1);
	return 0;
}

int register_all(struct verbs_job *job, void *addr, size_t len, int access,
		 const char *what, struct registration **out)
{
	struct registration *mr = calloc(1, sizeof(*mr));
	int err = 0;

	if (!mr)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	for (unsigned i = 0; i < job->nrails && !err; i++) {
		err = register_one(&job->rail[i], addr, len, access, what,
				   &mr->mr[i]);
		if (!err && mr->mr[i])
			mr->lkey[i] = mr->mr[i]->lkey;
	}
	if (err)
		register_free(job, mr);
	else
		*out = mr;
	return err;
}

uint32_t register_rkey(const struct registration *mr, unsigned rail)
{
	return mr->mr[rail] ? mr->mr[rail]->rkey : 0;
}

void register_free(struct verbs_job *job, struct registration *mr)
{
	for (unsigned i = 0; i < job->nrails; i++) {
		int err;

		if (!mr->mr[i])
			continue;
		err = ibv_dereg_mr(mr->mr[i]);
		if (err)
			vbn_log(VBN_ERR, "verbs: %s: ibv_dereg_mr: %s",
				job->rail[i].name, strerror(err));
		else
			atomic_fetch_sub(&job->rail[i].mrs, 1);
	}
	free(mr);
}
