/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ucx provider: everything that UCX knows, TCP among it. A module that
 * the core loads when it is needed; it shows its table and nothing else. This
 * file holds the table, the job's part, and the regions that peers may name.
 */
#include "ucx.h"

#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

int ucx_errno(ucs_status_t status)
{
	switch (status) {
	case UCS_OK:
		return 0;
	case UCS_INPROGRESS:
		return -EINPROGRESS;
	case UCS_ERR_NO_MEMORY:
		return -ENOMEM;
	case UCS_ERR_NO_RESOURCE:
		return -EAGAIN;
	case UCS_ERR_NO_DEVICE:
		return -ENODEV;
	case UCS_ERR_UNSUPPORTED:
	case UCS_ERR_NOT_IMPLEMENTED:
		return -EOPNOTSUPP;
	case UCS_ERR_INVALID_PARAM:
	case UCS_ERR_INVALID_ADDR:
		return -EINVAL;
	case UCS_ERR_CANCELED:
		return -ECANCELED;
	case UCS_ERR_UNREACHABLE:
	case UCS_ERR_NOT_CONNECTED:
	case UCS_ERR_CONNECTION_RESET:
	case UCS_ERR_ENDPOINT_TIMEOUT:
	case UCS_ERR_TIMED_OUT:
	case UCS_ERR_REJECTED:
		return -ECONNRESET;
	default:
		return -EIO;
	}
}

uint64_t ucx_now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- job ---- */

/*
 * A default for one of UCX's options that the environment does not set. What
 * this UCX does not know is left as it is.
 */
static void default_option(ucp_config_t *config, const char *name,
			   const char *value)
{
	char variable[64];

	snprintf(variable, sizeof(variable), "UCX_%s", name);
	if (!getenv(variable) && ucp_config_modify(config, name, value))
		vbn_log(VBN_DEBUG, "ucx: %s cannot be set", variable);
}

/* Whether the limit on locked memory lets UCX have its buffers on a device. */
static bool may_lock(void)
{
	const size_t least = (size_t)64 << 20;
	void *p = mmap(NULL, least, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	bool may;

	if (p == MAP_FAILED)
		return false;
	/* Nothing is touched, but the kernel says what it says to a driver. */
	may = mlock2(p, least, MLOCK_ONFAULT) == 0;
	munmap(p, least);
	return may;
}

static int job_open(struct vbn_job *job, void **pjob,
		    struct provider_caps *caps)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES |
			      UCP_PARAM_FIELD_MT_WORKERS_SHARED,
		.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
		.mt_workers_shared = 1,
	};
	struct ucx_job *uj = calloc(1, sizeof(*uj));
	ucp_config_t *config;
	ucs_status_t status;

	if (!uj)
		return vbn_fail(-ENOMEM, "ucx: out of memory");
	uj->job = job;
	status = ucp_config_read(NULL, NULL, &config);
	if (status == UCS_OK) {
		/* UCX's 20 s are more than a job wants to wait. */
		default_option(config, "KEEPALIVE_INTERVAL", "2s");
		/* UCX tries for ever to register what may not be locked. */
		if (!may_lock())
			default_option(config, "TLS", "^ib");
		status = ucp_init(&params, config, &uj->context);
		ucp_config_release(config);
	}
	if (status != UCS_OK) {
		free(uj);
		return vbn_fail(ucx_errno(status),
				"ucx: cannot start: %s "
				"(check UCX_TLS and UCX_NET_DEVICES)",
				ucs_status_string(status));
	}
	pthread_mutex_init(&uj->lock, NULL);
	pthread_rwlock_init(&uj->regions_lock, NULL);
	*caps = (struct provider_caps){.max_piece = UCX_PIECE_MAX,
				       .max_message = UCX_MESSAGE_MAX,
				       .credits = UCX_CREDITS,
				       .credits_max = UCX_CREDITS,
				       .any_local = true};
	*pjob = uj;
	return 0;
}

static void job_close(void *pjob)
{
	struct ucx_job *uj = pjob;

	ucp_cleanup(uj->context);
	pthread_rwlock_destroy(&uj->regions_lock);
	pthread_mutex_destroy(&uj->lock);
	free(uj->regions);
	free(uj);
}

/* ---- regions ---- */

static int region_add(struct ucx_job *uj, struct ucx_region *region)
{
	int err = 0;

	pthread_rwlock_wrlock(&uj->regions_lock);
	if (region->region >= uj->nregions) {
		uint32_t n = 2 * region->region + 16;
		struct ucx_region **regions =
			realloc(uj->regions, n * sizeof(struct ucx_region *));

		if (regions) {
			memset(&regions[uj->nregions], 0,
			       (n - uj->nregions) *
				       sizeof(struct ucx_region *));
			uj->regions = regions;
			uj->nregions = n;
		} else {
			err = -ENOMEM;
		}
	}
	if (!err)
		uj->regions[region->region] = region;
	pthread_rwlock_unlock(&uj->regions_lock);
	return err;
}

/* UCX needs no registration for what is sent by active messages. */
static int mem_register(void *pjob, const struct vbn_mem *mem, void **handle,
			struct blob *announce)
{
	struct ucx_region *region = calloc(1, sizeof(*region));
	struct ucx_key key = {mem->region, mem->generation};

	announce->len = 0;
	if (!region)
		return vbn_fail(-ENOMEM, "ucx: out of memory");
	*region = (struct ucx_region){.region = mem->region,
				      .generation = mem->generation,
				      .access = mem->access,
				      .base = (uintptr_t)mem->addr,
				      .len = mem->len};
	if (mem->access != VBN_ACCESS_LOCAL) {
		if (region_add(pjob, region)) {
			free(region);
			return vbn_fail(-ENOMEM, "ucx: out of memory");
		}
		announce->len = sizeof(key);
		memcpy(announce->data, &key, sizeof(key));
	}
	*handle = region;
	return 0;
}

static void mem_deregister(void *pjob, void *handle)
{
	struct ucx_region *region = handle;
	struct ucx_job *uj = pjob;

	pthread_rwlock_wrlock(&uj->regions_lock);
	if (region->region < uj->nregions &&
	    uj->regions[region->region] == region)
		uj->regions[region->region] = NULL;
	pthread_rwlock_unlock(&uj->regions_lock);
	free(region);
}

/* [regions_lock] May the peer do it? */
static int check(const struct ucx_job *uj, const struct am_request *request,
		 size_t len, unsigned access)
{
	const struct ucx_region *region = NULL;
	uint64_t offset;

	if (request->region < uj->nregions)
		region = uj->regions[request->region];
	if (!region || region->generation != request->generation)
		return -EKEYREJECTED;
	offset = request->address - region->base;
	if (offset > region->len || len > region->len - offset)
		return -EKEYREJECTED;
	return (region->access & access) ? 0 : -EACCES;
}

int ucx_region_write(struct ucx_job *uj, const struct am_request *request,
		     const void *data, size_t len)
{
	int err;

	pthread_rwlock_rdlock(&uj->regions_lock);
	err = check(uj, request, len, VBN_ACCESS_WRITE);
	if (!err)
		memcpy((void *)request->address, data, len);
	pthread_rwlock_unlock(&uj->regions_lock);
	return err;
}

int ucx_region_read(struct ucx_job *uj, const struct am_request *request,
		    void *data)
{
	int err;

	pthread_rwlock_rdlock(&uj->regions_lock);
	err = check(uj, request, request->len, VBN_ACCESS_READ);
	if (!err)
		memcpy(data, (const void *)request->address, request->len);
	pthread_rwlock_unlock(&uj->regions_lock);
	return err;
}

int ucx_region_atomic(struct ucx_job *uj, const struct am_request *request,
		      bool compare_swap, uint64_t *value)
{
	uint64_t *word = (uint64_t *)request->address;
	int err;

	pthread_rwlock_rdlock(&uj->regions_lock);
	err = check(uj, request, sizeof(*word), VBN_ACCESS_ATOMIC);
	if (!err && request->address % sizeof(*word))
		err = -EINVAL;
	if (!err && compare_swap) {
		*value = request->compare;
		__atomic_compare_exchange_n(word, value, request->len, false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	} else if (!err) {
		*value = __atomic_fetch_add(word, request->len,
					    __ATOMIC_SEQ_CST);
	}
	pthread_rwlock_unlock(&uj->regions_lock);
	return err;
}

extern const struct provider verbena_provider_ucx;

VBN_API const struct provider verbena_provider_ucx = {
	.name = "ucx",
	.job_open = job_open,
	.job_close = job_close,
	.mem_register = mem_register,
	.mem_deregister = mem_deregister,
	.ctx_open = ucx_ctx_open,
	.ctx_close = ucx_ctx_close,
	.progress = ucx_progress,
	.fd = ucx_fd,
	.arm = ucx_arm,
	.conn_create = ucx_conn_create,
	.conn_accept = ucx_conn_accept,
	.conn_finish = ucx_conn_finish,
	.conn_attach = ucx_conn_attach,
	.conn_close = ucx_conn_close,
	.key_attach = ucx_key_attach,
	.key_release = ucx_key_release,
	.put = ucx_put,
	.get = ucx_get,
	.atomic = ucx_atomic,
	.flush = ucx_flush,
	.message = ucx_message,
};
