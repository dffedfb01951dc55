/* SPDX-License-Identifier: BSD-3-Clause */
/* What verbena-perf tune has measured: see setup.h. */
#include "setup.h"

#include <stdlib.h>

/* Defined by the transport. */
const char *vbn_error(void);

int setup_measured(struct setup *setup, const char *path, char why[SETUP_WHY])
{
	const struct cost_params *p;
	int rc = tuning_load(path, &setup->measured);

	if (rc != 0) {
		/* It names the file and the line; the option is --tuning here.
		 */
		snprintf(why, SETUP_WHY, "--tuning: %s", vbn_error());
		return rc;
	}
	p = &setup->measured->params;
	setup->latency = p->net.alpha;
	setup->overhead = p->net.overhead;
	setup->bandwidth = 1 / p->net.beta;
	setup->local_latency = p->local.alpha;
	setup->local_overhead = p->local.overhead;
	setup->local_bandwidth = 1 / p->local.beta;
	setup->reduce_speed = 1 / p->gamma;
	setup->call = p->call;
	setup->wake = p->wake;
	setup->processors = p->processors;
	return 0;
}

void setup_release(struct setup *setup)
{
	free(setup->measured);
	setup->measured = NULL;
}
