/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ucx provider: everything that UCX knows, TCP among it. A module that
 * the core loads when it is needed; it shows its table and nothing else.
 *
 * What UCX 1.13 does not give: access rights (a registered region can be
 * read, written and changed by whoever holds its key), and the use of our
 * registration for the local side of an operation (its stable protocols
 * register again where a device wants that).
 */
#include "ucx.h"

#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
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

static int job_open(struct vbn_job *job, void **pjob,
		    struct provider_caps *caps)
{
	ucp_params_t params = {
		.field_mask = UCP_PARAM_FIELD_FEATURES |
			      UCP_PARAM_FIELD_MT_WORKERS_SHARED,
		.features = UCP_FEATURE_RMA | UCP_FEATURE_AMO64 |
			    UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
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
		/* The default, 20 s, is more than a job wants to wait. */
		default_option(config, "KEEPALIVE_INTERVAL", "2s");
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
	*caps = (struct provider_caps){.max_piece = UCX_PIECE_MAX,
				       .max_message = UCX_MESSAGE_MAX,
				       .credits = UCX_CREDITS};
	*pjob = uj;
	return 0;
}

static void job_close(void *pjob)
{
	struct ucx_job *uj = pjob;

	ucp_cleanup(uj->context);
	pthread_mutex_destroy(&uj->lock);
	free(uj);
}

static int pack_key(struct ucx_job *uj, ucp_mem_h memh, struct blob *announce)
{
	size_t len;
	void *key;
	ucs_status_t status = ucp_rkey_pack(uj->context, memh, &key, &len);
	int err = 0;

	if (status != UCS_OK)
		return vbn_fail(ucx_errno(status),
				"ucx: no key for a region: "
				"%s",
				ucs_status_string(status));
	if (len > sizeof(announce->data))
		err = vbn_fail(-EMSGSIZE,
			       "ucx: a region's key has %zu bytes, "
			       "at most %zu go: use fewer devices "
			       "(UCX_NET_DEVICES)",
			       len, sizeof(announce->data));
	else
		memcpy(announce->data, key, len);
	announce->len = err ? 0 : len;
	ucp_rkey_buffer_release(key);
	return err;
}

static int mem_register(void *pjob, const struct vbn_mem *mem, void **handle,
			struct blob *announce)
{
	struct ucx_job *uj = pjob;
	ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
			      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = mem->addr,
		.length = mem->len,
	};
	ucs_status_t status;
	ucp_mem_h memh;
	int err = 0;

	announce->len = 0;
	status = ucp_mem_map(uj->context, &params, &memh);
	if (status != UCS_OK)
		return vbn_fail(ucx_errno(status),
				"ucx: cannot register %zu "
				"bytes: %s (check ulimit -l)",
				mem->len, ucs_status_string(status));
	if (mem->access != VBN_ACCESS_LOCAL)
		err = pack_key(uj, memh, announce);
	if (err) {
		ucp_mem_unmap(uj->context, memh);
		return err;
	}
	*handle = memh;
	return 0;
}

static void mem_deregister(void *pjob, void *handle)
{
	struct ucx_job *uj = pjob;

	ucp_mem_unmap(uj->context, handle);
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
