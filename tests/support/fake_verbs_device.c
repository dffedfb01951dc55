/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fake verbs device: listing, opening, queries, and asynchronous events,
 * whose descriptor is readable as long as there are some.
 */
#include "fake_verbs_impl.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ACK_WAIT_MS 2000

/* ---- the list ---- */

#undef ibv_get_device_list
struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list;

	fake_lock();
	list = fake_alloc(((size_t)fake.ndevices + 1) *
			  sizeof(struct ibv_device *));
	for (int i = 0; i < fake.ndevices; i++)
		list[i] = &fake.devices[i]->ibv;
	if (n)
		*n = fake.ndevices;
	fake_unlock();
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	fake_lock();
	fake_free(list);
	fake_unlock();
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

__be64 ibv_get_device_guid(struct ibv_device *device)
{
	(void)device;
	return 0;
}

int ibv_get_device_index(struct ibv_device *device)
{
	for (int i = 0; i < fake.ndevices; i++)
		if (&fake.devices[i]->ibv == device)
			return i;
	return -1;
}

int ibv_fork_init(void)
{
	return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void)
{
	return IBV_FORK_UNNEEDED;
}

/* ---- queries ---- */

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	*attr = fake_device_of(context)->config.attr;
	return 0;
}

static int query_device_ex(struct ibv_context *context,
			   const struct ibv_query_device_ex_input *input,
			   struct ibv_device_attr_ex *attr, size_t bytes)
{
	(void)input;
	memset(attr, 0, bytes);
	return ibv_query_device(context, &attr->orig_attr);
}

static struct fake_port *port_of(struct ibv_context *context, unsigned port)
{
	struct fake_config *config = &fake_device_of(context)->config;

	return port >= 1 && port <= config->attr.phys_port_cnt
		       ? &config->ports[port - 1]
		       : NULL;
}

static int query_port(struct ibv_context *context, uint8_t number,
		      struct ibv_port_attr *attr, size_t bytes)
{
	const struct fake_port *port = port_of(context, number);
	struct ibv_port_attr out;

	if (!port)
		return EINVAL;
	out = (struct ibv_port_attr){
		.state = port->state,
		.max_mtu = port->max_mtu,
		.active_mtu = port->active_mtu,
		.gid_tbl_len = port->ngids,
		.max_msg_sz = port->max_msg_sz,
		.pkey_tbl_len = (uint16_t)port->npkeys,
		.lid = port->lid,
		.lmc = port->lmc,
		.sm_lid = port->lid ? 1 : 0,
		.active_width = 2,
		.active_speed = 32,
		.phys_state = port->state == IBV_PORT_ACTIVE ? 5 : 3,
		.link_layer = port->link_layer,
		.flags = port->grh_required ? IBV_QPF_GRH_REQUIRED : 0,
	};
	memset(attr, 0, bytes);
	memcpy(attr, &out, bytes < sizeof(out) ? bytes : sizeof(out));
	return 0;
}

int(ibv_query_port)(struct ibv_context *context, uint8_t number,
		    struct _compat_ibv_port_attr *attr)
{
	return query_port(context, number, (struct ibv_port_attr *)attr,
			  offsetof(struct ibv_port_attr, port_cap_flags2));
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t number,
		      uint32_t index, struct ibv_gid_entry *entry,
		      uint32_t flags, size_t bytes)
{
	const struct fake_port *port = port_of(context, number);
	const struct fake_gid *gid;

	if (!port || flags || bytes < sizeof(*entry) ||
	    index >= (uint32_t)port->ngids)
		return EINVAL;
	gid = &port->gids[index];
	if (gid->err)
		return gid->err;
	memset(entry, 0, sizeof(*entry));
	memcpy(entry->gid.raw, gid->raw, sizeof(gid->raw));
	entry->gid_index = index;
	entry->port_num = number;
	entry->gid_type = gid->type;
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context,
			     struct ibv_gid_entry *entries, size_t room,
			     uint32_t flags, size_t bytes)
{
	const struct ibv_device_attr *attr =
		&fake_device_of(context)->config.attr;
	size_t n = 0;

	for (uint32_t p = 1; p <= attr->phys_port_cnt; p++)
		for (uint32_t i = 0; i < FAKE_GIDS && n < room; i++)
			n += !_ibv_query_gid_ex(context, p, i, &entries[n],
						flags, bytes);
	return (ssize_t)n;
}

int ibv_query_gid(struct ibv_context *context, uint8_t number, int index,
		  union ibv_gid *gid)
{
	struct ibv_gid_entry entry;
	int err = _ibv_query_gid_ex(context, number, (uint32_t)index, &entry, 0,
				    sizeof(entry));

	if (err) {
		errno = err;
		return -1;
	}
	*gid = entry.gid;
	return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t number, int index,
		   __be16 *pkey)
{
	const struct fake_port *port = port_of(context, number);

	if (!port || index < 0 || index >= port->npkeys) {
		errno = EINVAL;
		return -1;
	}
	*pkey = htons(port->pkeys[index]);
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t number, __be16 pkey)
{
	const struct fake_port *port = port_of(context, number);

	for (int i = 0; port && i < port->npkeys; i++)
		if (htons(port->pkeys[i]) == pkey)
			return i;
	return -1;
}

/* ---- opening ---- */

static void set_ops(struct fake_context *context)
{
	struct verbs_context *verbs = &context->verbs;

	verbs->sz = sizeof(*verbs);
	verbs->context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	verbs->query_port = query_port;
	verbs->query_device_ex = query_device_ex;
	verbs->create_qp_ex = fake_create_qp_ex;
	verbs->context.ops.poll_cq = fake_poll_cq;
	verbs->context.ops.req_notify_cq = fake_req_notify_cq;
	verbs->context.ops.post_srq_recv = fake_post_srq_recv;
	verbs->context.ops.post_send = fake_post_send;
}

struct ibv_context *ibv_open_device(struct ibv_device *ibv)
{
	struct fake_device_state *device = (struct fake_device_state *)ibv;
	struct fake_context *context;

	if (device->config.open_errno) {
		errno = device->config.open_errno;
		return NULL;
	}
	fake_lock();
	context = fake_alloc(sizeof(*context));
	context->device = device;
	context->events_tail = &context->events;
	context->verbs.context.device = ibv;
	context->verbs.context.num_comp_vectors = 1;
	context->verbs.context.cmd_fd = -1;
	context->verbs.context.async_fd =
		eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	set_ops(context);
	context->next = device->opened;
	device->opened = context;
	device->contexts++;
	fake.counts.contexts++;
	fake_unlock();
	return &context->verbs.context;
}

/* Returns how many there were. */
static unsigned events_free(struct fake_event *event)
{
	unsigned n = 0;

	for (; event; n++) {
		struct fake_event *next = event->next;

		fake_free(event);
		event = next;
	}
	return n;
}

int ibv_close_device(struct ibv_context *ibv)
{
	struct fake_context *context = fake_context_of(ibv);
	struct fake_context **at = &context->device->opened;

	fake_lock();
	if (context->objects)
		fake_violation("a context is closed with %u objects in use",
			       context->objects);
	if (context->read)
		fake_violation("asynchronous events not acknowledged");
	fake.counts.events_unread -= events_free(context->events);
	events_free(context->read);
	while (*at != context)
		at = &(*at)->next;
	*at = context->next;
	context->device->contexts--;
	fake.counts.contexts--;
	close(ibv->async_fd);
	fake_free(context);
	fake_unlock();
	return 0;
}

/* ---- asynchronous events ---- */

void fake_event_push(struct fake_context *context, enum ibv_event_type type,
		     struct fake_qp *qp, struct fake_cq *cq,
		     struct fake_srq *srq, int port)
{
	struct fake_event *event = fake_alloc(sizeof(*event));
	uint64_t one = 1;

	event->ibv.event_type = type;
	if (qp)
		event->ibv.element.qp = &qp->ex.qp_base;
	else if (cq)
		event->ibv.element.cq = &cq->ibv;
	else if (srq)
		event->ibv.element.srq = &srq->ibv;
	else
		event->ibv.element.port_num = port;
	*context->events_tail = event;
	context->events_tail = &event->next;
	fake.counts.events_unread++;
	if (write(context->verbs.context.async_fd, &one, sizeof(one)) < 0)
		fake_violation("the event descriptor: %s", strerror(errno));
}

int ibv_get_async_event(struct ibv_context *ibv, struct ibv_async_event *out)
{
	struct fake_context *context = fake_context_of(ibv);
	struct fake_event *event;
	uint64_t one;

	if (read(ibv->async_fd, &one, sizeof(one)) != sizeof(one))
		return -1;
	fake_lock();
	event = context->events;
	if (!event) {
		fake_unlock();
		errno = EAGAIN;
		return -1;
	}
	context->events = event->next;
	if (!context->events)
		context->events_tail = &context->events;
	*out = event->ibv;
	event->next = context->read;
	context->read = event;
	fake.counts.events_unread--;
	fake_unlock();
	return 0;
}

static bool acknowledge(struct fake_context *context,
			const struct ibv_async_event *event)
{
	for (struct fake_event **at = &context->read; *at; at = &(*at)->next) {
		struct fake_event *e = *at;

		if (e->ibv.event_type != event->event_type ||
		    e->ibv.element.qp != event->element.qp)
			continue;
		*at = e->next;
		fake_free(e);
		return true;
	}
	return false;
}

void ibv_ack_async_event(struct ibv_async_event *event)
{
	bool found = false;

	fake_lock();
	for (int i = 0; i < fake.ndevices; i++)
		for (struct fake_context *c = fake.devices[i]->opened;
		     c && !found; c = c->next)
			found = acknowledge(c, event);
	if (!found)
		fake_violation("an event is acknowledged that was not read");
	fake_unlock();
}

static bool is_read(const struct fake_context *context, const void *object)
{
	for (struct fake_event *e = context->read; e; e = e->next)
		if (e->ibv.element.qp == object)
			return true;
	return false;
}

static bool take_token(struct fake_context *context)
{
	struct pollfd pfd = {.fd = context->verbs.context.async_fd,
			     .events = POLLIN};
	uint64_t one;

	return poll(&pfd, 1, 0) == 1 &&
	       read(pfd.fd, &one, sizeof(one)) == sizeof(one);
}

void fake_events_forget(struct fake_context *context, const void *object)
{
	struct fake_event **at = &context->events, *event;

	while ((event = *at)) {
		if (event->ibv.element.qp != object) {
			at = &event->next;
		} else if (take_token(context)) {
			*at = event->next;
			fake.counts.events_unread--;
			fake_free(event);
		} else {
			/* a reader has it, and waits for the lock */
			fake_unlock();
			usleep(1000);
			fake_lock();
			at = &context->events;
		}
	}
	for (at = &context->events; *at; at = &(*at)->next)
		;
	context->events_tail = at;
	for (int ms = 0; is_read(context, object); ms++) {
		if (ms == ACK_WAIT_MS) {
			fake_violation("an object is destroyed whose event is "
				       "not acknowledged: a device would wait "
				       "for ever");
			break;
		}
		fake_unlock();
		usleep(1000);
		fake_lock();
	}
}

void fake_raise(int device, enum ibv_event_type type, uint32_t id)
{
	struct fake_device_state *state = fake.devices[device];

	fake_lock();
	for (struct fake_context *c = state->opened; c; c = c->next) {
		struct fake_qp *qp = NULL;
		struct fake_cq *cq = NULL;
		struct fake_srq *srq = NULL;

		if (type == IBV_EVENT_CQ_ERR)
			for (cq = fake.cqs; cq && --id; cq = cq->next)
				;
		else if (type == IBV_EVENT_SRQ_ERR ||
			 type == IBV_EVENT_SRQ_LIMIT_REACHED)
			for (srq = fake.srqs; srq && --id; srq = srq->next)
				;
		else
			qp = fake_qp_find(id);
		if (!qp || fake_context_of(qp->ex.qp_base.context) == c)
			fake_event_push(c, type, qp, cq, srq, (int)id);
	}
	fake_unlock();
}

void fake_port_state(int device, uint8_t port, enum ibv_port_state state)
{
	fake.devices[device]->config.ports[port - 1].state = state;
	fake_raise(device,
		   state == IBV_PORT_ACTIVE ? IBV_EVENT_PORT_ACTIVE
					    : IBV_EVENT_PORT_ERR,
		   port);
}
