/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous events, on the job's control thread. Destroying a queue pair
 * waits until its events are acknowledged; so until then the queue pair, its
 * connection and its context are there to be looked at, and an event is always
 * acknowledged before the control thread does anything else. What an event
 * breaks is not touched here: it is marked, and its context's thread woken,
 * which breaks it at its next progress (events_alerted()).
 */
#include "failover.h"
#include "control.h"
#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

/* ---- contexts ---- */

void events_add(struct verbs_ctx *ctx, struct blob *address)
{
	struct verbs_job *job = ctx->job;

	pthread_mutex_lock(&job->lock);
	device_addresses(job, address);
	ctx->next_of_job = job->ctxs;
	job->ctxs = ctx;
	pthread_mutex_unlock(&job->lock);
}

void events_remove(struct verbs_ctx *ctx)
{
	struct verbs_job *job = ctx->job;
	struct verbs_ctx **link = &job->ctxs;

	pthread_mutex_lock(&job->lock);
	while (*link && *link != ctx)
		link = &(*link)->next_of_job;
	if (*link)
		*link = ctx->next_of_job;
	pthread_mutex_unlock(&job->lock);
}

static void alert(struct verbs_ctx *ctx)
{
	atomic_store(&ctx->alerted, true);
	ctx_due_any(ctx);
	vbn_ctx_wake(ctx->core);
}

/* [ctx] What a connection that runs by the rail has to break of; or 0. */
static unsigned char rail_event(const struct rail *rail, unsigned all)
{
	if (all)
		return (unsigned char)all;
	return atomic_load(&rail->fatal) ? IBV_EVENT_DEVICE_FATAL + 1 : 0;
}

/* [ctx] All of a context's connections, or those that are marked. */
static void break_marked(struct verbs_ctx *ctx, unsigned all)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct lane *lane = ctx->bucket[i]; lane;
		     lane = lane->next_bucket) {
			struct verbs_conn *conn = lane->conn;
			unsigned char event =
				rail_event(lane->queues->rail, all);

			if (lane->state == LANE_LIVE && event &&
			    !atomic_load(&conn->event))
				atomic_store(&conn->event, event);
			if (atomic_load(&conn->event))
				progress_break(conn, "device event",
					       IBV_WC_FATAL_ERR, 0);
		}
}

void events_alerted(struct verbs_ctx *ctx)
{
	unsigned all;

	/* first: what is marked from now on alerts again */
	atomic_store(&ctx->alerted, false);
	conn_adopt(ctx);
	all = atomic_load(&ctx->queue_event);
	if (all || rails_all_dead(ctx->job))
		ctx->cq_broken = true; /* nobody waits for completions */
	else
		failover_check(ctx);
	break_marked(ctx, all);
}

/* ---- what an event means ---- */

static void on_queue_pair(struct ibv_qp *qp, enum ibv_event_type type)
{
	struct verbs_conn *conn = qp->qp_context;

	if (!conn)
		return; /* made to see what the device grants */
	vbn_log(VBN_INFO, "verbs: %s: queue pair %u to rank %d: %s",
		ibv_get_device_name(qp->context->device), qp->qp_num,
		conn->rank, ibv_event_type_str(type));
	atomic_store(&conn->event, (unsigned char)(type + 1));
	alert(conn->ctx);
}

static void on_queue(struct rail *rail, struct verbs_ctx *ctx,
		     enum ibv_event_type type)
{
	if (!ctx)
		return;
	vbn_log(VBN_ERR, "verbs: %s: %s: the context's connections fail",
		rail->name, ibv_event_type_str(type));
	atomic_store(&ctx->queue_event, (unsigned char)(type + 1));
	alert(ctx);
}

/* @up: the rails whose ports may be used again, a bit each. */
static void alert_all(struct verbs_job *job, unsigned up)
{
	pthread_mutex_lock(&job->lock);
	for (struct verbs_ctx *ctx = job->ctxs; ctx; ctx = ctx->next_of_job) {
		atomic_fetch_or(&ctx->rails_up, up);
		alert(ctx);
	}
	pthread_mutex_unlock(&job->lock);
}

static void on_fatal(struct rail *rail)
{
	if (!atomic_exchange(&rail->fatal, true))
		vbn_log(VBN_ERR,
			"verbs: %s has failed (device fatal event): all its "
			"connections fail%s; see the kernel's log",
			rail->name,
			rail->job->nrails > 1 ? " that have no other rail"
					      : "");
	alert_all(rail->job, 0);
}

/* Connections that are made from now on use what the port has now. */
static void on_change(struct rail *rail, enum ibv_event_type type)
{
	const struct port_address *a = &rail->port.address;
	struct verbs_job *job = rail->job;
	char gid[GID_TEXT_LENGTH] = "none";
	struct blob address;

	if (!device_refresh(rail))
		return;
	if (job->nrails > 1)
		alert_all(job, 1u << rail->index);
	if (a->ngids)
		gid_text(a->gids[0].raw, gid);
	vbn_log(VBN_INFO,
		"verbs: %s port %u: %s: LID %u, GID %u %s, partition 0x%04x "
		"for new connections",
		rail->name, rail->port_num, ibv_event_type_str(type), a->lid,
		a->gids[0].index, gid, a->pkey);
	device_addresses(job, &address);
	pthread_mutex_lock(&job->lock);
	for (struct verbs_ctx *ctx = job->ctxs; ctx; ctx = ctx->next_of_job)
		core_readdress(ctx->core, PROVIDER_VERBS, &address);
	pthread_mutex_unlock(&job->lock);
}

static void on_port(struct rail *rail, enum ibv_event_type type)
{
	bool down = type == IBV_EVENT_PORT_ERR;

	if (atomic_exchange(&rail->port_down, down) != down)
		vbn_log(VBN_WARN, "verbs: %s port %u is %s", rail->name,
			rail->port_num,
			!down			? "up again"
			: rail->job->nrails > 1 ? "down: connections go on by "
						  "other rails that they have"
						: "down: operations are sent "
						  "again until their retries "
						  "run out");
	if (!down)
		on_change(rail, type);
	if (rail->job->nrails > 1)
		alert_all(rail->job, down ? 0 : 1u << rail->index);
}

static void on_unknown(struct rail *rail, enum ibv_event_type type)
{
	uint64_t bit = 1ull << ((unsigned)type % 64);

	if (rail->events_told & bit)
		return;
	rail->events_told |= bit;
	vbn_log(VBN_INFO, "verbs: %s: event %d (%s) is ignored", rail->name,
		(int)type, ibv_event_type_str(type));
}

static void on_event(struct rail *rail, const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		on_queue_pair(event->element.qp, event->event_type);
		break;
	case IBV_EVENT_CQ_ERR:
		on_queue(rail, event->element.cq->cq_context,
			 event->event_type);
		break;
	case IBV_EVENT_SRQ_ERR:
		on_queue(rail, event->element.srq->srq_context,
			 event->event_type);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		on_fatal(rail);
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
		if (event->element.port_num == rail->port_num)
			on_port(rail, event->event_type);
		break;
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
		if (event->element.port_num == rail->port_num)
			on_change(rail, event->event_type);
		break;
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		vbn_log(VBN_DEBUG, "verbs: %s: receives ran low %u times",
			rail->name, ++rail->srq_limits);
		break;
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		break; /* the ordinary life of a queue pair */
	default:
		on_unknown(rail, event->event_type);
	}
}

void events_take(struct rail *rail)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(rail->device, &event)) {
		on_event(rail, &event);
		ibv_ack_async_event(&event);
	}
}

/* ---- watching ---- */

struct start {
	struct rail *rail;
	int err;
};

static void on_readable(void *arg, int fd)
{
	(void)fd;
	events_take(arg);
}

static void start_watch(void *arg)
{
	struct start *start = arg;

	start->err = control_watch(vbn_job_control(start->rail->job->core),
				   start->rail->device->async_fd, on_readable,
				   start->rail);
}

int events_start(struct rail *rail)
{
	struct start start = {.rail = rail};
	int fd = rail->device->async_fd, err;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		return vbn_fail(-errno, "verbs: %s: asynchronous events: %s",
				rail->name, strerror(errno));
	err = control_run_wait(vbn_job_control(rail->job->core), start_watch,
			       &start);
	return err ? err : start.err;
}
