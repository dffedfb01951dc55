/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A stand-in for the transport's core, for tests that drive a provider's
 * table directly: it records what the provider reports, and fails the test at
 * once (abort) when an operation completes twice or out of turn.
 */
#ifndef TESTS_CORE_MOCK_H
#define TESTS_CORE_MOCK_H

#include "provider.h"

struct vbn_ctx {
	struct vbn_op *deferred, **deferred_tail;
	struct vbn_counters counters;
	unsigned long completed, failed_ops;
	unsigned wakes;
};

struct vbn_ep {
	struct vbn_ctx *ctx;
	const struct provider *ops;
	void *conn; /* NULL once the core has closed it */
	int status; /* 0, or what core_failed() said */
	unsigned failures;
	char why[512];
	unsigned long notifies, messages;
	void (*on_notify)(struct vbn_ep *ep, uint32_t imm);
	void (*on_message)(struct vbn_ep *ep,
			   const struct message_header *header,
			   const void *data, size_t len);
	void *arg;
};

void mock_ctx_init(struct vbn_ctx *ctx);
/* Complete what was deferred; then the provider's progress. */
int mock_progress(struct vbn_ctx *ctx, const struct provider *ops, void *pctx);
/* Make @op ready to be posted. */
void mock_op_init(struct vbn_op *op, void (*done)(struct vbn_op *op),
		  void *arg);

#endif
