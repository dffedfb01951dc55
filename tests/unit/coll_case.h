/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One collective call of all ranks in the simulator, with data, and whether
 * every rank got what it should.
 */
#ifndef VBN_TESTS_COLL_CASE_H
#define VBN_TESTS_COLL_CASE_H

#include "sim.h"

enum coll_parts {
	COLL_EVEN,   /* no layout */
	COLL_UNEVEN, /* some empty, gaps between, not in order */
	COLL_LONELY, /* only the root's is not empty */
	COLL_PARTS
};

enum coll_hosts {
	COLL_HOST_EACH,
	COLL_HOST_ONE,
	COLL_HOST_PAIRS,
	COLL_HOST_MIXED, /* sizes differ, ranks of a host are not neighbours */
	COLL_HOSTS
};

enum coll_values {
	COLL_EXACT,   /* sums are exact in any order */
	COLL_ROUNDED, /* they are not: in_order gives one, others agree */
};

struct coll_case {
	struct plan_shape shape;      /* without layout and topology */
	const struct plan_algo *algo; /* in place of the shape's, or NULL */
	enum vbn_type type;
	enum vbn_reduction reduction;
	bool wire16;
	enum coll_parts parts;
	enum coll_hosts hosts;
	enum coll_values values;
	unsigned window, slots;
	bool direct, warm;
	uint64_t seed;
};

bool coll_reduces(enum plan_operation operation);
bool coll_has_layout(enum plan_operation operation);
bool coll_has_root(enum plan_operation operation);

/* Whether there is such a plan, for such a call. */
bool coll_case_exists(const struct coll_case *c);

/* All that plan_find() finds. */
void coll_for_all(void (*fn)(enum plan_operation operation,
			     enum plan_algorithm algorithm,
			     const struct plan_algo *algo));

/*
 * 0: right; what sim_run() returns, or -EBADMSG for a wrong result. @why
 * gets what was wrong and the case.
 */
int coll_case_run(const struct coll_case *c, char *why, size_t room);

#endif
