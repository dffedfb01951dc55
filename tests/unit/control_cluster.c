/* SPDX-License-Identifier: BSD-3-Clause */
/* A job of several ranks in one process, and a rank by hand. */
#include "control_cluster.h"

#include "cunit_run.h"

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

int now_ms(void)
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

static void on_gone(void *arg, int rank, bool died)
{
	struct node *node = arg;

	pthread_mutex_lock(&node->lock);
	node->gone[rank]++;
	node->died[rank] = died;
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
		.events = {.message = on_message,
			   .gone = on_gone,
			   .arg = &cl->node[rank]},
	};
}

static void *open_thread(void *arg)
{
	struct node *node = arg;
	struct control_options o = cluster_options(node->cluster, node->rank);
	int begin = now_ms();

	node->rc = control_open(&node->control, &o);
	node->opened_ms = now_ms() - begin;
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
	int end = now_ms() + timeout_ms, state = -1;

	do {
		pthread_mutex_lock(&node->lock);
		if (node->gone[rank])
			state = node->died[rank];
		pthread_mutex_unlock(&node->lock);
		if (state < 0)
			sleep_ms(2);
	} while (state < 0 && now_ms() < end);
	return state;
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
	int end = now_ms() + timeout_ms, left;
	size_t have = 0;
	ssize_t n;

	while (have < len) {
		struct pollfd p = {.fd = fd, .events = POLLIN};

		left = end - now_ms();
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

int raw_shake(int fd, const char *secret)
{
	uint8_t mine[WIRE_NONCE], hello[WIRE_GREETING], key[WIRE_KEY];
	uint8_t theirs[WIRE_GREETING], mac[WIRE_MAC], verdict[WIRE_VERDICT];
	int rc;

	wire_key(key, secret);
	wire_greeting(hello, mine);
	send_all(fd, hello, sizeof(hello));
	rc = read_all(fd, theirs, sizeof(theirs), 6000);
	if (rc <= 0)
		return rc;
	wire_mac(mac, key, ROLE_RANK, mine, theirs + WIRE_PREFIX);
	send_all(fd, mac, sizeof(mac));
	rc = read_all(fd, verdict, sizeof(verdict), 6000);
	return rc <= 0 ? rc : (int)wire_verdict_code(verdict);
}

void raw_frame(int fd, uint8_t type, const void *body, size_t len)
{
	struct wire_frame *f = wire_frame((enum wire_type)type, len);

	wire_put_bytes(f, body, len);
	send_all(fd, f->data, f->len);
	free(f);
}

void raw_join(int fd, uint32_t rank, uint32_t nranks)
{
	struct wire_frame *f = wire_frame(FRAME_JOIN, 16);

	wire_put_u32(f, rank);
	wire_put_u32(f, nranks);
	wire_put_u32(f, 20000);
	wire_put_u32(f, 20000);
	send_all(fd, f->data, f->len);
	free(f);
}

int raw_read(int fd, uint8_t *body, size_t room, size_t *len, int timeout_ms)
{
	uint8_t head[5];
	int rc = read_all(fd, head, sizeof(head), timeout_ms);

	if (rc <= 0)
		return rc;
	*len = head[0] + 256u * head[1] + 65536u * head[2] - 1;
	if (*len > room)
		return -1;
	rc = *len ? read_all(fd, body, *len, timeout_ms) : 1;
	return rc <= 0 ? rc : head[4];
}

bool raw_closed(int fd, int timeout_ms)
{
	int end = now_ms() + timeout_ms;
	char byte;
	int rc;

	do
		rc = read_all(fd, &byte, 1, end - now_ms());
	while (rc == 1);
	return rc == 0;
}

int run_suite(const char *name, CU_TestInfo *tests)
{
	CU_SuiteInfo suites[] = {{name, NULL, NULL, NULL, NULL, tests},
				 CU_SUITE_INFO_NULL};

	return wire_setup() ? EXIT_FAILURE : run_suites(suites);
}
