/* SPDX-License-Identifier: BSD-3-Clause */
/* What the multi-process tests of the collectives share. */
#ifndef COLL_TEST_H
#define COLL_TEST_H

#include <verbena/collectives.h>

struct test {
	struct vbn_job *job;
	struct vbn_ctx *ctx;
	struct vbn_comm *world;
	struct vbn_pool *pool;
	int rank, n;
	int failures; /* in the running case */
};

enum { WAIT_MS = 30000 };

/* Notes a failure with its place if @ok is false; returns @ok. */
bool expect(struct test *t, bool ok, const char *file, int line,
	    const char *what);
#define EXPECT(t, condition)                                                   \
	expect(t, condition, __FILE__, __LINE__, #condition)

/* Wait for all ranks by the job's fence, not by what is tested. */
void all_here(struct test *t);

/* coll_data.c: results */
void case_allreduce(struct test *t);
void case_large(struct test *t);
void case_broadcast(struct test *t);
void case_barrier(struct test *t);
void case_bits(struct test *t);
void case_groups(struct test *t);
void case_interleaved(struct test *t);
void case_in_flight(struct test *t);
void case_many_comms(struct test *t);
void case_tight(struct test *t);
void case_last_call(struct test *t);

/* coll_fault.c: errors */
void case_arguments(struct test *t);
void case_missing(struct test *t);
void case_late(struct test *t);
void case_count_differs(struct test *t);
void case_operation_differs(struct test *t);
void case_returned_early(struct test *t);
void case_freed_in_flight(struct test *t);
void case_context_closed(struct test *t);
void case_death(struct test *t);

#endif
