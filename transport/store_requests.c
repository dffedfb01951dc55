/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the ranks of a running job ask its store for: keys and values, fences,
 * cards, messages to each other.
 */
#include "store_impl.h"
#include "wire.h"

#include <stdlib.h>
#include <string.h>

static void reply(struct store *s, struct peer *p, uint64_t id,
		  enum wire_status status, const void *value, size_t len)
{
	struct wire_frame *f = wire_frame(FRAME_REPLY, 9 + len);

	wire_put_u64(f, id);
	wire_put_u8(f, (uint8_t)status);
	wire_put_bytes(f, value, len);
	peer_send(s, p, f);
}

static void reply_gone(struct store *s, struct peer *p, uint64_t id, int gone)
{
	bool died = s->members[gone].state == MEMBER_DIED;
	uint8_t value[5];

	put_u32(value, (uint32_t)gone);
	value[4] = died;
	reply(s, p, id, STATUS_GONE, value, sizeof(value));
}

/* ---- keys and values ---- */

static void set(struct store *s, struct peer *p, struct wire_reader *r)
{
	uint64_t id = wire_get_u64(r);
	size_t key_len, len;
	const char *key = wire_get_key(r, &key_len, false);
	const uint8_t *value = wire_get_rest(r, &len);
	struct kv_waiter *w, *next;

	if (r->bad || len > CONTROL_VALUE_MAX) {
		store_broken_rules(s, p, "a bad key or value");
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
		store_broken_rules(s, p, "a bad key");
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
		store_broken_rules(s, p, "a bad key");
		return;
	}
	kv_erase(s->kv, key, key_len);
	reply(s, p, id, STATUS_OK, NULL, 0);
}

/* ---- fences ---- */

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
		store_broken_rules(s, p, "a frame cut short");
		return;
	}
	if (fence_count(s, p->rank))
		fences_release(s);
	if (s->members[p->rank].fences <= s->fences_done) {
		reply(s, p, id, STATUS_OK, NULL, 0);
		return;
	}
	if (s->first_gone >= 0) {
		reply_gone(s, p, id, s->first_gone);
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

static void fences_fail(struct store *s)
{
	struct fence_wait *w;

	while ((w = s->fence_waits)) {
		struct peer *p = s->members[w->rank].peer;

		s->fence_waits = w->next;
		if (p)
			reply_gone(s, p, w->id, s->first_gone);
		free(w);
	}
}

static void cancel(struct store *s, struct peer *p, struct wire_reader *r)
{
	uint64_t id = wire_get_u64(r);
	size_t key_len;
	const char *key = wire_get_key(r, &key_len, true);

	if (r->bad) {
		store_broken_rules(s, p, "a bad key");
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
	for (struct card_wait **at = &s->card_waits, *w; (w = *at);
	     at = &w->next_wait)
		if (w->rank == p->rank && w->id == id) {
			*at = w->next_wait;
			free(w);
			return;
		}
}

/* ---- cards: what each rank says of itself, told in one answer ---- */

static bool cards_complete(const struct store *s, struct card_wait *w)
{
	while (w->next < w->end && s->members[w->next].has_card)
		w->next++;
	return w->next == w->end;
}

/* A rank of the range that is gone and has left no card, or -1. */
static int cards_in_vain(const struct store *s, const struct card_wait *w)
{
	for (uint32_t r = w->next; r < w->end; r++)
		if (!s->members[r].has_card &&
		    s->members[r].state != MEMBER_JOINED)
			return (int)r;
	return -1;
}

static void cards_answer(struct store *s, const struct card_wait *w)
{
	size_t len = (size_t)(w->end - w->first) * CONTROL_CARD;
	struct peer *p = s->members[w->rank].peer;
	struct wire_frame *f;

	if (!p)
		return;
	f = wire_frame(FRAME_REPLY, 9 + len);
	wire_put_u64(f, w->id);
	wire_put_u8(f, STATUS_OK);
	for (uint32_t r = w->first; r < w->end; r++)
		wire_put_bytes(f, s->members[r].card, CONTROL_CARD);
	peer_send(s, p, f);
}

static void card(struct store *s, struct peer *p, struct wire_reader *r)
{
	struct card_wait **at = &s->card_waits, *w;
	size_t len;
	const uint8_t *data = wire_get_rest(r, &len);

	if (len != CONTROL_CARD) {
		store_broken_rules(s, p, "a bad card");
		return;
	}
	memcpy(s->members[p->rank].card, data, len);
	s->members[p->rank].has_card = true;
	while ((w = *at)) {
		if (w->next != (uint32_t)p->rank || !cards_complete(s, w)) {
			at = &w->next_wait;
			continue;
		}
		*at = w->next_wait;
		cards_answer(s, w);
		free(w);
	}
}

static void cards(struct store *s, struct peer *p, struct wire_reader *r)
{
	struct card_wait now = {.rank = p->rank, .id = wire_get_u64(r)}, *w;
	bool wait = wire_get_u8(r);
	uint32_t count;
	int gone;

	now.first = now.next = wire_get_u32(r);
	count = wire_get_u32(r);
	if (r->bad || count > WIRE_CARDS_MAX ||
	    now.first > (uint32_t)s->nranks ||
	    count > (uint32_t)s->nranks - now.first) {
		store_broken_rules(s, p, "a bad range of cards");
		return;
	}
	now.end = now.first + count;
	if (cards_complete(s, &now)) {
		cards_answer(s, &now);
		return;
	}
	gone = cards_in_vain(s, &now);
	if (gone >= 0) {
		reply_gone(s, p, now.id, gone);
		return;
	}
	w = wait ? malloc(sizeof(*w)) : NULL;
	if (!w) {
		reply(s, p, now.id, wait ? STATUS_NOMEM : STATUS_ABSENT, NULL,
		      0);
		return;
	}
	*w = now;
	w->next_wait = s->card_waits;
	s->card_waits = w;
}

static void cards_fail(struct store *s)
{
	struct card_wait **at = &s->card_waits, *w;

	while ((w = *at)) {
		struct peer *p = s->members[w->rank].peer;
		int gone = cards_in_vain(s, w);

		if (gone < 0) {
			at = &w->next_wait;
			continue;
		}
		*at = w->next_wait;
		if (p)
			reply_gone(s, p, w->id, gone);
		free(w);
	}
}

static void message(struct store *s, struct peer *p, struct wire_reader *r)
{
	uint32_t to = wire_get_u32(r), type = wire_get_u32(r);
	size_t len;
	const uint8_t *data = wire_get_rest(r, &len);
	struct wire_frame *f;

	if (r->bad || to >= (uint32_t)s->nranks || len > CONTROL_MESSAGE_MAX) {
		store_broken_rules(s, p, "a bad message");
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

static void beat(struct store *s, struct peer *p, struct wire_reader *r)
{
	(void)s, (void)p, (void)r; /* that it came is all */
}

void store_request(struct store *s, struct peer *p, enum wire_type type,
		   struct wire_reader *r)
{
	static void (*const handlers[])(struct store *, struct peer *,
					struct wire_reader *) = {
		[FRAME_SET] = set,	 [FRAME_GET] = get,
		[FRAME_ERASE] = erase,	 [FRAME_FENCE] = fence,
		[FRAME_CANCEL] = cancel, [FRAME_SEND] = message,
		[FRAME_CARD] = card,	 [FRAME_CARDS] = cards,
		[FRAME_BEAT] = beat,	 [FRAME_GIVEUP] = store_given_up,
	};

	if (type < sizeof(handlers) / sizeof(handlers[0]) && handlers[type])
		handlers[type](s, p, r);
	else
		store_broken_rules(s, p, "a frame out of place");
}

void store_fail_waits(struct store *s)
{
	fences_fail(s);
	cards_fail(s);
}

void store_free_waits(struct store *s)
{
	struct fence_wait *fence;
	struct card_wait *card;

	while ((fence = s->fence_waits)) {
		s->fence_waits = fence->next;
		free(fence);
	}
	while ((card = s->card_waits)) {
		s->card_waits = card->next_wait;
		free(card);
	}
}
