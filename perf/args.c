/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsing and checking of the command line: see args.h. */
#include "args_table.h"

#include <verbena/collectives.h>

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int bad(char *why, size_t room, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static int bad(char *why, size_t room, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, room, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* How an option is called in messages. */
static const char *called(const struct flag *f, char name[32])
{
	if (f->letter < 256)
		snprintf(name, 32, "-%c", f->letter);
	else
		snprintf(name, 32, "--%s", f->name);
	return name;
}

static unsigned class_of(const struct perf_test *t)
{
	if (t->transport)
		return t->bandwidth ? BW : LAT;
	if (t->op == PERF_TUNE)
		return TUNE;
	switch (t->coll) {
	case COLL_ALLREDUCE:
	case COLL_REDUCE:
	case COLL_REDUCE_SCATTER:
		return SUM;
	case COLL_BARRIER:
		return EMPTY;
	default:
		return MOVE;
	}
}

/* Digits, and a unit. */
static int number(const char *text, size_t *value)
{
	static const char units[] = "KMG";
	unsigned long long v;
	const char *unit;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	for (; unit && unit >= units; unit--) {
		if (v > SIZE_MAX >> 10)
			return -ERANGE;
		v <<= 10;
	}
	if (errno || (*end && (!strchr(units, *end) || end[1])))
		return -EINVAL;
	*value = (size_t)v;
	return 0;
}

/* A name's number; *field is not touched if there is no such name. */
static int number_of(const struct flag *f, const char *text, int *field,
		     char *why, size_t room)
{
	size_t used;
	char name[32];

	for (int i = 0; f->value(i); i++) {
		if (strcmp(f->value(i), text) != 0)
			continue;
		*field = i;
		return 0;
	}
	bad(why, room, "%s %s: it is one of", called(f, name), text);
	for (int i = 0; f->value(i); i++) {
		used = strlen(why);
		bad(why + used, room - used, " %s", f->value(i));
	}
	return -EINVAL;
}

static int take(struct perf_options *o, const struct flag *f, const char *text,
		char *why, size_t room)
{
	void *field = (char *)o + f->offset;
	char name[32];
	size_t value;

	switch (f->kind) {
	case KIND_BOOL:
		*(bool *)field = true;
		return 0;
	case KIND_TEXT:
		if (!*text)
			return bad(why, room, "%s: empty", called(f, name));
		*(const char **)field = text;
		return 0;
	case KIND_NAME:
		return number_of(f, text, field, why, room);
	case KIND_NUMBER:
		break;
	}
	if (number(text, &value) != 0 || value < f->min || value > f->max)
		return bad(why, room, "%s %s: a number from %zu to %zu",
			   called(f, name), text, f->min, f->max);
	*(size_t *)field = value;
	return 0;
}

static const struct flag *flag_of(int letter)
{
	for (size_t i = 0; i < perf_nflags; i++)
		if (perf_flags[i].letter == letter)
			return &perf_flags[i];
	return NULL;
}

static int unknown(int c, char **argv, char *why, size_t room)
{
	const char *text = argv[optind > 1 ? optind - 1 : 1];

	if (c == ':')
		return bad(why, room, "%s needs a value (see --help)", text);
	if (optopt && optopt < 256 && !flag_of(optopt))
		return bad(why, room, "no option -%c (see --help)", optopt);
	return bad(why, room, "no option %s (see --help)", text);
}

static int parse(struct perf_options *o, int argc, char **argv, uint64_t *given,
		 char *why, size_t room)
{
	struct option longs[PERF_FLAGS_MAX + 1] = {0};
	char shorts[2 * PERF_FLAGS_MAX + 2] = ":", *s = shorts + 1;
	int c, rc;

	for (size_t i = 0; i < perf_nflags; i++) {
		longs[i] = (struct option){perf_flags[i].name,
					   perf_flags[i].arg ? required_argument
							     : no_argument,
					   NULL, perf_flags[i].letter};
		if (perf_flags[i].letter >= 256)
			continue;
		*s++ = (char)perf_flags[i].letter;
		if (perf_flags[i].arg)
			*s++ = ':';
	}
	optind = 0; /* from the beginning, even when called again */
	opterr = 0;
	while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		const struct flag *f = flag_of(c);

		if (!f)
			return unknown(c, argv, why, room);
		rc = take(o, f, optarg, why, room);
		if (rc != 0 || o->help)
			return rc;
		*given |= UINT64_C(1) << (f - perf_flags);
	}
	return 0;
}

static int find_test(struct perf_options *o, int argc, char **argv, char *why,
		     size_t room)
{
	if (optind + 1 != argc)
		return bad(why, room,
			   "name one test, put-lat for example "
			   "(--help lists them)");
	for (size_t i = 0; i < perf_ntests; i++)
		if (strcmp(argv[optind], perf_tests[i].name) == 0)
			o->test = &perf_tests[i];
	return o->test ? 0
		       : bad(why, room, "no test %s (--help lists them)",
			     argv[optind]);
}

/* Whether a power of two, of those an MTU can be. */
static bool is_mtu(size_t mtu)
{
	return (mtu & (mtu - 1)) == 0;
}

/* What each value is good for alone, but not together. */
static int combine(const struct perf_options *o, char *why, size_t room)
{
	const char *out[] = {o->json, o->csv, o->plot};
	size_t element = vbn_type_bytes((enum vbn_type)o->type);

	if (o->duration_s != PERF_UNSET && o->iterations != PERF_UNSET)
		return bad(why, room, "-D and -n exclude each other");
	if (o->duration_s != PERF_UNSET && o->rounds != PERF_UNSET)
		return bad(why, room,
			   "-D makes as many rounds as it takes: "
			   "leave --rounds out");
	if (o->all && o->size < (o->test->transport ? 2 : 8))
		return bad(why, room, "-s %zu: -a begins above that", o->size);
	if (o->port != PERF_UNSET && !o->device)
		return bad(why, room, "-i needs -d: whose port?");
	if (o->mtu != PERF_UNSET && !is_mtu(o->mtu))
		return bad(why, room, "-m %zu: 256, 512, 1024, 2048 or 4096",
			   o->mtu);
	if (o->inline_max != PERF_UNSET && !o->raw)
		return bad(why, room,
			   "-I goes with --raw: the library takes "
			   "what the device grants");
	if (o->cm && !o->raw)
		return bad(why, room,
			   "-R goes with --raw: the library's "
			   "connections are made by the job");
	if (o->list > o->depth)
		return bad(why, room, "-l %zu is more than the tx depth, %zu",
			   o->list, o->depth);
	if (o->test->op == PERF_ATOMIC && (o->all || o->size != 8))
		return bad(why, room,
			   "atomic-lat has words of 8 bytes: leave "
			   "-s and -a out");
	if (class_of(o->test) & DATA && o->size < element)
		return bad(why, room, "%s -s %zu: an element has %zu bytes",
			   o->test->name, o->size, element);
	for (size_t i = 0; i < 3; i++)
		for (size_t j = 0; j < i; j++)
			if (out[i] && out[j] && strcmp(out[i], out[j]) == 0)
				return bad(why, room,
					   "two outputs go to one file: %s",
					   out[i]);
	return 0;
}

static const char *called_tests(unsigned where)
{
	switch (where) {
	case LAT:
		return "latency tests";
	case BW:
		return "bandwidth tests";
	case SUM:
		return "collectives that reduce";
	case DATA:
		return "collectives that have data";
	case COLL:
		return "collectives";
	case SIZED:
		return "tests that have data";
	case TUNE:
		return "tune";
	default:
		return "tests of the transport";
	}
}

static int fits(const struct perf_options *o, uint64_t given, char *why,
		size_t room)
{
	char name[32];

	for (size_t i = 0; i < perf_nflags; i++) {
		const struct flag *f = &perf_flags[i];

		if (!(given & UINT64_C(1) << i) || f->where & class_of(o->test))
			continue;
		return bad(why, room, "%s does not go with %s, but with %s",
			   called(f, name), o->test->name,
			   called_tests(f->where));
	}
	return 0;
}

int perf_parse(struct perf_options *o, int argc, char **argv, char *why,
	       size_t room)
{
	uint64_t given = 0;
	int rc;

	*o = (struct perf_options){0};
	for (size_t i = 0; i < perf_nflags; i++)
		if (perf_flags[i].kind == KIND_NUMBER)
			*(size_t *)(void *)((char *)o + perf_flags[i].offset) =
				PERF_UNSET;
	o->qps = o->list = o->check = 1;
	o->type = VBN_FLOAT32;
	o->reduction = VBN_SUM;
	o->depth = 128;
	o->seconds = 60;
	rc = parse(o, argc, argv, &given, why, room);
	if (rc != 0 || o->help)
		return rc;
	rc = find_test(o, argc, argv, why, room);
	if (rc == 0)
		rc = fits(o, given, why, room);
	if (rc != 0)
		return rc;
	if (o->size == PERF_UNSET && !o->all)
		o->size = o->test->usual;
	return combine(o, why, room);
}

bool perf_wants_verbs(const struct perf_options *o)
{
	return o->device || o->connect || o->gid_index != PERF_UNSET ||
	       o->mtu != PERF_UNSET || o->sl != PERF_UNSET ||
	       o->tos != PERF_UNSET;
}

size_t perf_sizes(const struct perf_options *o, size_t sizes[PERF_SIZES_MAX])
{
	bool coll = o->test->op == PERF_COLLECTIVE;
	size_t last = o->size, n = 0;

	if (!o->all) {
		sizes[0] = o->size;
		return 1;
	}
	if (last == PERF_UNSET)
		last = coll ? (size_t)64 << 20 : PERF_LARGEST;
	for (size_t s = coll ? 8 : 2; s <= last && n < PERF_SIZES_MAX; s *= 2)
		sizes[n++] = s;
	return n;
}

size_t perf_iterations(const struct perf_options *o, size_t size)
{
	size_t n = ((size_t)256 << 20) / size;

	if (o->iterations != PERF_UNSET)
		return o->iterations;
	if (n > 1000)
		n = 1000;
	return n < 10 ? 10 : n;
}

size_t perf_warmup(const struct perf_options *o, size_t iterations)
{
	size_t n = iterations / 10 + 1 < 100 ? iterations / 10 + 1 : 100;

	if (o->warmup != PERF_UNSET)
		n = o->warmup;
	return o->warm_up && n < o->depth ? o->depth : n;
}

size_t perf_rounds(const struct perf_options *o, size_t iterations)
{
	size_t n = o->rounds != PERF_UNSET ? o->rounds
		   : o->raw		   ? PERF_ROUNDS_RAW
					   : 1;

	return n < iterations ? n : iterations;
}

size_t perf_turn(size_t left, size_t rounds, double each, double seconds)
{
	size_t n = left / rounds + (left % rounds != 0);
	size_t most = PERF_TURN_FIRST;

	if (each > 0 && seconds / each >= (double)PERF_TURN_MAX)
		most = PERF_TURN_MAX;
	else if (each > 0)
		most = (size_t)(seconds / each) + 1;
	return n < most ? n : most;
}

size_t perf_share(size_t n, size_t among, size_t k)
{
	return n / among + (k < n % among);
}

/* ---- help ---- */

static void help_flag(FILE *out, const struct flag *f)
{
	char left[64];
	const char *line = f->what, *end;

	snprintf(left, sizeof(left), "%c%c%s--%s%s%s",
		 f->letter < 256 ? '-' : ' ', f->letter < 256 ? f->letter : ' ',
		 f->letter < 256 ? ", " : "  ", f->name, f->arg ? " " : "",
		 f->arg ? f->arg : "");
	for (; (end = strchr(line, '\n')); line = end + 1) {
		fprintf(out, "  %-26s %.*s\n", left, (int)(end - line), line);
		left[0] = '\0';
	}
	fprintf(out, "  %-26s %s\n", left, line);
}

void perf_help(FILE *out)
{
	fputs("usage: verbena-run -n 2 verbena-perf TEST [OPTION...]\n"
	      "tests:\n",
	      out);
	for (size_t i = 0; i < perf_ntests; i++)
		fprintf(out, "  %-14s %s (%zu bytes)\n", perf_tests[i].name,
			perf_tests[i].what, perf_tests[i].usual);
	fputs("options:\n", out);
	for (size_t i = 0; i < perf_nflags; i++)
		help_flag(out, &perf_flags[i]);
	fputs("\n"
	      "Tests of the transport run between two ranks; with one rank "
	      "(-n 1) over an\nendpoint to itself, from post to completion. "
	      "put-bw -b takes more ranks, too.\nVBN_PROVIDER (verbena-run "
	      "--provider) chooses shm, verbs or ucx.\n\n"
	      "put-lat is measured as ib_write_lat does it: each side looks at "
	      "the last byte\nof its buffer until the other's put has come. "
	      "That is a method of this tool; the\nlibrary never takes a byte "
	      "for an arrival. What a receiver may rely on, a put\nwith notify, "
	      "is notify-lat.\n\n"
	      "Collectives run between any number of ranks, with nccl-tests' "
	      "columns; roots are\nrank 0, and -s is divided among the ranks where "
	      "each has a part.\n\n"
	      "Latencies are in microseconds, t_typical is the median. MB are "
	      "2^20 bytes.\nExit status: 0; 1 failure; 2 wrong usage.\n",
	      out);
}
