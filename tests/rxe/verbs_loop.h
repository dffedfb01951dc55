/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two halves of verbs_loop share: tests of data, and of faults. */
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

extern const struct loop_test loop_fault_tests[];
extern const size_t loop_fault_count;

#endif
