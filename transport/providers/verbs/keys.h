/* SPDX-License-Identifier: BSD-3-Clause */
/* Keys of registered memory, ours and the peer's, by the rail of a lane. */
#ifndef VBN_VERBS_KEYS_H
#define VBN_VERBS_KEYS_H

#include "slots.h"

/* Why a region's announcement does not do. Returns -errno with vbn_fail(). */
int post_refuse_key(const struct blob *blob, unsigned access);

static inline uint32_t key_of(const struct lane *lane, const struct blob *blob)
{
	const struct announcement *in = (const void *)blob->data;

	return in->rkey[lane->peer_rail];
}

static inline uint32_t lkey_of(const struct lane *lane, const void *mem_handle)
{
	const struct registration *mr = mem_handle;

	return mr->lkey[lane->rail];
}

/* The key is the region's announcement. */
static inline int rkey_of(const struct lane *lane, const struct blob *blob,
			  unsigned access, uint32_t *rkey)
{
	const struct announcement *in = (const void *)blob->data;

	if (blob->len < sizeof(*in) + sizeof(in->rkey[0]) ||
	    !(in->access & access))
		return post_refuse_key(blob, access);
	*rkey = in->rkey[lane->peer_rail];
	return 0;
}

#endif
