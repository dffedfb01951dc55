/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Host lists. A name is made from left to right in one buffer: what comes
 * behind a bracket is appended to each number of it in turn.
 */
#include "hostlist.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define BRACKETS_MAX 8
#define DIGITS_MAX   9

struct walk {
	int (*each)(void *arg, const char *host);
	void *arg;
	char name[HOSTLIST_NAME_MAX];
	unsigned count, depth;
};

static int append(struct walk *w, size_t *len, const char *text, size_t n)
{
	if (*len + n >= sizeof(w->name))
		return -E2BIG;
	memcpy(w->name + *len, text, n);
	*len += n;
	w->name[*len] = '\0';
	return 0;
}

/* The bracket that is a list of numbers, between @p and @end. */
static const char *bracket(const char *p, const char *end, const char **close)
{
	for (; p < end; p++) {
		if (*p != '[')
			continue;
		*close = memchr(p, ']', (size_t)(end - p));
		if (!*close || !memchr(p, ':', (size_t)(*close - p)))
			return p;
		p = *close;
	}
	return NULL;
}

/* How many digits @p has before @end, and their value; 0: none, too many. */
static size_t digits(const char *p, const char *end, unsigned long *value)
{
	size_t n = 0;

	*value = 0;
	while (p + n < end && p[n] >= '0' && p[n] <= '9') {
		*value = *value * 10 + (unsigned long)(p[n] - '0');
		if (++n > DIGITS_MAX)
			return 0;
	}
	return n;
}

static int expand(struct walk *w, size_t len, const char *p, const char *end);

/* "3" or "01-04" between @p and @end, each followed by @rest. */
static int expand_range(struct walk *w, size_t len, const char *p,
			const char *end, const char *rest, const char *rest_end)
{
	unsigned long low, high;
	size_t width = digits(p, end, &low), n = width;
	char text[DIGITS_MAX + 1];
	int rc = 0;

	high = low;
	if (width && p + n < end && p[n] == '-') {
		p += n + 1;
		n = digits(p, end, &high);
	}
	if (!n || p + n != end || high < low)
		return -EINVAL;
	for (unsigned long i = low; !rc && i <= high; i++) {
		size_t longer = len;

		snprintf(text, sizeof(text), "%0*lu", (int)width, i);
		rc = append(w, &longer, text, strlen(text));
		if (!rc)
			rc = expand(w, longer, rest, rest_end);
	}
	return rc;
}

static int give(struct walk *w, size_t len)
{
	bool address = strchr(w->name, ':');

	if (!len || (!address && strpbrk(w->name, "[]")))
		return -EINVAL;
	if (++w->count > HOSTLIST_MAX)
		return -E2BIG;
	return w->each(w->arg, w->name);
}

/* What is between @p and @end, behind the first @len bytes of the name. */
static int expand(struct walk *w, size_t len, const char *p, const char *end)
{
	const char *close = NULL, *open = bracket(p, end, &close), *item;
	int rc = append(w, &len, p, (size_t)((open ? open : end) - p));

	if (rc)
		return rc;
	if (!open)
		return give(w, len);
	if (!close)
		return -EINVAL;
	if (w->depth == BRACKETS_MAX)
		return -E2BIG;
	w->depth++;
	for (item = open + 1; !rc && item <= close;) {
		const char *comma = memchr(item, ',', (size_t)(close - item));
		const char *stop = comma ? comma : close;

		rc = expand_range(w, len, item, stop, close + 1, end);
		item = stop + 1;
	}
	w->depth--;
	return rc;
}

/* Where the item at @p ends: at a comma outside of brackets. */
static const char *item_end(const char *p)
{
	bool inside = false;

	for (; *p && (inside || *p != ','); p++)
		inside = *p == '[' || (inside && *p != ']');
	return p;
}

int hostlist_each(const char *list, int (*each)(void *arg, const char *host),
		  void *arg)
{
	struct walk w = {.each = each, .arg = arg};
	const char *p = list;
	int rc;

	for (;;) {
		const char *end = item_end(p);

		rc = expand(&w, 0, p, end);
		if (rc || !*end)
			return rc;
		p = end + 1;
	}
}

struct first {
	char *host;
	size_t room;
};

static int keep_first(void *arg, const char *host)
{
	struct first *first = arg;

	if (strlen(host) >= first->room)
		return -E2BIG;
	strcpy(first->host, host);
	return 1;
}

int hostlist_first(const char *list, char *host, size_t room)
{
	struct first first = {host, room};
	int rc = hostlist_each(list, keep_first, &first);

	return rc == 1 ? 0 : rc;
}
