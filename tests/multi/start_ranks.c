/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How long the start of a large job takes: ranks with the control plane alone,
 * as threads of some processes of this machine. Each joins, says which host it
 * is on, learns that of all others, publishes an address, fetches those of the
 * log2(n) peers that a collective would talk to first, fences, and leaves.
 *
 * usage: start_ranks [RANKS [PROCESSES]]
 * Prints a line a stage: when the last rank had done it, ms since all were let
 * go, and how many messages each rank has sent for it.
 */
#include "control.h"

#include <verbena/job.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define RANKS_MOST 10000
#define TIMEOUT_MS 60000
#define STACK	   (256u << 10)

enum stage { JOIN, HOSTS, ADDRESSES, FENCE, LEAVE, STAGES };

static const char *const names[STAGES] = {
	[JOIN] = "joined",
	[HOSTS] = "knows all hosts",
	[ADDRESSES] = "has its peers' addresses",
	[FENCE] = "fenced",
	[LEAVE] = "left",
};

/* All processes'. */
static struct shared {
	atomic_int last_ms[STAGES]; /* of any rank */
	atomic_int sent[STAGES];    /* messages, the most of any rank */
	atomic_int failed, ready;
	atomic_bool go;
	int64_t begin;
} * shared;

static struct {
	int nranks, listen_fd;
	uint16_t port;
} job;

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void raise_to(atomic_int *most, int value)
{
	int seen = atomic_load(most);

	while (seen < value &&
	       !atomic_compare_exchange_weak(most, &seen, value))
		;
}

static void done(enum stage stage, int messages)
{
	raise_to(&shared->last_ms[stage], (int)(now_ms() - shared->begin));
	raise_to(&shared->sent[stage], messages);
}

static int fetch_addresses(struct control *c, int rank, int *messages)
{
	char key[32], value[64];
	int rc;

	snprintf(key, sizeof(key), "address/%d", rank);
	rc = control_publish(c, key, key, strlen(key));
	*messages = 1;
	for (int step = 1; step < job.nranks && !rc; step *= 2) {
		size_t len = sizeof(value);

		snprintf(key, sizeof(key), "address/%d",
			 (rank + step) % job.nranks);
		rc = control_get(c, key, value, &len, TIMEOUT_MS);
		if (!rc && (len != strlen(key) || memcmp(value, key, len)))
			rc = -1;
		++*messages;
	}
	return rc;
}

static int learn_hosts(struct control *c, int rank)
{
	uint8_t card[CONTROL_CARD] = {(uint8_t)rank, (uint8_t)(rank >> 8)};
	uint8_t *cards = calloc((size_t)job.nranks, CONTROL_CARD);
	int rc = cards ? control_card(c, card) : -1;

	if (!rc)
		rc = control_cards(c, 0, job.nranks, cards, TIMEOUT_MS);
	for (int i = 0; i < job.nranks && !rc; i++)
		if (cards[i * CONTROL_CARD] != (uint8_t)i ||
		    cards[i * CONTROL_CARD + 1] != (uint8_t)(i >> 8))
			rc = -1;
	free(cards);
	return rc;
}

static int work(struct control *c, int rank)
{
	int messages, rc;

	done(JOIN, 1);
	rc = learn_hosts(c, rank);
	if (rc)
		return rc;
	done(HOSTS, 1 + (job.nranks + 4095) / 4096);
	rc = fetch_addresses(c, rank, &messages);
	if (rc)
		return rc;
	done(ADDRESSES, messages);
	rc = control_fence(c, TIMEOUT_MS);
	if (!rc)
		done(FENCE, 1);
	return rc;
}

static void *rank_main(void *arg)
{
	int rank = (int)(intptr_t)arg;
	const struct control_options o = {.rank = rank,
					  .nranks = job.nranks,
					  .host = "127.0.0.1",
					  .port = job.port,
					  .secret = "start",
					  .listen_fd =
						  rank ? -1 : job.listen_fd,
					  .dead_ms = 5000,
					  .timeout_ms = TIMEOUT_MS};
	struct control *c = NULL;
	int rc;

	atomic_fetch_add(&shared->ready, 1);
	while (!atomic_load(&shared->go))
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	rc = control_open(&c, &o);
	if (!rc)
		rc = work(c, rank);
	if (rc && atomic_fetch_add(&shared->failed, 1) < 5)
		fprintf(stderr, "rank %d: %s\n", rank, vbn_error());
	if (c)
		control_close(c);
	done(LEAVE, 1);
	return NULL;
}

/* Ranks first, first + processes, ... */
static void process(int first, int processes)
{
	pthread_t *threads = calloc((size_t)job.nranks, sizeof(*threads));
	pthread_attr_t attr;
	int n = 0;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK);
	if (first)
		close(job.listen_fd);
	for (int r = first; threads && r < job.nranks; r += processes, n++)
		if (pthread_create(&threads[n], &attr, rank_main,
				   (void *)(intptr_t)r)) {
			perror("pthread_create");
			exit(EXIT_FAILURE);
		}
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	pthread_attr_destroy(&attr);
	free(threads);
}

static bool listen_anywhere(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET,
				.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(a);
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	job.listen_fd = socket(AF_INET, SOCK_STREAM, 0);
	if (job.listen_fd < 0 ||
	    bind(job.listen_fd, (struct sockaddr *)&a, sizeof(a)) ||
	    listen(job.listen_fd, SOMAXCONN) ||
	    getsockname(job.listen_fd, (struct sockaddr *)&a, &len)) {
		perror("listen");
		return false;
	}
	job.port = ntohs(a.sin_port);
	return true;
}

static void let_go(void)
{
	while (atomic_load(&shared->ready) < job.nranks)
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
	shared->begin = now_ms();
	atomic_store(&shared->go, true);
}

static int wait_all(int processes)
{
	int bad = atomic_load(&shared->failed), status;

	for (int i = 0; i < processes; i++)
		if (wait(&status) < 0 || status)
			bad++;
	bad += atomic_load(&shared->failed);
	printf("%d ranks in %d processes\n", job.nranks, processes);
	for (int s = 0; s < STAGES; s++)
		printf("%-26s %6d ms  %2d messages a rank\n", names[s],
		       atomic_load(&shared->last_ms[s]),
		       atomic_load(&shared->sent[s]));
	printf("%s\n", bad ? "failed" : "all ranks did it all");
	return bad ? EXIT_FAILURE : EXIT_SUCCESS;
}

static int number(const char *text, int most)
{
	long n = strtol(text, NULL, 10);

	return n < 1 ? 1 : n > most ? most : (int)n;
}

int main(int argc, char **argv)
{
	int processes = argc > 2 ? number(argv[2], 64) : 8;

	job.nranks = argc > 1 ? number(argv[1], RANKS_MOST) : 1000;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED || !listen_anywhere())
		return EXIT_FAILURE;
	for (int i = 0; i < processes; i++) {
		pid_t pid = fork();

		if (pid < 0) {
			perror("fork");
			return EXIT_FAILURE;
		}
		if (!pid) {
			process(i, processes);
			exit(EXIT_SUCCESS);
		}
	}
	close(job.listen_fd);
	let_go();
	return wait_all(processes);
}
