/* SPDX-License-Identifier: BSD-3-Clause */
/* The fault provider's own structures, shared by its files. */
#ifndef FAULT_FAULT_H
#define FAULT_FAULT_H

#include "wrap.h"

struct fault_conn;

/* Stands for the user's operation inside, so that its end passes here. */
struct fault_op {
	struct vbn_op op;
	struct vbn_op *user;
	struct fault_conn *conn;
	struct fault_op *next; /* among what is held */
	uint64_t n;	       /* it is its connection's so-many-th */
	uint64_t due_us;
	int status;
	bool fails;	    /* whatever comes of it */
	char *flip;	    /* get: the byte to spoil when it has come */
	uint8_t flip_bit;   /* as a mask */
	void *spoilt;	    /* put: a copy of the data with a bit flipped */
	struct vbn_mem mem; /* of the copy, if handle is set */
	void *handle;
};

/* An arrival that is held back. */
struct fault_arrival {
	struct fault_arrival *next;
	uint64_t due_us;
	bool waits;	 /* for others' arrivals to pass */
	uint64_t passed; /* those so far when it came */
	bool is_message;
	uint32_t imm;
	struct message_header header;
	size_t len;
	uint8_t data[];
};

/* Where chance is for the next of a connection's posts. */
struct fault_posts {
	uint64_t n; /* taken */
	bool drawn;
	unsigned refusals; /* left, if drawn */
};

struct fault_conn {
	struct wrap_conn wrap; /* first */
	struct quick quick;
	struct fault_ctx *ctx;
	uint64_t stream; /* its seed */
	struct fault_posts user, own;
	uint64_t arrivals, windows; /* so many */
	uint64_t delivered;
	struct fault_arrival *held, **held_tail;
	unsigned refs; /* operations, and being attached */
	bool closed;
	const char *doom; /* why it is to break, or NULL */
	int doom_status;
};

struct fault_counts {
	uint64_t delayed, reordered, late, refused, corrupted, failed, broken,
		slowed;
};

struct fault_ctx {
	struct wrap_ctx wrap; /* first */
	const struct fault_plan *plan;
	uint64_t operations; /* taken */
	uint64_t delivered;
	struct fault_counts counts;
	struct fault_conn **conns; /* attached; NULL: closed */
	int nconns, room;
	struct fault_op *held, **held_tail; /* are over, not completed */
	struct fault_op *stuck; /* never posted: end with the connection */
	bool refused;		/* since the last progress */
	bool doomed;		/* some connection is */
	bool timed;		/* the timer is set */
	unsigned turn;
	int epoll_fd, timer_fd;
};

uint64_t fault_now_us(void);
uint64_t fault_draw(const struct fault_conn *conn, enum fault_draw what,
		    uint64_t n);

/* hold.c [ctx] */
void fault_on_notify(struct tap *tap, uint32_t imm);
void fault_on_message(struct tap *tap, const struct message_header *header,
		      const void *data, size_t len);
int fault_deliver(struct fault_ctx *ctx);
void fault_drop_arrivals(struct fault_conn *conn);
/* The end of an operation: now, or held back. */
void fault_op_over(struct fault_op *f);
void fault_hold(struct fault_op *f, uint64_t due_us);
int fault_complete(struct fault_ctx *ctx);
void fault_complete_all(struct fault_conn *conn, int status);
/* When the next of what is held is due; UINT64_MAX: nothing is. */
uint64_t fault_next_due(const struct fault_ctx *ctx);
void fault_unref(struct fault_conn *conn);

/* post.c [ctx] */
int fault_put(void *conn, struct vbn_op *op, const struct put_args *args);
int fault_get(void *conn, struct vbn_op *op, const struct get_args *args);
int fault_atomic(void *conn, struct vbn_op *op, const struct atomic_args *args);
int fault_flush(void *conn, struct vbn_op *op);
int fault_message(void *conn, const struct message_header *header,
		  const void *data, size_t len);
struct quick *fault_quick(void *conn);
void fault_unspoil(struct fault_op *f);
/* At the next progress the connection is to break. @why is kept. */
void fault_doom(struct fault_conn *conn, int status, const char *why);
#define FAULT_FAILED "VBN_FAULT: an operation was to fail"

#endif
