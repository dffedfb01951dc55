/* SPDX-License-Identifier: BSD-3-Clause */
/* verbena-sim's command line: lists, ranges, defaults, and what is refused. */
#include "setup.h"

#include "cunit_run.h"
#include "sim_line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <verbena/collectives.h>

static void lists(void)
{
	struct setup_values v;

	CU_ASSERT_EQUAL(setup_list("6,8..64,1K", 1, 1 << 20, &v), 0);
	CU_ASSERT_EQUAL_FATAL(v.n, 6);
	CU_ASSERT_EQUAL(v.at[0], 6);
	CU_ASSERT_EQUAL(v.at[1], 8);
	CU_ASSERT_EQUAL(v.at[4], 64);
	CU_ASSERT_EQUAL(v.at[5], 1024);
	CU_ASSERT_EQUAL(setup_list("3..13", 1, 100, &v), 0);
	CU_ASSERT_EQUAL(v.n, 3); /* 3, 6, 12 */
	for (const char *const *bad =
		     (const char *const[]){"", "1,", "x", "8..4", "0..8", "-1",
					   "1..", "..4", "1 ", "101", "1KK",
					   "99999999999999999999", NULL};
	     *bad; bad++)
		CU_ASSERT_EQUAL(setup_list(*bad, 0, 100, &v), -EINVAL);
	CU_ASSERT_EQUAL(setup_list("1..1T,1..1T", 1, UINT64_MAX, &v), -E2BIG);
}

static void defaults(void)
{
	char why[SETUP_WHY];
	struct setup s;

	CU_ASSERT_EQUAL(sim_line(&s, "", why), 0);
	CU_ASSERT_EQUAL(s.operation, PLAN_OP_ALLREDUCE);
	CU_ASSERT_EQUAL(s.ranks.at[0], 16);
	CU_ASSERT_EQUAL(s.sizes.at[0], 1 << 20);
	CU_ASSERT_EQUAL(s.window, 64);
	CU_ASSERT(s.algorithms[PLAN_RING] && s.algorithms[PLAN_CENTRAL]);
	CU_ASSERT(!s.algorithms[PLAN_LOCAL] && !s.algorithms[PLAN_BRUCK]);
	CU_ASSERT_EQUAL(sim_line(&s, "barrier", why), 0);
	CU_ASSERT_EQUAL(s.sizes.n, 1);
	CU_ASSERT_EQUAL(s.sizes.at[0], 0);
}

static void values(void)
{
	char why[SETUP_WHY];
	struct setup s;

	CU_ASSERT_EQUAL(
		sim_line(
			&s,
			"alltoall -n 4,8 -s 1K..4K -a bruck,linear --type half "
			"--latency 1.5 --bandwidth 200 --csv --json x",
			why),
		0);
	CU_ASSERT_EQUAL(s.operation, PLAN_OP_ALLTOALL);
	CU_ASSERT_EQUAL(s.ranks.n, 2);
	CU_ASSERT_EQUAL(s.sizes.n, 3);
	CU_ASSERT(s.algorithms[PLAN_BRUCK] && s.algorithms[PLAN_LINEAR]);
	CU_ASSERT(!s.algorithms[PLAN_PAIRWISE]);
	CU_ASSERT_EQUAL(s.type, VBN_FLOAT16);
	CU_ASSERT_DOUBLE_EQUAL(s.latency, 1.5e-6, 1e-12);
	CU_ASSERT_DOUBLE_EQUAL(s.bandwidth, 25e9, 1);
	CU_ASSERT_STRING_EQUAL(s.csv, "-");
	CU_ASSERT_STRING_EQUAL(s.json, "x");
	CU_ASSERT_EQUAL(sim_line(&s, "--csv=y", why), 0);
	CU_ASSERT_STRING_EQUAL(s.csv, "y");
}

/* A file of verbena-perf tune's with @text; its name lasts until the next. */
static const char *tuning_file(const char *text)
{
	static char path[64];
	FILE *file;
	int fd;

	snprintf(path, sizeof(path), "/tmp/verbena-setup-XXXXXX");
	fd = mkstemp(path);
	CU_ASSERT_FATAL(fd >= 0);
	file = fdopen(fd, "w");
	CU_ASSERT_PTR_NOT_NULL_FATAL(file);
	fputs(text, file);
	fclose(file);
	return path;
}

static int with_tuning(struct setup *s, const char *text, const char *more,
		       char why[SETUP_WHY])
{
	const char *path = tuning_file(text);
	char line[128];
	int rc;

	snprintf(line, sizeof(line), "--tuning %s%s", path, more);
	rc = sim_line(s, line, why);
	unlink(path);
	return rc;
}

/* What was measured, then what is given, wherever it stands. */
static void measured(void)
{
	static const char text[] = "verbena-tuning 1\nlocal_alpha_us 0.25\n"
				   "local_gb_s 20\nsum_gb_s 8\ncall_us 0.5\n"
				   "wake_us 3\nprocessors 6\n"
				   "allreduce 4 1024 ring 0\n";
	char why[SETUP_WHY];
	struct setup s;

	CU_ASSERT_EQUAL_FATAL(
		with_tuning(&s, text, " -a ring --call 2 -n 4", why), 0);
	CU_ASSERT_DOUBLE_EQUAL(s.local_latency, 0.25e-6, 1e-15);
	CU_ASSERT_DOUBLE_EQUAL(s.local_bandwidth, 20e9, 1);
	CU_ASSERT_DOUBLE_EQUAL(s.reduce_speed, 8e9, 1);
	CU_ASSERT_DOUBLE_EQUAL(s.wake, 3e-6, 1e-15);
	CU_ASSERT_DOUBLE_EQUAL(s.call, 2e-6, 1e-15);
	CU_ASSERT_EQUAL(s.processors, 6);
	CU_ASSERT_EQUAL(s.ranks.at[0], 4);
	CU_ASSERT(s.algorithms[PLAN_RING] && !s.algorithms[PLAN_TREE]);
	CU_ASSERT_PTR_NOT_NULL_FATAL(s.measured);
	CU_ASSERT_EQUAL(s.measured->count, 1);
	setup_release(&s);
	CU_ASSERT_PTR_NULL(s.measured);
}

static void measured_badly(void)
{
	char why[SETUP_WHY];
	struct setup s;

	CU_ASSERT_EQUAL(
		with_tuning(&s, "verbena-tuning 1\nwake_us x\n", "", why),
		-EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "--tuning: "));
	CU_ASSERT_PTR_NOT_NULL(strstr(why, " line 2: expected"));
	setup_release(&s);
	CU_ASSERT_EQUAL(sim_line(&s, "--tuning /nowhere/at/all", why), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(why, "/nowhere/at/all"));
	setup_release(&s);
}

/* What is refused, and a word that the message has. */
static const struct {
	const char *line, *said;
} refused[] = {
	{"-n 1", "-n 1: numbers from 2 to 16384"},
	{"-n 16385", "-n 16385"},
	{"-s 2", "-s 2: an element has 4 bytes"},
	{"-s 1X", "-s 1X"},
	{"-a nothing", "ring"},
	{"-a pairwise", "-a pairwise: allreduce has central"},
	{"--type word", "--type word: it is one of int8"},
	{"--op xor", "--op xor"},
	{"alltoall --op sum", "--op does not go with alltoall"},
	{"barrier -s 8", "-s does not go with barrier"},
	{"--latency -1", "--latency -1"},
	{"--latency 1us", "--latency 1us"},
	{"--bandwidth 0", "--bandwidth 0"},
	{"--bandwidth nan", "--bandwidth nan"},
	{"--topology mesh", "flat tree"},
	{"--hosts-per-leaf 8", "--topology tree"},
	{"--oversubscription 2", "--topology tree"},
	{"--slowdown 3", "--stragglers"},
	{"--wake 3", "--processors"},
	{"--processors 0", "--processors 0"},
	{"--overhead x", "--overhead x"},
	{"--tuning", "--tuning needs a value"},
	{"-n 4,64 --stragglers 5", "--stragglers 5: of -n 4"},
	{"--window 65", "--window 65: a number from 1 to 64"},
	{"--slots 0", "--slots 0"},
	{"--json - --csv", "two outputs"},
	{"--plot x.svg", "several"},
	{"--plot x.svg -n 2,4 -s 8,16", "over -n or over -s"},
	{"--json", "--json needs a value"},
	{"--nonsense", "no option --nonsense"},
	{"-z", "no option -z"},
	{"bcast", "broadcast"},
	{"reduce gather", "one operation"},
};

static void refusals(void)
{
	char why[SETUP_WHY];
	struct setup s;

	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		int rc = sim_line(&s, refused[i].line, why);
		bool said = strstr(why, refused[i].said);

		CU_ASSERT_EQUAL(rc, -EINVAL);
		CU_ASSERT(said);
		if (!said)
			fprintf(stderr, "%s: \"%s\"\n", refused[i].line, why);
	}
}

static CU_TestInfo tests[] = {
	{"lists", lists},
	{"defaults", defaults},
	{"values", values},
	{"a tuning file", measured},
	{"a tuning file that is wrong", measured_badly},
	{"refusals", refusals},
	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"verbena-sim's command line", NULL, NULL, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	return run_suites(suites);
}
