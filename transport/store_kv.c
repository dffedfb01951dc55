/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A chained hash table that doubles. An entry has a value, or waiters, never
 * both; with neither it is removed.
 */
#include "store_kv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct entry {
	struct entry *next;
	uint64_t hash;
	struct kv_waiter *waiters, **waiters_end;
	uint8_t *value; /* NULL: waited for */
	size_t len, key_len;
	char key[];
};

struct kv {
	struct entry **buckets;
	size_t mask, count;
};

#define KV_BUCKETS 64u

static uint64_t hash_of(const char *key, size_t len)
{
	uint64_t h = 14695981039346656037u; /* FNV-1a */

	for (size_t i = 0; i < len; i++)
		h = (h ^ (uint8_t)key[i]) * 1099511628211u;
	return h ^ h >> 32;
}

struct kv *kv_create(void)
{
	struct kv *kv = calloc(1, sizeof(*kv));

	if (!kv)
		return NULL;
	kv->buckets = calloc(KV_BUCKETS, sizeof(*kv->buckets));
	if (!kv->buckets) {
		free(kv);
		return NULL;
	}
	kv->mask = KV_BUCKETS - 1;
	return kv;
}

static void entry_free(struct entry *e)
{
	struct kv_waiter *next;

	for (struct kv_waiter *w = e->waiters; w; w = next) {
		next = w->next;
		free(w);
	}
	free(e->value);
	free(e);
}

void kv_destroy(struct kv *kv)
{
	struct entry *next;

	if (!kv)
		return;
	for (size_t i = 0; i <= kv->mask; i++)
		for (struct entry *e = kv->buckets[i]; e; e = next) {
			next = e->next;
			entry_free(e);
		}
	free(kv->buckets);
	free(kv);
}

/* Where the entry hangs; *result is NULL at a chain's end. */
static struct entry **find(const struct kv *kv, const char *key, size_t key_len)
{
	uint64_t hash = hash_of(key, key_len);
	struct entry **at = &kv->buckets[hash & kv->mask];

	while (*at && ((*at)->hash != hash || (*at)->key_len != key_len ||
		       memcmp((*at)->key, key, key_len)))
		at = &(*at)->next;
	return at;
}

static void grow(struct kv *kv)
{
	size_t mask = 2 * kv->mask + 1;
	struct entry **buckets = calloc(mask + 1, sizeof(*buckets)), *next;

	if (!buckets)
		return; /* longer chains work too */
	for (size_t i = 0; i <= kv->mask; i++)
		for (struct entry *e = kv->buckets[i]; e; e = next) {
			next = e->next;
			e->next = buckets[e->hash & mask];
			buckets[e->hash & mask] = e;
		}
	free(kv->buckets);
	kv->buckets = buckets;
	kv->mask = mask;
}

static struct entry *find_or_add(struct kv *kv, const char *key, size_t key_len)
{
	struct entry **at, *e;

	if (kv->count > kv->mask)
		grow(kv);
	at = find(kv, key, key_len);
	e = *at;
	if (e)
		return e;
	e = calloc(1, sizeof(*e) + key_len);
	if (!e)
		return NULL;
	e->hash = hash_of(key, key_len);
	e->waiters_end = &e->waiters;
	e->key_len = key_len;
	memcpy(e->key, key, key_len);
	*at = e;
	kv->count++;
	return e;
}

static void unlink_entry(struct kv *kv, struct entry **at)
{
	struct entry *e = *at;

	*at = e->next;
	kv->count--;
	entry_free(e);
}

int kv_set(struct kv *kv, const char *key, size_t key_len, const void *value,
	   size_t len, struct kv_waiter **waiters)
{
	uint8_t *copy = malloc(len + 1); /* not NULL for an empty value */
	struct entry *e = copy ? find_or_add(kv, key, key_len) : NULL;

	if (!e) {
		free(copy);
		return -ENOMEM;
	}
	if (len)
		memcpy(copy, value, len);
	free(e->value);
	e->value = copy;
	e->len = len;
	*waiters = e->waiters;
	e->waiters = NULL;
	e->waiters_end = &e->waiters;
	return 0;
}

const void *kv_get(const struct kv *kv, const char *key, size_t key_len,
		   size_t *len)
{
	const struct entry *e = *find(kv, key, key_len);

	if (!e || !e->value)
		return NULL;
	*len = e->len;
	return e->value;
}

void kv_erase(struct kv *kv, const char *key, size_t key_len)
{
	struct entry **at = find(kv, key, key_len);

	if (*at && (*at)->value)
		unlink_entry(kv, at);
}

int kv_wait(struct kv *kv, const char *key, size_t key_len, int rank,
	    uint64_t id)
{
	struct kv_waiter *w = calloc(1, sizeof(*w));
	struct entry *e = w ? find_or_add(kv, key, key_len) : NULL;

	if (!e) {
		free(w);
		return -ENOMEM;
	}
	w->rank = rank;
	w->id = id;
	*e->waiters_end = w;
	e->waiters_end = &w->next;
	return 0;
}

void kv_cancel(struct kv *kv, const char *key, size_t key_len, int rank,
	       uint64_t id)
{
	struct entry **entry = find(kv, key, key_len), *e = *entry;
	struct kv_waiter **at, *w;

	if (!e)
		return;
	for (at = &e->waiters; (w = *at); at = &w->next)
		if (w->rank == rank && w->id == id) {
			*at = w->next;
			if (!w->next)
				e->waiters_end = at;
			free(w);
			break;
		}
	if (!e->waiters && !e->value)
		unlink_entry(kv, entry);
}
