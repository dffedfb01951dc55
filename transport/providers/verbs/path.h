/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The path of a connection: which addresses it runs between, and the queue
 * pair's attributes for it. Pure functions, but for reading the settings.
 */
#ifndef VBN_VERBS_PATH_H
#define VBN_VERBS_PATH_H

#include "offer.h"
#include "env.h"

#include <infiniband/verbs.h>

#define TIMEOUT_SOFTWARE 14 /* 67 ms */
#define TIMEOUT_HARDWARE 18 /* 1.1 s: outlives a fabric's congestion */
#define RETRIES		 6  /* 7 is without end on some devices */
#define PATH_WHY	 320

/* VBN_IB_*, as they are for one job. */
struct path_settings {
	struct env_devices devices;
	int gid_index; /* -1: by rule */
	int timeout;   /* -1: by kind of device */
	uint8_t retry_cnt;
	uint8_t mtu_max; /* enum ibv_mtu */
	uint8_t sl, tc, qps, rails;
	uint16_t pkey;
	bool rdmacm; /* connects */
};

/* This side of a job's connections: the port and how it is used. */
struct path_port {
	struct port_address address; /* gids hold their index here */
	uint16_t pkey_index;
	uint8_t sl, tc, timeout, retry_cnt;
	bool grh; /* packets need a global routing header */
};

/* One connection's two ends. */
struct path {
	bool infiniband;
	struct gid_entry local; /* with its index */
	uint8_t peer[GID_BYTES];
	int self_rank, rank; /* for error lines */
};

/* 0, or -EINVAL naming the variable. */
int path_settings_read(struct path_settings *settings);

/*
 * Can the two ports talk, and by which addresses? Fills local, peer and
 * infiniband; the ranks are set before. -EHOSTUNREACH: one line that names
 * both ends and what differs.
 */
int path_choose(const struct path_port *port, const struct port_address *peer,
		struct path *path);
/* The same, for the addresses that the peer's offer names. */
int path_accept(const struct path_port *port, const struct port_address *peer,
		const struct qp_offer *offer, struct path *path);
/* The answer names the addresses that were chosen? Else -EPROTO. */
int path_confirm(const struct path *path, const struct qp_offer *answer);

/* Are both addresses of one subnet, as far as can be told? */
bool path_one_subnet(const struct path *path);

/* Our offer: all but queue pair, numbers of reads, generation. */
void path_offer(const struct path_port *port, const struct path *path,
		struct qp_offer *offer);

/* Both sides' largest packet, enum ibv_mtu. */
uint8_t path_mtu(const struct path_port *port, const struct qp_offer *peer);

/*
 * Attributes for ibv_modify_qp() to INIT, RTR and RTS; return the mask. @self
 * is what was offered to the peer.
 */
int path_init(const struct path_port *port, bool atomics,
	      struct ibv_qp_attr *attr);
int path_rtr(const struct path_port *port, const struct path *path,
	     const struct qp_offer *self, const struct qp_offer *peer,
	     struct ibv_qp_attr *attr);
int path_rts(const struct path_port *port, const struct qp_offer *self,
	     const struct qp_offer *peer, struct ibv_qp_attr *attr);

/* "rank 0 (mlx5_0 port 1 GID ::ffff:10.1.2.3) to rank 3 (GID ...)" */
const char *path_text(const struct path_port *port, const struct path *path,
		      char text[PATH_WHY]);

#endif
