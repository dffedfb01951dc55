/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The raw baseline's device and objects: see raw.h.
 */
#include "raw.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define GIDS	    256
#define INLINE_PUT  220 /* as ib_write_lat */
#define INLINE_SEND 236 /* as ib_send_lat */

const char *raw_device(const void *self)
{
	const struct raw *raw = self;

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
	size_t wanted = raw->p->opts.gid_index;
	int best = 0;

	for (ssize_t i = 0; i < n; i++) {
		int score = gid_score(&e[i]);

		if (e[i].port_num != raw->port || score <= best ||
		    (wanted != PERF_UNSET && e[i].gid_index != wanted))
			continue;
		best = score;
		raw->gid_index = (uint8_t)e[i].gid_index;
		raw->gid = e[i].gid;
	}
	free(e);
	return best > 0;
}

static bool pick_port(struct raw *raw)
{
	size_t wanted = raw->p->opts.port;

	if (ibv_query_device(raw->context, &raw->attr) != 0)
		return false;
	for (unsigned port = 1; port <= raw->attr.phys_port_cnt; port++) {
		if (wanted != PERF_UNSET && wanted != port)
			continue;
		if (ibv_query_port(raw->context, (uint8_t)port,
				   &raw->port_attr) != 0 ||
		    raw->port_attr.state != IBV_PORT_ACTIVE)
			continue;
		raw->port = (uint8_t)port;
		if (pick_gid(raw))
			return true;
	}
	return false;
}

static bool try_device(struct raw *raw, struct ibv_device *device)
{
	const char *name = ibv_get_device_name(device);

	if (raw->p->opts.device && strcmp(raw->p->opts.device, name) != 0)
		return false;
	raw->context = ibv_open_device(device);
	if (!raw->context)
		return false;
	if (pick_port(raw)) {
		snprintf(raw->device, sizeof(raw->device), "%s", name);
		return true;
	}
	ibv_close_device(raw->context);
	raw->context = NULL;
	return false;
}

static int open_device(struct raw *raw)
{
	int n = 0;
	struct ibv_device **list = ibv_get_device_list(&n);
	bool found = false;

	for (int i = 0; list && i < n && !found; i++)
		found = try_device(raw, list[i]);
	if (list)
		ibv_free_device_list(list);
	if (found)
		return 0;
	return perf_fail(-ENODEV,
			 "--raw needs an RDMA device with an active port and "
			 "a GID: %d found, none usable%s (see ibv_devinfo; a "
			 "soft one: rdma link add rxe0 type rxe netdev DEVICE)",
			 n,
			 n && perf_wants_verbs(&raw->p->opts)
				 ? " as -d, -i and -x want it"
				 : "");
}

static int pick_mtu(struct raw *raw)
{
	size_t wanted = raw->p->opts.mtu, bytes = 256;
	uint8_t mtu = IBV_MTU_256;

	raw->path_mtu = (uint8_t)raw->port_attr.active_mtu;
	if (wanted == PERF_UNSET)
		return 0;
	for (; bytes < wanted; bytes *= 2)
		mtu++;
	if (mtu > raw->path_mtu)
		return perf_fail(
			-EINVAL, "-m %zu: the active MTU of %s port %u is %u",
			wanted, raw->device, raw->port, 128u << raw->path_mtu);
	raw->path_mtu = mtu;
	return 0;
}

/* ---- objects ---- */

static int make_memory(struct raw *raw, size_t bytes)
{
	size_t all;

	raw->half = (bytes + 4095) & ~(size_t)4095;
	all = raw->nqps * 2 * raw->half;
	raw->block = mmap(NULL, all, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (raw->block == MAP_FAILED) {
		raw->block = NULL;
		return perf_fail(-ENOMEM, "raw: no memory for %zu bytes", all);
	}
	raw->mr = ibv_reg_mr(raw->pd, raw->block, all,
			     (int)(IBV_ACCESS_LOCAL_WRITE | raw_access(raw)));
	if (!raw->mr)
		return perf_fail(-errno, "raw: cannot register %zu bytes: %s",
				 all, strerror(errno));
	return 0;
}

static uint32_t inline_wanted(const struct perf_options *o)
{
	if (o->inline_max != PERF_UNSET)
		return (uint32_t)o->inline_max;
	if (o->test->bandwidth)
		return 0;
	return o->test->op == PERF_SEND ? INLINE_SEND : INLINE_PUT;
}

static int make_qp(struct raw *raw, struct raw_qp *qp, size_t i)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = raw->send_cq,
		.recv_cq = raw->recv_cq,
		.cap = {.max_send_wr = (uint32_t)raw->depth,
			.max_recv_wr = (uint32_t)raw->receives,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = inline_wanted(&raw->p->opts)},
		.qp_type = IBV_QPT_RC,
	};

	qp->list = calloc(raw->p->opts.list, sizeof(*qp->list));
	if (!qp->list)
		return perf_fail(-ENOMEM, "no memory");
	qp->local = raw->block + 2 * i * raw->half;
	qp->target = qp->local + raw->half;
	qp->qp = ibv_create_qp(raw->pd, &attr);
	if (!qp->qp && raw->p->opts.inline_max == PERF_UNSET) {
		attr.cap.max_inline_data = 0;
		qp->qp = ibv_create_qp(raw->pd, &attr);
	}
	if (!qp->qp)
		return perf_fail(-errno,
				 "raw: cannot make a queue pair of %zu work "
				 "requests, inline %u: %s",
				 raw->depth, attr.cap.max_inline_data,
				 strerror(errno));
	raw->inline_max = attr.cap.max_inline_data;
	if (raw->inline_max > inline_wanted(&raw->p->opts))
		raw->inline_max = inline_wanted(&raw->p->opts);
	return 0;
}

static bool watch(int epoll_fd, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/*
 * The same as a context of the library's sleeps on: the channel, and a
 * descriptor by which others could wake it.
 */
static int make_descriptors(struct raw *raw)
{
	int fd = raw->channel->fd;

	raw->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	raw->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (raw->epoll_fd < 0 || raw->wake_fd < 0 ||
	    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) < 0 ||
	    !watch(raw->epoll_fd, fd) || !watch(raw->epoll_fd, raw->wake_fd))
		return perf_fail(-errno, "raw: -e: no descriptors: %s",
				 strerror(errno));
	if (ibv_req_notify_cq(raw->send_cq, 0) != 0 ||
	    ibv_req_notify_cq(raw->recv_cq, 0) != 0)
		return perf_fail(-EIO, "raw: no completion events on %s",
				 raw->device);
	return 0;
}

static int make_queues(struct raw *raw)
{
	int sends = (int)(raw->depth * raw->nqps);
	int receives = (int)(raw->receives * raw->nqps);

	raw->pd = ibv_alloc_pd(raw->context);
	if (raw->p->opts.events)
		raw->channel = ibv_create_comp_channel(raw->context);
	raw->send_cq =
		ibv_create_cq(raw->context, sends, NULL, raw->channel, 0);
	raw->recv_cq =
		ibv_create_cq(raw->context, receives, NULL, raw->channel, 0);
	if (!raw->pd || !raw->send_cq || !raw->recv_cq ||
	    (raw->p->opts.events && !raw->channel))
		return perf_fail(-errno,
				 "raw: no protection domain or queue of %d "
				 "entries: %s",
				 sends, strerror(errno));
	return raw->channel ? make_descriptors(raw) : 0;
}

static int make_objects(struct raw *raw, size_t bytes)
{
	const struct perf_options *o = &raw->p->opts;
	bool receives = o->test->op == PERF_SEND || o->test->op == PERF_NOTIFY;
	int rc;

	raw->nqps = o->qps;
	raw->depth = o->test->bandwidth ? o->depth : RAW_LAT_DEPTH;
	raw->receives = receives ? RAW_RECEIVES : 1;
	rc = make_queues(raw);
	if (rc == 0)
		rc = make_memory(raw, bytes);
	for (size_t i = 0; i < raw->nqps && rc == 0; i++)
		rc = make_qp(raw, &raw->qps[i], i);
	return rc;
}

static void close_raw(void *self)
{
	struct raw *raw = self;

	for (size_t i = 0; i < raw->nqps; i++) {
		if (raw->qps[i].qp)
			ibv_destroy_qp(raw->qps[i].qp);
		free(raw->qps[i].list);
	}
	raw_cm_close(raw);
	if (raw->mr)
		ibv_dereg_mr(raw->mr);
	if (raw->block)
		munmap(raw->block, raw->nqps * 2 * raw->half);
	if (raw->send_cq)
		ibv_destroy_cq(raw->send_cq);
	if (raw->recv_cq)
		ibv_destroy_cq(raw->recv_cq);
	if (raw->channel)
		ibv_destroy_comp_channel(raw->channel);
	if (raw->epoll_fd >= 0)
		close(raw->epoll_fd);
	if (raw->wake_fd >= 0)
		close(raw->wake_fd);
	if (raw->pd)
		ibv_dealloc_pd(raw->pd);
	if (raw->context)
		ibv_close_device(raw->context);
	free(raw);
}

static int open_receives(struct raw *raw)
{
	const struct perf_options *o = &raw->p->opts;
	int rc = 0;

	if (o->test->op != PERF_SEND && o->test->op != PERF_NOTIFY)
		return 0;
	for (size_t i = 0; i < raw->nqps && rc == 0; i++)
		for (size_t k = 0; k < raw->receives && rc == 0; k++)
			rc = raw_post_receive(raw, i);
	return rc;
}

int raw_open(struct perf *p, struct method *m, size_t bytes)
{
	struct raw *raw = calloc(1, sizeof(*raw));
	bool bw = p->opts.test->bandwidth;
	int rc;

	if (!raw)
		return perf_fail(-ENOMEM, "no memory");
	*m = (struct method){
		.name = "raw",
		.prepare = bw ? raw_prepare_bw : raw_prepare_lat,
		.run = bw ? raw_run_bw : raw_run_lat,
		.check = bw ? raw_check_bw : raw_check_lat,
		.close = close_raw,
		.self = raw,
	};
	raw->p = p;
	raw->epoll_fd = raw->wake_fd = -1;
	rc = open_device(raw);
	if (rc == 0)
		rc = pick_mtu(raw);
	if (rc == 0)
		rc = make_objects(raw, bytes);
	if (rc == 0)
		rc = raw_connect(raw);
	if (rc == 0)
		rc = open_receives(raw);
	if (rc != 0)
		return rc;
	/* Nobody sends before the other can receive. */
	rc = vbn_job_fence(p->job, PERF_WAIT_MS);
	return rc ? perf_failed(rc, "raw: waiting for the other rank") : 0;
}
