/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the measurements of collectives share: what is measured, a result, and
 * how it is shown.
 */
#ifndef PERF_COLL_H
#define PERF_COLL_H

#include "coll_loop.h"
#include "coll_values.h"
#include "perf.h"

/* With computing in between: seconds; and the part of the call it hides. */
struct coll_overlap {
	double alone, computing, both;
	double hidden; /* 0 to 1 */
};

/* One size. */
struct coll_result {
	struct coll_shape shape;
	size_t bytes; /* of the larger buffer */
	size_t calls;
	double seconds; /* of one call, of the slowest rank */
	double wrong;	/* elements, of all ranks */
	/* With --overlap: without a progress thread, and with one. */
	struct coll_overlap overlap[2];
};

/* A collective that is timed; rooted ones have root 0. */
struct coll_run {
	struct vbn_comm *comm;
	struct vbn_coll *coll;
	struct coll_shape shape; /* of the communicator's ranks */
	enum vbn_type type;
	enum vbn_reduction reduction;
	void *in, *out;
	bool meets; /* the ranks meet after each call */
};

/* ---- coll.c ---- */

/* Prepare run->coll; 0 or the library's error. */
int coll_run_init(struct coll_run *run, const struct vbn_coll_options *opts);

/* The loop that times it. */
struct coll_loop coll_run_loop(struct coll_run *run);

/* ---- coll_overlap.c ---- */

/* @call: the loop of @run's call alone. Fills r->seconds, calls, overlap. */
int coll_overlap_time(struct perf *p, struct coll_run *run,
		      const struct coll_loop *call, struct coll_result *r);

/* ---- coll_report.c: does nothing but on rank 0 ---- */

void coll_heading(struct perf *p);
void coll_report(struct perf *p, const struct coll_result *r);

#endif
