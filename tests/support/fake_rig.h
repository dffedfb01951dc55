/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verbs provider over the fake device, without the core: two ends (of one
 * job, or of two jobs with a device each), two regions, and a connection.
 * What goes wrong ends the program, with the line (see pair.h).
 */
#ifndef TESTS_FAKE_RIG_H
#define TESTS_FAKE_RIG_H

#include "fake_verbs.h"
#include "pair.h"

#define RIG_BYTES 262144
#define RIG_QPS	  64

struct rig {
	struct bench b;
	struct region src, dst;
	struct side x, y;  /* of a, of b */
	uint32_t xqp, yqp; /* the first queue pair of each */
	unsigned qps;	   /* of each */
};

/* How many devices there are, each a rail; 1 unless a test changes it. */
extern unsigned rig_devices;

/* @tweak (may be NULL) changes the devices' configuration. */
void rig_open(struct rig *rig, void (*tweak)(struct fake_config *config));
/* The same without the connection. */
void rig_open_bare(struct rig *rig, void (*tweak)(struct fake_config *config));
void rig_connect(struct rig *rig);
/* Close both sides, if they are open. */
void rig_disconnect(struct rig *rig);
/* Close everything; the device must have nothing left, and no complaint. */
void rig_close(struct rig *rig);

/* Progress both ends until @op is over; the program ends after 10 s. */
int rig_wait(struct rig *rig, struct vbn_op *op);
/* A put through @side from src to dst works, data and all. */
void rig_works(struct rig *rig, struct side *side);
/* Post by kind: 0 put, 1 put with notify, 2 get, 3 atomic, 4 flush. */
#define RIG_KINDS 5
int rig_post(struct rig *rig, struct vbn_op *op, unsigned kind, bool more);

#endif
