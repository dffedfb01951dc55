/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The one-sided operations: checks, the key, then straight to the provider,
 * or to the pump when the length or the local memory does not allow it.
 */
#include "core.h"

#include <errno.h>

/* Counted, so that a caller's stalls can be seen. */
static int again(struct vbn_ep *ep)
{
	ep->ctx->counters.again++;
	return -EAGAIN;
}

static __attribute__((noinline)) int not_ready(struct vbn_ep *ep)
{
	int err = ep_usable(ep);

	return !err || err == -EAGAIN ? again(ep) : err;
}

/* An endpoint is connected, and not idle, exactly when its status is 0. */
static inline int check_ep(struct vbn_ep *ep)
{
	return ep->status || ep->pump.op ? not_ready(ep) : 0;
}

static __attribute__((noinline)) int refused(struct vbn_ep *ep, int err)
{
	return err == -EAGAIN ? again(ep) : err;
}

static __attribute__((noinline)) int outside_window(const struct vbn_rkey *rkey,
						    uint64_t offset, size_t len)
{
	return vbn_fail(-EINVAL,
			"offset %llu + %zu bytes is outside the key's window "
			"of %llu bytes",
			(unsigned long long)offset, len,
			(unsigned long long)rkey->length);
}

static __attribute__((noinline)) int outside_region(const struct vbn_ep *ep,
						    const struct vbn_rkey *rkey)
{
	return vbn_fail(-EKEYREJECTED,
			"the key's window is outside region %u of rank %d",
			rkey->region, ep->rank);
}

/* Checks the window and finds the provider's key and the address. */
static inline int find_key(struct vbn_ep *ep, const struct vbn_rkey *rkey,
			   uint64_t offset, size_t len, void **handle,
			   uint64_t *remote)
{
	const struct ep_key *key = &ep->keys[rkey->region & ep->key_mask];
	uint64_t at;

	if (offset > rkey->length || len > rkey->length - offset)
		return outside_window(rkey, offset, len);
	if (key->id != key_id(rkey->region, rkey->generation)) {
		int err = key_find_slowly(ep, rkey, &key);

		if (err)
			return refused(ep, err);
	}
	at = rkey->base - key->base; /* huge when it begins before the region */
	if (at > key->length || rkey->length > key->length - at)
		return outside_region(ep, rkey);
	*handle = key->key;
	*remote = rkey->base + offset;
	return 0;
}

static const struct vbn_mem *local_mem(struct vbn_ep *ep, const void *local,
				       size_t len)
{
	return memmap_find(ep->ctx->reader, local, len);
}

static __attribute__((noinline)) int put_by_pump(struct vbn_ep *ep,
						 struct vbn_op *op,
						 const struct put_args *args)
{
	ep->pump = (struct pump){.op = op,
				 .notify = args->notify,
				 .imm = args->imm,
				 .local = (char *)(uintptr_t)args->local,
				 .len = args->len,
				 .mem = args->mem,
				 .remote = args->remote,
				 .key = args->key};
	pump_start(ep);
	return 0;
}

/* A put on its way to the provider. */
struct posting {
	struct put_args args;
	struct vbn_ep *ep;
	struct vbn_op *op;
};

/* The provider did not take what was counted already. */
static __attribute__((noinline)) int put_refused(const struct posting *p,
						 int err)
{
	struct vbn_counters *counters = &p->ep->ctx->counters;

	p->op->status = err;
	counters->put_bytes -= p->args.len;
	counters->puts -= !p->args.notify;
	counters->notifies -= p->args.notify;
	p->ep->tx_credits += p->args.notify;
	return refused(p->ep, err);
}

/* Whether it goes in one post from where it is; finds the local memory. */
static inline bool is_direct(struct vbn_ep *ep, struct put_args *args)
{
	const struct provider_caps *caps = ep->caps;

	args->mem = NULL;
	args->mem_handle = NULL;
	if (args->len <= caps->inline_max)
		return true;
	if (caps->any_local)
		return args->len <= caps->max_piece;
	args->mem = local_mem(ep, args->local, args->len);
	if (!args->mem)
		return false;
	args->mem_handle = args->mem->handles[ep->provider];
	return args->len <= caps->max_piece;
}

static inline void count_put(struct posting *p, bool notify)
{
	struct vbn_counters *counters = &p->ep->ctx->counters;

	op_begin(p->op, p->args.len);
	counters->put_bytes += p->args.len;
	counters->puts += !notify;
	counters->notifies += notify;
	p->ep->tx_credits -= notify;
}

/* All the checks in turn, each with its error. */
static __attribute__((noinline)) int put_slowly(struct posting *p,
						const struct vbn_rkey *rkey,
						uint64_t offset)
{
	struct put_args *args = &p->args;
	struct vbn_ep *ep = p->ep;
	int err;

	if (!p->op || (args->len && (!args->local || !rkey)))
		return vbn_fail(-EINVAL, "put needs an op, memory and a key");
	err = check_ep(ep);
	if (err)
		return err;
	if (args->notify && !ep->tx_credits)
		return again(ep);
	if (args->len) {
		err = find_key(ep, rkey, offset, args->len, &args->key,
			       &args->remote);
		if (err)
			return err;
	}
	count_put(p, args->notify);
	if (!is_direct(ep, args))
		return put_by_pump(ep, p->op, args);
	err = ep->ops->put(ep->conn, p->op, args);
	return err ? put_refused(p, err) : 0;
}

/*
 * Whether nothing stands in the way of one post, nor has to be looked up by a
 * call; then it is ready for it. In few instructions: this is what a small put
 * costs above the provider's own work.
 */
static inline __attribute__((always_inline)) bool is_plain(
	struct posting *p, const struct vbn_rkey *rkey, uint64_t offset)
{
	const struct vbn_ep *ep = p->ep;
	size_t len = p->args.len;
	const struct ep_key *key;
	uint64_t at;

	if (!p->op || ep->status || ep->pump.op)
		return false;
	p->args.mem = NULL;
	p->args.mem_handle = NULL;
	if (!len)
		return true;
	if (!p->args.local || !rkey || offset > rkey->length ||
	    len > rkey->length - offset || len > ep->plain_max)
		return false;
	key = &ep->keys[rkey->region & ep->key_mask];
	if (key->id != key_id(rkey->region, rkey->generation))
		return false;
	at = rkey->base - key->base;
	if (at > key->length || rkey->length > key->length - at)
		return false;
	p->args.key = key->key;
	p->args.remote = rkey->base + offset;
	return true;
}

/* Whether the quick way may be next time: @p is what it takes, but its key. */
static bool learn(struct vbn_ep *ep, const struct posting *p,
		  const struct vbn_rkey *rkey)
{
	if (p->args.more || p->args.len - 1 >= ep->quick->max ||
	    !ep->quick->key(p->args.key, &ep->last.key))
		return false;
	ep->last.id = key_id(rkey->region, rkey->generation);
	ep->last.base = rkey->base;
	ep->last.length = rkey->length;
	return true;
}

static inline __attribute__((always_inline)) int put_any(
	struct vbn_ep *ep, struct vbn_op *op, const void *local, size_t len,
	const struct vbn_rkey *rkey, uint64_t offset, unsigned more)
{
	struct posting p;
	int err;

	p.ep = ep;
	p.op = op;
	p.args.local = local;
	p.args.len = len;
	p.args.notify = false;
	p.args.more = more;
	if (!is_plain(&p, rkey, offset))
		return put_slowly(&p, rkey, offset);
	if (learn(ep, &p, rkey))
		return ep->quick->put(ep->quick, op, local, len, ep->last.key,
				      p.args.remote);
	count_put(&p, false);
	err = ep->ops->put(ep->conn, op, &p.args);
	return __builtin_expect(err, 0) ? put_refused(&p, err) : 0;
}

static __attribute__((noinline)) int put_more(struct vbn_ep *ep,
					      struct vbn_op *op,
					      const void *local, size_t len,
					      const struct vbn_rkey *rkey,
					      uint64_t offset)
{
	return put_any(ep, op, local, len, rkey, offset, VBN_MORE);
}

static __attribute__((noinline)) int put_now(struct vbn_ep *ep,
					     struct vbn_op *op,
					     const void *local, size_t len,
					     const struct vbn_rkey *rkey,
					     uint64_t offset)
{
	return put_any(ep, op, local, len, rkey, offset, 0);
}

/* All it calls it calls last, with what is in registers: it needs no frame. */
int vbn_put(struct vbn_ep *ep, struct vbn_op *op, const void *local, size_t len,
	    const struct vbn_rkey *rkey, uint64_t offset, unsigned flags)
{
	struct quick *quick;

	if (flags & VBN_MORE)
		return put_more(ep, op, local, len, rkey, offset);
	/*
	 * No len 0, which is above all when 1 is taken from it. What is NULL
	 * is asked between what is loaded: asked together, it takes registers.
	 */
	if (!rkey || key_id(rkey->region, rkey->generation) != ep->last.id ||
	    !op || len - 1 >= ep->quick->max || !local ||
	    rkey->length != ep->last.length || offset > rkey->length ||
	    len > rkey->length - offset || rkey->base != ep->last.base)
		return put_now(ep, op, local, len, rkey, offset);
	offset += rkey->base;
	quick = ep->quick;
	return quick->put(quick, op, local, len, ep->last.key, offset);
}

int vbn_put_notify(struct vbn_ep *ep, struct vbn_op *op, const void *local,
		   size_t len, const struct vbn_rkey *rkey, uint64_t offset,
		   unsigned channel, uint32_t value, unsigned flags)
{
	struct posting p;
	int err;

	if (channel < 1 || channel >= VBN_CHANNELS || value > VBN_NOTIFY_MAX)
		return vbn_fail(-EINVAL,
				"notify channel %u (1..%d), value 0x%x (28 "
				"bits)",
				channel, VBN_CHANNELS - 1, value);
	p.ep = ep;
	p.op = op;
	p.args.local = local;
	p.args.len = len;
	p.args.notify = true;
	p.args.imm = channel << 28 | value;
	p.args.more = flags & VBN_MORE;
	if (!ep->tx_credits || !is_plain(&p, rkey, offset))
		return put_slowly(&p, rkey, offset);
	count_put(&p, true);
	err = ep->ops->put(ep->conn, op, &p.args);
	return __builtin_expect(err, 0) ? put_refused(&p, err) : 0;
}

static __attribute__((noinline)) int get_by_pump(struct vbn_ep *ep,
						 struct vbn_op *op,
						 const struct get_args *args)
{
	ep->pump = (struct pump){.op = op,
				 .is_get = true,
				 .local = args->local,
				 .len = args->len,
				 .mem = args->mem,
				 .remote = args->remote,
				 .key = args->key};
	pump_start(ep);
	return 0;
}

static inline __attribute__((always_inline)) int get(
	struct vbn_ep *ep, struct vbn_op *op, void *local, size_t len,
	const struct vbn_rkey *rkey, uint64_t offset, unsigned flags)
{
	const struct provider_caps *caps = ep->caps;
	struct get_args args;
	int err = check_ep(ep);

	if (err)
		return err;
	if (!len) {
		op_begin(op, 0);
		core_defer(ep->ctx, op, 0);
		return 0;
	}
	err = find_key(ep, rkey, offset, len, &args.key, &args.remote);
	if (err)
		return err;
	args.local = local;
	args.len = len;
	args.more = (flags & VBN_MORE) != 0;
	args.mem = caps->any_local ? NULL : local_mem(ep, local, len);
	args.mem_handle = args.mem ? args.mem->handles[ep->provider] : NULL;
	op_begin(op, len);
	if ((!args.mem && !caps->any_local) || len > caps->max_piece)
		return get_by_pump(ep, op, &args);
	err = ep->ops->get(ep->conn, op, &args);
	if (!err)
		return 0;
	op->status = err;
	return refused(ep, err);
}

int ops_get(struct vbn_ep *ep, struct vbn_op *op, void *local, size_t len,
	    const struct vbn_rkey *rkey, uint64_t offset, unsigned flags)
{
	return get(ep, op, local, len, rkey, offset, flags);
}

int vbn_get(struct vbn_ep *ep, struct vbn_op *op, void *local, size_t len,
	    const struct vbn_rkey *rkey, uint64_t offset, unsigned flags)
{
	int err;

	if (!op || (len && (!local || !rkey)))
		return vbn_fail(-EINVAL, "get needs an op, memory and a key");
	err = get(ep, op, local, len, rkey, offset, flags);
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
		return refused(ep, err);
	op_begin(op, 8);
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
		return refused(ep, err);
	op_begin(op, 0);
	return 0;
}
