/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * VBN_FAULT's text: items apart by commas, KEY=VALUE, or KEY=VALUE@RANK for
 * one rank only. Of two that concern a rank the later one holds.
 */
#include "plan.h"
#include "error.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum type { LIKELY, NUMBER, OPERATION };

static const struct key {
	const char *name;
	enum type type;
	size_t at; /* in struct fault_plan */
	long least, most;
} keys[] = {
	{"seed", OPERATION, offsetof(struct fault_plan, seed), 0, 0},
	{"delay", LIKELY, offsetof(struct fault_plan, delay), 0, 0},
	{"reorder", LIKELY, offsetof(struct fault_plan, reorder), 0, 0},
	{"late", LIKELY, offsetof(struct fault_plan, late), 0, 0},
	{"again", LIKELY, offsetof(struct fault_plan, again), 0, 0},
	{"corrupt", LIKELY, offsetof(struct fault_plan, corrupt), 0, 0},
	{"time", NUMBER, offsetof(struct fault_plan, time_us), 1,
	 FAULT_TIME_MOST},
	{"slow", NUMBER, offsetof(struct fault_plan, slow_us), 0,
	 FAULT_SLOW_MOST},
	{"fail", OPERATION, offsetof(struct fault_plan, fail), 0, 0},
	{"break", OPERATION, offsetof(struct fault_plan, broken), 0, 0},
	{"kill", OPERATION, offsetof(struct fault_plan, kill), 0, 0},
};

#define NKEYS	 (sizeof(keys) / sizeof(keys[0]))
#define ITEM_MAX 64

static const struct key *find_key(const char *name)
{
	for (size_t i = 0; i < NKEYS; i++)
		if (!strcmp(keys[i].name, name))
			return &keys[i];
	return NULL;
}

/* All of @text, which begins with a digit. */
static bool whole(const char *text, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(text, &end, 10);
	return !errno && *text >= '0' && *text <= '9' && !*end;
}

static bool likely(const char *text, double *value)
{
	char *end;

	errno = 0;
	*value = strtod(text, &end);
	return !errno && *text >= '0' && *text <= '9' && !*end && *value <= 1;
}

static int set(const struct key *key, const char *text, void *to,
	       const char *item)
{
	uint64_t n;

	if (key->type == LIKELY) {
		if (likely(text, to))
			return 0;
		return vbn_fail(-EINVAL,
				"VBN_FAULT: \"%s\": %s takes how likely it "
				"is, from 0 to 1",
				item, key->name);
	}
	if (!whole(text, &n))
		return vbn_fail(-EINVAL,
				"VBN_FAULT: \"%s\": %s takes a whole number",
				item, key->name);
	if (key->type == OPERATION) {
		*(uint64_t *)to = n;
		return 0;
	}
	if (n < (uint64_t)key->least || n > (uint64_t)key->most)
		return vbn_fail(-EINVAL,
				"VBN_FAULT: \"%s\": %s takes microseconds, "
				"from %ld to %ld",
				item, key->name, key->least, key->most);
	*(long *)to = (long)n;
	return 0;
}

static int unknown(const char *item)
{
	char names[128] = "";
	size_t n = 0;

	for (size_t i = 0; i < NKEYS; i++)
		n += (size_t)snprintf(names + n, sizeof(names) - n, "%s%s",
				      i ? ", " : "", keys[i].name);
	return vbn_fail(-EINVAL,
			"VBN_FAULT: \"%s\": it must be KEY=VALUE or "
			"KEY=VALUE@RANK, KEY being one of %s",
			item, names);
}

static int take(const char *item, int rank, int nranks, struct fault_plan *plan)
{
	/* what is of another rank is checked as well */
	struct fault_plan others = *plan, *to = plan;
	char name[ITEM_MAX], *value, *where;
	const struct key *key;
	uint64_t who;

	snprintf(name, sizeof(name), "%s", item);
	value = strchr(name, '=');
	if (!value)
		return unknown(item);
	*value++ = '\0';
	where = strchr(value, '@');
	if (where)
		*where++ = '\0';
	key = find_key(name);
	if (!key)
		return unknown(item);
	if (where && (!whole(where, &who) || who >= (uint64_t)nranks))
		return vbn_fail(-EINVAL,
				"VBN_FAULT: \"%s\": no such rank: the job has "
				"%d",
				item, nranks);
	if (!where && !strcmp(name, "kill"))
		return vbn_fail(-EINVAL,
				"VBN_FAULT: \"%s\": say which rank is to die: "
				"kill=K@RANK",
				item);
	if (where && who != (uint64_t)rank)
		to = &others;
	return set(key, value, (char *)to + key->at, item);
}

int fault_plan_parse(const char *text, int rank, int nranks,
		     struct fault_plan *plan)
{
	*plan = (struct fault_plan){.seed = 1, .time_us = FAULT_TIME_US};
	if (!text || !*text)
		return 0;
	plan->on = true;
	while (*text) {
		size_t len = strcspn(text, ",");
		char item[ITEM_MAX];
		int err;

		if (len >= sizeof(item))
			return vbn_fail(-EINVAL,
					"VBN_FAULT: \"%.32s...\": no item is "
					"that long",
					text);
		memcpy(item, text, len);
		item[len] = '\0';
		err = take(item, rank, nranks, plan);
		if (err)
			return err;
		text += len;
		if (*text == ',' && !*++text)
			return unknown("");
	}
	return 0;
}

/* Steele, Lea and Flood's splitmix64, of a state that is both. */
uint64_t fault_mix(uint64_t a, uint64_t b)
{
	uint64_t z = a + (b + 1) * 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

bool fault_chance(uint64_t bits, double likely_)
{
	return ldexp((double)(bits >> 11), -53) < likely_;
}
