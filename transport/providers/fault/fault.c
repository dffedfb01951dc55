/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fault provider: around any other, it does what networks, devices and
 * peers do rarely, by chance that a seed decides (VBN_FAULT; docs/faults.md).
 * Each fault is one that the contract allows, so whoever keeps to it must get
 * by. What happens to an operation is a function of the seed, the rank, the
 * context, the peer and how many operations came before, not of time.
 *
 * Data is moved when it is posted; only what is told of it is held back, at
 * the receiver (arrivals) and at the sender (completions): so nothing waits
 * for the progress of one who has no reason to make any.
 */
#include "fault.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

struct fault_job {
	struct wrap_job wrap; /* first */
	struct fault_plan plan;
};

/* ---- contexts ---- */

static void close_fds(struct fault_ctx *ctx)
{
	if (ctx->timer_fd >= 0)
		close(ctx->timer_fd);
	if (ctx->epoll_fd >= 0)
		close(ctx->epoll_fd);
}

static int watch(struct fault_ctx *ctx, int fd)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (epoll_ctl(ctx->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return vbn_fail(-errno, "epoll_ctl: %s", strerror(errno));
	return 0;
}

static int open_fds(struct fault_ctx *ctx)
{
	const struct wrap_job *w = ctx->wrap.pjob;
	int inner = w->ops->fd ? w->ops->fd(ctx->wrap.pctx) : -1;
	int err;

	ctx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	ctx->timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (ctx->epoll_fd < 0 || ctx->timer_fd < 0)
		return vbn_fail(-errno, "timerfd: %s", strerror(errno));
	err = watch(ctx, ctx->timer_fd);
	return err || inner < 0 ? err : watch(ctx, inner);
}

static void ctx_close(void *p)
{
	struct fault_ctx *ctx = p;

	close_fds(ctx);
	free(ctx->conns);
	wrap_ctx_close(p);
}

static int ctx_open(void *pjob, struct vbn_ctx *core, void **out,
		    struct blob *address)
{
	const struct fault_job *job = pjob;
	struct fault_ctx *ctx;
	void *p;
	int err = wrap_ctx_open(pjob, core, &p, address);

	if (err)
		return err;
	ctx = p;
	ctx->plan = &job->plan;
	ctx->held_tail = &ctx->held;
	ctx->epoll_fd = ctx->timer_fd = -1;
	err = open_fds(ctx);
	if (err)
		ctx_close(ctx);
	else
		*out = ctx;
	return err;
}

static int get_fd(void *p)
{
	const struct fault_ctx *ctx = p;

	return ctx->epoll_fd;
}

/* Setting it anew also makes it unreadable. */
static void set_timer(struct fault_ctx *ctx, uint64_t due_us)
{
	struct itimerspec at = {0};

	if (due_us == UINT64_MAX && !ctx->timed)
		return;
	ctx->timed = due_us != UINT64_MAX;
	if (ctx->timed) {
		at.it_value.tv_sec = (time_t)(due_us / 1000000);
		at.it_value.tv_nsec = (long)(due_us % 1000000 * 1000);
	}
	timerfd_settime(ctx->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static int arm(void *p)
{
	struct fault_ctx *ctx = p;
	const struct wrap_job *w = ctx->wrap.pjob;
	uint64_t due = fault_next_due(ctx);

	if (ctx->refused || ctx->doomed || due <= fault_now_us())
		return -EAGAIN;
	set_timer(ctx, due);
	return w->ops->arm ? w->ops->arm(ctx->wrap.pctx) : 0;
}

static void go_slow(struct fault_ctx *ctx)
{
	struct timespec t = {.tv_sec = ctx->plan->slow_us / 1000000,
			     .tv_nsec = ctx->plan->slow_us % 1000000 * 1000};

	ctx->counts.slowed++;
	nanosleep(&t, NULL);
}

/* Each is closed by the core at once. */
static int break_doomed(struct fault_ctx *ctx)
{
	int events = 0;

	if (!ctx->doomed)
		return 0;
	ctx->doomed = false;
	for (int i = 0; i < ctx->nconns; i++) {
		struct fault_conn *conn = ctx->conns[i];

		if (!conn || !conn->doom)
			continue;
		core_failed(conn->wrap.tap.ep, conn->doom_status, conn->doom);
		events++;
	}
	return events;
}

static void compact(struct fault_ctx *ctx)
{
	int n = 0;

	for (int i = 0; i < ctx->nconns; i++)
		if (ctx->conns[i])
			ctx->conns[n++] = ctx->conns[i];
	ctx->nconns = n;
}

static bool holds_arrivals(const struct fault_ctx *ctx)
{
	for (int i = 0; i < ctx->nconns; i++)
		if (ctx->conns[i] && ctx->conns[i]->held)
			return true;
	return false;
}

static int progress(void *p)
{
	struct fault_ctx *ctx = p;
	int events;

	if (ctx->plan->slow_us)
		go_slow(ctx);
	compact(ctx);
	events = ctx->refused; /* what was refused may be posted again */
	ctx->refused = false;
	events += ctx->wrap.pjob->ops->progress(ctx->wrap.pctx);
	events += fault_deliver(ctx);
	events += fault_complete(ctx);
	events += break_doomed(ctx);
	/* What the dead have sent is waited for: they are not to end before. */
	return events + (!events && holds_arrivals(ctx));
}

static void dump(void *p, FILE *out)
{
	const struct fault_ctx *ctx = p;
	const struct wrap_job *w = ctx->wrap.pjob;
	const struct fault_counts *c = &ctx->counts;
	const struct {
		const char *name;
		uint64_t n;
	} rows[] = {
		{"operations", ctx->operations}, {"delayed", c->delayed},
		{"reordered", c->reordered},	 {"late", c->late},
		{"refused", c->refused},	 {"corrupted", c->corrupted},
		{"failed", c->failed},		 {"broken", c->broken},
		{"slowed", c->slowed},
	};

	if (w->ops->dump)
		w->ops->dump(ctx->wrap.pctx, out);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (rows[i].n)
			fprintf(out, "verbena: rank %d ctx %d fault_%s %llu\n",
				vbn_job_rank(w->job),
				vbn_ctx_index(ctx->wrap.ctx), rows[i].name,
				(unsigned long long)rows[i].n);
}

/* ---- connections ---- */

static int keep(struct fault_ctx *ctx, struct fault_conn *conn)
{
	if (ctx->nconns == ctx->room) {
		int room = ctx->room ? 2 * ctx->room : 16;
		struct fault_conn **conns =
			realloc(ctx->conns, (size_t)room * sizeof(*conns));

		if (!conns)
			return vbn_fail(-ENOMEM, "no memory");
		ctx->conns = conns;
		ctx->room = room;
	}
	ctx->conns[ctx->nconns++] = conn;
	return 0;
}

static int conn_attach(void *c, struct vbn_ep *ep)
{
	struct fault_conn *conn = c;
	const struct conn_info *info = &conn->wrap.info;
	int err;

	conn->ctx = (struct fault_ctx *)conn->wrap.pctx;
	conn->held_tail = &conn->held;
	conn->refs = 1;
	conn->stream = fault_mix(conn->ctx->plan->seed,
				 (uint64_t)info->self_rank << 32 |
					 (uint64_t)info->self_index);
	conn->stream = fault_mix(conn->stream, (uint64_t)info->rank << 32 |
						       (uint64_t)info->index);
	err = keep(conn->ctx, conn);
	/* closed by the core, whatever came of it */
	return err ? err : wrap_conn_attach(c, ep);
}

static void conn_close(void *c, int status)
{
	struct fault_conn *conn = c;

	conn->closed = true;
	if (!conn->ctx) { /* never attached */
		wrap_conn_end(c, status);
		free(conn);
		return;
	}
	for (int i = 0; i < conn->ctx->nconns; i++)
		if (conn->ctx->conns[i] == conn)
			conn->ctx->conns[i] = NULL;
	wrap_conn_end(c, status);
	fault_drop_arrivals(conn);
	fault_complete_all(conn, status);
	fault_unref(conn);
}

static int window(void *c, unsigned arrivals)
{
	struct fault_conn *conn = c;
	uint64_t bits = fault_draw(conn, DRAW_WINDOW, conn->windows++);

	if (fault_chance(bits, conn->ctx->plan->again)) {
		conn->ctx->counts.refused++;
		return -EAGAIN;
	}
	return conn->wrap.ops->window(conn->wrap.conn, arrivals);
}

int fault_wrap(struct job_provider *p, struct vbn_job *job)
{
	struct wrap_job *w = wrap_new(p, job, sizeof(struct fault_job));

	if (!w)
		return -ENOMEM;
	((struct fault_job *)w)->plan = job->fault;
	w->ctx_bytes = sizeof(struct fault_ctx);
	w->conn_bytes = sizeof(struct fault_conn);
	w->notify = fault_on_notify;
	w->message = fault_on_message;
	w->table.ctx_open = ctx_open;
	w->table.ctx_close = ctx_close;
	w->table.progress = progress;
	w->table.fd = get_fd;
	w->table.arm = arm;
	w->table.dump = dump;
	w->table.conn_attach = conn_attach;
	w->table.conn_close = conn_close;
	w->table.put = fault_put;
	w->table.get = fault_get;
	w->table.flush = fault_flush;
	w->table.message = fault_message;
	w->table.quick = fault_quick;
	if (p->ops->atomic)
		w->table.atomic = fault_atomic;
	if (p->ops->window)
		w->table.window = window;
	wrap_install(p, w);
	return 0;
}
