/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Registrations: one vbn_mem per piece of memory, registered with every
 * usable provider, announced in the store under "m/<rank>/<region>" when
 * peers may access it, and entered into the map last, so that what the map
 * shows is complete. A region number is reused with a higher generation.
 */
#include "core.h"
#include "limit.h"
#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ANNOUNCE_MAX (20 + PROVIDERS * (2 + BLOB_MAX))
/* Pinned in each job that uses a device: small. Two contexts' stages. */
#define STAGING_SLAB ((size_t)2 << 20)

static int take_region(struct vbn_job *job, struct vbn_mem *mem)
{
	int err = -ENOSPC;

	pthread_mutex_lock(&job->lock);
	for (uint32_t i = 0; i < REGION_MAX; i++) {
		uint32_t region = (job->region_hint + i) % REGION_MAX;

		if (job->generations[region] & 1)
			continue;
		mem->region = region;
		mem->generation = ++job->generations[region];
		job->region_hint = region + 1;
		err = 0;
		break;
	}
	pthread_mutex_unlock(&job->lock);
	if (err)
		vbn_fail(err, "%d registrations are open, the most there are",
			 REGION_MAX);
	return err;
}

static void give_region(struct vbn_job *job, const struct vbn_mem *mem)
{
	pthread_mutex_lock(&job->lock);
	job->generations[mem->region]++;
	/* The lowest is taken next: peers then let go of the old one. */
	if (mem->region < job->region_hint)
		job->region_hint = mem->region;
	pthread_mutex_unlock(&job->lock);
}

static void region_name(char *key, size_t room, int rank, uint32_t region)
{
	snprintf(key, room, INTERNAL_KEY "m/%d/%u", rank, region);
}

static void unregister_all(struct vbn_mem *mem)
{
	for (int i = 0; i < PROVIDERS; i++) {
		const struct job_provider *p = &mem->job->providers[i];

		if (p->pjob && mem->handles[i])
			p->ops->mem_deregister(p->pjob, mem->handles[i]);
		mem->handles[i] = NULL;
	}
}

/* Providers whose registrations are pinned: those of a device. */
static unsigned pinning(const struct vbn_job *job)
{
	unsigned n = 0;

	for (int i = 0; i < PROVIDERS; i++)
		n += job->providers[i].pjob &&
		     !job->providers[i].caps.any_local;
	return n;
}

/* What a device's driver would only call "out of memory". */
static int check_limits(const struct vbn_mem *mem)
{
	unsigned devices = pinning(mem->job);
	int err;

	if (!devices)
		return 0;
	err = limits_check_pinned("registration", mem->len, devices);
	return err ? err : limits_check_maps("registration");
}

/* Registers with each provider, collecting the announcement. */
static int register_all(struct vbn_mem *mem, uint8_t *value, size_t *len)
{
	uint8_t *p = value;
	struct blob blob;
	int err;

	p = put_u32(p, mem->generation);
	p = put_u64(p, (uintptr_t)mem->addr);
	p = put_u64(p, mem->len);
	for (int i = 0; i < PROVIDERS; i++) {
		const struct job_provider *jp = &mem->job->providers[i];

		blob.len = 0;
		if (jp->pjob) {
			err = jp->ops->mem_register(jp->pjob, mem,
						    &mem->handles[i], &blob);
			if (err) {
				mem->handles[i] = NULL;
				unregister_all(mem);
				return err;
			}
		}
		p = put_u16(p, (uint16_t)blob.len);
		memcpy(p, blob.data, blob.len);
		p += blob.len;
	}
	*len = (size_t)(p - value);
	return 0;
}

static void free_mem(struct vbn_mem *mem)
{
	free(mem);
}

int mem_register(struct vbn_job *job, void *addr, size_t len, unsigned access,
		 int fd, uint64_t offset, struct vbn_pool *pool,
		 struct vbn_mem **out)
{
	uint8_t value[ANNOUNCE_MAX];
	struct vbn_mem *mem;
	char key[64];
	size_t n;
	int err;

	mem = calloc(1, sizeof(*mem));
	if (!mem)
		return vbn_fail(-ENOMEM, "no memory for a registration");
	*mem = (struct vbn_mem){.job = job,
				.addr = addr,
				.len = len,
				.access = access,
				.fd = fd,
				.offset = offset,
				.pool = pool};
	err = take_region(job, mem);
	if (err)
		goto free;
	err = check_limits(mem);
	if (!err)
		err = register_all(mem, value, &n);
	if (err)
		goto give;
	region_name(key, sizeof(key), job->rank, mem->region);
	if (access != VBN_ACCESS_LOCAL) {
		err = control_set(job->control, key, value, n, job->timeout_ms);
		if (err)
			goto unregister;
	}
	err = memmap_insert(job->map, mem);
	if (err)
		goto erase;
	*out = mem;
	return 0;

erase:
	if (access != VBN_ACCESS_LOCAL)
		control_erase(job->control, key, job->timeout_ms);
unregister:
	unregister_all(mem);
give:
	give_region(job, mem);
free:
	free(mem);
	return err;
}

void mem_deregister(struct vbn_mem *mem)
{
	struct vbn_job *job = mem->job;
	char key[64];

	if (mem->access != VBN_ACCESS_LOCAL) {
		region_name(key, sizeof(key), job->rank, mem->region);
		/* Best effort: the store may be gone. */
		control_erase(job->control, key, job->timeout_ms);
	}
	unregister_all(mem);
	give_region(job, mem);
	memmap_remove(job->map, mem, free_mem);
	ctx_unmapped_all(job);
}

int vbn_mem_register(struct vbn_mem **mem, struct vbn_job *job, void *addr,
		     size_t len, unsigned access)
{
	int err;

	if (!addr || !len || (access & ~VBN_ACCESS_ALL) ||
	    (uintptr_t)addr + len < (uintptr_t)addr)
		return vbn_fail(-EINVAL,
				"memory to register: address %p, "
				"%zu bytes, access 0x%x",
				addr, len, access);
	job_hold(job);
	err = mem_register(job, addr, len, access, -1, 0, NULL, mem);
	if (err)
		job_release(job);
	return err;
}

void vbn_mem_deregister(struct vbn_mem *mem)
{
	struct vbn_job *job = mem->job;

	mem_deregister(mem);
	job_release(job);
}

int vbn_rkey_of(struct vbn_job *job, const void *addr, size_t len,
		struct vbn_rkey *rkey)
{
	struct vbn_mem mem;

	if (!memmap_find_locked(job->map, addr, len, &mem))
		return vbn_fail(-EINVAL,
				"[%p, +%zu) is not in one registration", addr,
				len);
	if (mem.access == VBN_ACCESS_LOCAL)
		return vbn_fail(-EINVAL, "[%p, +%zu) is not open to peers",
				addr, len);
	*rkey = (struct vbn_rkey){.region = mem.region,
				  .generation = mem.generation,
				  .base = (uintptr_t)addr,
				  .length = len};
	return 0;
}

bool vbn_mem_is_shared(struct vbn_job *job, const void *addr, size_t len)
{
	struct vbn_mem mem;

	return memmap_find_locked(job->map, addr, len, &mem) && mem.fd >= 0 &&
	       mem.access & VBN_ACCESS_READ;
}

void vbn_rkey_pack(const struct vbn_rkey *rkey, uint8_t bytes[VBN_RKEY_BYTES])
{
	uint8_t *p = bytes;

	p = put_u32(p, rkey->region);
	p = put_u32(p, rkey->generation);
	p = put_u64(p, rkey->base);
	put_u64(p, rkey->length);
}

void vbn_rkey_unpack(struct vbn_rkey *rkey, const uint8_t bytes[VBN_RKEY_BYTES])
{
	rkey->region = get_u32(bytes);
	rkey->generation = get_u32(bytes + 4);
	rkey->base = get_u64(bytes + 8);
	rkey->length = get_u64(bytes + 16);
}

struct vbn_pool *job_staging(struct vbn_job *job)
{
	/* Peers fetch large sends of unregistered memory from it. */
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_READ,
					.slab_bytes = STAGING_SLAB};
	struct vbn_pool *pool;

	pthread_mutex_lock(&job->staging_lock);
	if (!job->staging && vbn_pool_create(&pool, job, &opts) == 0)
		job->staging = pool;
	pool = job->staging;
	pthread_mutex_unlock(&job->staging_lock);
	return pool;
}

void staging_prepare(struct vbn_ctx *ctx)
{
	struct vbn_job *job = ctx->job;
	bool pieces = pinning(job) > 0;
	struct vbn_pool *pool;
	void *slab;

	if (!pieces && !job->providers[PROVIDER_UCX].pjob)
		return;
	pool = job_staging(job);
	slab = pool ? vbn_pool_alloc(pool, STAGES * STAGE_BYTES, 0) : NULL;
	if (!slab) {
		if (!ctx->stage_missed)
			vbn_log(VBN_WARN,
				"rank %d: no memory to stage unregistered "
				"memory in: %s",
				job->rank, vbn_error());
		ctx->stage_missed = true;
		return;
	}
	vbn_pool_free(pool, slab);
	for (int i = 0; pieces && i < STAGES; i++)
		if (!ctx->pieces[i].stage)
			ctx->pieces[i].stage =
				vbn_pool_alloc(pool, STAGE_BYTES, 4096);
}
