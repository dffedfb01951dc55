/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers' regions: a table by (rank, region, provider), filled by the control
 * thread when a region is first named to it. An import is immutable once its
 * state leaves -EINPROGRESS. It is counted: by the table, by a look-up that is
 * out, by each endpoint that keeps its key; so the memory of a region that is
 * gone is let go of once a newer generation has taken its place everywhere. One
 * that failed for want of something (memory, descriptors) leaves the table
 * once that was told, so that a later use tries again.
 */
#include "core.h"
#include "wire.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS_FIRST 16 /* a power of two */

static struct import **bucket_of(const struct import_table *table, int rank,
				 uint32_t region)
{
	uint32_t h = (uint32_t)rank * 2654435761u ^ region * 2246822519u;

	return &table->buckets[(h >> 8 ^ h) & (table->nbuckets - 1)];
}

/* Under job->lock. Where the region's import is linked, or would be. */
static struct import **region_slot(const struct import_table *table, int rank,
				   enum provider_id provider, uint32_t region)
{
	struct import **link = bucket_of(table, rank, region);

	while (*link && ((*link)->rank != rank || (*link)->region != region ||
			 (*link)->provider != provider))
		link = &(*link)->next;
	return link;
}

/* Under job->lock. A table that cannot grow has longer chains. */
static int table_grow(struct import_table *table)
{
	struct import_table grown = {.n = table->n};

	grown.nbuckets = table->nbuckets ? 2 * table->nbuckets : BUCKETS_FIRST;
	grown.buckets = calloc(grown.nbuckets, sizeof(*grown.buckets));
	if (!grown.buckets)
		return table->nbuckets ? 0 : -ENOMEM;
	for (unsigned i = 0; i < table->nbuckets; i++) {
		struct import *import = table->buckets[i], *next;

		for (; import; import = next) {
			struct import **bucket =
				bucket_of(&grown, import->rank, import->region);

			next = import->next;
			import->next = *bucket;
			*bucket = import;
		}
	}
	free(table->buckets);
	*table = grown;
	return 0;
}

void import_put(struct import *import)
{
	const struct job_provider *p;

	if (!import || atomic_fetch_sub(&import->refs, 1) > 1)
		return;
	p = &import->job->providers[import->provider];
	if (import->handle)
		p->ops->import_release(p->pjob, import->handle);
	free(import->announce);
	free(import->why);
	free(import);
}

static void import_done(struct import *import, int state)
{
	atomic_store_explicit(&import->state, state, memory_order_release);
	ctx_alert_all(import->job);
}

static struct blob *blob_copy(const uint8_t *data, size_t len)
{
	struct blob *blob = malloc(offsetof(struct blob, data) + len);

	if (!blob)
		return NULL;
	blob->len = len;
	memcpy(blob->data, data, len);
	return blob;
}

static int malformed(void)
{
	return vbn_fail(-EPROTO, "its announcement is malformed");
}

/* The announcement, as register_all() in mem.c wrote it. */
static int parse_announcement(struct import *import, const uint8_t *p,
			      size_t len)
{
	const uint8_t *end = p + len;

	if (len < 20)
		return malformed();
	if (get_u32(p) != import->generation)
		return -EKEYREJECTED;
	import->base = get_u64(p + 4);
	import->length = get_u64(p + 12);
	p += 20;
	for (int i = 0; i < PROVIDERS; i++) {
		size_t n;

		if (end - p < 2)
			return malformed();
		n = get_u16(p);
		p += 2;
		if (n > (size_t)(end - p) || n > BLOB_MAX)
			return malformed();
		if (i == (int)import->provider) {
			import->announce = blob_copy(p, n);
			if (!import->announce)
				return vbn_fail(-ENOMEM, "out of memory");
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
	if (err && err != -EKEYREJECTED)
		vbn_fail(err, "looking it up: %s", strerror(-err));
	if (!err)
		err = parse_announcement(import, value, len);
	if (!err && p->ops->region_import)
		err = p->ops->region_import(p->pjob, import->rank, import->base,
					    import->length, import->announce,
					    &import->handle);
	if (err == -ENOENT) /* withdrawn since it was announced */
		err = -EKEYREJECTED;
	if (err && err != -EKEYREJECTED)
		import->why = strdup(vbn_error());
	if (err && err != -EKEYREJECTED && err != -ECANCELED)
		vbn_log(VBN_WARN,
			"rank %d: region %u of rank %d cannot be reached: %s",
			import->job->rank, import->region, import->rank,
			vbn_error());
	if (err == -EAGAIN) /* means something else in the table */
		err = -EIO;
	/* its process is gone, and the news of it has not come yet */
	if (err == -ECONNREFUSED || err == -EPIPE)
		err = -ECONNRESET;
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

/* @failed: the import that did, or NULL. */
static int rejected(const struct vbn_rkey *rkey, int rank, int state,
		    const struct import *failed)
{
	if (state != -EKEYREJECTED)
		return vbn_fail(state,
				"region %u of rank %d could not be imported: "
				"%s",
				rkey->region, rank,
				failed && failed->why ? failed->why
						      : strerror(-state));
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
	struct import_table *table = &job->regions;
	struct import **slot, *older = NULL, *asked = NULL;
	char key[64];
	int state = 0;

	if (rkey->region >= REGION_MAX || !rkey->generation)
		return rejected(rkey, rank, -EKEYREJECTED, NULL);
	pthread_mutex_lock(&job->lock);
	if (table->n >= table->nbuckets)
		state = table_grow(table);
	slot = state ? NULL : region_slot(table, rank, provider, rkey->region);
	if (slot)
		state = state_of(*slot, rkey);
	if (!state) {
		*out = *slot;
		atomic_fetch_add(&(*slot)->refs, 1);
	} else if (state == -ENOENT) {
		asked = import_new(job, rank, provider, rkey);
		state = asked ? -EAGAIN : -ENOMEM;
		if (asked) {
			older = *slot;
			asked->next = older ? older->next : NULL;
			*slot = asked;
			table->n += !older;
		}
	} else if (slot && state != -EAGAIN && state != -EKEYREJECTED) {
		older = *slot;
		*slot = older->next;
		table->n--;
	}
	pthread_mutex_unlock(&job->lock);
	if (state && state != -EAGAIN)
		rejected(rkey, rank, state, older);
	import_put(older);
	if (asked) {
		snprintf(key, sizeof(key), INTERNAL_KEY "m/%d/%u", rank,
			 rkey->region);
		control_lookup(job->control, key, false, looked_up, asked);
	}
	return state;
}

void region_free_all(struct vbn_job *job)
{
	struct import_table *table = &job->regions;

	for (unsigned i = 0; i < table->nbuckets; i++) {
		struct import *import = table->buckets[i], *next;

		for (; import; import = next) {
			next = import->next;
			import_put(import);
		}
	}
	free(table->buckets);
	*table = (struct import_table){.n = 0};
}
