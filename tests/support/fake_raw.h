/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two connected queue pairs on the fake device by libibverbs' calls alone:
 * what the library is measured against, and what the device itself is tested
 * by. What fails ends the program.
 */
#ifndef TESTS_FAKE_RAW_H
#define TESTS_FAKE_RAW_H

#include "fake_verbs.h"

#define RAW_RECVS 64
#define RAW_WORDS 64

struct raw {
	struct ibv_context *device;
	struct ibv_pd *pd;
	struct ibv_mr *mr; /* of words */
	struct ibv_cq *cq[2];
	struct ibv_srq *srq[2];
	struct ibv_qp *qp[2];
	uint64_t words[RAW_WORDS];
};

struct raw_options {
	unsigned access;    /* of words, and what the queue pairs allow */
	unsigned cqe;	    /* of each completion queue */
	unsigned rnr_retry; /* 7: for ever */
	bool builders;
};

/* Opens the first device; without options: everything is allowed. */
void raw_open(struct raw *raw, const struct raw_options *options);
void raw_close(struct raw *raw);
/* Connect queue pair @i with the other. */
void raw_to_rts(struct raw *raw, int i, const struct raw_options *options);

/* A request of queue pair 0 from words[0] to words[1], 8 bytes. */
struct raw_request {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
};
void raw_request(struct raw *raw, struct raw_request *request,
		 enum ibv_wr_opcode opcode, unsigned flags);
/* Post a receive of 8 bytes into words[1] to queue pair 1. */
int raw_receive(struct raw *raw);

#endif
