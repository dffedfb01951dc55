/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The model's ranks and hosts, and a run in it. Hosts are of neighbours;
 * stragglers are evenly spread, rank 0 among them.
 */
#include "coll.h"
#include "price.h"

#include <errno.h>
#include <stdlib.h>

static void place(struct machine *machine, const struct setup *setup, int n,
		  int hosts)
{
	int each = (int)setup->ranks_per_host;
	int *host = machine->numbers, *order = host + n, *leader = order + n;
	int *first = leader + hosts;

	for (int r = 0; r < n; r++) {
		host[r] = r / each;
		order[r] = r;
	}
	for (int h = 0; h < hosts; h++)
		leader[h] = first[h] = h * each;
	first[hosts] = n;
	machine->topology = (struct plan_topology){.hosts = hosts,
						   .host = host,
						   .order = order,
						   .first = first,
						   .leader = leader};
	machine->fabric = (struct sim_fabric){
		.host = host,
		.shared_interface = setup->shared_nic,
		.local_alpha = setup->local_latency,
		.local_overhead = setup->local_overhead,
		.local_beta = 1 / setup->local_bandwidth,
		.processors = (unsigned)setup->processors,
		.wake = setup->wake,
		.leaf_hosts = setup->topology == SETUP_TREE
				      ? (int)setup->hosts_per_leaf
				      : 0,
		.oversubscription = setup->oversubscription,
	};
}

int machine_hosts(const struct setup *setup, int n)
{
	int each = (int)setup->ranks_per_host;

	return (n + each - 1) / each;
}

int machine_open(struct machine *machine, const struct setup *setup, int n)
{
	int hosts = machine_hosts(setup, n);
	size_t ranks = (size_t)n;

	*machine = (struct machine){0};
	machine->numbers =
		calloc(2 * ranks + 2 * (size_t)hosts + 1, sizeof(int));
	if (!machine->numbers)
		return -ENOMEM;
	place(machine, setup, n, hosts);
	if (!setup->stragglers)
		return 0;
	machine->slowness = calloc(ranks, sizeof(double));
	if (!machine->slowness) {
		free(machine->numbers);
		return -ENOMEM;
	}
	for (size_t r = 0; r < ranks; r++)
		machine->slowness[r] = 1;
	for (uint64_t i = 0; i < setup->stragglers; i++)
		machine->slowness[i * ranks / setup->stragglers] =
			setup->slowdown;
	return 0;
}

void machine_close(struct machine *machine)
{
	free(machine->slowness);
	free(machine->numbers);
}

uint64_t wide_bytes(const struct setup *setup)
{
	const struct reduce_kernel *kernel = NULL;

	if (setup->operation == PLAN_OP_ALLREDUCE ||
	    setup->operation == PLAN_OP_REDUCE ||
	    setup->operation == PLAN_OP_REDUCE_SCATTER)
		kernel = reduce_find((enum vbn_type)setup->type,
				     (enum vbn_reduction)setup->reduction,
				     false);
	return kernel ? kernel->wide
		      : vbn_type_bytes((enum vbn_type)setup->type);
}

struct plan_shape question_shape(const struct question *q,
				 const struct machine *machine)
{
	const struct setup *setup = q->setup;
	uint64_t element = vbn_type_bytes((enum vbn_type)setup->type);
	uint64_t wide = wide_bytes(setup), elements = q->bytes / element;
	bool parts = setup->operation > PLAN_OP_BROADCAST;

	if (parts)
		elements /= (uint64_t)q->n;
	if (setup->operation == PLAN_OP_BARRIER)
		elements = 0;
	else if (elements == 0)
		elements = 1;
	return (struct plan_shape){
		.operation = setup->operation,
		.algorithm = q->algorithm,
		.n = q->n,
		.count = elements,
		.chunk = q->chunk > wide ? q->chunk / wide : 1,
		.wide = wide != element,
		.in_place = setup->operation == PLAN_OP_BROADCAST,
		.topology = machine ? &machine->topology : NULL,
	};
}

/* Whether the library runs it without the executor. */
static bool is_quick(const struct question *q)
{
	const struct cost_case what = {.operation = q->setup->operation,
				       .n = q->n,
				       .bytes = (double)q->bytes};

	return cost_is_quick(&what, q->algorithm, (double)q->chunk);
}

struct sim_options question_options(const struct question *q,
				    const struct machine *machine)
{
	const struct setup *setup = q->setup;

	return (struct sim_options){
		.shape = question_shape(q, machine),
		.algo = q->algo,
		.type = (enum vbn_type)setup->type,
		.reduction = (enum vbn_reduction)setup->reduction,
		.window = (unsigned)setup->window,
		.slots = (unsigned)setup->slots,
		.direct = q->bytes >= DIRECT_BYTES,
		.warm = true,
		.alpha = setup->latency,
		.beta = 1 / setup->bandwidth,
		.gamma = 1 / setup->reduce_speed,
		.overhead = setup->overhead,
		.call = is_quick(q) ? 0 : setup->call,
		.fabric = &machine->fabric,
		.slowness = machine->slowness,
	};
}

int question_run(const struct question *q, struct sim_result *result)
{
	struct machine machine;
	struct sim_options options;
	int err = machine_open(&machine, q->setup, q->n);

	*result = (struct sim_result){0};
	if (err)
		return err;
	options = question_options(q, &machine);
	err = sim_run(&options, result);
	machine_close(&machine);
	return err;
}

/* ---- counting without running ---- */

struct counter {
	const struct steps *most;
	struct steps count;
	int *seen; /* by peer: the last rank that had to do with it, plus 1 */
};

static int count_rank(struct counter *counter, const struct plan_shape *shape)
{
	const struct steps *most = counter->most;
	struct steps *count = &counter->count;
	struct plan_step step;
	struct plan plan;
	int err = plan_begin(&plan, shape);

	while (!err && plan_next(&plan, &step)) {
		bool deals = step.kind == PLAN_OPEN || step.kind == PLAN_PUT ||
			     step.kind == PLAN_WAIT ||
			     step.kind == PLAN_COPY_PEER;

		/* A sum of many takes as long as so many sums. */
		count->steps +=
			step.kind == PLAN_REDUCE_ALL ? (uint64_t)step.n : 1;
		if (deals && counter->seen[step.peer] != shape->rank + 1) {
			counter->seen[step.peer] = shape->rank + 1;
			count->pairs++;
		}
		if (count->steps > most->steps || count->pairs > most->pairs)
			err = -E2BIG;
	}
	return err;
}

int question_count(const struct question *q, int ranks,
		   const struct steps *most, struct steps *count)
{
	struct counter counter = {.most = most};
	struct plan_shape shape;
	struct machine machine;
	int err = machine_open(&machine, q->setup, q->n);

	if (err)
		return err;
	counter.seen = calloc((size_t)q->n, sizeof(int));
	err = counter.seen ? 0 : -ENOMEM;
	shape = question_shape(q, &machine);
	for (int r = 0; r < ranks && !err; r++) {
		shape.rank = r;
		shape.no_output =
			r != 0 && (shape.operation == PLAN_OP_REDUCE ||
				   shape.operation == PLAN_OP_GATHER);
		err = count_rank(&counter, &shape);
	}
	*count = counter.count;
	free(counter.seen);
	machine_close(&machine);
	return err;
}
