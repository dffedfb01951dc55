/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the measurements of verbena-perf share: the parties, how they meet,
 * how a turn of a measurement is described, where results go.
 *
 * Invariant: all ranks walk through the same sizes and turns in the same
 * order, so that they meet at every barrier. Rank 0 decides how many
 * iterations a turn has.
 */
#ifndef PERF_PERF_H
#define PERF_PERF_H

#include "clock.h"
#include "args.h"
#include "report.h"

#include <verbena/collectives.h>

#include <stdbool.h>

#define PERF_WAIT_MS  60000
#define PERF_NOTE     64 /* bytes that ranks tell each other when they meet */
#define PERF_RING_MAX 64 /* ranks of a ring of streams */

/* Spins between two looks at the clock and at whether the peer lives. */
#define PERF_SPINS 65536

/*
 * A turn: @n iterations. A latency method notes in posted[i] when iteration
 * i began, and in posted[n] when the last ended. A bandwidth method notes
 * when each operation was posted and completed, and in *end when all data has
 * landed; only a rank that streams does. Ticks.
 */
struct turn {
	size_t size, n;
	uint64_t seed; /* of the data, with --validate; no two turns' agree */
	uint64_t *posted, *completed, end;
};

/* A way to do a test: ours, or raw. */
struct method {
	const char *name;
	/* With --validate: fill the buffers; a meeting follows. */
	void (*prepare)(void *self, const struct turn *turn);
	/* A meeting follows. */
	int (*run)(void *self, struct turn *turn);
	/* With --validate: is what came right? */
	int (*check)(void *self, const struct turn *turn);
	/* When the contexts are closed. */
	void (*close)(void *self);
	void *self;
};

struct perf {
	struct perf_options opts;
	struct vbn_job *job;
	struct vbn_pool *pool;
	struct vbn_ctx *ctxs[PERF_QPS_MAX];
	struct vbn_ep *eps[PERF_QPS_MAX]; /* context i to the peer's i */
	size_t nctxs;
	struct vbn_ctx *ctx; /* the first */
	struct vbn_ep *ep;
	/* The next rank, and the one before: oneself in a job of one. */
	int rank, nranks, peer, from;
	bool polls_one;	    /* one context, without -e */
	bool target_drives; /* nothing lands unless the target progresses */
	unsigned notes;	    /* that came, of meetings */
	uint64_t events, sleeps; /* sleeps of several contexts at once */
	bool idle;		 /* the last sleep ended because nothing came */
	struct method methods[2];
	size_t nmethods;
	struct report report;
};

/* One line to stderr, "verbena-perf: "; returns @err. */
int perf_fail(int err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The same, of a failed call of the library's, which has said why. */
int perf_failed(int err, const char *what);
/* The same, of an operation that completed with an error. */
int perf_op_failed(const struct vbn_op *op);

/* ---- pair.c ---- */

/* Open the contexts and, in tests of the transport, connect them. */
int perf_open(struct perf *p);
void perf_close(struct perf *p);

/*
 * Meet the other ranks and exchange @len <= PERF_NOTE bytes each; sleeps while
 * it waits unless the target has to drive. @theirs: those of the rank before,
 * of the one before that, and so on, nranks - 1 in all. Alone: theirs = mine.
 */
int perf_meet(struct perf *p, const void *mine, void *theirs, size_t len);

/*
 * Sleep until something happens to any context, @timeout_ms at most; one
 * context alone is driven, too.
 */
void perf_sleep(struct perf *p, int timeout_ms);

/* Drive all contexts; with -e, sleep when there is nothing. */
static inline void perf_drive(struct perf *p)
{
	int events = 0;

	/* first, and short: raw's turn is short, too */
	if (p->polls_one) {
		p->events += (uint64_t)vbn_progress(p->ctx);
		return;
	}
	if (p->opts.events && p->nctxs == 1) {
		perf_sleep(p, 1000);
		return;
	}
	for (size_t i = 0; i < p->nctxs; i++)
		events += vbn_progress(p->ctxs[i]);
	p->events += (uint64_t)events;
	if (p->opts.events && events == 0)
		perf_sleep(p, 1000);
}

/*
 * Called at every turn of a loop that waits; once in PERF_SPINS (or when
 * a sleep was in vain) it sees whether there is still something to wait for. 0:
 * go on.
 */
struct perf_wait {
	unsigned spins;
	double until;
};
int perf_waiting_slow(struct perf *p, struct perf_wait *w);
static inline int perf_waiting(struct perf *p, struct perf_wait *w)
{
	if (++w->spins % PERF_SPINS && !p->idle)
		return 0;
	return perf_waiting_slow(p, w);
}

static inline int perf_go_on(struct perf *p, struct perf_wait *w)
{
	perf_drive(p);
	return perf_waiting(p, w);
}

/* Keys of the peer's @n buffers of @bytes, for ours. */
int perf_exchange_keys(struct perf *p, uint8_t *const *buffers, size_t n,
		       size_t bytes, struct vbn_rkey *theirs);

/* ---- who does what ---- */

/* Each rank streams to the next; between two that is both to the other. */
static inline bool perf_can_ring(const struct perf_options *o)
{
	return o->test->op == PERF_PUT && o->bidirectional && !o->raw;
}

/* Both ranks send and await in turns; else one posts and the other sits. */
static inline bool perf_ping_pong(const struct perf *p)
{
	enum perf_op op = p->opts.test->op;

	return p->nranks == 2 && op != PERF_GET && op != PERF_ATOMIC;
}

/* Whether this rank begins operations; and whether another does, to it. */
static inline bool perf_active(const struct perf *p)
{
	return p->rank == 0 || p->opts.bidirectional;
}

static inline bool perf_passive(const struct perf *p)
{
	return p->rank != 0 || p->nranks == 1 || p->opts.bidirectional;
}

/* ---- measure.c ---- */

/* What rank @rank sends in iteration (or lane) @i of a turn. */
static inline uint64_t perf_seed(const struct turn *t, size_t i, int rank)
{
	return (t->seed * PERF_TURN_MAX + i) * PERF_RING_MAX + (uint64_t)rank;
}

/* -EBADMSG and a line with the offset of the first wrong byte. */
int perf_compare(const struct perf *p, const uint8_t *data, size_t len,
		 uint64_t seed, size_t iteration);

/* The tests of the transport: ours with and without raw, by options. */
int perf_transport(struct perf *p);
/* Collectives. */
int perf_coll(struct perf *p);
/* What collectives are chosen by, into a file. */
int perf_tune(struct perf *p);

/*
 * Buffers of @bytes, for both ways. What they take is given back when the
 * contexts and the pool are closed, or with the process.
 */
int ours_lat_open(struct perf *p, struct method *m, size_t bytes);
int ours_bw_open(struct perf *p, struct method *m, size_t bytes);

#endif
