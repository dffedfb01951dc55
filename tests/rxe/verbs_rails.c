/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * In a guest with two rails (rxe0 on veth0, rxe1 on veth2): random traffic by a
 * connection of both, while at a random moment one's link goes down: see
 * traffic.h for what is checked. Then the link comes up again.
 *
 * usage: verbs_rails [SEEDS]
 */
#include "traffic.h"
#include "providers/verbs/failover.h"

#include <errno.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPS	  120u
#define WAIT_US	  20e6
#define LINK_US	  5e6
#define LOOK_EACH 32u /* rounds between looks at the devices' events */

extern char **environ;

static struct way ways[2];

static pid_t set_link(unsigned rail, const char *state)
{
	char name[16];
	char *argv[] = {(char *)"ip", (char *)"link", (char *)"set",
			name,	      (char *)state,  NULL};
	pid_t pid;

	snprintf(name, sizeof(name), "veth%u", 2 * rail);
	CHECK(!posix_spawnp(&pid, "ip", NULL, NULL, argv, environ));
	return pid;
}

static void reap(pid_t pid)
{
	int status = 1;

	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void look(struct bench *b)
{
	struct verbs_job *job = b->pjob;

	for (unsigned i = 0; i < job->nrails; i++)
		events_take(&job->rail[i]);
}

static unsigned live_lanes(const struct side *side)
{
	const struct verbs_conn *conn = side->ep.conn;
	unsigned n = 0;

	for (unsigned i = 0; i < conn->nlanes; i++)
		n += conn->lane[i].state == LANE_LIVE;
	return n;
}

/* Both ends have so many lanes, before the time is over? */
static bool lanes_are(struct bench *b, const struct side *x,
		      const struct side *y, unsigned n, double us)
{
	double end = now_us() + us;

	while (live_lanes(x) != n || live_lanes(y) != n) {
		if (now_us() > end)
			return false;
		look(b);
		bench_progress(b);
	}
	return true;
}

/* Returns how long it took, in us. */
static double stream(struct bench *b, unsigned rail, unsigned at)
{
	double begin = now_us();
	pid_t pid = 0;

	for (unsigned i = 0;
	     !way_over(&ways[0]) || !way_over(&ways[1]) ||
	     ways[0].posted < ways[0].limit || ways[1].posted < ways[1].limit;
	     i++) {
		if (now_us() > begin + WAIT_US)
			break;
		if (!pid && ways[0].posted >= at)
			pid = set_link(rail, "down");
		way_post(&ways[0]);
		way_post(&ways[1]);
		if (i % LOOK_EACH == 0)
			look(b);
		bench_progress(b);
	}
	if (!pid)
		pid = set_link(rail, "down");
	reap(pid);
	return now_us() - begin;
}

static uint64_t bytes_of(unsigned rail)
{
	char path[96];
	unsigned long long n = 0;
	FILE *f;

	snprintf(path, sizeof(path),
		 "/sys/class/infiniband/rxe%u/ports/1/hw_counters/sent_pkts",
		 rail);
	f = fopen(path, "re");
	CHECK(f && fscanf(f, "%llu", &n) == 1);
	fclose(f);
	return n;
}

/* Traffic by both rails, by what their devices have counted. */
static void again(struct bench *b, struct side *x, const char *what)
{
	uint64_t before[2] = {bytes_of(0), bytes_of(1)};
	struct vbn_op op;

	for (int i = 0; i < 10; i++) {
		mock_op_init(&op, NULL, NULL);
		CHECK(!side_put(b, x, &op, &ways[0].src, 2 * STRIPE_MIN,
				&ways[0].dst, false, 0, false));
		CHECK(!bench_wait(b, &op, 10000));
	}
	for (unsigned i = 0; i < 2; i++)
		if (bytes_of(i) - before[i] < 10) {
			fprintf(stderr, "%s: rail %u carries nothing\n", what,
				i);
			exit(1);
		}
}

static void run(struct bench *b, unsigned seed)
{
	unsigned rail, at, failed = 0;
	struct side x, y;
	char what[64];
	double us;

	traffic_seed(seed);
	rail = traffic_random() % 2;
	at = traffic_random() % OPS;
	pair_connect(b, &x, &b->a, &y, &b->b);
	CHECK(live_lanes(&x) == 2);
	way_open(&ways[0], b, b, &x, &y, OPS);
	way_open(&ways[1], b, b, &y, &x, OPS);
	us = stream(b, rail, at);
	snprintf(what, sizeof(what), "seed %u: rail %u down at %u", seed, rail,
		 at);
	failed += !way_right(&ways[0], what);
	failed += !way_right(&ways[1], what);
	CHECK(!failed && lanes_are(b, &x, &y, 1, LINK_US));
	reap(set_link(rail, "up"));
	CHECK(lanes_are(b, &x, &y, 2, LINK_US));
	again(b, &x, what);
	printf("%s: ok, %.0f ms, %u in doubt\n", what, us / 1e3,
	       ways[0].in_doubt + ways[1].in_doubt);
	side_close(&x, -ECANCELED);
	side_close(&y, -ECANCELED);
	way_close(&ways[0]);
	way_close(&ways[1]);
}

int main(int argc, char **argv)
{
	unsigned seeds = argc > 1 ? (unsigned)atoi(argv[1]) : 20;
	struct bench b;
	void *pjob;

	setvbuf(stdout, NULL, _IOLBF, 0);
	setenv("VBN_LOG", "error", 0);
	if (provider_verbs.job_open(NULL, &pjob, &b.caps) ||
	    ((struct verbs_job *)pjob)->nrails < 2) {
		printf("skipped: not two rails: %s\n", vbn_error());
		return 77;
	}
	provider_verbs.job_close(pjob);
	bench_open(&b, &provider_verbs);
	for (unsigned seed = 0; seed < seeds; seed++)
		run(&b, seed);
	bench_close(&b);
	printf("%u passed, 0 failed, 0 skipped\n", seeds);
	return 0;
}
