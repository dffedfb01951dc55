/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * VBN_COLL_TRACE=1: a line on each call of the first member.
 */
#include "coll.h"

#include <stdio.h>

void trace_call(const struct vbn_coll *coll)
{
	const struct vbn_comm *comm = coll->comm;
	double took = (double)(coll_now_ns() - coll->started_ns) * 1e-3;
	char what[200];

	if (comm->rank != 0)
		return;
	call_describe(&coll->call, what, sizeof(what));
	fprintf(stderr,
		"verbena: call %u of %d members: %s: chunks of %llu bytes, predicted %.1f us, took %.1f us; %s\n",
		coll->seq, comm->n, what,
		(unsigned long long)coll->choice.chunk,
		coll->choice.predicted * 1e6, took, coll->choice.why);
}
