/* SPDX-License-Identifier: BSD-3-Clause */
#include "coll_case.h"

#include "reduce.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNTOUCHED = 0xc3 };

struct rank_data {
	char *in, *out, *owned[2]; /* owned: what is to be freed */
	char *want;
	size_t in_bytes, out_bytes;
	char *kept; /* in as it was */
};

struct world {
	const struct coll_case *c;
	struct plan_shape shape;
	struct plan_layout *layouts; /* of each rank, or NULL */
	uint64_t *lengths;	     /* of the layouts */
	struct plan_topology topology;
	int *hosts; /* of the topology */
	const struct reduce_kernel *kernel;
	size_t element;
	struct rank_data *data;
};

static uint64_t mix(uint64_t a, uint64_t b, uint64_t c)
{
	uint64_t x = (a * 0x9e3779b97f4a7c15 + b) * 0xbf58476d1ce4e5b9 + c;

	x = (x ^ x >> 30) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

bool coll_reduces(enum plan_operation operation)
{
	return operation == PLAN_OP_ALLREDUCE || operation == PLAN_OP_REDUCE ||
	       operation == PLAN_OP_REDUCE_SCATTER;
}

bool coll_has_layout(enum plan_operation operation)
{
	return operation == PLAN_OP_REDUCE_SCATTER ||
	       (operation >= PLAN_OP_ALLGATHER &&
		operation <= PLAN_OP_ALLTOALL);
}

bool coll_has_root(enum plan_operation operation)
{
	return operation == PLAN_OP_REDUCE || operation == PLAN_OP_BROADCAST ||
	       operation == PLAN_OP_GATHER || operation == PLAN_OP_SCATTER;
}

void coll_for_all(void (*fn)(enum plan_operation operation,
			     enum plan_algorithm algorithm,
			     const struct plan_algo *algo))
{
	for (int o = 0; o < PLAN_OPERATIONS; o++)
		for (int a = 0; a < PLAN_ALGORITHMS; a++) {
			const struct plan_algo *algo = plan_find(
				(enum plan_operation)o, (enum plan_algorithm)a);

			if (algo)
				fn((enum plan_operation)o,
				   (enum plan_algorithm)a, algo);
		}
}

bool coll_case_exists(const struct coll_case *c)
{
	const struct plan_shape *shape = &c->shape;
	const struct plan_algo *algo =
		plan_find(shape->operation, shape->algorithm);

	return algo &&
	       (!algo->power_of_two || (shape->n & (shape->n - 1)) == 0) &&
	       (!algo->even || c->parts == COLL_EVEN) &&
	       (!algo->apart || !shape->in_place) &&
	       (shape->algorithm != PLAN_LOCAL || shape->n == 1) &&
	       (!coll_reduces(shape->operation) ||
		reduce_find(c->type, c->reduction, c->wire16));
}

/* ---- layouts ---- */

/* Elements from rank @a to @b, or (@a == @b) of part a. */
static uint64_t part_len(const struct world *w, int a, int b)
{
	uint64_t count = w->c->shape.count;
	uint64_t pick = mix((uint64_t)(a < b ? a : b),
			    (uint64_t)(a < b ? b : a), w->c->shape.chunk);

	if (w->c->parts == COLL_LONELY)
		return a == w->c->shape.root || b == w->c->shape.root ? count
								      : 0;
	return pick % 3 == 0 ? 0 : count * (pick % 7) / 3 + pick % 2;
}

/* Lengths of @rank's n parts, then where they are: backwards, with gaps. */
static void lay_out(const struct world *w, int rank, bool pairs, uint64_t *len,
		    uint64_t *off)
{
	uint64_t at = 0;

	for (int i = w->c->shape.n - 1; i >= 0; i--) {
		len[i] = part_len(w, i, pairs ? rank : i);
		off[i] = at;
		at += len[i] + (uint64_t)i % 2;
	}
}

static int make_layouts(struct world *w)
{
	size_t n = (size_t)w->c->shape.n;
	bool pairs = w->c->shape.operation == PLAN_OP_ALLTOALL;

	if (w->c->parts == COLL_EVEN)
		return 0;
	w->layouts = calloc(n, sizeof(*w->layouts));
	w->lengths = calloc(2 * n * n, sizeof(*w->lengths));
	if (!w->layouts || !w->lengths)
		return -ENOMEM;
	for (size_t r = 0; r < n; r++) {
		uint64_t *len = w->lengths + 2 * n * r, *off = len + n;

		lay_out(w, (int)r, pairs, len, off);
		/* Lengths are symmetric, so an alltoall can be in place. */
		w->layouts[r] = (struct plan_layout){len, off, len, off};
	}
	return 0;
}

static int host_of(const struct world *w, int rank)
{
	int n = w->c->shape.n;

	switch (w->c->hosts) {
	case COLL_HOST_ONE:
		return 0;
	case COLL_HOST_PAIRS:
		return rank / 2;
	case COLL_HOST_MIXED:
		return rank * rank % (n < 7 ? 2 : n < 20 ? 3 : 5);
	default:
		return rank;
	}
}

static int make_topology(struct world *w)
{
	int n = w->c->shape.n, hosts = 0, at = 0;
	int *host = calloc(4 * (size_t)n + 1, sizeof(int));
	int *order, *leader, *first;

	if (!host)
		return -ENOMEM;
	order = host + n;
	leader = order + n;
	first = leader + n;
	w->hosts = host;
	for (int r = 0; r < n; r++) {
		int like = 0;

		while (host_of(w, like) != host_of(w, r))
			like++;
		if (like == r)
			leader[hosts] = r;
		host[r] = like == r ? hosts++ : host[like];
	}
	for (int h = 0; h < hosts; h++) {
		first[h] = at;
		for (int r = 0; r < n; r++)
			if (host[r] == h)
				order[at++] = r;
	}
	first[hosts] = at;
	w->topology = (struct plan_topology){hosts, host, order, first, leader};
	w->shape.topology = &w->topology;
	return 0;
}

static struct plan_shape shape_of(const struct world *w, int rank)
{
	struct plan_shape shape = w->shape;

	shape.rank = rank;
	shape.no_output =
		rank != shape.root && (shape.operation == PLAN_OP_REDUCE ||
				       shape.operation == PLAN_OP_GATHER);
	shape.layout = w->layouts ? &w->layouts[rank] : NULL;
	return shape;
}

/* ---- values ---- */

/* A float that is exact in every type and reduction. */
static float exact(enum vbn_reduction reduction, uint64_t rank, uint64_t i)
{
	if (reduction == VBN_PRODUCT)
		return (rank * 7 + i) % 13 ? 1.0f : rank % 2 ? 0.5f : -2.0f;
	return (float)(mix(1, rank, i) % 4);
}

static void put_value(const struct world *w, char *to, int rank, uint64_t i)
{
	const struct coll_case *c = w->c;
	uint64_t any = mix(c->seed, (uint64_t)rank, i);
	float value = exact(c->reduction, (uint64_t)rank, i);

	if (!coll_reduces(w->shape.operation) || c->type < VBN_FLOAT16) {
		memcpy(to, &any, w->element);
		return;
	}
	if (c->values == COLL_ROUNDED)
		value = (float)(int32_t)any / 2147483648.0f;
	if (c->type == VBN_FLOAT64) {
		double wide = c->values == COLL_ROUNDED
				      ? (double)(int64_t)any / 0x1p63
				      : (double)value;

		memcpy(to, &wide, sizeof(wide));
	} else if (c->type == VBN_FLOAT32) {
		memcpy(to, &value, sizeof(value));
	} else {
		reduce_convert(reduce_find(c->type, VBN_SUM, false),
			       REDUCE_A_WIDE, to, &value, 1, 1);
	}
}

static bool has_input(const struct plan_shape *shape)
{
	bool rooted = shape->operation == PLAN_OP_BROADCAST ||
		      shape->operation == PLAN_OP_SCATTER;

	return !rooted || shape->rank == shape->root;
}

/* ---- buffers ---- */

/* Where the own part is in the side with n parts, in bytes. */
static size_t own_off(const struct world *w, const struct plan_shape *shape)
{
	uint64_t off;

	plan_block(shape, shape->rank, &off);
	return off * w->element;
}

/* With both in one buffer, INPUT may be in OUTPUT or OUTPUT in INPUT. */
static int make_buffers(const struct world *w, const struct plan_shape *shape,
			struct rank_data *d)
{
	bool one = shape->in_place || shape->operation == PLAN_OP_BROADCAST;
	size_t in, out;

	d->in_bytes = in = plan_input(shape) * w->element;
	d->out_bytes = out = plan_output(shape) * w->element;
	d->owned[0] = malloc(in);
	d->owned[1] = malloc(out);
	d->kept = malloc(in);
	d->want = malloc(out);
	if (!d->owned[0] || !d->owned[1] || !d->kept || !d->want)
		return -ENOMEM;
	d->in = d->owned[0];
	d->out = d->owned[1];
	if (in > 0)
		memset(d->in, UNTOUCHED, in);
	if (out > 0)
		memset(d->out, UNTOUCHED, out);
	if (one && in > 0 && out > 0) {
		if (in < out)
			d->in = d->out + own_off(w, shape);
		else if (out < in)
			d->out = d->in + own_off(w, shape);
		else
			d->out = d->in;
	}
	if (has_input(shape))
		for (uint64_t i = 0; i < in / w->element; i++)
			put_value(w, d->in + i * w->element, shape->rank, i);
	if (in > 0)
		memcpy(d->kept, d->in, in);
	if (out > 0)
		memcpy(d->want, d->out, out);
	return 0;
}

/* ---- what every rank should get ---- */

static void want_sum(const struct world *w, const struct plan_shape *shape,
		     uint64_t off, uint64_t len)
{
	struct rank_data *d = &w->data[shape->rank];
	const void **from = calloc((size_t)shape->n, sizeof(void *));

	for (int r = 0; from && r < shape->n; r++)
		from[r] = w->data[r].kept + off * w->element;
	if (from && len > 0)
		reduce_many(w->kernel, d->want, from, (unsigned)shape->n, len,
			    (unsigned)shape->n);
	free(from);
}

static void want_parts(const struct world *w, const struct plan_shape *shape)
{
	struct rank_data *d = &w->data[shape->rank];

	for (int r = 0; r < shape->n; r++) {
		struct plan_shape other = shape_of(w, r);
		uint64_t off, from = 0;
		uint64_t len = plan_block(shape, r, &off);

		if (shape->operation == PLAN_OP_ALLTOALL)
			plan_block_in(&other, shape->rank, &from);
		if (len > 0)
			memcpy(d->want + off * w->element,
			       w->data[r].kept + from * w->element,
			       len * w->element);
	}
}

static void want(const struct world *w, const struct plan_shape *shape)
{
	struct rank_data *d = &w->data[shape->rank];
	uint64_t off = 0, len;

	if (d->out_bytes == 0)
		return;
	switch (shape->operation) {
	case PLAN_OP_ALLREDUCE:
	case PLAN_OP_REDUCE:
		want_sum(w, shape, 0, shape->count);
		break;
	case PLAN_OP_REDUCE_SCATTER:
		len = plan_block(shape, shape->rank, &off);
		want_sum(w, shape, off, len);
		break;
	case PLAN_OP_BROADCAST:
		memcpy(d->want, w->data[shape->root].kept, d->out_bytes);
		break;
	case PLAN_OP_SCATTER:
		len = plan_block(shape, shape->rank, &off);
		memcpy(d->want, w->data[shape->root].kept + off * w->element,
		       len * w->element);
		break;
	default:
		want_parts(w, shape);
		break;
	}
}

/* ---- checks ---- */

static int differ(const struct world *w, int rank, const char *got,
		  const char *right, size_t bytes, char *why, size_t room,
		  const char *what)
{
	for (size_t i = 0; i < bytes; i++)
		if (got[i] != right[i]) {
			snprintf(why, room, "rank %d: %s: element %zu of %zu",
				 rank, what, i / w->element,
				 bytes / w->element);
			return -EBADMSG;
		}
	return 0;
}

static int check_rank(const struct world *w, const struct plan_shape *shape,
		      bool exactly, char *why, size_t room)
{
	const struct rank_data *d = &w->data[shape->rank];
	const struct rank_data *like =
		&w->data[shape->operation == PLAN_OP_REDUCE ? shape->root : 0];
	bool apart = d->out_bytes == 0 ||
		     (d->out == d->owned[1] && d->in == d->owned[0]);
	int err = 0;

	if (exactly)
		err = differ(w, shape->rank, d->out, d->want, d->out_bytes, why,
			     room, "wrong result");
	else if (shape->operation == PLAN_OP_ALLREDUCE)
		err = differ(w, shape->rank, d->out, like->out, d->out_bytes,
			     why, room, "not the bits of rank 0");
	if (!err && apart)
		err = differ(w, shape->rank, d->in, d->kept, d->in_bytes, why,
			     room, "INPUT has changed");
	return err;
}

static int check(const struct world *w, const struct sim_result *result,
		 char *why, size_t room)
{
	const struct plan_algo *algo =
		w->c->algo ? w->c->algo
			   : plan_find(w->shape.operation, w->shape.algorithm);
	bool exactly = w->c->values == COLL_EXACT ||
		       !coll_reduces(w->shape.operation) || algo->in_order ||
		       (w->shape.n <= 2 && !w->c->wire16);
	int err = 0;

	if (w->shape.operation == PLAN_OP_BARRIER &&
	    result->first_end < result->last_start) {
		snprintf(why, room, "one ended before all had begun");
		return -EBADMSG;
	}
	for (int r = 0; r < w->shape.n && !err; r++) {
		struct plan_shape shape = shape_of(w, r);

		err = check_rank(w, &shape, exactly, why, room);
	}
	return err;
}

/* ---- the whole ---- */

static int simulate(const struct world *w, struct sim_result *result)
{
	const struct coll_case *c = w->c;
	size_t n = (size_t)c->shape.n;
	const void **in = calloc(n, sizeof(void *));
	void **out = calloc(n, sizeof(void *));
	struct sim_options opts = {
		.shape = w->shape,
		.layouts = w->layouts,
		.algo = c->algo,
		.type = c->type,
		.reduction = c->reduction,
		.wire16 = c->wire16,
		.window = c->window,
		.slots = c->slots,
		.direct = c->direct,
		.warm = c->warm,
		.seed = c->seed,
		.alpha = 1e-6,
		.beta = 1e-10,
		.gamma = 1e-10,
		.in = in,
		.out = out,
	};
	int err = in && out ? 0 : -ENOMEM;

	for (size_t r = 0; r < n && !err; r++) {
		in[r] = w->data[r].in;
		out[r] = w->data[r].out;
	}
	if (!err)
		err = sim_run(&opts, result);
	free(in);
	free(out);
	return err;
}

static void describe(const struct coll_case *c, char *why, size_t room)
{
	size_t at = strlen(why);

	snprintf(
		why + at, room - at,
		" [%s %s n %d root %d count %llu chunk %llu %s %s%s window %u slots %u%s%s%s parts %d hosts %d values %d seed %llu]",
		plan_operation_name(c->shape.operation),
		plan_name(c->shape.algorithm), c->shape.n, c->shape.root,
		(unsigned long long)c->shape.count,
		(unsigned long long)c->shape.chunk, reduce_type_name(c->type),
		reduce_name(c->reduction), c->wire16 ? " wire16" : "",
		c->window, c->slots, c->direct ? " direct" : "",
		c->warm ? " warm" : "", c->shape.in_place ? " in-place" : "",
		c->parts, c->hosts, c->values, (unsigned long long)c->seed);
}

static int run(struct world *w, char *why, size_t room)
{
	struct sim_result result = {.why = ""};
	int n = w->c->shape.n, err = make_layouts(w);

	if (!err)
		err = make_topology(w);
	w->data = calloc((size_t)n, sizeof(*w->data));
	if (!w->data)
		return -ENOMEM;
	for (int r = 0; r < n && !err; r++) {
		struct plan_shape shape = shape_of(w, r);

		err = make_buffers(w, &shape, &w->data[r]);
	}
	for (int r = 0; r < n && !err; r++) {
		struct plan_shape shape = shape_of(w, r);

		want(w, &shape);
	}
	if (!err) {
		err = simulate(w, &result);
		snprintf(why, room, "%s", result.why);
	}
	return err ? err : check(w, &result, why, room);
}

int coll_case_run(const struct coll_case *c, char *why, size_t room)
{
	struct world w = {
		.c = c,
		.shape = c->shape,
		.kernel = reduce_find(c->type, c->reduction, c->wire16),
		.element = vbn_type_bytes(c->type),
	};
	int err;

	why[0] = '\0';
	err = coll_case_exists(c) || c->algo ? run(&w, why, room) : -EOPNOTSUPP;
	if (err)
		describe(c, why, room);
	for (int r = 0; w.data && r < c->shape.n; r++) {
		struct rank_data *d = &w.data[r];

		free(d->owned[0]);
		free(d->owned[1]);
		free(d->kept);
		free(d->want);
	}
	free(w.data);
	free(w.layouts);
	free(w.lengths);
	free(w.hosts);
	return err;
}
