/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connecting lanes by rdma_cm (VBN_CONNECT=rdmacm): see cm.c. All of it is
 * [control], but for opening and closing.
 */
#ifndef VBN_VERBS_CM_H
#define VBN_VERBS_CM_H

#include "internal.h"

/* [any] job->cm. 0, or -errno with vbn_fail(): what this machine lacks. */
int cm_open(struct verbs_job *job);
/* [any] Listen to its events, on the job's control thread, until that ends. */
int cm_start(struct cm *cm);
/* [any] It was not started, or the control thread has ended. NULL is fine. */
void cm_close(struct cm *cm);

/*
 * The connection is to be made by rdma_cm: conn->cm until all its lanes are,
 * or until cm_cancel(). Fills what @offer says of it. @peer: the other side
 * has offered, and calls; NULL: this one will.
 */
int cm_prepare(struct verbs_conn *conn, const struct conn_info *info,
	       const struct conn_offer *peer);
void cm_fill(const struct cm_try *attempt, struct conn_offer *offer);
/*
 * Call the peer, who has answered. 0: core_connected() will say how it went,
 * unless it is cancelled before.
 */
int cm_call(struct verbs_conn *conn, const struct conn_offer *answer);
/* It is given up. */
void cm_cancel(struct verbs_conn *conn);

#endif
