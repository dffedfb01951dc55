/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ends of a provider's connections in one process, over the mock core,
 * for the tests of a provider's table.
 */
#ifndef TESTS_PAIR_H
#define TESTS_PAIR_H

#include "core_mock.h"

#include <stdio.h>
#include <stdlib.h>

/* Fails the program, with the line and the last error. */
#define CHECK(cond)                                                            \
	do {                                                                   \
		if (!(cond)) {                                                 \
			fprintf(stderr, "%s:%d: failed: %s (error: %s)\n",     \
				__FILE__, __LINE__, #cond, vbn_error());       \
			exit(1);                                               \
		}                                                              \
	} while (0)

/* A context of the provider's. */
struct end {
	struct vbn_ctx core;
	void *pctx;
	struct blob address;
};

/* A connection's side. */
struct side {
	struct vbn_ep ep;
	struct end *end;
};

struct region {
	struct vbn_mem mem;
	void *handle;
	struct blob announce;
};

/* The provider's part of the job, shared by all ends. */
struct bench {
	const struct provider *ops;
	void *pjob;
	struct provider_caps caps;
	uint64_t generation;
	struct end a, b;
};

void bench_open(struct bench *bench, const struct provider *ops);
void bench_close(struct bench *bench);
void end_open(struct bench *bench, struct end *end);
void end_close(struct bench *bench, struct end *end);
/* Progress both ends once. Returns the events. */
int bench_progress(struct bench *bench);
/* Progress until @op is over, at most @ms. Returns its status. */
int bench_wait(struct bench *bench, struct vbn_op *op, int ms);

void region_open(struct bench *bench, struct region *region, size_t len,
		 unsigned access);
void region_close(struct bench *bench, struct region *region);
/* Fill with bytes that depend on @seed; check them. */
void region_fill(struct region *region, size_t len, unsigned seed);
int region_same(const struct region *region, size_t len, unsigned seed);

/* Connect without attaching. */
void pair_make(struct bench *bench, struct side *x, struct end *xend,
	       struct side *y, struct end *yend);
void side_attach(struct side *side);
void pair_connect(struct bench *bench, struct side *x, struct end *xend,
		  struct side *y, struct end *yend);
void self_connect(struct bench *bench, struct side *x, struct end *end);
void side_close(struct side *side, int status);

/* Posts that progress on -EAGAIN. */
int side_put(struct bench *bench, struct side *side, struct vbn_op *op,
	     const struct region *from, size_t len, const struct region *to,
	     bool notify, uint32_t imm, bool more);
int side_get(struct bench *bench, struct side *side, struct vbn_op *op,
	     const struct region *into, size_t len, const struct region *from);

double now_us(void);

#endif
