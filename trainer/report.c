/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports: the last stages send sums to rank 0 as messages; rank 0 adds up
 * the replicas' and, once complete, prints and writes metrics. Nothing waits
 * for it while training.
 */
#include "train.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KINDS	4
#define WINDOW	16 /* steps that replicas may be apart; they sum each step */
#define TTY_S	0.2
#define LINES_S 2.0

struct record {
	uint32_t kind, pad;
	uint64_t step, n;
	double a, b;
};

struct sums {
	uint64_t step, n;
	double a, b;
	int replicas; /* that are in */
};

struct report {
	struct trainer *t;
	struct vbn_ep *ep; /* of last stages, to rank 0 */
	FILE *metrics;
	struct sums sums[KINDS][WINDOW];
	uint64_t done[KINDS]; /* last complete step + 1 */
	const char *bad;      /* why the run cannot go on, or NULL */

	double begin_s, last_s, printed_s, loss, tokens_per_s;
	double tokens, tokens_s; /* since the last line, and their time */
	bool is_tty;
};

double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool report_is_evaluated(const struct train_options *o, uint64_t step)
{
	return o->eval_sequences > 0 &&
	       (step == o->steps ||
		(o->eval_every && step % o->eval_every == 0));
}

static void write_metrics(struct report *r, uint64_t step, const double *val)
{
	cJSON *line;
	char *text;

	if (!r->metrics)
		return;
	line = cJSON_CreateObject();
	cJSON_AddNumberToObject(line, "step", (double)step);
	cJSON_AddNumberToObject(line, "loss", r->loss);
	cJSON_AddNumberToObject(line, "tokens_per_s", r->tokens_per_s);
	cJSON_AddNumberToObject(line, "elapsed_s", now_s() - r->begin_s);
	if (val)
		cJSON_AddNumberToObject(line, "val_loss", *val);
	text = cJSON_PrintUnformatted(line);
	cJSON_Delete(line);
	if (!text || fprintf(r->metrics, "%s\n", text) < 0 ||
	    fflush(r->metrics))
		r->bad = "--metrics cannot be written";
	free(text);
}

static void print_progress(struct report *r, uint64_t step)
{
	const struct train_options *o = r->t->o;
	double now = now_s(), eta;
	bool last = step == o->steps;

	if (!last && step != 1 &&
	    now - r->printed_s < (r->is_tty ? TTY_S : LINES_S))
		return;
	r->printed_s = now;
	eta = (now - r->begin_s) / (double)step * (double)(o->steps - step);
	printf("%sstep %llu/%llu  loss %.4f  %.0f tokens/s  ETA %d:%02d%s",
	       r->is_tty ? "\r" : "", (unsigned long long)step,
	       (unsigned long long)o->steps, r->loss, r->tokens / r->tokens_s,
	       (int)eta / 60, (int)eta % 60, r->is_tty && !last ? "   " : "\n");
	fflush(stdout);
	r->tokens = r->tokens_s = 0;
}

static void loss_complete(struct report *r, const struct sums *s)
{
	double now = now_s();

	r->loss = s->a / (double)s->n;
	if (!isfinite(r->loss))
		r->bad = "the loss is not a number any more: lower --lr";
	r->tokens_per_s = (double)s->n / (now - r->last_s);
	r->tokens += (double)s->n;
	r->tokens_s += now - r->last_s;
	r->last_s = now;
	print_progress(r, s->step);
	if (!report_is_evaluated(r->t->o, s->step))
		write_metrics(r, s->step, NULL);
}

static void complete(struct report *r, enum report_kind kind,
		     const struct sums *s)
{
	double n = (double)s->n;
	double val = s->a / n;

	switch (kind) {
	case REPORT_LOSS:
		loss_complete(r, s);
		break;
	case REPORT_VALIDATION:
		printf("step %llu  validation loss %.4f\n",
		       (unsigned long long)s->step, val);
		write_metrics(r, s->step, &val);
		r->last_s = now_s(); /* not part of the next step's time */
		break;
	case REPORT_CONTEXT:
		printf("check: loss of the last byte %.4f, with the context "
		       "before it shuffled %.4f (%+.4f)\n",
		       s->a / n, s->b / n, (s->b - s->a) / n);
		break;
	case REPORT_BYTE:
		break;
	}
	fflush(stdout);
}

static void add(struct report *r, const struct record *in)
{
	struct sums *s;
	int need = in->kind == REPORT_BYTE ? 1 : r->t->o->replicas;

	if (in->kind >= KINDS) {
		r->bad = "a last stage sent nonsense";
		return;
	}
	s = &r->sums[in->kind][in->step % WINDOW];
	if (s->replicas == 0 || s->replicas == need)
		*s = (struct sums){.step = in->step};
	if (s->step != in->step) {
		r->bad = "a last stage sent nonsense";
		return;
	}
	s->n += in->n;
	s->a += in->a;
	s->b += in->b;
	if (++s->replicas == need) {
		r->done[in->kind] = in->step + 1;
		complete(r, (enum report_kind)in->kind, s);
	}
}

static void on_message(void *arg, struct vbn_ep *from, const void *data,
		       size_t len)
{
	struct record record;

	(void)from;
	if (len != sizeof(record))
		return;
	memcpy(&record, data, sizeof(record));
	add(arg, &record);
}

int report_open(struct trainer *t)
{
	struct report *r = calloc(1, sizeof(*r));

	if (!r)
		return trainer_fail(-ENOMEM, "no memory");
	t->report = r;
	r->t = t;
	r->begin_s = r->last_s = now_s();
	if (t->rank == 0) {
		r->is_tty = isatty(STDOUT_FILENO);
		vbn_message_handler(t->ctx, VBN_CHANNEL_TRAINER, on_message, r);
		if (t->o->metrics) {
			r->metrics = fopen(t->o->metrics, "w");
			if (!r->metrics)
				return trainer_fail(-errno, "--metrics %s: %s",
						    t->o->metrics,
						    strerror(errno));
		}
	} else if (t->part.last && vbn_ep_open(&r->ep, t->ctx, 0, 0)) {
		return trainer_fail(-EIO, "%s", vbn_error());
	}
	return 0;
}

void report_close(struct trainer *t)
{
	struct report *r = t->report;

	if (!r)
		return;
	if (t->rank == 0)
		vbn_message_handler(t->ctx, VBN_CHANNEL_TRAINER, NULL, NULL);
	if (r->metrics)
		fclose(r->metrics);
	free(r);
	t->report = NULL;
}

struct sending {
	struct report *r;
	struct record record;
	int err;
};

static bool try_send(void *arg)
{
	struct sending *s = arg;

	s->err = vbn_message(s->r->ep, VBN_CHANNEL_TRAINER, &s->record,
			     sizeof(s->record));
	return s->err != -EAGAIN;
}

int report_send(struct trainer *t, enum report_kind kind, uint64_t step,
		double a, double b, uint64_t n)
{
	struct sending s = {
		.r = t->report,
		.record = {.kind = kind, .step = step, .n = n, .a = a, .b = b}};
	int err;

	if (t->rank == 0) {
		add(t->report, &s.record);
		return 0;
	}
	err = net_wait(t->ctx, t->o->timeout_ms, try_send, &s,
		       "report taken by rank 0");
	if (!err && s.err)
		err = trainer_fail(s.err, "%s", vbn_error());
	return err;
}

int report_check(const struct trainer *t)
{
	const char *bad = t->report->bad;

	return bad ? trainer_fail(-EIO, "%s", bad) : 0;
}

struct finishing {
	struct report *r;
	enum report_kind kind;
	uint64_t step;
};

static bool is_done(void *arg)
{
	const struct finishing *f = arg;

	return f->r->bad || f->r->done[f->kind] > f->step;
}

int report_finish(struct trainer *t, enum report_kind kind, uint64_t step)
{
	struct finishing f = {t->report, kind, step};
	int err;

	if (t->rank != 0)
		return 0;
	err = net_wait(t->ctx, t->o->timeout_ms, is_done, &f,
		       "report from the last stages");
	return err ? err : report_check(t);
}

int report_byte(struct trainer *t, uint64_t i, uint8_t *byte)
{
	int err = report_finish(t, REPORT_BYTE, i);

	if (!err)
		*byte = (uint8_t)t->report->sums[REPORT_BYTE][i % WINDOW].a;
	return err;
}
