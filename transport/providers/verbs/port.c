/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading a port: its state, its partition keys, its GIDs. Entries of the GID
 * table that cannot be read are passed over: tables have holes.
 */
#include "port.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOFTWARE_VENDOR 0xffffffu
#define GIDS_MAX	256 /* a routing header's index is a byte */
#define PKEY_MEMBER	0x8000u
#define ETHERNET_SL_MAX 7

bool port_software(const struct ibv_device_attr *attr)
{
	return attr->vendor_id == SOFTWARE_VENDOR;
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

static void read_gid(const struct port_query *query, uint32_t index,
		     struct gid_entry *entry)
{
	struct ibv_gid_entry raw;
	int err;

	memset(entry, 0, sizeof(*entry));
	entry->index = index;
	err = ibv_query_gid_ex(query->device, query->num, index, &raw, 0);
	entry->readable = !err || err == ENODATA; /* empty */
	if (err)
		return;
	entry->type = gid_type_of(raw.gid_type);
	memcpy(entry->raw, raw.gid.raw, GID_BYTES);
}

int port_gids(const struct port_query *query, const struct ibv_port_attr *attr,
	      struct gid_entry **table)
{
	int n = attr->gid_tbl_len;

	if (n > GIDS_MAX)
		n = GIDS_MAX;
	if (n < 0)
		n = 0;
	*table = calloc(n ? (size_t)n : 1, sizeof(**table));
	if (!*table)
		return -ENOMEM;
	for (int i = 0; i < n; i++)
		read_gid(query, (uint32_t)i, &(*table)[i]);
	return n;
}

/* ---- partition keys ---- */

static void list_pkeys(const struct port_query *query, int n, char *why)
{
	size_t len = strlen(why);
	__be16 key;

	for (int i = 0; i < n && len + 16 < PORT_WHY; i++)
		if (!ibv_query_pkey(query->device, query->num, i, &key) && key)
			len += (size_t)snprintf(why + len, PORT_WHY - len,
						" 0x%04x", ntohs(key));
}

int port_pkey(const struct port_query *query, const struct ibv_port_attr *attr,
	      struct path_port *port, char why[PORT_WHY])
{
	uint16_t want = query->settings->pkey;
	__be16 key;

	for (int i = 0; i < attr->pkey_tbl_len; i++) {
		if (ibv_query_pkey(query->device, query->num, i, &key))
			continue;
		/* a full membership is better than a limited one */
		if ((ntohs(key) ^ want) & (uint16_t)~PKEY_MEMBER ||
		    (port->address.pkey & PKEY_MEMBER))
			continue;
		port->pkey_index = (uint16_t)i;
		port->address.pkey = ntohs(key);
	}
	if (port->address.pkey)
		return 0;
	snprintf(why, PORT_WHY,
		 "no partition key 0x%04x (VBN_IB_PKEY), its table has:", want);
	list_pkeys(query, attr->pkey_tbl_len, why);
	return -ENOENT;
}

/* ---- addresses ---- */

static int forced_gid(const struct port_query *query,
		      const struct gid_entry *table, int n,
		      struct port_address *address, char *why)
{
	int index = query->settings->gid_index;
	const struct gid_entry *entry = index < n ? &table[index] : NULL;

	if (entry && entry->readable && !gid_is_empty(entry->raw)) {
		address->gids[0] = *entry;
		address->ngids = 1;
		return 0;
	}
	snprintf(why, PORT_WHY,
		 "GID %d (VBN_IB_GID_INDEX) %s, ibv_devinfo -v lists those "
		 "that can be used",
		 index,
		 entry && entry->readable ? "is empty" : "cannot be read");
	return -ENODEV;
}

static int roce_address(const struct port_query *query,
			const struct gid_entry *table, int n,
			struct port_address *address, char *why)
{
	if (query->settings->sl > ETHERNET_SL_MAX) {
		snprintf(why, PORT_WHY,
			 "VBN_IB_SL is %u, Ethernet has priorities 0 to %d",
			 query->settings->sl, ETHERNET_SL_MAX);
		return -EINVAL;
	}
	if (query->settings->gid_index >= 0)
		return forced_gid(query, table, n, address, why);
	address->ngids = (uint8_t)gid_candidates(table, (size_t)n,
						 address->gids, PORT_GIDS);
	if (address->ngids)
		return 0;
	snprintf(why, PORT_WHY,
		 "no usable GID, its network interface needs an IP address");
	return -ENODEV;
}

static int ib_address(const struct port_query *query,
		      const struct gid_entry *table, int n,
		      const struct ibv_port_attr *attr,
		      struct port_address *address, char *why)
{
	address->infiniband = true;
	address->lid = attr->lid;
	if (query->settings->gid_index >= 0)
		return forced_gid(query, table, n, address, why);
	if (n && table[0].readable && !gid_is_empty(table[0].raw)) {
		address->gids[0] = table[0];
		address->ngids = 1;
	}
	if (address->lid ||
	    (address->ngids && (attr->flags & IBV_QPF_GRH_REQUIRED)))
		return 0;
	snprintf(why, PORT_WHY, "no LID yet, is a subnet manager running?");
	return -ENODEV;
}

static int read_address(const struct port_query *query,
			const struct ibv_port_attr *attr,
			struct path_port *port, char *why)
{
	struct gid_entry *table;
	int n = port_gids(query, attr, &table), err;

	if (n < 0) {
		snprintf(why, PORT_WHY, "out of memory");
		return n;
	}
	if (attr->link_layer == IBV_LINK_LAYER_ETHERNET)
		err = roce_address(query, table, n, &port->address, why);
	else
		err = ib_address(query, table, n, attr, &port->address, why);
	free(table);
	return err;
}

/* ---- the whole ---- */

static void fill_settings(const struct port_query *query,
			  const struct ibv_port_attr *attr,
			  struct path_port *port)
{
	const struct path_settings *settings = query->settings;
	uint8_t mtu = (uint8_t)attr->active_mtu;

	port->address.mtu = mtu < settings->mtu_max ? mtu : settings->mtu_max;
	port->address.port_num = query->num;
	snprintf(port->address.name, sizeof(port->address.name), "%s",
		 query->name);
	port->sl = settings->sl;
	port->tc = settings->tc;
	port->retry_cnt = settings->retry_cnt;
	port->timeout = settings->timeout >= 0 ? (uint8_t)settings->timeout
			: query->software      ? TIMEOUT_SOFTWARE
					       : TIMEOUT_HARDWARE;
	port->grh = attr->link_layer == IBV_LINK_LAYER_ETHERNET ||
		    (attr->flags & IBV_QPF_GRH_REQUIRED);
}

int port_read(const struct port_query *query, struct ibv_port_attr *attr,
	      struct path_port *port, char why[PORT_WHY])
{
	int err;

	memset(attr, 0, sizeof(*attr));
	memset(port, 0, sizeof(*port));
	err = ibv_query_port(query->device, query->num, attr);
	if (err) {
		memset(attr, 0, sizeof(*attr));
		snprintf(why, PORT_WHY, "%s", strerror(err));
		return -ENODEV;
	}
	if (attr->state != IBV_PORT_ACTIVE) {
		snprintf(why, PORT_WHY,
			 "%s: is the cable in, its network "
			 "interface up?",
			 ibv_port_state_str(attr->state));
		return -ENODEV;
	}
	fill_settings(query, attr, port);
	err = port_pkey(query, attr, port, why);
	return err ? err : read_address(query, attr, port, why);
}
