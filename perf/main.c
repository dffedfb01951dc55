/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * verbena-perf: latency and bandwidth of the transport the perftest way, and
 * of collectives the nccl-tests way. Start and end; args.c knows what can be
 * asked for, measure.c how it goes.
 */
#include "perf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int my_rank;

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

int perf_op_failed(const struct vbn_op *op)
{
	char codes[64] = "";

	if (op->wc || op->vendor)
		snprintf(codes, sizeof(codes), " (status %u, vendor 0x%x)",
			 op->wc, op->vendor);
	return perf_fail(op->status, "rank %d: an operation failed: %s%s",
			 my_rank, strerror(-op->status), codes);
}

/* The library takes these from the environment, before the job is opened. */
static int hand_over(const struct perf_options *o)
{
	const struct {
		const char *name;
		size_t value;
	} numbers[] = {
		{"VBN_IB_GID_INDEX", o->gid_index},
		{"VBN_IB_MTU", o->mtu},
		{"VBN_IB_SL", o->sl},
		{"VBN_IB_TC", o->tos},
	};
	char text[128];
	int rc = 0;

	if (o->device) {
		snprintf(text, sizeof(text),
			 o->port != PERF_UNSET ? "%s:%zu" : "%s", o->device,
			 o->port);
		rc = setenv("VBN_IB_HCA", text, 1);
	}
	if (o->connect && rc == 0)
		rc = setenv("VBN_CONNECT", o->connect, 1);
	for (size_t i = 0; i < 4 && rc == 0; i++) {
		if (numbers[i].value == PERF_UNSET)
			continue;
		snprintf(text, sizeof(text), "%zu", numbers[i].value);
		rc = setenv(numbers[i].name, text, 1);
	}
	return rc ? perf_fail(-ENOMEM, "no memory") : 0;
}

/* What depends on the number of ranks; all ranks come to the same. */
static int suits(const struct perf *p, char *why, size_t room)
{
	const struct perf_options *o = &p->opts;

	if (o->test->op == PERF_TUNE && p->nranks < 2)
		snprintf(why, room,
			 "tune needs 2 ranks or more: use verbena-run -n N");
	else if (!o->test->transport)
		return 0;
	else if (p->nranks > (perf_can_ring(o) ? PERF_RING_MAX : 2))
		snprintf(why, room,
			 "%s needs 2 ranks, or 1 for a loop to itself (put-bw "
			 "-b without --raw: up to %d); this job has %d: use "
			 "verbena-run -n 2",
			 o->test->name, PERF_RING_MAX, p->nranks);
	else if ((o->bidirectional || o->cm) && p->nranks == 1)
		snprintf(why, room, "%s needs 2 ranks: use verbena-run -n 2",
			 o->cm ? "-R" : "-b");
	else if (o->events && o->test->op == PERF_PUT && !o->test->bandwidth &&
		 p->nranks == 2)
		snprintf(why, room,
			 "-e does not go with put-lat between two ranks, whose "
			 "receiver polls memory: use notify-lat");
	else
		return 0;
	return -EINVAL;
}

/* One line, from rank 0, before any other rank ends. */
static int refuse(struct perf *p, const char *why)
{
	if (p->rank == 0)
		perf_fail(0, "%s", why);
	vbn_job_fence(p->job, 5000);
	return 2;
}

static int (*test_of(const struct perf *p))(struct perf *p)
{
	if (p->opts.test->transport)
		return perf_transport;
	return p->opts.test->op == PERF_TUNE ? perf_tune : perf_coll;
}

static int run(struct perf *p)
{
	int rc = report_open(&p->report, &p->opts, p->rank == 0);
	int written;

	if (rc == 0)
		rc = perf_open(p);
	if (rc == 0)
		rc = test_of(p)(p);
	written = report_close(&p->report, rc == 0);
	perf_close(p);
	if (rc != 0 && vbn_job_dead(p->job) >= 0)
		perf_fail(rc, "rank %d: rank %d of the job has died", p->rank,
			  vbn_job_dead(p->job));
	return rc || written ? 1 : 0;
}

/* Text on standard output that is not to be lost. */
static int help(void)
{
	perf_help(stdout);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		perf_fail(0, "cannot write standard output: %s",
			  strerror(errno));
		return 1;
	}
	return 0;
}

/*
 * After a failure nobody is waited for: closing the job would, for those that
 * have not noticed yet; that we are gone they notice at once.
 */
static void leave(int status)
{
	fflush(NULL);
	_exit(status);
}

int main(int argc, char **argv)
{
	struct perf *p = calloc(1, sizeof(*p));
	char why[512];
	int status;

	if (!p)
		return perf_fail(1, "no memory");
	perf_clock_start();
	if (perf_parse(&p->opts, argc, argv, why, sizeof(why)) != 0) {
		perf_fail(0, "%s", why);
		free(p);
		return 2;
	}
	if (p->opts.help) {
		free(p);
		return help();
	}
	status = hand_over(&p->opts) != 0;
	if (!status && vbn_job_open(&p->job, NULL) != 0) {
		perf_fail(0, "%s", vbn_error());
		status = 1;
	}
	if (!status) {
		p->rank = my_rank = vbn_job_rank(p->job);
		p->nranks = vbn_job_size(p->job);
		p->peer = (p->rank + 1) % p->nranks;
		p->from = (p->rank + p->nranks - 1) % p->nranks;
		if (suits(p, why, sizeof(why)))
			status = refuse(p, why);
		else if (run(p))
			leave(1);
		vbn_job_close(p->job);
	}
	free(p);
	return status;
}
