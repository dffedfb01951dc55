/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulator's events, taken in the order of time, then of creation. */
#ifndef VBN_SIM_HEAP_H
#define VBN_SIM_HEAP_H

#include <stddef.h>
#include <stdint.h>

enum event_kind {
	EVENT_START,
	EVENT_ARRIVE,
	EVENT_CREDIT,
	EVENT_OPENED,
	EVENT_COMPUTED
};

struct event {
	double time;
	uint64_t order; /* the heap's */
	enum event_kind kind;
	struct sim_rank *rank;
	struct sim_peer *peer;	  /* arrive, credit, opened: of rank */
	struct exec_entry *entry; /* computed */
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
