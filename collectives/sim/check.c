/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A run with data, whose result is compared with what each element must be,
 * as verbena-perf knows it. At the model's times first, then at random ones,
 * cold and warm, through landing slots and not.
 */
#include "coll_values.h"
#include "price.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS	   3
#define BYTES_MOST ((uint64_t)1 << 30)

/* All ranks' buffers, one after another. */
struct data {
	const struct question *q;
	void **in, **out; /* a broadcast's are the same */
	char *memory;
	enum coll_op op;
	size_t element;
};

static enum coll_op op_of(enum plan_operation operation)
{
	static const enum coll_op ops[PLAN_OPERATIONS] = {
		[PLAN_OP_ALLREDUCE] = COLL_ALLREDUCE,
		[PLAN_OP_REDUCE] = COLL_REDUCE,
		[PLAN_OP_BROADCAST] = COLL_BROADCAST,
		[PLAN_OP_REDUCE_SCATTER] = COLL_REDUCE_SCATTER,
		[PLAN_OP_ALLGATHER] = COLL_ALLGATHER,
		[PLAN_OP_GATHER] = COLL_GATHER,
		[PLAN_OP_SCATTER] = COLL_SCATTER,
		[PLAN_OP_ALLTOALL] = COLL_ALLTOALL,
		[PLAN_OP_BARRIER] = COLL_BARRIER,
	};

	return ops[operation];
}

static struct coll_shape shape_at(const struct data *d, int rank)
{
	return coll_shape_of(d->op, rank, d->q->n, d->q->bytes / d->element);
}

/* Of either buffer. */
static size_t most_elements(const struct data *d)
{
	struct coll_shape s = shape_at(d, 0);

	return s.in > s.out ? s.in : s.out;
}

static int open_data(struct data *d)
{
	size_t n = (size_t)d->q->n, each = most_elements(d) * d->element;

	if (each > BYTES_MOST / 2 / n)
		return -E2BIG;
	d->memory = malloc(2 * n * each + 1);
	d->in = calloc(n, sizeof(void *));
	d->out = calloc(n, sizeof(void *));
	if (!d->memory || !d->in || !d->out)
		return -ENOMEM;
	for (size_t r = 0; r < n; r++) {
		d->out[r] = d->memory + 2 * r * each;
		d->in[r] = d->op == COLL_BROADCAST
				   ? d->out[r]
				   : d->memory + (2 * r + 1) * each;
	}
	return 0;
}

static void close_data(struct data *d)
{
	free(d->memory);
	free(d->in);
	free(d->out);
}

static void fill(struct data *d)
{
	const struct setup *setup = d->q->setup;
	size_t most = most_elements(d);

	for (int r = 0; r < d->q->n; r++) {
		memset(d->out[r], 0x5b, most * d->element);
		if (d->op != COLL_BROADCAST || r == 0)
			coll_fill(d->in[r], most, (enum vbn_type)setup->type,
				  (enum vbn_reduction)setup->reduction, r);
	}
}

/* 0 or -EBADMSG. */
static int compare(const struct data *d, char *why, size_t room)
{
	const struct setup *setup = d->q->setup;

	for (int r = 0; r < d->q->n; r++) {
		struct coll_shape s = shape_at(d, r);
		size_t wrong =
			coll_wrong(d->out[r], &s, (enum vbn_type)setup->type,
				   (enum vbn_reduction)setup->reduction);

		if (!wrong)
			continue;
		snprintf(why, room, "rank %d: %zu of %zu elements are wrong", r,
			 wrong, s.out);
		return -EBADMSG;
	}
	return 0;
}

static int run(struct data *d, const struct machine *machine, uint64_t seed,
	       char *why, size_t room)
{
	struct sim_options options = question_options(d->q, machine);
	struct sim_result result;
	int err;

	options.in = (const void *const *)d->in;
	options.out = d->out;
	options.seed = seed;
	options.warm = seed % 2 == 0;
	fill(d);
	err = sim_run(&options, &result);
	if (!err)
		return compare(d, why, room);
	snprintf(why, room, "%s%s%s", strerror(-err), result.why[0] ? ": " : "",
		 result.why);
	return err;
}

int check_question(const struct question *q, char *why, size_t room)
{
	struct data d = {
		.q = q,
		.op = op_of(q->setup->operation),
		.element = vbn_type_bytes((enum vbn_type)q->setup->type),
	};
	struct machine machine;
	int err = open_data(&d);

	if (!err)
		err = machine_open(&machine, q->setup, q->n);
	if (err) {
		snprintf(why, room,
			 err == -E2BIG ? "unchecked: more than 1 GiB of data; "
					 "a smaller -n or -s can be checked"
				       : "no memory for the data");
		close_data(&d);
		return err;
	}
	for (uint64_t seed = 0; seed <= SEEDS && !err; seed++)
		err = run(&d, &machine, seed, why, room);
	machine_close(&machine);
	close_data(&d);
	return err;
}
