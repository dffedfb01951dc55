/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane among ranks that behave: keys and values, fences,
 * messages, functions, watches, orderly ends. control_hostile.c has the rest.
 */
#include "control_cluster.h"

#include <verbena/job.h>

#include <CUnit/Basic.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct cluster cl;

static void open_cluster(int n)
{
	cluster_init(&cl, n);
	CU_ASSERT_EQUAL_FATAL(cluster_open(&cl), 0);
}

/* ---- keys and values ---- */

static void test_alone(void)
{
	struct control_options o = {
		.nranks = 1, .secret = "", .listen_fd = -1, .timeout_ms = 1000};
	struct control *c = NULL;
	char value[8] = "";
	size_t len = sizeof(value);

	CU_ASSERT_EQUAL_FATAL(control_open(&c, &o), 0);
	CU_ASSERT_EQUAL(control_set(c, "k", "v", 1, 1000), 0);
	CU_ASSERT_EQUAL(control_get(c, "k", value, &len, 1000), 0);
	CU_ASSERT(len == 1 && value[0] == 'v');
	CU_ASSERT_EQUAL(control_fence(c, 1000), 0);
	CU_ASSERT_EQUAL(control_first_dead(c), -1);
	control_close(c);
}

static int get_number(struct control *c, const char *key, int timeout_ms,
		      int *number)
{
	size_t len = sizeof(*number);

	return control_get(c, key, number, &len, timeout_ms);
}

static int set_number(struct control *c, const char *key, int number)
{
	return control_set(c, key, &number, sizeof(number), 5000);
}

static void test_set_get(void)
{
	struct control *c;
	int number = 0, begin;

	open_cluster(2);
	c = cl.node[1].control;
	CU_ASSERT_EQUAL(set_number(c, "a", 1), 0);
	CU_ASSERT_EQUAL(get_number(cl.node[0].control, "a", 5000, &number), 0);
	CU_ASSERT_EQUAL(number, 1);
	CU_ASSERT_EQUAL(set_number(c, "a", 2), 0);
	CU_ASSERT_EQUAL(get_number(cl.node[0].control, "a", 0, &number), 0);
	CU_ASSERT_EQUAL(number, 2);

	begin = clock_ms();
	CU_ASSERT_EQUAL(get_number(c, "absent", 0, &number), -ETIMEDOUT);
	CU_ASSERT(clock_ms() - begin < 900);
	begin = clock_ms();
	CU_ASSERT_EQUAL(get_number(c, "absent", 150, &number), -ETIMEDOUT);
	CU_ASSERT(clock_ms() - begin >= 149 && clock_ms() - begin < 1500);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "absent"));
	CU_ASSERT_EQUAL(number, 2);

	CU_ASSERT_EQUAL(control_erase(c, "a", 5000), 0);
	CU_ASSERT_EQUAL(control_erase(c, "a", 5000), 0);
	CU_ASSERT_EQUAL(get_number(c, "a", 0, &number), -ETIMEDOUT);
	CU_ASSERT_EQUAL(set_number(c, "a", 3), 0);
	CU_ASSERT_EQUAL(get_number(c, "a", 0, &number), 0);
	CU_ASSERT_EQUAL(number, 3);
	cluster_close(&cl);
}

/* Rank 0 sets late; all others wait, some of them in vain at first. */
static void wait_for_key(struct node *node)
{
	int number = 0;

	if (node->rank == 0) {
		sleep_ms(200);
		CHECK(!set_number(node->control, "late", 42));
		return;
	}
	if (node->rank % 2)
		CHECK(get_number(node->control, "late", 30, &number) ==
		      -ETIMEDOUT);
	CHECK(!get_number(node->control, "late", 5000, &number));
	CHECK(number == 42);
}

static void test_waiting_get(void)
{
	open_cluster(8);
	CU_ASSERT_EQUAL(cluster_run(&cl, wait_for_key), 0);
	cluster_close(&cl);
}

static void test_sizes(void)
{
	static const size_t sizes[] = {0,    1,	   7,	  255,	 4095,
				       4096, 4097, 16384, 65535, 65536};
	static uint8_t value[CONTROL_VALUE_MAX + 1], got[CONTROL_VALUE_MAX];
	struct control *c;
	size_t len;

	open_cluster(2);
	c = cl.node[1].control;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (size_t j = 0; j < sizes[i]; j++)
			value[j] = (uint8_t)(j * 7 + i);
		CU_ASSERT_EQUAL(control_set(c, "s", value, sizes[i], 5000), 0);
		len = sizeof(got);
		CU_ASSERT_EQUAL(
			control_get(cl.node[0].control, "s", got, &len, 5000),
			0);
		CU_ASSERT_EQUAL(len, sizes[i]);
		CU_ASSERT(!memcmp(value, got, sizes[i]));
		if (!sizes[i])
			continue;
		len = sizes[i] - 1;
		CU_ASSERT_EQUAL(control_get(c, "s", got, &len, 5000),
				-EMSGSIZE);
		CU_ASSERT_EQUAL(len, sizes[i] - 1);
	}
	CU_ASSERT_EQUAL(control_set(c, "s", value, sizeof(value), 5000),
			-EMSGSIZE);
	cluster_close(&cl);
}

static void test_keys(void)
{
	char key[CONTROL_KEY_MAX + 2];
	struct control *c;
	int number;

	open_cluster(1);
	c = cl.node[0].control;
	memset(key, 'k', sizeof(key));
	key[CONTROL_KEY_MAX + 1] = '\0';
	CU_ASSERT_EQUAL(set_number(c, key, 1), -EINVAL);
	key[CONTROL_KEY_MAX] = '\0';
	CU_ASSERT_EQUAL(set_number(c, key, 1), 0);
	CU_ASSERT_EQUAL(get_number(c, key, 0, &number), 0);
	CU_ASSERT_EQUAL(set_number(c, "", 1), -EINVAL);
	for (int i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "many/%d", i);
		CU_ASSERT_EQUAL(set_number(c, key, i), 0);
	}
	for (int i = 0; i < 3000; i += 2) {
		snprintf(key, sizeof(key), "many/%d", i);
		CU_ASSERT_EQUAL(control_erase(c, key, 5000), 0);
	}
	for (int i = 0; i < 3000; i++) {
		snprintf(key, sizeof(key), "many/%d", i);
		CU_ASSERT_EQUAL(get_number(c, key, 0, &number),
				i % 2 ? 0 : -ETIMEDOUT);
		CU_ASSERT(i % 2 == 0 || number == i);
	}
	cluster_close(&cl);
}

/* ---- fence ---- */

static atomic_int arrived;

static void fence_rounds(struct node *node)
{
	for (int i = 0; i < 50; i++) {
		atomic_fetch_add(&arrived, 1);
		CHECK(!control_fence(node->control, 10000));
		CHECK(atomic_load(&arrived) >= (i + 1) * node->cluster->n);
	}
}

static void test_fence(void)
{
	open_cluster(8);
	atomic_store(&arrived, 0);
	CU_ASSERT_EQUAL(cluster_run(&cl, fence_rounds), 0);
	cluster_close(&cl);
}

static void test_fence_timeout(void)
{
	open_cluster(2);
	CU_ASSERT_EQUAL(control_fence(cl.node[0].control, 100), -ETIMEDOUT);
	CU_ASSERT_EQUAL(control_fence(cl.node[0].control, 0), -ETIMEDOUT);
	/* Rank 0 has called twice: rank 1's first two calls meet them. */
	CU_ASSERT_EQUAL(control_fence(cl.node[1].control, 5000), 0);
	CU_ASSERT_EQUAL(control_fence(cl.node[1].control, 0), 0);
	CU_ASSERT_EQUAL(control_fence(cl.node[1].control, 100), -ETIMEDOUT);
	CU_ASSERT_EQUAL(control_fence(cl.node[0].control, 5000), 0);
	cluster_close(&cl);
}

/* ---- messages ---- */

static void send_many(struct node *node)
{
	static const size_t sizes[] = {0, 1, 100, CONTROL_MESSAGE_MAX};
	uint8_t data[CONTROL_MESSAGE_MAX + 1];

	for (unsigned i = 0; i < 200; i++)
		for (int to = 0; to < node->cluster->n; to++) {
			memset(data, (int)i, sizeof(data));
			CHECK(!control_send(node->control, to, i, data,
					    sizes[i % 4]));
		}
	CHECK(control_send(node->control, 0, 0, data, sizeof(data)) ==
	      -EMSGSIZE);
	CHECK(control_send(node->control, node->cluster->n, 0, data, 0) ==
	      -EINVAL);
	CHECK(control_send(node->control, -1, 0, data, 0) == -EINVAL);
}

static void wait_messages(struct node *node)
{
	unsigned want = 200 * (unsigned)node->cluster->n, got = 0;

	for (int i = 0; i < 10000 && got < want; i++) {
		pthread_mutex_lock(&node->lock);
		got = node->messages;
		pthread_mutex_unlock(&node->lock);
		sleep_ms(1);
	}
	CHECK(got == want);
	CHECK(!node->wrong);
}

static void test_messages(void)
{
	open_cluster(5);
	CU_ASSERT_EQUAL(cluster_run(&cl, send_many), 0);
	CU_ASSERT_EQUAL(cluster_run(&cl, wait_messages), 0);
	cluster_close(&cl);
}

/* A receiver that is busy holds up neither senders nor anyone else. */
static void test_slow_receiver(void)
{
	static uint8_t data[CONTROL_MESSAGE_MAX];
	int begin, number;

	open_cluster(3);
	pthread_mutex_lock(&cl.node[1].lock);
	cl.node[1].slow_ms = 2000;
	pthread_mutex_unlock(&cl.node[1].lock);
	begin = clock_ms();
	for (unsigned i = 0; i < 3000; i++) {
		memset(data, (int)i, sizeof(data));
		CU_ASSERT_EQUAL(control_send(cl.node[0].control, 1, i, data,
					     sizeof(data)),
				0);
	}
	CU_ASSERT_EQUAL(set_number(cl.node[2].control, "x", 1), 0);
	CU_ASSERT_EQUAL(get_number(cl.node[2].control, "x", 5000, &number), 0);
	CU_ASSERT(clock_ms() - begin < 1800);
	for (int i = 0; i < 10000; i++) {
		pthread_mutex_lock(&cl.node[1].lock);
		number = (int)cl.node[1].messages;
		pthread_mutex_unlock(&cl.node[1].lock);
		if (number == 3000)
			break;
		sleep_ms(1);
	}
	CU_ASSERT_EQUAL(number, 3000);
	CU_ASSERT_EQUAL(cl.node[1].wrong, 0);
	cluster_close(&cl);
}

/* ---- look-ups ---- */

struct answer {
	atomic_int calls;
	int err, number;
	pthread_t thread;
};

static void on_answer(void *arg, int err, const void *value, size_t len)
{
	struct answer *a = arg;

	a->err = err;
	a->thread = pthread_self();
	if (!err && len == sizeof(a->number))
		memcpy(&a->number, value, len);
	atomic_fetch_add(&a->calls, 1);
}

static bool wait_answer(struct answer *a)
{
	for (int i = 0; i < 5000 && !atomic_load(&a->calls); i++)
		sleep_ms(1);
	return atomic_load(&a->calls) == 1;
}

static void test_lookup(void)
{
	struct answer absent = {0}, waits = {0}, there = {0}, closed = {0};
	struct control *c;

	open_cluster(2);
	c = cl.node[1].control;
	control_lookup(c, "x", false, on_answer, &absent);
	control_lookup(c, "x", true, on_answer, &waits);
	control_lookup(c, "never", true, on_answer, &closed);
	CU_ASSERT(wait_answer(&absent));
	CU_ASSERT_EQUAL(absent.err, -ENOENT);
	CU_ASSERT_EQUAL(atomic_load(&waits.calls), 0);
	CU_ASSERT_EQUAL(set_number(cl.node[0].control, "x", 5), 0);
	CU_ASSERT(wait_answer(&waits));
	CU_ASSERT(waits.err == 0 && waits.number == 5);
	control_lookup(c, "x", false, on_answer, &there);
	CU_ASSERT(wait_answer(&there));
	CU_ASSERT(there.err == 0 && there.number == 5);
	CU_ASSERT(!pthread_equal(there.thread, pthread_self()));
	CU_ASSERT_EQUAL(atomic_load(&closed.calls), 0);
	cluster_close(&cl);
	CU_ASSERT_EQUAL(atomic_load(&closed.calls), 1);
	CU_ASSERT_EQUAL(closed.err, -ECANCELED);
}

/* ---- functions and watches ---- */

static atomic_int order;

static void append_digit(void *arg)
{
	atomic_store(&order, atomic_load(&order) * 10 + *(int *)arg);
}

struct watched {
	struct control *control;
	int fds[2];
	int seen, rc;
};

static void on_readable(void *arg, int fd)
{
	struct watched *w = arg;
	char byte;

	if (read(fd, &byte, 1) == 1)
		w->seen++;
	if (w->seen == 3)
		control_unwatch(w->control, fd);
}

static void watch(void *arg)
{
	struct watched *w = arg;

	w->rc = control_watch(w->control, w->fds[0], on_readable, w);
}

static void unwatch(void *arg)
{
	struct watched *w = arg;

	control_unwatch(w->control, w->fds[0]);
}

static void nothing(void *arg)
{
	(void)arg;
}

static void test_run(void)
{
	int digits[] = {1, 2, 3, 4};
	struct control *c;

	open_cluster(1);
	c = cl.node[0].control;
	atomic_store(&order, 0);
	CU_ASSERT_EQUAL(control_run(c, append_digit, &digits[0]), 0);
	CU_ASSERT_EQUAL(control_run(c, append_digit, &digits[1]), 0);
	CU_ASSERT_EQUAL(control_run_wait(c, append_digit, &digits[2]), 0);
	CU_ASSERT_EQUAL(atomic_load(&order), 123);
	CU_ASSERT_EQUAL(control_run(c, append_digit, &digits[3]), 0);
	cluster_close(&cl);
	CU_ASSERT_EQUAL(atomic_load(&order), 1234);
}

static void test_watch(void)
{
	struct watched w = {0};
	struct control *c;

	open_cluster(1);
	c = cl.node[0].control;
	w.control = c;
	CU_ASSERT_EQUAL_FATAL(pipe(w.fds), 0);
	CU_ASSERT_EQUAL(control_run_wait(c, watch, &w), 0);
	CU_ASSERT_EQUAL(w.rc, 0);
	for (int i = 0; i < 5; i++)
		CU_ASSERT_EQUAL(write(w.fds[1], "x", 1), 1);
	sleep_ms(100);
	CU_ASSERT_EQUAL(control_run_wait(c, unwatch, &w), 0);
	CU_ASSERT_EQUAL(w.seen, 3);
	CU_ASSERT_EQUAL(control_run_wait(c, watch, &w), 0);
	sleep_ms(50);
	CU_ASSERT_EQUAL(control_run_wait(c, nothing, NULL), 0);
	CU_ASSERT_EQUAL(w.seen, 5);
	cluster_close(&cl);
	close(w.fds[0]);
	close(w.fds[1]);
}

/* ---- orderly ends ---- */

static void test_left(void)
{
	open_cluster(4);
	cluster_close_one(&cl, 2);
	for (int i = 0; i < 4; i++) {
		if (i == 2)
			continue;
		CU_ASSERT_EQUAL(node_wait_gone(&cl.node[i], 2, 5000), 0);
		CU_ASSERT(control_rank_gone(cl.node[i].control, 2));
		CU_ASSERT(!control_rank_dead(cl.node[i].control, 2));
		CU_ASSERT_EQUAL(control_first_dead(cl.node[i].control), -1);
		CU_ASSERT_EQUAL(control_fence(cl.node[i].control, 5000),
				-ECONNRESET);
		CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "rank 2 has left"));
	}
	CU_ASSERT_EQUAL(control_send(cl.node[0].control, 2, 0, "", 0), 0);
	CU_ASSERT_EQUAL(set_number(cl.node[3].control, "still", 1), 0);
	cluster_close(&cl);
	CU_ASSERT_EQUAL(cl.node[0].gone[2], 1);
}

/* Rank 0 leaves first: the store goes on until the others have left. */
static void leave_late(struct node *node)
{
	int number;

	if (node->rank) {
		sleep_ms(300);
		CHECK(node_wait_gone(node, 0, 1000) == 0);
		CHECK(!set_number(node->control, "after", 7));
		CHECK(!get_number(node->control, "after", 1000, &number));
	}
	control_close(node->control);
	node->control = NULL;
}

static void test_rank0_leaves_first(void)
{
	int begin = clock_ms();

	open_cluster(4);
	CU_ASSERT_EQUAL(cluster_run(&cl, leave_late), 0);
	CU_ASSERT(clock_ms() - begin < 3000);
	cluster_close(&cl);
}

/* ... but not for longer than its timeout. */
static void test_rank0_gives_up(void)
{
	int begin, number;

	cluster_init(&cl, 2);
	cl.timeout_ms = 1000;
	CU_ASSERT_EQUAL_FATAL(cluster_open(&cl), 0);
	begin = clock_ms();
	cluster_close_one(&cl, 0);
	CU_ASSERT(clock_ms() - begin >= 900 && clock_ms() - begin < 2500);
	CU_ASSERT_EQUAL(get_number(cl.node[1].control, "x", 1000, &number),
			-ECONNRESET);
	CU_ASSERT_PTR_NOT_NULL(strstr(vbn_error(), "rank 0 has left"));
	CU_ASSERT_EQUAL(control_send(cl.node[1].control, 1, 0, "", 0),
			-ECONNRESET);
	CU_ASSERT_EQUAL(control_first_dead(cl.node[1].control), -1);
	CU_ASSERT_EQUAL(cl.node[1].gone[0], 1);
	cluster_close(&cl);
}

/* A process that opens one job after another at the same address. */
static void open_close(struct node *node)
{
	struct control_options o = cluster_options(node->cluster, node->rank);
	int number = -1;

	o.listen_fd = -1;
	o.timeout_ms = 10000;
	for (int i = 0; i < 20; i++) {
		if (!CHECK(!control_open(&node->control, &o)))
			break;
		if (node->rank == 1)
			CHECK(!set_number(node->control, "round", i));
		CHECK(!get_number(node->control, "round", 5000, &number));
		CHECK(number == i);
		control_close(node->control);
	}
	node->control = NULL;
}

static void test_again(void)
{
	cluster_init(&cl, 4);
	close(cl.listen_fd);
	for (int i = 0; i < 4; i++) /* run() wants open ranks */
		cl.node[i].control = (struct control *)&cl;
	CU_ASSERT_EQUAL(cluster_run(&cl, open_close), 0);
	for (int i = 0; i < 4; i++)
		cl.node[i].control = NULL;
	cluster_close(&cl);
}

static void test_64_ranks(void)
{
	open_cluster(64);
	atomic_store(&arrived, 0);
	CU_ASSERT_EQUAL(cluster_run(&cl, fence_rounds), 0);
	cluster_close(&cl);
}

static CU_TestInfo tests[] = {
	{"a job of one", test_alone},
	{"set, get, erase", test_set_get},
	{"get waits for the key", test_waiting_get},
	{"values of 0 to 64 KiB", test_sizes},
	{"keys", test_keys},
	{"fence", test_fence},
	{"fence that times out", test_fence_timeout},
	{"messages in order", test_messages},
	{"a slow receiver", test_slow_receiver},
	{"look-up", test_lookup},
	{"functions run in order", test_run},
	{"watch and unwatch", test_watch},
	{"a rank leaves", test_left},
	{"rank 0 leaves first", test_rank0_leaves_first},
	{"rank 0 gives up waiting", test_rank0_gives_up},
	{"one job after another", test_again},
	{"64 ranks", test_64_ranks},
	CU_TEST_INFO_NULL,
};

int main(void)
{
	return run_suite("control", tests);
}
