/* SPDX-License-Identifier: BSD-3-Clause */
/* verbena-sim: the collective algorithms compared, by simulation. */
#include "show.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int sim_fail(int err, const char *fmt, ...)
{
	char line[SETUP_WHY + 64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fprintf(stderr, "verbena-sim: %s\n", line);
	return err;
}

/* What was printed is not to be lost. */
static int finish(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	sim_fail(0, "cannot write standard output: %s", strerror(errno));
	return 1;
}

/* Whether a row says that something is broken. */
static bool is_broken(const struct setup *setup, const struct cell *cell)
{
	bool broken = false;

	for (unsigned i = 0; i < cell->nrows; i++) {
		const struct row *row = &cell->rows[i];

		if (!row->err)
			continue;
		sim_fail(0, "%s %s, %d ranks, %llu bytes: %s",
			 plan_name(row->algorithm),
			 plan_operation_name(setup->operation), cell->n,
			 (unsigned long long)cell->bytes, row->why);
		broken = true;
	}
	return broken;
}

static int run(const struct setup *setup)
{
	static struct output output;
	int rc = output_open(&output, setup);
	bool broken = false;

	for (unsigned i = 0; rc == 0 && i < setup->ranks.n; i++)
		for (unsigned k = 0; k < setup->sizes.n; k++) {
			struct cell cell;

			price_cell(setup, (int)setup->ranks.at[i],
				   setup->sizes.at[k], &cell);
			output_add(&output, &cell);
			broken |= is_broken(setup, &cell);
		}
	if (output_close(&output, rc != 0) != 0)
		rc = -EIO;
	return rc || broken ? 1 : 0;
}

int main(int argc, char **argv)
{
	char why[SETUP_WHY] = "";
	struct setup setup;
	int rc;

	if (setup_parse(&setup, argc, argv, why) != 0) {
		sim_fail(0, "%s", why);
		rc = 2;
	} else if (setup.help || setup.list) {
		if (setup.help)
			setup_help(stdout);
		else
			show_list(stdout, &setup);
		rc = finish();
	} else {
		rc = run(&setup);
	}
	setup_release(&setup);
	return rc;
}
