/* SPDX-License-Identifier: BSD-3-Clause */
/* Connecting the raw baseline's queue pairs: see raw.h. */
#include "raw.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int exchange(struct raw *raw)
{
	struct raw_address mine[PERF_QPS_MAX], theirs[PERF_QPS_MAX];
	struct perf *p = raw->p;
	size_t size = raw->nqps * sizeof(mine[0]), len = sizeof(theirs);
	char name[32];
	int rc;

	for (size_t i = 0; i < raw->nqps; i++)
		mine[i] = (struct raw_address){
			.gid = raw->gid,
			.target = (uintptr_t)raw->qps[i].target,
			.rkey = raw->mr->rkey,
			.qp_num = raw->qps[i].qp->qp_num,
			.psn = 0x1234,
			.lid = raw->port_attr.lid,
			.mtu = raw->path_mtu,
			.reads = (uint8_t)raw->attr.max_qp_rd_atom,
		};
	snprintf(name, sizeof(name), "perf/raw/%d", p->rank);
	rc = vbn_job_set(p->job, name, mine, size, PERF_WAIT_MS);
	snprintf(name, sizeof(name), "perf/raw/%d", p->peer);
	if (rc == 0)
		rc = vbn_job_get(p->job, name, theirs, &len, PERF_WAIT_MS);
	if (rc == 0 && len != size)
		return perf_fail(-EPROTO, "the ranks have different options");
	for (size_t i = 0; i < raw->nqps && rc == 0; i++)
		raw->qps[i].theirs = theirs[i];
	return rc ? perf_failed(rc, "raw: exchanging addresses") : 0;
}

unsigned raw_access(const struct raw *raw)
{
	unsigned access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	if (raw->attr.atomic_cap != IBV_ATOMIC_NONE)
		access |= IBV_ACCESS_REMOTE_ATOMIC;
	return access;
}

static int to_init(struct raw *raw, struct raw_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = raw->port,
		.qp_access_flags = raw_access(raw),
	};

	return ibv_modify_qp(qp->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(struct raw *raw, struct raw_qp *qp)
{
	const struct perf_options *o = &raw->p->opts;
	const struct raw_address *a = &qp->theirs;
	bool ethernet = raw->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = a->mtu < raw->path_mtu ? a->mtu : raw->path_mtu,
		.dest_qp_num = a->qp_num,
		.rq_psn = a->psn,
		.max_dest_rd_atomic = (uint8_t)raw->attr.max_qp_rd_atom,
		.min_rnr_timer = 12,
		.ah_attr = {.dlid = a->lid,
			    .port_num = raw->port,
			    .sl = o->sl != PERF_UNSET ? (uint8_t)o->sl : 0,
			    .is_global = ethernet || o->gid_index != PERF_UNSET,
			    .grh = {.dgid = a->gid,
				    .sgid_index = raw->gid_index,
				    .traffic_class = o->tos != PERF_UNSET
							     ? (uint8_t)o->tos
							     : 0,
				    .hop_limit = 64}},
	};

	return ibv_modify_qp(qp->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

/*
 * retry_cnt 7 means for ever on some devices; rnr_retry 7 always does, but a
 * peer that is alive posts receives, and one that is dead is noticed.
 */
static int to_rts(struct raw *raw, struct raw_qp *qp)
{
	int own = raw->attr.max_qp_init_rd_atom;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 0x1234,
		.timeout = 14,
		.retry_cnt = 6,
		.rnr_retry = 7,
		.max_rd_atomic = own < qp->theirs.reads ? (uint8_t)own
							: qp->theirs.reads,
	};

	return ibv_modify_qp(qp->qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				     IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_MAX_QP_RD_ATOMIC);
}

int raw_connect(struct raw *raw)
{
	int rc = exchange(raw);

	if (rc != 0 || raw->p->opts.cm)
		return rc ? rc : raw_cm_connect(raw);
	for (size_t i = 0; i < raw->nqps && rc == 0; i++) {
		rc = to_init(raw, &raw->qps[i]);
		if (rc == 0)
			rc = to_rtr(raw, &raw->qps[i]);
		if (rc == 0)
			rc = to_rts(raw, &raw->qps[i]);
	}
	return rc ? perf_fail(-rc, "raw: cannot connect on %s: %s", raw->device,
			      strerror(rc))
		  : 0;
}
