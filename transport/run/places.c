/* SPDX-License-Identifier: BSD-3-Clause */
/* Host lists of the command line and of files. */
#include "places.h"
#include "hostlist.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad(struct places *p, const char *text, const char *why)
{
	snprintf(p->why, sizeof(p->why), "host \"%.200s\": %s", text, why);
	return -EINVAL;
}

static bool parse_slots(const char *text, int *slots)
{
	char *end;
	long value;

	errno = 0;
	value = strtol(text, &end, 10);
	if (errno || *text < '0' || *text > '9' || *end || value < 1 ||
	    value > SLOTS_MAX)
		return false;
	*slots = (int)value;
	return true;
}

/* A name that begins with a dash would be the remote shell's option. */
static bool good_name(const char *name)
{
	static const char bad_letters[] = " \t\"'`\\$;&|<>()*?!#";

	return name[0] && name[0] != '-' && !strpbrk(name, bad_letters);
}

static int add(struct places *p, const char *name, int slots)
{
	struct place *more;

	if (!good_name(name) || strlen(name) >= PLACE_NAME)
		return bad(p, name, "this is no host's name");
	for (int i = 0; i < p->n; i++)
		if (!strcmp(p->list[i].name, name))
			return bad(p, name,
				   "it is named twice: give all its ranks at "
				   "once, as host:N");
	if (p->n == PLACES_MAX || p->slots + slots > SLOTS_MAX)
		return bad(p, name,
			   "there are more than 1024 hosts or 65536 "
			   "ranks");
	more = realloc(p->list, (size_t)(p->n + 1) * sizeof(*more));
	if (!more) {
		snprintf(p->why, sizeof(p->why), "no memory");
		return -ENOMEM;
	}
	p->list = more;
	snprintf(more[p->n].name, PLACE_NAME, "%s", name);
	more[p->n++].slots = slots;
	p->slots += slots;
	return 0;
}

/* "host:2", "[fe80::1]:2"; a bare IPv6 address has no number. */
static int add_item(void *arg, const char *item)
{
	struct places *p = arg;
	char name[HOSTLIST_NAME_MAX];
	char *colon, *open;
	int slots = 1;

	snprintf(name, sizeof(name), "%s", item);
	colon = strrchr(name, ':');
	open = strchr(name, '[');
	if (open) {
		char *close = strchr(open, ']');

		if (!close || (close[1] && close[1] != ':'))
			return bad(p, item, "it must be [address]:N");
		colon = close[1] ? close + 1 : NULL;
		memmove(open, open + 1, (size_t)(close - open - 1));
		memset(close - 1, 0, colon ? 2 : 1);
	} else if (colon && strchr(name, ':') != colon) {
		colon = NULL;
	}
	if (colon) {
		*colon = '\0';
		if (!parse_slots(colon + 1, &slots))
			return bad(p, item,
				   "behind the colon is a number of ranks "
				   "from 1 to 65536");
	}
	return add(p, name, slots);
}

int places_add(struct places *p, const char *text)
{
	int rc = hostlist_each(text, add_item, p);

	if (rc == -EINVAL && !p->why[0])
		return bad(p, text, "this is no list of hosts");
	if (rc == -E2BIG)
		rc = bad(p, text, "the list is too long");
	return rc;
}

static int add_line(struct places *p, char *line)
{
	char *save = NULL, *name, *word;
	int slots = 0;

	line[strcspn(line, "#\r\n")] = '\0';
	name = strtok_r(line, " \t", &save);
	if (!name)
		return 0;
	while ((word = strtok_r(NULL, " \t", &save))) {
		if (!strncmp(word, "slots=", 6) &&
		    parse_slots(word + 6, &slots))
			continue;
		if (!strncmp(word, "max_slots=", 10) ||
		    !strncmp(word, "max-slots=", 10))
			continue;
		return bad(p, name, "behind it slots=N may stand, and no more");
	}
	return slots ? add(p, name, slots) : places_add(p, name);
}

int places_read(struct places *p, const char *path)
{
	char line[1024];
	FILE *f = fopen(path, "re");
	int number = 0, rc = 0;

	if (!f) {
		snprintf(p->why, sizeof(p->why), "%.200s: %s", path,
			 strerror(errno));
		return -errno;
	}
	while (!rc && fgets(line, sizeof(line), f)) {
		number++;
		rc = strchr(line, '\n') || feof(f)
			     ? add_line(p, line)
			     : bad(p, "", "the line is too long");
	}
	fclose(f);
	if (rc) {
		char why[sizeof(p->why)];

		snprintf(why, sizeof(why), "%s", p->why);
		snprintf(p->why, sizeof(p->why), "%.100s line %d: %.260s", path,
			 number, why);
	} else if (!p->n) {
		snprintf(p->why, sizeof(p->why), "%.200s names no host", path);
		rc = -EINVAL;
	}
	return rc;
}

void places_cut(struct places *p, int n)
{
	int have = 0, i = 0;

	for (; i < p->n && have < n; i++) {
		if (have + p->list[i].slots > n)
			p->list[i].slots = n - have;
		have += p->list[i].slots;
	}
	p->n = i;
	p->slots = have;
}

void places_free(struct places *p)
{
	free(p->list);
	*p = (struct places){.n = 0};
}
