/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A context's address, as it stands in the store under "c/<rank>/<index>":
 * its host, then per provider whether it is usable, and the provider's blob;
 * and the choice of the provider by it.
 */
#include "core.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ADDRESS_MAX (8 + PROVIDERS * (3 + BLOB_MAX))

void address_key(char *key, size_t room, int rank, int index)
{
	snprintf(key, room, INTERNAL_KEY "c/%d/%d", rank, index);
}

int address_publish(struct vbn_ctx *ctx, const struct blob *addresses)
{
	uint8_t value[ADDRESS_MAX], *p = value;
	char key[64];

	p = put_u64(p, ctx->job->host_id);
	memcpy(ctx->addresses, addresses, sizeof(ctx->addresses));
	for (int i = 0; i < PROVIDERS; i++) {
		*p++ = ctx->pctx[i] != NULL;
		p = put_u16(p, (uint16_t)addresses[i].len);
		memcpy(p, addresses[i].data, addresses[i].len);
		p += addresses[i].len;
	}
	address_key(key, sizeof(key), ctx->job->rank, ctx->index);
	return control_set(ctx->job->control, key, value, (size_t)(p - value),
			   ctx->job->timeout_ms);
}

/* Picks the peer's part; its host in *host. NULL: not usable there. */
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

/* Same host: shm; else verbs; else ucx. The job may force one. */
int address_choose(struct vbn_ctx *ctx, int rank, const uint8_t *value,
		   size_t len, enum provider_id *provider, struct blob *address,
		   char *why, size_t room)
{
	struct vbn_job *job = ctx->job;
	uint64_t host = 0;

	for (int i = 0; i < PROVIDERS; i++) {
		if (job->forced >= 0 && job->forced != i)
			continue;
		if (!ctx->pctx[i] || !address_of(value, len, i, &host, address))
			continue;
		if (i == PROVIDER_SHM && host != job->host_id)
			continue;
		*provider = (enum provider_id)i;
		return 0;
	}
	snprintf(why, room,
		 "no provider reaches rank %d from rank %d: shm needs one "
		 "host, user and network namespace; verbs here: %s; ucx here: "
		 "%s",
		 rank, job->rank,
		 ctx->pctx[PROVIDER_VERBS] ? "usable"
					   : job->providers[PROVIDER_VERBS].why,
		 ctx->pctx[PROVIDER_UCX] ? "usable"
					 : job->providers[PROVIDER_UCX].why);
	return -EHOSTUNREACH;
}
