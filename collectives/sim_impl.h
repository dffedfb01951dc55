/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The simulator's inside: sim.c runs the events, sim_peer.c keeps what ranks
 * know of each other, sim_host.c shares out processors, sim_net.c prices
 * messages, sim_data.c holds and checks memory and does what steps compute.
 */
#ifndef VBN_SIM_IMPL_H
#define VBN_SIM_IMPL_H

#include "combine.h"
#include "exec.h"
#include "sim.h"
#include "sim_heap.h"

struct message {
	uint8_t src, dst;
	bool landed; /* in a landing slot */
	bool wide;
	bool sync; /* the source may be overwritten once it arrived */
	uint64_t src_off, dst_off, len, landing;
	uint64_t sum;		  /* of its source's bytes */
	struct exec_entry *entry; /* of a sync put, at the sender */
};

/* A landing slot: memory of just the message that is in it. */
struct landed {
	char *memory;
	uint64_t len;
	bool wide;
	bool waited; /* its wait is done, nothing has taken it yet */
};

enum { OPENED = 1, OPENED_OUTPUT = 2, OPENED_READ = 4 };

/* What a rank keeps on a peer. */
struct sim_peer {
	struct exec_peer exec; /* first: the executor's handle */
	struct sim_rank *rank;
	struct sim_peer *other; /* the peer's on us */
	int peer;
	/* As a sender: slots taken, granted; what the peer opened. */
	uint64_t landed, credits;
	uint64_t opened_len;
	uint8_t opened;
	bool blocked; /* a put of ours, or a read, waits for one of these */
	/* As a receiver. */
	uint8_t opening;
	bool greeted; /* a wait for a message of the peer's is done */
	bool awaited; /* a wait is ready to go */
	double last_arrival;
	/* Messages [first, end) of a ring, arrived ones first. */
	struct message *messages;
	uint64_t first, end, room, arrived;
	struct exec_slots slots;
	struct landed *landings; /* the slots */
};

struct interface {
	double send_free, receive_free;
};

/* Of a host that has more ranks. */
struct sim_processor {
	struct sim_rank *first;	 /* of its ranks, a ring by next */
	struct sim_rank *holder; /* that has something to do, or NULL: */
	struct sim_rank *last;	 /* whose turn began at since */
	double since;
	unsigned ranks;
};

struct leaf {
	double up_free, down_free;
	unsigned interfaces;
};

struct sim_rank {
	struct exec exec; /* first */
	struct sim *sim;
	int rank;
	bool direct, ended;
	bool due;   /* an EVENT_RUN will come, or it waits for a processor */
	bool rests; /* an EVENT_REST will come */
	bool called;
	struct sim_processor *processor; /* NULL: its own */
	struct sim_rank *next;		 /* whose turn comes next there */
	bool queues;			 /* due once that has no holder */
	struct interface *interface;
	double cpu_free, send_free; /* the latter with a seed */
	uint64_t sent, received, messages, read;
	unsigned fan_in;
	uint64_t room[4]; /* elements of each space */
	char *scratch;
	/* Peers by number, open addressing: a power of two, half empty. */
	struct sim_peer **peers;
	unsigned peer_count, peer_room;
};

struct sim {
	const struct sim_options *opts;
	struct sim_result *result;
	struct combine combine;
	bool is_wide;
	bool greets; /* of the algorithm */
	int garbage; /* a byte of it */
	double now;
	uint64_t random;
	struct heap heap;
	struct sim_rank *ranks;
	struct interface *interfaces;
	struct leaf *leaves;
	struct sim_processor *processors; /* NULL: each rank has its own */
	const void **contributions;	  /* of the reduce-all that ends */
	int failed; /* by a slot that can only be noticed later */
};

/* A step that takes time: until its end. */
struct sim_work {
	uint64_t sum;	     /* of what it reads of a peer */
	uint64_t landings[]; /* reduce-all: of each rank */
};

/* ---- sim.c ---- */

void sim_add_event(struct sim *sim, struct event event);
/* -EPROTO, having said why. @entry is the rank's step, or NULL. */
int sim_broken(const struct sim_rank *rank, const struct exec_entry *entry,
	       const char *what);
uint64_t sim_draw(struct sim *sim);
/* The time that something of @rank takes: as asked, or random with a tail. */
double sim_cost(struct sim *sim, const struct sim_rank *rank, double asked);
/* The rank's share of the shape. */
struct plan_shape sim_shape(const struct sim *sim, int rank);

static inline struct sim_rank *rank_of(struct exec *exec)
{
	return (struct sim_rank *)exec;
}

static inline struct sim_peer *peer_of(struct exec_peer *peer)
{
	return (struct sim_peer *)peer;
}

/* ---- sim_peer.c ---- */

/* Of a number in range; makes both sides' at first. NULL: no memory. */
struct sim_peer *sim_peer_get(struct sim_rank *rank, int number);
/* Number it; 0 or -ENOMEM. */
int sim_push_message(struct sim_peer *peer, const struct message *message);
void sim_free_peers(struct sim_rank *rank);

/* ---- sim_host.c ---- */

/* 0 or -ENOMEM. */
int sim_open_hosts(struct sim *sim, int hosts);
/* Whether the rank has a processor now; if not, an EVENT_RUN will come. */
bool sim_may_run(struct sim *sim, struct sim_rank *rank);
/* The rank has done all that it can do now, or will have in some time. */
void sim_rest(struct sim *sim, struct sim_rank *rank);
/* So much more work for the rank's processor: when it will be done. */
double sim_work(struct sim *sim, struct sim_rank *rank, double seconds);

/* ---- sim_net.c ---- */

/* Interfaces, leaf switches and hosts: 0, -ENOMEM or -EINVAL. */
int sim_open_net(struct sim *sim);
void sim_close_net(struct sim *sim);
/* A message of @bytes goes to the rank whose peer @there is. */
void sim_send(struct sim *sim, struct sim_peer *there, double bytes);
/* The rank has seen that a message has come of the peer @here. */
void sim_take(struct sim *sim, struct sim_peer *here);
/* When news of the rank's or the peer's, of no bytes, will be at the other. */
double sim_tell(struct sim *sim, const struct sim_peer *here);
/* EVENT_UP, EVENT_DOWN, EVENT_HEAD. */
void sim_travel(struct sim *sim, const struct event *event);

/* ---- sim_data.c ---- */

/* Limits of the spaces, and SCRATCH: 0 or -ENOMEM. */
int sim_open_memory(struct sim_rank *rank);
/* Whether all that a step touches exists. 0 or -EPROTO. */
int sim_check_step(struct sim_rank *rank, const struct exec_entry *entry);
/* A put leaves: note its source, spoil its destination. 0 or -errno. */
int sim_put_memory(struct sim_peer *there, struct message *message);
/* A message arrives: move it. */
int sim_arrive_memory(struct sim_peer *there, const struct message *message);
/* A wait for @message is done: nothing of it may have changed. */
int sim_wait_memory(struct sim_peer *here, const struct message *message,
		    const struct exec_entry *entry);
/* reduce, reduce_all, copy, copy_peer of the backend; wait: from landing. */
int sim_compute(struct exec *exec, struct exec_entry *entry);
/* EVENT_COMPUTED. */
int sim_computed(struct sim *sim, const struct event *event);

#endif
