/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer's memory in this process, for plain loads and stores. */
#include "core.h"

#include <errno.h>

static const struct ep_key *known_key(const struct vbn_ep *ep,
				      const struct vbn_rkey *rkey)
{
	const struct ep_key *key = &ep->keys[rkey->region & ep->key_mask];
	uint64_t id = key_id(rkey->region, rkey->generation);

	return key->id == id ? key : NULL;
}

static bool is_within(uint64_t at, uint64_t len, uint64_t length)
{
	return at <= length && len <= length - at;
}

/* Over a provider that maps nothing, one's own memory is there all the same. */
static int map_own(struct vbn_ep *ep, const struct vbn_rkey *rkey,
		   uint64_t addr, size_t len, void **ptr)
{
	void *place = (void *)(uintptr_t)addr;
	const struct vbn_mem *mem =
		memmap_find(ep->ctx->reader, place, len ? len : 1);

	if (!mem)
		return vbn_fail(-EACCES, "region %u is not registered any more",
				rkey->region);
	if (mem->region != rkey->region || mem->generation != rkey->generation)
		return -EOPNOTSUPP; /* another registration is in its place */
	if (!(mem->access & VBN_ACCESS_READ))
		return vbn_fail(-EACCES,
				"region %u is not open for reading "
				"(VBN_ACCESS_READ)",
				rkey->region);
	*ptr = place;
	return 0;
}

int vbn_rkey_map(struct vbn_ep *ep, const struct vbn_rkey *rkey,
		 uint64_t offset, size_t len, void **ptr)
{
	const struct ep_key *key;
	int err;

	if (!rkey || !ptr)
		return vbn_fail(-EINVAL, "a map needs a key and a pointer");
	err = ep->status ? ep_usable(ep) : 0;
	if (err)
		return err;
	if (!ep->ops->map && ep->rank != ep->ctx->job->rank)
		return -EOPNOTSUPP;
	if (!is_within(offset, len, rkey->length))
		return vbn_fail(-EINVAL,
				"offset %llu + %zu bytes is outside the key's "
				"window of %llu bytes",
				(unsigned long long)offset, len,
				(unsigned long long)rkey->length);
	key = known_key(ep, rkey);
	if (!key)
		err = key_find_slowly(ep, rkey, &key);
	if (err)
		return err;
	if (!is_within(rkey->base - key->base, rkey->length, key->length))
		return vbn_fail(-EKEYREJECTED,
				"the key's window is outside region %u of rank "
				"%d",
				rkey->region, ep->rank);
	if (!ep->ops->map)
		return map_own(ep, rkey, rkey->base + offset, len, ptr);
	return ep->ops->map(ep->conn, key->key, rkey->base + offset, ptr);
}
