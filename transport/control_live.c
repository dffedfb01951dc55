/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank's signs of life, and the store's. Beats are sent by a thread of their
 * own: the control thread may be held up for seconds by a registration, and
 * only a process that does not run, or cannot be reached, is to be held for
 * dead. That is noticed by the control thread, which reads the store's beats:
 * time in which it did not run itself is not counted.
 */
#include "control_impl.h"
#include "control_net.h"
#include "error.h"
#include "thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void cond_init_monotonic(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

/* ---- our beats ---- */

static void *beat_main(void *arg)
{
	struct control *c = arg;
	int64_t next;
	struct timespec t;

	pthread_mutex_lock(&c->lock);
	while (!c->lost && !c->resting) {
		/* What cannot be written now the control thread writes. */
		if (!wire_queue(&c->wire, wire_frame(FRAME_BEAT, 0)))
			(void)wire_flush(&c->wire);
		next = net_now_ms() + beat_interval(c->dead_ms);
		t = (struct timespec){.tv_sec = next / 1000,
				      .tv_nsec = next % 1000 * 1000000};
		while (!c->lost && !c->resting &&
		       !pthread_cond_timedwait(&c->rest, &c->lock, &t))
			;
	}
	pthread_mutex_unlock(&c->lock);
	return NULL;
}

int live_start(struct control *c)
{
	int rc;

	if (!c->dead_ms || !c->rank) /* rank 0 shares its store's fate */
		return 0;
	net_patient(c->wire.fd);
	c->heard = net_now_ms();
	rc = vbn_thread_start(&c->beat, "vbn-beat", beat_main, c);
	if (rc)
		return vbn_fail(rc, "cannot start a thread for heartbeats: %s",
				strerror(-rc));
	c->beating = true;
	return 0;
}

void live_stop(struct control *c)
{
	if (!c->beating)
		return;
	pthread_mutex_lock(&c->lock);
	c->resting = true;
	pthread_cond_broadcast(&c->rest);
	pthread_mutex_unlock(&c->lock);
	pthread_join(c->beat, NULL);
	c->beating = false;
}

/* ---- the store's ---- */

int live_timeout(const struct control *c)
{
	return c->beating && c->wire.fd >= 0 ? (int)beat_interval(c->dead_ms)
					     : -1;
}

void live_woke(struct control *c, int64_t slept, int64_t woke)
{
	int64_t least = beat_excused(c->dead_ms, woke);

	if (!c->beating || woke - slept <= 2 * beat_interval(c->dead_ms))
		return;
	c->stalled_ms = woke - slept;
	c->stalled_at = woke;
	if (c->heard < least)
		c->heard = least;
}

bool live_silent(const struct control *c)
{
	return c->beating && c->wire.fd >= 0 &&
	       net_now_ms() - c->heard >= beat_limit(c->dead_ms);
}

bool live_was_away(const struct control *c, char *why, size_t room)
{
	if (!c->beating || c->stalled_ms < beat_limit(c->dead_ms) ||
	    net_now_ms() - c->stalled_at >= 2 * (int64_t)c->dead_ms)
		return false;
	snprintf(why, room, "it did not run for %.1f s",
		 (double)c->stalled_ms / 1000);
	return true;
}

static void at_host(struct control *c, const char *what, char *why, size_t room)
{
	char host[64];

	net_name(c->wire.fd, true, host, sizeof(host));
	snprintf(why, room, "at %s: %s", host, what);
}

void live_give_up(struct control *c, char *why, size_t room)
{
	struct wire_frame *f;
	char what[64];

	snprintf(what, sizeof(what), "no heartbeat for %.1f s",
		 (double)(net_now_ms() - c->heard) / 1000);
	at_host(c, what, why, room);
	f = wire_frame(FRAME_GIVEUP, strlen(what));
	wire_put_bytes(f, what, strlen(what));
	pthread_mutex_lock(&c->lock);
	if (!wire_queue(&c->wire, f))
		(void)wire_flush(&c->wire);
	pthread_mutex_unlock(&c->lock);
}

void live_ended(struct control *c, int rc, char *why, size_t room)
{
	char what[80];

	snprintf(what, sizeof(what), "its connection %s%.60s",
		 rc ? "broke: " : "closed", rc ? strerror(-rc) : "");
	at_host(c, what, why, room);
}

/* ---- who is lost, and why ---- */

void live_keep_why(struct control *c, int rank, const char *why)
{
	pthread_mutex_lock(&c->lock);
	if (why[0] && !c->why[rank])
		c->why[rank] = strdup(why);
	pthread_mutex_unlock(&c->lock);
}

/* " (host b: no heartbeat for 4.4 s)" */
static void because(struct control *c, int rank, char *text, size_t room)
{
	text[0] = '\0';
	pthread_mutex_lock(&c->lock);
	if (c->why[rank])
		snprintf(text, room, " (%s)", c->why[rank]);
	pthread_mutex_unlock(&c->lock);
}

bool control_lost(struct control *c, int rank, char *why, size_t room)
{
	char text[WIRE_WHY_MAX + 4];

	if (atomic_load(&c->expelled)) {
		because(c, c->rank, text, sizeof(text));
		snprintf(why, room,
			 "the job has named rank %d, this one, dead%s", c->rank,
			 text);
		return true;
	}
	if (control_rank_dead(c, rank)) {
		because(c, rank, text, sizeof(text));
		snprintf(why, room, "rank %d has died%s", rank, text);
		return true;
	}
	/* Without the store nobody would learn of further deaths. */
	if (control_rank_dead(c, 0)) {
		because(c, 0, text, sizeof(text));
		snprintf(why, room,
			 "rank 0 has died, and with it the job's store%s",
			 text);
		return true;
	}
	return false;
}
