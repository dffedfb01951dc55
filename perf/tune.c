/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tuning: the model's parameters, from small measurements of pairs of ranks,
 * and, of each operation and size, the fastest algorithm among all ranks: the
 * best, and of operations that reduce also the best that is reproducible.
 *
 * All ranks decide by the same figures (the slowest rank's), so they go
 * through the same measurements. Each is made three times, the algorithms
 * taking turns; the shortest counts. After each call of a rooted operation the
 * ranks meet, or the root would be timed alone; the barrier is in the figure.
 */
#include "tune.h"
#include "coll.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PAGE	 4096
#define LARGEST	 ((size_t)16 << 20)
#define PASSES	 3
#define SHORTEST 1e-3 /* seconds of a measurement at least */
/* The loop's time with its warm-up, over what it is asked for. */
#define LOOP_MORE 1.7
/* From this size on chunks are tried; and an algorithm that takes so many
   times the best's time is left out of larger sizes. */
#define LARGE	 ((size_t)256 << 10)
#define HOPELESS 8
/* What a chunk must gain to be written down. */
#define GAIN 0.97

static const size_t sizes[] = {
	8,	  64,	     512,	2 << 10, 8 << 10,
	32 << 10, 128 << 10, 512 << 10, 2 << 20, LARGEST,
};
static const size_t chunks[] = {32 << 10, 64 << 10, 128 << 10, 256 << 10};

enum { SIZES = sizeof(sizes) / sizeof(*sizes) };
enum { CHUNKS = sizeof(chunks) / sizeof(*chunks) };

static const struct operation {
	enum coll_op op;
	const char *name;
	bool reduces, rooted;
} operations[] = {
	{COLL_ALLREDUCE, "allreduce", true, false},
	{COLL_REDUCE, "reduce", true, true},
	{COLL_BROADCAST, "broadcast", false, true},
	{COLL_REDUCE_SCATTER, "reduce-scatter", true, false},
	{COLL_ALLGATHER, "allgather", false, false},
	{COLL_GATHER, "gather", false, true},
	{COLL_SCATTER, "scatter", false, true},
	{COLL_ALLTOALL, "alltoall", false, false},
};

enum { OPERATIONS = sizeof(operations) / sizeof(*operations) };

/* An algorithm of an operation. */
struct candidate {
	bool exists, in_order, hopeless;
	double seconds; /* at this size */
};

struct tuner {
	struct perf *perf;
	struct coll_run run;
	struct tune_params params;
	struct tune_file file; /* of rank 0 */
	int hosts;
	double begun;
	size_t cells, done; /* measurements, over all operations and sizes */
	struct candidate of[OPERATIONS][VBN_ALGORITHMS];
};

/* ---- one measurement ---- */

static int prepare(struct coll_run *run, enum vbn_algorithm algorithm,
		   size_t chunk, bool in_order)
{
	const struct vbn_coll_options opts = {
		.size = sizeof(opts),
		.algorithm = algorithm,
		.chunk = chunk,
		.reproducible = in_order,
	};

	return coll_run_init(run, &opts);
}

int tune_shorten(struct coll_run *run, enum vbn_algorithm algorithm,
		 size_t chunk, double for_seconds, double *seconds)
{
	struct coll_loop loop = coll_run_loop(run);
	double took;
	size_t calls;
	int rc = prepare(run, algorithm, chunk, false);

	if (rc != 0)
		return rc;
	loop.seconds = for_seconds > SHORTEST ? for_seconds : SHORTEST;
	rc = coll_loop_time(&loop, &took, &calls);
	vbn_coll_free(run->coll);
	if (rc == 0 && (*seconds == 0 || took < *seconds))
		*seconds = took;
	return rc;
}

void tune_shape(struct coll_run *run, enum coll_op op, size_t bytes)
{
	run->shape = coll_shape_of(op, vbn_comm_rank(run->comm),
				   vbn_comm_size(run->comm),
				   bytes / vbn_type_bytes(run->type));
}

static size_t bytes_of(const struct coll_run *run)
{
	const struct coll_shape *s = &run->shape;

	return (s->in > s->out ? s->in : s->out) * vbn_type_bytes(run->type);
}

/* ---- algorithms ---- */

/* On one host, or with a rank on each, it is one of the others. */
static bool is_another_name(const struct tuner *t, enum vbn_algorithm algorithm)
{
	return algorithm == VBN_ALGORITHM_HIERARCHICAL &&
	       (t->hosts == 1 || t->hosts == t->perf->nranks);
}

/* Which there are, among these ranks. */
static int find_candidates(struct tuner *t, const struct operation *op,
			   struct candidate of[])
{
	tune_shape(&t->run, op->op, LARGEST);
	for (int a = VBN_ALGORITHM_AUTO + 1; a < VBN_ALGORITHMS; a++) {
		enum vbn_algorithm algorithm = (enum vbn_algorithm)a;
		int rc = is_another_name(t, algorithm)
				 ? -EOPNOTSUPP
				 : prepare(&t->run, algorithm, 0, false);

		of[a].exists = rc == 0;
		if (rc == -EOPNOTSUPP)
			continue;
		if (rc != 0)
			return rc;
		vbn_coll_free(t->run.coll);
		t->cells += SIZES;
		if (!op->reduces)
			continue;
		rc = prepare(&t->run, algorithm, 0, true);
		of[a].in_order = rc == 0;
		if (rc == 0)
			vbn_coll_free(t->run.coll);
		else if (rc != -EOPNOTSUPP)
			return rc;
	}
	return 0;
}

/* Seconds for each measurement that is left; the same on all ranks. */
static int share_time(struct tuner *t, double *each)
{
	double gone = perf_now() - t->begun, most;
	struct coll_loop loop = coll_run_loop(&t->run);
	int rc = loop.largest(loop.self, gone, &most);
	double left = (double)t->perf->opts.seconds - most;
	size_t cells = t->cells > t->done ? t->cells - t->done : 1;

	*each = left / (double)cells / LOOP_MORE;
	return rc;
}

static int time_all(struct tuner *t, struct candidate of[], double each)
{
	int rc = 0;

	for (int pass = 0; pass < PASSES; pass++)
		for (int a = 0; a < VBN_ALGORITHMS && rc == 0; a++) {
			if (!of[a].exists || of[a].hopeless)
				continue;
			if (pass == 0)
				of[a].seconds = 0;
			rc = tune_shorten(&t->run, (enum vbn_algorithm)a, 0,
					  each / PASSES, &of[a].seconds);
		}
	return rc;
}

/* The fastest, or the fastest in order; VBN_ALGORITHM_AUTO: none. */
static enum vbn_algorithm best_of(const struct candidate of[], bool in_order)
{
	int best = VBN_ALGORITHM_AUTO;

	for (int a = VBN_ALGORITHM_AUTO + 1; a < VBN_ALGORITHMS; a++)
		if (of[a].exists && !of[a].hopeless &&
		    (of[a].in_order || !in_order) &&
		    (best == VBN_ALGORITHM_AUTO ||
		     of[a].seconds < of[best].seconds))
			best = a;
	return (enum vbn_algorithm)best;
}

static void give_up_on(struct tuner *t, struct candidate of[], double best,
		       size_t sizes_left)
{
	for (int a = 0; a < VBN_ALGORITHMS; a++) {
		if (!of[a].exists || of[a].hopeless ||
		    of[a].seconds < HOPELESS * best)
			continue;
		of[a].hopeless = true;
		t->cells -= sizes_left;
	}
}

/* What the others took, for who reads the file. */
static void note_all(struct tuner *t, const struct candidate of[])
{
	for (int a = 0; a < VBN_ALGORITHMS; a++)
		if (of[a].exists && !of[a].hopeless)
			tune_file_note(&t->file, (enum vbn_algorithm)a,
				       of[a].seconds);
	tune_file_note(&t->file, VBN_ALGORITHM_AUTO, 0);
}

/* The line of an algorithm at this size, with its best chunk. */
static int find_chunk(struct tuner *t, double each, struct tune_line *line)
{
	int rc = 0;

	for (size_t i = 0; i < CHUNKS && line->bytes >= LARGE && rc == 0; i++) {
		double seconds = 0;

		rc = tune_shorten(&t->run, line->algorithm, chunks[i], each,
				  &seconds);
		if (rc != 0 || seconds > GAIN * line->seconds)
			continue;
		line->seconds = seconds;
		line->chunk = chunks[i];
	}
	return rc;
}

static int tune_size(struct tuner *t, const struct operation *op,
		     struct candidate of[], size_t size)
{
	struct tune_line line = {.operation = op->name,
				 .n = t->perf->nranks,
				 .bytes = bytes_of(&t->run)};
	enum vbn_algorithm best, in_order;
	double each;
	int rc = share_time(t, &each);

	if (rc == 0)
		rc = time_all(t, of, each);
	if (rc != 0)
		return rc;
	best = best_of(of, false);
	in_order = op->reduces ? best_of(of, true) : best;
	for (int i = 0; i < 2 && rc == 0; i++) {
		line.algorithm = i == 0 ? best : in_order;
		if (line.algorithm == VBN_ALGORITHM_AUTO ||
		    (i == 1 && in_order == best))
			continue;
		line.chunk = 0;
		line.seconds = of[line.algorithm].seconds;
		rc = find_chunk(t, each, &line);
		if (rc == 0 && t->perf->rank == 0)
			tune_file_line(&t->file, &line);
	}
	if (rc == 0 && t->perf->rank == 0)
		note_all(t, of);
	if (line.bytes >= LARGE)
		give_up_on(t, of, of[best].seconds, SIZES - size - 1);
	return rc;
}

static int tune_operation(struct tuner *t, size_t o)
{
	size_t before = 0;
	int rc = 0;

	t->run.meets = operations[o].rooted;
	if (t->perf->rank == 0)
		perf_fail(0, "tune: %s, %.0f s so far", operations[o].name,
			  perf_now() - t->begun);
	for (size_t s = 0; s < SIZES && rc == 0; s++) {
		tune_shape(&t->run, operations[o].op, sizes[s]);
		/* A part has an element at least: sizes may come to one. */
		if (bytes_of(&t->run) != before)
			rc = tune_size(t, &operations[o], t->of[o], s);
		before = bytes_of(&t->run);
		for (int a = 0; a < VBN_ALGORITHMS; a++)
			t->done += t->of[o][a].exists && !t->of[o][a].hopeless;
	}
	return rc;
}

/* ---- all together ---- */

/* What would say otherwise than what is measured. */
static void forget_environment(void)
{
	unsetenv("VBN_COLL_ALGO");
	unsetenv("VBN_COLL_CHUNK");
	unsetenv("VBN_COLL_REPRODUCIBLE");
	unsetenv("VBN_COLL_WIRE16");
	unsetenv("VBN_COLL_TUNING");
}

/* Touched, and of numbers, or sums would be of infinities. */
static void *buffer(struct perf *p)
{
	void *b = vbn_pool_alloc(p->pool, LARGEST + PAGE, PAGE);

	if (b)
		memset(b, 0, LARGEST + PAGE);
	return b;
}

static int tune_all(struct tuner *t)
{
	struct perf *p = t->perf;
	int rc;

	t->run.in = buffer(p);
	t->run.out = buffer(p);
	if (!t->run.in || !t->run.out)
		return -ENOMEM;
	rc = vbn_comm_create(&t->run.comm, p->ctx, NULL, 0, NULL);
	if (rc == 0)
		rc = tune_params(p, &t->run, &t->params, &t->hosts);
	if (rc == 0 && p->rank == 0)
		tune_file_params(&t->file, &t->params);
	for (size_t o = 0; o < OPERATIONS && rc == 0; o++)
		rc = find_candidates(t, &operations[o], t->of[o]);
	for (size_t o = 0; o < OPERATIONS && rc == 0; o++)
		rc = tune_operation(t, o);
	if (rc == 0)
		rc = vbn_barrier(t->run.comm, PERF_WAIT_MS);
	return rc;
}

int perf_tune(struct perf *p)
{
	struct tuner *t = calloc(1, sizeof(*t));
	int rc = 0, closed = 0;

	if (!t)
		return perf_fail(-ENOMEM, "no memory");
	t->perf = p;
	t->run.type = VBN_FLOAT32;
	t->run.reduction = VBN_SUM;
	t->begun = perf_now();
	forget_environment();
	if (p->rank == 0)
		rc = tune_file_open(&t->file, p->opts.out);
	if (rc == 0) {
		rc = tune_all(t);
		if (rc != 0)
			perf_failed(rc, "tune");
		if (p->rank == 0)
			closed = tune_file_close(&t->file, rc == 0);
	}
	/* After a failure others may still write here; the process ends. */
	if (rc == 0) {
		vbn_comm_free(t->run.comm);
		vbn_pool_free(p->pool, t->run.in);
		vbn_pool_free(p->pool, t->run.out);
	}
	free(t);
	return rc ? rc : closed;
}
