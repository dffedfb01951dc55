/* SPDX-License-Identifier: BSD-3-Clause */
/* What other threads ask the store for, or send by it. */
#include "control_impl.h"
#include "control_net.h"
#include "error.h"
#include "wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* "Does not wait" still needs the store's answer. */
#define ROUND_TRIP_MS 1000

/* ---- requests ---- */

/* Under the lock. Gives the request its number and the frame's begin. */
static struct wire_frame *request_begin(struct control *c, struct request *r,
					enum wire_type type, size_t body)
{
	struct wire_frame *f = wire_frame(type, 8 + body);

	r->id = ++c->next_id;
	wire_put_u64(f, r->id);
	return f;
}

/* Under the lock; takes @f. 0: it is under way. */
static int queue_frame(struct control *c, struct wire_frame *f)
{
	if (c->lost || c->closing) {
		free(f);
		return -ECONNRESET;
	}
	return wire_queue(&c->wire, f) ? -ENOMEM : 0;
}

/* Under the lock; takes @f. 0: pending. */
static int request_send(struct control *c, struct request *r,
			struct wire_frame *f)
{
	int rc = queue_frame(c, f);

	if (!rc)
		TAILQ_INSERT_TAIL(control_bucket(c, r->id), r, link);
	return rc;
}

/* Under the lock. Nobody waits for the answer any more. */
static void request_cancel(struct control *c, struct request *r,
			   const char *key)
{
	size_t len = strlen(key);
	struct wire_frame *f = wire_frame(FRAME_CANCEL, 9 + len);

	TAILQ_REMOVE(control_bucket(c, r->id), r, link);
	wire_put_u64(f, r->id);
	wire_put_key(f, key, len);
	/* Not told, the store answers one day, to nobody. */
	(void)wire_queue(&c->wire, f);
}

/* Blocking: send, wait. @key of a get, "" otherwise. */
static int request_wait(struct control *c, struct request *r,
			struct wire_frame *f, const char *key, int timeout_ms)
{
	int64_t deadline =
		net_deadline(timeout_ms == 0 ? ROUND_TRIP_MS : timeout_ms);
	struct timespec t = {.tv_sec = deadline / 1000,
			     .tv_nsec = deadline % 1000 * 1000000};
	int rc = request_send(c, r, f);

	if (rc) {
		pthread_mutex_unlock(&c->lock);
		return rc;
	}
	control_wake(c);
	while (!r->done && rc != ETIMEDOUT) {
		if (deadline == NET_NEVER)
			pthread_cond_wait(&r->cond, &c->lock);
		else
			rc = pthread_cond_timedwait(&r->cond, &c->lock, &t);
	}
	if (!r->done) {
		request_cancel(c, r, key);
		control_wake(c);
		r->status = -ETIMEDOUT;
	}
	pthread_mutex_unlock(&c->lock);
	return r->status;
}

/* A key that can be sent, or -EINVAL. */
static int check_key(const char *key)
{
	size_t len = strlen(key);

	if (len < 1 || len > CONTROL_KEY_MAX)
		return vbn_fail(-EINVAL,
				"a key has 1 to %d bytes, this one %zu",
				CONTROL_KEY_MAX, len);
	return 0;
}

static int request_failed(struct control *c, struct request *r, int rc,
			  const char *what, const char *key, int timeout_ms)
{
	char why[WIRE_WHY_MAX + 80];

	switch (rc) {
	case 0:
		return 0;
	case -ETIMEDOUT:
		return vbn_fail(rc, "%s%s%s timed out after %d ms", what,
				key[0] ? " of key " : "", key, timeout_ms);
	case -ECONNRESET:
		if (r->gone_rank >= 0 && r->gone_died &&
		    control_lost(c, r->gone_rank, why, sizeof(why)))
			return vbn_fail(rc, "%s: %s", what, why);
		if (r->gone_rank >= 0)
			return vbn_fail(rc, "%s: rank %d has %s", what,
					r->gone_rank,
					r->gone_died ? "died" : "left the job");
		if (!control_lost(c, 0, why, sizeof(why)))
			snprintf(why, sizeof(why), "rank 0 has left");
		return vbn_fail(rc, "%s%s%s: the store of rank 0 is gone (%s)",
				what, key[0] ? " of key " : "", key, why);
	default:
		return vbn_fail(rc, "%s%s%s: %s", what,
				key[0] ? " of key " : "", key, strerror(-rc));
	}
}

/* One blocking request. */
struct call {
	enum wire_type type;
	const char *what, *key;
	const void *value; /* behind the key */
	size_t len;
	void *out; /* of a get */
	size_t room;
};

static int call(struct control *c, const struct call *call, size_t *len,
		int timeout_ms)
{
	struct request r = {
		.value = call->out, .room = call->room, .gone_rank = -1};
	size_t key_len = strlen(call->key), body = 0;
	bool waits = call->type != FRAME_SET && call->type != FRAME_ERASE;
	bool keyed = call->type != FRAME_FENCE && call->type != FRAME_CARDS;
	struct wire_frame *f;
	int rc = control_check_thread(c);

	if (rc)
		return rc;
	body += waits ? 1 : 0;
	body += keyed ? 1 + key_len : 0;
	body += call->len;
	cond_init_monotonic(&r.cond);
	pthread_mutex_lock(&c->lock);
	f = request_begin(c, &r, call->type, body);
	if (waits)
		wire_put_u8(f, timeout_ms != 0);
	if (keyed)
		wire_put_key(f, call->key, key_len);
	wire_put_bytes(f, call->value, call->len);
	rc = request_wait(c, &r, f, call->type == FRAME_GET ? call->key : "",
			  timeout_ms);
	pthread_cond_destroy(&r.cond);
	if (!rc && len) {
		if (r.len > call->room)
			return vbn_fail(-EMSGSIZE,
					"the value of key %s has %zu bytes, "
					"there is room for %zu",
					call->key, r.len, call->room);
		*len = r.len;
	}
	return request_failed(c, &r, rc, call->what, call->key, timeout_ms);
}

int control_set(struct control *c, const char *key, const void *value,
		size_t len, int timeout_ms)
{
	const struct call set = {.type = FRAME_SET,
				 .what = "set",
				 .key = key,
				 .value = value,
				 .len = len};
	int rc = check_key(key);

	if (rc)
		return rc;
	if (len > CONTROL_VALUE_MAX)
		return vbn_fail(-EMSGSIZE,
				"a value has at most %d bytes, the one of key "
				"%s has %zu",
				CONTROL_VALUE_MAX, key, len);
	return call(c, &set, NULL, timeout_ms);
}

int control_get(struct control *c, const char *key, void *value, size_t *len,
		int timeout_ms)
{
	const struct call get = {.type = FRAME_GET,
				 .what = "get",
				 .key = key,
				 .out = value,
				 .room = *len};
	int rc = check_key(key);

	return rc ? rc : call(c, &get, len, timeout_ms);
}

int control_erase(struct control *c, const char *key, int timeout_ms)
{
	const struct call erase = {
		.type = FRAME_ERASE, .what = "erase", .key = key};
	int rc = check_key(key);

	return rc ? rc : call(c, &erase, NULL, timeout_ms);
}

int control_fence(struct control *c, int timeout_ms)
{
	const struct call fence = {
		.type = FRAME_FENCE, .what = "fence", .key = ""};

	return call(c, &fence, NULL, timeout_ms);
}

static int cards_page(struct control *c, int first, int n, uint8_t *cards,
		      int timeout_ms)
{
	uint8_t range[8];
	size_t len;
	const struct call call_cards = {.type = FRAME_CARDS,
					.what = "asking what ranks say of "
						"themselves",
					.key = "",
					.value = range,
					.len = sizeof(range),
					.out = cards,
					.room = (size_t)n * CONTROL_CARD};
	int rc;

	put_u32(range, (uint32_t)first);
	put_u32(range + 4, (uint32_t)n);
	rc = call(c, &call_cards, &len, timeout_ms);
	if (!rc && len != call_cards.room)
		rc = vbn_fail(-EPROTO, "the store sent %zu of %zu bytes", len,
			      call_cards.room);
	return rc;
}

int control_cards(struct control *c, int first, int n, uint8_t *cards,
		  int timeout_ms)
{
	int64_t deadline = net_deadline(timeout_ms);
	int page = (int)WIRE_CARDS_MAX, rc = 0;

	if (first < 0 || n < 0 || first > c->nranks - n)
		return vbn_fail(-EINVAL,
				"ranks %d to %d: the job has %d, counted "
				"from 0",
				first, first + n - 1, c->nranks);
	for (int i = 0; i < n && !rc; i += page) {
		int left = timeout_ms ? net_remaining(deadline) : 0;

		rc = cards_page(c, first + i, n - i < page ? n - i : page,
				cards + (size_t)i * CONTROL_CARD, left);
	}
	return rc;
}

/* ---- what does not block ---- */

static const char *why_unsent(int rc)
{
	return rc == -ENOMEM ? "no memory, or too many wait"
			     : "the store of rank 0 is gone";
}

void control_lookup(struct control *c, const char *key, bool wait,
		    void (*done)(void *arg, int err, const void *value,
				 size_t len),
		    void *arg)
{
	struct request *r = calloc(1, sizeof(*r));
	struct wire_frame *f;
	size_t len = strlen(key);
	int rc;

	if (!r) { /* no memory to say it later */
		done(arg, -ENOMEM, NULL, 0);
		return;
	}
	r->done_fn = done;
	r->arg = arg;
	pthread_mutex_lock(&c->lock);
	if (len < 1 || len > CONTROL_KEY_MAX) {
		rc = -EINVAL;
	} else {
		f = request_begin(c, r, FRAME_GET, 2 + len);
		wire_put_u8(f, wait);
		wire_put_key(f, key, len);
		rc = request_send(c, r, f);
	}
	if (rc) {
		r->status = rc == -ECONNRESET && !c->lost ? -ECANCELED : rc;
		TAILQ_INSERT_TAIL(&c->due, r, link);
	}
	pthread_mutex_unlock(&c->lock);
	control_wake(c);
}

int control_publish(struct control *c, const char *key, const void *value,
		    size_t len)
{
	size_t key_len = strlen(key);
	struct request unanswered;
	struct wire_frame *f;
	int rc = check_key(key);

	if (rc)
		return rc;
	if (len > CONTROL_VALUE_MAX)
		return vbn_fail(-EMSGSIZE, "key %s: %zu bytes are too many",
				key, len);
	pthread_mutex_lock(&c->lock);
	f = request_begin(c, &unanswered, FRAME_SET, 1 + key_len + len);
	wire_put_key(f, key, key_len);
	wire_put_bytes(f, value, len);
	rc = queue_frame(c, f);
	pthread_mutex_unlock(&c->lock);
	if (rc)
		return vbn_fail(rc, "key %s cannot be set: %s", key,
				why_unsent(rc));
	control_wake(c);
	return 0;
}

int control_card(struct control *c, const uint8_t card[CONTROL_CARD])
{
	struct wire_frame *f = wire_frame(FRAME_CARD, CONTROL_CARD);
	int rc;

	wire_put_bytes(f, card, CONTROL_CARD);
	pthread_mutex_lock(&c->lock);
	rc = queue_frame(c, f);
	pthread_mutex_unlock(&c->lock);
	if (rc)
		return vbn_fail(rc, "the other ranks cannot be told: %s",
				why_unsent(rc));
	control_wake(c);
	return 0;
}

int control_send(struct control *c, int rank, unsigned type, const void *data,
		 size_t len)
{
	struct wire_frame *f;
	int rc = -ECONNRESET;

	if (rank < 0 || rank >= c->nranks)
		return vbn_fail(-EINVAL, "no rank %d in a job of %d", rank,
				c->nranks);
	if (len > CONTROL_MESSAGE_MAX)
		return vbn_fail(-EMSGSIZE,
				"a control message has at most %d bytes, this "
				"one %zu",
				CONTROL_MESSAGE_MAX, len);
	f = wire_frame(FRAME_SEND, 8 + len);
	wire_put_u32(f, (uint32_t)rank);
	wire_put_u32(f, type);
	wire_put_bytes(f, data, len);
	pthread_mutex_lock(&c->lock);
	if (c->lost)
		free(f);
	else
		rc = wire_queue(&c->wire, f) ? -ENOMEM : 0;
	pthread_mutex_unlock(&c->lock);
	if (rc)
		return vbn_fail(rc, "no message to rank %d: %s", rank,
				why_unsent(rc));
	control_wake(c);
	return 0;
}
