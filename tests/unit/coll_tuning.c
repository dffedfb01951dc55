/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tuning files: what they say decides or takes the built-in parameters' place;
 * which files are refused, and with which words.
 */
#include "choose.h"
#include "cunit_run.h"
#include "env.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Defined by the transport. */
const char *vbn_error(void);

static struct choice_input input_of(enum plan_operation operation, int n,
				    uint64_t bytes)
{
	return (struct choice_input){
		.operation = operation,
		.n = n,
		.hosts = n,
		.bytes = bytes,
		.chunk_most = 256 << 10,
	};
}

static enum plan_algorithm chosen(const struct choice_input *in)
{
	struct choice choice;

	choose(in, &choice);
	return choice.algorithm;
}

static char path[] = "/tmp/coll_choose.XXXXXX";

static int load(const char *text, struct tuning **tuning)
{
	FILE *file = fopen(path, "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(file);
	CU_ASSERT(fputs(text, file) >= 0);
	CU_ASSERT_EQUAL_FATAL(fclose(file), 0);
	*tuning = NULL;
	return tuning_load(path, tuning);
}

#define HEAD "verbena-tuning 1\n"

static void parameters(void)
{
	struct tuning *t;

	CU_ASSERT_EQUAL_FATAL(load(HEAD "# what was measured\n"
					"\n"
					"local_alpha_us\t0.25 # a comment\r\n"
					"  net_gb_s 12.5\n"
					"sum_gb_s 1e1\n"
					"processors 96",
				   &t),
			      0);
	CU_ASSERT_DOUBLE_EQUAL(t->params.local.alpha, 0.25e-6, 1e-15);
	CU_ASSERT_DOUBLE_EQUAL(t->params.net.beta, 0.08e-9, 1e-18);
	CU_ASSERT_DOUBLE_EQUAL(t->params.gamma, 0.1e-9, 1e-18);
	CU_ASSERT_EQUAL(t->params.processors, 96);
	CU_ASSERT_DOUBLE_EQUAL(t->params.local.beta, cost_usual.local.beta, 0);
	CU_ASSERT_EQUAL(t->count, 0);
	free(t);
}

static void must_refuse(const char *text, const char *line, const char *why)
{
	struct tuning *t;

	CU_ASSERT_EQUAL(load(text, &t), -EINVAL);
	CU_ASSERT_PTR_NULL(t);
	if (!strstr(vbn_error(), line) || !strstr(vbn_error(), why))
		fprintf(stderr, "%s: %s\n", text, vbn_error());
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), path));
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), line));
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), why));
}

static void bad_files(void)
{
	char text[400] = HEAD "#";
	struct tuning *t;

	must_refuse("", "line 1", "verbena-tuning 1");
	must_refuse("verbena-tuning 2\n", "line 1", "verbena-tuning 1");
	must_refuse("verbena-tuning 1 2\n", "line 1", "verbena-tuning 1");
	must_refuse("\n" HEAD, "line 1", "verbena-tuning 1");
	must_refuse(HEAD "beta 1\n", "line 2", "an operation");
	must_refuse(HEAD "\nallreduce 4 8 ring\n", "line 3", "members, bytes");
	must_refuse(HEAD "allreduce 4 8 ring 0 0\n", "line 2",
		    "members, bytes");
	must_refuse(HEAD "allreduce 4 8 ring 0 0 0\n", "line 2", "fewer words");
	must_refuse(HEAD "allreduce 1 8 ring 0\n", "line 2", "members");
	must_refuse(HEAD "allreduce x 8 ring 0\n", "line 2", "members");
	must_refuse(HEAD "allreduce 4 -8 ring 0\n", "line 2", "bytes");
	must_refuse(HEAD "allreduce 4 8K ring 0\n", "line 2", "bytes");
	must_refuse(HEAD "allreduce 4 8 rings 0\n", "line 2", "algorithms");
	must_refuse(HEAD "allreduce 4 8 bruck 0\n", "line 2", "algorithms");
	must_refuse(HEAD "allreduce 4 8 local 0\n", "line 2", "algorithms");
	must_refuse(HEAD "allreduce 4 8 ring 2000000000\n", "line 2", "chunk");
	must_refuse(HEAD "wake_us\n", "line 2", "number");
	must_refuse(HEAD "wake_us 1 2\n", "line 2", "number");
	must_refuse(HEAD "wake_us -1\n", "line 2", "number");
	must_refuse(HEAD "wake_us nan\n", "line 2", "number");
	must_refuse(HEAD "wake_us 1,5\n", "line 2", "number");
	must_refuse(HEAD "net_gb_s 0\n", "line 2", "above 0");
	must_refuse(HEAD "processors 0\n", "line 2", "1 to");
	must_refuse(HEAD "processors 1.5\n", "line 2", "whole");
	memset(text + strlen(text), 'x', 300);
	must_refuse(text, "line 2", "at most 254");
	unlink(path);
	CU_ASSERT_EQUAL(tuning_load(path, &t), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), path));
	CU_ASSERT_EQUAL(tuning_load("/", &t), -EIO);
}

static enum plan_algorithm tuned(const struct tuning *t,
				 enum plan_operation operation, int n,
				 uint64_t bytes, struct choice *c)
{
	struct choice_input in = input_of(operation, n, bytes);

	in.tuning = t;
	choose(&in, c);
	return c->algorithm;
}

static void lines(void)
{
	struct tuning *t;
	struct choice c, model;

	CU_ASSERT_EQUAL_FATAL(load(HEAD "allreduce 4 65536 central 0\n"
					"allreduce 4 1024 biring 50000\n"
					"allreduce 4 16 tree 300000\n"
					"allgather 4 0 ring 0\n",
				   &t),
			      0);
	CU_ASSERT_EQUAL(tuned(t, PLAN_OP_ALLREDUCE, 4, 0, &c), PLAN_TREE);
	CU_ASSERT_EQUAL(c.chunk, 256 << 10); /* the most that there may be */
	CU_ASSERT_EQUAL(tuned(t, PLAN_OP_ALLREDUCE, 4, 127, &c), PLAN_TREE);
	CU_ASSERT_EQUAL(tuned(t, PLAN_OP_ALLREDUCE, 4, 129, &c), PLAN_BIRING);
	CU_ASSERT_EQUAL(c.chunk, 50000);
	CU_ASSERT_STRING_EQUAL(c.why,
			       "line 3 of the tuning file, for 1024 bytes");
	CU_ASSERT(c.predicted > 0);
	CU_ASSERT_EQUAL(tuned(t, PLAN_OP_ALLREDUCE, 4, 8191, &c), PLAN_BIRING);
	CU_ASSERT_EQUAL(tuned(t, PLAN_OP_ALLREDUCE, 4, 8193, &c), PLAN_CENTRAL);
	CU_ASSERT_EQUAL(tuned(t, PLAN_OP_ALLREDUCE, 4, 1 << 30, &c),
			PLAN_CENTRAL);
	CU_ASSERT_EQUAL(tuned(t, PLAN_OP_ALLGATHER, 4, 8, &c), PLAN_RING);
	/* Other numbers of members, other operations: the model. */
	tuned(NULL, PLAN_OP_ALLREDUCE, 5, 1024, &model);
	CU_ASSERT_EQUAL(tuned(t, PLAN_OP_ALLREDUCE, 5, 1024, &c),
			model.algorithm);
	CU_ASSERT_STRING_EQUAL(c.why, model.why);
	tuned(NULL, PLAN_OP_ALLTOALL, 4, 1024, &model);
	CU_ASSERT_EQUAL(tuned(t, PLAN_OP_ALLTOALL, 4, 1024, &c),
			model.algorithm);
	free(t);
}

/* Of the lines of a size the first that is admissible; without one, the model.
 */
static void passed_over(void)
{
	struct tuning *t;
	struct choice_input in = input_of(PLAN_OP_ALLREDUCE, 4, 1000);
	struct choice c;

	CU_ASSERT_EQUAL_FATAL(load(HEAD "allreduce 4 1000 mapped 0\n"
					"allreduce 4 1000 hierarchical 0\n"
					"allreduce 4 1000 tree 0\n"
					"allreduce 4 1000 central 0\n"
					"allreduce 4 64 decentralized 0\n"
					"alltoall 4 1000 bruck 0\n",
				   &t),
			      0);
	in.tuning = t;
	CU_ASSERT_EQUAL(chosen(&in), PLAN_TREE);
	in.in_order = true;
	CU_ASSERT_EQUAL(chosen(&in), PLAN_CENTRAL);
	in.hosts = 1;
	in.may_map = true;
	CU_ASSERT_EQUAL(chosen(&in), PLAN_MAPPED);
	in.in_order = false;
	in.may_map = false;
	in.hosts = 2;
	CU_ASSERT_EQUAL(chosen(&in), PLAN_HIERARCHICAL);
	in.operation = PLAN_OP_ALLTOALL;
	CU_ASSERT_EQUAL(chosen(&in), PLAN_BRUCK);
	in.uneven = true;
	CU_ASSERT_NOT_EQUAL(chosen(&in), PLAN_BRUCK);
	/* What is asked for goes before what is in the file. */
	in = input_of(PLAN_OP_ALLREDUCE, 4, 1000);
	in.tuning = t;
	in.chunk = 777;
	choose(&in, &c);
	CU_ASSERT_EQUAL(c.algorithm, PLAN_TREE);
	CU_ASSERT_EQUAL(c.chunk, 777);
	free(t);
}

/* A file's parameters take the place of the built-in ones. */
static void parameters_matter(void)
{
	struct tuning *t;
	struct choice c;

	tuned(NULL, PLAN_OP_ALLREDUCE, 16, 1 << 20, &c);
	CU_ASSERT_NOT_EQUAL(c.algorithm, PLAN_ONESHOT);
	CU_ASSERT_EQUAL_FATAL(load(HEAD "net_alpha_us 1000000\n", &t), 0);
	CU_ASSERT_EQUAL(tuned(t, PLAN_OP_ALLREDUCE, 16, 1 << 20, &c),
			PLAN_ONESHOT);
	CU_ASSERT(c.predicted > 1);
	free(t);
}

static void environment(void)
{
	struct coll_settings settings = {.trace = false};
	struct tuning *t;

	CU_ASSERT_EQUAL_FATAL(load(HEAD "broadcast 2 8 linear 0\n", &t), 0);
	free(t);
	unsetenv("VBN_COLL_TUNING");
	CU_ASSERT_EQUAL(settings_read(&settings), 0);
	CU_ASSERT_PTR_NULL(settings.tuning);
	setenv("VBN_COLL_TUNING", path, 1);
	CU_ASSERT_EQUAL(settings_read(&settings), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(settings.tuning);
	CU_ASSERT_EQUAL(settings.tuning->count, 1);
	settings_release(&settings);
	CU_ASSERT_PTR_NULL(settings.tuning);
	setenv("VBN_COLL_TUNING", "/none/such", 1);
	CU_ASSERT_EQUAL(settings_read(&settings), -ENOENT);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "VBN_COLL_TUNING"));
	settings_release(&settings);
	unsetenv("VBN_COLL_TUNING");
}

/* Here, and where all variables are looked at, in the same words. */
static void checked_when_read(void)
{
	static const char *const bad[][2] = {
		{"VBN_COLL_LANDING", "63"}, {"VBN_COLL_LANDING", "0"},
		{"VBN_COLL_LANDING", "1M"}, {"VBN_COLL_LANDING", "1073741825"},
		{"VBN_COLL_CHUNK", "-1"},   {"VBN_COLL_CHUNK", " 1"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct coll_settings settings = {.trace = false};
		char text[256];
		long value;

		setenv(bad[i][0], bad[i][1], 1);
		CU_ASSERT_EQUAL(env_number(bad[i][0], &value), -EINVAL);
		snprintf(text, sizeof(text), "%s", vbn_error());
		CU_ASSERT_EQUAL(settings_read(&settings), -EINVAL);
		CU_ASSERT_STRING_EQUAL(vbn_error(), text);
		settings_release(&settings);
		unsetenv(bad[i][0]);
	}
}

static int make_path(void)
{
	int fd = mkstemp(path);

	return fd < 0 ? -1 : close(fd);
}

static int remove_path(void)
{
	unlink(path);
	return 0;
}

static CU_TestInfo files[] = {
	{"parameters", parameters},
	{"refused", bad_files},
	{"lines", lines},
	{"inadmissible lines", passed_over},
	{"parameters matter", parameters_matter},
	{"environment", environment},
	{"checked when read", checked_when_read},
	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"tuning files", make_path, remove_path, NULL, NULL, files},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	return run_suites(suites);
}
