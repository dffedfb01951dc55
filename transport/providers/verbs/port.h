/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a port has, and whether connections can be made through it under the
 * job's settings. Shared by the choice of a device (device.c), its refresh on
 * an event, and by what tells people (inspect.c).
 */
#ifndef VBN_VERBS_PORT_H
#define VBN_VERBS_PORT_H

#include "path.h"

#define PORT_WHY 256

/* Which port, for whom. */
struct port_query {
	struct ibv_context *device;
	const char *name; /* of the device */
	uint8_t num;
	bool software; /* rdma_rxe or siw */
	const struct path_settings *settings;
};

/* rdma_rxe and siw. */
bool port_software(const struct ibv_device_attr *attr);

/*
 * Read the port. 0 and @attr and @port filled, or -errno and the reason in
 * @why, without a name in front; @attr is filled if the port could be queried
 * (else its state is IBV_PORT_NOP).
 */
int port_read(const struct port_query *query, struct ibv_port_attr *attr,
	      struct path_port *port, char why[PORT_WHY]);

/*
 * The port's GID table, unreadable entries marked so. Returns its length, or
 * -ENOMEM. The caller frees *table.
 */
int port_gids(const struct port_query *query, const struct ibv_port_attr *attr,
	      struct gid_entry **table);

/* Where the settings' partition key is. 0, or -ENOENT with @why. */
int port_pkey(const struct port_query *query, const struct ibv_port_attr *attr,
	      struct path_port *port, char why[PORT_WHY]);

#endif
