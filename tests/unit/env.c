/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The table of variables: every row parses its own default range and refuses
 * what is beyond, in a line that names variable, value and range; unknown
 * variables are warned about once; docs/environment.md is what the table says.
 *
 * usage: unit_env [--page]   (print docs/environment.md)
 */
#include "env.h"
#include "error.h"

#include "cunit_run.h"

#include <CUnit/Basic.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void refused(const char *name, const char *value, const char *words)
{
	setenv(name, value, 1);
	CU_ASSERT_EQUAL(env_check(), -EINVAL);
	if (!strstr(vbn_error(), words) || !strstr(vbn_error(), name) ||
	    !strstr(vbn_error(), value))
		CU_FAIL("the line lacks variable, value or range");
	unsetenv(name);
}

static void accepted(const char *name, const char *value)
{
	setenv(name, value, 1);
	CU_ASSERT_EQUAL(env_check(), 0);
	unsetenv(name);
}

static void rows_are_whole(void)
{
	size_t n;
	const struct env_entry *table = env_table(&n);

	CU_ASSERT(n > 20);
	for (size_t i = 0; i < n; i++) {
		const struct env_entry *e = &table[i];
		bool number = e->type == ENV_NUMBER || e->type == ENV_HEX;

		CU_ASSERT(!strncmp(e->name, "VBN_", 4));
		CU_ASSERT(e->help && strlen(e->help) > 10);
		CU_ASSERT(number ? e->min < e->max : e->choices != NULL);
		for (size_t j = 0; j < i; j++)
			CU_ASSERT_STRING_NOT_EQUAL(e->name, table[j].name);
	}
}

static void ranges_hold(void)
{
	size_t n;
	const struct env_entry *table = env_table(&n);
	char text[32];

	for (size_t i = 0; i < n; i++) {
		const struct env_entry *e = &table[i];

		if (e->overridden || e->type != ENV_NUMBER)
			continue;
		snprintf(text, sizeof(text), "%ld", e->max);
		accepted(e->name, text);
		snprintf(text, sizeof(text), "%ld", e->min);
		accepted(e->name, text);
		snprintf(text, sizeof(text), "%ld", e->min - 1);
		refused(e->name, text, "it must be a number from");
		refused(e->name, "99999999999999999999", "it must be");
		refused(e->name, "1x", "it must be");
		refused(e->name, "+1", "it must be");
		refused(e->name, " 1", "it must be");
		refused(e->name, "0x1", "it must be");
		accepted(e->name, "");
	}
	refused("VBN_IB_RETRY_CNT", "7", "without end");
	refused("VBN_IB_QPS", "9", "from 1 to 8");
	refused("VBN_IB_PKEY", "0x10000", "from 0x1 to 0xffff");
	refused("VBN_IB_PKEY", "0x", "from 0x1");
	refused("VBN_IB_PKEY", "-1", "from 0x1");
}

static void choices_hold(void)
{
	refused("VBN_LOG", "loud", "error warn info debug");
	refused("VBN_LOG", "inf", "error warn info debug");
	refused("VBN_LOG", "warn info", "error warn info debug");
	refused("VBN_STATS", "yes", "0 1");
	refused("VBN_IB_MTU", "1500", "256 512 1024 2048 4096");
	refused("VBN_COLL_TRACE", "fast", "0 1");
	accepted("VBN_LOG", "debug");
	accepted("VBN_IB_MTU", "4096");
	/* a caller's option may stand in for it: read when it is used */
	accepted("VBN_PROVIDER", "tcp");
}

static void values_are_typed(void)
{
	long number = -7;
	int choice = -7;

	unsetenv("VBN_IB_SL");
	CU_ASSERT_EQUAL(env_number("VBN_IB_SL", &number), 0);
	CU_ASSERT_EQUAL(number, -7);
	setenv("VBN_IB_PKEY", "0x8001", 1);
	CU_ASSERT_EQUAL(env_number("VBN_IB_PKEY", &number), 0);
	CU_ASSERT_EQUAL(number, 0x8001);
	setenv("VBN_IB_PKEY", "32769", 1);
	CU_ASSERT_EQUAL(env_number("VBN_IB_PKEY", &number), 0);
	CU_ASSERT_EQUAL(number, 0x8001);
	unsetenv("VBN_IB_PKEY");
	setenv("VBN_IB_MTU", "1024", 1);
	CU_ASSERT_EQUAL(env_choice("VBN_IB_MTU", &choice), 0);
	CU_ASSERT_EQUAL(choice, 2);
	setenv("VBN_IB_MTU", "", 1);
	CU_ASSERT_EQUAL(env_choice("VBN_IB_MTU", &choice), 0);
	CU_ASSERT_EQUAL(choice, 2);
	unsetenv("VBN_IB_MTU");
}

static void devices_are_listed(void)
{
	static const char *const bad[] = {":1",	  "a:",	  "a:0", "a:255",
					  "a,",	  ",a",	  "^",	 "a,,b",
					  "a:1x", "a:-1", "a:+1"};
	struct env_devices d = {.n = 0};

	setenv("VBN_IB_HCA", "mlx5_0,mlx5_1:2", 1);
	CU_ASSERT_EQUAL(env_devices("VBN_IB_HCA", &d), 0);
	CU_ASSERT_EQUAL(d.n, 2);
	CU_ASSERT_FALSE(d.excluded);
	CU_ASSERT_STRING_EQUAL(d.item[0].name, "mlx5_0");
	CU_ASSERT_EQUAL(d.item[0].port, 0);
	CU_ASSERT_STRING_EQUAL(d.item[1].name, "mlx5_1");
	CU_ASSERT_EQUAL(d.item[1].port, 2);
	setenv("VBN_IB_HCA", "^rxe0", 1);
	CU_ASSERT_EQUAL(env_devices("VBN_IB_HCA", &d), 0);
	CU_ASSERT(d.excluded && d.n == 1);
	CU_ASSERT_STRING_EQUAL(d.item[0].name, "rxe0");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused("VBN_IB_HCA", bad[i], "DEV[:PORT]");
	CU_ASSERT_EQUAL(d.n, 1);
	unsetenv("VBN_IB_HCA");
}

/* What env_check() logs. */
static size_t logged(char *text, size_t room)
{
	int ends[2], old = dup(STDERR_FILENO);
	ssize_t n;

	CU_ASSERT_EQUAL_FATAL(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	dup2(ends[1], STDERR_FILENO);
	CU_ASSERT_EQUAL(env_check(), 0);
	dup2(old, STDERR_FILENO);
	n = read(ends[0], text, room - 1);
	text[n > 0 ? n : 0] = '\0';
	close(old);
	close(ends[0]);
	close(ends[1]);
	return strlen(text);
}

static void unknown_is_warned_about_once(void)
{
	char text[2048];

	setenv("VBN_IB_GID_INDX", "3", 1);
	setenv("VBN_IFACE", "eth0", 1);
	setenv("VBN_QUITE_ANOTHER_THING", "3", 1);
	setenv("VBN_TEST", "3", 1);
	CU_ASSERT(logged(text, sizeof(text)) > 0);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(text, "VBN_IB_GID_INDX is no variable of verbena's; "
			     "did you mean VBN_IB_GID_INDEX?"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "did you mean VBN_SOCKET_IFNAME?"));
	CU_ASSERT_PTR_NOT_NULL(
		strstr(text, "VBN_QUITE_ANOTHER_THING is no variable"));
	CU_ASSERT_PTR_NULL(strstr(text, "VBN_TEST "));
	CU_ASSERT_EQUAL(logged(text, sizeof(text)), 0);
}

static void page_is_current(void)
{
	static char have[65536];
	char *want = NULL;
	size_t len = 0, n;
	FILE *out = open_memstream(&want, &len);
	FILE *in = fopen(ENVIRONMENT_PAGE, "re");

	CU_ASSERT_PTR_NOT_NULL_FATAL(out);
	CU_ASSERT_PTR_NOT_NULL_FATAL(in);
	env_page(out);
	fclose(out);
	n = fread(have, 1, sizeof(have) - 1, in);
	fclose(in);
	if (n != len || memcmp(have, want, len))
		CU_FAIL("docs/environment.md differs: unit_env --page");
	free(want);
}

static void secrets_are_not_shown(void)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	CU_ASSERT_PTR_NOT_NULL_FATAL(out);
	setenv("VBN_SECRET", "xyzzy", 1);
	setenv("VBN_LOG", "loud", 1);
	env_print(out);
	fclose(out);
	CU_ASSERT_PTR_NULL(strstr(text, "xyzzy"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "VBN_LOG=loud  <- bad"));
	free(text);
	unsetenv("VBN_SECRET");
	unsetenv("VBN_LOG");
}

int main(int argc, char **argv)
{
	static CU_TestInfo tests[] = {
		{"rows are whole", rows_are_whole},
		{"unknown ones are warned about once",
		 unknown_is_warned_about_once},
		{"numbers keep to their range", ranges_hold},
		{"choices are words of the list", choices_hold},
		{"values are typed", values_are_typed},
		{"devices are listed", devices_are_listed},
		{"the page is what the table says", page_is_current},
		{"secrets are not shown", secrets_are_not_shown},
		CU_TEST_INFO_NULL,
	};
	static CU_SuiteInfo suites[] = {
		{"env", NULL, NULL, NULL, NULL, tests},
		CU_SUITE_INFO_NULL,
	};

	if (argc == 2 && !strcmp(argv[1], "--page")) {
		env_page(stdout);
		return 0;
	}
	return run_suites(suites);
}
