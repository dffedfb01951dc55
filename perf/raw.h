/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The baseline: what perftest does, on ibverbs and nothing else. Queue pairs
 * on one pair of completion queues, connected by the job's key-value store.
 */
#ifndef PERF_RAW_H
#define PERF_RAW_H

#include "raw_open.h"

#include <infiniband/verbs.h>

#define RAW_LAT_DEPTH 50  /* as perftest */
#define RAW_RECEIVES  512 /* as ib_send_bw */
#define RAW_BATCH     16

/* What each side tells the other of a queue pair. */
struct raw_address {
	union ibv_gid gid;
	uint64_t target;
	uint32_t rkey, qp_num, psn;
	uint16_t lid;
	uint8_t mtu, reads;
};

struct raw_qp {
	struct ibv_qp *qp;
	uint8_t *local, *target;
	struct raw_address theirs;
	struct ibv_sge sge;
	struct ibv_send_wr *list;	  /* as many as a chain has */
	size_t left, flying, unsignalled; /* of a stream */
	uint64_t expected;		  /* seed of what the peer sends */
};

struct raw_cm;

struct raw {
	struct perf *p;
	struct raw_cm *cm; /* with -R */
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel; /* with -e */
	int wake_fd, epoll_fd;		  /* with a channel, else -1 */
	struct ibv_cq *send_cq, *recv_cq;
	struct raw_qp qps[PERF_QPS_MAX];
	size_t nqps, receives, depth;
	struct ibv_mr *mr;
	uint8_t *block;
	size_t half; /* bytes of one buffer; each queue pair has two */
	struct ibv_device_attr attr;
	struct ibv_port_attr port_attr;
	uint8_t port, gid_index, path_mtu;
	union ibv_gid gid;
	uint32_t inline_max;
	char device[64];
	uint64_t sent_puts, got_puts, sent; /* since the start */
	uint64_t word;			    /* what fetch-add should give */
};

/* ---- raw_connect.c ---- */

int raw_connect(struct raw *raw);
/* What the peer may do with a queue pair's memory: IBV_ACCESS_*. */
unsigned raw_access(const struct raw *raw);

/* ---- raw_cm.c ---- */

int raw_cm_connect(struct raw *raw);
void raw_cm_close(struct raw *raw);

/* ---- raw_post.c ---- */

/* The work requests of a queue pair for a turn; posted again and again. */
void raw_prepare(struct raw *raw, struct raw_qp *qp, size_t size);
int raw_post(struct raw_qp *qp);
int raw_post_receive(struct raw *raw, size_t i);
/* One completion of @cq: polling, or with -e sleeping. */
int raw_completion(struct raw *raw, struct ibv_cq *cq, struct ibv_wc *wc);
/* Up to @n, at once; how many, or -errno for a bad one. */
int raw_poll(struct raw *raw, struct ibv_cq *cq, struct ibv_wc *wc, int n);
/* Sleep until a completion queue has something, or for a second. */
int raw_sleep(struct raw *raw);

/* ---- raw_lat.c, raw_bw.c ---- */

int raw_run_lat(void *self, struct turn *turn);
void raw_prepare_lat(void *self, const struct turn *turn);
int raw_check_lat(void *self, const struct turn *turn);
int raw_run_bw(void *self, struct turn *turn);
void raw_prepare_bw(void *self, const struct turn *turn);
int raw_check_bw(void *self, const struct turn *turn);

#endif
