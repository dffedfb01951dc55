/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Atomics that the target does: for regions that a provider cannot reach with
 * the processor's own (shm: memory on another process's heap). The target's
 * context does them when it progresses, by the same instructions as the owner
 * itself, so that no update is lost.
 *
 * op->priv of one that is asked for: 2 where the value before goes.
 */
#include "core.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int atomic_ask(struct vbn_ep *ep, struct vbn_op *op,
	       const struct atomic_args *args)
{
	struct message_header header = {
		.kind = MESSAGE_ATOMIC,
		.u32 = args->compare_swap,
		.u64 = {args->remote, args->operand, args->compare}};
	uint64_t cookie = (uintptr_t)op;
	int err;

	if (ep->natomics == ATOMICS_MAX)
		return -EAGAIN;
	err = ep_message(ep, &header, &cookie, sizeof(cookie));
	if (err)
		return err;
	op->priv[2] = (uintptr_t)args->result;
	op_push(&ep->atomics, op);
	ep->natomics++;
	return 0;
}

static int execute(struct vbn_ep *ep, const struct message_header *header,
		   uint64_t *before)
{
	uint64_t *word = (uint64_t *)(uintptr_t)header->u64[0];
	const struct vbn_mem *mem =
		memmap_find(ep->ctx->reader, word, sizeof(*word));

	if (!mem || !(mem->access & VBN_ACCESS_ATOMIC) || (uintptr_t)word & 7)
		return -EACCES;
	if (header->u32) {
		*before = header->u64[2];
		__atomic_compare_exchange_n(word, before, header->u64[1], false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	} else {
		*before = __atomic_fetch_add(word, header->u64[1],
					     __ATOMIC_SEQ_CST);
	}
	return 0;
}

static void on_done(struct vbn_ep *ep, const struct message_header *header)
{
	/* In order, so that it is the first; a stranger's cookie is not. */
	struct vbn_op *op = ep->atomics.head;
	uint64_t *result;

	if ((uintptr_t)op != header->u64[0] || !op)
		return;
	op_pop(&ep->atomics);
	ep->natomics--;
	result = (uint64_t *)op->priv[2];
	if (result && !header->u32)
		*result = header->u64[1];
	core_complete(ep->ctx, op, -(int)header->u32);
}

void atomic_deliver(struct vbn_ep *ep, const struct message_header *header,
		    const void *data, size_t len)
{
	struct message_header *answer;
	uint64_t before = 0;
	int err;

	if (header->kind == MESSAGE_ATOMIC_DONE) {
		on_done(ep, header);
		return;
	}
	if (len != sizeof(uint64_t) || ep->nanswers == ATOMICS_MAX)
		return; /* not by our rules */
	if (!ep->answers)
		ep->answers = calloc(ATOMICS_MAX, sizeof(*ep->answers));
	if (!ep->answers) {
		core_failed(ep, -ENOMEM, "no memory for an atomic's answer");
		return;
	}
	err = execute(ep, header, &before);
	answer = &ep->answers[ep->nanswers++];
	*answer = (struct message_header){.kind = MESSAGE_ATOMIC_DONE,
					  .u32 = (uint32_t)-err};
	memcpy(&answer->u64[0], data, sizeof(uint64_t));
	answer->u64[1] = before;
	ep_return_credit(ep, ep->generation);
	ep_want_pump(ep);
}

bool atomic_run(struct vbn_ep *ep)
{
	unsigned sent = 0;

	if (!ep->conn || !ep->nanswers)
		return true;
	while (sent < ep->nanswers &&
	       !ep->ops->message(ep->conn, &ep->answers[sent], NULL, 0))
		sent++;
	ep->nanswers -= sent;
	memmove(ep->answers, ep->answers + sent,
		ep->nanswers * sizeof(ep->answers[0]));
	return !ep->nanswers;
}

void atomic_fail(struct vbn_ep *ep, int status)
{
	struct vbn_op *op;

	ep->nanswers = 0;
	while ((op = op_pop(&ep->atomics))) {
		ep->natomics--;
		core_complete(ep->ctx, op, status);
	}
}
