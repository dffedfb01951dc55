/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a conformance case works with. Every case has a context, a pool and an
 * endpoint of its own, so that a failure leaves nothing behind for the next.
 *
 * Invariants:
 * - All ranks run the same cases in the same order.
 * - What a case takes by t_alloc(), t_buffer() or t_context() lives until
 *   after its contexts are closed: no operation outlives its memory.
 * - Everything that waits has a deadline; a failed check ends the case on
 *   this rank, and the peer learns of it at its next barrier.
 */
#ifndef CONFORMANCE_HARNESS_H
#define CONFORMANCE_HARNESS_H

#include <verbena/transport.h>

#include <stdbool.h>

#define WAIT_MS 60000 /* for what must happen; a case's own bounds are less */
#define GUARD	64
/* That often in a row, -EAGAIN is for lack of room, and no injected fault. */
#define AGAIN_MOST 8

enum outcome { PASSED, FAILED, SKIPPED };

struct test;

struct test_case {
	const char *name;
	void (*run)(struct test *t);
	size_t size;  /* 0 or the size under test */
	int ranks;    /* 0 means 2 */
	int deadline; /* seconds, 0 means 120 */
};

enum memory { POOL, REGISTERED, UNREGISTERED };

/* A window of memory between two guards. */
struct buffer {
	uint8_t *block; /* as allocated */
	uint8_t *data;
	size_t len;
	enum memory kind;
	struct vbn_mem *mem;
	struct vbn_rkey rkey; /* of [data, data + len), if len > 0 */
	struct buffer *next;
};

#define CONTEXTS_MAX 8
#define CASE_ENDS    64

struct test {
	const struct test_case *tc;
	struct vbn_job *job;
	struct vbn_ctx *ctx;
	struct vbn_ep *ep;	/* to the peer, connected */
	struct vbn_pool *pool_; /* by t_pool() */
	int rank, nranks, peer; /* peer: the other of ranks 0 and 1 */
	int peer_index;		/* its context's */
	unsigned serial;	/* of the case */
	unsigned exchanges;	/* made in the case so far */
	bool peer_failed;
	enum outcome outcome;
	char why[400];
	void **allocations;
	size_t nallocations;
	struct buffer *buffers;
	struct vbn_ctx *contexts[CONTEXTS_MAX]; /* further ones */
	int ncontexts;
};

/* Seconds since some point; the same clock in all processes of a host. */
double now(void);
void sleep_ms(int ms);
/* Processor time of this thread, seconds. */
double thread_cpu(void);

/* ---- the run of a case ---- */

void t_begin(struct test *t);
void t_end(struct test *t);

/* Record the first failure; returns @ok. */
bool t_check(struct test *t, bool ok, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* t_check() that @rc is 0; says @what, the error, and vbn_error(). */
bool t_ok(struct test *t, int rc, const char *what);
/* t_check() that @rc is @want. */
bool t_is(struct test *t, int rc, int want, const char *what);
void t_skip(struct test *t, const char *why);
/* Name of an errno, negative or not: "-EAGAIN", "0". */
const char *err_name(int err);

/* Zeroed. Never NULL: ends the process when memory is out. */
void *t_alloc(struct test *t, size_t size);
struct vbn_pool *t_pool(struct test *t);
struct buffer *t_buffer(struct test *t, enum memory kind, size_t len);
/* Give back early, which deregisters. No operation may use it. */
void t_release(struct test *t, struct buffer *buf);
bool t_guards(struct test *t, const struct buffer *buf);
/* Whether the provider takes any local memory as it is: nothing to stage. */
bool t_any_local(const struct test *t);
/* A further context, closed at the end. NULL after a failure. */
struct vbn_ctx *t_context(struct test *t);

void fill(void *data, size_t len, unsigned seed);
/* Index of the first byte that differs from the pattern, or len. */
size_t differs(const void *data, size_t len, unsigned seed);
bool t_pattern(struct test *t, const void *data, size_t len, unsigned seed,
	       const char *what);

/*
 * Exchange @len bytes with the peer through the job's store, driving the
 * case's context meanwhile. Thus a barrier, too. @theirs may be NULL.
 */
bool t_exchange(struct test *t, const void *mine, void *theirs, size_t len);
bool t_barrier(struct test *t);
/* The same without driving the context. */
bool t_barrier_still(struct test *t);
bool t_exchange_rkey(struct test *t, const struct vbn_rkey *mine,
		     struct vbn_rkey *theirs);
/* A second context of the peer's: its index. */
bool t_exchange_index(struct test *t, struct vbn_ctx *mine, int *theirs);

/* ---- operations, repeated while -EAGAIN, at most WAIT_MS ---- */

struct post {
	struct vbn_ep *ep;
	struct vbn_op *op;
	const struct vbn_rkey *rkey;
	uint64_t offset;
	unsigned flags;
};

int put(struct post p, const void *local, size_t len);
int put_notify(struct post p, const void *local, size_t len, unsigned channel,
	       uint32_t value);
int get(struct post p, void *local, size_t len);
int fetch_add(struct post p, uint64_t *result, uint64_t add);
int compare_swap(struct post p, uint64_t *result, uint64_t compare,
		 uint64_t swap);
int notify(struct vbn_ep *ep, struct vbn_op *op, unsigned channel,
	   uint32_t value);
int send_to(struct vbn_ep *ep, struct vbn_op *op, const void *buf, size_t len);
int recv_from(struct vbn_ep *ep, struct vbn_op *op, void *buf, size_t len);
int flush(struct vbn_ep *ep, struct vbn_op *op);
int message(struct vbn_ep *ep, unsigned channel, const void *data, size_t len);

/*
 * Tell the loops above which context drives an endpoint; for the calling
 * thread. t_begin() and t_endpoint() do it.
 */
void drives(struct vbn_ep *ep, struct vbn_ctx *ctx);
/* Open, connect and drives(). NULL after a failure. */
struct vbn_ep *t_endpoint(struct test *t, struct vbn_ctx *ctx, int rank,
			  int index);

/* Wait for completion, and check that the status is 0. */
bool t_wait(struct test *t, struct vbn_op *op, const char *what);
/* Flush the case's endpoint and wait. */
bool t_flush(struct test *t);
/* Drive until *@counter >= @target. */
bool t_count(struct test *t, const int *counter, int target, const char *what);
/* Drive for some time. */
void t_drive(struct test *t, int ms);

/*
 * Count completions of many operations: done increments the count that arg
 * points to.
 */
void count_done(struct vbn_op *op);

/* ---- the cases ---- */

struct cases {
	const struct test_case *cases;
	size_t count;
};

extern const struct cases size_cases, atomic_cases, order_cases, pressure_cases,
	message_cases, sendrecv_cases, error_cases, wait_cases, context_cases,
	job_cases, pool_cases, map_cases, close_cases, death_cases;

#endif
