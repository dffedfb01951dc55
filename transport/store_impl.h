/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Inside the store. store.c owns connections up to the end of the handshake
 * and the loop; store_ranks.c what a job is: joining, requests, deaths. All of
 * it runs on the store's thread, except for the stop request.
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
	bool want_out; /* waits for room to write */
	bool mute;     /* writing has failed; reading finds the end */
	bool doomed;
	int rank; /* of a member, or -1 */
	int64_t deadline;
	TAILQ_ENTRY(peer) link; /* pending, members or doomed */
	uint8_t rank_nonce[WIRE_NONCE], store_nonce[WIRE_NONCE];
};

TAILQ_HEAD(peer_list, peer);

enum member_state { MEMBER_ABSENT, MEMBER_JOINED, MEMBER_LEFT, MEMBER_DIED };

struct member {
	enum member_state state;
	struct peer *peer; /* while joined */
	uint64_t fences;   /* calls */
};

struct fence_wait {
	struct fence_wait *next;
	int rank;
	uint64_t id, number;
};

struct store {
	pthread_t thread;
	int epoll_fd, wake_fd, listen_fd;
	uint8_t key[WIRE_KEY];
	struct peer_list pending, joined, doomed;
	unsigned npending;
	int64_t accept_again; /* NET_NEVER: accepting */

	/* job */
	int nranks, njoined;
	int nothers; /* joined now, without rank 0 */
	struct member *members;
	bool started, failed;
	enum wire_refusal refusal; /* of a start that failed, and why */
	char why[440];
	int64_t start_deadline;
	uint32_t start_timeout_ms; /* of the rank whose deadline it is */
	int first_gone;		   /* rank, or -1 */
	struct kv *kv;
	uint64_t fences_done;
	int fence_arrived; /* ranks at fences_done + 1 or later */
	struct fence_wait *fence_waits;

	/* refused connections, for the report on missing ranks */
	unsigned denied, foreign, strangers;
	char refused[160]; /* the last one that did not fit, "" */

	pthread_mutex_t lock; /* of what follows */
	bool stop;
	int64_t stop_deadline;
};

/* store.c: takes @frame in any case. */
void peer_send(struct store *s, struct peer *p, struct wire_frame *frame);
/* Close it when this round is over; the job hears of a member's death. */
void peer_doom(struct store *s, struct peer *p);
/* Send what is queued, then wait for the other side to close. */
void peer_drain(struct store *s, struct peer *p);

/* store_ranks.c: a frame of @p, which is PEER_JOINING or PEER_JOINED. */
void store_frame(struct store *s, struct peer *p, enum wire_type type,
		 struct wire_reader *r);
/* Answer to FRAME_JOIN; the connection ends. */
void store_refuse(struct store *s, struct peer *p, enum wire_refusal refusal,
		  const char *why);
/* @rank's connection has ended, or it said goodbye. */
void store_gone(struct store *s, int rank, bool died);
/* The start is over without success; everyone is told. */
void store_fail_start(struct store *s, enum wire_refusal refusal,
		      const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The start's deadline has passed. */
void store_start_timeout(struct store *s);
void store_free_ranks(struct store *s);

#endif
