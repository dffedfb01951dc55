/* SPDX-License-Identifier: BSD-3-Clause */
/* The fake verbs device's controls: configuration, faults, counts. */
#include "fake_verbs_impl.h"

#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_OVERHEAD 8 /* of the heap, beside what is usable */

struct fake_state fake = {.next_qpn = FAKE_QPN_FIRST, .next_key = 1};

static atomic_flag lock = ATOMIC_FLAG_INIT;

/* No mutex: the lock of a device is not to be seen in counts of its user's. */
void fake_lock(void)
{
	while (atomic_flag_test_and_set_explicit(&lock, memory_order_acquire))
		sched_yield();
}

void fake_unlock(void)
{
	atomic_flag_clear_explicit(&lock, memory_order_release);
}

void fake_violation(const char *fmt, ...)
{
	va_list args;

	fake.counts.violations++;
	fputs("fake verbs: violation: ", stderr);
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

void *fake_alloc(size_t bytes)
{
	void *p = calloc(1, bytes);

	if (!p) {
		fprintf(stderr, "fake verbs: out of memory\n");
		abort();
	}
	fake.counts.heap += malloc_usable_size(p) + CHUNK_OVERHEAD;
	return p;
}

void fake_free(void *p)
{
	if (p)
		fake.counts.heap -= malloc_usable_size(p) + CHUNK_OVERHEAD;
	free(p);
}

/* ---- configuration ---- */

struct fake_gid fake_gid_ipv4(enum ibv_gid_type type, unsigned a, unsigned b,
			      unsigned c, unsigned d)
{
	struct fake_gid gid = {.type = type};

	gid.raw[10] = gid.raw[11] = 0xff;
	gid.raw[12] = (uint8_t)a;
	gid.raw[13] = (uint8_t)b;
	gid.raw[14] = (uint8_t)c;
	gid.raw[15] = (uint8_t)d;
	return gid;
}

static void port_init(struct fake_port *port, unsigned host)
{
	*port = (struct fake_port){
		.state = IBV_PORT_ACTIVE,
		.link_layer = IBV_LINK_LAYER_ETHERNET,
		.max_mtu = IBV_MTU_4096,
		.active_mtu = IBV_MTU_4096,
		.max_msg_sz = 8u << 20,
		.ngids = 2,
		.npkeys = 1,
		.pkeys = {0xffff},
	};
	port->gids[0].type = IBV_GID_TYPE_ROCE_V2;
	port->gids[0].raw[0] = 0xfe;
	port->gids[0].raw[1] = 0x80;
	port->gids[0].raw[15] = (uint8_t)host;
	port->gids[1] = fake_gid_ipv4(IBV_GID_TYPE_ROCE_V2, 10, 0, 0, host);
}

void fake_config_init(struct fake_config *config, unsigned host)
{
	memset(config, 0, sizeof(*config));
	snprintf(config->name, sizeof(config->name), "fake%u", host);
	config->attr = (struct ibv_device_attr){
		.fw_ver = "1.0",
		.max_mr_size = UINT64_MAX,
		.page_size_cap = 4096,
		.vendor_id = 0xffffff,
		.max_qp = 1 << 20,
		.max_qp_wr = 1 << 14,
		.max_sge = 32,
		.max_sge_rd = 32,
		.max_cq = 1 << 20,
		.max_cqe = 32767,
		.max_mr = 524287,
		.max_pd = 1 << 20,
		.max_qp_rd_atom = 128,
		.max_qp_init_rd_atom = 128,
		.max_res_rd_atom = 258048,
		.atomic_cap = IBV_ATOMIC_HCA,
		.max_srq = 917503,
		.max_srq_wr = 1048576,
		.max_srq_sge = 27,
		.max_pkeys = 64,
		.phys_port_cnt = 1,
	};
	config->max_inline = 512;
	config->inline_rule = FAKE_INLINE_REFUSE;
	config->patience = 3;
	for (int i = 0; i < FAKE_PORTS; i++)
		port_init(&config->ports[i], host + 100 * (unsigned)i);
}

int fake_device_add(const struct fake_config *config)
{
	struct fake_device_state *device;
	int n;

	fake_lock();
	n = fake.ndevices;
	if (n == FAKE_DEVICES)
		abort();
	device = fake_alloc(sizeof(*device));
	device->config = *config;
	device->ibv.node_type = IBV_NODE_CA;
	device->ibv.transport_type = IBV_TRANSPORT_IB;
	snprintf(device->ibv.name, sizeof(device->ibv.name), "%s",
		 config->name);
	fake.devices[fake.ndevices++] = device;
	fake_unlock();
	return n;
}

struct fake_config *fake_device(int device)
{
	return &fake.devices[device]->config;
}

static void check_gone(const char *what, unsigned n)
{
	if (n)
		fake_violation("%u %s not destroyed", n, what);
}

unsigned fake_reset(void)
{
	unsigned violations;

	fake_lock();
	check_gone("queue pairs", fake.counts.qps);
	check_gone("shared receive queues", fake.counts.srqs);
	check_gone("completion queues", fake.counts.cqs);
	check_gone("completion channels", fake.counts.channels);
	check_gone("registrations", fake.counts.mrs);
	check_gone("protection domains", fake.counts.pds);
	check_gone("contexts", fake.counts.contexts);
	violations = fake.counts.violations;
	for (int i = 0; i < fake.ndevices; i++)
		if (!fake.devices[i]->contexts)
			fake_free(fake.devices[i]);
	fake_free(fake.by_qpn);
	fake_free(fake.by_key);
	memset(&fake, 0, sizeof(fake));
	fake.next_qpn = FAKE_QPN_FIRST;
	fake.next_key = 1;
	fake_unlock();
	return violations;
}

/* ---- faults ---- */

int fake_fault(enum fake_call call)
{
	if (!fake.fail_in[call] || --fake.fail_in[call])
		return 0;
	return fake.fail_err[call];
}

void fake_fail(enum fake_call call, unsigned k, int err)
{
	fake_lock();
	fake.fail_in[call] = k;
	fake.fail_err[call] = err;
	fake_unlock();
}

void fake_fail_request(uint32_t qpn, unsigned k, enum ibv_wc_status status,
		       bool landed)
{
	struct fake_qp *qp;

	fake_lock();
	qp = fake_qp_find(qpn);
	if (qp) {
		qp->fail_in = k;
		qp->fail_status = status;
		qp->fail_landed = landed;
	}
	fake_unlock();
}

void fake_break_qp(uint32_t qpn)
{
	struct fake_qp *qp;

	fake_lock();
	qp = fake_qp_find(qpn);
	if (qp) {
		fake_qp_error(qp);
		fake_event_push(fake_context_of(qp->ex.qp_base.context),
				IBV_EVENT_QP_FATAL, qp, NULL, NULL, 0);
	}
	fake_unlock();
}

void fake_vanish(uint32_t qpn)
{
	struct fake_qp *qp;

	fake_lock();
	qp = fake_qp_find(qpn);
	if (qp)
		qp->vanished = true;
	fake_unlock();
}

void fake_break_cqs(int device)
{
	fake_lock();
	fake.devices[device]->cqs_broken = true;
	fake_unlock();
}

void fake_break_device(int device)
{
	struct fake_device_state *state;

	fake_lock();
	state = fake.devices[device];
	state->broken = true;
	for (struct fake_qp *qp = fake.qps; qp; qp = qp->next_qp)
		if (fake_device_of(qp->ex.qp_base.context) == state)
			fake_qp_error(qp);
	for (struct fake_context *c = state->opened; c; c = c->next)
		fake_event_push(c, IBV_EVENT_DEVICE_FATAL, NULL, NULL, NULL, 0);
	fake_unlock();
}

/* ---- counts ---- */

struct fake_counts fake_count(void)
{
	struct fake_counts counts;

	fake_lock();
	counts = fake.counts;
	fake_unlock();
	return counts;
}

unsigned fake_qps(uint32_t *qpn, unsigned room)
{
	unsigned n = 0;

	fake_lock();
	for (struct fake_qp *qp = fake.qps; qp; qp = qp->next_qp, n++)
		if (n < room)
			qpn[n] = qp->ex.qp_base.qp_num;
	fake_unlock();
	return n;
}

bool fake_qp_attr(uint32_t qpn, struct ibv_qp_attr *attr)
{
	struct fake_qp *qp;

	fake_lock();
	qp = fake_qp_find(qpn);
	if (qp)
		*attr = qp->attr;
	fake_unlock();
	return qp != NULL;
}

unsigned fake_qp_pending(uint32_t qpn)
{
	struct fake_qp *qp;
	unsigned n;

	fake_lock();
	qp = fake_qp_find(qpn);
	n = qp ? qp->head - qp->next : 0;
	fake_unlock();
	return n;
}
