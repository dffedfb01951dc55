/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs, one a connection: INIT at creation, then RTR and RTS at once
 * when the peer's offer is known. The core attaches the accepting side only
 * when the other has finished, so nothing is sent to a queue pair that cannot
 * receive yet, which would let retries run out.
 *
 * A connection enters the newborn list before its peer can know of it, so the
 * context's thread finds it there at the latest when its first completion
 * comes.
 */
#include "internal.h"
#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define RNR_TIMER    12 /* 0.64 ms */
#define RNR_RETRY    7	/* without end: credits keep receives posted */
#define HOP_LIMIT    64
#define INLINE_SMALL 32u
#define READS_MAX    16
#define PSN_MASK     0xffffffu
#define SUBNET_BYTES 8

struct verbs_conn **conn_bucket(struct verbs_ctx *ctx, uint32_t qpn)
{
	return &ctx->bucket[qpn % BUCKETS];
}

void conn_adopt(struct verbs_ctx *ctx)
{
	struct verbs_conn *conn = atomic_exchange(&ctx->newborn, NULL);

	while (conn) {
		struct verbs_conn *next = conn->next_newborn;
		struct verbs_conn **bucket = conn_bucket(ctx, conn->qpn);

		conn->next_bucket = *bucket;
		*bucket = conn;
		conn = next;
	}
}

struct verbs_conn *conn_lookup(struct verbs_ctx *ctx, uint32_t qpn)
{
	for (int adopted = 0; adopted < 2; adopted++) {
		struct verbs_conn *conn = *conn_bucket(ctx, qpn);

		while (conn && conn->qpn != qpn)
			conn = conn->next_bucket;
		if (conn ||
		    !atomic_load_explicit(&ctx->newborn, memory_order_relaxed))
			return conn;
		conn_adopt(ctx);
	}
	return NULL;
}

void conn_push(_Atomic(struct verbs_conn *) *list, struct verbs_conn *conn,
	       struct verbs_conn **next)
{
	*next = atomic_load(list);
	while (!atomic_compare_exchange_weak(list, next, conn))
		;
}

static uint32_t random_psn(void)
{
	uint32_t psn = 0;

	if (getrandom(&psn, sizeof(psn), GRND_NONBLOCK) != sizeof(psn)) {
		struct timespec now;

		clock_gettime(CLOCK_MONOTONIC, &now);
		psn = (uint32_t)now.tv_nsec;
	}
	return psn & PSN_MASK;
}

/* Ask for less inline data until the device agrees; 0 is legal. */
static int qp_create(struct verbs_conn *conn)
{
	struct verbs_ctx *ctx = conn->ctx;
	struct verbs_job *job = ctx->job;
	uint32_t asked = atomic_load(&job->inline_wanted), want = asked;
	struct ibv_qp_init_attr attr;

	for (;;) {
		memset(&attr, 0, sizeof(attr));
		attr.send_cq = attr.recv_cq = ctx->cq;
		attr.srq = ctx->srq;
		attr.qp_type = IBV_QPT_RC;
		attr.cap.max_send_wr = job->depth + 1; /* and the hello */
		attr.cap.max_send_sge = 2;
		attr.cap.max_inline_data = want;
		conn->qp = ibv_create_qp(job->pd, &attr);
		if (conn->qp || !want)
			break;
		want = want > INLINE_SMALL ? want / 2 : 0;
	}
	if (!conn->qp)
		return limits_explain(job, errno, "creating a queue pair", 0);
	if (want != asked)
		atomic_store(&job->inline_wanted, want);
	conn->inline_max = attr.cap.max_inline_data;
	conn->qpn = conn->qp->qp_num;
	return 0;
}

static int modify(struct verbs_conn *conn, struct ibv_qp_attr *attr, int mask,
		  const char *state)
{
	int err = ibv_modify_qp(conn->qp, attr, mask);

	if (!err)
		return 0;
	return vbn_fail(-err,
			"verbs: %s port %u GID %s, peer rank %d: queue pair to "
			"%s: %s; do both hosts' addresses reach each other?",
			conn->ctx->job->name, conn->ctx->job->port_num,
			conn->ctx->job->gid, conn->rank, state, strerror(err));
}

static int to_init(struct verbs_conn *conn)
{
	struct verbs_job *job = conn->ctx->job;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = job->port_num,
		.qp_access_flags =
			IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ,
	};

	if (job->atomics)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
	return modify(conn, &attr,
		      IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			      IBV_QP_ACCESS_FLAGS,
		      "INIT");
}

static uint8_t smaller(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

static void fill_path(struct verbs_job *job, const struct port_address *peer,
		      struct ibv_ah_attr *ah)
{
	ah->port_num = job->port_num;
	ah->dlid = peer->lid;
	/* within an InfiniBand subnet the LID suffices */
	if (job->port.infiniband && peer->lid &&
	    !memcmp(job->port.gid, peer->gid, SUBNET_BYTES))
		return;
	ah->is_global = 1;
	memcpy(ah->grh.dgid.raw, peer->gid, GID_BYTES);
	ah->grh.sgid_index = job->gid_index;
	ah->grh.hop_limit = HOP_LIMIT;
}

static int to_rts(struct verbs_conn *conn, const struct qp_offer *peer)
{
	struct verbs_job *job = conn->ctx->job;
	uint8_t mtu = (uint8_t)job->port_attr.active_mtu;
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = (enum ibv_mtu)smaller(mtu, peer->mtu),
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = smaller(conn->read_in, peer->read_out),
		.min_rnr_timer = RNR_TIMER,
	};
	int err;

	if (peer->mtu != mtu)
		vbn_log(VBN_INFO,
			"verbs: rank %d: path MTU %d, the smaller of %d here "
			"and %d there",
			conn->rank, 128 << attr.path_mtu, 128 << mtu,
			128 << peer->mtu);
	fill_path(job, &peer->port, &attr.ah_attr);
	err = modify(conn, &attr,
		     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
		     "RTR");
	if (err)
		return err;
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = job->timeout;
	attr.retry_cnt = job->retry_cnt;
	attr.rnr_retry = RNR_RETRY;
	attr.sq_psn = conn->psn;
	attr.max_rd_atomic = smaller(conn->read_out, peer->read_in);
	return modify(conn, &attr,
		      IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			      IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			      IBV_QP_MAX_QP_RD_ATOMIC,
		      "RTS");
}

/* Can the ports talk at all? Else say what differs. */
static int check_peer(const struct verbs_job *job, int rank,
		      const struct port_address *peer)
{
	char gid[GID_TEXT_LENGTH];

	if (peer->infiniband != job->port.infiniband)
		return vbn_fail(
			-EHOSTUNREACH,
			"verbs: %s here is %s, rank %d's device is %s; "
			"choose devices of one network (VBN_IB_HCA)",
			job->name,
			job->port.infiniband ? "InfiniBand" : "Ethernet", rank,
			peer->infiniband ? "InfiniBand" : "Ethernet");
	if (peer->gid_type != job->port.gid_type)
		return vbn_fail(-EHOSTUNREACH,
				"verbs: GID %s of %s is %s, rank %d's %s is "
				"%s; choose GIDs of one type "
				"(VBN_IB_GID_INDEX)",
				job->gid, job->name,
				gid_type_name(job->port.gid_type), rank,
				gid_text(peer->gid, gid),
				gid_type_name(peer->gid_type));
	return 0;
}

static int read_offer(const struct verbs_conn *conn, const struct blob *blob,
		      struct qp_offer *offer)
{
	int err = offer_unpack(blob, offer);

	if (!err)
		err = check_peer(conn->ctx->job, conn->rank, &offer->port);
	if (!err && conn->generation != offer->generation)
		err = vbn_fail(-ESTALE,
			       "verbs: rank %d speaks of another connection "
			       "(generation %llu, this is %llu)",
			       conn->rank,
			       (unsigned long long)offer->generation,
			       (unsigned long long)conn->generation);
	return err;
}

static void write_offer(const struct verbs_conn *conn, struct blob *blob)
{
	struct verbs_job *job = conn->ctx->job;
	struct qp_offer offer = {
		.port = job->port,
		.qpn = conn->qpn,
		.psn = conn->psn,
		.mtu = (uint8_t)job->port_attr.active_mtu,
		.read_out = conn->read_out,
		.read_in = conn->read_in,
		.generation = conn->generation,
	};

	offer_pack(blob, &offer);
}

static uint8_t bounded_reads(int cap)
{
	return (uint8_t)(cap < 0 ? 0 : cap > READS_MAX ? READS_MAX : cap);
}

static struct verbs_conn *conn_alloc(struct verbs_ctx *ctx,
				     const struct conn_info *info)
{
	struct verbs_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->slots = calloc(ctx->job->depth, sizeof(*conn->slots));
	if (!conn->slots) {
		free(conn);
		return NULL;
	}
	conn->ctx = ctx;
	conn->mask = ctx->job->depth - 1;
	conn->tag = ctx->next_tag++ & WR_TAG_MASK;
	conn->held_first = conn->held_last = NO_INDEX;
	conn->rank = info->rank;
	conn->self = info->self;
	conn->generation = info->generation;
	conn->psn = random_psn();
	conn->read_out = bounded_reads(ctx->job->attr.max_qp_init_rd_atom);
	conn->read_in = bounded_reads(ctx->job->attr.max_qp_rd_atom);
	return conn;
}

static int conn_new(struct verbs_ctx *ctx, const struct conn_info *info,
		    const struct blob *peer_address, struct verbs_conn **out)
{
	struct port_address peer;
	struct verbs_conn *conn;
	int err = offer_unpack_address(peer_address, &peer);

	if (!err)
		err = check_peer(ctx->job, info->rank, &peer);
	if (err)
		return err;
	conn = conn_alloc(ctx, info);
	if (!conn)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	err = srq_reserve(ctx);
	if (err)
		goto free_conn;
	err = qp_create(conn);
	if (err)
		goto unreserve;
	err = to_init(conn);
	if (err)
		goto destroy_qp;
	*out = conn;
	return 0;
destroy_qp:
	ibv_destroy_qp(conn->qp);
unreserve:
	srq_unreserve(ctx);
free_conn:
	conn_free(conn);
	return err;
}

int verbs_conn_create(void *pctx, const struct conn_info *info,
		      const struct blob *peer_address, void **out,
		      struct blob *offer)
{
	struct verbs_ctx *ctx = pctx;
	struct verbs_conn *conn;
	int err = conn_new(ctx, info, peer_address, &conn);

	if (err)
		return err;
	write_offer(conn, offer);
	conn_push(&ctx->newborn, conn, &conn->next_newborn);
	*out = conn;
	return 0;
}

int verbs_conn_accept(void *pctx, const struct conn_info *info,
		      const struct blob *peer_address, const struct blob *offer,
		      void **out, struct blob *answer)
{
	struct verbs_ctx *ctx = pctx;
	struct verbs_conn *conn;
	struct qp_offer peer;
	int err = conn_new(ctx, info, peer_address, &conn);

	if (err)
		return err;
	conn_push(&ctx->newborn, conn, &conn->next_newborn);
	err = read_offer(conn, offer, &peer);
	if (!err)
		err = to_rts(conn, &peer);
	if (err) {
		verbs_conn_close(conn, err);
		return err;
	}
	write_offer(conn, answer);
	*out = conn;
	return 0;
}

int verbs_conn_finish(void *vconn, const struct blob *answer)
{
	struct verbs_conn *conn = vconn;
	struct qp_offer peer;
	int err = read_offer(conn, answer, &peer);

	return err ? err : to_rts(conn, &peer);
}

int verbs_conn_attach(void *vconn, struct vbn_ep *ep)
{
	struct verbs_conn *conn = vconn;
	struct verbs_ctx *ctx = conn->ctx;
	char why[320];

	conn_adopt(ctx);
	if (conn->broken) {
		progress_why(conn, why, sizeof(why));
		return vbn_fail(-ECONNRESET, "%s", why);
	}
	conn->ep = ep;
	conn->attached = true;
	if (conn->held_first != NO_INDEX) {
		conn->next_held = ctx->held;
		ctx->held = conn;
	}
	return 0;
}
