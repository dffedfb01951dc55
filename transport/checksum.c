/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checksums of payload: a provider around another, the outermost, so that what
 * happens below it is seen.
 *
 * A message has the sum of header and data behind its data. Puts are summed
 * as they are posted; before a notify goes a message of where the puts since
 * the last one went (MESSAGE_SUMS), and the receiver compares its memory with
 * it before it delivers the notify. Puts that no notify follows, and those
 * after which a flush or a message said that they have landed, are not
 * compared, as their memory may have changed since. For the same reason a
 * range is not put into again, which gives -EAGAIN, until the receiver has
 * compared it (MESSAGE_SUMS_SEEN); if the notify was refused it never does, so
 * it is asked to go on (an empty MESSAGE_SUMS).
 *
 * Large sends are compared by the core when they have been fetched
 * (sendrecv.c).
 */
#include "checksum_impl.h"
#include "wire.h"

#include <stdlib.h>
#include <string.h>

uint64_t checksum_of(const void *data, size_t len)
{
	uint64_t sum = XXH3_64bits(data, len);

	return sum ? sum : 1;
}

/* ---- messages ---- */

static uint64_t message_sum(const struct message_header *h, const void *data,
			    size_t len)
{
	uint8_t bytes[HEADER_BYTES], *p = bytes;

	p = put_u32(p, h->kind);
	p = put_u32(p, h->u32);
	for (int i = 0; i < 3; i++)
		p = put_u64(p, h->u64[i]);
	return XXH3_64bits_withSeed(data, len,
				    XXH3_64bits(bytes, sizeof(bytes)));
}

int checksum_send(struct check_conn *conn, const struct message_header *h,
		  const void *data, size_t len)
{
	uint8_t *bytes = ctx_of(conn)->scratch;

	if (len && data != bytes)
		memcpy(bytes, data, len);
	put_u64(bytes + len, message_sum(h, bytes, len));
	return conn->wrap.ops->message(conn->wrap.conn, h, bytes,
				       len + SUM_BYTES);
}

static void wrong_message(struct check_conn *conn,
			  const struct message_header *h, size_t len)
{
	char why[160];

	snprintf(why, sizeof(why),
		 "checksum: a %s of %zu bytes from rank %d did not arrive as "
		 "it was sent",
		 h->kind == MESSAGE_EAGER ? "send" : "message", len,
		 conn->wrap.info.rank);
	core_failed(conn->wrap.tap.ep, -EBADMSG, why);
}

/* ---- saying what was compared ---- */

static void owe(struct check_conn *conn)
{
	struct check_ctx *ctx = ctx_of(conn);

	if (conn->owing)
		return;
	conn->owing = true;
	conn->next_owing = ctx->owing;
	ctx->owing = conn;
}

static void unowe(struct check_conn *conn)
{
	struct check_conn **link = &ctx_of(conn)->owing;

	while (*link && *link != conn)
		link = &(*link)->next_owing;
	if (*link)
		*link = conn->next_owing;
	conn->owing = false;
}

static void pay(struct check_ctx *ctx)
{
	struct check_conn **link = &ctx->owing, *conn;

	while ((conn = *link)) {
		struct message_header h = {.kind = MESSAGE_SUMS_SEEN,
					   .u64 = {conn->seen}};

		if (checksum_send(conn, &h, NULL, 0)) {
			link = &conn->next_owing;
			continue;
		}
		*link = conn->next_owing;
		conn->owing = false;
	}
}

/* They have compared all up to @id. */
static void on_seen(struct check_conn *conn, uint64_t id)
{
	unsigned n = 0;

	for (unsigned i = 0; i < conn->nsent; i++)
		if (conn->sent[i].id > id)
			conn->sent[n++] = conn->sent[i];
	conn->nsent = n;
	conn->nudged = false;
	ctx_of(conn)->room = true;
}

/* ---- arrivals ---- */

static void on_sums(struct check_conn *conn, const struct message_header *h,
		    const uint8_t *data, size_t len)
{
	struct announced *a = &conn->theirs;

	if (h->u64[0] <= conn->seen || len % RANGE_BYTES ||
	    len / RANGE_BYTES > RANGES)
		return; /* nothing of ours */
	if (a->any)
		owe(conn); /* the notify of the one before never came */
	conn->seen = h->u64[0] - 1;
	*a = (struct announced){.any = true,
				.id = h->u64[0],
				.imm = h->u32,
				.n = (unsigned)(len / RANGE_BYTES)};
	for (unsigned i = 0; i < a->n; i++, data += RANGE_BYTES)
		a->range[i] = (struct range){get_u64(data), get_u64(data + 8),
					     get_u64(data + 16), a->id};
	if (h->u64[1]) { /* a nudge: no notify belongs to it */
		a->any = false;
		conn->seen = a->id;
		owe(conn);
	}
}

static void on_message(struct tap *tap, const struct message_header *header,
		       const void *data, size_t len)
{
	struct check_conn *conn = (struct check_conn *)tap;
	/* a copy: the provider's may be gone when a handler closes it */
	const struct message_header h = *header;

	if (len < SUM_BYTES ||
	    get_u64((const uint8_t *)data + len - SUM_BYTES) !=
		    message_sum(&h, data, len - SUM_BYTES)) {
		wrong_message(conn, &h, len < SUM_BYTES ? 0 : len - SUM_BYTES);
		return;
	}
	len -= SUM_BYTES;
	if (h.kind == MESSAGE_SUMS)
		on_sums(conn, &h, data, len);
	else if (h.kind == MESSAGE_SUMS_SEEN)
		on_seen(conn, h.u64[0]);
	else
		tap_message(tap, header, data, len);
}

/* false: it differs, and *mem is where. */
static bool is_right(struct check_conn *conn, const struct range *r,
		     const struct vbn_mem **mem)
{
	struct check_ctx *ctx = ctx_of(conn);
	const void *at = (const void *)(uintptr_t)r->addr;

	*mem = memmap_find(ctx->wrap.ctx->reader, at, r->len);
	if (!*mem) {
		ctx->skipped++; /* deregistered meanwhile */
		return true;
	}
	ctx->compared++;
	return XXH3_64bits(at, r->len) == r->sum;
}

static void wrong_put(struct check_conn *conn, const struct range *r,
		      const struct vbn_mem *mem)
{
	char why[240];

	snprintf(why, sizeof(why),
		 "checksum: %llu bytes that rank %d has put at offset %llu of "
		 "region %u are not what it sent (or something else has "
		 "written there before the notify was delivered)",
		 (unsigned long long)r->len, conn->wrap.info.rank,
		 (unsigned long long)(r->addr - (uintptr_t)mem->addr),
		 mem->region);
	core_failed(conn->wrap.tap.ep, -EBADMSG, why);
}

static void on_notify(struct tap *tap, uint32_t imm)
{
	struct check_conn *conn = (struct check_conn *)tap;
	struct announced *a = &conn->theirs;
	const struct vbn_mem *mem;

	if (a->any && a->imm == imm) {
		for (unsigned i = 0; i < a->n; i++)
			if (!is_right(conn, &a->range[i], &mem)) {
				wrong_put(conn, &a->range[i], mem);
				return;
			}
		a->any = false;
		conn->seen = a->id;
		if (a->n)
			owe(conn);
	}
	tap_notify(tap, imm);
}

/* ---- the rest of the table ---- */

static int progress(void *p)
{
	struct check_ctx *ctx = p;
	int events = ctx->wrap.pjob->ops->progress(ctx->wrap.pctx);

	if (ctx->owing)
		pay(ctx);
	events += ctx->room; /* what was refused may be posted again */
	ctx->room = false;
	return events;
}

static int arm(void *p)
{
	struct check_ctx *ctx = p;
	const struct wrap_job *w = ctx->wrap.pjob;

	if (ctx->owing)
		return -EAGAIN;
	return w->ops->arm ? w->ops->arm(ctx->wrap.pctx) : 0;
}

static void dump(void *p, FILE *out)
{
	const struct check_ctx *ctx = p;
	const struct wrap_job *w = ctx->wrap.pjob;
	int rank = vbn_job_rank(w->job), index = vbn_ctx_index(ctx->wrap.ctx);

	if (w->ops->dump)
		w->ops->dump(ctx->wrap.pctx, out);
	if (ctx->compared)
		fprintf(out,
			"verbena: rank %d ctx %d checksums_compared %llu\n",
			rank, index, (unsigned long long)ctx->compared);
	if (ctx->skipped)
		fprintf(out, "verbena: rank %d ctx %d checksums_skipped %llu\n",
			rank, index, (unsigned long long)ctx->skipped);
}

static int ctx_open(void *pjob, struct vbn_ctx *core, void **out,
		    struct blob *address)
{
	const struct wrap_job *w = pjob;
	struct check_ctx *ctx;
	void *p;
	int err = wrap_ctx_open(pjob, core, &p, address);

	if (err)
		return err;
	ctx = p;
	ctx->scratch = malloc(w->caps.max_message);
	if (!ctx->scratch) {
		wrap_ctx_close(p);
		return vbn_fail(-ENOMEM, "no memory for checksums");
	}
	*out = p;
	return 0;
}

static void ctx_close(void *p)
{
	struct check_ctx *ctx = p;

	free(ctx->scratch);
	wrap_ctx_close(p);
}

static int conn_attach(void *c, struct vbn_ep *ep)
{
	struct check_conn *conn = c;

	conn->state = XXH3_createState();
	conn->next = XXH3_createState();
	if (!conn->state || !conn->next)
		return vbn_fail(-ENOMEM, "no memory for checksums");
	return wrap_conn_attach(c, ep);
}

static void conn_close(void *c, int status)
{
	struct check_conn *conn = c;

	if (conn->owing)
		unowe(conn);
	wrap_conn_end(c, status);
	XXH3_freeState(conn->state);
	XXH3_freeState(conn->next);
	free(conn);
}

/*
 * Each notify has a message before it, and there is one back for it: a third
 * of what arrives inside is the core's. One more is a nudge.
 */
static unsigned share_of(unsigned credits)
{
	return (credits - 2) / 3;
}

static int window(void *c, unsigned arrivals)
{
	struct check_conn *conn = c;

	return conn->wrap.ops->window(conn->wrap.conn, 3 * arrivals + 2);
}

int checksum_wrap(struct job_provider *p, struct vbn_job *job)
{
	struct wrap_job *w = wrap_new(p, job, sizeof(*w));

	if (!w)
		return -ENOMEM;
	p->caps.credits = share_of(p->caps.credits);
	p->caps.credits_max = share_of(p->caps.credits_max);
	p->caps.max_message -= SUM_BYTES;
	w->ctx_bytes = sizeof(struct check_ctx);
	w->conn_bytes = sizeof(struct check_conn);
	w->notify = on_notify;
	w->message = on_message;
	w->table.ctx_open = ctx_open;
	w->table.ctx_close = ctx_close;
	w->table.progress = progress;
	w->table.arm = arm;
	w->table.dump = dump;
	w->table.conn_attach = conn_attach;
	w->table.conn_close = conn_close;
	w->table.put = checksum_put;
	w->table.flush = checksum_flush;
	w->table.message = checksum_message;
	if (p->ops->atomic)
		w->table.atomic = checksum_atomic;
	if (p->ops->window)
		w->table.window = window;
	wrap_install(p, w);
	return 0;
}
