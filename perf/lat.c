/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * put-lat: ping-pong of puts with notify. A sample is half a round trip, from
 * one post to the next, as perftest counts; the payload is complete when the
 * notify arrives, which is what the receiver waits for.
 *
 * With --raw the same exchange runs on ibverbs alone, in turns with ours:
 * once as ib_write_lat does it (the receiver looks at the last byte of the
 * buffer, which presumes that bytes land in order), and once with immediates,
 * which is what a notify needs.
 */
#include "perf.h"
#include "stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURNS	    10 /* between ours and raw */
#define LARGEST	    (8u << 20)
#define LAT_CHANNEL VBN_CHANNEL_USER

struct lat {
	struct perf *p;
	struct raw *raw;
	uint8_t *local, *target;
	struct vbn_rkey rkey; /* of the other's target */
	struct vbn_op op;
	uint64_t arrived, expected; /* notifies, since the start */
	bool heading;
};

static void lat_notify(void *arg, struct vbn_ep *from, uint32_t value)
{
	struct lat *l = arg;

	(void)from;
	(void)value;
	l->arrived++;
}

/*
 * Wait for one notify more. The count goes on from call to call: the first may
 * come while the ranks still meet.
 */
static int wait_arrival(struct lat *l)
{
	double until = 0;

	l->expected++;
	for (unsigned spins = 1; l->arrived < l->expected; spins++) {
		int rc;

		perf_drive(l->p);
		if (spins % 65536)
			continue;
		/* Rarely, as it is not what is measured. */
		rc = vbn_ep_status(l->p->ep);
		if (rc != 0)
			return perf_failed(rc, "waiting for a notify");
		if (until == 0)
			until = perf_now() + PERF_WAIT_MS / 1e3;
		else if (perf_now() > until)
			return perf_failed(-ETIMEDOUT, "waiting for a notify");
	}
	return 0;
}

static int post(struct lat *l, size_t size)
{
	int rc;

	/* The last one has been over since its answer came, or nearly. */
	while (l->op.status == -EINPROGRESS)
		perf_drive(l->p);
	if (l->op.status != 0)
		return perf_failed(l->op.status, "put");
	do {
		rc = vbn_put_notify(l->p->ep, &l->op, l->local, size, &l->rkey,
				    0, LAT_CHANNEL, 0, 0);
		if (rc == -EAGAIN)
			perf_drive(l->p);
	} while (rc == -EAGAIN);
	return rc ? perf_failed(rc, "put") : 0;
}

/* @n round trips; samples may be NULL (warm-up). */
static int ping_pong(struct lat *l, size_t size, size_t n, double *samples)
{
	double last = perf_now();
	int rc = 0;

	for (size_t i = 0; i < n && rc == 0; i++) {
		double t;

		if (l->p->rank == 1)
			rc = wait_arrival(l);
		if (rc == 0)
			rc = post(l, size);
		if (rc == 0 && l->p->rank == 0)
			rc = wait_arrival(l);
		t = perf_now();
		if (samples)
			samples[i] = (t - last) / 2;
		last = t;
	}
	return rc;
}

static void heading(struct lat *l)
{
	if (l->heading || l->p->rank != 0)
		return;
	l->heading = true;
	printf("verbena-perf put-lat: put with notify, half round trip, "
	       "provider %s%s%s\n",
	       vbn_ep_provider(l->p->ep), l->raw ? ", raw: ibverbs on " : "",
	       l->raw ? raw_device(l->raw) : "");
	printf("%9s %11s %12s %12s %15s %12s %14s %21s %23s\n", "#bytes",
	       "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]",
	       "t_avg[usec]", "t_stdev[usec]", "99% percentile[usec]",
	       "99.9% percentile[usec]");
}

static void print_line(size_t size, const struct stats *s, const char *what)
{
	printf("%9zu %11zu %12.2f %12.2f %15.2f %12.2f %14.2f %21.2f %23.2f%s"
	       "%s\n",
	       size, s->count, s->min * 1e6, s->max * 1e6, s->typical * 1e6,
	       s->average * 1e6, s->stdev * 1e6, s->p99 * 1e6, s->p999 * 1e6,
	       *what ? "  " : "", what);
}

static cJSON *as_json(const struct stats *s)
{
	cJSON *o = cJSON_CreateObject();

	cJSON_AddNumberToObject(o, "iterations", (double)s->count);
	cJSON_AddNumberToObject(o, "min_us", s->min * 1e6);
	cJSON_AddNumberToObject(o, "max_us", s->max * 1e6);
	cJSON_AddNumberToObject(o, "typical_us", s->typical * 1e6);
	cJSON_AddNumberToObject(o, "avg_us", s->average * 1e6);
	cJSON_AddNumberToObject(o, "stdev_us", s->stdev * 1e6);
	cJSON_AddNumberToObject(o, "p99_us", s->p99 * 1e6);
	cJSON_AddNumberToObject(o, "p999_us", s->p999 * 1e6);
	return o;
}

static void print_ratios(const struct stats *s, cJSON *o)
{
	double to_write = s[0].typical / s[1].typical;
	double to_imm = s[0].typical / s[2].typical;

	printf("ratio of typical latencies: verbena / raw write %.3f, "
	       "verbena / raw write with immediate %.3f\n",
	       to_write, to_imm);
	cJSON_AddNumberToObject(o, "ratio_raw_write", to_write);
	cJSON_AddNumberToObject(o, "ratio_raw_write_imm", to_imm);
}

/* @samples: of ours, of raw writes, of raw writes with immediate. */
static void report(struct lat *l, size_t size, double *samples[3], size_t n)
{
	static const char *const names[] = {"verbena", "raw_write",
					    "raw_write_imm"};
	static const char *const labels[] = {"verbena put with notify",
					     "raw write, last byte polled",
					     "raw write with immediate"};
	struct stats s[3];
	cJSON *o = cJSON_CreateObject();

	heading(l);
	cJSON_AddNumberToObject(o, "bytes", (double)size);
	for (int k = 0; k < (l->raw ? 3 : 1); k++) {
		stats_of(&s[k], samples[k], n);
		print_line(size, &s[k], l->raw ? labels[k] : "");
		cJSON_AddItemToObject(o, names[k], as_json(&s[k]));
	}
	if (l->raw)
		print_ratios(s, o);
	fflush(stdout);
	perf_result(l->p, o);
}

/* In turns, so that a drift of the machine meets all of them alike. */
static int measure(struct lat *l, size_t size, double *samples[3], size_t n)
{
	size_t turns = l->raw && n >= TURNS ? TURNS : 1, done = 0;
	int rc = 0;

	for (size_t turn = 0; turn < turns && rc == 0; turn++) {
		size_t count = n * (turn + 1) / turns - done;

		rc = perf_meet(l->p);
		if (rc == 0)
			rc = ping_pong(l, size, count, samples[0] + done);
		for (int k = 1; k < 3 && l->raw && rc == 0; k++) {
			rc = perf_meet(l->p);
			if (rc == 0)
				rc = raw_ping_pong(l->raw, size, count, k == 2,
						   samples[k] + done);
		}
		done += count;
	}
	return rc;
}

static int one_size(struct perf *p, size_t size, void *arg)
{
	struct lat *l = arg;
	size_t n = perf_iterations(p, size), warmup = perf_warmup(p, n);
	double *samples[3];
	int rc;

	for (int k = 0; k < 3; k++)
		samples[k] = perf_samples(n);
	rc = perf_meet(p);
	if (rc == 0)
		rc = ping_pong(l, size, warmup, NULL);
	for (int k = 1; k < 3 && l->raw && rc == 0 && warmup; k++) {
		double *scratch = perf_samples(warmup);

		rc = raw_ping_pong(l->raw, size, warmup, k == 2, scratch);
		free(scratch);
	}
	if (rc == 0)
		rc = measure(l, size, samples, n);
	if (rc == 0 && p->rank == 0)
		report(l, size, samples, n);
	for (int k = 0; k < 3; k++)
		free(samples[k]);
	return rc;
}

/* Fetch the other's key, through the job's store. */
static int exchange_key(struct lat *l, size_t bytes)
{
	static const char *const names[] = {"perf/key/0", "perf/key/1"};
	struct vbn_job *job = l->p->job;
	uint8_t packed[VBN_RKEY_BYTES];
	size_t len = sizeof(packed);
	struct vbn_rkey mine;
	int rc = vbn_rkey_of(job, l->target, bytes, &mine);

	if (rc == 0) {
		vbn_rkey_pack(&mine, packed);
		rc = vbn_job_set(job, names[l->p->rank], packed, sizeof(packed),
				 PERF_WAIT_MS);
	}
	if (rc == 0)
		rc = vbn_job_get(job, names[1 - l->p->rank], packed, &len,
				 PERF_WAIT_MS);
	if (rc != 0)
		return perf_failed(rc, "exchanging keys");
	vbn_rkey_unpack(&l->rkey, packed);
	return 0;
}

int perf_put_lat(struct perf *p)
{
	struct lat l = {.p = p};
	size_t bytes = p->opts.all && !p->opts.size ? LARGEST : p->opts.size;
	int rc;

	if (bytes < 2)
		bytes = 2;
	l.local = vbn_pool_alloc(p->pool, bytes, 4096);
	l.target = vbn_pool_alloc(p->pool, bytes, 4096);
	if (!l.local || !l.target)
		return perf_failed(-ENOMEM, "allocating buffers");
	memset(l.local, 1, bytes);
	rc = exchange_key(&l, bytes);
	if (rc == 0)
		rc = vbn_notify_handler(p->ctx, LAT_CHANNEL, lat_notify, &l);
	if (rc == 0 && p->opts.raw)
		rc = raw_open(&l.raw, p, bytes);
	if (rc == 0)
		rc = perf_sizes(p, 2, LARGEST, 2, one_size, &l);
	if (rc == 0)
		rc = perf_meet(p);
	raw_close(l.raw);
	return rc;
}
