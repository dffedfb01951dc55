/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which device, port and GID a job uses. Devices are tried in the order that
 * libibverbs lists them; the first active port with a usable address wins. What
 * was passed over, and why, is told when none is left. VBN_IB_HCA=DEV or
 * DEV:PORT admits one only, VBN_IB_GID_INDEX forces a GID, VBN_IB_TIMEOUT and
 * VBN_IB_RETRY_CNT override how long a silent peer is believed in.
 */
#include "internal.h"
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOFTWARE_VENDOR 0xffffffu /* rdma_rxe and siw say this */
#define GIDS_MAX	1024
#define DEPTH_MIN	16u

/* Settings of the environment. */
struct wanted {
	char name[IBV_SYSFS_NAME_MAX];
	int port;      /* 0: any */
	int gid_index; /* -1: by rule */
	int timeout;   /* -1: by kind of device */
	int retry_cnt;
};

/* Why each device was passed over, for the error line. */
struct reasons {
	char text[384];
	size_t len;
};

static void reason(struct reasons *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void reason(struct reasons *r, const char *fmt, ...)
{
	va_list args;
	int n;

	if (r->len + 3 >= sizeof(r->text))
		return;
	if (r->len) {
		memcpy(r->text + r->len, "; ", 3);
		r->len += 2;
	}
	va_start(args, fmt);
	n = vsnprintf(r->text + r->len, sizeof(r->text) - r->len, fmt, args);
	va_end(args);
	r->len += n > 0 ? (size_t)n : 0;
	if (r->len >= sizeof(r->text))
		r->len = sizeof(r->text) - 1;
}

static int env_int(const char *name, int min, int max, int *value)
{
	const char *text = getenv(name);
	char *end;
	long v;

	if (!text || !*text)
		return 0;
	errno = 0;
	v = strtol(text, &end, 10);
	if (errno || *end || v < min || v > max)
		return vbn_fail(-EINVAL,
				"verbs: %s=%s: a number from %d to %d is "
				"wanted",
				name, text, min, max);
	*value = (int)v;
	return 0;
}

static int parse_hca(struct wanted *want)
{
	const char *text = getenv("VBN_IB_HCA");
	const char *colon = text ? strchr(text, ':') : NULL;
	size_t len = colon ? (size_t)(colon - text) : text ? strlen(text) : 0;
	char *end;
	long port;

	if (!len && !colon)
		return 0;
	if (!len || len >= sizeof(want->name))
		return vbn_fail(-EINVAL,
				"verbs: VBN_IB_HCA=%s: DEVICE or "
				"DEVICE:PORT is wanted",
				text);
	memcpy(want->name, text, len);
	if (!colon)
		return 0;
	port = strtol(colon + 1, &end, 10);
	if (!colon[1] || *end || port < 1 || port > 254)
		return vbn_fail(-EINVAL,
				"verbs: VBN_IB_HCA=%s: the port is a number "
				"from 1 to 254",
				text);
	want->port = (int)port;
	return 0;
}

static int parse_wanted(struct wanted *want)
{
	int err;

	memset(want, 0, sizeof(*want));
	want->gid_index = want->timeout = want->retry_cnt = -1;
	err = parse_hca(want);
	if (!err)
		err = env_int("VBN_IB_GID_INDEX", 0, 255, &want->gid_index);
	if (!err)
		err = env_int("VBN_IB_TIMEOUT", 1, 31, &want->timeout);
	/* 7 means for ever on some devices: a dead peer would go unseen */
	if (!err)
		err = env_int("VBN_IB_RETRY_CNT", 0, 6, &want->retry_cnt);
	return err;
}

static enum gid_type gid_type_of(uint32_t type)
{
	switch (type) {
	case IBV_GID_TYPE_ROCE_V1:
		return GID_ROCE_V1;
	case IBV_GID_TYPE_ROCE_V2:
		return GID_ROCE_V2;
	default:
		return GID_IB;
	}
}

static void read_gid(struct verbs_job *job, uint32_t index,
		     struct gid_entry *entry)
{
	struct ibv_gid_entry raw;

	memset(entry, 0, sizeof(*entry));
	entry->index = index;
	if (ibv_query_gid_ex(job->device, job->port_num, index, &raw, 0))
		return;
	entry->readable = true;
	entry->type = gid_type_of(raw.gid_type);
	memcpy(entry->raw, raw.gid.raw, GID_BYTES);
}

/* RoCE: the entry with the best score, or the one that is forced. */
static int pick_roce_gid(struct verbs_job *job, const struct wanted *want,
			 struct reasons *why)
{
	int n = job->port_attr.gid_tbl_len;
	const struct gid_entry *best;
	struct gid_entry *table;

	if (n > GIDS_MAX)
		n = GIDS_MAX;
	table = calloc(n > 0 ? (size_t)n : 1, sizeof(*table));
	if (!table)
		return -ENOMEM;
	for (int i = 0; i < n; i++)
		read_gid(job, (uint32_t)i, &table[i]);
	best = gid_choose(table, n > 0 ? (size_t)n : 0);
	if (want->gid_index >= 0)
		best = want->gid_index < n && table[want->gid_index].readable
			       ? &table[want->gid_index]
			       : NULL;
	if (best && best->index <= UINT8_MAX) {
		job->gid_index = (uint8_t)best->index;
		job->port.gid_type = best->type;
		memcpy(job->port.gid, best->raw, GID_BYTES);
		free(table);
		return 0;
	}
	free(table);
	if (want->gid_index >= 0)
		reason(why,
		       "%s port %u: GID %d (VBN_IB_GID_INDEX) cannot be "
		       "read",
		       job->name, job->port_num, want->gid_index);
	else
		reason(why,
		       "%s port %u: no usable GID, its network interface "
		       "needs an IP address",
		       job->name, job->port_num);
	return -ENODEV;
}

static int pick_ib_address(struct verbs_job *job, const struct wanted *want,
			   struct reasons *why)
{
	struct gid_entry entry;

	job->port.infiniband = true;
	job->port.lid = job->port_attr.lid;
	job->port.gid_type = GID_IB;
	job->gid_index = want->gid_index > 0 ? (uint8_t)want->gid_index : 0;
	read_gid(job, job->gid_index, &entry);
	memcpy(job->port.gid, entry.raw, GID_BYTES);
	if (job->port.lid || entry.readable)
		return 0;
	reason(why, "%s port %u: no LID yet, is a subnet manager running?",
	       job->name, job->port_num);
	return -ENODEV;
}

static int try_port(struct verbs_job *job, uint8_t port,
		    const struct wanted *want, struct reasons *why)
{
	int err = ibv_query_port(job->device, port, &job->port_attr);

	if (err) {
		reason(why, "%s port %u: %s", job->name, port, strerror(err));
		return -ENODEV;
	}
	if (job->port_attr.state != IBV_PORT_ACTIVE) {
		reason(why, "%s port %u: %s", job->name, port,
		       ibv_port_state_str(job->port_attr.state));
		return -ENODEV;
	}
	job->port_num = port;
	memset(&job->port, 0, sizeof(job->port));
	if (job->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET)
		err = pick_roce_gid(job, want, why);
	else
		err = pick_ib_address(job, want, why);
	if (!err)
		gid_text(job->port.gid, job->gid);
	return err;
}

static void read_caps(struct verbs_job *job, const struct wanted *want)
{
	bool software = job->attr.vendor_id == SOFTWARE_VENDOR;

	job->atomics = job->attr.atomic_cap != IBV_ATOMIC_NONE;
	job->timeout = software ? 14 : 18;
	job->retry_cnt = 6;
	if (want->timeout >= 0)
		job->timeout = (uint8_t)want->timeout;
	if (want->retry_cnt >= 0)
		job->retry_cnt = (uint8_t)want->retry_cnt;
	job->depth = SEND_DEPTH;
	while (job->depth >= (uint32_t)job->attr.max_qp_wr &&
	       job->depth > DEPTH_MIN)
		job->depth /= 2;
	atomic_init(&job->inline_wanted, INLINE_WANTED);
	atomic_init(&job->mrs, 0);
}

static int try_ports(struct verbs_job *job, const struct wanted *want,
		     struct reasons *why)
{
	int last = job->attr.phys_port_cnt;

	for (int port = 1; port <= last; port++)
		if (!want->port || want->port == port)
			if (!try_port(job, (uint8_t)port, want, why))
				return 0;
	if (want->port > last)
		reason(why, "%s has %d port(s), not %d", job->name, last,
		       want->port);
	return -ENODEV;
}

static int try_device(struct verbs_job *job, struct ibv_device *dev,
		      const struct wanted *want, struct reasons *why)
{
	int err;

	snprintf(job->name, sizeof(job->name), "%s", ibv_get_device_name(dev));
	if (want->name[0] && strcmp(want->name, job->name))
		return -ENODEV;
	job->device = ibv_open_device(dev);
	if (!job->device) {
		reason(why, "%s: cannot be opened: %s", job->name,
		       strerror(errno));
		return -ENODEV;
	}
	err = ibv_query_device(job->device, &job->attr);
	if (err) {
		reason(why, "%s: %s", job->name, strerror(err));
		goto close_device;
	}
	if (job->attr.max_srq < 1) {
		reason(why, "%s: no shared receive queues", job->name);
		goto close_device;
	}
	if (try_ports(job, want, why))
		goto close_device;
	read_caps(job, want);
	job->pd = ibv_alloc_pd(job->device);
	if (job->pd)
		return 0;
	reason(why, "%s: ibv_alloc_pd: %s", job->name, strerror(errno));
close_device:
	ibv_close_device(job->device);
	job->device = NULL;
	return -ENODEV;
}

static int no_device(const struct wanted *want, const struct reasons *why,
		     int listed)
{
	if (why->len)
		return vbn_fail(-ENODEV, "verbs: no usable port (%s)",
				why->text);
	if (want->name[0] && listed)
		return vbn_fail(-ENODEV,
				"verbs: no device is called %s (VBN_IB_HCA); "
				"ibv_devices lists them",
				want->name);
	return vbn_fail(-ENODEV,
			"verbs: this machine has no RDMA device; load its "
			"driver, make soft-RoCE (rdma link add rxe0 type rxe "
			"netdev IF), or choose another provider "
			"(VBN_PROVIDER=ucx)");
}

int device_open(struct verbs_job *job)
{
	struct reasons why = {.len = 0};
	struct ibv_device **list;
	struct wanted want;
	int n = 0, err;

	err = parse_wanted(&want);
	if (err)
		return err;
	list = ibv_get_device_list(&n);
	err = -ENODEV;
	for (int i = 0; list && i < n && err; i++)
		err = try_device(job, list[i], &want, &why);
	if (list)
		ibv_free_device_list(list);
	if (err)
		return no_device(&want, &why, n);
	vbn_log(VBN_INFO,
		"verbs: %s port %u, %s, GID %u %s, MTU %d, "
		"timeout %u, retry_cnt %u",
		job->name, job->port_num, gid_type_name(job->port.gid_type),
		job->gid_index, job->gid, 128 << job->port_attr.active_mtu,
		job->timeout, job->retry_cnt);
	return 0;
}

void device_close(struct verbs_job *job)
{
	int err = ibv_dealloc_pd(job->pd);

	if (err)
		vbn_log(VBN_ERR, "verbs: %s: ibv_dealloc_pd: %s", job->name,
			strerror(err));
	ibv_close_device(job->device);
}
