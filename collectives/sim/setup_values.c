/* SPDX-License-Identifier: BSD-3-Clause */
/* Numbers, and lists of them: see setup.h. */
#include "setup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int setup_number(const char *text, uint64_t *value)
{
	static const char units[] = "KMGT";
	unsigned long long v;
	const char *unit;
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	v = strtoull(text, &end, 10);
	unit = *end ? strchr(units, *end) : NULL;
	if (errno || (*end && (!unit || end[1])))
		return -EINVAL;
	for (; unit && unit >= units; unit--) {
		if (v > UINT64_MAX >> 10)
			return -EINVAL;
		v <<= 10;
	}
	*value = v;
	return 0;
}

static int add(struct setup_values *values, uint64_t value)
{
	if (values->n == SETUP_VALUES)
		return -E2BIG;
	values->at[values->n++] = value;
	return 0;
}

/* One item of a list: a number, or first..last. */
static int add_item(char *item, uint64_t min, uint64_t max,
		    struct setup_values *values)
{
	char *dots = strstr(item, "..");
	uint64_t first, last;
	int rc;

	if (dots)
		*dots = '\0';
	rc = setup_number(item, &first);
	last = first;
	if (rc == 0 && dots)
		rc = setup_number(dots + 2, &last);
	if (rc != 0 || first < min || last > max || first > last)
		return -EINVAL;
	if (first == 0)
		return dots ? -EINVAL : add(values, 0);
	for (; first <= last && rc == 0; first *= 2)
		rc = add(values, first);
	return rc;
}

int setup_list(const char *text, uint64_t min, uint64_t max,
	       struct setup_values *values)
{
	char copy[512], *rest = copy, *item;
	int rc = 0;

	values->n = 0;
	if (strlen(text) >= sizeof(copy))
		return -E2BIG;
	strcpy(copy, text);
	while (rc == 0 && (item = strsep(&rest, ",")))
		rc = add_item(item, min, max, values);
	return rc;
}
