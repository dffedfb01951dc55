/* SPDX-License-Identifier: BSD-3-Clause */
/* verbena-train: the training loop. */
#include "train.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static int evaluate(struct trainer *t, uint64_t step)
{
	uint64_t n;
	double loss;
	int err = pipeline_validate(t, &loss, &n);

	if (!err && t->part.last)
		err = report_send(t, REPORT_VALIDATION, step, loss, 0, n);
	return err ? err : report_finish(t, REPORT_VALIDATION, step);
}

static int train_step(struct trainer *t, uint64_t step)
{
	const struct train_options *o = t->o;
	uint64_t n = (uint64_t)t->share * (uint64_t)o->model.context;
	double loss;
	int err = report_check(t);

	if (!err)
		err = pipeline_step(t, step, &loss);
	if (!err)
		err = sync_gradients(t);
	if (!err && step == 1)
		err = dump_tensors(t, o->dump_gradients, t->grads);
	if (err)
		return err;
	optimizer_update(t->optimizer, step, 0, t->params_count, t->params,
			 t->grads);
	if (t->part.last)
		err = report_send(t, REPORT_LOSS, step, loss, 0, n);
	if (!err && report_is_evaluated(o, step))
		err = evaluate(t, step);
	return err;
}

static int finish(struct trainer *t)
{
	double intact, shuffled;
	uint64_t windows;
	int err = report_finish(t, REPORT_LOSS, t->o->steps);

	if (!err && t->o->eval_sequences) {
		err = pipeline_check_context(t, &intact, &shuffled, &windows);
		if (!err && t->part.last)
			err = report_send(t, REPORT_CONTEXT, t->o->steps,
					  intact, shuffled, windows);
		if (!err)
			err = report_finish(t, REPORT_CONTEXT, t->o->steps);
	}
	if (!err)
		err = pipeline_sample(t, t->o->sample);
	if (!err)
		err = dump_tensors(t, t->o->dump_parameters, t->params);
	return err;
}

static void print_setup(const struct trainer *t)
{
	const struct train_options *o = t->o;
	struct model_part all = {0, o->model.layers, true, true};

	printf("model: %d layers, dim %d, %d heads, context %d, %zu "
	       "parameters (%s)\n",
	       o->model.layers, o->model.dim, o->model.heads, o->model.context,
	       model_param_count(&o->model, &all), VBN_REAL_NAME);
	printf("ranks: %d stages x %d replicas, %s, %d micro-batches, batch %d "
	       "x %d bytes, gradients by %s\n",
	       o->stages, o->replicas, schedule_name(o->schedule),
	       o->micro_batches, o->batch, o->model.context, o->sync);
	fflush(stdout);
}

/* The bubble by the schedule, over the total time, beside what was seen. */
static void print_bubble(const struct trainer *t, double training_s,
			 double waited_ms, double compute_ms)
{
	int p = t->o->stages, m = t->o->micro_batches;

	if (p == 1)
		return;
	printf("bubble: %.1f %% of the time by the schedule, rank 0 waited "
	       "%.1f %% on %s (computed %.1f s of %.1f s)\n",
	       100.0 * (p - 1) / (m + p - 1), waited_ms / training_s / 10,
	       net_provider(t->net), compute_ms / 1e3, training_s);
}

static int run(struct trainer *t)
{
	double begin = now_s(), training_s, waited_ms, compute_ms;
	int err = 0;

	if (t->rank == 0)
		print_setup(t);
	for (uint64_t step = 1; !err && step <= t->o->steps; step++)
		err = train_step(t, step);
	training_s = now_s() - begin;
	waited_ms = t->net ? net_waited_ms(t->net) : 0;
	compute_ms = t->compute_ms;
	if (!err)
		err = finish(t);
	if (!err && t->rank == 0)
		print_bubble(t, training_s, waited_ms, compute_ms);
	if (!err && t->net)
		err = net_drain(t->net);
	if (err)
		return err;
	err = vbn_job_fence(t->job, t->o->timeout_ms);
	return err ? trainer_fail(err, "%s", vbn_error()) : 0;
}

/*
 * Say what went wrong, the cause first: a connection breaks before the news
 * of its peer's death arrives, and those who end of it die, too.
 */
static void explain(const struct trainer *t, int err)
{
	int dead = t->job ? vbn_job_dead(t->job) : -1;

	for (int i = 0; i < 200 && t->job && dead < 0 && err == -ECONNRESET;
	     i++) {
		usleep(10000);
		dead = vbn_job_dead(t->job);
	}
	fflush(stdout);
	if (dead >= 0)
		fprintf(stderr,
			"verbena-train: rank %d: rank %d has died (%s)\n",
			t->rank, dead, trainer_error());
	else if (t->job)
		fprintf(stderr, "verbena-train: rank %d: %s\n", t->rank,
			trainer_error());
	else
		fprintf(stderr, "verbena-train: %s\n", trainer_error());
	if (dead >= 0 && t->rank == 0)
		sleep(1); /* the store is here: let the others hear of it */
}

int main(int argc, char **argv)
{
	struct train_options options;
	struct trainer t;
	int err = train_options_parse(argc, argv, &options);

	if (err)
		return err == 1 ? 0 : 2;
	real_init(1);
	err = trainer_open(&t, &options);
	if (!err)
		err = run(&t);
	if (err) {
		explain(&t, err);
		/* Not in order: the others are to know at once. */
		_exit(1);
	}
	trainer_close(&t);
	return 0;
}
