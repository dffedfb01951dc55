/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators of other orders than the job's, of parts of it, out of others,
 * and very many of them.
 */
#include "coll.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Every operation, and every algorithm of allreduce: numbers are members'. */
static void check_operations(struct test *t, struct vbn_comm *comm)
{
	const struct asked asked = {.n = vbn_comm_size(comm)};

	for (int i = 0; i < method_count(); i++) {
		const struct method *method = method_at(i);
		struct spec s = {.operation = method->operation,
				 .type = VBN_FLOAT32,
				 .root = i % asked.n,
				 .count = i & 1 ? 1009 : 20000,
				 .opts = {.size = sizeof(s.opts),
					  .algorithm = method->algorithm}};

		spec_check(t, comm, &s, POOL, i & 2 ? HEAP : POOL, 1,
			   method_status(t, method, &asked));
	}
}

/* The members are these ranks, in this order. */
static void check_members(struct test *t, struct vbn_comm *comm,
			  const int *ranks, int n)
{
	int got[RANKS_MOST];

	EXPECT(t, vbn_comm_size(comm) == n);
	EXPECT(t, ranks[vbn_comm_rank(comm)] == t->rank);
	EXPECT(t,
	       vbn_allgather(comm, &t->rank, got, 1, VBN_INT32, WAIT_MS) == 0);
	EXPECT(t, !memcmp(got, ranks, (size_t)n * sizeof(*got)));
}

static void check_group(struct test *t, const int *ranks, int n)
{
	struct vbn_comm *comm;
	bool member = false;

	for (int i = 0; i < n; i++)
		member |= ranks[i] == t->rank;
	if (!member) {
		EXPECT(t, vbn_comm_create(&comm, t->ctx, ranks, n, NULL) ==
				  -EINVAL);
		return;
	}
	if (!EXPECT(t, vbn_comm_create(&comm, t->ctx, ranks, n, NULL) == 0))
		return;
	check_members(t, comm, ranks, n);
	check_operations(t, comm);
	vbn_comm_free(comm);
}

/* Orders other than the job's, and parts of it (B10). */
void case_groups(struct test *t)
{
	static const int three[] = {5, 1, 3};
	int ranks[RANKS_MOST];

	for (int i = 0; i < t->n; i++)
		ranks[i] = t->n - 1 - i;
	check_group(t, ranks, t->n);
	ranks[0] = t->n - 1; /* last, 0, 1, ... */
	for (int i = 1; i < t->n; i++)
		ranks[i] = i - 1;
	check_group(t, ranks, t->n);
	if (t->n > 1)
		check_group(t, ranks, t->n - 1);
	check_group(t, ranks, 1);
	if (t->n > 5)
		check_group(t, three, 3);
	all_here(t);
}

/* ---- split and dup ---- */

/* Those of the same parity, the last rank first. */
static void check_parity(struct test *t)
{
	struct vbn_comm *half, *half_dup, *all;
	int ranks[RANKS_MOST], n = 0;

	for (int r = t->n - 1; r >= 0; r--)
		if (r % 2 == t->rank % 2)
			ranks[n++] = r;
	if (!EXPECT(t, vbn_comm_split(&half, t->world, t->rank % 2, -t->rank,
				      WAIT_MS) == 0))
		return;
	check_members(t, half, ranks, n);
	/* Out of a part: back to the job's order by extreme keys. */
	EXPECT(t,
	       vbn_comm_split(&all, half, INT_MAX,
			      t->rank < 2 ? INT_MIN : t->rank, WAIT_MS) == 0);
	for (int i = 0; i < n / 2; i++) {
		int other = ranks[i];

		ranks[i] = ranks[n - 1 - i];
		ranks[n - 1 - i] = other;
	}
	check_members(t, all, ranks, n);
	EXPECT(t, vbn_comm_dup(&half_dup, all) == 0);
	check_members(t, half_dup, ranks, n);
	check_operations(t, half_dup);
	/* A part outlives what it came from. */
	vbn_comm_free(half);
	vbn_comm_free(all);
	check_members(t, half_dup, ranks, n);
	vbn_comm_free(half_dup);
}

/* All but the last, equal keys; the last in none. */
static void check_without_last(struct test *t)
{
	struct vbn_comm *comm = t->world;
	int ranks[RANKS_MOST];
	bool last = t->rank == t->n - 1 && t->n > 1;

	EXPECT(t,
	       vbn_comm_split(&comm, t->world, last ? -1 : 3, 0, WAIT_MS) == 0);
	for (int i = 0; i < t->n; i++)
		ranks[i] = i;
	if (last)
		EXPECT(t, comm == NULL);
	else
		check_members(t, comm, ranks, t->n > 1 ? t->n - 1 : 1);
	vbn_comm_free(comm);
}

/* Duplicates carry calls of their own, and the same landing slots. */
static void check_dup(struct test *t)
{
	struct vbn_comm_options small = {
		.size = sizeof(small), .landing_bytes = 512, .slots = 1};
	struct vbn_comm *from, *dup;
	struct vbn_coll *colls[2];
	int x[2] = {1, 2};

	EXPECT(t, vbn_comm_create(&from, t->ctx, NULL, 0, &small) == 0);
	EXPECT(t, vbn_comm_dup(&dup, from) == 0);
	EXPECT(t, vbn_comm_size(dup) == t->n && vbn_comm_rank(dup) == t->rank);
	for (int i = 0; i < 2; i++)
		EXPECT(t, vbn_allreduce_init(i ? dup : from, NULL, &x[i], 1,
					     VBN_INT32, VBN_SUM, NULL,
					     &colls[i]) == 0);
	EXPECT(t, vbn_coll_start(colls[t->rank % 2]) == 0);
	EXPECT(t, vbn_coll_start(colls[1 - t->rank % 2]) == 0);
	for (int i = 0; i < 2; i++) {
		EXPECT(t, vbn_coll_wait(colls[i], WAIT_MS) == 0);
		EXPECT(t, x[i] == (i + 1) * t->n);
		vbn_coll_free(colls[i]);
	}
	check_operations(t, dup);
	vbn_comm_free(from);
	vbn_comm_free(dup);
}

void case_split(struct test *t)
{
	for (int round = 0; round < 3; round++) {
		check_parity(t);
		check_without_last(t);
	}
	check_dup(t);
	all_here(t);
}

/* ---- many ---- */

/* More than there are tags, one after another, then many at once. */
void case_many_comms(struct test *t)
{
	enum { AT_ONCE = 40 };
	struct vbn_comm *comms[AT_ONCE];
	double x;

	for (int i = 0; i < 600; i++) {
		struct vbn_comm *comm = make_comm(t);

		if (!comm)
			return;
		x = t->rank + i;
		EXPECT(t, vbn_allreduce(comm, NULL, &x, 1, VBN_FLOAT64, VBN_SUM,
					WAIT_MS) == 0);
		EXPECT(t, x == t->n * (t->n - 1) / 2 + t->n * i);
		vbn_comm_free(comm);
		if (t->failures)
			return;
	}
	for (int i = 0; i < AT_ONCE; i++)
		comms[i] = make_comm(t);
	for (int i = 0; i < AT_ONCE && !t->failures; i++) {
		x = 1;
		EXPECT(t, vbn_allreduce(comms[i], NULL, &x, 1, VBN_FLOAT64,
					VBN_SUM, WAIT_MS) == 0);
		EXPECT(t, x == t->n);
	}
	for (int i = 0; i < AT_ONCE; i++)
		vbn_comm_free(comms[i]);
}

/* ---- not created everywhere yet ---- */

/*
 * Rank 0 makes as many small calls as it can without an answer, on as many
 * communicators as there can be, before any other rank creates the first.
 */
void case_before_creation(struct test *t)
{
	enum { COMMS = 500, CALLS = 16 };
	struct vbn_comm *comms[COMMS];
	bool good = true;

	if (t->n == 1 || !t->shares)
		return;
	if (t->rank > 0)
		EXPECT(t, vbn_barrier(t->world, WAIT_MS) == 0);
	for (int i = 0; i < COMMS; i++) {
		comms[i] = make_comm(t);
		good &= comms[i] != NULL;
	}
	for (int i = 0; i < COMMS && good; i++)
		for (int call = 0; call < CALLS && good; call++) {
			int x = t->rank ? -1 : i * CALLS + call;

			good = EXPECT(t,
				      vbn_broadcast(comms[i], &x, 1, VBN_INT32,
						    0, 3000) == 0) &&
			       EXPECT(t, x == i * CALLS + call);
		}
	if (t->rank == 0)
		EXPECT(t, vbn_barrier(t->world, WAIT_MS) == 0);
	all_here(t);
	for (int i = 0; i < COMMS; i++)
		vbn_comm_free(comms[i]);
}

/* Created by all but the last, who fails and says so; @before: it got calls. */
static void check_uncreated(struct test *t, bool before, int timeout_ms,
			    int want)
{
	struct vbn_comm_options bad = {.size = sizeof(bad), .slots = 17};
	struct vbn_comm *comm = NULL;
	bool last = t->rank == t->n - 1;
	double x = 1, start = now_ms();
	char who[64];

	if (last && before)
		all_here(t);
	EXPECT(t, vbn_comm_create(&comm, t->ctx, NULL, 0, last ? &bad : NULL) ==
			  (last ? -EINVAL : 0));
	if (last && !before)
		all_here(t);
	if (!last) {
		if (!before)
			all_here(t);
		else if (t->shares)
			EXPECT(t, vbn_broadcast(comm, &x, 1, VBN_FLOAT64, 0,
						WAIT_MS) == 0);
		if (before)
			all_here(t);
		EXPECT(t, vbn_allreduce(comm, NULL, &x, 1, VBN_FLOAT64, VBN_SUM,
					timeout_ms) == want);
		snprintf(
			who, sizeof(who),
			"rank %d could not create the communicator: 17 landing",
			t->n - 1);
		EXPECT(t, strstr(vbn_error(), who) != NULL);
		EXPECT(t, now_ms() - start < 4000);
	}
	vbn_comm_free(comm);
}

/* The others are told; and what is created next has them all again. */
void case_uncreated(struct test *t)
{
	if (t->n != 3)
		return;
	for (int i = 0; i < 3; i++) {
		struct vbn_comm *comm;
		double x = 1;

		check_uncreated(t, i == 2, i ? 4000 : 150,
				i ? -ECANCELED : -ETIMEDOUT);
		all_here(t);
		comm = make_comm(t);
		EXPECT(t, vbn_allreduce(comm, NULL, &x, 1, VBN_FLOAT64, VBN_SUM,
					3000) == 0);
		EXPECT(t, x == t->n);
		all_here(t);
		vbn_comm_free(comm);
	}
}

static int entries(const char *path)
{
	DIR *dir = opendir(path);
	int n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static int lines(const char *path)
{
	FILE *file = fopen(path, "r");
	int n = 0, c;

	while (file && (c = getc(file)) != EOF)
		n += c == '\n';
	if (file)
		fclose(file);
	return n;
}

static long resident_kb(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long all, pages = 0;

	if (file && fscanf(file, "%ld %ld", &all, &pages) != 2)
		pages = 0;
	if (file)
		fclose(file);
	return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Make, use and free: small and large calls, with memory of the library's. */
static void use_comm(struct test *t)
{
	static const enum operation operations[] = {ALLREDUCE, BROADCAST,
						    ALLTOALL};
	struct vbn_comm *comm = make_comm(t);

	for (int i = 0; comm && i < 3; i++) {
		struct spec s = {.operation = operations[i],
				 .type = VBN_FLOAT16,
				 .count = 30000,
				 .opts = {.size = sizeof(s.opts)}};

		spec_check(t, comm, &s, HEAP, HEAP, 1, 0);
	}
	vbn_comm_free(comm);
}

/* Sanitizers keep what is freed for a while. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { GROWTH_KB = 512 << 10 };
#else
enum { GROWTH_KB = 4 << 10 };
#endif

void case_leaks(struct test *t)
{
	int files, maps;
	long kb;

	for (int i = 0; i < 60; i++)
		use_comm(t);
	all_here(t);
	files = entries("/proc/self/fd");
	maps = lines("/proc/self/maps");
	kb = resident_kb();
	for (int i = 0; i < 200 && !t->failures; i++)
		use_comm(t);
	all_here(t);
	if (!EXPECT(t, entries("/proc/self/fd") <= files + 2) ||
	    !EXPECT(t, lines("/proc/self/maps") <= maps + 16) ||
	    !EXPECT(t, resident_kb() <= kb + GROWTH_KB))
		printf("# before: %d files, %d mappings, %ld KB; after: %d, "
		       "%d, %ld\n",
		       files, maps, kb, entries("/proc/self/fd"),
		       lines("/proc/self/maps"), resident_kb());
}
