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

static int number(const char *text)
{
	return (int)strtol(text, NULL, 10);
}

static const char self[] = "/proc/self/exe";

/* Another process as rank @rank; "fork": it leaves a child behind. */
static pid_t start_child(const char *mode, int rank, int *out)
{
	char port[16], r[16], n[16];
	int fds[2];
	pid_t pid;

	snprintf(port, sizeof(port), "%u", (unsigned)cl.port);
	snprintf(r, sizeof(r), "%d", rank);
	snprintf(n, sizeof(n), "%d", cl.n);
	if (pipe(fds))
		return -1;
	pid = fork();
	if (pid == 0) {
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		execl(self, self, "child", mode, port, r, n, (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	*out = fds[0];
	return pid;
}

static int child(char **argv)
{
	struct control_options o = {.rank = number(argv[3]),
				    .nranks = number(argv[4]),
				    .host = "127.0.0.1",
				    .port = (uint16_t)number(argv[2]),
				    .secret = "correct horse",
				    .listen_fd = -1,
				    .timeout_ms = 10000};
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

static int read_pid(int fd)
{
	char text[16] = "";

	if (read(fd, text, sizeof(text) - 1) < 0)
		perror("read");
	close(fd);
	return number(text);
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
	int begin = now_ms();

	CHECK(control_fence(node->control, 10000) == -ECONNRESET);
	CHECK(says(vbn_error(), "rank 2 has died"));
	CHECK(now_ms() - begin < 3000);
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
	pid = start_child("plain", 2, &out);
	cluster_open_some(&cl, 0xb);
	read_pid(out);
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
	pid = start_child("fork", 2, &out);
	cluster_open_some(&cl, 3);
	grandchild = read_pid(out);
	CU_ASSERT_FATAL(grandchild > 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	died_heard(2, 3);
	CU_ASSERT_EQUAL(kill(grandchild, SIGKILL), 0);
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
	int number, begin = now_ms();
	size_t len = sizeof(number);

	CHECK(control_get(node->control, "never", &number, &len, 10000) ==
	      -ECONNRESET);
	CHECK(says(vbn_error(), "rank 0 has died"));
	CHECK(now_ms() - begin < 3000);
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
	pid = start_child(mode, 0, &out);
	cluster_open_some(&cl, 6);
	CU_ASSERT_FATAL(!cl.node[1].rc && !cl.node[2].rc);
	grandchild = read_pid(out);
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
	{"rank 0 killed", test_rank0_killed},
	CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
	if (argc == 6 && !strcmp(argv[1], "child"))
		return child(argv + 1);
	return run_suite("control and deaths", tests);
}
