/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which devices and ports a job uses. Devices are tried in the order that
 * VBN_IB_HCA lists them, else libibverbs does; each active port with a usable
 * address is a rail, up to VBN_IB_RAILS. One that cannot be used (a container
 * sees all devices in sysfs, and may open some) is passed over; the reasons are
 * told when none is left, and logged otherwise.
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

#define DEPTH_MIN 8u

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

static struct port_query query_of(struct rail *rail, uint8_t port)
{
	return (struct port_query){.device = rail->device,
				   .name = rail->name,
				   .num = port,
				   .software = port_software(&rail->attr),
				   .settings = &rail->job->settings};
}

void device_caps(struct rail *rail)
{
	rail->software = port_software(&rail->attr);
	rail->atomics = rail->attr.atomic_cap != IBV_ATOMIC_NONE;
	rail->depth = SEND_DEPTH;
	while (rail->depth + DEPTH_EXTRA > (uint32_t)rail->attr.max_qp_wr &&
	       rail->depth > DEPTH_MIN)
		rail->depth /= 2;
	atomic_init(&rail->mrs, 0);
}

static bool is_listed(const struct verbs_job *job, const char *name,
		      unsigned port)
{
	for (unsigned i = 0; i < job->nrails; i++)
		if (job->rail[i].port_num == port &&
		    !strcmp(job->rail[i].name, name))
			return true;
	return false;
}

/* Open the device as that of the next rail, whose name is set. */
static int open_device(struct rail *rail, struct ibv_device *dev,
		       struct reasons *why)
{
	const char *lacks;
	int err;

	errno = 0;
	rail->device = ibv_open_device(dev);
	if (!rail->device) {
		reason(why, "%s: cannot be opened: %s", rail->name,
		       errno ? strerror(errno) : "no driver for it");
		return -ENODEV;
	}
	err = ibv_query_device(rail->device, &rail->attr);
	lacks = err ? strerror(err) : device_lacks(&rail->attr);
	if (!lacks)
		return 0;
	reason(why, "%s: %s", rail->name, lacks);
	ibv_close_device(rail->device);
	return -ENODEV;
}

/* The rail's device is open. 0: the rail has the port. */
static int try_port(struct rail *rail, uint8_t num, struct reasons *why)
{
	struct port_query query = query_of(rail, num);
	char text[PORT_WHY];

	if (port_read(&query, &rail->port_attr, &rail->port, text)) {
		reason(why, "%s port %u: %s", rail->name, num, text);
		return -ENODEV;
	}
	rail->port_num = num;
	device_caps(rail);
	rail->pd = ibv_alloc_pd(rail->device);
	if (rail->pd)
		return 0;
	reason(why, "%s: ibv_alloc_pd: %s", rail->name, strerror(errno));
	return -ENODEV;
}

/* The next rail, without what an earlier try has left in it. */
static struct rail *next_rail(struct verbs_job *job, struct ibv_device *dev)
{
	struct rail *rail = &job->rail[job->nrails];

	memset(rail, 0, sizeof(*rail));
	rail->job = job;
	rail->index = job->nrails;
	snprintf(rail->name, sizeof(rail->name), "%s",
		 ibv_get_device_name(dev));
	return rail;
}

/* Each of its ports that may and can be used is a rail, and opens it anew. */
static void try_device(struct verbs_job *job, struct ibv_device *dev, int want,
		       struct reasons *why)
{
	int last = 1, most = job->settings.rails;

	for (int port = 1; port <= last && job->nrails < most; port++) {
		struct rail *rail = next_rail(job, dev);
		bool usable;

		if (!device_admits(&job->settings, rail->name, 0) ||
		    open_device(rail, dev, why))
			return;
		last = rail->attr.phys_port_cnt;
		usable = (!want || want == port) &&
			 device_admits(&job->settings, rail->name, port) &&
			 !is_listed(job, rail->name, (unsigned)port) &&
			 !try_port(rail, (uint8_t)port, why);
		if (usable)
			job->nrails++;
		else
			ibv_close_device(rail->device);
	}
	if (want > last)
		reason(why, "%s has %d port(s), not %d",
		       ibv_get_device_name(dev), last, want);
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

static void tell_choice(const struct rail *rail)
{
	const struct port_address *a = &rail->port.address;
	char gid[GID_TEXT_LENGTH] = "";

	if (a->ngids)
		gid_text(a->gids[0].raw, gid);
	vbn_log(VBN_INFO,
		"verbs: %s port %u, %s, LID %u, GID %u %s and %d more, MTU "
		"%d, partition 0x%04x, timeout %u, retry_cnt %u",
		rail->name, rail->port_num, gid_type_name(a->gids[0].type),
		a->lid, a->gids[0].index, gid, a->ngids ? a->ngids - 1 : 0,
		128 << a->mtu, a->pkey, rail->port.timeout,
		rail->port.retry_cnt);
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
	for (size_t i = 0; i < nturns; i++)
		try_device(job, list[turns[i].device], turns[i].port, &why);
	if (list)
		ibv_free_device_list(list);
	if (!job->nrails)
		return no_device(&why, n);
	if (why.len)
		vbn_log(VBN_INFO, "verbs: passed over: %s", why.text);
	for (unsigned i = 0; i < job->nrails; i++)
		tell_choice(&job->rail[i]);
	return 0;
}

void device_close(struct verbs_job *job)
{
	for (unsigned i = 0; i < job->nrails; i++) {
		int err = ibv_dealloc_pd(job->rail[i].pd);

		if (err)
			vbn_log(VBN_ERR, "verbs: %s: ibv_dealloc_pd: %s",
				job->rail[i].name, strerror(err));
		ibv_close_device(job->rail[i].device);
	}
}

void device_addresses(const struct verbs_job *job, struct blob *address)
{
	struct rail_addresses all = {.n = job->nrails};

	for (unsigned i = 0; i < job->nrails; i++)
		all.rail[i] = job->rail[i].port.address;
	offer_pack_addresses(address, &all);
}

/* ---- again, after an event ---- */

static bool same_address(const struct port_address *a,
			 const struct port_address *b)
{
	const struct rail_addresses one = {.n = 1, .rail = {*a}};
	const struct rail_addresses two = {.n = 1, .rail = {*b}};
	struct blob x, y;

	offer_pack_addresses(&x, &one);
	offer_pack_addresses(&y, &two);
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

bool device_refresh(struct rail *rail)
{
	struct port_query query = query_of(rail, rail->port_num);
	struct ibv_port_attr attr;
	struct path_port fresh;
	char why[PORT_WHY];

	if (port_read(&query, &attr, &fresh, why)) {
		vbn_log(VBN_WARN, "verbs: %s port %u cannot be used now: %s",
			rail->name, rail->port_num, why);
		return false;
	}
	if (same_address(&fresh.address, &rail->port.address) &&
	    fresh.pkey_index == rail->port.pkey_index)
		return false;
	pthread_mutex_lock(&rail->job->lock);
	take_address(&rail->port, &fresh);
	pthread_mutex_unlock(&rail->job->lock);
	return true;
}
