/* SPDX-License-Identifier: BSD-3-Clause */
/* See fake_rdmacm.h. One channel at a time. */
#include "fake_rdmacm.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DATA_MAX 56 /* of a request; more arrives than was sent */

struct fake_id {
	struct rdma_cm_id id; /* first */
	struct fake_id *next, *peer;
	bool listening, established;
	unsigned unacknowledged;
	uint32_t qpn, psn;
};

struct fake_event {
	struct rdma_cm_event event; /* first */
	struct fake_event *next;
	uint8_t data[DATA_MAX];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_id *ids;
static struct fake_event *events;
static struct rdma_event_channel channel = {.fd = -1};
static struct ibv_context *device;
static struct fake_cm_counts counts;
static struct {
	int type, by, status;
	unsigned n;
} instead;
static struct {
	int type;
	unsigned n;
} garble;
static unsigned fail_at, stale;
static bool absent, translate;
static uint16_t last_port = 4999;
static uint32_t last_psn = 7;

static int refuse(int err)
{
	errno = err;
	return -1;
}

/* Is this call the one to fail? */
static bool fails(void)
{
	bool fail = fail_at == 1;

	fail_at -= fail_at > 0;
	return fail;
}

static void post(struct fake_id *to, int type, int status, const void *data,
		 uint8_t len, uint32_t qpn)
{
	struct fake_event *e, **end = &events;
	uint64_t one = 1;

	if (instead.n && instead.type == type) {
		instead.n--;
		type = instead.by;
		status = instead.status;
		if (type < 0)
			return;
	}
	e = calloc(1, sizeof(*e));
	if (len)
		memcpy(e->data, data, len < DATA_MAX ? len : DATA_MAX);
	if (garble.n && garble.type == type) {
		garble.n--;
		e->data[3] ^= 8;
	}
	e->event = (struct rdma_cm_event){
		.id = &to->id,
		.event = (enum rdma_cm_event_type)type,
		.status = status,
	};
	e->event.param.conn.private_data = len ? e->data : NULL;
	e->event.param.conn.private_data_len = len ? DATA_MAX : 0;
	e->event.param.conn.qp_num = qpn ^ (translate ? 1 : 0);
	while (*end)
		end = &(*end)->next;
	*end = e;
	if (write(channel.fd, &one, sizeof(one)) < 0)
		counts.violations++;
}

static struct fake_id *add(void *context)
{
	struct fake_id *id = calloc(1, sizeof(*id));

	id->id.context = context;
	id->id.channel = &channel;
	id->id.ps = RDMA_PS_TCP;
	id->psn = ++last_psn;
	id->next = ids;
	ids = id;
	return id;
}

static void bind_device(struct fake_id *id)
{
	struct ibv_device **list;
	int n;

	if (!device) {
		list = ibv_get_device_list(&n);
		device = list && n ? ibv_open_device(list[0]) : NULL;
		ibv_free_device_list(list);
	}
	id->id.verbs = device;
	id->id.port_num = 1;
}

static uint16_t port_of(const void *address)
{
	return ntohs(((const struct sockaddr_in *)address)->sin_port);
}

static void copy_address(struct sockaddr_storage *to, const struct sockaddr *a)
{
	memcpy(to, a,
	       a->sa_family == AF_INET ? sizeof(struct sockaddr_in)
				       : sizeof(struct sockaddr_in6));
}

/* ---- librdmacm's ---- */

struct rdma_event_channel *rdma_create_event_channel(void)
{
	if (absent) {
		errno = ENODEV;
		return NULL;
	}
	channel.fd = eventfd(0, EFD_SEMAPHORE);
	return channel.fd < 0 ? NULL : &channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *c)
{
	pthread_mutex_lock(&lock);
	close(c->fd);
	c->fd = -1;
	counts.violations += ids != NULL;
	if (device)
		ibv_close_device(device);
	device = NULL;
	pthread_mutex_unlock(&lock);
}

int rdma_create_id(struct rdma_event_channel *c, struct rdma_cm_id **id,
		   void *context, enum rdma_port_space ps)
{
	int rc = 0;

	(void)c;
	pthread_mutex_lock(&lock);
	if (fails() || ps != RDMA_PS_TCP)
		rc = refuse(ENOMEM);
	else
		*id = &add(context)->id;
	pthread_mutex_unlock(&lock);
	return rc;
}

static void forget_events(const struct fake_id *id)
{
	struct fake_event **at = &events;

	while (*at) {
		struct fake_event *e = *at;

		if (e->event.id != &id->id) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		free(e);
	}
}

int rdma_destroy_id(struct rdma_cm_id *cm_id)
{
	struct fake_id *id = (struct fake_id *)cm_id, **at = &ids;

	pthread_mutex_lock(&lock);
	while (*at && *at != id)
		at = &(*at)->next;
	if (!*at || id->unacknowledged) {
		fprintf(stderr, "fake_rdmacm: destroyed too early or twice\n");
		abort(); /* librdmacm would wait for ever */
	}
	*at = id->next;
	forget_events(id);
	for (struct fake_id *i = ids; i; i = i->next)
		if (i->peer == id) {
			i->peer = NULL;
			if (i->established)
				post(i, RDMA_CM_EVENT_DISCONNECTED, 0, NULL, 0,
				     0);
		}
	free(id);
	pthread_mutex_unlock(&lock);
	return 0;
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value,
		    size_t len)
{
	(void)id;
	(void)value;
	return level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_TOS && len == 1
		       ? 0
		       : refuse(ENOSYS);
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address)
{
	struct sockaddr_in *at = (struct sockaddr_in *)&id->route.addr.src_sin;
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (fails()) {
		rc = refuse(EADDRNOTAVAIL);
	} else {
		copy_address(&id->route.addr.src_storage, address);
		if (!at->sin_port)
			at->sin_port = htons(++last_port);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int rdma_listen(struct rdma_cm_id *id, int backlog)
{
	int rc = 0;

	(void)backlog;
	pthread_mutex_lock(&lock);
	if (fails())
		rc = refuse(EADDRINUSE);
	else
		((struct fake_id *)id)->listening = true;
	pthread_mutex_unlock(&lock);
	return rc;
}

__be16 rdma_get_src_port(struct rdma_cm_id *id)
{
	return id->route.addr.src_sin.sin_port;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *src,
		      struct sockaddr *dst, int timeout_ms)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (fails() || timeout_ms <= 0) {
		rc = refuse(ENETUNREACH);
	} else {
		copy_address(&id->route.addr.src_storage, src);
		copy_address(&id->route.addr.dst_storage, dst);
		bind_device((struct fake_id *)id);
		post((struct fake_id *)id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL,
		     0, 0);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms)
{
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (fails() || timeout_ms <= 0)
		rc = refuse(EINVAL);
	else
		post((struct fake_id *)id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0,
		     NULL, 0, 0);
	pthread_mutex_unlock(&lock);
	return rc;
}

/* To who listens at the port; @from NULL: a stranger. */
static bool call(struct fake_id *from, uint16_t port, const void *data,
		 uint8_t len, uint32_t qpn)
{
	struct fake_id *listener = ids, *to;

	while (listener &&
	       (!listener->listening ||
		port_of(&listener->id.route.addr.src_storage) != port))
		listener = listener->next;
	if (!listener)
		return false;
	to = add(listener->id.context);
	bind_device(to);
	to->peer = from;
	to->id.route.addr.src_storage = listener->id.route.addr.src_storage;
	to->id.route.addr.dst_storage =
		from ? from->id.route.addr.src_storage
		     : listener->id.route.addr.src_storage;
	if (instead.n && instead.type == RDMA_CM_EVENT_CONNECT_REQUEST) {
		instead.n--; /* lost on its way */
		ids = to->next;
		free(to);
		return true;
	}
	if (from)
		from->peer = to;
	post(to, RDMA_CM_EVENT_CONNECT_REQUEST, 0, data, len, qpn);
	return true;
}

int rdma_connect(struct rdma_cm_id *cm_id, struct rdma_conn_param *param)
{
	struct fake_id *id = (struct fake_id *)cm_id;
	int rc = 0;

	pthread_mutex_lock(&lock);
	counts.calls++;
	if (fails() || param->private_data_len > DATA_MAX) {
		rc = refuse(EINVAL);
	} else {
		id->qpn = param->qp_num;
		if (stale) {
			stale--;
			post(id, RDMA_CM_EVENT_REJECTED, 10, NULL, 0, 0);
		} else if (!call(id, port_of(&cm_id->route.addr.dst_storage),
				 param->private_data, param->private_data_len,
				 param->qp_num))
			post(id, RDMA_CM_EVENT_REJECTED, 8, NULL, 0, 0);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int rdma_accept(struct rdma_cm_id *cm_id, struct rdma_conn_param *param)
{
	struct fake_id *id = (struct fake_id *)cm_id;
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (fails()) {
		rc = refuse(EINVAL);
	} else {
		id->qpn = param->qp_num;
		id->established = true;
		if (id->peer)
			post(id->peer, RDMA_CM_EVENT_CONNECT_RESPONSE, 0,
			     param->private_data, param->private_data_len,
			     param->qp_num);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int rdma_reject(struct rdma_cm_id *cm_id, const void *data, uint8_t len)
{
	struct fake_id *id = (struct fake_id *)cm_id;

	(void)data;
	(void)len;
	pthread_mutex_lock(&lock);
	counts.rejected++;
	if (id->peer)
		post(id->peer, RDMA_CM_EVENT_REJECTED, 28, NULL, 0, 0);
	pthread_mutex_unlock(&lock);
	return 0;
}

int rdma_establish(struct rdma_cm_id *cm_id)
{
	struct fake_id *id = (struct fake_id *)cm_id;
	int rc = 0;

	pthread_mutex_lock(&lock);
	if (fails())
		rc = refuse(EINVAL);
	else if (id->peer)
		post(id->peer, RDMA_CM_EVENT_ESTABLISHED, 0, NULL, 0, 0);
	pthread_mutex_unlock(&lock);
	return rc;
}

static void fill_rtr(const struct fake_id *id, struct ibv_qp_attr *attr)
{
	const struct sockaddr_in *to = &id->id.route.addr.dst_sin;
	uint8_t *gid = attr->ah_attr.grh.dgid.raw;

	attr->dest_qp_num = id->peer ? id->peer->qpn : 0;
	attr->rq_psn = id->peer ? id->peer->psn : 0;
	attr->path_mtu = IBV_MTU_4096;
	attr->ah_attr.is_global = 1;
	attr->ah_attr.port_num = 1;
	attr->ah_attr.grh.hop_limit = 64;
	gid[10] = gid[11] = 0xff;
	memcpy(gid + 12, &to->sin_addr, 4);
}

int rdma_init_qp_attr(struct rdma_cm_id *cm_id, struct ibv_qp_attr *attr,
		      int *mask)
{
	const struct fake_id *id = (const struct fake_id *)cm_id;
	enum ibv_qp_state state = attr->qp_state;
	int rc = 0;

	pthread_mutex_lock(&lock);
	memset(attr, 0, sizeof(*attr));
	attr->qp_state = state;
	if (fails()) {
		rc = refuse(EINVAL);
	} else if (state == IBV_QPS_RTR) {
		*mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
		fill_rtr(id, attr);
	} else {
		*mask = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
			IBV_QP_MAX_QP_RD_ATOMIC;
		attr->sq_psn = id->psn;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int rdma_get_cm_event(struct rdma_event_channel *c,
		      struct rdma_cm_event **event)
{
	struct fake_event *e;
	uint64_t one;

	do {
		if (read(c->fd, &one, sizeof(one)) < 0)
			return -1;
		pthread_mutex_lock(&lock);
		e = events; /* NULL: what there was is forgotten */
		if (e) {
			events = e->next;
			((struct fake_id *)e->event.id)->unacknowledged++;
			*event = &e->event;
		}
		pthread_mutex_unlock(&lock);
	} while (!e);
	return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event)
{
	pthread_mutex_lock(&lock);
	((struct fake_id *)event->id)->unacknowledged--;
	pthread_mutex_unlock(&lock);
	free(event);
	return 0;
}

const char *rdma_event_str(enum rdma_cm_event_type event)
{
	static char text[32];

	snprintf(text, sizeof(text), "event %d", (int)event);
	return text;
}

/* ---- the test's ---- */

void fake_cm_instead(int type, int by, int status, unsigned n)
{
	pthread_mutex_lock(&lock);
	instead.type = type;
	instead.by = by;
	instead.status = status;
	instead.n = n;
	pthread_mutex_unlock(&lock);
}

void fake_cm_garble(int type, unsigned n)
{
	pthread_mutex_lock(&lock);
	garble.type = type;
	garble.n = n;
	pthread_mutex_unlock(&lock);
}

void fake_cm_stale(unsigned n)
{
	pthread_mutex_lock(&lock);
	stale = n;
	pthread_mutex_unlock(&lock);
}

void fake_cm_fail(unsigned k)
{
	pthread_mutex_lock(&lock);
	fail_at = k;
	pthread_mutex_unlock(&lock);
}

void fake_cm_absent(bool is_absent)
{
	absent = is_absent;
}

void fake_cm_translate(bool does)
{
	pthread_mutex_lock(&lock);
	translate = does;
	pthread_mutex_unlock(&lock);
}

void fake_cm_call(const void *data, uint8_t len)
{
	pthread_mutex_lock(&lock);
	for (struct fake_id *i = ids; i; i = i->next)
		if (i->listening)
			call(NULL, port_of(&i->id.route.addr.src_storage), data,
			     len, 99);
	pthread_mutex_unlock(&lock);
}

struct fake_cm_counts fake_cm_count(void)
{
	struct fake_cm_counts now;

	pthread_mutex_lock(&lock);
	now = counts;
	for (struct fake_id *i = ids; i; i = i->next) {
		now.listening += i->listening;
		now.others += !i->listening;
	}
	pthread_mutex_unlock(&lock);
	return now;
}

void fake_cm_reset(void)
{
	pthread_mutex_lock(&lock);
	memset(&counts, 0, sizeof(counts));
	instead.n = garble.n = fail_at = stale = 0;
	absent = translate = false;
	pthread_mutex_unlock(&lock);
}
