/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections: lanes, each a queue pair, INIT at creation, then RTR and RTS at
 * once when the peer's offer is known, or by rdma_cm (cm.h). The core attaches
 * the accepting side only when the other has finished, so nothing is sent to a
 * queue pair that cannot receive yet, which would let retries run out.
 *
 * A connection enters the newborn list before its peer can know of it, so the
 * context's thread finds it there at the latest when its first completion
 * comes.
 */
#include "failover.h"
#include "cm.h"
#include "error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define READS_MAX 16
#define PSN_MASK  0xffffffu

void conn_push(_Atomic(struct verbs_conn *) *list, struct verbs_conn *conn,
	       struct verbs_conn **next)
{
	*next = atomic_load(list);
	while (!atomic_compare_exchange_weak(list, next, conn))
		;
}

uint32_t lane_psn(void)
{
	uint32_t psn = 0;

	if (getrandom(&psn, sizeof(psn), GRND_NONBLOCK) != sizeof(psn)) {
		struct timespec now;

		clock_gettime(CLOCK_MONOTONIC, &now);
		psn = (uint32_t)now.tv_nsec;
	}
	return psn & PSN_MASK;
}

struct pair *lane_pair(const struct lane *lane)
{
	return &lane->conn->pair[lane->id % lane->conn->npairs];
}

int lane_modify(struct lane *lane, struct ibv_qp_attr *attr, int mask,
		const char *state)
{
	int err = ibv_modify_qp(lane->qp, attr, mask);
	char text[PATH_WHY];

	if (!err)
		return 0;
	return vbn_fail(-err,
			"verbs: %s: queue pair to %s: %s; do both hosts' "
			"addresses reach each other?",
			path_text(&lane->queues->rail->port,
				  &lane_pair(lane)->path, text),
			state, strerror(err));
}

int lane_to_init(struct lane *lane, const struct path_port *port)
{
	struct ibv_qp_attr attr;
	int mask = path_init(port, lane->queues->rail->atomics, &attr);

	return lane_modify(lane, &attr, mask, "INIT");
}

static void fill_pair(const struct verbs_conn *conn, const struct pair *pair,
		      struct pair_offer *offer)
{
	*offer = (struct pair_offer){
		.from = pair->rail,
		.to = pair->peer_rail,
		.ring_rkey = conn->ring[0].rkey[pair->rail],
		.qp = {.read_out = pair->read_out, .read_in = pair->read_in},
	};
	path_offer(&conn->ctx->job->rail[pair->rail].port, &pair->path,
		   &offer->qp);
}

void conn_offer_fill(const struct verbs_conn *conn, struct conn_offer *offer)
{
	*offer = (struct conn_offer){
		.generation = conn->generation,
		.ring_addr = (uintptr_t)conn->ring[0].base,
		.ring_bytes = conn->ring[0].bytes,
		.npairs = conn->npairs,
		.nlanes = conn->nlanes,
	};
	for (unsigned i = 0; i < conn->npairs; i++)
		fill_pair(conn, &conn->pair[i], &offer->pair[i]);
	for (unsigned i = 0; i < conn->nlanes; i++) {
		offer->lane[i].qpn = conn->lane[i].qpn & QPN_MASK;
		offer->lane[i].psn = conn->lane[i].psn;
	}
	if (conn->cm)
		cm_fill(conn->cm, offer);
}

/* Once a peer, when the two ports' packets differ in size. */
static void tell_mtu(const struct verbs_conn *conn, const struct rail *rail,
		     const struct qp_offer *peer)
{
	struct verbs_job *job = conn->ctx->job;
	size_t rank = (size_t)conn->rank;
	uint8_t bit = (uint8_t)(1u << rank % 8);

	if (peer->mtu == rail->port.address.mtu ||
	    rank / 8 >= sizeof(job->mtu_told) ||
	    (job->mtu_told[rank / 8] & bit))
		return;
	job->mtu_told[rank / 8] |= bit;
	vbn_log(VBN_INFO,
		"verbs: rank %d: MTU %d, the smaller of %d here and %d at "
		"rank %d",
		conn->self_rank, 128 << path_mtu(&rail->port, peer),
		128 << rail->port.address.mtu, 128 << peer->mtu, conn->rank);
}

int lane_connect(struct lane *lane, const struct path_port *port,
		 const struct qp_offer *self, const struct qp_offer *peer)
{
	struct ibv_qp_attr attr;
	int mask, err;

	mask = path_rtr(port, &lane_pair(lane)->path, self, peer, &attr);
	err = lane_modify(lane, &attr, mask, "RTR");
	if (err)
		return err;
	mask = path_rts(port, self, peer, &attr);
	return lane_modify(lane, &attr, mask, "RTS");
}

static int lane_to_rts(struct lane *lane, const struct conn_offer *all_self,
		       const struct conn_offer *all_peer)
{
	const struct qp_offer self = offer_of_lane(all_self, lane->id);
	const struct qp_offer peer = offer_of_lane(all_peer, lane->id);

	return lane_connect(lane, &lane->queues->rail->port, &self, &peer);
}

/* What the peer has said, but for its queue pairs. */
static void learn(struct verbs_conn *conn, const struct conn_offer *peer)
{
	for (unsigned i = 0; i < conn->npairs; i++) {
		conn->pair[i].out_rkey[0] = peer->pair[i].ring_rkey;
		tell_mtu(conn, &conn->ctx->job->rail[conn->pair[i].rail],
			 &peer->pair[i].qp);
	}
	conn->out = (struct mailbox_out){
		.addr = peer->ring_addr,
		.rkey = conn->pair[0].out_rkey[0],
		.units = (uint16_t)(peer->ring_bytes / MAILBOX_UNIT),
		.room = (uint16_t)(peer->ring_bytes / MAILBOX_UNIT),
	};
}

static int to_rts(struct verbs_conn *conn, const struct conn_offer *peer)
{
	struct conn_offer self;
	int err = 0;

	conn_offer_fill(conn, &self);
	for (unsigned i = 0; i < conn->nlanes && !err; i++)
		err = lane_to_rts(&conn->lane[i], &self, peer);
	return err;
}

static int check_connector(const struct verbs_job *job,
			   const struct conn_info *info,
			   const struct conn_offer *offer)
{
	bool here = job->cm && !info->self;

	if (offer->rdmacm == here)
		return 0;
	return vbn_fail(-EPROTO,
			"verbs: rank %d connects by VBN_CONNECT=%s, this rank "
			"by %s; set VBN_CONNECT alike on all ranks",
			info->rank, offer->rdmacm ? "rdmacm" : "control",
			here ? "rdmacm" : "control");
}

static int read_offer(const struct blob *blob, const struct conn_info *info,
		      struct conn_offer *offer)
{
	int err = offer_unpack(blob, offer);

	if (err)
		return err;
	if (info->generation != offer->generation)
		return vbn_fail(-ESTALE,
				"verbs: rank %d speaks of another connection "
				"(generation %llu, this is %llu)",
				info->rank,
				(unsigned long long)offer->generation,
				(unsigned long long)info->generation);
	if (offer->ring_bytes < RING_SMALL ||
	    offer->ring_bytes > UNITS_MAX * MAILBOX_UNIT ||
	    offer->ring_bytes % MAILBOX_UNIT)
		return vbn_fail(-EPROTO,
				"verbs: rank %d offers an impossible mailbox "
				"of %u bytes; run the same verbena on all "
				"ranks",
				info->rank, offer->ring_bytes);
	return 0;
}

static unsigned lanes_wanted(const struct verbs_job *job, unsigned npairs)
{
	unsigned each = LANES_MAX / npairs;

	return npairs * (job->settings.qps < each ? job->settings.qps : each);
}

static int check_lanes(const struct verbs_job *job, int rank,
		       const struct conn_offer *offer)
{
	unsigned want = lanes_wanted(job, offer->npairs);

	if (offer->nlanes == want)
		return 0;
	return vbn_fail(-EPROTO,
			"verbs: rank %d uses %u queue pairs a "
			"connection, this rank %u; set VBN_IB_QPS "
			"alike on all ranks",
			rank, offer->nlanes, want);
}

static void write_offer(const struct verbs_conn *conn, struct blob *blob)
{
	struct conn_offer offer;

	conn_offer_fill(conn, &offer);
	offer_pack(blob, &offer);
}

static uint8_t bounded_reads(int cap)
{
	return (uint8_t)(cap < 0 ? 0 : cap > READS_MAX ? READS_MAX : cap);
}

static void lane_init(struct verbs_conn *conn, unsigned i)
{
	const struct pair *pair = &conn->pair[i % conn->npairs];
	struct lane *lane = &conn->lane[i];

	lane->ctx = conn->ctx;
	lane->conn = conn;
	lane->queues = &conn->ctx->queues[pair->rail];
	lane->rail = pair->rail;
	lane->peer_rail = pair->peer_rail;
	lane->id = (uint8_t)i;
	lane->room = (int)lane->queues->rail->depth;
	lane->psn = lane_psn();
}

static void pair_init(struct verbs_conn *conn, struct pair *pair)
{
	const struct rail *rail = &conn->ctx->job->rail[pair->rail];

	pair->read_out = bounded_reads(rail->attr.max_qp_init_rd_atom);
	pair->read_in = bounded_reads(rail->attr.max_qp_rd_atom);
}

static struct verbs_conn *conn_alloc(struct verbs_ctx *ctx,
				     const struct conn_info *info,
				     const struct pair *pairs, unsigned npairs)
{
	unsigned nlanes = lanes_wanted(ctx->job, npairs);
	size_t pairs_at =
		sizeof(struct verbs_conn) + nlanes * sizeof(struct lane);
	struct verbs_conn *conn =
		calloc(1, pairs_at + npairs * sizeof(struct pair));

	if (!conn)
		return NULL;
	conn->ctx = ctx;
	conn->nlanes = (uint8_t)nlanes;
	conn->npairs = (uint8_t)npairs;
	conn->pair = (struct pair *)((char *)conn + pairs_at);
	for (unsigned i = 0; i < npairs; i++) {
		conn->pair[i] = pairs[i];
		pair_init(conn, &conn->pair[i]);
	}
	for (unsigned i = 0; i < nlanes; i++)
		lane_init(conn, i);
	conn->window = CREDITS;
	/* a stripe with its fences has to find that many slots free at once */
	conn->stripe_min = nlanes > 1 && ctx->nslots >= SLOTS_KEPT + 4u * nlanes
				   ? STRIPE_MIN
				   : SIZE_MAX;
	conn->stripe_full = conn->stripe_min;
	conn->rank = info->rank;
	conn->self_rank = info->self_rank;
	conn->self = info->self;
	conn->generation = info->generation;
	return conn;
}

static int conn_reserve(struct verbs_conn *conn)
{
	struct verbs_ctx *ctx = conn->ctx;
	uint32_t n = conn->window + conn_slack(conn);
	int err = srq_reserve(ctx, n);

	if (err != -ENOSPC)
		return err;
	return vbn_fail(-ENOSPC,
			"verbs: a context on %s has room for no connection "
			"more (max_srq_wr %d, max_cqe %d, %u receives at "
			"least for each); open more contexts",
			conn->lane[0].queues->rail->name,
			conn->lane[0].queues->rail->attr.max_srq_wr,
			conn->lane[0].queues->rail->attr.max_cqe, n);
}

void conn_unreserve(struct verbs_conn *conn)
{
	srq_unreserve(conn->ctx, conn->window + conn_slack(conn));
	/* only one that is attached has grown */
	if (conn->attached)
		conn->ctx->recv_grown -= conn->window - CREDITS;
}

static int lanes_create(struct verbs_conn *conn)
{
	int err = 0;

	for (unsigned i = 0; i < conn->nlanes; i++) {
		err = qp_create(&conn->lane[i]);
		if (!err && conn->npairs > 1)
			err = record_lane(&conn->lane[i]);
		if (!err)
			err = lane_to_init(&conn->lane[i],
					   &conn->lane[i].queues->rail->port);
		if (err)
			break;
	}
	for (unsigned i = 0; err && i < conn->nlanes && conn->lane[i].qp; i++)
		ibv_destroy_qp(conn->lane[i].qp);
	return err;
}

static int conn_fill(struct verbs_conn *conn)
{
	struct verbs_ctx *ctx = conn->ctx;
	int err = ring_take(ctx, &conn->ring[0]);

	if (err)
		return err;
	if (conn->nlanes > 1)
		err = arrive_prepare(conn);
	if (err)
		return err;
	conn->in.base = conn->ring[0].base;
	conn->in.units = (uint16_t)(conn->ring[0].bytes / MAILBOX_UNIT);
	err = conn_reserve(conn);
	if (err)
		return err;
	err = lanes_create(conn);
	if (err)
		conn_unreserve(conn);
	return err;
}

static int check_device(struct verbs_ctx *ctx, const struct conn_info *info)
{
	const struct rail *rail = ctx->job->rail;

	if (rails_all_dead(ctx->job))
		return vbn_fail(-EIO,
				"verbs: rank %d's %s has failed (device fatal "
				"event): no connection to rank %d; see the "
				"kernel's log, restart the job",
				info->self_rank, rail->name, info->rank);
	if (atomic_load(&ctx->queue_event))
		return vbn_fail(-EIO,
				"verbs: rank %d: a queue of this context on "
				"%s has failed: no connection to rank %d; open "
				"another context",
				info->self_rank, rail->name, info->rank);
	return 0;
}

int verbs_reaches(void *pctx, const struct conn_info *info,
		  const struct blob *peer_address)
{
	struct verbs_ctx *ctx = pctx;
	struct pair pairs[RAILS_MAX];
	struct rail_addresses peer;
	int err = check_device(ctx, info);

	if (!err)
		err = offer_unpack_addresses(peer_address, &peer);
	if (!err)
		err = pairs_choose(ctx, info, &peer, pairs);
	return err < 0 ? err : 0;
}

/* The rails: as @offer has it; NULL: this side chooses. */
static int choose_pairs(struct verbs_ctx *ctx, const struct conn_info *info,
			const struct rail_addresses *peer,
			const struct blob *offer, struct conn_offer *peer_offer,
			struct pair pairs[RAILS_MAX])
{
	int err;

	if (!offer)
		return pairs_choose(ctx, info, peer, pairs);
	err = read_offer(offer, info, peer_offer);
	if (!err)
		err = check_connector(ctx->job, info, peer_offer);
	if (!err)
		err = check_lanes(ctx->job, info->rank, peer_offer);
	return err ? err : pairs_accept(ctx, info, peer, peer_offer, pairs);
}

/* @offer: what the creating side has chosen; NULL: this is the one. */
static int conn_new(struct verbs_ctx *ctx, const struct conn_info *info,
		    const struct blob *peer_address, const struct blob *offer,
		    struct conn_offer *peer_offer, struct verbs_conn **out)
{
	struct pair pairs[RAILS_MAX];
	struct rail_addresses peer;
	struct verbs_conn *conn;
	int err = check_device(ctx, info), n;

	if (!err)
		err = offer_unpack_addresses(peer_address, &peer);
	if (err)
		return err;
	n = choose_pairs(ctx, info, &peer, offer, peer_offer, pairs);
	if (n <= 0)
		return n;
	conn = conn_alloc(ctx, info, pairs, (unsigned)n);
	if (!conn)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	conn->creator = !offer;
	err = conn_fill(conn);
	if (err) {
		conn_free(conn);
		return err;
	}
	*out = conn;
	return 0;
}

int verbs_conn_create(void *pctx, const struct conn_info *info,
		      const struct blob *peer_address, void **out,
		      struct blob *offer)
{
	struct verbs_ctx *ctx = pctx;
	struct verbs_conn *conn;
	int err = conn_new(ctx, info, peer_address, NULL, NULL, &conn);

	if (err)
		return err;
	conn_push(&ctx->newborn, conn, &conn->next_newborn);
	if (ctx->job->cm && !info->self)
		err = cm_prepare(conn, info, NULL);
	if (err) {
		verbs_conn_close(conn, err);
		return err;
	}
	write_offer(conn, offer);
	*out = conn;
	return 0;
}

int verbs_conn_accept(void *pctx, const struct conn_info *info,
		      const struct blob *peer_address, const struct blob *offer,
		      void **out, struct blob *answer)
{
	struct verbs_ctx *ctx = pctx;
	struct verbs_conn *conn;
	struct conn_offer peer;
	int err = conn_new(ctx, info, peer_address, offer, &peer, &conn);

	if (err)
		return err;
	conn_push(&ctx->newborn, conn, &conn->next_newborn);
	learn(conn, &peer);
	err = ctx->job->cm ? cm_prepare(conn, info, &peer)
			   : to_rts(conn, &peer);
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
	const struct conn_info info = {.rank = conn->rank,
				       .self = conn->self,
				       .generation = conn->generation};
	struct conn_offer peer;
	int err = read_offer(answer, &info, &peer);

	if (!err)
		err = check_connector(conn->ctx->job, &info, &peer);
	if (!err)
		err = check_lanes(conn->ctx->job, conn->rank, &peer);
	if (!err)
		err = pairs_confirm(conn, &peer);
	if (err)
		return err;
	learn(conn, &peer);
	if (!conn->cm)
		return to_rts(conn, &peer);
	err = cm_call(conn, &peer);
	return err ? err : -EINPROGRESS;
}

int verbs_conn_attach(void *vconn, struct vbn_ep *ep)
{
	struct verbs_conn *conn = vconn;
	struct verbs_ctx *ctx = conn->ctx;
	char why[320];

	conn_adopt(ctx);
	if (conn->broken) {
		limits_why(conn, why, sizeof(why));
		return vbn_fail(-ECONNRESET, "%s", why);
	}
	conn->ep = ep;
	conn->attached = true;
	failover_attach(conn);
	if (conn->held && conn->held->n)
		arrive_resume(conn);
	else
		conn->direct = true;
	return 0;
}
