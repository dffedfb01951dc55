/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The job as its store sees it: who has joined and who is gone. A member goes
 * ABSENT -> JOINED -> LEFT or DIED, and never back. A start that failed once
 * stays failed: whoever gives up, or dies before all are there, leaves a job
 * that cannot become complete.
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
/* Who has left is told together: after so long, so many in one frame. */
#define LEFT_MS	  20
#define LEFT_MOST 16384

void store_broken_rules(struct store *s, struct peer *p, const char *what)
{
	vbn_log(VBN_WARN, "the store cuts off rank %d: it sent %s", p->rank,
		what);
	snprintf(p->why, sizeof(p->why), "it sent %s", what);
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

/* Who comes to where rank 0 listens, and where else that might be. */
static void who_reaches(const char *at, char *text, size_t room)
{
	char candidates[160];
	struct netifs ifs;

	text[0] = '\0';
	if (!strncmp(at, "127.", 4) || !strncmp(at, "[::1]", 5)) {
		snprintf(text, room, " (this machine only)");
		return;
	}
	if (netifs_read(&ifs))
		return;
	netifs_candidates(&ifs, candidates, sizeof(candidates));
	netifs_free(&ifs);
	if (!strncmp(at, "0.0.0.0:", 8) || !strncmp(at, "[::]:", 5))
		snprintf(text, room, " (any address of this machine: %s)",
			 candidates);
	else
		snprintf(text, room, " (interfaces of rank 0's host: %s)",
			 candidates);
}

void store_start_timeout(struct store *s)
{
	char missing[128], at[64] = "", more[192] = "", where[208];
	size_t len = 0;

	list_missing(s, missing, sizeof(missing));
	if (s->listen_fd >= 0)
		net_name(s->listen_fd, false, at, sizeof(at));
	who_reaches(at, where, sizeof(where));
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
			 missing, s->start_timeout_ms, at, where, more);
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
			 "rank %u of the job served there has %s, the job "
			 "goes on",
			 rank,
			 s->members[rank].state == MEMBER_DIED ? "died"
							       : "left");
		return REFUSED_BUSY;
	}
	return 0;
}

static void all_joined(struct store *s)
{
	struct peer *p, *next;
	struct wire_frame *f;

	s->started = true;
	s->start_deadline = NET_NEVER;
	for (p = TAILQ_FIRST(&s->joined); p; p = next) {
		next = TAILQ_NEXT(p, link);
		f = wire_frame(FRAME_STARTED, 4);
		wire_put_u32(f, s->dead_ms);
		peer_send(s, p, f);
	}
	store_live_start(s);
}

static void join(struct store *s, struct peer *p, struct wire_reader *r)
{
	uint32_t rank = wire_get_u32(r), nranks = wire_get_u32(r);
	uint32_t left_ms = wire_get_u32(r), all_ms = wire_get_u32(r);
	char host[WIRE_HOST_MAX + 1], why[160];
	enum wire_refusal refusal;

	wire_get_text(r, host, sizeof(host));
	if (r->bad) {
		store_broken_rules(s, p, "a frame cut short");
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
	snprintf(s->members[rank].host, sizeof(host), "%s", host);
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

/* Host and reason, for everyone. */
static void describe(const struct store *s, int rank, const char *why,
		     char text[WIRE_WHY_MAX])
{
	const char *host = s->members[rank].host;

	text[0] = '\0';
	if (why[0])
		snprintf(text, WIRE_WHY_MAX, "%s%s%s%.120s",
			 host[0] ? "host " : "", host, host[0] ? ": " : "",
			 why);
}

void store_send_died(struct store *s, struct peer *p, int rank, const char *why)
{
	struct wire_frame *f = wire_frame(FRAME_GONE, 5 + strlen(why));

	wire_put_u32(f, (uint32_t)rank);
	wire_put_u8(f, true);
	wire_put_bytes(f, why, strlen(why));
	peer_send(s, p, f);
}

static void tell_died(struct store *s, int rank, const char *why)
{
	struct peer *p, *next;
	char text[WIRE_WHY_MAX];

	describe(s, rank, why, text);
	for (p = TAILQ_FIRST(&s->joined); p; p = next) {
		next = TAILQ_NEXT(p, link);
		if (p->rank != rank)
			store_send_died(s, p, rank, text);
	}
}

void store_tell_left(struct store *s)
{
	struct peer *p, *next;
	struct wire_frame *f;

	s->left_at = NET_NEVER;
	for (p = TAILQ_FIRST(&s->joined); p && s->nleft; p = next) {
		next = TAILQ_NEXT(p, link);
		for (int from = 0; from < s->nleft; from += LEFT_MOST) {
			int n = s->nleft - from < LEFT_MOST ? s->nleft - from
							    : LEFT_MOST;

			f = wire_frame(FRAME_LEFT, 4 * (size_t)n);
			for (int i = 0; i < n; i++)
				wire_put_u32(f, s->left[from + i]);
			peer_send(s, p, f);
		}
	}
	s->nleft = 0;
}

void store_gone(struct store *s, int rank, bool died, const char *why)
{
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
	if (died) {
		tell_died(s, rank, why);
	} else {
		/* Ranks mostly leave together: n at once are n^2 messages. */
		s->left[s->nleft++] = (uint32_t)rank;
		s->left_at = net_sooner(s->left_at, net_deadline(LEFT_MS));
	}
	store_fail_waits(s);
}

void store_frame(struct store *s, struct peer *p, enum wire_type type,
		 struct wire_reader *r)
{
	if (p->state == PEER_JOINING && type == FRAME_JOIN) {
		join(s, p, r);
	} else if (p->state == PEER_JOINED && type == FRAME_GOODBYE) {
		store_gone(s, p->rank, false, "");
		peer_drain(s, p);
	} else if (p->state == PEER_JOINED && s->started) {
		store_request(s, p, type, r);
	} else {
		store_broken_rules(s, p, "a frame out of place");
	}
}

void store_free_ranks(struct store *s)
{
	store_free_waits(s);
	kv_destroy(s->kv);
	free(s->members);
	free(s->left);
}
