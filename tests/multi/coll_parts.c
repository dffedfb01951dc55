/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Parts of different lengths: none, gaps between them, in another order; and
 * members that do not say the same of one.
 */
#include "coll.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MIXED, ONE_HAS_ALL, NONE, BIG, LENGTHS };
enum { AFTER_ANOTHER, GAPS, REVERSED, PLACES };

struct layout {
	size_t lengths[RANKS_MOST * RANKS_MOST];
	size_t places[RANKS_MOST];
};

/* Symmetric in @f and @t, so that an alltoall can be in place. */
static size_t length_of(int kind, int n, int f, int t)
{
	int low = f < t ? f : t, high = f < t ? t : f;

	switch (kind) {
	case ONE_HAS_ALL:
		return low == 0 && high == n - 1 ? 5003 : 0;
	case NONE:
		return 0;
	case BIG:
		return 30000 + 7001 * (size_t)(low + high);
	default:
		return (size_t)((low * 5 + high) * 53 % 159);
	}
}

static struct layout layout_of(const struct spec *s, int kind, int place)
{
	struct layout layout = {0};
	size_t at = 0;
	int n = s->n;

	for (int f = 0; f < n; f++)
		for (int i = 0; i < n; i++)
			layout.lengths[s->operation == ALLTOALL ? f * n + i
								: f] =
				length_of(kind, n, f,
					  s->operation == ALLTOALL ? i : n - 1);
	for (int k = 0; k < n; k++) {
		int i = place == REVERSED ? n - 1 - k : k;

		if (place != AFTER_ANOTHER)
			at += 3 + (size_t)k;
		layout.places[i] = at;
		at += layout.lengths[s->operation == ALLTOALL ? s->rank * n + i
							      : i];
	}
	return layout;
}

static void check_layout(struct test *t, const struct method *method, int kind,
			 int place, bool in_place)
{
	static const enum vbn_type types[] = {VBN_INT8, VBN_FLOAT16,
					      VBN_FLOAT64};
	static unsigned number;
	struct spec s = {.operation = method->operation,
			 .in_place = in_place,
			 .by_null = number & 1,
			 .type = types[number % 3],
			 .root = (int)(number % (unsigned)t->n),
			 .opts = {.size = sizeof(s.opts),
				  .algorithm = method->algorithm,
				  .chunk = number % 4 == 3 ? 777 : 0},
			 .rank = t->rank,
			 .n = t->n};
	const struct asked asked = {
		.n = t->n, .in_place = in_place, .uneven = true};
	struct layout layout = layout_of(&s, kind, place);
	int before = t->failures;

	s.lengths = layout.lengths;
	if (place != AFTER_ANOTHER || in_place)
		s.places = s.in_places = layout.places;
	spec_check(t, t->world, &s, (enum memory)(number % MEMORIES),
		   (enum memory)((number / 2) % MEMORIES), 2,
		   method_status(t, method, &asked));
	if (t->failures > before)
		printf("# %s %s, lengths %d, places %d%s\n",
		       operation_name(method->operation),
		       vbn_algorithm_name(method->algorithm), kind, place,
		       in_place ? ", in place" : "");
	number++;
	EXPECT(t, vbn_barrier(t->world, WAIT_MS) == 0);
}

static bool has_parts(enum operation operation)
{
	return operation >= REDUCE_SCATTER && operation <= ALLTOALL;
}

void case_parts(struct test *t)
{
	for (int i = 0; i < method_count(); i++)
		for (int kind = 0; kind < LENGTHS; kind++)
			for (int place = 0; place < PLACES; place++)
				for (int in = 0; in < 2; in++)
					if (has_parts(method_at(i)->operation))
						check_layout(t, method_at(i),
							     kind, place, in);
}

/* ---- members that differ ---- */

/* Rank 0 and the last say different lengths of a part between them. */
static void check_differ(struct test *t, enum operation operation, size_t first,
			 size_t last)
{
	struct vbn_comm *comm = make_comm(t);
	struct spec s = {.operation = operation,
			 .type = VBN_INT32,
			 .opts = {.size = sizeof(s.opts)},
			 .rank = t->rank,
			 .n = t->n};
	size_t lengths[RANKS_MOST * RANKS_MOST];
	int from = t->n - 1, to = 0, err;
	static int in[RANKS_MOST * 40000], out[RANKS_MOST * 40000];
	struct vbn_coll *coll = NULL;

	for (int i = 0; i < RANKS_MOST * RANKS_MOST; i++)
		lengths[i] = 20;
	if (operation == SCATTER) {
		from = 0;
		to = t->n - 1;
	}
	lengths[operation == ALLTOALL ? from * t->n + to : t->n - 1] =
		t->rank == t->n - 1 ? last : first;
	s.lengths = lengths;
	EXPECT(t, spec_init(comm, &s, in, out, &coll) == 0);
	err = vbn_coll_start(coll);
	if (!err)
		err = vbn_coll_wait(coll, 5000);
	/*
	 * A call that had returned: the next says it, or, if that needs no
	 * more than what was on its way before, the one after.
	 */
	for (int i = 0; !err && i < 2; i++)
		err = vbn_barrier(comm, 5000);
	if (!EXPECT(t, err == -EPROTO))
		printf("# %sv, rank 0: %zu, rank %d: %zu: %d\n",
		       operation_name(operation), first, t->n - 1, last, err);
	all_here(t);
	vbn_coll_free(coll);
	vbn_comm_free(comm);
}

void case_parts_differ(struct test *t)
{
	static const size_t pairs[][2] = {{20, 21}, {21, 20},	    {0, 5},
					  {5, 0},   {30000, 30001}, {39999, 1}};

	for (int o = REDUCE_SCATTER; t->n > 1 && o <= ALLTOALL; o++)
		for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
			/* It takes a second to be sure of what never comes. */
			if (!(pairs[i][0] && pairs[i][1]) && t->n != 3)
				continue;
			check_differ(t, (enum operation)o, pairs[i][0],
				     pairs[i][1]);
		}
}
