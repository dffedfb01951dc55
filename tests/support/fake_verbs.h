/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A verbs device in this process, for tests: it takes libibverbs' place in
 * the program it is linked into. Its queue pairs speak the reliable connected
 * protocol with each other, check every key and limit as a device does, and
 * do on demand what devices do rarely: grant no inline data, refuse the k-th
 * call, complete late, in another order, or with an error.
 *
 * Immediate mode (the default): a request is carried out when it is posted.
 * Deferred mode: when fake_step() says so.
 *
 * What no device would forgive, or would show only under load (a completion
 * queue that overruns, an object destroyed too early, events not
 * acknowledged) is a violation: printed, and counted.
 *
 * All calls may be made from any thread.
 */
#ifndef TESTS_FAKE_VERBS_H
#define TESTS_FAKE_VERBS_H

#include <infiniband/verbs.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_PORTS 2
#define FAKE_GIDS  8
#define FAKE_PKEYS 4

struct fake_gid {
	uint8_t raw[16];
	enum ibv_gid_type type;
	int err; /* what reading it gives; 0: it is readable */
};

struct fake_port {
	enum ibv_port_state state;
	uint8_t link_layer; /* IBV_LINK_LAYER_* */
	uint16_t lid;
	uint8_t lmc;
	bool grh_required;
	enum ibv_mtu max_mtu, active_mtu;
	uint32_t max_msg_sz;
	int ngids;
	struct fake_gid gids[FAKE_GIDS];
	int npkeys;
	uint16_t pkeys[FAKE_PKEYS]; /* host order */
};

/* What creating a queue pair does about inline data beyond max_inline. */
enum fake_inline {
	FAKE_INLINE_MAX,    /* grants max_inline, whatever was asked for */
	FAKE_INLINE_LESS,   /* grants what it can */
	FAKE_INLINE_REFUSE, /* fails with EINVAL */
};

/* Which requests of a queue pair in error complete as flushed, and when. */
enum fake_flush {
	FAKE_FLUSH_EACH,      /* each, at once */
	FAKE_FLUSH_SIGNALLED, /* the signalled ones, at once */
	FAKE_FLUSH_LATE,      /* each, but only when stepped */
};

struct fake_config {
	char name[32];
	int open_errno; /* what opening it gives */
	struct ibv_device_attr attr;
	struct fake_port ports[FAKE_PORTS]; /* attr.phys_port_cnt of them */
	uint32_t max_inline;
	enum fake_inline inline_rule;
	enum fake_flush flush;
	bool builders; /* ibv_wr_* */
	/* payload becomes visible only when a completion behind it is polled */
	bool late_data;
	/* attempts at an unreachable peer, or a receive queue that is empty and
	   not waited for, before the request fails */
	unsigned patience;
};

/* Like Soft-RoCE: one active Ethernet port of MTU 4096, with 10.0.0.@host. */
void fake_config_init(struct fake_config *config, unsigned host);
/* An IPv4 address as a GID. */
struct fake_gid fake_gid_ipv4(enum ibv_gid_type type, unsigned a, unsigned b,
			      unsigned c, unsigned d);

/* Returns the device's number. */
int fake_device_add(const struct fake_config *config);
/* A device's configuration, which may be changed while it runs. */
struct fake_config *fake_device(int device);
/*
 * Remove all devices, settings and counts. Returns how many violations there
 * were, objects not destroyed included.
 */
unsigned fake_reset(void);

/* ---- execution ---- */

void fake_defer(bool deferred);
/* Carry out up to @n requests, queue pairs in turn. Returns how many. */
unsigned fake_step(unsigned n);
/* The same of one queue pair. */
unsigned fake_step_qp(uint32_t qpn, unsigned n);

/* ---- faults ---- */

enum fake_call {
	FAKE_POST_SEND, /* counted by requests, not calls */
	FAKE_POST_SRQ_RECV,
	FAKE_REG_MR,
	FAKE_CREATE_CQ,
	FAKE_CREATE_SRQ,
	FAKE_CREATE_QP,
	FAKE_MODIFY_QP,
	FAKE_ALLOC_PD,
	FAKE_CREATE_CHANNEL,
	FAKE_REQ_NOTIFY,
	FAKE_CALLS,
};

/* The @k-th from now (1: the next) fails with @err; @k 0: none does. */
void fake_fail(enum fake_call call, unsigned k, int err);
/*
 * The @k-th request that the queue pair carries out from now completes with
 * @status, and so breaks it. @landed: its data arrives nevertheless.
 */
void fake_fail_request(uint32_t qpn, unsigned k, enum ibv_wc_status status,
		       bool landed);
/* To the error state, as by the device's own fault. */
void fake_break_qp(uint32_t qpn);
/* Polling the completion queues of the device fails from now on. */
void fake_break_cqs(int device);
/* No call but destruction and queries succeeds from now on. */
void fake_break_device(int device);
/* The host at the other end is gone: its queue pairs answer no more. */
void fake_vanish(uint32_t qpn);

/* Change the state, and raise the event of it. */
void fake_port_state(int device, uint8_t port, enum ibv_port_state state);
/* Raise an event: of @port, or of the queue pair or object @id. */
void fake_raise(int device, enum ibv_event_type type, uint32_t id);

/* ---- what there is ---- */

struct fake_counts {
	unsigned contexts, pds, mrs, cqs, srqs, qps, channels;
	size_t registered; /* bytes */
	size_t heap;	   /* bytes of the heap that the fake itself uses */
	uint64_t doorbells, requests;
	uint64_t inlined; /* requests with inline data */
	uint64_t signalled;
	uint64_t completions; /* polled */
	uint64_t rnr;	      /* attempts that met no receive */
	uint64_t notify_requests;
	unsigned events_unread;
	unsigned violations;
	unsigned cq_peak; /* most completions that one queue has held */
};

struct fake_counts fake_count(void);
/* Queue pair numbers in order of creation; at most @room. Returns how many. */
unsigned fake_qps(uint32_t *qpn, unsigned room);
/* What it was given by ibv_modify_qp() last; false: there is none. */
bool fake_qp_attr(uint32_t qpn, struct ibv_qp_attr *attr);
/* Requests posted, not yet carried out. */
unsigned fake_qp_pending(uint32_t qpn);

#endif
