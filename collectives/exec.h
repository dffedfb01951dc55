/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The executor: runs a plan's steps as soon as their dependencies are done,
 * out of order within a window. It knows nothing of endpoints or time: a
 * backend (the engine, the simulator) moves bytes and says what has come. So
 * the order of execution that the simulator proves free of deadlock is the
 * one that runs.
 *
 * Invariants: steps in the window are [base, next), at most EXEC_WINDOW;
 * a bit of pending is set for each that is not done. Puts to a peer are
 * posted in the order of their numbers.
 */
#ifndef VBN_EXEC_H
#define VBN_EXEC_H

#include "plan.h"

#define EXEC_WINDOW 64

/*
 * What the executor keeps per peer, embedded in the backend's own. It lives
 * from call to call: counts go on, both sides count alike.
 */
struct exec_peer {
	uint64_t puts, posted; /* puts numbered, puts posted */
	uint64_t waits;	       /* waits numbered */
	uint64_t landings;     /* non-empty waits that take a landing slot */
	/* Landing numbers that no reduce or copy has claimed, oldest first. */
	uint64_t claim_first, claim_end;
	uint64_t claims[EXEC_WINDOW];
};

/*
 * A receiver's count of the landing slots that it has emptied. They may empty
 * out of order, but are given back in order, for the sender takes them so.
 */
struct exec_slots {
	uint64_t freed; /* landing numbers below are free */
	uint64_t ahead; /* bit i: number freed + 1 + i is free too */
};

/* Landing @number is empty; at most 64 are in use. Returns slots->freed. */
uint64_t exec_slot_free(struct exec_slots *slots, uint64_t number);

struct exec_entry {
	struct plan_step step;
	struct exec_peer *peer;
	uint64_t index;	  /* put, wait: number at its peer, from 0 */
	uint64_t landing; /* wait, reduce, copy: number of its landing */
	bool started;	  /* exec_done() will come */
};

struct exec;

/*
 * Slots return 0 done, -EAGAIN not now (exec_run() tries again), or an error
 * that ends the run. All but open and wait may return -EINPROGRESS: taken, the
 * backend calls exec_done() later.
 */
struct exec_backend {
	/* The peer's state; NULL: -ENOMEM. */
	struct exec_peer *(*peer)(struct exec *exec, int rank);
	/*
	 * Whether the peer's direct puts into our output take a landing slot
	 * nevertheless (we cannot be written to). The same for a whole call.
	 */
	bool (*via_landing)(struct exec *exec, struct exec_peer *peer);
	/* A step enters the window. */
	void (*enter)(struct exec *exec, struct exec_entry *entry);
	int (*open)(struct exec *exec, struct exec_entry *entry);
	int (*put)(struct exec *exec, struct exec_entry *entry);
	int (*wait)(struct exec *exec, struct exec_entry *entry);
	int (*reduce)(struct exec *exec, struct exec_entry *entry);
	/* Takes one landing of each peer with exec_claim(), if of LANDING. */
	int (*reduce_all)(struct exec *exec, struct exec_entry *entry);
	int (*copy)(struct exec *exec, struct exec_entry *entry);
	int (*copy_peer)(struct exec *exec, struct exec_entry *entry);
};

struct exec {
	const struct exec_backend *backend;
	struct plan plan;
	unsigned window;
	bool ended; /* the plan has no more steps */
	uint64_t base, next;
	uint64_t pending; /* bit: step number % EXEC_WINDOW */
	struct exec_entry entries[EXEC_WINDOW];
};

/* @window 1..EXEC_WINDOW. 0 or -EINVAL. */
int exec_begin(struct exec *exec, const struct exec_backend *backend,
	       const struct plan_shape *shape, unsigned window);

/*
 * Do all that can be done. 0: every step is done; -EAGAIN: waits for
 * something; another error of the backend's, -EPROTO if the plan breaks its
 * rules.
 */
int exec_run(struct exec *exec);

/* The oldest landing of @peer that is not claimed; false: there is none. */
bool exec_oldest_claim(const struct exec_peer *peer, uint64_t *landing);
/* The same, and claim it. */
bool exec_claim(struct exec_peer *peer, uint64_t *landing);

/* A started step is done. */
void exec_done(struct exec *exec, struct exec_entry *entry);

/* The oldest step that is not done, or NULL. */
const struct exec_entry *exec_oldest(const struct exec *exec);

#endif
