/* SPDX-License-Identifier: BSD-3-Clause */
/* verbena-run's hosts: lists of them, and what goes to and from the agents. */
#include "run/frame.h"
#include "run/places.h"

#include "cunit_run.h"

#include <CUnit/Basic.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct places places;

static void text_of(char *text, size_t room)
{
	size_t len = 0;

	text[0] = '\0';
	for (int i = 0; i < places.n; i++)
		len += (size_t)snprintf(text + len, room - len, "%s%s=%d",
					i ? " " : "", places.list[i].name,
					places.list[i].slots);
}

static void lists(const char *list, const char *want)
{
	char text[256];

	places_free(&places);
	CU_ASSERT_EQUAL(places_add(&places, list), 0);
	text_of(text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, want);
}

static void fails(const char *list, const char *words)
{
	places_free(&places);
	CU_ASSERT_EQUAL(places_add(&places, list), -EINVAL);
	if (!strstr(places.why, words))
		fprintf(stderr, "\n%s: \"%s\" lacks \"%s\"\n", list, places.why,
			words);
	CU_ASSERT_PTR_NOT_NULL(strstr(places.why, words));
}

static void test_hosts(void)
{
	lists("a", "a=1");
	lists("a:2,b:3", "a=2 b=3");
	lists("me@a.example.com:2", "me@a.example.com=2");
	lists("n[09-11]:4", "n09=4 n10=4 n11=4");
	lists("[fe80::1]:2,[::1],fe80::2", "fe80::1=2 ::1=1 fe80::2=1");
	lists("me@[::1]:2", "me@::1=2");
	CU_ASSERT_EQUAL(places.slots, 2);
	lists("a:2,b:2,c:2", "a=2 b=2 c=2");
	places_cut(&places, 3);
	CU_ASSERT(places.n == 2 && places.slots == 3);
	CU_ASSERT_EQUAL(places.list[1].slots, 1);
}

static void test_bad_hosts(void)
{
	fails("", "no list");
	fails("a,,b", "no list");
	fails("a:0", "number of ranks");
	fails("a:", "number of ranks");
	fails("a:2x", "number of ranks");
	fails("a:65537", "number of ranks");
	fails("a:1,b:1,a:1", "named twice");
	fails("-oProxyCommand=x", "no host's name");
	fails("a b", "no host's name");
	fails("a;b", "no host's name");
	fails("$(a)", "no host's name");
	fails("[::1]x", "[address]:N");
	fails("a[1-2000]", "more than 1024 hosts");
	fails("a:65536,b:1", "65536 ranks");
}

static int read_file(const char *text)
{
	char path[] = "/tmp/verbena-hosts-XXXXXX";
	int fd = mkstemp(path), rc;

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	places_free(&places);
	rc = places_read(&places, path);
	unlink(path);
	return rc;
}

static void test_file(void)
{
	char text[256];

	CU_ASSERT_EQUAL(read_file("# hosts\n\na slots=2 max_slots=4\n"
				  "  b:3 # fast\r\nc\nd[1-2]"),
			0);
	text_of(text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, "a=2 b=3 c=1 d1=1 d2=1");
	CU_ASSERT_EQUAL(read_file("\n# none\n"), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(places.why, "names no host"));
	CU_ASSERT_EQUAL(read_file("a\nb slots=x\n"), -EINVAL);
	CU_ASSERT_PTR_NOT_NULL(strstr(places.why, "line 2"));
	CU_ASSERT_EQUAL(read_file("a 2\n"), -EINVAL);
	CU_ASSERT_EQUAL(places_read(&places, "/no/such/file"), -ENOENT);
}

/* ---- frames ---- */

static void put(int fd, enum frame_type type, uint32_t rank, uint32_t value,
		const char *text)
{
	struct frame f = {.type = type,
			  .rank = rank,
			  .value = value,
			  .len = (uint32_t)strlen(text)};
	char head[FRAME_HEAD];

	frame_head(head, &f);
	CU_ASSERT_EQUAL(write(fd, head, sizeof(head)), sizeof(head));
	CU_ASSERT_EQUAL(write(fd, text, f.len), (ssize_t)f.len);
}

static void test_frames(void)
{
	struct frame_input in = {NULL, 0, 0, 0};
	struct frame f;
	int fds[2];

	CU_ASSERT_EQUAL_FATAL(pipe(fds), 0);
	put(fds[1], FRAME_OUT, 65535, 0xfffffffe, "hello");
	put(fds[1], FRAME_PING, 0, 0, "");
	CU_ASSERT_EQUAL(write(fds[1], "\x02\0\0", 3), 3);
	CU_ASSERT_EQUAL(frame_read(&in, fds[0]), 1);
	CU_ASSERT_EQUAL_FATAL(frame_next(&in, &f), 0);
	CU_ASSERT(f.type == FRAME_OUT && f.rank == 65535 &&
		  f.value == 0xfffffffe && f.len == 5);
	CU_ASSERT_EQUAL(memcmp(f.data, "hello", 5), 0);
	CU_ASSERT_EQUAL(frame_next(&in, &f), 0);
	CU_ASSERT_EQUAL(f.type, FRAME_PING);
	/* A frame in two parts: length 2, then its data. */
	CU_ASSERT_EQUAL(frame_next(&in, &f), -EAGAIN);
	CU_ASSERT_EQUAL(write(fds[1], "\x09\0\0\0\0\0\0\0\0x", 10), 10);
	CU_ASSERT_EQUAL(frame_read(&in, fds[0]), 1);
	CU_ASSERT_EQUAL(frame_next(&in, &f), -EAGAIN);
	CU_ASSERT_EQUAL(write(fds[1], "y", 1), 1);
	CU_ASSERT_EQUAL(frame_read(&in, fds[0]), 1);
	CU_ASSERT_EQUAL_FATAL(frame_next(&in, &f), 0);
	CU_ASSERT(f.type == FRAME_ERR && f.len == 2);
	/* No frame at all. */
	CU_ASSERT_EQUAL(write(fds[1], "this is no frame", 16), 16);
	CU_ASSERT_EQUAL(frame_read(&in, fds[0]), 1);
	CU_ASSERT_EQUAL(frame_next(&in, &f), -EPROTO);
	close(fds[1]);
	CU_ASSERT_EQUAL(frame_read(&in, fds[0]), 0);
	close(fds[0]);
	frame_input_free(&in);
}

static void test_strings(void)
{
	struct strings s = {NULL, 0, 0, false};
	const char *p, *text;
	size_t left;
	long value;

	for (int i = 0; i < 3000; i++)
		strings_number(&s, i);
	strings_add(&s, "");
	strings_add(&s, "x y");
	CU_ASSERT_FALSE(s.failed);
	p = s.data;
	left = s.len;
	for (int i = 0; i < 3000; i++)
		CU_ASSERT(strings_next_number(&p, &left, 0, 2999, &value) &&
			  value == i);
	text = strings_next(&p, &left);
	CU_ASSERT(text && !*text);
	text = strings_next(&p, &left);
	CU_ASSERT(text && !strcmp(text, "x y"));
	CU_ASSERT_PTR_NULL(strings_next(&p, &left));
	/* the end is missing, or it is no number */
	p = "12";
	left = 2;
	CU_ASSERT_PTR_NULL(strings_next(&p, &left));
	p = "12x";
	left = 4;
	CU_ASSERT_FALSE(strings_next_number(&p, &left, 0, 99, &value));
	p = "100";
	left = 4;
	CU_ASSERT_FALSE(strings_next_number(&p, &left, 0, 99, &value));
	strings_free(&s);
}

static CU_TestInfo tests[] = {
	{"hosts", test_hosts},		{"bad hosts", test_bad_hosts},
	{"a file of hosts", test_file}, {"frames", test_frames},
	{"strings", test_strings},	CU_TEST_INFO_NULL,
};

int main(void)
{
	CU_SuiteInfo suites[] = {{"run_hosts", NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};
	int status = run_suites(suites);

	places_free(&places);
	return status;
}
