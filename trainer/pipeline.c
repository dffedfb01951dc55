/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor: runs a schedule's actions for one stage, and the forward-only
 * passes of validation and sampling. It is the one place where computing and
 * communication meet; the order of everything comes from schedule.h.
 */
#include "train.h"

#include "random.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* One micro-batch's way through this stage. */
struct pass {
	int sequences;
	uint64_t item; /* number on the links */
	struct stage_io io;
	void *input, *output;
};

static size_t activation_bytes(const struct trainer *t, int sequences)
{
	return stage_activation_count(t->stage, sequences) * sizeof(real);
}

/* Get the input, and room for the output. */
static int pass_begin(struct trainer *t, struct pass *p)
{
	struct link *in = t->net ? net_in(t->net, LINK_ACTIVATIONS) : NULL;
	struct link *out = t->net ? net_out(t->net, LINK_ACTIVATIONS) : NULL;
	int err = 0;

	if (in)
		err = link_receive(in, p->item, &p->input);
	if (!err && out)
		err = link_buffer(out, p->item, &p->output);
	p->io.input = p->input;
	p->io.output = p->output;
	return err;
}

static int pass_send(struct trainer *t, const struct pass *p)
{
	struct link *out = t->net ? net_out(t->net, LINK_ACTIVATIONS) : NULL;

	return out ? link_send(out, p->item, activation_bytes(t, p->sequences))
		   : 0;
}

static double timed_forward(struct trainer *t, int slot, const struct pass *p)
{
	double begin = now_s();
	double loss = stage_forward(t->stage, slot, p->sequences, &p->io);

	t->compute_ms += (now_s() - begin) * 1e3;
	return loss;
}

/* ---- training ---- */

struct step {
	uint64_t first_item, first_gradient;
	int slots;
	real scale;
	double loss;
};

static int forward(struct trainer *t, struct step *s, int b)
{
	size_t context = (size_t)t->o->model.context;
	int first;
	struct pass p = {.sequences = trainer_micro_batch(t, b, &first),
			 .item = s->first_item + (uint64_t)b};
	int err = pass_begin(t, &p);

	if (err)
		return err;
	p.io.tokens = t->tokens + (size_t)first * context;
	p.io.targets = t->targets + (size_t)first * context;
	s->loss += timed_forward(t, b % s->slots, &p);
	return pass_send(t, &p);
}

static int backward(struct trainer *t, struct step *s, int b)
{
	struct link *in = t->net ? net_in(t->net, LINK_GRADIENTS) : NULL;
	struct link *out = t->net ? net_out(t->net, LINK_GRADIENTS) : NULL;
	struct link *input = t->net ? net_in(t->net, LINK_ACTIVATIONS) : NULL;
	uint64_t item = s->first_gradient + (uint64_t)b;
	void *output_grad = NULL, *input_grad = NULL;
	int first, n = trainer_micro_batch(t, b, &first);
	double begin;
	int err = 0;

	if (in)
		err = link_receive(in, item, &output_grad);
	if (!err && out)
		err = link_buffer(out, item, &input_grad);
	if (err)
		return err;
	begin = now_s();
	stage_backward(t->stage, b % s->slots, s->scale, output_grad,
		       input_grad);
	t->compute_ms += (now_s() - begin) * 1e3;
	if (out)
		err = link_send(out, item, activation_bytes(t, n));
	if (!err && in)
		err = link_release(in, item);
	if (!err && input)
		err = link_release(input, s->first_item + (uint64_t)b);
	return err;
}

int pipeline_step(struct trainer *t, uint64_t number, double *loss)
{
	const struct train_options *o = t->o;
	int m = o->micro_batches, p = o->stages, i = t->stage_index;
	struct step s = {
		.first_item = t->items[LINK_ACTIVATIONS],
		.first_gradient = t->items[LINK_GRADIENTS],
		.slots = schedule_slots(o->schedule, p, m, i),
		.scale = (real)1 / ((real)o->batch * (real)o->model.context),
	};
	int err = 0;

	data_train_batch(t->data, o->model.seed, number,
			 (uint64_t)t->first_sequence, t->share,
			 t->part.first ? t->tokens : NULL,
			 t->part.last ? t->targets : NULL);
	memset(t->grads, 0, t->params_count * sizeof(real));
	for (int n = 0; !err && n < schedule_length(o->schedule, p, m, i);
	     n++) {
		struct action a = schedule_action(o->schedule, p, m, i, n);

		err = a.kind == ACTION_FORWARD ? forward(t, &s, a.micro_batch)
					       : backward(t, &s, a.micro_batch);
	}
	t->items[LINK_ACTIVATIONS] += (uint64_t)m;
	t->items[LINK_GRADIENTS] += (uint64_t)m;
	*loss = s.loss;
	return err;
}

/* ---- forward only ---- */

/* Run @p, its item being the next, and let go of its input. */
static int pass_through(struct trainer *t, struct pass *p, double *loss)
{
	struct link *in = t->net ? net_in(t->net, LINK_ACTIVATIONS) : NULL;
	int err;

	p->item = t->items[LINK_ACTIVATIONS]++;
	err = pass_begin(t, p);
	if (err)
		return err;
	*loss = timed_forward(t, 0, p);
	err = pass_send(t, p);
	if (!err && in)
		err = link_release(in, p->item);
	return err;
}

/* The share of @n windows that replica r takes: [*begin, *end). */
static void share_of(const struct trainer *t, int n, int *begin, int *end)
{
	int r = t->replica, replicas = t->o->replicas;

	*begin = (int)((int64_t)n * r / replicas);
	*end = (int)((int64_t)n * (r + 1) / replicas);
}

int pipeline_validate(struct trainer *t, double *loss, uint64_t *positions)
{
	int n = t->o->eval_sequences, begin, end, err = 0;

	*loss = 0;
	*positions = 0;
	share_of(t, n, &begin, &end);
	while (!err && begin < end) {
		struct pass p = {.sequences = t->largest};
		double part = 0;

		if (p.sequences > end - begin)
			p.sequences = end - begin;
		data_validation_batch(t->data, (uint64_t)n, (uint64_t)begin,
				      p.sequences, t->tokens, t->targets);
		p.io.tokens = t->tokens;
		p.io.targets = t->targets;
		err = pass_through(t, &p, &part);
		*loss += part;
		*positions +=
			(uint64_t)p.sequences * (uint64_t)t->o->model.context;
		begin += p.sequences;
	}
	return err;
}

/* Loss of the last position of one window, given its tokens. */
static int last_byte_loss(struct trainer *t, uint8_t target, double *sum)
{
	real logits[MODEL_VOCABULARY];
	struct pass p = {.sequences = 1,
			 .io = {.tokens = t->tokens,
				.logits = logits,
				.position = t->o->model.context - 1}};
	double unused;
	int err = pass_through(t, &p, &unused);

	if (!err && t->part.last)
		*sum += stage_logits_loss(logits, target);
	return err;
}

int pipeline_check_context(struct trainer *t, double *intact, double *shuffled,
			   uint64_t *windows)
{
	int context = t->o->model.context;
	int n = t->o->eval_sequences, begin, end, err = 0;

	*intact = *shuffled = 0;
	share_of(t, n, &begin, &end);
	*windows = (uint64_t)(end - begin);
	for (int i = begin; !err && i < end; i++) {
		uint8_t target;

		data_validation_batch(t->data, (uint64_t)n, (uint64_t)i, 1,
				      t->tokens, t->targets);
		target = t->targets[context - 1];
		err = last_byte_loss(t, target, intact);
		data_shuffle_context(t->tokens, context,
				     t->o->model.seed + (uint64_t)i);
		if (!err)
			err = last_byte_loss(t, target, shuffled);
	}
	return err;
}

/* Append @byte to the window of the last @context bytes. */
static void append(uint8_t *window, int *used, int context, uint8_t byte)
{
	if (*used == context) {
		memmove(window, window + 1, (size_t)context - 1);
		--*used;
	}
	window[(*used)++] = byte;
}

static int sample_one(struct trainer *t, int position, uint64_t i,
		      uint8_t *byte)
{
	real logits[MODEL_VOCABULARY];
	struct pass p = {.sequences = 1,
			 .io = {.tokens = t->tokens,
				.logits = logits,
				.position = position}};
	uint64_t key = random_key(t->o->model.seed, "sample");
	double unused;
	int err = pass_through(t, &p, &unused);

	if (!err && t->part.last) {
		*byte = stage_logits_sample(logits, 0.8, random_unit(key, i));
		err = report_send(t, REPORT_BYTE, i, *byte, 0, 1);
	}
	if (!err && t->rank == 0)
		err = report_byte(t, i, byte);
	return err;
}

/* Only the first stage needs the bytes: the window is kept there. */
int pipeline_sample(struct trainer *t, int n)
{
	int context = t->o->model.context;
	int used = context / 2 > 0 ? context / 2 : 1;
	int position = used - 1, err = 0;

	if (t->replica != 0 || n == 0)
		return 0;
	data_validation_batch(t->data, 1, 0, 1, t->tokens, t->targets);
	memset(t->tokens + used, 0, (size_t)(context - used));
	if (t->rank == 0)
		printf("sample: %.*s|", used, (const char *)t->tokens);
	for (int i = 0; !err && i < n; i++) {
		uint8_t byte = 0;

		err = sample_one(t, position, (uint64_t)i, &byte);
		if (err)
			break;
		if (t->rank == 0)
			putchar(byte);
		append(t->tokens, &used, context, byte);
		position = used - 1;
	}
	if (t->rank == 0)
		putchar('\n');
	return err;
}
