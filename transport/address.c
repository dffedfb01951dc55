/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context's address, as it stands in the store under "c/<rank>/<index>":
 * its host, then per provider whether it is usable, and the provider's blob;
 * the choice of the provider by it; and the connections' numbers.
 */
#include "core.h"
#include "wire.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define ADDRESS_MAX (8 + PROVIDERS * (3 + BLOB_MAX))

void address_key(char *key, size_t room, int rank, int index)
{
	snprintf(key, room, INTERNAL_KEY "c/%d/%d", rank, index);
}

/* Under the job's lock. Returns the length. */
static size_t encode(const struct vbn_ctx *ctx, uint8_t *value)
{
	uint8_t *p = put_u64(value, ctx->job->host_id);

	for (int i = 0; i < PROVIDERS; i++) {
		const struct blob *a = &ctx->addresses[i];

		*p++ = ctx->pctx[i] != NULL;
		p = put_u16(p, (uint16_t)a->len);
		memcpy(p, a->data, a->len);
		p += a->len;
	}
	return (size_t)(p - value);
}

/* An address that changes meanwhile is the one that stays. */
int address_publish(struct vbn_ctx *ctx, const struct blob *addresses)
{
	struct vbn_job *job = ctx->job;
	uint8_t value[ADDRESS_MAX];
	bool changed = true;
	char key[64];
	int err = 0;

	address_key(key, sizeof(key), job->rank, ctx->index);
	pthread_mutex_lock(&job->lock);
	for (int i = 0; i < PROVIDERS; i++)
		if (!ctx->addresses[i].len)
			ctx->addresses[i] = addresses[i];
	while (!err && changed) {
		unsigned seen = ctx->readdressed;
		size_t len = encode(ctx, value);

		pthread_mutex_unlock(&job->lock);
		err = control_set(job->control, key, value, len,
				  job->timeout_ms);
		pthread_mutex_lock(&job->lock);
		changed = seen != ctx->readdressed;
	}
	pthread_mutex_unlock(&job->lock);
	return err;
}

void core_readdress(struct vbn_ctx *ctx, enum provider_id provider,
		    const struct blob *address)
{
	struct vbn_job *job = ctx->job;
	uint8_t value[ADDRESS_MAX];
	char key[64];
	bool visible;
	size_t len = 0;

	pthread_mutex_lock(&job->lock);
	ctx->addresses[provider] = *address;
	ctx->readdressed++;
	visible = job->ctxs[ctx->index] == ctx;
	if (visible)
		len = encode(ctx, value);
	pthread_mutex_unlock(&job->lock);
	address_key(key, sizeof(key), job->rank, ctx->index);
	if (visible && control_publish(job->control, key, value, len))
		vbn_log(VBN_WARN, "rank %d: %s", job->rank, vbn_error());
}

/* Picks the peer's part; its host in *host. false: not usable there. */
static bool address_of(const uint8_t *p, size_t len, int provider,
		       uint64_t *host, struct blob *address)
{
	const uint8_t *end = p + len;

	if (len < 8)
		return false;
	*host = get_u64(p);
	p += 8;
	for (int i = 0; i < PROVIDERS; i++) {
		bool usable;
		size_t n;

		if (end - p < 3)
			return false;
		usable = *p;
		n = get_u16(p + 1);
		p += 3;
		if (n > BLOB_MAX || n > (size_t)(end - p))
			return false;
		if (i == provider) {
			address->len = n;
			memcpy(address->data, p, n);
			return usable;
		}
		p += n;
	}
	return false;
}

/* Why a provider was passed over. */
static const char *why_not(const struct vbn_ctx *ctx, enum provider_id provider,
			   const char *unreachable)
{
	if (!ctx->pctx[provider])
		return ctx_why_without(ctx, provider);
	return unreachable[0] ? unreachable : "not usable there";
}

/*
 * Same host: shm; else verbs, where the two ports can talk; else ucx. The job
 * may force one.
 */
int address_choose(struct vbn_ctx *ctx, const struct conn_info *info,
		   const uint8_t *value, size_t len, enum provider_id *provider,
		   struct blob *address, char *why, size_t room)
{
	struct vbn_job *job = ctx->job;
	char unreachable[PROVIDERS][256] = {""};
	uint64_t host = 0;
	int err = -EHOSTUNREACH;

	for (int i = 0; i < PROVIDERS; i++) {
		const struct provider *ops = job->providers[i].ops;
		int reached = 0;

		if (job->forced >= 0 && job->forced != i)
			continue;
		if (!ctx->pctx[i] || !address_of(value, len, i, &host, address))
			continue;
		if (i == PROVIDER_SHM && host != job->host_id)
			continue;
		if (ops->reaches)
			reached = ops->reaches(ctx->pctx[i], info, address);
		if (!reached) {
			*provider = (enum provider_id)i;
			return 0;
		}
		err = reached;
		snprintf(unreachable[i], sizeof(unreachable[i]), "%s",
			 vbn_error());
	}
	snprintf(why, room,
		 "no provider reaches rank %d from rank %d: shm needs one "
		 "host, user and network namespace; verbs: %s; ucx: %s",
		 info->rank, job->rank,
		 why_not(ctx, PROVIDER_VERBS, unreachable[PROVIDER_VERBS]),
		 why_not(ctx, PROVIDER_UCX, unreachable[PROVIDER_UCX]));
	return err;
}

uint64_t connect_generation(void)
{
	static uint64_t
		last; /* control threads of several jobs: hence atomic */
	uint64_t fresh = 0;

	if (!__atomic_load_n(&last, __ATOMIC_RELAXED)) {
		randombytes_buf(&fresh, sizeof(fresh));
		fresh = fresh >> 16 | 1;
		__atomic_fetch_add(&last, fresh, __ATOMIC_RELAXED);
	}
	return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}
