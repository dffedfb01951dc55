/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The command line. Every value is typed and ranged; what depends on several
 * options is checked at the end, before anything is started.
 */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	OPT_DATA = 256,
	OPT_STAGES,
	OPT_REPLICAS,
	OPT_MICRO_BATCHES,
	OPT_BATCH,
	OPT_CONTEXT,
	OPT_LAYERS,
	OPT_DIM,
	OPT_HEADS,
	OPT_UNTIED,
	OPT_SCHEDULE,
	OPT_SYNC,
	OPT_OPTIMIZER,
	OPT_STEPS,
	OPT_LR,
	OPT_SEED,
	OPT_METRICS,
	OPT_SAMPLE,
	OPT_EVAL_EVERY,
	OPT_EVAL_SEQUENCES,
	OPT_DUMP_GRADIENTS,
	OPT_DUMP_PARAMETERS,
	OPT_TIMEOUT,
	OPT_HELP,
};

static const struct option long_options[] = {
	{"data", required_argument, NULL, OPT_DATA},
	{"stages", required_argument, NULL, OPT_STAGES},
	{"replicas", required_argument, NULL, OPT_REPLICAS},
	{"micro-batches", required_argument, NULL, OPT_MICRO_BATCHES},
	{"batch", required_argument, NULL, OPT_BATCH},
	{"context", required_argument, NULL, OPT_CONTEXT},
	{"layers", required_argument, NULL, OPT_LAYERS},
	{"dim", required_argument, NULL, OPT_DIM},
	{"heads", required_argument, NULL, OPT_HEADS},
	{"untied", no_argument, NULL, OPT_UNTIED},
	{"schedule", required_argument, NULL, OPT_SCHEDULE},
	{"sync", required_argument, NULL, OPT_SYNC},
	{"optimizer", required_argument, NULL, OPT_OPTIMIZER},
	{"steps", required_argument, NULL, OPT_STEPS},
	{"lr", required_argument, NULL, OPT_LR},
	{"seed", required_argument, NULL, OPT_SEED},
	{"metrics", required_argument, NULL, OPT_METRICS},
	{"sample", required_argument, NULL, OPT_SAMPLE},
	{"eval-every", required_argument, NULL, OPT_EVAL_EVERY},
	{"eval-sequences", required_argument, NULL, OPT_EVAL_SEQUENCES},
	{"dump-gradients", required_argument, NULL, OPT_DUMP_GRADIENTS},
	{"dump-parameters", required_argument, NULL, OPT_DUMP_PARAMETERS},
	{"timeout", required_argument, NULL, OPT_TIMEOUT},
	{"help", no_argument, NULL, OPT_HELP},
	{NULL, 0, NULL, 0},
};

static const char help[] =
	"Usage: verbena-run -n STAGES*REPLICAS verbena-train --data FILE "
	"[OPTION...]\n"
	"Train a byte-level GPT on a text, pipelined over stages and "
	"replicated.\n"
	"\n"
	"  --data FILE            the text; its last tenth is for validation\n"
	"  --stages P             pipeline stages (1)\n"
	"  --replicas R           replicas of the pipeline (1)\n"
	"  --micro-batches M      of each replica's share of a batch (4)\n"
	"  --batch B              sequences a step, over all replicas (16)\n"
	"  --context T            bytes a sequence (64)\n"
	"  --layers L --dim D --heads H   the model (4, 128, 4)\n"
	"  --untied               a head of its own, not the embedding's\n"
	"  --schedule gpipe|1f1b  (1f1b)\n"
	"  --sync ring|tree       how replicas sum their gradients (ring)\n"
	"  --optimizer adamw|sgd  (adamw)\n"
	"  --steps N --lr X --seed S      (200, 0.002, 1)\n"
	"  --metrics FILE         JSON lines: step, loss, tokens_per_s, ...\n"
	"  --sample N             print N bytes of the model's own at the end\n"
	"  --eval-every N         validate every N steps (0: at the end)\n"
	"  --eval-sequences N     windows to validate on (256; 0: none)\n"
	"  --dump-gradients P     write step 1's gradients to P.<stage>\n"
	"  --dump-parameters P    write the last parameters to P.<stage>\n"
	"  --timeout S            longest wait for another rank (300)\n";

static int complain(const char *fmt, const char *a, const char *b)
{
	fprintf(stderr, "verbena-train: ");
	fprintf(stderr, fmt, a, b);
	fprintf(stderr, "; see --help\n");
	return -EINVAL;
}

static const char *name_of(int opt)
{
	for (const struct option *o = long_options; o->name; o++)
		if (o->val == opt)
			return o->name;
	return "?";
}

static int parse_u64(int opt, const char *text, uint64_t min, uint64_t max,
		     uint64_t *value)
{
	char range[64];
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	if (!errno && end != text && !*end && text[0] != '-' && *value >= min &&
	    *value <= max)
		return 0;
	snprintf(range, sizeof(range), "%llu to %llu", (unsigned long long)min,
		 (unsigned long long)max);
	fprintf(stderr,
		"verbena-train: --%s is a whole number of %s, not "
		"'%s'; see --help\n",
		name_of(opt), range, text);
	return -EINVAL;
}

static int parse_int(int opt, const char *text, int min, int max, int *value)
{
	uint64_t wide;
	int err = parse_u64(opt, text, (uint64_t)min, (uint64_t)max, &wide);

	if (!err)
		*value = (int)wide;
	return err;
}

static int parse_lr(const char *text, double *lr)
{
	char *end;

	*lr = strtod(text, &end);
	if (end != text && !*end && isfinite(*lr) && *lr > 0)
		return 0;
	return complain("--lr is a number above 0, not '%s'%s", text, "");
}

/* Options of numbers. 1: not one of these. */
static int parse_number(struct train_options *o, int opt, const char *arg)
{
	uint64_t seconds;
	int err;

	switch (opt) {
	case OPT_STAGES:
		return parse_int(opt, arg, 1, 1024, &o->stages);
	case OPT_REPLICAS:
		return parse_int(opt, arg, 1, 1024, &o->replicas);
	case OPT_MICRO_BATCHES:
		return parse_int(opt, arg, 1, 4096, &o->micro_batches);
	case OPT_BATCH:
		return parse_int(opt, arg, 1, 1 << 20, &o->batch);
	case OPT_CONTEXT:
		return parse_int(opt, arg, 1, 65536, &o->model.context);
	case OPT_LAYERS:
		return parse_int(opt, arg, 1, 1024, &o->model.layers);
	case OPT_DIM:
		return parse_int(opt, arg, 1, 65536, &o->model.dim);
	case OPT_HEADS:
		return parse_int(opt, arg, 1, 1024, &o->model.heads);
	case OPT_STEPS:
		return parse_u64(opt, arg, 1, 1000000000, &o->steps);
	case OPT_SEED:
		return parse_u64(opt, arg, 0, UINT64_MAX, &o->model.seed);
	case OPT_SAMPLE:
		return parse_int(opt, arg, 0, 1 << 20, &o->sample);
	case OPT_EVAL_EVERY:
		return parse_u64(opt, arg, 0, 1000000000, &o->eval_every);
	case OPT_EVAL_SEQUENCES:
		return parse_int(opt, arg, 0, 1 << 20, &o->eval_sequences);
	case OPT_TIMEOUT:
		err = parse_u64(opt, arg, 1, 86400, &seconds);
		if (!err)
			o->timeout_ms = (int)seconds * 1000;
		return err;
	default:
		return 1;
	}
}

static int parse_word(struct train_options *o, int opt, const char *arg)
{
	switch (opt) {
	case OPT_DATA:
		o->data = arg;
		return 0;
	case OPT_METRICS:
		o->metrics = arg;
		return 0;
	case OPT_DUMP_GRADIENTS:
		o->dump_gradients = arg;
		return 0;
	case OPT_DUMP_PARAMETERS:
		o->dump_parameters = arg;
		return 0;
	case OPT_UNTIED:
		o->model.tied = false;
		return 0;
	case OPT_LR:
		return parse_lr(arg, &o->lr);
	case OPT_SCHEDULE:
		if (!schedule_parse(arg, &o->schedule))
			return 0;
		return complain("--schedule is gpipe or 1f1b, not '%s'%s", arg,
				"");
	case OPT_SYNC:
		o->sync = arg;
		if (!strcmp(arg, "ring") || !strcmp(arg, "tree"))
			return 0;
		return complain("--sync is ring or tree, not '%s'%s", arg, "");
	case OPT_OPTIMIZER:
		o->optimizer =
			strcmp(arg, "sgd") ? OPTIMIZER_ADAMW : OPTIMIZER_SGD;
		if (!strcmp(arg, "sgd") || !strcmp(arg, "adamw"))
			return 0;
		return complain("--optimizer is adamw or sgd, not '%s'%s", arg,
				"");
	default: /* getopt has said what is wrong */
		fprintf(stderr, "verbena-train: see --help\n");
		return -EINVAL;
	}
}

/* What depends on more than one option. */
static int check(const struct train_options *o)
{
	struct model_part part;
	char why[256];
	int share = o->batch / o->replicas; /* the smallest one */

	if (!o->data)
		return complain("name the text to train on: --data FILE%s%s",
				"", "");
	if (model_config_check(&o->model, why, sizeof(why)) ||
	    model_split(&o->model, o->stages, 0, &part, why, sizeof(why)))
		return complain("%s%s", why, "");
	if (share >= o->micro_batches)
		return 0;
	snprintf(why, sizeof(why),
		 "a batch of %d over %d replicas gives some only %d sequences, "
		 "fewer than the %d micro-batches: raise --batch to %d or lower"
		 " --micro-batches",
		 o->batch, o->replicas, share, o->micro_batches,
		 o->replicas * o->micro_batches);
	return complain("%s%s", why, "");
}

int train_options_parse(int argc, char **argv, struct train_options *o)
{
	int opt, err;

	*o = (struct train_options){
		.stages = 1,
		.replicas = 1,
		.micro_batches = 4,
		.batch = 16,
		.model = {.layers = 4,
			  .dim = 128,
			  .heads = 4,
			  .context = 64,
			  .tied = true,
			  .seed = 1},
		.schedule = SCHEDULE_1F1B,
		.sync = "ring",
		.optimizer = OPTIMIZER_ADAMW,
		.steps = 200,
		.lr = 0.002,
		.eval_sequences = 256,
		.timeout_ms = 300000,
	};
	while ((opt = getopt_long(argc, argv, "", long_options, NULL)) >= 0) {
		if (opt == OPT_HELP) {
			fputs(help, stdout);
			return 1;
		}
		err = parse_number(o, opt, optarg);
		if (err == 1)
			err = parse_word(o, opt, optarg);
		if (err)
			return err;
	}
	if (optind < argc)
		return complain("'%s' is not an option%s", argv[optind], "");
	return check(o);
}
