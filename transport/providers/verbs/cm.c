/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting lanes by rdma_cm. Who is to be connected, and by what rails, the
 * two sides settle over the control plane as ever; then, instead of moving its
 * queue pairs on by what the other has said,
 *
 *	creating side			accepting side
 *					listens, ANSWER with where
 *	calls, a request a lane	   ->	looks it up, connects the lane, replies
 *	connects its own	   <-
 *	all are: READY (connect.c) ->
 *
 * The queue pairs stay ours: rdma_cm is told their numbers, finds the path, and
 * agrees on first sequence numbers. Its identifiers know their own handle of
 * the device only, and are destroyed as soon as a lane is connected: that sends
 * a DREQ, which ends the kernel's record of the connection at both ends and
 * does not touch a queue pair that is not the identifier's. So nothing of
 * rdma_cm's is left when a queue pair fails or is destroyed, and the time for
 * which its number must not call again (TIMEWAIT) runs while the lane is used.
 * A number that calls too early nevertheless is refused as stale by the kernel,
 * and calls again until the deadline.
 *
 * All of it runs on the control thread, from the event channel's descriptor and
 * from a timer, and nothing waits: an identifier's events are acknowledged
 * before it can be destroyed.
 */
#include "cm_impl.h"
#include "control.h"
#include "error.h"
#include "failover.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define EVENTS_MAX 64 /* at once */

/* ---- events ---- */

static void on_news(struct cm *cm, struct cm_link *link,
		    const struct cm_news *news)
{
	if (news->event == RDMA_CM_EVENT_CONNECT_REQUEST)
		cm_on_request(cm, news);
	else if (link->attempt)
		cm_on_caller(link, news);
	else if (cm_next(link->state, news->event, news->status) == CM_END)
		cm_link_end(link);
}

/* False: there is none more. */
static bool take_event(struct cm *cm)
{
	struct rdma_cm_event *event;
	struct cm_link *link;
	struct cm_news news;

	if (rdma_get_cm_event(cm->channel, &event))
		return false;
	link = event->id->context;
	news = (struct cm_news){
		.event = event->event,
		.status = event->status,
		.id = event->id,
		.qpn = event->param.conn.qp_num,
	};
	if (event->param.conn.private_data &&
	    event->param.conn.private_data_len >= sizeof(news.data)) {
		news.len = sizeof(news.data);
		memcpy(news.data, event->param.conn.private_data, news.len);
	}
	rdma_ack_cm_event(event);
	on_news(cm, link, &news);
	return true;
}

static void on_channel(void *arg, int fd)
{
	(void)fd;
	for (int i = 0; i < EVENTS_MAX && take_event(arg); i++)
		;
}

static int late(const struct cm_try *attempt)
{
	unsigned lane = 0;

	for (const struct cm_link *l = attempt->cm->links; l; l = l->next)
		if (l->attempt == attempt && l->state == CM_REFUSED)
			return cm_failed(attempt, l->lane, -ECONNREFUSED,
					 "the peer refuses",
					 "see what it says");
	while (attempt->done >> lane & 1)
		lane++;
	return cm_failed(attempt, lane, -ETIMEDOUT, "no answer in time",
			 "do both hosts' addresses reach each other?");
}

/* One that is over changes the list. */
static bool end_late(struct cm *cm)
{
	uint64_t now = verbs_now_ms();

	for (struct cm_try *t = cm->tries; t; t = t->next)
		if (t->deadline_ms && now >= t->deadline_ms) {
			cm_try_over(t, late(t));
			return true;
		}
	return false;
}

static bool call_again(struct cm *cm)
{
	for (struct cm_link *l = cm->links; l; l = l->next)
		if (l->state == CM_AGAIN) {
			struct cm_try *attempt = l->attempt;
			int err = cm_find_address(l);

			if (err)
				cm_try_over(attempt, err);
			return true;
		}
	return false;
}

static void on_timer(void *arg, int fd)
{
	struct cm *cm = arg;
	uint64_t count;

	if (read(fd, &count, sizeof(count)) < 0)
		return;
	while (end_late(cm) || call_again(cm))
		;
}

/* ---- connections ---- */

/* Our end of each pair. */
static int fill_places(struct cm_try *attempt)
{
	const struct verbs_conn *conn = attempt->conn;
	struct sockaddr_storage address;

	for (unsigned i = 0; i < conn->npairs; i++) {
		const struct path *path = &conn->pair[i].path;

		memcpy(attempt->place[i].ip, path->local.raw, GID_BYTES);
		if (path->infiniband ||
		    !cm_sockaddr(path->local.raw, 0, &address))
			return cm_failed(
				attempt, i, -EADDRNOTAVAIL,
				"this port has no IP address for "
				"VBN_CONNECT=rdmacm",
				"give its network interface one, or set "
				"VBN_CONNECT=control on all ranks");
	}
	return 0;
}

int cm_prepare(struct verbs_conn *conn, const struct conn_info *info,
	       const struct conn_offer *peer)
{
	struct cm *cm = conn->ctx->job->cm;
	struct cm_try *attempt = calloc(1, sizeof(*attempt));
	int err;

	if (!attempt)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	attempt->cm = cm;
	attempt->conn = conn;
	attempt->info = *info;
	attempt->calls = !peer;
	randombytes_buf(attempt->key, sizeof(attempt->key));
	attempt->next = cm->tries;
	cm->tries = attempt;
	conn->cm = attempt;
	if (peer) {
		attempt->peer = *peer;
		cm_deadline(attempt, 2 * cm->call_ms); /* after the caller's */
	}
	cm_tick(cm, true);
	err = fill_places(attempt);
	for (unsigned i = 0; peer && i < conn->npairs && !err; i++)
		err = cm_listen(attempt, i);
	conn_offer_fill(conn, &attempt->self);
	return err;
}

void cm_fill(const struct cm_try *attempt, struct conn_offer *offer)
{
	offer->rdmacm = true;
	memcpy(offer->cm_key, attempt->key, CM_KEY_BYTES);
	memcpy(offer->cm_place, attempt->place, sizeof(attempt->place));
}

void cm_cancel(struct verbs_conn *conn)
{
	if (conn->cm)
		cm_try_end(conn->cm);
}

/* ---- opening ---- */

static int no_channel(void)
{
	int err = errno ? errno : ENODEV;

	return vbn_fail(
		-err,
		"verbs: VBN_CONNECT=rdmacm: rdma_cm cannot be used: %s; "
		"load the kernel's module (modprobe rdma_ucm) and open "
		"/dev/infiniband/rdma_cm to this user or container, or "
		"set VBN_CONNECT=control on all ranks",
		strerror(err));
}

struct watch {
	struct cm *cm;
	int err;
};

static void start_watch(void *arg)
{
	struct watch *w = arg;
	struct control *control = vbn_job_control(w->cm->job->core);

	w->err = control_watch(control, w->cm->channel->fd, on_channel, w->cm);
	if (w->err)
		return;
	w->err = control_watch(control, w->cm->timer, on_timer, w->cm);
	if (w->err)
		control_unwatch(control, w->cm->channel->fd);
}

static int prepare(struct cm *cm)
{
	int flags = fcntl(cm->channel->fd, F_GETFL);

	if (flags < 0 || fcntl(cm->channel->fd, F_SETFL, flags | O_NONBLOCK) ||
	    fcntl(cm->channel->fd, F_SETFD, FD_CLOEXEC))
		return vbn_fail(-errno, "verbs: rdma_cm's events: %s",
				strerror(errno));
	cm->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (cm->timer < 0)
		return vbn_fail(-errno, "verbs: a timer: %s", strerror(errno));
	return 0;
}

int cm_open(struct verbs_job *job)
{
	struct cm *cm = calloc(1, sizeof(*cm));
	int err;

	if (!cm)
		return vbn_fail(-ENOMEM, "verbs: out of memory");
	cm->job = job;
	cm->timer = -1;
	cm->call_ms = CALL_MS;
	errno = 0;
	cm->channel = rdma_create_event_channel();
	err = cm->channel ? prepare(cm) : no_channel();
	if (err) /* another provider may take its place, unasked */
		vbn_log(VBN_WARN, "%s", vbn_error());
	if (err)
		cm_close(cm);
	else
		job->cm = cm;
	return err;
}

int cm_start(struct cm *cm)
{
	struct watch w = {.cm = cm};
	int err = control_run_wait(vbn_job_control(cm->job->core), start_watch,
				   &w);

	return err ? err : w.err;
}

void cm_close(struct cm *cm)
{
	if (!cm)
		return;
	while (cm->tries)
		cm_try_end(cm->tries);
	while (cm->links)
		cm_link_end(cm->links);
	if (cm->channel)
		rdma_destroy_event_channel(cm->channel);
	if (cm->timer >= 0)
		close(cm->timer);
	free(cm);
}
