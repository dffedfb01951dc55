/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages for communicators that are not created yet: each is there, in its
 * order, or its communicator is refused as a whole; what is kept has a bound.
 */
#include "cunit_run.h"
#include "early.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { COMMS = 600, MESSAGES = 40, LEN = 80 };

/* As uids are: lists above, numbers below. */
static uint64_t uid_of(int comm)
{
	return (uint64_t)(comm % 3) << 24 | (uint64_t)comm;
}

static int keep(struct early *early, int comm, int number)
{
	char data[LEN];

	memset(data, number, sizeof(data));
	return early_keep(early, uid_of(comm), (struct vbn_ep *)early, data,
			  sizeof(data));
}

/* How many there were, in order from 0, or -1. */
static int take(struct early *early, int comm, bool *refused)
{
	struct early_message *message =
		early_take(early, uid_of(comm), refused);
	int n = 0;
	bool right = true;

	while (message) {
		struct early_message *next = message->next;

		right &= message->len == LEN && message->data[0] == n &&
			 message->data[LEN - 1] == n &&
			 message->from == (struct vbn_ep *)early;
		n++;
		free(message);
		message = next;
	}
	return right ? n : -1;
}

static void all_kept(void)
{
	struct early early = {.most = EARLY_BYTES};
	bool refused;

	for (int i = 0; i < MESSAGES; i++)
		for (int c = 0; c < COMMS; c++)
			CU_ASSERT_EQUAL_FATAL(keep(&early, c, i), 0);
	for (int c = COMMS - 1; c >= 0; c--) {
		CU_ASSERT_EQUAL(take(&early, c, &refused), MESSAGES);
		CU_ASSERT_FALSE(refused);
	}
	CU_ASSERT_EQUAL(early.bytes, 0);
	CU_ASSERT_EQUAL(take(&early, 0, &refused), 0);
	CU_ASSERT_FALSE(refused);
}

/* The one that does not fit is refused, and the others have its room. */
static void bound(void)
{
	struct early early = {.most = 20000};
	int kept = 0, status = 0;
	bool refused;

	CU_ASSERT_EQUAL(keep(&early, 1, 0), 0);
	while (!(status = keep(&early, 0, kept % 128)) && kept < 1000)
		kept++;
	CU_ASSERT_EQUAL(status, -ENOBUFS);
	CU_ASSERT(kept > 100 && kept < 250);
	CU_ASSERT(early.bytes < 500);
	CU_ASSERT_EQUAL(keep(&early, 0, 0), -ENOBUFS); /* stays so */
	CU_ASSERT_EQUAL(keep(&early, 1, 1), 0);
	CU_ASSERT_EQUAL(take(&early, 1, &refused), 2);
	CU_ASSERT_FALSE(refused);
	CU_ASSERT_EQUAL(take(&early, 0, &refused), 0);
	CU_ASSERT_TRUE(refused);
	CU_ASSERT_EQUAL(early.bytes, 0);
	/* Forgotten with its taking. */
	CU_ASSERT_EQUAL(keep(&early, 0, 0), 0);
	early_drop(&early, uid_of(0));
	CU_ASSERT_EQUAL(early.bytes, 0);
}

static void cleared(void)
{
	struct early early = {.most = 20000};

	for (int c = 0; c < COMMS; c++)
		(void)keep(&early, c, 0);
	early_clear(&early);
	CU_ASSERT_EQUAL(early.bytes, 0);
	for (int i = 0; i < EARLY_BUCKETS; i++)
		CU_ASSERT_PTR_NULL(early.buckets[i]);
}

static CU_TestInfo tests[] = {
	{"all kept", all_kept},
	{"bound", bound},
	{"cleared", cleared},
	CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
	{"early messages", NULL, NULL, NULL, NULL, tests},
	CU_SUITE_INFO_NULL,
};

int main(void)
{
	return run_suites(suites);
}
