/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages for communicators that are not created here yet. Creating one does
 * not talk to the others, so a member may run ahead: on each communicator by as
 * many calls as the wire's reach is, and on as many communicators as it likes.
 * All are kept, up to a bound for all together; a communicator whose messages
 * do not fit is refused as a whole, and stays so.
 */
#ifndef VBN_EARLY_H
#define VBN_EARLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vbn_ep;

/* Of a context: 512 communicators with 16 small calls each of 200 members. */
#define EARLY_BYTES ((size_t)256 << 20)

enum { EARLY_BUCKETS = 256 };

struct early_message {
	struct early_message *next;
	struct vbn_ep *from;
	size_t len;
	uint8_t data[];
};

/* Those of one communicator, as they came. */
struct early_comm {
	struct early_comm *next;
	uint64_t uid;
	bool refused;
	struct early_message *first, **last;
};

/* Zeroed but for most: empty. */
struct early {
	struct early_comm *buckets[EARLY_BUCKETS];
	size_t bytes, most; /* kept, with what keeping takes; the bound */
	/* There was no memory to note who is refused: all that is not noted. */
	bool refuses_unknown;
};

/* Copies it. -ENOBUFS: the communicator is refused, now or since before. */
int early_keep(struct early *early, uint64_t uid, struct vbn_ep *from,
	       const void *data, size_t len);
/*
 * The communicator's messages, the oldest first, which are the caller's to
 * free; NULL: none. *refused: some were not kept. It is forgotten.
 */
struct early_message *early_take(struct early *early, uint64_t uid,
				 bool *refused);
/* The communicator is not to be: free its messages. */
void early_drop(struct early *early, uint64_t uid);
void early_clear(struct early *early);

#endif
