/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What a rank holds, made in the order in which it is needed and given back
 * in the reverse. Nothing is allocated per step afterwards.
 */
#include "train.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Part @i of @n of @total: sizes differ by one at most, larger ones first. */
static int part_of(int total, int n, int i, int *first)
{
	int small = total / n, rest = total % n;

	*first = i * small + (i < rest ? i : rest);
	return small + (i < rest ? 1 : 0);
}

int trainer_micro_batch(const struct trainer *t, int b, int *first)
{
	return part_of(t->share, t->o->micro_batches, b, first);
}

static int open_transport(struct trainer *t)
{
	struct vbn_pool_options pool = {.size = sizeof(pool),
					.access = VBN_ACCESS_WRITE};
	const struct train_options *o = t->o;
	int need = o->stages * o->replicas;

	if (vbn_job_open(&t->job, NULL))
		return trainer_fail(-EIO, "%s", vbn_error());
	t->rank = vbn_job_rank(t->job);
	t->ranks = vbn_job_size(t->job);
	if (t->ranks != need)
		return trainer_fail(-EINVAL,
				    "%d stages x %d replicas are %d ranks, but "
				    "%d were started: verbena-run -n %d",
				    o->stages, o->replicas, need, t->ranks,
				    need);
	t->stage_index = t->rank % o->stages;
	t->replica = t->rank / o->stages;
	if (vbn_ctx_open(&t->ctx, t->job, NULL) ||
	    vbn_pool_create(&t->pool, t->job, &pool))
		return trainer_fail(-EIO, "%s", vbn_error());
	return 0;
}

static int open_data(struct trainer *t)
{
	const struct train_options *o = t->o;
	char why[256];
	int unused, n;

	if (data_open(o->data, o->model.context, &t->data, why, sizeof(why)))
		return trainer_fail(-EINVAL, "%s", why);
	t->share =
		part_of(o->batch, o->replicas, t->replica, &t->first_sequence);
	t->largest = part_of(t->share, o->micro_batches, 0, &unused);
	n = t->share > t->largest ? t->share : t->largest;
	t->tokens = malloc((size_t)n * (size_t)o->model.context);
	t->targets = malloc((size_t)n * (size_t)o->model.context);
	if (!t->tokens || !t->targets)
		return trainer_fail(-ENOMEM, "no memory for a batch");
	return 0;
}

/* All that every rank must agree on, word by word. */
static void describe(const struct trainer *t, char *text, size_t size)
{
	const struct train_options *o = t->o;

	snprintf(text, size,
		 "--stages=%d --replicas=%d --micro-batches=%d --batch=%d "
		 "--context=%d --layers=%d --dim=%d --heads=%d %s "
		 "--seed=%llu --schedule=%s --sync=%s --optimizer=%d "
		 "--steps=%llu --lr=%.17g --eval-every=%llu "
		 "--eval-sequences=%d --sample=%d data-bytes=%llu type=%s",
		 o->stages, o->replicas, o->micro_batches, o->batch,
		 o->model.context, o->model.layers, o->model.dim,
		 o->model.heads, o->model.tied ? "tied" : "untied",
		 (unsigned long long)o->model.seed, schedule_name(o->schedule),
		 o->sync, (int)o->optimizer, (unsigned long long)o->steps,
		 o->lr, (unsigned long long)o->eval_every, o->eval_sequences,
		 o->sample,
		 (unsigned long long)(data_train_bytes(t->data) +
				      data_validation_bytes(t->data)),
		 VBN_REAL_NAME);
}

/* Different flags on one rank would train something else, or hang. */
static int compare_options(struct trainer *t)
{
	char mine[1024], theirs[1024];
	const char *a = mine, *b = theirs;
	size_t len = sizeof(theirs) - 1;
	int err;

	describe(t, mine, sizeof(mine));
	if (t->rank == 0) {
		err = vbn_job_set(t->job, "trainer/options", mine, strlen(mine),
				  vbn_job_timeout_ms(t->job));
		return err ? trainer_fail(err, "%s", vbn_error()) : 0;
	}
	err = net_get(t->job, "trainer/options", theirs, &len);
	if (err)
		return err;
	theirs[len] = '\0';
	while (*a || *b) {
		size_t na = strcspn(a, " "), nb = strcspn(b, " ");

		if (na != nb || memcmp(a, b, na))
			return trainer_fail(-EINVAL,
					    "this rank has %.*s, rank 0 %.*s: "
					    "start all ranks alike",
					    (int)na, a, (int)nb, b);
		a += na + (a[na] == ' ');
		b += nb + (b[nb] == ' ');
	}
	return 0;
}

static int open_model(struct trainer *t)
{
	const struct train_options *o = t->o;
	int slots = schedule_slots(o->schedule, o->stages, o->micro_batches,
				   t->stage_index);
	struct optimizer_config config;
	size_t bytes;
	char why[256];
	int err;

	if (model_split(&o->model, o->stages, t->stage_index, &t->part, why,
			sizeof(why)))
		return trainer_fail(-EINVAL, "%s", why);
	t->params_count = model_param_count(&o->model, &t->part);
	bytes = t->params_count * sizeof(real);
	t->params = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
	/* Registered: peers sum straight into it. */
	t->grads = vbn_pool_alloc(t->pool, bytes, 64);
	if (!t->params || !t->grads)
		return trainer_fail(-ENOMEM,
				    "no memory for 2 x %zu bytes of "
				    "parameters: %s",
				    bytes, vbn_error());
	err = stage_create(&o->model, &t->part, t->largest, slots, t->params,
			   t->grads, &t->stage);
	if (err)
		return trainer_fail(err,
				    "no stage for %d sequences in %d slots: "
				    "%s",
				    t->largest, slots, strerror(-err));
	t->tensors = stage_tensors(t->stage, &t->ntensors);
	model_init(&o->model, t->tensors, t->ntensors, t->params);
	config = optimizer_defaults(o->optimizer, o->lr, o->steps);
	err = optimizer_create(&config, t->tensors, t->ntensors, &t->optimizer);
	return err ? trainer_fail(err, "no memory for the optimizer") : 0;
}

static int open_links(struct trainer *t)
{
	const struct train_options *o = t->o;
	struct net_options net = {
		.prev = t->part.first ? -1 : t->rank - 1,
		.next = t->part.last ? -1 : t->rank + 1,
		.slots = schedule_slots(o->schedule, o->stages,
					o->micro_batches, t->stage_index),
		.bytes = stage_activation_count(t->stage, t->largest) *
			 sizeof(real),
		.timeout_ms = o->timeout_ms,
	};

	if (o->stages == 1)
		return 0;
	return net_open(&t->net, t->ctx, t->pool, &net);
}

int trainer_open(struct trainer *t, const struct train_options *o)
{
	int err;

	*t = (struct trainer){.o = o};
	err = open_transport(t);
	if (!err)
		err = open_data(t);
	if (!err)
		err = compare_options(t);
	if (!err)
		err = open_model(t);
	if (!err)
		err = open_links(t);
	if (!err)
		err = sync_open(t);
	if (!err)
		err = report_open(t);
	return err;
}

void trainer_close(struct trainer *t)
{
	report_close(t);
	sync_close(t);
	if (t->net)
		net_close(t->net);
	optimizer_destroy(t->optimizer);
	stage_destroy(t->stage);
	if (t->grads)
		vbn_pool_free(t->pool, t->grads);
	free(t->params);
	free(t->tokens);
	free(t->targets);
	if (t->data)
		data_close(t->data);
	if (t->ctx)
		vbn_ctx_close(t->ctx);
	if (t->pool)
		vbn_pool_destroy(t->pool);
	if (t->job)
		vbn_job_close(t->job);
}
