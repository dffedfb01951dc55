/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs provider over the fake device in two jobs, as on two hosts with
 * several devices each, and a connection between them.
 */
#ifndef TESTS_FAKE_HOSTS_H
#define TESTS_FAKE_HOSTS_H

#include "fake_verbs.h"
#include "pair.h"

/* A job each, with one context, whose devices are in the subnets 10.N.0. */
struct hosts {
	struct bench a, b;
	struct side x, y;
	struct region src, dst; /* of a; of b */
};

/*
 * @here, @there: a digit a device, its subnet. Devices are numbered through,
 * those of a first. @bytes: of both regions.
 */
void hosts_open(struct hosts *h, const char *here, const char *there,
		size_t bytes);
/* The device must have nothing left, and no complaint. */
void hosts_close(struct hosts *h);
/* Progress both until @op is over, for a time. Returns its status. */
int hosts_wait(struct hosts *h, struct vbn_op *op);
void hosts_progress(struct hosts *h);

#endif
