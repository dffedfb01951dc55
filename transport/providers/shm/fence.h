/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Between who publishes and then looks whether the other sleeps, and who says
 * that it sleeps and then looks for what was published, each needs its store
 * before its load (Dekker). The publisher's side is the fast path: it gets by
 * with a compiler barrier, because the sleeper has the kernel run a barrier on
 * every processor where a process of the same kind runs (membarrier). Where
 * the kernel refuses, publishers fence, too.
 */
#ifndef SHM_FENCE_H
#define SHM_FENCE_H

#include <stdatomic.h>
#include <stdbool.h>

/* Join the processes that fence_heavy() reaches; false: the kernel refuses. */
bool fence_join(void);

/*
 * The sleeper's; @joined: as fence_join() said. False: not to be relied on, do
 * not sleep.
 */
bool fence_heavy(bool joined);

/* The publisher's; @needed: it, or the sleeper, has not joined. */
static inline void fence_light(bool needed)
{
#ifdef __SANITIZE_THREAD__ /* knows no fences, but read-modify-writes */
	extern _Atomic int fence_order;

	(void)needed;
	atomic_fetch_add(&fence_order, 1);
#else
	if (needed)
		atomic_thread_fence(memory_order_seq_cst);
	else
		atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Loads before come before loads after. */
static inline void fence_loads(void)
{
#ifndef __SANITIZE_THREAD__
	atomic_thread_fence(memory_order_acquire);
#endif
}

#endif
