/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The control plane among strangers and wrong configurations: who is refused,
 * with which words, how soon; and that nobody else is held up.
 */
#include "control_cluster.h"

#include <verbena/job.h>

#include <CUnit/Basic.h>
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct cluster cl;

/* Rank @rank alone, in this thread, with its own ideas. */
static int open_with(int rank, int nranks, const char *secret, int timeout_ms)
{
	struct control_options o = cluster_options(&cl, rank);
	struct control *c = NULL;
	int rc;

	o.nranks = nranks;
	o.secret = secret;
	o.timeout_ms = timeout_ms;
	rc = control_open(&c, &o);
	if (!rc)
		control_close(c);
	return rc;
}

/* Rank 0 opens in the background, as the others are still to come. */
static pthread_t background;

static void *open_rank0(void *arg)
{
	(void)arg;
	cluster_open_some(&cl, 1);
	return NULL;
}

static void begin_rank0(int n, int timeout_ms)
{
	cluster_init(&cl, n);
	cl.timeout_ms = timeout_ms;
	pthread_create(&background, NULL, open_rank0, NULL);
}

static void end_rank0(void)
{
	pthread_join(background, NULL);
	cluster_close(&cl);
}

/* ---- refused ---- */

static void test_wrong_secret(void)
{
	int begin = clock_ms();

	begin_rank0(2, 10000);
	CU_ASSERT_EQUAL(open_with(1, 2, "wrong", 10000), -EACCES);
	CU_ASSERT(says(vbn_error(), "the job's secret differs from rank 0's"));
	CU_ASSERT_EQUAL(open_with(1, 2, "", 10000), -EACCES);
	CU_ASSERT_EQUAL(open_with(1, 2, "correct hors", 10000), -EACCES);
	/* The store is still there for the right one. */
	CU_ASSERT_EQUAL(open_with(1, 2, "correct horse", 10000), 0);
	CU_ASSERT(clock_ms() - begin < 2000);
	end_rank0();
	CU_ASSERT_EQUAL(cl.node[0].rc, 0);
}

static void test_wrong_shape(void)
{
	uint8_t body[512];
	size_t len;
	int fd;

	begin_rank0(3, 10000);
	CU_ASSERT_EQUAL(open_with(1, 4, "correct horse", 5000), -EPROTO);
	CU_ASSERT(says(vbn_error(), "rank 1 was given a job of 4 ranks"));
	fd = raw_connect(cl.port);
	CU_ASSERT_EQUAL(raw_shake(fd, "correct horse"), VERDICT_ACCEPTED);
	raw_join(fd, 3, 3);
	CU_ASSERT_EQUAL(raw_read(fd, body, sizeof(body), &len, 2000),
			FRAME_REFUSED);
	CU_ASSERT_EQUAL(body[0], REFUSED_SHAPE);
	CU_ASSERT(raw_closed(fd, 2000));
	close(fd);

	fd = raw_connect(cl.port);
	CU_ASSERT_EQUAL(raw_shake(fd, "correct horse"), VERDICT_ACCEPTED);
	raw_join(fd, 1, 3);
	sleep_ms(50);
	CU_ASSERT_EQUAL(open_with(1, 3, "correct horse", 5000), -EPROTO);
	CU_ASSERT(says(vbn_error(), "rank 1 has joined already"));
	/* Rank 1 ends before all are there: everyone hears of it at once. */
	close(fd);
	end_rank0();
	CU_ASSERT_EQUAL(cl.node[0].rc, -ECONNRESET);
	CU_ASSERT(says(cl.node[0].why, "rank 1 ended while the job was "
				       "starting"));
	CU_ASSERT(cl.node[0].opened_ms < 5000);
}

static void test_rank0_twice(void)
{
	struct control_options o;
	struct control *c;
	int fd;

	begin_rank0(2, 1000);
	sleep_ms(100);
	o = cluster_options(&cl, 0);
	o.listen_fd = -1;
	CU_ASSERT_EQUAL(control_open(&c, &o), -EADDRINUSE);
	CU_ASSERT(says(vbn_error(), "in use"));
	fd = raw_connect(cl.port);
	CU_ASSERT_EQUAL(raw_shake(fd, "correct horse"), VERDICT_ACCEPTED);
	raw_join(fd, 0, 2);
	CU_ASSERT(raw_closed(fd, 2000));
	close(fd);
	end_rank0();
	CU_ASSERT_EQUAL(cl.node[0].rc, -ETIMEDOUT);
	CU_ASSERT(says(cl.node[0].why, "rank 0 has joined already"));

	o.host = "192.0.2.1"; /* documentation's, nobody's */
	CU_ASSERT_EQUAL(control_open(&c, &o), -EADDRNOTAVAIL);
	CU_ASSERT(says(vbn_error(), "not an address of this machine"));
	o.host = "no-such-host.invalid";
	CU_ASSERT(control_open(&c, &o) < 0);
	CU_ASSERT(says(vbn_error(), "cannot look up host"));
}

static void test_missing(void)
{
	cluster_init(&cl, 6);
	cl.timeout_ms = 800;
	cluster_open_some(&cl, 0x13); /* 0, 1, 4 */
	for (int i = 0; i < 6; i++) {
		if (!(0x13 >> i & 1))
			continue;
		CU_ASSERT_EQUAL(cl.node[i].rc, -ETIMEDOUT);
		CU_ASSERT(says(cl.node[i].why, "ranks 2-3, 5 of 6 have not "
					       "joined within 800 ms"));
		CU_ASSERT(cl.node[i].opened_ms < 1500);
	}
	cluster_close(&cl);
}

static void test_no_rank0(void)
{
	int begin = clock_ms();

	cluster_init(&cl, 2);
	close(cl.listen_fd);
	CU_ASSERT_EQUAL(open_with(1, 2, "x", 500), -ETIMEDOUT);
	CU_ASSERT(says(vbn_error(), "Connection refused"));
	CU_ASSERT(clock_ms() - begin < 1500);
	cluster_close(&cl);
}

static void *open_late(void *arg)
{
	sleep_ms(400);
	return open_rank0(arg);
}

/* Rank 0 comes later than the others. */
static void test_late_rank0(void)
{
	cluster_init(&cl, 2);
	close(cl.listen_fd);
	cl.listen_fd = -1;
	pthread_create(&background, NULL, open_late, NULL);
	CU_ASSERT_EQUAL(open_with(1, 2, "correct horse", 5000), 0);
	end_rank0();
	CU_ASSERT_EQUAL(cl.node[0].rc, 0);
}

/* ---- other versions, other programs ---- */

static void test_foreign_rank(void)
{
	uint8_t hello[WIRE_GREETING], reply[WIRE_GREETING];
	struct wire_shake shake;
	uint32_t version = 0;
	int fd;

	begin_rank0(2, 1500);
	wire_greeting(hello, &shake, ROLE_RANK);
	hello[8] = 77;
	fd = raw_connect(cl.port);
	/* Of another version nothing but the prefix is known. */
	CU_ASSERT_EQUAL(send(fd, hello, WIRE_PREFIX + 3, 0), WIRE_PREFIX + 3);
	CU_ASSERT_EQUAL(recv(fd, reply, sizeof(reply), MSG_WAITALL),
			sizeof(reply));
	CU_ASSERT_EQUAL(wire_greeting_check(reply, &version), 0);
	CU_ASSERT(raw_closed(fd, 2000));
	close(fd);
	end_rank0();
	CU_ASSERT(says(cl.node[0].why, "1 spoke another version"));
}

/* A server that says @text to whoever comes, or nothing. */
struct server {
	int fd;
	const void *text;
	size_t len;
};

static void *serve(void *arg)
{
	struct server *s = arg;
	int fd;

	while ((fd = accept(s->fd, NULL, NULL)) >= 0) {
		if (s->len && send(fd, s->text, s->len, MSG_NOSIGNAL) < 0)
			perror("send");
		raw_closed(fd, 3000);
		close(fd);
	}
	return NULL;
}

static int open_at_server(const void *text, size_t len, int timeout_ms)
{
	struct server s = {.text = text, .len = len};
	pthread_t thread;
	int rc;

	cluster_init(&cl, 2);
	s.fd = cl.listen_fd;
	pthread_create(&thread, NULL, serve, &s);
	rc = open_with(1, 2, "correct horse", timeout_ms);
	shutdown(s.fd, SHUT_RDWR);
	pthread_join(thread, NULL);
	close(s.fd);
	cluster_close(&cl);
	return rc;
}

static void test_foreign_server(void)
{
	static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
	uint8_t hello[WIRE_GREETING + WIRE_VERDICT] = {0};
	struct wire_shake shake;
	int begin = clock_ms();

	CU_ASSERT_EQUAL(open_at_server(http, sizeof(http) - 1, 5000), -EPROTO);
	CU_ASSERT(says(vbn_error(), "is not a job's rank 0"));
	wire_greeting(hello, &shake, ROLE_RANK);
	hello[8] = 9;
	CU_ASSERT_EQUAL(open_at_server(hello, WIRE_PREFIX, 5000), -EPROTO);
	CU_ASSERT(says(vbn_error(), "version 9"));
	CU_ASSERT(clock_ms() - begin < 1000);
	/* One that does not know the secret but says that we are welcome. */
	hello[8] = WIRE_VERSION;
	hello[WIRE_GREETING] = VERDICT_ACCEPTED;
	CU_ASSERT_EQUAL(open_at_server(hello, sizeof(hello), 5000), -EACCES);
	begin = clock_ms();
	CU_ASSERT_EQUAL(open_at_server("", 0, 500), -ETIMEDOUT);
	CU_ASSERT(says(vbn_error(), "no answer"));
	CU_ASSERT(clock_ms() - begin < 5000);
}

/* ---- strangers ---- */

static atomic_bool drip_over;

/* One byte a moment, of a greeting that would be right. */
static void *drip(void *arg)
{
	uint8_t hello[WIRE_GREETING];
	struct wire_shake shake;
	int fd = *(int *)arg;

	wire_greeting(hello, &shake, ROLE_RANK);
	for (size_t i = 0; i < sizeof(hello) && !atomic_load(&drip_over); i++) {
		if (send(fd, hello + i, 1, MSG_NOSIGNAL) != 1)
			break;
		sleep_ms(100);
	}
	return NULL;
}

static void strange(int fd, int kind)
{
	uint8_t bytes[4096];
	struct wire_shake shake;
	size_t len = 0;

	switch (kind % 5) {
	case 0: /* noise */
		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)rand();
		len = sizeof(bytes);
		break;
	case 1: /* silence */
		break;
	case 2: /* half a handshake */
		wire_greeting(bytes, &shake, ROLE_RANK);
		len = WIRE_GREETING;
		break;
	case 3: /* half a greeting */
		wire_greeting(bytes, &shake, ROLE_RANK);
		len = 20;
		break;
	case 4: /* a proof that proves nothing, and frames behind it */
		memset(bytes, 0, sizeof(bytes));
		wire_greeting(bytes, &shake, ROLE_RANK);
		len = sizeof(bytes);
		break;
	}
	if (len && send(fd, bytes, len, MSG_NOSIGNAL) < 0)
		perror("send");
}

static void test_strangers(void)
{
	enum { STRANGERS = 200 };
	int fds[STRANGERS], begin, slow, number = 5;
	size_t len = sizeof(number);
	pthread_t thread;

	cluster_init(&cl, 4);
	atomic_store(&drip_over, false);
	for (int i = 0; i < STRANGERS; i++) {
		fds[i] = raw_connect(cl.port);
		strange(fds[i], i);
	}
	slow = raw_connect(cl.port);
	pthread_create(&thread, NULL, drip, &slow);
	begin = clock_ms();
	CU_ASSERT_EQUAL_FATAL(cluster_open(&cl), 0);
	CU_ASSERT(clock_ms() - begin < 2000);
	/* More of them while the job runs. */
	for (int i = 0; i < STRANGERS; i++) {
		close(fds[i]);
		fds[i] = raw_connect(cl.port);
		strange(fds[i], i);
	}
	begin = clock_ms();
	CU_ASSERT_EQUAL(control_set(cl.node[3].control, "k", &number,
				    sizeof(number), 2000),
			0);
	CU_ASSERT_EQUAL(
		control_get(cl.node[1].control, "k", &number, &len, 2000), 0);
	CU_ASSERT(clock_ms() - begin < 1000);
	/* In the end each is shown the door. */
	for (int i = 0; i < STRANGERS; i++) {
		CU_ASSERT(raw_closed(fds[i], 7000));
		close(fds[i]);
	}
	atomic_store(&drip_over, true);
	CU_ASSERT(raw_closed(slow, 7000));
	pthread_join(thread, NULL);
	close(slow);
	cluster_close(&cl);
}

/* An authenticated rank that talks nonsense is cut off, as a death. */
static void test_nonsense(void)
{
	static const struct {
		uint8_t type;
		const char *body;
		size_t len;
	} bad[] = {
		{FRAME_SET, "", 0},
		{FRAME_SET, "\1\0\0\0\0\0\0\0\0value", 14},
		{FRAME_SET, "\1\0\0\0\0\0\0\0\377value", 14},
		{FRAME_GET, "\1\0\0\0\0\0\0\0\1\4a\0bc", 14},
		{FRAME_GET, "\1\0\0\0", 4},
		{FRAME_ERASE, "\1\0\0\0\0\0\0\0\3a", 10},
		{FRAME_FENCE, "\1\0\0\0\0\0\0\0", 8},
		{FRAME_CANCEL, "\1", 1},
		{FRAME_SEND, "\2\0\0\0\0\0\0\0", 8},
		{FRAME_SEND, "\0\0\0\0\0\0\0", 7},
		{FRAME_JOIN, "\1\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0", 16},
		{FRAME_STARTED, "", 0},
		{FRAME_REPLY, "\1\0\0\0\0\0\0\0\0", 9},
		{0, "", 0},
		{255, "x", 1},
	};
	uint8_t body[64], huge[] = {255, 255, 255, 127, 1},
			  none[] = {0, 0, 0, 0};
	size_t len, n = sizeof(bad) / sizeof(bad[0]);
	int fd;

	for (size_t i = 0; i < n + 2; i++) {
		begin_rank0(2, 5000);
		fd = raw_connect(cl.port);
		CU_ASSERT_EQUAL(raw_shake(fd, "correct horse"),
				VERDICT_ACCEPTED);
		raw_join(fd, 1, 2);
		CU_ASSERT_EQUAL(raw_read(fd, body, sizeof(body), &len, 2000),
				FRAME_STARTED);
		if (i < n)
			raw_frame(fd, bad[i].type, bad[i].body, bad[i].len);
		else
			CU_ASSERT(send(fd, i == n ? huge : none,
				       i == n ? sizeof(huge) : sizeof(none),
				       MSG_NOSIGNAL) > 0);
		CU_ASSERT(raw_closed(fd, 2000));
		pthread_join(background, NULL);
		CU_ASSERT_EQUAL(node_wait_gone(&cl.node[0], 1, 2000), 1);
		close(fd);
		cluster_close(&cl);
	}
}

/* More ranks come at once than strangers are let wait. */
static void test_many_at_once(void)
{
	enum { RANKS = 200, STRANGERS = 150 };
	int fds[RANKS], strangers[STRANGERS], good = 0, started = 0;
	uint8_t body[64];
	size_t len;

	begin_rank0(RANKS, 20000);
	for (int i = 1; i < RANKS; i++) {
		fds[i] = raw_connect(cl.port);
		good += raw_shake(fds[i], "correct horse") == VERDICT_ACCEPTED;
	}
	for (int i = 0; i < STRANGERS; i++) {
		strangers[i] = raw_connect(cl.port);
		strange(strangers[i], i);
	}
	CU_ASSERT_EQUAL(good, RANKS - 1);
	for (int i = 1; i < RANKS; i++)
		raw_join(fds[i], (uint32_t)i, RANKS);
	for (int i = 1; i < RANKS; i++) {
		started += raw_read(fds[i], body, sizeof(body), &len, 5000) ==
			   FRAME_STARTED;
		raw_frame(fds[i], FRAME_GOODBYE, "", 0);
	}
	CU_ASSERT_EQUAL(started, RANKS - 1);
	end_rank0();
	CU_ASSERT_EQUAL(cl.node[0].rc, 0);
	for (int i = 1; i < RANKS; i++)
		close(fds[i]);
	for (int i = 0; i < STRANGERS; i++)
		close(strangers[i]);
}

static void test_few_descriptors(void)
{
	struct rlimit old, few;
	int rc;

	getrlimit(RLIMIT_NOFILE, &old);
	few = old;
	few.rlim_cur = 64;
	cluster_init(&cl, 60);
	cl.timeout_ms = 1000;
	setrlimit(RLIMIT_NOFILE, &few);
	rc = open_with(0, 60, "", 1000);
	setrlimit(RLIMIT_NOFILE, &old);
	CU_ASSERT_EQUAL(rc, -EMFILE);
	CU_ASSERT(says(vbn_error(), "ulimit -n"));
	cluster_close(&cl);
}

static CU_TestInfo tests[] = {
	{"wrong secret", test_wrong_secret},
	{"wrong size, rank, duplicate", test_wrong_shape},
	{"rank 0 twice, address", test_rank0_twice},
	{"missing ranks", test_missing},
	{"no rank 0", test_no_rank0},
	{"late rank 0", test_late_rank0},
	{"rank of another version", test_foreign_rank},
	{"server of another kind", test_foreign_server},
	{"200 strangers", test_strangers},
	{"many ranks at once", test_many_at_once},
	{"nonsense from a rank", test_nonsense},
	{"too few descriptors", test_few_descriptors},
	CU_TEST_INFO_NULL,
};

int main(void)
{
	return run_suite("control among strangers", tests);
}
