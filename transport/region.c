/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers' regions: a table per peer, filled by the control thread when a
 * region is first named to it. Readers are lock-free: an import is immutable
 * once its state leaves -EINPROGRESS, and is freed with the job only.
 */
#include "core.h"
#include "wire.h"

#include <errno.h>
#include <stdlib.h>

static _Atomic(struct import *) *region_slot(struct vbn_job *job, int rank,
					     uint32_t region)
{
	struct import_chunk *chunk, *empty_chunk = NULL;
	struct peer *peer, *empty = NULL;

	peer = atomic_load_explicit(&job->peers[rank], memory_order_acquire);
	if (!peer) {
		peer = calloc(1, sizeof(*peer));
		if (!peer)
			return NULL;
		if (!atomic_compare_exchange_strong(&job->peers[rank], &empty,
						    peer)) {
			free(peer);
			peer = empty;
		}
	}
	chunk = atomic_load_explicit(&peer->chunks[region / 256],
				     memory_order_acquire);
	if (!chunk) {
		chunk = calloc(1, sizeof(*chunk));
		if (!chunk)
			return NULL;
		if (!atomic_compare_exchange_strong(&peer->chunks[region / 256],
						    &empty_chunk, chunk)) {
			free(chunk);
			chunk = empty_chunk;
		}
	}
	return &chunk->slots[region % 256];
}

static void import_done(struct import *import, int state)
{
	struct vbn_job *job = import->job;

	atomic_store_explicit(&import->state, state, memory_order_release);
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
}

static int request(struct vbn_job *job, int rank, enum provider_id provider,
		   const struct vbn_rkey *rkey, _Atomic(struct import *) *slot,
		   struct import *older)
{
	struct import *import = calloc(1, sizeof(*import));
	char key[64];

	if (!import)
		return vbn_fail(-ENOMEM, "no memory to import a region");
	import->job = job;
	import->rank = rank;
	import->region = rkey->region;
	import->generation = rkey->generation;
	import->provider = provider;
	import->older = older;
	atomic_init(&import->state, -EINPROGRESS);
	if (!atomic_compare_exchange_strong(slot, &older, import)) {
		free(import); /* another context was faster */
		return -EAGAIN;
	}
	snprintf(key, sizeof(key), INTERNAL_KEY "m/%d/%u", rank, rkey->region);
	control_lookup(job->control, key, false, looked_up, import);
	return -EAGAIN;
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

int region_find(struct vbn_job *job, int rank, enum provider_id provider,
		const struct vbn_rkey *rkey, struct import **out)
{
	_Atomic(struct import *) *slot;
	struct import *import;
	int state;

	if (rkey->region >= REGION_MAX || !rkey->generation)
		return rejected(rkey, rank, -EKEYREJECTED);
	slot = region_slot(job, rank, rkey->region);
	if (!slot)
		return vbn_fail(-ENOMEM, "no memory to import a region");
	import = atomic_load_explicit(slot, memory_order_acquire);
	if (!import)
		return request(job, rank, provider, rkey, slot, NULL);
	state = atomic_load_explicit(&import->state, memory_order_acquire);
	if (state == -EINPROGRESS)
		return -EAGAIN;
	if (import->generation != rkey->generation) {
		/* Older than one that was good: no need to ask again. */
		if (!state && rkey->generation < import->generation)
			return rejected(rkey, rank, -EKEYREJECTED);
		return request(job, rank, provider, rkey, slot, import);
	}
	if (state)
		return rejected(rkey, rank, state);
	*out = import;
	return 0;
}

void region_free_all(struct vbn_job *job)
{
	for (int r = 0; r < job->nranks; r++) {
		struct peer *peer = atomic_load(&job->peers[r]);

		for (int c = 0; peer && c < REGION_MAX / 256; c++) {
			struct import_chunk *chunk =
				atomic_load(&peer->chunks[c]);

			for (int i = 0; chunk && i < 256; i++) {
				struct import *import =
					atomic_load(&chunk->slots[i]);

				while (import) {
					struct import *older = import->older;
					const struct job_provider *p =
						&job->providers
							 [import->provider];

					if (import->handle)
						p->ops->import_release(
							p->pjob,
							import->handle);
					free(import);
					import = older;
				}
			}
			free(chunk);
		}
		free(peer);
	}
}
