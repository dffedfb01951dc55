/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which device and port a job uses. Devices are tried in the order that
 * VBN_IB_HCA lists them, else libibverbs does; the first active port with a
 * usable address wins. One that cannot be used (a container sees all devices
 * in sysfs, and may open some) is passed over; the reasons are told when none
 * is left, and logged otherwise.
 */
#include "internal.h"
#include "device.h"
#include "port.h"
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MIN 16u

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

/* ---- which, in which order ---- */

bool device_admits(const struct path_settings *settings, const char *name,
		   int port)
{
	const struct env_devices *d = &settings->devices;

	for (size_t i = 0; i < d->n; i++) {
		if (strcmp(d->item[i].name, name))
			continue;
		/* asked for any port, one that is excluded leaves others */
		if (d->excluded ? !d->item[i].port || d->item[i].port == port
				: !port || !d->item[i].port ||
					  d->item[i].port == port)
			return !d->excluded;
	}
	return d->excluded || !d->n;
}

size_t device_order(const struct path_settings *settings,
		    struct ibv_device *const *list, int n,
		    struct device_turn turns[DEVICE_TURNS])
{
	const struct env_devices *d = &settings->devices;
	size_t have = 0;

	if (!d->n || d->excluded) {
		for (int i = 0; i < n && have < DEVICE_TURNS; i++)
			turns[have++] = (struct device_turn){.device = i};
		return have;
	}
	for (size_t k = 0; k < d->n; k++)
		for (int i = 0; i < n && have < DEVICE_TURNS; i++)
			if (!strcmp(ibv_get_device_name(list[i]),
				    d->item[k].name))
				turns[have++] = (struct device_turn){
					.device = i, .port = d->item[k].port};
	return have;
}

const char *device_lacks(const struct ibv_device_attr *attr)
{
	return attr->max_srq < 1 ? "no shared receive queues" : NULL;
}

/* ---- trying ---- */

static struct port_query query_of(struct verbs_job *job, uint8_t port)
{
	return (struct port_query){.device = job->device,
				   .name = job->name,
				   .num = port,
				   .software = port_software(&job->attr),
				   .settings = &job->settings};
}

static int try_port(struct verbs_job *job, uint8_t num, struct reasons *why)
{
	struct port_query query = query_of(job, num);
	char text[PORT_WHY];
	int err = port_read(&query, &job->port_attr, &job->port, text);

	if (err)
		reason(why, "%s port %u: %s", job->name, num, text);
	else
		job->port_num = num;
	return err;
}

static int try_ports(struct verbs_job *job, int want, struct reasons *why)
{
	int last = job->attr.phys_port_cnt;

	for (int port = 1; port <= last; port++)
		if ((!want || want == port) &&
		    device_admits(&job->settings, job->name, port))
			if (!try_port(job, (uint8_t)port, why))
				return 0;
	if (want > last)
		reason(why, "%s has %d port(s), not %d", job->name, last, want);
	return -ENODEV;
}

void device_caps(struct verbs_job *job)
{
	job->software = port_software(&job->attr);
	job->atomics = job->attr.atomic_cap != IBV_ATOMIC_NONE;
	job->depth = SEND_DEPTH;
	while (job->depth >= (uint32_t)job->attr.max_qp_wr &&
	       job->depth > DEPTH_MIN)
		job->depth /= 2;
	atomic_init(&job->mrs, 0);
}

static int try_device(struct verbs_job *job, struct ibv_device *dev, int port,
		      struct reasons *why)
{
	const char *lacks;
	int err;

	snprintf(job->name, sizeof(job->name), "%s", ibv_get_device_name(dev));
	if (!device_admits(&job->settings, job->name, 0))
		return -ENODEV;
	errno = 0;
	job->device = ibv_open_device(dev);
	if (!job->device) {
		reason(why, "%s: cannot be opened: %s", job->name,
		       errno ? strerror(errno) : "no driver for it");
		return -ENODEV;
	}
	err = ibv_query_device(job->device, &job->attr);
	if (err) {
		reason(why, "%s: %s", job->name, strerror(err));
		goto close_device;
	}
	lacks = device_lacks(&job->attr);
	if (lacks) {
		reason(why, "%s: %s", job->name, lacks);
		goto close_device;
	}
	if (try_ports(job, port, why))
		goto close_device;
	device_caps(job);
	job->pd = ibv_alloc_pd(job->device);
	if (job->pd)
		return 0;
	reason(why, "%s: ibv_alloc_pd: %s", job->name, strerror(errno));
close_device:
	ibv_close_device(job->device);
	job->device = NULL;
	return -ENODEV;
}

static int no_device(const struct reasons *why, int listed)
{
	if (why->len)
		return vbn_fail(-ENODEV, "verbs: no usable port (%s)",
				why->text);
	if (listed)
		return vbn_fail(-ENODEV,
				"verbs: VBN_IB_HCA=%s leaves none of the %d "
				"RDMA device(s) of this machine; ibv_devices "
				"lists them",
				env_text("VBN_IB_HCA"), listed);
	return vbn_fail(-ENODEV,
			"verbs: this machine has no RDMA device; load its "
			"driver, make soft-RoCE (rdma link add rxe0 type rxe "
			"netdev IF), or choose another provider "
			"(VBN_PROVIDER=ucx)");
}

static void tell_choice(const struct verbs_job *job, const struct reasons *why)
{
	const struct port_address *a = &job->port.address;
	char gid[GID_TEXT_LENGTH] = "";

	if (why->len)
		vbn_log(VBN_INFO, "verbs: passed over: %s", why->text);
	if (a->ngids)
		gid_text(a->gids[0].raw, gid);
	vbn_log(VBN_INFO,
		"verbs: %s port %u, %s, LID %u, GID %u %s and %d more, MTU "
		"%d, partition 0x%04x, timeout %u, retry_cnt %u",
		job->name, job->port_num, gid_type_name(a->gids[0].type),
		a->lid, a->gids[0].index, gid, a->ngids ? a->ngids - 1 : 0,
		128 << a->mtu, a->pkey, job->port.timeout, job->port.retry_cnt);
}

int device_open(struct verbs_job *job)
{
	struct device_turn turns[DEVICE_TURNS];
	struct reasons why = {.len = 0};
	struct ibv_device **list;
	size_t nturns;
	int n = 0, err = path_settings_read(&job->settings);

	if (err)
		return err;
	list = ibv_get_device_list(&n);
	nturns = list ? device_order(&job->settings, list, n, turns) : 0;
	err = -ENODEV;
	for (size_t i = 0; i < nturns && err; i++)
		err = try_device(job, list[turns[i].device], turns[i].port,
				 &why);
	if (list)
		ibv_free_device_list(list);
	if (err)
		return no_device(&why, n);
	tell_choice(job, &why);
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

/* ---- again, after an event ---- */

static bool same_address(const struct port_address *a,
			 const struct port_address *b)
{
	struct blob x, y;

	offer_pack_address(&x, a);
	offer_pack_address(&y, b);
	if (x.len != y.len || memcmp(x.data, y.data, x.len))
		return false;
	/* an entry may have moved within the table */
	for (unsigned i = 0; i < a->ngids; i++)
		if (a->gids[i].index != b->gids[i].index)
			return false;
	return true;
}

/* Name and number are read by the contexts' threads: they stay. */
static void take_address(struct path_port *port, const struct path_port *fresh)
{
	const struct port_address *from = &fresh->address;
	struct port_address *to = &port->address;

	to->infiniband = from->infiniband;
	to->mtu = from->mtu;
	to->lid = from->lid;
	to->pkey = from->pkey;
	to->ngids = from->ngids;
	memcpy(to->gids, from->gids, sizeof(to->gids));
	port->pkey_index = fresh->pkey_index;
	port->grh = fresh->grh;
}

bool device_refresh(struct verbs_job *job)
{
	struct port_query query = query_of(job, job->port_num);
	struct ibv_port_attr attr;
	struct path_port fresh;
	char why[PORT_WHY];

	if (port_read(&query, &attr, &fresh, why)) {
		vbn_log(VBN_WARN, "verbs: %s port %u cannot be used now: %s",
			job->name, job->port_num, why);
		return false;
	}
	if (same_address(&fresh.address, &job->port.address) &&
	    fresh.pkey_index == job->port.pkey_index)
		return false;
	pthread_mutex_lock(&job->lock);
	take_address(&job->port, &fresh);
	pthread_mutex_unlock(&job->lock);
	return true;
}
