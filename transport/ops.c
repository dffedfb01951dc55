/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one-sided operations: checks, the key, then straight to the provider,
 * or to the pump when the length or the local memory does not allow it.
 */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Counted, so that a caller's stalls can be seen. */
static int again(struct vbn_ep *ep)
{
	ep->ctx->counters.again++;
	return -EAGAIN;
}

static int check_ep(struct vbn_ep *ep)
{
	int err = 0;

	if (ep->status || ep->idle)
		err = ep_usable(ep);
	if (err == -EAGAIN || (!err && ep->pump.op))
		return again(ep);
	return err;
}

static void taken(struct vbn_op *op, size_t bytes)
{
	op->status = -EINPROGRESS;
	op->wc = 0;
	op->vendor = 0;
	op->bytes = bytes;
}

/* The slow half of find_key(): a region's first use on this endpoint. */
static int attach_key(struct vbn_ep *ep, const struct vbn_rkey *rkey)
{
	struct import *import;
	struct ep_key *key;
	void *handle;
	int err;

	err = region_find(ep->ctx->job, ep->rank, ep->provider, rkey, &import);
	if (err)
		return err;
	if (rkey->region >= ep->nkeys) {
		uint32_t n = (rkey->region + 32) & ~15u;
		struct ep_key *keys =
			realloc(ep->keys, (size_t)n * sizeof(*keys));

		if (!keys) {
			import_put(import);
			return vbn_fail(-ENOMEM, "no memory for keys");
		}
		memset(keys + ep->nkeys, 0, (n - ep->nkeys) * sizeof(*keys));
		ep->keys = keys;
		ep->nkeys = n;
	}
	key = &ep->keys[rkey->region];
	ep_drop_key(ep, ep->conn, key);
	handle = import->handle ? import->handle : &import->announce;
	if (ep->ops->key_attach) {
		err = ep->ops->key_attach(ep->conn, &import->announce,
					  import->handle, &handle);
		if (err)
			return err;
	}
	*key = (struct ep_key){.generation = rkey->generation,
			       .base = import->base,
			       .length = import->length,
			       .import = import,
			       .key = handle};
	return 0;
}

/* Checks the window and finds the provider's key and the address. */
static int find_key(struct vbn_ep *ep, const struct vbn_rkey *rkey,
		    uint64_t offset, size_t len, void **handle,
		    uint64_t *remote)
{
	struct ep_key *key;

	if (offset > rkey->length || len > rkey->length - offset)
		return vbn_fail(-EINVAL,
				"offset %llu + %zu bytes is outside the key's "
				"window of %llu bytes",
				(unsigned long long)offset, len,
				(unsigned long long)rkey->length);
	if (rkey->region >= ep->nkeys || !rkey->generation ||
	    ep->keys[rkey->region].generation != rkey->generation) {
		int err = attach_key(ep, rkey);

		if (err)
			return err == -EAGAIN ? again(ep) : err;
	}
	key = &ep->keys[rkey->region];
	if (rkey->base < key->base || rkey->length > key->length ||
	    rkey->base - key->base > key->length - rkey->length)
		return vbn_fail(-EKEYREJECTED,
				"the key's window is outside region %u of "
				"rank %d",
				rkey->region, ep->rank);
	*handle = key->key;
	*remote = rkey->base + offset;
	return 0;
}

static const struct vbn_mem *local_mem(struct vbn_ep *ep, const void *local,
				       size_t len)
{
	return memmap_find(ep->ctx->reader, local, len);
}

static bool is_direct(const struct vbn_ep *ep, const struct vbn_mem *mem,
		      size_t len)
{
	const struct provider_caps *caps =
		&ep->ctx->job->providers[ep->provider].caps;

	return (mem || caps->any_local) && len <= caps->max_piece;
}

static int start_put(struct vbn_ep *ep, struct vbn_op *op, const void *local,
		     size_t len, const struct vbn_rkey *rkey, uint64_t offset,
		     bool notify, uint32_t imm, unsigned flags)
{
	struct put_args args = {
		.notify = notify, .imm = imm, .more = flags & VBN_MORE};
	bool any_local;
	int err;

	err = check_ep(ep);
	if (err)
		return err;
	if (notify && !ep->tx_credits)
		return again(ep);
	if (len) {
		any_local =
			ep->ctx->job->providers[ep->provider].caps.any_local;
		err = find_key(ep, rkey, offset, len, &args.key, &args.remote);
		if (err)
			return err;
		args.local = local;
		args.len = len;
		args.mem = any_local ? NULL : local_mem(ep, local, len);
		if (args.mem)
			args.mem_handle = args.mem->handles[ep->provider];
	}
	if (!len || is_direct(ep, args.mem, len)) {
		err = ep->ops->put(ep->conn, op, &args);
		if (err)
			return err == -EAGAIN ? again(ep) : err;
		taken(op, len);
	} else {
		taken(op, len);
		ep->pump = (struct pump){.op = op,
					 .notify = notify,
					 .imm = imm,
					 .local = (char *)(uintptr_t)local,
					 .len = len,
					 .mem = args.mem,
					 .remote = args.remote,
					 .key = args.key};
		pump_start(ep);
	}
	if (notify)
		ep->tx_credits--;
	return 0;
}

int vbn_put(struct vbn_ep *ep, struct vbn_op *op, const void *local, size_t len,
	    const struct vbn_rkey *rkey, uint64_t offset, unsigned flags)
{
	int err;

	if (!op || (len && (!local || !rkey)))
		return vbn_fail(-EINVAL, "put needs an op, memory and a key");
	err = start_put(ep, op, local, len, rkey, offset, false, 0, flags);
	if (!err) {
		ep->ctx->counters.puts++;
		ep->ctx->counters.put_bytes += len;
	}
	return err;
}

int vbn_put_notify(struct vbn_ep *ep, struct vbn_op *op, const void *local,
		   size_t len, const struct vbn_rkey *rkey, uint64_t offset,
		   unsigned channel, uint32_t value, unsigned flags)
{
	int err;

	if (!op || (len && (!local || !rkey)))
		return vbn_fail(-EINVAL, "put needs an op, memory and a key");
	if (channel < 1 || channel >= VBN_CHANNELS || value > VBN_NOTIFY_MAX)
		return vbn_fail(-EINVAL,
				"notify channel %u (1..%d), value 0x%x (28 "
				"bits)",
				channel, VBN_CHANNELS - 1, value);
	err = start_put(ep, op, local, len, rkey, offset, true,
			channel << 28 | value, flags);
	if (!err) {
		ep->ctx->counters.notifies++;
		ep->ctx->counters.put_bytes += len;
	}
	return err;
}

int ops_get(struct vbn_ep *ep, struct vbn_op *op, void *local, size_t len,
	    const struct vbn_rkey *rkey, uint64_t offset, unsigned flags)
{
	struct get_args args = {
		.local = local, .len = len, .more = flags & VBN_MORE};
	int err;

	err = check_ep(ep);
	if (err)
		return err;
	if (!len) {
		taken(op, 0);
		core_defer(ep->ctx, op, 0);
		return 0;
	}
	err = find_key(ep, rkey, offset, len, &args.key, &args.remote);
	if (err)
		return err;
	if (!ep->ctx->job->providers[ep->provider].caps.any_local)
		args.mem = local_mem(ep, local, len);
	if (args.mem)
		args.mem_handle = args.mem->handles[ep->provider];
	if (is_direct(ep, args.mem, len)) {
		err = ep->ops->get(ep->conn, op, &args);
		if (err)
			return err == -EAGAIN ? again(ep) : err;
		taken(op, len);
		return 0;
	}
	taken(op, len);
	ep->pump = (struct pump){.op = op,
				 .is_get = true,
				 .local = local,
				 .len = len,
				 .mem = args.mem,
				 .remote = args.remote,
				 .key = args.key};
	pump_start(ep);
	return 0;
}

int vbn_get(struct vbn_ep *ep, struct vbn_op *op, void *local, size_t len,
	    const struct vbn_rkey *rkey, uint64_t offset, unsigned flags)
{
	int err;

	if (!op || (len && (!local || !rkey)))
		return vbn_fail(-EINVAL, "get needs an op, memory and a key");
	err = ops_get(ep, op, local, len, rkey, offset, flags);
	if (!err) {
		ep->ctx->counters.gets++;
		ep->ctx->counters.get_bytes += len;
	}
	return err;
}

static int start_atomic(struct vbn_ep *ep, struct vbn_op *op,
			struct atomic_args *args, const struct vbn_rkey *rkey,
			uint64_t offset)
{
	int err;

	if (!op || !rkey)
		return vbn_fail(-EINVAL, "an atomic needs an op and a key");
	err = check_ep(ep);
	if (err)
		return err;
	if (!ep->ops->atomic)
		return vbn_fail(-EOPNOTSUPP, "%s has no atomics here",
				ep->ops->name);
	err = find_key(ep, rkey, offset, 8, &args->key, &args->remote);
	if (err)
		return err;
	if (args->remote & 7)
		return vbn_fail(-EINVAL, "an atomic's address is a multiple "
					 "of 8");
	err = ep->ops->atomic(ep->conn, op, args);
	if (err == -ENXIO)
		err = atomic_ask(ep, op, args);
	if (err)
		return err == -EAGAIN ? again(ep) : err;
	taken(op, 8);
	ep->ctx->counters.atomics++;
	return 0;
}

int vbn_fetch_add(struct vbn_ep *ep, struct vbn_op *op, uint64_t *result,
		  uint64_t add, const struct vbn_rkey *rkey, uint64_t offset,
		  unsigned flags)
{
	struct atomic_args args = {
		.operand = add, .result = result, .more = flags & VBN_MORE};

	return start_atomic(ep, op, &args, rkey, offset);
}

int vbn_compare_swap(struct vbn_ep *ep, struct vbn_op *op, uint64_t *result,
		     uint64_t compare, uint64_t swap,
		     const struct vbn_rkey *rkey, uint64_t offset,
		     unsigned flags)
{
	struct atomic_args args = {.compare_swap = true,
				   .compare = compare,
				   .operand = swap,
				   .result = result,
				   .more = flags & VBN_MORE};

	return start_atomic(ep, op, &args, rkey, offset);
}

int vbn_flush(struct vbn_ep *ep, struct vbn_op *op)
{
	int err;

	if (!op)
		return vbn_fail(-EINVAL, "a flush needs an op");
	err = check_ep(ep);
	if (err)
		return err;
	err = ep->ops->flush(ep->conn, op);
	if (err)
		return err == -EAGAIN ? again(ep) : err;
	taken(op, 0);
	return 0;
}
