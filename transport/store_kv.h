/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store's keys and values, and who waits for a key that is not there
 * yet. Plain data: no thread, no I/O.
 */
#ifndef VBN_STORE_KV_H
#define VBN_STORE_KV_H

#include <stddef.h>
#include <stdint.h>

struct kv;

/* Rank @rank's request @id waits for a key. */
struct kv_waiter {
	struct kv_waiter *next;
	int rank;
	uint64_t id;
};

struct kv *kv_create(void);
void kv_destroy(struct kv *kv);

/*
 * Set; *waiters are those who waited, oldest first, for the caller to answer
 * and free(). -ENOMEM: nothing has changed.
 */
int kv_set(struct kv *kv, const char *key, size_t key_len, const void *value,
	   size_t len, struct kv_waiter **waiters);
/* NULL: absent. Valid until the key is set or erased. */
const void *kv_get(const struct kv *kv, const char *key, size_t key_len,
		   size_t *len);
void kv_erase(struct kv *kv, const char *key, size_t key_len);
/* The key is absent. -ENOMEM. */
int kv_wait(struct kv *kv, const char *key, size_t key_len, int rank,
	    uint64_t id);
void kv_cancel(struct kv *kv, const char *key, size_t key_len, int rank,
	       uint64_t id);

#endif
