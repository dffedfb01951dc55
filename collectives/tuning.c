/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading a tuning file, and looking lines up in it.
 */
#include "tuning.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Defined by the transport: sets vbn_error(), returns @err. */
int vbn_fail(int err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#define HEAD  "verbena-tuning 1"
#define WORDS 6
/* Far more than is ever measured; bounds what a wrong file can take. */
#define LINES_MOST 65536

struct reader {
	const char *path;
	FILE *file;
	locale_t numbers; /* a point is a point */
	size_t at;	  /* the line's number, from 1 */
	size_t room;
	struct tuning *tuning;
	char text[256];
	char *word[WORDS]; /* of the line, in text */
	size_t words;
};

static int bad(const struct reader *r, const char *expected)
{
	return vbn_fail(-EINVAL, "VBN_COLL_TUNING: %s line %zu: expected %s",
			r->path, r->at, expected);
}

/* ---- parameters ---- */

/* Where a number goes, and what it is times; GB/s are turned over. */
static const struct parameter {
	const char *name;
	size_t offset;
	enum { MICROSECONDS, GB_PER_SECOND, COUNT } unit;
} parameters[] = {
#define PARAMETER(name, field, unit)                                           \
	{                                                                      \
		name, offsetof(struct cost_params, field), unit                \
	}
	PARAMETER("local_alpha_us", local.alpha, MICROSECONDS),
	PARAMETER("local_overhead_us", local.overhead, MICROSECONDS),
	PARAMETER("local_gb_s", local.beta, GB_PER_SECOND),
	PARAMETER("net_alpha_us", net.alpha, MICROSECONDS),
	PARAMETER("net_overhead_us", net.overhead, MICROSECONDS),
	PARAMETER("net_gb_s", net.beta, GB_PER_SECOND),
	PARAMETER("sum_gb_s", gamma, GB_PER_SECOND),
	PARAMETER("call_us", call, MICROSECONDS),
	PARAMETER("wake_us", wake, MICROSECONDS),
	PARAMETER("processors", processors, COUNT),
};

enum { PARAMETERS = sizeof(parameters) / sizeof(*parameters) };

static const struct parameter *parameter_of(const char *name)
{
	for (size_t i = 0; i < PARAMETERS; i++)
		if (!strcmp(parameters[i].name, name))
			return &parameters[i];
	return NULL;
}

static int take_parameter(struct reader *r, const struct parameter *p)
{
	void *field = (char *)&r->tuning->params + p->offset;
	char *end = NULL;
	double value = 0;

	if (r->words == 2)
		value = strtod_l(r->word[1], &end, r->numbers);
	if (!end || *end || !(value >= 0 && value <= 1e9) ||
	    (value < 1e-9 && p->unit != MICROSECONDS))
		return bad(r, p->unit == MICROSECONDS
				      ? "one number, 0 to 1e9 (us)"
			      : p->unit == COUNT
				      ? "one number, 1 to 1e9"
				      : "one number above 0, to 1e9 (GB/s)");
	if (p->unit == MICROSECONDS)
		*(double *)field = value * 1e-6;
	else if (p->unit == GB_PER_SECOND)
		*(double *)field = 1e-9 / value;
	else if (value < 1 || value != (unsigned)value)
		return bad(r, "a whole number, 1 to 1e9");
	else
		*(unsigned *)field = (unsigned)value;
	return 0;
}

/* ---- lines ---- */

static bool number(const char *text, uint64_t most, uint64_t *value)
{
	unsigned long long v;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	v = strtoull(text, &end, 10);
	*value = v;
	return !errno && !*end && v <= most;
}

static bool operation_of(const char *name, enum plan_operation *operation)
{
	for (int i = 0; i < PLAN_OPERATIONS; i++) {
		*operation = (enum plan_operation)i;
		if (!strcmp(name, plan_operation_name(*operation)))
			return true;
	}
	return false;
}

static int grow(struct reader *r)
{
	struct tuning *more;
	size_t room = 2 * r->room + 64;

	if (r->tuning->count < r->room)
		return 0;
	if (r->room >= LINES_MOST)
		return bad(r, "no more than 65536 lines");
	more = realloc(r->tuning, sizeof(*more) + room * sizeof(*more->lines));
	if (!more)
		return vbn_fail(-ENOMEM, "no memory for a tuning file");
	r->tuning = more;
	r->room = room;
	return 0;
}

static int take_line(struct reader *r, enum plan_operation operation)
{
	struct tuning_line line = {.operation = operation, .at = r->at};
	uint64_t n;
	int err;

	if (r->words != 5)
		return bad(r,
			   "an operation, members, bytes, algorithm and chunk");
	if (!number(r->word[1], 65536, &n) || n < 2)
		return bad(r, "2 to 65536 members, after the operation");
	if (!number(r->word[2], SIZE_MAX / 2, &line.bytes))
		return bad(r, "a number of bytes, after the members");
	if (!plan_by_name(r->word[3], &line.algorithm) ||
	    line.algorithm == PLAN_LOCAL ||
	    !plan_find(operation, line.algorithm))
		return bad(
			r,
			"one of the operation's algorithms, after the bytes");
	if (!number(r->word[4], 1 << 30, &line.chunk))
		return bad(
			r,
			"bytes of a chunk, 0 (by the model) to 1073741824, at the end");
	line.n = (int)n;
	err = grow(r);
	if (!err)
		r->tuning->lines[r->tuning->count++] = line;
	return err;
}

/* ---- the file ---- */

static int take(struct reader *r)
{
	const struct parameter *parameter;
	enum plan_operation operation;

	if (r->words == 0)
		return 0;
	parameter = parameter_of(r->word[0]);
	if (parameter)
		return take_parameter(r, parameter);
	if (operation_of(r->word[0], &operation))
		return take_line(r, operation);
	return bad(
		r,
		"an operation (allreduce, ...) or a parameter (local_alpha_us, local_overhead_us, local_gb_s, net_alpha_us, net_overhead_us, net_gb_s, sum_gb_s, call_us, wake_us, processors)");
}

/* The next line, without its end, comment and blanks; 1, 0 at the end. */
static int next_line(struct reader *r)
{
	char *rest = r->text, *word, *end;

	if (!fgets(r->text, sizeof(r->text), r->file))
		return ferror(r->file)
			       ? vbn_fail(-EIO,
					  "VBN_COLL_TUNING: cannot read %s",
					  r->path)
			       : 0;
	r->at++;
	end = strchr(r->text, '\n');
	if (!end && !feof(r->file))
		return bad(r, "a line of at most 254 characters");
	r->text[strcspn(r->text, "#\r\n")] = '\0';
	r->words = 0;
	while ((word = strsep(&rest, " \t"))) {
		if (!*word)
			continue;
		if (r->words == WORDS)
			return bad(r, "fewer words");
		r->word[r->words++] = word;
	}
	return 1;
}

static int read_lines(struct reader *r)
{
	int more = next_line(r);
	int err = 0;

	if (more < 0)
		return more;
	if (!more || r->words != 2 || strcmp(r->word[0], "verbena-tuning") ||
	    strcmp(r->word[1], "1")) {
		r->at = 1;
		return bad(
			r,
			"\"" HEAD
			"\": a file that verbena-perf tune of this version wrote");
	}
	while (!err && (more = next_line(r)) > 0)
		err = take(r);
	return more < 0 ? more : err;
}

static int compare(const struct tuning_line *x, const struct tuning_line *y)
{
	if (x->operation != y->operation)
		return x->operation < y->operation ? -1 : 1;
	if (x->n != y->n)
		return x->n < y->n ? -1 : 1;
	return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

/* The order in the file is that of equal ones. */
static int compare_all(const void *a, const void *b)
{
	const struct tuning_line *x = a, *y = b;
	int order = compare(x, y);

	return order ? order : x->at < y->at ? -1 : x->at > y->at;
}

int tuning_load(const char *path, struct tuning **tuning)
{
	struct reader r = {.path = path};
	int err;

	r.file = fopen(path, "re");
	if (!r.file)
		return vbn_fail(-errno, "VBN_COLL_TUNING=%s: %s", path,
				strerror(errno));
	r.numbers = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	r.tuning = malloc(sizeof(*r.tuning));
	if (r.tuning && r.numbers) {
		r.tuning->params = cost_usual;
		r.tuning->count = 0;
		err = read_lines(&r);
	} else {
		err = vbn_fail(-ENOMEM, "no memory for a tuning file");
	}
	fclose(r.file);
	if (r.numbers)
		freelocale(r.numbers);
	if (err) {
		free(r.tuning);
		return err;
	}
	qsort(r.tuning->lines, r.tuning->count, sizeof(*r.tuning->lines),
	      compare_all);
	*tuning = r.tuning;
	return 0;
}

/* ---- looking up ---- */

/* The first line that is not before (operation, n, bytes). */
static size_t lower_bound(const struct tuning *tuning,
			  const struct tuning_line *key)
{
	size_t from = 0, to = tuning->count;

	while (from < to) {
		size_t middle = from + (to - from) / 2;

		if (compare(&tuning->lines[middle], key) < 0)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static bool is_for(const struct tuning *tuning, size_t i,
		   const struct tuning_line *key)
{
	return i < tuning->count &&
	       tuning->lines[i].operation == key->operation &&
	       tuning->lines[i].n == key->n;
}

/* Whether @below is nearer to @bytes than @above is, by ratio. */
static bool is_nearer(uint64_t bytes, uint64_t below, uint64_t above)
{
	double b = (double)(bytes ? bytes : 1);

	return b * b < (double)(below ? below : 1) * (double)above;
}

size_t tuning_find(const struct tuning *tuning, enum plan_operation operation,
		   int n, uint64_t bytes, const struct tuning_line **first)
{
	struct tuning_line key = {
		.operation = operation, .n = n, .bytes = bytes};
	size_t at = lower_bound(tuning, &key), end;
	bool above = is_for(tuning, at, &key);
	bool below = at > 0 && is_for(tuning, at - 1, &key);

	if (!above && !below)
		return 0;
	if (!above || (below && is_nearer(bytes, tuning->lines[at - 1].bytes,
					  tuning->lines[at].bytes)))
		at--;
	key.bytes = tuning->lines[at].bytes;
	at = lower_bound(tuning, &key);
	for (end = at; is_for(tuning, end, &key) &&
		       tuning->lines[end].bytes == key.bytes;)
		end++;
	*first = &tuning->lines[at];
	return end - at;
}
