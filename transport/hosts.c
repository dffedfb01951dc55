/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which ranks share memory. At its start a rank says on its card the number
 * that ranks of its host have in common, and whether it has the shm provider;
 * others ask when they want to know, for all of them at once.
 */
#include "core.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int hosts_publish(struct vbn_job *job)
{
	uint8_t card[CONTROL_CARD], *p = put_u64(card, job->host_id);

	*p = job->providers[PROVIDER_SHM].pjob != NULL;
	return control_card(job->control, card);
}

/* The host's number; 0 for a rank that shares memory with none. */
static uint64_t host_of(const uint8_t card[CONTROL_CARD])
{
	return card[8] ? get_u64(card) : 0;
}

/* The range of ranks to ask for; -EINVAL: one is none. */
static int range_of(const struct vbn_job *job, const int *ranks, int n,
		    int *first, int *count)
{
	int low = n ? job->nranks : 0, high = -1;

	for (int i = 0; i < n; i++) {
		int rank = ranks ? ranks[i] : i;

		if (rank < 0 || rank >= job->nranks)
			return vbn_fail(-EINVAL,
					"rank %d: the job has %d, counted "
					"from 0",
					rank, job->nranks);
		low = rank < low ? rank : low;
		high = rank > high ? rank : high;
	}
	*first = low;
	*count = high >= low ? high - low + 1 : 0;
	return 0;
}

/* Numbers from 0 in the order of first mention. */
static int number_hosts(const uint64_t *ids, int n, int *hosts, uint64_t *seen)
{
	int nhosts = 0;

	for (int i = 0; i < n; i++) {
		int h = 0;

		while (h < nhosts && (!ids[i] || seen[h] != ids[i]))
			h++;
		if (h == nhosts)
			seen[nhosts++] = ids[i];
		hosts[i] = h;
	}
	return nhosts;
}

int vbn_job_hosts(struct vbn_job *job, const int *ranks, int n, int *hosts,
		  int timeout_ms)
{
	uint64_t *ids = calloc(2 * (size_t)n + 1, sizeof(*ids));
	int first = 0, count = 0, err = range_of(job, ranks, n, &first, &count);
	uint8_t *cards = NULL;

	if (!err)
		cards = calloc((size_t)count + 1, CONTROL_CARD);
	if (!err && (!ids || !cards))
		err = vbn_fail(-ENOMEM, "no memory for %d ranks' hosts", n);
	if (!err)
		err = control_cards(job->control, first, count, cards,
				    timeout_ms);
	for (int i = 0; i < n && !err; i++) {
		int rank = ranks ? ranks[i] : i;

		ids[i] = host_of(cards + (size_t)(rank - first) * CONTROL_CARD);
	}
	if (!err)
		err = number_hosts(ids, n, hosts, ids + n);
	free(cards);
	free(ids);
	return err;
}
