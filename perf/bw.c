/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * put-bw: rank 0 streams puts into one buffer of rank 1's, DEPTH in flight.
 * The average is over all bytes from the first post until a flush has
 * completed, that is until all of them have landed. MB are 2^20 bytes, as
 * perftest's. With --raw the same stream runs on ibverbs alone, in turns.
 */
#include "perf.h"
#include "stats.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH	128
#define TURNS	4
#define LARGEST (8u << 20)

struct bw {
	struct perf *p;
	struct raw *raw;
	uint8_t *local, *target;
	struct vbn_rkey rkey;
	struct vbn_op ops[DEPTH], flush;
	double *posted, *times; /* of each put: seconds */
	size_t completed;
	int status; /* of the first put that failed */
	bool heading;
};

static void bw_done(struct vbn_op *op)
{
	struct bw *b = op->arg;

	if (op->status != 0 && b->status == 0)
		b->status = op->status;
	b->times[b->completed++] = perf_now();
}

/* Post put @i of @n; those before the last of a burst say that more follows. */
static int post(struct bw *b, size_t size, size_t i, bool more)
{
	struct vbn_op *op = &b->ops[i % DEPTH];
	int rc;

	op->done = bw_done;
	op->arg = b;
	b->posted[i] = perf_now();
	rc = vbn_put(b->p->ep, op, b->local, size, &b->rkey, 0,
		     more ? VBN_MORE : 0);
	return rc;
}

static int flush(struct bw *b)
{
	int rc;

	do {
		rc = vbn_flush(b->p->ep, &b->flush);
		if (rc == -EAGAIN)
			perf_drive(b->p);
	} while (rc == -EAGAIN);
	while (rc == 0 && b->flush.status == -EINPROGRESS)
		perf_drive(b->p);
	return rc ? rc : b->flush.status;
}

/*
 * Completions come in the order posted on no promise: a slot is free when its
 * own operation is over.
 */
static int stream(struct bw *b, size_t size, size_t n, double *end)
{
	size_t i = 0;
	int rc = 0;

	b->completed = 0;
	while (rc == 0 && b->status == 0 && b->completed < n) {
		bool free_slot = b->ops[i % DEPTH].status != -EINPROGRESS;

		if (i < n && free_slot) {
			bool next =
				i + 1 < n &&
				b->ops[(i + 1) % DEPTH].status != -EINPROGRESS;

			rc = post(b, size, i, next);
			if (rc == 0)
				i++;
			if (rc != -EAGAIN)
				continue;
			rc = 0;
		}
		perf_drive(b->p);
	}
	if (rc == 0)
		rc = b->status;
	if (rc == 0)
		rc = flush(b);
	*end = perf_now();
	return rc ? perf_failed(rc, "stream of puts") : 0;
}

/* What rank 1 does: let the stream land, until rank 0 comes to meet it. */
static int meet_after(struct bw *b)
{
	return perf_meet(b->p);
}

struct sums {
	double seconds, peak; /* puts per second */
	size_t count;
};

static void add(struct sums *s, const struct bw *b, size_t n, double end)
{
	double peak = stats_peak_rate(b->posted, b->times, n, DEPTH);

	s->seconds += end - b->posted[0];
	s->count += n;
	if (peak > s->peak)
		s->peak = peak;
}

static int turn(struct bw *b, size_t size, size_t n, struct sums *ours,
		struct sums *raw)
{
	double end = 0;
	int rc = 0;

	if (b->p->rank == 0) {
		rc = stream(b, size, n, &end);
		add(ours, b, n, end);
	}
	if (rc == 0)
		rc = meet_after(b);
	if (rc != 0 || !b->raw)
		return rc;
	rc = raw_stream(b->raw, size, n, b->posted, b->times);
	if (rc == 0 && b->p->rank == 0)
		add(raw, b, n, b->times[n - 1]);
	return rc ? rc : meet_after(b);
}

static void print_line(size_t size, const struct sums *s, const char *what)
{
	double mb = (double)size / (1 << 20);
	double rate = (double)s->count / s->seconds;

	printf("%9zu %11zu %18.2f %18.2f %15.6f%s%s\n", size, s->count,
	       (s->peak > rate ? s->peak : rate) * mb, rate * mb, rate / 1e6,
	       *what ? "  " : "", what);
}

static cJSON *as_json(size_t size, const struct sums *s)
{
	double mb = (double)size / (1 << 20);
	double rate = (double)s->count / s->seconds;
	cJSON *o = cJSON_CreateObject();

	cJSON_AddNumberToObject(o, "iterations", (double)s->count);
	cJSON_AddNumberToObject(o, "peak_mb_s",
				(s->peak > rate ? s->peak : rate) * mb);
	cJSON_AddNumberToObject(o, "avg_mb_s", rate * mb);
	cJSON_AddNumberToObject(o, "msg_rate_mpps", rate / 1e6);
	return o;
}

static void report(struct bw *b, size_t size, const struct sums *ours,
		   const struct sums *raw)
{
	cJSON *o = cJSON_CreateObject();
	double ratio;

	if (!b->heading) {
		b->heading = true;
		printf("verbena-perf put-bw: rank 0 to rank 1, %d in flight, "
		       "provider %s%s%s\n",
		       DEPTH, vbn_ep_provider(b->p->ep),
		       b->raw ? ", raw: ibverbs on " : "",
		       b->raw ? raw_device(b->raw) : "");
		printf("%9s %11s %18s %18s %15s\n", "#bytes", "#iterations",
		       "BW peak[MB/sec]", "BW average[MB/sec]",
		       "MsgRate[Mpps]");
	}
	cJSON_AddNumberToObject(o, "bytes", (double)size);
	print_line(size, ours, b->raw ? "verbena" : "");
	cJSON_AddItemToObject(o, "verbena", as_json(size, ours));
	if (b->raw) {
		ratio = (double)ours->count / ours->seconds /
			((double)raw->count / raw->seconds);
		print_line(size, raw, "raw");
		printf("ratio of average bandwidths: verbena / raw %.3f\n",
		       ratio);
		cJSON_AddItemToObject(o, "raw", as_json(size, raw));
		cJSON_AddNumberToObject(o, "ratio_raw", ratio);
	}
	fflush(stdout);
	perf_result(b->p, o);
}

static int one_size(struct perf *p, size_t size, void *arg)
{
	struct bw *b = arg;
	size_t n = perf_iterations(p, size), warmup = perf_warmup(p, n);
	size_t turns = b->raw && n >= TURNS ? TURNS : 1, done = 0;
	struct sums ours = {0}, raw = {0}, unused = {0};
	int rc = perf_meet(p);

	b->times = perf_samples(n > warmup ? n : warmup);
	b->posted = perf_samples(n > warmup ? n : warmup);
	if (rc == 0 && warmup)
		rc = turn(b, size, warmup, &unused, &unused);
	for (size_t k = 0; k < turns && rc == 0; k++) {
		size_t count = n * (k + 1) / turns - done;

		rc = turn(b, size, count, &ours, &raw);
		done += count;
	}
	if (rc == 0 && p->rank == 0)
		report(b, size, &ours, &raw);
	free(b->times);
	free(b->posted);
	return rc;
}

/* The data must have landed: rank 1 compares the last put's bytes. */
static int check(struct bw *b, size_t bytes)
{
	for (size_t i = 0; b->p->rank == 1 && i < bytes; i++)
		if (b->target[i] != (uint8_t)(i * 31 + 7))
			return perf_fail(-EBADMSG, "byte %zu is wrong", i);
	return 0;
}

static int exchange_key(struct bw *b, size_t bytes)
{
	uint8_t packed[VBN_RKEY_BYTES];
	size_t len = sizeof(packed);
	struct vbn_rkey mine;
	int rc;

	if (b->p->rank == 1) {
		rc = vbn_rkey_of(b->p->job, b->target, bytes, &mine);
		if (rc != 0)
			return perf_failed(rc, "the key of a buffer");
		vbn_rkey_pack(&mine, packed);
		rc = vbn_job_set(b->p->job, "perf/key", packed, sizeof(packed),
				 PERF_WAIT_MS);
	} else {
		rc = vbn_job_get(b->p->job, "perf/key", packed, &len,
				 PERF_WAIT_MS);
		vbn_rkey_unpack(&b->rkey, packed);
	}
	return rc ? perf_failed(rc, "exchanging keys") : 0;
}

int perf_put_bw(struct perf *p)
{
	size_t bytes = p->opts.size  ? p->opts.size
		       : p->opts.all ? LARGEST
				     : 65536;
	struct bw *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return perf_fail(-ENOMEM, "no memory");
	b->p = p;
	b->local = vbn_pool_alloc(p->pool, bytes, 4096);
	b->target = vbn_pool_alloc(p->pool, bytes, 4096);
	rc = b->local && b->target ? 0 : perf_failed(-ENOMEM, "buffers");
	for (size_t i = 0; rc == 0 && i < bytes; i++)
		b->local[i] = (uint8_t)(i * 31 + 7);
	if (rc == 0)
		rc = exchange_key(b, bytes);
	if (rc == 0 && p->opts.raw)
		rc = raw_open(&b->raw, p, bytes);
	if (rc == 0)
		rc = perf_sizes(p, 2, LARGEST, 65536, one_size, b);
	if (rc == 0)
		rc = perf_meet(p);
	if (rc == 0 && !p->opts.all)
		rc = check(b, bytes);
	raw_close(b->raw);
	free(b);
	return rc;
}
