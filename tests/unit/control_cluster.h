/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A job of several ranks in one process, for tests of the control plane.
 * CUnit's assertions belong to the main thread: what runs on ranks' threads
 * uses CHECK() instead.
 */
#ifndef CONTROL_CLUSTER_H
#define CONTROL_CLUSTER_H

#include "control.h"
#include "control_wire.h"

#include <CUnit/CUnit.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>

#define CLUSTER_MAX 64	/* open ranks */
#define RANKS_MAX   256 /* of a job */

/* May fail on any thread; counted by cluster_run(). */
#define CHECK(x) check((x), #x, __FILE__, __LINE__)
bool check(bool good, const char *what, const char *file, int line);

/* Whether @line has @words in it; prints both if not. */
bool says(const char *line, const char *words);

struct cluster;

struct node {
	struct cluster *cluster;
	struct control *control; /* NULL: not open */
	int rank;
	int rc; /* of open */
	char why[512];
	int opened_ms;
	void (*fn)(struct node *node);
	pthread_t thread;

	pthread_mutex_t lock;
	int gone[RANKS_MAX]; /* calls; of rank */
	bool died[RANKS_MAX];
	char gone_why[256]; /* of the last */
	unsigned messages;
	int wrong; /* line of what a message handler did not like */
	uint32_t next[RANKS_MAX];
	unsigned slow_ms; /* a handler's time for its first message */
};

struct cluster {
	int n;
	int listen_fd;
	uint16_t port;
	int timeout_ms;
	uint32_t dead_ms; /* 0 unless a test says otherwise */
	struct node node[CLUSTER_MAX];
};

int clock_ms(void);
void sleep_ms(int ms);

/* A socket that listens on 127.0.0.1, and its port. */
int listen_anywhere(uint16_t *port);

void cluster_init(struct cluster *cl, int n);
/* The options that cluster_open() would use. */
struct control_options cluster_options(struct cluster *cl, int rank);
/* Open @ranks (of mask) at once; nodes hold the results. */
void cluster_open_some(struct cluster *cl, uint64_t mask);
/* All; 0 or the first error. */
int cluster_open(struct cluster *cl);
/* fn on each open rank's thread at once; the number of failed checks. */
int cluster_run(struct cluster *cl, void (*fn)(struct node *node));
void cluster_close_one(struct cluster *cl, int rank);
void cluster_close(struct cluster *cl);

/* Wait until @node heard that @rank is gone: 1 died, 0 left, -1 not heard. */
int node_wait_gone(struct node *node, int rank, int timeout_ms);

/* ---- a rank that is another process: this program again ---- */

/* Its main() finds is_child(); mode, from argv[1], is the program's own. */
pid_t child_start(const struct cluster *cl, const char *mode, int rank,
		  int *out);
bool is_child(int argc, char **argv);
/* What a child's argv + 1 says; listens for itself as rank 0. */
struct control_options child_options(char **argv);
/* The number that a child has printed; closes @fd. */
int child_number(int fd);
/* The next line that a child prints, at most after @timeout_ms; or "". */
const char *child_line(int fd, int timeout_ms);

/* ---- a rank by hand ---- */

/* Blocking socket to the port. */
int raw_connect(uint16_t port);
/* Handshake: the verdict's code, 0: closed, -1: no verdict in 6 s. */
int raw_shake(int fd, const char *secret);
/* One frame of any bytes, up to RAW_FRAME_MAX; sealed. */
#define RAW_FRAME_MAX 4200
void raw_frame(int fd, uint8_t type, const void *body, size_t len);
/* The same, not sent but put into @out; how many bytes. */
size_t raw_sealed(int fd, uint8_t type, const void *body, size_t len,
		  uint8_t *out);
void raw_join(int fd, uint32_t rank, uint32_t nranks);
/* Next frame: its type, 0: closed, -1: none in time. Body of up to @room. */
int raw_read(int fd, uint8_t *body, size_t room, size_t *len, int timeout_ms);
/* Whether the other side closes within the time. */
bool raw_closed(int fd, int timeout_ms);

/* Run the tests; main()'s result. */
int run_suite(const char *name, CU_TestInfo *tests);

#endif
