/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Links between neighbouring stages. A link carries micro-batches one way:
 * the receiver owns registered slots, the sender writes into them by one put
 * with notify straight from its own registered buffers, and may write slot
 * i again once the receiver has released it. Nothing is copied.
 *
 * Items are numbered from 0 for ever; item i goes to slot i % slots, and is
 * sent from buffer i % sends.
 *
 * All calls belong to the context's thread. Waiting sleeps, and ends with an
 * error line in trainer_error() when a rank dies or at the deadline.
 */
#ifndef VBN_TRAINER_LINK_H
#define VBN_TRAINER_LINK_H

#include <verbena/transport.h>

#define LINK_SENDS 2

enum link_kind { LINK_ACTIVATIONS, LINK_GRADIENTS, LINK_KINDS };

struct net; /* what all links of a rank share */

struct link;

/*
 * A rank's links to its neighbours in the pipeline; -1: none. activations
 * come from @prev and go to @next, gradients the other way. Blocking:
 * exchanges keys through the job; at most the job's timeout. @slots: of
 * activations that this rank receives; @bytes: the largest item.
 */
struct net_options {
	int prev, next;
	int slots;
	size_t bytes;
	int timeout_ms; /* longest wait for a neighbour */
};

int net_open(struct net **net, struct vbn_ctx *ctx, struct vbn_pool *pool,
	     const struct net_options *options);
void net_close(struct net *net);

/* NULL when there is no neighbour on that side. */
struct link *net_in(struct net *net, enum link_kind kind);
struct link *net_out(struct net *net, enum link_kind kind);

/* Wait for item @i to arrive; *data is its slot, the caller's until release. */
int link_receive(struct link *link, uint64_t i, void **data);
/* The slot of item @i may be written again. Items are released in order. */
int link_release(struct link *link, uint64_t i);
/* The buffer to fill for item @i; waits until its last send is complete. */
int link_buffer(struct link *link, uint64_t i, void **data);
/* Send item @i, the first @len bytes of its buffer; waits for a free slot. */
int link_send(struct link *link, uint64_t i, size_t len);
/*
 * Wait until all that was sent has left its buffers. To be called before a
 * rank stops to progress its context: a put may need that to get on (ucx).
 */
int net_drain(struct net *net);

/*
 * Progress until done(arg) is true. 0; -ECONNRESET: a rank died; -ETIMEDOUT.
 * Sets the error line. For what is not a link.
 */
int net_wait(struct vbn_ctx *ctx, int timeout_ms, bool (*done)(void *arg),
	     void *arg, const char *what);

/* The transport's provider of the links, "" before the first is connected. */
const char *net_provider(const struct net *net);

/*
 * The job's value of @key, set by another rank at the start; *len is the room,
 * then the length. Waits at most the job's timeout, and ends when a rank dies.
 */
int net_get(struct vbn_job *job, const char *key, void *value, size_t *len);

/* ms spent waiting in links since the start. */
double net_waited_ms(const struct net *net);

/* One line on the last error of the trainer's own; never NULL. */
const char *trainer_error(void);
int trainer_fail(int err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif
