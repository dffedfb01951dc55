/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What this machine's RDMA devices are and what the verbs provider would make
 * of them, as data: for programs that tell people (verbena-info). Looks by the
 * same rules and settings (VBN_IB_*) as a job does. Nothing is printed, and
 * no type of libibverbs shows here.
 */
#ifndef VBN_VERBS_INSPECT_H
#define VBN_VERBS_INSPECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INSPECT_NAME 64
#define INSPECT_TEXT 48
#define INSPECT_WHY  256

/* An entry of a port's GID table. Empty (all zero) ones are left out. */
struct inspect_gid {
	unsigned index;
	bool readable;
	bool chosen;		    /* what the port would publish first */
	char type[INSPECT_TEXT];    /* "RoCE v2", "RoCE v1", "InfiniBand" */
	char address[INSPECT_TEXT]; /* "::ffff:10.1.2.3"; "" if unreadable */
	char why[INSPECT_WHY];	    /* why chosen, or why not; never "" */
};

struct inspect_port {
	unsigned number;
	bool active;
	bool usable;		  /* a job could speak through it */
	bool chosen;		  /* and would, as things are */
	char why[INSPECT_WHY];	  /* if not usable: the reason; if usable and
				     not chosen: what is preferred; else "" */
	char state[INSPECT_TEXT]; /* "PORT_ACTIVE", "PORT_DOWN", ... */
	char link_layer[INSPECT_TEXT]; /* "InfiniBand" or "Ethernet" */
	char netdev[INSPECT_TEXT];     /* network interface (RoCE), or "" */
	double gbits;		       /* signalling rate, 0: not known */
	unsigned lanes; /* link width: 1, 2, 4, 8, 12; 0 unknown */
	unsigned active_mtu, max_mtu; /* bytes */
	unsigned lid;		      /* 0: none */
	uint64_t max_message;	      /* bytes in one operation */
	unsigned pkeys;		      /* length of the partition key table */
	unsigned pkey_index;	      /* that of VBN_IB_PKEY, if pkey_found */
	bool pkey_found;
	struct inspect_gid *gids;
	size_t ngids;
};

struct inspect_device {
	char name[INSPECT_NAME];
	bool openable;
	bool usable;	       /* has a usable port and all that is needed */
	char why[INSPECT_WHY]; /* if not openable or not usable: the reason */
	bool admitted;	       /* VBN_IB_HCA does not exclude it */
	/* the rest is filled if openable */
	bool software; /* rdma_rxe, siw */
	uint32_t vendor_id, vendor_part_id, hw_version;
	char firmware[INSPECT_NAME];
	char guid[INSPECT_TEXT];    /* of the node, "0011:2233:4455:6677" */
	char atomics[INSPECT_TEXT]; /* "none", "device", "global" */
	bool has_atomics;
	bool has_wr_api; /* the ibv_wr_* builders are granted */
	bool has_odp;
	int max_qp, max_qp_wr, max_sge, max_srq, max_srq_wr, max_cq, max_cqe;
	int max_mr, max_pd, max_reads; /* max_reads: in flight per queue pair */
	uint64_t max_mr_size;
	int inline_bytes; /* granted to a trial queue pair; -1: none made */
	char inline_why[INSPECT_WHY]; /* if -1: the reason */
	struct inspect_port *ports;
	size_t nports;
};

struct inspect_report {
	struct inspect_device *devices; /* in the order of libibverbs */
	size_t ndevices;
	bool usable;	       /* a job's verbs provider would open */
	char why[INSPECT_WHY]; /* else its error line */
};

/*
 * Look at every device. Opens each for a moment and makes one queue pair on
 * it; changes nothing. 0 and *@report, to be freed; -ENOMEM; -EINVAL with
 * vbn_error() for a bad VBN_IB_* setting. No device is no error: ndevices is
 * 0 and why says so. Any thread; blocks for as long as the driver does.
 */
int inspect_verbs(struct inspect_report **report);
void inspect_free(struct inspect_report *report);

#endif
