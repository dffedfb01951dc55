/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbena-info's JSON holds whatever the machine and the environment say:
 * bytes that are no UTF-8, files that contradict each other.
 */
#include "info.h"

#include "cunit_run.h"

#include <CUnit/Basic.h>
#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

static struct info info;
static struct info_variable variable;

static cJSON *printed(void)
{
	static const char *const names[] = {"shm", "verbs", "ucx"};
	static struct problems problems;
	char *text = NULL;
	cJSON *root;
	size_t len;
	FILE *f = open_memstream(&text, &len);

	for (int i = 0; i < INFO_PROVIDERS; i++)
		info.providers[i].name = names[i];
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	CU_ASSERT_EQUAL(print_json(&info, &problems, f), 0);
	fclose(f);
	root = cJSON_Parse(text);
	free(text);
	CU_ASSERT_PTR_NOT_NULL_FATAL(root);
	return root;
}

static void test_text(void)
{
	static const struct {
		const char *value, *shown;
	} cases[] = {
		{"plain", "plain"},
		{"/x\xff", "/x?"},
		{"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
		 "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
		{"\xc3", "?"},		      /* cut */
		{"\xe2\x82", "??"},	      /* cut */
		{"\xf0\x9f\x98", "???"},      /* cut */
		{"a\x80z", "a?z"},	      /* begins nothing */
		{"\xc0\xaf", "??"},	      /* a longer form of '/' */
		{"\xe0\x80\xaf", "???"},      /* another */
		{"\xed\xa0\x80", "???"},      /* a surrogate */
		{"\xf4\x90\x80\x80", "????"}, /* above U+10FFFF */
		{"\xc3\xa9\xe9\xc3\xa9", "\xc3\xa9?\xc3\xa9"},
	};

	info = (struct info){.variables = &variable, .nvariables = 1};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cJSON *root, *first;

		snprintf(variable.value, sizeof(variable.value), "%s",
			 cases[i].value);
		root = printed();
		first = cJSON_GetArrayItem(
			cJSON_GetObjectItem(root, "environment"), 0);
		CU_ASSERT_STRING_EQUAL(cJSON_GetStringValue(cJSON_GetObjectItem(
					       first, "value")),
				       cases[i].shown);
		cJSON_Delete(root);
	}
}

static double used(const cJSON *root, const char *key)
{
	const cJSON *limits = cJSON_GetObjectItem(root, "limits");

	return cJSON_GetNumberValue(
		cJSON_GetObjectItem(cJSON_GetObjectItem(limits, key), "used"));
}

/* As where a container's /proc/meminfo is half the host's. */
static void test_more_left_than_there_is(void)
{
	cJSON *root;

	info = (struct info){
		.limits = {.memory_known = true,
			   .memory = {.total = 10, .available = 11},
			   .shm_known = true,
			   .dev_shm = 10,
			   .dev_shm_free = 4}};
	root = printed();
	CU_ASSERT_EQUAL(used(root, "memory"), 0);
	CU_ASSERT_EQUAL(used(root, "dev_shm"), 6);
	cJSON_Delete(root);
}

int main(void)
{
	CU_TestInfo tests[] = {
		{"text", test_text},
		{"more left than there is", test_more_left_than_there_is},
		CU_TEST_INFO_NULL};
	CU_SuiteInfo suites[] = {{"info json", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};

	return run_suites(suites);
}
