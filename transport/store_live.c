/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who lives. The store sends each remote rank a beat an interval, as each rank
 * does to it, and names dead whom it has not heard for beat_limit(). Time in
 * which this thread itself did not run proves nothing: it is not counted, and
 * whoever has sent meanwhile is read before he is judged.
 *
 * A rank that was named dead is out for good. Its connection is kept a while,
 * so that it hears of it when it comes back; what it still sends is thrown
 * away.
 */
#include "store_impl.h"
#include "control_net.h"
#include "error.h"

#include <stdio.h>

#define TOLD_MS 60000 /* how long a rank has to hear of its death */

static bool beats(const struct peer *p)
{
	return !p->local;
}

void store_live_start(struct store *s)
{
	int64_t now = net_now_ms();
	struct peer *p;

	if (!s->dead_ms)
		return;
	s->beat_at = s->live_at = now;
	s->rested = now;
	for (p = TAILQ_FIRST(&s->joined); p; p = TAILQ_NEXT(p, link)) {
		p->heard = now;
		if (beats(p))
			net_patient(p->wire.fd);
	}
}

/* What a rank's silence or loss means when this rank was away itself. */
static void own_part(const struct store *s, int64_t now, char *text,
		     size_t room)
{
	text[0] = '\0';
	if (s->stalled_ms && now - s->stalled_at < 2 * (int64_t)s->dead_ms)
		snprintf(text, room, " (rank 0 itself did not run for %.1f s)",
			 (double)s->stalled_ms / 1000);
}

/* It is told and out of the job; the others are told by tell_named(). */
static void name_dead(struct store *s, struct peer *p, int64_t now)
{
	char own[64];
	int rank = p->rank;

	own_part(s, now, own, sizeof(own));
	snprintf(p->why, sizeof(p->why), "no heartbeat for %.1f s%s",
		 (double)(now - p->heard) / 1000, own);
	store_send_died(s, p, rank, p->why);
	if (p->doomed)
		return; /* reaped, it is dead as well */
	peer_drain(s, p);
	p->deadline = now + TOLD_MS;
	p->named = rank;
}

/* All that are lost together are out before the first is told of. */
static void tell_named(struct store *s)
{
	struct peer *p;

	for (p = TAILQ_FIRST(&s->pending); p; p = TAILQ_NEXT(p, link))
		if (p->named > 0) {
			store_gone(s, p->named, true, p->why);
			p->named = 0;
		}
}

/* This thread has not run for @gap: the others get time to be heard. */
static void excuse(struct store *s, int64_t now, int64_t gap)
{
	int64_t least = beat_excused(s->dead_ms, now);
	struct peer *p;

	s->stalled_ms = gap;
	s->stalled_at = now;
	vbn_log(VBN_INFO, "rank 0's store did not run for %lld ms",
		(long long)gap);
	for (p = TAILQ_FIRST(&s->joined); p; p = TAILQ_NEXT(p, link))
		if (p->heard < least)
			p->heard = least;
}

static void send_beats(struct store *s)
{
	struct peer *p, *next;

	for (p = TAILQ_FIRST(&s->joined); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (beats(p))
			peer_send(s, p, wire_frame(FRAME_BEAT, 0));
	}
}

static void judge(struct store *s, int64_t now)
{
	int64_t limit = beat_limit(s->dead_ms);
	struct peer *p, *next;
	bool some = false;

	for (p = TAILQ_FIRST(&s->joined); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (beats(p) && now - p->heard >= limit) {
			name_dead(s, p, now);
			some = true;
		}
	}
	if (some)
		tell_named(s);
}

void store_live_woke(struct store *s, int64_t woke)
{
	/* No wait is longer than an interval. */
	if (s->live_at != NET_NEVER &&
	    woke - s->rested > 2 * beat_interval(s->dead_ms))
		excuse(s, woke, woke - s->rested);
}

void store_live_round(struct store *s, bool backlog)
{
	int64_t interval = beat_interval(s->dead_ms), now = net_now_ms();

	if (s->live_at == NET_NEVER)
		return;
	if (now >= s->beat_at) {
		send_beats(s);
		s->beat_at = now + interval;
	}
	if (now >= s->live_at && !backlog) {
		judge(s, now);
		s->live_at = now + (interval + 3) / 4;
	}
	s->rested = net_now_ms();
}

void store_given_up(struct store *s, struct peer *p, struct wire_reader *r)
{
	char text[80], own[64];

	wire_get_text(r, text, sizeof(text));
	own_part(s, net_now_ms(), own, sizeof(own));
	snprintf(p->why, sizeof(p->why), "it holds rank 0 for dead: %s%s", text,
		 own);
	peer_doom(s, p);
}
