/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsing and checking of the command line: see setup.h. */
#include "setup.h"
#include "coll_values.h"
#include "reduce.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum kind {
	KIND_SWITCH,
	KIND_NUMBER,
	KIND_REAL,
	KIND_LIST,
	KIND_NAME,
	KIND_ALGORITHMS,
	KIND_FILE,
	KIND_FILE_OR_NOT /* without a value: standard output */
};

/* Which operations an option goes with. */
enum { SUM = 1, MOVE = 2, EMPTY = 4, DATA = SUM | MOVE, ANY = DATA | EMPTY };

struct flag {
	int letter; /* above any character: none */
	const char *name, *arg;
	enum kind kind;
	size_t offset; /* in struct setup */
	unsigned where;
	double min, max, unit; /* a value's bounds, and what one of it is */
	const char *(*value)(int i);
	const char *what; /* lines of --help */
};

static const char *topology_name(int i)
{
	return i == SETUP_FLAT ? "flat" : i == SETUP_TREE ? "tree" : NULL;
}

#define TERA  1099511627776.0
#define COUNT 1e15

#define FIELD(name) offsetof(struct setup, name)
#define SWITCH(letter, name, field, what)                                      \
	{                                                                      \
		letter, name, NULL, KIND_SWITCH, FIELD(field), ANY, 0, 0, 0,   \
			NULL, what                                             \
	}
#define NUMBER(name, arg, field, where, min, max, what)                        \
	{                                                                      \
		256, name, arg, KIND_NUMBER, FIELD(field), where, min, max, 1, \
			NULL, what                                             \
	}
#define REAL(name, arg, field, min, max, unit, what)                           \
	{                                                                      \
		256, name, arg, KIND_REAL, FIELD(field), ANY, min, max, unit,  \
			NULL, what                                             \
	}
#define NAME(name, field, where, value, what)                                  \
	{                                                                      \
		256, name, "NAME", KIND_NAME, FIELD(field), where, 0, 0, 0,    \
			value, what                                            \
	}
#define OUTPUT(name, arg, kind, field, what)                                   \
	{                                                                      \
		256, name, arg, kind, FIELD(field), ANY, 0, 0, 0, NULL, what   \
	}

/* Bytes of a second, of 10^9 bits and of 10^9 bytes. */
#define GBIT  1.25e8
#define GBYTE 1e9

static const struct flag flags[] = {
	{'n', "ranks", "LIST", KIND_LIST, FIELD(ranks), ANY, 2, 16384, 1, NULL,
	 "how many (16): a list, and ranges of doublings, as\n6,8..1024"},
	{'s', "size", "LIST", KIND_LIST, FIELD(sizes), DATA, 1, TERA, 1, NULL,
	 "bytes of the larger buffer (1M), likewise: 8..64M;\n"
	 "K, M, G, T are powers of 1024"},
	{'a', "algorithm", "LIST", KIND_ALGORITHMS, FIELD(algorithms), ANY, 0,
	 0, 0, NULL, "those to compare (all that the operation has)"},
	NAME("type", type, DATA, coll_type_name, "of the elements (float)"),
	NAME("op", reduction, SUM, coll_reduction_name, "reduction (sum)"),
	REAL("latency", "USEC", latency, 0, 1e9, 1e-6,
	     "of a message between hosts (2)"),
	REAL("bandwidth", "GBIT", bandwidth, 1e-6, 1e6, GBIT,
	     "of an interface, 10^9 bits per second (100)"),
	REAL("overhead", "USEC", overhead, 0, 1e9, 1e-6,
	     "that each message holds an interface beside its\nbytes (0)"),
	REAL("reduce-speed", "GBYTE", reduce_speed, 1e-6, 1e6, GBYTE,
	     "at which a rank sums or copies, 10^9 bytes per\nsecond (10)"),
	NAME("topology", topology, ANY, topology_name,
	     "flat: one switch; tree: leaf switches under a core\n(flat)"),
	NUMBER("hosts-per-leaf", "N", hosts_per_leaf, ANY, 1, 16384,
	       "of --topology tree (16)"),
	REAL("oversubscription", "X", oversubscription, 0.01, 1000, 1,
	     "of --topology tree: a leaf's interfaces have X\n"
	     "times the bandwidth of its way up (2)"),
	NUMBER("ranks-per-host", "N", ranks_per_host, ANY, 1, 16384,
	       "neighbours, which share a host (1)"),
	REAL("local-latency", "USEC", local_latency, 0, 1e9, 1e-6,
	     "of a message within a host (0.5)"),
	REAL("local-bandwidth", "GBIT", local_bandwidth, 1e-6, 1e6, GBIT,
	     "within a host, of each rank (200)"),
	REAL("local-overhead", "USEC", local_overhead, 0, 1e9, 1e-6,
	     "that each takes sender and receiver beside its\n"
	     "bytes (0)"),
	NUMBER("processors", "N", processors, ANY, 1, 16384,
	       "of a host, whose ranks take turns (each its own)"),
	REAL("wake", "USEC", wake, 0, 1e9, 1e-6,
	     "of --processors: a switch to another rank (1)"),
	REAL("call", "USEC", call, 0, 1e9, 1e-6,
	     "that each rank takes before its first step (0)"),
	OUTPUT("tuning", "FILE", KIND_FILE, tuning,
	       "of verbena-perf tune: what is not given here is as\n"
	       "it was measured, and the library chooses by it"),
	SWITCH(256, "shared-nic", shared_nic,
	       "the ranks of a host share one interface"),
	NUMBER("stragglers", "K", stragglers, ANY, 0, 16384,
	       "ranks that are slow, evenly spread (0)"),
	REAL("slowdown", "X", slowdown, 1, 1e6, 1,
	     "times that what a straggler does takes longer (10)"),
	NUMBER("window", "STEPS", window, ANY, 1, 64,
	       "that a rank looks ahead (64)"),
	NUMBER("slots", "N", slots, ANY, 1, 64,
	       "landing slots for each pair of ranks (4)"),
	NUMBER("chunk", "BYTES", chunk, DATA, 1, TERA,
	       "of a message at most (as the library chooses)"),
	NUMBER("budget", "STEPS", budget, ANY, 1000, COUNT,
	       "of plans, simulated for a row at most (1M); what\n"
	       "has more is computed by formula"),
	SWITCH(256, "check", check,
	       "run with real data and the real kernels, in several\n"
	       "orders of events, and compare the results"),
	SWITCH(256, "predict", predict,
	       "say what the library would choose, and how far that\n"
	       "is from the best"),
	SWITCH('l', "list", list,
	       "the operations' algorithms, where they are\n"
	       "described, and their properties"),
	OUTPUT("json", "FILE", KIND_FILE, json,
	       "results as JSON; - for standard output, instead of\n"
	       "the table"),
	OUTPUT("csv", "[FILE]", KIND_FILE_OR_NOT, csv,
	       "results as CSV; --csv=FILE for a file"),
	OUTPUT("plot", "FILE.svg", KIND_FILE, plot,
	       "time over -s, or over -n, made by gnuplot"),
	SWITCH('h', "help", help, "this text"),
};

#define NFLAGS (sizeof(flags) / sizeof(flags[0]))

static int bad(char why[SETUP_WHY], const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static int bad(char why[SETUP_WHY], const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, SETUP_WHY, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* To what @why has already. */
static void append(char why[SETUP_WHY], const char *text)
{
	size_t used = strlen(why);

	snprintf(why + used, SETUP_WHY - used, " %s", text);
}

static const char *called(const struct flag *f, char name[32])
{
	if (f->letter < 256)
		snprintf(name, 32, "-%c", f->letter);
	else
		snprintf(name, 32, "--%s", f->name);
	return name;
}

bool setup_operation(const char *name, enum plan_operation *operation)
{
	for (int i = 0; i < PLAN_OPERATIONS; i++)
		if (!strcmp(name,
			    plan_operation_name((enum plan_operation)i))) {
			*operation = (enum plan_operation)i;
			return true;
		}
	return false;
}

/* ---- values ---- */

static int take_number(const struct flag *f, const char *text, void *field,
		       char why[SETUP_WHY])
{
	char name[32];
	uint64_t value;

	if (setup_number(text, &value) != 0 || (double)value < f->min ||
	    (double)value > f->max)
		return bad(why, "%s %s: a number from %.0f to %.0f",
			   called(f, name), text, f->min, f->max);
	*(uint64_t *)field = value;
	return 0;
}

static int take_real(const struct flag *f, const char *text, double *field,
		     char why[SETUP_WHY])
{
	char name[32], *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= f->min && value <= f->max))
		return bad(why, "%s %s: a number from %g to %g (%s)",
			   called(f, name), text, f->min, f->max, f->arg);
	*field = value * f->unit;
	return 0;
}

static int take_list(const struct flag *f, const char *text,
		     struct setup_values *field, char why[SETUP_WHY])
{
	char name[32];
	int rc = setup_list(text, (uint64_t)f->min, (uint64_t)f->max, field);

	if (rc == -E2BIG)
		return bad(why, "%s %s: more than %d values", called(f, name),
			   text, SETUP_VALUES);
	if (rc != 0)
		return bad(why,
			   "%s %s: numbers from %.0f to %.0f and ranges of "
			   "doublings, as 6,8..64",
			   called(f, name), text, f->min, f->max);
	return 0;
}

static int take_name(const struct flag *f, const char *text, int *field,
		     char why[SETUP_WHY])
{
	char name[32];

	for (int i = 0; f->value(i); i++)
		if (!strcmp(f->value(i), text)) {
			*field = i;
			return 0;
		}
	bad(why, "%s %s: it is one of", called(f, name), text);
	for (int i = 0; f->value(i); i++)
		append(why, f->value(i));
	return -EINVAL;
}

/* Of any operation: which it is may come later. */
static int take_algorithms(const struct flag *f, const char *text, bool *field,
			   char why[SETUP_WHY])
{
	char copy[512], name[32], *rest = copy, *item;
	enum plan_algorithm algorithm;

	snprintf(copy, sizeof(copy), "%s", text);
	while ((item = strsep(&rest, ","))) {
		if (plan_by_name(item, &algorithm) && algorithm != PLAN_LOCAL) {
			field[algorithm] = true;
			continue;
		}
		bad(why, "%s %s: one or several of", called(f, name), item);
		for (int i = PLAN_LOCAL + 1; i < PLAN_ALGORITHMS; i++)
			append(why, plan_name((enum plan_algorithm)i));
		return -EINVAL;
	}
	return 0;
}

static int take(struct setup *setup, const struct flag *f, const char *text,
		char why[SETUP_WHY])
{
	void *field = (char *)setup + f->offset;
	char name[32];

	switch (f->kind) {
	case KIND_SWITCH:
		*(bool *)field = true;
		return 0;
	case KIND_NUMBER:
		return take_number(f, text, field, why);
	case KIND_REAL:
		return take_real(f, text, field, why);
	case KIND_LIST:
		return take_list(f, text, field, why);
	case KIND_NAME:
		return take_name(f, text, field, why);
	case KIND_ALGORITHMS:
		return take_algorithms(f, text, field, why);
	default:
		break;
	}
	if (text && !*text)
		return bad(why,
			   "%s: empty: name a file, or - for standard "
			   "output",
			   called(f, name));
	*(const char **)field = text ? text : "-";
	return 0;
}

/* ---- the command line ---- */

static int unknown(int c, char **argv, char why[SETUP_WHY])
{
	const char *text = argv[optind > 1 ? optind - 1 : 1];

	if (c == ':')
		return bad(why, "%s needs a value (see --help)", text);
	if (optopt > 0 && optopt < 256)
		return bad(why, "no option -%c (see --help)", optopt);
	return bad(why, "no option %s (see --help)", text);
}

static int argument_of(const struct flag *f)
{
	return !f->arg			     ? no_argument
	       : f->kind == KIND_FILE_OR_NOT ? optional_argument
					     : required_argument;
}

static int parse(struct setup *setup, int argc, char **argv, uint64_t *given,
		 char why[SETUP_WHY])
{
	struct option longs[NFLAGS + 1] = {0};
	char shorts[2 * NFLAGS + 2] = ":", *s = shorts + 1;
	int c, rc;

	for (size_t i = 0; i < NFLAGS; i++) {
		longs[i] =
			(struct option){flags[i].name, argument_of(&flags[i]),
					NULL, 256 + (int)i};
		if (flags[i].letter >= 256)
			continue;
		*s++ = (char)flags[i].letter;
		if (flags[i].arg)
			*s++ = ':';
	}
	optind = 0; /* from the beginning, even when called again */
	opterr = 0;
	while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		size_t i = c >= 256 ? (size_t)(c - 256) : 0;

		while (c < 256 && i < NFLAGS && flags[i].letter != c)
			i++;
		if (i == NFLAGS)
			return unknown(c, argv, why);
		rc = take(setup, &flags[i], optarg, why);
		if (rc != 0 || setup->help)
			return rc;
		*given |= UINT64_C(1) << i;
	}
	return 0;
}

static int find_operation(struct setup *setup, int argc, char **argv,
			  char why[SETUP_WHY])
{
	if (optind == argc)
		return 0;
	if (optind + 1 < argc)
		return bad(why, "%s: one operation at a time",
			   argv[optind + 1]);
	setup->named = true;
	if (setup_operation(argv[optind], &setup->operation))
		return 0;
	bad(why, "no operation %s: it is one of", argv[optind]);
	for (int i = 0; i < PLAN_OPERATIONS; i++)
		append(why, plan_operation_name((enum plan_operation)i));
	return -EINVAL;
}

/* ---- what must go together ---- */

static unsigned class_of(enum plan_operation operation)
{
	switch (operation) {
	case PLAN_OP_ALLREDUCE:
	case PLAN_OP_REDUCE:
	case PLAN_OP_REDUCE_SCATTER:
		return SUM;
	case PLAN_OP_BARRIER:
		return EMPTY;
	default:
		return MOVE;
	}
}

static int fits(const struct setup *setup, uint64_t given, char why[SETUP_WHY])
{
	char name[32];

	for (size_t i = 0; i < NFLAGS; i++)
		if (given & UINT64_C(1) << i &&
		    !(flags[i].where & class_of(setup->operation)))
			return bad(why, "%s does not go with %s",
				   called(&flags[i], name),
				   plan_operation_name(setup->operation));
	return 0;
}

static bool was_given(uint64_t given, const char *name)
{
	for (size_t i = 0; i < NFLAGS; i++)
		if (!strcmp(flags[i].name, name))
			return given & UINT64_C(1) << i;
	return false;
}

/* All that the operation has, or that those asked for are among them. */
static int choose_algorithms(struct setup *setup, bool some,
			     char why[SETUP_WHY])
{
	for (int i = PLAN_LOCAL + 1; i < PLAN_ALGORITHMS; i++) {
		enum plan_algorithm algorithm = (enum plan_algorithm)i;
		bool has = plan_find(setup->operation, algorithm);

		if (!some)
			setup->algorithms[i] = has;
		if (has || !setup->algorithms[i])
			continue;
		bad(why, "-a %s: %s has", plan_name(algorithm),
		    plan_operation_name(setup->operation));
		for (int k = PLAN_LOCAL + 1; k < PLAN_ALGORITHMS; k++)
			if (plan_find(setup->operation, (enum plan_algorithm)k))
				append(why, plan_name((enum plan_algorithm)k));
		return -EINVAL;
	}
	return 0;
}

static int check_files(const struct setup *setup, char why[SETUP_WHY])
{
	const char *files[] = {setup->json, setup->csv, setup->plot};

	for (size_t i = 0; i < 3; i++)
		for (size_t k = 0; k < i; k++)
			if (files[i] && files[k] && !strcmp(files[i], files[k]))
				return bad(why,
					   "two outputs go to one file: %s",
					   files[i]);
	if (setup->plot && setup->ranks.n > 1 && setup->sizes.n > 1)
		return bad(why, "--plot is over -n or over -s: give one value "
				"of the other");
	if (setup->plot && setup->ranks.n == 1 && setup->sizes.n == 1)
		return bad(why, "--plot is over -n or over -s: give several "
				"values of one, as -s 8..64M");
	return 0;
}

static int combine(const struct setup *setup, uint64_t given,
		   char why[SETUP_WHY])
{
	uint64_t element = vbn_type_bytes((enum vbn_type)setup->type);
	bool tree = setup->topology == SETUP_TREE;

	if (!tree && was_given(given, "hosts-per-leaf"))
		return bad(why, "--hosts-per-leaf goes with --topology tree");
	if (!tree && was_given(given, "oversubscription"))
		return bad(why, "--oversubscription goes with --topology tree");
	if (was_given(given, "wake") && !setup->processors)
		return bad(why, "--wake goes with --processors N");
	if (was_given(given, "slowdown") && !setup->stragglers)
		return bad(why, "--slowdown goes with --stragglers K");
	for (unsigned i = 0; i < setup->ranks.n; i++)
		if (setup->stragglers > setup->ranks.at[i])
			return bad(why,
				   "--stragglers %llu: of -n %llu at most "
				   "all",
				   (unsigned long long)setup->stragglers,
				   (unsigned long long)setup->ranks.at[i]);
	for (unsigned i = 0; i < setup->sizes.n; i++)
		if (class_of(setup->operation) != EMPTY &&
		    setup->sizes.at[i] < element)
			return bad(why, "-s %llu: an element has %llu bytes",
				   (unsigned long long)setup->sizes.at[i],
				   (unsigned long long)element);
	if (class_of(setup->operation) == SUM &&
	    !reduce_find((enum vbn_type)setup->type,
			 (enum vbn_reduction)setup->reduction, false))
		return bad(why, "--op %s: not of --type %s, but of integers",
			   coll_reduction_name(setup->reduction),
			   coll_type_name(setup->type));
	return check_files(setup, why);
}

static struct setup defaults(void)
{
	return (struct setup){
		.operation = PLAN_OP_ALLREDUCE,
		.ranks = {{16}, 1},
		.sizes = {{1 << 20}, 1},
		.type = VBN_FLOAT32,
		.reduction = VBN_SUM,
		.latency = 2e-6,
		.bandwidth = 100 * GBIT,
		.reduce_speed = 10 * GBYTE,
		.local_latency = 0.5e-6,
		.local_bandwidth = 200 * GBIT,
		.wake = 1e-6,
		.hosts_per_leaf = 16,
		.ranks_per_host = 1,
		.oversubscription = 2,
		.slowdown = 10,
		.window = 64,
		.slots = 4,
		.budget = 1 << 20,
	};
}

int setup_parse(struct setup *setup, int argc, char **argv, char why[SETUP_WHY])
{
	uint64_t given = 0;
	int rc;

	*setup = defaults();
	rc = parse(setup, argc, argv, &given, why);
	if (rc == 0 && setup->tuning && !setup->help) {
		const char *path = setup->tuning;

		*setup = defaults();
		rc = setup_measured(setup, path, why);
		if (rc == 0)
			rc = parse(setup, argc, argv, &given, why);
	}
	if (rc != 0 || setup->help)
		return rc;
	rc = find_operation(setup, argc, argv, why);
	if (rc == 0)
		rc = fits(setup, given, why);
	if (rc == 0)
		rc = choose_algorithms(setup, was_given(given, "algorithm"),
				       why);
	if (class_of(setup->operation) == EMPTY)
		setup->sizes = (struct setup_values){{0}, 1};
	return rc ? rc : combine(setup, given, why);
}

/* ---- help ---- */

static void help_flag(FILE *out, const struct flag *f)
{
	bool optional = f->kind == KIND_FILE_OR_NOT;
	const char *line = f->what, *end;
	char left[64];

	snprintf(left, sizeof(left), "%c%c%s--%s%s%s",
		 f->letter < 256 ? '-' : ' ', f->letter < 256 ? f->letter : ' ',
		 f->letter < 256 ? ", " : "  ", f->name,
		 optional ? "[=FILE]"
		 : f->arg ? " "
			  : "",
		 !optional && f->arg ? f->arg : "");
	for (; (end = strchr(line, '\n')); line = end + 1) {
		fprintf(out, "  %-26s %.*s\n", left, (int)(end - line), line);
		left[0] = '\0';
	}
	fprintf(out, "  %-26s %s\n", left, line);
}

void setup_help(FILE *out)
{
	fputs("usage: verbena-sim [OPTION...] [OPERATION]\n"
	      "What the collective algorithms cost, by simulation: each rank's "
	      "plan is run\nas the library runs it, in a model of the network."
	      "\n\noperations (allreduce):\n ",
	      out);
	for (int i = 0; i < PLAN_OPERATIONS; i++)
		fprintf(out, "%s%s", i == PLAN_OPERATIONS / 2 ? "\n  " : " ",
			plan_operation_name((enum plan_operation)i));
	fputs("\noptions:\n", out);
	for (size_t i = 0; i < NFLAGS; i++)
		help_flag(out, &flags[i]);
	fputs("\n"
	      "Bytes, messages and peers are of one rank, at most; fan-in is "
	      "how many ranks\nsend to one at once. The fastest is marked *. "
	      "See verbena-sim(1).\n"
	      "Exit status: 0; 1 a wrong result of --check, or failure; 2 "
	      "wrong usage.\n",
	      out);
}
