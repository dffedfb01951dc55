/* SPDX-License-Identifier: BSD-3-Clause */
#include "wrap.h"

#include <stdlib.h>

static void job_close(void *p)
{
	struct wrap_job *w = p;

	w->ops->job_close(w->pjob);
	free(w);
}

static int pass_register(void *p, const struct vbn_mem *mem, void **handle,
			 struct blob *announce)
{
	struct wrap_job *w = p;

	return w->ops->mem_register(w->pjob, mem, handle, announce);
}

static void pass_deregister(void *p, void *handle)
{
	struct wrap_job *w = p;

	w->ops->mem_deregister(w->pjob, handle);
}

static int region_import(void *p, int rank, uint64_t base, uint64_t length,
			 const struct blob *announce, void **import)
{
	struct wrap_job *w = p;

	return w->ops->region_import(w->pjob, rank, base, length, announce,
				     import);
}

static void import_release(void *p, void *import)
{
	struct wrap_job *w = p;

	w->ops->import_release(w->pjob, import);
}

int wrap_ctx_open(void *p, struct vbn_ctx *ctx, void **out,
		  struct blob *address)
{
	struct wrap_job *w = p;
	struct wrap_ctx *c = calloc(1, w->ctx_bytes);
	int err;

	if (!c)
		return vbn_fail(-ENOMEM, "no memory for a context");
	c->pjob = w;
	c->ctx = ctx;
	err = w->ops->ctx_open(w->pjob, ctx, &c->pctx, address);
	if (err)
		free(c);
	else
		*out = c;
	return err;
}

void wrap_ctx_close(void *p)
{
	struct wrap_ctx *c = p;

	c->pjob->ops->ctx_close(c->pctx);
	free(c);
}

static int progress(void *p)
{
	struct wrap_ctx *c = p;

	return c->pjob->ops->progress(c->pctx);
}

static int fd(void *p)
{
	struct wrap_ctx *c = p;

	return c->pjob->ops->fd(c->pctx);
}

static int arm(void *p)
{
	struct wrap_ctx *c = p;

	return c->pjob->ops->arm(c->pctx);
}

static void dump(void *p, FILE *out)
{
	struct wrap_ctx *c = p;

	c->pjob->ops->dump(c->pctx, out);
}

static int reaches(void *p, const struct conn_info *info,
		   const struct blob *peer_address)
{
	struct wrap_ctx *c = p;

	return c->pjob->ops->reaches(c->pctx, info, peer_address);
}

static struct wrap_conn *conn_new(struct wrap_ctx *c,
				  const struct conn_info *info)
{
	struct wrap_conn *conn = calloc(1, c->pjob->conn_bytes);

	if (!conn) {
		vbn_fail(-ENOMEM, "no memory for a connection");
		return NULL;
	}
	conn->pctx = c;
	conn->ops = c->pjob->ops;
	conn->info = *info;
	return conn;
}

static int conn_create(void *p, const struct conn_info *info,
		       const struct blob *peer_address, void **out,
		       struct blob *offer)
{
	struct wrap_ctx *c = p;
	struct wrap_conn *conn = conn_new(c, info);
	int err;

	if (!conn)
		return -ENOMEM;
	err = conn->ops->conn_create(c->pctx, info, peer_address, &conn->conn,
				     offer);
	if (err)
		free(conn);
	else
		*out = conn;
	return err;
}

static int conn_accept(void *p, const struct conn_info *info,
		       const struct blob *peer_address,
		       const struct blob *offer, void **out,
		       struct blob *answer)
{
	struct wrap_ctx *c = p;
	struct wrap_conn *conn = conn_new(c, info);
	int err;

	if (!conn)
		return -ENOMEM;
	err = conn->ops->conn_accept(c->pctx, info, peer_address, offer,
				     &conn->conn, answer);
	if (err)
		free(conn);
	else
		*out = conn;
	return err;
}

static int conn_finish(void *p, const struct blob *answer)
{
	struct wrap_conn *conn = p;

	return conn->ops->conn_finish(conn->conn, answer);
}

int wrap_conn_attach(void *p, struct vbn_ep *ep)
{
	struct wrap_conn *conn = p;
	const struct wrap_job *w = conn->pctx->pjob;

	conn->tap.notify = w->notify;
	conn->tap.message = w->message;
	if (w->notify)
		core_tap(ep, &conn->tap);
	conn->tap.ep = ep;
	return conn->ops->conn_attach(conn->conn, ep);
}

void wrap_conn_end(void *p, int status)
{
	struct wrap_conn *conn = p;

	if (conn->tap.ep)
		core_tap(conn->tap.ep, NULL);
	conn->ops->conn_close(conn->conn, status);
}

static void conn_close(void *p, int status)
{
	wrap_conn_end(p, status);
	free(p);
}

static int window(void *p, unsigned arrivals)
{
	struct wrap_conn *conn = p;

	return conn->ops->window(conn->conn, arrivals);
}

static int key_attach(void *p, const struct blob *announce, void *import,
		      void **key)
{
	struct wrap_conn *conn = p;

	return conn->ops->key_attach(conn->conn, announce, import, key);
}

static void key_release(void *p, void *key)
{
	struct wrap_conn *conn = p;

	conn->ops->key_release(conn->conn, key);
}

static int put(void *p, struct vbn_op *op, const struct put_args *args)
{
	struct wrap_conn *conn = p;

	return conn->ops->put(conn->conn, op, args);
}

static int get(void *p, struct vbn_op *op, const struct get_args *args)
{
	struct wrap_conn *conn = p;

	return conn->ops->get(conn->conn, op, args);
}

static int atomic(void *p, struct vbn_op *op, const struct atomic_args *args)
{
	struct wrap_conn *conn = p;

	return conn->ops->atomic(conn->conn, op, args);
}

static int flush(void *p, struct vbn_op *op)
{
	struct wrap_conn *conn = p;

	return conn->ops->flush(conn->conn, op);
}

static int message(void *p, const struct message_header *header,
		   const void *data, size_t len)
{
	struct wrap_conn *conn = p;

	return conn->ops->message(conn->conn, header, data, len);
}

static int map(void *p, void *key, uint64_t remote, void **ptr)
{
	struct wrap_conn *conn = p;

	return conn->ops->map(conn->conn, key, remote, ptr);
}

/* quick is not passed on: it would go past the wrapper. */
static const struct provider passing = {
	.job_close = job_close,
	.mem_register = pass_register,
	.mem_deregister = pass_deregister,
	.region_import = region_import,
	.import_release = import_release,
	.ctx_open = wrap_ctx_open,
	.ctx_close = wrap_ctx_close,
	.progress = progress,
	.fd = fd,
	.arm = arm,
	.reaches = reaches,
	.conn_create = conn_create,
	.conn_accept = conn_accept,
	.conn_finish = conn_finish,
	.conn_attach = wrap_conn_attach,
	.conn_close = conn_close,
	.window = window,
	.key_attach = key_attach,
	.key_release = key_release,
	.put = put,
	.get = get,
	.atomic = atomic,
	.flush = flush,
	.message = message,
	.map = map,
	.dump = dump,
};

struct wrap_job *wrap_new(struct job_provider *p, struct vbn_job *job,
			  size_t job_bytes)
{
	struct wrap_job *w = calloc(1, job_bytes);

	if (!w) {
		vbn_fail(-ENOMEM, "no memory for a provider");
		return NULL;
	}
	w->ops = p->ops;
	w->pjob = p->pjob;
	w->caps = p->caps;
	w->job = job;
	w->table = passing;
	w->table.name = p->ops->name;
/* A slot that is not there has a meaning. */
#define AS_INSIDE(slot)                                                        \
	if (!p->ops->slot)                                                     \
	w->table.slot = NULL
	AS_INSIDE(region_import);
	AS_INSIDE(import_release);
	AS_INSIDE(fd);
	AS_INSIDE(arm);
	AS_INSIDE(reaches);
	AS_INSIDE(window);
	AS_INSIDE(key_attach);
	AS_INSIDE(key_release);
	AS_INSIDE(atomic);
	AS_INSIDE(map);
	AS_INSIDE(dump);
#undef AS_INSIDE
	return w;
}

void wrap_install(struct job_provider *p, struct wrap_job *w)
{
	p->ops = &w->table;
	p->pjob = w;
}
