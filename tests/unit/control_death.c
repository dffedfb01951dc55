/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane when ranks are killed: who hears of it, how soon, and what
 * becomes of those who wait. Ranks that die are other processes: this program
 * again.
 */
#include "control_cluster.h"

#include <verbena/job.h>

#include <CUnit/Basic.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct cluster cl;

static int child(char **argv)
{
	struct control_options o = child_options(argv);
	struct control *c;
	pid_t pid = 0;

	if (control_open(&c, &o))
		return EXIT_FAILURE;
	if (!strcmp(argv[1], "fork")) {
		pid = fork();
		if (pid == 0) {
			close(STDOUT_FILENO);
			sleep(20);
			_exit(0);
		}
	}
	printf("%d\n", (int)pid);
	fflush(stdout);
	pause();
	return EXIT_SUCCESS;
}

static void died_heard(int rank, int survivors)
{
	for (int i = 0; i < cl.n; i++) {
		struct node *node = &cl.node[i];

		if (!(survivors >> i & 1))
			continue;
		CU_ASSERT_EQUAL(node_wait_gone(node, rank, 2000), 1);
		CU_ASSERT(control_rank_dead(node->control, rank));
		CU_ASSERT_EQUAL(control_first_dead(node->control), rank);
	}
}

static void fence_of_the_dead(struct node *node)
{
	int begin = clock_ms();

	CHECK(control_fence(node->control, 10000) == -ECONNRESET);
	CHECK(says(vbn_error(), "rank 2 has died"));
	CHECK(clock_ms() - begin < 3000);
}

static void *kill_later(void *arg)
{
	sleep_ms(300);
	kill(*(pid_t *)arg, SIGKILL);
	return NULL;
}

/* The others wait in a fence when a rank is killed. */
static void test_killed(void)
{
	pid_t pid;
	pthread_t thread;
	int out;

	cluster_init(&cl, 4);
	pid = child_start(&cl, "plain", 2, &out);
	cluster_open_some(&cl, 0xb);
	child_number(out);
	pthread_create(&thread, NULL, kill_later, &pid);
	CU_ASSERT_EQUAL(cluster_run(&cl, fence_of_the_dead), 0);
	pthread_join(thread, NULL);
	died_heard(2, 0xb);
	CU_ASSERT_EQUAL(cluster_run(&cl, fence_of_the_dead), 0);
	waitpid(pid, NULL, 0);
	cluster_close(&cl);
	CU_ASSERT_EQUAL(cl.node[0].gone[2], 1);
}

/* A child of the dead rank that lives on does not hide the death. */
static void test_killed_with_child(void)
{
	pid_t pid, grandchild;
	int out;

	cluster_init(&cl, 3);
	pid = child_start(&cl, "fork", 2, &out);
	cluster_open_some(&cl, 3);
	grandchild = child_number(out);
	CU_ASSERT_FATAL(grandchild > 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	died_heard(2, 3);
	CU_ASSERT_EQUAL(kill(grandchild, SIGKILL), 0);
	cluster_close(&cl);
}

static void cards_of_the_dead(struct node *node)
{
	uint8_t card[CONTROL_CARD] = {(uint8_t)(node->rank + 1)};
	uint8_t cards[3 * CONTROL_CARD];
	int begin = clock_ms();

	CHECK(control_card(node->control, card) == 0);
	CHECK(control_cards(node->control, 0, 2, cards, 10000) == 0);
	CHECK(cards[0] == 1 && cards[CONTROL_CARD] == 2);
	CHECK(control_cards(node->control, 0, 3, cards, 0) == -ETIMEDOUT);
	CHECK(control_cards(node->control, 1, 2, cards, 50) == -ETIMEDOUT);
	CHECK(control_cards(node->control, 0, 3, cards, 10000) == -ECONNRESET);
	CHECK(says(vbn_error(), "rank 2 has died (host "));
	CHECK(control_cards(node->control, 2, 1, cards, 10000) == -ECONNRESET);
	CHECK(control_cards(node->control, 1, 0, cards, 0) == 0);
	CHECK(control_cards(node->control, 1, 3, cards, 0) == -EINVAL);
	CHECK(control_cards(node->control, -1, 1, cards, 0) == -EINVAL);
	CHECK(clock_ms() - begin < 5000);
}

/* The others wait for what a rank says of itself, which never comes. */
static void test_cards(void)
{
	pid_t pid;
	pthread_t thread;
	int out;

	cluster_init(&cl, 3);
	pid = child_start(&cl, "plain", 2, &out);
	cluster_open_some(&cl, 3);
	child_number(out);
	pthread_create(&thread, NULL, kill_later, &pid);
	CU_ASSERT_EQUAL(cluster_run(&cl, cards_of_the_dead), 0);
	pthread_join(thread, NULL);
	waitpid(pid, NULL, 0);
	cluster_close(&cl);
}

static int lookup_err;
static atomic_int lookup_calls;

static void on_lookup(void *arg, int err, const void *value, size_t len)
{
	(void)arg, (void)value, (void)len;
	lookup_err = err;
	atomic_fetch_add(&lookup_calls, 1);
}

static void wait_in_vain(struct node *node)
{
	int number, begin = clock_ms();
	size_t len = sizeof(number);

	CHECK(control_get(node->control, "never", &number, &len, 10000) ==
	      -ECONNRESET);
	CHECK(says(vbn_error(), "rank 0 has died"));
	CHECK(clock_ms() - begin < 3000);
	CHECK(control_set(node->control, "k", "", 0, 10000) == -ECONNRESET);
	CHECK(control_fence(node->control, 10000) == -ECONNRESET);
	CHECK(control_send(node->control, 1, 0, "", 0) == -ECONNRESET);
}

static void rank0_killed(const char *mode)
{
	pid_t pid, grandchild;
	pthread_t thread;
	int out;

	cluster_init(&cl, 3);
	close(cl.listen_fd); /* the child listens for itself */
	pid = child_start(&cl, mode, 0, &out);
	cluster_open_some(&cl, 6);
	CU_ASSERT_FATAL(!cl.node[1].rc && !cl.node[2].rc);
	grandchild = child_number(out);
	atomic_store(&lookup_calls, 0);
	control_lookup(cl.node[1].control, "never", true, on_lookup, NULL);
	pthread_create(&thread, NULL, kill_later, &pid);
	CU_ASSERT_EQUAL(cluster_run(&cl, wait_in_vain), 0);
	pthread_join(thread, NULL);
	died_heard(0, 6);
	CU_ASSERT_EQUAL(atomic_load(&lookup_calls), 1);
	CU_ASSERT_EQUAL(lookup_err, -ECONNRESET);
	waitpid(pid, NULL, 0);
	if (grandchild > 0)
		CU_ASSERT_EQUAL(kill(grandchild, SIGKILL), 0);
	cluster_close(&cl);
}

static void test_rank0_killed(void)
{
	rank0_killed("plain");
	rank0_killed("fork");
}

static CU_TestInfo tests[] = {
	{"killed in a fence", test_killed},
	{"killed, a child lives on", test_killed_with_child},
	{"cards of the dead", test_cards},
	{"rank 0 killed", test_rank0_killed},
	CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
	if (is_child(argc, argv))
		return child(argv + 1);
	return run_suite("control and deaths", tests);
}
