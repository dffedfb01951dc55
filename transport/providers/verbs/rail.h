/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a job has of the machine's devices. Each port that it speaks through is
 * a rail, with a protection domain (and so a key of every registration) of its
 * own; two ports of one device are two rails that share nothing.
 */
#ifndef VBN_VERBS_RAIL_H
#define VBN_VERBS_RAIL_H

#include "provider.h"
#include "path.h"

#include <infiniband/verbs.h>

#include <pthread.h>
#include <stdatomic.h>

/*
 * What a region's announcement holds, in memory order: both ends are of one
 * job on x86-64. Access is checked here before the device does, because a
 * refusal by the target breaks the connection.
 */
struct announcement {
	uint32_t access; /* VBN_ACCESS_* */
	uint32_t rkey[]; /* by the owner's rails */
};

/* Memory, with all rails. */
struct registration {
	struct ibv_mr *mr[RAILS_MAX];
	uint32_t lkey[RAILS_MAX];
};

/*
 * A port. Until the job closes, only what an event tells changes: [control]
 * writes `port` under the job's lock and reads it without.
 */
struct rail {
	struct verbs_job *job;
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	struct path_port port;
	char name[IBV_SYSFS_NAME_MAX];
	uint8_t port_num;
	uint8_t index; /* in the job */
	bool atomics;
	uint32_t depth;	       /* send slots of a queue pair */
	uint32_t inline_asked; /* what the device agrees to */
	uint32_t inline_max;   /* and what it grants for that */
	bool builders;	       /* the device has ibv_wr_*() */
	bool software;	       /* soft-RoCE and the like */
	atomic_uint mrs;       /* registrations that exist */
	atomic_bool port_down; /* an event said so */
	atomic_bool fatal;     /* and that the device is gone */
	unsigned srq_limits;   /* [control] receives ran low so often */
	uint64_t events_told;  /* [control] unknown kinds that were logged */
};

/* One job's rails, the first first. */
struct verbs_job {
	struct vbn_job *core;
	struct path_settings settings;
	uint8_t nrails;
	struct rail rail[RAILS_MAX];
	bool atomics;		/* all rails have them */
	uint32_t inline_max;	/* that all rails grant */
	struct verbs_ctx *ctxs; /* under the lock */
	pthread_mutex_t lock;
	struct cm *cm;		/* who connects, or NULL: we do (VBN_CONNECT) */
	uint8_t mtu_told[8192]; /* [control] a bit per rank */
};

/* Do the device and the port work, as far as events have told? */
static inline bool rail_is_up(const struct rail *rail)
{
	return !atomic_load(&rail->fatal) && !atomic_load(&rail->port_down);
}

/* Has the device of every rail failed? */
static inline bool rails_all_dead(const struct verbs_job *job)
{
	for (unsigned i = 0; i < job->nrails; i++)
		if (!atomic_load(&job->rail[i].fatal))
			return false;
	return true;
}

/* ---- device.c: devices and ports, chosen once per job ---- */

int device_open(struct verbs_job *job);
/* What is done with what the device has: from name and attr. */
void device_caps(struct rail *rail);
void device_close(struct verbs_job *job);
/*
 * [control] Read the port again. true: what contexts publish has changed.
 * Without any usable address left all stays as it was.
 */
bool device_refresh(struct rail *rail);
/* What contexts publish: how all rails are reached. */
void device_addresses(const struct verbs_job *job, struct blob *address);

/* ---- qp.c ---- */

/* Find out, with a throw-away, what the device grants. */
int qp_probe(struct rail *rail);

/* ---- register.c ---- */

/*
 * Register with all rails. 0 and *out, which register_free() frees; or -errno
 * with vbn_fail(), which says what it was for: @what.
 */
int register_all(struct verbs_job *job, void *addr, size_t len, int access,
		 const char *what, struct registration **out);
void register_free(struct verbs_job *job, struct registration *mr);
/* 0: there is none. */
uint32_t register_rkey(const struct registration *mr, unsigned rail);

/* ---- limits.c ---- */

/*
 * Why registering (or creating) @what of @bytes failed with @err: sets the
 * error line, which names the limit and how to raise it. Returns -@err.
 */
int limits_explain(struct rail *rail, int err, const char *what, size_t bytes);

#endif
