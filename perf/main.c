/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbena-perf: latency and bandwidth of the transport the perftest way, and
 * of allreduce the nccl-tests way. Options, start and end; the measurements
 * are in lat.c, bw.c and allreduce.c.
 */
#include "perf.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int my_rank;

double perf_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

int perf_fail(int err, const char *fmt, ...)
{
	char line[700];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	fprintf(stderr, "verbena-perf: %s\n", line);
	return err;
}

int perf_failed(int err, const char *what)
{
	const char *why = vbn_error();

	return perf_fail(err, "rank %d: %s: %s%s%s", my_rank, what,
			 strerror(-err), *why ? ": " : "", why);
}

size_t perf_iterations(const struct perf *p, size_t size)
{
	size_t n = (256u << 20) / (size ? size : 1);

	if (p->opts.iterations)
		return p->opts.iterations;
	if (n > 1000)
		n = 1000;
	return n < 10 ? 10 : n;
}

size_t perf_warmup(const struct perf *p, size_t iterations)
{
	if (p->opts.warmup != SIZE_MAX)
		return p->opts.warmup;
	return iterations / 10 + 1 < 100 ? iterations / 10 + 1 : 100;
}

int perf_sizes(struct perf *p, size_t first, size_t last, size_t usual,
	       int (*one)(struct perf *p, size_t size, void *arg), void *arg)
{
	int rc = 0;

	if (!p->opts.all)
		return one(p, p->opts.size ? p->opts.size : usual, arg);
	if (p->opts.size)
		last = p->opts.size;
	for (size_t size = first; size <= last && rc == 0; size *= 2)
		rc = one(p, size, arg);
	return rc;
}

double *perf_samples(size_t n)
{
	double *samples = calloc(n ? n : 1, sizeof(*samples));

	if (!samples) {
		perf_fail(0, "no memory for %zu samples; use a smaller -n", n);
		exit(2);
	}
	return samples;
}

void perf_drive(struct perf *p)
{
	if (p->opts.blocking)
		vbn_ctx_wait(p->ctx, 100);
	else
		vbn_progress(p->ctx);
}

int perf_connect(struct perf *p)
{
	int rc = vbn_ep_open(&p->ep, p->ctx, 1 - p->rank, 0);

	if (rc == 0)
		rc = vbn_ep_connect(p->ep, PERF_WAIT_MS);
	return rc ? perf_failed(rc, "connecting") : 0;
}

static void met(void *arg, struct vbn_ep *from, const void *data, size_t len)
{
	unsigned *count = arg;

	(void)from;
	(void)data;
	(void)len;
	(*count)++;
}

int perf_meet(struct perf *p)
{
	static unsigned seen;
	double until = perf_now() + PERF_WAIT_MS / 1e3;
	int rc;

	vbn_message_handler(p->ctx, VBN_CHANNEL_USER + 1, met, &seen);
	p->meetings++;
	do {
		rc = vbn_message(p->ep, VBN_CHANNEL_USER + 1, "", 0);
		if (rc == -EAGAIN)
			vbn_ctx_wait(p->ctx, 10);
	} while (rc == -EAGAIN && perf_now() < until);
	while (rc == 0 && seen < p->meetings) {
		vbn_ctx_wait(p->ctx, 100);
		rc = vbn_ep_status(p->ep);
		if (rc == 0 && perf_now() > until)
			rc = -ETIMEDOUT;
	}
	return rc ? perf_failed(rc, "meeting the other rank") : 0;
}

void perf_result(struct perf *p, cJSON *object)
{
	if (p->results && object)
		cJSON_AddItemToArray(p->results, object);
	else
		cJSON_Delete(object);
}

/* ---- options ---- */

static const char help[] =
	"usage: verbena-perf TEST [OPTION...]   (under verbena-run -n N)\n"
	"  put-lat     half round trip of a put with notify, 2 ranks\n"
	"  put-bw      stream of puts from rank 0 to rank 1, 2 ranks\n"
	"  allreduce   sum of float32, any number of ranks\n"
	"options:\n"
	"  -s, --size BYTES    message size (put-lat 2, put-bw 65536,\n"
	"                      allreduce 1 MiB); with -a the largest\n"
	"  -a, --all           every power of two up to that\n"
	"  -n, --iters N       iterations per size\n"
	"      --warmup N      iterations before, not counted\n"
	"      --raw           the same on ibverbs alone, in turns, and the "
	"ratio\n"
	"      --sleep         sleep while waiting, instead of spinning\n"
	"      --check 0|1     verify the data (allreduce: 1)\n"
	"      --algo ring|tree  of allreduce (by size)\n"
	"      --json FILE     results as JSON\n";

static int number(const char *text, const char *flag, size_t *value)
{
	char *end;
	unsigned long long v;

	errno = 0;
	v = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || v > SIZE_MAX / 4)
		return perf_fail(-EINVAL, "%s %s: not a number", flag, text);
	*value = v;
	return 0;
}

static int algorithm(const char *text, enum vbn_algorithm *algo)
{
	if (strcmp(text, "ring") == 0)
		*algo = VBN_ALGORITHM_RING;
	else if (strcmp(text, "tree") == 0)
		*algo = VBN_ALGORITHM_TREE;
	else
		return perf_fail(-EINVAL, "--algo %s: neither ring nor tree",
				 text);
	return 0;
}

static int option(struct perf_options *o, int c)
{
	size_t value;
	int rc;

	switch (c) {
	case 's':
		rc = number(optarg, "-s", &o->size);
		if (rc == 0 && o->size == 0)
			rc = perf_fail(-EINVAL, "-s 0: at least 1 byte");
		return rc;
	case 'n':
		rc = number(optarg, "-n", &o->iterations);
		if (rc == 0 && o->iterations == 0)
			rc = perf_fail(-EINVAL, "-n 0: at least 1 iteration");
		return rc;
	case 'w':
		return number(optarg, "--warmup", &o->warmup);
	case 'c':
		rc = number(optarg, "--check", &value);
		o->check = rc == 0 && value != 0;
		return rc;
	case 'g':
		return algorithm(optarg, &o->algorithm);
	case 'a':
		o->all = true;
		return 0;
	case 'r':
		o->raw = true;
		return 0;
	case 'b':
		o->blocking = true;
		return 0;
	case 'j':
		o->json = optarg;
		return 0;
	default:
		return -EINVAL; /* getopt has said what is wrong */
	}
}

static int parse(struct perf_options *o, int argc, char **argv)
{
	static const struct option longs[] = {
		{"size", required_argument, NULL, 's'},
		{"all", no_argument, NULL, 'a'},
		{"iters", required_argument, NULL, 'n'},
		{"warmup", required_argument, NULL, 'w'},
		{"raw", no_argument, NULL, 'r'},
		{"sleep", no_argument, NULL, 'b'},
		{"check", required_argument, NULL, 'c'},
		{"algo", required_argument, NULL, 'g'},
		{"json", required_argument, NULL, 'j'},
		{NULL, 0, NULL, 0},
	};
	int c, rc;

	while ((c = getopt_long(argc, argv, "s:an:", longs, NULL)) != -1) {
		rc = option(o, c);
		if (rc != 0)
			return rc;
	}
	if (optind + 1 != argc)
		return perf_fail(-EINVAL, "name one test: put-lat, put-bw or "
					  "allreduce (see --help)");
	o->test = argv[optind];
	return 0;
}

static const struct {
	const char *name;
	int (*run)(struct perf *p);
	bool pair;
} tests[] = {
	{"put-lat", perf_put_lat, true},
	{"put-bw", perf_put_bw, true},
	{"allreduce", perf_allreduce, false},
};

#define NTESTS (sizeof(tests) / sizeof(tests[0]))

static int find_test(const struct perf_options *o)
{
	for (size_t i = 0; i < NTESTS; i++)
		if (strcmp(o->test, tests[i].name) == 0)
			return (int)i;
	return perf_fail(-EINVAL, "no test %s: put-lat, put-bw or allreduce",
			 o->test);
}

static int consistent(const struct perf *p, int test)
{
	int rc = 0;

	/* One line, from rank 0, before any other rank ends. */
	if (tests[test].pair && p->nranks != 2)
		rc = -EINVAL;
	if (rc != 0 && p->rank == 0)
		perf_fail(rc,
			  "%s needs 2 ranks, this job has %d: use "
			  "verbena-run -n 2",
			  tests[test].name, p->nranks);
	if (rc != 0)
		vbn_job_fence(p->job, 5000);
	return rc;
}

/* ---- run ---- */

static int write_json(struct perf *p)
{
	cJSON *top = cJSON_CreateObject();
	char *text = NULL;
	FILE *f = NULL;
	int rc = -ENOMEM;

	if (top) {
		const char *via = p->ep ? vbn_ep_provider(p->ep) : "";

		cJSON_AddStringToObject(top, "test", p->opts.test);
		cJSON_AddNumberToObject(top, "ranks", p->nranks);
		cJSON_AddStringToObject(top, "provider", via);
		cJSON_AddItemToObject(top, "results", p->results);
		p->results = NULL;
		text = cJSON_Print(top);
	}
	if (text)
		f = fopen(p->opts.json, "w");
	if (f) {
		rc = fputs(text, f) < 0 || fputc('\n', f) < 0 ? -EIO : 0;
		if (fclose(f) != 0)
			rc = -errno;
	} else if (text) {
		rc = -errno;
	}
	free(text);
	cJSON_Delete(top);
	return rc ? perf_fail(rc, "cannot write %s: %s", p->opts.json,
			      strerror(-rc))
		  : 0;
}

static int run_in_job(struct perf *p, int test)
{
	struct vbn_pool_options opts = {.size = sizeof(opts),
					.access = VBN_ACCESS_ALL};
	int rc = vbn_ctx_open(&p->ctx, p->job, NULL);

	if (rc != 0)
		return perf_failed(rc, "opening a context");
	rc = vbn_pool_create(&p->pool, p->job, &opts);
	if (rc != 0)
		perf_failed(rc, "creating a memory pool");
	if (rc == 0 && tests[test].pair)
		rc = perf_connect(p);
	if (rc == 0)
		rc = tests[test].run(p);
	if (rc == 0 && p->results)
		rc = write_json(p);
	vbn_ctx_close(p->ctx);
	if (p->pool)
		vbn_pool_destroy(p->pool);
	return rc;
}

int main(int argc, char **argv)
{
	struct perf p = {.opts = {.warmup = SIZE_MAX, .check = true}};
	int test, rc;

	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--help") == 0) {
			fputs(help, stdout);
			return 0;
		}
	if (parse(&p.opts, argc, argv) != 0)
		return 2;
	test = find_test(&p.opts);
	if (test < 0)
		return 2;
	if (p.opts.raw && !tests[test].pair) {
		perf_fail(0, "--raw goes with put-lat and put-bw only");
		return 2;
	}
	rc = vbn_job_open(&p.job, NULL);
	if (rc != 0) {
		perf_fail(rc, "%s", vbn_error());
		return 1;
	}
	p.rank = my_rank = vbn_job_rank(p.job);
	p.nranks = vbn_job_size(p.job);
	if (p.opts.json && p.rank == 0)
		p.results = cJSON_CreateArray();
	rc = consistent(&p, test);
	if (rc == 0)
		rc = run_in_job(&p, test);
	cJSON_Delete(p.results);
	if (rc != 0 && vbn_job_dead(p.job) >= 0)
		perf_fail(rc, "rank %d: rank %d of the job has died", p.rank,
			  vbn_job_dead(p.job));
	vbn_job_close(p.job);
	return rc ? 1 : 0;
}
