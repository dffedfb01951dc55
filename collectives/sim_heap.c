/* SPDX-License-Identifier: BSD-3-Clause */
/* A binary heap of events: none is earlier than its parent. */
#include "sim_heap.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

static bool earlier(const struct event *a, const struct event *b)
{
	return a->time < b->time || (a->time == b->time && a->order < b->order);
}

int heap_add(struct heap *heap, const struct event *event)
{
	struct event new = *event;
	size_t i = heap->count;

	if (i == heap->room) {
		size_t room = heap->room ? 2 * heap->room : 256;
		struct event *events =
			realloc(heap->events, room * sizeof(*events));

		if (!events)
			return -ENOMEM;
		heap->events = events;
		heap->room = room;
	}
	heap->count++;
	new.order = heap->order++;
	while (i > 0 && earlier(&new, &heap->events[(i - 1) / 2])) {
		heap->events[i] = heap->events[(i - 1) / 2];
		i = (i - 1) / 2;
	}
	heap->events[i] = new;
	return 0;
}

struct event heap_take(struct heap *heap)
{
	struct event first = heap->events[0];
	struct event last = heap->events[--heap->count];
	size_t i = 0, child;

	for (; (child = 2 * i + 1) < heap->count; i = child) {
		if (child + 1 < heap->count &&
		    earlier(&heap->events[child + 1], &heap->events[child]))
			child++;
		if (!earlier(&heap->events[child], &last))
			break;
		heap->events[i] = heap->events[child];
	}
	heap->events[i] = last;
	return first;
}
