/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One call of any operation against a scalar reference. An operation is told
 * by its two sides: what parts each has, and whose part ends up in which.
 * Values repeat after PERIOD elements, so the reference is cheap; they are
 * such that sums and products are exact in whatever order.
 */
#include "coll.h"

#include "coll_reduce_ref.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PERIOD = 1021, ELEMENT_MOST = 8 };

/* ---- sides ---- */

struct side {
	int parts;
	size_t len[RANKS_MOST], at[RANKS_MOST];
};

static size_t length(const struct spec *s, int from, int to)
{
	if (!s->lengths)
		return s->count;
	if (s->operation == ALLTOALL)
		return s->lengths[from * s->n + to];
	return s->lengths[s->operation == SCATTER ||
					  s->operation == REDUCE_SCATTER
				  ? to
				  : from];
}

static void place(struct side *side, const size_t *places)
{
	size_t at = 0;

	for (int i = 0; i < side->parts; i++) {
		side->at[i] = places ? places[i] : at;
		at += side->len[i];
	}
}

static struct side in_side(const struct spec *s)
{
	struct side side = {.parts = 1, .len = {length(s, s->rank, 0)}};

	if (s->operation == BARRIER)
		side.parts = 0;
	if (s->operation == REDUCE_SCATTER || s->operation == SCATTER ||
	    s->operation == ALLTOALL) {
		side.parts = s->n;
		for (int i = 0; i < s->n; i++)
			side.len[i] = length(s, s->rank, i);
		place(&side,
		      s->operation == ALLTOALL ? s->in_places : s->places);
	}
	return side;
}

static struct side out_side(const struct spec *s)
{
	struct side side = {.parts = 1, .len = {length(s, 0, s->rank)}};

	if (s->operation == BARRIER)
		side.parts = 0;
	if (s->operation == ALLGATHER || s->operation == GATHER ||
	    s->operation == ALLTOALL) {
		side.parts = s->n;
		for (int i = 0; i < s->n; i++)
			side.len[i] = length(s, i, s->rank);
		place(&side, s->places);
	}
	return side;
}

static size_t side_end(const struct side *side)
{
	size_t end = 0;

	for (int i = 0; i < side->parts; i++)
		if (side->at[i] + side->len[i] > end)
			end = side->at[i] + side->len[i];
	return end;
}

size_t spec_in(const struct spec *spec)
{
	struct side side = in_side(spec);

	return side_end(&side);
}

size_t spec_out(const struct spec *spec)
{
	struct side side = out_side(spec);

	return side_end(&side);
}

/* ---- values ---- */

static uint64_t mix(uint64_t x)
{
	x += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static void store(enum vbn_type type, double value, void *to)
{
	float single = (float)value;
	uint16_t half;

	if (type == VBN_FLOAT64) {
		memcpy(to, &value, sizeof(value));
	} else if (type == VBN_FLOAT32) {
		memcpy(to, &single, sizeof(single));
	} else {
		half = ref_narrow(type, single);
		memcpy(to, &half, sizeof(half));
	}
}

/* Operands whose sums and products of a few are exact in 8 bits. */
static double operand(enum vbn_reduction reduction, uint64_t random)
{
	static const double factors[] = {1, -1, 2, 0.5, -0.5, -2};
	static const double extremes[] = {0, -0.0, INFINITY, -INFINITY, 1, -1};

	if (reduction == VBN_PRODUCT)
		return factors[random % 6];
	if ((reduction == VBN_MIN || reduction == VBN_MAX) && random % 3 == 0)
		return random % 31 == 0 ? NAN : extremes[random / 31 % 6];
	return (double)(random % 33) - 16;
}

/* Element @j of the part that @member gives to @part. */
static void value(const struct spec *s, int member, int part, size_t j,
		  void *to)
{
	uint64_t random = mix((uint64_t)j << 32 | (uint64_t)s->salt << 16 |
			      (uint64_t)member << 8 | (uint64_t)part);

	if (reduces(s->operation) && ref_floating(s->type) &&
	    s->reduction != VBN_USER)
		store(s->type, operand(s->reduction, random), to);
	else
		memcpy(to, &random, vbn_type_bytes(s->type));
}

void user_xor(void *dst, const void *a, const void *b, size_t n,
	      enum vbn_type type, void *arg)
{
	const unsigned char *x = a, *y = b;
	unsigned char *to = dst;

	for (size_t i = 0; i < n * vbn_type_bytes(type); i++)
		to[i] = x[i] ^ y[i];
	*(int *)arg += 1;
}

void reference(enum vbn_type type, enum vbn_reduction reduction,
	       const void *const *x, int n, void *to)
{
	bool wide = reduction != VBN_USER && ref_widens(type, reduction);
	unsigned char sum[ELEMENT_MOST];
	int calls = 0;

	memcpy(n == 1 ? to : sum, x[0], vbn_type_bytes(type));
	for (int m = 1; m < n; m++) {
		bool last = m == n - 1;
		void *dst = last ? to : sum;
		const struct ref_call call = {
			.type = type,
			.reduction = reduction,
			.a_wide = wide && m > 1,
			.dst_wide = wide && !last,
			.members = last && reduction == VBN_AVERAGE
					   ? (unsigned)n
					   : 1};

		if (reduction == VBN_USER)
			user_xor(dst, sum, x[m], 1, type, &calls);
		else
			ref_combine(&call, dst, sum, x[m]);
	}
}

static void reduced(const struct spec *s, int part, size_t j, void *to)
{
	unsigned char elements[RANKS_MOST][ELEMENT_MOST];
	const void *x[RANKS_MOST];

	for (int m = 0; m < s->n; m++) {
		value(s, m, part, j, elements[m]);
		x[m] = elements[m];
	}
	reference(s->type, s->reduction, x, s->n, to);
}

/* @member < 0: of all, reduced. */
static void fill_part(const struct spec *s, int member, int part, size_t len,
		      char *to)
{
	size_t element = vbn_type_bytes(s->type);
	size_t first = len < PERIOD ? len : PERIOD;

	for (size_t j = 0; j < first; j++)
		if (member < 0)
			reduced(s, part, j, to + j * element);
		else
			value(s, member, part, j, to + j * element);
	for (size_t j = first; j < len; j += first) {
		size_t some = len - j < first ? len - j : first;

		memcpy(to + j * element, to, some * element);
	}
}

static bool has_in(const struct spec *s)
{
	return (s->operation != BROADCAST && s->operation != SCATTER) ||
	       s->rank == s->root;
}

static bool has_out(const struct spec *s)
{
	return (s->operation != REDUCE && s->operation != GATHER) ||
	       s->rank == s->root;
}

void spec_fill_in(const struct spec *s, char *in)
{
	struct side side = in_side(s);
	size_t element = vbn_type_bytes(s->type);

	for (int i = 0; i < side.parts && has_in(s); i++)
		fill_part(s, s->rank, i, side.len[i],
			  in + side.at[i] * element);
}

void spec_fill_out(const struct spec *s, char *out)
{
	struct side side = out_side(s);
	size_t element = vbn_type_bytes(s->type);
	bool to_each = s->operation == REDUCE_SCATTER ||
		       s->operation == SCATTER || s->operation == ALLTOALL;

	for (int i = 0; i < side.parts && has_out(s); i++) {
		int from =
			reduces(s->operation) ? -1
			: s->operation == BROADCAST || s->operation == SCATTER
				? s->root
				: i;

		fill_part(s, from, to_each ? s->rank : 0, side.len[i],
			  out + side.at[i] * element);
	}
}

/* ---- the call ---- */

/* In place: the buffer with n parts is both sides. */
static void in_place(const struct spec *s, char **in, char **out, char *buffer)
{
	size_t element = vbn_type_bytes(s->type);
	struct side ins = in_side(s), outs = out_side(s);

	*in = *out = buffer;
	if (s->operation == ALLGATHER || s->operation == GATHER)
		*in = buffer + outs.at[s->rank] * element;
	else if (s->operation == REDUCE_SCATTER || s->operation == SCATTER)
		*out = buffer + ins.at[s->rank] * element;
}

static bool is_local(const struct spec *s)
{
	bool rooted = s->operation == REDUCE || s->operation == GATHER ||
		      s->operation == SCATTER;

	return s->in_place && s->operation != BROADCAST &&
	       (!rooted || s->rank == s->root);
}

static int init_parts(struct vbn_comm *comm, const struct spec *s,
		      const void *in, void *out, struct vbn_coll **coll)
{
	struct side ins = in_side(s), outs = out_side(s);

	switch (s->operation) {
	case REDUCE_SCATTER:
		return vbn_reduce_scatterv_init(comm, in, out, s->lengths,
						s->places, s->type,
						s->reduction, &s->opts, coll);
	case ALLGATHER:
		return vbn_allgatherv_init(comm, in, out, s->lengths, s->places,
					   s->type, &s->opts, coll);
	case GATHER:
		return vbn_gatherv_init(comm, in, ins.len[0], out,
					s->rank == s->root ? outs.len : NULL,
					s->places, s->type, s->root, &s->opts,
					coll);
	case SCATTER:
		return vbn_scatterv_init(comm, in,
					 s->rank == s->root ? ins.len : NULL,
					 s->places, out, outs.len[0], s->type,
					 s->root, &s->opts, coll);
	default:
		return vbn_alltoallv_init(comm, in, ins.len, s->in_places, out,
					  outs.len, s->places, s->type,
					  &s->opts, coll);
	}
}

int spec_init(struct vbn_comm *comm, const struct spec *s, const void *in,
	      void *out, struct vbn_coll **coll)
{
	const struct vbn_coll_options *opts = &s->opts;

	if (s->lengths)
		return init_parts(comm, s, in, out, coll);
	switch (s->operation) {
	case ALLREDUCE:
		return vbn_allreduce_init(comm, in, out, s->count, s->type,
					  s->reduction, opts, coll);
	case REDUCE:
		return vbn_reduce_init(comm, in, out, s->count, s->type,
				       s->reduction, s->root, opts, coll);
	case BROADCAST:
		return vbn_broadcast_init(comm, out, s->count, s->type, s->root,
					  opts, coll);
	case REDUCE_SCATTER:
		return vbn_reduce_scatter_init(comm, in, out, s->count, s->type,
					       s->reduction, opts, coll);
	case ALLGATHER:
		return vbn_allgather_init(comm, in, out, s->count, s->type,
					  opts, coll);
	case GATHER:
		return vbn_gather_init(comm, in, out, s->count, s->type,
				       s->root, opts, coll);
	case SCATTER:
		return vbn_scatter_init(comm, in, out, s->count, s->type,
					s->root, opts, coll);
	case ALLTOALL:
		return vbn_alltoall_init(comm, in, out, s->count, s->type, opts,
					 coll);
	default:
		return vbn_barrier_init(comm, opts, coll);
	}
}

/* ---- checking ---- */

/* What the two sides are, and what they must be afterwards. */
struct sides {
	struct buffer in, out; /* in place: one of them */
	bool one;
	char *want_in, *want_out;
	char *in_at, *out_at; /* where the call's sides begin */
};

static bool sides_make(struct test *t, const struct spec *s, struct sides *x,
		       enum memory in, enum memory out)
{
	size_t element = vbn_type_bytes(s->type);
	size_t ins = spec_in(s) * element, outs = spec_out(s) * element;

	*x = (struct sides){.one = is_local(s)};
	if (x->one)
		ins = outs = ins > outs ? ins : outs;
	if (!buffer_make(t, &x->in, in, ins) ||
	    !buffer_make(t, &x->out, out, outs))
		return false;
	x->in_at = x->in.data;
	x->out_at = x->out.data;
	if (x->one)
		in_place(s, &x->in_at, &x->out_at, x->out.data);
	x->want_in = malloc(ins + 1);
	x->want_out = malloc(outs + 1);
	return EXPECT(t, x->want_in && x->want_out);
}

static void sides_drop(struct test *t, struct sides *x)
{
	buffer_drop(t, &x->in);
	buffer_drop(t, &x->out);
	free(x->want_in);
	free(x->want_out);
}

static void sides_fill(const struct spec *s, struct sides *x)
{
	size_t to_out = (size_t)(x->out_at - x->out.data);

	memset(x->in.data, BUFFER_FILL, x->in.bytes);
	memset(x->out.data, BUFFER_FILL, x->out.bytes);
	if (s->operation == BROADCAST)
		spec_fill_in(s, x->out_at);
	else
		spec_fill_in(s, x->in_at);
	memcpy(x->want_in, x->in.data, x->in.bytes);
	memcpy(x->want_out, x->out.data, x->out.bytes);
	if (!x->one)
		spec_fill_out(s, x->want_out);
	else
		/* In place the call's side begins within the buffer. */
		spec_fill_out(s,
			      x->want_out +
				      (s->operation == REDUCE_SCATTER ||
						       s->operation == SCATTER
					       ? to_out
					       : 0));
}

static void print_spec(const struct test *t, const struct spec *s)
{
	printf("# rank %d: %s %s type %d reduction %d root %d %s"
	       "count %zu chunk %zu%s%s window %u\n",
	       t->rank, operation_name(s->operation),
	       vbn_algorithm_name(s->opts.algorithm), (int)s->type,
	       (int)s->reduction, s->root, s->in_place ? "in place " : "",
	       s->count, s->opts.chunk,
	       s->opts.reproducible ? " reproducible" : "",
	       s->opts.wire16 ? " wire16" : "", s->opts.window);
}

static bool sides_right(struct test *t, const struct sides *x)
{
	bool right = EXPECT(t, !memcmp(x->out.data, x->want_out, x->out.bytes));

	if (!x->one)
		right &=
			EXPECT(t, !memcmp(x->in.data, x->want_in, x->in.bytes));
	return right;
}

/* NULL where the caller may say "in place", or has no side, by it. */
static void say_null(const struct spec *s, char **in, char **out)
{
	if (!s->by_null)
		return;
	if (!has_in(s))
		*in = NULL;
	if (!has_out(s))
		*out = NULL;
	if (!is_local(s) || s->operation == REDUCE_SCATTER)
		return;
	if (s->operation == SCATTER)
		*out = NULL;
	else
		*in = NULL;
}

bool spec_check(struct test *t, struct vbn_comm *comm, struct spec *s,
		enum memory in, enum memory out, int rounds, int want)
{
	struct vbn_coll *coll = NULL;
	struct sides x;
	char *in_at, *out_at;
	bool right;

	s->rank = vbn_comm_rank(comm);
	s->n = vbn_comm_size(comm);
	if (!sides_make(t, s, &x, in, out))
		return false;
	in_at = x.in_at;
	out_at = x.out_at;
	say_null(s, &in_at, &out_at);
	right = EXPECT(t, spec_init(comm, s, in_at, out_at, &coll) == want);
	for (int i = 0; coll && i < rounds; i++) {
		s->salt++;
		sides_fill(s, &x);
		/* All rounds, whatever comes: the others run them, too. */
		right &= EXPECT(t, run(coll) == 0) && sides_right(t, &x);
	}
	if (!right && t->failures <= 10)
		print_spec(t, s);
	vbn_coll_free(coll);
	sides_drop(t, &x);
	return right;
}
