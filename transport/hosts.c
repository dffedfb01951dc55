/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ranks share memory. At its start a rank publishes under "h/<rank>" the
 * number that ranks of its host have in common, and whether it has the shm
 * provider; others ask when they want to know.
 */
#include "core.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { HOST_BYTES = 9 };

static void host_key(char *key, size_t room, int rank)
{
	snprintf(key, room, INTERNAL_KEY "h/%d", rank);
}

int hosts_publish(struct vbn_job *job)
{
	uint8_t value[HOST_BYTES], *p = put_u64(value, job->host_id);
	char key[64];

	*p = job->providers[PROVIDER_SHM].pjob != NULL;
	host_key(key, sizeof(key), job->rank);
	return control_publish(job->control, key, value, sizeof(value));
}

/* The host's number; 0 for a rank that shares memory with none. */
static int ask(struct vbn_job *job, int rank, int timeout_ms, uint64_t *id)
{
	uint8_t value[HOST_BYTES];
	size_t len = sizeof(value);
	char key[64];
	int err;

	host_key(key, sizeof(key), rank);
	err = control_get(job->control, key, value, &len, timeout_ms);
	if (err)
		return err;
	if (len != sizeof(value))
		return vbn_fail(-EPROTO, "rank %d does not say its host", rank);
	*id = value[8] ? get_u64(value) : 0;
	return 0;
}

int vbn_job_hosts(struct vbn_job *job, const int *ranks, int n, int *hosts,
		  int timeout_ms)
{
	uint64_t *ids = calloc((size_t)n + 1, sizeof(*ids));
	uint64_t end = now_ms() + (uint64_t)(timeout_ms > 0 ? timeout_ms : 0);
	int nhosts = 0, err = 0;

	if (!ids)
		return vbn_fail(-ENOMEM, "no memory for %d ranks' hosts", n);
	for (int i = 0; i < n && !err; i++) {
		uint64_t id = 0;
		int h = 0;

		if (timeout_ms > 0)
			timeout_ms = end > now_ms() ? (int)(end - now_ms()) : 0;
		err = ask(job, ranks ? ranks[i] : i, timeout_ms, &id);
		if (err)
			break;
		while (h < nhosts && (!id || ids[h] != id))
			h++;
		if (h == nhosts)
			ids[nhosts++] = id;
		hosts[i] = h;
	}
	free(ids);
	return err ? err : nhosts;
}
