/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the environment says of collectives.
 */
#include "coll.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int read_switch(const char *name, bool *on)
{
	const char *value = getenv(name);

	if (!value || !*value)
		return 0;
	if (strcmp(value, "0") && strcmp(value, "1"))
		return vbn_fail(-EINVAL, "%s=%s: set 0 or 1", name, value);
	*on = value[0] == '1';
	return 0;
}

/* As the table of variables has it, which is checked when a job is joined. */
static int read_bytes(const char *name, uint64_t min, uint64_t max,
		      uint64_t *bytes)
{
	const char *value = getenv(name);
	unsigned long long n;
	char *end;

	if (!value || !*value)
		return 0;
	errno = 0;
	n = strtoull(value, &end, 10);
	if (errno || *end || value[0] < '0' || value[0] > '9' || n < min ||
	    n > max)
		return vbn_fail(
			-EINVAL,
			"%s is \"%.64s\": it must be a number from %llu to %llu",
			name, value, (unsigned long long)min,
			(unsigned long long)max);
	*bytes = n;
	return 0;
}

static int bad_algorithm(const char *value)
{
	return vbn_fail(
		-EINVAL,
		"VBN_COLL_ALGO=%s: set an algorithm (auto, ring, tree, sharded, ...: see verbena-sim --list), or several by operation, as allreduce:ring,alltoall:bruck",
		value);
}

/* Set @algorithm for the operations that have it, or for one. */
static int set_algorithm(struct coll_settings *settings, const char *operation,
			 const char *name)
{
	enum plan_algorithm algorithm;
	bool some = false;

	if (!strcmp(name, "auto"))
		return 0;
	if (!plan_by_name(name, &algorithm))
		return -EINVAL;
	for (int i = 0; i < PLAN_OPERATIONS; i++) {
		enum plan_operation op = (enum plan_operation)i;

		if ((operation && strcmp(operation, plan_operation_name(op))) ||
		    !plan_find(op, algorithm) || algorithm == PLAN_LOCAL)
			continue;
		settings->algorithm[i] = algorithm;
		some = true;
	}
	return some ? 0 : -EINVAL;
}

static int read_algorithms(struct coll_settings *settings)
{
	const char *value = getenv("VBN_COLL_ALGO");
	char text[512], *rest = text, *item;

	if (!value || !*value)
		return 0;
	if (strlen(value) >= sizeof(text))
		return bad_algorithm(value);
	strcpy(text, value);
	while ((item = strsep(&rest, ","))) {
		char *name = strchr(item, ':');

		if (name)
			*name++ = '\0';
		if (set_algorithm(settings, name ? item : NULL,
				  name ? name : item))
			return bad_algorithm(value);
	}
	return 0;
}

static int read_tuning(struct tuning **tuning)
{
	const char *value = getenv("VBN_COLL_TUNING");

	return value && *value ? tuning_load(value, tuning) : 0;
}

int settings_read(struct coll_settings *settings)
{
	int err;

	for (int i = 0; i < PLAN_OPERATIONS; i++)
		settings->algorithm[i] = PLAN_ALGORITHMS;
	err = read_algorithms(settings);
	if (!err)
		err = read_bytes("VBN_COLL_CHUNK", 0, LONG_MAX,
				 &settings->chunk);
	if (!err)
		err = read_bytes("VBN_COLL_LANDING", LANDING_LEAST,
				 LANDING_MOST, &settings->landing);
	if (!err)
		err = read_switch("VBN_COLL_TRACE", &settings->trace);
	if (!err)
		err = read_switch("VBN_COLL_REPRODUCIBLE",
				  &settings->reproducible);
	if (!err)
		err = read_switch("VBN_COLL_WIRE16", &settings->wire16);
	if (!err)
		err = read_tuning(&settings->tuning);
	return err;
}

void settings_release(struct coll_settings *settings)
{
	free(settings->tuning);
	settings->tuning = NULL;
}
