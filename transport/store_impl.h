/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the store. store.c owns connections and the loop; store_shake.c the
 * handshake; store_ranks.c what a job is: joining, deaths; store_requests.c
 * what its ranks ask for; store_live.c who lives. All of it runs on the store's
 * thread, except for the stop request.
 *
 * A peer is never freed while events are being handled: it is doomed, and
 * reaped between two rounds of the loop.
 */
#ifndef VBN_STORE_IMPL_H
#define VBN_STORE_IMPL_H

#include "control_wire.h"
#include "store.h"
#include "store_kv.h"

#include <pthread.h>
#include <sys/queue.h>

/* How long a connection may take to prove itself, and then to join. */
#define STORE_HANDSHAKE_MS 5000

enum peer_state {
	PEER_GREETING, /* waits for the rank's greeting */
	PEER_PROOF,    /* waits for its proof */
	PEER_JOINING,  /* authenticated, waits for FRAME_JOIN */
	PEER_JOINED,   /* is a member; not in the list of pending */
	PEER_DRAIN,    /* refused: reads until the other side has closed */
};

struct peer {
	struct wire wire;
	enum peer_state state;
	bool local;    /* rank 0's own */
	bool proved;   /* it knows the secret */
	bool want_out; /* waits for room to write */
	bool dirty;    /* has something queued that this round is to write */
	bool mute;     /* writing has failed; reading finds the end */
	bool doomed;
	int rank;  /* of a member, or -1 */
	int named; /* the rank that it was: dead, the others are to be told */
	int64_t deadline;
	int64_t born;
	int64_t heard;		/* when something came last */
	char why[160];		/* its end, of a member */
	TAILQ_ENTRY(peer) link; /* pending, members or doomed */
	TAILQ_ENTRY(peer) dirty_link;
	struct wire_shake shake;
};

TAILQ_HEAD(peer_list, peer);

enum member_state { MEMBER_ABSENT, MEMBER_JOINED, MEMBER_LEFT, MEMBER_DIED };

struct member {
	enum member_state state;
	struct peer *peer; /* while joined */
	uint64_t fences;   /* calls */
	char host[WIRE_HOST_MAX + 1];
	bool has_card;
	uint8_t card[CONTROL_CARD];
};

struct fence_wait {
	struct fence_wait *next;
	int rank;
	uint64_t id, number;
};

/* Waits for the cards of ranks first to end - 1; those before next are there.
 */
struct card_wait {
	struct card_wait *next_wait;
	int rank;
	uint64_t id;
	uint32_t first, next, end;
};

struct store {
	pthread_t thread;
	int epoll_fd, wake_fd, listen_fd;
	uint8_t key[WIRE_KEY];
	struct peer_list pending, joined, doomed, dirty;
	unsigned npending;
	int64_t accept_again; /* NET_NEVER: accepting */
	bool crowded;	      /* paused until there is room */

	/* job */
	int nranks, njoined;
	int nothers; /* joined now, without rank 0 */
	struct member *members;
	bool started, failed;
	enum wire_refusal refusal; /* of a start that failed, and why */
	char why[500];
	int64_t start_deadline;
	uint32_t start_timeout_ms; /* of the rank whose deadline it is */
	int first_gone;		   /* rank, or -1 */
	uint32_t *left;		   /* ranks that left, to be told of */
	int nleft;
	int64_t left_at; /* when */
	struct kv *kv;
	uint64_t fences_done;
	int fence_arrived; /* ranks at fences_done + 1 or later */
	struct fence_wait *fence_waits;
	struct card_wait *card_waits;

	/* who lives */
	uint32_t dead_ms;
	int64_t live_at; /* when to look next; NET_NEVER: no heartbeats */
	int64_t beat_at;
	int64_t rested;			/* the end of the last round */
	int64_t stalled_ms, stalled_at; /* this thread did not run */

	/* refused connections, for the report on missing ranks */
	unsigned denied, foreign, strangers;
	char refused[160]; /* the last one that did not fit, "" */

	pthread_mutex_t lock; /* of what follows */
	bool stop;
	int64_t stop_deadline;
};

/* store.c: takes @frame in any case. */
void peer_send(struct store *s, struct peer *p, struct wire_frame *frame);
void peer_send_raw(struct store *s, struct peer *p, const void *data,
		   size_t len);
/*
 * Close it when this round is over; the job hears of a member's death, and of
 * p->why.
 */
void peer_doom(struct store *s, struct peer *p);
/* Send what is queued, then wait for the other side to close. */
void peer_drain(struct store *s, struct peer *p);

/* store_shake.c: one step of a handshake; false: not enough has come. */
bool store_shake(struct store *s, struct peer *p);

/* store_ranks.c: a frame of @p, which is PEER_JOINING or PEER_JOINED. */
void store_frame(struct store *s, struct peer *p, enum wire_type type,
		 struct wire_reader *r);
/* It is cut off: it has sent @what. */
void store_broken_rules(struct store *s, struct peer *p, const char *what);
/* Answer to FRAME_JOIN; the connection ends. */
void store_refuse(struct store *s, struct peer *p, enum wire_refusal refusal,
		  const char *why);
/* @rank has died, and @why, or it said goodbye. */
void store_gone(struct store *s, int rank, bool died, const char *why);
/* Tell @p that @rank, which may be itself, has died. */
void store_send_died(struct store *s, struct peer *p, int rank,
		     const char *why);
/* Tell of those that left now, not at s->left_at. */
void store_tell_left(struct store *s);
/* The start is over without success; everyone is told. */
void store_fail_start(struct store *s, enum wire_refusal refusal,
		      const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The start's deadline has passed. */
void store_start_timeout(struct store *s);
void store_free_ranks(struct store *s);

/* store_requests.c: a member's frame in a job that has started. */
void store_request(struct store *s, struct peer *p, enum wire_type type,
		   struct wire_reader *r);
/* Those who wait for all ranks wait in vain: one is gone. */
void store_fail_waits(struct store *s);
void store_free_waits(struct store *s);

/* store_live.c: the job has started. */
void store_live_start(struct store *s);
/* Before a round's events. */
void store_live_woke(struct store *s, int64_t woke);
/*
 * After them; @backlog: more wait to be read, so that silence proves nothing
 * yet.
 */
void store_live_round(struct store *s, bool backlog);
/* @p has given rank 0 up. */
void store_given_up(struct store *s, struct peer *p, struct wire_reader *r);

#endif
