/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulator's events, taken in the order of time, then of creation. */
#ifndef VBN_SIM_HEAP_H
#define VBN_SIM_HEAP_H

#include <stddef.h>
#include <stdint.h>

enum event_kind {
	EVENT_START,
	EVENT_UP,     /* a message reaches its leaf's way up */
	EVENT_DOWN,   /* ... the other leaf's way down */
	EVENT_HEAD,   /* ... its receiver's interface */
	EVENT_ARRIVE, /* all of it is there */
	EVENT_SENT,   /* its sender knows */
	EVENT_CREDIT,
	EVENT_OPENED,
	EVENT_COMPUTED,
	EVENT_REST, /* the rank has done what it had to do */
	EVENT_RUN   /* after other events of the same time, or of a switch */
};

struct event {
	double time;
	uint64_t order; /* the heap's */
	enum event_kind kind;
	struct sim_rank *rank;
	struct sim_peer *peer;	  /* of rank; not computed, start, sent */
	struct exec_entry *entry; /* computed, sent */
	double bytes;		  /* up, down, head */
	uint64_t len;		  /* opened: of messages into landing */
	uint8_t opened;		  /* opened: what */
	struct sim_work *work;	  /* computed: to be freed */
};

struct heap {
	struct event *events;
	size_t count, room;
	uint64_t order;
};

/* 0 or -ENOMEM. */
int heap_add(struct heap *heap, const struct event *event);
/* Of a heap that is not empty. */
struct event heap_take(struct heap *heap);

#endif
