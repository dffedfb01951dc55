/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The machine's devices as data, seen by the same functions that a job's
 * choice is made with.
 */
#include "inspect.h"
#include "internal.h"
#include "device.h"
#include "port.h"
#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NET_PATH "/sys/class/infiniband/%s/ports/%u/gid_attrs/ndevs/%u"

/* ---- GIDs ---- */

static void explain_gid(struct inspect_gid *out, const struct gid_entry *entry,
			const struct gid_entry *best,
			const struct path_settings *settings)
{
	const char *unfit = entry->type == GID_IB && entry->readable
				    ? NULL
				    : gid_unfit(entry);
	const char *why = unfit;

	if (settings->gid_index >= 0)
		why = out->chosen ? "VBN_IB_GID_INDEX says so"
				  : "VBN_IB_GID_INDEX says another";
	else if (out->chosen)
		why = "the best by rule: RoCE v2, then routable, IPv4";
	else if (!why && best)
		why = gid_lesser(entry, best);
	else if (!why)
		why = "InfiniBand speaks with index 0";
	snprintf(out->why, sizeof(out->why), "%s", why);
}

static void fill_gid(struct inspect_gid *out, const struct gid_entry *entry,
		     const struct path_port *port, bool usable)
{
	char text[GID_TEXT_LENGTH];

	out->index = entry->index;
	out->readable = entry->readable;
	out->chosen = usable && port->address.ngids &&
		      port->address.gids[0].index == entry->index;
	if (!entry->readable)
		return;
	snprintf(out->type, sizeof(out->type), "%s",
		 gid_type_name(entry->type));
	snprintf(out->address, sizeof(out->address), "%s",
		 gid_text(entry->raw, text));
}

static int fill_gids(const struct port_query *query,
		     const struct ibv_port_attr *attr,
		     const struct path_port *port, struct inspect_port *out)
{
	struct gid_entry *table;
	int n = port_gids(query, attr, &table);
	const struct gid_entry *best;

	if (n < 0)
		return n;
	best = gid_choose(table, (size_t)n);
	out->gids = calloc(n ? (size_t)n : 1, sizeof(*out->gids));
	for (int i = 0; out->gids && i < n; i++) {
		struct inspect_gid *gid = &out->gids[out->ngids];

		if (table[i].readable && gid_is_empty(table[i].raw))
			continue;
		fill_gid(gid, &table[i], port, out->usable);
		explain_gid(gid, &table[i], best, query->settings);
		out->ngids++;
	}
	free(table);
	return out->gids ? 0 : -ENOMEM;
}

/* ---- ports ---- */

static unsigned lanes_of(uint8_t width)
{
	switch (width) {
	case 1:
		return 1;
	case 2:
		return 4;
	case 4:
		return 8;
	case 8:
		return 12;
	case 16:
		return 2;
	default:
		return 0;
	}
}

/* What one lane signals, in Gbit/s. */
static double lane_gbits(unsigned speed)
{
	switch (speed) {
	case 1:
		return 2.5;
	case 2:
		return 5;
	case 4:
	case 8:
		return 10;
	case 16:
		return 14;
	case 32:
		return 25;
	case 64:
		return 50;
	case 128:
		return 100;
	default:
		return 0;
	}
}

static void read_netdev(const char *device, struct inspect_port *out)
{
	char path[192];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), NET_PATH, device, out->number,
		 out->ngids ? out->gids[0].index : 0);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	n = read(fd, out->netdev, sizeof(out->netdev) - 1);
	close(fd);
	out->netdev[n > 0 ? n : 0] = '\0';
	out->netdev[strcspn(out->netdev, "\n")] = '\0';
}

static unsigned mtu_bytes(int mtu)
{
	return mtu >= IBV_MTU_256 && mtu <= IBV_MTU_4096 ? 128u << mtu : 0;
}

static void fill_port(const struct ibv_port_attr *attr,
		      struct inspect_port *out)
{
	const char *layer = "unknown";

	if (attr->link_layer == IBV_LINK_LAYER_ETHERNET)
		layer = "Ethernet";
	else if (attr->link_layer == IBV_LINK_LAYER_INFINIBAND)
		layer = "InfiniBand";
	out->active = attr->state == IBV_PORT_ACTIVE;
	snprintf(out->state, sizeof(out->state), "%s",
		 ibv_port_state_str(attr->state));
	snprintf(out->link_layer, sizeof(out->link_layer), "%s", layer);
	out->lanes = lanes_of(attr->active_width);
	out->gbits = out->lanes * lane_gbits(attr->active_speed);
	out->active_mtu = mtu_bytes((int)attr->active_mtu);
	out->max_mtu = mtu_bytes((int)attr->max_mtu);
	out->lid = attr->lid;
	out->max_message = attr->max_msg_sz;
	out->pkeys = attr->pkey_tbl_len;
}

static int inspect_port(const struct port_query *query,
			struct inspect_port *out)
{
	struct ibv_port_attr attr;
	struct path_port port, pkey = {.pkey_index = 0};
	char why[PORT_WHY];
	int err;

	out->number = query->num;
	out->usable = !port_read(query, &attr, &port, out->why);
	if (out->usable &&
	    !device_admits(query->settings, query->name, query->num)) {
		out->usable = false;
		snprintf(out->why, sizeof(out->why), "VBN_IB_HCA excludes it");
	}
	fill_port(&attr, out);
	out->pkey_found = !port_pkey(query, &attr, &pkey, why);
	out->pkey_index = pkey.pkey_index;
	err = fill_gids(query, &attr, &port, out);
	read_netdev(query->name, out);
	return err;
}

/* ---- devices ---- */

static void not_usable(struct inspect_device *out, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void not_usable(struct inspect_device *out, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(out->why, sizeof(out->why), fmt, args);
	va_end(args);
	out->usable = false;
}

static void fill_guid(uint64_t raw, char *text, size_t room)
{
	const uint8_t *p = (const uint8_t *)&raw;

	snprintf(text, room, "%02x%02x:%02x%02x:%02x%02x:%02x%02x", p[0], p[1],
		 p[2], p[3], p[4], p[5], p[6], p[7]);
}

static void fill_caps(const struct ibv_device_attr *attr,
		      struct inspect_device *out)
{
	static const char *const atomics[] = {
		[IBV_ATOMIC_NONE] = "none",
		[IBV_ATOMIC_HCA] = "device",
		[IBV_ATOMIC_GLOB] = "global",
	};

	out->software = port_software(attr);
	out->vendor_id = attr->vendor_id;
	out->vendor_part_id = attr->vendor_part_id;
	out->hw_version = attr->hw_ver;
	snprintf(out->firmware, sizeof(out->firmware), "%s", attr->fw_ver);
	fill_guid(attr->node_guid, out->guid, sizeof(out->guid));
	out->has_atomics = attr->atomic_cap != IBV_ATOMIC_NONE;
	snprintf(out->atomics, sizeof(out->atomics), "%s",
		 (size_t)attr->atomic_cap < 3 ? atomics[attr->atomic_cap]
					      : "unknown");
	out->max_qp = attr->max_qp;
	out->max_qp_wr = attr->max_qp_wr;
	out->max_sge = attr->max_sge;
	out->max_srq = attr->max_srq;
	out->max_srq_wr = attr->max_srq_wr;
	out->max_cq = attr->max_cq;
	out->max_cqe = attr->max_cqe;
	out->max_mr = attr->max_mr;
	out->max_pd = attr->max_pd;
	out->max_reads = attr->max_qp_rd_atom;
	out->max_mr_size = attr->max_mr_size;
}

/* What the device grants is known by making a queue pair only. */
static void try_queue_pair(struct rail *rail, struct inspect_device *out)
{
	out->inline_bytes = -1;
	rail->pd = ibv_alloc_pd(rail->device);
	if (!rail->pd) {
		snprintf(out->inline_why, sizeof(out->inline_why),
			 "ibv_alloc_pd: %s", strerror(errno));
		return;
	}
	if (qp_probe(rail)) {
		snprintf(out->inline_why, sizeof(out->inline_why), "%s",
			 vbn_error());
		not_usable(out, "%s", vbn_error());
	} else {
		out->inline_bytes = (int)rail->inline_max;
		out->has_wr_api = rail->builders;
	}
	ibv_dealloc_pd(rail->pd);
}

static int inspect_ports(struct rail *rail, struct inspect_device *out)
{
	int err = 0;

	out->ports =
		calloc(rail->attr.phys_port_cnt ? rail->attr.phys_port_cnt : 1,
		       sizeof(*out->ports));
	if (!out->ports)
		return -ENOMEM;
	for (unsigned i = 0; !err && i < rail->attr.phys_port_cnt; i++) {
		struct port_query query = {.device = rail->device,
					   .name = out->name,
					   .num = (uint8_t)(i + 1),
					   .software = out->software,
					   .settings = &rail->job->settings};

		err = inspect_port(&query, &out->ports[i]);
		out->nports++;
	}
	return err;
}

/* A port is of no use on a device that is not. */
static void spoil_ports(struct inspect_device *out)
{
	for (size_t i = 0; i < out->nports; i++)
		if (out->ports[i].usable) {
			out->ports[i].usable = false;
			snprintf(out->ports[i].why, sizeof(out->why), "%s",
				 out->why);
		}
}

static bool any_port(struct inspect_device *out)
{
	for (size_t i = 0; i < out->nports; i++)
		if (out->ports[i].usable)
			return true;
	return false;
}

static void fill_extended(struct ibv_context *device,
			  struct inspect_device *out)
{
	struct ibv_device_attr_ex attr = {.comp_mask = 0};

	if (!ibv_query_device_ex(device, NULL, &attr))
		out->has_odp = attr.odp_caps.general_caps & IBV_ODP_SUPPORT;
}

static int inspect_open(struct rail *rail, struct inspect_device *out)
{
	const char *lacks;
	int err = ibv_query_device(rail->device, &rail->attr);

	if (err) {
		not_usable(out, "%s", strerror(err));
		return 0;
	}
	fill_caps(&rail->attr, out);
	fill_extended(rail->device, out);
	device_caps(rail);
	out->usable = out->admitted;
	if (!out->admitted)
		not_usable(out, "VBN_IB_HCA excludes it");
	err = inspect_ports(rail, out);
	if (!err && out->usable && !any_port(out))
		not_usable(out, "no usable port");
	lacks = device_lacks(&rail->attr);
	if (lacks)
		not_usable(out, "%s", lacks);
	try_queue_pair(rail, out);
	if (!out->usable)
		spoil_ports(out);
	return err;
}

static int inspect_device(struct ibv_device *dev,
			  const struct path_settings *settings,
			  struct inspect_device *out)
{
	struct verbs_job *job = calloc(1, sizeof(*job));
	struct rail *rail;
	int err;

	if (!job)
		return -ENOMEM;
	job->nrails = 1;
	rail = &job->rail[0];
	rail->job = job;
	snprintf(out->name, sizeof(out->name), "%s", ibv_get_device_name(dev));
	snprintf(rail->name, sizeof(rail->name), "%s", out->name);
	out->admitted = device_admits(settings, out->name, 0);
	out->inline_bytes = -1;
	job->settings = *settings;
	errno = 0;
	rail->device = ibv_open_device(dev);
	if (!rail->device) {
		not_usable(out, "cannot be opened: %s",
			   errno ? strerror(errno) : "no driver for it");
		free(job);
		return 0;
	}
	out->openable = true;
	err = inspect_open(rail, out);
	ibv_close_device(rail->device);
	free(job);
	return err;
}

/* ---- the whole ---- */

/* The usable ones of a device, @want only or all (0), at most @most. */
static int choose_of(struct inspect_device *d, int want, int most)
{
	int n = 0;

	for (size_t k = 0; d->usable && k < d->nports && n < most; k++) {
		struct inspect_port *p = &d->ports[k];

		if (!p->usable || p->chosen || (want && want != (int)p->number))
			continue;
		p->chosen = true;
		n++;
	}
	return n;
}

/* As device_open() takes them. */
static void mark_chosen(struct inspect_report *report,
			const struct device_turn *turns, size_t n, int most)
{
	int taken = 0;

	for (size_t i = 0; i < n; i++)
		taken += choose_of(&report->devices[turns[i].device],
				   turns[i].port, most - taken);
	if (!taken) {
		snprintf(report->why, sizeof(report->why), "%s",
			 report->ndevices ? "no device has a usable port"
					  : "this machine has no RDMA device");
		return;
	}
	report->usable = true;
	for (size_t i = 0; i < report->ndevices; i++)
		for (size_t k = 0; k < report->devices[i].nports; k++) {
			struct inspect_port *p = &report->devices[i].ports[k];

			if (p->usable && !p->chosen)
				snprintf(p->why, sizeof(p->why),
					 "others come first (VBN_IB_HCA "
					 "chooses, VBN_IB_RAILS says how "
					 "many)");
		}
}

static int inspect_all(struct inspect_report *report,
		       const struct path_settings *settings)
{
	struct device_turn turns[DEVICE_TURNS];
	struct ibv_device **list;
	size_t nturns;
	int n = 0, err = 0;

	list = ibv_get_device_list(&n);
	if (!list)
		n = 0;
	report->devices = calloc(n ? (size_t)n : 1, sizeof(*report->devices));
	if (!report->devices)
		err = -ENOMEM;
	for (int i = 0; !err && i < n; i++) {
		report->ndevices++;
		err = inspect_device(list[i], settings, &report->devices[i]);
	}
	nturns = list ? device_order(settings, list, n, turns) : 0;
	if (!err)
		mark_chosen(report, turns, nturns, settings->rails);
	if (list)
		ibv_free_device_list(list);
	return err;
}

int inspect_verbs(struct inspect_report **out)
{
	struct inspect_report *report;
	struct path_settings settings;
	int err = path_settings_read(&settings);

	if (err)
		return err;
	report = calloc(1, sizeof(*report));
	if (!report)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	err = inspect_all(report, &settings);
	if (err) {
		inspect_free(report);
		return vbn_fail(err, "verbs: %s", strerror(-err));
	}
	*out = report;
	return 0;
}

void inspect_free(struct inspect_report *report)
{
	for (size_t i = 0; i < report->ndevices; i++) {
		for (size_t k = 0; k < report->devices[i].nports; k++)
			free(report->devices[i].ports[k].gids);
		free(report->devices[i].ports);
	}
	free(report->devices);
	free(report);
}
