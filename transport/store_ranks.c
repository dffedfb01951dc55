/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The job as its store sees it: who has joined, requests, fences, messages,
 * and who is gone. A member goes ABSENT -> JOINED -> LEFT or DIED, and never
 * back. A start that failed once stays failed: whoever gives up, or dies
 * before all are there, leaves a job that cannot become complete.
 */
#include "store_impl.h"
#include "control_net.h"
#include "error.h"
#include "wire.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rather before the rank's own deadline than after: the answer must travel. */
#define START_MARGIN_MS 250u

static void reply(struct store *s, struct peer *p, uint64_t id,
		  enum wire_status status, const void *value, size_t len)
{
	struct wire_frame *f = wire_frame(FRAME_REPLY, 9 + len);

	wire_put_u64(f, id);
	wire_put_u8(f, (uint8_t)status);
	wire_put_bytes(f, value, len);
	peer_send(s, p, f);
}

static void broken_rules(struct store *s, struct peer *p, const char *what)
{
	vbn_log(VBN_WARN, "the store cuts off rank %d: it sent %s", p->rank,
		what);
	peer_doom(s, p);
}

/* ---- start ---- */

void store_refuse(struct store *s, struct peer *p, enum wire_refusal refusal,
		  const char *why)
{
	struct wire_frame *f = wire_frame(FRAME_REFUSED, 1 + strlen(why));

	wire_put_u8(f, (uint8_t)refusal);
	wire_put_bytes(f, why, strlen(why));
	peer_send(s, p, f);
	peer_drain(s, p);
}

void store_fail_start(struct store *s, enum wire_refusal refusal,
		      const char *fmt, ...)
{
	struct peer *p, *next;
	va_list args;

	if (s->started || s->failed)
		return;
	s->failed = true;
	s->refusal = refusal;
	va_start(args, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, args);
	va_end(args);
	s->start_deadline = NET_NEVER;
	for (p = TAILQ_FIRST(&s->joined); p; p = next) {
		next = TAILQ_NEXT(p, link);
		s->members[p->rank].peer = NULL;
		store_refuse(s, p, refusal, s->why);
	}
}

__attribute__((format(printf, 4, 5))) static void append(char *buf, size_t size,
							 size_t *len,
							 const char *fmt, ...)
{
	va_list args;
	int n;

	if (*len >= size)
		return;
	va_start(args, fmt);
	n = vsnprintf(buf + *len, size - *len, fmt, args);
	va_end(args);
	*len += n < 0 ? 0 : (size_t)n;
}

/* "ranks 3, 5-7 of 8 have" */
static void list_missing(const struct store *s, char *buf, size_t size)
{
	int missing = s->nranks - s->njoined, listed = 0;
	size_t len = 0;

	append(buf, size, &len, missing == 1 ? "rank" : "ranks");
	for (int r = 0; r < s->nranks; r++) {
		int first = r;

		if (s->members[r].state != MEMBER_ABSENT)
			continue;
		while (r + 1 < s->nranks &&
		       s->members[r + 1].state == MEMBER_ABSENT)
			r++;
		append(buf, size, &len, "%s %d", listed ? "," : "", first);
		if (r > first)
			append(buf, size, &len, "-%d", r);
		listed += r - first + 1;
		if (len > size / 2 && listed < missing) {
			append(buf, size, &len, " and %d more",
			       missing - listed);
			break;
		}
	}
	append(buf, size, &len, " of %d %s", s->nranks,
	       missing == 1 ? "has" : "have");
}

static const char *who_reaches(const char *at)
{
	if (!strncmp(at, "127.", 4) || !strncmp(at, "[::1]", 5))
		return " (this machine only)";
	if (!strncmp(at, "0.0.0.0:", 8) || !strncmp(at, "[::]:", 5))
		return " (any address of this machine)";
	return "";
}

void store_start_timeout(struct store *s)
{
	char missing[128], at[64] = "", more[192] = "";
	size_t len = 0;

	list_missing(s, missing, sizeof(missing));
	if (s->listen_fd >= 0)
		net_name(s->listen_fd, false, at, sizeof(at));
	if (s->denied)
		append(more, sizeof(more), &len, "; %u had another secret",
		       s->denied);
	if (s->foreign)
		append(more, sizeof(more), &len, "; %u spoke another version",
		       s->foreign);
	if (s->strangers)
		append(more, sizeof(more), &len, "; %u did not speak with us",
		       s->strangers);
	if (s->refused[0])
		append(more, sizeof(more), &len, "; %s", s->refused);
	store_fail_start(s, REFUSED_TIMEOUT,
			 "%s not joined within %u ms: check that each runs and "
			 "that its host reaches %s%s%s",
			 missing, s->start_timeout_ms, at, who_reaches(at),
			 more);
}

/* Why this rank cannot be admitted, in @why; 0 if it can. */
static enum wire_refusal admit(struct store *s, struct peer *p, uint32_t rank,
			       uint32_t nranks, char *why, size_t size)
{
	if (nranks != (uint32_t)s->nranks) {
		snprintf(why, size,
			 "rank %u was given a job of %u ranks, rank 0 one of "
			 "%d: start all with the same size",
			 rank, nranks, s->nranks);
		return REFUSED_SHAPE;
	}
	if (rank >= nranks) {
		snprintf(why, size, "rank %u is out of range: the job has %u",
			 rank, nranks);
		return REFUSED_SHAPE;
	}
	/* Rank 0's own connection may not have spoken yet. */
	if ((rank == 0) != p->local ||
	    s->members[rank].state == MEMBER_JOINED) {
		snprintf(why, size,
			 "rank %u has joined already: each process needs its "
			 "own rank, and a job of its own its own address",
			 rank);
		return REFUSED_SHAPE;
	}
	if (s->members[rank].state != MEMBER_ABSENT) {
		snprintf(why, size,
			 "rank %u of the job served there has ended, the job "
			 "has not",
			 rank);
		return REFUSED_BUSY;
	}
	return 0;
}

static void all_joined(struct store *s)
{
	struct peer *p, *next;

	s->started = true;
	s->start_deadline = NET_NEVER;
	for (p = TAILQ_FIRST(&s->joined); p; p = next) {
		next = TAILQ_NEXT(p, link);
		peer_send(s, p, wire_frame(FRAME_STARTED, 0));
	}
}

static void join(struct store *s, struct peer *p, struct wire_reader *r)
{
	uint32_t rank = wire_get_u32(r), nranks = wire_get_u32(r);
	uint32_t left_ms = wire_get_u32(r), all_ms = wire_get_u32(r);
	enum wire_refusal refusal;
	char why[160];

	if (r->bad) {
		broken_rules(s, p, "a frame cut short");
		return;
	}
	if (s->failed) {
		store_refuse(s, p, s->refusal, s->why);
		return;
	}
	refusal = admit(s, p, rank, nranks, why, sizeof(why));
	if (refusal) {
		if (refusal == REFUSED_SHAPE)
			snprintf(s->refused, sizeof(s->refused), "%s", why);
		store_refuse(s, p, refusal, why);
		return;
	}
	TAILQ_REMOVE(&s->pending, p, link);
	s->npending--;
	TAILQ_INSERT_TAIL(&s->joined, p, link);
	p->state = PEER_JOINED;
	p->rank = (int)rank;
	s->members[rank].state = MEMBER_JOINED;
	s->members[rank].peer = p;
	s->njoined++;
	s->nothers += rank != 0;
	if (left_ms != UINT32_MAX) {
		int64_t margin = left_ms / 4 < START_MARGIN_MS
					 ? left_ms / 4
					 : START_MARGIN_MS;
		int64_t deadline = net_now_ms() + left_ms - margin;

		if (deadline < s->start_deadline) {
			s->start_deadline = deadline;
			s->start_timeout_ms = all_ms;
		}
	}
	if (s->njoined == s->nranks)
		all_joined(s);
}

/* ---- gone ---- */

static void reply_gone(struct store *s, struct peer *p, uint64_t id)
{
	bool died = s->members[s->first_gone].state == MEMBER_DIED;
	uint8_t value[5];

	put_u32(value, (uint32_t)s->first_gone);
	value[4] = died;
	reply(s, p, id, STATUS_GONE, value, sizeof(value));
}

static void fences_fail(struct store *s)
{
	struct fence_wait *w;

	while ((w = s->fence_waits)) {
		struct peer *p = s->members[w->rank].peer;

		s->fence_waits = w->next;
		if (p)
			reply_gone(s, p, w->id);
		free(w);
	}
}

void store_gone(struct store *s, int rank, bool died)
{
	struct peer *p, *next;
	struct wire_frame *f;

	s->members[rank].state = died ? MEMBER_DIED : MEMBER_LEFT;
	s->members[rank].peer = NULL;
	s->nothers -= rank != 0;
	if (s->first_gone < 0)
		s->first_gone = rank;
	if (!s->started) {
		store_fail_start(s, REFUSED_DEATH,
				 "rank %d ended while the job was starting (%d "
				 "of %d ranks had joined)",
				 rank, s->njoined, s->nranks);
		return;
	}
	for (p = TAILQ_FIRST(&s->joined); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->rank == rank)
			continue;
		f = wire_frame(FRAME_GONE, 5);
		wire_put_u32(f, (uint32_t)rank);
		wire_put_u8(f, died);
		peer_send(s, p, f);
	}
	fences_fail(s);
}

/* ---- requests ---- */

static void set(struct store *s, struct peer *p, struct wire_reader *r)
{
	uint64_t id = wire_get_u64(r);
	size_t key_len, len;
	const char *key = wire_get_key(r, &key_len, false);
	const uint8_t *value = wire_get_rest(r, &len);
	struct kv_waiter *w, *next;

	if (r->bad || len > CONTROL_VALUE_MAX) {
		broken_rules(s, p, "a bad key or value");
		return;
	}
	if (kv_set(s->kv, key, key_len, value, len, &w)) {
		reply(s, p, id, STATUS_NOMEM, NULL, 0);
		return;
	}
	for (; w; w = next) {
		struct peer *waiting = s->members[w->rank].peer;

		next = w->next;
		if (waiting)
			reply(s, waiting, w->id, STATUS_OK, value, len);
		free(w);
	}
	reply(s, p, id, STATUS_OK, NULL, 0);
}

static void get(struct store *s, struct peer *p, struct wire_reader *r)
{
	uint64_t id = wire_get_u64(r);
	bool wait = wire_get_u8(r);
	size_t key_len, len;
	const char *key = wire_get_key(r, &key_len, false);
	const void *value;

	if (r->bad) {
		broken_rules(s, p, "a bad key");
		return;
	}
	value = kv_get(s->kv, key, key_len, &len);
	if (value)
		reply(s, p, id, STATUS_OK, value, len);
	else if (!wait)
		reply(s, p, id, STATUS_ABSENT, NULL, 0);
	else if (kv_wait(s->kv, key, key_len, p->rank, id))
		reply(s, p, id, STATUS_NOMEM, NULL, 0);
}

static void erase(struct store *s, struct peer *p, struct wire_reader *r)
{
	uint64_t id = wire_get_u64(r);
	size_t key_len;
	const char *key = wire_get_key(r, &key_len, false);

	if (r->bad) {
		broken_rules(s, p, "a bad key");
		return;
	}
	kv_erase(s->kv, key, key_len);
	reply(s, p, id, STATUS_OK, NULL, 0);
}

/* @rank has called once more: true if that completes one or more. */
static bool fence_count(struct store *s, int rank)
{
	bool complete = false;

	if (++s->members[rank].fences == s->fences_done + 1)
		s->fence_arrived++;
	while (s->fence_arrived == s->nranks) {
		s->fences_done++;
		s->fence_arrived = 0;
		for (int i = 0; i < s->nranks; i++)
			s->fence_arrived +=
				s->members[i].fences > s->fences_done;
		complete = true;
	}
	return complete;
}

static void fences_release(struct store *s)
{
	struct fence_wait **at = &s->fence_waits, *w;

	while ((w = *at)) {
		struct peer *p = s->members[w->rank].peer;

		if (w->number > s->fences_done) {
			at = &w->next;
			continue;
		}
		*at = w->next;
		if (p)
			reply(s, p, w->id, STATUS_OK, NULL, 0);
		free(w);
	}
}

static void fence(struct store *s, struct peer *p, struct wire_reader *r)
{
	uint64_t id = wire_get_u64(r);
	bool wait = wire_get_u8(r);
	struct fence_wait *w;

	if (r->bad) {
		broken_rules(s, p, "a frame cut short");
		return;
	}
	if (fence_count(s, p->rank))
		fences_release(s);
	if (s->members[p->rank].fences <= s->fences_done) {
		reply(s, p, id, STATUS_OK, NULL, 0);
		return;
	}
	if (s->first_gone >= 0) {
		reply_gone(s, p, id);
		return;
	}
	w = wait ? calloc(1, sizeof(*w)) : NULL;
	if (!w) {
		reply(s, p, id, wait ? STATUS_NOMEM : STATUS_ABSENT, NULL, 0);
		return;
	}
	w->rank = p->rank;
	w->id = id;
	w->number = s->members[p->rank].fences;
	w->next = s->fence_waits;
	s->fence_waits = w;
}

static void cancel(struct store *s, struct peer *p, struct wire_reader *r)
{
	uint64_t id = wire_get_u64(r);
	size_t key_len;
	const char *key = wire_get_key(r, &key_len, true);

	if (r->bad) {
		broken_rules(s, p, "a bad key");
		return;
	}
	if (key_len) {
		kv_cancel(s->kv, key, key_len, p->rank, id);
		return;
	}
	for (struct fence_wait **at = &s->fence_waits, *w; (w = *at);
	     at = &w->next)
		if (w->rank == p->rank && w->id == id) {
			*at = w->next;
			free(w);
			return;
		}
}

static void message(struct store *s, struct peer *p, struct wire_reader *r)
{
	uint32_t to = wire_get_u32(r), type = wire_get_u32(r);
	size_t len;
	const uint8_t *data = wire_get_rest(r, &len);
	struct wire_frame *f;

	if (r->bad || to >= (uint32_t)s->nranks || len > CONTROL_MESSAGE_MAX) {
		broken_rules(s, p, "a bad message");
		return;
	}
	if (!s->members[to].peer)
		return;
	f = wire_frame(FRAME_MESSAGE, 8 + len);
	wire_put_u32(f, (uint32_t)p->rank);
	wire_put_u32(f, type);
	wire_put_bytes(f, data, len);
	peer_send(s, s->members[to].peer, f);
}

void store_frame(struct store *s, struct peer *p, enum wire_type type,
		 struct wire_reader *r)
{
	static void (*const handlers[])(struct store *, struct peer *,
					struct wire_reader *) = {
		[FRAME_SET] = set,	 [FRAME_GET] = get,
		[FRAME_ERASE] = erase,	 [FRAME_FENCE] = fence,
		[FRAME_CANCEL] = cancel, [FRAME_SEND] = message,
	};

	if (p->state == PEER_JOINING && type == FRAME_JOIN) {
		join(s, p, r);
	} else if (p->state == PEER_JOINED && type == FRAME_GOODBYE) {
		store_gone(s, p->rank, false);
		peer_drain(s, p);
	} else if (p->state == PEER_JOINED && s->started &&
		   type < sizeof(handlers) / sizeof(handlers[0]) &&
		   handlers[type]) {
		handlers[type](s, p, r);
	} else {
		broken_rules(s, p, "a frame out of place");
	}
}

void store_free_ranks(struct store *s)
{
	struct fence_wait *next;

	for (struct fence_wait *w = s->fence_waits; w; w = next) {
		next = w->next;
		free(w);
	}
	s->fence_waits = NULL;
	kv_destroy(s->kv);
	free(s->members);
}
