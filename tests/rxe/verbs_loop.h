/* SPDX-License-Identifier: BSD-3-Clause */
/* What verbs_loop's parts share. */
#ifndef TESTS_VERBS_LOOP_H
#define TESTS_VERBS_LOOP_H

#include "pair.h"

struct loop_test {
	const char *name;
	void (*run)(struct bench *bench);
};

/* Run those whose name holds @only (NULL: all). Exits 1 at a failure. */
void loop_run(struct bench *bench, const struct loop_test *tests, size_t n,
	      const char *only);

/* How many have passed so far. */
unsigned loop_passed(void);

/* A put and a get of @len bytes between the regions, through @side. */
void loop_one_size(struct bench *bench, struct side *side, struct region *src,
		   struct region *dst, size_t len);

extern const struct loop_test loop_message_tests[];
extern const size_t loop_message_count;
extern const struct loop_test loop_lane_tests[];
extern const size_t loop_lane_count;
extern const struct loop_test loop_fault_tests[];
extern const size_t loop_fault_count;

#endif
