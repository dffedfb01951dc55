/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers' regions: a table per peer, filled by the control thread when a
 * region is first named to it. An import is immutable once its state leaves
 * -EINPROGRESS. It is counted: by the table, by a look-up that is out, by
 * each endpoint that keeps its key; so the memory of a region that is gone is
 * let go of once a newer generation has taken its place everywhere.
 */
#include "core.h"
#include "wire.h"

#include <errno.h>
#include <stdlib.h>

/* job->lock is held. NULL: no memory. */
static struct import **region_slot(struct vbn_job *job, int rank,
				   uint32_t region)
{
	struct import ****peer = &job->peers[rank];
	struct import **chunk;

	if (!*peer)
		*peer = calloc(REGION_CHUNKS, sizeof(**peer));
	if (!*peer)
		return NULL;
	chunk = (*peer)[region / REGION_CHUNK];
	if (!chunk)
		chunk = calloc(REGION_CHUNK, sizeof(*chunk));
	(*peer)[region / REGION_CHUNK] = chunk;
	return chunk ? &chunk[region % REGION_CHUNK] : NULL;
}

void import_put(struct import *import)
{
	const struct job_provider *p;

	if (!import || atomic_fetch_sub(&import->refs, 1) > 1)
		return;
	p = &import->job->providers[import->provider];
	if (import->handle)
		p->ops->import_release(p->pjob, import->handle);
	free(import);
}

static void import_done(struct import *import, int state)
{
	struct vbn_job *job = import->job;

	atomic_store_explicit(&import->state, state, memory_order_release);
	atomic_fetch_add(&job->imports, 1);
	pthread_mutex_lock(&job->lock);
	for (int i = 0; i < job->nctxs; i++)
		if (job->ctxs[i])
			vbn_ctx_wake(job->ctxs[i]);
	pthread_mutex_unlock(&job->lock);
}

/* The announcement, as register_all() in mem.c wrote it. */
static int parse_announcement(struct import *import, const uint8_t *p,
			      size_t len)
{
	const uint8_t *end = p + len;

	if (len < 20)
		return -EPROTO;
	if (get_u32(p) != import->generation)
		return -EKEYREJECTED;
	import->base = get_u64(p + 4);
	import->length = get_u64(p + 12);
	p += 20;
	for (int i = 0; i < PROVIDERS; i++) {
		size_t n;

		if (end - p < 2)
			return -EPROTO;
		n = get_u16(p);
		p += 2;
		if (n > (size_t)(end - p) || n > BLOB_MAX)
			return -EPROTO;
		if (i == (int)import->provider) {
			import->announce.len = n;
			memcpy(import->announce.data, p, n);
		}
		p += n;
	}
	return 0;
}

/* [control] */
static void looked_up(void *arg, int err, const void *value, size_t len)
{
	struct import *import = arg;
	const struct job_provider *p =
		&import->job->providers[import->provider];

	if (err == -ENOENT)
		err = -EKEYREJECTED;
	if (!err)
		err = parse_announcement(import, value, len);
	if (!err && p->ops->region_import)
		err = p->ops->region_import(p->pjob, import->rank, import->base,
					    import->length, &import->announce,
					    &import->handle);
	if (err && err != -EKEYREJECTED && err != -ECANCELED)
		vbn_log(VBN_WARN,
			"rank %d: region %u of rank %d cannot be reached: %s",
			import->job->rank, import->region, import->rank,
			vbn_error());
	import_done(import, err);
	import_put(import);
}

/* Ask the store; counted for the table and for the look-up. */
static struct import *import_new(struct vbn_job *job, int rank,
				 enum provider_id provider,
				 const struct vbn_rkey *rkey)
{
	struct import *import = calloc(1, sizeof(*import));

	if (!import)
		return NULL;
	import->job = job;
	import->rank = rank;
	import->region = rkey->region;
	import->generation = rkey->generation;
	import->provider = provider;
	atomic_init(&import->refs, 2);
	atomic_init(&import->state, -EINPROGRESS);
	return import;
}

static int rejected(const struct vbn_rkey *rkey, int rank, int state)
{
	if (state != -EKEYREJECTED)
		return vbn_fail(state,
				"region %u of rank %d could not be imported",
				rkey->region, rank);
	return vbn_fail(state,
			"rank %d has no region %u of generation %u (any more):"
			" the key is stale or wrong",
			rank, rkey->region, rkey->generation);
}

/* What the table says; -ENOENT: it has to be asked for. */
static int state_of(const struct import *import, const struct vbn_rkey *rkey)
{
	int state;

	if (!import)
		return -ENOENT;
	state = atomic_load_explicit(&import->state, memory_order_acquire);
	if (state == -EINPROGRESS)
		return -EAGAIN;
	if (import->generation == rkey->generation)
		return state;
	/* Older than one that was good: no need to ask again. */
	if (!state && rkey->generation < import->generation)
		return -EKEYREJECTED;
	return -ENOENT;
}

int region_find(struct vbn_job *job, int rank, enum provider_id provider,
		const struct vbn_rkey *rkey, struct import **out)
{
	struct import **slot, *older = NULL, *asked = NULL;
	char key[64];
	int state;

	if (rkey->region >= REGION_MAX || !rkey->generation)
		return rejected(rkey, rank, -EKEYREJECTED);
	pthread_mutex_lock(&job->lock);
	slot = region_slot(job, rank, rkey->region);
	state = slot ? state_of(*slot, rkey) : -ENOMEM;
	if (!state) {
		*out = *slot;
		atomic_fetch_add(&(*slot)->refs, 1);
	} else if (state == -ENOENT) {
		asked = import_new(job, rank, provider, rkey);
		state = asked ? -EAGAIN : -ENOMEM;
		if (asked) {
			older = *slot;
			*slot = asked;
		}
	}
	pthread_mutex_unlock(&job->lock);
	import_put(older);
	if (asked) {
		snprintf(key, sizeof(key), INTERNAL_KEY "m/%d/%u", rank,
			 rkey->region);
		control_lookup(job->control, key, false, looked_up, asked);
	}
	return !state || state == -EAGAIN ? state : rejected(rkey, rank, state);
}

void region_free_all(struct vbn_job *job)
{
	for (int r = 0; r < job->nranks; r++) {
		struct import ***peer = job->peers[r];

		for (int c = 0; peer && c < REGION_CHUNKS; c++) {
			for (int i = 0; peer[c] && i < REGION_CHUNK; i++)
				import_put(peer[c][i]);
			free(peer[c]);
		}
		free(peer);
	}
}
