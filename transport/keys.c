/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An endpoint's table of keys: which regions of its peer it can reach, and by
 * what. Open addressing, half full at most; a region's first place is found
 * inline by the operations (ops.c), all else is here. Places are never given
 * back, but their keys are.
 */
#include "core.h"

#include <errno.h>
#include <stdlib.h>

#define KEYS_FIRST    4		       /* a power of two */
#define NO_GENERATION (UINT32_MAX - 1) /* even: no region's in use */

struct ep_key keys_none[1];

/* The region's place, or where it goes. */
static struct ep_key *place_of(const struct vbn_ep *ep, uint32_t region)
{
	uint32_t i = region & ep->key_mask;

	while (ep->keys[i].id && (uint32_t)ep->keys[i].id != region)
		i = (i + 1) & ep->key_mask;
	return &ep->keys[i];
}

static int grow(struct vbn_ep *ep)
{
	uint32_t old = ep->nkeys ? ep->key_mask + 1 : 0;
	uint32_t n = old ? 2 * old : KEYS_FIRST;
	struct ep_key *keys = ep->keys;
	struct ep_key *grown = calloc(n, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	ep->keys = grown;
	ep->key_mask = n - 1;
	for (uint32_t i = 0; i < old; i++)
		if (keys[i].id)
			*place_of(ep, (uint32_t)keys[i].id) = keys[i];
	if (old)
		free(keys);
	return 0;
}

static struct ep_key *take_place(struct vbn_ep *ep, uint32_t region)
{
	struct ep_key *key = place_of(ep, region);

	if (key->id)
		return key;
	if (2 * (ep->nkeys + 1) > ep->key_mask + 1) {
		if (grow(ep))
			return NULL;
		key = place_of(ep, region);
	}
	ep->nkeys++;
	key->id = key_id(region, NO_GENERATION);
	return key;
}

static void detach(struct vbn_ep *ep, void *conn, struct ep_key *key)
{
	ep->last = (struct ep_last){.id = 0};
	if (!key->import)
		return;
	if (ep->ops->key_release)
		ep->ops->key_release(conn, key->key);
	import_put(key->import);
	*key = (struct ep_key){.id = key_id((uint32_t)key->id, NO_GENERATION)};
}

static int attach(struct vbn_ep *ep, const struct vbn_rkey *rkey,
		  struct import *import, struct ep_key *key)
{
	void *handle = import->handle ? import->handle : import->announce;
	int err = 0;

	detach(ep, ep->conn, key);
	if (ep->ops->key_attach)
		err = ep->ops->key_attach(ep->conn, import->announce,
					  import->handle, &handle);
	if (err)
		return err;
	*key = (struct ep_key){.id = key_id(rkey->region, rkey->generation),
			       .base = import->base,
			       .length = import->length,
			       .import = import,
			       .key = handle};
	return 0;
}

int key_find_slowly(struct vbn_ep *ep, const struct vbn_rkey *rkey,
		    const struct ep_key **out)
{
	struct ep_key *key = place_of(ep, rkey->region);
	struct import *import;
	int err;

	*out = key;
	if (key->id == key_id(rkey->region, rkey->generation))
		return 0;
	err = region_find(ep->ctx->job, ep->rank, ep->provider, rkey, &import);
	if (err)
		return err;
	*out = key = take_place(ep, rkey->region);
	err = key ? attach(ep, rkey, import, key)
		  : vbn_fail(-ENOMEM, "no memory for keys");
	if (err)
		import_put(import);
	return err;
}

void keys_detach_all(struct vbn_ep *ep, void *conn)
{
	for (uint32_t i = 0; i <= ep->key_mask; i++)
		detach(ep, conn, &ep->keys[i]);
}
