/* SPDX-License-Identifier: BSD-3-Clause */
/* A job of several ranks in one process, and a rank by hand. */
#include "control_cluster.h"

#include "cunit_run.h"
#include "wire.h"

#include <verbena/job.h>

#include <CUnit/Basic.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int)((int64_t)t.tv_sec * 1000 % 1000000000 +
		     t.tv_nsec / 1000000);
}

void sleep_ms(int ms)
{
	struct timespec t = {.tv_sec = ms / 1000,
			     .tv_nsec = ms % 1000 * 1000000L};

	nanosleep(&t, NULL);
}

int listen_anywhere(uint16_t *port)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) ||
	    listen(fd, 1024) ||
	    getsockname(fd, (struct sockaddr *)&addr, &len)) {
		perror("listen");
		exit(EXIT_FAILURE);
	}
	*port = ntohs(addr.sin_port);
	return fd;
}

bool says(const char *line, const char *words)
{
	if (strstr(line, words))
		return true;
	fprintf(stderr, "\"%s\" lacks \"%s\"\n", line, words);
	return false;
}

/* ---- cluster ---- */

/* Ranks above are other processes, or played by hand. */
static int nodes(const struct cluster *cl)
{
	return cl->n < CLUSTER_MAX ? cl->n : CLUSTER_MAX;
}

static atomic_int failed_checks;

bool check(bool good, const char *what, const char *file, int line)
{
	if (!good) {
		fprintf(stderr, "%s:%d: %s (%s)\n", file, line, what,
			vbn_error());
		atomic_fetch_add(&failed_checks, 1);
	}
	return good;
}

static void on_message(void *arg, int from, unsigned type, const void *data,
		       size_t len)
{
	struct node *node = arg;
	unsigned slow;

	pthread_mutex_lock(&node->lock);
	slow = node->messages++ ? 0 : node->slow_ms;
	/* The type counts per pair; every byte is the type's low one. */
	if (type != node->next[from]++)
		node->wrong = __LINE__;
	for (size_t i = 0; i < len; i++)
		if (((const uint8_t *)data)[i] != (uint8_t)type)
			node->wrong = __LINE__;
	pthread_mutex_unlock(&node->lock);
	if (slow)
		sleep_ms((int)slow);
}

static void on_gone(void *arg, int rank, bool died, const char *why)
{
	struct node *node = arg;

	pthread_mutex_lock(&node->lock);
	node->gone[rank]++;
	node->died[rank] = died;
	snprintf(node->gone_why, sizeof(node->gone_why), "%s", why);
	pthread_mutex_unlock(&node->lock);
}

void cluster_init(struct cluster *cl, int n)
{
	memset(cl, 0, sizeof(*cl));
	cl->n = n;
	cl->listen_fd = listen_anywhere(&cl->port);
	cl->timeout_ms = 20000;
	for (int i = 0; i < CLUSTER_MAX; i++) {
		cl->node[i].cluster = cl;
		cl->node[i].rank = i;
		pthread_mutex_init(&cl->node[i].lock, NULL);
	}
}

struct control_options cluster_options(struct cluster *cl, int rank)
{
	return (struct control_options){
		.rank = rank,
		.nranks = cl->n,
		.host = "127.0.0.1",
		.port = cl->port,
		.secret = "correct horse",
		.listen_fd = rank ? -1 : cl->listen_fd,
		.timeout_ms = cl->timeout_ms,
		.dead_ms = cl->dead_ms,
		.events = {.message = on_message,
			   .gone = on_gone,
			   .arg = &cl->node[rank]},
	};
}

static void *open_thread(void *arg)
{
	struct node *node = arg;
	struct control_options o = cluster_options(node->cluster, node->rank);
	int begin = clock_ms();

	node->rc = control_open(&node->control, &o);
	node->opened_ms = clock_ms() - begin;
	snprintf(node->why, sizeof(node->why), "%s", vbn_error());
	return NULL;
}

void cluster_open_some(struct cluster *cl, uint64_t mask)
{
	for (int i = 0; i < nodes(cl); i++)
		if (mask >> i & 1)
			pthread_create(&cl->node[i].thread, NULL, open_thread,
				       &cl->node[i]);
	for (int i = 0; i < nodes(cl); i++)
		if (mask >> i & 1)
			pthread_join(cl->node[i].thread, NULL);
}

int cluster_open(struct cluster *cl)
{
	cluster_open_some(cl, ~UINT64_C(0));
	for (int i = 0; i < nodes(cl); i++)
		if (cl->node[i].rc) {
			fprintf(stderr, "rank %d: %s\n", i, cl->node[i].why);
			return cl->node[i].rc;
		}
	return 0;
}

static void *run_thread(void *arg)
{
	struct node *node = arg;

	node->fn(node);
	return NULL;
}

int cluster_run(struct cluster *cl, void (*fn)(struct node *node))
{
	atomic_store(&failed_checks, 0);
	for (int i = 0; i < nodes(cl); i++)
		if (cl->node[i].control) {
			cl->node[i].fn = fn;
			pthread_create(&cl->node[i].thread, NULL, run_thread,
				       &cl->node[i]);
		}
	for (int i = 0; i < nodes(cl); i++)
		if (cl->node[i].fn) {
			pthread_join(cl->node[i].thread, NULL);
			cl->node[i].fn = NULL;
		}
	return atomic_load(&failed_checks);
}

static void close_node(struct node *node)
{
	control_close(node->control);
}

void cluster_close_one(struct cluster *cl, int rank)
{
	control_close(cl->node[rank].control);
	cl->node[rank].control = NULL;
}

void cluster_close(struct cluster *cl)
{
	cluster_run(cl, close_node);
	for (int i = 0; i < CLUSTER_MAX; i++)
		pthread_mutex_destroy(&cl->node[i].lock);
}

int node_wait_gone(struct node *node, int rank, int timeout_ms)
{
	int end = clock_ms() + timeout_ms, state = -1;

	do {
		pthread_mutex_lock(&node->lock);
		if (node->gone[rank])
			state = node->died[rank];
		pthread_mutex_unlock(&node->lock);
		if (state < 0)
			sleep_ms(2);
	} while (state < 0 && clock_ms() < end);
	return state;
}

/* ---- a rank that is another process ---- */

static int number(const char *text)
{
	return (int)strtol(text, NULL, 10);
}

pid_t child_start(const struct cluster *c, const char *mode, int rank, int *out)
{
	static const char self[] = "/proc/self/exe";
	char port[16], r[16], n[16], dead[16];
	int fds[2];
	pid_t pid;

	snprintf(port, sizeof(port), "%u", (unsigned)c->port);
	snprintf(r, sizeof(r), "%d", rank);
	snprintf(n, sizeof(n), "%d", c->n);
	snprintf(dead, sizeof(dead), "%u", (unsigned)c->dead_ms);
	if (pipe(fds))
		return -1;
	pid = fork();
	if (pid == 0) {
		dup2(fds[1], STDOUT_FILENO);
		close(fds[0]);
		close(fds[1]);
		execl(self, self, "child", mode, port, r, n, dead,
		      (char *)NULL);
		_exit(127);
	}
	close(fds[1]);
	*out = fds[0];
	return pid;
}

bool is_child(int argc, char **argv)
{
	return argc == 7 && !strcmp(argv[1], "child");
}

struct control_options child_options(char **argv)
{
	return (struct control_options){.rank = number(argv[3]),
					.nranks = number(argv[4]),
					.host = "127.0.0.1",
					.port = (uint16_t)number(argv[2]),
					.secret = "correct horse",
					.listen_fd = -1,
					.dead_ms = (uint32_t)number(argv[5]),
					.timeout_ms = 10000};
}

const char *child_line(int fd, int timeout_ms)
{
	static char line[512];
	int end = clock_ms() + timeout_ms;
	size_t len = 0;

	while (len < sizeof(line) - 1) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		int left = end - clock_ms();

		if (poll(&p, 1, left < 0 ? 0 : left) <= 0 ||
		    read(fd, line + len, 1) != 1 || line[len] == '\n')
			break;
		len++;
	}
	line[len] = '\0';
	return line;
}

int child_number(int fd)
{
	int n = number(child_line(fd, 20000));

	close(fd);
	return n;
}

/* ---- a rank by hand ---- */

int raw_connect(uint16_t port)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* @len bytes: 1, 0 closed, -1 not in time. */
static int read_all(int fd, void *buf, size_t len, int timeout_ms)
{
	int end = clock_ms() + timeout_ms, left;
	size_t have = 0;
	ssize_t n;

	while (have < len) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		left = end - clock_ms();
		if (poll(&p, 1, left < 0 ? 0 : left) <= 0)
			return -1;
		n = recv(fd, (char *)buf + have, len - have, 0);
		if (n <= 0)
			return 0;
		have += (size_t)n;
	}
	return 1;
}

static void send_all(int fd, const void *data, size_t len)
{
	/* The other side may have closed: the tests look at what it says. */
	if (send(fd, data, len, MSG_NOSIGNAL) != (ssize_t)len)
		return;
}

/* The keys of each raw connection, by descriptor. */
static struct wire_crypt *raw_crypt(int fd)
{
	static struct wire_crypt crypts[4096];

	if (fd < 0 || fd >= 4096)
		abort();
	return &crypts[fd];
}

int raw_shake(int fd, const char *secret)
{
	uint8_t hello[WIRE_GREETING], key[WIRE_KEY], theirs[WIRE_GREETING];
	uint8_t mac[WIRE_MAC], verdict[WIRE_VERDICT];
	struct wire_shake shake;
	int rc, code;

	wire_key(key, secret);
	wire_greeting(hello, &shake, ROLE_RANK);
	send_all(fd, hello, sizeof(hello));
	rc = read_all(fd, theirs, sizeof(theirs), 6000);
	if (rc <= 0)
		return rc;
	wire_heard(&shake, ROLE_STORE, theirs);
	wire_mac(mac, key, ROLE_RANK, &shake);
	send_all(fd, mac, sizeof(mac));
	rc = read_all(fd, verdict, sizeof(verdict), 6000);
	if (rc <= 0)
		return rc;
	code = (int)wire_verdict_code(verdict);
	if (code == VERDICT_ACCEPTED &&
	    wire_session(raw_crypt(fd), key, ROLE_RANK, &shake))
		return -1;
	return code;
}

size_t raw_sealed(int fd, uint8_t type, const void *body, size_t len,
		  uint8_t *out)
{
	out[0] = (uint8_t)(1 + len + WIRE_TAG);
	out[1] = (uint8_t)((1 + len + WIRE_TAG) >> 8);
	out[2] = out[3] = 0;
	out[4] = type;
	if (len)
		memcpy(out + 5, body, len);
	wire_seal(raw_crypt(fd), out, 4, out + 4, 1 + len, out + 5 + len);
	return 5 + len + WIRE_TAG;
}

void raw_frame(int fd, uint8_t type, const void *body, size_t len)
{
	uint8_t bytes[RAW_FRAME_MAX + 5 + WIRE_TAG];

	if (len > RAW_FRAME_MAX)
		abort();
	send_all(fd, bytes, raw_sealed(fd, type, body, len, bytes));
}

void raw_join(int fd, uint32_t rank, uint32_t nranks)
{
	uint8_t body[16 + 4];
	const uint32_t wait_ms = 20000;
	uint8_t *p = put_u32(put_u32(body, rank), nranks);

	p = put_u32(put_u32(p, wait_ms), wait_ms);
	memcpy(p, "host", 4);
	raw_frame(fd, FRAME_JOIN, body, sizeof(body));
}

int raw_read(int fd, uint8_t *body, size_t room, size_t *len, int timeout_ms)
{
	uint8_t bytes[RAW_FRAME_MAX + 5 + WIRE_TAG];
	size_t rest;
	int rc = read_all(fd, bytes, 4, timeout_ms);

	if (rc <= 0)
		return rc;
	rest = get_u32(bytes);
	if (rest < 1 + WIRE_TAG || rest > sizeof(bytes) - 4)
		return -1;
	*len = rest - 1 - WIRE_TAG;
	rc = read_all(fd, bytes + 4, rest, timeout_ms);
	if (rc <= 0)
		return rc;
	if (*len > room || wire_unseal(raw_crypt(fd), bytes, 4, bytes + 4,
				       1 + *len, bytes + 5 + *len))
		return -1;
	memcpy(body, bytes + 5, *len);
	return bytes[4];
}

bool raw_closed(int fd, int timeout_ms)
{
	int end = clock_ms() + timeout_ms;
	char byte;
	int rc;

	do
		rc = read_all(fd, &byte, 1, end - clock_ms());
	while (rc == 1);
	return rc == 0;
}

int run_suite(const char *name, CU_TestInfo *tests)
{
	CU_SuiteInfo suites[] = {{name, NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};

	return wire_setup() ? EXIT_FAILURE : run_suites(suites);
}
