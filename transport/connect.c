/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting, on the control thread. Of two contexts the one with the lower
 * (rank, index) creates the connection, so that crossing opens cannot make
 * two; the other asks it to.
 *
 *   higher: ASK ->       lower: looks up the higher's address, creates
 *   higher: accepts      <- OFFER (generation, provider, address, blob)
 *   higher: ANSWER ->    lower: finishes, delivers
 *   higher: delivers     <- READY
 *
 * Finishing may take its time (FINISHING), and either side may fail in it.
 *
 * Every message names the generation; what is of another is dropped. A
 * context publishes "c/<rank>/<index>": host, and per provider its address.
 */
#include "core.h"
#include "wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum connect_type { ASK = 1, OFFER, ANSWER, READY, REFUSE, CLOSE };

#define WHY_MAX	  480
#define HEADER	  17   /* to, from: u32 each; generation u64; provider u8 */
#define CHECKSUMS 0x80 /* with the provider: the sender's has them */

/*
 * One pair of contexts. Control thread only. It stays when its connection is
 * made (IDLE), so that an ASK that crossed the OFFER is known for old: an ASK
 * names the last generation that its sender saw.
 */
struct connect {
	struct connect *next;
	struct vbn_job *job;
	int index;	/* our context's */
	int rank, peer; /* the peer's rank and context index */
	uint64_t generation;
	enum { IDLE, LOOKUP, ASKED, OFFERED, ANSWERED, FINISHING } state;
	enum provider_id provider;
	void *conn;
	bool looking; /* a look-up is out */
	bool dead;    /* unlinked, waits for the look-up to return */
};

/* What came in a message. */
struct incoming {
	int from_rank, from, to;
	uint64_t generation;
	unsigned provider;
	bool checksums;
	const uint8_t *data;
	size_t len;
};

static struct vbn_ctx *find_ctx(struct vbn_job *job, int index)
{
	struct vbn_ctx *ctx;

	pthread_mutex_lock(&job->lock);
	ctx = index >= 0 && index < CTX_MAX ? job->ctxs[index] : NULL;
	pthread_mutex_unlock(&job->lock);
	return ctx; /* stays: withdrawing waits for the control thread */
}

static struct connect *find(struct vbn_job *job, int index, int rank, int peer)
{
	struct connect *c;

	for (c = job->connects; c; c = c->next)
		if (c->index == index && c->rank == rank && c->peer == peer)
			return c;
	return NULL;
}

static struct connect *add(struct vbn_job *job, int index, int rank, int peer)
{
	struct connect *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->job = job;
	c->index = index;
	c->rank = rank;
	c->peer = peer;
	c->next = job->connects;
	job->connects = c;
	return c;
}

static void unlink_connect(struct connect *c)
{
	struct connect **link = &c->job->connects;

	while (*link != c)
		link = &(*link)->next;
	*link = c->next;
}

/* Ends an attempt. */
static void reset(struct connect *c, int status)
{
	if (c->conn)
		c->job->providers[c->provider].ops->conn_close(c->conn, status);
	c->conn = NULL;
	c->state = IDLE;
}

/* Ends @c. While its look-up is out, the record lives until that returns. */
static void drop(struct connect *c, int status)
{
	reset(c, status);
	unlink_connect(c);
	if (c->looking)
		c->dead = true;
	else
		free(c);
}

static void send_to(struct connect *c, enum connect_type type,
		    const struct blob *a, const struct blob *b)
{
	uint8_t bytes[CONTROL_MESSAGE_MAX];
	uint8_t *p = bytes;

	p = put_u32(p, (uint32_t)c->peer);
	p = put_u32(p, (uint32_t)c->index);
	p = put_u64(p, c->generation);
	*p++ = (uint8_t)c->provider | (c->job->checksum ? CHECKSUMS : 0);
	if (a) {
		p = put_u16(p, (uint16_t)a->len);
		memcpy(p, a->data, a->len);
		p += a->len;
	}
	if (b) {
		memcpy(p, b->data, b->len);
		p += b->len;
	}
	control_send(c->job->control, c->rank, type, bytes,
		     (size_t)(p - bytes));
}

static void refuse(struct vbn_job *job, const struct incoming *in,
		   const char *why)
{
	struct connect c = {.job = job,
			    .index = in->to,
			    .rank = in->from_rank,
			    .peer = in->from,
			    .generation = in->generation};
	struct blob text;

	text.len = strnlen(why, WHY_MAX);
	memcpy(text.data, why, text.len);
	send_to(&c, REFUSE, NULL, &text);
}

static void post(struct connect *c, int kind, int status, const char *why)
{
	struct vbn_ctx *ctx = find_ctx(c->job, c->index);
	struct ep_event *event = calloc(1, sizeof(*event));

	if (!ctx || !event) {
		free(event);
		return;
	}
	event->kind = kind;
	event->rank = c->rank;
	event->index = c->peer;
	event->generation = c->generation;
	event->provider = c->provider;
	event->status = status;
	event->conn = c->conn;
	snprintf(event->why, sizeof(event->why), "%s", why ? why : "");
	c->conn = NULL; /* the context's from here on */
	ctx_post_event(ctx, event);
}

static void fail(struct connect *c, int status, const char *why)
{
	reset(c, status);
	post(c, EVENT_FAILED, status, why);
}

static void fail_and_tell(struct connect *c, int status, const char *why)
{
	struct incoming in = {.from_rank = c->rank,
			      .from = c->peer,
			      .to = c->index,
			      .generation = c->generation};

	refuse(c->job, &in, why);
	fail(c, status, why);
}

static struct conn_info info_of(const struct connect *c)
{
	return (struct conn_info){.rank = c->rank,
				  .index = c->peer,
				  .self_rank = c->job->rank,
				  .self_index = c->index,
				  .generation = c->generation,
				  .self = c->rank == c->job->rank &&
					  c->peer == c->index};
}

/* [control] No connect may refer to the context any more. */
static void withdraw(void *arg)
{
	struct vbn_ctx *ctx = arg;
	struct vbn_job *job = ctx->job;
	struct connect *c, *next;

	pthread_mutex_lock(&job->lock);
	job->ctxs[ctx->index] = NULL;
	pthread_mutex_unlock(&job->lock);
	for (c = job->connects; c; c = next) {
		next = c->next;
		if (c->index == ctx->index)
			drop(c, -ECANCELED);
	}
}

void connect_withdraw(struct vbn_ctx *ctx)
{
	char key[64];

	address_key(key, sizeof(key), ctx->job->rank, ctx->index);
	/* first: nothing publishes it again after that */
	control_run_wait(ctx->job->control, withdraw, ctx);
	control_erase(ctx->job->control, key, ctx->job->timeout_ms);
}

/* ---- the creating side ---- */

static void create(struct connect *c, const uint8_t *value, size_t len)
{
	struct vbn_ctx *ctx = find_ctx(c->job, c->index);
	struct conn_info info;
	struct blob address, offer;
	char why[1024];
	int err;

	c->state = IDLE;
	if (!ctx)
		return;
	info = info_of(c);
	err = address_choose(ctx, &info, value, len, &c->provider, &address,
			     why, sizeof(why));
	if (err) {
		fail_and_tell(c, err, why);
		return;
	}
	c->generation = connect_generation();
	info = info_of(c);
	offer.len = 0;
	err = c->job->providers[c->provider].ops->conn_create(
		ctx->pctx[c->provider], &info, &address, &c->conn, &offer);
	if (!err && info.self)
		err = c->job->providers[c->provider].ops->conn_finish(c->conn,
								      &offer);
	if (err) {
		fail_and_tell(c, err, vbn_error());
		return;
	}
	if (info.self) {
		post(c, EVENT_CONNECTED, 0, NULL);
		return;
	}
	c->state = OFFERED;
	send_to(c, OFFER, &ctx->addresses[c->provider], &offer);
}

static void looked_up(void *arg, int err, const void *value, size_t len)
{
	struct connect *c = arg;

	if (c->dead) {
		free(c);
		return;
	}
	c->looking = false;
	if (c->state != LOOKUP)
		return; /* an offer came meanwhile */
	if (err)
		fail(c, err, "the job's store is gone");
	else if (c->rank < c->job->rank ||
		 (c->rank == c->job->rank && c->peer < c->index)) {
		c->state = ASKED;
		send_to(c, ASK, NULL, NULL);
	} else {
		create(c, value, len);
	}
}

static void look_up(struct connect *c)
{
	char key[64];

	c->state = LOOKUP;
	if (c->looking)
		return;
	c->looking = true;
	address_key(key, sizeof(key), c->rank, c->peer);
	control_lookup(c->job->control, key, true, looked_up, c);
}

struct start {
	struct vbn_job *job;
	int index, rank, peer;
	uint64_t seen;
};

/* [control] */
static void start(void *arg)
{
	struct start s = *(struct start *)arg;
	struct connect *c = find(s.job, s.index, s.rank, s.peer);

	free(arg);
	if (!find_ctx(s.job, s.index))
		return;
	if (!c)
		c = add(s.job, s.index, s.rank, s.peer);
	if (!c)
		return; /* no memory: the endpoint runs into its deadline */
	if (control_rank_gone(s.job->control, s.rank))
		fail(c, -ECONNRESET, "the rank is gone");
	else if (c->state == IDLE && c->generation <= s.seen)
		look_up(c);
	/* Else it is being made, or was: its event is in the inbox. */
}

void connect_start(struct vbn_ctx *ctx, int rank, int index, uint64_t seen)
{
	struct start *s = malloc(sizeof(*s));

	if (!s)
		return;
	*s = (struct start){ctx->job, ctx->index, rank, index, seen};
	if (control_run(ctx->job->control, start, s))
		free(s);
}

void connect_closed(struct vbn_ctx *ctx, int rank, int index,
		    uint64_t generation)
{
	struct connect c = {.job = ctx->job,
			    .index = ctx->index,
			    .rank = rank,
			    .peer = index,
			    .generation = generation};

	if (rank != ctx->job->rank || index != ctx->index)
		send_to(&c, CLOSE, NULL, NULL);
}

/* ---- messages ---- */

static void on_ask(struct vbn_job *job, const struct incoming *in)
{
	struct connect *c = find(job, in->to, in->from_rank, in->from);

	if (!c)
		c = add(job, in->to, in->from_rank, in->from);
	if (!c)
		return refuse(job, in, "the peer is out of memory");
	if (c->state != IDLE)
		return; /* being made */
	if (c->generation > in->generation)
		return; /* the ASK crossed that generation's OFFER */
	look_up(c);
}

static bool split_offer(const struct incoming *in, struct blob *address,
			struct blob *offer)
{
	size_t n;

	if (in->len < 2 || in->provider >= PROVIDERS)
		return false;
	n = get_u16(in->data);
	if (n > BLOB_MAX || n > in->len - 2 || in->len - 2 - n > BLOB_MAX)
		return false;
	address->len = n;
	memcpy(address->data, in->data + 2, n);
	offer->len = in->len - 2 - n;
	memcpy(offer->data, in->data + 2 + n, offer->len);
	return true;
}

/* An attempt of our own that waits for just this offer ends with it. */
static void refuse_offer(struct vbn_job *job, const struct incoming *in,
			 struct connect *c, const char *why)
{
	refuse(job, in, why);
	if (c && c->state == ASKED)
		fail(c, -ECONNREFUSED, why);
}

static void on_offer(struct vbn_job *job, const struct incoming *in)
{
	struct vbn_ctx *ctx = find_ctx(job, in->to);
	struct connect *c = find(job, in->to, in->from_rank, in->from);
	struct blob address, offer, answer = {.len = 0};
	struct conn_info info;
	int err;

	if (!ctx)
		return refuse(job, in, "the peer's context is closed");
	if (!split_offer(in, &address, &offer))
		return refuse_offer(job, in, c, "the offer is malformed");
	if (in->checksums != job->checksum)
		return refuse_offer(
			job, in, c,
			"VBN_CHECKSUM is 1 on one side only: set it "
			"to the same on all ranks");
	if (!ctx->pctx[in->provider])
		return refuse_offer(job, in, c,
				    ctx_why_without(ctx, (int)in->provider));
	if (!c)
		c = add(job, in->to, in->from_rank, in->from);
	if (!c)
		return refuse(job, in, "the peer is out of memory");
	if (in->generation <= c->generation)
		return; /* late, of an older attempt */
	reset(c, -ECONNRESET);
	c->generation = in->generation;
	c->provider = (enum provider_id)in->provider;
	info = info_of(c);
	err = job->providers[c->provider].ops->conn_accept(
		ctx->pctx[c->provider], &info, &address, &offer, &c->conn,
		&answer);
	if (err) {
		fail_and_tell(c, err, vbn_error());
		return;
	}
	c->state = ANSWERED;
	send_to(c, ANSWER, NULL, &answer);
}

static void made(struct connect *c)
{
	send_to(c, READY, NULL, NULL);
	c->state = IDLE;
	post(c, EVENT_CONNECTED, 0, NULL);
}

void core_connected(struct vbn_ctx *ctx, const struct conn_info *info,
		    int status)
{
	struct connect *c = find(ctx->job, ctx->index, info->rank, info->index);

	if (!c || c->generation != info->generation ||
	    (c->state != FINISHING && c->state != ANSWERED))
		return;
	if (status)
		fail_and_tell(c, status, vbn_error());
	else if (c->state == FINISHING)
		made(c);
}

static void on_answer(struct connect *c, const struct incoming *in)
{
	struct blob answer;
	int err;

	if (c->state != OFFERED)
		return;
	if (in->len > BLOB_MAX)
		return fail_and_tell(c, -EPROTO, "the answer is malformed");
	answer.len = in->len;
	memcpy(answer.data, in->data, in->len);
	err = c->job->providers[c->provider].ops->conn_finish(c->conn, &answer);
	if (err == -EINPROGRESS)
		c->state = FINISHING;
	else if (err)
		fail_and_tell(c, err, vbn_error());
	else
		made(c);
}

static void on_refuse(struct connect *c, const struct incoming *in)
{
	char why[WHY_MAX + 32];
	int n = in->len < WHY_MAX ? (int)in->len : WHY_MAX;

	if (c->state == IDLE || c->state == LOOKUP)
		return;
	snprintf(why, sizeof(why), "rank %d refused: %.*s", in->from_rank, n,
		 (const char *)in->data);
	fail(c, -ECONNREFUSED, why);
}

static void on_close(struct connect *c)
{
	struct ep_event *event = calloc(1, sizeof(*event));
	struct vbn_ctx *ctx = find_ctx(c->job, c->index);

	if (!event || !ctx) {
		free(event);
		return;
	}
	event->kind = EVENT_CLOSED;
	event->rank = c->rank;
	event->index = c->peer;
	event->generation = c->generation;
	ctx_post_event(ctx, event);
}

/* Our context has closed while the connection was made. */
static void too_late(struct vbn_job *job, const struct incoming *in,
		     unsigned type)
{
	struct connect c = {.job = job,
			    .index = in->to,
			    .rank = in->from_rank,
			    .peer = in->from,
			    .generation = in->generation};

	if (type == ANSWER)
		refuse(job, in, "the peer's context is closed");
	else if (type == READY)
		send_to(&c, CLOSE, NULL, NULL);
}

void connect_message(void *arg, int from, unsigned type, const void *data,
		     size_t len)
{
	struct vbn_job *job = arg;
	const uint8_t *p = data;
	struct incoming in;
	struct connect *c;

	if (len < HEADER)
		return;
	in = (struct incoming){.from_rank = from,
			       .to = (int)get_u32(p),
			       .from = (int)get_u32(p + 4),
			       .generation = get_u64(p + 8),
			       .provider = p[16] & ~CHECKSUMS,
			       .checksums = p[16] & CHECKSUMS,
			       .data = p + HEADER,
			       .len = len - HEADER};
	if (in.to < 0 || in.to >= CTX_MAX || in.from < 0 || in.from >= CTX_MAX)
		return;
	if (type == ASK || type == OFFER) {
		if (type == ASK && !find_ctx(job, in.to))
			return refuse(job, &in, "the peer's context is closed");
		return type == ASK ? on_ask(job, &in) : on_offer(job, &in);
	}
	if (!find_ctx(job, in.to))
		return too_late(job, &in, type);
	c = find(job, in.to, from, in.from);
	if (!c || (c->generation != in.generation &&
		   (type != REFUSE || c->state >= OFFERED)))
		return; /* of another connection */
	if (type == ANSWER) {
		on_answer(c, &in);
	} else if (type == READY && c->state == ANSWERED) {
		c->state = IDLE;
		post(c, EVENT_CONNECTED, 0, NULL);
	} else if (type == REFUSE) {
		on_refuse(c, &in);
	} else if (type == CLOSE) {
		/* A look-up or ASK that is out is for the next generation. */
		if (c->state >= OFFERED)
			reset(c, -ECONNRESET);
		on_close(c);
	}
}

void connect_gone(struct vbn_job *job, int rank)
{
	struct connect *c, *next;

	for (c = job->connects; c; c = next) {
		next = c->next;
		if (c->rank != rank)
			continue;
		if (c->state != IDLE) {
			reset(c, -ECONNRESET);
			post(c, EVENT_FAILED, -ECONNRESET, "the rank is gone");
		}
		drop(c, -ECONNRESET);
	}
}

void connect_free_all(struct vbn_job *job)
{
	while (job->connects)
		drop(job->connects, -ECANCELED);
}
