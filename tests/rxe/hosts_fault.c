/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Four ranks on two hosts, of which the test kills or stops one; what the ranks
 * of the other see, a line each: the test looks at when they come. Ranks 0 and
 * 1 are on host 0.
 *
 * hosts_fault puts|idle|stop VICTIM_HOST [SECONDS]
 *
 * puts: the survivors stream puts to the victims, which then end with an error,
 *       each once; later ones are refused at once, and the endpoint between the
 *       survivors goes on (unless rank 0 is gone).
 * idle: nothing is under way but a receive.
 * stop: the victims stream puts with notifies to the survivors, and are named
 *       dead while they are stopped; nothing of theirs lands or is delivered
 *       in the SECONDS from then on, in which they go on, and are told.
 */
#include <verbena/transport.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define RANKS	4
#define PENDING 16
#define BYTES	262144
#define BOUND	60.0 /* seconds from the start to the fault's last effect */

struct party {
	struct vbn_job *job;
	struct vbn_ctx *ctx;
	struct vbn_pool *pool;
	struct vbn_ep *across, *beside; /* other host, this host */
	struct vbn_rkey across_key, beside_key;
	uint8_t *window, *local;
	struct vbn_op ops[PENDING];
	int posted[PENDING], ended[PENDING];
	int first_error, notified;
	bool wrong;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	putchar('\n');
	fflush(stdout);
}

static void expect(struct party *p, bool holds, const char *what)
{
	if (holds)
		return;
	say("wrong: %s (%s)", what, vbn_error());
	p->wrong = true;
}

static void must(int rc, const char *what)
{
	if (!rc)
		return;
	fprintf(stderr, "hosts_fault: %s: %s: %s\n", what, strerror(-rc),
		vbn_error());
	exit(1);
}

static void ended(struct vbn_op *op)
{
	struct party *p = op->arg;

	p->ended[op - p->ops]++;
	if (op->status && !p->first_error) {
		p->first_error = op->status;
		say("failed: %s, wc %u", strerror(-op->status), op->wc);
	}
}

static void notified(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct party *p = arg;

	(void)value;
	if (from == p->across)
		p->notified++;
}

static void fetch(struct party *p, int rank, struct vbn_rkey *rkey,
		  struct vbn_ep **ep)
{
	uint8_t packed[VBN_RKEY_BYTES];
	size_t len = sizeof(packed);
	char key[16];

	snprintf(key, sizeof(key), "window/%d", rank);
	must(vbn_job_get(p->job, key, packed, &len, 30000), "get");
	vbn_rkey_unpack(rkey, packed);
	must(vbn_ep_open(ep, p->ctx, rank, 0), "endpoint");
	must(vbn_ep_connect(*ep, 30000), "connect");
}

static void join(struct party *p)
{
	const struct vbn_pool_options options = {.size = sizeof(options),
						 .access = VBN_ACCESS_ALL};
	uint8_t packed[VBN_RKEY_BYTES];
	struct vbn_rkey rkey;
	char key[16];
	int rank;

	must(vbn_job_open(&p->job, NULL), "join");
	rank = vbn_job_rank(p->job);
	must(vbn_ctx_open(&p->ctx, p->job, NULL), "context");
	must(vbn_pool_create(&p->pool, p->job, &options), "pool");
	p->window = vbn_pool_alloc(p->pool, BYTES, 0);
	p->local = vbn_pool_alloc(p->pool, BYTES, 0);
	must(p->window && p->local ? 0 : -ENOMEM, "memory");
	memset(p->window, 0, BYTES);
	memset(p->local, 0x11 * (rank + 1), BYTES);
	must(vbn_rkey_of(p->job, p->window, BYTES, &rkey), "key");
	vbn_rkey_pack(&rkey, packed);
	snprintf(key, sizeof(key), "window/%d", rank);
	must(vbn_job_set(p->job, key, packed, sizeof(packed), 30000), "set");
	vbn_notify_handler(p->ctx, VBN_CHANNEL_USER, notified, p);
	fetch(p, (rank + 2) % RANKS, &p->across_key, &p->across);
	fetch(p, rank ^ 1, &p->beside_key, &p->beside);
	for (int i = 0; i < PENDING; i++) {
		p->ops[i].done = ended;
		p->ops[i].arg = p;
	}
	must(vbn_job_fence(p->job, 30000), "fence");
}

/* Post what is not under way; -ECONNRESET once the endpoint has failed. */
static int stream(struct party *p, bool notify)
{
	int rc = 0;

	for (int i = 0; i < PENDING && !rc; i++) {
		if (p->posted[i] != p->ended[i])
			continue;
		rc = notify ? vbn_put_notify(p->across, &p->ops[i], p->local,
					     BYTES, &p->across_key, 0,
					     VBN_CHANNEL_USER, 1, 0)
			    : vbn_put(p->across, &p->ops[i], p->local, BYTES,
				      &p->across_key, 0, 0);
		p->posted[i] += !rc;
	}
	return rc == -EAGAIN ? 0 : rc;
}

static int under_way(const struct party *p)
{
	int n = 0;

	for (int i = 0; i < PENDING; i++)
		n += p->posted[i] - p->ended[i];
	return n;
}

static int total(const int *counts)
{
	int n = 0;

	for (int i = 0; i < PENDING; i++)
		n += counts[i];
	return n;
}

/* Until the job has named a rank dead. */
static void await_name(struct party *p)
{
	double until = now() + BOUND;

	while (vbn_job_dead(p->job) < 0 && now() < until)
		vbn_ctx_wait(p->ctx, 5);
	say("named: rank %d", vbn_job_dead(p->job));
}

static void check_refusals(struct party *p)
{
	struct vbn_op op = {0};
	double began = now();

	expect(p,
	       vbn_put(p->across, &op, p->local, BYTES, &p->across_key, 0, 0) ==
		       -ECONNRESET,
	       "a put to the dead is refused");
	expect(p,
	       vbn_get(p->across, &op, p->local, BYTES, &p->across_key, 0, 0) ==
		       -ECONNRESET,
	       "a get from the dead is refused");
	expect(p, now() - began < 0.5, "it is refused at once");
}

static void check_beside(struct party *p)
{
	struct vbn_op op = {0};
	double until = now() + 5;
	int rc;

	while ((rc = vbn_put(p->beside, &op, p->local, BYTES, &p->beside_key, 0,
			     0)) == -EAGAIN &&
	       now() < until)
		vbn_progress(p->ctx);
	expect(p, rc == 0 && vbn_wait(p->ctx, &op, 5000) == 0,
	       "the survivors' endpoint goes on");
}

static void put_to_victim(struct party *p)
{
	double until = now() + BOUND;
	bool told = false;

	while (now() < until && (!p->first_error || under_way(p))) {
		if (!p->first_error)
			stream(p, false);
		vbn_ctx_wait(p->ctx, 5);
		if (!told && total(p->ended) >= 2 * PENDING) {
			say("ready");
			told = true;
		}
	}
	expect(p, p->first_error == -ECONNRESET, "puts end with ECONNRESET");
	expect(p, memcmp(p->posted, p->ended, sizeof(p->posted)) == 0,
	       "each put has ended once");
	check_refusals(p);
	await_name(p);
}

static void wait_for_victim(struct party *p)
{
	struct vbn_op *op = &p->ops[0];
	double began, used;

	while (vbn_recv(p->across, op, p->window, BYTES) == -EAGAIN)
		vbn_progress(p->ctx);
	say("ready");
	began = now();
	used = (double)clock();
	await_name(p);
	expect(p, vbn_wait(p->ctx, op, 2000) == -ECONNRESET,
	       "the receive ends with ECONNRESET");
	used = ((double)clock() - used) / CLOCKS_PER_SEC;
	say("waited %.1f s, for %.2f s of the processor's time", now() - began,
	    used);
	expect(p, used < 0.5 * (now() - began), "waiting does not spin");
	check_refusals(p);
}

/* From the victim's being named dead to after its going on. */
static void watch_window(struct party *p, double seconds)
{
	double until;
	int before, moved = 0;

	while (p->notified < 5)
		vbn_ctx_wait(p->ctx, 5);
	say("ready");
	await_name(p);
	before = p->notified;
	memset(p->window, 0xee, BYTES);
	for (until = now() + seconds; now() < until;)
		vbn_ctx_wait(p->ctx, 50);
	for (int i = 0; i < BYTES; i++)
		moved += p->window[i] != 0xee;
	expect(p, moved == 0, "nothing that the dead had put lands");
	expect(p, p->notified == before, "no notify of the dead's");
	say("late: %d bytes, %d notifies", moved, p->notified - before);
	check_refusals(p);
}

/* The victim's own view: it streams, is stopped, and goes on. */
static int be_stopped(struct party *p)
{
	double until = now() + 2 * BOUND;
	int rc = 0;

	while (!rc && now() < until) {
		rc = stream(p, true);
		vbn_ctx_wait(p->ctx, 5);
		if (p->first_error)
			rc = p->first_error;
	}
	say("stopped: %s", rc ? strerror(-rc) : "not told");
	until = now() + 10;
	while (vbn_job_dead(p->job) < 0 && now() < until)
		vbn_ctx_wait(p->ctx, 5);
	say("told: rank %d is dead", vbn_job_dead(p->job));
	return rc != -ECONNRESET;
}

static int be_killed(struct party *p)
{
	double until = now() + 2 * BOUND;

	while (now() < until)
		vbn_ctx_wait(p->ctx, 50);
	return 1;
}

static void leave(struct party *p)
{
	double began = now();

	vbn_ctx_close(p->ctx);
	vbn_pool_destroy(p->pool);
	vbn_job_close(p->job);
	expect(p, now() - began < 10, "leaving takes less than 10 s");
	say("left");
}

int main(int argc, char **argv)
{
	struct party *p = calloc(1, sizeof(*p));
	int rank, victim;

	if (!p || argc < 3 || (argv[1][0] == 's' && argc < 4)) {
		fprintf(stderr, "usage: hosts_fault puts|idle HOST\n"
				"       hosts_fault stop HOST SECONDS\n");
		return 2;
	}
	victim = atoi(argv[2]);
	join(p);
	rank = vbn_job_rank(p->job);
	if (rank / 2 == victim)
		return argv[1][0] == 's' ? be_stopped(p) : be_killed(p);
	switch (argv[1][0]) {
	case 'p':
		put_to_victim(p);
		break;
	case 'i':
		wait_for_victim(p);
		break;
	default:
		watch_window(p, atof(argv[3]));
	}
	if (victim != 0)
		check_beside(p);
	/* A peer's checks need this rank alive. */
	vbn_ctx_wait(p->ctx, 200);
	leave(p);
	return p->wrong;
}
