/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The baseline of put-lat and put-bw: the same exchange on ibverbs, with
 * nothing between. One reliable connection, one completion queue, connected by
 * the job's key-value store.
 *
 * Latency goes as in ib_write_lat: write, wait for the completion, look at the
 * last byte of the buffer until the other's write has come. That the last byte
 * comes last is presumed here, as it is there; the library does not. Values of
 * the last byte go round 1..255, and the payload is 0 otherwise, so that an
 * older write is never taken for the one awaited.
 */
#include "perf.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define RECEIVES 64
#define DEPTH	 128
#define INLINE	 220 /* as ib_write_lat asks for */
#define GIDS	 256

/* What each side tells the other. */
struct raw_address {
	union ibv_gid gid;
	uint64_t target;
	uint32_t rkey, qp_num, psn;
	uint16_t lid;
	uint8_t mtu, unused;
};

struct raw {
	struct perf *p;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	struct ibv_port_attr port_attr;
	struct ibv_sge sge;
	struct ibv_send_wr wr;
	uint8_t port;
	int gid_index;
	uint8_t *local; /* then the target, in one block */
	volatile uint8_t *target;
	size_t bytes, inline_max;
	uint8_t value; /* last byte of the last write */
	struct raw_address mine, theirs;
	char device[64];
};

const char *raw_device(const struct raw *raw)
{
	return raw->device;
}

/* ---- device ---- */

/* 3: RoCE v2, routable; 2: RoCE v2, link-local; 1: another; 0: none. */
static int gid_score(const struct ibv_gid_entry *e)
{
	static const union ibv_gid none;
	bool link_local =
		e->gid.raw[0] == 0xfe && (e->gid.raw[1] & 0xc0) == 0x80;

	if (memcmp(&e->gid, &none, sizeof(none)) == 0)
		return 0;
	if (e->gid_type != IBV_GID_TYPE_ROCE_V2)
		return 1;
	return link_local ? 2 : 3;
}

static bool pick_gid(struct raw *raw)
{
	struct ibv_gid_entry *e = calloc(GIDS, sizeof(*e));
	ssize_t n = e ? ibv_query_gid_table(raw->context, e, GIDS, 0) : -1;
	int best = 0;

	for (ssize_t i = 0; i < n; i++) {
		if (e[i].port_num != raw->port || gid_score(&e[i]) <= best)
			continue;
		best = gid_score(&e[i]);
		raw->gid_index = (int)e[i].gid_index;
		raw->mine.gid = e[i].gid;
	}
	free(e);
	return best > 0;
}

static bool pick_port(struct raw *raw)
{
	struct ibv_device_attr attr;

	if (ibv_query_device(raw->context, &attr) != 0)
		return false;
	for (uint8_t port = 1; port <= attr.phys_port_cnt; port++) {
		if (ibv_query_port(raw->context, port, &raw->port_attr) != 0 ||
		    raw->port_attr.state != IBV_PORT_ACTIVE)
			continue;
		raw->port = port;
		if (pick_gid(raw))
			return true;
	}
	return false;
}

static int open_device(struct raw *raw)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);

	for (int i = 0; list && i < n && !raw->port; i++) {
		raw->context = ibv_open_device(list[i]);
		if (!raw->context)
			continue;
		if (pick_port(raw)) {
			snprintf(raw->device, sizeof(raw->device), "%s",
				 ibv_get_device_name(list[i]));
			continue;
		}
		ibv_close_device(raw->context);
		raw->context = NULL;
		raw->port = 0;
	}
	if (list)
		ibv_free_device_list(list);
	if (raw->context)
		return 0;
	return perf_fail(-ENODEV,
			 "--raw needs an RDMA device with an active port: %d "
			 "found, none usable (see ibv_devinfo; a soft one: "
			 "rdma link add rxe0 type rxe netdev DEVICE)",
			 n);
}

/* ---- objects ---- */

static int make_memory(struct raw *raw, size_t bytes)
{
	size_t half = (bytes + 4095) & ~(size_t)4095;
	void *block = mmap(NULL, 2 * half, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (block == MAP_FAILED)
		return perf_fail(-ENOMEM, "raw: no memory");
	raw->local = block;
	raw->target = raw->local + half;
	raw->bytes = half;
	memset(block, 0, 2 * half);
	raw->mr = ibv_reg_mr(raw->pd, block, 2 * half,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!raw->mr)
		return perf_fail(-errno, "raw: cannot register %zu bytes: %s",
				 2 * half, strerror(errno));
	return 0;
}

static int make_qp(struct raw *raw)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = raw->send_cq,
		.recv_cq = raw->recv_cq,
		.cap = {.max_send_wr = DEPTH,
			.max_recv_wr = RECEIVES,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = INLINE},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	raw->qp = ibv_create_qp(raw->pd, &attr);
	if (!raw->qp) {
		attr.cap.max_inline_data = 0;
		raw->qp = ibv_create_qp(raw->pd, &attr);
	}
	if (!raw->qp)
		return perf_fail(-errno, "raw: cannot make a queue pair: %s",
				 strerror(errno));
	raw->inline_max = attr.cap.max_inline_data < INLINE
				  ? attr.cap.max_inline_data
				  : INLINE;
	return 0;
}

static int make_objects(struct raw *raw, size_t bytes)
{
	int rc;

	raw->pd = ibv_alloc_pd(raw->context);
	raw->send_cq = ibv_create_cq(raw->context, DEPTH, NULL, NULL, 0);
	raw->recv_cq = ibv_create_cq(raw->context, RECEIVES, NULL, NULL, 0);
	if (!raw->pd || !raw->send_cq || !raw->recv_cq)
		return perf_fail(-errno,
				 "raw: no protection domain or queue: "
				 "%s",
				 strerror(errno));
	rc = make_memory(raw, bytes);
	return rc ? rc : make_qp(raw);
}

/* ---- connecting ---- */

static int exchange(struct raw *raw)
{
	struct perf *p = raw->p;
	size_t len = sizeof(raw->theirs);
	int rc;

	raw->mine.target = (uintptr_t)raw->target;
	raw->mine.rkey = raw->mr->rkey;
	raw->mine.qp_num = raw->qp->qp_num;
	raw->mine.psn = 0x1234u + (unsigned)p->rank;
	raw->mine.lid = raw->port_attr.lid;
	raw->mine.mtu = (uint8_t)raw->port_attr.active_mtu;
	rc = vbn_job_set(p->job, p->rank ? "perf/raw/1" : "perf/raw/0",
			 &raw->mine, sizeof(raw->mine), PERF_WAIT_MS);
	if (rc == 0)
		rc = vbn_job_get(p->job, p->rank ? "perf/raw/0" : "perf/raw/1",
				 &raw->theirs, &len, PERF_WAIT_MS);
	if (rc == 0 && len != sizeof(raw->theirs))
		rc = -EPROTO;
	return rc ? perf_failed(rc, "raw: exchanging addresses") : 0;
}

static int to_init(struct raw *raw)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = raw->port,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	return ibv_modify_qp(raw->qp, &attr,
			     IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				     IBV_QP_ACCESS_FLAGS);
}

static int to_rtr(struct raw *raw)
{
	const struct raw_address *a = &raw->theirs;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = a->mtu < raw->mine.mtu ? a->mtu : raw->mine.mtu,
		.dest_qp_num = a->qp_num,
		.rq_psn = a->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.dlid = a->lid,
			    .port_num = raw->port,
			    .is_global = 1,
			    .grh = {.dgid = a->gid,
				    .sgid_index = (uint8_t)raw->gid_index,
				    .hop_limit = 64}},
	};

	return ibv_modify_qp(raw->qp, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC |
				     IBV_QP_MIN_RNR_TIMER);
}

/* retry_cnt 7 means for ever on some devices. */
static int to_rts(struct raw *raw)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = raw->mine.psn,
		.timeout = 14,
		.retry_cnt = 6,
		.rnr_retry = 6,
		.max_rd_atomic = 1,
	};

	return ibv_modify_qp(raw->qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
				     IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_MAX_QP_RD_ATOMIC);
}

static int post_receive(struct raw *raw)
{
	struct ibv_recv_wr wr = {.wr_id = 1}, *bad;

	return ibv_post_recv(raw->qp, &wr, &bad);
}

static int connect_raw(struct raw *raw)
{
	int rc = to_init(raw);

	for (int i = 0; i < RECEIVES && rc == 0; i++)
		rc = post_receive(raw);
	if (rc == 0)
		rc = to_rtr(raw);
	if (rc == 0)
		rc = to_rts(raw);
	if (rc != 0)
		return perf_fail(-rc, "raw: cannot connect on %s: %s",
				 raw->device, strerror(rc));
	/* Nobody writes before the other can receive. */
	rc = vbn_job_fence(raw->p->job, PERF_WAIT_MS);
	return rc ? perf_failed(rc, "raw: waiting for the other rank") : 0;
}

int raw_open(struct raw **raw, struct perf *p, size_t bytes)
{
	struct raw *r = calloc(1, sizeof(*r));
	int rc;

	if (!r)
		return perf_fail(-ENOMEM, "no memory");
	r->p = p;
	rc = open_device(r);
	if (rc == 0)
		rc = make_objects(r, bytes);
	if (rc == 0)
		rc = exchange(r);
	if (rc == 0)
		rc = connect_raw(r);
	if (rc != 0)
		raw_close(r);
	else
		*raw = r;
	return rc;
}

void raw_close(struct raw *raw)
{
	if (!raw)
		return;
	if (raw->qp)
		ibv_destroy_qp(raw->qp);
	if (raw->mr)
		ibv_dereg_mr(raw->mr);
	if (raw->local)
		munmap(raw->local, 2 * raw->bytes);
	if (raw->send_cq)
		ibv_destroy_cq(raw->send_cq);
	if (raw->recv_cq)
		ibv_destroy_cq(raw->recv_cq);
	if (raw->pd)
		ibv_dealloc_pd(raw->pd);
	if (raw->context)
		ibv_close_device(raw->context);
	free(raw);
}

/* ---- exchange ---- */

/* The one work request, posted again and again, as perftest does. */
static void prepare(struct raw *raw, size_t size, bool immediate)
{
	raw->sge = (struct ibv_sge){.addr = (uintptr_t)raw->local,
				    .length = (uint32_t)size,
				    .lkey = raw->mr->lkey};
	raw->wr = (struct ibv_send_wr){
		.wr_id = 2,
		.sg_list = &raw->sge,
		.num_sge = 1,
		.opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM
				    : IBV_WR_RDMA_WRITE,
		.send_flags = size <= raw->inline_max ? IBV_SEND_INLINE : 0,
		.wr.rdma = {.remote_addr = raw->theirs.target,
			    .rkey = raw->theirs.rkey},
	};
}

static int post_write(struct raw *raw)
{
	struct ibv_send_wr *bad;
	int rc = ibv_post_send(raw->qp, &raw->wr, &bad);

	return rc ? perf_fail(-rc, "raw: ibv_post_send: %s", strerror(rc)) : 0;
}

/*
 * Called while spinning; looks at the clock and the job once in a while. 0:
 * spin on.
 */
static int spin(struct raw *raw, unsigned *spins, double *until)
{
	if (++*spins % 65536)
		return 0;
	if (vbn_job_rank_dead(raw->p->job, 1 - raw->p->rank))
		return perf_fail(-ECONNRESET, "raw: rank %d has died",
				 1 - raw->p->rank);
	if (*until == 0)
		*until = perf_now() + PERF_WAIT_MS / 1e3;
	else if (perf_now() > *until)
		return perf_fail(-ETIMEDOUT, "raw: nothing comes");
	return 0;
}

/* One completion of @cq. */
static int completion(struct raw *raw, struct ibv_cq *cq)
{
	unsigned spins = 0;
	double until = 0;
	struct ibv_wc wc;
	int n, rc;

	while ((n = ibv_poll_cq(cq, 1, &wc)) == 0) {
		rc = spin(raw, &spins, &until);
		if (rc != 0)
			return rc;
	}
	if (n < 0 || wc.status != IBV_WC_SUCCESS)
		return perf_fail(-EIO, "raw: %s on %s",
				 n < 0 ? "ibv_poll_cq fails"
				       : ibv_wc_status_str(wc.status),
				 raw->device);
	return 0;
}

static int await_byte(struct raw *raw, size_t size, uint8_t value)
{
	unsigned spins = 0;
	double until = 0;

	while (raw->target[size - 1] != value) {
		int rc = spin(raw, &spins, &until);

		if (rc != 0)
			return rc;
	}
	return 0;
}

static int await_write(struct raw *raw, size_t size, bool immediate,
		       uint8_t value)
{
	int rc;

	if (!immediate)
		return await_byte(raw, size, value);
	rc = completion(raw, raw->recv_cq);
	if (rc == 0 && post_receive(raw) != 0)
		rc = perf_fail(-EIO, "raw: ibv_post_recv");
	return rc;
}

int raw_ping_pong(struct raw *raw, size_t size, size_t n, bool immediate,
		  double *samples)
{
	double last = perf_now();
	int rc = 0;

	prepare(raw, size, immediate);
	for (size_t i = 0; i < n && rc == 0; i++) {
		double t;

		raw->value = raw->value % 255 + 1;
		if (raw->p->rank == 1)
			rc = await_write(raw, size, immediate, raw->value);
		raw->local[size - 1] = immediate ? 0 : raw->value;
		if (rc == 0)
			rc = post_write(raw);
		if (rc == 0)
			rc = completion(raw, raw->send_cq);
		if (rc == 0 && raw->p->rank == 0)
			rc = await_write(raw, size, immediate, raw->value);
		t = perf_now();
		samples[i] = (t - last) / 2;
		last = t;
	}
	raw->local[size - 1] = 0;
	return rc;
}

int raw_stream(struct raw *raw, size_t size, size_t n, double *posted,
	       double *completed)
{
	size_t sent = 0, done = 0;
	int rc = 0;

	if (raw->p->rank != 0)
		return 0;
	prepare(raw, size, false);
	while (done < n && rc == 0) {
		while (sent < n && sent - done < DEPTH && rc == 0) {
			posted[sent++] = perf_now();
			rc = post_write(raw);
		}
		if (rc == 0)
			rc = completion(raw, raw->send_cq);
		completed[done++] = perf_now();
	}
	return rc;
}
