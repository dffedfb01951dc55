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
	char *block; /* registered, not of a pool */
	struct vbn_mem *block_mem;
	size_t block_used;
	int block_users;
	int rank, n;
	bool shares;  /* all ranks map each other's memory */
	int failures; /* in the running case */
};

enum { WAIT_MS = 30000, RANKS_MOST = 8 };

/* Notes a failure with its place if @ok is false; returns @ok. */
bool expect(struct test *t, bool ok, const char *file, int line,
	    const char *what);
#define EXPECT(t, condition)                                                   \
	expect(t, condition, __FILE__, __LINE__, #condition)

/* Wait for all ranks by the job's fence, not by what is tested. */
void all_here(struct test *t);

/* ---- coll_support.c ---- */

/* Where a buffer is: the last two are at odd addresses. */
enum memory { POOL, HEAP, REGISTERED, ODD, ODD_POOL, MEMORIES };

/* Data between guards, which buffer_drop() checks. */
struct buffer {
	enum memory memory;
	char *block, *data;
	size_t bytes;
};

bool buffer_make(struct test *t, struct buffer *b, enum memory memory,
		 size_t bytes);
void buffer_drop(struct test *t, struct buffer *b);
enum { BUFFER_FILL = 0x77 }; /* what a new buffer is full of */

bool block_make(struct test *t);
void block_drop(struct test *t);

double now_ms(void);
int run(struct vbn_coll *coll); /* start and wait */
uint64_t hash(const void *data, size_t bytes);
struct vbn_comm *make_comm(struct test *t); /* of all; NULL: noted */

/* ---- coll_methods.c: which operation has which algorithm ---- */

enum operation {
	ALLREDUCE,
	REDUCE,
	BROADCAST,
	REDUCE_SCATTER,
	ALLGATHER,
	GATHER,
	SCATTER,
	ALLTOALL,
	BARRIER,
	OPERATIONS
};

/* An algorithm of an operation, and what it is not there for. */
struct method {
	enum operation operation;
	enum vbn_algorithm algorithm;
	bool in_order;
	bool power_of_two; /* of members only */
	bool mapped;	   /* where all share memory only */
	bool even;	   /* parts of one length only */
	bool apart;	   /* not in place */
};

int method_count(void);
const struct method *method_at(int i);
/* NULL: the operation does not have it. */
const struct method *method_find(enum operation operation,
				 enum vbn_algorithm algorithm);
bool reduces(enum operation operation);
const char *operation_name(enum operation operation);

/* How a method is asked for, as far as it matters to whether it is there. */
struct asked {
	int n;
	bool reproducible, in_place, uneven;
};
/* 0 or -EOPNOTSUPP: what init must give. */
int method_status(const struct test *t, const struct method *method,
		  const struct asked *asked);

/* ---- coll_spec.c: one call of any operation, and its reference ---- */

struct spec {
	enum operation operation;
	enum vbn_type type;
	enum vbn_reduction reduction;
	int root;
	bool in_place, by_null; /* said by NULL, where it can be */
	size_t count;
	/*
	 * v-variants: the n parts' lengths, for an alltoall those from member
	 * f to t at [f * n + t]; NULL: @count each. Places: displacements of
	 * the side that has n parts (alltoall: of the output, and
	 * in_places), or NULL.
	 */
	const size_t *lengths, *places, *in_places;
	struct vbn_coll_options opts;
	int rank, n;   /* in the communicator */
	unsigned salt; /* other data for another salt */
};

/*
 * Run it @rounds times, with buffers in @in and @out memory; compares all of
 * both buffers with the reference's. @want: what init must give.
 */
bool spec_check(struct test *t, struct vbn_comm *comm, struct spec *spec,
		enum memory in, enum memory out, int rounds, int want);

/* The persistent call on these buffers. */
int spec_init(struct vbn_comm *comm, const struct spec *spec, const void *in,
	      void *out, struct vbn_coll **coll);
/* Elements of the sides, whatever the root. */
size_t spec_in(const struct spec *spec);
size_t spec_out(const struct spec *spec);
/* Write what the side must hold before and after the call. */
void spec_fill_in(const struct spec *spec, char *in);
void spec_fill_out(const struct spec *spec, char *out);
/*
 * *to = ((*x[0] (+) *x[1]) (+) *x[2]) ..., of one element of each of @n
 * members, rounded once: what reproducible mode must give.
 */
void reference(enum vbn_type type, enum vbn_reduction reduction,
	       const void *const *x, int n, void *to);
/* VBN_USER's: exclusive or of all bytes; @arg: an int that counts calls. */
vbn_reduction_fn user_xor;

/* ---- coll_rows.c: pairwise covering ---- */

enum { FACTORS_MOST = 12, LEVELS_MOST = 160 };

struct rows {
	int factors;
	int levels[FACTORS_MOST];
	/* Whether level a of factor f goes with level b of factor g. */
	bool (*goes)(int f, int a, int g, int b);
	int first[FACTORS_MOST];
	unsigned turn;
	int lost; /* pairs that go, but for which no row was found */
	bool covered[LEVELS_MOST][LEVELS_MOST];
};

void rows_begin(struct rows *rows);
/* The next row; false once every pair that goes has been in one. */
bool rows_next(struct rows *rows, int row[FACTORS_MOST]);

/* ---- cases ---- */

/* coll_data.c: results */
void case_allreduce(struct test *t);
void case_large(struct test *t);
void case_huge(struct test *t);
void case_broadcast(struct test *t);
void case_barrier(struct test *t);
void case_tight(struct test *t);
void case_nothing(struct test *t);

/* coll_order.c: several communicators and calls */
void case_interleaved(struct test *t);
void case_in_flight(struct test *t);
void case_mixed_in_flight(struct test *t);
void case_late_in_flight(struct test *t);
void case_later_first(struct test *t);
void case_test_loop(struct test *t);
void case_run_ahead(struct test *t);
void case_last_call(struct test *t);

/* coll_thread.c: a progress thread */
void case_thread(struct test *t);
void case_thread_leaves(struct test *t);
void case_thread_sleeps(struct test *t);
void case_thread_aborts(struct test *t);
void case_thread_in_handler(struct test *t);

/* coll_matrix.c: operations by types, algorithms, ... */
void case_offered(struct test *t);
void case_matrix(struct test *t);
void case_blocking(struct test *t);

/* coll_parts.c: v-variants */
void case_parts(struct test *t);
void case_parts_differ(struct test *t);

/* coll_bits.c: bits of results */
void case_bits(struct test *t);
void case_reproducible(struct test *t);
void case_nan(struct test *t);
void case_average(struct test *t);
void case_user(struct test *t);

/* coll_group.c: communicators of parts, of other orders, many */
void case_groups(struct test *t);
void case_split(struct test *t);
void case_many_comms(struct test *t);
void case_before_creation(struct test *t);
void case_uncreated(struct test *t);
void case_leaks(struct test *t);

/* coll_fault.c: errors */
void case_arguments(struct test *t);
void case_environment(struct test *t);
void case_missing(struct test *t);
void case_late(struct test *t);
void case_freed_in_flight(struct test *t);
void case_context_closed(struct test *t);
void case_abort(struct test *t);
void case_in_callback(struct test *t);
void case_death(struct test *t);

/* coll_differ.c: members whose calls differ */
void case_count_differs(struct test *t);
void case_operation_differs(struct test *t);
void case_others_differ(struct test *t);
void case_root_differs(struct test *t);
void case_returned_early(struct test *t);

#endif
