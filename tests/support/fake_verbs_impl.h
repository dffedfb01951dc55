/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake verbs device's own structures. One lock guards everything; it is
 * held during each call, by names that begin with fake_ and end where the
 * call returns, so nothing in here takes it twice.
 *
 * A request lives in a slot of its queue pair's ring: posted at head, carried
 * out at next, and free again once a completion behind it has been polled
 * (tail), as on a device.
 */
#ifndef TESTS_FAKE_VERBS_IMPL_H
#define TESTS_FAKE_VERBS_IMPL_H

#include "fake_verbs.h"

#define FAKE_SGES    4
#define FAKE_DEVICES 8

/* Objects point back from their public part, which comes first. */
struct fake_device_state {
	struct ibv_device ibv;
	struct fake_config config;
	unsigned contexts;
	unsigned mrs, qps, cqs, srqs;
	bool broken, cqs_broken;
	struct fake_context *opened; /* list */
};

struct fake_event {
	struct fake_event *next;
	struct ibv_async_event ibv;
};

struct fake_context {
	struct fake_device_state *device;
	struct fake_context *next;
	struct fake_event *events, **events_tail;
	struct fake_event *read;    /* and not acknowledged */
	unsigned objects;	    /* protection domains, queues, channels */
	struct verbs_context verbs; /* last: ends with the ibv_context */
};

struct fake_pd {
	struct ibv_pd ibv;
	unsigned objects;
};

struct fake_mr {
	struct ibv_mr ibv;
	unsigned access;
	struct fake_mr *next;
};

struct fake_channel {
	struct ibv_comp_channel ibv;
	struct fake_cq *ready; /* those with an event to be read */
	unsigned cqs;
};

struct fake_cqe {
	struct ibv_wc wc;
	struct fake_qp *qp; /* NULL once it is destroyed */
	uint32_t retires;   /* the ring's tail when this is polled */
	bool is_send;
};

struct fake_cq {
	struct ibv_cq ibv;
	struct fake_cqe *ring;
	unsigned head, tail, room;
	bool armed, overrun, queued;
	unsigned unacked, qps;
	struct fake_cq *next_ready;
	struct fake_cq *next; /* of all */
};

struct fake_recv {
	uint64_t wr_id;
	unsigned nsge;
	struct ibv_sge sge[FAKE_SGES];
};

struct fake_srq {
	struct ibv_srq ibv;
	struct fake_recv *ring;
	unsigned head, tail, room;
	unsigned limit, qps;
	struct fake_srq *next; /* of all */
};

struct fake_wr {
	uint64_t wr_id, remote, compare_add, swap;
	uint32_t rkey, imm;
	enum ibv_wr_opcode opcode;
	unsigned flags, nsge;
	size_t len;
	struct ibv_sge sge[FAKE_SGES]; /* inline: one, into the ring's copy */
};

/* Payload that has arrived and is not visible yet. */
struct fake_late {
	struct fake_late *next;
	uint64_t remote;
	size_t len;
	uint8_t data[];
};

struct fake_qp {
	struct ibv_qp_ex ex; /* begins with the ibv_qp */
	struct fake_wr *ring;
	uint8_t *inline_ring;
	uint32_t room, head, next, tail;
	uint32_t staged; /* requests of the builders, behind head */
	int staged_err;
	uint32_t inline_max, max_sge;
	struct ibv_qp_attr attr;
	unsigned tries; /* at the request at next */
	bool vanished;
	bool busy;	  /* on the list of those with requests to carry out */
	unsigned fail_in; /* requests to go until one fails; 0: none does */
	enum ibv_wc_status fail_status;
	bool fail_landed;
	struct fake_late *late, **late_tail; /* arrived at this side */
	struct fake_qp *next_busy;
	struct fake_qp *next_qp; /* of all, in order of creation */
};

struct fake_state {
	struct fake_device_state *devices[FAKE_DEVICES];
	int ndevices;
	bool deferred;
	struct fake_counts counts;
	unsigned fail_in[FAKE_CALLS];
	int fail_err[FAKE_CALLS];
	uint32_t next_qpn, next_key;
	struct fake_qp **by_qpn; /* from FAKE_QPN_FIRST */
	uint32_t by_qpn_room;
	struct fake_mr **by_key; /* by key >> 8 */
	uint32_t by_key_room;
	struct fake_qp *qps, *busy;
	struct fake_qp *refused; /* by the request that is being carried out */
	unsigned late;		 /* payloads that are not visible yet */
	struct fake_cq *cqs;
	struct fake_srq *srqs;
};

#define FAKE_QPN_FIRST 17u
#define FAKE_LKEY      0x80000000u /* what tells a local key from a remote */

extern struct fake_state fake;

/* fake_verbs.c */
void fake_lock(void);
void fake_unlock(void);
void fake_violation(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void *fake_alloc(size_t bytes); /* zeroed; never NULL */
void fake_free(void *p);
/* Does this call fail? Its errno, or 0. */
int fake_fault(enum fake_call call);

/* fake_verbs_device.c */
static inline struct fake_context *fake_context_of(struct ibv_context *ibv)
{
	return (struct fake_context *)((char *)ibv -
				       offsetof(struct fake_context,
						verbs.context));
}

static inline struct fake_device_state *fake_device_of(struct ibv_context *ibv)
{
	return fake_context_of(ibv)->device;
}

void fake_event_push(struct fake_context *context, enum ibv_event_type type,
		     struct fake_qp *qp, struct fake_cq *cq,
		     struct fake_srq *srq, int port);
/*
 * @object is about to be destroyed: drop its events, wait for those that were
 * read to be acknowledged. Releases the lock meanwhile.
 */
void fake_events_forget(struct fake_context *context, const void *object);

/* fake_verbs_queue.c */
int fake_poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int fake_req_notify_cq(struct ibv_cq *cq, int solicited_only);
int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
		       struct ibv_recv_wr **bad);
void fake_cq_push(struct fake_cq *cq, const struct fake_cqe *cqe);

/* fake_verbs_qp.c */
struct ibv_qp *fake_create_qp_ex(struct ibv_context *context,
				 struct ibv_qp_init_attr_ex *attr);
struct fake_qp *fake_qp_find(uint32_t qpn);

/* fake_verbs_post.c */
int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		   struct ibv_send_wr **bad);
void fake_builders_init(struct fake_qp *qp);

/* fake_verbs_engine.c */
void fake_qp_error(struct fake_qp *qp);
void fake_run_busy(void);
void fake_enqueue(struct fake_qp *qp);
void fake_dequeue(struct fake_qp *qp);
unsigned fake_run(struct fake_qp *qp, unsigned n);
void fake_late_show(struct fake_qp *qp);
struct fake_mr *fake_mr_find(uint32_t key);

#endif
