/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Heartbeats: who is named dead when a rank's process is stopped, how soon and
 * with which words; what the stopped one learns when it goes on; and who is not
 * to be named dead.
 */
#include "control_cluster.h"

#include <verbena/job.h>

#include <CUnit/Basic.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Short, but long enough for a machine that is busy. */
#define DEAD_MS	 1000
#define SLACK_MS 800

static struct cluster cl;

/*
 * A rank that prints its number, waits until it has lost the job, and prints
 * why, and then what a request says.
 */
static int child(char **argv)
{
	struct control_options o = child_options(argv);
	struct control *c;
	char why[512];
	int peer = o.rank ? 0 : 1;

	if (control_open(&c, &o))
		return 1;
	printf("%d\n", o.rank);
	fflush(stdout);
	while (!control_lost(c, peer, why, sizeof(why)))
		sleep_ms(5);
	printf("%s\n", why);
	if (control_fence(c, 10000) == -ECONNRESET)
		printf("%s\n", vbn_error());
	fflush(stdout);
	control_close(c);
	return 0;
}

static void open_with_child(int n, int rank, pid_t *pid, int *out)
{
	cluster_init(&cl, n);
	cl.dead_ms = DEAD_MS;
	if (!rank) {
		close(cl.listen_fd); /* it listens for itself */
		cl.listen_fd = -1;
	}
	*pid = child_start(&cl, "live", rank, out);
	cluster_open_some(&cl, ((1u << n) - 1) & ~(1u << rank));
	CU_ASSERT_EQUAL_FATAL(cl.node[rank ? 0 : 1].rc, 0);
	CU_ASSERT_EQUAL(*child_line(*out, 10000), '0' + rank);
}

static void end_child(pid_t pid, int out)
{
	kill(pid, SIGCONT);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(out);
}

/* All but @rank hear of its death in time, with these words. */
static void dies(int rank, int begin, const char *words)
{
	for (int i = 0; i < cl.n; i++) {
		struct node *node = &cl.node[i];
		char why[512] = "";

		if (i == rank)
			continue;
		CU_ASSERT_EQUAL(node_wait_gone(node, rank, 4 * DEAD_MS), 1);
		CU_ASSERT(control_lost(node->control, rank, why, sizeof(why)));
		CU_ASSERT(says(why, words));
		CU_ASSERT_EQUAL(control_first_dead(node->control), rank);
	}
	CU_ASSERT(clock_ms() - begin < DEAD_MS + SLACK_MS);
	CU_ASSERT(clock_ms() - begin > DEAD_MS / 2);
}

/*
 * Stops @rank, not 1, whose process is @pid, until all others have named it
 * dead, with these words; then lets it go on. Returns the next line from @out.
 */
static const char *stop(pid_t pid, int out, int rank, const char *words)
{
	int begin = clock_ms();

	kill(pid, SIGSTOP);
	dies(rank, begin, words);
	CU_ASSERT(says(cl.node[1].gone_why, "no heartbeat for "));
	sleep_ms(DEAD_MS);
	kill(pid, SIGCONT);
	return child_line(out, 5000);
}

static void test_stopped(void)
{
	const char *line;
	pid_t pid;
	int out;

	open_with_child(4, 2, &pid, &out);
	line = stop(pid, out, 2, "rank 2 has died (host ");
	CU_ASSERT(says(line, "the job has named rank 2, this one, dead"));
	CU_ASSERT(says(line, "no heartbeat for "));
	CU_ASSERT(says(child_line(out, 5000), "this one, dead"));
	end_child(pid, out);
	/* Once only, and nobody else. */
	for (int i = 0; i < 4; i++)
		CU_ASSERT_EQUAL(cl.node[1].gone[i], i == 2);
	cluster_close(&cl);
}

static void test_stopped_shortly(void)
{
	pid_t pid;
	int out;

	open_with_child(2, 1, &pid, &out);
	for (int i = 0; i < 4; i++) {
		kill(pid, SIGSTOP);
		sleep_ms(DEAD_MS / 3);
		kill(pid, SIGCONT);
		sleep_ms(DEAD_MS / 3);
	}
	CU_ASSERT_EQUAL(control_first_dead(cl.node[0].control), -1);
	end_child(pid, out);
	CU_ASSERT_EQUAL(node_wait_gone(&cl.node[0], 1, 1000), 1);
	CU_ASSERT(says(cl.node[0].gone_why, "its connection closed"));
	cluster_close(&cl);
}

static void test_rank0_stopped(void)
{
	const char *line;
	pid_t pid;
	int out;

	open_with_child(3, 0, &pid, &out);
	line = stop(pid, out, 0, "rank 0 has died (at 127.0.0.1:");
	CU_ASSERT(says(line, "holds rank 0 for dead: no heartbeat for "));
	CU_ASSERT(says(line, "rank 0 itself did not run for"));
	end_child(pid, out);
	cluster_close(&cl);
}

static void test_off(void)
{
	pid_t pid;
	int out;

	cluster_init(&cl, 2);
	pid = child_start(&cl, "live", 1, &out);
	cluster_open_some(&cl, 1);
	child_line(out, 10000);
	kill(pid, SIGSTOP);
	sleep_ms(3 * DEAD_MS / 2);
	CU_ASSERT_EQUAL(control_first_dead(cl.node[0].control), -1);
	end_child(pid, out);
	CU_ASSERT_EQUAL(node_wait_gone(&cl.node[0], 1, 1000), 1);
	cluster_close(&cl);
}

static void hold_up(void *arg)
{
	(void)arg;
	sleep_ms(3 * DEAD_MS / 2);
}

/* A control thread that is held up, as by a long registration, lives. */
static void test_held_up(void)
{
	cluster_init(&cl, 3);
	cl.dead_ms = DEAD_MS;
	CU_ASSERT_EQUAL_FATAL(cluster_open(&cl), 0);
	for (int i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(control_run(cl.node[i].control, hold_up, NULL),
				0);
	sleep_ms(2 * DEAD_MS);
	for (int i = 0; i < 3; i++)
		CU_ASSERT_EQUAL(control_first_dead(cl.node[i].control), -1);
	/* Nor does one die that is held up when it leaves. */
	CU_ASSERT_EQUAL(control_run(cl.node[1].control, hold_up, NULL), 0);
	cluster_close_one(&cl, 1);
	CU_ASSERT_EQUAL(node_wait_gone(&cl.node[0], 1, 5000), 0);
	CU_ASSERT_EQUAL(node_wait_gone(&cl.node[2], 1, 5000), 0);
	cluster_close(&cl);
}

/* ---- a rank by hand ---- */

static pthread_t background;

static void *open_rank0(void *arg)
{
	(void)arg;
	cluster_open_some(&cl, 1);
	return NULL;
}

/* Rank 1 of two, which never beats by itself. */
static int raw_member(void)
{
	uint8_t body[64];
	size_t len;
	int fd;

	cluster_init(&cl, 2);
	cl.dead_ms = DEAD_MS;
	pthread_create(&background, NULL, open_rank0, NULL);
	fd = raw_connect(cl.port);
	CU_ASSERT_EQUAL(raw_shake(fd, "correct horse"), VERDICT_ACCEPTED);
	raw_join(fd, 1, 2);
	CU_ASSERT_EQUAL(raw_read(fd, body, sizeof(body), &len, 2000),
			FRAME_STARTED);
	CU_ASSERT_EQUAL(len, 4);
	CU_ASSERT_EQUAL(body[0] + 256 * body[1], DEAD_MS);
	pthread_join(background, NULL);
	return fd;
}

/* Skips beats. */
static int next_frame(int fd, uint8_t *body, size_t room, size_t *len)
{
	int type;

	do
		type = raw_read(fd, body, room, len, 2 * DEAD_MS);
	while (type == FRAME_BEAT);
	return type;
}

/* What a rank that was named dead still sends is ignored; it is told once. */
static void test_late(void)
{
	uint8_t body[512], text[] = "\0\0\0\0\0\0\0\0late";
	size_t len;
	int fd = raw_member(), again;

	raw_frame(fd, FRAME_SEND, text, 12);
	CU_ASSERT_EQUAL(next_frame(fd, body, sizeof(body), &len), FRAME_GONE);
	CU_ASSERT_EQUAL(body[0], 1);
	CU_ASSERT_EQUAL(body[4], 1);
	CU_ASSERT_EQUAL(node_wait_gone(&cl.node[0], 1, 1000), 1);
	CU_ASSERT_EQUAL(cl.node[0].messages, 1);
	raw_frame(fd, FRAME_SEND, text, 12);
	raw_frame(fd, FRAME_SET, "\1\0\0\0\0\0\0\0\1kv", 11);
	CU_ASSERT(raw_closed(fd, 500));
	sleep_ms(100);
	CU_ASSERT_EQUAL(cl.node[0].messages, 1);
	/* Nor does it get in again. */
	again = raw_connect(cl.port);
	CU_ASSERT_EQUAL(raw_shake(again, "correct horse"), VERDICT_ACCEPTED);
	raw_join(again, 1, 2);
	CU_ASSERT_EQUAL(raw_read(again, body, sizeof(body), &len, 2000),
			FRAME_REFUSED);
	body[len] = '\0';
	CU_ASSERT(says((char *)body + 1, "has died"));
	close(again);
	close(fd);
	cluster_close(&cl);
}

/* What comes twice, out of order, altered or from elsewhere is no frame. */
static void test_replay(void)
{
	static const char *const names[] = {"twice", "out of order", "altered",
					    "in the clear", "longer"};
	uint8_t one[128], two[128], body[] = "\0\0\0\0\0\0\0\0once";
	size_t len1, len2;
	int fd;

	for (int kind = 0; kind < 5; kind++) {
		fd = raw_member();
		len1 = raw_sealed(fd, FRAME_SEND, body, 12, one);
		len2 = raw_sealed(fd, FRAME_SEND, body, 12, two);
		if (kind == 0)
			memcpy(two, one, len1);
		if (kind == 1)
			len1 = 0;
		if (kind == 2)
			two[10] ^= 1;
		if (kind == 3)
			memcpy(two, "\15\0\0\0\6\0\0\0\0\0\0\0\0once", 17);
		if (kind == 4)
			two[0]++;
		if (len1)
			CU_ASSERT(send(fd, one, len1, MSG_NOSIGNAL) > 0);
		CU_ASSERT(send(fd, two, len2, MSG_NOSIGNAL) > 0);
		if (kind == 4)
			CU_ASSERT(send(fd, "", 1, MSG_NOSIGNAL) > 0);
		CU_ASSERT_EQUAL(node_wait_gone(&cl.node[0], 1, 1000), 1);
		if (!says(cl.node[0].gone_why, "it sent"))
			fprintf(stderr, "%s\n", names[kind]);
		CU_ASSERT_EQUAL(cl.node[0].messages, len1 ? 1 : 0);
		CU_ASSERT(raw_closed(fd, 500));
		close(fd);
		cluster_close(&cl);
	}
}

/* Keys differ by connection and direction; hellos are never the same. */
static void test_keys(void)
{
	uint8_t key[WIRE_KEY], g[2][2][WIRE_GREETING], other[WIRE_KEY];
	struct wire_shake rank[2], store[2];
	struct wire_crypt r[2], s[2], w;

	wire_key(key, "secret");
	wire_key(other, "Secret");
	for (int i = 0; i < 2; i++) {
		wire_greeting(g[i][0], &rank[i], ROLE_RANK);
		wire_greeting(g[i][1], &store[i], ROLE_STORE);
		wire_heard(&rank[i], ROLE_STORE, g[i][1]);
		wire_heard(&store[i], ROLE_RANK, g[i][0]);
	}
	CU_ASSERT(memcmp(g[0][0], g[1][0], WIRE_GREETING) != 0);
	for (int i = 0; i < 2; i++) {
		struct wire_shake copy = rank[i];

		CU_ASSERT_EQUAL(wire_session(&w, other, ROLE_RANK, &copy), 0);
		CU_ASSERT_EQUAL(wire_session(&r[i], key, ROLE_RANK, &rank[i]),
				0);
		CU_ASSERT_EQUAL(wire_session(&s[i], key, ROLE_STORE, &store[i]),
				0);
		CU_ASSERT_EQUAL(memcmp(r[i].tx, s[i].rx, WIRE_KEY), 0);
		CU_ASSERT_EQUAL(memcmp(r[i].rx, s[i].tx, WIRE_KEY), 0);
		CU_ASSERT(memcmp(r[i].tx, r[i].rx, WIRE_KEY) != 0);
		CU_ASSERT(memcmp(w.tx, r[i].tx, WIRE_KEY) != 0);
	}
	CU_ASSERT(memcmp(r[0].tx, r[1].tx, WIRE_KEY) != 0);
	/* A public key of all zeros would agree on nothing. */
	wire_greeting(g[0][0], &rank[0], ROLE_RANK);
	memset(g[0][1] + WIRE_PREFIX + WIRE_NONCE, 0, WIRE_PUBLIC);
	wire_heard(&rank[0], ROLE_STORE, g[0][1]);
	CU_ASSERT_EQUAL(wire_session(&w, key, ROLE_RANK, &rank[0]), -EPROTO);
}

static CU_TestInfo tests[] = {
	{"keys", test_keys},
	{"repeated, reordered, altered", test_replay},
	{"named dead, and late", test_late},
	{"a rank stopped", test_stopped},
	{"a rank stopped shortly", test_stopped_shortly},
	{"rank 0 stopped", test_rank0_stopped},
	{"no heartbeats", test_off},
	{"control threads held up", test_held_up},
	CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
	if (is_child(argc, argv))
		return child(argv + 1);
	return run_suite("heartbeats", tests);
}
