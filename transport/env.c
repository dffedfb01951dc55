/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reading the environment by the table. Numbers are all digits and in range,
 * choices are one of their words, or there is an error: nothing is guessed.
 */
#include "env.h"
#include "error.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX	     "VBN_"
#define FAR	     4 /* edits apart: no likely misspelling */
#define NAME_LONGEST 64

extern char **environ;

const struct env_entry *env_find(const char *name)
{
	size_t n;
	const struct env_entry *table = env_table(&n);

	for (size_t i = 0; i < n; i++)
		if (!strcmp(table[i].name, name))
			return &table[i];
	return NULL;
}

const char *env_text(const char *name)
{
	const char *value = getenv(name);

	return value && value[0] ? value : NULL;
}

/* ---- parsing ---- */

static int bad_number(const struct env_entry *e, const char *text)
{
	if (e->type == ENV_HEX)
		return vbn_fail(-EINVAL,
				"%s is \"%.64s\": it must be a number from "
				"0x%lx to 0x%lx",
				e->name, text, e->min, e->max);
	return vbn_fail(-EINVAL,
			"%s is \"%.64s\": it must be a number from %ld to "
			"%ld%s%s%s",
			e->name, text, e->min, e->max, e->beyond ? " (" : "",
			e->beyond ? e->beyond : "", e->beyond ? ")" : "");
}

static int parse_number(const struct env_entry *e, const char *text, long *out)
{
	bool hex = e->type == ENV_HEX && text[0] == '0' &&
		   (text[1] == 'x' || text[1] == 'X');
	bool starts =
		(*text >= '0' && *text <= '9') || (*text == '-' && e->min < 0);
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, hex ? 16 : 10);
	if (!starts || errno || *end || value < e->min || value > e->max)
		return bad_number(e, text);
	*out = value;
	return 0;
}

/* Length of the word at @p, after the spaces that *p is moved over. */
static size_t next_word(const char **p)
{
	*p += strspn(*p, " ");
	return strcspn(*p, " ");
}

static int parse_choice(const struct env_entry *e, const char *text, int *out)
{
	const char *p = e->choices;
	size_t len;

	for (int i = 0; (len = next_word(&p)); i++, p += len)
		if (strlen(text) == len && !memcmp(p, text, len)) {
			*out = i;
			return 0;
		}
	return vbn_fail(-EINVAL, "%s is \"%.64s\": it must be one of: %s",
			e->name, text, e->choices);
}

/* One of the list: NAME or NAME:PORT, of @len bytes. */
static bool add_device(const char *p, size_t len, struct env_devices *devices)
{
	const char *colon = memchr(p, ':', len);
	size_t name = colon ? (size_t)(colon - p) : len;
	char port[4] = "";
	char *end;
	long value = 0;

	if (devices->n == ENV_DEVICES_MAX || !name || name >= ENV_DEVICE_NAME)
		return false;
	if (colon) {
		size_t digits = len - name - 1;

		if (!digits || digits >= sizeof(port))
			return false;
		memcpy(port, colon + 1, digits);
		value = strtol(port, &end, 10);
		if (port[0] < '0' || port[0] > '9' || *end || value < 1 ||
		    value > 254)
			return false;
	}
	memcpy(devices->item[devices->n].name, p, name);
	devices->item[devices->n].name[name] = '\0';
	devices->item[devices->n++].port = (int)value;
	return true;
}

static int parse_devices(const struct env_entry *e, const char *text,
			 struct env_devices *out)
{
	struct env_devices devices = {.excluded = text[0] == '^'};
	const char *p = text + devices.excluded;

	for (;;) {
		size_t len = strcspn(p, ",");

		if (!add_device(p, len, &devices))
			return vbn_fail(-EINVAL,
					"%s is \"%.64s\": it must be %s, of at "
					"most %d devices, ports from 1 to 254",
					e->name, text, e->choices,
					ENV_DEVICES_MAX);
		if (!p[len])
			break;
		p += len + 1;
	}
	*out = devices;
	return 0;
}

int env_number(const char *name, long *value)
{
	const struct env_entry *e = env_find(name);
	const char *text = env_text(name);

	return text ? parse_number(e, text, value) : 0;
}

int env_choice(const char *name, int *value)
{
	const struct env_entry *e = env_find(name);
	const char *text = env_text(name);

	return text ? parse_choice(e, text, value) : 0;
}

int env_devices(const char *name, struct env_devices *devices)
{
	const struct env_entry *e = env_find(name);
	const char *text = env_text(name);

	return text ? parse_devices(e, text, devices) : 0;
}

/* ---- checking ---- */

int env_check_one(const struct env_entry *e)
{
	const char *text = env_text(e->name);
	struct env_devices devices;
	long number;
	int choice;

	if (!text)
		return 0;
	switch (e->type) {
	case ENV_NUMBER:
	case ENV_HEX:
		return parse_number(e, text, &number);
	case ENV_CHOICE:
		return parse_choice(e, text, &choice);
	case ENV_DEVICES:
		return parse_devices(e, text, &devices);
	case ENV_TEXT:
		break;
	}
	return 0;
}

/* How many letters differ: insertions, deletions and exchanges. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[NAME_LONGEST + 1];
	size_t n = strlen(b);

	if (strlen(a) > NAME_LONGEST || n > NAME_LONGEST)
		return FAR;
	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		unsigned diagonal = row[0]++;

		for (size_t j = 1; j <= n; j++) {
			unsigned best = diagonal + (a[i] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[n];
}

const char *env_nearest(const char *name)
{
	size_t n;
	const struct env_entry *table = env_table(&n);
	const char *best = NULL;
	unsigned least = FAR;

	if (!strcmp(name, "VBN_IFACE")) /* others' name of it */
		return "VBN_SOCKET_IFNAME";
	for (size_t i = 0; i < n; i++) {
		unsigned d = distance(name, table[i].name);

		if (d < least) {
			least = d;
			best = table[i].name;
		}
	}
	return best;
}

/* What the project's scripts and tests keep for themselves counts too. */
bool env_known(const char *name)
{
	static const char *const prefixes[] = {"VBN_TEST", "VBN_GUEST",
					       "VBN_RXE_"};

	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return env_find(name);
}

static void warn_unknown(const char *name)
{
	const char *known = env_nearest(name);

	vbn_log(VBN_WARN, "%s is no variable of verbena's%s%s%s", name,
		known ? "; did you mean " : " (docs/environment.md has them)",
		known ? known : "", known ? "?" : "");
}

static void look_for_unknown(void)
{
	for (char **p = environ; p && *p; p++) {
		size_t len = strcspn(*p, "=");
		char name[NAME_LONGEST + 1];

		if (strncmp(*p, PREFIX, sizeof(PREFIX) - 1) ||
		    len > NAME_LONGEST)
			continue;
		memcpy(name, *p, len);
		name[len] = '\0';
		if (!env_known(name))
			warn_unknown(name);
	}
}

int env_check(void)
{
	static atomic_flag warned = ATOMIC_FLAG_INIT;
	size_t n;
	const struct env_entry *table = env_table(&n);
	int err = 0;

	for (size_t i = 0; !err && i < n; i++)
		if (!table[i].overridden)
			err = env_check_one(&table[i]);
	if (!err && !atomic_flag_test_and_set(&warned))
		look_for_unknown();
	return err;
}

/* ---- for people ---- */

static void range(const struct env_entry *e, char *text, size_t room)
{
	if (e->type == ENV_HEX)
		snprintf(text, room, "0x%lx to 0x%lx", e->min, e->max);
	else if (e->type != ENV_NUMBER)
		snprintf(text, room, "%s", e->choices);
	else if (e->max >= INT32_MAX)
		snprintf(text, room, "%ld or more", e->min);
	else
		snprintf(text, room, "%ld to %ld", e->min, e->max);
}

void env_print(FILE *out)
{
	size_t n;
	const struct env_entry *table = env_table(&n);

	for (size_t i = 0; i < n; i++) {
		const struct env_entry *e = &table[i];
		const char *value = env_text(e->name);
		char text[96];

		range(e, text, sizeof(text));
		if (e->group)
			fprintf(out, "%s%s\n", i ? "\n" : "", e->group);
		if (value)
			fprintf(out, "  %s=%s%s\n", e->name,
				e->secret ? "(not shown)" : value,
				env_check_one(e) ? "  <- bad" : "");
		else
			fprintf(out, "  %s (unset: %s)\n", e->name,
				e->fallback ? e->fallback : "none");
		fprintf(out, "      %s [%s]\n", e->help, text);
	}
}

void env_page(FILE *out)
{
	size_t n;
	const struct env_entry *table = env_table(&n);

	fprintf(out,
		"# Environment\n\n"
		"Made from `transport/env_table.c` by `unit_env --page`. "
		"`verbena-info\n--env` prints the same with the "
		"values that are set. A value out of its range is\nan error "
		"when a job opens; a `VBN_*` that is not here is warned "
		"about.\n");
	for (size_t i = 0; i < n; i++) {
		const struct env_entry *e = &table[i];
		char text[96];

		range(e, text, sizeof(text));
		if (e->group)
			fprintf(out,
				"\n## %s\n\n| variable | values | default | "
				"meaning |\n| --- | --- | --- | --- |\n",
				e->group);
		fprintf(out, "| `%s` | %s | %s | %s |\n", e->name, text,
			e->fallback ? e->fallback : "none", e->help);
	}
}
